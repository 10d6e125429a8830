"""Check that figures measured with a neighbour agree with figures measured without it.

Runs of a sweep alternate: without a neighbour, with one that multiplies, without, with one that streams
memory (`tools.neighbour`). A row's reference is the median over the runs without. `--from FOLDER` judges
saved runs again. Other options go to gemmbench: `--budget 0.1 --patience 0`.

Exit status: 1 if more than 1 in 20 figures without `~` is off by more than 5 % (streaming: 7 %), more than
1 in 10 with the waiting rule off, or if fewer than 65 % of the figures are without `~`.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from msgspec import UNSET

from gemmbench.model.row import RowKey, Scope
from gemmbench.model.run_file import Run, load
from gemmbench.stats import rates
from gemmbench.stats.rates import is_uncertain, shown_samples
from tools.neighbour import KINDS

ROOT = Path(__file__).resolve().parents[1]
WORDS = ("square", "--sizes", "256,512,1024", "--kernel", "cpu-packed,register,tiled", "--baseline", "numpy")
NONE = "none"
LIMITS = dict(zip(KINDS, (0.05, 0.07), strict=True)) | {NONE: 0.05}  # above it a figure is off
LEAST_UNMARKED = 0.65  # of all figures
_END_S = 900  # of a neighbour, should this process be killed

# How batches are counted, and how many of the unmarked figures may then be off
RULES: Mapping[str, tuple[Callable[[Scope], Scope], float]] = {
    "quiet batches": (lambda scope: scope, 1 / 20),
    "without the waiting rule": (lambda scope: replace(scope, waited_s=UNSET), 1 / 10),
    "all batches": (lambda scope: replace(scope, quiet_s=UNSET), 1.0),
}


@dataclass(frozen=True)
class Figure:
    """A cell of the table."""

    key: RowKey
    rate: float
    is_marked: bool


@dataclass(frozen=True)
class Count:
    """How many figures there are, how many have no `~`, and how wrong they are."""

    figures: int
    unmarked: int
    off: int  # of the unmarked
    largest: float  # error of the unmarked, as a fraction
    all_off: int

    def holds(self, off: float, unmarked: float = 0.0) -> bool:
        """Whether at most a share of the unmarked figures is off, and at least a share is unmarked."""
        return (
            self.figures > 0 and self.off <= off * self.unmarked and self.unmarked >= unmarked * self.figures
        )


def figures(run: Run, rule: Callable[[Scope], Scope]) -> list[Figure]:
    """The figures of a run's table if its batches are counted by a rule. Rows without a rate are marked."""
    rows = (
        replace(row, samples={name: rule(each) for name, each in row.samples.items()}) for row in run.rows
    )
    run = replace(run, rows=tuple(row for row in rows if row.kind == "gemm"))
    scope = rates.view_scope(run)
    shown = ((row, rates.shown_rate(row, scope)) for row in run.rows)
    return [
        Figure(
            row.key,
            rate.median if rate else 0.0,
            not rate or is_uncertain(run, row, shown_samples(row, scope)),
        )
        for row, rate in shown
    ]


def references(runs: Sequence[Run]) -> dict[RowKey, float]:
    """The median rate of each row over runs: of its unmarked figures, or of all if there are none."""
    every = [figure for run in runs for figure in figures(run, RULES["quiet batches"][0]) if figure.rate]
    known = {}
    for key in {figure.key for figure in every}:
        own = [figure for figure in every if figure.key == key]
        counted = [figure for figure in own if not figure.is_marked] or own
        known[key] = statistics.median(figure.rate for figure in counted)
    return known


def count(
    runs: Sequence[Run], known: Mapping[RowKey, float], rule: Callable[[Scope], Scope], limit: float
) -> Count:
    """Compare the figures of runs with the references. Rows without a reference are off."""
    every = [figure for run in runs for figure in figures(run, rule)]
    errors = [abs(each.rate / known[each.key] - 1) if each.key in known else math.inf for each in every]
    unmarked = [error for error, figure in zip(errors, every, strict=True) if not figure.is_marked]
    off, all_off = (sum(error > limit for error in those) for those in (unmarked, errors))
    return Count(len(every), len(unmarked), off, max(unmarked, default=0.0), all_off)


def judge(runs: Mapping[str, Sequence[Run]]) -> bool:
    """Print the counts of runs by kind of neighbour. Return whether all shares are as they should be."""
    known, is_right = references(runs[NONE]), True
    for kind, limit in LIMITS.items():
        print(f"{kind}: {len(runs[kind])} runs; off is more than {limit:.0%}")
        for name, (rule, share) in RULES.items():
            made = count(runs[kind], known, rule, limit)
            least = LEAST_UNMARKED if name == "quiet batches" else 0.0
            is_good = kind == NONE or made.holds(share, least)
            is_right &= is_good
            unmarked = f"{made.unmarked:3} of {made.figures} unmarked, {made.off:2} of these off"
            mark = "" if is_good else "  <- too many off, or too few unmarked"
            print(f"  {name:<26}{unmarked}, by {made.largest:.1%} at most; {made.all_off} of all off{mark}")
    return is_right


@contextmanager
def neighbour(kind: str, seed: int) -> Iterator[None]:
    """Run a neighbour on the last core meanwhile."""
    words = ("-m", "tools.neighbour", "--kind", kind, "--seed", str(seed), "--seconds", str(_END_S))
    process = None if kind == NONE else subprocess.Popen([sys.executable, *words], cwd=ROOT)
    try:
        yield
    finally:
        if process:
            process.kill()
            process.wait()


def measure(folder: Path, rounds: int, more: Sequence[str]) -> None:
    """Measure and save four runs in each round."""
    folder.mkdir(parents=True, exist_ok=True)
    for number, kind in enumerate(rounds * (NONE, KINDS[0], NONE, KINDS[1])):
        path, begin = folder.resolve() / f"{number:02}-{kind}.jsonl", time.monotonic()
        with neighbour(kind, number):
            words = (*WORDS, "--no-peak", "--quiet", "--save", str(path), *more)
            command = [sys.executable, "-m", "gemmbench", *words]
            subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
        print(f"{path}: {time.monotonic() - begin:.0f} s", flush=True)


def main() -> int:
    """Measure unless runs are given, and judge."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=2, help="of four runs each (default: 2)")
    parser.add_argument("--from", dest="saved", type=Path, metavar="FOLDER", help="judge these runs")
    default = Path("build", f"neighbour-{time.strftime('%m%d-%H%M%S')}")
    parser.add_argument("--to", type=Path, metavar="FOLDER", default=default, help="where runs are saved")
    options, more = parser.parse_known_args()
    if not options.saved:
        measure(options.to, options.rounds, more)
    folder = options.saved or options.to
    runs = {kind: [load(path) for path in sorted(folder.glob(f"*-{kind}.jsonl"))] for kind in LIMITS}
    return 0 if judge(runs) else 1


if __name__ == "__main__":
    sys.exit(main())
