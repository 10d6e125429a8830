/* gemmbench
name        = "dot-v{WIDTH}"
family      = "mobile"
idea        = "dot products of rows, width {WIDTH}"
source      = "Profiling GEMM on Android (Mali-T760); Gronqvist and Lokhotmov, GPU Pro 5"
kernel      = "dot_rows"
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
WIDTH    = { values = [4, 8, 16], idea = "elements of a vector" }
WX       = { values = [4, 8, 16], default = 8, launch = true, idea = "columns of C across a work-group" }
WY       = { values = [1, 4, 8, 16], default = 8, launch = true, idea = "rows of C down a work-group" }
POINTERS = { values = [0, 1], default = 1, idea = "1: pointers advance along the rows; 0: every load is indexed" }

[named.indexed]
idea   = "pointers stay, every load is indexed"
values = { POINTERS = 0 }
*/
/* dot: B transposed, every element of C a dot product of two contiguous rows,
 * WIDTH elements at a time.
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
 * For GPUs with few registers for a work-item and no fast local memory: no
 * tile, no barrier. Lanes gather apart and are added at the end. k that is not
 * a multiple of WIDTH ends in scalar steps.
 *
 * POINTERS 1: both advance along their rows, an addition each for a step.
 * POINTERS 0: they stay, and every load works its index out: A[row * lda + p].
 * A compiler may make the same of both. */
#include "common.clh"

#if !defined(WIDTH) || !defined(POINTERS)
#error "WIDTH, the elements of a vector, and POINTERS, 1 if they advance, must be defined"
#endif
#define VECTOR REALV(WIDTH)
#define LOAD(p) CAT(vload, WIDTH)(0, p)

static inline REAL add_lanes(VECTOR v)
{
#if WIDTH == 4
    return (v.s0 + v.s1) + (v.s2 + v.s3);
#elif WIDTH == 8
    return ((v.s0 + v.s1) + (v.s2 + v.s3)) + ((v.s4 + v.s5) + (v.s6 + v.s7));
#elif WIDTH == 16
    return (((v.s0 + v.s1) + (v.s2 + v.s3)) + ((v.s4 + v.s5) + (v.s6 + v.s7)))
         + (((v.s8 + v.s9) + (v.sa + v.sb)) + ((v.sc + v.sd) + (v.se + v.sf)));
#else
#error "WIDTH must be 4, 8 or 16"
#endif
}

__kernel void dot_rows(int m, int n, int k, SCALAR alpha,
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

    VECTOR lanes = (VECTOR)(0);
#if POINTERS
    __global const REAL *a = A + (size_t)row * lda;
    __global const REAL *b = BT + (size_t)column * ldbt;
    int p = k;
    for (; p >= WIDTH; p -= WIDTH) {
        lanes += LOAD(a) * LOAD(b);
        a += WIDTH;
        b += WIDTH;
    }
    REAL sum = add_lanes(lanes);
    for (; p > 0; p--)
        sum += *a++ * *b++;
#else
    int p = 0;
    for (; p + WIDTH <= k; p += WIDTH)
        lanes += LOAD(A + (size_t)row * lda + p) * LOAD(BT + (size_t)column * ldbt + p);
    REAL sum = add_lanes(lanes);
    for (; p < k; p++)
        sum += A[(size_t)row * lda + p] * BT[(size_t)column * ldbt + p];
#endif

    __global REAL *c = C + (size_t)row * ldc + column;
    const REAL scaled = (REAL)alpha * sum;
    *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
}
