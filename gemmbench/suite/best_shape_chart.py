"""The shapes that `best-shape` looked at: the rate over the work, and each kernel's best, measured anew."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.charts.pane import COLOURS, DARK, GREY, Families, Pane
from gemmbench.model import units
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import rates
from gemmbench.suite.best_shape import rate_of
from gemmbench.suite.best_shape_table import Hunt, hunts, sentence

_HEIGHT = 4.2  # inches
_HEADROOM = 1.15


def panes(runs: Sequence[Run], _: Families) -> list[Pane]:
    """A pane for each device and data type that has a search with a rate."""
    made = []
    for run in runs:
        groups: dict[tuple[int, str], list[Hunt]] = {}
        for hunt in hunts(run):
            if hunt.ranked:
                groups.setdefault((hunt.first.device, hunt.first.dtype), []).append(hunt)
        made += [
            Pane(_HEIGHT, partial(_paint, run=run, group=group, beside=runs)) for group in groups.values()
        ]
    return made


def _paint(axes: Axes, run: Run, group: Sequence[Hunt], beside: Sequence[Run]) -> None:
    first = group[0].first
    integer = rates.is_integer(first.dtype)
    top = max(rate_of(hunt.ranked[0]) for hunt in group)
    scale, letter = units.scale(top)
    keys = []
    for number, hunt in enumerate(group):
        colour = COLOURS[number % len(COLOURS)]
        work = [float(rates.gemm_of(look).flops) for look in hunt.ranked]
        reached = [rate_of(look) / scale for look in hunt.ranked]
        axes.scatter(work, reached, s=16, color=colour, alpha=0.6, linewidths=0, zorder=2)
        for look, x, y in zip(hunt.ranked, work, reached, strict=True):
            said = units.rate(rate_of(look), integer)
            pane.mark(axes, x, y, f"{clean(look.title)} {rates.gemm_of(look).shape}: {said}")
        keys.append((clean(hunt.first.title), colour))
        for rate, marker in ((hunt.burst, "D"), (hunt.settled, "s")):
            if rate:
                x, y = float(rates.gemm_of(hunt.first).flops), rate.median / scale
                axes.plot([x], [y], marker, color=colour, markeredgecolor=DARK, markersize=7, zorder=4)
                pane.mark(axes, x, y, sentence(hunt))
    axes.set_xscale("log")
    pane.log_ticks(axes.xaxis, lambda value: units.number(value / units.GIGA), 1e6)
    axes.set_ylim(0, top / scale * _HEADROOM)
    pane.tick_texts(axes.yaxis, units.number)
    axes.set_xlabel("2 m n k, billions of operations")
    axes.set_ylabel(f"{letter}{'IOPS' if integer else 'FLOPS'}, device scope")
    axes.tick_params(colors=GREY, labelcolor=DARK)
    states = dict.fromkeys(hunt.state for hunt in group)
    pane.titles(
        axes,
        pane.own_title(run, first.device, beside),
        f"best shape in {first.dtype}: every shape looked at ({', '.join(states)}), the best measured anew",
        [*keys, ("diamond: in bursts", DARK), ("square: settled", DARK)],
    )
    pane.footnote(axes, [f"Best: {sentence(hunt)}" for hunt in group if hunt.settled])
