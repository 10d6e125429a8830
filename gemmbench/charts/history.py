"""Rows over many saved runs: a pane for each, with its changes marked."""

from __future__ import annotations

import math
from statistics import median

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullLocator

from gemmbench.charts.compare import words
from gemmbench.charts.pane import BLACK, COLOURS, DOWN, GREY, UP, Pane, footnote, titles
from gemmbench.facts.history import History, Track
from gemmbench.facts.text import clean

_MOST = 24  # panes of a page
_HEIGHT = 2.9  # inches
_WITHIN = 1.96  # standard errors of a 95 % interval
_LAST = {"slower": DOWN, "faster": UP}  # colour of the last run where it differs
_LEAST_SPAN = 0.06  # of the vertical axis: a steady row is to look steady


def tracks(history: History) -> list[Pane]:
    """A pane for each row, the changed ones first where there are more than a page holds."""
    ordered = sorted(history.tracks, key=lambda track: (not track.shifts, track.is_steady))
    shown = ordered if len(ordered) > _MOST else list(history.tracks)
    hidden = len(shown) - _MOST
    return [
        _pane(history, track, hidden if hidden > 0 and place == 0 else 0)
        for place, track in enumerate(shown[:_MOST])
    ]


def _pane(history: History, track: Track, hidden: int) -> Pane:
    return Pane(_HEIGHT, lambda axes: _paint(axes, history, track, hidden))


def _paint(axes: Axes, history: History, track: Track, hidden: int) -> None:
    start = median(point.figure.value for point in track.segments[0])
    runs = [point.run for point in track.points]
    heights = [math.exp(point.figure.value - start) for point in track.points]
    errors = [
        _WITHIN * point.figure.error * height if math.isfinite(point.figure.error) else 0.0
        for point, height in zip(track.points, heights, strict=True)
    ]
    axes.errorbar(
        runs,
        heights,
        errors,
        color=GREY,
        linestyle="none",
        marker="o",
        markersize=3,
        elinewidth=0.8,
        label="runs",
    )
    for segment in track.segments:
        level = math.exp(median(point.figure.value for point in segment) - start)
        ends = (segment[0].run - 0.4, segment[-1].run + 0.4)
        axes.plot(ends, (level, level), color=COLOURS[0] if level <= 1 else COLOURS[1], linewidth=1.8)
    low, high = min(heights), max(heights)
    room = max(high - low, _LEAST_SPAN)
    axes.set_ylim((low + high - room) / 2 - 0.15 * room, (low + high + room) / 2 + 0.25 * room)
    for shift in track.shifts:
        place = track.points[shift.place].run - 0.5
        colour = DOWN if shift.ratio > 1 else UP
        axes.axvline(place, color=colour, linewidth=0.9, linestyle=(0, (4, 2)))
        axes.annotate(
            f"{(shift.ratio - 1) * 100:+.0f} %", (place, 1), xycoords=("data", "axes fraction"),
            xytext=(3, -9), textcoords="offset points", color=colour, fontsize=7.5, fontweight="bold",
        )  # fmt: skip
    if track.last and track.last.verdict in _LAST and not track.shifts:
        axes.plot(runs[-1], heights[-1], color=_LAST[track.last.verdict], marker="D", linestyle="none")
    _dates(axes, history)
    axes.axhline(1.0, color=BLACK, linewidth=0.6)
    axes.yaxis.set_major_locator(MaxNLocator(5))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{(value - 1) * 100:+.3g} %"))
    axes.yaxis.set_minor_locator(NullLocator())
    verdict = f"; last: {track.last.verdict}" if track.last else ""
    what = "ratio" if track.is_ratio else "time"
    device = clean(track.device.split(" | ", 1)[0])
    titles(axes, f"{words(track.row)} | {device}", f"{what} against its first runs, + is slower{verdict}")
    if hidden:
        footnote(axes, [f"Not drawn: {hidden} further rows."], drop=24)


def _dates(axes: Axes, history: History) -> None:
    """Runs stand evenly; the days of a few of them are told."""
    last = len(history.runs) - 1
    axes.set_xlim(-0.7, last + 0.7)
    count = min(5, last + 1)
    places = sorted({round(place * last / max(count - 1, 1)) for place in range(count)})
    axes.set_xticks(places, [history.times[place].strftime("%y-%m-%d") for place in places], fontsize=7.5)
    axes.grid(visible=False, axis="x")
