/* dot8: dot products of four signed bytes, added up in an int.
 *
 *    x -> b + dot(bytes of x, bytes of a) -> ...     four multiplications and four additions a step,
 *                                                    and all of them are counted
 *
 * The bytes of the last result are operands of the next step, which no compiler can fold. */
#define REAL_int
#include "common.clh"

#if WIDTH != 1
#error "WIDTH must be 1: a register of four bytes is the vector"
#endif

#if defined(FORM_KHRONOS) /* cl_khr_integer_dot_product */
#define DOT(x, a, b) ((b) + dot_4x8packed_ss_int((uint)(x), (uint)(a)))
#elif defined(FORM_KHRONOS_SAT)
#define DOT(x, a, b) dot_acc_sat_4x8packed_ss_int((uint)(x), (uint)(a), b)
#elif defined(FORM_ARM) /* cl_arm_integer_dot_product_accumulate_int8 */
#pragma OPENCL EXTENSION cl_arm_integer_dot_product_accumulate_int8 : enable
#define DOT(x, a, b) arm_dot_acc(as_char4(x), as_char4(a), b)
#elif defined(FORM_DP4A) /* NVIDIA, compute capability 6.1 */
static inline int dp4a(int x, int a, int b)
{
    int result;
    asm("dp4a.s32.s32 %0, %1, %2, %3;" : "=r"(result) : "r"(x), "r"(a), "r"(b));
    return result;
}
#define DOT(x, a, b) dp4a(x, a, b)
#elif defined(FORM_PLAIN) /* four products written out: what a device without the instruction makes of them */
static inline int dot(char4 x, char4 a, int b)
{
    return b + x.x * a.x + x.y * a.y + x.z * a.z + x.w * a.w;
}
#define DOT(x, a, b) dot(as_char4(x), as_char4(a), b)
#else
#error "one of FORM_KHRONOS, FORM_KHRONOS_SAT, FORM_ARM, FORM_DP4A, FORM_PLAIN must be defined"
#endif

#define SEED int
#define TOTAL int
#define SUM int
#define DECLARE                                                                                              \
    const int a = coefficients[0], b = coefficients[1];                                                      \
    int x[CHAINS];
#define LOAD(c, n) x[c] = seeds[n]
#define STEP(c) x[c] = DOT(x[c], a, b)
#define TO_TOTAL(c) x[c]
#define ADD_LANES(t) (t)

#include "peak/chains.clh"
