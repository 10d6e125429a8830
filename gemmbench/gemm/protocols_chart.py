"""A kernel's protocols as bars: how far each lies from gemmbench's own, with its interval."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from gemmbench.charts.pane import BLACK, COLOURS, DARK, GREY, Families, Pane, footnote, own_title, titles
from gemmbench.gemm.protocols import OWN
from gemmbench.gemm.protocols_table import WARNING, Line, lines, signed
from gemmbench.model import units
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import rates

_LINE = 0.24  # inches for each protocol
_VARIED, _OTHERS, _ZEROS = COLOURS[0], COLOURS[1], "white"
_LEAST_SPAN = 0.02  # of the axis: small differences are to look small
_WIDEST = 2.0  # times the largest difference: intervals are drawn as far as that
_ROOM = 0.2  # of the axis beyond the outermost end, for figures


def panes(runs: Sequence[Run], _: Families) -> list[Pane]:
    """A pane for each kernel."""
    rows = [(run, row) for run in runs for row in run.rows if row.kind == "protocols" and row.status == "ok"]
    return [
        Pane(1.7 + _LINE * len(row.protocols or ()), partial(_paint, run=run, row=row, beside=runs))
        for run, row in rows
    ]


def _paint(axes: Axes, run: Run, row: Row, beside: Sequence[Run]) -> None:
    shown = [line for line in lines(row) if line.ratio is not None]
    ratios = [line.ratio for line in shown if line.ratio]
    furthest = max([_LEAST_SPAN, *(abs(ratio.median - 1) for ratio in ratios)]) * _WIDEST
    low = max(-furthest, min(ratio.low - 1 for ratio in ratios))
    high = min(furthest, max(ratio.high - 1 for ratio in ratios))
    room = max(high - low, _LEAST_SPAN) * _ROOM
    axes.set_xlim(low - room, high + room)
    for y, line in enumerate(shown):
        _bar(axes, y, line, low, high)
    axes.axvline(0.0, color=BLACK, linewidth=0.8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_yticks(range(len(shown)), [line.title for line in shown], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:+.4g} %" if value else "0"))
    axes.tick_params(colors=GREY, labelcolor=DARK)
    own = next((line for line in shown if line.samples.name == OWN), None)
    integer = rates.is_integer(row.dtype)
    if own and own.flops_per_s:
        rate = units.rate(own.flops_per_s, integer)
        _say(axes, rate, (0.0, shown.index(own)), right=True)
    title = f"{clean(row.title)} {row.dtype} {rates.gemm_of(row).shape}"
    below = f"{title}: the rate against gemmbench's own, with its 95 % interval"
    keys = [("one thing changed", _VARIED), ("another tool's", _OTHERS)]
    titles(axes, own_title(run, row.device, beside), below, keys)
    cut = any(ratio.low - 1 < low or ratio.high - 1 > high for ratio in ratios)
    footnote(
        axes,
        [
            *([f"! hatched: {WARNING}."] if any(line.is_zeros for line in shown) else []),
            *(["Long intervals are cut at the chart's edge."] if cut else []),
        ],
    )


def _bar(axes: Axes, y: int, line: Line, least: float, most: float) -> None:
    assert line.ratio is not None
    value, low, high = (end - 1 for end in (line.ratio.median, line.ratio.low, line.ratio.high))
    colour = _OTHERS if line.protocol and line.protocol.source else _VARIED
    axes.barh(
        y,
        value,
        height=0.62,
        color=_ZEROS if line.is_zeros else colour,
        edgecolor=colour,
        alpha=1.0 if line.is_zeros else 0.55,
        hatch="////" if line.is_zeros else None,
        linewidth=0.8,
    )
    if line.samples.name == OWN:
        return
    ends = max(low, least), min(high, most)
    axes.plot(ends, (y, y), color=DARK, linewidth=1.3, solid_capstyle="butt")
    right = value >= 0
    at = max(ends[1], value) if right else min(ends[0], value)
    _say(axes, signed(value) + (" (zeros)" if line.is_zeros else ""), (at, y), right)


def _say(axes: Axes, text: str, at: tuple[float, float], right: bool) -> None:
    axes.annotate(
        text,
        at,
        xytext=(4 if right else -4, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="center",
        fontsize=7.5,
        color=DARK,
    )
