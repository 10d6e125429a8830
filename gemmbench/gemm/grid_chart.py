"""A grid of kernel parameters: a heat map of the rate over two of them, a line over one."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.colors import LinearSegmentedColormap
from matplotlib.patches import Rectangle

from gemmbench.charts import pane
from gemmbench.model import units
from gemmbench.model.instrument import is_too_slow
from gemmbench.model.row import Problem, Row, titled
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, listed
from gemmbench.report.notes import WORDS
from gemmbench.report.sample import sample
from gemmbench.stats import rates as derive

_CELL = 0.42  # inches down the page
_LEAST = 2.2
_LINE = 3.4
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
        kernels: dict[str, list[Row]] = {}
        for row in subject.rows:
            kernels.setdefault(titled(row.variant, row.parameters), []).append(row)
        for own_rows in kernels.values():
            grids = []
            for problem in dict.fromkeys(row.problem for row in own_rows):
                assert problem is not None  # of every GEMM's row
                rows = tuple(row for row in own_rows if row.problem == problem)
                grid = Grid(subject.run, subject.title, problem, rows)
                if grid.rate(grid.best()):
                    grids.append(grid)
            if grids and len(grids[0].axes) == 1:
                panes.append(pane.Pane(_LINE, partial(_paint_lines, grids=grids)))
            else:
                panes += [pane.Pane(_height(grid), partial(_paint_cells, grid=grid)) for grid in grids]
    return panes


def _height(grid: Grid) -> float:
    return max(_LEAST, 1.5 + _CELL * len(grid.values(grid.axes[1])))


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
        axes,
        grid.title,
        f"{grid.kernel} at {grid.problem.shape}: {letter}FLOPS, {grid.scope} scope{over}",
    )
    pane.footnote(axes, [f"* best: {_words(top)}.", *_left_out([grid])])


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


def _words(row: Row | None) -> str:
    """A combination's parameters."""
    return listed({name: row.parameters[name] for name in row.grid}) if row else ""


def _left_out(grids: Sequence[Grid]) -> list[str]:
    """Combinations without a rate, by reason."""
    bad = [row for grid in grids for row in grid.rows if row.status != "ok"]
    reasons = Counter(
        f"{WORDS[row.status]}: {'longer than its budget' if is_too_slow(row) else clean(row.reason)}"
        for row in bad
    )
    return [f"{count} without a rate, {text}." for text, count in reasons.items()]
