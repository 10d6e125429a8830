/* image: what reading an image delivers.
 *
 *    0 1 2 3 4 5      neighbouring work-items read neighbouring texels of a row, and the whole grid moves on
 *    6 7 8 .          together
 *
 * Texels are RGBA in float (16 bytes), read without filtering; their bits are added as integers, so that a sum is
 * exact. The width is a power of two, given as a shift: a division would cost more than the read. */
#if !defined(UNROLL)
#error "UNROLL must be defined"
#endif

__constant sampler_t SAMPLER = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;

static inline int2 texel(uint i, uint width_shift)
{
    return (int2)(i & ((1u << width_shift) - 1), i >> width_shift);
}

__kernel void image_read(__read_only image2d_t image, __global uint *restrict sums,
                         uint width_shift, uint first, uint count)
{
    const uint step = get_global_size(0), end = first + count;
    uint i = first + get_global_id(0);
    uint4 sum[UNROLL];
    #pragma unroll
    for (int u = 0; u < UNROLL; u++)
        sum[u] = 0;
    for (; i + (UNROLL - 1) * step < end; i += UNROLL * step) {
        #pragma unroll
        for (int u = 0; u < UNROLL; u++)
            sum[u] += as_uint4(read_imagef(image, SAMPLER, texel(i + u * step, width_shift)));
    }
    for (; i < end; i += step)
        sum[0] += as_uint4(read_imagef(image, SAMPLER, texel(i, width_shift)));
    uint4 total = 0;
    #pragma unroll
    for (int u = 0; u < UNROLL; u++)
        total += sum[u];
    sums[get_global_id(0)] = total.x + total.y + total.z + total.w;
}
