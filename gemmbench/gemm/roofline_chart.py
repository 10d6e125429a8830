"""The roofline: rates over arithmetic intensity, below what memory and arithmetic units allow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gemmbench.charts.lines import Box, End, Label, at_ends, end_of, log_ticks, looks, missing, status
from gemmbench.charts.pane import (
    DARK,
    GREY,
    Families,
    Pane,
    about_peaks,
    device_title,
    own_title,
    places_of,
    short,
    stem,
    titles,
    with_gemms,
)
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import rates as derive
from gemmbench.stats.panels import Panel, series, sweep_axis

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


def roofline(runs: Sequence[Run], families: Families) -> list[Pane]:
    """A pane for each run, device and type with measured GEMM rows and a peak.

    Peak and bandwidth are the run's own, else those that another of the runs has of the same device.
    """
    panes = []
    for run in with_gemms(runs):
        gemms = [row for row in run.rows if row.kind == "gemm" and row.device != HOST]
        for device, dtype in dict.fromkeys((row.device, row.dtype) for row in gemms):
            roofs = _roofs(run, device, dtype, runs, families)
            if roofs is not None:
                panes.append(Pane(roofs.box.height + 0.4, partial(_paint, roofs=roofs)))
    return panes


def _roofs(run: Run, device: int, dtype: str, runs: Sequence[Run], families: Families) -> Roofs | None:
    # On a CPU the host's BLAS is under the same roofs.
    under = (device, HOST) if run.header.devices[device].type == "cpu" else (device,)
    rows = [row for row in run.rows if row.kind == "gemm" and row.dtype == dtype and row.device in under]
    rows = [row for row in rows if derive.intensity(row) > 0]
    peak = derive.peak(run, device, dtype, others=runs)
    if peak is None or not any(derive.shown_rate(row, "kernel") for row in rows):
        return None
    notes = about_peaks(run, [peak])
    same = [(other, index) for other in (run, *runs) for index in places_of(other, device_title(run, device))]
    bandwidths = [(top, other) for other, index in same if (top := derive.bandwidth(other, index))]
    if not bandwidths:
        notes.append("No memory roof: bandwidth was not measured; gemmbench peak --all does.")
    elif bandwidths[0][1] is not run:
        notes.append(f"The memory roof is that of {stem(bandwidths[0][1])}.")
    by_problem = {_problem(row): row for row in sorted(rows, key=derive.intensity)}
    numbers = {problem: number for number, problem in enumerate(by_problem, 1)}
    lines = series(rows, lambda row: numbers[_problem(row)], tuple(families))
    title = own_title(run, device, with_gemms(runs))
    return Roofs(
        Box(title, dtype, ((run, Panel(device, dtype, "m", lines)),), families),
        tuple(_name(row) for row in by_problem.values()),
        tuple(derive.intensity(row) for row in by_problem.values()),
        sweep_axis(rows) is not None,
        peak.rate,
        bandwidths[0][0] if bandwidths else None,
        tuple(notes),
    )


def _problem(row: Row) -> Problem:
    assert row.problem is not None  # a gemm row has one
    return row.problem


def _name(row: Row) -> str:
    """A problem for people: its label, its size, or its shape."""
    return clean(row.label) or _problem(row).size


def _paint(axes: Axes, roofs: Roofs) -> None:
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
        Label(f"{roofs.box.dtype} peak {units.number(top)}", End(axes.get_xlim()[1], top, top), GREY)
    )
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=99))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.number(value))))
    axes.xaxis.set_minor_locator(NullLocator())
    log_ticks(axes, units.number)
    axes.tick_params(length=3, color=DARK)
    axes.set_xlabel("arithmetic intensity: flop/byte, with A, B and C moved once")
    axes.set_ylabel("GFLOPS")
    titles(axes, roofs.box.title, f"{roofs.box.dtype}, kernel scope{roofs.box.bold}", roofs.box.keys)
    at_ends(axes, labels, roofs.box, most)
    missing(axes, roofs.box, roofs.box.series, status, lambda number: roofs.names[number - 1], roofs.notes)


def _points(axes: Axes, roofs: Roofs) -> list[Label]:
    """Every variant, joined by a line where the problems are a sweep."""
    styles, labels = looks(roofs.box), []
    for line in roofs.box.series:
        look = styles[0, line.label]
        rates = [
            reached.median / units.GIGA
            if number in line.rows and (reached := derive.shown_rate(line.rows[number], "kernel"))
            else np.nan
            for number in range(1, len(roofs.names) + 1)
        ]
        axes.plot(
            roofs.intensities,
            rates,
            color=look.stroke,
            linestyle=look.line if roofs.swept else "",
            linewidth=look.width,
            marker=look.marker or ("" if roofs.swept else "x"),
            markersize=look.size,
            zorder=2 + 0.2 * look.strength,
            label=line.label,
        )
        if end := end_of(roofs.intensities, rates):
            scope = ", host" if line.is_host else ""
            labels.append(Label(f"{clean(line.label)}{scope}", end, look.colour, look.strength > 1))
    return labels


def _draw_roofs(axes: Axes, roofs: Roofs) -> None:
    """The arithmetic's level, the memory's slope that meets it at the ridge, and their words."""
    top, (left, right) = roofs.peak / units.GIGA, axes.get_xlim()
    ridge, floor = roofs.ridge, axes.get_ylim()[0]
    axes.plot([ridge or left, right], [top, top], color=GREY, linewidth=_ROOF, label="peak")
    if ridge is None or roofs.bandwidth is None:
        return
    axes.plot([left, ridge], [top * left / ridge, top], color=GREY, linewidth=_ROOF, label="memory")
    axes.plot([ridge, ridge], [floor, top], color=GREY, linewidth=0.9, linestyle=":", label="ridge")
    divisor, letter = units.scale(roofs.bandwidth)
    seen = max(left, ridge * floor / top)  # where the slope comes into the picture
    x = ridge * (seen / ridge) ** 0.2
    speed = f"memory {units.number(roofs.bandwidth / divisor)} {letter}B/s"
    _above(axes, x, top * x / ridge, speed, "right")
    _above(axes, ridge, top, f"ridge {units.number(ridge)} flop/byte", "center")


def _above(axes: Axes, x: float, y: float, words: str, side: Literal["center", "right"]) -> None:
    """Words above a roof, where nothing else is; to the left of the point, or about it."""
    axes.annotate(
        words,
        (x, y),
        xytext=(0 if side == "center" else -5, 4),
        textcoords="offset points",
        ha=side,
        va="bottom",
        fontsize=8,
        color=DARK,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8},
    )
