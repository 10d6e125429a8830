"""Draw bars, alone or in groups, and lines with their names at their ends."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, NullLocator

from gemmbench.charts import pane
from gemmbench.ladder import BASELINE
from gemmbench.ladder.variant import LIBRARIES, OWN
from gemmbench.model import units
from gemmbench.model.units import by_key, ceil_div

_ROW = 0.2  # inches down the page
_THIN, _BETWEEN = 0.7, 0.6  # the height of a bar in a group, and the space between groups, in rows
_NAME = 0.9  # a line of a group's name, in rows
_MARGIN = 1.25  # inches for title and axis


@dataclass(frozen=True)
class BarPart:
    """A segment of a bar."""

    length: float
    colour: str
    name: str = ""
    text: str = ""  # inside the segment


@dataclass(frozen=True)
class Bar:
    """A bar from zero, with text at its end."""

    parts: tuple[BarPart, ...]
    text: str = ""
    name: str = ""  # at the left, for bars outside of groups
    is_best: bool = False
    said: str = ""  # tooltip on a page
    interval: tuple[float, float] | None = None

    @property
    def length(self) -> float:
        return sum(part.length for part in self.parts)


def bar(length: float, colour: str, part: str, text: str, name: str = "", *rest: Any, **more: Any) -> Bar:
    """A bar of one segment, which is called `part`. Further arguments are those of `Bar`."""
    return Bar((BarPart(length, colour, part),), text, name, *rest, **more)


@dataclass(frozen=True)
class BarGroup:
    """Bars that share a name."""

    name: str
    bars: tuple[Bar, ...]


def bar_pane(
    title: str, below: str, entries: Sequence[Bar | BarGroup], unit: str,
    keys: Sequence[tuple[str, str]] = (), text: Callable[[float], str] = units.number, band: float = 0.0,
) -> pane.Pane:  # fmt: skip
    """A pane of bars with a title, a remark `below` it, and keys: words and the colours of their bars.

    A grey `band` reaches as far on both sides of zero.
    """

    def paint(axes: Axes) -> None:
        if band:
            axes.axvspan(-band, band, color=pane.PALE, alpha=0.3, linewidth=0, zorder=0)
        draw_bars(axes, entries, unit, text)
        pane.titles(axes, title, below, keys)

    height = _MARGIN + _ROW * max(3, sum(_rows(each) for each in entries)) + 0.13
    return pane.Pane(height + (0.2 if below else 0) + (0.2 if keys else 0), paint)


def _rows(entry: Bar | BarGroup) -> float:
    if isinstance(entry, Bar):
        return 1.0
    return max(_THIN * len(entry.bars) + _BETWEEN, _NAME * (1 + entry.name.count("\n")))


def draw_bars(
    axes: Axes, entries: Sequence[Bar | BarGroup], unit: str, text: Callable[[float], str] = units.number
) -> None:
    """Draw bars and groups from the top down. `unit` is the label of the axis, `text` formats its ticks."""
    y, names = 0.0, dict[float, str]()
    for entry in entries:
        bars, step = ((entry,), 1.0) if isinstance(entry, Bar) else (entry.bars, _THIN)
        names[y + step * (len(bars) - 1) / 2] = entry.name
        for bar in bars:
            _paint_bar(axes, y, bar, 0.72 if step == 1 else 0.62)
            y += step
        y += _rows(entry) - step * len(bars)
    axes.set_yticks(list(names), list(names.values()), fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(y, 2.0) - 0.4, -0.7)
    low, high = axes.get_xlim()
    axes.set_xlim(low - 0.1 * (high - low) if low < 0 else 0.0, high)  # room for words at the left
    pane.tick_texts(axes.xaxis, text)
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.axvline(0, color=pane.DARK, linewidth=0.8)
    axes.set_xlabel(unit)


def _paint_bar(axes: Axes, y: float, bar: Bar, thickness: float) -> None:
    left = 0.0
    for part in bar.parts:
        axes.barh(y, part.length, thickness, left, color=part.colour, label=part.name)
        if part.text:
            style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 7.5}
            pane.annotate(axes, part.text, (left + part.length / 2, y), color="white", **style)
        left += part.length
    if bar.interval:
        axes.hlines(y, *bar.interval, color=pane.BLACK, linewidth=1.2, zorder=3)
    low, high = bar.interval or (left, left)
    at, offset, side = (min(low, left), -4, "right") if left < 0 else (max(high, left), 4, "left")
    weight = "bold" if bar.is_best else "normal"
    pane.annotate(
        axes, bar.text, (at, y), (offset, 0), ha=side, va="center_baseline", fontsize=7.5, fontweight=weight,
        color=pane.DARK,
    )  # fmt: skip
    if bar.said:
        pane.mark(axes, left, y, bar.said)


LINES_HEIGHT = 4.5  # of a pane, inches
MOST_LINES = 8  # lines with a colour and a name
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<")
_LIBRARY_DASHES: tuple[pane.Dashes, ...] = ((0, (5, 2.5)), (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
_GAP = 0.052  # between neighbouring names, as a fraction of the axis
_CLOSE = 1.015  # ratio of neighbouring sizes below which a logarithmic axis would not separate them
_MOST_CATEGORIES = 12  # labels of an axis


class Point(NamedTuple):
    """A figure with its interval. Unknown values are NaN."""

    x: float
    y: float
    low: float = math.nan
    high: float = math.nan
    said: str = ""  # tooltip on a page


@dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: str = pane.PALE
    dashes: pane.Dashes = "-"
    marker: str = ""
    is_hollow: bool = False


@dataclass(frozen=True)
class Line:
    """A line from left to right."""

    label: str
    points: Sequence[Point]
    look: Look = Look()
    name: str = ""  # written at its end; lines without a name are thin

    @property
    def end(self) -> Point | None:
        return next((point for point in reversed(self.points) if math.isfinite(point.y)), None)


def draw_lines(axes: Axes, lines: Sequence[Line]) -> None:
    """Draw lines with gaps at NaN and points' tooltips; named ones are thick, and show known intervals."""
    for line in lines:
        x, y, low, high = np.array([point[:4] for point in line.points], float).T
        look, strong = line.look, bool(line.name)
        axes.plot(
            x, y, label=line.label, color=look.colour, linestyle=look.dashes, marker=look.marker or None,
            markersize=4.5, linewidth=1.8 if strong else 0.9, zorder=3 if strong else 2,
            markerfacecolor="white" if look.is_hollow else look.colour,
        )  # fmt: skip
        if strong and np.isfinite(low).any():
            axes.vlines(x, low, high, color=look.colour, linewidth=4.0, alpha=0.3, zorder=2.5)
        for point in line.points:
            if point.said:
                pane.mark(axes, point.x, point.y, point.said)


def intervals_note(lines: Sequence[Line]) -> str:
    """A sentence that explains the pale bars of `draw_lines`, or "" if there are none."""
    has_bars = any(line.name and math.isfinite(point.low) for line in lines for point in line.points)
    return "Pale bars: 95 % intervals." if has_bars else ""


def name_ends(axes: Axes, lines: Sequence[Line]) -> None:
    """Write the names of lines in the right margin, without overlaps, connected to their last points."""
    ends = [(line, end) for line in lines if line.name and (end := line.end)]
    fraction = axes.transData + axes.transAxes.inverted()
    aims = [float(fraction.transform((end.x, end.y))[1]) for _, end in ends]
    last = max((end.x for _, end in ends), default=0.0)
    for (line, end), height in zip(ends, space_apart(aims, _GAP, 0.0, 0.985), strict=True):
        arrow = {
            "arrowstyle": "-", "color": line.look.colour, "linewidth": 0.6, "alpha": 0.6, "shrinkA": 1,
            "shrinkB": 3, "relpos": (0, 0.5), "linestyle": ":" if end.x < last else "-", "patchA": None,
        }  # fmt: skip
        axes.annotate(
            line.name, (end.x, end.y), (1.03, height), textcoords="axes fraction", va="center",
            annotation_clip=False, color=line.look.colour, fontsize=8.5, arrowprops=arrow,
        )  # fmt: skip


def looks(
    best: Mapping[str, float], variants: Mapping[str, str], families: pane.Families, most: int = MOST_LINES
) -> dict[str, Look]:
    """Choose the lines that have a colour, at most `most`, and return their looks by label.

    The first variant, the user's best kernel, the two fastest, libraries and the best of each family have
    priority.
    """

    def family(label: str) -> str:
        return LIBRARIES if variants[label] == BASELINE else families.get(variants[label], "others")

    chosen = sorted(best, key=lambda label: -best[label])
    if len(chosen) > most:
        first = [label for label in chosen if variants[label] == next(iter(families), "")]
        groups = by_key((family(label), label) for label in chosen if label not in first)
        libraries, own = groups.pop(LIBRARIES, []), groups.get(OWN, [])
        fastest = [label for label in chosen if label not in libraries][:2]
        leaders = [labels[0] for labels in groups.values()]
        chosen = list(dict.fromkeys((*first, *own[:1], *fastest, *libraries, *leaders, *own, *chosen)))[:most]
    result: dict[str, Look] = {}
    colours, user_colours, dashes = iter(pane.COLOURS), iter([pane.OWN_COLOUR]), iter(_LIBRARY_DASHES * most)
    shown = (label for label in best if label in chosen)
    for label in sorted(shown, key=lambda label: variants[label] != BASELINE):
        if family(label) == LIBRARIES:
            result[label] = Look(pane.BLACK, next(dashes))
        else:
            colour = (next(user_colours, "") if family(label) == OWN else "") or next(colours)
            result[label] = Look(colour, marker=_MARKERS[len(result) % len(_MARKERS)])
    return result


def size_axis(
    axes: Axes, sizes: Sequence[int], text: Callable[[int], str] = str, room: float = 0.075
) -> dict[int, float]:
    """Make the x axis a base-2 logarithmic axis of sizes, or of categories if sizes are within 1.5 %.

    Returns each size's position.
    """
    steps = list(pairwise(sizes))
    if any(larger / smaller < _CLOSE for smaller, larger in steps):
        at = {size: float(number) for number, size in enumerate(sizes)}
        shown = sizes[:: ceil_div(len(sizes), _MOST_CATEGORIES)]
        axes.set_xlim(-0.3, len(sizes) - 0.7)
    else:
        at = {size: float(size) for size in sizes}
        shown = thin_out(sizes, room)
        axes.set_xscale("log", base=2)
        axes.set_xlim(sizes[0] / 1.08, sizes[-1] * 1.08)
    axes.xaxis.set_major_locator(FixedLocator([at[size] for size in shown]))
    axes.xaxis.set_minor_locator(NullLocator())
    names = {at[size]: text(size) for size in shown}
    axes.xaxis.set_major_formatter(lambda value, _: names.get(value, ""))
    return at


def thin_out(sizes: Sequence[int], room: float) -> list[int]:
    """Select sizes whose labels have `room` (a fraction) on a log axis: last, first, powers of 2."""
    span = max(math.log(sizes[-1] / sizes[0]), 1e-9)
    shown: list[int] = []
    for size in sorted(sizes, key=lambda n: (n != sizes[-1], n != sizes[0], n & (n - 1) != 0, n)):
        if all(abs(math.log(size / other)) / span >= room for other in shown):
            shown.append(size)
    return sorted(shown)


def space_apart(heights: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """The heights, in their order, moved until neighbours are `apart`; between low and high if they fit."""
    order = sorted(range(len(heights)), key=lambda index: heights[index])
    moved = list(heights)
    for index in order:
        moved[index] = max(heights[index], low)
        low = moved[index] + apart
    for index in reversed(order):
        moved[index] = min(moved[index], high)
        high = moved[index] - apart
    return moved
