"""``gemmbench show``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import RenderableType

from gemmbench.cli import running
from gemmbench.facts.records import Run, load
from gemmbench.render import export
from gemmbench.render.show import show as table
from gemmbench.rules.variants import ORDER

FORMATS = ("table", "json", "csv", "markdown")


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(FORMATS), default="table", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Every row, every scope.")
def show(file: Path, form: str, verbose: bool) -> None:
    """Show a saved run as table, JSON, CSV or markdown."""
    with running.user_errors():
        run = load(file)
    running.show(renderer(form, verbose)(run))


def renderer(form: str, verbose: bool = False) -> running.Render:
    """What turns a run into a format's output: text for machines, a table for people."""

    def render(run: Run) -> RenderableType:
        if form == "json":
            return export.to_json(run)
        if form == "csv":
            return export.to_csv(run)
        if form == "markdown":
            return export.to_markdown(run, ORDER)
        return table(run, ORDER, verbose)

    return render
