"""Charts of grids, and of a run beside the authors' own figures."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from gemmbench.charts import pane
from gemmbench.charts.lines import size_axis, thinned
from gemmbench.ladder.published import PUBLISHED, Published
from gemmbench.model import units
from gemmbench.model.instrument import is_too_slow
from gemmbench.model.row import Problem, Row, titled
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, listed
from gemmbench.report.notes import WORDS
from gemmbench.report.progress import sample
from gemmbench.stats import rates as derive
from gemmbench.stats.panels import Setting, common_problem, problems, rank_correlation, standings

_CELL = 0.42  # inches down the page
_LEAST_CELL = 2.2
_GRID_LINE = 3.4
_SHADES = LinearSegmentedColormap.from_list("rate", ["#F3F6FA", "#8FBBDA", pane.COLOURS[0], "#003A5D"])
_DARK = 0.45  # of the shades: from here on words are white
_NOTHING = "#EEEEEE"


@dataclass(frozen=True, eq=False)
class Grid:
    """The combinations of one kernel's parameters, of one run, device, data type and problem."""

    run: Run
    title: str
    problem: Problem
    rows: tuple[Row, ...]

    @cached_property
    def axes(self) -> list[str]:
        """The parameters by number of values, most first; of as many, in the order that they were given."""
        names = self.rows[0].grid
        return sorted(names, key=lambda name: -len(self.values(name)))

    @property
    def kernel(self) -> str:
        """Whose they are, and the data type."""
        first = self.rows[0]
        return f"{clean(titled(first.variant, first.parameters))} {first.dtype}"

    def values(self, name: str) -> list[int]:
        """What a parameter was, smallest first."""
        return sorted({int(row.parameters[name]) for row in self.rows})

    @property
    def scope(self) -> str:
        """What combinations are compared in."""
        return derive.view_scope(self.run)

    def rate(self, row: Row | None) -> float | None:
        """In flop/s."""
        return derive.median_rate(row, self.scope)

    def best(self, **at: int) -> Row | None:
        """The fastest row with these values, else one that says why there is no rate; None without a row."""
        rows = [row for row in self.rows if all(row.parameters[name] == at[name] for name in at)]
        return max(rows, key=lambda row: self.rate(row) or 0.0, default=None)


def heat_map(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """A pane for each kernel and problem with a grid of which a combination was measured.

    Over one parameter the problems are lines in one pane.
    """
    panes = []
    for subject in pane.subjects(runs, lambda row: row.kind == "gemm" and bool(row.grid)):
        kernels = by_key((titled(row.variant, row.parameters), row) for row in subject.rows)
        for own_rows in kernels.values():
            grids = []
            for problem in dict.fromkeys(row.problem for row in own_rows):
                assert problem is not None  # of every GEMM's row
                rows = tuple(row for row in own_rows if row.problem == problem)
                grid = Grid(subject.run, subject.title, problem, rows)
                if grid.rate(grid.best()):
                    grids.append(grid)
            if grids and len(grids[0].axes) == 1:
                panes.append(pane.Pane(_GRID_LINE, partial(_paint_lines, grids=grids)))
            else:
                for grid in grids:
                    height = max(_LEAST_CELL, 1.5 + _CELL * len(grid.values(grid.axes[1])))
                    panes.append(pane.Pane(height, partial(_paint_cells, grid=grid)))
    return panes


def _paint_cells(axes: Axes, grid: Grid) -> None:
    """Cells of the two parameters with the most values, the best over the others in each."""
    across, down = grid.axes[:2]
    xs, ys = grid.values(across), grid.values(down)
    top = grid.best()
    highest = grid.rate(top) or 0.0
    divisor, letter = units.scale(highest)
    for j, y in enumerate(ys):
        for i, x in enumerate(xs):
            row = grid.best(**{across: x, down: y})
            rate = grid.rate(row)
            share = rate / highest if rate else 0.0
            text = units.number(rate / divisor) if rate else WORDS[row.status] if row else ""
            style: dict[str, Any] = {"facecolor": _SHADES(share), "edgecolor": "white"}
            if not rate:
                style = {"facecolor": _NOTHING, "edgecolor": pane.PALE, "hatch": "///", "linewidth": 0}
            axes.add_patch(Rectangle((i - 0.5, j - 0.5), 1, 1, **style))
            if row:
                pane.mark(axes, i, j, sample(grid.run, row, grid.scope))
            is_best = rate == highest
            colour = "white" if rate and share > _DARK else pane.BLACK if rate else pane.GREY
            axes.text(
                i, j, f"* {text}" if is_best else text, ha="center", va="center", color=colour, fontsize=8.5,
                fontweight="bold" if is_best else "normal",
            )  # fmt: skip
            if is_best:
                axes.add_patch(
                    Rectangle(
                        (i - 0.46, j - 0.46), 0.92, 0.92, fill=False, linewidth=2.2, zorder=3,
                        edgecolor=pane.COLOURS[1],
                    )
                )  # fmt: skip
    axes.set_xlim(-0.5, len(xs) - 0.5)
    axes.set_ylim(-0.5, len(ys) - 0.5)
    axes.set_xticks(range(len(xs)), list(map(str, xs)))
    axes.set_yticks(range(len(ys)), list(map(str, ys)))
    axes.set_xlabel(clean(across))
    axes.set_ylabel(clean(down))
    axes.grid(False)
    axes.tick_params(length=0)
    for spine in axes.spines.values():
        spine.set_visible(False)
    rest = grid.axes[2:]
    over = f", best over {', '.join(map(clean, rest))}" if rest else ""
    pane.titles(
        axes, grid.title, f"{grid.kernel} at {grid.problem.shape}: {letter}FLOPS, {grid.scope} scope{over}"
    )
    best = listed({name: top.parameters[name] for name in top.grid}) if top else ""
    pane.footnote(axes, [f"* best: {best}.", *_left_out([grid])])


def _paint_lines(axes: Axes, grids: Sequence[Grid]) -> None:
    """The rate over one parameter: a line for each problem, its best marked."""
    first = grids[0]
    (name,) = first.axes
    values = first.values(name)
    divisor, letter = units.scale(max(grid.rate(grid.best()) or 0.0 for grid in grids))
    keys = []
    for grid, colour in zip(grids, [*pane.COLOURS] * len(grids), strict=False):
        rated = [
            (values.index(value), rate, row)
            for value in values
            if (row := grid.best(**{name: value})) and (rate := derive.shown_rate(row, grid.scope))
        ]
        xs = [x for x, _, _ in rated]
        axes.plot(xs, [rate.median / divisor for _, rate, _ in rated], "o-", color=colour)
        for x, rate, row in rated:
            pane.mark(axes, x, rate.median / divisor, sample(grid.run, row, grid.scope))
        for x, rate, _ in rated:  # an interval that is not known is NaN, and draws nothing
            axes.plot([x, x], [rate.low / divisor, rate.high / divisor], color=colour, linewidth=1)
        x, best, _ = max(rated, key=lambda each: each[1].median)
        pane.say(
            axes, f"* {units.number(best.median / divisor)}", (x, best.median / divisor), (0, 6),
            ha="center", fontsize=8.5, fontweight="bold", color=colour,
        )  # fmt: skip
        keys.append((f"{grid.problem.shape}", colour))
    axes.set_xticks(range(len(values)), list(map(str, values)))
    axes.set_xlim(-0.4, len(values) - 0.6)
    axes.set_ylim(0, axes.get_ylim()[1] * 1.08)
    axes.set_xlabel(clean(name))
    axes.set_ylabel(f"{letter}FLOPS, {first.scope} scope")
    pane.tick_texts(axes.yaxis, units.number)
    pane.titles(axes, first.title, f"{first.kernel} over {clean(name)}; bars: 95 % intervals", keys)
    pane.footnote(axes, ["* the best of its line.", *_left_out(grids)])


def _left_out(grids: Sequence[Grid]) -> list[str]:
    bad = [row for grid in grids for row in grid.rows if row.status != "ok"]
    reasons = Counter(
        f"{WORDS[row.status]}: {'longer than its budget' if is_too_slow(row) else clean(row.reason)}"
        for row in bad
    )
    return [f"{count} without a rate, {text}." for text, count in reasons.items()]


_SCOPE = "kernel"  # the authors timed the product alone
_LEAST_KERNELS = 3  # kernels, for an order
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
            there = published.at(published.size)
            order = {name: (rate, own[name]) for name, rate in there.items() if name in own}
            if len(order) < _LEAST_KERNELS:
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
    if own and len(rates[own].keys() & published.gflops.keys()) >= _LEAST_KERNELS:
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
