/* gemmbench
name        = "coarse"
family      = "first steps"
idea        = "several elements of C per work-item"
source      = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 3"
work_group  = ["TS", "TS // WPT"]
tile        = ["TS", "TS"]
either      = ["A", "B"]
batches     = true
local       = "2 * TS * TS"
constraints = [
    ["TS % WPT == 0", "TS must be a multiple of WPT"],
]

[parameters]
TS  = { values = [16, 32, 64], default = 32, idea = "edge of the square tiles" }
WPT = { values = [2, 4, 8, 16], default = 8, idea = "elements of C of a work-item" }

[presets]
cpu-intel           = { TS = 64, WPT = 16 }
gpu-nvidia          = { TS = 64, WPT = 16 }
"gpu-nvidia:double" = { TS = 32 }
*/
/* coarse: more work for each work-item: WPT elements of C, one below the
 * other.
 *
 *                       n
 *                  +--+----+--+
 *                  |  | Bt |  |  TS
 *          k       |  +----+  |
 *      +--+----+---+--+o---+--+
 *    m |  | At |   |  |o C |  |  TS
 *      +--+----+---+--+o---+--+
 *           TS         TS
 *
 * A TS x TS tile of C is made by TS x (TS / WPT) work-items. Work-item
 * (x, y) owns column x and the rows y, y + RTS, y + 2 RTS ... of the
 * tile, RTS = TS / WPT.
 *
 * acc[w] += At[y + w * RTS][p] * Bt[p][x]
 *
 * tiled reads two values from local memory for every multiplication; here the
 * value of Bt is read once for WPT of them, and the additions of a work-item
 * do not wait for one another. */
#include "common.clh"

#if !defined(TS) || !defined(WPT)
#error "TS and WPT must be defined"
#endif

#define RTS (TS / WPT) /* rows of work-items in a group */

__kernel __attribute__((reqd_work_group_size(TS, RTS, 1)))
void coarse(int m, int n, int k, SCALAR alpha,
            __global const REAL *restrict A, int lda,
            __global const REAL *restrict B, int ldb, SCALAR beta,
            __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
#ifdef TRANS
    __local REAL At[TS][TS + 1], Bt[TS][TS + 1]; /* what is stored transposed is written to columns: one bank each */
#else
    __local REAL At[TS][TS], Bt[TS][TS];
#endif
    const int x = get_local_id(0), y = get_local_id(1);
    const int column = get_group_id(0) * TS + x, row0 = get_group_id(1) * TS;

    REAL acc[WPT];
    #pragma unroll
    for (int w = 0; w < WPT; w++)
        acc[w] = 0;

    for (int p0 = 0; p0 < k; p0 += TS) {
        #pragma unroll
        for (int w = 0; w < WPT; w++) {
            const int r = y + w * RTS;
#ifdef TRANS_A
            At[x][r] = p0 + r < k && row0 + x < m ? A[(size_t)(p0 + r) * lda + row0 + x] : (REAL)0;
#else
            At[r][x] = row0 + r < m && p0 + x < k ? A[(size_t)(row0 + r) * lda + p0 + x] : (REAL)0;
#endif
#ifdef TRANS_B
            const int c = column - x + r;
            Bt[x][r] = c < n && p0 + x < k ? B[(size_t)c * ldb + p0 + x] : (REAL)0;
#else
            Bt[r][x] = p0 + r < k && column < n ? B[(size_t)(p0 + r) * ldb + column] : (REAL)0;
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int p = 0; p < TS; p++) {
            const REAL b = Bt[p][x];
            #pragma unroll
            for (int w = 0; w < WPT; w++)
                acc[w] += At[y + w * RTS][p] * b;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    #pragma unroll
    for (int w = 0; w < WPT; w++) {
        const int row = row0 + y + w * RTS;
        if (row < m && column < n) {
            __global REAL *c = C + (size_t)row * ldc + column;
            const REAL scaled = (REAL)alpha * acc[w];
            *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
        }
    }
}
