#!/usr/bin/env bash
# One would guess that numpy sorts bfloat16 as it sorts float16: the numbers in order, then NaN.
# Instead a NaN leaves the numbers around it unsorted, without a warning. That holds for every float type of
# ml_dtypes tried here. np.unique is affected too.
# A quantile read from such an array can be any element. Convert to float32 before sorting.
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
values = [3, np.nan, 1, 2]
changed = False
for dtype in (np.float16, np.float32, ml_dtypes.bfloat16, ml_dtypes.float8_e5m2, ml_dtypes.float8_e4m3fn):
    array = np.array(values, dtype)
    result, unique = np.sort(array).astype(float).tolist(), np.unique(array).astype(float).tolist()
    print(f"{array.dtype}: sort {result}, unique {unique}")
    expected = [1.0, 2.0, 3.0, np.nan] if dtype in (np.float16, np.float32) else values
    changed |= not np.array_equal(result, expected, equal_nan=True)
    changed |= not np.array_equal(unique, expected, equal_nan=True)
if changed:
    sys.exit("the behaviour has changed")
EOF
