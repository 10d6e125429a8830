/* nv-async's last columns of C where they are too few for a tile: the pass that transposes A multiplies them on its way.
 *
 *               k                       m
 *          +---------+             +---------+         +-+                 +-----+-+
 *        m | A  +--+ |           k | T  +--+ |       k |B| edge columns    | C   | | = alpha * sum over t of Q[t] + beta * C
 *          |    |  | |64   -->     |    +--+ |   and   +-+ from `first`    |tiles| | m
 *          |    +--+ |             |     64  |                             |     | |
 *          |     32  |             +---------+                             +-----+-+
 *          +---------+             T[p * ldt + i] = A[i * lda + p]
 *
 *     Q[t][j][i] = sum over the 32 steps p of part t of A[i * lda + p] * B[p * ldb + first + j]
 *
 * A column of tiles of which a column or four are part of C takes as long as any. A passes through local memory anyway,
 * where a work-item reads a row of 32 elements; 64 of them have a column of B. The rest as in 00_transpose_tall.cl. */
#include "common.clh"

#define ROWS 64
#define COLUMNS 32
#define AT_ONCE 8
#define MOST 4 /* columns: as many as ROWS go into the items of a group */

__kernel __attribute__((reqd_work_group_size(COLUMNS, AT_ONCE, 1)))
void transpose_with_edge(int m, int k, __global const REAL *restrict A, int lda, __global REAL *restrict T, int ldt,
                         __global const REAL *restrict B, int ldb, int first, int edge, __global REAL *restrict Q)
{
    __local REAL tile[ROWS][COLUMNS + 1], b[MOST][COLUMNS];
    const int x = get_local_id(0), y = get_local_id(1);
    const int column0 = get_group_id(0) * COLUMNS, row0 = get_group_id(1) * ROWS;

    if (y < edge)
        b[y][x] = column0 + x < k ? B[(size_t)(column0 + x) * ldb + first + y] : (REAL)0;
    #pragma unroll
    for (int e = 0; e < ROWS; e += AT_ONCE) {
        const int row = row0 + y + e, column = column0 + x;
        tile[y + e][x] = row < m && column < k ? A[(size_t)row * lda + column] : (REAL)0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    #pragma unroll
    for (int e = 0; e < COLUMNS; e += AT_ONCE)
        #pragma unroll
        for (int part = 0; part < ROWS; part += COLUMNS) {
            const int row = column0 + y + e, column = row0 + part + x;
            if (row < k && column < ldt)
                T[(size_t)row * ldt + column] = tile[part + x][y + e];
        }

    const int item = y * COLUMNS + x, i = item % ROWS, j = item / ROWS;
    if (j < edge && row0 + i < m) {
        REAL sum = 0;
        #pragma unroll
        for (int p = 0; p < COLUMNS; p++)
            sum += tile[i][p] * b[j][p];
        Q[((size_t)get_group_id(0) * edge + j) * ldt + row0 + i] = sum;
    }
}

/* A group has 32 rows of a column, and its lines of items every eighth part of k. */
__kernel __attribute__((reqd_work_group_size(COLUMNS, AT_ONCE, 1)))
void add_edge(int m, int k, SCALAR alpha, __global const REAL *restrict Q, int ldq, SCALAR beta,
              __global REAL *restrict C, int ldc, int first, int edge)
{
    __local REAL sums[AT_ONCE][COLUMNS];
    const int x = get_local_id(0), y = get_local_id(1), row = get_global_id(0), j = get_group_id(1);
    const int parts = (k + COLUMNS - 1) / COLUMNS;
    REAL sum = 0;
    if (row < m)
        #pragma unroll 8
        for (int t = y; t < parts; t += AT_ONCE)
            sum += Q[((size_t)t * edge + j) * ldq + row];
    sums[y][x] = sum;
    barrier(CLK_LOCAL_MEM_FENCE);
    if (y > 0 || row >= m)
        return;
    for (int t = 1; t < AT_ONCE; t++)
        sum += sums[t][x];
    __global REAL *c = C + (size_t)row * ldc + first + j;
    *c = beta == 0 ? alpha * sum : alpha * sum + beta * *c;
}
