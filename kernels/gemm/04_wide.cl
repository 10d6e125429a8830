/* gemmbench
name        = "wide"
family      = "first steps"
idea        = "vector loads and vector arithmetic"
source      = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 4"
work_group  = ["TS // WIDTH", "TS"]
tile        = ["TS", "TS"]
batches     = true
local       = "2 * TS * TS"
constraints = [
    ["TS % WIDTH == 0", "TS must be a multiple of WIDTH"],
]

[parameters]
TS    = { values = [16, 32, 64], default = 32, idea = "edge of the square tiles" }
WIDTH = { values = [2, 4, 8, 16], default = 4, idea = "columns of C of a work-item, a vector" }

[presets]
cpu                 = { TS = 64, WIDTH = 16 }
gpu-nvidia          = { TS = 64, WIDTH = 4 }
"gpu-nvidia:double" = { TS = 16, WIDTH = 2 }
phone               = { TS = 16, WIDTH = 4 }
*/
/* wide: vector types for loads and arithmetic: WIDTH neighbouring columns of C
 * for each work-item.
 *
 *                       n
 *                  +--+----+--+
 *                  |  | Bt |  |  TS
 *          k       |  +----+  |
 *      +--+----+---+--+----+--+
 *    m |  | At |   |  |[CC]|  |  TS
 *      +--+----+---+--+----+--+
 *           TS         TS
 *
 * The tiles hold vectors of WIDTH elements of a row. Work-item (x, y)
 * makes the vector x of row y of C's tile: it takes a vector of A's
 * row, and for each of its lanes a vector of B.
 *
 * acc += At[y][q].lane * Bt[q * WIDTH + lane][x],
 * acc = C[row * ldc + column ... column + WIDTH - 1]
 *
 * Fewer and wider instructions than coarse for the same work. Where a row
 * starts at a multiple of WIDTH (ld is one) whole vectors are loaded through a
 * pointer to the vector type: vload may be compiled to scalar loads. */
#include "common.clh"

#if !defined(TS) || !defined(WIDTH)
#error "TS and WIDTH must be defined"
#endif
#define VECTOR REALV(WIDTH)
#define ACROSS (TS / WIDTH) /* vectors in a row of a tile */

/* The WIDTH elements from p on, of which `left` exist; zeros for the others. */
static inline VECTOR load(__global const REAL *p, int left, int aligned)
{
    if (left >= WIDTH)
        return aligned ? *(__global const VECTOR *)p : CAT(vload, WIDTH)(0, p);
    REAL lanes[WIDTH];
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        lanes[i] = i < left ? p[i] : (REAL)0;
    return CAT(vload, WIDTH)(0, lanes);
}

#define STEP(lane, s) acc += a.s * Bt[q * WIDTH + lane][x];

__kernel __attribute__((reqd_work_group_size(ACROSS, TS, 1)))
void wide(int m, int n, int k, SCALAR alpha,
          __global const REAL *restrict A, int lda,
          __global const REAL *restrict B, int ldb, SCALAR beta,
          __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    __local VECTOR At[TS][ACROSS], Bt[TS][ACROSS];
    const int x = get_local_id(0), y = get_local_id(1);
    const int column = get_group_id(0) * TS + x * WIDTH, row = get_group_id(1) * TS + y;
    const int a_aligned = lda % WIDTH == 0, b_aligned = ldb % WIDTH == 0;

    VECTOR acc = (VECTOR)(0);
    for (int p0 = 0; p0 < k; p0 += TS) {
        const int pa = p0 + x * WIDTH, pb = p0 + y;
        At[y][x] = row < m && pa < k ? load(A + (size_t)row * lda + pa, k - pa, a_aligned) : (VECTOR)(0);
        Bt[y][x] = pb < k && column < n ? load(B + (size_t)pb * ldb + column, n - column, b_aligned) : (VECTOR)(0);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int q = 0; q < ACROSS; q++) {
            const VECTOR a = At[y][q];
            STEP(0, s0) STEP(1, s1)
#if WIDTH >= 4
            STEP(2, s2) STEP(3, s3)
#endif
#if WIDTH >= 8
            STEP(4, s4) STEP(5, s5) STEP(6, s6) STEP(7, s7)
#endif
#if WIDTH >= 16
            STEP(8, s8) STEP(9, s9) STEP(10, sa) STEP(11, sb) STEP(12, sc) STEP(13, sd) STEP(14, se) STEP(15, sf)
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    if (row < m) {
        REAL lanes[WIDTH];
        CAT(vstore, WIDTH)(acc, 0, lanes);
        #pragma unroll
        for (int i = 0; i < WIDTH; i++) {
            if (column + i < n) {
                __global REAL *c = C + (size_t)row * ldc + column + i;
                const REAL scaled = (REAL)alpha * lanes[i];
                *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
            }
        }
    }
}
