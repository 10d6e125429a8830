/* T = transpose of S, with zeros past the rows of S.
 *
 *             columns                        rows
 *          +-----------+                 +-------------+--+
 *     rows | S  +--+   |         columns | T           | 0|
 *          |    |  |   |   -->           |   +------+  |  |
 *          |    |  |64 |                 |   |  64  |32|  |
 *          |    +--+   |                 |   +------+  |  |
 *          |     32    |                 +-------------+--+ ldt
 *          +-----------+
 *
 *     T[c * ldt + r] = S[r * lds + c]
 *
 * A tile of 64 x 32 goes through local memory, whose rows are one longer, so that a column lies in as many banks as a
 * row. A work-item moves eight elements, all of which are under way at once: that, and rows of 32, is what makes it
 * half as long again as fast as `transpose` where memory is wide. */
#include "common.clh"

#ifdef STORED_half
#undef REAL
#define REAL ushort /* half in memory, float elsewhere: what is moved are its bits */
#endif
#define ROWS 64
#define COLUMNS 32
#define AT_ONCE 8

__kernel __attribute__((reqd_work_group_size(COLUMNS, AT_ONCE, 1)))
void transpose_tall(int rows, int columns, __global const REAL *restrict S, int lds, __global REAL *restrict T, int ldt)
{
#ifdef BATCHED
    BATCH_OFFSET(S, rows, lds)
    BATCH_OFFSET(T, columns, ldt)
#endif
    __local REAL tile[ROWS][COLUMNS + 1];
    const int x = get_local_id(0), y = get_local_id(1);
    const int column0 = get_group_id(0) * COLUMNS, row0 = get_group_id(1) * ROWS;

    #pragma unroll
    for (int e = 0; e < ROWS; e += AT_ONCE) {
        const int row = row0 + y + e, column = column0 + x;
        tile[y + e][x] = row < rows && column < columns ? S[(size_t)row * lds + column] : (REAL)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int e = 0; e < COLUMNS; e += AT_ONCE)
        #pragma unroll
        for (int part = 0; part < ROWS; part += COLUMNS) {
            const int row = column0 + y + e, column = row0 + part + x;
            if (row < columns && column < ldt)
                T[(size_t)row * ldt + column] = tile[part + x][y + e];
        }
}
