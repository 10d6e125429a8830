/* gemmbench
name       = "naive-fp8"
family     = "ours"
idea       = "naive for fp8, with a lookup table"
source     = "gemmbench; the formats as OCP's 8-bit floating point specification defines them"
types      = ["e4m3", "e4m3-half", "e4m3-bfloat16", "e5m2", "e5m2-half", "e5m2-bfloat16"]
work_group = ["WX", "WY"]
work_items = ["n", "m"]
any_group  = true
batches    = true

[parameters]
WX = { values = [8, 16, 32], default = 16, launch = true, idea = "columns of C across a work-group" }
WY = { values = [1, 2, 4, 8, 16], default = 16, launch = true, idea = "rows of C down a work-group" }

[presets]
gpu   = { WX = 32, WY = 8 }
phone = { WX = 8, WY = 8 }
*/
/* naive-fp8: the naive kernel for bytes that are floating-point numbers, on
 * devices that know no such type.
 *
 *                  n
 *          k   +---|---+
 *              | B | k |
 *      +-------+---|---+
 *    m |===A===|   o C |
 *      +-------+-------+
 *
 * work-item (column, row):
 * C[row * ldc + column] =
 *   alpha * sum over p of VALUE[A[row * lda + p]] *
 *                         VALUE[B[p * ldb + column]]
 *   + beta * C[row * ldc + column]
 *
 * A table in constant memory says what each byte is worth: e4m3 has 4 bits of
 * exponent and 3 of mantissa, e5m2 has 5 and 2 (OCP, "8-bit floating point
 * specification"). Products of two are exact in float, in which the sum is
 * kept, and rounded once to C's type. Faster kernels for fp8 can be compared
 * with it. */
#include "common.clh"

/* NAN and INFINITY are calls in some drivers' headers, which no table can hold */
#define ENDLESS (0x1p127f * 0x1p127f)
#define NO_NUMBER (ENDLESS - ENDLESS)

#if defined(FP8_e4m3)
#define MANTISSAS(s) 8 * (s), 9 * (s), 10 * (s), 11 * (s), 12 * (s), 13 * (s), 14 * (s), 15 * (s)
#define POSITIVE(s)                                                                                          \
    0 * (s), 1 * (s), 2 * (s), 3 * (s), 4 * (s), 5 * (s), 6 * (s), 7 * (s), /* subnormal, in units of 2^-9 */ \
        MANTISSAS(s), MANTISSAS(2 * (s)), MANTISSAS(4 * (s)), MANTISSAS(8 * (s)), MANTISSAS(16 * (s)),       \
        MANTISSAS(32 * (s)), MANTISSAS(64 * (s)), MANTISSAS(128 * (s)), MANTISSAS(256 * (s)),                \
        MANTISSAS(512 * (s)), MANTISSAS(1024 * (s)), MANTISSAS(2048 * (s)), MANTISSAS(4096 * (s)),           \
        MANTISSAS(8192 * (s)), 8 * 16384 * (s), 9 * 16384 * (s), 10 * 16384 * (s), 11 * 16384 * (s),         \
        12 * 16384 * (s), 13 * 16384 * (s), 14 * 16384 * (s), NO_NUMBER
#define UNIT 0x1p-9f
#elif defined(FP8_e5m2)
#define MANTISSAS(s) 4 * (s), 5 * (s), 6 * (s), 7 * (s)
#define FOUR(s) MANTISSAS(s), MANTISSAS(2 * (s)), MANTISSAS(4 * (s)), MANTISSAS(8 * (s))
#define POSITIVE(s)                                                                                          \
    0 * (s), 1 * (s), 2 * (s), 3 * (s), /* subnormal, in units of 2^-16 */                                   \
        FOUR(s), FOUR(0x1p4f * (s)), FOUR(0x1p8f * (s)), FOUR(0x1p12f * (s)), FOUR(0x1p16f * (s)),           \
        FOUR(0x1p20f * (s)), FOUR(0x1p24f * (s)), MANTISSAS(0x1p28f * (s)), MANTISSAS(0x1p29f * (s)),        \
        (s) * ENDLESS, NO_NUMBER, NO_NUMBER, NO_NUMBER
#define UNIT 0x1p-16f
#else
#error "one of FP8_e4m3 and FP8_e5m2 must be defined"
#endif

__constant float VALUE[256] = {POSITIVE(UNIT), POSITIVE(-UNIT)};

/* C's type, which a device need not be able to compute with. */
#if defined(RESULT_half)
#define RESULT half
#define READ(c) vload_half(0, c)
#define WRITE(c, value) vstore_half_rte(value, 0, c)
#elif defined(RESULT_bfloat16)
#define RESULT ushort
#define READ(c) as_float((uint)*(c) << 16)
#define WRITE(c, value) (*(c) = rounded(value))
/* A float to the nearest bfloat16, ties to even: its upper half. */
static ushort rounded(float value)
{
    const uint bits = as_uint(value);
    return isnan(value) ? 0x7fff : (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
}
#elif defined(RESULT_float)
#define RESULT float
#define READ(c) (*(c))
#define WRITE(c, value) (*(c) = (value))
#else
#error "one of RESULT_half, RESULT_bfloat16 and RESULT_float must be defined"
#endif

__kernel void naive_fp8(int m, int n, int k, float alpha,
                        __global const REAL *restrict A, int lda,
                        __global const REAL *restrict B, int ldb, float beta,
                        __global RESULT *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int column = get_global_id(0), row = get_global_id(1);
    if (row >= m || column >= n)
        return;

    __global const REAL *a = A + (size_t)row * lda;
    __global const REAL *b = B + column;
    float sum = 0;
    for (int p = 0; p < k; p++)
        sum += VALUE[a[p]] * VALUE[b[(size_t)p * ldb]];

    __global RESULT *c = C + (size_t)row * ldc + column;
    const float scaled = alpha * sum;
    WRITE(c, beta == 0 ? scaled : scaled + beta * READ(c)); /* beta = 0 must not read C: it may hold NaN */
}
