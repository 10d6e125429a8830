/* chase: how long a load takes that waits for the one before it.
 *
 *    next:  | 3 . . | 0 . . | 1 . . | 2 . . |      0 -> 3 -> 2 -> 1 -> 0: one random cycle through all lines
 *
 * The nodes are a cache line apart and hold the position of the next node. The cycle is random, so that no
 * prefetcher knows the way, and a single one, so that every line of the set is on it. A launch goes on where
 * the one before it stopped: started over, it would find its own way in the caches. */
__kernel void chase(__global const uint *restrict next, __global uint *restrict where, uint hops)
{
    uint here = where[0];
    for (uint hop = 0; hop < hops; hop++)
        here = next[here];
    where[0] = here;
}
