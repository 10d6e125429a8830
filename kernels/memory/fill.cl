/* fill: a set filled with a table, over and over.
 *
 *    table  | 0 1 2 3 4 5 6 |         to  | 5 6 0 1 2 3 4 5 6 0 1 ...      `offset` 5, `period` 7
 *
 * Each work-group fills a piece: where memory belongs to the processor that touches it first, the pieces are
 * spread as the probes spread them. */
__kernel void fill(__global const float *restrict table, __global float *restrict to,
                   uint period, uint offset, uint count)
{
    const uint step = get_local_size(0), share = (count + get_num_groups(0) - 1) / get_num_groups(0);
    const uint begin = min(count, (uint)get_group_id(0) * share), end = min(count, begin + share);
    uint i = begin + get_local_id(0), from = (i + offset) % period;
    for (; i < end; i += step) {
        to[i] = table[from];
        from += step;
        from -= from < period ? 0 : period;
    }
}
