/* image: what reading an image delivers, in three walking orders.
 *
 *    ORDER_ROW        ORDER_COLUMN     ORDER_TILE
 *    0 1 2 3 4 5      0 6 .            0 1 | 4 5      neighbouring work-items read the texels that are
 *    6 7 8 .          1 7              2 3 | 6 7      numbered one after the other, and the whole grid
 *                     2 8              ----+----      moves on together
 *                     3 .              8 9 |
 *
 * Texture caches are laid out for tiles, drivers for CPUs emulate them. Texels are RGBA in float (16 bytes),
 * read without filtering; their bits are added as integers, so that a sum is exact. Width and height are
 * powers of two, given as shifts: a division would cost more than the read. */
#if !defined(UNROLL)
#error "UNROLL must be defined"
#endif

#define TILE 3 /* a tile is 8 x 8: 1 << TILE */

__constant sampler_t SAMPLER = CLK_NORMALIZED_COORDS_FALSE | CLK_ADDRESS_CLAMP_TO_EDGE | CLK_FILTER_NEAREST;

static inline int2 texel(uint i, uint width_shift, uint height_shift)
{
#if defined(ORDER_ROW)
    return (int2)(i & ((1u << width_shift) - 1), i >> width_shift);
#elif defined(ORDER_COLUMN)
    return (int2)(i >> height_shift, i & ((1u << height_shift) - 1));
#elif defined(ORDER_TILE)
    const uint tile = i >> (2 * TILE), across = width_shift - TILE;
    const uint left = (tile & ((1u << across) - 1)) << TILE, top = (tile >> across) << TILE;
    return (int2)(left + (i & ((1u << TILE) - 1)), top + ((i >> TILE) & ((1u << TILE) - 1)));
#else
#error "one of ORDER_ROW, ORDER_COLUMN, ORDER_TILE must be defined"
#endif
}

__kernel void image_read(__read_only image2d_t image, __global uint *restrict sums,
                         uint width_shift, uint height_shift, uint first, uint count)
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
            sum[u] += as_uint4(read_imagef(image, SAMPLER, texel(i + u * step, width_shift, height_shift)));
    }
    for (; i < end; i += step)
        sum[0] += as_uint4(read_imagef(image, SAMPLER, texel(i, width_shift, height_shift)));
    uint4 total = 0;
    #pragma unroll
    for (int u = 0; u < UNROLL; u++)
        total += sum[u];
    sums[get_global_id(0)] = total.x + total.y + total.z + total.w;
}
