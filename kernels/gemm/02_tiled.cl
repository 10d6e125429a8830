/* gemmbench
name       = "tiled"
family     = "first steps"
idea       = "square tiles of A and B in local memory"
source     = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 2"
work_group = ["TS", "TS"]
tile       = ["TS", "TS"]
work_items = ["n", "m"]
either     = ["A", "B"]
batches    = true
local      = "2 * TS * TS"

[parameters]
TS = { values = [8, 16, 32], default = 16, idea = "edge of the square tiles" }

[presets]
cpu-intel  = { TS = 32 }
gpu-nvidia = { TS = 32 }
phone      = { TS = 8 }
*/
/* tiled: square tiles of A and B staged in local memory.
 *
 *                       n
 *                  +--+----+--+
 *                  |  | Bt |  |  TS
 *          k       |  +----+  |
 *      +--+----+---+--+----+--+
 *    m |  | At |   |  | C  |  |  TS
 *      +--+----+---+--+----+--+
 *           TS         TS
 *
 * Each TS x TS work-group makes one tile of C. Along k it loads a
 * tile of A and a tile of B together, one element of each per
 * work-item, then every work-item takes TS steps from them.
 *
 *    sum += At[y][p] * Bt[p][x],   At[y][x] = A[row * lda + p0 + x],
 *     Bt[y][x] = B[(p0 + y) * ldb + column]
 *
 * Each element is now read from global memory once per tile rather than once
 * per work-item: TS times less traffic. Two barriers a tile: one before the
 * tile is read, one before it is overwritten. Past the edges tiles hold zeros,
 * which add nothing. */
#include "common.clh"

#ifndef TS
#error "TS, the edge of the square tiles, must be defined"
#endif

__kernel __attribute__((reqd_work_group_size(TS, TS, 1)))
void tiled(int m, int n, int k, SCALAR alpha,
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
    const int column = get_group_id(0) * TS + x, row = get_group_id(1) * TS + y;

    REAL sum = 0;
    for (int p0 = 0; p0 < k; p0 += TS) {
#ifdef TRANS_A
        const int r = row - y + x;
        At[x][y] = p0 + y < k && r < m ? A[(size_t)(p0 + y) * lda + r] : (REAL)0;
#else
        At[y][x] = row < m && p0 + x < k ? A[(size_t)row * lda + p0 + x] : (REAL)0;
#endif
#ifdef TRANS_B
        const int c = column - x + y;
        Bt[x][y] = c < n && p0 + x < k ? B[(size_t)c * ldb + p0 + x] : (REAL)0;
#else
        Bt[y][x] = p0 + y < k && column < n ? B[(size_t)(p0 + y) * ldb + column] : (REAL)0;
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int p = 0; p < TS; p++)
            sum += At[y][p] * Bt[p][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    if (row < m && column < n) {
        __global REAL *c = C + (size_t)row * ldc + column;
        const REAL scaled = (REAL)alpha * sum;
        *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
    }
}
