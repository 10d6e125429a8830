"""Rates, times and energies over size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial

import numpy as np
from matplotlib.axes import Axes

from gemmbench.charts.curves import (
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
from gemmbench.charts.pane import BLACK, GREY, Families, Pane, about_peaks
from gemmbench.facts import derive, units
from gemmbench.facts.records import Row, Run
from gemmbench.facts.series import HOST, Panel, Series
from gemmbench.facts.text import clean
from gemmbench.rules.variants import BASELINE, LIBRARIES
from gemmbench.stats.break_even import break_evens

Values = Callable[[Row], tuple[float, float, float] | None]  # median, low, high
Paint = Callable[[Box, Axes], None]

_BAND = "band: 95 % confidence"


def _panes(runs: Sequence[Run], families: Families, paint: Paint, values: Values) -> list[Pane]:
    """A pane for each device, type and shape that has a value."""
    return [
        Pane(box.height, partial(paint, box))
        for box in boxes(runs, families)
        if any(values(row) for one in box.series for row in one.rows.values())
    ]


def throughput(runs: Sequence[Run], families: Families) -> list[Pane]:
    """GFLOPS over size in the kernel scope, with the host's BLAS and the measured peak."""
    return _panes(runs, families, partial(_throughput, runs=runs), _rates("kernel"))


def time(runs: Sequence[Run], families: Families) -> list[Pane]:
    """Seconds for one problem over size."""
    return _panes(runs, families, _time, _times)


def energy(runs: Sequence[Run], families: Families) -> list[Pane]:
    """Joules for one problem over size."""
    return _panes(runs, families, _energy, _joules)


def efficiency(runs: Sequence[Run], families: Families) -> list[Pane]:
    """GFLOP for each joule over size."""
    return _panes(runs, families, _efficiency, _per_joule)


def host_device(runs: Sequence[Run], families: Families) -> list[Pane]:
    """GFLOPS with and without transfers: the fastest variants and the host's BLAS."""
    found = []
    for box in boxes(runs, families):
        few = tuple((run, replace(panel, series=_contenders(panel, families))) for run, panel in box.parts)
        if any(not one.is_host for _, panel in few for one in panel.series):
            shown = replace(box, parts=few)
            # Colours as in the other charts, unless those are of families.
            styles = looks(shown if box.crowded else box)
            found.append(Pane(shown.height + 0.25, partial(_host_device, box=shown, styles=styles)))
    return found


def _rates(scope: str) -> Values:
    def values(row: Row) -> tuple[float, float, float] | None:
        found = derive.shown_rate(row, scope)
        if found is None:
            return None
        return found.median / units.GIGA, found.low / units.GIGA, found.high / units.GIGA

    return values


def _times(row: Row) -> tuple[float, float, float] | None:
    times = derive.summary(row, derive.finest_scope(row) or "")
    return (times.median, times.low, times.high) if times and row.status == "ok" else None


def _joules(row: Row) -> tuple[float, float, float] | None:
    value = row.energy.joules if row.status == "ok" else None
    return (value, value, value) if value else None


def _per_joule(row: Row) -> tuple[float, float, float] | None:
    value = derive.gflop_per_joule(row)
    return (value, value, value) if value else None


def _throughput(box: Box, axes: Axes, runs: Sequence[Run]) -> None:
    peaks = [derive.peak(run, panel.device, panel.dtype, others=runs) for run, panel in box.parts]
    labels = _curves(axes, box, _rates("kernel"))
    labels += _peak_lines(axes, box, peaks)
    frame(axes, box, "GFLOPS", units.number, f"{box.dtype}, kernel scope; {_BAND}")
    at_ends(axes, labels, box)
    notes = dict.fromkeys(
        note
        for (run, _), peak in zip(box.parts, peaks, strict=True)
        if peak
        for note in about_peaks(run, [peak])
    )
    missing(axes, box, box.series, status, notes=list(notes))


def _time(box: Box, axes: Axes) -> None:
    labels = _curves(axes, box, _times)
    frame(axes, box, "time for one problem", units.seconds, f"{box.dtype}, kernel scope; {_BAND}")
    at_ends(axes, labels, box)
    missing(axes, box, box.series, status)


def _energy(box: Box, axes: Axes) -> None:
    labels = _curves(axes, box, _joules)
    frame(axes, box, "energy for one problem", units.joules, f"{box.dtype}, {_counted(box)}")
    at_ends(axes, labels, box)
    missing(axes, box, box.series, _why_no_energy)


def _efficiency(box: Box, axes: Axes) -> None:
    labels = _curves(axes, box, _per_joule)
    frame(axes, box, "GFLOP/J", units.number, f"{box.dtype}, {_counted(box)}")
    at_ends(axes, labels, box)
    missing(axes, box, box.series, _why_no_energy)


def _counted(box: Box) -> str:
    """Whose energy was counted: ``energy of the board, idle draw included``."""
    scopes = dict.fromkeys(
        clean(row.energy.scope) for one in box.series for row in one.rows.values() if row.energy.scope
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
        for one in panel.series:
            look = styles[number, one.label]
            end = _line(axes, one, box.sizes, values, look)
            if end:
                scope = ", host" if one.is_host and panel.device != HOST else ""
                name = f"{clean(one.label)}{scope}{box.name(run)}"
                labels.append(Label(name, end, look.colour, look.strength > 1))
    return labels


def _line(axes: Axes, one: Series, sizes: Sequence[int], values: Values, look: Look) -> End | None:
    """Draw one series with its confidence band; sizes without a figure are gaps. Returns its end."""
    nothing = (np.nan, np.nan, np.nan)
    points = np.array([(values(one.rows[n]) or nothing) if n in one.rows else nothing for n in sizes])
    middle, low, high = points.T
    axes.fill_between(sizes, low, high, color=look.stroke, alpha=look.band, linewidth=0)
    axes.plot(
        sizes,
        middle,
        color=look.stroke,
        linestyle=look.line,
        linewidth=look.width,
        marker=look.marker or None,
        markersize=look.size,
        markerfacecolor="white" if look.open else look.stroke,
        markeredgewidth=1.0,
        zorder=2 + 0.2 * look.strength,
        label=one.label,
    )
    return end_of(sizes, middle)


def _peak_lines(axes: Axes, box: Box, peaks: Sequence[derive.Peak | None]) -> list[Label]:
    """The peak that each part is held against; there may be none."""
    labels = []
    for (run, panel), peak in zip(box.parts, peaks, strict=True):
        if peak:
            top = peak.rate / units.GIGA
            axes.axhline(top, color=GREY, linewidth=1.2, linestyle=(0, (8, 2, 1.5, 2)), label="peak")
            text = f"{panel.dtype} peak {units.gflops(peak.rate)}{box.name(run)}"
            labels.append(Label(text, End(float(box.sizes[-1]), top, top), GREY))
    return labels


def _host_device(axes: Axes, box: Box, styles: Mapping[tuple[int, str], Look]) -> None:
    """With transfers counted (solid) and without (dotted), and where the device passes numpy."""
    labels: list[Label] = []
    for number, (run, panel) in enumerate(box.parts):
        for one in panel.series:
            look = styles[number, one.label]
            dotted = replace(look, line=(0, (1, 1.4)), open=True)
            lines = {"": look} if one.is_host else {", host": look, ", device": dotted}
            for scope, style in lines.items():
                values = _rates("device" if style is dotted else "host")
                if end := _line(axes, one, box.sizes, values, style):
                    name = f"{clean(one.label)}{scope}{box.name(run)}"
                    labels.append(Label(name, end, look.colour))
        _mark_break_even(axes, box, panel)
    below = f"{box.dtype}, host scope (with transfers) and device scope; {_BAND}"
    frame(axes, box, "GFLOPS", units.number, below)
    at_ends(axes, labels, box)
    missing(axes, box, box.series, status)


def _contenders(panel: Panel, families: Families, most: int = 2) -> tuple[Series, ...]:
    """What the chart compares: few kernels, and the host's own BLAS.

    Those with the best rate in the host scope, at any size, and the one that the break-even is of.
    """

    def best(one: Series) -> float:
        return max(
            (found.median for r in one.rows.values() if (found := derive.rate(r, "host"))), default=0.0
        )

    kernels = (one for one in panel.series if families.get(one.variant) != LIBRARIES)
    fastest = sorted((one for one in kernels if not one.is_host and best(one) > 0), key=best, reverse=True)
    earliest = (even.kernel for even in break_evens(panel)[:1] if even.size is not None)
    hosts = (one for one in panel.series if one.is_host and one.variant == BASELINE)
    return tuple(dict.fromkeys((*fastest[:most], *earliest, *hosts)))


def _mark_break_even(axes: Axes, box: Box, panel: Panel) -> None:
    even = next(iter(break_evens(panel)), None)
    if even is None or even.size is None:
        return
    axes.axvline(even.size, color=BLACK, linewidth=1.0, linestyle=":", label="break-even")
    right = even.high if even.high is not None else box.sizes[-1]
    axes.axvspan(even.low or even.size, right, color=BLACK, alpha=0.10, linewidth=0)
    text = f"break-even {panel.axis} = {round(even.size)}"
    if even.from_start:
        text = f"{even.kernel.label} wins from the start"
    elif even.low is not None and even.high is not None:
        text += f" ({round(even.low)} to {round(even.high)}): {even.kernel.label}"
    left = even.size < (box.sizes[0] * box.sizes[-1]) ** 0.5  # the room is above the lines there, else below
    axes.annotate(
        clean(text),
        (even.size, 0.98 if left else 0.02),
        xycoords=("data", "axes fraction"),
        xytext=(4 if left else -4, 0),
        textcoords="offset points",
        ha="left" if left else "right",
        va="top" if left else "bottom",
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.8, "pad": 1.0},
        fontsize=8,
    )
