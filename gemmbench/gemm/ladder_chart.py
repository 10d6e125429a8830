"""The ladder as a waterfall: what each step brings, from the first kernel to the measured peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes

from gemmbench.charts.lines import paled
from gemmbench.charts.pane import (
    BLACK,
    COLOURS,
    DARK,
    DOWN,
    GREY,
    PALE,
    ROW,
    UP,
    Families,
    Pane,
    Place,
    Rung,
    about_peaks,
    cell,
    footnote,
    heading,
    log_across,
    name_rows,
    own_title,
    places,
    rungs,
    short,
    titles,
    with_gemms,
)
from gemmbench.ladder import AUTO, BASELINE
from gemmbench.ladder.variant import LIBRARIES
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES, GEMM_DTYPES
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import rates as derive
from gemmbench.stats.panels import Panel, Setting, common_problem, panels, settings

_BAR = 0.62


@dataclass(frozen=True, eq=False)
class Ladder:
    """What one pane shows: every variant of one device and type at one problem."""

    run: Run
    others: tuple[Run, ...]  # whose peaks count where the run has none
    title: str
    dtype: str
    problem: Problem
    rungs: tuple[Rung, ...]  # on the device
    host: Rung | None
    peak: derive.Peak | None
    notes: tuple[str, ...]  # on the peak

    def rate(self, rung: Rung) -> float | None:
        """A rung's rate in flop/s."""
        reached = derive.shown_rate(rung.rows[self.dtype], "kernel")
        return reached.median if reached else None

    @property
    def base(self) -> Rung:
        """The first rung that was measured: what speed-ups are over."""
        return next(rung for rung in self.rungs if self.rate(rung))

    @property
    def best(self) -> float:
        """The best rate; that of `auto` is another's."""
        return max(
            (rate for rung in self.rungs if rung.variant != AUTO and (rate := self.rate(rung))), default=0.0
        )

    @property
    def rates(self) -> list[float]:
        """Of the rungs that were measured."""
        return [rate for rung in self.rungs if (rate := self.rate(rung))]


def ladder(runs: Sequence[Run], families: Families) -> list[Pane]:
    """A pane for each run, device and type with two rungs or more at the same problem.

    The peak is the run's own, else that which another of the runs has of the same device.
    """
    panes, beside = [], with_gemms(runs)
    for run in beside:
        for panel in panels(run, "m"):
            problem = common_problem(run, Setting(panel.device, panel.dtype))
            if panel.device == HOST or problem is None:
                continue
            all_rungs = rungs(run, panel.device, (panel.dtype,), problem, families)
            peak = derive.peak(run, panel.device, panel.dtype, others=runs)
            chart = Ladder(
                run,
                tuple(runs),
                own_title(run, panel.device, beside),
                panel.dtype,
                problem,
                tuple(rung for rung in all_rungs if not rung.is_host),
                next((rung for rung in all_rungs if rung.is_host and rung.variant == BASELINE), None),
                peak,
                tuple(_about(run, panel, peak)),
            )
            if sum(chart.rate(rung) is not None for rung in chart.rungs) >= 2:
                lines = len(chart.rungs) + len({rung.family for rung in chart.rungs}) + 2
                panes.append(Pane(1.5 + ROW * lines, partial(_paint, chart=chart)))
    return panes


def _paint(axes: Axes, chart: Ladder) -> None:
    """Bars over a logarithmic axis of speed-ups, and their figures at the right."""
    stands, heads = places(chart.rungs)
    unit = chart.rate(chart.base) or 1.0
    host = chart.rate(chart.host) if chart.host else None
    top = max(*chart.rates, chart.peak.rate if chart.peak else 0.0, host or 0.0)
    divisor, letter = units.scale(top)
    names = {position.y: position.rung.label for position in stands}
    bottom = stands[-1].y
    _bars(axes, chart, stands, unit, divisor)
    if chart.peak:
        bottom += 1.4
        names[bottom] = "measured peak"
        axes.barh(bottom, chart.peak.rate / unit - 1, _BAR, 1, color=GREY, label="peak")
        cell(axes, 0, bottom, f"{units.number(chart.peak.rate / unit)}x", DARK)
        cell(axes, 1, bottom, units.number(chart.peak.rate / divisor), DARK)
    name_rows(axes, names, heads)
    for column, text in enumerate(("speed-up", f"{letter}FLOPS", *(["of peak"] if chart.peak else []))):
        heading(axes, column, text)
    axes.axvline(1, color=DARK, linewidth=0.8)
    name = chart.base.label + ("" if chart.base is chart.rungs[0] else ", the first that was measured")
    lowest = min(*chart.rates, host or unit) / unit
    log_across(axes, lowest, top / unit, f"speed-up over {name}", lambda value: f"{value:,g}x")
    axes.set_ylim(bottom + 1.9, -0.8)
    if host:
        _host_line(axes, host / unit, f"{BASELINE}, host: {units.rate(host)}")
    below = f"{chart.dtype}, kernel scope, {chart.problem.title}; in full colour the step from the rung above"
    titles(axes, chart.title, below, (("faster than the rung above", UP), ("slower", DOWN)))
    footnote(axes, chart.notes)


def _about(run: Run, panel: Panel, peak: derive.Peak | None) -> Iterator[str]:
    """What a footnote says of the peak."""
    if peak is None:
        yield "The run has no measured peak of this type."
        return
    yield from about_peaks(run, [peak])
    if len(derive.units_used(run, panel.device, panel.dtype)) > 1:
        yield "Of peak: of the peak of the units that a kernel runs on; the highest is drawn."


def _of_peak(chart: Ladder, row: Row) -> str:
    """A rate's share of the peak of its own units; nothing where that was not measured."""
    fraction = derive.peak_fraction(chart.run, row, others=chart.others)
    return "-" if fraction is None else units.percent(fraction)


def _bars(axes: Axes, chart: Ladder, stands: Sequence[Place], unit: float, divisor: float) -> None:
    """Each step from where the rung before ended; families and libraries start from the first rung."""
    family, before = "", 1.0
    for position in stands:
        if position.rung.family != family or family == LIBRARIES:
            family, before = position.rung.family, 1.0
        rate = chart.rate(position.rung)
        if rate is None:
            _no_bar(axes, position.y, position.rung.rows[chart.dtype])
            continue
        _step(axes, position.y, before, rate / unit)
        figures = [f"{units.number(rate / unit)}x", units.number(rate / divisor)]
        if chart.peak:
            figures.append(_of_peak(chart, position.rung.rows[chart.dtype]))
        for column, text in enumerate(figures):
            cell(axes, column, position.y, text, bold=rate == chart.best)
        before = rate / unit


def _step(axes: Axes, y: float, before: float, after: float) -> None:
    """All of the speed-up pale, the step from the rung before in full colour."""
    colour = UP if after >= before else DOWN
    axes.barh(y, after - 1, _BAR, 1, color=paled(colour, 0.75), zorder=2)
    axes.barh(y, after - before, _BAR, before, color=colour, zorder=3, label="step")
    axes.vlines(after, y - _BAR / 2, y + _BAR / 2, color=BLACK, linewidth=1.2, zorder=4)


def _no_bar(axes: Axes, y: float, row: Row) -> None:
    """Why there is none, at the start."""
    text = f"{row.status}: {clean(row.reason)}" if row.reason else row.status
    axes.annotate(
        text if len(text) <= 62 else text[:58] + " ...",
        (1, y),
        xytext=(4, 0),
        textcoords="offset points",
        va="center_baseline",
        fontsize=7.5,
        color=GREY,
    )


def _host_line(axes: Axes, x: float, words: str) -> None:
    """The host's BLAS, named at the bottom on the side that has room."""
    axes.axvline(x, color=BLACK, linewidth=1.3, linestyle=(0, (5, 2.5)), zorder=5, label=BASELINE)
    low, high = axes.get_xlim()
    left = x < (low * high) ** 0.5
    axes.annotate(
        words,
        (x, 0),
        xycoords=("data", "axes fraction"),
        xytext=(4 if left else -4, 3),
        textcoords="offset points",
        ha="left" if left else "right",
        va="bottom",
        fontsize=8,
        bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8},
        zorder=6,
    )


# --- Every variant in each data type, beside each type's measured peak --------------------------------------


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
        index = list(dict.fromkeys((*GEMM_DTYPES, *DTYPES))).index(dtype)  # of the first, no two are alike
        return COLOURS[index % len(COLOURS)], _MARKERS[index % len(_MARKERS)]


def precision(runs: Sequence[Run], families: Families) -> list[Pane]:
    """A pane for each run and device with two data types or more at the same problem.

    Peaks are the run's own, else those that another of the runs has of the same device.
    """
    panes, beside = [], with_gemms(runs)
    for run in beside:
        for device in sorted({row.device for row in run.rows if row.kind == "gemm" and row.device != HOST}):
            problem = common_problem(run, *(setting for setting in settings(run) if setting.device == device))
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
            chart = Types(
                own_title(run, device, beside),
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
            panes.append(Pane(1.6 + ROW * lines, partial(_precision_paint, chart=chart)))
    return panes


def _precision_paint(axes: Axes, chart: Types) -> None:
    """A dot for each type over a logarithmic axis, a thin line between them, the figures at the right."""
    stands, heads = places(chart.rungs)
    rates = {
        (position.y, dtype): reached.median
        for position in stands
        for dtype, row in position.rung.rows.items()
        if (reached := derive.shown_rate(row, "kernel"))
    }
    best = {
        dtype: max((rate for (_, d), rate in rates.items() if d == dtype), default=0.0)
        for dtype in chart.dtypes
    }
    divisor, letter = units.scale(max(rates.values()))
    for position in stands:
        scaled = [
            rates[position.y, dtype] / divisor for dtype in chart.dtypes if (position.y, dtype) in rates
        ]
        if scaled:
            axes.hlines(position.y, min(scaled), max(scaled), color=PALE, linewidth=1.5, zorder=2)
        for column, dtype in enumerate(chart.dtypes):
            _figure(axes, chart, position, column, rates.get((position.y, dtype)), best[dtype], divisor)
    for dtype, peak in chart.peaks.items():
        colour, _ = chart.look(dtype)
        axes.axvline(
            peak / divisor,
            color=colour,
            linewidth=1.3,
            linestyle=(0, (8, 2, 1.5, 2)),
            zorder=1,
            label=f"{dtype} peak",
        )
    bottom = stands[-1].y + 1.2
    if chart.peaks:
        for column, dtype in enumerate(chart.dtypes):
            if dtype in chart.peaks:
                cell(axes, column, bottom, units.number(chart.peaks[dtype] / divisor), chart.look(dtype)[0])
    for column, dtype in enumerate(chart.dtypes):
        heading(axes, column, dtype, chart.look(dtype)[0])
    names = {position.y: position.rung.label for position in stands}
    if chart.peaks:
        names[bottom] = "measured peak"
    name_rows(axes, names, heads)
    everything = [*rates.values(), *chart.peaks.values()]
    low, high = min(everything) / divisor, max(everything) / divisor
    log_across(axes, low, high, f"{letter}FLOPS", lambda value: short(units.number(value)))
    axes.set_ylim(bottom + 0.8, -0.8)
    below = f"kernel scope, {chart.problem.title}, {letter}FLOPS; dash-dotted: each type's measured peak"
    keys = tuple((f"{_SIGNS[chart.look(dtype)[1]]} {dtype}", chart.look(dtype)[0]) for dtype in chart.dtypes)
    titles(axes, chart.title, below, keys, _LIFT if len(keys) > _FEW else 0)  # not into the columns' heads
    footnote(axes, chart.notes)


def _figure(
    axes: Axes, chart: Types, position: Place, column: int, rate: float | None, best: float, divisor: float
) -> None:
    """One variant in one type: its dot and its figure, or why there is none."""
    dtype = chart.dtypes[column]
    colour, marker = chart.look(dtype)
    if rate is not None:
        axes.plot(
            [rate / divisor], [position.y], marker, color=colour, markersize=6, markeredgecolor="white",
            markeredgewidth=0.6, zorder=3, label=f"{position.rung.label} {dtype}",
        )  # fmt: skip
        cell(axes, column, position.y, units.number(rate / divisor), DARK, bold=rate == best)
    elif dtype in position.rung.rows:
        cell(axes, column, position.y, _word(position.rung.rows[dtype]), GREY, small=True)


def _word(row: Row) -> str:
    return "-" if row.status == "ok" else clean(row.status)
