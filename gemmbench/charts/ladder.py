"""The ladder as a waterfall: what each step brings, from the first kernel to the measured peak."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes

from gemmbench.charts.curves import paled
from gemmbench.charts.pane import (
    BLACK,
    DARK,
    DOWN,
    GREY,
    UP,
    Families,
    Pane,
    about_peaks,
    footnote,
    own_title,
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
from gemmbench.facts.records import Problem, Row, Run
from gemmbench.facts.series import HOST, Panel, panels
from gemmbench.facts.standing import Setting, common_problem
from gemmbench.facts.text import clean
from gemmbench.rules.variants import AUTO, BASELINE, LIBRARIES

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
        found = derive.shown_rate(rung.rows[self.dtype], "kernel")
        return found.median if found else None

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
    found, beside = [], with_gemms(runs)
    for run in beside:
        for panel in panels(run, "m"):
            problem = common_problem(run, Setting(panel.device, panel.dtype))
            if panel.device == HOST or problem is None:
                continue
            all_rungs = rungs(run, panel.device, (panel.dtype,), problem, families)
            peak = derive.peak(run, panel.device, panel.dtype, others=runs)
            one = Ladder(
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
            if sum(one.rate(rung) is not None for rung in one.rungs) >= 2:
                lines = len(one.rungs) + len({rung.family for rung in one.rungs}) + 2
                found.append(Pane(1.5 + ROW * lines, partial(_paint, one=one)))
    return found


def _paint(axes: Axes, one: Ladder) -> None:
    """Bars over a logarithmic axis of speed-ups, and their figures at the right."""
    stands, heads = places(one.rungs)
    unit = one.rate(one.base) or 1.0
    host = one.rate(one.host) if one.host else None
    top = max(*one.rates, one.peak.rate if one.peak else 0.0, host or 0.0)
    divisor, letter = units.scale(top)
    names = {place.y: place.rung.label for place in stands}
    bottom = stands[-1].y
    _bars(axes, one, stands, unit, divisor)
    if one.peak:
        bottom += 1.4
        names[bottom] = "measured peak"
        axes.barh(bottom, one.peak.rate / unit - 1, _BAR, 1, color=GREY, label="peak")
        cell(axes, 0, bottom, f"{units.number(one.peak.rate / unit)}x", DARK)
        cell(axes, 1, bottom, units.number(one.peak.rate / divisor), DARK)
    name_rows(axes, names, heads)
    for column, text in enumerate(("speed-up", f"{letter}FLOPS", *(["of peak"] if one.peak else []))):
        heading(axes, column, text)
    axes.axvline(1, color=DARK, linewidth=0.8)
    name = one.base.label + ("" if one.base is one.rungs[0] else ", the first that was measured")
    lowest = min(*one.rates, host or unit) / unit
    log_across(axes, lowest, top / unit, f"speed-up over {name}", lambda value: f"{value:,g}x")
    axes.set_ylim(bottom + 1.9, -0.8)
    if host:
        _host_line(axes, host / unit, f"{BASELINE}, host: {units.rate(host)}")
    below = f"{one.dtype}, kernel scope, {one.problem.title}; in full colour the step from the rung above"
    titles(axes, one.title, below, (("faster than the rung above", UP), ("slower", DOWN)))
    footnote(axes, one.notes)


def _about(run: Run, panel: Panel, peak: derive.Peak | None) -> Iterator[str]:
    """What a footnote says of the peak."""
    if peak is None:
        yield "The run has no measured peak of this type."
        return
    yield from about_peaks(run, [peak])
    if len(derive.units_used(run, panel.device, panel.dtype)) > 1:
        yield "Of peak: of the peak of the units that a kernel runs on; the highest is drawn."


def _of_peak(one: Ladder, row: Row) -> str:
    """A rate's share of the peak of its own units; nothing where that was not measured."""
    fraction = derive.peak_fraction(one.run, row, others=one.others)
    return "-" if fraction is None else units.percent(fraction)


def _bars(axes: Axes, one: Ladder, stands: Sequence[Place], unit: float, divisor: float) -> None:
    """Each step from where the rung before ended; families and libraries start from the first rung."""
    family, before = "", 1.0
    for place in stands:
        if place.rung.family != family or family == LIBRARIES:
            family, before = place.rung.family, 1.0
        rate = one.rate(place.rung)
        if rate is None:
            _no_bar(axes, place.y, place.rung.rows[one.dtype])
            continue
        _step(axes, place.y, before, rate / unit)
        figures = [f"{units.number(rate / unit)}x", units.number(rate / divisor)]
        if one.peak:
            figures.append(_of_peak(one, place.rung.rows[one.dtype]))
        for column, text in enumerate(figures):
            cell(axes, column, place.y, text, bold=rate == one.best)
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
