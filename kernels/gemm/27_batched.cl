/* batched: a work-group for each tile of each problem, which has all it needs in local memory before it multiplies.
 *
 *         BK          BN                A group copies slabs of A (BM x BK) and B (BK x BN) into local memory by vectors,
 *      +------+   +---------+           waits once, and multiplies BK steps without another barrier: a problem of 64 is
 *   BM |  As  |   |   Bs    | BK        one group, two copies and one barrier. Groups of other problems on the same unit
 *      +------+   +---------+           multiply while this one waits for memory.
 *
 *      acc[i][j] += As[y + i * LY][p] * Bs[p][(x + j * LX) * WIDTH ...]
 *
 * A work-item (x, y) of LX x LY makes TM rows, LY apart, and TN columns in vectors, LX vectors apart. It reads A by
 * vectors along k, each for WIDTH steps, so that A is copied as it lies; PAD elements behind each row of As keep its rows
 * in different banks. B's vectors are neighbours. Rows of A and B that do not start at vectors are copied by elements,
 * with zeros past the edges, so that no pass is needed.
 *
 * This should beat `gpu-tile` on many small problems, which takes BK / 8 barriers and three stages to get going. */
#include "common.clh"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM) || !defined(TN) || !defined(WIDTH) || !defined(PAD)
#error "BM, BN, BK, TM, TN, WIDTH and PAD must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define LX (BN / TN)
#define LY (BM / TM)
#define ITEMS (LX * LY)
#define VK (BK / WIDTH)
#define VN (BN / WIDTH)

/* A vector of a row of which `left` elements are there, zeros behind them. */
static inline VECTOR part(__global const REAL *from, int left)
{
    REAL lanes[WIDTH];
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        lanes[i] = i < left ? from[i] : (REAL)0;
    return CAT(vload, WIDTH)(0, lanes);
}

static inline void store(__global REAL *c, VECTOR sums, int left, int aligned, SCALAR alpha, SCALAR beta)
{
    const VECTOR scaled = (REAL)alpha * sums;
    if (left >= WIDTH && aligned) {
        __global VECTOR *whole = (__global VECTOR *)c;
        *whole = beta == 0 ? scaled : scaled + (REAL)beta * *whole;
        return;
    }
    REAL lanes[WIDTH];
    CAT(vstore, WIDTH)(scaled, 0, lanes);
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        if (i < left)
            c[i] = beta == 0 ? lanes[i] : lanes[i] + (REAL)beta * c[i];
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void batched(int m, int n, int k, SCALAR alpha,
             __global const REAL *restrict A, int lda,
             __global const REAL *restrict B, int ldb, SCALAR beta,
             __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    __local REAL As[BM][BK + PAD] __attribute__((aligned(32)));
    __local REAL Bs[BK][BN] __attribute__((aligned(32)));
    const int item = get_local_id(0), x = item % LX, y = item / LX;
    const int column0 = get_group_id(0) * BN, row0 = get_group_id(1) * BM;
    const int a_aligned = lda % WIDTH == 0, b_aligned = ldb % WIDTH == 0;

    VECTOR acc[TM][TN / WIDTH];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++)
            acc[i][j] = (VECTOR)(0);

    for (int p0 = 0; p0 < k; p0 += BK) {
        #pragma unroll
        for (int v = item; v < BM * VK; v += ITEMS) {
            const int r = v / VK, q = v % VK * WIDTH, row = row0 + r, p = p0 + q;
            __global const REAL *from = A + (size_t)row * lda + p;
            VECTOR value = (VECTOR)(0);
            if (row < m && p < k)
                value = a_aligned && p + WIDTH <= k ? *(__global const VECTOR *)from : part(from, k - p);
            *(__local VECTOR *)&As[r][q] = value;
        }
        #pragma unroll
        for (int v = item; v < BK * VN; v += ITEMS) {
            const int q = v / VN, c = v % VN * WIDTH, p = p0 + q, column = column0 + c;
            __global const REAL *from = B + (size_t)p * ldb + column;
            VECTOR value = (VECTOR)(0);
            if (p < k && column < n)
                value = b_aligned && column + WIDTH <= n ? *(__global const VECTOR *)from : part(from, n - column);
            *(__local VECTOR *)&Bs[q][c] = value;
        }
        barrier(CLK_LOCAL_MEM_FENCE);

        const int steps = min(BK, k - p0); /* past k there are zeros up to the next vector */
        #pragma unroll 2
        for (int p = 0; p < steps; p += WIDTH) {
            REAL a[TM][WIDTH];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                CAT(vstore, WIDTH)(*(__local const VECTOR *)&As[y + i * LY][p], 0, a[i]);
            #pragma unroll
            for (int q = 0; q < WIDTH; q++) {
                VECTOR b[TN / WIDTH];
                #pragma unroll
                for (int j = 0; j < TN / WIDTH; j++)
                    b[j] = *(__local const VECTOR *)&Bs[p + q][(x + j * LX) * WIDTH];
                #pragma unroll
                for (int i = 0; i < TM; i++)
                    #pragma unroll
                    for (int j = 0; j < TN / WIDTH; j++)
                        acc[i][j] += a[i][q] * b[j];
            }
        }
        if (p0 + BK < k)
            barrier(CLK_LOCAL_MEM_FENCE);
    }

    const int aligned = ldc % WIDTH == 0;
    #pragma unroll
    for (int i = 0; i < TM; i++) {
        const int row = row0 + y + i * LY;
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++) {
            const int column = column0 + (x + j * LX) * WIDTH;
            if (row < m && column < n)
                store(C + (size_t)row * ldc + column, acc[i][j], n - column, aligned, alpha, beta);
        }
    }
}
