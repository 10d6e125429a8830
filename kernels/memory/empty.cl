/* empty: nothing. What is left of the time is the launch. */
__kernel void empty(void)
{
}
