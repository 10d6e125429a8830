"""``gemmbench workloads``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from gemmbench.cli import running
from gemmbench.cli.ladder import LadderOptions, ladder_options
from gemmbench.cli.options import RunOptions, UserError, choose
from gemmbench.facts.records import Run
from gemmbench.render.detail import detail
from gemmbench.render.workloads import workloads as table
from gemmbench.rules.shape_file import ShapeFileError, read_shapes
from gemmbench.rules.variants import ORDER
from gemmbench.rules.workloads import PROMPT, SETS, Shape, merged

_count = click.IntRange(min=1)


@click.command()
@click.option(
    "--set",
    "sets",
    metavar="NAMES",
    help=f"{', '.join(SETS)} or all; several with commas.  [default: all, or none beside --file]",
)
@click.option(
    "--file",
    type=click.Path(path_type=Path),
    metavar="FILE.csv",
    help="Your own shapes: columns m, n, k and, if you like, name.",
)
@click.option("--batch", type=_count, default=1, show_default=True, help="Images, or sequences, at once.")
@click.option("--prompt", type=_count, default=PROMPT, show_default=True, help="Tokens of a prompt.")
@ladder_options()
def workloads(
    options: RunOptions, ladder: LadderOptions, sets: str | None, file: Path | None, batch: int, prompt: int
) -> None:
    """Measure real shapes: AlexNet, a transformer, or your own.

    The layers of AlexNet lowered to GEMM, the projections of a 7B transformer for one token and for a
    prompt, odd and non-square sizes, and a CSV file of your own. The table names the best kernel for each
    shape; -v shows every kernel. --dry-run lists the shapes and where they come from.
    """
    names = _choose_sets(sets, file)
    shapes = _shapes(names, file, batch, prompt)
    if options.dry_run:
        for name in names:
            running.show(Text(f"{name}: {SETS[name].idea} ({SETS[name].source}).\n"))

    def render(run: Run) -> RenderableType:
        if ladder.scope == "all" or options.verbose:
            return detail(run, ORDER)
        return table(run, ladder.scope, ORDER)

    running.measure(options, lambda devices: ladder.plan(devices, shapes), render, "workloads", ladder.scope)


def _choose_sets(text: str | None, file: Path | None) -> tuple[str, ...]:
    """The sets that are asked for, in their own order.

    Raises:
        UserError: one is unknown.
    """
    if text is None:
        return () if file else tuple(SETS)
    words = choose(text, (*SETS, "all"), "set of shapes")
    return tuple(name for name in SETS if name in words or "all" in words)


def _shapes(names: Sequence[str], file: Path | None, batch: int, prompt: int) -> tuple[Shape, ...]:
    """The shapes of sets and of a file, each m, n, k once.

    Raises:
        UserError: the file cannot be used.
    """
    shapes = [shape for name in names for shape in SETS[name].shapes(batch, prompt)]
    if file:
        try:
            shapes += read_shapes(file)
        except ShapeFileError as error:
            raise UserError(str(error)) from None
    return merged(shapes)
