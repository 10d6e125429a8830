/* working_set: what a unit can read from a set of a given size, again and again.
 *
 *    set of `count` vectors, in blocks of GROUP * UNROLL:   |  0  |  1  |  2  |  3  |  4  |  5  |  6  |  7  |
 *    group 0:  4 5 6   1 2 3   6 7 0  ...                   `visits` visits of `steps` blocks in a row,
 *    group 1:  0 1 2   7 0 1   3 4 5  ...                   each from a random block on
 *
 * A set that fits a cache is read from that cache, so that the rate over the size of the set is a staircase
 * with a step for each cache. Every work-group goes through the whole set on a way of its own: groups on the
 * same way would follow each other and find in a cache what the first of them has just fetched. The way is a
 * hash of group and visit, so that no load can be moved out of the loop. */
#include "common.clh"
#include "memory/vector.clh"

#if !defined(UNROLL) || !defined(GROUP)
#error "UNROLL and GROUP must be defined"
#endif

static inline uint hash(uint x)
{
    x = (x ^ x >> 16) * 0x85EBCA6Bu;
    x = (x ^ x >> 13) * 0xC2B2AE35u;
    return x ^ x >> 16;
}

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void working_set(__global const VECTOR *restrict data, __global uint *restrict sums,
                 uint count, uint mask, uint steps, uint visits)
{
    const uint group = get_group_id(0), item = get_local_id(0);
    BITS sum[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; u++)
        sum[u] = 0;
    for (uint visit = 0; visit < visits; visit++) {
        uint at = (hash(group * 0x9E3779B1u + visit) & mask) * (UNROLL * GROUP);
        for (uint step = 0; step < steps; step++) {
            #pragma unroll
            for (int u = 0; u < UNROLL; u++)
                sum[u] += TO_BITS(data[at + u * GROUP + item]);
            at += UNROLL * GROUP;
            at = at < count ? at : 0;
        }
    }
    BITS total = 0;
    #pragma unroll
    for (int u = 0; u < UNROLL; u++)
        total += sum[u];
    sums[get_global_id(0)] = add_lanes(total);
}
