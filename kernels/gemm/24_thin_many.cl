/* thin_many: `thin` for up to 16 rows or columns of C, where multiply-adds take nearly as long as the memory.
 *
 * ALONG = 0: rows of the large operand L lie across k        ALONG = 1: they run along k
 *
 *                    LONG                                  BLOCK = 4 x SLICES   16
 *     BLOCK    +------------------+                       +----------------+   +----+
 *   +-------+  |                  |                       |                |   |    |
 *   |   S   |  |        L         | BLOCK                 |       L        |   | S  | BLOCK
 *   |  16   |  |                  |                       |                |   |    |
 *   +-------+  +------------------+                       +----------------+   +----+
 *
 *   acc[c][i] += S[i][p] * L[p][c]                        acc[c][i] += L[c][p] * S[p][i]
 *
 * A work-item keeps 16 x 8 sums. It asks for its 4 steps x 8 elements of L a block ahead, into registers; S goes through a
 * ring of three shares of local memory, of STEPS steps each, as it is stored: 12 loads of four elements for 512 multiply-adds.
 * LONG / 8 work-items have the sums of a group between them, the others slices of k of their own; sums meet in local memory,
 * a few rows at a time. Several groups may share k: `thin_sum` adds up what they leave in P.
 *
 * Sums are scaled on their way to local memory: stored as they are, as vectors, the compiler would keep them in the
 * same bank of registers as what they are made of, and a multiply-add would take two cycles (docs/small.md). */
#include "common.clh"

#if !defined(COLUMNS) || !defined(MANY) || !defined(ASYNC)
#error "COLUMNS, MANY and ASYNC must be defined"
#endif

#if MANY
#define FEW 16
#define EACH 8
#define LONG MANY
#define ITEMS 256
#define STEPS 256
#define SHARES 3
#define ABREAST (LONG / EACH)
#define SLICES (ITEMS / ABREAST)
#define BLOCK (4 * SLICES)
#define VECTOR REALV(4)

#include "along.clh"
#if ALONG
#define LANES (SLICES % 8 ? SLICES : 8) /* neighbours along k; the others read the same of S */
#define PITCH_SUMS (LONG + 2)
#else
#define PITCH_SUMS LONG
#endif

/* S in local memory: element i of step p, vector v of a share, and what of it is there. */
#if SMALL_ALONG
#define SHARE (FEW * STEPS)
#define AT(i, p) ((i) * STEPS + (p))
#define WHICH(v) ((v) / (STEPS / 4))
#define WHEN(v) ((v) % (STEPS / 4) * 4)
#define FROM(i, p) (S + (size_t)(i) * lds + (p))
#define LEFT(i, p) ((i) < few ? to - (p) : 0)
#else
#define SHARE (STEPS / 4 * (4 * FEW + 4))
#define AT(i, p) ((p) / 4 * (4 * FEW + 4) + (p) % 4 * FEW + (i))
#define WHICH(v) ((v) % (FEW / 4) * 4)
#define WHEN(v) ((v) / (FEW / 4))
#define FROM(i, p) (S + (size_t)(p) * lds + (i))
#define LEFT(i, p) ((p) < to ? few - (i) : 0)
#endif
#define COPIES (FEW * STEPS / 4 / ITEMS)

#define ROUND 4 /* of the 16, whose sums meet at once */
#define PITCH_SLICE (ROUND * PITCH_SUMS + 4)
#define LOCAL_ELEMENTS (SLICES * PITCH_SLICE > SHARES * SHARE ? SLICES * PITCH_SLICE : SHARES * SHARE)

/* Up to four elements to local memory, zeros for those that are not there; one element. */
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
#else
static inline void copy_one(__local REAL *to, __global const REAL *from, int exists) { *to = exists ? *from : 0; }
static inline void copy(__local REAL *to, __global const REAL *from, int left)
{
    for (int i = 0; i < 4; i++)
        copy_one(to + i, from + i, i < left);
}
#define COMMIT
#define WAIT_FOR_ALL_BUT(groups)
#endif

#define ASK_SMALL(share, p0)                                                                                          \
    if (fits) {                                                                                                       \
        _Pragma("unroll") for (int l = 0; l < COPIES; l++) {                                                          \
            const int v = item + l * ITEMS, i = few0 + WHICH(v), p = (p0) + WHEN(v);                                  \
            copy(local_all + (share) * SHARE + AT(WHICH(v), WHEN(v)), FROM(i, p), LEFT(i, p));                        \
        }                                                                                                             \
    } else {                                                                                                          \
        for (int e = item; e < STEPS * FEW; e += ITEMS)                                                                \
            copy_one(local_all + (share) * SHARE + AT(e % FEW, e / FEW), FROM(few0 + e % FEW, (p0) + e / FEW), \
                     few0 + e % FEW < few && (p0) + e / FEW < to);                                                \
    }

/* Vector v of the eight that are next, whole or none of it. */
#if ALONG
#define NEXT(v) (large + (size_t)((v) * ABREAST) * ldl)
#define EXISTS(v, p0) (long0 + x + (v) * ABREAST < count && (p0) + slice * 4 < to)
#define ONWARD BLOCK
#else
#define NEXT(v) (large + (size_t)((v) / 2) * ldl + (v) % 2 * (ABREAST * 4))
#define EXISTS(v, p0) ((p0) + slice * 4 + (v) / 2 < to && long0 + ((v) % 2 * ABREAST + x) * 4 < count)
#define ONWARD (size_t)BLOCK * ldl
#endif
#define ASK_LARGE(p0)                                                                      \
    if (whole && (p0) + BLOCK <= to) {                                                     \
        _Pragma("unroll") for (int v = 0; v < EACH; v++)                                   \
            next[v] = *(__global const VECTOR *)NEXT(v);                                   \
    } else {                                                                               \
        _Pragma("unroll") for (int v = 0; v < EACH; v++)                                   \
            next[v] = EXISTS(v, p0) ? *(__global const VECTOR *)NEXT(v) : (VECTOR)(0);     \
    }                                                                                      \
    large += ONWARD;

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
    const int item = get_local_id(0), long0 = get_group_id(0) * LONG, fits = lds % 4 == 0, whole = long0 + LONG <= count;
    const int part = get_group_id(1) % parts, few0 = get_group_id(1) / parts * FEW;
    const int depth = ((k + STEPS - 1) / STEPS + parts - 1) / parts * STEPS;
    const int from = part * depth, to = min(from + depth, k);
    const REAL scale = parts > 1 ? 1 : (REAL)alpha; /* `thin_sum` scales what it adds up */
#if ALONG
    const int slice = item % LANES + item / (LANES * ABREAST) * LANES, x = item / LANES % ABREAST;
    __global const REAL *large = L + (size_t)(long0 + x) * ldl + from + slice * 4;
#else
    const int slice = item / ABREAST, x = item % ABREAST;
    __global const REAL *large = L + (size_t)(from + slice * 4) * ldl + long0 + x * 4;
#endif

    VECTOR next[EACH];
    ASK_LARGE(from)
    #pragma unroll
    for (int s = 0; s < SHARES - 1; s++) {
        if (from + s * STEPS < to) {
            ASK_SMALL(s, from + s * STEPS)
        }
        COMMIT
    }
    REAL acc[EACH][FEW];
    #pragma unroll
    for (int c = 0; c < EACH; c++)
        #pragma unroll
        for (int i = 0; i < FEW; i++)
            acc[c][i] = 0;
    int share = 0;
    for (int p0 = from; p0 < to; p0 += STEPS) {
        WAIT_FOR_ALL_BUT(SHARES - 2)
        barrier(CLK_LOCAL_MEM_FENCE); /* the share is there, and nobody reads the one that the next copies replace */
        if (p0 + (SHARES - 1) * STEPS < to) {
            ASK_SMALL(share == 0 ? SHARES - 1 : share - 1, p0 + (SHARES - 1) * STEPS)
        }
        COMMIT
        __local const REAL *small = local_all + share * SHARE;
        for (int b = 0; b < STEPS && p0 + b < to; b += BLOCK) {
            const int p = b + slice * 4;
            REAL l[4][EACH];
#if ALONG
            #pragma unroll
            for (int c = 0; c < EACH; c++) {
                l[0][c] = next[c].x;
                l[1][c] = next[c].y;
                l[2][c] = next[c].z;
                l[3][c] = next[c].w;
            }
#else
            #pragma unroll
            for (int v = 0; v < EACH; v++)
                vstore4(next[v], v % 2, l[v / 2]);
#endif
            if (p0 + b + BLOCK < to) {
                ASK_LARGE(p0 + b + BLOCK)
            }
#if SMALL_ALONG
            #pragma unroll
            for (int i = 0; i < FEW; i++) {
                REAL s[4];
                vstore4(*(__local const VECTOR *)(small + AT(i, p)), 0, s);
                #pragma unroll
                for (int u = 0; u < 4; u++)
                    #pragma unroll
                    for (int c = 0; c < EACH; c++)
                        acc[c][i] += s[u] * l[u][c];
            }
#else
            #pragma unroll
            for (int u = 0; u < 4; u++) {
                REAL s[FEW];
                #pragma unroll
                for (int v = 0; v < FEW / 4; v++)
                    vstore4(*(__local const VECTOR *)(small + AT(v * 4, p + u)), v, s);
                #pragma unroll
                for (int c = 0; c < EACH; c++)
                    #pragma unroll
                    for (int step = 0; step < FEW; step++) { /* up one and down the next: as in nv-async */
                        const int i = c % 2 ? FEW - 1 - step : step;
                        acc[c][i] += s[i] * l[u][c];
                    }
            }
#endif
        }
        share = share == SHARES - 1 ? 0 : share + 1;
    }
    WAIT_FOR_ALL_BUT(0)

    #pragma unroll
    for (int i0 = 0; i0 < FEW; i0 += ROUND) {
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < ROUND; i++)
#if ALONG
            #pragma unroll
            for (int c = 0; c < EACH; c++)
                local_all[slice * PITCH_SLICE + i * PITCH_SUMS + x + c * ABREAST] = scale * acc[c][i0 + i];
#else
            #pragma unroll
            for (int v = 0; v < EACH / 4; v++)
                *(__local VECTOR *)(local_all + slice * PITCH_SLICE + i * PITCH_SUMS + (v * ABREAST + x) * 4) =
                    scale * (VECTOR)(acc[v * 4][i0 + i], acc[v * 4 + 1][i0 + i], acc[v * 4 + 2][i0 + i],
                                           acc[v * 4 + 3][i0 + i]);
#endif
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < ROUND * LONG; e += ITEMS) {
#if COLUMNS /* neighbours write neighbours of C */
            const int i = e % ROUND, c = e / ROUND, row = long0 + c, column = few0 + i0 + i;
#else
            const int i = e / LONG, c = e % LONG, row = few0 + i0 + i, column = long0 + c;
#endif
            REAL sum = 0;
            #pragma unroll
            for (int s = 0; s < SLICES; s++)
                sum += local_all[s * PITCH_SLICE + i * PITCH_SUMS + c];
            if (row >= m || column >= n)
                continue;
            __global REAL *result = C + (size_t)row * ldc + column;
            if (parts > 1)
                P[((size_t)part * m + row) * n + column] = sum;
            else
                *result = beta == 0 ? sum : sum + (REAL)beta * *result;
        }
    }
}
#endif
