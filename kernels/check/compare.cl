/* compare: in how many words a result differs from the verified one, bit for bit.
 *
 *    now    | a b c d e f ...         WORD by WORD, XOR       wrong[0]  words that differ
 *    first  | a b X d e f ...         and counted
 *
 * Nothing is written where nothing differs, so that comparing costs the reading of both. */
#ifndef WORD
#error "WORD is uint, ushort or uchar: the widest that divides the result"
#endif

__kernel void compare(__global const WORD *restrict now, __global const WORD *restrict first,
                      __global uint *wrong, uint count)
{
    const uint step = get_local_size(0), share = (count + get_num_groups(0) - 1) / get_num_groups(0);
    const uint begin = min(count, (uint)get_group_id(0) * share), end = min(count, begin + share);
    for (uint i = begin + get_local_id(0); i < end; i += step)
        if (now[i] ^ first[i])
            atomic_inc(wrong);
}
