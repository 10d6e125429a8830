"""How long ``gemmbench --help`` takes beside ``python -c "import click"``, as ratio of medians.

The commands take turns, so that what else the machine does falls on all of them. Exit status: 0 up to 1.2
times the time, 1 beyond it.
"""

from __future__ import annotations

import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

LIMIT = 1.2
ROUNDS = 21
BASE = "python -c 'import click'"


def main() -> int:
    """Measure, and print a line for each command."""
    script = Path(sys.executable).with_name("gemmbench")
    commands: dict[str, tuple[str, ...]] = {
        BASE: (sys.executable, "-c", "import click"),
        "python -m gemmbench --help": (sys.executable, "-m", "gemmbench", "--help"),
    }
    if script.exists():
        commands["gemmbench --help"] = (str(script), "--help")
    times: dict[str, list[float]] = {name: [] for name in commands}
    for turn in range(ROUNDS + 1):
        for name, words in commands.items():
            taken = seconds(words)
            if turn:  # the first one fills the disk's cache
                times[name].append(taken)
    base = statistics.median(times[BASE])
    over = False
    print(f"{'start-up (median of ' + str(ROUNDS) + ')':<32}{'ms':>8}{'ratio':>8}{'limit':>8}")
    for name, taken_s in times.items():
        middle = statistics.median(taken_s)
        over = over or middle > LIMIT * base
        print(f"{name:<32}{middle * 1e3:>8.1f}{middle / base:>8.2f}{LIMIT:>8.2f}")
    return int(over)


def seconds(words: Sequence[str]) -> float:
    """How long a command takes."""
    begin = time.perf_counter()
    subprocess.run(words, stdout=subprocess.DEVNULL, check=True)
    return time.perf_counter() - begin


if __name__ == "__main__":
    sys.exit(main())
