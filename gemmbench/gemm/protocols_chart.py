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
_ROOM = 0.24  # of the axis beyond the outermost end, for figures


def panes(runs: Sequence[Run], _: Families) -> list[Pane]:
    """A pane for each kernel."""
    rows = [(run, row) for run in runs for row in run.rows if row.kind == "protocols" and row.status == "ok"]
    return [
        Pane(1.7 + _LINE * len(row.protocols or ()), partial(_paint, run=run, row=row, beside=runs))
        for run, row in rows
    ]


def _paint(axes: Axes, run: Run, row: Row, beside: Sequence[Run]) -> None:
    shown = [line for line in lines(row) if line.ratio is not None]
    ends = [end - 1 for line in shown if line.ratio for end in (line.ratio.low, line.ratio.high)] + [0.0]
    low, high = min(ends), max(ends)
    room = max(high - low, 0.02) * _ROOM
    axes.set_xlim(low - room, high + room)
    for y, line in enumerate(shown):
        _bar(axes, y, line)
    axes.axvline(0.0, color=BLACK, linewidth=0.8)
    axes.set_ylim(len(shown) - 0.4, -0.6)
    axes.set_yticks(range(len(shown)), [line.title for line in shown], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:+.3g} %" if value else "0"))
    axes.tick_params(colors=GREY, labelcolor=DARK)
    own = next((line for line in shown if line.samples.name == OWN), None)
    integer = rates.is_integer(row.dtype)
    rate = f"own: {units.rate(own.flops_per_s, integer)}" if own and own.flops_per_s else ""
    title = f"{clean(row.title)} {row.dtype} {rates.gemm_of(row).shape}"
    below = f"{title}: the rate against gemmbench's own, with its 95 % interval; {rate}"
    keys = [("one thing changed", _VARIED), ("another tool's", _OTHERS)]
    titles(axes, own_title(run, row.device, beside), below, keys)
    if any(line.is_zeros for line in shown):
        footnote(axes, [f"! hatched: {WARNING}."])


def _bar(axes: Axes, y: int, line: Line) -> None:
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
        label=line.title,
    )
    if line.samples.name == OWN:
        return
    axes.plot((low, high), (y, y), color=DARK, linewidth=1.3, solid_capstyle="butt")
    right = value >= 0
    axes.annotate(
        signed(value) + (" (zeros)" if line.is_zeros else ""),
        (max(high, value) if right else min(low, value), y),
        xytext=(4 if right else -4, 0),
        textcoords="offset points",
        ha="left" if right else "right",
        va="center",
        fontsize=7.5,
        color=DARK,
    )
