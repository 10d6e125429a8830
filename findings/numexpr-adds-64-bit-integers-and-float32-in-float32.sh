#!/usr/bin/env bash
# One would guess that numexpr returns the type and value that numpy returns for the same expression.
# Instead int64 plus float32 is float32, where numpy has float64. Sums of int32 stay int32 and wrap, where
# numpy adds in int64. The largest uint64 becomes -1.
# Time stamps in nanoseconds near 1.8e18 change by up to a minute if a float32 correction is added, and a
# total of int32 durations can be negative.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check numexpr==2.14.2 numpy==2.4.6
"$folder/env/bin/python" - <<'EOF'
import sys

import numexpr
import numpy as np

print("numexpr", numexpr.__version__, "numpy", np.__version__)
arrays = {
    "stamp": np.array([1_800_000_000_000_000_123]), "correction": np.zeros(1, np.float32),
    "duration": np.full(3, 10**9, np.int32), "large": np.array([2**64 - 1], np.uint64),
}  # fmt: skip
seen = []
for expression in ("stamp + correction", "sum(duration)", "large + 0"):
    by_numexpr = numexpr.evaluate(expression, arrays)
    by_numpy = eval(expression, {"sum": np.sum}, arrays)
    print(f"{expression}: numexpr {by_numexpr.dtype} {by_numexpr.max()}", end=", ")
    print(f"numpy {by_numpy.dtype} {by_numpy.max()}")
    seen.append((str(by_numexpr.dtype), str(by_numpy.dtype), int(by_numexpr.max()) - int(by_numpy.max())))
print(f"the stamp changes by {seen[0][2] * 1e-9:.1f} s")
expected = [("float32", "float64", 40_471_625_728)]
expected += [("int32", "int64", -(2**32)), ("int64", "uint64", -(2**64))]
if seen != expected:
    sys.exit("the behaviour has changed")
EOF
