/* gemmbench
name        = "padded"
family      = "first steps"
idea        = "pad, multiply whole tiles, unpad"
source      = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 10"
work_group  = ["BN // TN", "BM // TM"]
tile        = ["BM", "BN"]
batches     = true
local       = "BK * (BM + BN + 2 * PAD * WIDTH)"
constraints = [
    ["BM % TM == 0", "BM must be a multiple of TM, so that each work-item owns whole rows"],
    ["BN % TN == 0", "BN must be a multiple of TN, so that each work-item owns whole columns"],
    ["TM % WIDTH == 0", "TM must be a multiple of WIDTH, to be whole vectors"],
    ["TN % WIDTH == 0", "TN must be a multiple of WIDTH, to be whole vectors"],
    ["BK % WIDTH == 0", "BK must be a multiple of WIDTH, so that loads are whole vectors"],
    ["FUSED <= 1", "FUSED is 0 (transpose, then pad) or 1 (both in one launch)"],
]

[parameters]
BM    = { values = [64, 80, 128, 160], idea = "rows of C in a work-group's tile" }
BN    = { values = [64, 80, 128, 160], idea = "columns of C in a work-group's tile" }
BK    = { values = [8, 16, 32], default = 16, idea = "depth of the tiles of A and B" }
TM    = { values = [4, 8, 10], default = 8, idea = "rows of C in a work-item's micro-tile" }
TN    = { values = [4, 8, 10], default = 8, idea = "columns of C in a work-item's micro-tile" }
WIDTH = { values = [1, 2, 4], idea = "elements of a vector: of every load and of the stores of C" }
PAD   = { values = [1, 2, 4], idea = "vectors that local rows are longer than the tile" }
FUSED = { values = [0, 1], launch = true, idea = "1: B is transposed and padded in one launch; 0: in two" }

[presets]
cpu-intel           = { BM = 128, BN = 128, BK = 16, TM = 4, TN = 4 }
gpu                 = { BM = 128, BN = 128, BK = 16, TM = 8, TN = 8 }
gpu-nvidia          = { BK = 32 }
"gpu-nvidia:double" = { BN = 64, BK = 16 }
phone               = { BM = 32, BN = 32, BK = 8, TM = 4, TN = 4 }

[named.160x160]
idea   = "the tutorial's fastest, 160 x 160 tiles, 10 x 10 sums, loads of two"
values = { BM = 160, BN = 160, BK = 16, TM = 10, TN = 10, WIDTH = 2, PAD = 1 }

[named.fused]
idea   = "B transposed and padded in one launch"
values = { FUSED = 1 }

[extents]
mp   = "round_up(m, BM)"
np   = "round_up(n, BN)"
kp   = "round_up(k, BK)"
ldbt = "k"

[temporaries]
AP = "mp * kp"
BT = "(1 - FUSED) * n * k"
BP = "np * kp"
CP = "mp * np"

[[launches]]
copy       = "pad"
arguments  = ["m", "k", "A", "lda", "mp", "kp", "AP"]

[[launches]]
copy       = "transpose"
arguments  = ["k", "n", "B", "ldb", "BT", "ldbt"]
when       = ["FUSED == 0"]

[[launches]]
copy       = "pad"
arguments  = ["n", "k", "BT", "ldbt", "np", "kp", "BP"]
when       = ["FUSED == 0"]

[[launches]]
copy       = "transpose_padded"
arguments  = ["k", "n", "B", "ldb", "np", "kp", "BP", "kp"]
when       = ["FUSED > 0"]

[[launches]]
arguments  = ["np", "kp", "AP", "BP", "CP"]

[[launches]]
kernel     = "unpad"
role       = "unpad"
arguments  = ["m", "n", "alpha", "CP", "np", "beta", "C", "ldc"]
work_group = [16, 16]
work_items = ["n", "m"]
any_group  = true
*/
/* padded: incomplete tiles, by padding. Five launches, or four:
 *
 *    pad        AP (mp x kp) = A (m x k) with zeros to whole tiles
 *     (00_pad.cl)
 *    transpose  BT (n x k) = B (k x n) transposed
 *     (00_transpose.cl)
 *    pad        BP (np x kp) = BT with zeros to whole tiles
 *     (00_pad.cl)
 *    padded     CP (mp x np) = AP times BP transposed
 *    unpad      C (m x n) = alpha * the m x n corner of CP + beta * C
 *
 *    fused      one transpose writes BP with its zeros: no BT, and no second
 *     reading of B
 *
 *          kp                kp                     np
 *      +------+--+       +------+--+          +--------+--+
 *      |  A   | 0|       |  BT  | 0|          | A B    | 0|
 *    m |      |  |     n |      |  |        m |        |  |
 *      +------+  |       +------+  |          +--------+  |
 *      |  0      |       |  0      |          |  0        |
 *      +---------+       +---------+          +-----------+
 *
 * mp, np, kp: m, n, k rounded up to
 * multiples of BM, BN, BK
 *
 *    CP[i * np + j] = sum over p of AP[i * kp + p] * BP[j * kp + p]
 *
 * The multiplication has no edge to test for: every load and store is whole,
 * and BM, BN and BK are free of one another and of the problem, 10 x 10 micro-
 * tiles included. The helpers cost O(n^2) for O(n^3) saved.
 *
 * WIDTH elements of a row of AP or BP are loaded at once, and go to WIDTH rows
 * of a tile, since tiles are stored by columns. From there a micro-tile takes
 * vectors of WIDTH rows and columns, strided over the tile. WIDTH 2 in float
 * is the 64-bit load of the tutorial's fastest configuration: 160 x 160 tiles,
 * 16 x 16 work-items, 10 x 10 sums in each. */
#include "common.clh"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM) || !defined(TN) || !defined(WIDTH) || !defined(PAD)
#error "BM, BN, BK, TM, TN, WIDTH and PAD must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define GX (BN / TN)
#define GY (BM / TM)
#define ITEMS (GX * GY)
#define VK (BK / WIDTH) /* vectors in a row of AP or BP within a tile */

typedef union {
    VECTOR whole;
    REAL lanes[WIDTH];
} Lanes;

__kernel __attribute__((reqd_work_group_size(GX, GY, 1)))
void padded(int np, int kp, __global const VECTOR *restrict AP, __global const VECTOR *restrict BP,
            __global VECTOR *restrict CP)
{
#ifdef BATCHED
    BATCH_OFFSET(AP, get_num_groups(1) * BM, kp / WIDTH)
    BATCH_OFFSET(BP, np, kp / WIDTH)
    BATCH_OFFSET(CP, get_num_groups(1) * BM, np / WIDTH)
#endif
    /* tiles are stored by columns: PAD vectors at the end of each set their banks apart */
    __local VECTOR At[BK][BM / WIDTH + PAD], Bt[BK][BN / WIDTH + PAD];
    const int x = get_local_id(0), y = get_local_id(1), item = y * GX + x;
    const int row0 = get_group_id(1) * BM, column0 = get_group_id(0) * BN;

    VECTOR acc[TM][TN / WIDTH];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++)
            acc[i][j] = (VECTOR)(0);

    for (int p0 = 0; p0 < kp; p0 += BK) {
        for (int e = item; e < BM * VK; e += ITEMS) {
            const Lanes a = {.whole = AP[((size_t)(row0 + e / VK) * kp + p0) / WIDTH + e % VK]};
            #pragma unroll
            for (int i = 0; i < WIDTH; i++)
                ((__local REAL *)At[e % VK * WIDTH + i])[e / VK] = a.lanes[i];
        }
        for (int e = item; e < BN * VK; e += ITEMS) {
            const Lanes b = {.whole = BP[((size_t)(column0 + e / VK) * kp + p0) / WIDTH + e % VK]};
            #pragma unroll
            for (int i = 0; i < WIDTH; i++)
                ((__local REAL *)Bt[e % VK * WIDTH + i])[e / VK] = b.lanes[i];
        }
        barrier(CLK_LOCAL_MEM_FENCE);

        #pragma unroll
        for (int p = 0; p < BK; p++) {
            REAL a[TM];
            #pragma unroll
            for (int v = 0; v < TM / WIDTH; v++) {
                const Lanes rows = {.whole = At[p][y + v * GY]};
                #pragma unroll
                for (int i = 0; i < WIDTH; i++)
                    a[v * WIDTH + i] = rows.lanes[i];
            }
            #pragma unroll
            for (int j = 0; j < TN / WIDTH; j++) {
                const VECTOR b = Bt[p][x + j * GX];
                #pragma unroll
                for (int i = 0; i < TM; i++)
                    acc[i][j] += a[i] * b;
            }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    #pragma unroll
    for (int i = 0; i < TM; i++) {
        const int row = row0 + (y + i / WIDTH * GY) * WIDTH + i % WIDTH;
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++)
            CP[((size_t)row * np + column0) / WIDTH + x + j * GX] = acc[i][j];
    }
}

__kernel void unpad(int m, int n, SCALAR alpha, __global const REAL *restrict CP, int np, SCALAR beta,
                    __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(CP, (m + BM - 1) / BM * BM, np)
    BATCH_OFFSET(C, m, ldc)
#endif
    const int column = get_global_id(0), row = get_global_id(1);
    if (row >= m || column >= n)
        return;
    __global REAL *c = C + (size_t)row * ldc + column;
    const REAL scaled = (REAL)alpha * CP[(size_t)row * np + column];
    *c = beta == 0 ? scaled : scaled + (REAL)beta * *c;
}
