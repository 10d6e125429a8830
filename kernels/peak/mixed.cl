/* mixed: products of halves, added up in float.
 *
 *    h -> h + step -> h + 2 step -> ...          the half multiplier, another one in every step
 *    x -> x + h*g0 -> x + h*g0 + h'*g0 -> ...    a chain for each g: the float accumulator
 *
 * The multiplier's bits grow in every step by a number from memory, which turns its sign around and changes its mantissa;
 * the exponent is put back, so that it stays between 1/2 and 1. It takes 1024 steps or more to come back, so a compiler can
 * neither compute a product once for all nor widen in advance what will be needed. (An exclusive or with the same
 * bits is undone after two steps: with an even number of steps in a trip both values were widened before the loop,
 * and what was timed was plain float.) It is widened to float once a step and shared by all chains, as a GEMM shares what
 * it has loaded. Counted are the multiplication and the addition of every chain; the widening is the price of
 * half operands and is not counted. Half is only stored here, so that any device takes this. */
#define REAL_float
#include "common.clh"
#include "peak/lanes.clh"

#if WIDTH == 1
#define BITS ushort
#else
#define BITS CAT(ushort, WIDTH)
#endif

#if defined(FORM_VLOAD) /* core OpenCL C: half is a type to store */
static inline VECTOR widened(BITS bits)
{
#if WIDTH == 1
    return vload_half(0, (const half *)&bits);
#else
    return CAT(vload_half, WIDTH)(0, (const half *)&bits);
#endif
}
#elif defined(FORM_CONVERT) /* cl_khr_fp16 */
#pragma OPENCL EXTENSION cl_khr_fp16 : enable
static inline VECTOR widened(BITS bits)
{
#if WIDTH == 1
    return convert_float(as_half(bits));
#else
    return CAT(convert_float, WIDTH)(CAT(as_half, WIDTH)(bits));
#endif
}
#else
#error "one of FORM_VLOAD, FORM_CONVERT must be defined"
#endif

#define SIGN_AND_MANTISSA 0x83ff
#define EXPONENT 0x3800 /* of 1/2; the bit below it is clear, and takes what the mantissa carries */

#define SEED ushort
#define TOTAL VECTOR
#define SUM float
#define BITS_AT(n, p) (((__global const BITS *)(p))[n])
#define DECLARE                                                                                              \
    BITS h = BITS_AT(0, coefficients);                                                                       \
    const BITS growth = BITS_AT(1, coefficients);                                                              \
    VECTOR x[CHAINS], g[CHAINS];
#define LOAD(c, n) x[c] = g[c] = widened(BITS_AT(n, seeds))
#define BEFORE_STEP                                                                                          \
    h = ((h + growth) & (BITS)SIGN_AND_MANTISSA) | (BITS)EXPONENT;                                           \
    const VECTOR multiplier = widened(h);
#define STEP(c) x[c] = fma(multiplier, g[c], x[c])
#define TO_TOTAL(c) x[c]
#define ADD_LANES(t) add_lanes(t)

#include "peak/chains.clh"
