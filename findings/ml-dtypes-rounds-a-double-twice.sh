#!/usr/bin/env bash
# One would guess that ml_dtypes rounds a float64 once to bfloat16 or fp8, as numpy does to float16.
# Instead it rounds to float32 first, and then again. A double slightly above the middle of two bfloat16
# values first becomes the middle, and then the even neighbour, which is the lower one here.
# If a reference is computed in double and converted, its last bit can be wrong where the tested kernel is
# right.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check numpy==2.4.6 ml_dtypes==0.6.0
"$folder/env/bin/python" - <<'EOF'
import sys

import ml_dtypes
import numpy as np

print("numpy", np.__version__, "ml_dtypes", ml_dtypes.__version__)
seen = []
for dtype, eps in (
    (np.float16, 2.0**-10), (ml_dtypes.bfloat16, 2.0**-7),
    (ml_dtypes.float8_e4m3fn, 2.0**-3), (ml_dtypes.float8_e5m2, 2.0**-2),
):  # fmt: skip
    above_the_middle = np.array([1 + eps / 2 + 2.0**-40])
    seen.append(float(above_the_middle.astype(dtype)[0]))
    print(f"{np.dtype(dtype)}: 1 + eps/2 + 2^-40 becomes {seen[-1]}, the nearest is {1 + eps}")
if seen != [1 + 2.0**-10, 1, 1, 1]:
    sys.exit("the behaviour has changed")
EOF
