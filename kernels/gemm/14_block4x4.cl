/* gemmbench
name       = "block4x4-v{WIDTH}"
family     = "mobile"
idea       = "4 x 4 elements of C, width {WIDTH}"
source     = "Profiling GEMM on Android (Mali-T760); Gronqvist and Lokhotmov, GPU Pro 5"
kernel     = "block4x4"
each       = "WIDTH"
work_group = ["WX", "WY"]
work_items = ["ceil_div(n, 4)", "ceil_div(m, 4)"]
any_group  = true
edge       = "max(WIDTH, 4 * max(WX, WY))"
transposed = ["B"]
batches    = true

[parameters]
WIDTH = { values = [4, 8], idea = "elements of a vector" }
WX    = { values = [4, 8, 16], default = 8, launch = true, idea = "blocks of C across a work-group" }
WY    = { values = [1, 4, 8, 16], default = 8, launch = true, idea = "blocks of C down a work-group" }
*/
/* block4x4: B transposed, a 4 x 4 block of C per work-item.
 *
 *             k                      k
 *      +------------+         +------------+
 *      |====a[0]====|         |====b[0]====|
 *    m |    ...     |       n |    ...     |
 *      |====a[3]====|         |====b[3]====|
 *      +------------+         +------------+
 *
 * work-item (x, y): rows 4 y ... 4 y + 3 of A,
 * rows 4 x ... 4 x + 3 of BT
 *
 * C[(4 y + i) * ldc + 4 x + j] = a[i] . b[j]
 *
 * Eight loads serve sixteen products, where block2x2 has four for four. It
 * takes 16 sums and 8 vectors of registers: on GPUs that share few registers
 * among many work-items, fewer of those fit, and it loses. Rows past the edge
 * are the last row again: read in bounds, and not written. */
#include "common.clh"

#ifndef WIDTH
#error "WIDTH, the elements of a vector, must be defined"
#endif
#define VECTOR REALV(WIDTH)
#define LOAD(p) CAT(vload, WIDTH)(0, p)

static inline REAL product(VECTOR a, VECTOR b)
{
#if WIDTH == 4
    return dot(a, b);
#elif WIDTH == 8
    return dot(a.lo, b.lo) + dot(a.hi, b.hi);
#else
#error "WIDTH must be 4 or 8"
#endif
}

__kernel void block4x4(int m, int n, int k, SCALAR alpha,
                       __global const REAL *restrict A, int lda,
                       __global const REAL *restrict BT, int ldbt, SCALAR beta,
                       __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(BT, n, ldbt)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int column = 4 * get_global_id(0), row = 4 * get_global_id(1);
    if (row >= m || column >= n)
        return;

    __global const REAL *a[4], *b[4];
    REAL sum[4][4];
    #pragma unroll
    for (int i = 0; i < 4; i++) {
        a[i] = A + (size_t)min(row + i, m - 1) * lda;
        b[i] = BT + (size_t)min(column + i, n - 1) * ldbt;
        #pragma unroll
        for (int j = 0; j < 4; j++)
            sum[i][j] = 0;
    }

    int p = 0;
    for (; p + WIDTH <= k; p += WIDTH) {
        VECTOR y[4];
        #pragma unroll
        for (int j = 0; j < 4; j++)
            y[j] = LOAD(b[j] + p);
        #pragma unroll
        for (int i = 0; i < 4; i++) {
            const VECTOR x = LOAD(a[i] + p);
            #pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i][j] += product(x, y[j]);
        }
    }
    for (; p < k; p++) {
        #pragma unroll
        for (int i = 0; i < 4; i++)
            #pragma unroll
            for (int j = 0; j < 4; j++)
                sum[i][j] += a[i][p] * b[j][p];
    }

    #pragma unroll
    for (int i = 0; i < 4; i++) {
        #pragma unroll
        for (int j = 0; j < 4; j++) {
            if (row + i < m && column + j < n) {
                __global REAL *c = C + (size_t)(row + i) * ldc + column + j;
                const REAL scaled = (REAL)alpha * sum[i][j];
                *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
            }
        }
    }
}
