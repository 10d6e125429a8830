"""A tuner's search: every configuration in the order of trying, the best so far, the shipped preset."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

from matplotlib.axes import Axes
from matplotlib.ticker import MaxNLocator

from gemmbench.charts import pane
from gemmbench.model import units
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import clean, listed
from gemmbench.tune.result import Result, result

_HEIGHT = 4.0  # inches
_BEST, _TRIED = pane.COLOURS[0], pane.COLOURS[5]
_HEADROOM = 1.12


def tune(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """A pane for each tuner's run that has measured a configuration."""
    tunings = [(run, outcome) for run in runs if is_tuning(run) and (outcome := result(run)).ranked]
    return [
        pane.Pane(_HEIGHT, partial(_paint, run=run, outcome=outcome, beside=runs)) for run, outcome in tunings
    ]


def _paint(axes: Axes, run: Run, outcome: Result, beside: Sequence[Run]) -> None:
    first = run.rows[0]
    top = outcome.ranked[0].rate or 0.0
    divisor, letter = units.scale(top)
    tried = [(each.number, (each.rate or 0.0) / divisor) for each in outcome.attempts if each.rate]
    failed = [each.number for each in outcome.attempts if each.rate is None]
    last = outcome.attempts[-1].number
    numbers, rates = zip(*tried, strict=True)
    axes.scatter(numbers, rates, s=14, color=_TRIED, linewidths=0, label="configuration", zorder=2)
    for each in outcome.attempts:
        said = f"{each.number}: {units.rate(each.rate)}" if each.rate else f"{each.number}: no rate"
        pane.mark(axes, each.number, (each.rate or 0.0) / divisor, f"{said} ({listed(each.parameters)})")
    if failed:
        zeros = [0.0] * len(failed)
        axes.scatter(failed, zeros, s=18, marker="x", color=pane.DOWN, label="without a rate", clip_on=False)
    steps: list[tuple[int, float]] = []  # each attempt that was better than all before it
    for number, rate in tried:
        if not steps or rate > steps[-1][1]:
            steps.append((number, rate))
    x, y = zip(*steps, (last, top / divisor), strict=True)
    axes.step(x, y, where="post", color=_BEST, label="best so far", zorder=3)
    shipped = outcome.default.rate if outcome.default else None
    if shipped:
        style: dict[str, Any] = {"color": pane.BLACK, "linewidth": 1, "linestyle": (0, (4, 3))}
        axes.axhline(shipped / divisor, label="shipped preset", **style)
    axes.set_xlim(0, last + 1)
    axes.set_ylim(0, top / divisor * _HEADROOM)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    pane.tick_texts(axes.yaxis, units.number)
    axes.set_xlabel("configuration, in the order of trying")
    axes.set_ylabel(f"{letter}FLOPS, device scope")
    sizes = dict.fromkeys(row.problem for attempt in outcome.attempts for row in attempt.rows if row.problem)
    mean = ", geometric mean" if len(sizes) > 1 else ""
    keys = [("configuration", _TRIED), ("best so far", _BEST)]
    keys += [("-- shipped preset", pane.BLACK)] if shipped else []
    keys += [(f"x without a rate ({len(failed)})", pane.DOWN)] if failed else []
    pane.titles(
        axes,
        pane.own_title(run, first.device, beside),
        f"tune {clean(first.variant)} {first.dtype} at {', '.join(problem.shape for problem in sizes)}{mean}",
        keys,
    )
    best = outcome.ranked[0]
    gain = f", {units.number(top / shipped)} times the shipped preset's" if shipped else ""
    lines = [f"Best of the search: {units.rate(top)}{gain} ({listed(best.parameters)})."]
    if overall := outcome.overall:
        median, low, high = map(units.ratio, (overall.median, overall.low, overall.high))
        decision = "kept" if outcome.is_kept else "the preset stays"
        lines.append(
            f"Timed again in turns, the winner is {median} ({low} to {high}) times as fast as the shipped "
            f"preset: {decision}."
        )
    pane.footnote(axes, lines)
    axes.tick_params(colors=pane.GREY, labelcolor=pane.BLACK)
