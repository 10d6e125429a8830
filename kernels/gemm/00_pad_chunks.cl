/* P = S with zeros behind its rows, so that each starts at a multiple of 16 bytes.
 *
 *       columns           pitch
 *      +---------+       +---------+--+
 * rows | S       |  -->  | S       | 0|    P[i * pitch + j] = S[i * lds + j]
 *      +---------+       +---------+--+
 *
 * A work-item writes 16 bytes at once, which is what the wait for memory counts; what it reads starts anywhere. */
#include "common.clh"

#if defined(REAL_uchar)
#define WIDTH 16
#elif defined(REAL_ushort)
#define WIDTH 8
#elif defined(REAL_double)
#define WIDTH 2
#else
#define WIDTH 4
#endif

__kernel void pad_chunks(int rows, int columns, __global const REAL *restrict S, int lds, int pitch,
                         __global REAL *restrict P)
{
#ifdef BATCHED
    BATCH_OFFSET(S, rows, lds)
    BATCH_OFFSET(P, rows, pitch)
#endif
    const int column = get_global_id(0) * WIDTH, row = get_global_id(1);
    if (row >= rows || column >= pitch)
        return;
    union {
        REAL elements[WIDTH];
        uint4 chunk;
    } both;
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        both.elements[i] = column + i < columns ? S[(size_t)row * lds + column + i] : (REAL)0;
    *(__global uint4 *)(P + (size_t)row * pitch + column) = both.chunk;
}
