/* padded: incomplete tiles, by padding. Five launches:
 *
 *    pad        AP (mp x kp) = A (m x k) with zeros to whole tiles     (00_pad.cl)
 *    transpose  BT (n x k) = B (k x n) transposed                      (00_transpose.cl)
 *    pad        BP (np x kp) = BT with zeros to whole tiles            (00_pad.cl)
 *    padded     CP (mp x np) = AP times BP transposed
 *    unpad      C (m x n) = alpha * the m x n corner of CP + beta * C
 *
 *          kp                kp                     np
 *      +------+--+       +------+--+          +--------+--+
 *      |  A   | 0|       |  BT  | 0|          | A B    | 0|   mp, np, kp: m, n, k rounded up to
 *    m |      |  |     n |      |  |        m |        |  |   multiples of BM, BN, BK
 *      +------+  |       +------+  |          +--------+  |
 *      |  0      |       |  0      |          |  0        |
 *      +---------+       +---------+          +-----------+
 *
 *    CP[i * np + j] = sum over p of AP[i * kp + p] * BP[j * kp + p]
 *
 * The multiplication has no edge to test for: every load and store is whole, and BM, BN and BK are free of
 * one another and of the problem, 10 x 10 micro-tiles included. The helpers cost O(n^2) for O(n^3) saved. */
#include "common.clh"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM) || !defined(TN) || !defined(PAD)
#error "BM, BN, BK, TM, TN and PAD must be defined"
#endif

#define GX (BN / TN)
#define GY (BM / TM)
#define ITEMS (GX * GY)

__kernel __attribute__((reqd_work_group_size(GX, GY, 1)))
void padded(int np, int kp, __global const REAL *restrict AP, __global const REAL *restrict BP,
            __global REAL *restrict CP)
{
    __local REAL At[BK][BM + PAD], Bt[BK][BN + PAD]; /* tiles are stored by columns: PAD sets their banks apart */
    const int x = get_local_id(0), y = get_local_id(1), item = y * GX + x;
    const int row0 = get_group_id(1) * BM, column0 = get_group_id(0) * BN;

    REAL acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = 0;

    for (int p0 = 0; p0 < kp; p0 += BK) {
        for (int e = item; e < BM * BK; e += ITEMS)
            At[e % BK][e / BK] = AP[(size_t)(row0 + e / BK) * kp + p0 + e % BK];
        for (int e = item; e < BN * BK; e += ITEMS)
            Bt[e % BK][e / BK] = BP[(size_t)(column0 + e / BK) * kp + p0 + e % BK];
        barrier(CLK_LOCAL_MEM_FENCE);

        for (int p = 0; p < BK; p++) {
            REAL b[TN];
            #pragma unroll
            for (int j = 0; j < TN; j++)
                b[j] = Bt[p][x + j * GX];
            #pragma unroll
            for (int i = 0; i < TM; i++) {
                const REAL a = At[p][y + i * GY];
                #pragma unroll
                for (int j = 0; j < TN; j++)
                    acc[i][j] += a * b[j];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN; j++)
            CP[(size_t)(row0 + y + i * GY) * np + column0 + x + j * GX] = acc[i][j];
}

__kernel void unpad(int m, int n, SCALAR alpha, __global const REAL *restrict CP, int np, SCALAR beta,
                    __global REAL *restrict C, int ldc)
{
    const int column = get_global_id(0), row = get_global_id(1);
    if (row >= m || column >= n)
        return;
    __global REAL *c = C + (size_t)row * ldc + column;
    const REAL scaled = (REAL)alpha * CP[(size_t)row * np + column];
    *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
}
