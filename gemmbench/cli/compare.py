"""The commands that read saved runs: compare, check, show, plot, report."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Group, RenderableType

from gemmbench import UsageError, api
from gemmbench.charts import add_kind, load_matplotlib
from gemmbench.cli import running
from gemmbench.cli.running import Grouped, click_option, make_completer
from gemmbench.exports import records
from gemmbench.ladder import families
from gemmbench.model.run_file import Run
from gemmbench.report.table import Entry, catalogue
from gemmbench.suite import job
from gemmbench.suite.options import CHART, FILE
from gemmbench.suite.options.comparing import CheckOptions, CompareOptions, ReportOptions
from gemmbench.suite.options.measuring import PeakOptions, SquareOptions


def _compare(options: CompareOptions, files: tuple[Path, ...]) -> None:
    """Compare the files before ``--``, or all but the last, with the rest."""
    words = running.command_words()  # new runs are those after `--`, or else the last file
    after = len(words) - words.index("--") - 1 if "--" in words else 1
    after = 1 if after == len(files) else after
    bases, news = files[: len(files) - after], files[len(files) - after :]
    if not bases or not news:
        raise UsageError("compare takes a baseline and a new run: gemmbench compare base.jsonl new.jsonl")
    running.execute(api.comparison_job(bases, news, options))


def _check(options: CheckOptions, bases: tuple[Path, ...]) -> None:
    running.execute(api.check_job(bases, options, running.command_words()))


def _report(options: ReportOptions, files: tuple[Path, ...]) -> None:
    job.print_message(f"Wrote {api.save_report(files, options)}.")


def _files(name: str, metavar: str, required: bool = True) -> click.Argument:
    return click.Argument((name,), nargs=-1, type=FILE, metavar=metavar, required=required)


compare_command = running.command(CompareOptions, _compare, _files("files", "BASE... NEW", required=False))
check_command = running.command(CheckOptions, _check, _files("bases", "BASE..."))
report_command = running.command(ReportOptions, _report, _files("files", "FILE|FOLDER..."))
_SHOW_HELP = """Show a saved run as a table, or in a format for other programs.

    The schemas describe a saved run's header (line 1), its rows, and the records that --format json prints.
    """


@click.command("show", Grouped, help=_SHOW_HELP)
@click.argument("file", required=False, type=FILE)
@click_option(
    SquareOptions, "kernels", default=None, show_default=False, help="Show only these kernels and libraries."
)
@click_option(SquareOptions, "sizes", help="Show only these sizes of a sweep.")
@click_option(SquareOptions, "scope")
@click_option(PeakOptions, "format")
@click.option("-o", "--out", type=FILE, metavar="FILE", help="Write to this file, replacing it.")
@click.option("--repetitions", is_flag=True, help="With google-benchmark: every batch, not only medians.")
@click.option("--schema", type=click.Choice(records.NAMES), help="Print a JSON Schema. Takes no FILE.")
@click.option("-v", "--verbose", is_flag=True, help="Print every row and scope.")
def show_command(
    file: Path | None, format: str, out: Path | None, repetitions: bool, schema: str | None, verbose: bool,
    **selection: Any,
) -> None:  # fmt: skip
    """``gemmbench show``."""
    if schema is not None:
        if file or format != "table" or repetitions or any(selection.values()):
            raise UsageError("--schema takes no FILE and no other option but --out")
        output: RenderableType = json.dumps(records.build_schema(schema), indent=2, allow_nan=False) + "\n"
    elif not file:
        raise click.UsageError("Missing argument 'FILE'.", click.get_current_context())
    else:
        run = api.load(file)
        if any(value is not None for value in selection.values()):
            run = run.select(**selection)
        output = api.render_run(run, format, verbose, repetitions=repetitions)
    if out is None:
        running.print_output(output)
    else:
        job.write_output(out, output, [file] if file else ())
        job.print_message(f"Wrote {out}.")


_PLOT_HELP = """Draw charts of saved runs.

    Sweeps from several runs share a chart. A run of `peak --all` provides peak and bandwidth for the others.
    """


def _complete_kind(context: click.Context, param: click.Parameter, word: str) -> list[str]:
    with suppress(UsageError):
        load_matplotlib()
        from gemmbench import chart_views

        return make_completer(("list", "all", *chart_views.KINDS))(context, param, word)
    return []


@click.command("plot", Grouped, help=_PLOT_HELP)
@click.argument("files", nargs=-1, type=FILE)
@click.option(
    "--kind",
    metavar="KIND",
    shell_complete=_complete_kind,
    help="What to draw. `list` names the kinds. `all` draws every applicable kind, each in its own file, "
    "such as out-ladder.png.  [default: chosen to suit the run]",
)
@click.option(
    "-o",
    "--out",
    "--plot",
    "out",
    type=FILE,
    metavar=CHART.metavar,
    help="Chart file.  [default: the first run's name, with .png]",
)
def plot_command(files: tuple[Path, ...], kind: str | None, out: Path | None) -> None:
    """``gemmbench plot``."""
    load_matplotlib()
    from gemmbench import chart_views  # matplotlib takes a second to import

    if kind == "list":
        kinds = [Entry(name, "", chart.idea) for name, chart in chart_views.KINDS.items()]
        running.print_output(Group(*catalogue(kinds, {"": "kinds of charts, with what they show"})))
        return
    if not files:
        raise click.UsageError("Missing argument 'FILES...'.", click.get_current_context())
    if kind not in (None, "all", *chart_views.KINDS):
        raise UsageError(f"unknown kind of chart {kind!r}; there are {', '.join(chart_views.KINDS)} and all")
    runs = api.runs_of(files)
    path = out or Path(f"{files[0].stem}.png")
    CHART.check("--plot", path)
    if kind == "all":
        _draw_all(runs, path)
    else:
        running.draw_chart(runs, kind, path)


def _draw_all(runs: Sequence[Run], path: Path) -> None:
    from gemmbench import chart_views

    paths = {kind: add_kind(path, kind) for kind in chart_views.list_suitable(runs, families(runs))}
    for each in paths.values():
        CHART.check("--plot", each)
    if not paths:
        raise UsageError(f"nothing to draw: no kind of chart suits {', '.join(run.path for run in runs)}")
    for kind, each in paths.items():
        running.draw_chart(runs, kind, each)
