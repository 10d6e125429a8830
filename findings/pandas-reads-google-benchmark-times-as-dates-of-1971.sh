#!/usr/bin/env bash
# One would guess that pandas.read_json reads `"real_time": 40000000.5` as a number.
# Instead a column whose name ends in _time becomes dates if all its numbers exceed 31536000, the seconds of a
# year. Google Benchmark writes real_time and cpu_time in nanoseconds by default, so 40 ms becomes a day of
# April 1971. One benchmark below 31.5 ms in the file, and the column has numbers again.
# So the fastest benchmark decides whether a script works. The mean of such a column is a date too, and
# nothing raises an error. `dtype=False` helps.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check pandas==3.1.1 numpy==2.4.6
"$folder/env/bin/python" - <<'EOF'
import io
import json
import sys

import pandas

print("pandas", pandas.__version__)


def read(nanoseconds, **options):
    rows = [{"name": f"gemm/{ns}", "real_time": ns, "time_unit": "ns"} for ns in nanoseconds]
    return pandas.read_json(io.StringIO(json.dumps(rows)), **options)["real_time"]


seen = []
for nanoseconds, options in (
    ([40_000_000.5, 60_000_000], {}), ([40_000_000.5, 31_536_000], {}),
    ([40_000_000.5, 60_000_000], {"dtype": False}),
):  # fmt: skip
    column = read(nanoseconds, **options)
    print(f"{nanoseconds} {options}: {column.dtype}, mean {column.mean()}")
    seen.append(column.dtype.kind)
if seen != ["M", "f", "f"]:
    sys.exit("the behaviour has changed")
EOF
