/* gemmbench
name        = "cpu-packed"
family      = "ours"
idea        = "packed panels and vector registers (CPU)"
source      = "gemmbench, after the structure of BLIS (Van Zee and van de Geijn, ACM TOMS 41, 2015)"
types       = ["float", "double", "half", "bfloat16", "char"]
stored      = ["bfloat16", "char"]
device      = "cpu"
work_group  = [1, 1]   # a core to each work-item
tile        = ["TILES * MR", "PANELS * NV * WIDTH"]
edge        = "max(MR, NV * WIDTH)"
either      = ["A", "B"]
batches     = true
local       = "DEPTH * NV * WIDTH"
choose      = "python"
constraints = [
    ["PANELS <= DEPTH", "PANELS must be at most DEPTH: sums of one row are kept where a panel is"],
    ["itemsize > 1 or DEPTH <= 1024",
     "DEPTH must be at most 1024 for char: float holds sums of so many products exactly"],
]

[parameters]
MR     = { values = [4, 6, 8, 12, 14], default = 6, idea = "rows of a micro-tile" }
NV     = { values = [1, 2, 3, 4], default = 4, idea = "vectors across a micro-tile" }
WIDTH  = { values = [2, 4, 8, 16], default = 16, idea = "elements of a vector: what a register of the CPU holds" }
UNROLL = { values = [1, 2, 4], default = 4, idea = "steps along k in a turn of the innermost loop" }
DEPTH  = { values = [256, 512, 1024], default = 512, idea = "steps along k of a panel of B that stays in the second cache" }
PACKA  = { values = [0, 1], launch = true, idea = "1: A in panels; 0: as it is" }
PACKB  = { values = [0, 1, 2], launch = true, idea = "whole panels of B: 0 as they are, 1 packed before, 2 by each block" }
KC     = { values = [16, 256, 512, 1024], launch = true, idea = "steps along k before the sums go to C" }
TILES  = { values = [1, 8, 16, 32], launch = true, idea = "micro-tiles down a work-item's block" }
PANELS = { values = [1, 4, 11, 22], launch = true, idea = "panels across a work-item's block" }
SLICES = { values = [1, 2, 4], launch = true, idea = "parts of k that are summed side by side, and added" }

[terms]
tiles     = "ceil_div(m, MR)"                    # micro-tiles down C; the last one may be incomplete
panels    = "ceil_div(n, NV * WIDTH)"
whole     = "n // (NV * WIDTH)"                  # panels
widened   = 0                                    # 1: panels hold bfloat16 and char as float
share     = "4 // itemsize if widened else 1"    # elements of memory for one of a panel
is_plain  = "not (ta or tb or widened)"
is_row    = "m == 1 and is_plain"
is_column = "n == 1 and m > 1 and is_plain"
is_matrix = "not is_row and not is_column"
packs_a   = "is_matrix and (PACKA or widened)"

[extents]
steps  = 64                                      # along k that a work-item packs
rows   = "TILES * MR"
span   = "ceil_div(k, SLICES)"
slices = "max(1, ceil_div(k, max(1, span)))"     # parts of k, each with sums of its own

[temporaries]
AP = "share * tiles * k * MR if packs_a else 0"
BP = "share * whole * NV * WIDTH * k if PACKB == 1 else 0"
P  = "share * slices * m * n if slices > 1 else 0"

[[launches]]
role       = "pack"
kernel     = "pack_a"
arguments  = ["steps", "m", "k", "A", "lda", "AP"]
work_items = ["tiles", "ceil_div(k, steps)"]
when       = ["packs_a"]

[[launches]]
role       = "pack"
kernel     = "pack_b"
arguments  = ["steps", "k", "n", "B", "ldb", "BP"]
work_items = ["whole", "ceil_div(k, steps)"]
when       = ["PACKB == 1", "is_matrix"]

[[launches]]
kernel     = "cpu_packed"
arguments  = [
    "m", "n", "k", "alpha", "A", "lda", "PACKA", "AP", "B", "ldb", "PACKB", "BP", "beta", "C", "ldc",
    "P", "PANELS", "rows", "KC", "span",
]
work_items = ["ceil_div(panels, PANELS)", "ceil_div(m, rows) * slices"]
when       = ["is_matrix"]

[[launches]]
kernel     = "one_row"
arguments  = ["n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "P", "PANELS", "span"]
work_items = ["ceil_div(panels, PANELS)", "slices"]
when       = ["is_row"]

[[launches]]
kernel     = "one_column"
arguments  = ["m", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc", "rows"]
work_items = [1, "ceil_div(m, rows)"]
when       = ["is_column"]

[[launches]]
role       = "add"
kernel     = "add"
arguments  = ["m", "n", "slices", "alpha", "P", "beta", "C", "ldc"]
work_items = ["panels", "m"]
when       = ["slices > 1", "not is_column"]
*/
/* cpu-packed: the micro-kernel of a CPU's BLAS, one work-item per block of C,
 * sums in vector registers.
 *
 *                    +-----+-----+-----+
 *                 kc | BP0 | BP1 | ... |
 *           kc       +-----+-----+-----+
 *         +-----+    +-----+-----+
 *      MR | AP0 |    | sum |     | rows
 *         +-----+    +-----+-----+
 *                      NR   columns
 *
 * B in panels of NR = NV x WIDTH columns. Packed, a panel's k rows of NR
 * elements lie one after the other (zeros past n) and are read in order.
 *
 * A is in panels of MR rows: MR elements of a column, then those
 * of the next. Past m they repeat the last row.
 *
 * A work-item makes a block of C, rows x columns. For every kc steps
 * along k and every panel of B it walks down its panels of A:
 *      sum[i][v] += AP[(panel_a * k + p) * MR + i] * BP[(panel_b * k + p) * NR
 *     + v * WIDTH ...]
 *
 * MR x NV vectors of sums stay in registers for kc steps; a panel's kc x NR
 * elements of B stay in the second cache for all rows of the block, and rows
 * of A go past. No barrier: a work-item is a group of its own.
 *
 * Who packs a panel of B: nobody, where few rows of C or steps along k do not
 * pay for it, and it is read where it lies; a pass before, where many blocks
 * read it; else each block, into local memory, which on a CPU is ordinary
 * memory that a core uses again and again, so that it stays in its caches. The
 * last panel, if it is not whole, needs zeros and is always copied so; but a
 * short block reads it where it lies, vectors that go past its end into the
 * next row of B, lanes that are not stored. A is packed by a pass where it is
 * stored transposed.
 *
 * Where there are fewer micro-tiles than cores, k is cut into slices with sums
 * of their own in P, and `add` makes C of them. One row and one column of C
 * have kernels of their own below.
 *
 * This should beat every rung before: those keep tiles in local memory, which
 * a CPU does not have, and leave it to the driver to make vectors of work-
 * items. Here the vectors are written out, and each element that is loaded
 * takes part in MR or NR products.
 *
 * With STORED_bfloat16 or STORED_char, A and B are bfloat16 or char in memory
 * and float in panels, so that both are always packed. A bfloat16 is the upper
 * half of a float. Float holds sums of up to 1,024 products of char exactly, so
 * C gets its int sums in parts of at most DEPTH steps along k. */
#ifdef STORED_char
#define SCALAR int
#endif
#include "common.clh"

#if !defined(MR) || !defined(NV) || !defined(WIDTH) || !defined(UNROLL) || !defined(DEPTH)
#error "MR, NV, WIDTH, UNROLL and DEPTH must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define NR (NV * WIDTH)
#define LOAD(p) CAT(vload, WIDTH)(0, p)
#define STORE(v, p) CAT(vstore, WIDTH)(v, 0, p)
#define PRAGMA(text) _Pragma(#text)

#if defined(STORED_bfloat16)
#define WIDENED
#define STORED ushort /* of A and B */
#define WIDE(w, bits) CAT(as_float, w)(CAT(convert_uint, w)(bits) << 16)
#elif defined(STORED_char)
#define WIDENED
#define STORED char
#define WIDE(w, numbers) CAT(convert_float, w)(numbers)
#define RESULT int /* of C and P */
#define TO_RESULT(sum) CAT(convert_int, WIDTH)(sum)
#else
#define STORED REAL
#define WIDE(w, numbers) (numbers)
#endif
#ifndef RESULT
#define RESULT REAL
#define TO_RESULT(sum) (sum)
#endif

#if defined(__has_builtin) && __OPENCL_VERSION__ >= 200 /* what clang has beyond OpenCL C; Oclgrind (1.2) fails on it */
#if __has_builtin(__builtin_prefetch)
#define FETCH(p) __builtin_prefetch(p, 1, 3) /* a line that is written soon */
#endif
#if __has_builtin(__builtin_nontemporal_store) && !defined(TRANS_B)
#define STREAM(v, p) __builtin_nontemporal_store(v, p) /* past the caches, without reading the line before */
#endif
#endif
#ifndef FETCH
#define FETCH(p)
#endif
#define KEPT (16 << 20) /* bytes of BP that the last cache may keep: more is streamed */

/* The type hint keeps a driver that makes vectors of work-items from taking ours apart: ten times slower. */
#define ALONE __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(VECTOR)))

/* AP from A: a work-item copies so many steps of one panel. */
__kernel ALONE
void pack_a(int steps, int m, int k, __global const STORED *restrict A, int lda, __global REAL *restrict AP)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(AP, get_global_size(0) * MR, k)
#endif
    const int panel = get_global_id(0), row = panel * MR;
    const int p0 = get_global_id(1) * steps, p1 = min(p0 + steps, k);
    __global REAL *to = AP + ((size_t)panel * k + p0) * MR;
#ifdef TRANS_A
    for (int p = p0; p < p1; p++, to += MR) {
        #pragma unroll
        for (int i = 0; i < MR; i++)
            to[i] = WIDE(, A[(size_t)p * lda + min(row + i, m - 1)]);
    }
#else
    __global const STORED *from[MR];
    #pragma unroll
    for (int i = 0; i < MR; i++)
        from[i] = A + (size_t)min(row + i, m - 1) * lda;
    for (int p = p0; p < p1; p++, to += MR) {
        #pragma unroll
        for (int i = 0; i < MR; i++)
            to[i] = WIDE(, from[i][p]);
    }
#endif
}

/* A panel's rows of B from p0 on, as many as depth says, one after the other, zeros past the last column. */
#ifdef TRANS_B
#define PACK(name, SPACE)                                                                                              \
    static inline void name(SPACE REAL *to, __global const STORED *B, int ldb, int p0, int depth, int column, int n)     \
    {                                                                                                                  \
        const int columns = min(NR, n - column);                                                                       \
        int j = 0;                                                                                                     \
        for (; j + 4 <= columns; j += 4) { /* blocks of 4 x 4 are turned round in registers */                         \
            __global const STORED *row = B + (size_t)(column + j) * ldb + p0;                                          \
            SPACE REAL *block = to + j;                                                                                \
            int p = 0;                                                                                                 \
            for (; p + 4 <= depth; p += 4, block += 4 * NR) {                                                          \
                const REALV(4) a = WIDE(4, vload4(0, row + p)), b = WIDE(4, vload4(0, row + ldb + p)),                 \
                               c = WIDE(4, vload4(0, row + 2 * (size_t)ldb + p)),                                      \
                               d = WIDE(4, vload4(0, row + 3 * (size_t)ldb + p));                                      \
                vstore4((REALV(4))(a.x, b.x, c.x, d.x), 0, block);                                                     \
                vstore4((REALV(4))(a.y, b.y, c.y, d.y), 0, block + NR);                                                \
                vstore4((REALV(4))(a.z, b.z, c.z, d.z), 0, block + 2 * NR);                                            \
                vstore4((REALV(4))(a.w, b.w, c.w, d.w), 0, block + 3 * NR);                                            \
            }                                                                                                          \
            for (; p < depth; p++, block += NR)                                                                        \
                for (int i = 0; i < 4; i++)                                                                            \
                    block[i] = WIDE(, row[(size_t)i * ldb + p]);                                                       \
        }                                                                                                              \
        for (; j < NR; j++)                                                                                            \
            for (int p = 0; p < depth; p++)                                                                            \
                to[p * NR + j] = j < columns ? WIDE(, B[(size_t)(column + j) * ldb + p0 + p]) : (REAL)0;               \
    }
#else
#define PACK(name, SPACE)                                                                                              \
    static inline void name(SPACE REAL *to, __global const STORED *B, int ldb, int p0, int depth, int column, int n)     \
    {                                                                                                                  \
        __global const STORED *from = B + (size_t)p0 * ldb + column;                                                   \
        const int columns = min(NR, n - column), vectors = columns / WIDTH;                                            \
        for (int p = 0; p < depth; p++, from += ldb, to += NR) {                                                       \
            if (columns == NR) {                                                                                       \
                PRAGMA(unroll)                                                                                         \
                for (int v = 0; v < NV; v++)                                                                           \
                    STORE(WIDE(WIDTH, LOAD(from + v * WIDTH)), to + v * WIDTH);                                        \
                continue;                                                                                              \
            }                                                                                                          \
            for (int v = 0; v < vectors; v++)                                                                          \
                STORE(WIDE(WIDTH, LOAD(from + v * WIDTH)), to + v * WIDTH);                                            \
            for (int v = vectors; v < NV; v++)                                                                         \
                STORE((VECTOR)(0), to + v * WIDTH);                                                                    \
            for (int j = vectors * WIDTH; j < columns; j++)                                                            \
                to[j] = WIDE(, from[j]);                                                                               \
        }                                                                                                              \
    }
#endif
PACK(pack_before, __global)
PACK(pack_inside, __local) /* into the memory of the core that reads it next */

/* BP from B: a work-item copies so many rows of one whole panel. */
__kernel ALONE
void pack_b(int steps, int k, int n, __global const STORED *restrict B, int ldb, __global REAL *restrict BP)
{
#ifdef BATCHED
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(BP, get_global_size(0) * NR, k)
#endif
    const int panel = get_global_id(0), p0 = get_global_id(1) * steps;
#ifdef STREAM
    if ((size_t)k * n * sizeof(REAL) > KEPT) {
        __global const STORED *from = B + (size_t)p0 * ldb + panel * NR;
        __global VECTOR *to = (__global VECTOR *)(BP + ((size_t)panel * k + p0) * NR);
        for (int p = p0; p < min(p0 + steps, k); p++, from += ldb) {
            #pragma unroll
            for (int v = 0; v < NV; v++)
                STREAM(WIDE(WIDTH, LOAD(from + v * WIDTH)), to++);
        }
        return;
    }
#endif
    pack_before(BP + ((size_t)panel * k + p0) * NR, B, ldb, p0, min(steps, k - p0), panel * NR, n);
}

/* c = alpha sum + beta c for the first `count` lanes. */
static inline void finish(__global RESULT *c, VECTOR sum, int count, SCALAR alpha, SCALAR beta)
{
    const CAT(RESULT, WIDTH) scaled = (RESULT)alpha * TO_RESULT(sum);
    if (count >= WIDTH) {
        STORE(beta == 0 ? scaled : scaled + (RESULT)beta * LOAD(c), c);
        return;
    }
    RESULT lanes[WIDTH];
    STORE(scaled, lanes);
    for (int j = 0; j < count; j++)
        c[j] = beta == 0 ? lanes[j] : lanes[j] + (RESULT)beta * c[j];
}

/* A micro-kernel for ROWS x VECTORS of sums; from one row of A to the next it is A_DOWN elements, from one step along
 * k to the next A_ALONG and B_STEP. Rows past the last repeat it and are not stored.
 * fma(), not a * b + c: not every driver contracts vectors. */
#define MICRO_KERNEL(name, SPACE, ROWS, VECTORS, A_DOWN, A_ALONG, B_STEP)                                                 \
    static inline void name(int rows, int columns, int depth, SCALAR alpha, __global const REAL *A, int a_row,         \
                            int a_step, SPACE const REAL *b, int b_step, SCALAR beta, __global RESULT *C, int ldc)     \
    {                                                                                                                  \
        __global const REAL *a[ROWS];                                                                                  \
        VECTOR sum[ROWS][VECTORS];                                                                                     \
        PRAGMA(unroll)                                                                                                 \
        for (int i = 0; i < ROWS; i++) {                                                                               \
            a[i] = A + (size_t)min(i, rows - 1) * A_DOWN;                                                               \
            PRAGMA(unroll)                                                                                             \
            for (int v = 0; v < VECTORS; v++) {                                                                        \
                sum[i][v] = (VECTOR)(0);                                                                               \
                FETCH(C + (size_t)min(i, rows - 1) * ldc + v * WIDTH);                                                 \
            }                                                                                                          \
        }                                                                                                              \
        PRAGMA(unroll UNROLL)                                                                                          \
        for (int p = 0; p < depth; p++, b += B_STEP) {                                                                 \
            VECTOR row[VECTORS];                                                                                       \
            PRAGMA(unroll)                                                                                             \
            for (int v = 0; v < VECTORS; v++)                                                                          \
                row[v] = LOAD(b + v * WIDTH);                                                                          \
            PRAGMA(unroll)                                                                                             \
            for (int i = 0; i < ROWS; i++) {                                                                           \
                const VECTOR factor = (VECTOR)(a[i][p * A_ALONG]);                                                      \
                PRAGMA(unroll)                                                                                         \
                for (int v = 0; v < VECTORS; v++)                                                                      \
                    sum[i][v] = fma(factor, row[v], sum[i][v]);                                                        \
            }                                                                                                          \
        }                                                                                                              \
        PRAGMA(unroll)                                                                                                 \
        for (int i = 0; i < ROWS; i++) {                                                                               \
            PRAGMA(unroll)                                                                                             \
            for (int v = 0; v < VECTORS; v++)                                                                          \
                if (i < rows)                                                                                          \
                    finish(C + (size_t)i * ldc + v * WIDTH, sum[i][v], columns - v * WIDTH, alpha, beta);              \
        }                                                                                                              \
    }

#if defined(WIDENED)
#define A_ROW 1
#define A_STEP MR
#define DOWN 1
#define ALONG MR
#elif defined(TRANS_A)
#define A_ROW 1
#define A_STEP lda
#define DOWN 1
#define ALONG a_step
#else
#define A_ROW lda
#define A_STEP 1
#define DOWN a_row
#define ALONG 1
#endif

MICRO_KERNEL(both_packed, __global, MR, NV, 1, MR, NR) /* where the distances are known, registers for them are saved */
MICRO_KERNEL(inside, __local, MR, NV, DOWN, ALONG, NR)
#if NV > 2 /* a vector less, for a last panel that has no more */
MICRO_KERNEL(nearly, __local, MR, (NV - 1), DOWN, ALONG, NR)
#endif
MICRO_KERNEL(narrow, __local, MR, 1, a_row, a_step, NR)
#ifndef WIDENED /* whose panels are always packed */
MICRO_KERNEL(b_packed, __global, MR, NV, DOWN, ALONG, NR)
MICRO_KERNEL(whole, __global, MR, NV, a_row, a_step, b_step)
MICRO_KERNEL(flat, __global, 1, NV, a_row, a_step, b_step)
MICRO_KERNEL(strip_1, __global, MR, 1, DOWN, ALONG, b_step) /* of a last panel, where it lies */
#if NV > 2
MICRO_KERNEL(strip_2, __global, MR, 2, DOWN, ALONG, b_step)
#endif
#if NV > 3
MICRO_KERNEL(strip_3, __global, MR, 3, DOWN, ALONG, b_step)
#endif
#endif

#define FEW 2 /* rows that are cheaper one by one than in a micro-tile that repeats the last */
#define SELDOM (20 * MR) /* rows of a block that read a panel too seldom to pay for a copy */
enum { THERE, BEFORE, INSIDE, STRIP }; /* panels of B: read where they lie, from BP, copied by who reads them; a last
                                        * one read where it lies */

/* A work-item makes a block of C from all steps along k, or of the sums in P from `span` of them: first all blocks
 * of the first steps. */
__kernel ALONE
void cpu_packed(int m, int n, int k, SCALAR alpha, __global const STORED *restrict A, int lda, int a_packed,
                __global const REAL *restrict AP, __global const STORED *restrict B, int ldb, int pack_b,
                __global const REAL *restrict BP, SCALAR beta, __global RESULT *restrict C, int ldc,
                __global RESULT *restrict P, int panels, int rows, int kc, int span)
{
    __local VECTOR room[DEPTH * NV];
    __local REAL *const copied = (__local REAL *)room;
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(AP, (m + MR - 1) / MR * MR, k)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(BP, n / NR * NR, k)
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(P, (k + span - 1) / max(span, 1) * m, n)
#endif
    const int blocks = (m + rows - 1) / rows, slice = get_global_id(1) / blocks, block = get_global_id(1) % blocks;
    const int panel0 = get_global_id(0) * panels, panel1 = min(panel0 + panels, (n + NR - 1) / NR);
    const int row0 = block * rows, row1 = min(row0 + rows, m);
    const int first = slice * span, end = min(first + span, k);
#ifdef WIDENED
    const int a_row = 1, a_step = MR;
    a_packed = 1;
#elif defined(TRANS_A)
    const int a_row = 1, a_step = a_packed ? MR : lda;
#else
    const int a_row = a_packed ? 1 : lda, a_step = a_packed ? MR : 1;
#endif

    if (span < k) {
        C = P + (size_t)slice * m * n;
        ldc = n;
        alpha = 1;
        beta = 0;
    }
    kc = min(kc, DEPTH);
    for (int p0 = first; p0 < end || p0 == first; p0 += kc) {
        const int depth = min(kc, end - p0);
        for (int panel = panel0; panel < panel1; panel++) {
            const int column = panel * NR, columns = min(NR, n - column), vectors = (columns + WIDTH - 1) / WIDTH;
            int begin = p0, steps;
            do {
                steps = p0 + depth - begin;
#if defined(TRANS_B) || defined(WIDENED)
                const int how = columns < NR || pack_b == THERE ? INSIDE : pack_b; /* columns of B lie in its rows */
#else
                int how = columns < NR ? INSIDE : pack_b;
                if (columns < NR && vectors < max(NV, 2) && rows <= SELDOM && !a_packed) {
                    const int past = max(column + vectors * WIDTH - n, 0), safe = k - (past + ldb - 1) / ldb;
                    if (begin < safe) { /* the last row has no next, and is copied */
                        how = STRIP;
                        steps = min(steps, safe - begin);
                    }
                }
#endif
                const SCALAR keep = begin == first ? beta : (SCALAR)1; /* later parts add to what the first wrote */
                __global const REAL *b = BP + ((size_t)panel * k + begin) * NR;
#ifndef WIDENED
                if (how != BEFORE)
                    b = B + (size_t)begin * ldb + column;
#endif
                if (how == INSIDE)
                    pack_inside(copied, B, ldb, begin, steps, column, n);
                for (int row = row0; row < row1;) {
                    const int left = row1 - row;
                    __global const REAL *a = AP + ((size_t)(row / MR) * k + begin) * MR + row % MR;
#ifndef WIDENED
                    if (!a_packed)
                        a = A + (size_t)row * A_ROW + (size_t)begin * A_STEP;
#endif
                    __global RESULT *c = C + (size_t)row * ldc + column;
#ifndef WIDENED
                    if (how == THERE && left <= FEW) {
                        flat(1, NR, steps, alpha, a, a_row, a_step, b, ldb, keep, c, ldc);
                        row++;
                        continue;
                    }
                    if (how == THERE)
                        whole(left, NR, steps, alpha, a, a_row, a_step, b, ldb, keep, c, ldc);
                    else if (how == STRIP && vectors == 1)
                        strip_1(left, columns, steps, alpha, a, A_ROW, A_STEP, b, ldb, keep, c, ldc);
#if NV > 2
                    else if (how == STRIP && vectors == 2)
                        strip_2(left, columns, steps, alpha, a, A_ROW, A_STEP, b, ldb, keep, c, ldc);
#endif
#if NV > 3
                    else if (how == STRIP)
                        strip_3(left, columns, steps, alpha, a, A_ROW, A_STEP, b, ldb, keep, c, ldc);
#endif
                    else if (how == INSIDE && (a_packed || 2 * columns <= NR))
#else
                    if (how == INSIDE && 2 * columns <= NR)
#endif
                        for (int j = 0; j < columns; j += WIDTH)
                            narrow(left, columns - j, steps, alpha, a, a_row, a_step, copied + j, NR, keep, c + j, ldc);
#if NV > 2
                    else if (how == INSIDE && columns <= NR - WIDTH)
                        nearly(left, columns, steps, alpha, a, A_ROW, A_STEP, copied, NR, keep, c, ldc);
#endif
                    else if (how == INSIDE)
                        inside(left, columns, steps, alpha, a, A_ROW, A_STEP, copied, NR, keep, c, ldc);
                    else if (a_packed)
                        both_packed(left, NR, steps, alpha, a, 1, MR, b, NR, keep, c, ldc);
#ifndef WIDENED
                    else
                        b_packed(left, NR, steps, alpha, a, A_ROW, A_STEP, b, NR, keep, c, ldc);
#endif
                    row += MR;
                }
                begin += steps;
            } while (begin < p0 + depth);
        }
    }
}

/* C from the sums of `slices` parts of k: a work-item adds so many of one row. */
__kernel ALONE
void add(int m, int n, int slices, SCALAR alpha, __global const RESULT *restrict P, SCALAR beta,
         __global RESULT *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(P, slices * m, n)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int row = get_global_id(1), column = get_global_id(0) * NR, columns = min(NR, n - column);
    __global RESULT *c = C + (size_t)row * ldc + column;
    for (int j = 0; j < columns; j++) {
        RESULT sum = 0;
        for (int slice = 0; slice < slices; slice++)
            sum += P[((size_t)slice * m + row) * n + column + j];
        c[j] = beta == 0 ? (RESULT)alpha * sum : (RESULT)alpha * sum + (RESULT)beta * c[j];
    }
}

#ifndef WIDENED
/* --- One row, or one column: every element of B, or A, takes part in one product, and memory sets the pace ------- */

#define AT_ONCE 8 /* rows of B that pass the sums side by side, so that these are read and written seldom */

/* One row of C, and of A: the sums of so many columns stay in the nearest cache while B passes in long rows. */
__kernel ALONE
void one_row(int n, int k, SCALAR alpha, __global const REAL *restrict A, int lda, __global const REAL *restrict B,
             int ldb, SCALAR beta, __global REAL *restrict C, int ldc, __global REAL *restrict P, int panels, int span)
{
#ifdef BATCHED
    BATCH_OFFSET(A, 1, lda)
    BATCH_OFFSET(B, k, ldb)
    BATCH_OFFSET(C, 1, ldc)
    BATCH_OFFSET(P, (k + span - 1) / max(span, 1), n)
#endif
    __local VECTOR room[DEPTH * NV];
    __local REAL *const sums = (__local REAL *)room;
    const int column0 = get_global_id(0) * panels * NR, columns = min(panels * NR, n - column0);
    const int first = get_global_id(1) * span, end = min(first + span, k), vectors = columns / WIDTH;

    for (int v = 0; v < vectors; v++)
        room[v] = (VECTOR)(0);
    for (int j = vectors * WIDTH; j < columns; j++)
        sums[j] = 0;
    int p = first;
    if (ldb % WIDTH && columns > 2 * NR) { /* rows that lie alike in their lines, from where a line begins */
        const int apart = (end - first) / AT_ONCE / WIDTH * WIDTH;
        for (; p < first + apart; p++) {
            __global const REAL *b = B + (size_t)p * ldb + column0;
            REAL factor[AT_ONCE];
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                factor[i] = A[p + i * apart];
            int j = 0;
            for (const int before = -((size_t)b / sizeof(REAL)) % WIDTH; j < before; j++) {
                #pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    sums[j] = fma(factor[i], b[(size_t)i * apart * ldb + j], sums[j]);
            }
            for (; j + WIDTH <= columns; j += WIDTH) {
                VECTOR sum = LOAD(sums + j);
                #pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    sum = fma((VECTOR)(factor[i]), LOAD(b + (size_t)i * apart * ldb + j), sum);
                STORE(sum, sums + j);
            }
            for (; j < columns; j++) {
                #pragma unroll
                for (int i = 0; i < AT_ONCE; i++)
                    sums[j] = fma(factor[i], b[(size_t)i * apart * ldb + j], sums[j]);
            }
        }
        p = first + AT_ONCE * apart;
    }
    for (; p + AT_ONCE <= end; p += AT_ONCE) {
        __global const REAL *b = B + (size_t)p * ldb + column0;
        REAL factor[AT_ONCE];
        #pragma unroll
        for (int i = 0; i < AT_ONCE; i++)
            factor[i] = A[p + i];
        for (int v = 0; v < vectors; v++) {
            VECTOR sum = room[v];
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                sum = fma((VECTOR)(factor[i]), LOAD(b + (size_t)i * ldb + v * WIDTH), sum);
            room[v] = sum;
        }
        for (int j = vectors * WIDTH; j < columns; j++) {
            #pragma unroll
            for (int i = 0; i < AT_ONCE; i++)
                sums[j] = fma(factor[i], b[(size_t)i * ldb + j], sums[j]);
        }
    }
    for (; p < end; p++) {
        __global const REAL *b = B + (size_t)p * ldb + column0;
        for (int v = 0; v < vectors; v++)
            room[v] = fma((VECTOR)(A[p]), LOAD(b + v * WIDTH), room[v]);
        for (int j = vectors * WIDTH; j < columns; j++)
            sums[j] = fma(A[p], b[j], sums[j]);
    }

    __global REAL *c = (span < k ? P + (size_t)get_global_id(1) * n : C) + column0;
    for (int j = 0; j < columns; j++)
        c[j] = span < k ? sums[j] : beta == 0 ? (REAL)alpha * sums[j] : (REAL)alpha * sums[j] + (REAL)beta * c[j];
}

/* The sum of a vector's lanes, by halves. */
static inline REAL total2(REALV(2) v) { return v.lo + v.hi; }
static inline REAL total4(REALV(4) v) { return total2(v.lo + v.hi); }
static inline REAL total8(REALV(8) v) { return total4(v.lo + v.hi); }
static inline REAL total16(REALV(16) v) { return total8(v.lo + v.hi); }

#define LINES (MR * NV / 2) /* rows of A that pass side by side: as many sums as hide what an addition takes */

/* One column of C, and of B: a work-item makes so many elements, each the sum of a row of A times the column. */
__kernel ALONE
void one_column(int m, int k, SCALAR alpha, __global const REAL *restrict A, int lda, __global const REAL *restrict B,
                int ldb, SCALAR beta, __global REAL *restrict C, int ldc, int rows)
{
#ifdef BATCHED
    BATCH_OFFSET(A, m, lda)
    BATCH_OFFSET(B, k, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    __local VECTOR room[DEPTH * NV];
    __local REAL *const b = (__local REAL *)room;
    const int row0 = get_global_id(1) * rows, row1 = min(row0 + rows, m);

    for (int p0 = 0; p0 < k || p0 == 0; p0 += DEPTH * NR) {
        const int depth = min(DEPTH * NR, k - p0), vectors = depth / WIDTH;
        for (int p = 0; p < depth; p++)
            b[p] = B[(size_t)(p0 + p) * ldb];
        for (int row = row0; row < row1; row += LINES) {
            __global const REAL *a[LINES];
            VECTOR sum[LINES][2];
            #pragma unroll
            for (int i = 0; i < LINES; i++) {
                a[i] = A + (size_t)min(row + i, row1 - 1) * lda + p0;
                sum[i][0] = sum[i][1] = (VECTOR)(0);
            }
            int v = 0;
            for (; v + 2 <= vectors; v += 2) {
                #pragma unroll
                for (int i = 0; i < LINES; i++) {
                    sum[i][0] = fma(room[v], LOAD(a[i] + v * WIDTH), sum[i][0]);
                    sum[i][1] = fma(room[v + 1], LOAD(a[i] + (v + 1) * WIDTH), sum[i][1]);
                }
            }
            if (v < vectors) {
                #pragma unroll
                for (int i = 0; i < LINES; i++)
                    sum[i][0] = fma(room[v], LOAD(a[i] + v * WIDTH), sum[i][0]);
            }
            #pragma unroll
            for (int i = 0; i < LINES; i++) {
                if (row + i < row1) {
                    REAL all = CAT(total, WIDTH)(sum[i][0] + sum[i][1]);
                    for (int p = vectors * WIDTH; p < depth; p++)
                        all = fma(b[p], a[i][p], all);
                    __global REAL *c = C + (size_t)(row + i) * ldc;
                    const SCALAR keep = p0 == 0 ? beta : (SCALAR)1;
                    *c = keep == 0 ? (REAL)alpha * all : (REAL)alpha * all + (REAL)keep * *c;
                }
            }
        }
    }
}
#endif
