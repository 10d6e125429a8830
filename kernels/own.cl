/* gemmbench
# What gemmbench has to know of this kernel, in TOML. docs/own-kernels.md lists every key.
idea       = "square tiles of A and B in local memory"

# The arguments in the kernel's own order, from: m n k alpha A lda B ldb beta C ldc offa offb offc, or
# formulas of lengths and parameters such as "ceil_div(k, TS)". What is left out is 1 for alpha, 0 for beta,
# and rows without gaps for lda, ldb and ldc: the kernel is then verified and measured for that alone.
arguments  = ["m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc"]

# Work-items of a work-group in directions 0 and 1, and the tile of C that it computes: rows, columns, and
# the depth of a step along k. There are as many work-groups as tiles: direction 0 goes along the columns.
work_group = ["TS", "TS"]
tile       = ["TS", "TS", "TS"]

# Elements of local memory of a work-group, so that a device with less is told before it is tried.
local      = "2 * TS * TS"

types      = ["float", "double"]    # REAL and SCALAR below are the type that is measured

[parameters]                        # a -D each; the first value is the default, `gemmbench tune` tries all
TS         = [16, 8, 32]
*/
#include "common.clh"

__kernel void sgemm(int m, int n, int k, SCALAR alpha,
                    __global const REAL *restrict A, int lda,
                    __global const REAL *restrict B, int ldb, SCALAR beta,
                    __global REAL *restrict C, int ldc)
{
    __local REAL a[TS][TS], b[TS][TS];
    const int x = get_local_id(0), y = get_local_id(1);
    const int column = get_global_id(0), row = get_global_id(1);
    REAL sum = 0;

    for (int p = 0; p < k; p += TS) {
        /* Every work-item loads an element of each tile: zeros past the edges. */
        a[y][x] = row < m && p + x < k ? A[(size_t)row * lda + p + x] : 0;
        b[y][x] = p + y < k && column < n ? B[(size_t)(p + y) * ldb + column] : 0;
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int q = 0; q < TS; q++)
            sum += a[y][q] * b[q][x];
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    if (row < m && column < n) {
        __global REAL *c = C + (size_t)row * ldc + column;
        *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c; /* beta = 0 must not read C: it may hold NaN */
    }
}
