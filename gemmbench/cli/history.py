"""``gemmbench history``."""

from __future__ import annotations

from pathlib import Path

import click
from rich.console import RenderableType

from gemmbench import api
from gemmbench.cli import running
from gemmbench.cli.options import takes
from gemmbench.options.comparing import History
from gemmbench.render import history as pages


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
