"""Lines: rates, times and energies over size, and the roofline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.charts.marks import (
    LINES_HEIGHT,
    MOST_LINES,
    Line,
    Look,
    Point,
    draw_lines,
    looks,
    name_ends,
    size_axis,
)
from gemmbench.gemm.sweep_table import SCOPE_WORDS
from gemmbench.ladder.variant import LIBRARIES
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.report.progress import sample
from gemmbench.stats import rates as derive
from gemmbench.stats.intervals import Interval
from gemmbench.stats.panels import Panel, Series, break_evens, panels, series, sweep_axis

Values = Callable[[Row, str], Interval | None]  # of a row in a scope
_PEAK = Look(pane.GREY, (0, (8, 2, 1.5, 2)))


@dataclass(frozen=True, eq=False)
class Sweep:
    """One pane: a device and a data type, of one or more runs."""

    where: str
    parts: tuple[tuple[Run, Panel], ...]
    families: pane.Families

    @cached_property
    def panel(self) -> Panel:
        """The first run's."""
        return self.parts[0][1]

    @cached_property
    def title(self) -> str:
        return f"{self.panel.dtype} GEMM, {self.where}"

    @cached_property
    def sizes(self) -> list[int]:
        """Sizes that fit a logarithmic axis."""
        return sorted({size for _, panel in self.parts for size in panel.sizes if size > 0})

    @cached_property
    def rows(self) -> list[Row]:
        return [row for _, panel in self.parts for row in panel.rows]

    @cached_property
    def scope(self) -> str:
        """What the lines are compared in."""
        return derive.view_scope(*(run for run, _ in self.parts))

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The lines with a colour, by label: eight for all runs together, of what all have in common."""
        labels = [{curve.label for curve in panel.series} for _, panel in self.parts]
        common = set[str].intersection(*labels) or set[str].union(*labels)
        every = [curve for _, panel in self.parts for curve in panel.series if curve.label in common]
        best = {curve.label: top for curve in every if (top := _best(curve, self.scope))}
        variants = {curve.label: curve.variant for curve in every}
        return looks(best, variants, self.families, max(2, MOST_LINES // len(self.parts)))

    def look(self, part: int, label: str) -> Look:
        """A line's; markers of the second run are hollow."""
        return replace(self.looks[label], is_hollow=part > 0) if label in self.looks else Look()

    def name(self, part: int, curve: Series) -> str:
        """What a line is called at its end, or nothing if it has no colour."""
        if curve.label not in self.looks:
            return ""
        host = " (host)" if curve.is_host and self.scope != "host" else ""
        return (
            clean(curve.label)
            + host
            + (f" ({pane.stem(self.parts[part][0])})" if len(self.parts) > 1 else "")
        )

    @property
    def below(self) -> str:
        others = {curve.label for _, panel in self.parts for curve in panel.series} - self.looks.keys()
        return f"Grey: {units.counted(len(others), 'other kernel')}." if others else ""

    def having(self, values: Values) -> Sweep:
        """The lines that have a value."""

        def shown(curve: Series) -> bool:
            return any(values(row, self.scope) for row in curve.rows.values())

        parts = (
            (run, replace(panel, series=tuple(filter(shown, panel.series)))) for run, panel in self.parts
        )
        return replace(self, parts=tuple(parts))


def _best(curve: Series, scope: str) -> float:
    """The highest rate of a line, in the scope or else in a finer one; 0 if there is none."""
    rates = [derive.median_rate(row, each) for row in curve.rows.values() for each in (scope, "kernel")]
    return derive.best_of(rates[::2]) or derive.best_of(rates) or 0.0


def _sweeps(runs: Sequence[Run], families: pane.Families) -> list[Sweep]:
    """Runs that are sweeps, those of one device, type and shape together."""
    keyed = [
        ((pane.device_name(run, panel.device), panel.dtype, panel.shape), (run, panel))
        for run in runs
        if (axis := sweep_axis(run.rows))
        for panel in panels(run, axis, tuple(families))
        if any(row.status == "ok" and row.samples for row in panel.rows)
    ]
    return [Sweep(where, tuple(parts), families) for (where, *_), parts in by_key(keyed).items()]


def _drawn(
    run: Run, curve: Series, values: Values, scope: str, at: Mapping[int, float], divisor: float = 1.0
) -> list[Point]:
    """A line's points: of its own sizes only, with NaN where there is no figure."""
    points = []
    for size, row in curve.rows.items():
        if size in at:
            value = values(row, scope)
            middle, low, high = (value.median, value.low, value.high) if value else (math.nan,) * 3
            said = sample(run, row, scope)
            points.append(Point(at[size], middle / divisor, low / divisor, high / divisor, said))
    return points


def _over_size(
    runs: Sequence[Run],
    families: pane.Families,
    values: Values,
    unit: Callable[[Sweep, float], tuple[float, str]],
    text: Callable[[float], str] = units.number,
    scale: Literal["zero", "log", ""] = "log",
    more: Callable[[Sweep, Sequence[Run]], list[Line]] = lambda *_: [],
) -> list[pane.Pane]:
    """A pane for each sweep that has values.

    `unit` has what values are divided by and the name of the axis, given the largest value. `scale` is of the
    axis: linear from zero, logarithmic, or linear. `more` are other lines, in the unit of the values.
    """

    def paint(axes: Axes, sweep: Sweep) -> None:
        measured = [value.median for row in sweep.rows if (value := values(row, sweep.scope))]
        divisor, name = unit(sweep, max(measured))
        at = size_axis(axes, sweep.sizes)
        drawn = [
            Line(
                curve.label,
                _drawn(run, curve, values, sweep.scope, at, divisor),
                sweep.look(part, curve.label),
                sweep.name(part, curve),
            )
            for part, (run, panel) in enumerate(sweep.parts)
            for curve in panel.series
        ]
        for line in more(sweep, runs):  # from end to end
            ends = [Point(axes.get_xlim()[n], line.points[n].y / divisor) for n in (0, 1)]
            drawn.append(replace(line, points=ends))
        draw_lines(axes, drawn)
        if scale == "log":
            axes.set_yscale("log")
            pane.log_ticks(axes.yaxis, text)
        else:
            pane.tick_texts(axes.yaxis, text)
        if scale == "zero":
            axes.set_ylim(0, None)
        axes.set_xlabel(sweep.panel.shape)
        axes.set_ylabel(name)
        pane.titles(axes, sweep.title, sweep.below)
        name_ends(axes, drawn)

    shown = (sweep.having(values) for sweep in _sweeps(runs, families))
    return [pane.Pane(LINES_HEIGHT, partial(paint, sweep=sweep)) for sweep in shown if sweep.rows]


def _flops(sweep: Sweep, largest: float) -> tuple[float, str]:
    divisor, letter = units.scale(largest)
    suffix = "IOPS" if derive.is_integer(sweep.panel.dtype) else "FLOPS"
    return divisor, f"{letter}{suffix} {SCOPE_WORDS[sweep.scope]}"


def throughput(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """GFLOPS over size, with libraries and the measured peak."""
    return _over_size(runs, families, derive.shown_rate, _flops, scale="zero", more=_peaks)


def _peaks(sweep: Sweep, runs: Sequence[Run]) -> list[Line]:
    """The measured peaks of the runs, if a kernel comes near them."""
    drawn = {}
    for run, panel in sweep.parts:
        peak = derive.peak(run, panel.device, panel.dtype, others=runs)
        if peak and max(_best(curve, sweep.scope) for curve in panel.series) > pane.NEAR * peak.rate:
            name = f"peak {units.rate(peak.rate, derive.is_integer(panel.dtype))}"
            drawn[name] = Line("peak", [Point(0, peak.rate)] * 2, _PEAK, name)
    return list(drawn.values())


def time(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Seconds for one problem over size."""

    def values(row: Row, scope: str) -> Interval | None:
        return derive.summary(row, derive.shown_samples(row, scope)) if row.status == "ok" else None

    def unit(sweep: Sweep, _: float) -> tuple[float, str]:
        return 1.0, f"time for one problem {SCOPE_WORDS[sweep.scope]}"

    return _over_size(runs, families, values, unit, units.seconds)


def energy(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Joules for one problem over size."""

    def values(row: Row, _: str) -> Interval | None:
        joules = row.energy.joules if row.status == "ok" else None
        return Interval(joules, math.nan, math.nan) if joules else None

    def unit(sweep: Sweep, _: float) -> tuple[float, str]:
        sources = dict.fromkeys(clean(row.energy.scope) for row in sweep.rows if row.energy.scope)
        return 1.0, f"energy for one problem, {' or '.join(sources) or 'machine'}"

    return _over_size(runs, families, values, unit, units.joules)


def why_no_energy(runs: Sequence[Run]) -> str:
    """Why no row of runs has joules, each reason once; "" where they have, or nobody asked for them."""
    rows = [row for run in runs for row in run.rows if row.kind == "gemm" and derive.asked_for_energy(row)]
    if any(row.energy.joules is not None for row in rows):
        return ""
    return "; ".join(dict.fromkeys(clean(row.energy.why) for row in rows))


def versus(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """The rate over that of the kernel of ``--versus``, over size."""

    def values(row: Row, _: str) -> Interval | None:
        return derive.versus(row)

    def unit(sweep: Sweep, _: float) -> tuple[float, str]:
        names = dict.fromkeys(clean(name) for row in sweep.rows if (name := derive.partner(row)))
        return 1.0, f"times the rate of {', '.join(names)}"

    equal = Line("1", [Point(0, 1.0)] * 2, Look(pane.GREY))
    return _over_size(runs, families, values, unit, "{:.4g}".format, "", lambda *_: [equal])


def host_device(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """GFLOPS with and without transfers: the fastest variants and the host's BLAS."""
    drawn = []
    for sweep in _sweeps(runs, families):
        parts = tuple(
            (run, replace(panel, series=_contenders(panel, families))) for run, panel in sweep.parts
        )
        if any(not curve.is_host for _, panel in parts for curve in panel.series):
            painted = partial(_host_device, sweep=replace(sweep, parts=parts))
            drawn.append(pane.Pane(LINES_HEIGHT, painted))
    return drawn


def _host_device(axes: Axes, sweep: Sweep) -> None:
    """With transfers (solid) and on the device (dotted), and where the device passes numpy."""
    at, drawn = size_axis(axes, sweep.sizes), list[Line]()
    for part, (run, panel) in enumerate(sweep.parts):
        for curve in panel.series:
            look = sweep.look(part, curve.label)
            dotted = replace(look, dashes=(0, (1, 1.4)), is_hollow=True)
            for scope, style in {"host": look, **({} if curve.is_host else {"device": dotted})}.items():
                points = _drawn(run, curve, derive.shown_rate, scope, at, units.GIGA)
                name = sweep.name(part, curve).replace(" (host)", "")
                name += "" if curve.is_host else f", {SCOPE_WORDS[scope]}"
                drawn.append(Line(curve.label, points, style, name))
    draw_lines(axes, drawn)
    axes.set_yscale("log")
    for _, panel in sweep.parts[:1]:
        _mark_break_even(axes, sweep, panel, at)
    pane.log_ticks(axes.yaxis, units.number)
    axes.set_xlabel(sweep.panel.shape)
    axes.set_ylabel("GFLOPS")
    pane.titles(axes, f"{sweep.title}, with and without transfers")
    name_ends(axes, drawn)


def _contenders(panel: Panel, families: pane.Families) -> tuple[Series, ...]:
    """The two kernels that are fastest with transfers, the one of the break-even, and the host's BLAS."""
    kernels = [line for line in panel.series if not line.is_host and families.get(line.variant) != LIBRARIES]
    ranked = sorted(kernels, key=lambda curve: _best(curve, "host"), reverse=True)
    fastest = [curve for curve in ranked if _best(curve, "host")][:2]
    earliest = (even.kernel for even in break_evens(panel)[:1] if even.size is not None)
    return tuple(dict.fromkeys((*fastest, *earliest, *(line for line in panel.series if line.is_host))))


def _mark_break_even(axes: Axes, sweep: Sweep, panel: Panel, at: Mapping[int, float]) -> None:
    even = next(iter(break_evens(panel)), None)
    if even is None or even.size is None or sweep.sizes[0] not in at.values():  # categories have no between
        return
    axes.axvline(even.size, color=pane.BLACK, linewidth=1.0, linestyle=":", label="break-even")
    axes.axvspan(
        even.low or even.size, even.high or sweep.sizes[-1], color=pane.BLACK, alpha=0.1, linewidth=0
    )
    text = f"{clean(even.kernel.label)} with transfers beats numpy from {panel.axis} = {round(even.size)}"
    if even.from_start:
        text = f"{clean(even.kernel.label)} with transfers beats numpy at every size"
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.08)  # room for the words, above all lines
    is_left = even.size < (sweep.sizes[0] * sweep.sizes[-1]) ** 0.5
    offset, side = (4, "left") if is_left else (-4, "right")
    pane.say(
        axes, text, (even.size, 1), (offset, -2), pane.BELOW, ha=side, va="top", fontsize=8, bbox=pane.OPAQUE
    )


# --- The roofline: rates over arithmetic intensity, below what memory and arithmetic units allow ------------


def roofline(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """A pane for each run, device and type with measured GEMM rows and a peak.

    Peak and bandwidth are the run's own, else those that another of the runs has of the same device.
    """
    drawn = []
    for subject in pane.subjects(runs):
        run, device = subject.run, subject.device
        # On a CPU the host's BLAS is under the same roofs.
        under = (device, HOST) if run.header.devices[device].type == "cpu" else (device,)
        rows = [row for row in subject.rows if row.device in under and derive.intensity(row) > 0]
        peak = derive.peak(run, device, subject.dtype, others=runs)
        if peak and any(derive.shown_rate(row, "kernel") for row in rows):
            bandwidths = (
                top[0]
                for other in (run, *runs)
                for index in range(len(other.header.devices))
                if pane.device_name(other, index) == pane.device_name(run, device)
                and (top := derive.best_bandwidth(other, index))
            )
            painted = partial(_paint_roofs, subject=subject, rows=rows, families=families, peak=peak.rate)
            drawn.append(pane.Pane(LINES_HEIGHT, partial(painted, bandwidth=next(bandwidths, None))))
    return drawn


def _paint_roofs(
    axes: Axes,
    subject: pane.PaneSubject,
    rows: Sequence[Row],
    families: pane.Families,
    peak: float,
    bandwidth: float | None,
) -> None:
    """The roofs and a point for each variant and problem; `peak` is in flop/s, `bandwidth` in bytes/s."""
    shapes = {row.problem: row for row in sorted(rows, key=derive.intensity)}
    numbers: dict[object, int] = {problem: number for number, problem in enumerate(shapes)}
    at = {number: derive.intensity(row) for number, row in enumerate(shapes.values())}
    curves = series(rows, lambda row: numbers[row.problem], tuple(families))
    panel = Panel(subject.device, subject.dtype, "m", curves)
    sweep = Sweep(subject.where, ((subject.run, panel),), families)
    divisor, unit = _flops(sweep, peak)
    joined = sweep_axis(shapes.values()) is not None  # otherwise problems do not follow each other
    drawn = []
    for curve in curves:
        look, name = sweep.look(0, curve.label), sweep.name(0, curve).replace(" (host)", "")
        look = look if joined else replace(look, marker=look.marker or "x", dashes="")
        points = [
            point._replace(low=math.nan, high=math.nan)
            for point in _drawn(subject.run, curve, derive.shown_rate, sweep.scope, at, divisor)
        ]
        drawn.append(Line(curve.label, points, look, name))
    axes.set_xscale("log")
    axes.set_yscale("log")
    draw_lines(axes, drawn)
    top, (bottom, highest) = peak / divisor, axes.dataLim.intervaly
    ridge = peak / bandwidth if bandwidth else None  # from which intensity on memory is no limit
    axes.set_ylim(min(bottom, top) / 1.6, max(top, highest) * 2)
    axes.set_xlim(min(at[0], ridge / 8 if ridge else at[0]) / 1.5, max(at[len(at) - 1], ridge or 0) * 1.5)
    left, right = axes.get_xlim()
    roof = [Point(ridge or left, top), Point(right, top)]
    drawn.append(
        Line("peak", roof, Look(pane.GREY), f"peak {units.rate(peak, derive.is_integer(subject.dtype))}")
    )
    draw_lines(axes, drawn[-1:])
    if ridge and bandwidth:
        slope = [Point(left, top * left / ridge), Point(ridge, top)]
        draw_lines(axes, [Line("memory", slope, Look(pane.GREY))])
        words = f"memory {units.number(bandwidth / units.GIGA)} GB/s"
        pane.say(axes, words, (ridge, top), (-2, 4), ha="right", va="bottom", fontsize=8, color=pane.DARK)
    pane.log_ticks(axes.xaxis, units.number, math.inf)
    pane.log_ticks(axes.yaxis, units.number)
    axes.set_xlabel("flop per byte, with A, B and C moved once")
    axes.set_ylabel(unit)
    pane.titles(axes, f"{sweep.title}, roofline", sweep.below)
    name_ends(axes, drawn)
