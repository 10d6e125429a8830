/* gemmbench
name        = "gpu-tile"
family      = "ours"
idea        = "two-level tiles, overlapping stages"
source      = "gemmbench"
work_group  = ["BM // TM * (BN // TN)"]
tile        = ["BM", "BN"]
either      = ["A", "B"]
batches     = true
local       = "2 * BK * (BM + PAD + BN)"
constraints = [
    ["BM % TM == 0", "BM must be a multiple of TM, so that each work-item owns whole rows"],
    ["BN % TN == 0", "BN must be a multiple of TN, so that each work-item owns whole columns"],
    ["TM % WIDTH == 0", "TM must be a multiple of WIDTH, so that rows are whole vectors"],
    ["TN % WIDTH == 0", "TN must be a multiple of WIDTH, so that columns are whole vectors"],
    ["PAD % WIDTH == 0", "PAD must be a multiple of WIDTH, so that rows stay aligned"],
    ["LANES % LX == 0", "BN % (LX * TN) == 0", "BM % (LANES // LX * TM) == 0",
     "a tile must be whole sub-groups: BN a multiple of LX x TN, BM of the lanes down one x TM"],
    ["BK % WIDTH == 0",
     "BM * BK // WIDTH % (BM // TM * (BN // TN)) == 0",
     "BK * BN // WIDTH % (BM // TM * (BN // TN)) == 0",
     "the vectors of a tile must be a multiple of the work-items in a group, so that each moves as many"],
    ["BK % 2 == 0", "BK must be even: two sets of fragments take turns"],
]

[parameters]
BM    = { values = [64, 128, 256], idea = "rows of C in a work-group's tile" }
BN    = { values = [64, 128, 256], idea = "columns of C in a work-group's tile" }
BK    = { values = [8, 16, 32], idea = "depth of the tiles of A and B" }
TM    = { values = [4, 8, 16], default = 8, idea = "rows of C in a work-item's micro-tile" }
TN    = { values = [4, 8, 16], idea = "columns of C in a work-item's micro-tile" }
WIDTH = { values = [2, 4, 8], default = 4, idea = "elements of a vector" }
PAD   = { values = [0, 4, 8], default = 4, idea = "elements that rows of A's tile are longer than it" }
LANES = { values = [16, 32, 64], default = 32, idea = "work-items of a sub-group" }
LX    = { values = [4, 8, 16], default = 8, idea = "of them, across the tile" }
AHEAD = { values = [0, 1], default = 1, idea = "1: the fragments of the next step load while this one multiplies" }
BAND  = { values = [1, 4, 8, 16], default = 8, idea = "tile rows that groups walk down before the next column" }

[presets]
gpu          = { BM = 128, BN = 128, TM = 8, TN = 8 }
"gpu:double" = { BM = 64, BN = 64, TM = 8, TN = 4, WIDTH = 2 }
gpu-nvidia   = { BM = 128, BN = 128, TM = 8, TN = 16, LX = 4, AHEAD = 0, BAND = 16 }
phone        = { BM = 32, BN = 32, TM = 4, TN = 4, WIDTH = 4, AHEAD = 0 }

[copies]
A = [{ buffer = "AP", ld = "aw", when = "ragged_a > 0" }]
B = [{ buffer = "BP", ld = "bw", when = "ragged_b > 0" }]

[extents]
ragged_a = "lda % WIDTH + (1 - ta) * (k % WIDTH)"   # 0 if A can be read by whole vectors: its rows start at
ragged_b = "ldb % WIDTH + tb * (k % WIDTH)"         # multiples of one, and end so if they run along k
aw       = "round_up(columns_a, WIDTH)"
bw       = "round_up(columns_b, WIDTH)"

[temporaries]
AP = "min(ragged_a, 1) * rows_a * aw"
BP = "min(ragged_b, 1) * rows_b * bw"

[[launches]]
copy       = "pad"
arguments  = ["rows_a", "columns_a", "A", "lda", "rows_a", "aw", "AP"]
when       = ["ragged_a > 0"]

[[launches]]
copy       = "pad"
arguments  = ["rows_b", "columns_b", "B", "ldb", "rows_b", "bw", "BP"]
when       = ["ragged_b > 0"]

[[launches]]
kernel     = "gpu_tile"
*/
/* gpu-tile: tiles on two levels, and nothing that waits: what a GPU's compiler
 * needs to keep multiplying.
 *
 *          BN
 *      +---------+---------+
 *   BM | sub-    | sub-    |
 *      | group   | group   |
 *      +---------+---------+
 *      |   ...   |   ...   |
 *      +---------+---------+
 *
 * A work-group makes a BM x BN tile of C, each of its sub-groups a part of (LY
 * * TM) x (LX * TN), LX x LY = LANES lanes. A lane's TM x TN micro-tile is
 * made of vectors strided over the part: vector i of rows at (i * LY + ly) *
 * WIDTH, of columns at (j * LX + lx) * WIDTH, so that lanes read neighbouring
 * local memory.
 *
 * acc[i][j] += At[p][row of i] * Bt[p][columns of j]
 * At[p][r] = A[(row0 + r) * lda + p0 + p]
 * Bt[p][c] = B[(p0 + p) * ldb + column0 + c]
 *
 * Three stages overlap: tile t + 1 travels from global memory to registers,
 * step p + 1 from local memory to registers, while step p of tile t is
 * multiplied. A is transposed on its way into local memory, so that no pass is
 * needed; PAD elements at the end of a row of At keep its four-row stores in
 * different banks. Groups walk bands of BAND tile rows, so that the groups
 * that run at one time share operands in the second-level cache.
 *
 * Loads are whole vectors through pointers to the vector type (vload may be
 * compiled to scalar loads), so lda and ldb are multiples of WIDTH: other
 * operands come padded by a pass. Vectors past an edge are zeros. */
#include "common.clh"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM) || !defined(TN)
#error "BM, BN, BK, TM and TN must be defined"
#endif
#if !defined(WIDTH) || !defined(PAD) || !defined(LANES) || !defined(LX) || !defined(BAND)
#error "WIDTH, PAD, LANES, LX and BAND must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define LY (LANES / LX)
#define ITEMS ((BM / TM) * (BN / TN))
#define PARTS_ACROSS (BN / (LX * TN))     /* sub-groups in a row of the tile */
#define VK (BK / WIDTH)                   /* vectors in a row of A's tile */
#define VN (BN / WIDTH)                   /* and of B's */
#define LOADS_A (BM * VK / ITEMS)         /* vectors of a tile that a work-item moves */
#define LOADS_B (BK * VN / ITEMS)
#define LDA_LOCAL (BM + PAD)

#ifdef TRANS
/* Of operands that are stored transposed: where the vector v of a tile stands in it, and in the matrix. A's vectors lie
 * along the rows of C then, as in local memory, and need no turning round; B's lie along k, and do. */
#define VM (BM / WIDTH)
#ifdef TRANS_A
#define STEP_A(v) ((v) / VM)
#define ROW_A(v) ((v) % VM * WIDTH)
#define FROM_A(row, p) (A + (size_t)(p) * lda + (row))
#define ALONG_A 1
#else
#define STEP_A(v) ((v) % VK * WIDTH)
#define ROW_A(v) ((v) / VK)
#define FROM_A(row, p) (A + (size_t)(row) * lda + (p))
#define ALONG_A 0
#endif
#ifdef TRANS_B
#define STEP_B(v) ((v) % VK * WIDTH)
#define COLUMN_B(v) ((v) / VK)
#define FROM_B(p, column) (B + (size_t)(column) * ldb + (p))
#define LDB_LOCAL (BN + PAD)
#define ALONG_B 0
#else
#define STEP_B(v) ((v) / VN)
#define COLUMN_B(v) ((v) % VN * WIDTH)
#define FROM_B(p, column) (B + (size_t)(p) * ldb + (column))
#define LDB_LOCAL BN
#define ALONG_B 1
#endif

#define FETCH(p0) \
    _Pragma("unroll") for (int e = 0; e < LOADS_A; e++) { \
        const int v = item + e * ITEMS, row = row0 + ROW_A(v), p = (p0) + STEP_A(v); \
        next_a[e] = row < m && p < k ? *(__global const VECTOR *)FROM_A(row, p) : (VECTOR)(0); \
    } \
    _Pragma("unroll") for (int e = 0; e < LOADS_B; e++) { \
        const int v = item + e * ITEMS, p = (p0) + STEP_B(v), column = column0 + COLUMN_B(v); \
        next_b[e] = p < k && column < n ? *(__global const VECTOR *)FROM_B(p, column) : (VECTOR)(0); \
    }

#define PUT(half) \
    _Pragma("unroll") for (int e = 0; e < LOADS_A; e++) { \
        const int v = item + e * ITEMS; \
        put(&At[half][STEP_A(v)][ROW_A(v)], next_a[e], ALONG_A, LDA_LOCAL); \
    } \
    _Pragma("unroll") for (int e = 0; e < LOADS_B; e++) { \
        const int v = item + e * ITEMS; \
        put(&Bt[half][STEP_B(v)][COLUMN_B(v)], next_b[e], ALONG_B, LDB_LOCAL); \
    }

/* A vector into a row of a tile, or into a column of it. */
static inline void put(__local REAL *to, VECTOR values, int along, int ld)
{
    if (along) {
        *(__local VECTOR *)to = values;
        return;
    }
    REAL lanes[WIDTH];
    CAT(vstore, WIDTH)(values, 0, lanes);
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        to[i * ld] = lanes[i];
}

#else
/* Start loading the tiles that begin at p0. */
#define FETCH(p0) \
    _Pragma("unroll") for (int e = 0; e < LOADS_A; e++) { \
        const int v = item + e * ITEMS, row = row0 + v / VK, p = (p0) + v % VK * WIDTH; \
        next_a[e] = row < m && p < k ? *(__global const VECTOR *)(A + (size_t)row * lda + p) : (VECTOR)(0); \
    } \
    _Pragma("unroll") for (int e = 0; e < LOADS_B; e++) { \
        const int v = item + e * ITEMS, p = (p0) + v / VN, column = column0 + v % VN * WIDTH; \
        next_b[e] = p < k && column < n ? *(__global const VECTOR *)(B + (size_t)p * ldb + column) : (VECTOR)(0); \
    }

/* Put what has been loaded into one half of local memory, A transposed. */
#define PUT(half) \
    _Pragma("unroll") for (int e = 0; e < LOADS_A; e++) { \
        const int v = item + e * ITEMS; \
        REAL lanes[WIDTH]; \
        CAT(vstore, WIDTH)(next_a[e], 0, lanes); \
        _Pragma("unroll") for (int i = 0; i < WIDTH; i++) \
            At[half][v % VK * WIDTH + i][v / VK] = lanes[i]; \
    } \
    _Pragma("unroll") for (int e = 0; e < LOADS_B; e++) { \
        const int v = item + e * ITEMS; \
        *(__local VECTOR *)&Bt[half][v / VN][v % VN * WIDTH] = next_b[e]; \
    }

#endif
/* Load the fragments of step p from one half of local memory. */
#define FRAGMENTS(set, half, p) \
    _Pragma("unroll") for (int i = 0; i < TM / WIDTH; i++) \
        CAT(vstore, WIDTH)(*(__local const VECTOR *)&At[half][p][row_part + i * LY * WIDTH], i, a[set]); \
    _Pragma("unroll") for (int j = 0; j < TN / WIDTH; j++) \
        CAT(vstore, WIDTH)(*(__local const VECTOR *)&Bt[half][p][column_part + j * LX * WIDTH], j, b[set]);

static inline void store(__global REAL *c, VECTOR sums, int left, int aligned, SCALAR alpha, SCALAR beta)
{
    const VECTOR scaled = (REAL)alpha * sums;
    if (left >= WIDTH && aligned) {
        __global VECTOR *whole = (__global VECTOR *)c;
        *whole = beta == 0 ? scaled : scaled + (REAL)beta * *whole;
        return;
    }
    REAL lanes[WIDTH];
    CAT(vstore, WIDTH)(scaled, 0, lanes);
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        if (i < left)
            c[i] = beta == 0 ? lanes[i] : lanes[i] + (REAL)beta * c[i];
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void gpu_tile(int m, int n, int k, SCALAR alpha,
              __global const REAL *restrict A, int lda,
              __global const REAL *restrict B, int ldb, SCALAR beta,
              __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    __local REAL At[2][BK][LDA_LOCAL] __attribute__((aligned(16)));
#ifdef TRANS
    __local REAL Bt[2][BK][LDB_LOCAL] __attribute__((aligned(16)));
#else
    __local REAL Bt[2][BK][BN] __attribute__((aligned(16)));
#endif
    const int item = get_local_id(0), lane = item % LANES, part = item / LANES;
    const int row_part = part / PARTS_ACROSS * (LY * TM) + lane / LX * WIDTH;
    const int column_part = part % PARTS_ACROSS * (LX * TN) + lane % LX * WIDTH;

    /* the tile: down a band of BAND tile rows first, then one tile column on */
    const int tiles_down = (m + BM - 1) / BM, tiles_across = (n + BN - 1) / BN;
    const int band = get_group_id(0) / (BAND * tiles_across), within = get_group_id(0) % (BAND * tiles_across);
    const int band_rows = min(BAND, tiles_down - band * BAND);
    const int row0 = (band * BAND + within % band_rows) * BM, column0 = within / band_rows * BN;

    REAL acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = 0;

    VECTOR next_a[LOADS_A], next_b[LOADS_B];
    REAL a[2][TM], b[2][TN];
    FETCH(0)
    PUT(0)
    barrier(CLK_LOCAL_MEM_FENCE);
#if AHEAD
    FRAGMENTS(0, 0, 0)
#endif
    for (int p0 = 0, now = 0; p0 < k; p0 += BK, now ^= 1) {
        const int more = p0 + BK < k;
        if (more) {
            FETCH(p0 + BK)
        }
        #pragma unroll
        for (int p = 0; p < BK; p++) {
#if AHEAD
            if (p < BK - 1) {
                FRAGMENTS((p + 1) % 2, now, p + 1)
            } else if (more) { /* the same for every work-item of the group */
                PUT(now ^ 1)
                barrier(CLK_LOCAL_MEM_FENCE);
                FRAGMENTS(0, now ^ 1, 0)
            }
#else
            FRAGMENTS(p % 2, now, p)
#endif
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int j = 0; j < TN; j++)
                    acc[i][j] += a[p % 2][i] * b[p % 2][j];
        }
#if !AHEAD
        if (more) {
            PUT(now ^ 1)
            barrier(CLK_LOCAL_MEM_FENCE);
        }
#endif
    }

    const int aligned = ldc % WIDTH == 0;
    #pragma unroll
    for (int i = 0; i < TM; i++) {
        const int row = row0 + row_part + i / WIDTH * LY * WIDTH + i % WIDTH;
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++) {
            const int column = column0 + column_part + j * LX * WIDTH;
            if (row < m && column < n)
                store(C + (size_t)row * ldc + column, CAT(vload, WIDTH)(j, acc[i]), n - column, aligned, alpha, beta);
        }
    }
}
