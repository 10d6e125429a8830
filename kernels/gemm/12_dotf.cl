/* gemmbench
name        = "dotf-v{WIDTH}"
family      = "mobile"
idea        = "the same with built-in dot(), width {WIDTH}"
source      = "Profiling GEMM on Android (Mali-T760); Gronqvist and Lokhotmov, GPU Pro 5"
kernel      = "dotf_rows"
each        = "WIDTH"
work_group  = ["WX", "WY"]
work_items  = ["n", "m"]
any_group   = true
edge        = "max(WIDTH, max(WX, WY))"
transposed  = ["B"]
batches     = true
constraints = [
    ["POINTERS <= 1", "POINTERS is 1 (they advance) or 0 (loads are indexed)"],
]

[parameters]
WIDTH    = { values = [8, 16], idea = "elements of a vector" }
WX       = { values = [4, 8, 16], default = 8, launch = true, idea = "columns of C across a work-group" }
WY       = { values = [1, 4, 8, 16], default = 8, launch = true, idea = "rows of C down a work-group" }
POINTERS = { values = [0, 1], default = 1, idea = "1: pointers advance along the rows; 0: every load is indexed" }

[named.indexed]
idea   = "pointers stay, every load is indexed"
values = { POINTERS = 0 }
*/
/* dotf: dot with the built-in dot product on the 4-wide parts.
 *
 *            k                    k
 *      +-----------+        +-----------+
 *    m |===========|      n |===========|
 *      | A         |        | BT        |
 *      +-----------+        +-----------+
 *
 * work-item (column, row):
 * C[row * ldc + column] = alpha * sum over p of
 *   A[row * lda + p] * BT[column * ldbt + p]
 *   + beta * C[row * ldc + column]
 *
 * Each step loads WIDTH elements of both rows and adds WIDTH / 4 dot products
 * to one sum: hardware with a dot product instruction needs no additions of
 * lanes at the end. Against dot: one chain of additions, not WIDTH. POINTERS
 * 1: both advance along their rows; 0: they stay, and every load works its
 * index out. */
#include "common.clh"

#if !defined(WIDTH) || !defined(POINTERS)
#error "WIDTH, the elements of a vector, and POINTERS, 1 if they advance, must be defined"
#endif
#define VECTOR REALV(WIDTH)
#define LOAD(p) CAT(vload, WIDTH)(0, p)

/* four lanes one by one: Oclgrind takes swizzled parts of 16 lanes for uninitialised */
#define QUAD(v, p, q, r, t) ((REALV(4))(v.s##p, v.s##q, v.s##r, v.s##t))
#define PART(x, p, q, r, t, y) dot(QUAD(x, p, q, r, t), QUAD(y, p, q, r, t))

static inline REAL product(VECTOR a, VECTOR b)
{
#if WIDTH == 8
    return dot(a.lo, b.lo) + dot(a.hi, b.hi);
#elif WIDTH == 16
    return (PART(a, 0, 1, 2, 3, b) + PART(a, 4, 5, 6, 7, b)) + (PART(a, 8, 9, a, b, b) + PART(a, c, d, e, f, b));
#else
#error "WIDTH must be 8 or 16"
#endif
}

__kernel void dotf_rows(int m, int n, int k, SCALAR alpha,
                        __global const REAL *restrict A, int lda,
                        __global const REAL *restrict BT, int ldbt, SCALAR beta,
                        __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(BT, n, ldbt)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int column = get_global_id(0), row = get_global_id(1);
    if (row >= m || column >= n)
        return;

    REAL sum = 0;
#if POINTERS
    __global const REAL *a = A + (size_t)row * lda, *b = BT + (size_t)column * ldbt;
    int p = k;
    for (; p >= WIDTH; p -= WIDTH, a += WIDTH, b += WIDTH)
        sum += product(LOAD(a), LOAD(b));
    for (; p > 0; p--)
        sum += *a++ * *b++;
#else
    int p = 0;
    for (; p + WIDTH <= k; p += WIDTH)
        sum += product(LOAD(A + (size_t)row * lda + p), LOAD(BT + (size_t)column * ldbt + p));
    for (; p < k; p++)
        sum += A[(size_t)row * lda + p] * BT[(size_t)column * ldbt + p];
#endif

    __global REAL *c = C + (size_t)row * ldc + column;
    const REAL scaled = (REAL)alpha * sum;
    *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
}
