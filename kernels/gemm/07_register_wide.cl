/* gemmbench
name        = "register-wide"
family      = "first steps"
idea        = "register blocking with vector loads"
source      = "C. Nugteren, Tutorial: OpenCL SGEMM tuning for Kepler, kernel 7"
work_group  = ["BN // TN", "BM // TM"]
tile        = ["BM", "BN"]
batches     = true
local       = "BK * (BM + BN + 2 * PAD * WIDTH)"
extents     = { mp = "round_up(m, BM)", np = "round_up(n, BN)", kp = "round_up(k, BK)" }
temporaries = { AP = "mp * kp", BP = "kp * np" }
constraints = [
    ["BM % TM == 0", "BM must be a multiple of TM, so that each work-item owns whole rows"],
    ["BN % TN == 0", "BN must be a multiple of TN, so that each work-item owns whole columns"],
    ["TM % WIDTH == 0", "TM must be a multiple of WIDTH, to be whole vectors"],
    ["TN % WIDTH == 0", "TN must be a multiple of WIDTH, to be whole vectors"],
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
cpu          = { BK = 32, TN = 16, WIDTH = 8 }
cpu-intel    = { BM = 128, BN = 128, BK = 16, TM = 16, WIDTH = 16 }
"gpu:double" = { BN = 128, TM = 4, WIDTH = 2 }
phone        = { BM = 32, BN = 32, BK = 8, TM = 4, TN = 4, WIDTH = 4 }

[[launches]]
copy       = "transpose_padded"
arguments  = ["m", "k", "A", "lda", "kp", "mp", "AP", "mp"]

[[launches]]
copy       = "pad"
arguments  = ["k", "n", "B", "ldb", "kp", "np", "BP"]

[[launches]]
arguments  = ["m", "n", "alpha", "mp", "np", "kp", "AP", "BP", "beta", "C", "ldc"]
*/
/* register-wide: register blocking whose every load is a vector: from global
 * memory, into and from local memory.
 *
 *           BM                  BN
 *        +------+            +------+
 *     BK | At   |         BK | Bt   |
 *        +------+            +------+
 *                     +------+
 *                  BM | [oo] |
 *                     |  C   |
 *                     +------+
 *
 * AP is A transposed (kp x mp), BP is B (kp x np), both padded with
 * zeros to whole tiles: a vector cannot be cut at an edge.
 *
 * The micro-tile of a work-item is made of vectors, strided over the
 * tile: vectors x, x + GX ... of WIDTH columns, and the same for rows.
 *
 * acc[i][j] += a[i] * Bt[p][x + j * GX],  a[i] from At[p][y + ...]
 * At[p][v] = AP[(p0 + p) * mp + row0 + v * WIDTH ...]
 *
 * A 128-bit load moves four floats with one instruction where register needs
 * four, to local memory and from it. PAD vectors at the end of a local row
 * keep its columns in different banks. */
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

__kernel __attribute__((reqd_work_group_size(GX, GY, 1)))
void register_wide(int m, int n, SCALAR alpha, int mp, int np, int kp,
                   __global const VECTOR *restrict AP, __global const VECTOR *restrict BP, SCALAR beta,
                   __global REAL *restrict C, int ldc)
{
#ifdef BATCHED
    BATCH_OFFSET(AP, kp, mp / WIDTH)
    BATCH_OFFSET(BP, kp, np / WIDTH)
    BATCH_OFFSET(C, m, ldc)
#endif
    __local VECTOR At[BK][VM + PAD], Bt[BK][VN + PAD];
    const int x = get_local_id(0), y = get_local_id(1), item = y * GX + x;
    const int row0 = get_group_id(1) * BM, column0 = get_group_id(0) * BN;

    VECTOR acc[TM][TN / WIDTH];
    #pragma unroll
    for (int i = 0; i < TM; i++)
        #pragma unroll
        for (int j = 0; j < TN / WIDTH; j++)
            acc[i][j] = (VECTOR)(0);

    for (int p0 = 0; p0 < kp; p0 += BK) {
        #pragma unroll
        for (int e = item; e < BK * VM; e += ITEMS)
            At[e / VM][e % VM] = AP[((size_t)(p0 + e / VM) * mp + row0) / WIDTH + e % VM];
        #pragma unroll
        for (int e = item; e < BK * VN; e += ITEMS)
            Bt[e / VN][e % VN] = BP[((size_t)(p0 + e / VN) * np + column0) / WIDTH + e % VN];
        barrier(CLK_LOCAL_MEM_FENCE);

        #pragma unroll
        for (int p = 0; p < BK; p++) {
            REAL a[TM];
            #pragma unroll
            for (int i = 0; i < TM / WIDTH; i++)
                CAT(vstore, WIDTH)(At[p][y + i * GY], i, a);
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
