/* thin: for products with few rows or columns, down to a vector: read the large operand once, as fast as memory gives.
 *
 * COLUMNS = 0, few rows:                     COLUMNS = 1, few columns:
 *                 LX * WIDTH                              k                THIN
 *        k      +----+-----+----+                +-------------------+     +---+
 *   +---------+ | y=0|     |    | k              | LY rows, DEEP     |     |   |
 *   |  THIN   | | y=1|  B  |    |                | times; LX lanes   |     | B | k
 *   +---------+ | ...|     |    |                | along each        |     |   |
 *                 C: THIN x LX * WIDTH           +-------------------+     +---+
 *
 *   acc[i] += A[i * lda + p] * B[p * ldb + x ...]        acc[r][j] += A[row of r * lda + p ...] . Bt[j][p ...]
 *
 * Such a product has a few flops for each element of the large operand, so that the memory's rate is all there is. A
 * work-item asks for DEEP vectors of WIDTH elements at once, each of them 16 bytes and one load, and keeps the sums of
 * all THIN rows or columns of C in registers: the large operand is read once whatever the other has, up to THIN.
 *
 * The work-items of a group share k: LY slices of it where B goes past, LX where A does. Their sums meet in local memory.
 * Where tiles of C are too few for all units, several groups share k as well, each a part of it, and `thin_sum` adds up
 * what they leave in P; with one part there is one launch.
 *
 * The small operand comes through the cache where rows are few, as a lane's neighbours read the same of it; where columns
 * are few KC steps of it are transposed into local memory, so that WIDTH steps of a column are one load. With AHEAD both
 * come through local memory, the THIN values of a step side by side where rows are few, and while one share of them and one
 * set of vectors are multiplied the next are on their way.
 *
 * Rows that do not begin and end where vectors do are read by elements (`thin_ragged`). With STORED_half operands are
 * half in memory and float everywhere else. */
#include "common.clh"

#if !defined(COLUMNS) || !defined(THIN) || !defined(WIDTH) || !defined(LX) || !defined(LY) || !defined(DEEP)
#error "COLUMNS, THIN, WIDTH, LX, LY and DEEP must be defined"
#endif
#if !defined(KC) || !defined(AHEAD)
#error "KC and AHEAD must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define ITEMS (LX * LY)
#define MOST 4096 /* elements of local memory for sums, where a round of them takes no more */

#include "stored.clh"

/* One element of C, or of a part's share of it. */
static inline void store(REAL sum, int row, int column, int m, int n, int part, int parts, SCALAR alpha, SCALAR beta,
                         __global STORED *C, int ldc, __global REAL *P)
{
    if (row >= m || column >= n)
        return;
    if (parts > 1) {
        P[((size_t)part * m + row) * n + column] = sum;
        return;
    }
    __global STORED *c = C + (size_t)row * ldc + column;
    const REAL scaled = (REAL)alpha * sum;
    put(beta == 0 ? scaled : scaled + (REAL)beta * get(c), c);
}

#if AHEAD
/* Element e of the share of the small operand that goes to local memory: both steps along k and rows or columns. */
#define SHARE (CHUNK * THIN)
#define LOADS ((SHARE + ITEMS - 1) / ITEMS)
#define FETCH(p0) \
    _Pragma("unroll") for (int l = 0; l < LOADS; l++) { \
        const int e = item + l * ITEMS; \
        if (SHARE % ITEMS == 0 || e < SHARE) \
            share[l] = SHARED(e, p0); \
    }
#define PUT(at) \
    _Pragma("unroll") for (int l = 0; l < LOADS; l++) { \
        const int e = item + l * ITEMS; \
        if (SHARE % ITEMS == 0 || e < SHARE) \
            local_all[(at) * TILE + WHERE(e)] = share[l]; \
    }
#endif

#if !COLUMNS

/* Rows of C whose sums meet at once. */
#if ITEMS * WIDTH * THIN <= MOST
#define ROUND THIN
#elif ITEMS * WIDTH * 8 <= MOST
#define ROUND 8
#elif ITEMS * WIDTH * 4 <= MOST
#define ROUND 4
#elif ITEMS * WIDTH * 2 <= MOST
#define ROUND 2
#else
#define ROUND 1
#endif
#define SUMS (ROUND * ITEMS * WIDTH)

/* The sums of the LY slices of k meet, so many rows at a time. */
static inline void added_up(const VECTOR *acc, int row0, int m, int n, int part, int parts, SCALAR alpha, SCALAR beta,
                            __global STORED *C, int ldc, __global REAL *P, __local REAL *local_all)
{
    const int item = get_local_id(0), x = item % LX, y = item / LX;
    #pragma unroll
    for (int i0 = 0; i0 < THIN; i0 += ROUND) {
        if (i0 > 0)
            barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < ROUND; i++)
            *(__local VECTOR *)(local_all + ((i * LY + y) * LX + x) * WIDTH) = acc[i0 + i];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < ROUND * LX * WIDTH; e += ITEMS) {
            const int i = e / (LX * WIDTH), c = e % (LX * WIDTH);
            REAL sum = 0;
            for (int s = 0; s < LY; s++)
                sum += local_all[(i * LY + s) * (LX * WIDTH) + c];
            store(sum, row0 + i0 + i, get_group_id(0) * (LX * WIDTH) + c, m, n, part, parts, alpha, beta, C, ldc, P);
        }
    }
}

#if AHEAD

#define STEP (LY * DEEP)
#define CHUNK ((KC + STEP - 1) / STEP * STEP) /* steps along k of A in local memory */
#ifdef REAL_double
#define QUAD 2 /* elements of 16 bytes */
#else
#define QUAD 4
#endif
#if THIN % QUAD == 0
#define LD_LOCAL (THIN + QUAD) /* so that steps begin in different banks */
#else
#define LD_LOCAL THIN
#endif
#define TILE (CHUNK * LD_LOCAL)
#define SHARED(e, p0) \
    ((p0) + (e) % CHUNK < to && row0 + (e) / CHUNK < m \
         ? get(A + (size_t)(row0 + (e) / CHUNK) * lda + (p0) + (e) % CHUNK) : 0)
#define WHERE(e) ((e) % CHUNK * LD_LOCAL + (e) / CHUNK)

#define LOCAL_ELEMENTS (SUMS > 2 * TILE ? SUMS : 2 * TILE)

#define ASK(p) \
    _Pragma("unroll") for (int u = 0; u < DEEP; u++) \
        next[u] = fetched(B + (size_t)((p) + u) * ldb + column, (p) + u < to ? n - column : 0, whole);

/* Groups: along x so many columns of C each, along y so many rows, each in so many parts of k. */
static inline void multiplied(int m, int n, int k, SCALAR alpha, __global const STORED *restrict A, int lda,
                              __global const STORED *restrict B, int ldb, SCALAR beta, __global STORED *restrict C,
                              int ldc, __global REAL *restrict P, int parts, __local REAL *local_all, const int whole)
{
    const int item = get_local_id(0), x = item % LX, y = item / LX;
    const int column = (get_group_id(0) * LX + x) * WIDTH;
    const int part = get_group_id(1) % parts, row0 = get_group_id(1) / parts * THIN;
    const int depth = ((k + DEEP - 1) / DEEP + parts - 1) / parts * DEEP;
    const int from = part * depth, to = min(from + depth, k);

    VECTOR acc[THIN], next[DEEP];
    REAL share[LOADS];
    #pragma unroll
    for (int i = 0; i < THIN; i++)
        acc[i] = 0;
    int p = from + y * DEEP;
    ASK(p)
    FETCH(from)
    PUT(0)
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p0 = from, now = 0; p0 < to; p0 += CHUNK, now ^= 1) {
        const int more = p0 + CHUNK < to; /* the same for every work-item of the group */
        if (more) {
            FETCH(p0 + CHUNK)
        }
        __local const REAL *a_from = local_all + now * TILE;
        for (int s = y * DEEP; s < CHUNK && p0 + s < to; s += STEP) {
            VECTOR b[DEEP];
            #pragma unroll
            for (int u = 0; u < DEEP; u++)
                b[u] = next[u];
            p += STEP;
            ASK(p)
#if THIN % QUAD == 0
            #pragma unroll
            for (int u = 0; u < DEEP; u++)
                #pragma unroll
                for (int i = 0; i < THIN; i += QUAD) {
                    REAL a[QUAD];
                    CAT(vstore, QUAD)(*(__local const REALV(QUAD) *)(a_from + (s + u) * LD_LOCAL + i), 0, a);
                    #pragma unroll
                    for (int l = 0; l < QUAD; l++)
                        acc[i + l] += a[l] * b[u];
                }
#elif DEEP * THIN % QUAD == 0
            #pragma unroll
            for (int e = 0; e < DEEP * THIN; e += QUAD) {
                REAL a[QUAD];
                CAT(vstore, QUAD)(*(__local const REALV(QUAD) *)(a_from + s * THIN + e), 0, a);
                #pragma unroll
                for (int l = 0; l < QUAD; l++)
                    acc[(e + l) % THIN] += a[l] * b[(e + l) / THIN];
            }
#else
            #pragma unroll
            for (int e = 0; e < DEEP * THIN; e++)
                acc[e % THIN] += a_from[s * THIN + e] * b[e / THIN];
#endif
        }
        if (more) {
            PUT(now ^ 1)
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* also before the sums replace A */
    }

    added_up(acc, row0, m, n, part, parts, alpha, beta, C, ldc, P, local_all);
}

#else

#define LOCAL_ELEMENTS SUMS

/* Groups: along x so many columns of C each, along y so many rows, each in so many parts of k. */
static inline void multiplied(int m, int n, int k, SCALAR alpha, __global const STORED *restrict A, int lda,
                              __global const STORED *restrict B, int ldb, SCALAR beta, __global STORED *restrict C,
                              int ldc, __global REAL *restrict P, int parts, __local REAL *local_all, const int whole)
{
    const int item = get_local_id(0), x = item % LX, y = item / LX;
    const int column = (get_group_id(0) * LX + x) * WIDTH;
    const int part = get_group_id(1) % parts, row0 = get_group_id(1) / parts * THIN;
    const int depth = ((k + DEEP - 1) / DEEP + parts - 1) / parts * DEEP;
    const int to = min((part + 1) * depth, k);

    VECTOR acc[THIN];
    #pragma unroll
    for (int i = 0; i < THIN; i++)
        acc[i] = 0;
    for (int p = part * depth + y * DEEP; p < to; p += LY * DEEP) {
        VECTOR b[DEEP];
        #pragma unroll
        for (int u = 0; u < DEEP; u++)
            b[u] = fetched(B + (size_t)(p + u) * ldb + column, p + u < to ? n - column : 0, whole);
        #pragma unroll
        for (int i = 0; i < THIN; i++) {
            __global const STORED *a_from = A + (size_t)min(row0 + i, m - 1) * lda + p;
            REAL a[DEEP];
#if DEEP % WIDTH == 0
            #pragma unroll
            for (int u = 0; u < DEEP; u += WIDTH)
                CAT(vstore, WIDTH)(fetched(a_from + u, to - p - u, whole), 0, a + u);
#else
            #pragma unroll
            for (int u = 0; u < DEEP; u++)
                a[u] = p + u < to ? get(a_from + u) : 0;
#endif
            #pragma unroll
            for (int u = 0; u < DEEP; u++)
                acc[i] += a[u] * b[u];
        }
    }

    added_up(acc, row0, m, n, part, parts, alpha, beta, C, ldc, P, local_all);
}

#endif

#else

#define LD_SUMS (LX + 1)
#define SUMS (LY * THIN * LD_SUMS)

/* The sums of the LX lanes along k meet, a row of each work-item at a time. */
static inline void added_up(REAL acc[][THIN], int row0, int column0, int m, int n, int part, int parts, SCALAR alpha,
                            SCALAR beta, __global STORED *C, int ldc, __global REAL *P, __local REAL *local_all)
{
    const int item = get_local_id(0), x = item % LX, y = item / LX;
    #pragma unroll
    for (int r = 0; r < DEEP; r++) {
        if (r > 0)
            barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int j = 0; j < THIN; j++)
            local_all[(y * THIN + j) * LD_SUMS + x] = acc[r][j];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < LY * THIN; e += ITEMS) {
            REAL sum = 0;
            for (int s = 0; s < LX; s++)
                sum += local_all[e * LD_SUMS + s];
            store(sum, row0 - y + r * LY + e / THIN, column0 + e % THIN, m, n, part, parts, alpha, beta, C, ldc, P);
        }
    }
}

#if AHEAD

#define STEP (LX * WIDTH)
#define CHUNK ((KC + STEP - 1) / STEP * STEP) /* steps along k of B in local memory */
#define LD_LOCAL (CHUNK + WIDTH)              /* columns begin in different banks */
#define TILE (THIN * LD_LOCAL)
#define SHARED(e, p0) \
    ((p0) + (e) / THIN < to && column0 + (e) % THIN < n \
         ? get(B + (size_t)((p0) + (e) / THIN) * ldb + column0 + (e) % THIN) : 0)
#define WHERE(e) ((e) % THIN * LD_LOCAL + (e) / THIN)
#define LOCAL_ELEMENTS (SUMS > 2 * TILE ? SUMS : 2 * TILE)

#define ASK(p) \
    _Pragma("unroll") for (int r = 0; r < DEEP; r++) \
        next[r] = fetched(A + (size_t)(row0 + r * LY) * lda + (p), row0 + r * LY < m ? to - (p) : 0, whole);

/* Groups: along x so many rows of C each, along y so many columns, each in so many parts of k. */
static inline void multiplied(int m, int n, int k, SCALAR alpha, __global const STORED *restrict A, int lda,
                              __global const STORED *restrict B, int ldb, SCALAR beta, __global STORED *restrict C,
                              int ldc, __global REAL *restrict P, int parts, __local REAL *local_all, const int whole)
{
    const int item = get_local_id(0), x = item % LX, y = item / LX;
    const int row0 = get_group_id(0) * (LY * DEEP) + y;
    const int part = get_group_id(1) % parts, column0 = get_group_id(1) / parts * THIN;
    const int depth = ((k + STEP - 1) / STEP + parts - 1) / parts * STEP;
    const int from = part * depth, to = min(from + depth, k);

    REAL acc[DEEP][THIN], share[LOADS];
    VECTOR next[DEEP];
    #pragma unroll
    for (int r = 0; r < DEEP; r++)
        #pragma unroll
        for (int j = 0; j < THIN; j++)
            acc[r][j] = 0;
    int p = from + x * WIDTH;
    ASK(p)
    FETCH(from)
    PUT(0)
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p0 = from, now = 0; p0 < to; p0 += CHUNK, now ^= 1) {
        const int more = p0 + CHUNK < to; /* the same for every work-item of the group */
        if (more) {
            FETCH(p0 + CHUNK)
        }
        __local const REAL *b_from = local_all + now * TILE;
        for (int q = x * WIDTH; q < CHUNK && p0 + q < to; q += STEP) {
            REAL a[DEEP][WIDTH];
            #pragma unroll
            for (int r = 0; r < DEEP; r++)
                CAT(vstore, WIDTH)(next[r], 0, a[r]);
            p += STEP;
            ASK(p)
            #pragma unroll
            for (int j = 0; j < THIN; j++) {
                REAL b[WIDTH];
                CAT(vstore, WIDTH)(*(__local const VECTOR *)(b_from + j * LD_LOCAL + q), 0, b);
                #pragma unroll
                for (int r = 0; r < DEEP; r++)
                    #pragma unroll
                    for (int w = 0; w < WIDTH; w++)
                        acc[r][j] += a[r][w] * b[w];
            }
        }
        if (more) {
            PUT(now ^ 1)
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* also before the sums replace B */
    }

    added_up(acc, row0, column0, m, n, part, parts, alpha, beta, C, ldc, P, local_all);
}

#else

#define LD_LOCAL (KC + WIDTH) /* columns begin in different banks */
#define TILE (THIN * LD_LOCAL)
#define LOCAL_ELEMENTS (SUMS > TILE ? SUMS : TILE)

/* Groups: along x so many rows of C each, along y so many columns, each in so many parts of k. */
static inline void multiplied(int m, int n, int k, SCALAR alpha, __global const STORED *restrict A, int lda,
                              __global const STORED *restrict B, int ldb, SCALAR beta, __global STORED *restrict C,
                              int ldc, __global REAL *restrict P, int parts, __local REAL *local_all, const int whole)
{
    const int item = get_local_id(0), x = item % LX, y = item / LX;
    const int row0 = get_group_id(0) * (LY * DEEP) + y;
    const int part = get_group_id(1) % parts, column0 = get_group_id(1) / parts * THIN;
    const int depth = ((k + KC - 1) / KC + parts - 1) / parts * KC;
    const int to = min((part + 1) * depth, k);

    REAL acc[DEEP][THIN];
    #pragma unroll
    for (int r = 0; r < DEEP; r++)
        #pragma unroll
        for (int j = 0; j < THIN; j++)
            acc[r][j] = 0;
    for (int p0 = part * depth; p0 < to; p0 += KC) {
        for (int e = item; e < KC * THIN; e += ITEMS) {
            const int p = e / THIN, j = e % THIN;
            local_all[j * LD_LOCAL + p] =
                p0 + p < to && column0 + j < n ? get(B + (size_t)(p0 + p) * ldb + column0 + j) : 0;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll 2
        for (int q = x * WIDTH; q < KC; q += LX * WIDTH) {
            VECTOR a[DEEP];
            #pragma unroll
            for (int r = 0; r < DEEP; r++)
                a[r] = fetched(A + (size_t)(row0 + r * LY) * lda + p0 + q, row0 + r * LY < m ? to - p0 - q : 0, whole);
            #pragma unroll
            for (int j = 0; j < THIN; j++) {
                REAL b[WIDTH];
                CAT(vstore, WIDTH)(*(__local const VECTOR *)(local_all + j * LD_LOCAL + q), 0, b);
                #pragma unroll
                for (int r = 0; r < DEEP; r++) {
                    REAL lanes[WIDTH];
                    CAT(vstore, WIDTH)(a[r], 0, lanes);
                    #pragma unroll
                    for (int w = 0; w < WIDTH; w++)
                        acc[r][j] += lanes[w] * b[w];
                }
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    added_up(acc, row0, column0, m, n, part, parts, alpha, beta, C, ldc, P, local_all);
}

#endif

#endif

/* Rows of B begin where vectors do: what one holds past n is nobody's column. Or rows of A begin and end there. */
__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void thin(int m, int n, int k, SCALAR alpha,
          __global const STORED *restrict A, int lda,
          __global const STORED *restrict B, int ldb, SCALAR beta,
          __global STORED *restrict C, int ldc, __global REAL *restrict P, int parts)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(P, parts, (size_t)m * n)
#endif
    __local REAL local_all[LOCAL_ELEMENTS] __attribute__((aligned(16)));
    multiplied(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, P, parts, local_all, 1);
}

__kernel __attribute__((reqd_work_group_size(ITEMS, 1, 1)))
void thin_ragged(int m, int n, int k, SCALAR alpha,
                 __global const STORED *restrict A, int lda,
                 __global const STORED *restrict B, int ldb, SCALAR beta,
                 __global STORED *restrict C, int ldc, __global REAL *restrict P, int parts)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(P, parts, (size_t)m * n)
#endif
    __local REAL local_all[LOCAL_ELEMENTS] __attribute__((aligned(16)));
    multiplied(m, n, k, alpha, A, lda, B, ldb, beta, C, ldc, P, parts, local_all, 0);
}

/* C of what several groups had parts of: a work-item adds up one element. */
__kernel void thin_sum(int m, int n, SCALAR alpha, SCALAR beta, __global STORED *restrict C, int ldc,
                       __global const REAL *restrict P, int parts)
{
#ifdef BATCHED
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(P, parts, (size_t)m * n)
#endif
    const int column = get_global_id(0), row = get_global_id(1);
    if (row >= m || column >= n)
        return;
    REAL sum = 0;
    for (int part = 0; part < parts; part++)
        sum += P[((size_t)part * m + row) * n + column];
    store(sum, row, column, m, n, 0, 1, alpha, beta, C, ldc, 0);
}
