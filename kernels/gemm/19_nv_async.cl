/* gemmbench
name        = "nv-async"
family      = "ours"
idea        = "asynchronous copies (cp.async)"
source      = "gemmbench"
types       = ["float", "double"]
work_group  = ["members"]
work_items  = ["(WHOLE + (tiles - WHOLE) * PARTS) * members"]
arguments   = ["m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "P", "WHOLE", "PARTS"]
edge        = "max(BM, BN)"
either      = ["A", "B"]
batches     = true
choose      = "python"
chosen      = ["WHOLE", "PARTS"]
constraints = [
    ["WIDTH * itemsize == 16", "WIDTH must be 4 for float and 2 for double: a copy moves 16 bytes"],
    ["BM % TM == 0", "BM must be a multiple of TM, so that each work-item owns whole rows"],
    ["BN % TN == 0", "BN must be a multiple of TN, so that each work-item owns whole columns"],
    ["TM % WIDTH == 0", "TM must be a multiple of WIDTH, so that rows are whole vectors"],
    ["TN % WIDTH == 0", "TN must be a multiple of WIDTH, so that columns are whole vectors"],
    ["PAD % WIDTH == 0", "PAD must be a multiple of WIDTH, so that rows stay aligned"],
    ["32 % LX == 0", "BN % (LX * TN) == 0", "BM % (32 // LX * TM) == 0",
     "a tile must be whole sub-groups: BN a multiple of LX x TN, BM of the lanes down one x TM"],
    ["BK % WIDTH == 0", "BM * BK // WIDTH % members == 0", "BK * BN // WIDTH % members == 0",
     "the vectors of a tile must be a multiple of the work-items in a group, so that each moves as many"],
    ["members * WIDTH % BN == 0", "members % segment == 0", "BK % (members // segment) == 0",
     "the work-items of a group must copy whole rows of B's tile at once, and whole segments of A's"],
    ["not odd_first or BK <= 16 or BK % 16 == 0",
     "BK must be 16 at most or a multiple of it where micro-tiles have more than 64 elements or PAD is 0"],
    ["BM * BN // WIDTH % 256 == 0",
     "a tile must be a multiple of 256 vectors: groups of 256 add up the parts of one"],
]

[parameters]
BM        = { values = [64, 128, 256], idea = "rows of C in a work-group's tile" }
BN        = { values = [64, 128, 256], idea = "columns of C in a work-group's tile" }
BK        = { values = [8, 16, 32], idea = "depth of the tiles of A and B" }
TM        = { values = [4, 8, 16], idea = "rows of C in a work-item's micro-tile" }
TN        = { values = [4, 8, 16], idea = "columns of C in a work-item's micro-tile" }
WIDTH     = { values = [2, 4], default = 4, idea = "elements of a copy, which is 16 bytes" }
PAD       = { values = [0, 4], idea = "elements that rows of A's tile are longer than it" }
STAGES    = { values = [2, 3, 4], least = 2, idea = "pairs of tiles in local memory" }
LX        = { values = [4, 8, 16], idea = "lanes of a warp across the tile" }
BAND      = { values = [1, 4, 8, 16], default = 16, idea = "tile rows that groups walk down before the next column" }
REGISTERS = { values = [0, 128, 168], default = 0, idea = "that a work-item may take; 0: as many as it likes" }

[presets]
"default:double" = { BM = 64, BN = 64, BK = 16, TM = 8, TN = 8, PAD = 4, STAGES = 2, LX = 8, WIDTH = 2 }

[terms]
members     = "BM // TM * (BN // TN)"            # work-items of a group
tiles       = "ceil_div(m, BM) * ceil_div(n - EDGE, BN)"
segment     = "BM // WIDTH & -(BM // WIDTH)"     # vectors of a row of A's tile that are copied together
segmented   = "BM & (BM - 1) > 0"
odd_first   = "TM * TN > 64 or (PAD == 0 and WIDTH == 4)"   # the odd part of k comes first
by_elements = "BK == 8 and TM * TN > 64 and WIDTH == 4 and members % 64 == 0 and BM % (members // 2) == 0 and not ta and nt < 0"
takes_a     = "by_elements or (ta and lda % WIDTH == 0 and lda >= mw)"   # A as it is stored
takes_b     = "not tb and ldb % WIDTH == 0"
EDGE        = 0                                  # columns of C past the tiles, which another pass multiplies
nt          = -1                                 # the others, if there are such

[copies]
A = [{ buffer = "AT", ld = "mw", when = "not takes_a" }]
B = [{ buffer = "BP", ld = "nw", when = "not takes_b" }]

[extents]
mw = "round_up(m, BM if segmented else WIDTH)"
nw = "round_up(n, 8 * WIDTH)"                    # rows of its copy begin on lines of memory

[temporaries]
AT = "0 if takes_a else k * mw"
BP = "0 if takes_b else k * nw"
P  = "(tiles - WHOLE) * PARTS * BM * BN"

[[launches]]
copy       = "transpose_tall"
arguments  = ["m", "k", "A", "lda", "AT", "mw"]
when       = ["not ta", "not by_elements"]

[[launches]]
copy       = "pad_vectors"
arguments  = ["k", "m", "A", "lda", "AT", "mw"]
when       = ["ta", "not takes_a"]

[[launches]]
copy       = "transpose_tall"
arguments  = ["n", "k", "B", "ldb", "BP", "nw"]
when       = ["tb"]

[[launches]]
copy       = "pad_vectors"
arguments  = ["k", "n", "B", "ldb", "BP", "nw"]
when       = ["not tb", "not takes_b"]

[[launches]]
kernel     = "nv_async"

[[launches]]
kernel     = "sum_parts"
arguments  = ["m", "n", "alpha", "beta", "C", "ldc", "P", "WHOLE", "PARTS"]
work_group = [256]
work_items = ["(tiles - WHOLE) * BM * BN // WIDTH"]
when       = ["WHOLE < tiles"]
*/
/* nv-async: tiles on two levels, copied by the hardware: from global to local
 * memory without a register between.
 *
 *          BN
 *      +--------+
 *      | B tile | BK
 *      +--------+
 *   BK
 *  +----+   +--------+
 *  | A  |   |  C     | BM
 *  |tile|   |  tile  |
 *  +----+   +--------+
 *
 * Local memory is a ring of STAGES pairs of tiles. While one pair is
 * multiplied, the copies of the next STAGES - 1 are under way (cp.async, 16
 * bytes each), so that one barrier a tile is enough: what it waits for was
 * asked for STAGES - 1 tiles ago.
 *
 * acc[i][j] += As[stage][p][row of i] * Bs[stage][p][column of j]
 * As[s][p][r] = AT[(p0 + p) * ldat + row0 + r]
 * Bs[s][p][c] = B[(p0 + p) * ldb + column0 + c]
 *
 * A copy cannot transpose, so A comes transposed by a pass. What is on its way
 * takes no registers and no stores to local memory, which leaves both to the
 * multiplication.
 *
 * A work-item owns a TM x TN micro-tile and walks it column by column, up one
 * and down the next: two multiply-adds in a row share the element of B, or at
 * a turn the element of A, so that each reads two registers and not three from
 * two banks that give one each a cycle (docs/nv-async.md).
 *
 * Many tiles are of 96 x 128 and micro-tiles of 12 x 8, for which 168
 * registers are enough, three groups a unit; fewer are of 64 x 128, and few of
 * 128 x 64 with 8 x 8. Whole rows of A's tile need not be a power of two of
 * vectors: they are copied in segments that are, and rows of AT are whole
 * tiles then, so that no segment looks for the edge.
 *
 * The last tiles, fewer than the device has units, would leave units idle:
 * tiles from WHOLE on are cut into PARTS along k, each a group's, into a
 * buffer that `sum_parts` adds up. A small C with a long k is all such tiles.
 *
 * Rows and columns past an edge repeat the last vector, since nothing of
 * theirs is stored; steps past k are zeros, which cp.async fills in for what
 * it is told not to read. ldat and ldb are multiples of WIDTH: B comes padded
 * by a pass where its rows do not fit. */
#include "common.clh"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM) || !defined(TN)
#error "BM, BN, BK, TM and TN must be defined"
#endif
#if !defined(WIDTH) || !defined(PAD) || !defined(STAGES) || !defined(LX) || !defined(BAND) || !defined(REGISTERS)
#error "WIDTH, PAD, STAGES, LX, BAND and REGISTERS must be defined"
#endif

#define LANES 32
#define VECTOR REALV(WIDTH)
#define LY (LANES / LX)
#define ITEMS ((BM / TM) * (BN / TN))
#define PARTS_ACROSS (BN / (LX * TN)) /* warps in a row of the tile */
#define VM (BM / WIDTH)               /* vectors in a row of A's tile */
#define VN (BN / WIDTH)               /* and of B's */
#define VS (VM & -VM)                 /* and of a segment of A's, side by side in a row: a power of two */
#define COPIES_A (BK * VM / ITEMS)    /* vectors of a tile that a work-item asks for */
#define COPIES_B (BK * VN / ITEMS)

#ifndef ODD_FIRST
/* Large micro-tiles: the odd part of k comes first, so that whole tiles are copied without a test, and the code holds 16
 * steps at most. Tiles lie on lines of 128 bytes: behind what the driver puts first, 16 bytes, they were a tenth slower.
 * Small micro-tiles were faster as they are. */
#define ODD_FIRST (TM * TN > 64 && WIDTH == 4)
#endif
#ifdef ODD_FIRST
/* Asked for: small micro-tiles gain by that, too, where rows of their tiles are whole lines of 128 bytes. */
#endif
#if ODD_FIRST
#define ALIGNED 1024
#define UNROLLED (BK < 16 ? BK : 16)
#define SPLIT(v, i, to) to[i * 4] = v.s0, to[i * 4 + 1] = v.s1, to[i * 4 + 2] = v.s2, to[i * 4 + 3] = v.s3;
#define JOIN(i, from) (VECTOR)(from[i * 4], from[i * 4 + 1], from[i * 4 + 2], from[i * 4 + 3])
#else
#define ALIGNED 16
#define UNROLLED BK
#define SPLIT(v, i, to) CAT(vstore, WIDTH)(v, i, to);
#define JOIN(i, from) CAT(vload, WIDTH)(i, from)
#endif

/* 16 bytes, the first `bytes` of them read and the others zero. */
static inline void copy_async(__local REAL *to, __global const REAL *from, int bytes)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint)(ulong)to), "l"(from), "r"(bytes)
                 : "memory");
}
static inline void copy_whole(__local REAL *to, __global const REAL *from)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"((uint)(ulong)to), "l"(from) : "memory");
}
#ifdef PLAIN_A
static inline void copy_element(__local REAL *to, __global const REAL *from, int bytes)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((uint)(ulong)to), "l"(from), "r"(bytes)
                 : "memory");
}
static inline void copy_whole_element(__local REAL *to, __global const REAL *from)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"((uint)(ulong)to), "l"(from) : "memory");
}
#endif
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory");
#define WAIT_FOR_ALL_BUT(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");

/* Ask for the next pair of tiles, of which `left` steps are part of the sum. */
#define SOME(to, from, p, left) copy_async(to, from, p < (left) ? 16 : 0);
#define WHOLE(to, from, p, left) copy_whole(to, from);
#ifdef PLAIN_A
/* A without a pass, as it is stored: AT is A, ldat its leading dimension. A copy of 4 bytes can transpose. Eight lanes copy
 * 32 bytes of a row, the steps p of one tile; a work-item copies the rows of vectors of 4, vector v = item / 8 first.
 *
 *     As[stage][p][SLOT(v, p) + i] = row ROW(v, i) of the tile at step p
 *
 * Vectors change places by p, and the rows within one by v: so no two lanes write to one bank. */
#define DEPTH 8
#define VECTORS (ITEMS / DEPTH) /* that are copied at once */
#define SLOT(v, p) (((v) ^ (p)) * 4)
#define ROW(v, i) ((v)*4 + ((i) ^ ((v)&3)))
#define SOME_ELEMENT(to, from, p, left) copy_element(to, from, p < (left) ? 4 : 0);
#define WHOLE_ELEMENT(to, from, p, left) copy_whole_element(to, from);
#define ASK(COPY, stage, left, steps)                                                                        \
    {                                                                                                        \
        const int step = item % DEPTH, slot = SLOT(item / DEPTH, step);                                      \
        _Pragma("unroll") for (int e = 0; e < BM / VECTORS; e++)                                             \
            COPY##_ELEMENT(&As[stage][step][slot + e / 4 * VECTORS * 4 + e % 4], a_from + row_at[e], step, left) \
        a_from += steps;                                                                                     \
        _Pragma("unroll") for (int e = 0; e < COPIES_B; e++) {                                               \
            const int p = item / VN + e * (ITEMS / VN);                                                      \
            COPY(&Bs[stage][p][item % VN * WIDTH], b_from + (size_t)(e * (ITEMS / VN)) * ldb, p, left)       \
        }                                                                                                    \
        b_from += (size_t)(steps)*ldb;                                                                       \
    }
#else
#define ASK(COPY, stage, left, steps)                                                                        \
    {                                                                                                        \
        _Pragma("unroll") for (int e = 0; e < COPIES_A; e++) {                                               \
            const int down = e * (ITEMS / VS) % BK, across = e * (ITEMS / VS) / BK * VS * WIDTH;             \
            const int p = item / VS + down;                                                                  \
            COPY(&As[stage][p][item % VS * WIDTH + across], a_from + across + (size_t)down * ldat, p, left)  \
        }                                                                                                    \
        a_from += (size_t)(steps)*ldat;                                                                      \
        _Pragma("unroll") for (int e = 0; e < COPIES_B; e++) {                                               \
            const int p = item / VN + e * (ITEMS / VN);                                                      \
            COPY(&Bs[stage][p][item % VN * WIDTH], b_from + (size_t)(e * (ITEMS / VN)) * ldb, p, left)       \
        }                                                                                                    \
        b_from += (size_t)(steps)*ldb;                                                                       \
    }
#endif

static inline void store(__global REAL *c, VECTOR sums, int left, int aligned, SCALAR alpha, SCALAR beta)
{
    const VECTOR scaled = (REAL)alpha * sums;
    if (left >= WIDTH && aligned) {
        __global VECTOR *whole = (__global VECTOR *)c;
        *whole = beta == 0 ? scaled : scaled + (REAL)beta * *whole;
        return;
    }
    REAL lanes[WIDTH];
    SPLIT(scaled, 0, lanes)
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        if (i < left)
            c[i] = beta == 0 ? lanes[i] : lanes[i] + (REAL)beta * c[i];
}

/* Where a tile begins: down a band of BAND tile rows first, then one tile column on. */
static inline int2 corner(int tile, int m, int n)
{
    const int tiles_down = (m + BM - 1) / BM, tiles_across = (n + BN - 1) / BN;
    const int band = tile / (BAND * tiles_across), within = tile % (BAND * tiles_across);
    const int band_rows = min(BAND, tiles_down - band * BAND);
    return (int2)((band * BAND + within % band_rows) * BM, within / band_rows * BN);
}

/* The compiler keeps to a limit of registers only for kernels that promise no group size. */
__kernel
#if !REGISTERS
__attribute__((reqd_work_group_size(ITEMS, 1, 1)))
#endif
void nv_async(int m, int n, int k, SCALAR alpha,
              __global const REAL *restrict AT, int ldat,
              __global const REAL *restrict B, int ldb, SCALAR beta,
              __global REAL *restrict C, int ldc,
              __global REAL *restrict P, int whole, int parts)
{
#ifdef BATCHED
#ifdef PLAIN_A
    BATCH_OFFSET(AT, m, ldat)
#else
    BATCH_OFFSET(AT, k, ldat)
#endif
#ifdef TRANS_B
    BATCH_OFFSET(B, k, ldb) /* what a pass has made of it */
#else
    BATCH_OFFSET(B, ROWS_B, ldb)
#endif
    BATCH_OFFSET(C, m, ldc)
#endif
    __local REAL As[STAGES][BK][BM + PAD] __attribute__((aligned(ALIGNED)));
    __local REAL Bs[STAGES][BK][BN] __attribute__((aligned(ALIGNED)));
    const int item = get_local_id(0), lane = item % LANES, warp = item / LANES;
    const int row_part = warp / PARTS_ACROSS * (LY * TM) + lane / LX * WIDTH;
    const int column_part = warp % PARTS_ACROSS * (LX * TN) + lane % LX * WIDTH;

    /* the tile, and the steps along k that are the group's */
    const int group = get_group_id(0), cut = group >= whole;
    const int2 begin = corner(cut ? whole + (group - whole) / parts : group, m, n);
    const int row0 = begin.x, column0 = begin.y;
    const int depth = cut ? ((k + BK - 1) / BK + parts - 1) / parts * BK : k;
    const int from = cut ? (group - whole) % parts * depth : 0, steps = min(depth, k - from);

#ifdef PLAIN_A
    __global const REAL *a_from = AT + (size_t)row0 * ldat + from + item % DEPTH;
    int row_at[BM / VECTORS];
    #pragma unroll
    for (int e = 0; e < BM / VECTORS; e++)
        row_at[e] = min(ROW(item / DEPTH, e % 4) + e / 4 * VECTORS * 4, m - 1 - row0) * ldat;
#else
#if VM == (VM & -VM)
    __global const REAL *a_from = AT + (size_t)(from + item / VS) * ldat + min(row0 + (int)(item % VS * WIDTH), ldat - WIDTH);
#else /* rows of AT are whole tiles */
    __global const REAL *a_from = AT + (size_t)(from + item / VS) * ldat + row0 + item % VS * WIDTH;
#endif
#endif
    __global const REAL *b_from = B + (size_t)(from + item / VN) * ldb + min(column0 + (int)(item % VN * WIDTH), ldb - WIDTH);

    REAL acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = 0;

#if ODD_FIRST
    const int tiles = (steps + BK - 1) / BK, odd = tiles > 0 ? steps - (tiles - 1) * BK : 0;
    #pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        const int left = s == 0 ? odd : s < tiles ? BK : 0;
        ASK(SOME, s, left, left)
        COMMIT
    }
#else
    #pragma unroll
    for (int s = 0; s < STAGES - 1; s++) {
        ASK(SOME, s, steps - s * BK, BK)
        COMMIT
    }
#endif
    int stage = 0;
#if ODD_FIRST
    for (int t = 0; t < tiles; t++) {
#else
    for (int p0 = 0; p0 < steps; p0 += BK) {
#endif
        WAIT_FOR_ALL_BUT(STAGES - 2)
        barrier(CLK_LOCAL_MEM_FENCE); /* the pair is there, and nobody reads the one that the next copies replace */
#if ODD_FIRST
        const int into = stage == 0 ? STAGES - 1 : stage - 1;
        if (t + STAGES - 1 < tiles)
            ASK(WHOLE, into, BK, BK)
#else
        if (p0 + (STAGES - 1) * BK < steps)
            ASK(SOME, stage == 0 ? STAGES - 1 : stage - 1, steps - p0 - (STAGES - 1) * BK, BK)
#endif
        COMMIT
        REAL a[TM], b[TN];
#if UNROLLED < BK
        #pragma unroll 1
        for (int first = 0; first < BK; first += UNROLLED)
#else
        const int first = 0;
#endif
        #pragma unroll
        for (int step = 0; step < UNROLLED; step++) {
            const int p = first + step;
            #pragma unroll
            for (int i = 0; i < TM / WIDTH; i++) {
#ifdef PLAIN_A
                const VECTOR v = *(__local const VECTOR *)&As[stage][p][SLOT(row_part / 4 + i * LY, p)];
#else
                const VECTOR v = *(__local const VECTOR *)&As[stage][p][row_part + i * LY * WIDTH];
#endif
                SPLIT(v, i, a)
            }
            #pragma unroll
            for (int j = 0; j < TN / WIDTH; j++) {
                const VECTOR v = *(__local const VECTOR *)&Bs[stage][p][column_part + j * LX * WIDTH];
                SPLIT(v, j, b)
            }
            #pragma unroll
            for (int j = 0; j < TN; j++)
                #pragma unroll
                for (int s = 0; s < TM; s++) {
                    const int i = j % 2 ? TM - 1 - s : s;
                    acc[i][j] += a[i] * b[j];
                }
        }
        stage = stage == STAGES - 1 ? 0 : stage + 1;
    }
    WAIT_FOR_ALL_BUT(0)

    /* into C or, of a tile that is cut, into a tile of its own */
    __global REAL *target = cut ? P + (size_t)(group - whole) * (BM * BN) : C + (size_t)row0 * ldc + column0;
    const int ld = cut ? BN : ldc, rows = cut ? BM : m - row0, columns = cut ? BN : n - column0;
    const SCALAR scale = cut ? 1 : alpha, keep = cut ? 0 : beta;
    const int aligned = ld % WIDTH == 0;
    #pragma unroll
    for (int i = 0; i < TM; i++) {
#ifdef PLAIN_A
        const int row = ROW(row_part / 4 + i / 4 * LY, i % 4);
#else
        const int row = row_part + i / WIDTH * LY * WIDTH + i % WIDTH;
#endif
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++) {
            const int column = column_part + j * LX * WIDTH;
            if (row < rows && column < columns)
                store(target + (size_t)row * ld + column, JOIN(j, acc[i]), columns - column, aligned, scale,
                      keep);
        }
    }
}

/* C of the tiles that were cut: a work-item adds up the parts of one vector. */
__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void sum_parts(int m, int n, SCALAR alpha, SCALAR beta, __global REAL *restrict C, int ldc,
               __global const REAL *restrict P, int whole, int parts)
{
    const int vector = get_global_id(0), tile = vector / (BM * VN), within = vector % (BM * VN);
    const int2 begin = corner(whole + tile, m, n);
    const int row = begin.x + within / VN, column = begin.y + within % VN * WIDTH;
    if (row >= m || column >= n)
        return;
    __global const VECTOR *part = (__global const VECTOR *)P + (size_t)tile * parts * (BM * VN) + within;
    VECTOR sums = *part;
    for (int p = 1; p < parts; p++)
        sums += part[(size_t)p * (BM * VN)];
    store(C + (size_t)row * ldc + column, sums, n - column, ldc % WIDTH == 0, alpha, beta);
}
