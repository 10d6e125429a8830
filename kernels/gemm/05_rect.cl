/* gemmbench
name        = "rect"
family      = "first steps"
idea        = "A transposed, rectangular tiles"
source      = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 5"
work_group  = ["BN", "BM // TM"]
tile        = ["BM", "BN"]
transposed  = ["A"]
either      = ["B"]
batches     = true
local       = "BK * (BM + BN)"
constraints = [
    ["BM % TM == 0", "BM must be a multiple of TM, so that each work-item owns whole rows"],
]

[parameters]
BM = { values = [32, 64, 128], default = 64, idea = "rows of C in a work-group's tile" }
BN = { values = [32, 64, 128], default = 64, idea = "columns of C in a work-group's tile" }
BK = { values = [8, 16, 32], default = 16, idea = "depth of the tiles of A and B" }
TM = { values = [4, 8, 16, 32], default = 16, idea = "elements of C of a work-item" }

[presets]
cpu-intel           = { BM = 32, BN = 128, BK = 32 }
gpu-nvidia          = { BM = 128, BK = 32, TM = 32 }
"gpu-nvidia:double" = { BM = 32, TM = 16 }
phone               = { BM = 32, BN = 32, BK = 8, TM = 8 }
*/
/* rect: A transposed, so that the tiles can be rectangular and every load
 * walks along a row.
 *
 *          BM                BN
 *        +----+            +----+
 *     BK | At |         BK | Bt |
 *        +----+            +----+
 *                          +----+
 *                          | o  |
 *                       BM | o  |
 *                          | C  |
 *                          +----+
 *
 * AT is A transposed (k x m). Both tiles are BK deep and as wide as C's
 * tile is high or wide: depth and width are free of one another.
 *
 * Work-item (x, y) owns column x and TM rows from y * TM on of the BM x BN
 * tile: as many elements as in coarse, but together, so that their values
 * of At lie side by side and can be read several at a time.
 *
 * acc[i] += At[p][y * TM + i] * Bt[p][x]
 * At[p][r] = AT[(p0 + p) * ldat + row0 + r]
 *
 * A shallow, wide tile needs less local memory for the same reuse, so that
 * more groups fit a compute unit; with A as it came its tile's rows would be
 * BK elements long, too short for a whole memory transaction. */
#include "common.clh"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM)
#error "BM, BN, BK and TM must be defined"
#endif

#define GY (BM / TM) /* rows of work-items */
#define ITEMS (BN * GY)

__kernel __attribute__((reqd_work_group_size(BN, GY, 1)))
void rect(int m, int n, int k, SCALAR alpha,
          __global const REAL *restrict AT, int ldat,
          __global const REAL *restrict B, int ldb, SCALAR beta,
          __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(AT, k, ldat)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(C, m, ldc)
#endif
#ifdef TRANS_B
    __local REAL At[BK][BM] __attribute__((aligned(4 * sizeof(REAL)))), Bt[BK][BN + 1]; /* written to columns: a bank each */
#else
    __local REAL At[BK][BM] __attribute__((aligned(4 * sizeof(REAL)))), Bt[BK][BN];
#endif
    const int x = get_local_id(0), y = get_local_id(1), item = y * BN + x;
    const int row0 = get_group_id(1) * BM, column0 = get_group_id(0) * BN;

    REAL acc[TM];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        acc[i] = 0;

    for (int p0 = 0; p0 < k; p0 += BK) {
        for (int e = item; e < BK * BM; e += ITEMS) {
            const int r = e % BM, p = e / BM;
            At[p][r] = p0 + p < k && row0 + r < m ? AT[(size_t)(p0 + p) * ldat + row0 + r] : (REAL)0;
        }
        for (int e = item; e < BK * BN; e += ITEMS) {
#ifdef TRANS_B
            const int p = e % BK, c = e / BK;
            Bt[p][c] = p0 + p < k && column0 + c < n ? B[(size_t)(column0 + c) * ldb + p0 + p] : (REAL)0;
#else
            const int c = e % BN, p = e / BN;
            Bt[p][c] = p0 + p < k && column0 + c < n ? B[(size_t)(p0 + p) * ldb + column0 + c] : (REAL)0;
#endif
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        for (int p = 0; p < BK; p++) {
            const REAL b = Bt[p][x];
            #pragma unroll
            for (int i = 0; i < TM; i++)
                acc[i] += At[p][y * TM + i] * b;
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    #pragma unroll
    for (int i = 0; i < TM; i++) {
        const int row = row0 + y * TM + i, column = column0 + x;
        if (row < m && column < n) {
            __global REAL *c = C + (size_t)row * ldc + column;
            const REAL scaled = (REAL)alpha * acc[i];
            *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
        }
    }
}
