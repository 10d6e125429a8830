"""``make gate``: the gate itself, tried on this machine, whatever its speed.

``check --against`` times kernels in turn with those of another folder. Here some kernels of this checkout are
timed with themselves, of which none may be slower; then one is given four times its work, which has to be
found. Nothing hangs on a saved run: rates of another machine, or of another hour of this one, tell too little.

Exit status: 0 as it should be, 1 not, or too busy a machine to tell anything.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))  # run as a script: what follows is imported from there, hence E402

from tests import planted_machine  # noqa: E402

KERNELS = (planted_machine.VARIANT, "tiled", "register")
MORE_WORK = 3.0
THRESHOLD = "50%"
ATTEMPTS = 3  # neighbours may be busy


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


def verdicts(checkout: Path, base: Path) -> dict[tuple[str, str], str]:
    """What a check of a checkout's kernels against this one's says of each device's kernels."""
    options = ("--threshold", THRESHOLD, "--patience", "20", "--budget", "0.5", "--format", "json")
    _, printed = gemmbench(checkout, "check", base, "--against", ROOT / "kernels", *options)
    rows = json.loads(printed)["rows"] if printed else []
    for row in rows:
        print(f"  {row['verdict']:<13}{row['variant']} on {row['device']}", flush=True)
    return {(row["device"], row["variant"]): row["verdict"] for row in rows}


def planted(folder: Path) -> Path:
    """A copy of this checkout, one kernel of which does more work."""
    shutil.copytree(ROOT / "gemmbench", folder / "gemmbench", ignore=shutil.ignore_patterns("__pycache__"))
    planted_machine.plant(folder / "kernels", MORE_WORK)
    return folder


def holds(checkout: Path, base: Path, slower: str = "") -> bool:
    """Whether no kernel is slower but one, and that on every device; checked again while that one is open."""
    settled: dict[tuple[str, str], str] = {}
    for _ in range(ATTEMPTS):
        found = verdicts(checkout, base)
        settled |= {row: verdict for row, verdict in found.items() if verdict != "inconclusive"}
        missed = [row for row in found if row[1] == slower and settled.get(row) != "slower"]
        wrong = [row for row in settled if row[1] != slower and settled[row] != "same"]
        if wrong or (settled and not missed):
            break
    for device, variant in (*missed, *wrong):
        print(f"gate: {variant} on {device} is {settled.get((device, variant), 'inconclusive')}")
    if not settled:
        print("gate: nothing could be decided")
    return bool(settled) and not missed and not wrong


def main() -> int:
    """Measure a base, check twice."""
    with tempfile.TemporaryDirectory(prefix="gemmbench-gate-") as scratch:
        base = Path(scratch, "base.jsonl")
        words = ("--sizes", "256", "--kernel", ",".join(KERNELS), "--baseline", "none", "--no-peak")
        gemmbench(ROOT, "square", *words, "--budget", "0.5", "--save", base)
        print("kernels in turn with themselves:", flush=True)
        if not holds(ROOT, base):
            return 1
        print(f"{planted_machine.VARIANT} with four times its work:", flush=True)
        return 0 if holds(planted(Path(scratch, "planted")), base, planted_machine.VARIANT) else 1


if __name__ == "__main__":
    sys.exit(main())
