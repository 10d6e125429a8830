/* T = transpose of S, with zeros past its edges.
 *
 *            columns                       rows
 *         +-----------+                 +--------+--+
 *    rows | S  +---+  |        columns  | T      | 0|
 *         |    |16 |  |   -->           | +---+  |  |
 *         |    +---+  |                 | |16 |  |  |
 *         +-----------+                 | +---+  |  |
 *                                       +--------+  |
 *                          target_rows  |  0        |
 *                                       +-----------+ target_columns
 *    T[c * ldt + r] = S[r * lds + c]
 *
 * A 16 x 16 tile goes through local memory, so that both the reading and the writing walk along rows.
 * The tile's rows are one longer than 16: without that, a column of it lies in one memory bank. */
#include "common.clh"

#define TILE 16

__kernel __attribute__((reqd_work_group_size(TILE, TILE, 1)))
void transpose(int rows, int columns, __global const REAL *restrict S, int lds,
               int target_rows, int target_columns, __global REAL *restrict T, int ldt)
{
#ifdef BATCHED
    BATCH_OFFSET(S, rows, lds)
    BATCH_OFFSET(T, target_rows, ldt)
#endif
    __local REAL tile[TILE][TILE + 1];
    const int x = get_local_id(0), y = get_local_id(1);
    const int column0 = get_group_id(0) * TILE, row0 = get_group_id(1) * TILE;

    tile[y][x] = row0 + y < rows && column0 + x < columns ? S[(size_t)(row0 + y) * lds + column0 + x] : (REAL)0;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (column0 + y < target_rows && row0 + x < target_columns)
        T[(size_t)(column0 + y) * ldt + row0 + x] = tile[x][y];
}
