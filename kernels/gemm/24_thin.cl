/* gemmbench
name        = "thin"
family      = "ours"
idea        = "for few rows or columns of C"
source      = "gemmbench"
before      = "nv-mma"
stored      = ["half"]
work_group  = ["LX * LY", 1]
work_items  = ["ceil_div(long, along_tile) * LX * LY", "ceil_div(few, THIN) * PARTS"]
arguments   = ["m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "P", "PARTS"]
tile        = ["along_tile if COLUMNS else THIN", "THIN if COLUMNS else along_tile"]
either      = ["A", "B"]
batches     = true
choose      = "python"
sums        = { half = "float" }
constraints = [
    ["COLUMNS <= 1", "COLUMNS must be 0 or 1"],
    ["ASYNC <= 1", "ASYNC must be 0 or 1"],
    ["MANY == 0 or (MANY == 64 and itemsize == 4)", "MANY must be 0, or in float 64"],
]

[parameters]
COLUMNS = { values = [0, 1], idea = "1: columns of C are few, A is large; 0: rows are, B is" }
THIN    = { values = [1, 2, 4, 8, 16], idea = "rows or columns of C whose sums a work-item keeps" }
WIDTH   = { values = [2, 4, 8], default = 4, idea = "elements of a vector: 16 bytes" }
WIDE    = { values = [1, 2, 4], idea = "such vectors of a row of the large operand that it reads at once" }
LX      = { values = [8, 16, 32, 64], idea = "work-items of a group along rows of the large operand" }
LY      = { values = [4, 8, 16, 32, 64, 128], idea = "and across them" }
DEEP    = { values = [1, 2, 4, 8], idea = "rows of the large operand that a work-item reads at once" }
KC      = { values = [128, 256, 512, 1024], idea = "steps along k of the small operand in local memory" }
AHEAD   = { values = [0, 1], idea = "1: vectors of the large operand that are needed next are on their way" }
MANY    = { values = [0, 64], idea = "of the large operand, rows or columns that a group has for 16 of the other; 0: as for fewer" }
ASYNC   = { values = [0, 1], idea = "1: it copies the small operand by cp.async, which NVIDIA has" }
PARTS   = { values = [1, 2, 4, 8], launch = true, idea = "parts of k, each multiplied by a different group" }

[presets]
"default:double" = { WIDTH = 2 }
"default:half"   = { WIDTH = 8 }
cpu              = { WIDE = 1, LX = 8, LY = 8, DEEP = 2, KC = 128 }

[terms]
ta         = 0   # if the layout is not known
tb         = 0
long       = "m if COLUMNS else n"
few        = "n if COLUMNS else m"
along      = "not ta if COLUMNS else tb"   # whether rows of the large operand, as stored, run along k
along_tile = "LY * DEEP if along else LX * WIDE * WIDTH"   # of the large operand, rows or columns
ld         = "lda if COLUMNS else ldb"
is_whole   = "ld % WIDTH == 0 and (not along or k % WIDTH == 0)"   # vectors fit rows of the large operand
is_many    = "0 < MANY <= long and ld % 4 == 0 and (not along or k % 4 == 0)"
many_items = "256 if along else 512"
groups     = "ceil_div(long, MANY or along_tile) * ceil_div(few, 16 if MANY else THIN)"   # for each part of k

[temporaries]
P = "PARTS * m * n * (2 if itemsize == 2 else 1) if PARTS > 1 else 0"

[[launches]]
file       = "gemm/24_thin_many.cl"
kernel     = "thin_many"
work_group = ["many_items", 1]
work_items = ["ceil_div(long, max(1, MANY)) * many_items", "ceil_div(few, 16) * PARTS"]
when       = ["is_many"]

[[launches]]
when       = ["is_whole", "not is_many"]

[[launches]]
kernel     = "thin_ragged"
when       = ["not is_whole", "not is_many"]

[[launches]]
kernel     = "thin_sum"
arguments  = ["m", "n", "alpha", "beta", "C", "ldc", "P", "PARTS"]
work_group = [16, 16]
work_items = ["n", "m"]
any_group  = true
when       = ["PARTS > 1"]
*/
/* thin: for products with few rows or columns, down to a vector: read the
 * large operand once, as fast as memory gives.
 *
 * ALONG = 0: rows of the large operand L lie across k ALONG = 1: they run
 * along k
 *
 *              LX * WIDE * WIDTH
 *        k      +----+-----+----+
 *   +---------+ | y=0|     |    | k
 *   |  THIN   | | y=1|  L  |    |
 *   +---------+ | ...|     |    |
 *        S      C: THIN x LX * WIDE * WIDTH
 *
 *   acc[i] += S[i][p] * L[p][x ...]
 *
 *          k                THIN
 * +-------------------+     +---+
 * | LY rows, DEEP     |     |   |
 * | times; LX lanes,  |     | S | k
 * | WIDE times        |     |   |
 * +-------------------+     +---+
 *           L
 *   acc[r][j] += L[row of r][p ...] . S[j][p ...]
 *
 * Such a product has a few flops for each element of the large operand, so
 * that the memory's rate is all there is. A work-item asks for DEEP vectors of
 * WIDTH elements at once, each of them 16 bytes and one load, and keeps the
 * sums of all THIN rows or columns of C in registers: the large operand is
 * read once whatever the other has, up to THIN.
 *
 * COLUMNS says which operand is large: A, where columns of C are few, or B,
 * where rows are. Both may be stored either way; it decides which picture is
 * right: A as it is and B transposed run along k.
 *
 * The work-items of a group share k: LY slices of it in the first picture, LX
 * lanes in the second. Their sums meet in local memory. Where tiles of C are
 * too few for all units, several groups share k as well, each a part of it,
 * and `thin_sum` adds up what they leave in P; with one part there is one
 * launch.
 *
 * The small operand goes through local memory, KC steps along k of it at a
 * time and rows along k there, so that WIDTH steps are one load; while one
 * share of it is multiplied the next is on its way. With AHEAD the vectors of
 * the large operand that are next are, too.
 *
 * Rows of L that do not begin where vectors do, or do not end there where they
 * run along k, are read by elements (`thin_ragged`); those of S tell
 * themselves. With STORED_half operands are half in memory and float
 * everywhere else. */
#include "common.clh"

#if !defined(COLUMNS) || !defined(THIN) || !defined(WIDTH) || !defined(LX) || !defined(LY) || !defined(DEEP)
#error "COLUMNS, THIN, WIDTH, LX, LY and DEEP must be defined"
#endif
#if !defined(WIDE) || !defined(KC) || !defined(AHEAD)
#error "WIDE, KC and AHEAD must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define ITEMS (LX * LY)
#define MOST 4096 /* elements of local memory for sums, where a round of them takes no more */

#include "stored.clh"

#include "along.clh"
#if ALONG
#define STEP (LX * WIDE * WIDTH) /* along k that a group takes at once */
#define UNIT STEP         /* parts of k are so many whole ones */
#define LANES (LX % 8 || WIDE > 1 ? LX : 8) /* neighbours along k; the others read the same of S */
#define ALONG_K(v) ((v) * (LX * WIDTH)) /* where vector v of a work-item is from its first one */
#else
#define STEP (LY * DEEP)
#define UNIT (DEEP % WIDTH ? DEEP * WIDTH : DEEP)
#endif
#define ROUNDED (STEP % WIDTH ? STEP * WIDTH : STEP)
#define CHUNK ((KC + ROUNDED - 1) / ROUNDED * ROUNDED) /* steps along k of the small operand in local memory */
#define LD_LOCAL (CHUNK + WIDTH) /* so that rows begin in different banks */
#define TILE (THIN * LD_LOCAL)

/* Vector or element e of the small operand's share: which of the few it is, and which step along k. */
#if SMALL_ALONG
#define AT_ONCE WIDTH
#define WHICH(e) ((e) / (CHUNK / WIDTH))
#define WHEN(e) ((e) % (CHUNK / WIDTH) * WIDTH)
#define ASKED(i, p) fetched(S + (size_t)(i) * lds + (p), (i) < few ? to - (p) : 0, fits)
#elif THIN % WIDTH == 0
#define AT_ONCE WIDTH
#define WHICH(e) ((e) % (THIN / WIDTH) * WIDTH)
#define WHEN(e) ((e) / (THIN / WIDTH))
#define ASKED(i, p) fetched(S + (size_t)(p) * lds + (i), (p) < to ? few - (i) : 0, fits)
#else
#define AT_ONCE 1
#define WHICH(e) ((e) % THIN)
#define WHEN(e) ((e) / THIN)
#define ASKED(i, p) ((p) < to && (i) < few ? get(S + (size_t)(p) * lds + (i)) : 0)
#endif
#define SHARE (CHUNK * THIN / AT_ONCE)
#define LOADS ((SHARE + ITEMS - 1) / ITEMS)
#define FETCH(p0) \
    _Pragma("unroll") for (int l = 0; l < LOADS; l++) { \
        const int e = item + l * ITEMS; \
        if (SHARE % ITEMS == 0 || e < SHARE) \
            share[l] = ASKED(few0 + WHICH(e), (p0) + WHEN(e)); \
    }
#define PUT(at) \
    _Pragma("unroll") for (int l = 0; l < LOADS; l++) { \
        const int e = item + l * ITEMS; \
        __local REAL *to_local = local_all + (at) * TILE + WHICH(e) * LD_LOCAL + WHEN(e); \
        if (SHARE % ITEMS == 0 || e < SHARE) \
            PUT_ONE(to_local, share[l]) \
    }
#if SMALL_ALONG
#define PUT_ONE(to_local, value) *(__local VECTOR *)to_local = value;
#elif AT_ONCE == 1
#define PUT_ONE(to_local, value) *to_local = value;
#else
#define PUT_ONE(to_local, value) { \
    REAL lanes[WIDTH]; \
    CAT(vstore, WIDTH)(value, 0, lanes); \
    _Pragma("unroll") for (int w = 0; w < WIDTH; w++) \
        to_local[w * LD_LOCAL] = lanes[w]; \
    }
#endif

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
#if COLUMNS
#define STORE(sum, i, c) store(sum, c, i, m, n, part, parts, alpha, beta, C, ldc, P)
#else
#define STORE(sum, i, c) store(sum, i, c, m, n, part, parts, alpha, beta, C, ldc, P)
#endif

#if ALONG
#define LD_SUMS (LX + 1)
#define SUMS (LY * THIN * LD_SUMS)
#define ASK(p) \
    _Pragma("unroll") for (int r = 0; r < DEEP; r++) \
        _Pragma("unroll") for (int v = 0; v < WIDE; v++) \
            next[r][v] = fetched(L + (size_t)(long0 + y + r * LY) * ldl + (p) + ALONG_K(v), \
                                 long0 + y + r * LY < count ? to - (p) - ALONG_K(v) : 0, whole);
#else
#define ACROSS (LX * WIDE * WIDTH) /* elements of L's rows that a group has */
#if LY * ACROSS * THIN <= MOST
#define ROUND THIN
#elif LY * ACROSS * 8 <= MOST
#define ROUND 8
#elif LY * ACROSS * 4 <= MOST
#define ROUND 4
#elif LY * ACROSS * 2 <= MOST
#define ROUND 2
#else
#define ROUND 1
#endif
#define SUMS (ROUND * LY * ACROSS)
#define COLUMN(v) (((v) * LX + x) * WIDTH) /* of vector v of a work-item */
#define ASK(p) \
    _Pragma("unroll") for (int u = 0; u < DEEP; u++) \
        _Pragma("unroll") for (int v = 0; v < WIDE; v++) \
            next[u][v] = fetched(L + (size_t)((p) + u) * ldl + long0 + COLUMN(v), \
                                 (p) + u < to ? count - long0 - COLUMN(v) : 0, whole);
#if DEEP % WIDTH == 0
#define QUAD WIDTH
#elif DEEP % 2 == 0 && WIDTH % 2 == 0
#define QUAD 2
#else
#define QUAD 1
#endif
#endif
#define LOCAL_ELEMENTS (SUMS > 2 * TILE ? SUMS : 2 * TILE)
#if !ALONG && QUAD == 1
#define READ(from, to) to[0] = *(from);
#elif !ALONG
#define READ(from, to) CAT(vstore, QUAD)(*(__local const REALV(QUAD) *)(from), 0, to);
#endif

static inline void multiplied(int m, int n, int k, SCALAR alpha, __global const STORED *restrict A, int lda,
                              __global const STORED *restrict B, int ldb, SCALAR beta, __global STORED *restrict C,
                              int ldc, __global REAL *restrict P, int parts, __local REAL *local_all, const int whole)
{
#if COLUMNS
    __global const STORED *restrict L = A, *restrict S = B;
    const int ldl = lda, lds = ldb, count = m, few = n;
#else
    __global const STORED *restrict L = B, *restrict S = A;
    const int ldl = ldb, lds = lda, count = n, few = m;
#endif
#if SMALL_ALONG
    const int fits = lds % WIDTH == 0 && k % WIDTH == 0; /* vectors of the small operand */
#else
    const int fits = lds % WIDTH == 0;
#endif
    const int item = get_local_id(0);
    const int part = get_group_id(1) % parts, few0 = get_group_id(1) / parts * THIN;
    const int depth = ((k + UNIT - 1) / UNIT + parts - 1) / parts * UNIT;
    const int from = part * depth, to = min(from + depth, k);
#if ALONG
    const int x = item % LANES + item / (LANES * LY) * LANES, y = item / LANES % LY, long0 = get_group_id(0) * (LY * DEEP);
    REAL acc[DEEP][THIN];
    VECTOR next[DEEP][WIDE];
    #pragma unroll
    for (int r = 0; r < DEEP; r++)
        #pragma unroll
        for (int j = 0; j < THIN; j++)
            acc[r][j] = 0;
    const int first = x * WIDTH;
#else
    const int x = item % LX, y = item / LX, long0 = get_group_id(0) * ACROSS;
    VECTOR acc[THIN][WIDE], next[DEEP][WIDE];
    #pragma unroll
    for (int i = 0; i < THIN; i++)
        #pragma unroll
        for (int v = 0; v < WIDE; v++)
            acc[i][v] = 0;
    const int first = y * DEEP;
#endif
#if AT_ONCE == 1
    REAL share[LOADS];
#else
    VECTOR share[LOADS];
#endif
    int p = from + first;
#if AHEAD
    ASK(p)
#endif
    FETCH(from)
    PUT(0)
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p0 = from, now = 0; p0 < to; p0 += CHUNK, now ^= 1) {
        const int more = p0 + CHUNK < to; /* the same for every work-item of the group */
        if (more) {
            FETCH(p0 + CHUNK)
        }
        __local const REAL *tile = local_all + now * TILE;
        for (int s = first; s < CHUNK && p0 + s < to; s += STEP) {
#if !AHEAD
            ASK(p)
#endif
#if ALONG
            REAL a[DEEP][WIDE * WIDTH];
            #pragma unroll
            for (int r = 0; r < DEEP; r++)
                #pragma unroll
                for (int v = 0; v < WIDE; v++)
                    CAT(vstore, WIDTH)(next[r][v], v, a[r]);
#else
            VECTOR b[DEEP][WIDE];
            #pragma unroll
            for (int u = 0; u < DEEP; u++)
                #pragma unroll
                for (int v = 0; v < WIDE; v++)
                    b[u][v] = next[u][v];
#endif
            p += STEP;
#if AHEAD
            ASK(p)
#endif
#if ALONG
            #pragma unroll
            for (int e = 0; e < WIDE * THIN; e++) {
                const int v = e / THIN, j = e % THIN;
                REAL b[WIDTH];
                CAT(vstore, WIDTH)(*(__local const VECTOR *)(tile + j * LD_LOCAL + s + ALONG_K(v)), 0, b);
                #pragma unroll
                for (int r = 0; r < DEEP; r++)
                    #pragma unroll
                    for (int w = 0; w < WIDTH; w++)
                        acc[r][j] += a[r][v * WIDTH + w] * b[w];
            }
#else
            #pragma unroll
            for (int u = 0; u < DEEP; u += QUAD)
                #pragma unroll
                for (int i = 0; i < THIN; i++) {
                    REAL a[QUAD];
                    READ(tile + i * LD_LOCAL + s + u, a)
                    #pragma unroll
                    for (int w = 0; w < QUAD; w++)
                        #pragma unroll
                        for (int v = 0; v < WIDE; v++)
                            acc[i][v] += a[w] * b[u + w][v];
                }
#endif
        }
        if (more) {
            PUT(now ^ 1)
        }
        barrier(CLK_LOCAL_MEM_FENCE); /* also before the sums replace what was shared */
    }

#if ALONG
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
            #pragma unroll
            for (int s = 0; s < LX; s++)
                sum += local_all[e * LD_SUMS + s];
            STORE(sum, few0 + e % THIN, long0 + r * LY + e / THIN);
        }
    }
#else
    #pragma unroll
    for (int i0 = 0; i0 < THIN; i0 += ROUND) {
        if (i0 > 0)
            barrier(CLK_LOCAL_MEM_FENCE);
        #pragma unroll
        for (int i = 0; i < ROUND; i++)
            #pragma unroll
            for (int v = 0; v < WIDE; v++)
                *(__local VECTOR *)(local_all + (i * LY + y) * ACROSS + COLUMN(v)) = acc[i0 + i][v];
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int e = item; e < ROUND * ACROSS; e += ITEMS) {
            const int i = e / ACROSS, c = e % ACROSS;
            REAL sum = 0;
            #pragma unroll
            for (int s = 0; s < LY; s++)
                sum += local_all[(i * LY + s) * ACROSS + c];
            STORE(sum, few0 + i0 + i, long0 + c);
        }
    }
#endif
}

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
    __local REAL local_all[LOCAL_ELEMENTS] __attribute__((aligned(32)));
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
    __local REAL local_all[LOCAL_ELEMENTS] __attribute__((aligned(32)));
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
