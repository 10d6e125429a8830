"""Lines: rates, times and energies over size, and the roofline."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
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
from gemmbench.gemm.sweep_table import any_joules
from gemmbench.ladder.variant import LIBRARIES
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.report.progress import sample
from gemmbench.stats import rates as derive
from gemmbench.stats.panels import Panel, Series, break_evens, series, sweep_axis

Point = tuple[float, float, float]  # median, low, high
Values = Callable[[Row, str], Point | None]  # of a row in a scope
_NOTHING = (math.nan, math.nan, math.nan)
_BARS = "bars: 95 % confidence"


def _over_size(
    runs: Sequence[Run],
    families: pane.Families,
    values: Values,
    says: Callable[[Box], tuple[str, str]],
    text: Callable[[float], str] = units.number,
    why: Callable[[Row], str] = status,
    beside: Callable[[Axes, Box], tuple[list[Label], list[str]]] = lambda *_: ([], []),
) -> list[pane.Pane]:
    """A pane for each device and data type that has values.

    `says` has the unit and what is drawn, `why` says why a row has no point, `beside` draws other lines first
    and returns their labels and footnotes.
    """

    def paint(axes: Axes, box: Box) -> None:
        styles, labels = looks(box), []
        for number, (run, panel) in enumerate(box.parts):
            for curve in panel.series:
                look = styles[number, curve.label]
                if end := _line(axes, run, curve, box, values, look):
                    name = f"{box.series_name(curve)}{box.name(run)}"
                    labels.append(Label(name, end, look.colour, look.strength > 1))
        others, notes = beside(axes, box)
        unit, below = says(box)
        frame(axes, box, unit, text, f"{box.dtype}, {below}")
        at_ends(axes, labels + others, box)
        missing(axes, box, box.series, why, notes=notes)

    return [
        pane.Pane(box.height, partial(paint, box=box))
        for box in boxes(runs, families)
        if any(values(row, box.scope) for _, panel in box.parts for row in panel.rows)
    ]


def throughput(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """GFLOPS over size, with the host's BLAS and the measured peak."""
    beside = partial(_peaks, runs=runs)
    return _over_size(runs, families, _rates, lambda box: ("GFLOPS", _in_scope(box)), beside=beside)


def time(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Seconds for one problem over size."""

    def values(row: Row, scope: str) -> Point | None:
        times = derive.summary(row, derive.shown_samples(row, scope))
        return (times.median, times.low, times.high) if times and row.status == "ok" else None

    return _over_size(
        runs, families, values, lambda box: ("time for one problem", _in_scope(box)), units.seconds
    )


def energy(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Joules for one problem over size."""

    def values(row: Row, _: str) -> Point | None:
        value = row.energy.joules if row.status == "ok" else None
        return (value, value, value) if value else None

    def says(box: Box) -> tuple[str, str]:
        scopes = dict.fromkeys(clean(row.energy.scope) for row in box.rows if row.energy.scope)
        counted = f"energy of the {' or the '.join(scopes) or 'machine'}, idle draw included"
        return "energy for one problem", counted

    def why(row: Row) -> str:
        return status(row) or ("" if row.energy.joules else clean(row.energy.why))

    return _over_size(runs, families, values, says, units.joules, why)


def why_no_energy(runs: Sequence[Run]) -> str:
    """Why no row of runs has joules, each reason once; "" where they have, or nobody asked for them."""
    rows = [row for run in runs for row in run.rows if row.kind == "gemm" and row.status == "ok"]
    if any_joules(rows):
        return ""
    return "; ".join(dict.fromkeys(clean(row.energy.why) for row in rows if derive.asked_for_energy(row)))


def versus(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """The rate over that of the kernel of ``--versus``, over size."""

    def values(row: Row, _: str) -> Point | None:
        against = derive.versus(row)
        return (against.median, against.low, against.high) if against else None

    def says(box: Box) -> tuple[str, str]:
        against = [ratio for row in box.rows if (ratio := derive.versus(row))]
        scopes = " or ".join(dict.fromkeys(f"{ratio.scope} scope" for ratio in against))
        names = ", ".join(dict.fromkeys(clean(name) for row in box.rows if (name := derive.partner(row))))
        return f"times the rate of {names}", f"{scopes}, batches in turn; {_BARS}"

    def beside(axes: Axes, _: Box) -> tuple[list[Label], list[str]]:
        axes.axhline(1.0, color=pane.GREY, linewidth=1.2, label="1")
        return [], []

    return _over_size(runs, families, values, says, beside=beside)


def _in_scope(box: Box) -> str:
    return f"{box.scope} scope; {_BARS}"


def _rates(row: Row, scope: str) -> Point | None:
    reached = derive.shown_rate(row, scope)
    if reached is None:
        return None
    return reached.median / units.GIGA, reached.low / units.GIGA, reached.high / units.GIGA


def _line(
    axes: Axes,
    run: Run,
    curve: Series,
    box: Box,
    values: Values,
    look: Look,
    scope: str = "",
    stands: Sequence[float] = (),
) -> End | None:
    """Draw one series and the intervals that are known; sizes without a figure are gaps. Returns its end.

    The scope is by default the pane's, and points stand at their sizes.
    """
    scope, stands, goes_on = scope or box.scope, stands or box.sizes, look.line != ""
    points = [(values(curve.rows[n], scope) or _NOTHING) if n in curve.rows else _NOTHING for n in box.sizes]
    middle, low, high = np.array(points).T
    if np.isfinite(low).any():
        axes.vlines(stands, low, high, **look.bar)
    axes.plot(stands, middle, label=curve.label, **look.style)
    for size, x, value in zip(box.sizes, stands, middle, strict=True):
        if size in curve.rows:
            pane.mark(axes, x, value, sample(run, curve.rows[size], scope))
    return end_of(stands, middle, goes_on)


def _peaks(axes: Axes, box: Box, runs: Sequence[Run]) -> tuple[list[Label], list[str]]:
    """The peak that each part is held against; there may be none."""
    labels, notes = [], []
    for run, panel in box.parts:
        if peak := derive.peak(run, panel.device, panel.dtype, others=runs):
            top = peak.rate / units.GIGA
            axes.axhline(top, color=pane.GREY, linewidth=1.2, linestyle=(0, (8, 2, 1.5, 2)), label="peak")
            text = f"{panel.dtype} peak {units.gflops(peak.rate)}{box.name(run)}"
            labels.append(Label(text, End(float(box.sizes[-1]), top, top), pane.GREY))
            notes += pane.about_peaks(run, [peak])
    return labels, list(dict.fromkeys(notes))


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


def _host_device(axes: Axes, box: Box, styles: Mapping[tuple[int, str], Look]) -> None:
    """With transfers counted (solid) and without (dotted), and where the device passes numpy."""
    labels: list[Label] = []
    for number, (run, panel) in enumerate(box.parts):
        for curve in panel.series:
            look = styles[number, curve.label]
            dotted = replace(look, line=(0, (1, 1.4)), open=True)
            for scope, style in {"host": look, **({} if curve.is_host else {"device": dotted})}.items():
                if end := _line(axes, run, curve, box, _rates, style, scope):
                    name = clean(curve.label) + ("" if curve.is_host else f", {scope}")
                    labels.append(Label(f"{name}{box.name(run)}", end, look.colour))
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
        return max(derive.median_rate(row, "host") or 0.0 for row in line.rows.values())

    kernels = [line for line in panel.series if not line.is_host and families.get(line.variant) != LIBRARIES]
    fastest = sorted(filter(best, kernels), key=best, reverse=True)[:2]
    earliest = (even.kernel for even in break_evens(panel)[:1] if even.size is not None)
    return tuple(dict.fromkeys((*fastest, *earliest, *(line for line in panel.series if line.is_host))))


def _mark_break_even(axes: Axes, box: Box, panel: Panel) -> None:
    even = next(iter(break_evens(panel)), None)
    if even is None or even.size is None:
        return
    axes.axvline(even.size, color=pane.BLACK, linewidth=1.0, linestyle=":", label="break-even")
    right = even.high if even.high is not None else box.sizes[-1]
    axes.axvspan(even.low or even.size, right, color=pane.BLACK, alpha=0.10, linewidth=0)
    bounds = f" ({round(even.low)} to {round(even.high)})" if even.low and even.high else ""
    text = f"break-even {panel.axis} = {round(even.size)}"
    label = even.kernel.label
    text = f"{label} wins from the start" if even.from_start else f"{text}{bounds}: {label}"
    left = even.size < (box.sizes[0] * box.sizes[-1]) ** 0.5
    low, high = axes.get_ylim()
    room = (high / low) ** 0.07  # for the words, above all lines, or below
    axes.set_ylim(*((low, high * room) if left else (low / room, high)))
    at, offset, ha, va = (high, 4, "left", "bottom") if left else (low, -4, "right", "top")
    style: dict[str, Any] = {"ha": ha, "va": va, "bbox": pane.OPAQUE, "fontsize": 8}
    pane.say(axes, clean(text), (even.size, at), (offset, 0), **style)


# --- The roofline: rates over arithmetic intensity, below what memory and arithmetic units allow ------------


_ROOF = 1.8  # its line's width


def roofline(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """A pane for each run, device and type with measured GEMM rows and a peak.

    Peak and bandwidth are the run's own, else those that another of the runs has of the same device.
    """
    panes = []
    for subject in pane.subjects(runs):
        run, device, dtype = subject.run, subject.device, subject.dtype
        # On a CPU the host's BLAS is under the same roofs.
        under = (device, HOST) if run.header.devices[device].type == "cpu" else (device,)
        rows = [row for row in subject.rows if row.device in under and derive.intensity(row) > 0]
        peak = derive.peak(run, device, dtype, others=runs)
        if peak is None or not any(derive.shown_rate(row, "kernel") for row in rows):
            continue
        notes = pane.about_peaks(run, [peak])
        bandwidths = [
            (top[0], other)
            for other in (run, *runs)
            for index in range(len(other.header.devices))
            if pane.device_title(other, index) == pane.device_title(run, device)
            and (top := derive.best_bandwidth(other, index))
        ]
        if not bandwidths:
            notes.append("No memory roof: bandwidth was not measured; gemmbench peak --all does.")
        elif bandwidths[0][1] is not run:
            notes.append(f"The memory roof is that of {pane.stem(bandwidths[0][1])}.")
        problems = {row.problem: row for row in sorted(rows, key=derive.intensity)}
        numbers: dict[object, int] = {problem: at for at, problem in enumerate(problems, 1)}

        def number(row: Row, known: Mapping[object, int] = numbers) -> int:
            return known[row.problem]

        lines = series(rows, number, tuple(families))
        box = Box(subject.title, dtype, ((run, Panel(device, dtype, "m", lines)),), families)
        paint = partial(
            _paint_roofs,
            box=box,
            shapes=list(problems.values()),
            peak=peak.rate,
            bandwidth=bandwidths[0][0] if bandwidths else None,
            notes=notes,
        )
        panes.append(pane.Pane(box.height + 0.4, paint))
    return panes


def _paint_roofs(
    axes: Axes, box: Box, shapes: Sequence[Row], peak: float, bandwidth: float | None, notes: Sequence[str]
) -> None:
    """The roofs, a point for each variant and problem, the ridge. Series are by the number of the problem.

    `shapes` is a row of each problem, by arithmetic intensity; `peak` is in flop/s, `bandwidth` in bytes/s.
    """
    axes.set_xscale("log")
    axes.set_yscale("log")
    intensities, swept = [derive.intensity(row) for row in shapes], sweep_axis(shapes) is not None
    styles, labels = looks(box), []
    for curve in box.series:
        look = styles[0, curve.label]
        if not swept:  # problems do not follow each other
            look = replace(look, marker=look.marker or "x", line="")
        if end := _line(axes, box.parts[0][0], curve, box, _median, look, stands=intensities):
            labels.append(Label(box.series_name(curve), end, look.colour, look.strength > 1))
    bottom, highest = axes.dataLim.intervaly
    top, least, most = peak / units.GIGA, intensities[0], intensities[-1]
    ridge = peak / bandwidth if bandwidth else None  # from which intensity on memory is no limit
    axes.set_ylim(min(bottom, top) / 1.6, max(top, highest) * 1.8)
    axes.set_xlim(min(least, ridge / 8 if ridge else least) / 1.5, max(most, ridge or most) * 1.5)
    left, right = axes.get_xlim()
    axes.plot([ridge or left, right], [top, top], color=pane.GREY, linewidth=_ROOF, label="peak")
    if ridge and bandwidth:
        floor = axes.get_ylim()[0]
        axes.plot([left, ridge], [top * left / ridge, top], color=pane.GREY, linewidth=_ROOF, label="memory")
        axes.plot([ridge, ridge], [floor, top], color=pane.GREY, linewidth=0.9, linestyle=":", label="ridge")
        divisor, letter = units.scale(bandwidth)
        seen = max(left, ridge * floor / top)  # where the slope comes into the picture
        x = ridge * (seen / ridge) ** 0.2
        _above(axes, x, top * x / ridge, f"memory {units.number(bandwidth / divisor)} {letter}B/s", "right")
        _above(axes, ridge, top, f"ridge {units.number(ridge)} flop/byte", "center")
    labels.append(Label(f"{box.dtype} peak {units.number(top)}", End(right, top, top), pane.GREY))
    pane.log_ticks(axes.xaxis, units.number, math.inf)
    pane.log_ticks(axes.yaxis, units.number)
    axes.tick_params(length=3, color=pane.DARK)
    axes.set_xlabel("arithmetic intensity: flop/byte, with A, B and C moved once")
    axes.set_ylabel("GFLOPS")
    pane.titles(axes, box.title, f"{box.dtype}, {box.scope} scope{box.bold}", box.keys)
    at_ends(axes, labels, box, most)
    names = [clean(row.label) or (row.problem.size if row.problem else "") for row in shapes]
    missing(axes, box, box.series, status, lambda number: names[number - 1], notes)


def _median(row: Row, scope: str) -> Point | None:
    """A rate without its interval."""
    rate = derive.median_rate(row, scope)
    return (rate / units.GIGA, math.nan, math.nan) if rate else None


def _above(axes: Axes, x: float, y: float, words: str, side: Literal["center", "right"]) -> None:
    """Words above a roof, where nothing else is; to the left of the point, or about it."""
    offset = (0 if side == "center" else -5, 4)
    pane.say(axes, words, (x, y), offset, ha=side, va="bottom", fontsize=8, color=pane.DARK, bbox=pane.OPAQUE)
