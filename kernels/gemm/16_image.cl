/* gemmbench
name       = "image-4x8"
family     = "vendor samples"
idea       = "B read through the texture cache"
source     = "Qualcomm, Matrix Multiply on Adreno GPUs, parts 1 and 2"
before     = "buffer-4x8"
types      = ["float", "half"]
work_group = ["WX", "WY"]
work_items = ["ceil_div(n, 4)", "ceil_div(m, 8)"]
any_group  = true
options    = ["-cl-fast-relaxed-math"]
choose     = "article_shape"

[parameters]
WX = { values = [4, 8, 16, 32], launch = true, idea = "pixels of C across a work-group" }
WY = { values = [1, 2, 4, 8, 16], launch = true, idea = "micro-tiles of C down a work-group" }

[images]
BI = { source = "B", rows = "k", columns = "n" }

[[launches]]
kernel     = "fill_image"
role       = "image"
arguments  = ["k", "n", "B", "ldb", "BI"]
work_group = [16, 8]
work_items = ["ceil_div(n, 4)", "k"]

[[launches]]
arguments  = ["m", "n", "k", "alpha", "A", "lda", "BI", "beta", "C", "ldc"]
when       = ["m >= 8"]

[[launches]]
kernel     = "image_4x1"
arguments  = ["m", "n", "k", "alpha", "A", "lda", "BI", "beta", "C", "ldc"]
work_items = ["ceil_div(n, 4)", "m"]
when       = ["m < 8"]
*/
/* image-4x8: B as an image, a micro-tile of 4 columns by 8 rows per work-item.
 *
 *                       n / 4 pixels of 4 columns
 *                      +-----+-----+-----+
 *                      |     |[b0] |     |
 *              k       |  B  |[b1] |     |
 *      +---+------+----|     |[b2] |     |
 *      |   |[a0]  |    |     |[b3] |     |
 *    m |   |[..]  |    +-----+-----+-----+
 *      |   |[a7]  |    |     | C   |     |
 *      +---+------+    +-----+-----+-----+
 *
 * step of four along k: four pixels of B, eight 4-vectors of A
 *
 * acc[i] += a[i].s0 * b0 + a[i].s1 * b1 + a[i].s2 * b2 + a[i].s3 * b3
 *
 * acc[i] = C[(8 y + i) * ldc + 4 x ... 4 x + 3]
 *
 * pixel (x, p) of B = B[p * ldb + 4 x ... 4 x + 3], zeros past n
 *
 * B comes through the texture cache while A comes through the other path, so
 * that neither waits for the other; C is written once. Rows past the edge are
 * the last row again: read in bounds, and not written. With few rows a work-
 * item of 8 rows would mostly repeat the last one: image_4x1 makes one row. */
#include "common.clh"

#if defined(REAL_half) && !defined(cl_khr_fp16) /* of NVIDIA's driver, which has no read_imageh */
static inline half4 to_half(float4 v) { return (half4)((half)v.s0, (half)v.s1, (half)v.s2, (half)v.s3); }
static inline float4 to_float(half4 v) { return (float4)((float)v.s0, (float)v.s1, (float)v.s2, (float)v.s3); }
#define READ(image, x, y) to_half(read_imagef(image, (int2)(x, y)))
#define WRITE(image, x, y, pixel) write_imagef(image, (int2)(x, y), to_float(pixel))
#elif defined(REAL_half)
#define READ(image, x, y) read_imageh(image, (int2)(x, y))
#define WRITE(image, x, y, pixel) write_imageh(image, (int2)(x, y), pixel)
#elif defined(REAL_float)
#define READ(image, x, y) read_imagef(image, (int2)(x, y))
#define WRITE(image, x, y, pixel) write_imagef(image, (int2)(x, y), pixel)
#else
#error "images hold float or half"
#endif
#define PIXEL REALV(4)

__kernel void fill_image(int k, int n, __global const REAL *restrict B, int ldb, __write_only image2d_t BI)
{
    const int x = get_global_id(0), p = get_global_id(1), column = 4 * x;
    if (p >= k || column >= n)
        return;
    __global const REAL *b = B + (size_t)p * ldb + column;
    const int left = n - column;
    WRITE(BI, x, p,
          (PIXEL)(b[0], left > 1 ? b[1] : (REAL)0, left > 2 ? b[2] : (REAL)0, left > 3 ? b[3] : (REAL)0));
}

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

__kernel void image_4x8(int m, int n, int k, SCALAR alpha, __global const REAL *restrict A, int lda,
                        __read_only image2d_t BI, SCALAR beta, __global REAL *restrict C, int ldc)
{
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
        const PIXEL b0 = READ(BI, x, p), b1 = READ(BI, x, p + 1);
        const PIXEL b2 = READ(BI, x, p + 2), b3 = READ(BI, x, p + 3);
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
        const PIXEL b = READ(BI, x, p);
        #pragma unroll
        for (int i = 0; i < 8; i++)
            acc[i] += a[i][p] * b;
    }

    #pragma unroll
    for (int i = 0; i < 8; i++)
        if (row + i < m)
            store(C + (size_t)(row + i) * ldc + column, acc[i], n - column, alpha, beta);
}

__kernel void image_4x1(int m, int n, int k, SCALAR alpha, __global const REAL *restrict A, int lda,
                        __read_only image2d_t BI, SCALAR beta, __global REAL *restrict C, int ldc)
{
    const int x = get_global_id(0), row = get_global_id(1), column = 4 * x;
    if (row >= m || column >= n)
        return;

    __global const REAL *a = A + (size_t)row * lda;
    PIXEL acc[4] = {(PIXEL)(0), (PIXEL)(0), (PIXEL)(0), (PIXEL)(0)};
    int p = 0;
    for (; p + 4 <= k; p += 4) {
        const PIXEL v = vload4(0, a + p);
        acc[0] += v.s0 * READ(BI, x, p);
        acc[1] += v.s1 * READ(BI, x, p + 1);
        acc[2] += v.s2 * READ(BI, x, p + 2);
        acc[3] += v.s3 * READ(BI, x, p + 3);
    }
    for (; p < k; p++)
        acc[0] += a[p] * READ(BI, x, p);
    store(C + (size_t)row * ldc + column, (acc[0] + acc[1]) + (acc[2] + acc[3]), n - column, alpha, beta);
}
