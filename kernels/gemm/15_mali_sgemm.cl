/* gemmbench
name       = "mali-sgemm"
family     = "vendor samples"
idea       = "four steps along k, B not transposed"
source     = "ARM, Mali OpenCL SDK 1.1, SGEMM sample"
work_group = ["WX", "WY"]
work_items = ["n", "m"]
any_group  = true
batches    = true

[parameters]
WX = { values = [4, 8, 16, 32], default = 16, launch = true, idea = "columns of C across a work-group" }
WY = { values = [1, 2, 4, 8, 16], default = 8, launch = true, idea = "rows of C down a work-group" }

[presets]
cpu-intel = { WX = 16, WY = 16 }
*/
/* mali-sgemm: one element of C per work-item, four steps along k at once, B as
 * it is.
 *
 *                  n
 *          k   +---o---+
 *              | B o   |
 *      +-------+---o---+
 *    m |==oooo=|   o C |
 *      +-------+-------+
 *
 * work-item (column, row), p = 0, 4, 8 ...:
 * a = A[row * lda + p ... p + 3]            one vector load
 * b = B[(p ... p + 3) * ldb + column]       four loads, gathered
 *
 * C[row * ldc + column] = alpha * sum of lanes of a * b
 *                         + beta * C[row * ldc + column]
 *
 * naive with the vector registers of the GPU in use. No transposition: what B
 * costs is the gathering. */
#include "common.clh"

#define VECTOR REALV(4)

__kernel void mali_sgemm(int m, int n, int k, SCALAR alpha,
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
    const size_t step = ldb;
    VECTOR sums = (VECTOR)(0);
    int p = k;
    for (; p >= 4; p -= 4, a += 4, b += 4 * step)
        sums += vload4(0, a) * (VECTOR)(b[0], b[step], b[2 * step], b[3 * step]);
    REAL sum = (sums.s0 + sums.s1) + (sums.s2 + sums.s3);
    for (; p > 0; p--, a++, b += step)
        sum += *a * *b;

    __global REAL *c = C + (size_t)row * ldc + column;
    const REAL scaled = (REAL)alpha * sum;
    *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
}
