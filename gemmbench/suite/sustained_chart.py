"""A long run over time: the rate, the clock, the power and the temperature, and where results were wrong."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from gemmbench.charts.pane import (
    COLOURS,
    DARK,
    DOWN,
    GREY,
    Families,
    Pane,
    footnote,
    own_title,
    short,
    titles,
)
from gemmbench.model import units
from gemmbench.model.row import Row, Sustained
from gemmbench.model.run_file import Run
from gemmbench.report.progress import row_label
from gemmbench.report.sustained import in_a_sentence, ran_s, rate_of, slowest
from gemmbench.stats import rates

_HEIGHT = 3.4  # inches
_RATE, _CLOCK, _POWER, _HEAT = COLOURS[0], COLOURS[2], COLOURS[4], COLOURS[3]
_HEADROOM = 1.12
_ABOVE = 2.1  # so that what the device says lies below a rate that holds
_SECONDS = ((120.0, 1.0, "seconds"), (7200.0, 60.0, "minutes"), (float("inf"), 3600.0, "hours"))


def panes(runs: Sequence[Run], _: Families) -> list[Pane]:
    """A pane for each long run."""
    rows = [(run, row) for run in runs for row in run.rows if row.sustained and row.sustained.seconds]
    return [Pane(_HEIGHT, partial(_paint, run=run, row=row, beside=runs)) for run, row in rows]


def _paint(axes: Axes, run: Run, row: Row, beside: Sequence[Run]) -> None:
    result = row.sustained
    assert result  # of `panes`
    divisor, name = next((each, name) for most, each, name in _SECONDS if ran_s(result) <= most)
    times = [
        (begin + length / 2) / divisor for begin, length in zip(result.begin_s, result.length_s, strict=True)
    ]
    reached = [result.flops / seconds for seconds in result.seconds]
    scale, letter = units.scale(max(reached))
    integer = rates.is_integer(row.dtype)
    axes.plot(times, [value / scale for value in reached], color=_RATE, linewidth=1.4, label="rate", zorder=3)
    axes.set_xlim(0, ran_s(result) / divisor)
    axes.set_ylim(0, max(reached) / scale * _HEADROOM)
    axes.set_xlabel(f"{name} under load")
    axes.set_ylabel(f"{letter}{'IOPS' if integer else 'FLOPS'}")
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.number(value))))
    axes.tick_params(colors=GREY, labelcolor=DARK)
    for error in result.errors:
        axes.axvline(error.at_s / divisor, color=DOWN, linewidth=1.0, linestyle=(0, (3, 2)), zorder=2)
    keys = [("rate", _RATE), *_conditions(axes, times, result)]
    keys += [("wrong result", DOWN)] if result.errors else []
    own = f"{row_label(row)}: {units.rate(rate_of(result), integer)} over {units.seconds(ran_s(result))}"
    titles(axes, own_title(run, row.device, beside), own, keys)
    every = [each for each in run.rows if each.sustained]
    slow = slowest(run, every)
    wrong = in_a_sentence(row, result) or f"All {result.results:,} results have the bits of the first"
    ended = "" if result.end == "done" else f"Ended early: {result.end}."
    footnote(axes, [text for text in (f"{wrong}.", ended, f"Slowest: {slow}." if slow else "") if text])


def _conditions(axes: Axes, times: Sequence[float], result: Sustained) -> list[tuple[str, str]]:
    """Clock, power and temperature as shares of their highest, on an axis of their own; their keys."""
    series = (
        ("clock", result.clock_mhz, _CLOCK, "MHz"),
        ("power", result.power_w, _POWER, "W"),
        ("temperature", result.celsius, _HEAT, "C"),
    )
    keys: list[tuple[str, str]] = []
    right: Axes | None = None
    for name, values, colour, unit in series:
        there = [(at, value) for at, value in zip(times, values, strict=False) if value is not None]
        if not there:
            continue
        if right is None:
            right = axes.twinx()
            right.grid(False)
            right.set_ylim(0, _ABOVE)
            right.set_yticks((0.0, 0.5, 1.0))
            right.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value * 100:.0f} %"))
            right.set_ylabel("of its highest", color=GREY, loc="bottom")
            right.tick_params(colors=GREY)
        least, most = (pick(value for _, value in there) for pick in (min, max))
        right.plot(
            [at for at, _ in there],
            [value / most for _, value in there],
            color=colour,
            linewidth=1.1,
            label=name,
        )
        keys.append((f"{name} {units.number(least)} to {units.number(most)} {unit}", colour))
    return keys
