/* flops: what the arithmetic units can do.
 *
 *    x -> x*a+b -> (x*a+b)*a+b -> ...            one multiplication and one addition a step and lane,
 *                                                and all of them are counted
 *
 * In floating point |a| < 1 keeps values finite and a < 0 keeps them moving. Integers are unsigned, so that they
 * wrap around and the compiler may assume nothing of them; their steps are quadratic, since linear ones could be
 * folded into one. */
#include "common.clh"
#include "peak/lanes.clh"

#if defined(FORM_EXPRESSION)
#define STEP(c) x[c] = x[c] * a + b
#elif defined(FORM_FMA)
#define STEP(c) x[c] = fma(x[c], a, b)
#elif defined(FORM_MAD)
#define STEP(c) x[c] = mad(x[c], a, b)
#elif defined(FORM_SQUARE)
#define STEP(c) x[c] = x[c] * x[c] + b
#elif defined(FORM_CROSS) /* the neighbouring chain is the multiplier */
#define STEP(c) x[c] = x[c] * x[((c) + 1) % CHAINS] + b
#else
#error "one of FORM_EXPRESSION, FORM_FMA, FORM_MAD, FORM_SQUARE, FORM_CROSS must be defined"
#endif

#define SEED REAL
#define TOTAL VECTOR
#define SUM REAL
#define DECLARE                                                                                              \
    const VECTOR a = VECTOR_AT(0, coefficients), b = VECTOR_AT(1, coefficients);                             \
    VECTOR x[CHAINS];
#define LOAD(c, n) x[c] = VECTOR_AT(n, seeds)
#define TO_TOTAL(c) x[c]
#define ADD_LANES(t) add_lanes(t)

#include "peak/chains.clh"
