#!/usr/bin/env bash
# One would guess that a reader of JSON Lines keeps every key, or reports an error at an unexpected one.
# Instead polars.read_ndjson takes the columns from the first 100 lines and silently drops keys that start
# later. polars.DataFrame does the same with a list of dicts.
# A value that only later results have, such as an energy or an error message, is lost.
# `infer_schema_length=None` keeps all keys.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check polars==1.44.2
"$folder/env/bin/python" - <<'EOF'
import io
import json
import sys

import polars

print("polars", polars.__version__)
seen = []
for before in (99, 100):
    rows = [{"seconds": 0.5}] * before + [{"seconds": 0.5, "joules": 12.5}]
    lines = "\n".join(map(json.dumps, rows))
    for name, frame in (
        ("read_ndjson", polars.read_ndjson(io.StringIO(lines))),
        ("DataFrame", polars.DataFrame(rows)),
        ("read_ndjson of all lines", polars.read_ndjson(io.StringIO(lines), infer_schema_length=None)),
    ):
        print(f"joules first in row {before + 1}, {name}: columns {frame.columns}, last row {frame.row(-1)}")
        seen.append("joules" in frame.columns)
if seen != [True, True, True, False, False, True]:
    sys.exit("the behaviour has changed")
EOF
