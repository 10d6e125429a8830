"""The painter of bars: one below the other, alone or in groups, of one part or several."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.model import units

_ROW = 0.2  # inches down the page
_THIN, _GAP = 0.7, 0.6  # a bar of a group, and the room between groups, in rows
_NAME = 0.9  # a line of a group's name, in rows
_MARGIN = 1.25  # inches for title and axis


@dataclass(frozen=True)
class BarPart:
    """A stretch of a bar."""

    length: float
    colour: str
    name: str = ""
    text: str = ""  # inside


@dataclass(frozen=True)
class Bar:
    """One bar from zero, with words at its end."""

    parts: tuple[BarPart, ...]
    text: str = ""
    name: str = ""  # at the left, of bars that stand alone
    is_best: bool = False
    said: str = ""  # on a page, under the pointer
    interval: tuple[float, float] | None = None

    @property
    def length(self) -> float:
        return sum(part.length for part in self.parts)


@dataclass(frozen=True)
class Group:
    """Bars that share a name."""

    name: str
    bars: tuple[Bar, ...]


def height(entries: Sequence[Bar | Group]) -> float:
    """Inches of a pane."""
    return _MARGIN + _ROW * max(3, sum(_rows(each) for each in entries)) + 0.13


def _rows(entry: Bar | Group) -> float:
    if isinstance(entry, Bar):
        return 1.0
    return max(_THIN * len(entry.bars) + _GAP, _NAME * (1 + entry.name.count("\n")))


def paint(
    axes: Axes,
    entries: Sequence[Bar | Group],
    unit: str,
    text: Callable[[float], str] = units.number,
) -> None:
    """Draw bars from the top down, over a linear axis with a unit."""
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
            pane.say(axes, part.text, (left + part.length / 2, y), color="white", **style)
        left += part.length
    if bar.interval:
        axes.hlines(y, *bar.interval, color=pane.BLACK, linewidth=1.2, zorder=3)
    low, high = bar.interval or (left, left)
    at, offset, side = (min(low, left), -4, "right") if left < 0 else (max(high, left), 4, "left")
    weight = "bold" if bar.is_best else "normal"
    pane.say(
        axes, bar.text, (at, y), (offset, 0), ha=side, va="center_baseline", fontsize=7.5, fontweight=weight,
        color=pane.DARK,
    )  # fmt: skip
    if bar.said:
        pane.mark(axes, left, y, bar.said)
