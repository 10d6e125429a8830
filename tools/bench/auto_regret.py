"""What ``auto`` loses against the best of what it could have taken, on every CPU driver.

Runs ``gemmbench square`` with the whole ladder, auto and numpy, from an empty cache, and prints for each size
the time of auto's row over that of the best row, host scope. Beside it stands what it would have lost without
any measurement of that size: as a library stands that was tuned at others.

auto's row measures a second time what it took, so that the ratio of these two is noise alone; the geometric
mean of the regret may be 3 % and that noise.

Exit status: 0 within the limit on every driver, 1 over it, 2 there is no CPU driver or gemmbench failed, 3
the noise was more than 10 %, with which nothing is shown.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import geometric_mean

from gemmbench.ladder import AUTO
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run, load
from gemmbench.stats import rates
from gemmbench.suite.auto import CHOOSABLE, points, ranked

LIMIT = 1.03
NOISY = 1.1
INCONCLUSIVE = 3
SIZES = "64,96,128,192,256,384,512,768,1024"


@dataclass(frozen=True)
class Regret:
    """Times of one problem, in the same scope."""

    problem: Problem
    automatic: Row
    best: Row
    own: Row | None  # of the variant that `auto` took, measured under its own name
    automatic_s: float
    best_s: float
    own_s: float | None

    @property
    def ratio(self) -> float:
        """Time of auto's row over the best row's: 1 is none, and noise may make it less."""
        return self.automatic_s / self.best_s

    @property
    def noise(self) -> float | None:
        """The same variant measured twice: auto's time over that of the row of its own name."""
        return self.automatic_s / self.own_s if self.own_s else None


def regrets(
    run: Run, device: int, dtype: str, choosable: Collection[str], scope: str = "host"
) -> tuple[Regret, ...]:
    """The problems that `auto` and a variant that it may take were both measured on.

    Args:
        run: with rows of auto.
        device: its position in the header; rows of the host's BLAS go with every device.
        dtype: of the operands.
        choosable: the variants that auto may take.
        scope: that is compared.
    """
    groups: dict[Problem, list[tuple[float, Row]]] = {}
    for row in run.rows:
        if row.kind != "gemm" or row.dtype != dtype or row.device not in (device, HOST) or not row.problem:
            continue
        times = rates.summary(row, scope)
        if row.status == "ok" and times and (row.variant == AUTO or row.variant in choosable):
            groups.setdefault(row.problem, []).append((times.median, row))
    found = []
    for problem, timed in groups.items():
        automatic = [(seconds, row) for seconds, row in timed if row.variant == AUTO]
        others = [(seconds, row) for seconds, row in timed if row.variant != AUTO]
        if not automatic or not others:
            continue
        best_s, best = min(others, key=lambda pair: pair[0])
        automatic_s, row = automatic[-1]
        ran = rates.what_ran(row)
        own_s, own = next(((s, one) for s, one in others if one.variant == ran), (None, None))
        found.append(Regret(problem, row, best, own, automatic_s, best_s, own_s))
    return tuple(found)


def mean_ratio(found: Iterable[Regret]) -> float | None:
    """The geometric mean of the ratios; None if there are none."""
    ratios = [regret.ratio for regret in found]
    return geometric_mean(ratios) if ratios else None


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="all", help="as gemmbench --device; GPUs are left out")
    parser.add_argument("--dtype", default="float", help="one data type")
    parser.add_argument("--sizes", default=SIZES, help="with commas")
    parser.add_argument("--kernel", default="all,auto", help="auto and what it is held against")
    parser.add_argument("--budget", default="0.5", help="seconds for each row")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.jsonl"
        words = (
            "square", "--device", options.device, "--dtype", options.dtype, "--sizes", options.sizes,
            "--kernel", options.kernel, "--budget", options.budget,
            "--no-peak", "--quiet", "--save", str(path),
        )  # fmt: skip
        done = subprocess.run(
            [sys.executable, "-m", "gemmbench", *words],
            env={**os.environ, "XDG_CACHE_HOME": folder},
            stdout=subprocess.DEVNULL,
            check=False,
        )
        if done.returncode:
            return 2
        run = load(path)
    places = [place for place, device in enumerate(run.header.devices) if device.type == "cpu"]
    if not places:
        print("auto_regret: there is no OpenCL driver for the CPU", file=sys.stderr)
        return 2
    return max([report(run, place, options.dtype) for place in places])


def report(run: Run, device: int, dtype: str) -> int:
    """Print a driver's table; its exit status."""
    found = regrets(run, device, dtype, CHOOSABLE)
    print(run.header.devices[device].title)
    print(
        f"{'size':>6}  {'auto took':<16}{'GFLOPS':>8}  {'best':<16}{'GFLOPS':>8}{'regret':>10}{'noise':>10}",
        end="",
    )
    print(f"  {'not having measured it':<24}{'regret':>10}")
    unseen: list[float] = []
    for one in found:
        flops = 2 * one.problem.m * one.problem.n * one.problem.k
        took, blind = rates.what_ran(one.automatic), blindly(run, device, dtype, one)
        print(f"{one.problem.m:>6}  {took:<16}{units.gflops(flops / one.automatic_s):>8}", end="")
        print(f"  {one.best.variant:<16}{units.gflops(flops / one.best_s):>8}{loss(one.ratio):>10}", end="")
        print(f"{loss(one.noise):>10}  {blind[0]:<24}{loss(blind[1]):>10}")
        unseen += [blind[1]] if blind[1] else []
    mean = mean_ratio(found)
    noise = allowance([one.noise for one in found if one.noise])
    unseen_mean = geometric_mean(unseen) if unseen else None
    print(f"geometric mean {loss(mean)} (limit {loss(LIMIT * noise)}, {loss(noise)} of it noise)", end="")
    print(f"; without the size's own measurements {loss(unseen_mean)}\n")
    if noise > NOISY:
        return INCONCLUSIVE
    return int(mean is None or mean > LIMIT * noise)


def blindly(run: Run, device: int, dtype: str, one: Regret) -> tuple[str, float | None]:
    """What the measurements of the other sizes would have taken, and the ratio of its time to the best."""
    problem = rates.gemm_of(one.best)
    known = points((row for row in run.rows if row.problem != one.problem), device)
    choices = ranked(problem, known)
    if not choices:
        return "-", None
    first = choices[0]
    own = points(
        (row for row in run.rows if row.problem == one.problem and row.variant == first.variant), device
    )
    return first.variant, own[0].host_s / one.best_s if own else None


def allowance(noises: Sequence[float]) -> float:
    """The typical ratio, either way, of two measurements of the same."""
    return math.exp(sum(abs(math.log(noise)) for noise in noises) / len(noises)) if noises else 1.0


def loss(ratio: float | None) -> str:
    """A ratio of times as what is lost: ``2.1 %``."""
    return units.percent(ratio - 1) if ratio else "-"


if __name__ == "__main__":
    sys.exit(main())
