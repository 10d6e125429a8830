"""Real shapes: bars for the fastest variants, shape by shape."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter

from gemmbench.charts.pane import (
    COLOURS,
    DARK,
    GREY,
    Families,
    Pane,
    footnote,
    own_title,
    short,
    titles,
    with_gemms,
)
from gemmbench.facts import derive, units
from gemmbench.facts.records import Problem, Row, Run
from gemmbench.facts.series import HOST, Series, series, sweep_axis
from gemmbench.facts.text import clean

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
    found, mine = [], with_gemms(runs)
    for run in mine:
        gemms = [row for row in run.rows if row.kind == "gemm"]
        if sweep_axis(gemms) or len({row.problem for row in gemms}) < 2:
            continue
        devices = dict.fromkeys((row.device, row.dtype) for row in gemms if row.device != HOST)
        for device, dtype in devices:
            rows = [row for row in gemms if row.dtype == dtype and row.device in (device, HOST)]
            if any(derive.shown_rate(row, "kernel") for row in rows):
                one = _shapes(own_title(run, device, mine), dtype, rows, families)
                found.append(Pane(one.height, partial(_paint, one=one)))
    return found


def _shapes(title: str, dtype: str, rows: Sequence[Row], families: Families) -> Shapes:
    """Every shape in the order of the run; the variants that win most of them."""
    shapes: dict[tuple[str, Problem | None], Row] = {}
    for row in rows:
        shapes.setdefault((row.label, row.problem), row)
    numbers = {shape: number for number, shape in enumerate(shapes)}
    lines = series(rows, lambda row: numbers[row.label, row.problem], tuple(families))
    hosts = [one for one in lines if one.is_host]
    room = max(2, min(_MOST_VARIANTS, _MOST_BARS // len(shapes) - len(hosts) - 1))
    measured = [one for one in lines if any(_rate(one, number) for number in one.rows)]
    best = sorted((one for one in measured if not one.is_host), key=lambda one: _standing(one, lines))[:room]
    shown = tuple(one for one in measured if one in best or one.is_host)
    slower = tuple(clean(one.label) for one in measured if one not in shown)
    lacking = tuple(clean(one.label) for one in lines if one not in measured)
    return Shapes(title, dtype, tuple(shapes.values()), shown, slower, lacking)


def _rate(one: Series, number: int) -> float:
    """A rate in flop/s; 0 if there is none."""
    found = derive.shown_rate(one.rows[number], "kernel") if number in one.rows else None
    return found.median if found else 0.0


def _standing(one: Series, lines: Sequence[Series]) -> tuple[int, float]:
    """Sorts the variants: most shapes won first, then the smallest distance from the best, summed."""
    wins, lost = 0, 0.0
    for number in one.rows:
        best = max(_rate(other, number) for other in lines if not other.is_host)
        wins += best > 0 and _rate(one, number) == best
        lost += 1 - _rate(one, number) / best if best else 0.0
    return -wins, lost


def _paint(axes: Axes, one: Shapes) -> None:
    """Bars from zero, their figures at the ends, the best of each shape in bold."""
    count = len(one.shown)
    device = [line for line in one.shown if not line.is_host]
    colours = {line: DARK if line.is_host else COLOURS[device.index(line)] for line in one.shown}
    rates = {(line, n): _rate(line, n) for line in one.shown for n in range(len(one.shapes))}
    divisor, letter = units.scale(max(rates.values()))
    for n in range(len(one.shapes)):
        best = max(rates[line, n] for line in one.shown)
        for place, line in enumerate(one.shown):
            y = n * (count + 1) + place
            _bar(axes, y, line, n, rates[line, n] / divisor, colours[line], best=rates[line, n] == best)
    middles = [n * (count + 1) + (count - 1) / 2 for n in range(len(one.shapes))]
    axes.set_yticks(middles, [_name(row) for row in one.shapes], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(one.shapes) * (count + 1) - 0.5, -1)
    axes.set_xlim(0, max(rates.values()) / divisor * 1.1)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.number(value))))
    axes.set_xlabel(f"{letter}FLOPS")
    axes.grid(False, axis="y")
    keys = tuple(
        (clean(line.label) + (", host" if line.is_host else ""), colours[line]) for line in one.shown
    )
    titles(axes, one.title, f"{one.dtype}, kernel scope; the fastest of each shape in bold", keys)
    texts = {"Not drawn, slower on most shapes": one.slower, "No figure for any shape": one.lacking}
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
