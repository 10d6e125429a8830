"""``make soak``: every fault test in full, two at a time, and their table in docs/faults.md.

The table is written from docs/faults.json, which is written from the tests' own counts; ``--write`` writes
it again from there, and a test holds the two files against each other and against the list of faults.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from gemmbench import __version__
from tests.faults.ledger import FAULTS, RESULTS, table

ROOT = Path(__file__).resolve().parents[1]
RESULT, DOCUMENT = ROOT / "docs" / "faults.json", ROOT / "docs" / "faults.md"
AT_ONCE = 2
FIRST = ("ctrl_c", "sigterm", "killed", "changed", "cut_at", "grow")  # that take longest

TEXT = """\
# What becomes of a run when something goes wrong

Every row of a run is on the disk before the next is measured, the driver lives in a process of its own, and a file
has one writer. So a crash, a full disk, a cancelled job or a cut connection costs the row in flight, and the same
command with `--resume` measures what is missing:

- a driver that crashes or is killed costs its own row, with status `crashed` and the signal;
- Ctrl-C, and SIGTERM by which a CI job or a queue ends a run, print the table so far and where the rows are, with
  exit status 130; a second gemmbench on the same file is refused until the first has ended, however it ended;
- a full disk, a damaged file or a missing driver is one sentence on stderr and exit status 2, never 1, which is a
  regression; a file that is only read is never changed;
- a cache folder that cannot be written, or no home folder at all, costs a note: peaks are measured again each time;
- times are taken from a monotonic clock, and numbers are written and read without regard to the locale;
- names from drivers and files are text: escaped in tables, markdown, XML and SVG, and part of no path.

Below is what `make soak` has tried, and what it cost. `rows` are those that the tests expected in the end, after
`--resume` where the run was interrupted; `lost` are those that were missing, `twice` those that were there more than
once. Where no row hangs on a fault there is a dash. `make test` tries the same with smaller counts.

{table}
Of {times:,} faults {lost}. Measured by gemmbench {gemmbench} on {date} in {minutes:.0f} minutes, on {system} with
{cores} cores and Python {python}. Random moments, sizes and bytes are drawn from fixed seeds.
"""  # noqa: E501  # a page's text


def main() -> int:
    """Run the faults, or with ``--write`` only write their table again."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--write", action="store_true", help="only write the table again")
    if parser.parse_args().write:
        DOCUMENT.write_text(document(json.loads(RESULT.read_text())))
        return 0
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        passed = run(folder)
        found = {path.stem: json.loads(path.read_text()) for path in Path(folder).glob("*.json")}
    if missing := [key for key in FAULTS if key not in found]:
        print(f"no result of {', '.join(missing)}: docs/faults.md stays as it was", file=sys.stderr)
        return 1
    result: dict[str, Any] = {
        "gemmbench": __version__,
        "date": datetime.now(timezone.utc).date().isoformat(),
        "system": platform.system(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "minutes": (time.monotonic() - begin) / 60,
        "faults": {key: found[key] for key in FAULTS},
    }
    RESULT.write_text(json.dumps(result, indent=1) + "\n")
    DOCUMENT.write_text(document(result))
    print(table(result["faults"]))
    return 0 if passed else 1


def run(folder: str) -> bool:
    """Every fault test in a process of its own; whether all passed."""
    pytest = [sys.executable, "-m", "pytest", "-q", "-m", "fault", "-p", "no:cacheprovider"]
    listed = subprocess.run(
        [*pytest, "--collect-only", "tests/faults"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    tests = [line for line in listed.stdout.splitlines() if "::" in line]
    tests.sort(key=lambda test: next((place for place, word in enumerate(FIRST) if word in test), len(FIRST)))

    def one(test: str) -> bool:
        begin = time.monotonic()
        done = subprocess.run(
            [*pytest, test],
            cwd=ROOT,
            env={**os.environ, RESULTS: folder},
            capture_output=True,
            text=True,
            check=False,
        )
        print(
            f"{'ok    ' if not done.returncode else 'FAILED'} {time.monotonic() - begin:4.0f} s  {test}",
            flush=True,
        )
        if done.returncode:
            print(done.stdout + done.stderr, flush=True)
        return done.returncode == 0

    with ThreadPoolExecutor(AT_ONCE) as pool:
        return all([*pool.map(one, tests)])


def document(result: dict[str, Any]) -> str:
    """docs/faults.md."""
    faults = result["faults"]
    lost = sum(found["lost"] + found["twice"] for found in faults.values())
    rows = sum(found["rows"] for found in faults.values())
    words = f"none lost a row, of {rows:,}" if not lost else f"some lost rows: {lost} of {rows:,}"
    times = sum(found["times"] for found in faults.values())
    return TEXT.format(**{**result, "table": table(faults), "lost": words, "times": times})


if __name__ == "__main__":
    sys.exit(main())
