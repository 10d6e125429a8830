#!/usr/bin/env bash
# One would guess that gemm with alpha = 0 does not read A and B, as in the reference BLAS, or that NaN in A
# or B has the same effect at every size.
# Instead NaN reaches C in OpenBLAS's real products for AVX-512 if m n k is at most 100^3. Larger products and
# complex ones return 0. So do the AVX2 kernels at every size.
# Whether a test of alpha = 0 passes depends on the processor and on the size. The script needs AVX-512, and
# exits with status 2 on other processors.
set -eu
grep -q avx512vl /proc/cpuinfo || { echo "this processor has no AVX-512" >&2; exit 2; }
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check \
  numpy==2.4.6 scipy==1.17.1 threadpoolctl==3.8.0
cat >"$folder/alpha.py" <<'EOF'
import sys

import numpy as np
import scipy
import threadpoolctl
from scipy.linalg import blas

library = next(pool for pool in threadpoolctl.threadpool_info() if "scipy.libs" in pool["filepath"])
print("scipy", scipy.__version__, "OpenBLAS", library["version"], library["architecture"])
seen = {}
for letter, gemm in (("s", blas.sgemm), ("d", blas.dgemm), ("z", blas.zgemm)):
    for n in (3, 100, 101):
        nan, ones = np.full((n, n), np.nan), np.ones((n, n))
        counts = tuple(int(np.isnan(gemm(0, a, b)).sum()) for a, b in ((nan, ones), (ones, nan)))
        print(f"{letter}gemm, n = {n}: {counts[0]} NaNs if A is NaN, {counts[1]} if B is")
        seen[letter, n] = counts
small = {(t, n) for t in "sd" for n in (3, 100)} if library["architecture"] == "SkylakeX" else set()
if seen != {(t, n): (n * n, n * n) if (t, n) in small else (0, 0) for t, n in seen}:
    sys.exit("the behaviour has changed")
EOF
OPENBLAS_CORETYPE=SkylakeX "$folder/env/bin/python" "$folder/alpha.py"
OPENBLAS_CORETYPE=Haswell "$folder/env/bin/python" "$folder/alpha.py"
