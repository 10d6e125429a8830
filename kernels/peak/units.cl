/* units: a CPU's instructions for short types, by inline assembly.
 *
 *       k               n                  A work-item computes D += A B for one row of A: 4 bytes, 2 bfloat16 or
 *    +-----+        +-------+              1 half, repeated over a register, and 64 bytes of B by columns. Lane j
 *  1 |  A  |  x   k |  B_c  |   += D_c     of D gets the sum of the products with column j.
 *    +-----+        +-------+
 *
 * Each of CHAINS sums has a register of its own, so that the unit is full. Steps alternate between two rows of A; the
 * host makes the second the negative of the first where values should stay bounded. Counted are 2 m n k operations
 * for each instruction. Of bytes, B's are unsigned.
 *
 * All is one statement with fixed registers, because drivers do not take these as operands. */
#if !defined(CHAINS) || !defined(UNROLL)
#error "CHAINS and UNROLL must be defined"
#endif
#if CHAINS != 24
#error "CHAINS must be 24: registers 8 to 31"
#endif

#define TILES 4 /* different rows of A in pairs, and of B */

#if defined(VNNI_char_int) /* m1n16k4 */
#define UNIT vnni
#define INSTRUCTION "vpdpbusd"
#define REPEAT "vpbroadcastd"
#define ROW uint
#elif defined(BF16_bfloat16_float) /* m1n16k2 */
#define UNIT bf16
#define INSTRUCTION "vdpbf16ps"
#define REPEAT "vpbroadcastd"
#define ROW uint
#elif defined(FP16_half_half) /* m1n32k1 */
#define UNIT fp16
#define INSTRUCTION "vfmadd231ph"
#define REPEAT "vpbroadcastw"
#define ROW ushort
#else
#error "one of VNNI_char_int, BF16_bfloat16_float, FP16_half_half must be defined"
#endif

#define ONE(a, b, d) INSTRUCTION " %%zmm" #a ", %%zmm" #b ", %%zmm" #d "\n"
#define FOUR(a, d0, d1, d2, d3) ONE(a, 4, d0) ONE(a, 5, d1) ONE(a, 6, d2) ONE(a, 7, d3)
#define ALL(a)                                                                                               \
    FOUR(a, 8, 9, 10, 11) FOUR(a, 12, 13, 14, 15) FOUR(a, 16, 17, 18, 19) FOUR(a, 20, 21, 22, 23)            \
    FOUR(a, 24, 25, 26, 27) FOUR(a, 28, 29, 30, 31)
#if UNROLL == 2
#define STEPS ALL(0) ALL(1)
#elif UNROLL == 4
#define STEPS ALL(0) ALL(1) ALL(0) ALL(1)
#endif
#define CLEAR(d) "vpxorq %%zmm" #d ", %%zmm" #d ", %%zmm" #d "\n"
#define STORE(d, at) "vmovdqu64 %%zmm" #d ", " #at "*64(%3)\n"
#define EACH(OF)                                                                                             \
    OF(8, 0) OF(9, 1) OF(10, 2) OF(11, 3) OF(12, 4) OF(13, 5) OF(14, 6) OF(15, 7) OF(16, 8) OF(17, 9)         \
    OF(18, 10) OF(19, 11) OF(20, 12) OF(21, 13) OF(22, 14) OF(23, 15) OF(24, 16) OF(25, 17) OF(26, 18)        \
    OF(27, 19) OF(28, 20) OF(29, 21) OF(30, 22) OF(31, 23)
#define CLEARED(d, at) CLEAR(d)

/* a_tiles: TILES pairs of a ROW; b_tiles: TILES times 64 bytes; results: CHAINS times 64 bytes for each work-item. */
__kernel __attribute__((reqd_work_group_size(1, 1, 1))) void UNIT(__global const ROW *restrict a_tiles,
                                                                  __global const uint16 *restrict b_tiles,
                                                                  __global uint16 *restrict results, int trips)
{
    const int item = get_global_id(0);
    __global const ROW *a = a_tiles + item % TILES * 2, *negative = a + 1;
    __global uint16 *d = results + (size_t)item * CHAINS;
    __asm__ volatile(REPEAT " (%1), %%zmm0\n" REPEAT " (%4), %%zmm1\n"
                     "vmovdqu64 (%2), %%zmm4\n vmovdqu64 64(%2), %%zmm5\n"
                     "vmovdqu64 128(%2), %%zmm6\n vmovdqu64 192(%2), %%zmm7\n"
                     EACH(CLEARED)
                     "testl %0, %0\n jle 2f\n"
                     "1:\n" STEPS "decl %0\n jnz 1b\n"
                     "2:\n" EACH(STORE) "vzeroupper\n"
                     : "+r"(trips)
                     : "r"(a), "r"(b_tiles), "r"(d), "r"(negative)
                     : "memory", "cc");
}
