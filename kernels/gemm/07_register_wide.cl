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
