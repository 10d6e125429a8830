/* gemmbench
name       = "cpu-amx"
family     = "ours"
idea       = "tiles of AMX, a CPU's matrix unit"
source     = "gemmbench; Intel's Software Developer's Manual describes AMX"
before     = "gpu-tile"
types      = ["bfloat16", "char"]
device     = "cpu"
hardware   = "a CPU with AMX"
matrix     = true
work_group = [1, 1]   # a core to each work-item
tile       = ["32 * DOWN", "32 * ACROSS"]
edge       = 64
either     = ["A", "B"]
batches    = true
choose     = "python"

[parameters]
DOWN   = { values = [4, 8, 16], launch = true, idea = "strips of 32 rows down a block of C" }
ACROSS = { values = [4, 8, 16], launch = true, idea = "strips of 32 columns across a block of C" }
DEPTH  = { values = [8, 16, 32], launch = true, idea = "steps of 64 bytes along k before the sums leave the tiles" }
ITEMS  = { values = [16, 32, 64], launch = true, idea = "work-items, which share the blocks" }

[extents]
strips = "ceil_div(m, 32)"
steps  = "ceil_div(k, 64 // itemsize)"   # the last one is perhaps not whole
chunk  = 16                              # steps along k that a work-item packs

[temporaries]
AP = "strips * steps * 32 * 64 // itemsize"
BP = "ceil_div(n, 32) * steps * 32 * 64 // itemsize"
S  = "ITEMS * DOWN * (ACROSS * 4096 + 4 * 32) // itemsize"   # four tiles of sums for each pair of strips

[[launches]]
role       = "pack"
kernel     = "pack"
arguments  = ["m", "n", "k", "strips", "steps", "chunk", "A", "lda", "AP", "B", "ldb", "BP"]
work_items = ["strips + ceil_div(n, 32)", "ceil_div(steps, chunk)"]

[[launches]]
kernel     = "multiply_strips"
arguments  = ["m", "n", "strips", "steps", "DOWN", "ACROSS", "DEPTH", "alpha", "AP", "BP", "S", "beta", "C", "ldc"]
work_items = ["ITEMS", 1]
*/
/* cpu-amx: bfloat16 and char on AMX, the matrix unit of server CPUs. With VNNI
 * defined it is cpu-vnni: char on dot products, with the same strips and blocks
 * and sums in vector registers, see vnni.clh.
 *
 *                     strip of B: 32 columns
 *                   +-----+-----+
 *                   | tmm6| tmm7|  a step along k: 16 words
 *                   +-----+-----+
 *         +-----+   +-----+-----+
 *  strip  | tmm4|   | tmm0| tmm1|
 *  of A:  +-----+   +-----+-----+
 *  32     | tmm5|   | tmm2| tmm3|
 *  rows   +-----+   +-----+-----+
 *
 * `pack` cuts A into strips of 32 rows and B into strips of 32 columns, each in
 * tiles as the unit reads them, step after step along k, with zeros past m, n
 * and k:
 *      AP[((strip * steps + step) * 2 + part) * 256 + row * 16 + word]
 *      BP[((strip * steps + step) * 2 + part) * 256 + word * 16 + column]
 *
 * A work-item makes blocks of C, some strips down and across, one after the
 * other. For a number of steps along k it takes one strip of B after another,
 * and for each of them all strips of A. Both come from the second cache, where
 * the block's A stays, and are fetched from there to the first ahead of time.
 * Four tiles of sums are in registers for these steps; between them they are in
 * S, which is the work-item's own.
 *
 * This should beat cpu-packed, whose vectors do 1/16 as many multiplications in
 * an instruction. Each element that is loaded takes part in 32 products: enough
 * for the first cache; tiles from the second take a third longer, from the last
 * five times as long. Where two threads share a core they share its unit. */
#ifdef VNNI
#include "vnni.clh"
#else
#include "amx.clh"
#endif
#ifdef BATCHED
#include "batch.clh"
#endif

#ifndef RAISED
#define RAISED 0
#endif
#define ALONE __attribute__((reqd_work_group_size(1, 1, 1)))
#define EDGE 32            /* of a strip */
#define STEP (2 * TILE)    /* bytes of a strip */
#define ALONG (16 * PER_WORD) /* elements along k of a step */

static inline uint word_of(__global const ELEMENT *from, int ld, int left)
{
    uint word = 0;
    for (int e = 0; e < min(left, PER_WORD); e++)
        word |= (uint)from[(size_t)e * ld] << (e * (32 / PER_WORD));
    return word;
}

/* A tile from rows that lie along k: row r and word w are at to[r * down + w * along]. The bits of `flip` are inverted. */
static inline void copy_tile(__global uint *to, int down, int along, uint flip, __global const ELEMENT *from, int ld, int rows,
                             int k)
{
    if (rows >= 16 && k >= ALONG && along == 1) {
        for (int r = 0; r < 16; r++, from += ld) {
            #pragma unroll
            for (int i = 0; i < PER_WORD; i++)
                vstore16(vload16(i, from), i, (__global ELEMENT *)(to + r * down));
        }
        return;
    }
    for (int r = 0; r < 16; r++)
        for (int w = 0; w < 16; w++)
            to[r * down + w * along] =
                flip ^ (r < rows ? word_of(from + (size_t)r * ld + w * PER_WORD, 1, k - w * PER_WORD) : 0);
}

/* A tile from rows that lie across k: word w of column c is at to[w * along + c * across]. */
static inline void turn_tile(__global uint *to, int along, int across, uint flip, __global const ELEMENT *from, int ld,
                             int columns, int k)
{
    if (columns >= 16 && k >= ALONG && across == 1) {
        for (int w = 0; w < 16; w++, from += (size_t)PER_WORD * ld) {
            uint16 words = convert_uint16(vload16(0, from));
            #pragma unroll
            for (int e = 1; e < PER_WORD; e++)
                words |= convert_uint16(vload16(0, from + (size_t)e * ld)) << (e * (32 / PER_WORD));
            vstore16(words ^ flip, 0, to + w * along);
        }
        return;
    }
    for (int w = 0; w < 16; w++)
        for (int c = 0; c < 16; c++)
            to[w * along + c * across] =
                flip ^ (c < columns ? word_of(from + (size_t)w * PER_WORD * ld + c, ld, k - w * PER_WORD) : 0);
}

/* AP and BP from A and B: a work-item packs `chunk` steps of one strip. */
__kernel ALONE
void pack(int m, int n, int k, int strips, int steps, int chunk, __global const ELEMENT *restrict A, int lda,
          __global uint *restrict AP, __global const ELEMENT *restrict B, int ldb, __global uint *restrict BP)
{
#ifdef BATCHED
    BATCH_OFFSET(A, ROWS_A, lda)
    BATCH_OFFSET(B, ROWS_B, ldb)
    BATCH_OFFSET(AP, strips, (size_t)steps * (STEP / 4))
    BATCH_OFFSET(BP, get_global_size(0) - strips, (size_t)steps * (STEP / 4))
#endif
    const int item = get_global_id(0), first = get_global_id(1) * chunk;
    for (int step = first; step < min(first + chunk, steps); step++) {
        const int p = step * ALONG;
        for (int part = 0; part < 2; part++) {
            if (item < strips) {
                const int row = item * EDGE + part * 16;
                __global uint *to = AP + (((size_t)item * steps + step) * 2 + part) * (TILE / 4);
#ifdef TRANS_A
                turn_tile(to, 1, 16, 0, A + (size_t)p * lda + row, lda, m - row, k - p);
#else
                copy_tile(to, 16, 1, 0, A + (size_t)row * lda + p, lda, m - row, k - p);
#endif
            } else {
                const int strip = item - strips, column = strip * EDGE + part * 16;
                __global uint *to = BP + (((size_t)strip * steps + step) * 2 + part) * (TILE / 4);
#ifdef TRANS_B
                copy_tile(to, 1, 16, RAISED, B + (size_t)column * ldb + p, ldb, n - column, k - p);
#else
                turn_tile(to, 16, 1, RAISED, B + (size_t)p * ldb + column, ldb, n - column, k - p);
#endif
            }
        }
    }
}

#define VECTOR_(type) type##16
#define VECTOR_OF(type) VECTOR_(type)

/* 128 times the sums of a strip's rows of char, which lie step after step from `a` on. */
static inline void sum_rows(__global int *to, __global const char *a, int steps)
{
    for (int r = 0; r < EDGE; r++) {
        int16 lanes = 0;
        for (int i = 0; i < steps * 4; i++)
            lanes += convert_int16(vload16(0, a + i / 4 * STEP + r / 16 * TILE + r % 16 * 64 + i % 4 * 16));
        const int8 eight = lanes.lo + lanes.hi;
        const int4 four = eight.lo + eight.hi;
        to[r] = 128 * (four.x + four.y + four.z + four.w);
    }
}

/* The sums of 32 x 32 elements, four tiles, to C, each less what its row was raised by. */
static inline void finish(const SUM *sums, __global const SUM *raised, __global SUM *C, int ldc, int rows, int columns, SUM alpha, SUM beta)
{
    for (int r = 0; r < min(rows, EDGE); r++, C += ldc)
        for (int part = 0; part < 2; part++) {
            const VECTOR_OF(SUM) sum = vload16((r / 16 * 2 + part) * 16 + r % 16, sums);
            const VECTOR_OF(SUM) scaled = alpha * (RAISED ? sum - raised[r] : sum);
            __global SUM *to = C + part * 16;
            if (columns >= part * 16 + 16)
                vstore16(beta == 0 ? scaled : scaled + beta * vload16(0, to), 0, to);
            else {
                SUM lanes[16];
                vstore16(scaled, 0, lanes);
                for (int c = 0; c < columns - part * 16; c++)
                    to[c] = beta == 0 ? lanes[c] : lanes[c] + beta * to[c];
            }
        }
}

__kernel ALONE
void multiply_strips(int m, int n, int strips, int steps, int down, int across, int depth, SUM alpha,
             __global const char *restrict AP, __global const char *restrict BP, __global SUM *restrict S, SUM beta,
             __global SUM *restrict C, int ldc)
{
    const int columns = n / EDGE + (n % EDGE > 0), wide = (columns + across - 1) / across;
    const int blocks = wide * ((strips + down - 1) / down);
#ifdef BATCHED
    BATCH_OFFSET(C, m, ldc)
    BATCH_OFFSET(AP, strips, (size_t)steps * STEP)
    BATCH_OFFSET(BP, columns, (size_t)steps * STEP)
    BATCH_OFFSET(S, get_global_size(0), down * (across * EDGE + 1) * EDGE)
#endif
    SUM sums[EDGE * EDGE] __attribute__((aligned(64)));
    S += (size_t)get_global_id(0) * down * (across * EDGE + 1) * EDGE;
    __global SUM *raised = S + down * across * EDGE * EDGE;
    begin_tiles();
    for (int block = get_global_id(0); block < blocks; block += get_global_size(0)) {
        const int i0 = block / wide * down, i1 = min(i0 + down, strips);
        const int j0 = block % wide * across, j1 = min(j0 + across, columns);
        int step = 0, count;
        for (int i = i0; i < i1 && RAISED; i++)
            sum_rows((__global int *)raised + (i - i0) * EDGE, AP + (size_t)i * steps * STEP, steps);
        do {
            count = min(depth, steps - step);
            const bool is_last = step + count == steps;
            for (int j = j0; j < j1; j++)
                for (int i = i0; i < i1; i++) {
                    __global const char *a = AP + ((size_t)i * steps + step) * STEP;
                    __global const char *b = BP + ((size_t)j * steps + step) * STEP;
                    __global SUM *between = S + ((i - i0) * across + j - j0) * EDGE * EDGE;
                    if (step == 0)
                        ZERO_SUMS;
                    else
                        LOAD_SUMS(between);
                    /* All strips of A together fetch the next strip of B: four lines a step, if they are eight. */
                    __global const char *next = BP + (size_t)(j + 1) * steps * STEP + step * STEP + (i - i0) * count * 256;
                    MULTIPLY(a, b, count, next);
                    if (is_last) {
                        STORE_SUMS(sums);
                        finish(sums, raised + (i - i0) * EDGE, C + (size_t)i * EDGE * ldc + j * EDGE, ldc, m - i * EDGE,
                               n - j * EDGE, alpha, beta);
                    } else
                        STORE_SUMS(between);
                }
            step += count;
        } while (step < steps);
    }
    END_TILES;
}
