"""Every variant in each data type, beside each type's measured peak."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes

from gemmbench.charts.pane import (
    COLOURS,
    DARK,
    GREY,
    PALE,
    Families,
    Pane,
    about_peaks,
    footnote,
    own_title,
    short,
    titles,
    with_gemms,
)
from gemmbench.charts.rungs import (
    ROW,
    Place,
    Rung,
    cell,
    heading,
    log_across,
    name_rows,
    places,
    rungs,
)
from gemmbench.facts import derive, units
from gemmbench.facts.dtypes import DTYPES, GEMM_DTYPES
from gemmbench.facts.records import Problem, Row, Run
from gemmbench.facts.series import HOST
from gemmbench.facts.standing import common_problem, settings
from gemmbench.facts.text import clean

_SIGNS = {
    "o": "\N{BLACK CIRCLE}",
    "s": "\N{BLACK SQUARE}",
    "^": "\N{BLACK UP-POINTING TRIANGLE}",
    "D": "\N{BLACK DIAMOND}",
    "v": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "P": "\N{HEAVY GREEK CROSS}",
}
_MARKERS = tuple(_SIGNS)
_FEW, _LIFT = 4, 12  # keys that are no longer than the picture; points


@dataclass(frozen=True, eq=False)
class Types:
    """What one pane shows: every variant of one device at one problem, in several data types."""

    title: str
    dtypes: tuple[str, ...]  # those measured, the narrowest first
    problem: Problem
    rungs: tuple[Rung, ...]
    peaks: dict[str, float]  # flop/s by data type
    notes: tuple[str, ...]  # on the peaks

    def look(self, dtype: str) -> tuple[str, str]:
        """Colour and marker of a data type, the same in every chart."""
        place = list(dict.fromkeys((*GEMM_DTYPES, *DTYPES))).index(dtype)  # of the first, no two are alike
        return COLOURS[place % len(COLOURS)], _MARKERS[place % len(_MARKERS)]


def precision(runs: Sequence[Run], families: Families) -> list[Pane]:
    """A pane for each run and device with two data types or more at the same problem.

    Peaks are the run's own, else those that another of the runs has of the same device.
    """
    found, mine = [], with_gemms(runs)
    for run in mine:
        for device in sorted({row.device for row in run.rows if row.kind == "gemm" and row.device != HOST}):
            problem = common_problem(run, *(one for one in settings(run) if one.device == device))
            if problem is None:
                continue
            rows = [row for row in run.rows if row.problem == problem and row.device == device]
            measured = {row.dtype for row in rows if derive.rate(row, "kernel")}
            if len(measured) < 2:
                continue
            asked = {row.dtype for row in rows}
            dtypes = tuple(sorted(asked, key=lambda name: (DTYPES[name].itemsize, list(DTYPES).index(name))))
            ladder = tuple(rungs(run, device, dtypes, problem, families))
            tops = {dtype: top for dtype in dtypes if (top := derive.peak(run, device, dtype, others=runs))}
            lacking = [dtype for dtype in dtypes if dtype not in tops]
            one = Types(
                own_title(run, device, mine),
                dtypes,
                problem,
                ladder,
                {dtype: top.rate for dtype, top in tops.items()},
                (
                    *([f"The run has no measured peak of {', '.join(lacking)}."] if lacking else []),
                    *about_peaks(run, tops.values()),
                ),
            )
            lines = len(ladder) + len({rung.family for rung in ladder}) + 1
            found.append(Pane(1.6 + ROW * lines, partial(_paint, one=one)))
    return found


def _paint(axes: Axes, one: Types) -> None:
    """A dot for each type over a logarithmic axis, a thin line between them, the figures at the right."""
    stands, heads = places(one.rungs)
    rates = {
        (place.y, dtype): found.median
        for place in stands
        for dtype, row in place.rung.rows.items()
        if (found := derive.shown_rate(row, "kernel"))
    }
    best = {
        dtype: max((rate for (_, d), rate in rates.items() if d == dtype), default=0.0)
        for dtype in one.dtypes
    }
    divisor, letter = units.scale(max(rates.values()))
    for place in stands:
        mine = [rates[place.y, dtype] / divisor for dtype in one.dtypes if (place.y, dtype) in rates]
        if mine:
            axes.hlines(place.y, min(mine), max(mine), color=PALE, linewidth=1.5, zorder=2)
        for column, dtype in enumerate(one.dtypes):
            _figure(axes, one, place, column, rates.get((place.y, dtype)), best[dtype], divisor)
    for dtype, peak in one.peaks.items():
        colour, _ = one.look(dtype)
        axes.axvline(
            peak / divisor,
            color=colour,
            linewidth=1.3,
            linestyle=(0, (8, 2, 1.5, 2)),
            zorder=1,
            label=f"{dtype} peak",
        )
    bottom = stands[-1].y + 1.2
    if one.peaks:
        for column, dtype in enumerate(one.dtypes):
            if dtype in one.peaks:
                cell(axes, column, bottom, units.number(one.peaks[dtype] / divisor), one.look(dtype)[0])
    for column, dtype in enumerate(one.dtypes):
        heading(axes, column, dtype, one.look(dtype)[0])
    names = {place.y: place.rung.label for place in stands}
    if one.peaks:
        names[bottom] = "measured peak"
    name_rows(axes, names, heads)
    everything = [*rates.values(), *one.peaks.values()]
    low, high = min(everything) / divisor, max(everything) / divisor
    log_across(axes, low, high, f"{letter}FLOPS", lambda value: short(units.number(value)))
    axes.set_ylim(bottom + 0.8, -0.8)
    below = f"kernel scope, {one.problem.title}, {letter}FLOPS; dash-dotted: each type's measured peak"
    keys = tuple((f"{_SIGNS[one.look(dtype)[1]]} {dtype}", one.look(dtype)[0]) for dtype in one.dtypes)
    titles(axes, one.title, below, keys, _LIFT if len(keys) > _FEW else 0)  # not into the columns' heads
    footnote(axes, one.notes)


def _figure(
    axes: Axes, one: Types, place: Place, column: int, rate: float | None, best: float, divisor: float
) -> None:
    """One variant in one type: its dot and its figure, or why there is none."""
    dtype = one.dtypes[column]
    colour, marker = one.look(dtype)
    if rate is not None:
        axes.plot(
            [rate / divisor], [place.y], marker, color=colour, markersize=6, markeredgecolor="white",
            markeredgewidth=0.6, zorder=3, label=f"{place.rung.label} {dtype}",
        )  # fmt: skip
        cell(axes, column, place.y, units.number(rate / divisor), DARK, bold=rate == best)
    elif dtype in place.rung.rows:
        cell(axes, column, place.y, _word(place.rung.rows[dtype]), GREY, small=True)


def _word(row: Row) -> str:
    return "-" if row.status == "ok" else clean(row.status)
