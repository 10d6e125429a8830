/* gemmbench
name        = "buffer-4x8"
family      = "vendor samples"
idea        = "image-4x8 with B in a buffer"
source      = "gemmbench, to isolate the image of Qualcomm's Matrix Multiply on Adreno GPUs"
types       = ["float", "half"]
work_group  = ["WX", "WY"]
work_items  = ["ceil_div(n, 4)", "ceil_div(m, 8)"]
any_group   = true
batches     = true
options     = ["-cl-fast-relaxed-math"]
choose      = "article_shape"
extents     = { nw = "round_up(n, 4)" }
temporaries = { BP = "min(ldb % 4, 1) * k * nw" }

[parameters]
WX = { values = [4, 8, 16, 32], launch = true, idea = "pixels of C across a work-group" }
WY = { values = [1, 2, 4, 8, 16], launch = true, idea = "micro-tiles of C down a work-group" }

[[launches]]
copy       = "pad"
arguments  = ["k", "n", "B", "ldb", "k", "nw", "BP"]
when       = ["ldb % 4 > 0"]

[[launches]]
arguments  = ["m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc"]
when       = ["m >= 8", "ldb % 4 == 0"]

[[launches]]
arguments  = ["m", "n", "k", "alpha", "A", "lda", "BP", "nw", "beta", "C", "ldc"]
when       = ["m >= 8", "ldb % 4 > 0"]

[[launches]]
kernel     = "buffer_4x1"
arguments  = ["m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc"]
work_items = ["ceil_div(n, 4)", "m"]
when       = ["m < 8", "ldb % 4 == 0"]

[[launches]]
kernel     = "buffer_4x1"
arguments  = ["m", "n", "k", "alpha", "A", "lda", "BP", "nw", "beta", "C", "ldc"]
work_items = ["ceil_div(n, 4)", "m"]
when       = ["m < 8", "ldb % 4 > 0"]
*/
/* buffer-4x8: image-4x8 with B in a buffer, everything else alike: what the
 * texture cache brings is their ratio.
 *
 *                       n / 4 vectors of 4 columns
 *                      +-----+-----+-----+
 *                      |     |[b0] |     |
 *              k       |  B  |[b1] |     |
 *      +---+------+----|     |[b2] |     |
 *      |   |[a0]  |    |     |[b3] |     |
 *    m |   |[..]  |    +-----+-----+-----+
 *      |   |[a7]  |    |     | C   |     |
 *      +---+------+    +-----+-----+-----+
 *
 * step of four along k: four vectors of B, eight 4-vectors of A
 *
 * acc[i] += a[i].s0 * b0 + a[i].s1 * b1 + a[i].s2 * b2 + a[i].s3 * b3
 *
 * acc[i] = C[(8 y + i) * ldc + 4 x ... 4 x + 3]
 *
 * b of (x, p) = B[p * ldb + 4 x ... 4 x + 3]
 *
 * Rows of B start at whole vectors: where ldb is no multiple of 4 a pass pads
 * them. A vector may hold what lies past n, which reaches no element of C. A's
 * loads, the tile, the work-groups and the few rows of buffer_4x1 are those of
 * image-4x8. B and A come by the same path here, where the image has one of
 * its own; no pass copies B, where image-4x8 copies it: compare the kernel
 * scope for the cache, the device scope for the whole. */
#include "common.clh"

#define PIXEL REALV(4)
#define READ(x, p) (*(__global const PIXEL *)(B + (size_t)(p) * ldb + 4 * (x)))

static inline void store(__global REAL *c, PIXEL sums, int left, SCALAR alpha, SCALAR beta)
{
    const PIXEL scaled = (REAL)alpha * sums;
    if (left >= 4) {
        vstore4(beta == 0 ? scaled : scaled + (REAL)beta * vload4(0, c), 0, c);
        return;
    }
    const REAL lanes[4] = {scaled.s0, scaled.s1, scaled.s2, scaled.s3};
    for (int j = 0; j < left; j++)
        c[j] = beta == 0 ? lanes[j] : lanes[j] + (REAL)beta * c[j];
}

__kernel void buffer_4x8(int m, int n, int k, SCALAR alpha, __global const REAL *restrict A, int lda,
                         __global const REAL *restrict B, int ldb, SCALAR beta, __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int x = get_global_id(0), row = 8 * get_global_id(1), column = 4 * x;
    if (row >= m || column >= n)
        return;

    __global const REAL *a[8];
    PIXEL acc[8];
    #pragma unroll
    for (int i = 0; i < 8; i++) {
        a[i] = A + (size_t)min(row + i, m - 1) * lda;
        acc[i] = (PIXEL)(0);
    }

    int p = 0;
    for (; p + 4 <= k; p += 4) {
        const PIXEL b0 = READ(x, p), b1 = READ(x, p + 1);
        const PIXEL b2 = READ(x, p + 2), b3 = READ(x, p + 3);
        #pragma unroll
        for (int i = 0; i < 8; i++) {
            const PIXEL v = vload4(0, a[i] + p);
            acc[i] += v.s0 * b0;
            acc[i] += v.s1 * b1;
            acc[i] += v.s2 * b2;
            acc[i] += v.s3 * b3;
        }
    }
    for (; p < k; p++) {
        const PIXEL b = READ(x, p);
        #pragma unroll
        for (int i = 0; i < 8; i++)
            acc[i] += a[i][p] * b;
    }

    #pragma unroll
    for (int i = 0; i < 8; i++)
        if (row + i < m)
            store(C + (size_t)(row + i) * ldc + column, acc[i], n - column, alpha, beta);
}

__kernel void buffer_4x1(int m, int n, int k, SCALAR alpha, __global const REAL *restrict A, int lda,
                         __global const REAL *restrict B, int ldb, SCALAR beta, __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int x = get_global_id(0), row = get_global_id(1), column = 4 * x;
    if (row >= m || column >= n)
        return;

    __global const REAL *a = A + (size_t)row * lda;
    PIXEL acc[4] = {(PIXEL)(0), (PIXEL)(0), (PIXEL)(0), (PIXEL)(0)};
    int p = 0;
    for (; p + 4 <= k; p += 4) {
        const PIXEL v = vload4(0, a + p);
        acc[0] += v.s0 * READ(x, p);
        acc[1] += v.s1 * READ(x, p + 1);
        acc[2] += v.s2 * READ(x, p + 2);
        acc[3] += v.s3 * READ(x, p + 3);
    }
    for (; p < k; p++)
        acc[0] += a[p] * READ(x, p);
    store(C + (size_t)row * ldc + column, (acc[0] + acc[1]) + (acc[2] + acc[3]), n - column, alpha, beta);
}
