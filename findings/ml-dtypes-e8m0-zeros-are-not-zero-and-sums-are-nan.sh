#!/usr/bin/env bash
# float8_e8m0fnu, the type of block scales in MX formats, has no zero. One would guess that numpy refuses to
# create zeros of this type, and that sums of ones work.
# Instead np.zeros gives 2^-127, converting 0 gives NaN, and np.sum gives NaN for any input, because it starts
# at a converted 0.
# If you prepare scales with np.zeros or np.eye, or check them with np.sum, you test with other data than you
# think.
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
scale = ml_dtypes.float8_e8m0fnu
ones = np.ones(4, scale)
seen = {
    "np.zeros": float(np.zeros(1, scale)[0]),
    "np.eye off the diagonal": float(np.eye(2, dtype=scale)[0, 1]),
    "0.0 converted": float(np.array([0.0]).astype(scale)[0]),
    "1 + 1": float((ones + ones)[0]),
    "sum of four ones": float(np.sum(ones)),
    "product of four ones": float(np.prod(ones)),
}
for name, value in seen.items():
    print(f"{name}: {value:g}")
tiny, nan = 2.0**-127, float("nan")
if not np.array_equal(list(seen.values()), [tiny, tiny, nan, 2, nan, 1], equal_nan=True):
    sys.exit("the behaviour has changed")
EOF
