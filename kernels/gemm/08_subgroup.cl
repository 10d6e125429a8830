/* gemmbench
name        = "subgroup"
family      = "first steps"
idea        = "sub-group shuffles, no local memory"
source      = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 8"
work_group  = ["LANES", "GY"]
tile        = ["GY * TM", "LANES * TN"]
batches     = true
extensions  = ["cl_khr_subgroup_shuffle|cl_intel_subgroups", "cl_intel_required_subgroup_size"]
sub_group   = "max(2 - EXCHANGE, 0) * LANES"
temporaries = { AP = "mp * kp", BP = "kp * np" }
constraints = [
    ["TN % WIDTH == 0", "TN must be a multiple of WIDTH, to be whole vectors"],
    ["EXCHANGE <= 2", "EXCHANGE is 1 (shuffle) or 2 (read-only path)"],
]

[parameters]
LANES    = { values = [8, 16, 32], default = 16, idea = "work-items in a row of the group: a sub-group" }
GY       = { values = [1, 2, 4, 8], default = 4, idea = "rows of work-items in a group" }
TM       = { values = [4, 8, 16], default = 8, idea = "rows of C of a work-item" }
TN       = { values = [4, 8], idea = "columns of C of a work-item" }
WIDTH    = { values = [2, 4, 8], default = 4, idea = "elements of a vector" }
EXCHANGE = { values = [1, 2], default = 2, idea = "1: A's values by shuffle; 2: by the read-only path" }

[presets]
cpu          = { LANES = 8, TM = 16, TN = 8, WIDTH = 8 }
cpu-intel    = { TM = 8, WIDTH = 4 }
gpu          = { LANES = 32, GY = 8, TM = 16 }
"gpu:double" = { LANES = 8, GY = 4, TM = 8, TN = 8 }
gpu-intel    = { LANES = 16, EXCHANGE = 1 }
phone        = { LANES = 8, GY = 8, TM = 4, TN = 4, WIDTH = 4 }

[extents]
mp = "round_up(m, GY * TM)"
np = "round_up(n, LANES * TN)"
kp = "round_up(k, (2 - EXCHANGE) * LANES + (EXCHANGE - 1) * WIDTH)"

[[launches]]
copy       = "pad"
arguments  = ["m", "k", "A", "lda", "mp", "kp", "AP"]

[[launches]]
copy       = "pad"
arguments  = ["k", "n", "B", "ldb", "kp", "np", "BP"]

[[launches]]
arguments  = ["m", "n", "alpha", "np", "kp", "AP", "BP", "beta", "C", "ldc"]
*/
/* subgroup: no local memory: fragments of A and B go from global memory to
 * registers, and the work-items of a sub-group share them.
 *
 *                 BN
 *              +------+
 *           kp |  BP  |
 *        kp    +------+
 *      +----+  +------+
 *   BM | AP |  |  C   |
 *      +----+  +------+
 *
 * AP (mp x kp) is A, BP (kp x np) is B, both padded with zeros to whole tiles.
 * A work-group is LANES work-items wide: a row of them is one sub-group.
 *
 * Work-item (x, y) owns TM rows from y * TM on and the vectors x, x + LANES
 * ... of WIDTH columns:
 *
 * acc[i][j] += AP[(row0 + i) * kp + p] * BP[p * np + column0 ...]
 *
 * EXCHANGE says how a sub-group shares the values of A, which all of its work-
 * items need: 1 by shuffle: lane l loads AP[row][p0 + l], and hands it to the
 * others when their p is p0 + l; 2 by the read-only path: all lanes load the
 * same vector of A's row at once, which a GPU makes one access. The tutorial's
 * eighth step had its vendor's shuffles and texture path; sub-groups are what
 * OpenCL has. */
#include "common.clh"

#if !defined(LANES) || !defined(GY) || !defined(TM) || !defined(TN) || !defined(WIDTH) || !defined(EXCHANGE)
#error "LANES, GY, TM, TN, WIDTH and EXCHANGE must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define BM (GY * TM)
#define BN (LANES * TN)

#if EXCHANGE == 1
#if defined(cl_khr_subgroup_shuffle)
#pragma OPENCL EXTENSION cl_khr_subgroup_shuffle : enable
#define SHUFFLE(value, lane) sub_group_shuffle(value, lane)
#else
#pragma OPENCL EXTENSION cl_intel_subgroups : enable
#define SHUFFLE(value, lane) intel_sub_group_shuffle(value, lane)
#endif
#if defined(cl_intel_required_subgroup_size)
#define SUBGROUP __attribute__((intel_reqd_sub_group_size(LANES)))
#else
#define SUBGROUP
#endif
#else
#define SUBGROUP
#endif

__kernel __attribute__((reqd_work_group_size(LANES, GY, 1))) SUBGROUP
void subgroup(int m, int n, SCALAR alpha, int np, int kp,
              __global const REAL *restrict AP, __global const VECTOR *restrict BP, SCALAR beta,
              __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(AP, get_num_groups(1) * BM, kp)
    BATCH_OFFSET(BP, kp, np / WIDTH)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int x = get_local_id(0), y = get_local_id(1);
    const int row0 = get_group_id(1) * BM + y * TM, column0 = get_group_id(0) * BN;

    VECTOR acc[TM][TN / WIDTH];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++)
            acc[i][j] = (VECTOR)(0);

#if EXCHANGE == 1
    for (int p0 = 0; p0 < kp; p0 += LANES) { /* kp is a multiple of LANES */
        REAL mine[TM];
        #pragma unroll
        for (int i = 0; i < TM; i++)
            mine[i] = AP[(size_t)(row0 + i) * kp + p0 + x];
        #pragma unroll
        for (int lane = 0; lane < LANES; lane++) {
            #pragma unroll
            for (int j = 0; j < TN / WIDTH; j++) {
                const VECTOR b = BP[((size_t)(p0 + lane) * np + column0) / WIDTH + x + j * LANES];
                #pragma unroll
                for (int i = 0; i < TM; i++)
                    acc[i][j] += SHUFFLE(mine[i], lane) * b;
            }
        }
    }
#else
    for (int p0 = 0; p0 < kp; p0 += WIDTH) { /* kp is a multiple of WIDTH */
        REAL a[TM][WIDTH];
        #pragma unroll
        for (int i = 0; i < TM; i++)
            CAT(vstore, WIDTH)(*(__global const VECTOR *)(AP + (size_t)(row0 + i) * kp + p0), 0, a[i]);
        #pragma unroll
        for (int lane = 0; lane < WIDTH; lane++) {
            #pragma unroll
            for (int j = 0; j < TN / WIDTH; j++) {
                const VECTOR b = BP[((size_t)(p0 + lane) * np + column0) / WIDTH + x + j * LANES];
                #pragma unroll
                for (int i = 0; i < TM; i++)
                    acc[i][j] += a[i][lane] * b;
            }
        }
    }
#endif

    #pragma unroll
    for (int i = 0; i < TM; i++) {
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++) {
            const int row = row0 + i, column = column0 + (x + j * LANES) * WIDTH;
            REAL lanes[WIDTH];
            CAT(vstore, WIDTH)((REAL)alpha * acc[i][j], 0, lanes);
            #pragma unroll
            for (int l = 0; l < WIDTH; l++) {
                if (row < m && column + l < n) {
                    __global REAL *c = C + (size_t)row * ldc + column + l;
                    *c = beta == 0 ? lanes[l] : lanes[l] + (REAL)beta * *c;
                }
            }
        }
    }
}
