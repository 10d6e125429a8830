/* gemmbench
name        = "small"
family      = "ours"
idea        = "small products: k split in a work-group"
source      = "gemmbench"
before      = "nv-mma"
stored      = ["half"]
work_group  = ["items", 1]
batches     = true
choose      = "python"
sums        = { half = "float" }
constraints = [
    ["BM % TM == 0", "BM must be a multiple of TM, so that each work-item owns whole rows"],
    ["BN % TN == 0", "BN must be a multiple of TN, so that each work-item owns whole columns"],
    ["TN % WIDTH == 0", "TN must be a multiple of WIDTH, so that columns are whole vectors"],
    ["BN % WIDTH == 0", "BN must be a multiple of WIDTH, so that rows are whole vectors"],
    ["BK % WIDTH == 0", "BK must be a multiple of WIDTH, so that a slice is whole vectors"],
    ["PAD % WIDTH == 0", "PAD must be a multiple of WIDTH, so that rows stay aligned"],
    ["STAGES >= 2 if ASYNC else STAGES <= 2", "STAGES must be 2 or more with ASYNC=1, and 1 or 2 with ASYNC=0"],
    ["WIDTH * itemsize == 16 or not ASYNC",
     "with ASYNC WIDTH must be 4 for float and 2 for double, and half cannot be: 16 bytes are copied"],
    ["ASYNC <= 1", "ASYNC must be 0 or 1"],
    ["DIRECT <= 1", "DIRECT <= 1 - ASYNC", "DIRECT must be 0, or 1 with ASYNC=0"],
]

[parameters]
BM     = { values = [16, 32, 64, 128], idea = "rows of C in a work-group's tile" }
BN     = { values = [16, 32, 64], idea = "columns of C in a work-group's tile" }
BK     = { values = [8, 16, 32], idea = "steps along k of a slice that are in local memory" }
TM     = { values = [2, 4, 8], idea = "rows of C in a work-item's micro-tile" }
TN     = { values = [4, 8], idea = "columns of C in a work-item's micro-tile" }
SPLIT  = { values = [1, 2, 4, 8], idea = "slices of k, each multiplied by different work-items" }
WIDTH  = { values = [2, 4], default = 4, idea = "elements of a vector" }
PAD    = { values = [0, 2, 4], default = 4, idea = "elements that rows of A's tile are longer than it" }
STAGES = { values = [1, 2, 3, 4], idea = "pairs of tiles in local memory: one is multiplied, the others load" }
ASYNC  = { values = [0, 1], idea = "1: tiles are copied by cp.async, which NVIDIA has; 0: by registers" }
DIRECT = { values = [0, 1], idea = "1: no tiles, operands go straight to registers" }

[presets]
"default:double" = { WIDTH = 2, PAD = 2 }
cpu              = { BM = 32, BN = 32, BK = 8, TM = 4, TN = 4, SPLIT = 2, STAGES = 1, DIRECT = 0, ASYNC = 0 }

[terms]
ASYNC = 0                                 # if it is not known yet
items = "BM // TM * (BN // TN) * SPLIT"   # of a group
whole = "lda % WIDTH == 0 and k % WIDTH == 0 and ldb % WIDTH == 0"   # rows start, and A's end, at whole vectors

[[launches]]
work_items = ["ceil_div(n, BN) * items", "ceil_div(m, BM)"]
when       = ["whole"]

[[launches]]
kernel     = "small_ragged"
work_items = ["ceil_div(n, BN) * items", "ceil_div(m, BM)"]
when       = ["not whole"]
*/
/* small: for products that last microseconds: many small tiles, and within a
 * work-group k is cut into slices.
 *
 *                  BN
 *              +--------+
 *     DEPTH    | slice 0| BK
 *  +----+----+ +--------+
 *  | 0  | 1  | | slice 1| BK
 *  +----+----+ +--------+
 *     BK   BK
 *
 * A work-group makes a BM x BN tile of C with SPLIT times as many work-items
 * as the tile has TM x TN micro-tiles. Each DEPTH = BK * SPLIT steps along k
 * are in local memory at a time; slice s of the work-items multiplies BK of
 * them:
 *
 * acc[i][j] += As[row of i][s * BK + p] * Bs[s * BK + p][column of j]
 * As[r][p] = A[(row0 + r) * lda + p0 + p]
 * Bs[p][c] = B[(p0 + p) * ldb + column0 + c]
 *
 * A matrix of 256 x 256 has fewer tiles than a large GPU has units unless
 * tiles are tiny, and a unit wants hundreds of work-items to have something to
 * do while it waits: so the work-items of a group share the k-loop, too. Their
 * sums are added up in local memory at the end, in rounds of rows that fit
 * there.
 *
 * What counts is how often a group waits: one barrier for each DEPTH steps,
 * the next tiles travelling to registers meanwhile. A is not transposed,
 * neither by a pass nor on its way: a work-item reads WIDTH steps of a row at
 * once, which takes as many loads from local memory as WIDTH steps of a
 * transposed tile would. One launch, no pass: rows that do not begin and end
 * where vectors do are read by elements (`small_ragged`), zeros past an edge.
 *
 * With DIRECT operands go from the cache straight to registers, a slice's own
 * part of k to each slice: nobody waits for the group before the sums meet.
 * Neighbouring work-items read the same, so the cache has more to give
 * than to fetch.
 *
 * With STORED_half operands are half in memory and float everywhere else: what
 * OpenCL C does on any device. */
#include "common.clh"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM) || !defined(TN)
#error "BM, BN, BK, TM and TN must be defined"
#endif
#if !defined(SPLIT) || !defined(WIDTH) || !defined(PAD) || !defined(STAGES) || !defined(ASYNC) || !defined(DIRECT)
#error "SPLIT, WIDTH, PAD, STAGES, ASYNC and DIRECT must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define ACROSS (BN / TN)         /* work-items across the tile */
#define DOWN (BM / TM)           /* and down */
#define SLICE (ACROSS * DOWN)
#define ITEMS (SLICE * SPLIT)
#define DEPTH (BK * SPLIT)
#define LDA_LOCAL (DEPTH + PAD)
#define VA (DEPTH / WIDTH)       /* vectors in a row of A's tile */
#define VB (BN / WIDTH)          /* and of B's */
#define LOADS_A ((BM * VA + ITEMS - 1) / ITEMS) /* vectors of a tile that a work-item moves */
#define LOADS_B ((DEPTH * VB + ITEMS - 1) / ITEMS)
#define TILE_A (BM * LDA_LOCAL)
#define TILE_B (DEPTH * BN)
#define TILES (STAGES * (TILE_A + TILE_B))

/* Rows of micro-tiles whose sums are added up at once. */
#define SUMS (SPLIT * DOWN * BN) /* elements of one row of every micro-tile, for every slice */
#if DIRECT || SUMS * TM <= TILES
#define ROUND TM
#elif TM % 2 == 0 && SUMS * (TM / 2) <= TILES
#define ROUND (TM / 2)
#elif TM % 4 == 0 && SUMS * (TM / 4) <= TILES
#define ROUND (TM / 4)
#else
#define ROUND 1
#endif
#define LOCAL_ELEMENTS (SUMS * ROUND > TILES ? SUMS * ROUND : TILES)

#include "stored.clh"

static inline void store(__global STORED *c, VECTOR sums, int left, int aligned, SCALAR alpha, SCALAR beta)
{
    VECTOR scaled = (REAL)alpha * sums;
    if (left >= WIDTH && aligned) {
        put_vector(beta == 0 ? scaled : scaled + (REAL)beta * get_vector(c), c);
        return;
    }
    REAL lanes[WIDTH];
    CAT(vstore, WIDTH)(scaled, 0, lanes);
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        if (i < left)
            put(beta == 0 ? lanes[i] : lanes[i] + (REAL)beta * get(c + i), c + i);
}

/* Start loading the tiles that begin at p0. A count that is no multiple of the work-items leaves some without. */
#define FETCH(p0) \
    _Pragma("unroll") for (int e = 0; e < LOADS_A; e++) { \
        const int v = item + e * ITEMS, row = row0 + v / VA, p = (p0) + v % VA * WIDTH; \
        if (BM * VA % ITEMS == 0 || v < BM * VA) \
            next_a[e] = fetched(A + (size_t)row * lda + p, row < m ? k - p : 0, whole); \
    } \
    _Pragma("unroll") for (int e = 0; e < LOADS_B; e++) { \
        const int v = item + e * ITEMS, p = (p0) + v / VB, column = column0 + v % VB * WIDTH; \
        if (DEPTH * VB % ITEMS == 0 || v < DEPTH * VB) \
            next_b[e] = fetched(B + (size_t)p * ldb + column, p < k ? n - column : 0, whole); \
    }

/* Put what has been loaded into local memory. */
#define PUT(stage_of) \
    _Pragma("unroll") for (int e = 0; e < LOADS_A; e++) { \
        const int v = item + e * ITEMS; \
        if (BM * VA % ITEMS == 0 || v < BM * VA) \
            *(__local VECTOR *)&local_a[(stage_of) * TILE_A + v / VA * LDA_LOCAL + v % VA * WIDTH] = next_a[e]; \
    } \
    _Pragma("unroll") for (int e = 0; e < LOADS_B; e++) { \
        const int v = item + e * ITEMS; \
        if (DEPTH * VB % ITEMS == 0 || v < DEPTH * VB) \
            *(__local VECTOR *)&local_b[(stage_of) * TILE_B + v / VB * BN + v % VB * WIDTH] = next_b[e]; \
    }

/* The steps of the slice, up one column and down the next: neighbours share an operand (docs/nv-async.md). */
#define MULTIPLY(stage_of) \
{ \
    __local const REAL *a_from = local_a + (stage_of) * TILE_A + y * LDA_LOCAL + slice * BK; \
    __local const REAL *b_from = local_b + (stage_of) * TILE_B + slice * BK * BN + x * WIDTH; \
    _Pragma("unroll") \
    for (int q = 0; q < BK; q += WIDTH) { \
        REAL a[TM][WIDTH]; \
        _Pragma("unroll") \
        for (int i = 0; i < TM; i++) \
            CAT(vstore, WIDTH)(*(__local const VECTOR *)(a_from + i * DOWN * LDA_LOCAL + q), 0, a[i]); \
        _Pragma("unroll") \
        for (int p = 0; p < WIDTH; p++) { \
            REAL b[TN]; \
            _Pragma("unroll") \
            for (int j = 0; j < TN / WIDTH; j++) \
                CAT(vstore, WIDTH)(*(__local const VECTOR *)(b_from + (q + p) * BN + j * ACROSS * WIDTH), j, b); \
            _Pragma("unroll") \
            for (int j = 0; j < TN; j++) \
                _Pragma("unroll") \
                for (int step = 0; step < TM; step++) { \
                    const int i = j % 2 ? TM - 1 - step : step; \
                    acc[i][j] += a[i][p] * b[j]; \
                } \
        } \
    } \
}

#if ASYNC
/* WIDTH elements of 16 bytes without a register between, or zeros. */
static inline void copy_async(__local REAL *to, __global const REAL *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint)(ulong)to), "l"(from), "r"(bytes)
                 : "memory");
}
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory");
#define WAIT_FOR_ALL_BUT(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");

/* Ask for the tiles that begin at p0. */
#define ASK(stage_of, p0) \
    _Pragma("unroll") for (int e = 0; e < LOADS_A; e++) { \
        const int v = item + e * ITEMS, row = row0 + v / VA, p = (p0) + v % VA * WIDTH; \
        if (BM * VA % ITEMS == 0 || v < BM * VA) \
            copy_async(&local_a[(stage_of) * TILE_A + v / VA * LDA_LOCAL + v % VA * WIDTH], \
                       A + (size_t)min(row, m - 1) * lda + p, row < m && p < k ? 16 : 0); \
    } \
    _Pragma("unroll") for (int e = 0; e < LOADS_B; e++) { \
        const int v = item + e * ITEMS, p = (p0) + v / VB, column = column0 + v % VB * WIDTH; \
        if (DEPTH * VB % ITEMS == 0 || v < DEPTH * VB) \
            copy_async(&local_b[(stage_of) * TILE_B + v / VB * BN + v % VB * WIDTH], \
                       B + (size_t)p * ldb + column, p < k && column < n ? 16 : 0); \
    }
#endif

/* What both kernels do; `whole`, a constant, tells how they read. */
static inline void multiplied(int m, int n, int k, SCALAR alpha, __global const STORED *restrict A, int lda,
                              __global const STORED *restrict B, int ldb, SCALAR beta, __global STORED *restrict C,
                              int ldc, __local REAL *local_all, const int whole)
{
    __local REAL *local_a = local_all, *local_b = local_all + STAGES * TILE_A;
    const int item = get_local_id(0), slice = item / SLICE, x = item % SLICE % ACROSS, y = item % SLICE / ACROSS;
    const int row0 = get_group_id(1) * BM, column0 = get_group_id(0) * BN;

    REAL acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = 0;

#if DIRECT
    if (whole) {
        #pragma unroll 4
        for (int p0 = slice * BK; p0 < k; p0 += DEPTH) {
            REAL a[TM][BK], b[BK][TN];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                #pragma unroll
                for (int q = 0; q < BK; q += WIDTH) {
                    const int row = row0 + i * DOWN + y, p = p0 + q;
                    CAT(vstore, WIDTH)(fetched(A + (size_t)row * lda + p, row < m ? k - p : 0, 1), 0, &a[i][q]);
                }
            #pragma unroll
            for (int q = 0; q < BK; q++)
                #pragma unroll
                for (int j = 0; j < TN; j += WIDTH) {
                    const int p = p0 + q, column = column0 + j * ACROSS + x * WIDTH;
                    CAT(vstore, WIDTH)(fetched(B + (size_t)p * ldb + column, p < k ? n - column : 0, 1), 0, &b[q][j]);
                }
            #pragma unroll
            for (int q = 0; q < BK; q++)
                #pragma unroll
                for (int i = 0; i < TM; i++)
                    #pragma unroll
                    for (int j = 0; j < TN; j++)
                        acc[i][j] += a[i][q] * b[q][j];
        }
    } else
#elif ASYNC
    if (whole) {
        #pragma unroll
        for (int s = 0; s < STAGES - 1; s++) {
            ASK(s, s * DEPTH)
            COMMIT
        }
        for (int p0 = 0, stage = 0; p0 < k; p0 += DEPTH) {
            WAIT_FOR_ALL_BUT(STAGES - 2)
            barrier(CLK_LOCAL_MEM_FENCE); /* the pair is there, and nobody reads the one that is replaced */
            if (p0 + (STAGES - 1) * DEPTH < k) {
                ASK(stage == 0 ? STAGES - 1 : stage - 1, p0 + (STAGES - 1) * DEPTH)
            }
            COMMIT
            MULTIPLY(stage)
            stage = stage == STAGES - 1 ? 0 : stage + 1;
        }
        WAIT_FOR_ALL_BUT(0)
        barrier(CLK_LOCAL_MEM_FENCE); /* before the sums replace the tiles */
    } else
#endif
    {
    VECTOR next_a[LOADS_A], next_b[LOADS_B];
    FETCH(0)
    PUT(0)
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p0 = 0, now = 0; p0 < k; p0 += DEPTH) {
        const int more = p0 + DEPTH < k; /* the same for every work-item of the group */
        if (more) {
            FETCH(p0 + DEPTH)
        }
        MULTIPLY(now)
        if (STAGES == 1)
            barrier(CLK_LOCAL_MEM_FENCE);
        if (more) {
            now = STAGES == 1 ? 0 : now ^ 1; /* two of a ring are enough here */
            PUT(now)
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* also before the sums replace the tiles */
    }
    }

    const int aligned = ldc % WIDTH == 0;
    if (SPLIT == 1) {
        #pragma unroll
        for (int i = 0; i < TM; i++) {
            const int row = row0 + i * DOWN + y;
            #pragma unroll
            for (int j = 0; j < TN / WIDTH; j++) {
                const int column = column0 + (j * ACROSS + x) * WIDTH;
                if (row < m && column < n)
                    store(C + (size_t)row * ldc + column, CAT(vload, WIDTH)(j, acc[i]), n - column, aligned, alpha,
                          beta);
            }
        }
        return;
    }
    #pragma unroll
    for (int i0 = 0; i0 < TM; i0 += ROUND) {
        if (i0 > 0)
            barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < ROUND; i++)
            #pragma unroll
            for (int j = 0; j < TN / WIDTH; j++)
                *(__local VECTOR *)(local_all + ((slice * ROUND + i) * DOWN + y) * BN + (j * ACROSS + x) * WIDTH) =
                    CAT(vload, WIDTH)(j, acc[i0 + i]);
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int v = item; v < ROUND * DOWN * VB; v += ITEMS) {
            VECTOR sums = 0;
            #pragma unroll
            for (int s = 0; s < SPLIT; s++)
                sums += *(__local const VECTOR *)(local_all + s * (ROUND * DOWN * BN) + v * WIDTH);
            const int row = row0 + i0 * DOWN + v / VB, column = column0 + v % VB * WIDTH;
            if (row < m && column < n)
                store(C + (size_t)row * ldc + column, sums, n - column, aligned, alpha, beta);
        }
    }
}

/* Rows of A begin and end where vectors do, those of B begin there: what a vector holds past n is nobody's column. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void small(int m, int n, int k, SCALAR alpha,
           __global const STORED *restrict A, int lda,
           __global const STORED *restrict B, int ldb, SCALAR beta,
           __global STORED *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    __local REAL local_all[LOCAL_ELEMENTS] __attribute__((aligned(16)));
    multiplied(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, local_all, 1);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void small_ragged(int m, int n, int k, SCALAR alpha,
                  __global const STORED *restrict A, int lda,
                  __global const STORED *restrict B, int ldb, SCALAR beta,
                  __global STORED *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    __local REAL local_all[LOCAL_ELEMENTS] __attribute__((aligned(16)));
    multiplied(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, local_all, 0);
}
