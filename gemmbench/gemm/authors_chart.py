"""A run beside the authors' own figures: the kernels' order, and the sizes at which their curves bend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.charts.lines import size_axis, thinned
from gemmbench.ladder.authors import PUBLISHED, Published
from gemmbench.model import units
from gemmbench.model.row import Problem
from gemmbench.model.run_file import Run
from gemmbench.stats.panels import Setting, common_problem, problems, rank_correlation, standings

_SCOPE = "kernel"  # the authors timed the product alone
_LEAST = 3  # kernels, for an order
_BENT = 0.9  # of a curve's best rate
Curve = Mapping[int, float]  # rate by size


@dataclass(frozen=True, eq=False)
class Comparison:
    """One run, device and set of published figures; rates in any unit, since only shapes are compared."""

    title: str
    published: Published
    problem: Problem  # at which the kernels' order is compared
    order: dict[str, tuple[float, float]]  # by kernel: the author's rate, and the run's
    curves: Mapping[str, tuple[Curve, Curve]]  # of kernels that both measured at two sizes or more

    @property
    def agreement(self) -> float:
        """`rank_correlation` of the two orders."""
        return rank_correlation(*zip(*self.order.values(), strict=True))


def comparisons(runs: Sequence[Run]) -> list[Comparison]:
    """What of each run, in float on its devices, can be held beside what was published."""
    result = []
    for subject in pane.subjects(runs):
        if subject.dtype != "float":
            continue
        setting = Setting(subject.device, subject.dtype)
        squares = [
            problem
            for problem in problems(subject.run, setting)
            if problem.is_square and problem.m > 1 and (problem.ops, problem.count) == ("NN", 1)
        ]
        rates = {problem: _rates(subject.run, setting, problem) for problem in squares}
        for published in PUBLISHED:
            problem = _problem(subject.run, setting, published, rates)
            if problem is None:
                continue
            own = rates[problem]
            order = {
                name: (rate, own[name]) for name, rate in published.at(published.size).items() if name in own
            }
            if len(order) < _LEAST:
                continue
            curves = {
                name: (curve, here)
                for name, curve in published.gflops.items()
                if len(curve) > 1
                and len(here := {at.m: kernels[name] for at, kernels in rates.items() if name in kernels}) > 1
            }
            result.append(Comparison(subject.title, published, problem, order, curves))
    return result


def _rates(run: Run, setting: Setting, problem: Problem) -> dict[str, float]:
    ranked = standings(run, setting, problem, scope=_SCOPE)
    return {name: each.rate.median for name, each in ranked.items() if each.rate}


def _problem(
    run: Run, setting: Setting, published: Published, rates: Mapping[Problem, Mapping[str, float]]
) -> Problem | None:
    """The author's size where the run has it, else the problem at which the run's kernels are shown."""
    own = next((problem for problem in rates if problem.m == published.size), None)
    if own and len(rates[own].keys() & published.gflops.keys()) >= _LEAST:
        return own
    common = common_problem(run, setting)
    return common if common in rates else None


def bend(curve: Curve) -> int:
    """The smallest size with nine tenths of the curve's best rate."""
    best = max(curve.values())
    return min(size for size, rate in curve.items() if rate >= _BENT * best)


def authors(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """For each comparison a pane of the order, and one of the curves where there are any."""
    panes = []
    for pair in comparisons(runs):
        panes.append(pane.Pane(2.2 + pane.ROW * len(pair.order), partial(_paint_order, pair=pair)))
        if pair.curves:
            panes.append(pane.Pane(4.0, partial(_paint_curves, pair=pair)))
    return panes


def _paint_order(axes: Axes, pair: Comparison) -> None:
    """Two marks for each kernel: its share of the fastest's rate there and here; the ranks at the right."""
    published = pair.published
    sides = list(zip(*pair.order.values(), strict=True))
    shares = [[rate / max(side) for rate in side] for side in sides]
    ranks = [[sorted(side, reverse=True).index(rate) + 1 for rate in side] for side in sides]
    lines = range(len(pair.order))
    ends = [(min(both), max(both)) for both in zip(*shares, strict=True)]
    axes.hlines(lines, *zip(*ends, strict=True), color=pane.PALE, linewidth=1.5)
    for values, colour, marker, name in zip(
        shares, (pane.GREY, pane.UP), "Do", ("there", "here"), strict=True
    ):
        axes.plot(values, lines, marker, color=colour, markersize=6, label=name)
        for value, y, kernel in zip(values, lines, pair.order, strict=True):
            pane.mark(axes, value, y, f"{kernel} {name}: {units.percent(value)} of the fastest")
    for column, (head, side) in enumerate(zip(("there", "here"), ranks, strict=True)):
        pane.heading(axes, column, f"rank {head}", (pane.GREY, pane.UP)[column])
        for y, rank in zip(lines, side, strict=True):
            pane.cell(axes, column, y, f"{rank}.", pane.DARK, bold=rank == 1)
    pane.name_rows(axes, dict(enumerate(pair.order)), {})
    axes.set_xlim(0, 1.05)
    axes.set_ylim(len(pair.order) - 0.4, -0.7)
    axes.grid(False, axis="y")
    pane.tick_texts(axes.xaxis, units.percent)
    axes.set_xlabel("share of the fastest of these kernels")
    here, there = pair.problem.title, f"m = n = k = {published.size}"
    below = f"float, {_SCOPE} scope, {here if here == there else f'{here} here, {there} there'}"
    keys = ((f"\N{BLACK DIAMOND} {published.title}, {published.device}", pane.GREY),
            ("\N{BLACK CIRCLE} this run", pane.UP))  # fmt: skip
    pane.titles(axes, pair.title, below, keys)
    pane.footnote(axes, [f"Kendall's rank correlation of the two orders: {pair.agreement:.2f}.",
                         f"There: {published.source}."])  # fmt: skip


def _paint_curves(axes: Axes, pair: Comparison) -> None:
    """Each kernel's rate over size as a share of its own best, the author's dashed."""
    sizes = sorted({size for both in pair.curves.values() for curve in both for size in curve})
    notes = []
    for number, (name, both) in enumerate(pair.curves.items()):
        colour = pane.COLOURS[number % len(pane.COLOURS)]
        for curve, dashes, where in zip(both, ((0, (5, 2.5)), "-"), ("there", "here"), strict=True):
            best = max(curve.values())
            at = sorted(curve)
            axes.plot(at, [curve[size] / best for size in at], marker="o", color=colour, linestyle=dashes,
                      label=f"{name}, {where}")  # fmt: skip
            for size in at:
                said = f"{name} at {size}, {where}: {units.percent(curve[size] / best)} of its own best"
                pane.mark(axes, size, curve[size] / best, said)
        there, here = (f"{bend(curve)}{_fall(curve)}" for curve in both)
        notes.append(f"{name}: 90 % of its best from {there} there, from {here} here.")
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.05)
    size_axis(axes, thinned(sizes), lambda size: str(round(size)))
    pane.tick_texts(axes.yaxis, units.percent)
    axes.set_xlabel("m = n = k")
    axes.set_ylabel("share of the kernel's own best")
    keys = tuple((name, pane.COLOURS[index % len(pane.COLOURS)]) for index, name in enumerate(pair.curves))
    below = f"float, {_SCOPE} scope; dashed: {pair.published.title}, {pair.published.device}"
    pane.titles(axes, pair.title, below, keys)
    pane.footnote(axes, notes)


def _fall(curve: Curve) -> str:
    """What is left at the largest size, where that is less than nine tenths of the best."""
    last = curve[max(curve)] / max(curve.values())
    return f" (at {max(curve)} {units.percent(last)})" if last < _BENT else ""
