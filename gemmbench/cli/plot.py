"""``gemmbench plot``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from gemmbench import UsageError, api
from gemmbench.cli import running
from gemmbench.facts.chart_files import named
from gemmbench.facts.records import Run
from gemmbench.options.names import check_plot_path
from gemmbench.rules.variants import FAMILIES


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path))
@click.option(
    "--kind",
    help="What to draw; `list` names the kinds, `all` draws every kind that suits, each into a file of its "
    "own: out-ladder.png.  [default: what suits the run]",
)
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
    """Draw charts from saved runs.

    Sweeps of several runs lie over each other. A run of `peak --all` beside others lends the roofline its
    peak and bandwidth.
    """
    from gemmbench import charts

    if kind == "list":
        for name, one in charts.KINDS.items():
            click.echo(f"{name:<14}{one.idea}")
        return
    if not files:
        raise click.UsageError("Missing argument 'FILES...'.", click.get_current_context())
    if kind not in (None, "all", *charts.KINDS):
        raise UsageError(f"unknown kind of chart {kind!r}; there are {', '.join(charts.KINDS)} and all")
    runs = api.runs_of(files)
    path = out or Path(f"{files[0].stem}.png")
    check_plot_path(path)
    if kind == "all":
        _draw_all(runs, path)
    else:
        running.draw(runs, kind, path)


def _draw_all(runs: Sequence[Run], path: Path) -> None:
    """Every kind that the runs have rows for, and why the others are not drawn.

    Raises:
        UsageError: none could be drawn, or a file cannot be written.
    """
    from gemmbench import charts

    suited = charts.suited(runs, FAMILIES)
    paths = {kind: named(path, kind) for kind, why in suited.items() if not why}
    for each in paths.values():
        check_plot_path(each)
    for kind, why in suited.items():
        if why:
            click.echo(f"Not drawn: {kind}: {why}.", err=True)
    if not paths:
        raise UsageError(f"nothing to draw: no kind of chart suits {', '.join(run.path for run in runs)}")
    for kind, each in paths.items():
        running.draw(runs, kind, each)
