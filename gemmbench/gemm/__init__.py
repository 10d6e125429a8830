"""One GEMM: how it is verified, timed and compared."""
