/* P = S with zeros past its edges, in whole tiles.
 *
 *        columns             target_columns
 *      +---------+           +---------+--+
 * rows | S       |   -->     | S       | 0|       P[i * target_columns + j] = S[i * lds + j]
 *      +---------+           +---------+  |
 *                target_rows |  0         |
 *                            +------------+
 *
 * What reads P needs no test for edges, and each of its rows starts where a whole vector can be loaded. */
#include "common.clh"

__kernel void pad(int rows, int columns, __global const REAL *restrict S, int lds,
                  int target_rows, int target_columns, __global REAL *restrict P)
{
#ifdef BATCHED
    BATCH_OFFSET(S, rows, lds)
    BATCH_OFFSET(P, target_rows, target_columns)
#endif
    const int column = get_global_id(0), row = get_global_id(1);
    if (row < target_rows && column < target_columns)
        P[(size_t)row * target_columns + column] =
            row < rows && column < columns ? S[(size_t)row * lds + column] : (REAL)0;
}
