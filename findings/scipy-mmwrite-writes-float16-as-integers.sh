#!/usr/bin/env bash
# One would guess that scipy.io.mmwrite writes a float16 matrix as real numbers, or refuses it.
# Instead it declares the matrix "integer" and cuts off all fractions, without a warning. bfloat16 and
# big-endian float64 are affected too. float32 and float64 are exact.
# Operands in half precision that pass through a Matrix Market file come back as int64, and mostly as 0 if
# they were below 1. `field="real"` helps.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check \
  numpy==2.4.6 scipy==1.17.1 ml_dtypes==0.6.0
"$folder/env/bin/python" - <<'EOF'
import io
import sys

import ml_dtypes
import numpy as np
import scipy

print("numpy", np.__version__, "scipy", scipy.__version__, "ml_dtypes", ml_dtypes.__version__)


def there_and_back(array, **options):
    file = io.BytesIO()
    scipy.io.mmwrite(file, array, **options)
    header = file.getvalue().split()[3].decode()
    return header, scipy.io.mmread(io.BytesIO(file.getvalue())).ravel().tolist()


seen = {}
for dtype in (np.float64, np.float32, np.float16, ml_dtypes.bfloat16, np.dtype(">f8")):
    array = np.array([[0.125, 1.5], [0.75, 40]], dtype)
    seen[str(array.dtype)] = there_and_back(array)
    print(f"{array.dtype}: header {seen[str(array.dtype)][0]}, read back {seen[str(array.dtype)][1]}")
seen["field"] = there_and_back(np.array([[0.125, 1.5], [0.75, 40]], np.float16), field="real")
print(f"float16 with field='real': {seen['field']}")
right, cut = ("real", [0.125, 1.5, 0.75, 40]), ("integer", [0, 1, 0, 40])
if list(seen.values()) != [right, right, cut, cut, cut, right]:
    sys.exit("the behaviour has changed")
EOF
