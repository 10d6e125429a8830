/* global: what global memory delivers, read, written, copied, and in STREAM's triad.
 *
 *    PATTERN_GRID    0 1 2 3 | 0 1 2 3 | 0 1 2 3     the whole grid moves on together, a vector for each
 *    PATTERN_GROUP   0 1 0 1   0 1 | 2 3 2 3   2 3   a work-group owns a piece and moves on together in it
 *    PATTERN_ITEM    0 0 0 | 1 1 1 | 2 2 2 | 3 3 3   a work-item owns a piece
 *    PATTERN_STREAMS 0 - 0 - 0 - | 1 - 1 - 1 -       the same, taken in UNROLL places at once
 *    PATTERN_ONCE    0 1 0 1 | 2 3 2 3 | 4 5 4 5     each work-item takes UNROLL vectors and is done: no loop
 *
 * Memory as rows of vectors, numbered by the work-item that takes each. A GPU wants neighbours to read
 * neighbouring addresses, a CPU wants each core to read its own piece from end to end, and some CPUs more than
 * one stretch of it at a time; which of them a driver serves best is raced. UNROLL vectors are on their way at
 * once.
 *
 * Vectors are loaded through pointers to vectors: some compilers make vload4 of a float pointer four loads.
 * The bits that are read are added as integers, so that a sum is exact whatever the order; written bits are
 * 2654435761 times the position of the word, so that the host knows each of them. */
#include "common.clh"
#include "memory/vector.clh"

#ifndef UNROLL
#error "UNROLL must be defined"
#endif

/* Declares where this work-item starts (i) and its piece ends. In a round it takes UNROLL vectors, `apart` from
 * each other, and goes on by `onward`, as long as the last of them is before `last`; then it leaves out `skip`
 * and takes what remains, one by one, `step` apart. */
#if defined(PATTERN_ONCE) /* as many work-items as there is work, in whole groups */
#define WALK                                                                                                 \
    const uint step = 0, apart = get_local_size(0), onward = 0, skip = 0;                                    \
    uint i = get_group_id(0) * UNROLL * apart + get_local_id(0);
#elif defined(PATTERN_GRID)
#define WALK                                                                                                 \
    const uint step = get_global_size(0), end = count;                                                       \
    uint i = get_global_id(0);                                                                               \
    const uint apart = step, onward = UNROLL * step, last = end, skip = 0;
#elif defined(PATTERN_GROUP)
#define WALK                                                                                                 \
    const uint step = get_local_size(0), share = (count + get_num_groups(0) - 1) / get_num_groups(0);        \
    const uint begin = min(count, (uint)get_group_id(0) * share), end = min(count, begin + share);           \
    uint i = begin + get_local_id(0);                                                                        \
    const uint apart = step, onward = UNROLL * step, last = end, skip = 0;
#elif defined(PATTERN_ITEM) || defined(PATTERN_STREAMS)
#define PIECE                                                                                                \
    const uint step = 1, share = (count + get_global_size(0) - 1) / get_global_size(0);                      \
    const uint begin = min(count, (uint)get_global_id(0) * share), end = min(count, begin + share);          \
    uint i = begin;
#ifdef PATTERN_ITEM
#define WALK PIECE const uint apart = 1, onward = UNROLL, last = end, skip = 0;
#else
#define WALK                                                                                                 \
    PIECE                                                                                                    \
    const uint apart = (end - begin) / UNROLL, onward = 1, last = begin + UNROLL * apart;                     \
    const uint skip = last - begin - apart;
#endif
#else
#error "one of PATTERN_ONCE, PATTERN_GRID, PATTERN_GROUP, PATTERN_ITEM, PATTERN_STREAMS must be defined"
#endif

#define EACH for (int u = 0; u < UNROLL; u++)
#ifdef PATTERN_ONCE
#define MANY (int once = 1; once; once = 0)
#define REST (; 0;)
#else
#define MANY (; i + (UNROLL - 1) * apart < last; i += onward)
#define REST (i += skip; i < end; i += step)
#endif

#define SELDOM 0x9E3779B9u

/* A work-item without a loop reads too little to store its sum each time. It stores one sum in 2^32, so that no load
 * can be left out. Where the result is checked, `slots` words collect all sums; they are 0 before. */
__kernel void global_read(__global const VECTOR *restrict data, __global uint *restrict sums,
                          uint first, uint count, uint slots)
{
    WALK
    data += first;
    BITS sum[UNROLL];
    #pragma unroll
    EACH sum[u] = 0;
    for MANY {
        #pragma unroll
        EACH sum[u] += TO_BITS(data[i + u * apart]);
    }
    for REST
        sum[0] += TO_BITS(data[i]);
    BITS total = 0;
    #pragma unroll
    EACH total += sum[u];
    const uint all = add_lanes(total);
#ifdef PATTERN_ONCE
    if (slots)
        atomic_add(sums + get_global_id(0) % slots, all);
    else if (all == SELDOM)
        sums[0] = all;
#else
    sums[get_global_id(0)] = all;
#endif
}

#define KNUTH 2654435761u

__kernel void global_write(__global VECTOR *restrict to, uint first, uint count)
{
    WALK
    to += first;
    uint lanes[WIDTH];
    for (uint lane = 0; lane < WIDTH; lane++)
        lanes[lane] = ((first + i) * WIDTH + lane) * KNUTH;
#if WIDTH == 1
    BITS value = lanes[0];
#else
    BITS value = CAT(vload, WIDTH)(0, lanes);
#endif
    const uint next = WIDTH * KNUTH; /* from a position's value to the next one's */
    for MANY {
        #pragma unroll
        EACH to[i + u * apart] = FROM_BITS(value + u * apart * next);
        value += onward * next;
    }
    value += skip * next;
    for REST {
        to[i] = FROM_BITS(value);
        value += step * next;
    }
}

__kernel void global_copy(__global const VECTOR *restrict from, __global VECTOR *restrict to,
                          uint first, uint count)
{
    WALK
    from += first;
    to += first;
    for MANY {
        VECTOR held[UNROLL];
        #pragma unroll
        EACH held[u] = from[i + u * apart];
        #pragma unroll
        EACH to[i + u * apart] = held[u];
    }
    for REST
        to[i] = from[i];
}

__kernel void global_triad(__global const VECTOR *restrict b, __global const VECTOR *restrict c,
                           __global VECTOR *restrict to, uint first, uint count)
{
    WALK
    b += first;
    c += first;
    to += first;
    for MANY {
        VECTOR held[UNROLL];
        #pragma unroll
        EACH held[u] = b[i + u * apart] + 3.0f * c[i + u * apart];
        #pragma unroll
        EACH to[i + u * apart] = held[u];
    }
    for REST
        to[i] = b[i] + 3.0f * c[i];
}
