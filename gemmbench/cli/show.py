"""``gemmbench show``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import click

from gemmbench import api
from gemmbench.cli import running
from gemmbench.facts.records import Run
from gemmbench.options.measuring import RUN_FORMATS
from gemmbench.render import export
from gemmbench.rules.variants import ORDER


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--format", "form", type=click.Choice(RUN_FORMATS), default="table", show_default=True)
@click.option("-v", "--verbose", is_flag=True, help="Every row, every scope.")
def show(file: Path, form: str, verbose: bool) -> None:
    """Show a saved run as table, JSON, CSV or markdown."""
    run = api.load(file)
    text = as_text(form)
    running.show(text(run) if text else run.table(verbose))


def as_text(form: str) -> Callable[[Run], str] | None:
    """What turns a run into text for machines; None for a table, which is for people."""
    text = export.FORMATS.get(form)
    return None if text is None else lambda run: text(run, ORDER)
