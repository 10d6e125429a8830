"""``make gate``: the gate itself, tried on this machine, whatever its speed.

``check --against`` interleaves kernels with those of another folder. Here some kernels of this checkout are
interleaved with themselves, and none may be slower or faster. Then one of them does twice its work, which has
to be found.

Exit status: 0 as it should be, 1 not, or nothing was measured.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))  # what follows is imported from there

from tools import planted_machine

ROOT = Path(__file__).resolve().parents[1]
KERNELS = (planted_machine.VARIANT, "tiled", "register")
MORE_WORK = 1.0
THRESHOLD = 0.25


def gemmbench(checkout: Path, *words: str | Path) -> tuple[int, str]:
    """Run the gemmbench of a checkout on every device; its exit status and stdout."""
    done = subprocess.run(
        [sys.executable, "-m", "gemmbench", *words, "--device", "all", "--quiet"],
        cwd=checkout,
        env={**os.environ, "PYTHONPATH": str(checkout)},
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    return done.returncode, done.stdout


def rows(checkout: Path, base: Path) -> list[dict[str, Any]]:
    """The rows of a check of a checkout's kernels against this one's."""
    options = ("--threshold", str(THRESHOLD), "--format", "json")
    _, printed = gemmbench(checkout, "check", base, "--against", ROOT / "kernels", *options)
    return json.loads(printed)["rows"] if printed else []


def planted(folder: Path) -> Path:
    """A copy of this checkout, one kernel of which does more work."""
    shutil.copytree(ROOT / "gemmbench", folder / "gemmbench", ignore=shutil.ignore_patterns("__pycache__"))
    planted_machine.plant(folder / "kernels", MORE_WORK)
    return folder


def holds(checkout: Path, base: Path, slower: str = "") -> bool:
    """Whether one kernel is slower on every device, and no other is.

    On a busy machine nobody may be able to tell. The ratio of the slower kernel must then be above the
    threshold all the same.
    """
    checked = rows(checkout, base)
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


def main() -> int:
    """Measure a base, check twice."""
    argparse.ArgumentParser(description=__doc__.splitlines()[0]).parse_args()
    with tempfile.TemporaryDirectory(prefix="gemmbench-gate-") as scratch:
        base = Path(scratch, "base.jsonl")
        words = ("--sizes", "96", "--kernel", ",".join(KERNELS), "--baseline", "none", "--no-peak")
        gemmbench(ROOT, "square", *words, "--budget", "0.5", "--save", base)
        print("kernels interleaved with themselves:", flush=True)
        if not holds(ROOT, base):
            return 1
        print(f"{planted_machine.VARIANT} with twice its work:", flush=True)
        return 0 if holds(planted(Path(scratch, "planted")), base, planted_machine.VARIANT) else 1


if __name__ == "__main__":
    sys.exit(main())
