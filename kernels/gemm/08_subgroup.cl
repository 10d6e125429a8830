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
