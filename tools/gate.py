"""``make gate``: the gate itself, tried on this machine, whatever its speed.

``check --against`` interleaves kernels with those of another folder. Here some kernels of this checkout are
interleaved with themselves, and none may be slower or faster. Then one of them does twice its work, which has
to be found.

``python tools/gate.py --power`` counts instead, on one device and at a threshold of 2.5 %: of 60 slowdowns of
5 %, at most six may be missed, and of 1,000 unchanged rows none may be slower. ``check --against --budget 0.3
--patience 0`` measures each of them, nothing is replayed. That takes 15 to 30 minutes.

Exit status: 0 as it should be, 1 not, or nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what follows is imported from there

from tools import planted_machine

ROOT = Path(__file__).resolve().parents[1]
KERNELS = (planted_machine.VARIANT, "tiled", "register")
MORE_WORK = 1.0
THRESHOLD = 0.25
SLIGHTLY_MORE, NARROW = 0.05, 0.025  # work and threshold with --power
SIZES = tuple(range(128, 248, 2))  # with --power, a slowdown each
MOST_MISSED = 0.1  # of the slowdowns

Rows = list[dict[str, Any]]


def gemmbench(checkout: Path, *words: str | Path) -> tuple[int, str]:
    """Run the gemmbench of a checkout; its exit status and stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "gemmbench", *words, "--quiet"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def measured(base: Path, sizes: Iterable[int], kernels: str, *words: str) -> None:
    """Save a base."""
    case = ("--sizes", ",".join(map(str, sizes)), "--kernel", kernels, "--baseline", "none", "--no-peak")
    gemmbench(ROOT, "square", *case, *words, "--save", base)


def rows(checkout: Path, base: Path, old: Path, threshold: float, *words: str) -> Rows:
    """The rows of a check of a checkout's kernels against a folder of old ones."""
    options = ("--threshold", str(threshold), "--format", "json", *words)
    _, printed = gemmbench(checkout, "check", base, "--against", old, *options)
    return json.loads(printed)["rows"] if printed else []


def planted(folder: Path, share: float) -> Path:
    """A copy of this checkout, one kernel of which does this share of work more."""
    shutil.copytree(ROOT / "gemmbench", folder / "gemmbench", ignore=shutil.ignore_patterns("__pycache__"))
    planted_machine.plant(folder / "kernels", share)
    return folder


def holds(checkout: Path, base: Path, slower: str = "") -> bool:
    """Whether one kernel is slower on every device, and no other is.

    On a busy machine nobody may be able to tell. The ratio of the slower kernel must then be above the
    threshold all the same.
    """
    checked = rows(checkout, base, ROOT / "kernels", THRESHOLD, "--device", "all")
    right = bool(checked)
    for row in checked:
        verdict, ratio = row["verdict"], row["ratio"] or 0.0
        if row["variant"] == slower:
            good = verdict == "slower" or (verdict == "cannot tell" and ratio > 1 + THRESHOLD)
        else:
            good = verdict in ("unchanged", "cannot tell")
        right &= good
        mark = "" if good else "  <- gate: it should not be"
        print(f"  {verdict:<13}{ratio:5.2f} x  {row['variant']:<9} on {row['device']}{mark}", flush=True)
    return right


def verdicts(checked: Rows) -> Counter[str]:
    return Counter(row["verdict"] for row in checked)


def has_power(slowdowns: Counter[str], unchanged: Counter[str], count: int) -> bool:
    """Whether few slowdowns were missed, and none of `count` unchanged rows or more is slower, by verdict."""
    missed = slowdowns.total() - slowdowns["slower"]
    wrong = unchanged["slower"] + unchanged["broken"]
    is_found = slowdowns.total() > 0 and missed <= MOST_MISSED * slowdowns.total()
    return is_found and unchanged.total() >= count and not wrong


def power(scratch: Path, count: int) -> bool:
    """Count missed slowdowns and slower rows among so many unchanged ones, and print the counts.

    The old kernel of a slowdown has the same loop without more turns, which costs some per cent in itself.
    """
    base, begin = scratch / "base.jsonl", time.monotonic()
    measured(base, SIZES, planted_machine.VARIANT, "--budget", "0.01", "--patience", "0")
    old, new = planted(scratch / "old", 0.0), planted(scratch / "new", SLIGHTLY_MORE)
    words = ("--budget", "0.3", "--patience", "0")

    def report(what: str, found: Counter[str]) -> None:
        counts = ", ".join(f"{number} {verdict}" for verdict, number in found.most_common())
        print(f"{time.monotonic() - begin:5.0f} s, {found.total()} {what}: {counts}", flush=True)

    slowdowns = verdicts(rows(new, base, old / "kernels", NARROW, *words))
    report(f"slowdowns of {SLIGHTLY_MORE:.0%}", slowdowns)
    unchanged: Counter[str] = Counter()
    for _ in range(math.ceil(count / len(SIZES))):
        unchanged += verdicts(rows(ROOT, base, ROOT / "kernels", NARROW, *words))
        report("unchanged rows", unchanged)
    return has_power(slowdowns, unchanged, count)


def main() -> int:
    """Measure a base, check twice, or count with --power."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--power", action="store_true", help="count missed slowdowns and false alarms")
    parser.add_argument("--unchanged", type=int, default=1000, metavar="N", help="rows with --power")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="gemmbench-gate-") as scratch:
        if options.power:
            return 0 if power(Path(scratch), options.unchanged) else 1
        base = Path(scratch, "base.jsonl")
        measured(base, (96,), ",".join(KERNELS), "--device", "all", "--budget", "0.5")
        print("kernels interleaved with themselves:", flush=True)
        if not holds(ROOT, base):
            return 1
        print(f"{planted_machine.VARIANT} with twice its work:", flush=True)
        return 0 if holds(planted(Path(scratch, "planted"), MORE_WORK), base, planted_machine.VARIANT) else 1


if __name__ == "__main__":
    sys.exit(main())
