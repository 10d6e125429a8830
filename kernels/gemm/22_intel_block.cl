/* gemmbench
name        = "intel-block"
family      = "ours"
idea        = "sub-group block reads (Intel's drivers)"
source      = "gemmbench; Intel's extension cl_intel_subgroups describes the block reads"
work_group  = ["LANES", "GY"]
tile        = ["GY * TM", "LANES * TN"]
batches     = true
extensions  = ["cl_intel_subgroups", "cl_intel_required_subgroup_size"]
sub_group   = "LANES"
constraints = [
    ["(TN - 2) * (TN - 4) * (TN - 8) == 0", "TN is 2, 4 or 8: block reads come in these widths"],
]

[parameters]
LANES = { values = [8, 16, 32], default = 16, idea = "work-items of a sub-group; the device must have sub-groups of that" }
GY    = { values = [1, 2, 4, 8], default = 4, idea = "sub-groups in a work-group, one below the other" }
TM    = { values = [4, 8, 16], default = 8, idea = "rows of C of a sub-group" }
TN    = { values = [2, 4, 8], default = 4, idea = "columns of C of a lane: elements of a block read" }

[presets]
"default:double"   = { TN = 2 }
cpu-intel          = { LANES = 8, TN = 2 }
"cpu-intel:double" = { TM = 4 }

[type_extensions]
double = ["cl_intel_subgroups_long"]
half   = ["cl_intel_subgroups_short"]

[not_on]                # though it lists the first extension
pocl = "PoCL lists cl_intel_subgroups, and does not link its functions"
*/
/* intel-block: block reads bring operands to a sub-group, shuffles hand A's
 * values round; nothing else moves data.
 *
 *                BN = LANES * TN
 *             +--------+--------+- -
 *          B  |0 1 ... |0 1 ... |
 *             +--------+--------+- -
 *      +----+ +--------+--------+- -
 *   TM | A  | |0 1 ... |0 1 ... |
 *      +----+ +--------+--------+- -
 *      LANES
 *
 * A work-group is GY sub-groups, one below the other; each makes TM rows and
 * BN columns of C. A block read takes LANES * TN neighbouring elements of a
 * row at once, and lane x gets those at x, x + LANES, x + 2 * LANES ...
 *
 * acc[i][j] += A[(row0 + i) * lda + p] * B[p * ldb + column0 + j * LANES + x]
 *
 * A comes in blocks of TM x LANES: A[(row0 + i) * lda + p0 + x] is in lane x.
 *
 * One message moves what a row of lanes needs, where each lane would send an
 * address of its own; and a shuffle from a lane that is known when compiling
 * costs nothing on Intel's GPUs: it is an operand in another lane's part of
 * the register. So there is no local memory, no barrier and no pass before the
 * multiplication.
 *
 * A block read asks for 4-byte alignment, and minds no edge. Where columns end
 * within the block, where k does, and where a row of halves may start at an
 * odd one, each lane loads for itself, if its element is there. */
#include "common.clh"

#if !defined(LANES) || !defined(GY) || !defined(TM) || !defined(TN)
#error "LANES, GY, TM and TN must be defined"
#endif

#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#pragma OPENCL EXTENSION cl_intel_required_subgroup_size : enable

/* Block reads know unsigned integers alone: of 32 bits, and by extensions of their own of 16 and of 64. */
#if defined(REAL_double)
#define BITS ulong
#define BLOCK_READ intel_sub_group_block_read_ul
#elif defined(REAL_half)
#define BITS ushort
#define BLOCK_READ intel_sub_group_block_read_us
#else
#define BITS uint
#define BLOCK_READ intel_sub_group_block_read
#endif

#define VECTOR REALV(TN)
#define BM (GY * TM)
#define BN (LANES * TN)

/* Four bytes are what a block read asks for: rows of halves have them if their distance is even. */
#define ALIGNED(ld) (sizeof(REAL) >= 4 || (ld) % 2 == 0)

#define BLOCK_A(i, p0) CAT(as_, REAL)(BLOCK_READ((__global const BITS *)(row_of_a[i] + (p0))))
#define BLOCK_B(p) CAT(as_, VECTOR)(CAT(BLOCK_READ, TN)((__global const BITS *)(B + (size_t)(p) * ldb + column0)))
#define PLAIN_A(i, p0) ((p0) + x < k ? row_of_a[i][(p0) + x] : (REAL)0)
#define PLAIN_B(p) plain(B + (size_t)(p) * ldb, column0 + x, n)

/* acc += `count` columns of A times as many rows of B, from p0 on. */
#define STEPS(A_AT, B_AT, p0, count) \
    { \
        REAL a[TM]; \
        _Pragma("unroll") for (int i = 0; i < TM; i++) a[i] = A_AT(i, p0); \
        _Pragma("unroll") for (int lane = 0; lane < (count); lane++) { \
            const VECTOR b = B_AT((p0) + lane); \
            _Pragma("unroll") for (int i = 0; i < TM; i++) acc[i] += intel_sub_group_shuffle(a[i], lane) * b; \
        } \
    }

/* What a block read would bring to this lane, zeros past the row's end. */
static inline VECTOR plain(__global const REAL *row, int column, int n)
{
    REAL values[TN];
    #pragma unroll
    for (int j = 0; j < TN; j++)
        values[j] = column + j * LANES < n ? row[column + j * LANES] : (REAL)0;
    return CAT(vload, TN)(0, values);
}

__kernel __attribute__((reqd_work_group_size(LANES, GY, 1))) __attribute__((intel_reqd_sub_group_size(LANES)))
void intel_block(int m, int n, int k, SCALAR alpha, __global const REAL *restrict A, int lda,
                 __global const REAL *restrict B, int ldb, SCALAR beta, __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int x = get_sub_group_local_id();
    const int row0 = get_group_id(1) * BM + get_local_id(1) * TM, column0 = get_group_id(0) * BN;
    if (row0 >= m) /* a whole sub-group, and nobody waits for it */
        return;

    __global const REAL *row_of_a[TM];
    VECTOR acc[TM];
    #pragma unroll
    for (int i = 0; i < TM; i++) {
        row_of_a[i] = A + (size_t)min(row0 + i, m - 1) * lda; /* past the edge: the last row again, not stored */
        acc[i] = (VECTOR)(0);
    }

    int p0 = 0;
    if (column0 + BN <= n && ALIGNED(lda) && ALIGNED(ldb))
        for (; p0 + LANES <= k; p0 += LANES)
            STEPS(BLOCK_A, BLOCK_B, p0, LANES)
    else
        for (; p0 + LANES <= k; p0 += LANES)
            STEPS(PLAIN_A, PLAIN_B, p0, LANES)
    if (p0 < k)
        STEPS(PLAIN_A, PLAIN_B, p0, k - p0)

    #pragma unroll
    for (int i = 0; i < TM; i++) {
        REAL sums[TN];
        CAT(vstore, TN)((REAL)alpha * acc[i], 0, sums);
        #pragma unroll
        for (int j = 0; j < TN; j++) {
            const int row = row0 + i, column = column0 + j * LANES + x;
            if (row < m && column < n) {
                __global REAL *c = C + (size_t)row * ldc + column;
                *c = beta == 0 ? sums[j] : sums[j] + (REAL)beta * *c;
            }
        }
    }
}
