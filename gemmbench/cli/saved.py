"""The commands that read saved runs: show, plot, history."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.console import RenderableType

from gemmbench import UsageError, api, views
from gemmbench.charts import named
from gemmbench.cli import running
from gemmbench.cli.running import takes
from gemmbench.ladder import FAMILIES, ORDER
from gemmbench.model.run_file import Run
from gemmbench.options.comparing import History
from gemmbench.options.declare import check_plot_path
from gemmbench.options.measuring import RUN_FORMATS
from gemmbench.regress import history_table as pages


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
    text = views.FORMATS.get(form)
    return None if text is None else lambda run: text(run, ORDER)


# --- ``gemmbench plot`` -------------------------------------------------------------------------------------


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
    from gemmbench import chart_views  # matplotlib takes a second to import

    if kind == "list":
        for name, chart in chart_views.KINDS.items():
            click.echo(f"{name:<14}{chart.idea}")
        return
    if not files:
        raise click.UsageError("Missing argument 'FILES...'.", click.get_current_context())
    if kind not in (None, "all", *chart_views.KINDS):
        raise UsageError(f"unknown kind of chart {kind!r}; there are {', '.join(chart_views.KINDS)} and all")
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

    from gemmbench import chart_views

    suited = chart_views.suited(runs, FAMILIES)
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


# --- ``gemmbench history`` ----------------------------------------------------------------------------------


@click.command()
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="FILE...")
@takes(History)
def history(options: History, files: tuple[Path, ...]) -> None:
    """Follow every row over many saved runs.

    Runs go in the order of their starts. A change of level that lasts is marked, with the run that it began
    with (from eight runs on); the verdict is of what followed the last change, or of the last run, against
    what was before it.
    """
    runs = api.runs_of({path.resolve(): path for path in files}.values())
    tracks = api.followed(runs, options)
    running.show(_rendered(tracks, options))
    if options.plot is not None:
        api.draw_history(tracks, options.plot)
        running.say_drawn(options.plot)


def _rendered(tracks: api.History, options: History) -> RenderableType:
    if options.format == "json":
        return pages.to_json(tracks)
    if options.format == "csv":
        return pages.to_csv(tracks)
    if options.format == "markdown":
        return pages.to_markdown(tracks, options.verbose)
    return pages.table(tracks, options.verbose)
