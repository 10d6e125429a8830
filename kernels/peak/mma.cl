/* mma: NVIDIA's tensor cores, through mma.sync.
 *
 *          k                  n                 One warp computes D += A B for a tile of 16 x 8 by 8 words of
 *      +-------+          +-------+             operands along k (a word is a register: 2 halves, 4 bytes,
 *    m |   A   |  x   k   |  B_c  |   += D_c    1 tf32, 1 double). A register of A belongs to
 *      +-------+          +-------+                A[lane / 4 + 8 (r % 2)][lane % 4 + 4 (r / 2)]
 *                                               one of B, which is stored by columns, to
 *    a work-item holds 4 words of A, 2 of B        B[lane % 4 + 4 r][lane / 4]
 *    and 4 elements of D                        and the elements of D lie at
 *                                                  D[lane / 4 + 8 (e / 2)][2 (lane % 4) + e % 2]
 *
 * A warp runs CHAINS products with operands of their own, so that the pipeline is full. Steps alternate between two
 * tiles of A; the host makes the second the negative of the first where values should stay bounded. Operands come
 * from memory, different for each warp and chain; D is stored for the host to check. Counted are 2 m n k
 * operations for each instruction. */
#if !defined(CHAINS) || !defined(UNROLL)
#error "CHAINS and UNROLL must be defined"
#endif

#define TILES 16 /* different tiles of A and of B in the operand buffers */

#define FOUR_WORDS "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
#define TWO_WORDS "{%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"

#if defined(MMA_half_float)
#define INSTRUCTION "mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
#define IN_FLOAT
#elif defined(MMA_half_half)
#define INSTRUCTION "mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 "
#define IN_PAIRS
#elif defined(MMA_bfloat16_float)
#define INSTRUCTION "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
#define IN_FLOAT
#elif defined(MMA_tf32_float)
#define INSTRUCTION "mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
#define IN_FLOAT
#elif defined(MMA_fp8_float)
#define INSTRUCTION "mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
#define IN_FLOAT
#elif defined(MMA_char_int)
#define INSTRUCTION "mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
#define IN_INT
#elif defined(MMA_double_double)
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define INSTRUCTION "mma.sync.aligned.m16n8k8.row.col.f64.f64.f64.f64 "
#define IN_DOUBLE
#else
#error "one of MMA_half_float, MMA_half_half, MMA_bfloat16_float, MMA_tf32_float ... must be defined"
#endif

#if defined(IN_DOUBLE)
#define WORD double
#define WORD_KIND "d"
#else
#define WORD uint
#define WORD_KIND "r"
#endif

/* WORDS of D in a work-item, and where the w-th lies in the row-major tile of COLUMNS words */
#if defined(IN_PAIRS) /* two halves in a word */
#define WORDS 2
#define COLUMNS 4
#define PLACE(w) ((lane / 4 + 8 * (w)) * COLUMNS + lane % 4)
#else
#define WORDS 4
#define COLUMNS 8
#define PLACE(w) ((lane / 4 + 8 * ((w) / 2)) * COLUMNS + 2 * (lane % 4) + (w) % 2)
#endif

#if defined(IN_FLOAT)
#define RESULT float
#define RESULT_KIND "f"
#elif defined(IN_DOUBLE)
#define RESULT double
#define RESULT_KIND "d"
#elif defined(IN_INT)
#define RESULT int
#define RESULT_KIND "r"
#else
#define RESULT uint
#define RESULT_KIND "r"
#endif

static inline void multiply_add(RESULT *d, const WORD *a, const WORD *b)
{
#if WORDS == 4
    asm volatile(INSTRUCTION FOUR_WORDS
                 : "+" RESULT_KIND(d[0]), "+" RESULT_KIND(d[1]), "+" RESULT_KIND(d[2]), "+" RESULT_KIND(d[3])
                 : WORD_KIND(a[0]), WORD_KIND(a[1]), WORD_KIND(a[2]), WORD_KIND(a[3]), WORD_KIND(b[0]),
                   WORD_KIND(b[1]));
#else
    asm volatile(INSTRUCTION TWO_WORDS
                 : "+" RESULT_KIND(d[0]), "+" RESULT_KIND(d[1])
                 : WORD_KIND(a[0]), WORD_KIND(a[1]), WORD_KIND(a[2]), WORD_KIND(a[3]), WORD_KIND(b[0]),
                   WORD_KIND(b[1]));
#endif
}

/* a_tiles: TILES pairs of 16 rows of 8 words; b_tiles: TILES times 8 columns of 8 words; results: a tile for each warp and
 * chain. */
__kernel void mma(__global const WORD *restrict a_tiles, __global const WORD *restrict b_tiles, __global RESULT *restrict results,
                  int trips)
{
    const int lane = get_local_id(0) % 32, warp = get_global_id(0) / 32;
    WORD a[2][4], b[CHAINS][2];
    RESULT d[CHAINS][WORDS];
    #pragma unroll
    for (int pair = 0; pair < 2; pair++) {
        #pragma unroll
        for (int r = 0; r < 4; r++)
            a[pair][r] = a_tiles[((warp % TILES * 2 + pair) * 16 + lane / 4 + 8 * (r % 2)) * 8 + lane % 4 + 4 * (r / 2)];
    }
    #pragma unroll
    for (int c = 0; c < CHAINS; c++) {
        #pragma unroll
        for (int r = 0; r < 2; r++)
            b[c][r] = b_tiles[((warp * CHAINS + c) % TILES * 8 + lane / 4) * 8 + lane % 4 + 4 * r];
        #pragma unroll
        for (int w = 0; w < WORDS; w++)
            d[c][w] = 0;
    }

    for (int trip = 0; trip < trips; trip++) {
        #pragma unroll
        for (int step = 0; step < UNROLL; step++) {
            #pragma unroll
            for (int c = 0; c < CHAINS; c++)
                multiply_add(d[c], a[step % 2], b[c]);
        }
    }

    #pragma unroll
    for (int c = 0; c < CHAINS; c++) {
        #pragma unroll
        for (int w = 0; w < WORDS; w++)
            results[(warp * CHAINS + c) * 16 * COLUMNS + PLACE(w)] = d[c][w];
    }
}
