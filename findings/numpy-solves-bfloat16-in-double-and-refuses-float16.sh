#!/usr/bin/env bash
# One would guess that numpy.linalg treats both 16-bit types alike, or supports float16, numpy's own type,
# better than bfloat16 from ml_dtypes. One would also guess that scipy computes with both in float32.
# Instead numpy.linalg raises a TypeError for float16, but solves in float64 for bfloat16, fp8 and even int4.
# scipy selects the float32 routine for float16, and the float64 routine for bfloat16.
# A time or an error reported for "solve in bfloat16" is that of double precision.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check \
  numpy==2.4.6 scipy==1.17.1 ml_dtypes==0.6.0
"$folder/env/bin/python" - <<'EOF'
import sys

import ml_dtypes
import numpy as np
import scipy
from scipy.linalg import get_lapack_funcs, solve

print("numpy", np.__version__, "scipy", scipy.__version__, "ml_dtypes", ml_dtypes.__version__)


def type_of(function, *arrays):
    try:
        return str(function(*arrays).dtype)
    except TypeError as error:
        return f"TypeError: {error}"


seen = {}
for dtype in (np.float32, np.float16, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.int4):
    a, b = np.array([[4, 1], [1, 3]], dtype), np.array([4, 1], dtype)
    name = str(a.dtype)
    routine = get_lapack_funcs("gesv", (a, b)).typecode + "gesv"
    seen[name] = type_of(np.linalg.solve, a, b), type_of(solve, a, b), routine
    print(f"{name}: numpy {seen[name][0]}; scipy {seen[name][1]} by {seen[name][2]}")
double = ("float64", "float64", "dgesv")
expected = {
    "float32": ("float32", "float32", "sgesv"),
    "float16": ("TypeError: array type float16 is unsupported in linalg", "float32", "sgesv"),
    "bfloat16": double, "float8_e5m2": double, "int4": double,
}  # fmt: skip
if seen != expected:
    sys.exit("the behaviour has changed")
EOF
