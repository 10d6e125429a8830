"""``gemmbench plot``."""

from __future__ import annotations

from pathlib import Path

import click

from gemmbench.cli import running
from gemmbench.cli.options import UserError, check_plot_path
from gemmbench.facts.records import load


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--kind", help="What to draw; `list` names the kinds.  [default: what suits the run]")
@click.option(
    "-o",
    "--out",
    "--plot",
    "out",
    type=click.Path(path_type=Path),
    metavar="FILE.png|svg|pdf",
    help="The chart.  [default: the first run's name, .png]",
)
def plot(files: tuple[Path, ...], kind: str | None, out: Path | None) -> None:
    """Draw charts from saved runs."""
    from gemmbench import charts

    if kind == "list":
        for name, idea in charts.KINDS.items():
            click.echo(f"{name:<14}{idea}")
        return
    if kind is not None and kind not in charts.KINDS:
        raise UserError(f"unknown kind of chart {kind!r}; there are {', '.join(charts.KINDS)}")
    with running.user_errors():
        runs = [load(file) for file in files]
    path = out or Path(f"{files[0].stem}.png")
    check_plot_path(path)
    running.draw(runs, kind, path)
