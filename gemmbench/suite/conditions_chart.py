"""A row's conditions over time: the device's clock, its power, and what limited it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from gemmbench.charts.pane import (
    BLACK,
    COLOURS,
    DARK,
    DOWN,
    GREY,
    PALE,
    Families,
    Pane,
    footnote,
    mark,
    own_title,
    short,
    titles,
)
from gemmbench.model import units
from gemmbench.model.conditions import POWER
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.report.progress import row_label
from gemmbench.stats import cycles
from gemmbench.stats.conditions import disturbed, known

_HEIGHT = 3.0  # inches
_MOST = 6  # rows
_HEADROOM = 1.15
_ABOVE_POWER = 2.2  # so that it lies below the clock
_FREE, _POWER, _OTHER = COLOURS[0], COLOURS[4], DOWN
_MARKS = ((_FREE, "clock"), (_POWER, "limited by power"), (_OTHER, "by heat or the board"))


def panes(runs: Sequence[Run], _: Families) -> list[Pane]:
    """A pane for each row whose device told its clock; of many, those that were limited first."""
    rows = [(run, row) for run in runs for row in run.rows if _clocks(row)]
    shown = sorted(rows, key=lambda pair: not (_is_limited(pair[1]) or disturbed(*pair)))[:_MOST]
    left_out = len(rows) - len(shown)
    last = len(shown) - 1
    return [
        Pane(_HEIGHT, partial(_paint, run=run, row=row, beside=runs, left_out=left_out * (index == last)))
        for index, (run, row) in enumerate(shown)
    ]


def _clocks(row: Row) -> list[tuple[float, float, float | None, str]]:
    """Begin, clock, power and limits of every batch with a clock, the begin after the row's first."""
    windows = row.conditions.windows.values() if row.conditions else ()
    batches = [
        (begin, clock, power, limits)
        for window in windows
        for begin, clock, power, limits in zip(
            window.begin_s,
            window.clock_mhz or window.counted_mhz,
            window.power_w or (None,) * len(window.begin_s),
            window.limits or ("",) * len(window.begin_s),
            strict=False,
        )
        if clock is not None
    ]
    first = min((begin for begin, *_ in batches), default=0.0)
    return sorted((begin - first, clock, power, limits) for begin, clock, power, limits in batches)


def _counted(row: Row) -> list[tuple[float, float]]:
    """When a batch began, after the row's first, and its average clock by the device's own counters."""
    windows = row.conditions.windows.values() if row.conditions else ()
    first = min((begin for window in windows for begin in window.begin_s[:1]), default=0.0)
    return [
        (begin - first, mhz)
        for window in windows
        for begin, mhz in zip(window.begin_s, window.counted_mhz, strict=False)
        if mhz is not None
    ]


def _is_limited(row: Row) -> bool:
    return any(limits for *_, limits in _clocks(row))


def _colour(limits: str) -> str:
    return _FREE if not limits else _POWER if limits == POWER else _OTHER


def _paint(axes: Axes, run: Run, row: Row, beside: Sequence[Run], left_out: int) -> None:
    assert row.conditions is not None
    batches = _clocks(row)
    seconds = [second for second, *_ in batches]
    most = row.conditions.max_mhz
    top = max([clock for _, clock, *_ in batches] + ([most] if most else []))
    keys = []
    for colour, label in _MARKS:
        points = [(second, clock) for second, clock, _, limits in batches if _colour(limits) == colour]
        if points:
            x, y = zip(*points, strict=True)
            axes.scatter(x, y, s=14, color=colour, linewidths=0, label=label, zorder=3)
            keys.append((label, colour))
    for second, clock, power, limits in batches:
        drawn_w = f", {units.watts(power)}" if power is not None else ""
        by = f", limited by {limits.replace(' ', ', ')}" if limits else ""
        mark(axes, second, clock, f"{units.seconds(second)}: {units.number(clock)} MHz{drawn_w}{by}")
    if counted := _counted(row):
        x, y = zip(*counted, strict=True)
        axes.plot(x, y, color=BLACK, linewidth=0.8, label="by its counters", zorder=4)
        keys.append(("\u2014 by its counters", BLACK))
    if most:
        axes.axhline(most, color=BLACK, linewidth=1, linestyle=(0, (4, 3)), label="maximum clock")
        keys.append(("-- its maximum", BLACK))
    axes.set_xlim(0, max(seconds[-1], 1e-3) * 1.02)
    axes.set_ylim(0, top * _HEADROOM)
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.number(value))))
    axes.set_xlabel("seconds after the row's first sample")
    axes.set_ylabel("clock, MHz")
    drawn = [(second, power) for second, _, power, _ in batches if power is not None]
    if drawn:
        right = axes.twinx()
        right.grid(False)
        right.plot(*zip(*drawn, strict=True), color=GREY, linewidth=1.2, label="power")
        right.set_ylim(0, max(power for _, power in drawn) * _ABOVE_POWER)
        right.set_ylabel("board power, W", color=GREY)
        right.tick_params(colors=GREY)
        right.spines["right"].set_visible(True)
        right.spines["right"].set_color(PALE)
        keys.append(("board power", GREY))
    titles(axes, own_title(run, row.device, beside), f"{row_label(row)}: {_about(run, row)}", keys)
    reasons = "; ".join(disturbed(run, row))
    notes = [f"Disturbed: {reasons}."] if reasons else []
    notes += [f"{left_out} more rows are not drawn."] if left_out else []
    footnote(axes, notes)
    axes.tick_params(colors=GREY, labelcolor=DARK)


def _about(run: Run, row: Row) -> str:
    """The state, how warm the device became, how long it was warmed, and its rate in cycles."""
    assert row.conditions is not None
    celsius = known([value for window in row.conditions.windows.values() for value in window.celsius])
    parts: list[str] = [row.conditions.state or "state not known"]
    if row.conditions.warm_s:
        parts.append(f"warmed for {units.seconds(row.conditions.warm_s)} before")
    if celsius:
        parts.append(f"{units.number(min(celsius))} to {units.number(max(celsius))} C")
    if each := cycles.flop_per_cycle(run, row):
        parts.append(f"{units.number(each)} flop per cycle and unit")
    return ", ".join(parts)
