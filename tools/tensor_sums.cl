/* tensor_sums: one tensor-core instruction for each tile, with all bits of its operands and results.
 *
 * tools/tensor_sums.py defines the instruction and its types. Operands lie as in kernels/peak/mma.cl and wgmma.cl. */
#pragma OPENCL EXTENSION cl_khr_fp64 : enable
#define TILE get_group_id(0)
#if MMA
/* A lane has four words of A, two of B's columns, and four elements of C (two words of halves). */
__kernel __attribute__((reqd_work_group_size(32, 1, 1)))
void one(__global const WORD *A, __global const WORD *B, __global const SUM *C, __global SUM *D)
{
    const int lane = get_local_id(0), row = lane / 4, column = lane % 4;
    WORD a[4], b[2];
    SUM d[WORDS];
    for (int r = 0; r < 4; r++)
        a[r] = A[(TILE * 16 + row + 8 * (r % 2)) * 8 + column + 4 * (r / 2)];
    for (int r = 0; r < 2; r++)
        b[r] = B[(TILE * 8 + row) * 8 + column + 4 * r];
    for (int w = 0; w < WORDS; w++)
        d[w] = C[TILE * 32 * WORDS + PLACE(w)];
#if WORDS == 4
    asm volatile(INSTRUCTION " {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
                 : "+" KIND(d[0]), "+" KIND(d[1]), "+" KIND(d[2]), "+" KIND(d[3])
                 : WORD_KIND(a[0]), WORD_KIND(a[1]), WORD_KIND(a[2]), WORD_KIND(a[3]), WORD_KIND(b[0]),
                   WORD_KIND(b[1]));
#else
    asm volatile(INSTRUCTION " {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, {%0, %1};"
                 : "+" KIND(d[0]), "+" KIND(d[1])
                 : WORD_KIND(a[0]), WORD_KIND(a[1]), WORD_KIND(a[2]), WORD_KIND(a[3]), WORD_KIND(b[0]),
                   WORD_KIND(b[1]));
#endif
    for (int w = 0; w < WORDS; w++)
        D[TILE * 32 * WORDS + PLACE(w)] = d[w];
}
#else
/* A and B's columns lie in local memory as blocks of 8 rows of 16 bytes. */
__kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void one(__global const uint4 *A, __global const uint4 *B, __global const SUM *C, __global SUM *D)
{
    __local uint4 a[128] __attribute__((aligned(128))), b[16] __attribute__((aligned(128)));
    const int item = get_local_id(0), lane = item % 32, row = item / 32 * 16 + lane / 4, column = lane % 4;
    a[item % 2 * 64 + item / 2] = A[TILE * 128 + item];
    if (item < 16)
        b[item % 2 * 8 + item / 2] = B[TILE * 16 + item];
    SUM d[WORDS];
    for (int w = 0; w < WORDS; w++)
        d[w] = C[TILE * 128 * WORDS + PLACE(w)];
    asm volatile(LATER "fence.proxy.async;" ::: "memory");
    barrier(CLK_LOCAL_MEM_FENCE);
    const ulong at = ((ulong)a & 0x3ffff) >> 4 | (ulong)64 << 16 | (ulong)8 << 32;
    const ulong bt = ((ulong)b & 0x3ffff) >> 4 | (ulong)8 << 16 | (ulong)8 << 32;
    asm volatile(LATER "wgmma.fence.sync.aligned;" ::: "memory");
#if WORDS == 4
    asm volatile(LATER "{ .reg .pred p; setp.eq.u32 p, 0, 0; " INSTRUCTION " {%0, %1, %2, %3}, %4, %5, p" FLAGS
                       "; }"
                 : "+" KIND(d[0]), "+" KIND(d[1]), "+" KIND(d[2]), "+" KIND(d[3]) : "l"(at), "l"(bt));
#else
    asm volatile(LATER "{ .reg .pred p; setp.eq.u32 p, 0, 0; " INSTRUCTION " {%0, %1}, %2, %3, p" FLAGS "; }"
                 : "+" KIND(d[0]), "+" KIND(d[1]) : "l"(at), "l"(bt));
#endif
    asm volatile(LATER "wgmma.commit_group.sync.aligned;" ::: "memory");
    asm volatile(LATER "wgmma.wait_group.sync.aligned 0;" ::: "memory");
    for (int w = 0; w < WORDS; w++)
        D[TILE * 128 * WORDS + PLACE(w)] = d[w];
}
#endif
