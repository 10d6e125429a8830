"""Several devices beside each other: the same problem on each, and what each can do."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from gemmbench.model.device import HOST
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.stats import rates
from gemmbench.stats.intervals import Interval
from gemmbench.stats.panels import Setting, standings


@dataclass(frozen=True, eq=False)
class Side:
    """One device with one driver, and where it stands in the runs."""

    title: str
    homes: tuple[tuple[Run, int], ...]  # a run, and the device's position in its header


@dataclass(frozen=True, eq=False)
class Entry:
    """What one side reached."""

    row: Row
    rate: float  # in flop/s, or bytes/s
    clock: str | None  # the samples that ratios are of; None for the finest


@dataclass(frozen=True, eq=False)
class Contest:
    """The same thing on several sides: one problem and type, or one thing that devices can do."""

    name: str
    dtype: str
    problem: Problem | None
    entries: tuple[Entry | None, ...]  # by side; None where it was not measured

    def ratio(self, side: int) -> Interval | None:
        """How many times the last side's rate a side reaches, with the 95 % interval of both medians.

        What changes from one run to the next is not in it. None where one of the two was not measured.
        """
        last, other = self.entries[-1], self.entries[side]
        if last is None or other is None:
            return None
        slow, fast = rates.measure(last.row, last.clock), rates.measure(other.row, other.clock)
        return slow.over(fast).interval() if slow and fast else None


def sides(runs: Iterable[Run]) -> list[Side]:
    """Every device that has a result, by its title, which names the driver: the fastest first."""
    homes: dict[str, list[tuple[Run, int]]] = {}
    for run in runs:
        for device, facts in enumerate(run.header.devices):
            if any(row.device == device and row.status == "ok" for row in run.rows):
                homes.setdefault(facts.title, []).append((run, device))
    every = [Side(title, tuple(each)) for title, each in homes.items()]
    if len(every) < 2:
        return every
    contests = fastest(every) or abilities(every)
    return [
        every[position] for position in sorted(range(len(every)), key=lambda side: _behind(contests, side))
    ]


def _behind(contests: Sequence[Contest], side: int) -> float:
    """How far a side is behind the fastest in the mean, as a logarithm; infinitely where it ran nothing."""
    far = [
        math.log(max(other.rate for other in each.entries if other) / entry.rate)
        for each in contests
        if (entry := each.entries[side])
    ]
    return sum(far) / len(far) if far else math.inf


def fastest(every: Sequence[Side]) -> list[Contest]:
    """For each type and problem that several sides ran, the fastest variant of each, the largest last.

    On a CPU the host's own BLAS is one of them: `rates.is_compared`.
    """
    scope = scope_of(every)
    contests = []
    for dtype, problem in _shared(every):
        entries = tuple(_fastest(side, dtype, problem, scope) for side in every)
        if sum(entry is not None for entry in entries) > 1:
            contests.append(Contest(problem.size, dtype, problem, entries))
    return contests


def variants(every: Sequence[Side], order: Sequence[str] = ()) -> list[Contest]:
    """Each variant that several sides ran, for each type at the largest problem that most of them share.

    Args:
        every: the sides.
        order: variants in the order of the ladder.
    """
    scope, rank = scope_of(every), {name: number for number, name in enumerate(order)}
    by_type: dict[str, list[list[Contest]]] = {}
    for dtype, problem in _shared(every):
        rows = [_rows(side, dtype, problem, scope) for side in every]
        names = dict.fromkeys(name for each in rows for name in each)
        contests = [
            Contest(name, dtype, problem, tuple(each.get(name) for each in rows))
            for name in sorted(names, key=lambda name: rank.get(name.split(" ")[0], len(rank)))
            if sum(name in each for each in rows) > 1
        ]
        if contests:
            by_type.setdefault(dtype, []).append(contests)
    shown = []
    for several in by_type.values():
        most = max(map(len, several))
        shown += [each for each in several if 2 * len(each) > most][-1]
    return shown


def abilities(every: Sequence[Side]) -> list[Contest]:
    """Peaks by data type, of ordinary and of matrix units, and the bandwidth, where several sides have them.

    Their rates are of the best batch; ratios are of medians.
    """
    kinds: dict[tuple[str, str], list[Entry | None]] = {}
    for number, side in enumerate(every):
        for (name, dtype), entry in abilities_of(side).items():
            entries = kinds.setdefault((name, dtype), [None] * len(every))
            entries[number] = entry
    return [
        Contest(name, dtype, None, tuple(entries))
        for (name, dtype), entries in kinds.items()
        if sum(entry is not None for entry in entries) > 1
    ]


def mean_ratio(contests: Sequence[Contest], side: int) -> tuple[float, float, float, int] | None:
    """The geometric mean of a side's ratios, the least, the greatest, and their number; None without any."""
    ratios = [ratio.median for each in contests if (ratio := each.ratio(side))]
    return (geometric_mean(ratios), min(ratios), max(ratios), len(ratios)) if ratios else None


def scope_of(every: Sequence[Side]) -> str:
    """What the sides are compared in."""
    return rates.view_scope(*dict.fromkeys(run for side in every for run, _ in side.homes))


def _shared(every: Sequence[Side]) -> list[tuple[str, Problem]]:
    """Types, each with the problems that several sides have a result of, the smallest first."""
    counts: dict[tuple[str, Problem], int] = {}
    for side in every:
        own = {
            (row.dtype, row.problem)
            for run, device in side.homes
            for row in run.rows
            if row.kind == "gemm" and row.device == device and row.problem and row.status == "ok"
            if not row.beside
        }
        for each in own:
            counts[each] = counts.get(each, 0) + 1
    shared = [each for each, count in counts.items() if count > 1]
    return sorted(shared, key=lambda each: (each[0], each[1].flops, each[1].shape))


def _fastest(side: Side, dtype: str, problem: Problem, scope: str) -> Entry | None:
    ranked = [
        Entry(each.row, each.rate.median, rates.shown_samples(each.row, scope))
        for run, device in side.homes
        for each in standings(_alone(run), Setting(device, dtype), problem, scope=scope).values()
        if each.rank and each.rate
    ]
    return max(ranked, key=lambda entry: entry.rate, default=None)


def _rows(side: Side, dtype: str, problem: Problem, scope: str) -> dict[str, Entry]:
    """By title the fastest row of each of the device's own kernels, and of the host's BLAS on a CPU."""
    entries: dict[str, Entry] = {}
    for run, device in side.homes:
        for row in run.rows:
            if (row.kind, row.dtype, row.problem) != ("gemm", dtype, problem) or row.beside:
                continue
            if row.device not in (device, HOST) or rates.what_ran(row) != row.variant:
                continue
            rate = rates.compared_rate(run, device, row, scope)
            if rate and (row.title not in entries or rate > entries[row.title].rate):
                entries[row.title] = Entry(row, rate, rates.shown_samples(row, scope))
    return entries


def _alone(run: Run) -> Run:
    """A run without the rows of several devices at once."""
    return Run(run.header, tuple(row for row in run.rows if not row.beside), run.path)


def abilities_of(side: Side) -> dict[tuple[str, str], Entry]:
    """By name and data type the best peaks of one side, and its bandwidth."""
    entries: dict[tuple[str, str], Entry] = {}

    def offer(name: str, dtype: str, entry: Entry) -> None:
        if (name, dtype) not in entries or entry.rate > entries[name, dtype].rate:
            entries[name, dtype] = entry

    for run, device in side.homes:
        for dtype in dict.fromkeys(row.dtype for row in run.rows if row.kind == "peak"):
            for matrix, name in ((False, "peak"), (True, "peak of the matrix units")):
                top = rates.peak(run, device, dtype, matrix, sums="")
                if top:
                    offer(name, dtype, Entry(top.row, top.rate, None))
        best = rates.best_bandwidth(run, device)
        if best:
            offer("bandwidth of global memory", "", Entry(best[1], best[0], None))
    return entries
