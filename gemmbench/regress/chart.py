"""A comparison as a chart: the ratio of every row with its interval, and the threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from gemmbench.charts import pane
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.units import by_key, clean, listed
from gemmbench.regress.compare import Comparison, Line, full_name, sentence
from gemmbench.regress.verdict import Verdict

# Colour and marker: each verdict can be told in grey.
LOOKS: Mapping[Verdict, tuple[str, str]] = {
    "slower": (pane.COLOURS[1], "D"),
    "inconclusive": (pane.COLOURS[4], "s"),
    "same": (pane.GREY, "o"),
    "faster": (pane.COLOURS[2], "^"),
}
_MOST = 60  # rows of a pane
_LINE = 0.19  # inches for each
_CLOSE = 0.02  # of the axis beyond the outermost end


def ratios(comparison: Comparison) -> list[pane.Pane]:
    """A pane for each device: rows down, the new time over the base's across.

    Where there are more rows than a page holds, those that are the same go first.
    """
    groups = by_key(
        (line.key[1], line)
        for line in comparison.lines
        if line.judgement and line.judgement.low > 0 and line.judgement.high < 1e6
    )
    panes = []
    for device in sorted(groups, key=lambda device: (device == HOST, device)):
        lines = groups[device]
        graver = [line for line in lines if line.verdict != "same"]
        kept = lines if len(lines) <= _MOST else graver[:_MOST]
        if kept:
            hidden = len(lines) - len(kept)
            paint = partial(_paint, comparison=comparison, lines=kept, hidden=hidden)
            panes.append(pane.Pane(1.7 + _LINE * len(kept), paint))
    return panes


def _paint(axes: Axes, comparison: Comparison, lines: Sequence[Line], hidden: int) -> None:
    axes.set_xscale("log")
    for y, line in enumerate(lines):
        judgement = line.judgement
        assert judgement is not None  # of `ratios`
        colour, marker = LOOKS[line.verdict]
        edges = (1 / (1 + line.threshold), 1 + line.threshold)
        axes.fill_betweenx((y - 0.5, y + 0.5), *edges, color=pane.PALE, alpha=0.45, linewidth=0)
        axes.plot((judgement.low, judgement.high), (y, y), color=colour, linewidth=1.6, solid_capstyle="butt")
        axes.plot(judgement.ratio, y, color=colour, marker=marker, linestyle="none", label=line.verdict)
        pane.mark(axes, judgement.ratio, y, f"{full_name(line)}: {sentence(line)}")
    axes.axvline(1.0, color=pane.BLACK, linewidth=0.8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [row_text(line.row) for line in lines], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    _across(axes, lines)
    verdicts = dict.fromkeys(line.verdict for line in lines)
    keys = [(verdict, colour) for verdict, (colour, _) in LOOKS.items() if verdict in verdicts]
    confidence = units.percent(comparison.rules.confidence).replace(".0 ", " ")
    interval = f"time, new over base, with its {confidence} interval"
    below = f"{interval}; right is slower; grey: within the threshold"
    pane.titles(axes, clean(lines[0].device), below, keys)
    if hidden:
        pane.footnote(axes, [f"Not drawn: {hidden} further rows, the same or beyond the page."])


def _across(axes: Axes, lines: Sequence[Line]) -> None:
    """The axis of ratios: ticks are changes, or factors on a wide axis; both thresholds are visible."""
    judgements = [line.judgement for line in lines if line.judgement]
    edge = 1 + max(line.threshold for line in lines)
    low = min([1 / edge, *(judgement.low for judgement in judgements)]) * (1 - _CLOSE)
    high = max([edge, *(judgement.high for judgement in judgements)]) * (1 + _CLOSE)
    axes.set_xlim(low, high)
    if high / low < 4:
        step = next(step for step in (0.02, 0.05, 0.1, 0.2, 0.5, 1) if (high - low) / step < 9)
        first = round(low / step)
        ticks = [tick * step for tick in range(first, round(high / step) + 1) if low <= tick * step <= high]
        axes.set_xticks(ticks)
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{(value - 1) * 100:+.0f} %"))
    else:
        axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 1.5, 2.0, 3.0, 5.0, 7.0)))
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"x {value:g}"))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_minor_formatter(NullFormatter())


def row_text(row: Row) -> str:
    """A row's name: variant, size, and the type where it is not float."""
    where = row.problem.size if row.problem else listed(row.parameters)
    parts = (clean(row.variant), "" if row.dtype == "float" else row.dtype, clean(row.label) or where)
    return " ".join(filter(None, parts))[:48]
