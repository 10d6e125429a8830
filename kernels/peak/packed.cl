/* packed: pairs of 16-bit floating-point numbers in 32-bit registers, by inline PTX.
 *
 *    register:  | x1 : x0 |  ->  | x1*a1+b1 : x0*a0+b0 |  ->  ...
 *
 * NVIDIA's OpenCL C has neither half nor bfloat16, the chip has both. WIDTH lanes are WIDTH / 2 registers; one
 * lane alone is a 16-bit register. The sums are added up in float. */
#define REAL_uint
#include "common.clh"

#if defined(FORM_HALF2)
#define NAME "f16"
static inline float widened(ushort bits)
{
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(bits));
    return wide;
}
#elif defined(FORM_BFLOAT2)
#define NAME "bf16"
static inline float widened(ushort bits)
{
    return as_float((uint)bits << 16);
}
#else
#error "one of FORM_HALF2, FORM_BFLOAT2 must be defined"
#endif

#if WIDTH == 1
#define REGISTER ushort
#define KIND "h"
#define INSTRUCTION "fma.rn." NAME
#define REGISTERS 1
static inline float added_up(REGISTER r)
{
    return widened(r);
}
#else
#define REGISTER uint
#define KIND "r"
#define INSTRUCTION "fma.rn." NAME "x2"
#define REGISTERS (WIDTH / 2)
static inline float added_up(REGISTER r)
{
    return widened(r & 0xffff) + widened(r >> 16);
}
#endif

static inline float add_registers(const REGISTER *x)
{
    float sum = 0;
    for (int r = 0; r < REGISTERS; r++)
        sum += added_up(x[r]);
    return sum;
}

#define SEED REGISTER
#define TOTAL float
#define SUM float
#define DECLARE                                                                                              \
    REGISTER a[REGISTERS], b[REGISTERS], x[CHAINS][REGISTERS];                                               \
    for (int r = 0; r < REGISTERS; r++) {                                                                    \
        a[r] = coefficients[r];                                                                              \
        b[r] = coefficients[REGISTERS + r];                                                                  \
    }
#define LOAD(c, n)                                                                                           \
    for (int r = 0; r < REGISTERS; r++)                                                                      \
        x[c][r] = seeds[(n) * REGISTERS + r]
#define STEP(c)                                                                                              \
    for (int r = 0; r < REGISTERS; r++)                                                                      \
        asm volatile(INSTRUCTION " %0, %0, %1, %2;" : "+" KIND(x[c][r]) : KIND(a[r]), KIND(b[r]))
#define TO_TOTAL(c) add_registers(x[c])
#define ADD_LANES(t) (t)

#include "peak/chains.clh"
