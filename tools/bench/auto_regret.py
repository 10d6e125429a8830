"""What ``auto`` loses against the best of what it could have taken, on every CPU driver.

Runs ``gemmbench square`` with the whole ladder, auto and numpy, from an empty cache, and prints for each size
the time of auto's row over that of the best row, host scope. Beside it stands what it would have lost without
any measurement of that size: as a library stands that was tuned at others.

auto's row measures a second time what it took, so that the ratio of these two is noise alone; the geometric
mean of the regret may be 3 % and that noise.

``--unseen 50`` asks what it loses on shapes that it has not seen: a grid of shapes is measured, as a
machine's cache holds them, then 50 others are drawn from a seed, over squares, thin, deep and odd shapes
and batches, and every candidate is measured on each of them in turn with one partner. The rule chooses
from the grid alone. A loss is the best candidate's rate over the chosen one's, both by their ratios to
the partner, so that a machine that changes its speed from shape to shape changes nothing; its interval is
that of these ratios. The best of several noisy figures is too good, so shapes with a loss are measured
a second time: the first measurement says which candidate is the best, the second how much it is ahead, and
that may be less than nothing. Rows that other programs disturbed are left out, as a machine's cache leaves
them out. The geometric mean has a bootstrap interval over the shapes. In use auto tries the candidates on a
shape that it is not sure of; the report says how many those are, and what the others lose. So auto itself
runs on each drawn shape, too, in a session with a cache that holds the grid alone, and what it took there is
judged by the same measurements: its loss in use.
It takes some minutes: ``--folder`` keeps what was measured and goes on with it, ``--share 2/4`` measures
a part of the shapes (each on cores of its own; auto then has that part of the grid alone), and ``--saved``
prints what all parts in a folder say.

Exit status: 0 within the limit on every driver, 1 over it, 2 there is no such device or gemmbench failed, 3
the noise was more than 10 %, with which nothing is shown.
"""

from __future__ import annotations

import argparse
import csv
import math
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import geometric_mean

import numpy as np

from gemmbench.ladder import AUTO, BASELINE, VARIANTS
from gemmbench.model import units
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run, load
from gemmbench.model.units import by_key
from gemmbench.stats import rates
from gemmbench.stats.conditions import disturbed
from gemmbench.suite.auto import CHOOSABLE, Point, by_default, points, ranked, untried
from gemmbench.suite.plan import likely, select

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


# --- shapes that it has not seen ----------------------------------------------------------------------------


KINDS = ("square", "thin", "deep", "odd", "batched")
_RESAMPLES = 2000


def grid(largest: int) -> tuple[Gemm, ...]:
    """What a machine has measured before: squares, thin and deep shapes, batches, by powers of two."""
    sizes = [size for size in (32, 64, 128, 256, 512, 1024, 2048, 4096) if size <= largest]
    long = [size for size in sizes if size >= 128]
    shapes = [Gemm(size, size, size, label="square") for size in sizes]
    for few in (1, 4, 16):
        shapes += [Gemm(few, size, size, label="thin") for size in long]
        shapes += [Gemm(size, few, size, label="thin") for size in long]
    shapes += [
        Gemm(edge, edge, 32 * edge, label="deep") for edge in (32, 64, 128) if 32 * edge <= 4 * largest
    ]
    shapes += [
        Gemm(size, size, size, batch=count, label="batched")
        for size in (16, 32, 64, 128)
        for count in (8, 64)
    ]
    return tuple(shapes)


def unseen(count: int, seed: int, largest: int) -> tuple[Gemm, ...]:
    """So many shapes, of the five kinds in turn, drawn by the logarithms of their lengths; none of `grid`."""
    rng, known = np.random.default_rng(seed), set(grid(largest))
    drawn: list[Gemm] = []

    def length(low: float, high: float) -> int:
        return round(2 ** rng.uniform(math.log2(low), math.log2(high)))

    while len(drawn) < count:
        kind = KINDS[len(drawn) % len(KINDS)]
        if kind == "square":
            size = length(32, largest)
            made = Gemm(size, size, size)
        elif kind == "thin":
            few, long, depth = length(1, 16), length(128, largest), length(128, largest)
            made = Gemm(few, long, depth) if rng.random() < 0.5 else Gemm(long, few, depth)
        elif kind == "deep":
            made = Gemm(length(24, 128), length(24, 128), length(largest, 4 * largest))
        elif kind == "odd":
            made = Gemm(length(24, largest) | 1, length(24, largest) | 1, length(24, largest) | 1)
        else:
            made = Gemm(length(12, 160), length(12, 160), length(12, 160), batch=length(4, 100))
        if made not in known:
            drawn.append(Gemm(made.m, made.n, made.k, batch=made.batch, label=kind))
    return tuple(drawn)


@dataclass(frozen=True)
class Loss:
    """What the rule loses on one shape, by rates over that of a partner."""

    problem: Gemm
    chosen: str
    reason: str
    best: str
    ratio: float  # the best candidate's rate over the chosen one's: 1 is none
    low: float  # its interval
    high: float
    tried: bool = False  # auto is not sure of it: it tries the candidates on the shape itself


def losses(
    problems: Iterable[Gemm],
    known: Sequence[Point],
    run: Run,
    device: int,
    partner: str,
    scope: str,
    again: Run | None = None,
    used: Mapping[Gemm, str] | None = None,
) -> tuple[Loss, ...]:
    """What the rule loses, shape by shape, where its choice and another candidate have ratios with intervals.

    Args:
        problems: that the rule has not seen.
        known: what it has.
        run: every candidate in turn with the partner, on every problem.
        device: its position in the header.
        partner: the variant; empty if each was timed by itself.
        scope: that is compared.
        again: the same, measured a second time. Where `run` shows a loss, this says how large it is.
        used: what auto took in use, by problem, in the place of the rule's choice.
    """
    facts, result = run.header.devices[device], []
    for problem in problems:
        rated = _rated(problem, run, device, partner, scope)
        chosen, reason = (
            _chosen(problem, known, facts, rated) if used is None else (used.get(problem, ""), "")
        )
        if len(rated) < 2 or chosen not in rated:
            continue
        best = max(rated, key=lambda name: rated[name][0])
        second = _rated(problem, again, device, partner, scope) if again else {}
        if {best, chosen} <= second.keys():
            rated = second
        ratio, low, high = _over(rated[best], rated[chosen]) if best != chosen else (1.0, 1.0, 1.0)
        tried = bool(untried(problem, known, tuple(rated)))
        result.append(Loss(problem, chosen, reason, best, ratio, low, high, tried))
    return tuple(result)


def _rated(
    problem: Gemm, run: Run, device: int, partner: str, scope: str
) -> dict[str, tuple[float, float, float]]:
    """Rates of the candidates on a problem, over the partner's if there is one, with intervals."""
    rated = {partner: (1.0, 1.0, 1.0)} if partner else {}
    for row in run.rows:
        if row.kind != "gemm" or row.device not in (device, HOST) or rates.gemm_of(row) != problem:
            continue
        figure = rates.versus(row, scope) if partner else rates.rate(row, scope)
        if figure and not (partner and math.isnan(figure.low)):  # enough pairs
            rated[row.variant] = figure.median, figure.low, figure.high
    return rated


def _chosen(
    problem: Gemm, known: Sequence[Point], device: DeviceFacts, able: Collection[str]
) -> tuple[str, str]:
    """What the rule takes of the variants that can run a problem, and why."""
    for choice in ranked(problem, known):
        if choice.variant in able:
            return choice.variant, choice.reason
    default = by_default(device, problem, tuple(able))
    return (default.variant, default.reason) if default else ("", "")


def _over(
    first: tuple[float, float, float], second: tuple[float, float, float]
) -> tuple[float, float, float]:
    """One rate over another, with the interval of two independent ratios: half widths add up in squares."""
    ratio = first[0] / second[0]
    below = math.hypot(math.log(first[0] / first[1]), math.log(second[2] / second[0]))
    above = math.hypot(math.log(first[2] / first[0]), math.log(second[0] / second[1]))
    return ratio, ratio * math.exp(-below), ratio * math.exp(above)


def mean_loss(ratios: Sequence[float], seed: int = 1) -> tuple[float, float, float]:
    """Geometric mean of ratios, and its 95 % interval by resampling the shapes."""
    logs = np.log(ratios)
    means = np.random.default_rng(seed).choice(logs, (_RESAMPLES, len(logs))).mean(axis=1)
    low, high = np.percentile(means, (2.5, 97.5))
    return math.exp(logs.mean()), math.exp(low), math.exp(high)


def report_unseen(found: Sequence[Loss], in_use: Sequence[Loss], drawn: int, scope: str) -> int:
    """Print what is lost on unseen shapes, by the rule and in use; the exit status."""
    print(f"{'kind':<8} {'shape':<26} {'chosen':<12} {'best':<12} {'loss':>7}  95 % interval")
    for each in sorted(found, key=lambda each: (KINDS.index(each.problem.label), -each.ratio)):
        interval = f"{loss(each.low)} to {loss(each.high)}"
        print(
            f"{each.problem.label:<8} {each.problem.shape:<26} {each.chosen:<12} {each.best:<12} "
            f"{loss(each.ratio):>7}  {interval if each.ratio != 1 else ''}".rstrip()
        )
    if not found:
        print("nothing could be compared")
        return 2
    for kind in KINDS:
        ratios = [each.ratio for each in found if each.problem.label == kind]
        if ratios:
            print(f"{kind:<8} {loss(geometric_mean(ratios))}, {len(ratios)} shapes")
    sure = [each.ratio for each in found if not each.tried]
    if sure:
        tried = f"auto tries {len(found) - len(sure)} of {len(found)} shapes before it chooses"
        print(f"{tried}; the others lose {loss(geometric_mean(sure))}")
    mean = _report_mean("without a trial", found, drawn, scope)
    if in_use:
        mean = _report_mean("in use, with its trials", in_use, drawn, scope)
    if 2 * len(found) < drawn:
        print("fewer than half of the shapes have intervals: the machine is too busy to tell")
        return INCONCLUSIVE
    return int(mean > LIMIT)


def _report_mean(how: str, found: Sequence[Loss], drawn: int, scope: str) -> float:
    """Print the geometric mean and the worst shape; the mean."""
    mean, low, high = mean_loss([each.ratio for each in found])
    worst = max(found, key=lambda each: each.ratio)
    ends = f"{loss(worst.low)} to {loss(worst.high)}"
    print(
        f"{how}: geometric mean {loss(mean)} ({loss(low)} to {loss(high)}; limit {loss(LIMIT)}), "
        f"{scope} scope, {len(found)} of {drawn} shapes; "
        f"worst {loss(worst.ratio)} ({ends}) at {worst.problem.shape}: "
        f"{worst.chosen} instead of {worst.best}{f' ({worst.reason})' if worst.reason else ''}"
    )
    return mean


def by_candidates(
    device: DeviceFacts, problems: Iterable[Gemm]
) -> tuple[tuple[tuple[str, ...], tuple[Gemm, ...]], ...]:
    """The kernels that auto considers on a device, in the ladder's order, and the problems it does so for."""
    groups = by_key((frozenset(likely(device, problem)), problem) for problem in problems)
    return tuple(
        (
            tuple(each.name for each in VARIANTS if each.name in names and each.executor == "opencl"),
            tuple(alike),
        )
        for names, alike in groups.items()
    )


def main_unseen(options: argparse.Namespace) -> int:
    """Measure the grid, the drawn shapes and those with a loss again, and print; the exit status."""
    from gemmbench import api  # its children inherit the cache folder of the environment

    part, of = options.share
    seed, end = f"-{options.seed}", f"-{part}of{of}" if of > 1 else ""
    with tempfile.TemporaryDirectory() as folder:
        kept = options.folder or Path(folder)
        kept.mkdir(parents=True, exist_ok=True)
        if not options.saved:
            devices = [device for device in api.devices() if device.type == options.type]
            if not devices:
                print(f"auto_regret: there is no OpenCL driver for a {options.type.upper()}", file=sys.stderr)
                return 2
            largest = options.largest or (1024 if options.type == "cpu" else 4096)
            before, drawn = grid(largest), unseen(options.unseen, options.seed, largest)
            (device,) = select(devices, options.device.replace("all", ""))[:1]
            options.device = f"{device.platform_index}:{device.device_index}"
            share = slice(part - 1, None, of)
            drawn_budget = options.drawn_budget or options.budget
            measured = partial(_all_measured, kept)
            cache = kept / f"cache{end}"
            os.environ["XDG_CACHE_HOME"] = str(cache)
            if not measured(f"grid{end}", device, before[share], options, options.budget, ""):
                return 2
            if not cache.is_dir():
                missing = f"{kept} has a grid and no {cache.name} with what was kept of it: take a new folder"
                print(f"auto_regret: {missing}", file=sys.stderr)
                return 2
            os.environ["XDG_CACHE_HOME"] = f"{folder}/cache"
            used = True
            for at, problem in enumerate(drawn[share]):  # what auto keeps of one helps no other
                shutil.rmtree(f"{folder}/cache", ignore_errors=True)
                shutil.copytree(cache, f"{folder}/cache")
                used &= _measured(kept, f"used{seed}{end}-{at}", [problem], options, [AUTO], options.budget)
            drawn_there = measured(
                f"drawn{seed}{end}", device, drawn[share], options, drawn_budget, options.partner
            )
            if not (used and drawn_there):
                return 2
            _, found, in_use = _saved(kept, options)
            losing = {each.problem for each in (*found, *in_use) if each.best != each.chosen}
            lost = [problem for problem in drawn[share] if problem in losing]
            again = f"again{seed}{end}"
            if not measured(again, device, lost, options, drawn_budget, options.partner):
                return 2
        run, found, in_use = _saved(kept, options)
        if run is None:
            print(f"auto_regret: no runs in {kept}", file=sys.stderr)
            return 2
        print(run.header.devices[0].title)
        return report_unseen(found, in_use, len(_shapes(kept, options.seed)), options.scope)


def _saved(
    folder: Path, options: argparse.Namespace
) -> tuple[Run | None, tuple[Loss, ...], tuple[Loss, ...]]:
    """The drawn shapes' run in a folder, None without one, and what the rule and auto in use lose on them."""
    seed = options.seed
    before, run, again = (_undisturbed(folder, name) for name in ("grid", f"drawn-{seed}", f"again-{seed}"))
    if before is None or run is None:
        return None, (), ()
    judged = partial(
        losses, _shapes(folder, seed), points(before.rows, 0), run, 0, options.partner, options.scope, again
    )
    autos = [row for path in sorted(folder.glob(f"used-{seed}-*.jsonl")) for row in load(path).rows]
    used = {rates.gemm_of(row): rates.what_ran(row) for row in autos if row.status == "ok"}
    return run, judged(), judged(used) if used else ()


def _undisturbed(folder: Path, name: str) -> Run | None:
    """The rows of all parts of a run, but for those that other programs disturbed; None without a run."""
    runs = [load(path) for path in sorted(folder.glob(f"{name}-*.jsonl"))]
    rows = tuple(row for run in runs for row in run.rows if not disturbed(run, row))
    return Run(runs[0].header, rows) if runs else None


def _shapes(folder: Path, seed: int) -> tuple[Gemm, ...]:
    """The shapes of a folder's runs that were drawn from a seed, with their kinds."""
    shapes = []
    for path in sorted(folder.glob(f"drawn-{seed}-*.csv")):
        with path.open(newline="") as file:
            for line in csv.DictReader(file):
                m, n, k, batch = (int(line[name]) for name in ("m", "n", "k", "batch"))
                shapes.append(Gemm(m, n, k, batch=batch, label=line["name"].split()[0]))
    return tuple(shapes)


def _share(text: str) -> tuple[int, int]:
    """``2/4``: the second of four parts."""
    part, of = (int(each) for each in text.split("/"))
    if not 1 <= part <= of:
        raise ValueError
    return part, of


def _all_measured(
    folder: Path,
    name: str,
    device: DeviceFacts,
    problems: Sequence[Gemm],
    options: argparse.Namespace,
    budget: str,
    partner: str,
) -> bool:
    """Measure every candidate on some problems, in turn with the partner; False if gemmbench failed."""
    libraries = [BASELINE] if options.scope == "host" else []
    return all(
        _measured(
            folder,
            f"{name}-{at}",
            alike,
            options,
            [each for each in (*kernels, *libraries) if each != partner],
            budget,
            partner,
        )
        for at, (kernels, alike) in enumerate(by_candidates(device, problems))
    )


def _measured(
    folder: Path,
    name: str,
    problems: Sequence[Gemm],
    options: argparse.Namespace,
    names: Sequence[str],
    budget: str,
    versus: str = "",
) -> bool:
    """Measure some variants on some problems, or go on with it; False if gemmbench failed."""
    shapes, saved = folder / f"{name}.csv", folder / f"{name}.jsonl"
    lines = [
        "name,m,n,k,batch",
        *(f"{each.label} {at},{each.m},{each.n},{each.k},{each.batch}" for at, each in enumerate(problems)),
    ]
    text = "\n".join(lines) + "\n"
    if shapes.exists() and shapes.read_text() != text:
        saved.unlink(missing_ok=True)  # of other shapes: the rule has changed
    shapes.write_text(text)
    kernels = [each for each in names if each != BASELINE]
    words = [
        *("workloads", "--file", str(shapes), "--device", options.device, "--dtype", options.dtype),
        *("--kernel", ",".join(kernels), "--baseline", BASELINE if BASELINE in names else "none"),
        *("--budget", budget, "--no-peak", "--quiet", "--save", str(saved)),
        *(("--versus", versus) if versus else ()),
        *(("--resume",) if saved.exists() else ()),
    ]
    done = subprocess.run([sys.executable, "-m", "gemmbench", *words], stdout=subprocess.DEVNULL, check=False)
    return done.returncode == 0 and saved.exists()


def main() -> int:
    """Parse, run, print."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument(
        "--device", default="all", help="as gemmbench --device; with --unseen the best of its --type"
    )
    parser.add_argument("--dtype", default="float", help="one data type")
    parser.add_argument("--sizes", default=SIZES, help="with commas")
    parser.add_argument("--kernel", default="all,auto", help="auto and what it is held against")
    parser.add_argument("--budget", default="0.5", help="seconds for each row")
    parser.add_argument("--unseen", type=int, default=0, help="so many drawn shapes instead")
    parser.add_argument("--seed", type=int, default=1, help="that they are drawn from")
    parser.add_argument(
        "--largest", type=int, default=0, help="of their lengths; by default by type of device"
    )
    parser.add_argument("--type", default="cpu", choices=("cpu", "gpu"), help="of device, with --unseen")
    parser.add_argument(
        "--partner", default=BASELINE, help="that candidates are timed in turn with; empty: by themselves"
    )
    parser.add_argument("--folder", type=Path, help="with --unseen: keeps the runs, and goes on with them")
    parser.add_argument("--drawn-budget", help="of the drawn shapes, whose batches are taken in turn")
    parser.add_argument(
        "--share", type=_share, default=(1, 1), help="2/4: the second quarter alone, grid and drawn"
    )
    parser.add_argument(
        "--saved", action="store_true", help="measures nothing: what --folder has of all shares"
    )
    parser.add_argument("--scope", default="host", choices=("host", "device"), help="that losses are of")
    options = parser.parse_args()
    if options.unseen:
        return main_unseen(options)
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
    return units.percent(ratio - 1) if ratio and not math.isnan(ratio) else "-"


if __name__ == "__main__":
    sys.exit(main())
