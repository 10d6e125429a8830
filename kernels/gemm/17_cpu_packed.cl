/* cpu-packed: the micro-kernel of a CPU's BLAS, one work-item per block of C, sums in vector registers.
 *
 *                    +-----+-----+-----+    B in panels of NR = NV x WIDTH columns. Packed, a panel's k rows of NR
 *                 kc | BP0 | BP1 | ... |    elements lie one after the other (zeros past n) and are read in order.
 *           kc       +-----+-----+-----+
 *         +-----+    +-----+-----+          A likewise in panels of MR rows: MR elements of a column, then those
 *      MR | AP0 |    | sum |     | rows     of the next. Past m they repeat the last row.
 *         +-----+    +-----+-----+
 *                      NR   columns         A work-item makes a block of C, rows x columns. For every kc steps
 *                                           along k and every panel of B it walks down its panels of A:
 *      sum[i][v] += AP[(panel_a * k + p) * MR + i] * BP[(panel_b * k + p) * NR + v * WIDTH ...]
 *
 * MR x NV vectors of sums stay in registers for kc steps; a panel's kc x NR elements of B stay in the nearest caches
 * for all rows of the block, the block's kc columns of A in the second cache. No local memory, no barrier.
 *
 * Packing reads and writes a matrix once more: few rows do not pay for that of B, nor few columns for that of A. Then
 * whole panels are read where they lie, of B a few rows at a time. The last panel of B, if it is not whole, is packed
 * even so: it needs its zeros.
 *
 * This should beat every rung before: those keep tiles in local memory, which a CPU does not have, and leave it to
 * the driver to make vectors of work-items. Here the vectors are written out, and each element that is loaded
 * takes part in MR or NR products. */
#include "common.clh"

#if !defined(MR) || !defined(NV) || !defined(WIDTH) || !defined(UNROLL)
#error "MR, NV, WIDTH and UNROLL must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define NR (NV * WIDTH)
#define LOAD(p) CAT(vload, WIDTH)(0, p)
#define STORE(v, p) CAT(vstore, WIDTH)(v, 0, p)
#define PRAGMA(text) _Pragma(#text)

/* The type hint keeps a driver that makes vectors of work-items from taking ours apart: ten times slower. */
#define ALONE __attribute__((reqd_work_group_size(1, 1, 1), vec_type_hint(VECTOR)))

/* AP from A: a work-item copies so many steps of one panel. */
__kernel ALONE
void pack_a(int steps, int m, int k, __global const REAL *restrict A, int lda, __global REAL *restrict AP)
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
            to[i] = A[(size_t)p * lda + min(row + i, m - 1)];
    }
#else
    __global const REAL *from[MR];
    #pragma unroll
    for (int i = 0; i < MR; i++)
        from[i] = A + (size_t)min(row + i, m - 1) * lda;
    for (int p = p0; p < p1; p++, to += MR) {
        #pragma unroll
        for (int i = 0; i < MR; i++)
            to[i] = from[i][p];
    }
#endif
}

/* BP from B, from a panel on: a work-item copies so many rows of one panel. */
__kernel ALONE
void pack_b(int first, int steps, int k, int n, __global const REAL *restrict B, int ldb, __global REAL *restrict BP)
{
#ifdef BATCHED
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(BP, get_global_size(0) * NR, k)
#endif
    const int panel = get_global_id(0), column = (first + panel) * NR;
    const int p0 = get_global_id(1) * steps, p1 = min(p0 + steps, k);
    __global REAL *to = BP + ((size_t)panel * k + p0) * NR;
#ifdef TRANS_B
    const int there = min(NR, n - column);
    int j = 0;
    for (; j + 4 <= there; j += 4) { /* blocks of 4 x 4 are turned round in registers */
        __global const REAL *row = B + (size_t)(column + j) * ldb;
        __global REAL *block = to + j;
        int p = p0;
        for (; p + 4 <= p1; p += 4, block += 4 * NR) {
            const REALV(4) a = vload4(0, row + p), b = vload4(0, row + ldb + p),
                           c = vload4(0, row + 2 * (size_t)ldb + p), d = vload4(0, row + 3 * (size_t)ldb + p);
            vstore4((REALV(4))(a.x, b.x, c.x, d.x), 0, block);
            vstore4((REALV(4))(a.y, b.y, c.y, d.y), 0, block + NR);
            vstore4((REALV(4))(a.z, b.z, c.z, d.z), 0, block + 2 * NR);
            vstore4((REALV(4))(a.w, b.w, c.w, d.w), 0, block + 3 * NR);
        }
        for (; p < p1; p++, block += NR)
            for (int i = 0; i < 4; i++)
                block[i] = row[(size_t)i * ldb + p];
    }
    for (; j < NR; j++)
        for (int p = p0; p < p1; p++)
            to[(p - p0) * NR + j] = j < there ? B[(size_t)(column + j) * ldb + p] : (REAL)0;
#else
    __global const REAL *from = B + (size_t)p0 * ldb + column;
    const int columns = min(NR, n - column), vectors = columns / WIDTH;
    if (columns == NR) {
        for (int p = p0; p < p1; p++, from += ldb, to += NR) {
            #pragma unroll
            for (int v = 0; v < NV; v++)
                STORE(LOAD(from + v * WIDTH), to + v * WIDTH);
        }
        return;
    }
    for (int p = p0; p < p1; p++, from += ldb, to += NR) {
        for (int v = 0; v < vectors; v++)
            STORE(LOAD(from + v * WIDTH), to + v * WIDTH);
        for (int v = vectors; v < NV; v++)
            STORE((VECTOR)(0), to + v * WIDTH);
        for (int j = vectors * WIDTH; j < columns; j++)
            to[j] = from[j];
    }
#endif
}

/* c = alpha sum + beta c for the first `count` lanes. */
static inline void finish(__global REAL *c, VECTOR sum, int count, SCALAR alpha, SCALAR beta)
{
    const VECTOR scaled = (REAL)alpha * sum;
    if (count >= WIDTH) {
        STORE(beta == 0 ? scaled : scaled + (REAL)beta * LOAD(c), c);
        return;
    }
    REAL lanes[WIDTH];
    STORE(scaled, lanes);
    for (int j = 0; j < count; j++)
        c[j] = beta == 0 ? lanes[j] : lanes[j] + (REAL)beta * c[j];
}

/* A micro-kernel for ROWS x VECTORS of sums; from one row of A to the next it is A_ROW elements, from one step along k
 * to the next A_STEP and B_STEP. Rows past the last repeat it and are not stored.
 * fma(), not a * b + c: not every driver contracts vectors. */
#define MICRO_KERNEL(name, ROWS, VECTORS, A_ROW, A_STEP, B_STEP)                                                       \
    static inline void name(int rows, int columns, int depth, SCALAR alpha, __global const REAL *A, int a_row,         \
                            int a_step, __global const REAL *b, int b_step, SCALAR beta, __global REAL *C, int ldc)    \
    {                                                                                                                  \
        __global const REAL *a[ROWS];                                                                                  \
        VECTOR sum[ROWS][VECTORS];                                                                                     \
        PRAGMA(unroll)                                                                                                 \
        for (int i = 0; i < ROWS; i++) {                                                                               \
            a[i] = A + (size_t)min(i, rows - 1) * A_ROW;                                                               \
            PRAGMA(unroll)                                                                                             \
            for (int v = 0; v < VECTORS; v++)                                                                          \
                sum[i][v] = (VECTOR)(0);                                                                               \
        }                                                                                                              \
        PRAGMA(unroll UNROLL)                                                                                          \
        for (int p = 0; p < depth; p++, b += B_STEP) {                                                                 \
            VECTOR row[VECTORS];                                                                                       \
            PRAGMA(unroll)                                                                                             \
            for (int v = 0; v < VECTORS; v++)                                                                          \
                row[v] = LOAD(b + v * WIDTH);                                                                          \
            PRAGMA(unroll)                                                                                             \
            for (int i = 0; i < ROWS; i++) {                                                                           \
                const VECTOR factor = (VECTOR)(a[i][p * A_STEP]);                                                      \
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

MICRO_KERNEL(both_packed, MR, NV, 1, MR, NR) /* where the distances are known, registers for them are saved */
MICRO_KERNEL(b_packed, MR, NV, a_row, 1, NR)
MICRO_KERNEL(whole, MR, NV, a_row, a_step, b_step)
MICRO_KERNEL(narrow, MR, 1, a_row, a_step, b_step)
MICRO_KERNEL(flat, 1, NV, a_row, a_step, b_step)
MICRO_KERNEL(single, 1, 1, a_row, a_step, b_step)

#define FEW 2 /* rows that are cheaper one by one than in a micro-tile that repeats the last */

/* Panels of B from `first` on are in BP, those before it in B; A is in AP if a_packed, else in A. */
__kernel ALONE
void cpu_packed(int m, int n, int k, SCALAR alpha, __global const REAL *restrict A, int lda,
                int a_packed, __global const REAL *restrict AP, __global const REAL *restrict B, int ldb,
                int first, __global const REAL *restrict BP, SCALAR beta, __global REAL *restrict C, int ldc,
                int panels, int rows, int kc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(AP, (m + MR - 1) / MR * MR, k)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(BP, ((n + NR - 1) / NR - first) * NR, k)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int panel0 = get_global_id(0) * panels, panel1 = min(panel0 + panels, (n + NR - 1) / NR);
    const int row0 = get_global_id(1) * rows, row1 = min(row0 + rows, m);
#ifdef TRANS_A
    const int a_row = 1, a_step = a_packed ? MR : lda;
#else
    const int a_row = a_packed ? 1 : lda, a_step = a_packed ? MR : 1;
#endif

    for (int p0 = 0; p0 < k || p0 == 0; p0 += kc) {
        const int depth = min(kc, k - p0);
        const SCALAR keep = p0 == 0 ? beta : (SCALAR)1; /* later parts add to what the first wrote */
        for (int panel = panel0; panel < panel1; panel++) {
            const int column = panel * NR, columns = min(NR, n - column);
            const bool there = panel < first;
            const int b_step = there ? ldb : NR;
            __global const REAL *b =
                there ? B + (size_t)p0 * ldb + column : BP + ((size_t)(panel - first) * k + p0) * NR;
            for (int row = row0; row < row1;) {
                const int left = row1 - row;
                __global const REAL *a = a_packed ? AP + ((size_t)(row / MR) * k + p0) * MR + row % MR
#ifdef TRANS_A
                                                  : A + (size_t)p0 * lda + row;
#else
                                                  : A + (size_t)row * lda + p0;
#endif
                __global REAL *c = C + (size_t)row * ldc + column;
                if (left <= FEW) {
                    if (2 * columns > NR)
                        flat(1, columns, depth, alpha, a, a_row, a_step, b, b_step, keep, c, ldc);
                    else
                        for (int j = 0; j < columns; j += WIDTH)
                            single(1, columns - j, depth, alpha, a, a_row, a_step, b + j, b_step, keep, c + j, ldc);
                    row++;
                    continue;
                }
                if (2 * columns <= NR)
                    for (int j = 0; j < columns; j += WIDTH)
                        narrow(left, columns - j, depth, alpha, a, a_row, a_step, b + j, b_step, keep, c + j, ldc);
                else if (there)
                    whole(left, columns, depth, alpha, a, a_row, a_step, b, b_step, keep, c, ldc);
                else if (a_packed)
                    both_packed(left, columns, depth, alpha, a, 1, MR, b, NR, keep, c, ldc);
                else
#ifdef TRANS_A
                    whole(left, columns, depth, alpha, a, 1, lda, b, NR, keep, c, ldc);
#else
                    b_packed(left, columns, depth, alpha, a, lda, 1, b, NR, keep, c, ldc);
#endif
                row += MR;
            }
        }
    }
}
