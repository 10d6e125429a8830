/* wgmma: Hopper's tensor cores, fed from local memory by a group of four warps.
 *
 *           32 bytes         256             A work-group of 128 computes D += A B for a tile of 64 x 256 by
 *          +-------+      +---------+        32 bytes along k: 16 halves, 8 tf32, 32 bytes. A and B (by its
 *       64 |   A   |  x   |    B    |        columns) lie in local memory as blocks of 8 rows x 16 bytes, each
 *          +-------+      +---------+        block contiguous: row r, half h of its bytes at
 *                                               (h ROWS / 8 + r / 8) 128 + (r % 8) 16
 *    D: 128 elements a work-item,            element e of D, in warp w, lies at
 *    in registers                               D[16 w + lane / 4 + 8 (e / 2 % 2)][8 (e / 4) + 2 (lane % 4) + e % 2]
 *
 * The driver compiles OpenCL C for sm_90, which refuses these instructions: here they are comments that begin with
 * LATER. gemmbench takes the mark away in the program's binary, which is PTX text, and builds it for sm_90a.
 *
 * Steps alternate between two tiles of A; the host makes the second the negative of the first where values should
 * stay bounded. Operands come from memory, different for each work-group; D is stored for the host to check.
 * Counted are 2 m n k operations for each instruction. */
#ifndef UNROLL
#error "UNROLL must be defined"
#endif

#define LATER "//@sm_90a "
#define TILES 8 /* different tiles of A and of B in the operand buffers */
#define M 64
#define N 256
#define VECTORS 2 /* of 16 bytes along k */

#if defined(WGMMA_half_float)
#define SHAPE "m64n256k16.f32.f16.f16"
#define IN_FLOAT
#define NEGATED_AND_TRANSPOSED ", 1, 1, 0, 0"
#elif defined(WGMMA_half_half)
#define SHAPE "m64n256k16.f16.f16.f16"
#define IN_PAIRS
#define NEGATED_AND_TRANSPOSED ", 1, 1, 0, 0"
#elif defined(WGMMA_bfloat16_float)
#define SHAPE "m64n256k16.f32.bf16.bf16"
#define IN_FLOAT
#define NEGATED_AND_TRANSPOSED ", 1, 1, 0, 0"
#elif defined(WGMMA_tf32_float)
#define SHAPE "m64n256k8.f32.tf32.tf32"
#define IN_FLOAT
#define NEGATED_AND_TRANSPOSED ", 1, 1"
#elif defined(WGMMA_fp8_float)
#define SHAPE "m64n256k32.f32.e4m3.e4m3"
#define IN_FLOAT
#define NEGATED_AND_TRANSPOSED ", 1, 1"
#elif defined(WGMMA_char_int)
#define SHAPE "m64n256k32.s32.s8.s8"
#define IN_INT
#define NEGATED_AND_TRANSPOSED ""
#else
#error "one of WGMMA_half_float, WGMMA_half_half, WGMMA_bfloat16_float, WGMMA_tf32_float ... must be defined"
#endif

#if defined(IN_FLOAT)
#define RESULT float
#define KIND "f"
#elif defined(IN_INT)
#define RESULT int
#define KIND "r"
#else
#define RESULT uint
#define KIND "r"
#endif

/* The registers of D, as operands of the instruction and as places in its text. */
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9"
#define FIRST "%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, "
#define D1(i) "+" KIND(d[i])
#define D4(i) D1(i), D1(i + 1), D1(i + 2), D1(i + 3)
#define D16(i) D4(i), D4(i + 4), D4(i + 8), D4(i + 12)
#define D64(i) D16(i), D16(i + 16), D16(i + 32), D16(i + 48)
#if defined(IN_PAIRS) /* two halves in a word */
#define WORDS 64
#define PLACES "{" FIRST TEN(1) ", " TEN(2) ", " TEN(3) ", " TEN(4) ", " TEN(5) ", %60, %61, %62, %63}, %64, %65"
#define REGISTERS D64(0)
#else
#define WORDS 128
#define PLACES                                                                                               \
    "{" FIRST TEN(1) ", " TEN(2) ", " TEN(3) ", " TEN(4) ", " TEN(5) ", " TEN(6) ", " TEN(7) ", " TEN(8) ", " TEN(9) \
    ", " TEN(10) ", " TEN(11) ", %120, %121, %122, %123, %124, %125, %126, %127}, %128, %129"
#define REGISTERS D64(0), D64(64)
#endif
#define ROW_WORDS (N * WORDS / 128)

#define MULTIPLY_ADD(a, b)                                                                                   \
    asm volatile(LATER "{ .reg .pred p; setp.eq.u32 p, 0, 0; wgmma.mma_async.sync.aligned." SHAPE " " PLACES      \
                       ", p" NEGATED_AND_TRANSPOSED "; }"                                                    \
                 : REGISTERS                                                                                 \
                 : "l"(a), "l"(b))

/* Where a tile begins, and its distances from block to block along k and along its rows, all in units of 16 bytes. */
static inline ulong descriptor(__local const uint4 *tile, int rows)
{
    return ((ulong)tile & 0x3ffff) >> 4 | (ulong)(rows * VECTORS / 2) << 16 | (ulong)8 << 32;
}

/* a_tiles: TILES pairs of 64 rows of 32 bytes; b_tiles: TILES times 256 columns of 32 bytes; results: a row-major tile for
 * each work-group. */
__kernel __attribute__((reqd_work_group_size(128, 1, 1))) void wgmma(__global const uint4 *restrict a_tiles,
                                                                     __global const uint4 *restrict b_tiles,
                                                                     __global RESULT *restrict results, int trips)
{
    __local uint4 a[2][VECTORS * M] __attribute__((aligned(128)));
    __local uint4 b[VECTORS * N] __attribute__((aligned(128)));
    const int item = get_local_id(0), group = get_group_id(0), tile = group % TILES;
    for (int v = item; v < 2 * M * VECTORS; v += 128) {
        const int pair = v / (M * VECTORS), row = v / VECTORS % M;
        a[pair][v % VECTORS * M + row] = a_tiles[tile * 2 * M * VECTORS + v];
    }
    for (int v = item; v < N * VECTORS; v += 128)
        b[v % VECTORS * N + v / VECTORS] = b_tiles[tile * N * VECTORS + v];
    asm volatile(LATER "fence.proxy.async;" ::: "memory"); /* tensor cores read what ordinary stores wrote */
    barrier(CLK_LOCAL_MEM_FENCE);

    const ulong a_places[2] = {descriptor(a[0], M), descriptor(a[1], M)}, b_place = descriptor(b, N);
    RESULT d[WORDS];
    #pragma unroll
    for (int w = 0; w < WORDS; w++)
        d[w] = 0;

    for (int trip = 0; trip < trips; trip++) {
        asm volatile(LATER "wgmma.fence.sync.aligned;" ::: "memory");
        #pragma unroll
        for (int step = 0; step < UNROLL; step++)
            MULTIPLY_ADD(a_places[step % 2], b_place);
        asm volatile(LATER "wgmma.commit_group.sync.aligned;" ::: "memory");
        asm volatile(LATER "wgmma.wait_group.sync.aligned 0;" ::: "memory");
    }

    const int lane = item % 32, row = 16 * (item / 32) + lane / 4;
    #pragma unroll
    for (int w = 0; w < WORDS; w++) {
#if defined(IN_PAIRS)
        const int place = (row + 8 * (w % 2)) * ROW_WORDS + 4 * (w / 2) + lane % 4;
#else
        const int place = (row + 8 * (w / 2 % 2)) * ROW_WORDS + 8 * (w / 4) + 2 * (lane % 4) + w % 2;
#endif
        results[group * M * ROW_WORDS + place] = d[w];
    }
}
