"""A tuner's search: every configuration in the order of trying, the best so far, the shipped preset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, MaxNLocator

from gemmbench.charts.pane import (
    BLACK,
    COLOURS,
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
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import clean, listed
from gemmbench.tune.result import Attempt, Result, result

_HEIGHT = 4.0  # inches
_BEST, _TRIED = COLOURS[0], COLOURS[5]
_HEADROOM = 1.12


def tune(runs: Sequence[Run], _: Families) -> list[Pane]:
    """A pane for each tuner's run that has measured a configuration."""
    mine = [(run, found) for run in runs if is_tuning(run) and (found := result(run)).ranked]
    return [Pane(_HEIGHT, partial(_paint, run=run, found=found, beside=runs)) for run, found in mine]


def _paint(axes: Axes, run: Run, found: Result, beside: Sequence[Run]) -> None:
    first = run.rows[0]
    top = found.ranked[0].rate or 0.0
    divisor, letter = units.scale(top)
    tried = [(one.number, (one.rate or 0.0) / divisor) for one in found.attempts if one.rate]
    failed = [one.number for one in found.attempts if one.rate is None]
    last = found.attempts[-1].number
    numbers, rates = zip(*tried, strict=True)
    axes.scatter(numbers, rates, s=14, color=_TRIED, linewidths=0, label="configuration", zorder=2)
    if failed:
        axes.scatter(
            failed, [0.0] * len(failed), s=18, marker="x", color=DOWN, label="without a rate", clip_on=False
        )
    steps = _best_so_far(found.attempts)
    axes.step(
        [number for number, _ in steps] + [last],
        [rate / divisor for _, rate in steps] + [top / divisor],
        where="post",
        color=_BEST,
        label="best so far",
        zorder=3,
    )
    shipped = found.default.rate if found.default else None
    if shipped:
        axes.axhline(
            shipped / divisor, color=BLACK, linewidth=1, linestyle=(0, (4, 3)), label="shipped preset"
        )
    axes.set_xlim(0, last + 1)
    axes.set_ylim(0, top / divisor * _HEADROOM)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.number(value))))
    axes.set_xlabel("configuration, in the order of trying")
    axes.set_ylabel(f"{letter}FLOPS, device scope")
    sizes = dict.fromkeys(row.problem for one in found.attempts for row in one.rows if row.problem)
    mean = ", geometric mean" if len(sizes) > 1 else ""
    keys = [("configuration", _TRIED), ("best so far", _BEST)]
    keys += [("-- shipped preset", BLACK)] if shipped else []
    keys += [(f"x without a rate ({len(failed)})", DOWN)] if failed else []
    titles(
        axes,
        own_title(run, first.device, beside),
        f"tune {clean(first.variant)} {first.dtype} at {', '.join(problem.shape for problem in sizes)}{mean}",
        keys,
    )
    best = found.ranked[0]
    gain = f", {units.number(top / shipped)} times the shipped preset's" if shipped else ""
    footnote(
        axes,
        [
            f"Best of the search: {units.rate(top)}{gain} ({listed(best.parameters)}).",
            *_finals(found),
        ],
    )
    axes.tick_params(colors=GREY, labelcolor=BLACK)


def _best_so_far(attempts: Sequence[Attempt]) -> list[tuple[int, float]]:
    """Each attempt that was better than all before it."""
    found: list[tuple[int, float]] = []
    for one in attempts:
        if one.rate and (not found or one.rate > found[-1][1]):
            found.append((one.number, one.rate))
    return found


def _finals(found: Result) -> list[str]:
    if found.overall is None:
        return []
    median, low, high = map(units.ratio, (found.overall.median, found.overall.low, found.overall.high))
    decision = "kept" if found.is_kept else "the preset stays"
    return [
        f"Timed again in turns, the winner is {median} ({low} to {high}) times as fast as the shipped "
        f"preset: {decision}."
    ]
