/* gemmbench
name       = "nv-thin"
family     = "ours"
idea       = "few rows or columns, via mma.sync"
source     = "gemmbench; the instruction as NVIDIA's PTX ISA describes it"
before     = "intel-block"
types      = ["half", "bfloat16"]
work_group = ["32 * WARPS", 1]
work_items = ["ceil_div(long, 32) * 32 * WARPS", "ceil_div(few, THIN) * PARTS"]
tile       = ["32 if COLUMNS else THIN", "THIN if COLUMNS else 32"]
edge       = 32
arguments  = ["m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "P", "PARTS", "COUNTS"]
either     = ["A", "B"]
batches    = true
choose     = "python"
matrix     = true
sums       = { half = "float" }

[parameters]
COLUMNS = { values = [0, 1], idea = "1: columns of C are few, A is large; 0: rows are, B is" }
THIN    = { values = [8, 16], idea = "rows or columns of C in a tile" }
WARPS   = { values = [4, 8, 16], idea = "warps of a group, which share k" }
AHEAD   = { values = [1, 2, 4], idea = "steps along k that a warp loads before it multiplies" }
KEEP    = { values = [0, 1], idea = "1: caches keep the large operand for the next launch" }
PARTS   = { values = [1, 2, 4, 8], launch = true, idea = "parts of k, one for each group of a tile" }

[terms]
long     = "m if COLUMNS else n"
few      = "n if COLUMNS else m"
along    = "not ta if COLUMNS else tb"   # whether rows of the large operand, as stored, run along k
is_whole = "(lda if COLUMNS else ldb) % 8 == 0 and (not along or k % 8 == 0)"   # vectors fit its rows

[extents]
tiles = "ceil_div(long, 32) * ceil_div(few, THIN)"

[temporaries]
P      = "2 * PARTS * tiles * THIN * 32 if PARTS > 1 else 0"   # float
COUNTS = "2 * tiles"                                           # of 4 bytes

[[launches]]
role       = "map"
kernel     = "nv_thin_counts"
arguments  = ["tiles", "COUNTS"]
work_group = [32, 1]
work_items = ["tiles", 1]
any_group  = true
once       = true

[[launches]]
when       = ["is_whole"]

[[launches]]
kernel     = "nv_thin_ragged"
when       = ["not is_whole"]
*/
/* nv-thin: products with 1 to 16 rows or columns in 16 bits, by mma.sync: the
 * large operand is read once, straight into the registers of tensor cores.
 *
 * ALONG = 0: rows of the large operand L lie across k ALONG = 1: rows of L run
 * along k
 *
 *              32
 *        k   +----+
 *   +------+ |    |
 *   | THIN | | L  | k
 *   +------+ |    |
 *      S     +----+
 *
 *            k                  THIN
 *    +----------------+        +---+
 * 32 |       L        |        | S | k
 *    +----------------+        +---+
 *
 * C[i][c] = sum over p of S[i][p] * L[p][c]
 *
 * A work-group computes THIN x 32 elements of C. L is the 16-row operand of
 * the instruction and S, filled up with zeros to 8 or 16 columns, the other
 * one. The products of 16-bit operands are exact in float, and the sums are
 * float.
 *
 * A lane (g = lane / 4, t = lane % 4) holds L[row g][2 t, 2 t + 1 along k].
 * Which row of L is row g, and which steps along k are steps 2 t and 2 t + 1,
 * is free as long as S agrees. So a lane loads up to 16 bytes at a time: ALONG
 * = 0: four columns of four rows for each step; `prmt` pairs two rows, so that
 * a register runs along k ALONG = 1: steps 8 t ... 8 t + 7 of rows g, g + 8,
 * ...; a register runs along k as it is No operand passes through local
 * memory. AHEAD steps are loaded before the first of them is multiplied. With
 * ALONG = 0 a lane's rows of all of them are neighbours, so that it loads its
 * part of a row of S at once.
 *
 * The WARPS warps of a group share k, AHEAD steps at a time, and add up in
 * local memory. If tiles are too few for all compute units, several groups
 * share k too. Each leaves its sums in P and counts itself; the last one adds
 * up all parts in their order, so results repeat bit for bit. It also sets the
 * count to zero again for the next launch. */
#ifdef BATCHED
#include "batch.clh"
#endif
#if !defined(COLUMNS) || !defined(THIN) || !defined(WARPS) || !defined(AHEAD) || !defined(KEEP)
#error "COLUMNS, THIN, WARPS, AHEAD and KEEP must be defined"
#endif
#include "along.clh"

#if defined(MMA_half)
#define INSTRUCTION "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#define RESULT ushort
#elif defined(MMA_bfloat16)
#define INSTRUCTION "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#define RESULT float
#else
#error "one of MMA_half and MMA_bfloat16 must be defined"
#endif

#if KEEP
#define HINT ".L2::256B"
#else /* a stream that no cache can hold for the next launch */
#define HINT ".L1::no_allocate.L2::256B"
#endif

#define ITEMS (32 * WARPS)
#define LONG 32                  /* columns of C if rows are few, else rows */
#define HALVES ((THIN + 7) / 8)  /* groups of 8 of the few */
#define FEW (8 * HALVES)
#define WIDTH 8                  /* elements of 16 bytes */
#if ALONG
#define STEP 32                  /* along k */
#define LOADS (LONG / 8)
#define L_WORDS 4                /* of 2 elements, in a load */
#define S_WORDS 4                /* pairs along k that a lane holds of S */
#else
#define STEP 16
#define LOADS 4
#define L_WORDS (LONG / 16)
#define S_WORDS 2
#endif
#define TILES (LONG / 16)        /* 16 x 8 sums of a warp, for each of HALVES */
#define BLOCK (STEP * AHEAD)
#define LD_SUMS (LONG + 4)

/* Load L_WORDS pairs of elements. Only `left` elements exist, the rest become zeros. `whole`: all exist, or none. */
static inline void fetch_large(uint *words, __global const ushort *from, int left, const int whole)
{
    #pragma unroll
    for (int i = 0; i < L_WORDS; i++)
        words[i] = 0;
    if (whole) {
        if (left > 0)
#if L_WORDS == 4
            asm("ld.global.nc" HINT ".v4.u32 {%0, %1, %2, %3}, [%4];"
                : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                : "l"(from));
#else
            asm("ld.global.nc" HINT ".v2.u32 {%0, %1}, [%2];" : "=r"(words[0]), "=r"(words[1]) : "l"(from));
#endif
        return;
    }
    #pragma unroll
    for (int i = 0; i < L_WORDS; i++)
        words[i] = (2 * i < left ? from[2 * i] : 0) | (uint)(2 * i + 1 < left ? from[2 * i + 1] : 0) << 16;
}

/* The lower, or the upper, halves of a and b as one register, a first. */
static inline uint lower(uint a, uint b) { return (a & 0xffff) | b << 16; }
static inline uint upper(uint a, uint b) { return a >> 16 | (b & 0xffff0000); }

static inline void multiply_add(float *d, uint a0, uint a1, uint a2, uint a3, uint b0, uint b1)
{
    asm(INSTRUCTION "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
        : "r"(a0), "r"(a1), "r"(a2), "r"(a3), "r"(b0), "r"(b1));
}

/* `count` pairs of S along k, from step p: of row i of the few. */
static inline void fetch_small(uint *words, const int count, __global const ushort *S, int lds, int i, int few, int p,
                               int to, const int whole)
{
#if SMALL_ALONG
    if (whole) {
        __global const ushort *from = S + (size_t)i * lds + p;
        #pragma unroll
        for (int w = 0; w < count; w += 2) {
            const int is_there = i < few && p + 2 * w < to;
            if (count % 4 == 0 && w % 4 == 0) {
                const uint4 all = is_there ? *(__global const uint4 *)(from + 2 * w) : (uint4)(0);
                words[w] = all.x, words[w + 1] = all.y, words[w + 2] = all.z, words[w + 3] = all.w;
            } else if (count % 4) {
                const uint2 all = is_there ? *(__global const uint2 *)(from + 2 * w) : (uint2)(0);
                words[w] = all.x, words[w + 1] = all.y;
            }
        }
        return;
    }
#endif
    #pragma unroll
    for (int w = 0; w < count; w++) {
        uint pair[2];
        #pragma unroll
        for (int e = 0; e < 2; e++) {
            const int q = p + 2 * w + e;
#if SMALL_ALONG
            pair[e] = i < few && q < to ? S[(size_t)i * lds + q] : 0;
#else
            pair[e] = i < few && q < to ? S[(size_t)q * lds + i] : 0;
#endif
        }
        words[w] = pair[0] | pair[1] << 16;
    }
}

static inline float widened(RESULT stored)
{
#if defined(MMA_half)
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(stored));
    return wide;
#else
    return stored;
#endif
}

static inline RESULT narrowed(float wide)
{
#if defined(MMA_half)
    ushort stored;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(stored) : "f"(wide));
    return stored;
#else
    return wide;
#endif
}

/* Element e of a tile: row (or column) e / LONG of the few, and of the many as ALONG orders them. */
#if ALONG
#define WHERE(e) (long0 + (e) % LONG)
#else
#define WHERE(e) (long0 + (e) % 8 * (2 * L_WORDS) + (e) % LONG / 8)
#endif
#define STORE(sum, e) store(sum, few0 + (e) / LONG, WHERE(e), count, alpha, beta, C, ldc);

static inline void store(float sum, int i, int c, int count, float alpha, float beta, __global RESULT *C, int ldc)
{
    if (c >= count)
        return;
    __global RESULT *to = C + (COLUMNS ? (size_t)c * ldc + i : (size_t)i * ldc + c);
    *to = narrowed(beta == 0 ? alpha * sum : alpha * sum + beta * widened(*to));
}

static inline void multiplied(int m, int n, int k, float alpha, __global const ushort *restrict A, int lda,
                              __global const ushort *restrict B, int ldb, float beta, __global RESULT *restrict C,
                              int ldc, __global float *P, __global uint *COUNTS, int parts,
                              __local float *sums, __local int *is_last, const int whole)
{
#if COLUMNS
    __global const ushort *restrict L = A, *restrict S = B;
    const int ldl = lda, lds = ldb, count = m, all_few = n;
#else
    __global const ushort *restrict L = B, *restrict S = A;
    const int ldl = ldb, lds = lda, count = n, all_few = m;
#endif
    const int item = get_local_id(0), lane = item % 32, warp = item / 32, g = lane / 4, t = lane % 4;
    const int part = get_group_id(1) % parts, few0 = get_group_id(1) / parts * FEW, long0 = get_group_id(0) * LONG;
    const size_t tile = get_group_id(1) / parts * get_num_groups(0) + get_group_id(0);
    const int depth = ((k + BLOCK - 1) / BLOCK + parts - 1) / parts * BLOCK;
    const int from = part * depth, to = min(from + depth, k);
    const int few = min(all_few - few0, FEW); /* of this group */
    const int s_whole = whole && lds % WIDTH == 0 && k % WIDTH == 0;

    float d[HALVES][TILES][4];
    #pragma unroll
    for (int h = 0; h < HALVES; h++)
        #pragma unroll
        for (int i = 0; i < TILES; i++)
            #pragma unroll
            for (int e = 0; e < 4; e++)
                d[h][i][e] = 0;

    for (int p0 = from + warp * BLOCK; p0 < to; p0 += WARPS * BLOCK) {
        uint a[AHEAD][LOADS][L_WORDS];
        uint b[HALVES][AHEAD][S_WORDS];
        #pragma unroll
        for (int u = 0; u < AHEAD; u++)
            #pragma unroll
            for (int l = 0; l < LOADS; l++) {
#if ALONG
                const int p = p0 + u * STEP + WIDTH * t, row = long0 + g + 8 * l;
                fetch_large(a[u][l], L + (size_t)row * ldl + p, row < count ? to - p : 0, whole);
#else
                const int p = p0 + 4 * (AHEAD * t + u) + l, column = long0 + 2 * L_WORDS * g;
                fetch_large(a[u][l], L + (size_t)p * ldl + column, p < to ? count - column : 0, whole);
#endif
            }
        #pragma unroll
        for (int h = 0; h < HALVES; h++) {
            const int i = few0 + 8 * h + g;
#if ALONG
            #pragma unroll
            for (int u = 0; u < AHEAD; u++)
                fetch_small(b[h][u], S_WORDS, S, lds, i, all_few, p0 + u * STEP + WIDTH * t, to, s_whole);
#else
            fetch_small(b[h][0], AHEAD * S_WORDS, S, lds, i, all_few, p0 + 4 * AHEAD * t, to, s_whole);
#endif
        }
        #pragma unroll
        for (int u = 0; u < AHEAD; u++)
            #pragma unroll
            for (int i = 0; i < TILES; i++) {
#if ALONG
                const uint *low = a[u][2 * i], *high = a[u][2 * i + 1];
                #pragma unroll
                for (int h = 0; h < HALVES; h++) {
                    multiply_add(d[h][i], low[0], high[0], low[1], high[1], b[h][u][0], b[h][u][1]);
                    multiply_add(d[h][i], low[2], high[2], low[3], high[3], b[h][u][2], b[h][u][3]);
                }
#else
                uint pairs[4];
                #pragma unroll
                for (int j = 0; j < 4; j += 2) {
                    pairs[j] = lower(a[u][j][i], a[u][j + 1][i]);
                    pairs[j + 1] = upper(a[u][j][i], a[u][j + 1][i]);
                }
                #pragma unroll
                for (int h = 0; h < HALVES; h++)
                    multiply_add(d[h][i], pairs[0], pairs[1], pairs[2], pairs[3], b[h][u][0], b[h][u][1]);
#endif
            }
    }

    /* d[h][i][e] is column 8 h + 2 t + e % 2 of S; the sums of a warp lie in local memory in an order without conflicts */
    __global float *partial = P + (tile * parts + part) * (FEW * LONG);
    #pragma unroll
    for (int h = 0; h < HALVES; h++)
        #pragma unroll
        for (int i = 0; i < TILES; i++)
            #pragma unroll
            for (int e = 0; e < 4; e++)
                sums[(warp * FEW + 8 * h + 2 * t + e % 2) * LD_SUMS + 16 * i + e / 2 * 8 + g] = d[h][i][e];
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int e = item; e < few * LONG; e += ITEMS) {
        float sum = 0;
        #pragma unroll
        for (int w = 0; w < WARPS; w++)
            sum += sums[(w * FEW + e / LONG) * LD_SUMS + e % LONG];
        if (parts > 1)
            partial[e] = sum;
        else
            STORE(sum, e)
    }
    if (parts == 1)
        return;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE | CLK_GLOBAL_MEM_FENCE);
    if (item == 0) {
        *is_last = atomic_inc(COUNTS + tile) == parts - 1;
        if (*is_last)
            COUNTS[tile] = 0;
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    if (!*is_last)
        return;
    asm volatile("fence.acq_rel.gpu;" ::: "memory");
    __global const float4 *all = (__global const float4 *)(P + tile * parts * (FEW * LONG));
    for (int e = item; e < few * LONG / 4; e += ITEMS) {
        float4 sum = 0;
        for (int q = 0; q < parts; q += 8) { /* loaded at once: a trip to memory takes longer than to add up */
            float4 each[8];
            #pragma unroll
            for (int r = 0; r < 8; r++)
                each[r] = q + r < parts ? all[(q + r) * (FEW * LONG / 4) + e] : 0;
            #pragma unroll
            for (int r = 0; r < 8; r++)
                sum += each[r];
        }
        STORE(sum.x, 4 * e)
        STORE(sum.y, 4 * e + 1)
        STORE(sum.z, 4 * e + 2)
        STORE(sum.w, 4 * e + 3)
    }
}

/* The counts of all tiles, which nv_thin leaves at zero. It reads no operand and runs once, when arguments are set. */
__kernel void nv_thin_counts(int tiles, __global uint *COUNTS)
{
#ifdef BATCHED
    BATCH_OFFSET(COUNTS, 1, tiles)
#endif
    if (get_global_id(0) < tiles)
        COUNTS[get_global_id(0)] = 0;
}

/* Rows of the large operand begin where vectors of 16 bytes do, and end there if they run along k. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void nv_thin(int m, int n, int k, float alpha,
             __global const ushort *restrict A, int lda,
             __global const ushort *restrict B, int ldb, float beta,
             __global RESULT *restrict C, int ldc,
             __global float *P, int parts, __global uint *COUNTS)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(P, get_num_groups(0) * get_num_groups(1), FEW * LONG)
    BATCH_OFFSET(COUNTS, get_num_groups(1) / parts, get_num_groups(0))
#endif
    __local float sums[WARPS * FEW * LD_SUMS];
    __local int is_last;
    multiplied(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, P, COUNTS, parts, sums, &is_last, 1);
}

/* Rows of the large operand begin or end anywhere. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void nv_thin_ragged(int m, int n, int k, float alpha,
             __global const ushort *restrict A, int lda,
             __global const ushort *restrict B, int ldb, float beta,
             __global RESULT *restrict C, int ldc,
             __global float *P, int parts, __global uint *COUNTS)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(P, get_num_groups(0) * get_num_groups(1), FEW * LONG)
    BATCH_OFFSET(COUNTS, get_num_groups(1) / parts, get_num_groups(0))
#endif
    __local float sums[WARPS * FEW * LD_SUMS];
    __local int is_last;
    multiplied(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, P, COUNTS, parts, sums, &is_last, 0);
}
