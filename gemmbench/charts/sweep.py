"""Rates and times over size."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import numpy as np
from matplotlib.axes import Axes

from gemmbench.charts.panel import BLACK, GREY, Box, Label, Look, at_ends, device_title, frame, looks, missing
from gemmbench.facts import derive, units
from gemmbench.facts.records import Row, Run
from gemmbench.facts.series import BASELINE, HOST, Panel, Series, panels, sweep_axis
from gemmbench.facts.text import clean

Values = Callable[[Row], tuple[float, float, float] | None]  # median, low, high


def boxes(runs: Sequence[Run]) -> list[Box]:
    """The panels of runs that are sweeps."""
    groups: dict[tuple[str, str, str], list[tuple[Run, Panel]]] = {}
    for run in runs:
        axis = sweep_axis(run.rows)
        for panel in panels(run, axis) if axis else []:
            if any(row.status == "ok" and row.samples for row in panel.rows):
                key = (device_title(run, panel.device), panel.dtype, panel.shape)
                groups.setdefault(key, []).append((run, panel))
    return [Box(title, dtype, tuple(parts)) for (title, dtype, _), parts in groups.items()]


def _line(axes: Axes, one: Series, sizes: Sequence[int], values: Values, look: Look) -> tuple[float, float]:
    """Draw one series with its confidence band; sizes without a figure are gaps. Returns its last point."""
    nothing = (np.nan, np.nan, np.nan)
    points = np.array([(values(one.rows[n]) or nothing) if n in one.rows else nothing for n in sizes])
    middle, low, high = points.T
    axes.fill_between(sizes, low, high, color=look.colour, alpha=0.22, linewidth=0)
    axes.plot(
        sizes,
        middle,
        color=look.colour,
        linestyle=look.line,
        marker=look.marker or None,
        markerfacecolor="white" if look.open else look.colour,
        markeredgewidth=1.0,
        label=one.label,
    )
    known = np.flatnonzero(np.isfinite(middle))
    return (float(sizes[known[-1]]), float(middle[known[-1]])) if known.size else (np.nan, np.nan)


def _rates(scope: str) -> Values:
    def values(row: Row) -> tuple[float, float, float] | None:
        found = derive.shown_rate(row, scope)
        if found is None:
            return None
        return found.median / units.GIGA, found.low / units.GIGA, found.high / units.GIGA

    return values


def _times(row: Row) -> tuple[float, float, float] | None:
    times = derive.summary(row, "kernel" if row.device != HOST else "host")
    return (times.median, times.low, times.high) if times and row.status == "ok" else None


def throughput(axes: Axes, box: Box) -> None:
    """GFLOPS over size in the kernel scope, with the measured peak."""
    labels = _curves(axes, box, _rates("kernel"))
    labels += _peak_lines(axes, box)
    frame(axes, box, "GFLOPS", "kernel scope", units.number)
    at_ends(axes, labels, box)
    missing(axes, box, [one for _, panel in box.parts for one in panel.series])


def time(axes: Axes, box: Box) -> None:
    """Seconds for one problem over size."""
    labels = _curves(axes, box, _times)
    frame(axes, box, "time for one problem", "kernel scope", units.seconds)
    at_ends(axes, labels, box)
    missing(axes, box, [one for _, panel in box.parts for one in panel.series])


def _curves(axes: Axes, box: Box, values: Values) -> list[Label]:
    styles = looks(box)
    labels = []
    for number, (run, panel) in enumerate(box.parts):
        for one in panel.series:
            look = styles[number, one.label]
            x, y = _line(axes, one, box.sizes, values, look)
            if np.isfinite(y):
                scope = ", host" if one.is_host and panel.device != HOST else ""
                labels.append(Label(f"{clean(one.label)}{scope}{box.name(run)}", x, y, look.colour))
    return labels


def _peak_lines(axes: Axes, box: Box) -> list[Label]:
    labels = []
    for run, panel in box.parts:
        top = derive.peak(run, panel.device, panel.dtype) if panel.device != HOST else None
        if top:
            axes.axhline(
                top / units.GIGA, color=GREY, linewidth=1.2, linestyle=(0, (8, 2, 1.5, 2)), label="peak"
            )
            text = f"{panel.dtype} peak {units.gflops(top)}{box.name(run)}"
            labels.append(Label(text, float(box.sizes[-1]), top / units.GIGA, GREY))
    return labels


def host_device(axes: Axes, box: Box) -> None:
    """The fastest variants with transfers counted (solid) and without (dotted), and where they pass numpy."""
    styles = looks(box)
    labels: list[Label] = []
    shown: list[Series] = []
    for number, (run, panel) in enumerate(box.parts):
        host = next((one for one in panel.series if one.is_host and one.variant == BASELINE), None)
        fastest = _fastest(panel)
        for one in [*fastest, *([host] if host else [])]:
            look = styles[number, one.label]
            x, y = _line(axes, one, box.sizes, _rates("host"), look)
            name = f"{clean(one.label)}{'' if one.is_host else ', host'}{box.name(run)}"
            labels.append(Label(name, x, y, look.colour))
            if not one.is_host:
                dotted = Look(look.colour, look.marker, (0, (1, 1.4)), open=True)
                x, y = _line(axes, one, box.sizes, _rates("device"), dotted)
                labels.append(Label(f"{clean(one.label)}, device{box.name(run)}", x, y, look.colour))
        shown += fastest or [one for one in panel.series if not one.is_host]
        if host and fastest:
            _mark_break_even(axes, box, fastest, host)
    labels = [label for label in labels if np.isfinite(label.y)]
    frame(axes, box, "GFLOPS", "host scope (with transfers) and device scope", units.number)
    at_ends(axes, labels, box)
    missing(axes, box, shown)


def _fastest(panel: Panel, most: int = 2) -> list[Series]:
    """The variants with the best rate in the host scope, at any size."""

    def best(one: Series) -> float:
        return max(
            (found.median for r in one.rows.values() if (found := derive.rate(r, "host"))), default=0.0
        )

    mine = [one for one in panel.series if not one.is_host and best(one) > 0]
    return sorted(mine, key=best, reverse=True)[:most]


def _mark_break_even(axes: Axes, box: Box, fastest: Iterable[Series], host: Series) -> None:
    evens = [
        even
        for one in fastest
        if (even := derive.break_even(one.rows.values(), host.rows.values(), box.panel.axis)) and even.size
    ]
    if not evens:
        return
    even = min(evens, key=lambda even: even.size or 0.0)
    assert even.size is not None  # filtered above
    axes.axvline(even.size, color=BLACK, linewidth=1.0, linestyle=":", label="break-even")
    right = even.high if even.high is not None else box.sizes[-1]
    axes.axvspan(even.low or even.size, right, color=BLACK, alpha=0.10, linewidth=0)
    text = f"break-even {box.panel.axis} = {round(even.size)}"
    if even.from_start:
        text = f"{even.variant} wins from the start"
    elif even.low is not None and even.high is not None:
        text += f" ({round(even.low)} to {round(even.high)})"
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
