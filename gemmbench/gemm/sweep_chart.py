"""Rates, times and energies over size."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

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
from gemmbench.charts.pane import (
    BLACK,
    COLOURS,
    DARK,
    GREY,
    Families,
    Pane,
    about_peaks,
    footnote,
    own_title,
    short,
    titles,
    with_gemms,
)
from gemmbench.ladder import BASELINE
from gemmbench.ladder.variant import LIBRARIES
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import rates as derive
from gemmbench.stats.panels import Panel, Series, break_evens, series, sweep_axis

Values = Callable[[Row], tuple[float, float, float] | None]  # median, low, high
Paint = Callable[[Box, Axes], None]

_BAND = "band: 95 % confidence"


def _panes(runs: Sequence[Run], families: Families, paint: Paint, values: Values) -> list[Pane]:
    """A pane for each device, type and shape that has a value."""
    return [
        Pane(box.height, partial(paint, box))
        for box in boxes(runs, families)
        if any(values(row) for curve in box.series for row in curve.rows.values())
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


def versus(runs: Sequence[Run], families: Families) -> list[Pane]:
    """The rate over that of the kernel of ``--versus``, over size."""
    return _panes(runs, families, _versus, _ratios)


def host_device(runs: Sequence[Run], families: Families) -> list[Pane]:
    """GFLOPS with and without transfers: the fastest variants and the host's BLAS."""
    panes = []
    for box in boxes(runs, families):
        few = tuple((run, replace(panel, series=_contenders(panel, families))) for run, panel in box.parts)
        if any(not curve.is_host for _, panel in few for curve in panel.series):
            shown = replace(box, parts=few)
            # Colours as in the other charts, unless those are of families.
            styles = looks(shown if box.crowded else box)
            panes.append(Pane(shown.height + 0.25, partial(_host_device, box=shown, styles=styles)))
    return panes


def _rates(scope: str) -> Values:
    def values(row: Row) -> tuple[float, float, float] | None:
        reached = derive.shown_rate(row, scope)
        if reached is None:
            return None
        return reached.median / units.GIGA, reached.low / units.GIGA, reached.high / units.GIGA

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


def _ratios(row: Row) -> tuple[float, float, float] | None:
    against = derive.versus(row)
    return (against.median, against.low, against.high) if against else None


def _versus(box: Box, axes: Axes) -> None:
    labels = _curves(axes, box, _ratios)
    rows = [row for curve in box.series for row in curve.rows.values()]
    against = [ratio for row in rows if (ratio := derive.versus(row))]
    scopes = " or ".join(dict.fromkeys(f"{ratio.scope} scope" for ratio in against))
    names = ", ".join(dict.fromkeys(clean(ratio.variant) for ratio in against))
    axes.axhline(1.0, color=GREY, linewidth=1.2, label="1")
    below = f"{box.dtype}, {scopes}, batches in turn; {_BAND}"
    frame(axes, box, f"times the rate of {names}", units.number, below)
    at_ends(axes, labels, box)


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
            end = _line(axes, curve, box.sizes, values, look)
            if end:
                scope = ", host" if curve.is_host and panel.device != HOST else ""
                name = f"{clean(curve.label)}{scope}{box.name(run)}"
                labels.append(Label(name, end, look.colour, look.strength > 1))
    return labels


def _line(axes: Axes, curve: Series, sizes: Sequence[int], values: Values, look: Look) -> End | None:
    """Draw one series with its confidence band; sizes without a figure are gaps. Returns its end."""
    nothing = (np.nan, np.nan, np.nan)
    points = np.array([(values(curve.rows[n]) or nothing) if n in curve.rows else nothing for n in sizes])
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
        label=curve.label,
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
        for curve in panel.series:
            look = styles[number, curve.label]
            dotted = replace(look, line=(0, (1, 1.4)), open=True)
            lines = {"": look} if curve.is_host else {", host": look, ", device": dotted}
            for scope, style in lines.items():
                values = _rates("device" if style is dotted else "host")
                if end := _line(axes, curve, box.sizes, values, style):
                    name = f"{clean(curve.label)}{scope}{box.name(run)}"
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

    def best(line: Series) -> float:
        return max(
            (reached.median for r in line.rows.values() if (reached := derive.rate(r, "host"))), default=0.0
        )

    kernels = (line for line in panel.series if families.get(line.variant) != LIBRARIES)
    fastest = sorted(
        (line for line in kernels if not line.is_host and best(line) > 0), key=best, reverse=True
    )
    earliest = (even.kernel for even in break_evens(panel)[:1] if even.size is not None)
    hosts = (line for line in panel.series if line.is_host and line.variant == BASELINE)
    return tuple(dict.fromkeys((*fastest[:most], *earliest, *hosts)))


def _mark_break_even(axes: Axes, box: Box, panel: Panel) -> None:
    even = next(iter(break_evens(panel)), None)
    if even is None or even.size is None:
        return
    axes.axvline(even.size, color=BLACK, linewidth=1.0, linestyle=":", label="break-even")
    if not even.is_few:
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


# --- Real shapes: bars for the fastest variants, shape by shape ---------------------------------------------


_BAR = 0.135  # inches down the page
_MOST_BARS = 84  # in a pane
_MOST_VARIANTS = len(COLOURS)  # beside the host's


@dataclass(frozen=True, eq=False)
class Shapes:
    """What one pane shows: the fastest variants of a device and type, and the host's BLAS, at every shape."""

    title: str
    dtype: str
    shapes: tuple[Row, ...]  # a row of each
    shown: tuple[Series, ...]  # rows by the shape's number
    slower: tuple[str, ...]  # measured, and not shown
    lacking: tuple[str, ...]  # not measured at any shape

    @property
    def height(self) -> float:
        """Inches."""
        return 1.6 + _BAR * len(self.shapes) * (len(self.shown) + 1)


def workloads(runs: Sequence[Run], families: Families) -> list[Pane]:
    """A pane for each run, device and type whose problems are no sweep."""
    panes, beside = [], with_gemms(runs)
    for run in beside:
        gemms = [row for row in run.rows if row.kind == "gemm"]
        if sweep_axis(gemms) or len({row.problem for row in gemms}) < 2:
            continue
        devices = dict.fromkeys((row.device, row.dtype) for row in gemms if row.device != HOST)
        for device, dtype in devices:
            rows = [row for row in gemms if row.dtype == dtype and row.device in (device, HOST)]
            if any(derive.shown_rate(row, "kernel") for row in rows):
                chart = _shapes(own_title(run, device, beside), dtype, rows, families)
                panes.append(Pane(chart.height, partial(_paint, chart=chart)))
    return panes


def _shapes(title: str, dtype: str, rows: Sequence[Row], families: Families) -> Shapes:
    """Every shape in the order of the run; the variants that win most of them."""
    shapes: dict[tuple[str, Problem | None], Row] = {}
    for row in rows:
        shapes.setdefault((row.label, row.problem), row)
    numbers = {shape: number for number, shape in enumerate(shapes)}
    lines = series(rows, lambda row: numbers[row.label, row.problem], tuple(families))
    hosts = [line for line in lines if line.is_host]
    room = max(2, min(_MOST_VARIANTS, _MOST_BARS // len(shapes) - len(hosts) - 1))
    measured = [line for line in lines if any(_rate(line, number) for number in line.rows)]
    devices = [line for line in measured if not line.is_host]
    best = sorted(devices, key=lambda line: _standing(line, lines))[:room]
    shown = tuple(line for line in measured if line in best or line.is_host)
    slower = tuple(clean(line.label) for line in measured if line not in shown)
    lacking = tuple(clean(line.label) for line in lines if line not in measured)
    return Shapes(title, dtype, tuple(shapes.values()), shown, slower, lacking)


def _rate(line: Series, number: int) -> float:
    """A rate in flop/s; 0 if there is none."""
    reached = derive.shown_rate(line.rows[number], "kernel") if number in line.rows else None
    return reached.median if reached else 0.0


def _standing(line: Series, lines: Sequence[Series]) -> tuple[int, float]:
    """Sorts the variants: most shapes won first, then the smallest distance from the best, summed."""
    wins, lost = 0, 0.0
    for number in line.rows:
        best = max(_rate(other, number) for other in lines if not other.is_host)
        wins += best > 0 and _rate(line, number) == best
        lost += 1 - _rate(line, number) / best if best else 0.0
    return -wins, lost


def _paint(axes: Axes, chart: Shapes) -> None:
    """Bars from zero, their figures at the ends, the best of each shape in bold."""
    count = len(chart.shown)
    device = [line for line in chart.shown if not line.is_host]
    colours = {line: DARK if line.is_host else COLOURS[device.index(line)] for line in chart.shown}
    rates = {(line, n): _rate(line, n) for line in chart.shown for n in range(len(chart.shapes))}
    divisor, letter = units.scale(max(rates.values()))
    for n in range(len(chart.shapes)):
        best = max(rates[line, n] for line in chart.shown)
        for index, line in enumerate(chart.shown):
            y = n * (count + 1) + index
            _bar(axes, y, line, n, rates[line, n] / divisor, colours[line], best=rates[line, n] == best)
    middles = [n * (count + 1) + (count - 1) / 2 for n in range(len(chart.shapes))]
    axes.set_yticks(middles, [_name(row) for row in chart.shapes], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(chart.shapes) * (count + 1) - 0.5, -1)
    axes.set_xlim(0, max(rates.values()) / divisor * 1.1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.number(value))))
    axes.set_xlabel(f"{letter}FLOPS")
    axes.grid(False, axis="y")
    keys = tuple(
        (clean(line.label) + (", host" if line.is_host else ""), colours[line]) for line in chart.shown
    )
    titles(axes, chart.title, f"{chart.dtype}, kernel scope; the fastest of each shape in bold", keys)
    texts = {"Not drawn, slower on most shapes": chart.slower, "No figure for any shape": chart.lacking}
    footnote(axes, [f"{text}: {', '.join(names)}." for text, names in texts.items() if names])


def _bar(axes: Axes, y: float, line: Series, number: int, rate: float, colour: str, best: bool) -> None:
    axes.barh(y, rate, 0.86, color=colour, label=clean(line.label))
    row = line.rows.get(number)
    if row is None:
        return
    axes.annotate(
        units.number(rate) if rate else row.status,
        (rate, y),
        xytext=(3, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=6.5,
        fontweight="bold" if best and rate else "normal",
        color=DARK if rate else GREY,
    )


def _name(row: Row) -> str:
    """A shape for people: its label above m x n x k."""
    assert row.problem is not None  # a gemm row has one
    return f"{clean(row.label)}\n{row.problem.shape}" if row.label else row.problem.shape
