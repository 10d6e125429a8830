/* T = S with rows of ldt elements, a multiple of WIDTH, and zeros past the columns of S: a vector per work-item.
 *
 *          columns            ldt
 *        +--------+        +--------+--+
 *   rows | S      |  -->   | T      | 0|     T[r * ldt + c] = c < columns ? S[r * lds + c] : 0
 *        +--------+        +--------+--+
 *
 * S is read by elements, since its rows do not start where vectors do. */
#include "common.clh"

#ifndef WIDTH
#error "WIDTH must be defined"
#endif
#define VECTOR REALV(WIDTH)

__kernel __attribute__((reqd_work_group_size(64, 4, 1)))
void pad_vectors(int rows, int columns, __global const REAL *restrict S, int lds, __global REAL *restrict T, int ldt)
{
#ifdef BATCHED
    BATCH_OFFSET(S, rows, lds)
    BATCH_OFFSET(T, rows, ldt)
#endif
    const int row = get_global_id(1), column = get_global_id(0) * WIDTH;
    if (row >= rows || column >= ldt)
        return;
    __global const REAL *from = S + (size_t)row * lds + column;
    REAL lanes[WIDTH];
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        lanes[i] = column + i < columns ? from[i] : (REAL)0;
    *(__global VECTOR *)&T[(size_t)row * ldt + column] = CAT(vload, WIDTH)(0, lanes);
}
