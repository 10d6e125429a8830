/* gemmbench
name        = "register"
family      = "first steps"
idea        = "two-dimensional register blocking"
source      = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 6"
kernel      = "register_blocked"
work_group  = ["BN // TN", "BM // TM"]
tile        = ["BM", "BN"]
transposed  = ["A"]
either      = ["B"]
batches     = true
local       = "BK * (BM + BN)"
constraints = [
    ["BM % TM == 0", "BM must be a multiple of TM, so that each work-item owns whole rows"],
    ["BN % TN == 0", "BN must be a multiple of TN, so that each work-item owns whole columns"],
]

[parameters]
BM = { values = [32, 64, 128], default = 64, idea = "rows of C in a work-group's tile" }
BN = { values = [32, 64, 128], default = 64, idea = "columns of C in a work-group's tile" }
BK = { values = [8, 16, 32], default = 16, idea = "depth of the tiles of A and B" }
TM = { values = [4, 8], default = 8, idea = "rows of C in a work-item's micro-tile" }
TN = { values = [4, 8], default = 8, idea = "columns of C in a work-item's micro-tile" }

[presets]
cpu-intel           = { BM = 128, BN = 128, BK = 16, TM = 4, TN = 4 }
gpu                 = { BM = 128, BN = 128, BK = 16, TM = 8, TN = 8 }
gpu-nvidia          = { BK = 32 }
"gpu-nvidia:double" = { BM = 64, BK = 16, TN = 4 }
phone               = { BM = 32, BN = 32, BK = 8, TM = 4, TN = 4 }
*/
/* register: two-dimensional register blocking.
 *
 *                          BN
 *                  +----------------+
 *               BK |       Bt       |
 *          BM      +----------------+
 *        +----+    | o  .  o  .     |
 *     BK | At |    | .  .  .  .     |
 *        +----+ BM | o  .  o  .     |
 *                  |       C        |
 *                  +----------------+
 *
 * A work-group makes a BM x BN tile of C; each of its work-items
 * owns TM x TN elements of it, kept in registers.
 *
 * The micro-tile is strided over the tile: work-item (x, y) owns
 * rows y + i * (BM / TM) and columns x + j * (BN / TN), so that
 * neighbours read neighbouring local memory and write
 * neighbouring global memory.
 *
 * acc[i][j] += At[p][row] * Bt[p][column]
 * At[p][r] = AT[(p0 + p) * ldat + row0 + r]
 *
 * A step along k reads TM + TN values from local memory for TM * TN
 * multiplications, where rect reads TM + 1 for TM: local memory stops being
 * the limit. A comes transposed, as in rect. Past the edges tiles hold zeros. */
#include "common.clh"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM) || !defined(TN)
#error "BM, BN, BK, TM and TN must be defined"
#endif

#define GX (BN / TN) /* work-items across the tile */
#define GY (BM / TM) /* and down */
#define ITEMS (GX * GY)

__kernel __attribute__((reqd_work_group_size(GX, GY, 1)))
void register_blocked(int m, int n, int k, SCALAR alpha,
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
    __local REAL At[BK][BM], Bt[BK][BN + 1]; /* written to columns: a bank each */
#else
    __local REAL At[BK][BM], Bt[BK][BN];
#endif
    const int x = get_local_id(0), y = get_local_id(1), item = y * GX + x;
    const int row0 = get_group_id(1) * BM, column0 = get_group_id(0) * BN;

    REAL acc[TM][TN];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN; j++)
            acc[i][j] = 0;

    for (int p0 = 0; p0 < k; p0 += BK) {
        for (int e = item; e < BK * BM; e += ITEMS) { /* consecutive work-items along a row of AT */
            const int r = e % BM, p = e / BM;
            At[p][r] = p0 + p < k && row0 + r < m ? AT[(size_t)(p0 + p) * ldat + row0 + r] : (REAL)0;
        }
        for (int e = item; e < BK * BN; e += ITEMS) { /* and along a row of B */
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
            REAL b[TN];
            #pragma unroll
            for (int j = 0; j < TN; j++)
                b[j] = Bt[p][x + j * GX];
            #pragma unroll
            for (int i = 0; i < TM; i++) {
                const REAL a = At[p][y + i * GY];
                #pragma unroll
                for (int j = 0; j < TN; j++)
                    acc[i][j] += a * b[j];
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    #pragma unroll
    for (int i = 0; i < TM; i++) {
        const int row = row0 + y + i * GY;
        #pragma unroll
        for (int j = 0; j < TN; j++) {
            const int column = column0 + x + j * GX;
            if (row < m && column < n) {
                __global REAL *c = C + (size_t)row * ldc + column;
                const REAL scaled = (REAL)alpha * acc[i][j];
                *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
            }
        }
    }
}
