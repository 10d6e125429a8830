/* flops: what the arithmetic units can do.
 *
 *    chain 0:  x0 -> x0*a+b -> ... -> ...        each arrow waits for the one before it;
 *    chain 1:  x1 -> x1*a+b -> ... -> ...        chains are independent, so that a pipeline
 *    ...                                         of latency L is full with L of them
 *
 * A work-item runs CHAINS recurrences of WIDTH lanes, UNROLL steps in a trip of the loop. Every step of a lane
 * is one multiplication and one addition, and all of them are counted. Start values and coefficients come
 * from memory, different for every chain and lane, so that the compiler can neither fold nor merge; the sum
 * of all is stored, so that it cannot drop anything. |a| < 1 keeps values finite and a < 0 keeps them moving. */
#include "common.clh"

#if !defined(WIDTH) || !defined(UNROLL)
#error "WIDTH and UNROLL must be defined"
#endif

#define VECTOR REALV(WIDTH)
#if WIDTH == 1
#define LOAD(offset, p) ((p)[offset])
#else
#define LOAD(offset, p) CAT(vload, WIDTH)(offset, p)
#endif

#if defined(FORM_EXPRESSION)
#define STEP(c) x[c] = x[c] * a + b
#elif defined(FORM_FMA)
#define STEP(c) x[c] = fma(x[c], a, b)
#elif defined(FORM_MAD)
#define STEP(c) x[c] = mad(x[c], a, b)
#elif defined(FORM_SQUARE) /* quadratic: steps cannot be folded into one */
#define STEP(c) x[c] = x[c] * x[c] + b
#elif defined(FORM_CROSS) /* the neighbouring chain is the multiplier */
#define STEP(c) x[c] = x[c] * x[((c) + 1) % CHAINS] + b
#else
#error "one of FORM_EXPRESSION, FORM_FMA, FORM_MAD, FORM_SQUARE, FORM_CROSS must be defined"
#endif

#define SEEDS 4096 /* elements of the seed buffer */

static inline REAL add_lanes(VECTOR v)
{
#if WIDTH == 1
    return v;
#else
    REAL lanes[WIDTH];
    CAT(vstore, WIDTH)(v, 0, lanes);
    REAL sum = 0;
    for (int i = 0; i < WIDTH; i++)
        sum += lanes[i];
    return sum;
#endif
}

/* -DCHAINS_1, -DCHAINS_2 ...: a kernel each; compiling those that are not raced would take most of the time */
#ifdef CHAINS_1
#define CHAINS 1
#include "peak/flops_body.clh"
#undef CHAINS
#endif
#ifdef CHAINS_2
#define CHAINS 2
#include "peak/flops_body.clh"
#undef CHAINS
#endif
#ifdef CHAINS_4
#define CHAINS 4
#include "peak/flops_body.clh"
#undef CHAINS
#endif
#ifdef CHAINS_8
#define CHAINS 8
#include "peak/flops_body.clh"
#undef CHAINS
#endif
#ifdef CHAINS_12
#define CHAINS 12
#include "peak/flops_body.clh"
#undef CHAINS
#endif
#ifdef CHAINS_16
#define CHAINS 16
#include "peak/flops_body.clh"
#undef CHAINS
#endif
