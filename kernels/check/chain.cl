/* chain: a processor's clock, by additions that wait for each other.
 *
 * An addition takes one cycle, and so does the exclusive or that keeps compilers from making a product of them:
 * two cycles a turn, whatever else the loop takes runs beside it. One work-item, before a batch and after it. */
__kernel void chain(__global uint *restrict out, uint turns, uint y, uint z)
{
    uint x = y;
    for (uint turn = 0; turn < turns; turn++)
        x = (x + y) ^ z;
    out[0] = x;
}
