#!/usr/bin/env bash
# One would guess that np.mean and np.var in a numba function are about as exact as numpy's own.
# Instead numba adds float32 values one by one into a float32. The mean of a million values near 10000 is off
# by more than 100. The variance around that mean is 17080 instead of 0.083. The mean of 2^25 ones is 0.5.
# Statistics of float32 samples become wrong when the function that computes them is compiled, without a
# warning.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check numba==0.68.1 numpy==2.3.5
"$folder/env/bin/python" - <<'EOF'
import sys

import numba
import numpy as np

print("numba", numba.__version__, "numpy", np.__version__)
samples = np.float32(1e4) + np.random.default_rng(0).random(10**6, dtype=np.float32)
ones = np.ones(2**25, np.float32)
mean, variance = (lambda x: np.mean(x)), (lambda x: np.var(x))
seen = {}
for name, functions in (("numpy", (mean, variance)), ("numba", (numba.njit(mean), numba.njit(variance)))):
    seen[name] = [float(functions[0](samples)), float(functions[1](samples)), float(functions[0](ones))]
    print(f"{name}: a million samples in [10000, 10001) have mean {seen[name][0]:.2f}", end=" ")
    print(f"and variance {seen[name][1]:.3f}, 2^25 ones have mean {seen[name][2]:g}")
right = abs(seen["numpy"][0] - 10000.5) < 0.1 and 0.08 < seen["numpy"][1] < 0.09 and seen["numpy"][2] == 1
wrong = abs(seen["numba"][0] - 10000.5) > 100 and seen["numba"][1] > 1e4 and seen["numba"][2] == 0.5
if not (right and wrong):
    sys.exit("the behaviour has changed")
EOF
