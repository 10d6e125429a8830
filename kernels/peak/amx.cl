/* amx: products of tiles that stay in the unit.
 *
 *      k = 64 bytes        n = 16          A work-item keeps two tiles of A, where the host makes the second the
 *    +-------------+     +-------+         negative of the first, and two of B. A step multiplies one tile of A by
 * 16 |      A      |  x  |  B_c  |  += D_c both tiles of B, into two sums each; the next step takes the other tile.
 *    +-------------+     +-------+
 *
 * Four sums hide the unit's latency. Counted are 2 m n k operations for each product. */
#if !defined(CHAINS) || !defined(UNROLL)
#error "CHAINS and UNROLL must be defined"
#endif
#if defined(AMX_bfloat16_float) /* m16n16k32 */
#define STORED_bfloat16
#elif defined(AMX_char_int) /* m16n16k64 */
#define STORED_char
#else
#error "one of AMX_bfloat16_float, AMX_char_int must be defined"
#endif
#include "amx.clh"

#if CHAINS != 4
#error "CHAINS must be 4: tmm0 to tmm3"
#endif
#define TILES 2 /* different pairs of A, and tiles of B */
#define WORDS 256 /* of a tile */

/* a_tiles: TILES pairs; b_tiles: TILES tiles, columns contiguous; results: CHAINS tiles for each work-item. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1)))
void amx(__global const uint *restrict a_tiles, __global const uint *restrict b_tiles, __global SUM *restrict results,
         int trips)
{
    const int item = get_global_id(0);
    uint b[TILES * WORDS] __attribute__((aligned(64)));
    for (int i = 0; i < TILES * WORDS; i++)
        b[i] = b_tiles[i / WORDS * WORDS + i % 16 * 16 + i / 16 % 16];
    begin_tiles();
    ZERO_SUMS;
    LOAD_OPERANDS(a_tiles + item % TILES * 2 * WORDS, b);
    for (int trip = 0; trip < trips; trip++) {
        #pragma unroll
        for (int step = 0; step < UNROLL / 2; step++) {
            MULTIPLY_HELD("tmm4");
            MULTIPLY_HELD("tmm5");
        }
    }
    STORE_SUMS(results + (size_t)item * CHAINS * WORDS);
    END_TILES;
}
