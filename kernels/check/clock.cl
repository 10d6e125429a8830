/* clock: the cycle counter and the timer of every multiprocessor of an NVIDIA GPU.
 *
 *    group  |  0                  1                  2
 *    stamps |  unit  cycles  ns | unit  cycles  ns | unit  cycles  ns | ...
 *
 * Launched before a batch and after it. What a unit's cycles have grown by, over what its nanoseconds have, is
 * its average clock in between; the host pairs the units, since groups go to whichever is free. */
__kernel void stamps(__global ulong *restrict stamps, uint from)
{
    uint unit;
    ulong cycles, ns;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(unit));
    asm volatile("mov.u64 %0, %%clock64;" : "=l"(cycles)::"memory");
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(ns)::"memory");
    __global ulong *own = stamps + 3 * (from + (uint)get_group_id(0));
    own[0] = unit;
    own[1] = cycles;
    own[2] = ns;
}
