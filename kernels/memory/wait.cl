/* wait: one work-item that counts its trips in a chain of dependent
 * multiply-adds. It keeps a device busy until all launches of a batch are in
 * its queue. */
__kernel void wait(int trips, __global float *end)
{
    float x = end[0];
    for (int i = 0; i < trips; i++)
        x = fma(x, 0.5f, 1.0f);
    end[0] = x;
}
