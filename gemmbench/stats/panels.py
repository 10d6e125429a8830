"""Rows as series over size, which tables and charts of sweeps share."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from gemmbench.model.device import HOST
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, list_values
from gemmbench.stats import claims, rates


@dataclass(frozen=True, eq=False)
class Curve:
    """One variant with one set of parameters, over the sizes of a sweep."""

    label: str  # the variant, with its parameters if another series has its name
    variant: str
    device: int  # -1 for the host
    rows: dict[int, Row]  # by size, smallest first

    @property
    def is_host(self) -> bool:
        return self.device == HOST

    @property
    def is_kernel(self) -> bool:
        """Whether it is an OpenCL kernel, which has a source, and no library."""
        return any(row.source for row in self.rows.values())


@dataclass(frozen=True, eq=False)
class Panel:
    """The series of one device and one data type, and of the host."""

    device: int  # -1 if only the host was measured
    dtype: str
    axis: str  # m: m = n = k vary together; k: only k does
    series: tuple[Curve, ...]

    @property
    def sizes(self) -> tuple[int, ...]:
        return tuple(sorted({size for series in self.series for size in series.rows}))

    @property
    def rows(self) -> tuple[Row, ...]:
        return tuple(row for series in self.series for row in series.rows.values())

    @property
    def shape(self) -> str:
        """What varies and what is fixed: ``m = n = k, NT, batch = 8``, ``k, with m = 1024 and n = 1024``."""
        fixed = next((row.problem for row in self.rows if row.problem), None)
        form = fixed.form if fixed else ""
        if self.axis == "m":
            return f"m = n = k{form}"
        return f"k, with m = {fixed.m} and n = {fixed.n}{form}" if fixed else "k"


def sweep_axis(rows: Iterable[Row]) -> str | None:
    """``m`` if all problems are square, ``k`` if only k differs, None if anything else differs."""
    problems = {row.problem for row in rows if row.kind == "gemm" and row.problem}
    alike = {(problem.alpha, problem.beta, problem.ops, problem.count) for problem in problems}
    if len(alike) != 1 or not 2 <= len(problems) == len({(each.m, each.n, each.k) for each in problems}):
        return None
    if all(problem.is_square for problem in problems):
        return "m"
    if len({(problem.m, problem.n) for problem in problems}) == 1:
        return "k"
    return None


def panels(run: Run, axis: str, order: Sequence[str] = ()) -> list[Panel]:
    """The GEMM rows of a run as a panel for each device and data type, with the host's rows of the type.

    `axis` is m or k, `order` as for `to_curves`.
    """
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem]
    result = []

    def size(row: Row) -> int:
        return int(getattr(row.problem, axis))

    for name in dict.fromkeys(row.dtype for row in rows):
        typed = [row for row in rows if row.dtype == name]
        devices = sorted({row.device for row in typed if row.device != HOST}) or [HOST]
        result += [
            Panel(
                device, name, axis, to_curves([r for r in typed if r.device in (device, HOST)], size, order)
            )
            for device in devices
        ]
    return sorted(result, key=lambda panel: panel.device)


def to_curves(
    rows: Sequence[Row], size_of: Callable[[Row], int], order: Sequence[str] = ()
) -> tuple[Curve, ...]:
    """Group rows of one device (and the host) and one data type into curves over size, by their title.

    Rows of a size that differ in parameters become several. They follow `order` (variants); the host's are
    last.
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
            result.append(Curve(title, variant, device, {size_of(row): row for row in own_rows}))
            continue
        sets = [row.kernel_parameters for row in own_rows]
        every = dict.fromkeys(name for each in sets for name in each)
        differing = [name for name in every if len({each.get(name) for each in sets}) > 1]
        by_parameters: dict[str, dict[int, Row]] = {}
        for row, each in zip(own_rows, sets, strict=True):
            text = list_values({name: each[name] for name in differing if name in each})
            by_parameters.setdefault(text, {})[size_of(row)] = row
        for parameters, same in by_parameters.items():
            result.append(Curve(f"{title} {parameters}".strip(), variant, device, same))
    return tuple(result)


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
    rank: int | None  # 1 is the highest rate; None without a rate in the scope
    is_fastest: bool  # it is known to be faster than all others


def settings(run: Run) -> list[Setting]:
    """The devices and data types of a run's GEMMs, by device; the host's own if nothing else ran."""
    rows = [row for row in run.rows if row.kind == "gemm"]
    on_devices = dict.fromkeys(Setting(row.device, row.dtype) for row in rows if row.device != HOST)
    alone = dict.fromkeys(Setting(HOST, row.dtype) for row in rows)
    return sorted(on_devices or alone, key=lambda setting: setting.device)


def standings(run: Run, setting: Setting, problem: Problem, scope: str = "") -> dict[str, Standing]:
    """The best row of each variant on a problem in a scope, with its rate and its rank, host included."""
    scope = scope or rates.view_scope(run)
    best: dict[str, tuple[Row, rates.Rate | None]] = {}
    for row in _rows(run, setting).get(problem, ()):
        rate = rates.shown_rate(row, scope)
        known = best.get(row.variant)
        if known is None or (rate and (known[1] is None or rate.median > known[1].median)):
            best[row.variant] = (row, rate)
    ranked = {
        variant: each
        for variant, (row, _) in best.items()
        if (each := claims.claim_if_compared(run, setting.device, row, scope))
    }
    order = sorted((each.median for each in ranked.values()), reverse=True)
    fastest = claims.fastest(ranked)
    return {
        variant: Standing(
            row,
            rate,
            order.index(ranked[variant].median) + 1 if variant in ranked else None,
            variant == fastest,
        )
        for variant, (row, rate) in best.items()
    }


def common_problem(run: Run, *settings: Setting) -> Problem | None:
    """The largest problem with a rate for more than half of the kernels of some settings; or None."""
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


@dataclass(frozen=True)
class BreakEven:
    """The smallest size from which a kernel, transfers included, is known to beat the host's BLAS."""

    kernel: Curve
    size: float | None  # None: it is not known to win at the largest size
    low: float | None  # the interval that the samples' confidence intervals allow; None: open on that side
    high: float | None
    from_start: bool  # it wins from the smallest size measured
    loses: bool  # it is known to be slower at every size
    lead: float  # how many times the host BLAS's rate it reaches at the largest size
    sizes: tuple[int, ...]  # that both were measured at


def break_evens(run: Run, panel: Panel) -> tuple[BreakEven, ...]:
    """From which size on each kernel, transfers included, beats the host's BLAS: by size, then by lead."""
    host = baseline(panel)
    if host is None:
        return ()
    kernels = (series for series in panel.series if series.is_kernel)
    evens = [even for kernel in kernels if (even := _break_even(run, kernel, host))]
    return tuple(sorted(evens, key=lambda even: (even.size or math.inf, -even.lead)))


def baseline(panel: Panel) -> Curve | None:
    """The host's own BLAS; None if it was not measured."""
    return next((each for each in panel.series if each.is_host), None)


def crossing(leads: Sequence[tuple[float, float]]) -> float | None:
    """The smallest size from which the lead stays positive, interpolated in the logarithm of the size.

    Leads are pairs of size and logarithm of a ratio of times.
    """
    if not leads or leads[-1][1] <= 0:
        return None
    last = max((index for index, (_, lead) in enumerate(leads) if lead <= 0), default=None)
    if last is None:
        return float(leads[0][0])
    (smaller, behind), (larger, ahead) = leads[last], leads[last + 1]
    left, right = math.log(smaller), math.log(larger)
    return math.exp(left + (right - left) * -behind / (ahead - behind))


def _break_even(run: Run, kernel: Curve, host: Curve) -> BreakEven | None:
    """The break-even of one kernel; None without common sizes. It is interpolated if no rate is uncertain."""
    known = {
        size: (own, other)
        for size in sorted(kernel.rows.keys() & host.rows.keys())
        if size > 0
        if (own := claims.evidence(run, kernel.rows[size], "host"))
        and (other := claims.evidence(run, host.rows[size], "host"))
    }
    if not known:
        return None
    wins = {size: own.is_above_all([other]) for size, (own, other) in known.items()}
    loses = {size: other.is_above_all([own]) for size, (own, other) in known.items()}
    sizes = list(known)
    start = next((size for at, size in enumerate(sizes) if all(wins[each] for each in sizes[at:])), None)

    def at(own_end: str, other_end: str) -> float | None:
        ends = [(s, getattr(own, own_end), getattr(other, other_end)) for s, (own, other) in known.items()]
        finite = (each for each in ends if all(0 < rate < math.inf for rate in each[1:]))
        return crossing([(s, math.log(own / other)) for s, own, other in finite])

    size: float | None = start
    before = max((each for each in sizes if start and each < start), default=0)
    certain = (rate.is_certain for each in (before, start) if each for rate in known[each])
    if before and loses[before] and all(certain):
        size = at("median", "median")
    own, other = known[sizes[-1]]
    low, high = at("high", "low"), at("low", "high")
    if size is not None:  # a measured size may lie outside of what the intervals interpolate
        low, high = min(low or size, size), max(high or size, size)
    lead = own.median / other.median
    return BreakEven(kernel, size, low, high, start == sizes[0], all(loses.values()), lead, tuple(sizes))
