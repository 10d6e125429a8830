"""``gemmbench square`` and ``gemmbench sweep-k``."""

from __future__ import annotations

import click
from rich.console import RenderableType

from gemmbench.cli import running
from gemmbench.cli.ladder import LadderOptions, ladder_options
from gemmbench.cli.options import RunOptions, choose_sizes
from gemmbench.facts.records import Run
from gemmbench.render import sweep as tables
from gemmbench.render.show import AXES
from gemmbench.rules.variants import ORDER
from gemmbench.rules.workloads import Shape

_size = click.IntRange(min=1)
_sizes = click.option("--sizes", metavar="LIST", help="These sizes, with commas, instead of a range.")


def _run(options: RunOptions, ladder: LadderOptions, view: str, shapes: tuple[Shape, ...]) -> None:
    """Sweep shapes of which one dimension varies, m with n and k or k alone, as the view says."""

    def table(run: Run) -> RenderableType:
        if ladder.scope == "all" or options.verbose:
            return tables.detail(run, ORDER)
        return tables.sweep(run, AXES[view], ladder.scope, ORDER)

    running.measure(options, lambda devices: ladder.plan(devices, shapes), table, view, ladder.scope)


@click.command()
@click.option("--min", "low", type=_size, help="The smallest size.  [default: 64]")
@click.option("--max", "high", type=_size, default=1024, show_default=True, help="The largest size.")
@_sizes
@ladder_options()
def square(options: RunOptions, ladder: LadderOptions, low: int | None, high: int, sizes: str | None) -> None:
    """Sweep square problems: m = n = k.

    Sizes are the powers of two from --min to --max, or those of --sizes. Every kernel is verified before it
    is timed; the host's own BLAS runs beside them, and the break-even size says from where the device
    wins with transfers counted.
    """
    chosen = choose_sizes(sizes, low, high)
    _run(options, ladder, "square", tuple(Shape("", size, size, size) for size in chosen))


@click.command(name="sweep-k")
@click.option("--m", "m", type=_size, default=1024, show_default=True, help="Rows of A and C.")
@click.option("--n", "n", type=_size, default=1024, show_default=True, help="Columns of B and C.")
@click.option("--k-min", "low", type=_size, help="The smallest k.  [default: 64]")
@click.option("--k-max", "high", type=_size, default=2048, show_default=True, help="The largest k.")
@_sizes
@ladder_options()
def sweep_k(
    options: RunOptions, ladder: LadderOptions, m: int, n: int, low: int | None, high: int, sizes: str | None
) -> None:
    """Sweep k with m and n fixed.

    The write-ups' second experiment: a = c fixed while b varies. k takes the powers of two from --k-min to
    --k-max, or the values of --sizes.
    """
    chosen = choose_sizes(sizes, low, high)
    _run(options, ladder, "sweep-k", tuple(Shape("", m, n, size) for size in chosen))
