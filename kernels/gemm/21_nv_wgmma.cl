/* gemmbench
name       = "nv-wgmma"
family     = "ours"
idea       = "tensor cores via wgmma (Hopper)"
source     = "gemmbench; the instructions as NVIDIA's PTX ISA describes them"
types      = ["half", "bfloat16", "tf32", "char", "e4m3", "e4m3-half", "e4m3-bfloat16", "e5m2", "e5m2-half", "e5m2-bfloat16"]
work_group = ["(workers + 1) * 128"]
work_items = ["min(GROUPS, works) * (workers + 1) * 128"]
batches    = true
choose     = "python"
matrix     = true

[parameters]
BM     = { values = [64, 128, 256], idea = "rows of C in a work-group's tile" }
BN     = { values = [64, 128, 192, 256], idea = "columns of C in a work-group's tile" }
STAGES = { values = [3, 4, 5, 6, 8], least = 2, idea = "tiles of A and B in local memory" }
BAND   = { values = [4, 8, 16, 32], default = 16, idea = "tile rows that groups walk down before the next column" }
PARTS  = { values = [1, 2, 4], idea = "parts of k, each multiplied by a different work-group" }
GROUPS = { values = [132], launch = true, idea = "work-groups that share the tiles" }

[terms]
workers  = "1 if BM == 64 else 2"         # groups of four warps that multiply; one more copies
works    = "ceil_div(m, BM) * ceil_div(n, BN) * PARTS"
ragged_a = "lda * itemsize % 16 > 0"      # rows do not start at chunks of 16 bytes
ragged_b = "ldb * itemsize % 16 > 0"
turned   = "itemsize != 2 and not tb"     # wgmma reads rows of k only of two-byte elements

[copies]
A = [{ buffer = "AP", ld = "aw", when = "ragged_a" }]
B = [{ buffer = "BT", ld = "kw", when = "turned" }, { buffer = "BP", ld = "bw", when = "ragged_b" }]

[extents]
kw = "round_up(k, 128 // itemsize)"
aw = "round_up(columns_a, 128 // itemsize)"
bw = "round_up(columns_b, 128 // itemsize)"

[temporaries]
AP   = "rows_a * aw if ragged_a else 0"
BP   = "rows_b * bw if ragged_b and not turned else 0"
BT   = "n * kw if turned else 0"
P    = "works * BM * BN * 4 // itemsize if PARTS > 1 else 0"
MAPS = "(3 * 128 + (round_up(8 * works, 128) if PARTS > 1 else 0)) // itemsize"   # three matrices' maps, and counts

[[launches]]
copy       = "pad_chunks"
arguments  = ["rows_a", "columns_a", "A", "lda", "aw", "AP"]
when       = ["ragged_a"]

[[launches]]
copy       = "pad_chunks"
arguments  = ["rows_b", "columns_b", "B", "ldb", "bw", "BP"]
when       = ["ragged_b", "not turned"]

[[launches]]
copy       = "transpose_bytes"
arguments  = ["k", "n", "B", "ldb", "BT", "kw"]
when       = ["turned", "itemsize == 1"]

[[launches]]
copy       = "transpose_padded"
arguments  = ["k", "n", "B", "ldb", "n", "kw", "BT", "kw"]
when       = ["turned", "itemsize > 1"]

[[launches]]
role       = "map"
kernel     = "nv_wgmma_maps"
arguments  = ["m", "n", "k", "A", "lda", "B", "ldb", "C", "ldc", "MAPS"]
work_group = [96]
work_items = [96]
once       = true

[[launches]]
arguments  = ["m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "P", "MAPS"]
*/
/* nv-wgmma: Hopper's tensor cores by wgmma, straight from local memory, which
 * the copy engine keeps full.
 *
 *               BN
 *          +----------+
 *   BM / 2 | multiply |
 *          +----------+ <- A B A B A B
 *   BM / 2 | multiply |       ring
 *          +----------+         ^
 *                             copy
 *
 * A work-group makes BM x BN tiles of C one after the other. Two groups of
 * four warps multiply, each its half of the rows; one work-item of the last
 * four warps only says what is copied next. The ring has STAGES stages of both
 * tiles, 128 bytes deep, by rows of 128 bytes: a row of A along k; of B, too,
 * where that is transposed, else 64 columns of a row of B, and one such block
 * behind the other. Byte b of row r lies at 128 r + (b ^ 16 (r % 8)), an order
 * that copy engine and tensor cores know: the same bytes of 8 rows lie in
 * different banks.
 *
 * A product takes 64 rows of A, BN columns of B and 32 bytes along k. Of its
 * sums, element e in warp w of a group is
 *    D[16 w + lane / 4 + 8 (e / 2 % 2)][8 (e / 4) + 2 (lane % 4) + e % 2]
 *
 * wgmma reads local memory directly, and the copy engine writes it directly:
 * no work-item moves an operand, and all registers are left for D. So tiles
 * can be larger than with mma.sync, and fewer bytes are read for each product.
 * Two barriers for each stage pass it back and forth: `full` once all its
 * bytes are there, `empty` once all eight warps are done with it. That goes on
 * over the edge of a tile: the next operands arrive while C leaves, which
 * takes the same way back, through boxes of local memory.
 *
 * What is to be copied, the engine reads from a map of the matrix, 128 bytes
 * in global memory, which a kernel of one group makes beforehand. Parts of a
 * box that lie outside the matrix arrive as zeros. Where BM is 64, one group
 * of four warps multiplies alone: small problems have tiles for more units
 * then.
 *
 * If tiles are too few for all units, PARTS groups share the k of a tile. Each
 * leaves its sums in P, in the order of its registers, and waits for the
 * others. Then it adds up its share of the tile, in the order of the parts, so
 * that results repeat bit for bit. If the groups might not run at the same
 * time, the last one adds up the whole tile.
 *
 * The driver compiles OpenCL C for sm_90, which refuses some of these
 * instructions: here they are comments that begin with LATER. gemmbench takes
 * the mark away in the program's binary, which is PTX text, and builds it for
 * sm_90a. Nor does the driver hold a kernel to the 48 KiB of local memory that
 * it lists: a group can have 227. */
#ifdef BATCHED
#include "batch.clh"
#endif
#if !defined(BM) || !defined(BN) || !defined(STAGES) || !defined(BAND) || !defined(PARTS)
#error "BM, BN, STAGES, BAND and PARTS must be defined"
#endif

#define LATER "//@sm_90a "

/* SIZE bytes of an element; SUM what D is made of; RESULT C's element as stored, of RESULT_SIZE bytes */
#if defined(MMA_half)
#define SIZE 2
#define KINDS "k16.f32.f16.f16"
#define RESULT ushort
#define RESULT_SIZE 2
#elif defined(MMA_bfloat16)
#define SIZE 2
#define KINDS "k16.f32.bf16.bf16"
#define RESULT float
#elif defined(MMA_tf32)
#define SIZE 4
#define KINDS "k8.f32.tf32.tf32"
#define RESULT float
#elif defined(MMA_char)
#define SIZE 1
#define KINDS "k32.s32.s8.s8"
#define RESULT int
#elif defined(MMA_e4m3) || defined(MMA_e5m2)
#define SIZE 1
#if defined(MMA_e4m3)
#define KINDS "k32.f32.e4m3.e4m3"
#else
#define KINDS "k32.f32.e5m2.e5m2"
#endif
#if defined(RESULT_half) || defined(RESULT_bfloat16)
#define RESULT ushort
#define RESULT_SIZE 2
#else
#define RESULT float
#endif
#else
#error "one of MMA_half, MMA_bfloat16, MMA_tf32, MMA_char, MMA_e4m3 and MMA_e5m2 must be defined"
#endif
#if defined(MMA_half) || defined(RESULT_half)
#define PACKED "cvt.rn.f16x2.f32"            /* two sums become two elements of C */
#elif defined(RESULT_bfloat16)
#define PACKED "cvt.rn.bf16x2.f32"
#endif
#if defined(MMA_char)
#define SUM int
#define SUM4 int4
#define SUM_KIND "r"
#define SIGNS ""
#else
#define SUM float
#define SUM4 float4
#define SUM_KIND "f"
#define SIGNS ", 1, 1" /* neither A nor B is negated */
#endif
#define SCALAR SUM
#ifndef RESULT_SIZE
#define RESULT_SIZE 4
#endif

#define WARP 32
#if BM == 64
#define WORKERS 1                            /* groups of four warps that multiply */
#else
#define WORKERS 2
#endif
#define MULTIPLYING (128 * WORKERS)          /* work-items */
#define ITEMS (MULTIPLYING + 128)
#define ROW_TILES (BM / WORKERS / 64)        /* of 64 rows, for each of the groups */
#define SUMS (BN / 2)                        /* of a work-item, in each of them */
#define ROW 128                              /* bytes */
#define DEPTH (ROW / SIZE)                   /* of a stage, in elements along k */
#define STEPS 4                              /* of 32 bytes along k in a stage */
#define A_BYTES (BM * ROW)
#define STAGE_BYTES (A_BYTES + BN * ROW)
#define MAPPED 3                             /* matrices */
#define MAP_WORDS 16                         /* of MAP_BYTES */
#define MAP_BYTES 128

/* C leaves in boxes of 64 rows of 128 bytes, as many as hold BN columns of half. */
#define BOXES (BN / 64)                      /* of each group of warps, in local memory at a time */
#define BOX_BYTES (64 * ROW)
#define RESULTS_BYTES (WORKERS * BOXES * BOX_BYTES)
#define BOX_WIDTH (ROW / RESULT_SIZE)        /* columns */
#define ROUNDS (RESULT_SIZE / 2)             /* until BN columns have left */

/* B as the matrix has it, by rows of k, where wgmma can transpose it: elements of 2 bytes; else it is transposed. */
#if SIZE == 2 && !defined(TRANS_B)
#define BOX_COLUMNS 64                       /* of B: 128 bytes */
#define TURNED ", 0, 1"                      /* A lies by its rows, B by its columns' elements along k */
#define B_STEP (16 * ROW)                    /* bytes from a step to the next */
#define B_LEADING (DEPTH * ROW)              /* ... from a box to the next */
#else
#define TURNED ""
#define B_STEP 32
#define B_LEADING 16                         /* of no meaning here */
#endif
#ifdef TRANS
#undef TURNED
#if SIZE == 2                                /* A stored transposed lies as B does else, in boxes of 64 rows of C */
#ifdef TRANS_A
#define A_TURNED ", 1"
#else
#define A_TURNED ", 0"
#endif
#ifdef TRANS_B
#define TURNED A_TURNED ", 0"
#else
#define TURNED A_TURNED ", 1"
#endif
#else
#define TURNED ""
#endif
#endif
#ifdef TRANS_A
#define A_STEP (16 * ROW)
#else
#define A_STEP 32
#endif

/* The registers of D, as operands of the instruction and as places in its text; behind them A and B. */
#define TEN(t) "%" #t "0, %" #t "1, %" #t "2, %" #t "3, %" #t "4, %" #t "5, %" #t "6, %" #t "7, %" #t "8, %" #t "9, "
#define FIFTY "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " TEN(1) TEN(2) TEN(3) TEN(4)
#define D1(role, i) role SUM_KIND(d[i])
#define D4(role, i) D1(role, i), D1(role, i + 1), D1(role, i + 2), D1(role, i + 3)
#define D16(role, i) D4(role, i), D4(role, i + 4), D4(role, i + 8), D4(role, i + 12)
#define D64(role, i) D16(role, i), D16(role, i + 16), D16(role, i + 32), D16(role, i + 48)
#if BN == 64
#define REGISTERS(role) D16(role, 0), D16(role, 16)
#define PLACES                                                                                               \
    "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, " TEN(1) TEN(2) "%30, %31}, %32, %33"
#elif BN == 128
#define REGISTERS(role) D64(role, 0)
#define PLACES FIFTY TEN(5) "%60, %61, %62, %63}, %64, %65"
#elif BN == 192
#define REGISTERS(role) D64(role, 0), D16(role, 64), D16(role, 80)
#define PLACES FIFTY TEN(5) TEN(6) TEN(7) TEN(8) "%90, %91, %92, %93, %94, %95}, %96, %97"
#elif BN == 256
#define REGISTERS(role) D64(role, 0), D64(role, 64)
#define PLACES                                                                                               \
    FIFTY TEN(5) TEN(6) TEN(7) TEN(8) TEN(9) TEN(10) TEN(11)                                                 \
    "%120, %121, %122, %123, %124, %125, %126, %127}, %128, %129"
#else
#error "BN must be 64, 128, 192 or 256"
#endif
#define STRING_(x) #x
#define STRING(x) STRING_(x)

#define PRODUCT(goes_on)                                                                                     \
    LATER "{ .reg .pred p; setp.eq.u32 p, 0, " goes_on "; wgmma.mma_async.sync.aligned.m64n" STRING(BN) KINDS     \
          " " PLACES ", p" SIGNS TURNED "; }"

/* D = A B */
static inline void multiply(SUM *d, ulong a, ulong b)
{
    asm volatile(PRODUCT("1") : REGISTERS("=") : "l"(a), "l"(b));
}

/* D += A B */
static inline void multiply_add(SUM *d, ulong a, ulong b)
{
    asm volatile(PRODUCT("0") : REGISTERS("+") : "l"(a), "l"(b));
}

/* D is what the instructions before made of it, not what it was when they were issued. */
static inline void settle(SUM *d)
{
    asm volatile("" : REGISTERS("+")::"memory");
}

/* Wait until no more than so many of the committed products are under way. */
#define WAIT_PRODUCTS(n) asm volatile(LATER "wgmma.wait_group.sync.aligned " #n ";" ::: "memory")

#define UNITS(bytes) ((ulong)((bytes) / 16))

/* Where an operand lies in local memory: bytes from box to box, from 8 rows to the next 8, and the order in rows. */
static inline ulong descriptor(uint place, int leading)
{
    return UNITS(place & 0x3ffff) | UNITS(leading) << 16 | UNITS(8 * ROW) << 32 | (ulong)1 << 62;
}

/* Start the products of a stage. */
static inline __attribute__((always_inline)) void multiply_stage(SUM (*d)[SUMS], ulong a, ulong b, int first)
{
    asm volatile(LATER "wgmma.fence.sync.aligned;" ::: "memory");
    #pragma unroll
    for (int step = 0; step < STEPS; step++)
        #pragma unroll
        for (int t = 0; t < ROW_TILES; t++) {
            const ulong a_place = a + UNITS(t * 64 * ROW + step * A_STEP), b_place = b + UNITS(step * B_STEP);
            if (first && step == 0)
                multiply(d[t], a_place, b_place);
            else
                multiply_add(d[t], a_place, b_place);
        }
    asm volatile(LATER "wgmma.commit_group.sync.aligned;" ::: "memory");
}

static inline void barrier_make(uint where, int arrivals)
{
    asm volatile("mbarrier.init.shared.b64 [%0], %1;" ::"r"(where), "r"(arrivals) : "memory");
}

static inline void barrier_arrive(uint where)
{
    asm volatile("{ .reg .b64 t; mbarrier.arrive.shared.b64 t, [%0]; }" ::"r"(where) : "memory");
}

static inline void barrier_arrive_and_expect(uint where, int bytes)
{
    asm volatile("{ .reg .b64 t; mbarrier.arrive.expect_tx.shared.b64 t, [%0], %1; }"
                 :
                 : "r"(where), "r"(bytes)
                 : "memory");
}

/* Until the barrier has left the phase of this parity. */
static inline void barrier_wait(uint where, uint parity)
{
    asm volatile("{ .reg .pred p; AGAIN: mbarrier.try_wait.parity.shared.b64 p, [%0], %1; @p bra DONE; "
                 "bra AGAIN; DONE: }"
                 :
                 : "r"(where), "r"(parity)
                 : "memory");
}

/* Start copying the box of a matrix that begins at a column and a row; its bytes count for the barrier. */
static inline void copy(uint to, __global const ulong *map, int column, int row, uint arrived)
{
    asm volatile("cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes "
                 "[%0], [%1, {%2, %3}], [%4];"
                 :
                 : "r"(to), "l"(map), "r"(column), "r"(row), "r"(arrived)
                 : "memory");
}

#define SET(field, kind, letter, value)                                                                      \
    asm volatile(LATER "tensormap.replace.tile." field ".shared::cta.b1024." kind ", %1;"                    \
                 :                                                                                           \
                 : "r"(map), letter(value)                                                                   \
                 : "memory")

/* The map of a row-major matrix, with elements of 1, 2 or 4 bytes, for boxes of 128 bytes x so many rows. */
static inline void describe(uint map, __global const void *matrix, int columns, int rows, int ld, int size,
                            int box_rows)
{
    SET("global_address", "b64 [%0]", "l", matrix);
    SET("rank", "b32 [%0]", "n", 1); /* dimensions, less one */
    SET("box_dim", "b32 [%0], 0", "r", ROW / size);
    SET("box_dim", "b32 [%0], 1", "r", box_rows);
    SET("global_dim", "b32 [%0], 0", "r", columns);
    SET("global_dim", "b32 [%0], 1", "r", rows);
    SET("global_stride", "b64 [%0], 0", "l", (ulong)ld * size);
    SET("element_stride", "b32 [%0], 0", "n", 1);
    SET("element_stride", "b32 [%0], 1", "n", 1);
    if (size == 1) /* u8, u16 or u32: bits are all that matters */
        SET("elemtype", "b32 [%0]", "n", 0);
    else if (size == 2)
        SET("elemtype", "b32 [%0]", "n", 1);
    else
        SET("elemtype", "b32 [%0]", "n", 2);
    SET("interleave_layout", "b32 [%0]", "n", 0);
    SET("swizzle_mode", "b32 [%0]", "n", 3); /* the order in rows of 128 bytes */
    SET("fill_mode", "b32 [%0]", "n", 0);    /* zeros */
}

/* The map in local memory, to global memory, where the copy engine will see it. All lanes of a warp take part. */
static inline void publish(__global ulong *to, uint map)
{
    asm volatile("tensormap.cp_fenceproxy.global.shared::cta.tensormap::generic.release.gpu.sync.aligned "
                 "[%0], [%1], 128;"
                 :
                 : "l"(to), "r"(map)
                 : "memory");
}

/* What follows in this work-item sees the map as published. */
static inline void learn(__global const ulong *map)
{
    asm volatile("fence.proxy.tensormap::generic.acquire.gpu [%0], 128;" ::"l"(map) : "memory");
}

/* half is no type of a device that does not list cl_khr_fp16, nor is bfloat16: they are stored as their bits. */
static inline SCALAR widened(RESULT stored)
{
#if defined(RESULT_bfloat16)
    return as_float((uint)stored << 16);
#elif RESULT_SIZE == 2
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(stored));
    return wide;
#else
    return stored;
#endif
}

/* A work-item's sums become elements of C: pairs in two rows, 8 apart, of which `rows` and `columns` are left. */
static inline void scale(SUM *sums, __global const RESULT *C, int ldc, int rows, int columns, SCALAR alpha,
                         SCALAR beta)
{
    #pragma unroll
    for (int i = 0; i < SUMS; i++)
        sums[i] *= alpha;
    if (beta != 0)
        #pragma unroll
        for (int i = 0; i < SUMS; i++) {
            const int row = i / 2 % 2 * 8, column = i / 4 * 8 + i % 2;
            if (row < rows && column < columns)
                sums[i] += beta * widened(C[(size_t)row * ldc + column]);
        }
}

/* ... and, those of a round, go to boxes in local memory, in the order of the ring. */
static inline void pack(const SUM *sums, uint boxes, int round, int warp, int lane)
{
#if RESULT_SIZE == 2 /* four matrices of 8 x 8: lane 8 i + r says where row r of matrix i goes */
    const uint row = boxes + (16 * warp + lane % 16) * ROW;
    #pragma unroll
    for (int block = 0; block < SUMS / 4; block += 2) {
        uint pairs[4];
        #pragma unroll
        for (int i = 0; i < 4; i++)
            asm(PACKED " %0, %1, %2;"
                : "=r"(pairs[i])
                : "f"(sums[4 * block + 2 * i + 1]), "f"(sums[4 * block + 2 * i]));
        const uint place = row + block / 8 * BOX_BYTES + ((block % 8 ^ lane / 16 ^ lane % 8) << 4);
        asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
                     :
                     : "r"(place), "r"(pairs[0]), "r"(pairs[1]), "r"(pairs[2]), "r"(pairs[3])
                     : "memory");
    }
#else
    #pragma unroll
    for (int i = 0; i < SUMS / ROUNDS / 2; i++) {
        const int h = i % 2, block = i / 2;
        const uint row = boxes + (16 * warp + 8 * h + lane / 4) * ROW + lane % 2 * 8;
        const SUM *pair = sums + round * (SUMS / ROUNDS) + 2 * i;
        const uint place = row + block / 4 * BOX_BYTES + ((block % 4 * 2 ^ lane % 4 / 2 ^ lane / 4) << 4);
        asm volatile("st.shared.v2.b32 [%0], {%1, %2};"
                     :
                     : "r"(place), SUM_KIND(pair[0]), SUM_KIND(pair[1])
                     : "memory");
    }
#endif
}

/* Start copying a box of C from local memory to a column and a row of the matrix, as far as that reaches. */
static inline void copy_out(__global const ulong *map, int column, int row, uint from)
{
    asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.tile.bulk_group [%0, {%1, %2}], [%3];"
                 :
                 : "l"(map), "r"(column), "r"(row), "r"(from)
                 : "memory");
}

/* The boxes of a group to C by its work-items, where the copy engine cannot: each warp takes every fourth row. */
static inline void store(__local const uchar *boxes, __global RESULT *C, int ldc, int rows, int columns,
                         int warp, int lane)
{
    for (int row = warp; row < min(rows, 64); row += 4)
        for (int column = lane; column < min(columns, BOXES * BOX_WIDTH); column += WARP) {
            const int within = column % BOX_WIDTH * RESULT_SIZE ^ row % 8 << 4;
            C[(size_t)row * ldc + column] =
                *(__local const RESULT *)(boxes + column / BOX_WIDTH * BOX_BYTES + row * ROW + within);
        }
}

#if PARTS > 1
#define QUADS (ROW_TILES * SUMS / 4)         /* of a work-item: four sums, two in each of two rows */
#define TOGETHER (PARTS < 16 ? 16 / PARTS : 1) /* quads that are loaded at once, to wait for few round trips */

/* Two neighbours of a row of C. */
static inline void store_pair(__global RESULT *C, int ldc, int columns, SUM x, SUM y, SCALAR alpha, SCALAR beta)
{
    x *= alpha;
    y *= alpha;
    if (beta != 0) {
        x += beta * widened(C[0]);
        y += columns > 1 ? beta * widened(C[1]) : 0;
    }
#if RESULT_SIZE == 2
    uint pair;
    asm(PACKED " %0, %1, %2;" : "=r"(pair) : "f"(y), "f"(x));
    const ushort2 both = as_ushort2(pair);
#elif defined(MMA_char)
    const int2 both = (int2)(x, y);
#else
    const float2 both = (float2)(x, y);
#endif
    if (columns > 1 && ldc % 2 == 0)
#if RESULT_SIZE == 2
        *(__global ushort2 *)C = both;
#elif defined(MMA_char)
        *(__global int2 *)C = both;
#else
        *(__global float2 *)C = both;
#endif
    else {
        C[0] = both.x;
        if (columns > 1)
            C[1] = both.y;
    }
}

/* Leave a part's sums in P. When those of all parts are there, add up this group's share of the quads, or, if that is
 * not certain to end, those of the whole tile in the group that came last. */
static inline void combine(SUM (*d)[SUMS], __global SUM4 *P, __global uint *count, __local int *flag, int waits, int part,
                           int item, __global RESULT *C, int ldc, int rows, int columns, SCALAR alpha, SCALAR beta)
{
    #pragma unroll
    for (int q = 0; q < QUADS; q++) {
        const SUM *quad = d[q / (SUMS / 4)] + q % (SUMS / 4) * 4;
        P[(part * QUADS + q) * MULTIPLYING + item] = (SUM4)(quad[0], quad[1], quad[2], quad[3]);
    }
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    asm volatile("bar.sync 3, %0;" ::"n"(MULTIPLYING) : "memory");
    if (item == 0) {
        const int is_last = atomic_inc(count) == PARTS - 1;
        uint arrived = waits ? 0 : PARTS;
        while (arrived < PARTS)
            asm volatile("ld.acquire.gpu.u32 %0, [%1];" : "=r"(arrived) : "l"(count) : "memory");
        if (waits ? atomic_inc(count + 1) == PARTS - 1 : is_last)
            count[0] = count[1] = 0; /* for the next launch */
        *flag = is_last;
    }
    asm volatile("bar.sync 3, %0;" ::"n"(MULTIPLYING) : "memory");
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    const int step = waits ? PARTS : 1;
    for (int first = waits ? part : *flag ? 0 : QUADS; first < QUADS; first += TOGETHER * step) {
        SUM4 sums[TOGETHER][PARTS];
        #pragma unroll
        for (int i = 0; i < TOGETHER; i++)
            #pragma unroll
            for (int each = 0; each < PARTS; each++)
                sums[i][each] = P[(each * QUADS + min(first + i * step, QUADS - 1)) * MULTIPLYING + item];
        #pragma unroll
        for (int i = 0; i < TOGETHER; i++) {
            const int q = first + i * step;
            #pragma unroll
            for (int each = 1; each < PARTS; each++)
                sums[i][0] += sums[i][each];
            const int row = q / (SUMS / 4) * 64, column = q % (SUMS / 4) * 8;
            __global RESULT *to = C + (size_t)row * ldc + column;
            if (q < QUADS && column < columns) {
                if (row < rows)
                    store_pair(to, ldc, columns - column, sums[i][0].x, sums[i][0].y, alpha, beta);
                if (row + 8 < rows)
                    store_pair(to + 8 * (size_t)ldc, ldc, columns - column, sums[i][0].z, sums[i][0].w, alpha, beta);
            }
        }
    }
}
#endif

/* The four warps of one group. */
static inline void group_barrier(int group)
{
    asm volatile("bar.sync %0, 128;" ::"r"(1 + group) : "memory");
}

/* Where the tile of C lies: down a band of BAND tile rows first, then one tile column on; every other band is walked
 * back, so that the columns of B that were read last are read first. */
static inline int2 placed(int tile, int tiles_down, int tiles_across)
{
    const int band = tile / (BAND * tiles_across), within = tile % (BAND * tiles_across);
    const int band_rows = min(BAND, tiles_down - band * BAND), across = within / band_rows;
    return (int2)((band * BAND + within % band_rows) * BM,
                  (band % 2 ? tiles_across - 1 - across : across) * BN);
}

/* Groups count the parts of all tiles: first of all tiles one part, then the next. A part is some stages deep. */
#if PARTS > 1
#define TILE(work) ((work) % tiles)
#define PART(work) ((work) / tiles)
#else
#define TILE(work) (work)
#define PART(work) 0
#endif
#define BEGIN(part) ((part) * chunks / PARTS)

/* Words of the maps and, behind them, of two counts of finished groups for each tile. */
#define DESCRIBED (MAPPED * MAP_WORDS + (PARTS > 1 ? (tiles + MAP_WORDS - 1) / MAP_WORDS * MAP_WORDS : 0))

/* The same here and now: its divisions are made while products are under way, neither before nor after. */
#define PLACE                                                                                                \
    {                                                                                                        \
        int at = tile;                                                                                       \
        asm volatile("" : "+r"(at));                                                                         \
        const int2 place = placed(at, tiles_down, tiles_across);                                             \
        row0 = place.x;                                                                                      \
        column0 = place.y;                                                                                   \
        asm volatile("" : "+r"(row0), "+r"(column0));                                                        \
    }

/* The next stage of the ring; a phase is once around. */
#define ADVANCE                                                                                              \
    if (++stage == STAGES) {                                                                                 \
        stage = 0;                                                                                           \
        phase ^= 1;                                                                                          \
    }

/* The maps of A, B and C for the copy engine: three warps, each makes one; and counts of zero. It reads nothing of the
 * matrices, so that it runs once, when the arguments of nv_wgmma are set, as CUDA makes maps on the host. */
__kernel __attribute__((reqd_work_group_size(MAPPED * WARP, 1, 1)))
void nv_wgmma_maps(int m, int n, int k,
                   __global const uchar *A, int lda,
                   __global const uchar *B, int ldb,
                   __global RESULT *C, int ldc,
                   __global ulong *MAPS)
{
    const int tiles = (m + BM - 1) / BM * ((n + BN - 1) / BN);
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda * SIZE)
#if SIZE == 2
    BATCH_OFFSET(B, ROWS_B, ldb * SIZE)
#else /* along k, however it was stored */
    BATCH_OFFSET(B, n, ldb * SIZE)
#endif
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(MAPS, 1, DESCRIBED)
#endif
    for (int i = MAPPED * MAP_WORDS + get_local_id(0); i < DESCRIBED; i += MAPPED * WARP)
        MAPS[i] = 0;
    __local ulong maps[MAPPED * MAP_WORDS] __attribute__((aligned(128)));
    const int matrix = get_local_id(0) / WARP, lane = get_local_id(0) % WARP;
    const uint map = (uint)(ulong)maps + matrix * MAP_BYTES;
    if (lane < MAP_WORDS)
        maps[matrix * MAP_WORDS + lane] = 0;
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
    if (lane == 0) {
        if (matrix == 0)
#ifdef TRANS_A
            describe(map, A, m, k, lda, SIZE, DEPTH);
#else
            describe(map, A, k, m, lda, SIZE, BM);
#endif
        else if (matrix == 1)
#if SIZE == 2 && !defined(TRANS_B)
            describe(map, B, n, k, ldb, SIZE, DEPTH);
#else
            describe(map, B, k, n, ldb, SIZE, BN);
#endif
        else
            describe(map, C, n, m, ldc, RESULT_SIZE, 64);
    }
    asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
    publish(MAPS + matrix * MAP_WORDS, map);
}

/* B is transposed, with rows of ldb elements along k, unless its elements have 2 bytes. MAPS: of nv_wgmma_maps. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void nv_wgmma(int m, int n, int k, SCALAR alpha,
              __global const uchar *restrict A, int lda,
              __global const uchar *restrict B, int ldb, SCALAR beta,
              __global RESULT *restrict C, int ldc,
              __global SUM4 *restrict P, __global ulong *MAPS)
{
    const int tiles_down = (m + BM - 1) / BM, tiles_across = (n + BN - 1) / BN, tiles = tiles_down * tiles_across;
    const int chunks = (k + DEPTH - 1) / DEPTH;
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda * SIZE)
#if SIZE == 2
    BATCH_OFFSET(B, ROWS_B, ldb * SIZE)
#else /* along k, however it was stored */
    BATCH_OFFSET(B, n, ldb * SIZE)
#endif
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(P, tiles, PARTS * BM * BN / 4)
    BATCH_OFFSET(MAPS, 1, DESCRIBED)
#endif
    /* the ring, what leaves of C and the barriers are one array: CUDA gives a kernel more than 48 KiB as one alone */
    __local uchar ring[STAGES * STAGE_BYTES + RESULTS_BYTES + 2 * STAGES * 8] __attribute__((aligned(1024)));
    __local uchar *results = ring + STAGES * STAGE_BYTES;
    const uint stages = (uint)(ulong)ring, full = stages + STAGES * STAGE_BYTES + RESULTS_BYTES;
    const uint empty = full + 8 * STAGES;
    const int item = get_local_id(0);

    __global const ulong *a_map = MAPS, *b_map = a_map + MAP_WORDS, *c_map = b_map + MAP_WORDS;
    if (item == 0) {
        for (int s = 0; s < STAGES; s++) {
            barrier_make(full + 8 * s, 1);
            barrier_make(empty + 8 * s, MULTIPLYING / WARP);
        }
        asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); /* the copy engine is to see them */
    }
    barrier(CLK_LOCAL_MEM_FENCE);

    int stage = 0;
    uint phase = 0;
    if (item >= MULTIPLYING) {
#if WORKERS == 2
        asm volatile(LATER "setmaxnreg.dec.sync.aligned.u32 40;" ::: "memory");
#endif
        if (item == MULTIPLYING) {
            learn(a_map);
            learn(b_map);
            int back = 0; /* every other tile begins at the end of k, which the second-level cache still has */
            for (int work = get_group_id(0); work < tiles * PARTS; work += get_num_groups(0), back = !back) {
                const int2 place = placed(TILE(work), tiles_down, tiles_across);
                const int begin = BEGIN(PART(work)), end = BEGIN(PART(work) + 1);
                for (int chunk = begin; chunk < end; chunk++) {
                    const int p = (back ? begin + end - 1 - chunk : chunk) * DEPTH;
                    const uint to = stages + stage * STAGE_BYTES, arrived = full + 8 * stage;
                    barrier_wait(empty + 8 * stage, phase ^ 1);
                    barrier_arrive_and_expect(arrived, STAGE_BYTES);
#ifdef TRANS_A
                    #pragma unroll
                    for (int row = 0; row < BM; row += 64)
                        copy(to + row * ROW, a_map, place.x + row, p, arrived);
#else
                    copy(to, a_map, p, place.x, arrived);
#endif
#if SIZE == 2 && !defined(TRANS_B)
                    #pragma unroll
                    for (int column = 0; column < BN; column += BOX_COLUMNS)
                        copy(to + A_BYTES + column * DEPTH * SIZE, b_map, place.y + column, p, arrived);
#else
                    copy(to + A_BYTES, b_map, p, place.y, arrived);
#endif
                    ADVANCE
                }
            }
        }
    } else {
#if WORKERS == 2 /* with one group, each work-item has all that it can have */
        asm volatile(LATER "setmaxnreg.inc.sync.aligned.u32 232;" ::: "memory");
#endif
        const int group = item / 128, warp = item % 128 / WARP, lane = item % WARP;
        __local uchar *boxes = results + group * BOXES * BOX_BYTES;
        const ulong a_start = descriptor(stages + group * (A_BYTES / WORKERS), 16);
        const ulong b_start = descriptor(stages + A_BYTES, B_LEADING);
        if (item % 128 == 0)
            learn(c_map);
        for (int work = get_group_id(0); work < tiles * PARTS; work += get_num_groups(0)) {
            SUM d[ROW_TILES][SUMS];
            const int tile = TILE(work), depth = BEGIN(PART(work) + 1) - BEGIN(PART(work));
            int row0, column0;
            if (depth == 0) {
                PLACE
                #pragma unroll
                for (int t = 0; t < ROW_TILES; t++)
                    #pragma unroll
                    for (int i = 0; i < SUMS; i++)
                        d[t][i] = 0;
            } else {
                barrier_wait(full + 8 * stage, phase);
                multiply_stage(d, a_start + UNITS(stage * STAGE_BYTES), b_start + UNITS(stage * STAGE_BYTES), 1);
                PLACE
                int before = stage;
                ADVANCE
                for (int chunk = 1; chunk < depth; chunk++) {
                    barrier_wait(full + 8 * stage, phase);
                    multiply_stage(d, a_start + UNITS(stage * STAGE_BYTES), b_start + UNITS(stage * STAGE_BYTES), 0);
                    WAIT_PRODUCTS(1);
                    if (lane == 0)
                        barrier_arrive(empty + 8 * before);
                    before = stage;
                    ADVANCE
                }
                WAIT_PRODUCTS(0);
                if (lane == 0)
                    barrier_arrive(empty + 8 * before);
                #pragma unroll
                for (int t = 0; t < ROW_TILES; t++)
                    settle(d[t]);
            }

#if PARTS > 1
            const int row = row0 + group * (BM / WORKERS) + 16 * warp + lane / 4, column = column0 + 2 * (lane % 4);
            uint units;
            asm("mov.u32 %0, %%nsmid;" : "=r"(units));
            const int waits = get_num_groups(0) == tiles * PARTS && get_num_groups(0) * get_num_groups(2) <= units;
            combine(d, P + (size_t)tile * PARTS * (BM * BN / 4), (__global uint *)(c_map + MAP_WORDS + tile),
                    (__local int *)results, waits, PART(work), item, C + (size_t)row * ldc + column, ldc, m - row,
                    n - column, alpha, beta);
#else
            /* a box leaves by pieces of 16 bytes, those past the edge of C cut off: no piece may lie across it */
            const int boxed = ldc * RESULT_SIZE % 16 == 0 && (n * RESULT_SIZE % 16 == 0 || column0 + BN <= n);
            #pragma unroll
            for (int t = 0; t < ROW_TILES; t++) {
                const int first = row0 + group * (BM / WORKERS) + 64 * t;
                const int row = first + 16 * warp + lane / 4, column = column0 + 2 * (lane % 4);
                scale(d[t], C + (size_t)row * ldc + column, ldc, m - row, n - column, alpha, beta);
                #pragma unroll
                for (int round = 0; round < ROUNDS; round++) {
                    const int left = column0 + round * BOXES * BOX_WIDTH;
                    if (item % 128 == 0) /* until the boxes have been read */
                        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
                    group_barrier(group);
                    pack(d[t], (uint)(ulong)boxes, round, warp, lane);
                    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
                    group_barrier(group);
                    if (!boxed)
                        store(boxes, C + (size_t)first * ldc + left, ldc, m - first, n - left, warp, lane);
                    else if (item % 128 == 0) {
                        #pragma unroll
                        for (int box = 0; box < BOXES; box++)
                            copy_out(c_map, left + box * BOX_WIDTH, first, (uint)(ulong)boxes + box * BOX_BYTES);
                        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
                    }
                }
            }
#endif
        }
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory"); /* a launch ends when C is written */
    }
}
