/* T = transpose of S, whose elements are bytes, with zeros past its edges.
 *
 *            columns                       rows
 *         +-----------+                 +--------+--+
 *    rows | S  +---+  |        columns  | T      | 0|
 *         |    |64 |  |   -->           | +---+  |  |
 *         |    +---+  |                 | |64 |  |  |
 *         +-----------+                 | +---+  |  |
 *                                       +--------+  |
 *                          target_rows  |  0        |
 *                                       +-----------+ target_columns
 *    T[c * ldt + r] = S[r * lds + c]
 *
 * A work-item reads a block of 4 x 4 bytes by words, turns it round in registers and puts its words into a 64 x 64 tile in
 * local memory, from which words are written along rows of T: byte by byte this takes five times as long. Rows of
 * T start at words, and end there: ldt and target_columns are multiples of 4. Rows of S need not. */
#ifdef BATCHED
#include "batch.clh"
#endif
#define TILE 64
#define WORDS (TILE / 4)

/* Bytes of a row of S as a word, the first lowest; zeros for those past its end. */
static inline uint word_of(__global const uchar *from, int left, int aligned)
{
    if (aligned && left >= 4)
        return *(__global const uint *)from;
    uint word = 0;
    for (int byte = 0; byte < min(left, 4); byte++)
        word |= (uint)from[byte] << 8 * byte;
    return word;
}

__kernel __attribute__((reqd_work_group_size(WORDS, WORDS, 1)))
void transpose_bytes(int rows, int columns, __global const uchar *restrict S, int lds,
                     int target_rows, int target_columns, __global uchar *restrict T, int ldt)
{
#ifdef BATCHED
    BATCH_OFFSET(S, rows, lds)
    BATCH_OFFSET(T, target_rows, ldt)
#endif
    __local uint tile[TILE][WORDS + 1]; /* one word more: a column of it would lie in two memory banks */
    const int x = get_local_id(0), y = get_local_id(1);
    const int column0 = get_group_id(0) * TILE, row0 = get_group_id(1) * TILE;

    uint block[4];
    #pragma unroll
    for (int r = 0; r < 4; r++) {
        const int row = row0 + 4 * y + r, column = column0 + 4 * x;
        block[r] = row < rows && column < columns
                       ? word_of(S + (size_t)row * lds + column, columns - column, lds % 4 == 0)
                       : 0;
    }
    #pragma unroll
    for (int c = 0; c < 4; c++)
        tile[4 * x + c][y] = (block[0] >> 8 * c & 255) | (block[1] >> 8 * c & 255) << 8 |
                             (block[2] >> 8 * c & 255) << 16 | (block[3] >> 8 * c & 255) << 24;
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int c = 0; c < 4; c++) {
        const int row = column0 + y + c * WORDS, column = row0 + 4 * x;
        if (row < target_rows && column < target_columns)
            *(__global uint *)(T + (size_t)row * ldt + column) = tile[y + c * WORDS][x];
    }
}
