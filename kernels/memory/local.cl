/* local: what local memory delivers inside a work-group.
 *
 *    held:  |0123|0123|0123|0123|0123|0123|0123|0123|    GROUP work-items side by side, UNROLL times a trip,
 *            trip 0 ------------ trip 1 ------------     two trips a round
 *
 * Neighbours touch neighbouring vectors, so that no two meet in one bank. Where a trip starts depends on an
 * argument (`mask`, one less than COUNT), so that no load can be moved out of the loop. */
#include "common.clh"
#include "memory/vector.clh"

#if !defined(UNROLL) || !defined(GROUP)
#error "UNROLL and GROUP must be defined"
#endif

#define COUNT (2 * UNROLL * GROUP) /* vectors in local memory: a power of two */

__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void local_read(__global const VECTOR *restrict data, __global uint *restrict sums, uint mask, uint trips)
{
    __local VECTOR held[COUNT];
    for (uint i = get_local_id(0); i < COUNT; i += GROUP)
        held[i] = data[i];
    barrier(CLK_LOCAL_MEM_FENCE);

    uint at = get_local_id(0);
    BITS sum[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; u++)
        sum[u] = 0;
    for (uint trip = 0; trip < trips; trip++) {
        #pragma unroll
        for (int u = 0; u < UNROLL; u++)
            sum[u] += TO_BITS(held[at + u * GROUP]);
        at = (at + UNROLL * GROUP) & mask;
    }
    BITS total = 0;
    #pragma unroll
    for (int u = 0; u < UNROLL; u++)
        total += sum[u];
    sums[get_global_id(0)] = add_lanes(total);
}

/* The number of the trip is added to what is copied, so that no store can be left out and the sums tell how
 * many trips there were. */
__kernel __attribute__((reqd_work_group_size(GROUP, 1, 1)))
void local_copy(__global const VECTOR *restrict data, __global uint *restrict sums, uint mask, uint trips)
{
    __local BITS from[COUNT], to[COUNT];
    for (uint i = get_local_id(0); i < COUNT; i += GROUP) {
        from[i] = TO_BITS(data[i]);
        to[i] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    uint at = get_local_id(0);
    for (uint trip = 0; trip < trips; trip++) {
        #pragma unroll
        for (int u = 0; u < UNROLL; u++)
            to[at + u * GROUP] = from[at + u * GROUP] + (BITS)trip;
        at = (at + UNROLL * GROUP) & mask;
    }
    BITS total = 0;
    for (uint i = get_local_id(0); i < COUNT; i += GROUP)
        total += to[i];
    sums[get_global_id(0)] = add_lanes(total);
}
