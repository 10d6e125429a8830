/* gemmbench
name       = "block2x2-v{WIDTH}"
family     = "mobile"
idea       = "2 x 2 elements of C, width {WIDTH}"
source     = "Profiling GEMM on Android (Mali-T760); Gronqvist and Lokhotmov, GPU Pro 5"
kernel     = "block2x2"
each       = "WIDTH"
work_group = ["WX", "WY"]
work_items = ["ceil_div(n, 2)", "ceil_div(m, 2)"]
any_group  = true
edge       = "max(WIDTH, 2 * max(WX, WY))"
transposed = ["B"]
batches    = true

[parameters]
WIDTH = { values = [4, 8], idea = "elements of a vector" }
WX    = { values = [4, 8, 16], default = 8, launch = true, idea = "blocks of C across a work-group" }
WY    = { values = [1, 4, 8, 16], default = 8, launch = true, idea = "blocks of C down a work-group" }
*/
/* block2x2: a 2 x 2 block of C per work-item, B transposed.
 *
 *            k                     k
 *      +-----------+         +-----------+
 *      |====a0=====|         |====b0=====|
 *    m |====a1=====|       n |====b1=====|
 *      | A         |         | BT        |
 *      +-----------+         +-----------+
 *
 * a0, a1: rows 2 y and 2 y + 1 of A
 * b0, b1: rows 2 x and 2 x + 1 of BT
 *
 * C[2y    ][2x] = a0 . b0    C[2y    ][2x + 1] = a0 . b1
 * C[2y + 1][2x] = a1 . b0    C[2y + 1][2x + 1] = a1 . b1
 *
 * Four loads of WIDTH elements serve four dot products, where dot loads two
 * for one. Where m or n is odd the last block's second row is its first one
 * again: read in bounds, and not written. */
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
#elif WIDTH == 8 /* OpenCL C has no 8-wide dot */
    return dot(a.lo, b.lo) + dot(a.hi, b.hi);
#else
#error "WIDTH must be 4 or 8"
#endif
}

static inline void store(__global REAL *c, SCALAR alpha, REAL sum, SCALAR beta)
{
    const REAL scaled = (REAL)alpha * sum;
    *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
}

__kernel void block2x2(int m, int n, int k, SCALAR alpha,
                       __global const REAL *restrict A, int lda,
                       __global const REAL *restrict BT, int ldbt, SCALAR beta,
                       __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(BT, n, ldbt)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int column = 2 * get_global_id(0), row = 2 * get_global_id(1);
    if (row >= m || column >= n)
        return;
    const int row1 = min(row + 1, m - 1), column1 = min(column + 1, n - 1);

    __global const REAL *a0 = A + (size_t)row * lda, *a1 = A + (size_t)row1 * lda;
    __global const REAL *b0 = BT + (size_t)column * ldbt, *b1 = BT + (size_t)column1 * ldbt;
    REAL s00 = 0, s01 = 0, s10 = 0, s11 = 0;
    int p = 0;
    for (; p + WIDTH <= k; p += WIDTH) {
        const VECTOR x0 = LOAD(a0 + p), x1 = LOAD(a1 + p), y0 = LOAD(b0 + p), y1 = LOAD(b1 + p);
        s00 += product(x0, y0);
        s01 += product(x0, y1);
        s10 += product(x1, y0);
        s11 += product(x1, y1);
    }
    for (; p < k; p++) {
        s00 += a0[p] * b0[p];
        s01 += a0[p] * b1[p];
        s10 += a1[p] * b0[p];
        s11 += a1[p] * b1[p];
    }

    __global REAL *c = C + (size_t)row * ldc + column;
    store(c, alpha, s00, beta);
    if (column + 1 < n)
        store(c + 1, alpha, s01, beta);
    if (row + 1 < m) {
        store(c + ldc, alpha, s10, beta);
        if (column + 1 < n)
            store(c + ldc + 1, alpha, s11, beta);
    }
}
