/* C = the corner of P that is no padding.
 *
 *        columns
 *      +---------+--+          columns
 * rows | P       |  |        +---------+
 *      |         |  |   -->  | C       | rows      C[i * ldc + j] = P[i * ldp + j]
 *      +---------+  |        +---------+
 *      |            |
 *      +------------+
 *
 * What lies between the rows of C stays as it was. */
#include "common.clh"

__kernel void unpad(int rows, int columns, __global const REAL *restrict P, int ldp, __global REAL *restrict C,
                    int ldc)
{
    const int column = get_global_id(0), row = get_global_id(1);
    if (row < rows && column < columns)
        C[(size_t)row * ldc + column] = P[(size_t)row * ldp + column];
}
