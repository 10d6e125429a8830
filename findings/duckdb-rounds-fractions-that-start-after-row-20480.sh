#!/usr/bin/env bash
# DuckDB guesses the type of a column from its first 20480 rows. One would guess that a later value which does
# not fit is an error, as text in a column of integers is.
# Instead later fractions are rounded to integers without a warning: 0.25 becomes 0. CSV and JSON even round
# differently: 2.5 becomes 3 from CSV and 2 from JSON.
# If the first times of a long table are whole numbers, the others lose their fractions. `COPY ... TO` then
# writes the rounded values. `sample_size=-1` or explicit types prevent it.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet --no-compile --disable-pip-version-check duckdb==2.0.1
cd "$folder"
env/bin/python - <<'EOF'
import sys

import duckdb

print("duckdb", duckdb.__version__)
seen = []
for whole in (20000, 30000):
    times = [1] * whole + [0.25, 1.5, 2.5]
    with open("times.csv", "w") as csv, open("times.json", "w") as json:
        csv.write("ms\n" + "".join(f"{ms}\n" for ms in times))
        json.writelines(f'{{"ms": {ms}}}\n' for ms in times)
    for source in ("'times.csv'", "'times.json'", "read_csv('times.csv', sample_size=-1)"):
        relation = duckdb.sql(f"FROM {source}")
        seen.append([value for (value,) in relation.fetchall()[-3:]])
        print(f"{whole} ones, then 0.25, 1.5 and 2.5, FROM {source}: {relation.types[0]}, {seen[-1]}")
with open("times.csv", "w") as csv:
    csv.write("ms\n" + "1\n" * 30000 + "none\n")
try:
    duckdb.sql("FROM 'times.csv'").fetchall()
    seen.append("no error")
except duckdb.ConversionException:
    seen.append("ConversionException")
print("text after 30000 ones:", seen[-1])
exact = [0.25, 1.5, 2.5]
if seen != [exact, exact, exact, [0, 2, 3], [0, 2, 2], exact, "ConversionException"]:
    sys.exit("the behaviour has changed")
EOF
