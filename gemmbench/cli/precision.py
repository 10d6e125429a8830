"""``gemmbench precision``."""

from __future__ import annotations

import click
from rich.console import RenderableType

from gemmbench.cli import running
from gemmbench.cli.ladder import LadderOptions, ladder_options
from gemmbench.cli.options import RunOptions, UserError, choose_sizes
from gemmbench.facts.records import Run
from gemmbench.render.detail import detail
from gemmbench.render.precision import precision as table
from gemmbench.rules.plan import Case, Plan, Skip
from gemmbench.rules.variants import ORDER
from gemmbench.rules.workloads import Shape

_DTYPES = "half,float,double"
_DEFAULT = 1024


@click.command()
@click.option(
    "--sizes",
    "--size",
    default=str(_DEFAULT),
    show_default=True,
    metavar="LIST",
    help="m = n = k; several with commas give a table each.",
)
@ladder_options(
    click.option(
        "--dtype",
        default=_DTYPES,
        show_default=True,
        metavar="TYPES",
        help="Data types, the columns of the table; several with commas.",
    )
)
def precision(options: RunOptions, ladder: LadderOptions, sizes: str) -> None:
    """Hold half, float and double side by side.

    Every kernel of the ladder in every data type on one square problem: GFLOPS, the fraction of the type's
    own peak, and what half and double are of float. A type that the device lacks says so.
    """
    if options.plot and len(ladder.dtypes) < 2:
        raise UserError("--plot holds data types against each other; --dtype has only one")
    chosen = choose_sizes(sizes, None, _DEFAULT)
    shapes = tuple(Shape("", size, size, size) for size in chosen)

    def render(run: Run) -> RenderableType:
        if ladder.scope == "all" or options.verbose:
            return detail(run, ORDER)
        return table(run, ladder.scope, ORDER)

    running.measure(
        options,
        lambda devices: interleaved(ladder.plan(devices, shapes)),
        render,
        "precision",
        ladder.scope,
        chart="precision",
    )


def interleaved(plan: Plan) -> Plan:
    """A kernel's data types one after another, so that their ratios do not hold two moods of a machine."""

    def place(step: Case | Skip) -> tuple[bool, int, int, int]:
        what = step.row if isinstance(step, Skip) else step
        if what.problem is None:
            return False, 0, 0, 0
        return True, max(what.device, 0), what.problem.m, ORDER.index(what.variant)

    return tuple(sorted(plan, key=place))
