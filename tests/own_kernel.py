"""A kernel of a user's, for ``--kernel-file``."""

MINE = """\
/* gemmbench
arguments  = ["m", "n", "k", "A", "lda", "B", "ldb", "C", "ldc"]
work_group = ["TS", "TS"]
tile       = ["TS", "TS"]
parameters = { TS = [8, 16] }
*/
__kernel void mine(int m, int n, int k, __global const float *A, int lda,
                   __global const float *B, int ldb, __global float *C, int ldc)
{
    int column = get_global_id(0), row = get_global_id(1);
    float sum = 0;
    for (int p = 0; p < k && row < m && column < n; p++) sum += A[row * lda + p] * B[p * ldb + column];
    if (row < m && column < n) C[row * ldc + column] = sum;
}
"""
