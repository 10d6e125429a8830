"""Rows as series over size, which tables and charts of sweeps share; several devices beside each other."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import geometric_mean

from gemmbench.model.device import HOST
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, listed
from gemmbench.stats import rates
from gemmbench.stats.intervals import Interval


@dataclass(frozen=True, eq=False)
class Series:
    """One variant with one set of parameters, over the sizes of a sweep."""

    label: str  # the variant, with its parameters where they tell it from another series
    variant: str
    device: int  # -1 for the host
    rows: dict[int, Row]  # by size, smallest first

    @property
    def is_host(self) -> bool:
        """Whether it ran on the host, not on an OpenCL device."""
        return self.device == HOST

    @property
    def is_kernel(self) -> bool:
        """Whether it is a kernel of the ladder itself: no library, which has no source."""
        return any(row.source for row in self.rows.values())


@dataclass(frozen=True, eq=False)
class Panel:
    """The series of one device and one data type, the host's beside them."""

    device: int  # -1 if only the host was measured
    dtype: str
    axis: str  # m: m = n = k vary together; k: only k does
    series: tuple[Series, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({size for series in self.series for size in series.rows}))

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for series in self.series for row in series.rows.values())

    @property
    def shape(self) -> str:
        """What varies and what does not: ``m = n = k, NT, batch = 8``, ``k, with m = 1024 and n = 1024``."""
        fixed = next((row.problem for row in self.rows if row.problem), None)
        ops = f", {fixed.ops}" if fixed and fixed.ops != "NN" else ""
        ops += f", batch = {fixed.count}" if fixed and fixed.count > 1 else ""
        if self.axis == "m":
            return f"m = n = k{ops}"
        return f"k, with m = {fixed.m} and n = {fixed.n}{ops}" if fixed else "k"


def sweep_axis(rows: Iterable[Row]) -> str | None:
    """What varies: ``m`` for squares, ``k`` if only k varies; None if neither, or more, or nothing does."""
    problems = {row.problem for row in rows if row.kind == "gemm" and row.problem}
    alike = {(problem.alpha, problem.beta, problem.ops, problem.count) for problem in problems}
    if len(alike) != 1 or len(problems) < 2:
        return None
    if all(problem.is_square for problem in problems):
        return "m"
    if len({(problem.m, problem.n) for problem in problems}) == 1:
        return "k"
    return None


def panels(run: Run, axis: str, order: Sequence[str] = ()) -> list[Panel]:
    """The GEMM rows of a run by device and data type; the host's rows go with every device of their type.

    The axis, ``m`` or ``k``, is what is taken as size; `order` is as of `series`.
    """
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem]
    result = []

    def size(row: Row) -> int:
        return int(getattr(row.problem, axis))

    for name in dict.fromkeys(row.dtype for row in rows):
        typed = [row for row in rows if row.dtype == name]
        devices = sorted({row.device for row in typed if row.device != HOST}) or [HOST]
        result += [
            Panel(device, name, axis, series([r for r in typed if r.device in (device, HOST)], size, order))
            for device in devices
        ]
    return sorted(result, key=lambda panel: panel.device)


def series(
    rows: Sequence[Row], size_of: Callable[[Row], int], order: Sequence[str] = ()
) -> tuple[Series, ...]:
    """Rows of one device (and the host) and one data type as a series for each variant.

    Variants stand in the `order` of the ladder; others follow as they come, the host's own last.
    """
    variants = by_key(((row.device, row.title), row) for row in sorted(rows, key=size_of))
    rank = {name: number for number, name in enumerate(order)}
    names = {(row.device, row.title): row.variant for row in rows}
    result = []
    for (device, title), variant in sorted(
        names.items(), key=lambda item: (item[0][0] == HOST, rank.get(item[1], len(rank)))
    ):
        own_rows = variants[device, title]
        if len({size_of(row) for row in own_rows}) == len(own_rows):
            result.append(Series(title, variant, device, {size_of(row): row for row in own_rows}))
            continue
        by_parameters: dict[str, dict[int, Row]] = {}
        for row in own_rows:
            by_parameters.setdefault(listed(row.kernel_parameters), {})[size_of(row)] = row
        for parameters, same in by_parameters.items():
            result.append(Series(f"{title} {parameters}".strip(), variant, device, same))
    return tuple(result)


# --- How the variants of a saved run stand against each other on one problem --------------------------------


@dataclass(frozen=True)
class Setting:
    """Who ran against whom: one device, one data type."""

    device: int  # -1 if only the host was measured
    dtype: str


@dataclass(frozen=True)
class Standing:
    """One variant's place on one problem."""

    row: Row  # its fastest, where it ran with several sets of parameters
    rate: rates.Rate | None  # in the scope of the view; the host's own BLAS has only the host scope
    rank: int | None  # 1 is the fastest; None without a rate in the scope


def settings(run: Run) -> list[Setting]:
    """Every device and data type that GEMMs ran with, by device; the host alone where there is no other."""
    rows = [row for row in run.rows if row.kind == "gemm"]
    on_devices = dict.fromkeys(Setting(row.device, row.dtype) for row in rows if row.device != HOST)
    alone = dict.fromkeys(Setting(HOST, row.dtype) for row in rows)
    return sorted(on_devices or alone, key=lambda setting: setting.device)


def problems(run: Run, setting: Setting) -> list[Problem]:
    """What was asked for there, smallest first."""
    return sorted(_rows(run, setting), key=lambda problem: problem.flops)


def standings(run: Run, setting: Setting, problem: Problem, scope: str = "") -> dict[str, Standing]:
    """Each variant's place on a problem, in the order of the rows; the host's own BLAS among them.

    Without a scope it is that of the run's own view.
    """
    scope = scope or rates.view_scope(run)
    best: dict[str, tuple[Row, rates.Rate | None]] = {}
    for row in _rows(run, setting).get(problem, ()):
        rate = rates.shown_rate(row, scope)
        known = best.get(row.variant)
        if known is None or (rate and (known[1] is None or rate.median > known[1].median)):
            best[row.variant] = (row, rate)

    def is_ranked(row: Row) -> bool:
        return rates.is_compared(run, setting.device, row, scope)

    order = sorted((rate.median for row, rate in best.values() if rate and is_ranked(row)), reverse=True)
    return {
        variant: Standing(
            row,
            rate,
            order.index(rate.median) + 1 if rate and is_ranked(row) else None,
        )
        for variant, (row, rate) in best.items()
    }


def common_problem(run: Run, *settings: Setting) -> Problem | None:
    """The problem that variants are shown at, where they are shown at one: in README and charts.

    It is the largest that most of the measured variants have a figure for, in all of the settings, which are
    shown beside each other; None if nothing has one.
    """
    figures: dict[Problem, set[tuple[str, str]]] = {}
    for problem, rows in (group for setting in settings for group in _rows(run, setting).items()):
        if rated := {(row.variant, row.dtype) for row in rows if rates.shown_rate(row, "kernel")}:
            figures.setdefault(problem, set()).update(rated)
    measured = set().union(*figures.values())
    most = max(map(len, figures.values()), default=0)
    least = min(most, len(measured) // 2 + 1)
    enough = [problem for problem, names in figures.items() if len(names) >= least]
    return max(reversed(enough), key=lambda problem: problem.flops, default=None)


@lru_cache(maxsize=64)
def _rows(run: Run, setting: Setting) -> dict[Problem, list[Row]]:
    return by_key(
        (row.problem, row)
        for row in run.rows
        if row.kind == "gemm" and row.problem
        if row.dtype == setting.dtype and row.device in (setting.device, HOST)
    )


# --- From which size on offloading pays: the device, transfers included, against the host's BLAS ------------


@dataclass(frozen=True)
class BreakEven:
    """The smallest size from which a kernel, transfers included, beats the host's BLAS."""

    kernel: Series
    size: float | None  # None: not in range
    low: float | None  # the interval that the samples' confidence intervals allow; None: open on that side
    high: float | None
    is_few: bool  # there is no interval: a row has too few samples for one
    from_start: bool  # it wins from the smallest size measured
    lead: float  # how many times the host BLAS's rate it reaches at `largest`
    largest: int  # the largest size that both were measured at


def break_evens(panel: Panel, scope: str = "host") -> tuple[BreakEven, ...]:
    """The break-even of each kernel of a panel, the earliest first: the first is the panel's.

    Only the ladder's own kernels count, no library. Of two with the same size the greater lead comes first.
    Kernels that never pass the host's BLAS come last. The scope is the kernels': ``host``, or ``pageable``
    for arrays in ordinary memory. Empty if no kernel has a size in common with the host's BLAS.
    """
    host = baseline(panel)
    if host is None:
        return ()
    kernels = (series for series in panel.series if series.is_kernel)
    evens = [even for kernel in kernels if (even := _break_even(kernel, host, scope))]
    return tuple(sorted(evens, key=lambda even: (even.size or math.inf, -even.lead)))


def baseline(panel: Panel) -> Series | None:
    """The host's own BLAS; None if it was not measured."""
    return next((each for each in panel.series if each.is_host), None)


def crossing(leads: Sequence[tuple[float, float]]) -> float | None:
    """The size from which a lead is positive and stays so, interpolated in the logarithm of the size.

    Leads stand by size; each is the logarithm of a ratio of times. The smallest size where the lead is
    positive throughout; None if it is not at the largest.
    """
    if not leads or leads[-1][1] <= 0:
        return None
    last = max((index for index, (_, lead) in enumerate(leads) if lead <= 0), default=None)
    if last is None:
        return float(leads[0][0])
    (smaller, behind), (larger, ahead) = leads[last], leads[last + 1]
    left, right = math.log(smaller), math.log(larger)
    return math.exp(left + (right - left) * -behind / (ahead - behind))


def _break_even(kernel: Series, host: Series, scope: str) -> BreakEven | None:
    """Where a kernel's host-scope time falls below the host BLAS's, and stays there.

    The interval comes from the ends of the two 95 % confidence intervals taken against and for the device. It
    takes an interval at every size.
    """
    times = {
        size: (device_s, host_s)
        for size in sorted(kernel.rows.keys() & host.rows.keys())
        if size > 0 and kernel.rows[size].status == host.rows[size].status == "ok"
        if (device_s := rates.summary(kernel.rows[size], scope))
        and (host_s := rates.summary(host.rows[size], "host"))
    }
    if not times:
        return None

    def at(device_end: str, host_end: str) -> float | None:
        ratios = {
            size: getattr(host_s, host_end) / getattr(device_s, device_end)
            for size, (device_s, host_s) in times.items()
        }
        return crossing([(size, math.log(ratio)) for size, ratio in ratios.items()])

    size, largest = at("median", "median"), max(times)
    device_s, host_s = times[largest]
    is_few = any(side.is_few for sides in times.values() for side in sides)
    low, high = (None, None) if is_few else (at("low", "high"), at("high", "low"))
    lead = host_s.median / device_s.median
    return BreakEven(kernel, size, low, high, is_few, size == min(times), lead, largest)


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
    homes = by_key(
        (facts.title, (run, device))
        for run in runs
        for device, facts in enumerate(run.header.devices)
        if any(row.device == device and row.status == "ok" for row in run.rows)
    )
    every = [Side(title, tuple(each)) for title, each in homes.items()]
    if len(every) < 2:
        return every
    contests = fastest(every) or abilities(every)

    def behind(side: int) -> float:
        """How far behind the fastest in the mean, as a logarithm; infinitely where it ran nothing."""
        far = [
            math.log(max(other.rate for other in each.entries if other) / entry.rate)
            for each in contests
            if (entry := each.entries[side])
        ]
        return sum(far) / len(far) if far else math.inf

    return [every[position] for position in sorted(range(len(every)), key=behind)]


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
    """Each variant that several sides ran, for each type at the largest problem that most of them share."""
    scope, rank = scope_of(every), {name: number for number, name in enumerate(order)}
    by_type: dict[str, list[list[Contest]]] = {}
    for dtype, problem in _shared(every):
        rows = [_rows_beside(side, dtype, problem, scope) for side in every]
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
        for kind, entry in abilities_of(side).items():
            kinds.setdefault(kind, [None] * len(every))[number] = entry
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
    counts: Counter[tuple[str, Problem]] = Counter()
    for side in every:
        counts.update(
            {
                (row.dtype, row.problem)
                for run, device in side.homes
                for row in run.rows
                if row.kind == "gemm" and row.device == device and row.problem and row.status == "ok"
            }
        )
    shared = [each for each, count in counts.items() if count > 1]
    return sorted(shared, key=lambda each: (each[0], each[1].flops, each[1].shape))


def _fastest(side: Side, dtype: str, problem: Problem, scope: str) -> Entry | None:
    ranked = [
        Entry(each.row, each.rate.median, rates.shown_samples(each.row, scope))
        for run, device in side.homes
        for each in standings(run, Setting(device, dtype), problem, scope=scope).values()
        if each.rank and each.rate
    ]
    return max(ranked, key=lambda entry: entry.rate, default=None)


def _rows_beside(side: Side, dtype: str, problem: Problem, scope: str) -> dict[str, Entry]:
    """By title the fastest row of each of the device's own kernels, and of the host's BLAS on a CPU."""
    entries: dict[str, Entry] = {}
    for run, device in side.homes:
        for row in run.rows:
            if (row.kind, row.dtype, row.problem) != ("gemm", dtype, problem):
                continue
            if row.device not in (device, HOST):
                continue
            rate = rates.compared_rate(run, device, row, scope)
            if rate and (row.title not in entries or rate > entries[row.title].rate):
                entries[row.title] = Entry(row, rate, rates.shown_samples(row, scope))
    return entries


def abilities_of(side: Side) -> dict[tuple[str, str], Entry]:
    """By name and data type the best peaks of one side, and its bandwidth."""
    entries: list[tuple[tuple[str, str], Entry]] = []
    for run, device in side.homes:
        for dtype in dict.fromkeys(row.dtype for row in run.rows if row.kind == "peak"):
            for matrix, name in ((False, "peak"), (True, "peak of the matrix units")):
                if top := rates.peak(run, device, dtype, matrix, sums=""):
                    entries.append(((name, dtype), Entry(top.row, top.rate, None)))
        if best := rates.best_bandwidth(run, device):
            entries.append((("bandwidth of global memory", ""), Entry(best[1], best[0], None)))
    return {kind: max(each, key=lambda entry: entry.rate) for kind, each in by_key(entries).items()}
