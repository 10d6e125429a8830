"""Other libraries behind the same executor: the host's BLAS through numpy."""
