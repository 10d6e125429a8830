/* hold: count in memory, so that no compiler leaves it out. It keeps a queue busy until more launches are in it. */
__kernel void hold(uint steps)
{
    for (volatile uint i = 0; i < steps; i++)
        ;
}
