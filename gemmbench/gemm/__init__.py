"""One GEMM: operands, verification, what runs it, its tables and charts."""
