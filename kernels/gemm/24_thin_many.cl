/* thin_many: `thin` for up to 16 rows or columns of C, where multiply-adds
 * take nearly as long as the memory.
 *
 * ALONG = 0: rows of the large operand L lie across k ALONG = 1: they run
 * along k
 *
 *                    MANY
 *     BLOCK    +--------------+
 *   +-------+  | set 0        |
 *   |   S   |  | set 1   L    | BLOCK
 *   |  16   |  | ...          |
 *   +-------+  +--------------+
 *
 *              BLOCK         16
 *      +----------------+   +----+
 *      |       |        |   |    |
 * MANY | set 0 | set 1  |   | S  | BLOCK
 *      |       |   L    |   |    |
 *      +----------------+   +----+
 *
 *   acc[c][i] += S[i][p] * L[p][c]                        acc[c][i] += L[c][p]
 *     * S[p][i]
 *
 * The steps along k of a block are shared out among sets of TOGETHER warps (32
 * neighbours each), those of a set among LANES of every warp. A set has all
 * MANY rows or columns of L, a work-item 16 x EACH of their sums. Sets do not
 * wait for each other: each copies its steps of S into a ring of its own,
 * where the 16 elements of a step are neighbours however S is stored.
 *
 * L goes to registers, TURNS times VECTORS vectors: those that were multiplied
 * are asked for again, a block ahead, so that nearly all are on their way at
 * all times. The rate hangs on that, and NVIDIA's compiler, left alone, asks
 * for all of them at the end of a block: every FENCE turns there is a jump,
 * never taken, beyond which it moves none.
 *
 * Steps that make no whole block are read by elements. The last group begins
 * where it still has MANY rows or columns, and stores those that are its own;
 * L must have as many. Several groups may share k: `thin_sum` adds up what
 * they leave in P.
 *
 * Sums are scaled on their way to local memory: stored as they are, as
 * vectors, the compiler would keep them in the same bank of registers as what
 * they are made of, and a multiply-add would take two cycles (docs/small.md). */
#include "common.clh"

#if !defined(COLUMNS) || !defined(MANY) || !defined(ASYNC)
#error "COLUMNS, MANY and ASYNC must be defined"
#endif

#if MANY
#include "along.clh"
#define FEW 16
#define EACH 4
#define VECTOR REALV(4)
#if ALONG
#define ITEMS 256
#define LANES 8
#define TOGETHER 4
#define AT_ONCE 4 /* steps of a vector */
#define TURNS 4
#define VECTORS EACH
#define FENCE 1
#define NEXT(u, v) (at + (uint)((uint)(v) * stride) + (u) * LANES * AT_ONCE)
#define STRIDE (uint)(ACROSS * ldl)
#define ONWARD BLOCK
#define LAST (count - MANY)
#define VECTOR_OF(c) l[u][c]
#define ELEMENT_OF(c, w) (w)
#else
#define ITEMS 512
#define LANES 2
#define TOGETHER 1
#define AT_ONCE 1
#define TURNS 8
#define VECTORS (EACH / 4)
#define FENCE 2
#define NEXT(u, v) (at + (uint)((uint)(u) * stride) + (v) * ACROSS * 4)
#define STRIDE (uint)(LANES * ldl)
#define ONWARD (size_t)BLOCK * ldl
#define LAST ((count + 3) / 4 * 4 - MANY)
#define VECTOR_OF(c) l[u][(c) / 4]
#define ELEMENT_OF(c, w) ((c) % 4)
#endif
#define ACROSS (32 / LANES)
#define SETS (ITEMS / 32 / TOGETHER)
#define STEPS (TURNS * LANES * AT_ONCE) /* of a set */
#define BLOCK (STEPS * SETS)
#define SLICES (SETS * LANES)
#if MANY != TOGETHER * ACROSS * EACH
#error "MANY must be what TOGETHER warps have"
#endif

#define AT(p) ((p) * FEW + (p) / AT_ONCE * 4) /* where the elements of a step are in a share of a ring */
#define SHARE AT(STEPS)
#if ASYNC
#define SHARES 3
#define ROUND FEW /* of the 16, whose sums meet at once */
#else
#define SHARES 2
#define ROUND 4
#endif
#define PITCH_SLICE (ROUND * MANY + 4)
#define LOCAL_ELEMENTS (SLICES * PITCH_SLICE > SETS * SHARES * SHARE ? SLICES * PITCH_SLICE : SETS * SHARES * SHARE)

/* Up to four elements to local memory, zeros for those that are not there; one element; the set's warps meet. */
#if ASYNC
static inline void copy(__local REAL *to, __global const REAL *from, int left)
{
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"((uint)(ulong)to), "l"(from), "r"(clamp(left, 0, 4) * 4)
                 : "memory");
}
static inline void copy_one(__local REAL *to, __global const REAL *from, int exists)
{
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4, %2;" ::"r"((uint)(ulong)to), "l"(from), "r"(exists ? 4 : 0)
                 : "memory");
}
#define COMMIT asm volatile("cp.async.commit_group;" ::: "memory");
#define WAIT_FOR_ALL_BUT(groups) asm volatile("cp.async.wait_group %0;" ::"n"(groups) : "memory");
#if TOGETHER == 1
#define MEET asm volatile("bar.warp.sync 0xffffffff;" ::: "memory");
#else
#define MEET asm volatile("bar.sync %0, %1;" ::"r"(set + 1), "n"(COPIERS) : "memory");
#endif
#if ALONG /* by 128 bytes of a row: the cache asks for their neighbours, which are next */
#define LOAD(to, from)                                                                                         \
    asm volatile("ld.global.nc.L1::no_allocate.L2::256B.v4.f32 {%0, %1, %2, %3}, [%4];"                        \
                 : "=f"((to).x), "=f"((to).y), "=f"((to).z), "=f"((to).w)                                      \
                 : "l"(from));
#endif
#else
static inline void copy_one(__local REAL *to, __global const REAL *from, int exists) { *to = exists ? *from : 0; }
static inline void copy(__local REAL *to, __global const REAL *from, int left)
{
    for (int i = 0; i < 4; i++)
        copy_one(to + i, from + i, i < left);
}
#define COMMIT
#define WAIT_FOR_ALL_BUT(groups)
#define MEET barrier(CLK_LOCAL_MEM_FENCE);
#endif

#ifndef LOAD
#define LOAD(to, from) to = *(__global const VECTOR *)(from);
#endif

/* The steps of S from p0 on, by the set's work-items: one element of 4 x 8 or a vector at a time. */
#define COPIERS (TOGETHER * 32)
#if SMALL_ALONG
#define FROM(i, p) (S + (size_t)(i) * lds + (p))
#define ASK_SMALL(share, p0)                                                                                   \
    _Pragma("unroll") for (int e = 0; e < STEPS * FEW; e += COPIERS)                                           \
        copy_one(ring + (share) * SHARE + small_to + AT(e / 128 * 8) + e / 32 % 4 * 4,                         \
                 S + (small_from + (uint)(p0) + (uint)(e / 32 % 4 * 4 * lds) + e / 128 * 8), left > e / 32 % 4 * 4);
#else
#define FROM(i, p) (S + (size_t)(p) * lds + (i))
#define ASK_SMALL(share, p0)                                                                                   \
    if (lds % 4 == 0) {                                                                                        \
        _Pragma("unroll") for (int e = 0; e < STEPS * FEW / 4; e += COPIERS)                                   \
            copy(ring + (share) * SHARE + AT(copier / 4) + AT(e / 4) + copier % 4 * 4,                         \
                 FROM(few0 + copier % 4 * 4, (p0) + copier / 4 + e / 4), left);                                \
    } else {                                                                                                   \
        for (int e = copier; e < STEPS * FEW; e += COPIERS)                                                    \
            copy_one(ring + (share) * SHARE + AT(e / FEW) + e % FEW, FROM(few0 + e % FEW, (p0) + e / FEW),     \
                     few0 + e % FEW < few);                                                                    \
    }
#endif
#define ASK_LARGE(u)                                                                                           \
    _Pragma("unroll") for (int v = 0; v < VECTORS; v++)                                                        \
        LOAD(l[u][v], NEXT(u, v))

/* Rows of L begin where vectors do; along k they end there, too. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void thin_many(int m, int n, int k, SCALAR alpha,
               __global const REAL *restrict A, int lda,
               __global const REAL *restrict B, int ldb, SCALAR beta,
               __global REAL *restrict C, int ldc, __global REAL *restrict P, int parts)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(P, parts, (size_t)m * n)
#endif
    __local REAL local_all[LOCAL_ELEMENTS] __attribute__((aligned(16)));
#if COLUMNS
    __global const REAL *restrict L = A, *restrict S = B;
    const int ldl = lda, lds = ldb, count = m, few = n;
#else
    __global const REAL *restrict L = B, *restrict S = A;
    const int ldl = ldb, lds = lda, count = n, few = m;
#endif
    const int item = get_local_id(0), set = item / COPIERS, copier = item % COPIERS, warp = copier / 32, lane = item % 32;
    const int own0 = get_group_id(0) * MANY, long0 = min(own0, LAST);
    const int part = get_group_id(1) % parts, few0 = get_group_id(1) / parts * FEW;
    const int depth = ((k + BLOCK - 1) / BLOCK + parts - 1) / parts * BLOCK;
    const int from = part * depth, to = min(from + depth, k), blocks = max(to - from, 0) / BLOCK;
    const REAL scale = parts > 1 ? 1 : (REAL)alpha; /* `thin_sum` scales what it adds up */
    const int first = from + set * STEPS;
#if ALONG
    const int slice = set * LANES + lane % LANES, x = warp * (ACROSS * EACH) + lane / LANES;
    __global const REAL *at = L + (size_t)(long0 + x) * ldl + first + lane % LANES * AT_ONCE;
#else
    const int slice = set * LANES + lane / ACROSS, x = warp * (ACROSS * EACH) + lane % ACROSS * 4;
    __global const REAL *at = L + (size_t)(first + lane / ACROSS) * ldl + long0 + x;
#endif
#if SMALL_ALONG
    const int few1 = lane % 4 + warp % 4 * 4, step1 = lane / 4 + warp / 4 * 8, small_to = AT(step1) + few1;
    const uint small_from = (uint)(few0 + few1) * lds + step1;
#else
    const int few1 = copier % 4 * 4;
#endif
    const int left = few - few0 - few1;

    REAL acc[EACH][FEW];
    #pragma unroll
    for (int c = 0; c < EACH; c++)
        #pragma unroll
        for (int i = 0; i < FEW; i++)
            acc[c][i] = 0;
    if (blocks) {
        __local REAL *ring = local_all + set * (SHARES * SHARE);
        VECTOR l[TURNS][VECTORS];
        uint stride = STRIDE;
        #pragma unroll
        for (int u = 0; u < TURNS; u++) {
            ASK_LARGE(u)
        }
        #pragma unroll
        for (int s = 0; s < SHARES - 1; s++) {
            if (s < blocks) {
                ASK_SMALL(s, first + s * BLOCK)
            }
            COMMIT
        }
        int share = 0, turns = (to - from) / (BLOCK / TURNS);
        #pragma unroll 1
        for (int b = 1; b <= blocks; b++) {
            WAIT_FOR_ALL_BUT(SHARES - 2)
            MEET /* the share is there, and nobody reads the one that the next copies replace */
            if (b + SHARES - 2 < blocks) {
                ASK_SMALL(share == 0 ? SHARES - 1 : share - 1, first + (b + SHARES - 2) * BLOCK)
            }
            COMMIT
            if (b < blocks)
                at += ONWARD;
            else
                stride = 0; /* nothing is left: what is asked for is there already */
            __local const REAL *small = ring + share * SHARE + AT(slice % LANES * AT_ONCE);
            #pragma unroll
            for (int u = 0; u < TURNS; u++) {
                #pragma unroll
                for (int w = 0; w < AT_ONCE; w++) {
                    REAL s[FEW];
                    #pragma unroll
                    for (int v = 0; v < FEW / 4; v++)
                        vstore4(*(__local const VECTOR *)(small + AT(u * LANES * AT_ONCE) + w * FEW + v * 4), v, s);
                    #pragma unroll
                    for (int c = 0; c < EACH; c++) {
                        REAL four[4];
                        vstore4(VECTOR_OF(c), 0, four);
                        #pragma unroll
                        for (int step = 0; step < FEW; step++) { /* up one and down the next: as in nv-async */
                            const int i = c % 2 ? FEW - 1 - step : step;
                            acc[c][i] += s[i] * four[ELEMENT_OF(c, w)];
                        }
                    }
                }
                ASK_LARGE(u)
                if (u % FENCE == FENCE - 1 && u < TURNS - 1 && turns <= u) /* never */
                    goto multiplied;
            }
            share = share == SHARES - 1 ? 0 : share + 1;
            turns -= TURNS;
        }
    }
multiplied:;
    #pragma unroll 1
    for (int p = from + blocks * BLOCK + slice; p < to; p += SLICES)
        #pragma unroll
        for (int c = 0; c < EACH; c++) {
#if ALONG
            const REAL one = L[(size_t)(long0 + x + c * ACROSS) * ldl + p];
#else
            const REAL one = L[(size_t)p * ldl + long0 + x + c / 4 * (ACROSS * 4) + c % 4];
#endif
            #pragma unroll
            for (int i = 0; i < FEW; i++)
                acc[c][i] += *FROM(min(few0 + i, few - 1), p) * one;
        }
    WAIT_FOR_ALL_BUT(0)

    #pragma unroll
    for (int i0 = 0; i0 < FEW; i0 += ROUND) {
        barrier(CLK_LOCAL_MEM_FENCE);
        __local REAL *sums = local_all + slice * PITCH_SLICE;
#if ALONG
        #pragma unroll
        for (int c = 0; c < EACH; c++)
            #pragma unroll
            for (int i = 0; i < ROUND; i += 4)
                *(__local VECTOR *)(sums + (x + c * ACROSS) * ROUND + i) =
                    scale * (VECTOR)(acc[c][i0 + i], acc[c][i0 + i + 1], acc[c][i0 + i + 2], acc[c][i0 + i + 3]);
#else
        #pragma unroll
        for (int i = 0; i < ROUND; i++)
            #pragma unroll
            for (int c = 0; c < EACH; c += 4)
                *(__local VECTOR *)(sums + i * MANY + x + c * ACROSS) =
                    scale * (VECTOR)(acc[c][i0 + i], acc[c + 1][i0 + i], acc[c + 2][i0 + i], acc[c + 3][i0 + i]);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < ROUND * MANY; e += ITEMS) {
#if ALONG
            const int i = few0 + i0 + e % ROUND, c = long0 + e / ROUND;
#else
            const int i = few0 + i0 + e / MANY, c = long0 + e % MANY;
#endif
            REAL sum = 0;
            #pragma unroll
            for (int s = 0; s < SLICES; s++)
                sum += local_all[s * PITCH_SLICE + e];
            if (i >= few || c < own0 || c >= count)
                continue;
            const int row = COLUMNS ? c : i, column = COLUMNS ? i : c;
            __global REAL *result = C + (size_t)row * ldc + column;
            if (parts > 1)
                P[((size_t)part * m + row) * n + column] = sum;
            else
                *result = beta == 0 ? sum : sum + (REAL)beta * *result;
        }
    }
}
#endif
