"""Other libraries behind the same executor: the host's BLAS, cuBLAS, and how CLBlast is called."""
