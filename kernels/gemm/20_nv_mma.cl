/* gemmbench
name        = "nv-mma"
family      = "ours"
idea        = "tensor cores via mma.sync"
source      = "gemmbench; the instructions as NVIDIA's PTX ISA describes them"
types       = ["half", "bfloat16", "tf32", "double", "char"]
work_group  = ["BM // WM * (BN // WN) * 32"]
tile        = ["BM", "BN"]
batches     = true
choose      = "python"
matrix      = true
sums        = { half = "float" }
constraints = [
    ["WM % 32 == 0", "WM must be a multiple of 32: half a warp's rows are whole products"],
    ["WN % 16 == 0", "WN must be a multiple of 16, the columns of two products"],
    ["BM % WM == 0", "BM must be a multiple of WM, to be whole warps"],
    ["BN % WN == 0", "BN must be a multiple of WN, to be whole warps"],
    ["BN % 64 == 0", "BN must be a multiple of 64: rows of B fill every bank"],
    ["ROW == 32 or ROW == 64 or ROW == 128",
     "ROW must be 32, 64 or 128: whole steps of 32 bytes, no more than there are banks"],
    ["itemsize < 8 or ROW >= 64", "ROW must be 64 or 128 for double, whose steps are 64 bytes deep"],
    ["(BM // WM) & (BM // WM - 1) == 0", "(BN // WN) & (BN // WN - 1) == 0",
     "BM / WM and BN / WN must be powers of two, so that all lanes order chunks alike"],
    ["BM // WM * (BN // WN) >= 2", "two warps or more must make a tile: they copy 8 rows at once"],
]

[parameters]
BM     = { values = [64, 128, 192, 256], default = 128, idea = "rows of C in a work-group's tile" }
BN     = { values = [64, 128, 192, 256], idea = "columns of C in a work-group's tile" }
ROW    = { values = [32, 64, 128], default = 64, idea = "bytes of a row of A's tile: the depth of both tiles" }
WM     = { values = [32, 64, 96, 128], idea = "rows of C that a warp makes" }
WN     = { values = [32, 64, 96, 128], default = 64, idea = "columns of C that a warp makes" }
STAGES = { values = [2, 3, 4, 6, 8], default = 3, least = 2, idea = "tiles of A and B in local memory" }
AHEAD  = { values = [0, 1], default = 1, idea = "whether a step's registers load while the one before multiplies" }
BAND   = { values = [4, 8, 16], default = 8, idea = "tile rows that groups walk down before the next column" }

[presets]
gpu-nvidia            = { STAGES = 4 }
"default:half"        = { BN = 128, WM = 64 }
"default:bfloat16"    = { BN = 128, WM = 64 }
"default:tf32"        = { BN = 128, WM = 64 }
"default:char"        = { BN = 128, WM = 64 }
"gpu-nvidia:half"     = { BN = 256 }   # 96 KiB of local memory
"gpu-nvidia:bfloat16" = { BN = 256 }
"gpu-nvidia:tf32"     = { BN = 256 }
"gpu-nvidia:char"     = { BN = 256 }
"default:double"      = { BM = 64, ROW = 128, WN = 32 }
"gpu-nvidia:double"   = { BM = 128 }

[terms]
ragged_a = "lda * itemsize % 16 > 0"      # rows do not start at chunks of 16 bytes
ragged_b = "ldb * itemsize % 16 > 0"
turned   = "itemsize == 1 and not tb"     # a register of B holds several elements along k, which no instruction gathers

[copies]
A = [{ buffer = "AP", ld = "aw", when = "ragged_a" }]
B = [{ buffer = "BT", ld = "kw", when = "turned" }, { buffer = "BP", ld = "bw", when = "ragged_b" }]

[extents]
kw = "round_up(k, 16 // itemsize)"
aw = "round_up(columns_a, 16 // itemsize)"
bw = "round_up(columns_b, 16 // itemsize)"

[temporaries]
AP = "rows_a * aw if ragged_a else 0"
BP = "rows_b * bw if ragged_b and not turned else 0"
BT = "n * kw if turned else 0"

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
when       = ["turned"]

[[launches]]
kernel     = "nv_mma"
*/
/* nv-mma: NVIDIA's tensor cores by mma.sync, fed by asynchronous copies
 * through several tiles of local memory.
 *
 *              BN
 *        +-----+-----+
 *     WM |warp |warp |
 *        +-----+-----+  BM
 *        |warp |warp |
 *        +-----+-----+
 *           WN
 *
 * A work-group makes a BM x BN tile of C, each of its warps a part of WM x WN
 * out of products of 16 x 8 by 32 bytes along k (double: 64), that a warp
 * holds in registers:
 *   D[lane / 4 + 8 h][2 (lane % 4) + e] += A[row][p] * B[p][column]
 * A and B lie in local memory by chunks of 16 bytes, those of a row in an
 * order of its own, so that what a warp reads at once lies in different banks:
 *   At[row][chunk ^ order(row)] = A[(row0 + row) * lda + p0 + chunk ...]
 *
 * STAGES tiles of A and B take turns: while one is multiplied, the copies of
 * the next ones are under way, straight from global to local memory, each
 * started between two rows of products so that none of them holds up the
 * tensor cores. With AHEAD, the registers of the next step load while one is
 * multiplied. A group of 128 x 256 has one and a third times the products of
 * one of 128 x 128 for every byte that it copies, and as many bytes a second
 * is all that comes out of the second-level cache.
 *
 * A register has 4 bytes along k (double: 8). A's come by ldmatrix, four row
 * by row; so do B's where that instruction transposes them on the way, for
 * half and bfloat16, and for char, where a pass has transposed B: nothing else
 * brings bytes of a column together. tf32 and double take theirs one by one:
 * vectors would hold neighbours along a row of B and have to be moved to where
 * the instruction wants them.
 *
 * Rows start at multiples of 16 bytes; a pass pads those that do not. What
 * lies past the edges of A and B is zeros, and past those of C is not stored.
 * Groups walk bands of BAND tile rows, so that those running at a time share
 * operands in the second-level cache. */
#ifdef BATCHED
#include "batch.clh"
#endif
#if !defined(BM) || !defined(BN) || !defined(ROW) || !defined(WM) || !defined(WN)
#error "BM, BN, ROW, WM and WN must be defined"
#endif
#if !defined(STAGES) || !defined(AHEAD) || !defined(BAND)
#error "STAGES, AHEAD and BAND must be defined"
#endif

#define FOUR_WORDS "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#if defined(MMA_half)
#define INSTRUCTION "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#elif defined(MMA_bfloat16)
#define INSTRUCTION "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#elif defined(MMA_tf32)
#define INSTRUCTION "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
#elif defined(MMA_char)
#define INSTRUCTION "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
#elif defined(MMA_double)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define INSTRUCTION "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
#else
#error "one of MMA_half, MMA_bfloat16, MMA_tf32, MMA_char and MMA_double must be defined"
#endif

/* SIZE bytes of an element; WORD what a lane holds of A and B; SUM what D is made of; RESULT C's element as stored */
#if defined(MMA_double)
#define SIZE 8
#define LOADED "f64"
#define WORD double
#define WORD_KIND "d"
#define SUM double
#define SUM_KIND "d"
#define SCALAR double
#define RESULT double
#elif defined(MMA_char)
#define SIZE 1
#define WORD uint
#define WORD_KIND "r"
#define SUM int
#define SUM_KIND "r"
#define SCALAR int
#define RESULT int
#else
#define WORD uint
#define WORD_KIND "r"
#define SUM float
#define SUM_KIND "f"
#define SCALAR float
#if defined(MMA_tf32)
#define SIZE 4
#define LOADED "b32"
#define RESULT float
#elif defined(MMA_bfloat16)
#define SIZE 2
#define RESULT float
#else
#define SIZE 2
#define RESULT ushort
#endif
#endif

#if defined(MMA_double) && ROW < 64
#error "ROW must be 64 or more for double: a step is 64 bytes deep"
#endif

#define BK (ROW / SIZE)                      /* depth of the tiles of A and B */
#define STEP (SIZE == 8 ? 64 : 32)           /* bytes along k of one instruction */
#define STEPS (ROW / STEP)
#define SETS (AHEAD ? 2 : 1)                 /* of registers, which take turns */
#define TILES (SETS == 2 && STEPS % 2 ? 2 : 1) /* in one round of the loop, so that a step's set is known */
#define ACROSS (BN / WN)                     /* warps */
#define ITEMS (BM / WM * ACROSS * 32)
#define ROW_TILES (WM / 16)                  /* of a warp */
#define COLUMN_TILES (WN / 8)
#define COLUMN(j) ((j) * 8 / UNIT * ACROSS * UNIT + (j) * 8 % UNIT) /* where a column tile begins, the warp's units aside */
#define UNIT 16                              /* columns that a warp has in one piece: units of all warps alternate */

/* The two neighbours in a row of D that a lane has of every product. */
#define PAIR CAT(RESULT, 2)
#define CAT_(a, b) a##b
#define CAT(a, b) CAT_(a, b)

#define BANKS 128                            /* bytes that all banks have together */
#define CHUNK 16
#define PER_CHUNK (CHUNK / SIZE)             /* elements */
#define A_CHUNKS (ROW / CHUNK)               /* in a row of the tile */
#define B_ROW (BN * SIZE)                    /* bytes of a row of B's tile; char has it transposed, as A's is */
#define A_COPIES ((BM * A_CHUNKS + ITEMS - 1) / ITEMS) /* chunks of a tile that a work-item copies, the last one in part */
#define B_COPIES ((BN * A_CHUNKS + ITEMS - 1) / ITEMS)
#define A_BYTES (BM * ROW)
#define STAGE_BYTES (A_BYTES + BN * ROW)

#ifdef TRANS_A
/* A is stored transposed: its tile has rows of BM elements, one for each step along k, as B's else; ldmatrix turns it.
 * A lane's place in a row tile is an exclusive or with the order of its step's chunks. */
#define A_LINE (BM * SIZE)
#define A_TILE(i) ((lane_a + (i) * 16 * SIZE) ^ get_local_id(0) % 8 * CHUNK)

#endif
/* How the chunks of a row are ordered, so that no two lanes that are served at a time want the same of 8 chunks' banks. */
#if defined(MMA_double) /* 16 lanes, who read two chunks of four rows */
#define ALONG_K(row) (A_CHUNKS == 8 ? (row) % 4 * 2 : (row) / 2 % 2 * 2)
#else                   /* 8 lanes, who read a chunk of 8 rows */
#define ALONG_K(row) ((row) / (8 / A_CHUNKS) % A_CHUNKS)
#endif
#define A_ORDER(row) ALONG_K(row)
#if defined(MMA_char) || defined(TRANS_B)
#define B_ORDER(row) ALONG_K(row)
#elif SIZE >= 4         /* two chunks of four rows */
#define B_ORDER(row) ((row) % 4 * 2)
#else                   /* a chunk of 8 rows */
#define B_ORDER(row) ((row) % 8)
#endif

/* Start a copy of a chunk to local memory. */
static inline void copy(uint to, __global const uchar *from)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

/* The same of so many bytes, zeros after them. It costs several times as much to start. */
static inline void copy_part(uint to, __global const uchar *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(to), "l"(from), "r"(bytes) : "memory");
}

/* Four matrices of 8 rows of 16 bytes, whose rows start where the lanes say; a lane gets 4 bytes of each. */
static inline void load_matrices(uint *words, uint from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from));
}

static inline void load_transposed(uint *words, uint from)
{
    asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                 : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                 : "r"(from));
}

#if SIZE >= 4
static inline WORD load_word(uint from)
{
    WORD word;
    asm volatile("ld.shared." LOADED " %0, [%1];" : "=" WORD_KIND(word) : "r"(from));
    return word;
}
#endif

static inline void multiply_add(SUM *d, const WORD *a, const WORD *b)
{
    asm(INSTRUCTION FOUR_WORDS
        : "+" SUM_KIND(d[0]), "+" SUM_KIND(d[1]), "+" SUM_KIND(d[2]), "+" SUM_KIND(d[3])
        : WORD_KIND(a[0]), WORD_KIND(a[1]), WORD_KIND(a[2]), WORD_KIND(a[3]), WORD_KIND(b[0]), WORD_KIND(b[1]));
}

/* Where a lane reads in a tile of A, and in one of B: a step, a row tile, a column tile further on is an exclusive or or
 * a sum with a number that the compiler knows, since orders repeat every 8 rows. */
static inline uint lane_of_a(int lane, int row)
{
#ifdef TRANS_A
    return (lane % 8 + lane / 16 * 8) * A_LINE + row * SIZE + lane / 8 % 2 * CHUNK;
#else
#if defined(MMA_double)
    return (row + lane / 4) * ROW + ((lane % 4 * SIZE) ^ A_ORDER(lane / 4) * CHUNK);
#else
    return (row + lane % 16) * ROW + (lane / 16 ^ A_ORDER(lane % 16)) * CHUNK;
#endif
#endif
}

static inline uint lane_of_b(int lane, int across)
{
#if defined(MMA_char) || defined(TRANS_B)
    const int row = lane % 8 + lane / 16 * 8;
    return (across * UNIT + row) * ROW + (lane / 8 % 2 ^ B_ORDER(row)) * CHUNK;
#elif SIZE >= 4
    return lane % 4 * B_ROW + (((across * UNIT + lane / 4) * SIZE) ^ B_ORDER(lane) * CHUNK);
#else
    return lane % 16 * B_ROW + ((across * UNIT * SIZE + lane / 16 * CHUNK) ^ B_ORDER(lane) * CHUNK);
#endif
}

/* The registers of a step of the tile at `stage`: a[i] of row tile i, b[j] of column tile j. */
static inline void load_step(WORD (*a)[4], WORD (*b)[2], uint stage, int step, uint lane_a, uint lane_b)
{
    #pragma unroll
    for (int i = 0; i < ROW_TILES; i++) {
#ifdef TRANS_A
        load_transposed(a[i], stage + A_TILE(i) + step * 16 * A_LINE);
#else
        const uint from = stage + i * 16 * ROW;
#if defined(MMA_double)
        #pragma unroll
        for (int r = 0; r < 4; r++)
            a[i][r] = load_word(from + (lane_a ^ (step * STEP + r / 2 * 32)) + r % 2 * 8 * ROW);
#else
        load_matrices(a[i], from + (lane_a ^ step * STEP));
#endif
#endif
    }
    stage += A_BYTES;
#if SIZE >= 4 && !defined(TRANS_B)
    #pragma unroll
    for (int j = 0; j < COLUMN_TILES; j++) {
        const uint bytes = COLUMN(j) * SIZE, from = stage + (lane_b ^ bytes % BANKS) + bytes / BANKS * BANKS;
        #pragma unroll
        for (int r = 0; r < 2; r++)
            b[j][r] = load_word(from + (step * 8 + r * 4) * B_ROW);
    }
#else
    #pragma unroll
    for (int j = 0; j < COLUMN_TILES; j += 2) {
        uint four[4];
#if defined(MMA_char) || defined(TRANS_B)
        load_matrices(four, stage + (lane_b ^ step * STEP) + COLUMN(j) * ROW);
#else
        const uint bytes = COLUMN(j) * SIZE, from = stage + (lane_b ^ bytes % BANKS) + bytes / BANKS * BANKS;
        load_transposed(four, from + step * 16 * B_ROW);
#endif
        b[j][0] = four[0];
        b[j][1] = four[1];
        b[j + 1][0] = four[2];
        b[j + 1][1] = four[3];
    }
#endif
}

/* The e-th chunk that a work-item copies of the tile that begins at p0, to the stage at `writing`: of A, then of B. They
 * lie ITEMS chunks apart: of A some rows further down; of B, by pieces of 8 chunks, some rows down, then a piece on. */
#ifdef TRANS_A
#define A_DOWN(e) ((e) * (ITEMS / 8) % BK)
#define A_PIECE(e) ((e) * (ITEMS / 8) / BK * BANKS)
#define A_TO(e) (writing + to_a + A_DOWN(e) * A_LINE + A_PIECE(e))
#define A_FROM(e) (from_a + (size_t)(A_DOWN(e) * SIZE) * lda + A_PIECE(e))
#define A_LEFT(e) ((in_a >> (e) & 1) && p0 + a_row + A_DOWN(e) < k ? CHUNK : 0)
#else
#define A_TO(e) (writing + to_a + (e) * ITEMS * CHUNK)
#define A_FROM(e) (from_a + (size_t)((e) * (ITEMS / A_CHUNKS) * SIZE) * lda)
#define A_LEFT(e) (in_a >> (e) & 1 ? clamp(k - p0 - first_chunk, 0, PER_CHUNK) * SIZE : 0)
#endif
#if defined(MMA_char) || defined(TRANS_B)
#define B_TO(e) (writing + to_b + (e) * ITEMS * CHUNK)
#define B_FROM(e) (from_b + (size_t)((e) * (ITEMS / A_CHUNKS) * SIZE) * ldb)
#define B_LEFT(e) (in_b >> (e) & 1 ? clamp(k - p0 - first_chunk, 0, PER_CHUNK) * SIZE : 0)
#define B_FURTHER ROW
#else
#define PIECES (ITEMS / 8)
#define B_DOWN(e) ((e) * PIECES % BK)
#define B_PIECE(e) ((e) * PIECES / BK * BANKS)
#define B_TO(e) (writing + to_b + B_DOWN(e) * B_ROW + B_PIECE(e))
#define B_FROM(e) (from_b + (size_t)(B_DOWN(e) * SIZE) * ldb + B_PIECE(e))
#define B_LEFT(e) ((in_b >> (e) & 1) && p0 + b_row + B_DOWN(e) < k ? CHUNK : 0)
#define B_FURTHER ((size_t)(BK * SIZE) * ldb)
#endif
#define COPIES (A_COPIES + B_COPIES)
#define IS_A(e) ((e) < A_COPIES && ((e) < BM * A_CHUNKS / ITEMS || item < BM * A_CHUNKS % ITEMS))
#define IS_B(e) ((e) >= A_COPIES && ((e) - A_COPIES < BN * A_CHUNKS / ITEMS || item < BN * A_CHUNKS % ITEMS))
#define COPY_WHOLE(e)                                                                                        \
    {                                                                                                        \
        if (IS_A(e))                                                                                         \
            copy(A_TO(e), A_FROM(e));                                                                        \
        else if (IS_B(e))                                                                                    \
            copy(B_TO((e) - A_COPIES), B_FROM((e) - A_COPIES));                                              \
    }
#define COPY_PART(e)                                                                                         \
    {                                                                                                        \
        if (IS_A(e))                                                                                         \
            copy_part(A_TO(e), A_FROM(e), A_LEFT(e));                                                        \
        else if (IS_B(e))                                                                                    \
            copy_part(B_TO((e) - A_COPIES), B_FROM((e) - A_COPIES), B_LEFT((e) - A_COPIES));                 \
    }

/* All of a tile's copies are a group; on to the next tile and stage. */
#ifdef TRANS_A
#define GROUP                                                                                                \
    {                                                                                                        \
        asm volatile("cp.async.commit_group;" ::: "memory");                                                 \
        p0 += BK;                                                                                            \
        from_a += (size_t)(BK * SIZE) * lda;                                                                      \
        from_b += B_FURTHER;                                                                                 \
        writing = NEXT(writing);                                                                             \
    }
#else
#define GROUP                                                                                                \
    {                                                                                                        \
        asm volatile("cp.async.commit_group;" ::: "memory");                                                 \
        p0 += BK;                                                                                            \
        from_a += ROW;                                                                                       \
        from_b += B_FURTHER;                                                                                 \
        writing = NEXT(writing);                                                                             \
    }
#endif
#define NEXT(stage) ((stage) == tiles + (STAGES - 1) * STAGE_BYTES ? tiles : (stage) + STAGE_BYTES)

/* Until the next tile is there: all copies but those of the STAGES - 2 tiles behind it. */
#define ARRIVE                                                                                               \
    {                                                                                                        \
        asm volatile("cp.async.wait_group %0;" ::"n"(STAGES - 2) : "memory");                                \
        barrier(CLK_LOCAL_MEM_FENCE);                                                                        \
    }
#define TURN                                                                                                 \
    {                                                                                                        \
        ARRIVE                                                                                               \
        reading = NEXT(reading);                                                                             \
    }

/* A round multiplies TILES tiles, row of products by row, and starts the copies of as many, spread over the first half
 * of a tile's rows. With two sets of registers, the next step's load half-way through a step: by then the copies of
 * this round's tile are a group, so that a wait for all but so many groups means the next tile. */
#define ROWS (STEPS * ROW_TILES)
#define SLOTS ((ROWS + 1) / 2)
#define ROUND(COPY)                                                                                          \
    _Pragma("unroll") for (int s = 0; s < TILES * STEPS; s++) {                                              \
        if (SETS == 1)                                                                                       \
            load_step(a[0], b[0], reading, s % STEPS, lane_a, lane_b);                                       \
        _Pragma("unroll") for (int i = 0; i < ROW_TILES; i++) {                                              \
            const int slot = s % STEPS * ROW_TILES + i;                                                      \
            if (SETS == 2 && i == ROW_TILES / 2) {                                                           \
                if (s % STEPS == STEPS - 1)                                                                  \
                    TURN                                                                                     \
                load_step(a[(s + 1) % SETS], b[(s + 1) % SETS], reading, (s + 1) % STEPS, lane_a, lane_b);   \
            }                                                                                                \
            _Pragma("unroll") for (int j = 0; j < COLUMN_TILES; j++)                                         \
                multiply_add(d[i][j], a[s % SETS][i], b[s % SETS][j]);                                       \
            if (slot < SLOTS)                                                                                \
                _Pragma("unroll") for (int e = slot * COPIES / SLOTS; e < (slot + 1) * COPIES / SLOTS; e++)  \
                    COPY(e)                                                                                  \
            if (slot == SLOTS - 1)                                                                           \
                GROUP                                                                                        \
        }                                                                                                    \
        if (SETS == 1 && s % STEPS == STEPS - 1)                                                             \
            TURN                                                                                             \
    }

/* half is no type of a device that does not list cl_khr_fp16: it is stored as its bits. */
static inline SCALAR widened(RESULT stored)
{
#if defined(MMA_half)
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(stored));
    return wide;
#else
    return stored;
#endif
}

static inline RESULT narrowed(SCALAR wide)
{
#if defined(MMA_half)
    ushort stored;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(wide));
    return stored;
#else
    return wide;
#endif
}

static inline RESULT scaled(SUM sum, SCALAR alpha, SCALAR beta, RESULT before)
{
    return narrowed(beta == 0 ? alpha * sum : alpha * sum + beta * widened(before));
}

/* Two neighbours in a row of C, of which `left` are there. */
static inline void store(__global RESULT *c, SUM first, SUM second, int left, int aligned, SCALAR alpha, SCALAR beta)
{
    if (aligned && left >= 2) {
        __global PAIR *pair = (__global PAIR *)c;
        const PAIR before = beta == 0 ? (PAIR)(0) : *pair;
        *pair = (PAIR)(scaled(first, alpha, beta, before.x), scaled(second, alpha, beta, before.y));
        return;
    }
    if (left >= 1)
        c[0] = scaled(first, alpha, beta, beta == 0 ? (RESULT)0 : c[0]);
    if (left >= 2)
        c[1] = scaled(second, alpha, beta, beta == 0 ? (RESULT)0 : c[1]);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void nv_mma(int m, int n, int k, SCALAR alpha,
            __global const uchar *restrict A, int lda,
            __global const uchar *restrict B, int ldb, SCALAR beta,
            __global RESULT *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda * SIZE)
#ifdef MMA_char /* along k, however it was stored */
    BATCH_OFFSET(B, n, ldb)
#else
    BATCH_OFFSET(B, ROWS_B, ldb * SIZE)
#endif
    BATCH_OFFSET(C, m, ldc)
#endif
    __local uint4 stages[STAGES * STAGE_BYTES / CHUNK] __attribute__((aligned(128)));
    const uint tiles = (uint)(ulong)stages;
    const int item = get_local_id(0), lane = item % 32, warp = item / 32;
    const int row = warp / ACROSS * WM, across = warp % ACROSS;

    /* the tile: down a band of BAND tile rows first, then one tile column on */
    const int tiles_down = (m + BM - 1) / BM, tiles_across = (n + BN - 1) / BN;
    const int band = get_group_id(0) / (BAND * tiles_across), within = get_group_id(0) % (BAND * tiles_across);
    const int band_rows = min(BAND, tiles_down - band * BAND);
    const int row0 = (band * BAND + within % band_rows) * BM, column0 = within / band_rows * BN;

    /* what this work-item copies: from where, to where in a stage, and which of it lies inside the operands */
#ifdef TRANS_A
    const int first_chunk = item % A_CHUNKS * PER_CHUNK, a_row = item / 8 % BK;
    const int a_column = item % 8 * PER_CHUNK + item / 8 / BK * (BANKS / SIZE);
    const uint to_a = a_row * A_LINE + (item % 8 ^ a_row % 8) * CHUNK + item / 8 / BK * BANKS;
    __global const uchar *from_a = A + ((size_t)a_row * lda + row0 + a_column) * SIZE;
    uint in_a = 0, in_b = 0;
    #pragma unroll
    for (int e = 0; e < A_COPIES; e++)
        in_a |= (uint)(row0 + a_column + A_PIECE(e) / SIZE < m) << e;
#else
    const int first_chunk = item % A_CHUNKS * PER_CHUNK, a_row = item / A_CHUNKS;
    const uint to_a = a_row * ROW + (item % A_CHUNKS ^ A_ORDER(a_row)) * CHUNK;
    __global const uchar *from_a = A + ((size_t)(row0 + a_row) * lda + first_chunk) * SIZE;
    uint in_a = 0, in_b = 0;
    #pragma unroll
    for (int e = 0; e < A_COPIES; e++)
        in_a |= (uint)(row0 + a_row + e * (ITEMS / A_CHUNKS) < m) << e;
#endif
#if defined(MMA_char) || defined(TRANS_B)
#ifdef TRANS_B
    const int b_line = item / A_CHUNKS; /* a column of C */
    const uint to_b = A_BYTES + b_line * ROW + (item % A_CHUNKS ^ B_ORDER(b_line)) * CHUNK;
    __global const uchar *from_b = B + ((size_t)(column0 + b_line) * ldb + first_chunk) * SIZE;
    #pragma unroll
    for (int e = 0; e < B_COPIES; e++)
        in_b |= (uint)(column0 + b_line + e * (ITEMS / A_CHUNKS) < n) << e;
#else
    const uint to_b = A_BYTES + to_a;
    __global const uchar *from_b = B + (size_t)(column0 + a_row) * ldb + first_chunk;
    #pragma unroll
    for (int e = 0; e < B_COPIES; e++)
        in_b |= (uint)(column0 + a_row + e * (ITEMS / A_CHUNKS) < n) << e;
#endif
#else
    const int b_row = item / 8 % BK, b_column = item % 8 * PER_CHUNK + item / 8 / BK * (BANKS / SIZE);
    const uint to_b = A_BYTES + b_row * B_ROW + (item % 8 ^ B_ORDER(b_row)) * CHUNK + item / 8 / BK * BANKS;
    __global const uchar *from_b = B + ((size_t)b_row * ldb + column0 + b_column) * SIZE;
    #pragma unroll
    for (int e = 0; e < B_COPIES; e++)
        in_b |= (uint)(column0 + b_column + B_PIECE(e) / SIZE < n) << e;
#endif

    SUM d[ROW_TILES][COLUMN_TILES][4];
    #pragma unroll
    for (int i = 0; i < ROW_TILES; i++)
        #pragma unroll
        for (int j = 0; j < COLUMN_TILES; j++)
            #pragma unroll
            for (int e = 0; e < 4; e++)
                d[i][j][e] = 0;

    const uint lane_a = lane_of_a(lane, row), lane_b = lane_of_b(lane, across);
    WORD a[SETS][ROW_TILES][4], b[SETS][COLUMN_TILES][2];
    uint reading = tiles, writing = tiles;
    int p0 = 0;
    #pragma unroll
    for (int stage = 0; stage < STAGES - 1; stage++) {
        #pragma unroll
        for (int e = 0; e < COPIES; e++)
            COPY_PART(e)
        GROUP
    }
    ARRIVE
#if SETS == 2
    load_step(a[0], b[0], reading, 0, lane_a, lane_b);
#endif
    /* As long as whole tiles are copied, that is what is done; a tile past the end is zeros and adds nothing. */
    const int rounds = (k + TILES * BK - 1) / (TILES * BK);
    const int whole = row0 + BM <= m && column0 + BN <= n ? (k / BK - (STAGES - 1)) / TILES : 0;
    int round = 0;
    for (; round < whole; round++)
        ROUND(COPY_WHOLE)
    for (; round < rounds; round++)
        ROUND(COPY_PART)
    asm volatile("cp.async.wait_all;" ::: "memory");

    const int aligned = ldc % 2 == 0, r0 = row0 + row + lane / 4, c0 = column0 + across * UNIT + 2 * (lane % 4);
    const int plain = aligned && beta == 0 && row0 + BM <= m && column0 + BN <= n;
    #pragma unroll
    for (int i = 0; i < ROW_TILES; i++) {
        #pragma unroll
        for (int h = 0; h < 2; h++) {
            const int r = r0 + 16 * i + 8 * h;
            __global RESULT *c = C + (size_t)r * ldc + c0;
            if (plain) {
                #pragma unroll
                for (int j = 0; j < COLUMN_TILES; j++)
                    *(__global PAIR *)(c + COLUMN(j)) =
                        (PAIR)(narrowed(alpha * d[i][j][2 * h]), narrowed(alpha * d[i][j][2 * h + 1]));
            } else if (r < m) {
                #pragma unroll
                for (int j = 0; j < COLUMN_TILES; j++)
                    store(c + COLUMN(j), d[i][j][2 * h], d[i][j][2 * h + 1], n - c0 - COLUMN(j), aligned, alpha, beta);
            }
        }
    }
}
