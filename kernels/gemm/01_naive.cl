/* gemmbench
name       = "naive"
family     = "first steps"
idea       = "one work-item per element of C"
source     = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 1"
work_group = ["WX", "WY"]
work_items = ["n", "m"]
any_group  = true
batches    = true

[parameters]
WX = { values = [8, 16, 32], default = 16, launch = true, idea = "columns of C across a work-group" }
WY = { values = [1, 2, 4, 8, 16], default = 16, launch = true, idea = "rows of C down a work-group" }

[presets]
gpu   = { WX = 32, WY = 8 }
phone = { WX = 8, WY = 8 }
*/
/* naive: one work-item per element of C.
 *
 *                  n
 *          k   +---|---+
 *              | B | k |
 *      +-------+---|---+
 *    m |===A===|   o C |
 *      +-------+-------+
 *
 * work-item (column, row):
 * C[row * ldc + column] =
 *   alpha * sum over p of A[row * lda + p] * B[p * ldb + column]
 *   + beta * C[row * ldc + column]
 *
 * Neighbouring work-items take neighbouring columns, so that a wavefront reads
 * one stretch of B and one value of A. Every element of A is read n times from
 * global memory, every one of B m times: the baseline. */
#include "common.clh"

__kernel void naive(int m, int n, int k, SCALAR alpha,
                    __global const REAL *restrict A, int lda,
                    __global const REAL *restrict B, int ldb, SCALAR beta,
                    __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int column = get_global_id(0), row = get_global_id(1);
    if (row >= m || column >= n)
        return;

    __global const REAL *a = A + (size_t)row * lda;
    __global const REAL *b = B + column;
    REAL sum = 0;
    for (int p = 0; p < k; p++)
        sum += a[p] * b[(size_t)p * ldb];

    __global REAL *c = C + (size_t)row * ldc + column;
    const REAL scaled = (REAL)alpha * sum;
    *c = beta == 0 ? scaled : scaled + (REAL)beta * *c; /* beta = 0 must not read C: it may hold NaN */
}
