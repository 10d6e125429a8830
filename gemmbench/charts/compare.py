"""A comparison as a chart: the ratio of every row with its interval, and the threshold."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter, NullLocator

from gemmbench.charts.pane import BLACK, COLOURS, GREY, PALE, Pane, footnote, titles
from gemmbench.facts import units
from gemmbench.facts.compare.comparison import Comparison, Line
from gemmbench.facts.compare.verdict import Verdict
from gemmbench.facts.records import Row
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean, listed

# Colour and marker: each verdict can be told in grey.
LOOKS: Mapping[Verdict, tuple[str, str]] = {
    "slower": (COLOURS[1], "D"),
    "inconclusive": (COLOURS[4], "s"),
    "same": (GREY, "o"),
    "faster": (COLOURS[2], "^"),
}
_MOST = 60  # rows of a pane
_LINE = 0.19  # inches for each
_CLOSE = 0.02  # of the axis beyond the outermost end


def ratios(comparison: Comparison) -> list[Pane]:
    """A pane for each device: rows down, the new time over the base's across.

    Where there are more rows than a page holds, those that are the same go first.
    """
    groups: dict[int, list[Line]] = {}
    for line in comparison.lines:
        if line.judgement and line.judgement.low > 0 and line.judgement.high < 1e6:
            groups.setdefault(line.key[1], []).append(line)
    panes = []
    for place in sorted(groups, key=lambda place: (place == HOST, place)):
        lines = groups[place]
        graver = [line for line in lines if line.verdict != "same"]
        kept = lines if len(lines) <= _MOST else graver[:_MOST]
        if kept:
            panes.append(_pane(comparison, kept, len(lines) - len(kept)))
    return panes


def _pane(comparison: Comparison, lines: Sequence[Line], hidden: int) -> Pane:
    def paint(axes: Axes) -> None:
        _paint(axes, comparison, lines, hidden)

    return Pane(1.7 + _LINE * len(lines), paint)


def _paint(axes: Axes, comparison: Comparison, lines: Sequence[Line], hidden: int) -> None:
    axes.set_xscale("log")
    for place, line in enumerate(lines):
        found = line.judgement
        assert found is not None  # of `ratios`
        colour, marker = LOOKS[line.verdict]
        edges = (1 / (1 + line.threshold), 1 + line.threshold)
        axes.fill_betweenx((place - 0.5, place + 0.5), *edges, color=PALE, alpha=0.45, linewidth=0)
        axes.plot((found.low, found.high), (place, place), color=colour, linewidth=1.6, solid_capstyle="butt")
        axes.plot(found.ratio, place, color=colour, marker=marker, linestyle="none", label=line.verdict)
    axes.axvline(1.0, color=BLACK, linewidth=0.8)
    axes.set_ylim(len(lines) - 0.5, -0.5)
    axes.set_yticks(range(len(lines)), [words(line.row) for line in lines], fontsize=7.5)
    axes.tick_params(axis="y", length=0)
    axes.grid(visible=False, axis="y")
    _across(axes, lines)
    verdicts = dict.fromkeys(line.verdict for line in lines)
    keys = [(verdict, colour) for verdict, (colour, _) in LOOKS.items() if verdict in verdicts]
    what = "ratio to the reference, new over base" if comparison.rules.ratio else "time, new over base"
    confidence = units.percent(comparison.rules.confidence).replace(".0 ", " ")
    below = f"{what}, with its {confidence} interval; right is slower; grey: within the threshold"
    titles(axes, clean(lines[0].device), below, keys)
    if hidden:
        footnote(axes, [f"Not drawn: {hidden} further rows, the same or beyond the page."])


def _across(axes: Axes, lines: Sequence[Line]) -> None:
    """The axis of ratios: ticks as changes, with both thresholds in sight."""
    found = [line.judgement for line in lines if line.judgement]
    edge = 1 + max(line.threshold for line in lines)
    low = min([1 / edge, *(one.low for one in found)]) * (1 - _CLOSE)
    high = max([edge, *(one.high for one in found)]) * (1 + _CLOSE)
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


def words(row: Row) -> str:
    """A row's name: variant, size, and the type where it is not float."""
    where = row.problem.size if row.problem else listed(row.parameters)
    parts = (clean(row.variant), "" if row.dtype == "float" else row.dtype, clean(row.label) or where)
    return " ".join(filter(None, parts))[:48]
