#!/usr/bin/env bash
# One would guess that numpy.einsum multiplies float16 matrices as exactly as matmul, which adds in float32.
# Instead einsum("ij,jk->ik") adds in float16, unless the first matrix is row-major and the second
# column-major. Sums of ones stop at 2048. With optimize=True they do not.
# If einsum is the reference for a half-precision GEMM, correct kernels look wrong, by up to 9 % with random
# numbers here.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check numpy==2.4.6
"$folder/env/bin/python" - <<'EOF'
import sys

import numpy as np

print("numpy", np.__version__)
k = 4096
a, b = np.ones((4, k), np.float16), np.ones((k, 4), np.float16)
column_major = np.asfortranarray(b)
seen = {
    "matmul": float((a @ b)[0, 0]),
    "einsum": float(np.einsum("ij,jk->ik", a, b)[0, 0]),
    "einsum, B column-major": float(np.einsum("ij,jk->ik", a, column_major)[0, 0]),
    "einsum, both column-major": float(np.einsum("ij,jk->ik", np.asfortranarray(a), column_major)[0, 0]),
    "einsum, optimize=True": float(np.einsum("ij,jk->ik", a, b, optimize=True)[0, 0]),
}
for name, value in seen.items():
    print(f"{k} ones by {name}: {value:g}")
random = np.random.default_rng(1)
a, b = random.random((64, k)).astype(np.float16), random.random((k, 64)).astype(np.float16)
exact = a.astype(float) @ b.astype(float)
errors = [float(abs(c / exact - 1).max()) for c in (a @ b, np.einsum("ij,jk->ik", a, b))]
print(f"largest error with random numbers in [0, 1): matmul {errors[0]:.2%}, einsum {errors[1]:.2%}")
if list(seen.values()) != [4096, 2048, 4096, 2048, 4096] or errors[0] > 0.001 or errors[1] < 0.05:
    sys.exit("the behaviour has changed")
EOF
