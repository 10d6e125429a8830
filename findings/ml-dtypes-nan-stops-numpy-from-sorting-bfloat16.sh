#!/usr/bin/env bash
# One would guess that numpy sorts bfloat16 as it sorts float16: the numbers in order, then NaN.
# Instead a NaN leaves numbers unsorted, without a warning, in every float type of ml_dtypes tried here. One NaN
# in the middle of 1000 numbers leaves most of them in the wrong place after a stable sort. np.unique, and the
# default sort of short arrays, are affected too.
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
numbers = np.random.default_rng(0).random(1000).astype(ml_dtypes.bfloat16)
numbers[500] = np.nan
result, expected = np.sort(numbers, kind="stable"), np.sort(numbers.astype(np.float32), kind="stable")
misplaced = int((result.astype(np.float32) != expected)[:-1].sum())
print(f"bfloat16: {misplaced} of 1000 numbers are misplaced by a stable sort with one NaN among them")
if changed or misplaced < 500:
    sys.exit("the behaviour has changed")
EOF
