"""``gemmbench history``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import RenderableType

from gemmbench.cli import running
from gemmbench.cli.comparing import (
    check_paths,
    load_all,
    ratio_option,
    references,
    scope_option,
    the_scope,
    threshold_of,
)
from gemmbench.cli.options import UserError
from gemmbench.facts.compare.basis import Rules
from gemmbench.facts.history import History
from gemmbench.facts.history import history as follow
from gemmbench.render import history as pages

FORMATS = ("table", "markdown", "csv", "json")


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@click.option(
    "--threshold",
    metavar="PERCENT",
    help="How large a change must be to count: '5 %' or 0.05.  [default: 5 %]",
)
@scope_option
@ratio_option
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("--plot", type=click.Path(path_type=Path), metavar="FILE.png|svg|pdf", help="Draw the rows.")
@click.option("-v", "--verbose", is_flag=True, help="Every row, also where many are steady.")
def history(
    files: tuple[Path, ...],
    threshold: str | None,
    scope: str,
    ratio: str | None,
    form: str,
    plot: Path | None,
    verbose: bool,
) -> None:
    """Follow every row over many saved runs.

    Runs go in the order of their starts. A change of level that lasts is marked, with the run that it began
    with (from eight runs on); the verdict is of what followed the last change, or of the last run, against
    what was before it.
    """
    check_paths(files, plot)
    rules = Rules(threshold_of(threshold), scope=the_scope(scope), ratio=references(ratio))
    with running.user_errors():
        found = follow(load_all(tuple({path.resolve(): path for path in files}.values())), rules)
    if not found.tracks:
        raise UserError("there is nothing to follow: no row of these runs has a time")
    running.show(_rendered(found, form, verbose))
    if plot is not None:
        _draw(found, plot)


def _rendered(found: History, form: str, every: bool) -> RenderableType:
    if form == "json":
        return pages.to_json(found)
    if form == "csv":
        return pages.to_csv(found)
    return pages.to_markdown(found, every) if form == "markdown" else pages.table(found, every)


def _draw(found: History, path: Path) -> None:
    from gemmbench import charts
    from gemmbench.charts.history import tracks

    running.drawn(lambda: charts.draw_panes(lambda: tracks(found), path, "rows", across=2), path)
