/* gemmbench
name        = "prefetch"
family      = "first steps"
idea        = "double-buffered local memory"
source      = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 9"
kernel      = "prefetched"
work_group  = ["BN // TN", "BM // TM"]
tile        = ["BM", "BN"]
batches     = true
local       = "2 * BK * (BM + BN + 2 * PAD * WIDTH)"
extents     = { mp = "round_up(m, BM)", np = "round_up(n, BN)", kp = "round_up(k, BK)" }
temporaries = { AP = "mp * kp", BP = "kp * np" }
constraints = [
    ["BM % TM == 0", "BM must be a multiple of TM, so that each work-item owns whole rows"],
    ["BN % TN == 0", "BN must be a multiple of TN, so that each work-item owns whole columns"],
    ["TM % WIDTH == 0", "TM must be a multiple of WIDTH, to be whole vectors"],
    ["TN % WIDTH == 0", "TN must be a multiple of WIDTH, to be whole vectors"],
    ["BK * BM // WIDTH % (BM // TM * (BN // TN)) == 0", "BK * BN // WIDTH % (BM // TM * (BN // TN)) == 0",
     "the vectors of a tile must be a multiple of the work-items in a group, so that each loads as many"],
]

[parameters]
BM    = { values = [64, 128], idea = "rows of C in a work-group's tile" }
BN    = { values = [64, 128], idea = "columns of C in a work-group's tile" }
BK    = { values = [8, 16, 32], default = 16, idea = "depth of the tiles of A and B" }
TM    = { values = [4, 8, 16], default = 8, idea = "rows of C in a work-item's micro-tile" }
TN    = { values = [4, 8, 16], default = 8, idea = "columns of C in a work-item's micro-tile" }
WIDTH = { values = [2, 4, 8, 16], default = 4, idea = "elements of a vector" }
PAD   = { values = [0, 1], idea = "vectors that local rows are longer than the tile" }

[presets]
cpu                 = { TN = 16, WIDTH = 8 }
gpu                 = { BM = 128, BN = 128, BK = 8 }
"gpu:double"        = { BM = 64, BK = 8, WIDTH = 2 }
"gpu-nvidia:double" = { BK = 16 }
phone               = { BM = 32, BN = 32, BK = 8, TM = 4, TN = 4, WIDTH = 4 }

[[launches]]
copy       = "transpose_padded"
arguments  = ["m", "k", "A", "lda", "kp", "mp", "AP", "mp"]

[[launches]]
copy       = "pad"
arguments  = ["k", "n", "B", "ldb", "kp", "np", "BP"]

[[launches]]
arguments  = ["m", "n", "alpha", "mp", "np", "kp", "AP", "BP", "beta", "C", "ldc"]
*/
/* prefetch: register-wide with double-buffered local memory: the next tile
 * loads while this one multiplies.
 *
 *      global memory:   tile t + 1 --> registers
 *      local memory:    [ tile t ] [ free    ]
 *                           |          ^
 *                        multiply      store
 *      +------+------+------+
 *      | t    | t+1  | t+2  |   along k
 *      +------+------+------+
 *
 * A step of the loop starts the loads of tile t + 1, then
 * multiplies tile t from one half of local memory, then
 * puts what has arrived into the other half.
 *
 * acc[i][j] += a[i] * Bt[t % 2][p][x + j * GX]
 *
 * The latency of global memory hides behind BK steps of multiplication, and
 * one barrier a tile is enough, since nobody reads the half that is being
 * written. AP (kp x mp) and BP (kp x np) are padded as in register-wide. */
#include "common.clh"

#if !defined(BM) || !defined(BN) || !defined(BK) || !defined(TM) || !defined(TN) || !defined(WIDTH) || !defined(PAD)
#error "BM, BN, BK, TM, TN, WIDTH and PAD must be defined"
#endif

#define VECTOR REALV(WIDTH)
#define GX (BN / TN) /* work-items across the tile */
#define GY (BM / TM) /* and down */
#define ITEMS (GX * GY)
#define VM (BM / WIDTH) /* vectors in a row of At */
#define VN (BN / WIDTH) /* and of Bt */
#define LOADS_A (BK * VM / ITEMS) /* vectors of a tile that a work-item moves */
#define LOADS_B (BK * VN / ITEMS)

static inline void store(__global REAL *c, VECTOR sums, int left, int aligned, SCALAR alpha, SCALAR beta)
{
    const VECTOR scaled = (REAL)alpha * sums;
    if (left >= WIDTH && aligned) {
        __global VECTOR *whole = (__global VECTOR *)c;
        *whole = beta == 0 ? scaled : scaled + (REAL)beta * *whole;
        return;
    }
    REAL lanes[WIDTH];
    CAT(vstore, WIDTH)(scaled, 0, lanes);
    #pragma unroll
    for (int i = 0; i < WIDTH; i++)
        if (i < left)
            c[i] = beta == 0 ? lanes[i] : lanes[i] + (REAL)beta * c[i];
}

/* Start loading the tiles that begin at p0. */
#define FETCH(p0) \
    _Pragma("unroll") for (int e = 0; e < LOADS_A; e++) { \
        const int v = item + e * ITEMS; \
        next_a[e] = AP[((size_t)((p0) + v / VM) * mp + row0) / WIDTH + v % VM]; \
    } \
    _Pragma("unroll") for (int e = 0; e < LOADS_B; e++) { \
        const int v = item + e * ITEMS; \
        next_b[e] = BP[((size_t)((p0) + v / VN) * np + column0) / WIDTH + v % VN]; \
    }

/* Put what has been loaded into one half of local memory. */
#define PUT(half) \
    _Pragma("unroll") for (int e = 0; e < LOADS_A; e++) { \
        const int v = item + e * ITEMS; \
        At[half][v / VM][v % VM] = next_a[e]; \
    } \
    _Pragma("unroll") for (int e = 0; e < LOADS_B; e++) { \
        const int v = item + e * ITEMS; \
        Bt[half][v / VN][v % VN] = next_b[e]; \
    }

__kernel __attribute__((reqd_work_group_size(GX, GY, 1)))
void prefetched(int m, int n, SCALAR alpha, int mp, int np, int kp,
                   __global const VECTOR *restrict AP, __global const VECTOR *restrict BP, SCALAR beta,
                   __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(AP, kp, mp / WIDTH)
    BATCH_OFFSET(BP, kp, np / WIDTH)
    BATCH_OFFSET(C, m, ldc)
#endif
    __local VECTOR At[2][BK][VM + PAD], Bt[2][BK][VN + PAD];
    const int x = get_local_id(0), y = get_local_id(1), item = y * GX + x;
    const int row0 = get_group_id(1) * BM, column0 = get_group_id(0) * BN;

    VECTOR acc[TM][TN / WIDTH];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++)
            acc[i][j] = (VECTOR)(0);

    VECTOR next_a[LOADS_A], next_b[LOADS_B];
    if (kp > 0) {
        FETCH(0)
        PUT(0)
    }
    barrier(CLK_LOCAL_MEM_FENCE);
    for (int p0 = 0; p0 < kp; p0 += BK) {
        const int now = p0 / BK & 1, more = p0 + BK < kp;
        if (more) {
            FETCH(p0 + BK)
        }
        #pragma unroll
        for (int p = 0; p < BK; p++) {
            REAL a[TM];
            #pragma unroll
            for (int i = 0; i < TM / WIDTH; i++)
                CAT(vstore, WIDTH)(At[now][p][y + i * GY], i, a);
            #pragma unroll
            for (int j = 0; j < TN / WIDTH; j++) {
                const VECTOR b = Bt[now][p][x + j * GX];
                #pragma unroll
                for (int i = 0; i < TM; i++)
                    acc[i][j] += a[i] * b;
            }
        }
        if (more) {
            PUT(now ^ 1)
        }
        barrier(CLK_LOCAL_MEM_FENCE);
    }

    const int aligned = ldc % WIDTH == 0;
    #pragma unroll
    for (int i = 0; i < TM; i++) {
        const int row = row0 + (y + i / WIDTH * GY) * WIDTH + i % WIDTH;
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++) {
            const int column = column0 + (x + j * GX) * WIDTH;
            if (row < m && column < n)
                store(C + (size_t)row * ldc + column, acc[i][j], n - column, aligned, alpha, beta);
        }
    }
}
