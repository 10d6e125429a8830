"""Lines: rates, times and energies over size, and the roofline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

import numpy as np
from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.charts.lines import (
    Box,
    End,
    Label,
    Look,
    at_ends,
    boxes,
    end_of,
    frame,
    looks,
    missing,
    status,
)
from gemmbench.gemm.sweep_table import NOT_MEASURED, any_joules
from gemmbench.ladder.variant import LIBRARIES
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.report.notes import FEW
from gemmbench.report.progress import sample
from gemmbench.stats import rates as derive
from gemmbench.stats.panels import Panel, Series, break_evens, series, sweep_axis

Values = Callable[[Row], tuple[float, float, float] | None]  # median, low, high
Paint = Callable[[Box, Axes], None]

_BARS = "bars: 95 % confidence"


def _panes(runs: Sequence[Run], families: pane.Families, paint: Paint, values: Values) -> list[pane.Pane]:
    return [
        pane.Pane(box.height, partial(paint, box))
        for box in boxes(runs, families)
        if any(values(row) for curve in box.series for row in curve.rows.values())
    ]


def throughput(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """GFLOPS over size, with the host's BLAS and the measured peak."""
    return _panes(runs, families, partial(_throughput, runs=runs), _rates)


def time(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Seconds for one problem over size."""
    return _panes(runs, families, _time, _times)


def energy(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Joules for one problem over size."""
    paint = partial(_energy, values=_joules, label="energy for one problem", text=units.joules)
    return _panes(runs, families, paint, _joules)


def efficiency(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """GFLOP for each joule over size."""
    paint = partial(_energy, values=_per_joule, label="GFLOP/J", text=units.number)
    return _panes(runs, families, paint, _per_joule)


def versus(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """The rate over that of the kernel of ``--versus``, over size."""
    return _panes(runs, families, _versus, _ratios)


def host_device(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """GFLOPS with and without transfers: the fastest variants and the host's BLAS."""
    panes = []
    for box in boxes(runs, families):
        few = tuple((run, replace(panel, series=_contenders(panel, families))) for run, panel in box.parts)
        if any(not curve.is_host for _, panel in few for curve in panel.series):
            shown = replace(box, parts=few)
            # Colours as in the other charts, unless those are of families.
            styles = looks(shown if box.crowded else box)
            panes.append(pane.Pane(shown.height + 0.25, partial(_host_device, box=shown, styles=styles)))
    return panes


def _rates(row: Row, scope: str = "kernel") -> tuple[float, float, float] | None:
    reached = derive.shown_rate(row, scope)
    if reached is None:
        return None
    return reached.median / units.GIGA, reached.low / units.GIGA, reached.high / units.GIGA


def _times(row: Row, scope: str = "kernel") -> tuple[float, float, float] | None:
    times = derive.summary(row, derive.shown_samples(row, scope))
    return (times.median, times.low, times.high) if times and row.status == "ok" else None


def _joules(row: Row) -> tuple[float, float, float] | None:
    value = row.energy.joules if row.status == "ok" else None
    return (value, value, value) if value else None


def _per_joule(row: Row) -> tuple[float, float, float] | None:
    value = derive.gflop_per_joule(row)
    return (value, value, value) if value else None


def _ratios(row: Row) -> tuple[float, float, float] | None:
    against = derive.versus(row)
    return (against.median, against.low, against.high) if against else None


def _versus(box: Box, axes: Axes) -> None:
    labels = _curves(axes, box, _ratios)
    rows = [row for curve in box.series for row in curve.rows.values()]
    against = [ratio for row in rows if (ratio := derive.versus(row))]
    scopes = " or ".join(dict.fromkeys(f"{ratio.scope} scope" for ratio in against))
    names = ", ".join(dict.fromkeys(clean(name) for row in rows if (name := derive.partner(row))))
    axes.axhline(1.0, color=pane.GREY, linewidth=1.2, label="1")
    below = f"{box.dtype}, {scopes}, batches in turn; {_BARS}"
    frame(axes, box, f"times the rate of {names}", units.number, below)
    at_ends(axes, labels, box)


def _throughput(box: Box, axes: Axes, runs: Sequence[Run]) -> None:
    peaks = [derive.peak(run, panel.device, panel.dtype, others=runs) for run, panel in box.parts]
    labels = _curves(axes, box, partial(_rates, scope=box.scope))
    labels += _peak_lines(axes, box, peaks)
    frame(axes, box, "GFLOPS", units.number, f"{box.dtype}, {box.scope} scope; {_BARS}")
    at_ends(axes, labels, box)
    notes = dict.fromkeys(
        note
        for (run, _), peak in zip(box.parts, peaks, strict=True)
        if peak
        for note in pane.about_peaks(run, [peak])
    )
    missing(axes, box, box.series, status, notes=list(notes))


def _time(box: Box, axes: Axes) -> None:
    labels = _curves(axes, box, partial(_times, scope=box.scope))
    frame(axes, box, "time for one problem", units.seconds, f"{box.dtype}, {box.scope} scope; {_BARS}")
    at_ends(axes, labels, box)
    missing(axes, box, box.series, status)


def _energy(box: Box, axes: Axes, values: Values, label: str, text: Callable[[float], str]) -> None:
    labels = [*_curves(axes, box, values), *_unmeasured(box)]
    frame(axes, box, label, text, f"{box.dtype}, {_counted(box)}")
    at_ends(axes, labels, box)
    missing(axes, box, box.series, _why_no_energy)


def _unmeasured(box: Box) -> list[Label]:
    """A label without a line for each series that ran and has no joules: the footnote says why."""
    styles = looks(box)
    return [
        Label(
            f"{box.series_name(curve)}{box.name(run)}: {NOT_MEASURED}",
            None,
            styles[number, curve.label].colour,
        )
        for number, (run, panel) in enumerate(box.parts)
        for curve in panel.series
        if not any(row.energy.joules for row in curve.rows.values())
        and any(derive.asked_for_energy(row) for row in curve.rows.values())
    ]


def why_no_energy(runs: Sequence[Run]) -> str:
    """Why no row of runs has joules, each reason once; "" where they have, or nobody asked for them."""
    rows = [row for run in runs for row in run.rows if row.kind == "gemm" and row.status == "ok"]
    if any_joules(rows):
        return ""
    return "; ".join(dict.fromkeys(clean(row.energy.why) for row in rows if derive.asked_for_energy(row)))


def _counted(box: Box) -> str:
    """Whose energy was counted: ``energy of the board, idle draw included``."""
    scopes = dict.fromkeys(
        clean(row.energy.scope) for curve in box.series for row in curve.rows.values() if row.energy.scope
    )
    return f"energy of the {' or the '.join(scopes) or 'machine'}, idle draw included"


def _why_no_energy(row: Row) -> str:
    if row.status != "ok":
        return row.status
    return "" if row.energy.joules else clean(row.energy.why)


def _curves(axes: Axes, box: Box, values: Values) -> list[Label]:
    """Every series, the pale ones below the strong."""
    styles = looks(box)
    labels = []
    for number, (run, panel) in enumerate(box.parts):
        for curve in panel.series:
            look = styles[number, curve.label]
            end = _line(axes, run, curve, box, values, look)
            if end:
                name = f"{box.series_name(curve)}{box.name(run)}"
                labels.append(Label(name, end, look.colour, look.strength > 1))
    return labels


def _line(
    axes: Axes, run: Run, curve: Series, box: Box, values: Values, look: Look, scope: str = ""
) -> End | None:
    """Draw one series and the intervals that are known; sizes without a figure are gaps. Returns its end."""
    nothing, sizes = (np.nan, np.nan, np.nan), box.sizes
    points = np.array([(values(curve.rows[n]) or nothing) if n in curve.rows else nothing for n in sizes])
    middle, low, high = points.T
    axes.vlines(sizes, low, high, **look.bar)
    axes.plot(sizes, middle, label=curve.label, **look.style)
    for size, value in zip(sizes, middle, strict=True):
        if size in curve.rows:
            pane.mark(axes, size, value, sample(run, curve.rows[size], scope or box.scope))
    return end_of(sizes, middle)


def _peak_lines(axes: Axes, box: Box, peaks: Sequence[derive.Peak | None]) -> list[Label]:
    """The peak that each part is held against; there may be none."""
    labels = []
    for (run, panel), peak in zip(box.parts, peaks, strict=True):
        if peak:
            top = peak.rate / units.GIGA
            axes.axhline(top, color=pane.GREY, linewidth=1.2, linestyle=(0, (8, 2, 1.5, 2)), label="peak")
            text = f"{panel.dtype} peak {units.gflops(peak.rate)}{box.name(run)}"
            labels.append(Label(text, End(float(box.sizes[-1]), top, top), pane.GREY))
    return labels


def _host_device(axes: Axes, box: Box, styles: Mapping[tuple[int, str], Look]) -> None:
    """With transfers counted (solid) and without (dotted), and where the device passes numpy."""
    labels: list[Label] = []
    for number, (run, panel) in enumerate(box.parts):
        for curve in panel.series:
            look = styles[number, curve.label]
            dotted = replace(look, line=(0, (1, 1.4)), open=True)
            lines = {"": look} if curve.is_host else {", host": look, ", device": dotted}
            for scope, style in lines.items():
                shown = "device" if style is dotted else "host"
                if end := _line(axes, run, curve, box, partial(_rates, scope=shown), style, shown):
                    name = f"{clean(curve.label)}{scope}{box.name(run)}"
                    labels.append(Label(name, end, look.colour))
    below = f"{box.dtype}, host scope (with transfers) and device scope; {_BARS}"
    frame(axes, box, "GFLOPS", units.number, below)
    for _, panel in box.parts:
        _mark_break_even(axes, box, panel)
    at_ends(axes, labels, box)
    missing(axes, box, box.series, status)


def _contenders(panel: Panel, families: pane.Families) -> tuple[Series, ...]:
    """What the chart compares: two or three kernels, and the host's own BLAS.

    Those with the best rate in the host scope, at any size, and the one that the break-even is of.
    """

    def best(line: Series) -> float:
        return max(
            (reached.median for r in line.rows.values() if (reached := derive.rate(r, "host"))), default=0.0
        )

    kernels = (line for line in panel.series if families.get(line.variant) != LIBRARIES)
    fastest = sorted(
        (line for line in kernels if not line.is_host and best(line) > 0), key=best, reverse=True
    )
    earliest = (even.kernel for even in break_evens(panel)[:1] if even.size is not None)
    hosts = (line for line in panel.series if line.is_host)
    return tuple(dict.fromkeys((*fastest[:2], *earliest, *hosts)))


def _mark_break_even(axes: Axes, box: Box, panel: Panel) -> None:
    even = next(iter(break_evens(panel)), None)
    if even is None or even.size is None:
        return
    axes.axvline(even.size, color=pane.BLACK, linewidth=1.0, linestyle=":", label="break-even")
    if not even.is_few:
        right = even.high if even.high is not None else box.sizes[-1]
        axes.axvspan(even.low or even.size, right, color=pane.BLACK, alpha=0.10, linewidth=0)
    text = f"break-even {panel.axis} = {round(even.size)}"
    if even.from_start:
        text = f"{even.kernel.label} wins from the start"
    elif even.is_few:
        text += f" ({FEW}: no interval): {even.kernel.label}"
    elif even.low is not None and even.high is not None:
        text += f" ({round(even.low)} to {round(even.high)}): {even.kernel.label}"
    left = even.size < (box.sizes[0] * box.sizes[-1]) ** 0.5
    low, high = axes.get_ylim()
    room = (high / low) ** 0.07  # for the words, above all lines, or below
    axes.set_ylim(*((low, high * room) if left else (low / room, high)))
    at, offset, ha, va = (high, 4, "left", "bottom") if left else (low, -4, "right", "top")
    style: dict[str, Any] = {"ha": ha, "va": va, "bbox": pane.OPAQUE, "fontsize": 8}
    pane.say(axes, clean(text), (even.size, at), (offset, 0), **style)


# --- The roofline: rates over arithmetic intensity, below what memory and arithmetic units allow ------------


_ROOF = 1.8  # its line's width


@dataclass(frozen=True, eq=False)
class Roofs:
    """What one pane shows: every variant of a device and type at every problem, below the roofs."""

    box: Box  # rows by the number of their problem, from 1
    names: tuple[str, ...]  # of the problems, by arithmetic intensity
    intensities: tuple[float, ...]  # flop/byte
    swept: bool  # whether the problems follow each other, so that lines join them
    peak: float  # flop/s
    bandwidth: float | None  # bytes/s
    notes: tuple[str, ...]  # on where the roofs are from

    @property
    def ridge(self) -> float | None:
        """The intensity from which the arithmetic units are the limit, no longer the memory."""
        return self.peak / self.bandwidth if self.bandwidth else None


def roofline(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """A pane for each run, device and type with measured GEMM rows and a peak.

    Peak and bandwidth are the run's own, else those that another of the runs has of the same device.
    """
    panes = []
    for subject in pane.subjects(runs):
        roofs = _roofs(subject, runs, families)
        if roofs is not None:
            panes.append(pane.Pane(roofs.box.height + 0.4, partial(_paint_roofs, roofs=roofs)))
    return panes


def _roofs(subject: pane.Subject, runs: Sequence[Run], families: pane.Families) -> Roofs | None:
    run, device, dtype = subject.run, subject.device, subject.dtype
    # On a CPU the host's BLAS is under the same roofs.
    under = (device, HOST) if run.header.devices[device].type == "cpu" else (device,)
    rows = [row for row in subject.rows if row.device in under and derive.intensity(row) > 0]
    peak = derive.peak(run, device, dtype, others=runs)
    if peak is None or not any(derive.shown_rate(row, "kernel") for row in rows):
        return None
    notes = pane.about_peaks(run, [peak])
    same = [
        (other, index)
        for other in (run, *runs)
        for index in range(len(other.header.devices))
        if pane.device_title(other, index) == pane.device_title(run, device)
    ]
    bandwidths = [(top[0], other) for other, index in same if (top := derive.best_bandwidth(other, index))]
    if not bandwidths:
        notes.append("No memory roof: bandwidth was not measured; gemmbench peak --all does.")
    elif bandwidths[0][1] is not run:
        notes.append(f"The memory roof is that of {pane.stem(bandwidths[0][1])}.")
    by_problem = {_problem_of(row): row for row in sorted(rows, key=derive.intensity)}
    numbers = {problem: number for number, problem in enumerate(by_problem, 1)}
    lines = series(rows, lambda row: numbers[_problem_of(row)], tuple(families))
    return Roofs(
        Box(subject.title, dtype, ((run, Panel(device, dtype, "m", lines)),), families),
        tuple(clean(row.label) or _problem_of(row).size for row in by_problem.values()),
        tuple(derive.intensity(row) for row in by_problem.values()),
        sweep_axis(rows) is not None,
        peak.rate,
        bandwidths[0][0] if bandwidths else None,
        tuple(notes),
    )


def _problem_of(row: Row) -> Problem:
    assert row.problem is not None  # a gemm row has one
    return row.problem


def _paint_roofs(axes: Axes, roofs: Roofs) -> None:
    """The roofs, a point for each variant and problem, the ridge."""
    axes.set_xscale("log")
    axes.set_yscale("log")
    labels = _points(axes, roofs)
    bottom, highest = axes.dataLim.intervaly
    top = roofs.peak / units.GIGA
    axes.set_ylim(min(bottom, top) / 1.6, max(top, highest) * 1.8)
    least, most = min(roofs.intensities), max(roofs.intensities)
    ridge = roofs.ridge
    axes.set_xlim(min(least, ridge / 8 if ridge else least) / 1.5, max(most, ridge or most) * 1.5)
    _draw_roofs(axes, roofs)
    labels.append(
        Label(f"{roofs.box.dtype} peak {units.number(top)}", End(axes.get_xlim()[1], top, top), pane.GREY)
    )
    pane.log_ticks(axes.xaxis, units.number, math.inf)
    pane.log_ticks(axes.yaxis, units.number)
    axes.tick_params(length=3, color=pane.DARK)
    axes.set_xlabel("arithmetic intensity: flop/byte, with A, B and C moved once")
    axes.set_ylabel("GFLOPS")
    pane.titles(
        axes, roofs.box.title, f"{roofs.box.dtype}, {roofs.box.scope} scope{roofs.box.bold}", roofs.box.keys
    )
    at_ends(axes, labels, roofs.box, most)
    missing(axes, roofs.box, roofs.box.series, status, lambda number: roofs.names[number - 1], roofs.notes)


def _points(axes: Axes, roofs: Roofs) -> list[Label]:
    """Every variant, joined by a line where the problems are a sweep."""
    styles, labels = looks(roofs.box), []
    for line in roofs.box.series:
        look = styles[0, line.label]
        rates = [
            reached.median / units.GIGA
            if number in line.rows and (reached := derive.shown_rate(line.rows[number], roofs.box.scope))
            else np.nan
            for number in range(1, len(roofs.names) + 1)
        ]
        style = look.style | {"marker": look.marker or ("" if roofs.swept else "x")}
        style |= {} if roofs.swept else {"linestyle": ""}
        axes.plot(roofs.intensities, rates, label=line.label, **style)
        for number, row in line.rows.items():
            said = sample(roofs.box.parts[0][0], row, roofs.box.scope)
            pane.mark(axes, roofs.intensities[number - 1], rates[number - 1], said)
        if end := end_of(roofs.intensities, rates, goes_on=roofs.swept):
            labels.append(Label(roofs.box.series_name(line), end, look.colour, look.strength > 1))
    return labels


def _draw_roofs(axes: Axes, roofs: Roofs) -> None:
    """The arithmetic's level, the memory's slope that meets it at the ridge, and their words."""
    top, (left, right) = roofs.peak / units.GIGA, axes.get_xlim()
    ridge, floor = roofs.ridge, axes.get_ylim()[0]
    axes.plot([ridge or left, right], [top, top], color=pane.GREY, linewidth=_ROOF, label="peak")
    if ridge is None or roofs.bandwidth is None:
        return
    axes.plot([left, ridge], [top * left / ridge, top], color=pane.GREY, linewidth=_ROOF, label="memory")
    axes.plot([ridge, ridge], [floor, top], color=pane.GREY, linewidth=0.9, linestyle=":", label="ridge")
    divisor, letter = units.scale(roofs.bandwidth)
    seen = max(left, ridge * floor / top)  # where the slope comes into the picture
    x = ridge * (seen / ridge) ** 0.2
    speed = f"memory {units.number(roofs.bandwidth / divisor)} {letter}B/s"
    _above(axes, x, top * x / ridge, speed, "right")
    _above(axes, ridge, top, f"ridge {units.number(ridge)} flop/byte", "center")


def _above(axes: Axes, x: float, y: float, words: str, side: Literal["center", "right"]) -> None:
    """Words above a roof, where nothing else is; to the left of the point, or about it."""
    offset = (0 if side == "center" else -5, 4)
    pane.say(axes, words, (x, y), offset, ha=side, va="bottom", fontsize=8, color=pane.DARK, bbox=pane.OPAQUE)
