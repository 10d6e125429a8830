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
from gemmbench.charts import load_matplotlib, named
from gemmbench.cli import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_WRONG, running
from gemmbench.cli.running import Grouped, click_option, completed, takes
from gemmbench.exports import records
from gemmbench.ladder import families
from gemmbench.model.row import FAILED
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, counted
from gemmbench.options import CHART, FILE
from gemmbench.options.comparing import CheckOptions, CompareOptions, ReportOptions
from gemmbench.options.measuring import PeakOptions, SquareOptions
from gemmbench.regress import results
from gemmbench.regress.check import AAReport, Job, aa_json, aa_report, aa_sheets
from gemmbench.regress.compare import Comparison, outcome, why_nothing
from gemmbench.report.progress import row_label
from gemmbench.report.table import Entry, catalogue, markdown, stack

_COMPARE_HELP = """Compare a saved run with baseline runs.

    The last file is the new run and the others are baselines. For several new runs, use `--`: compare
    base1 base2 -- new1 new2. A row fails if it takes over 1.5 times as long on a GPU, or over twice as long
    on a CPU without interference. It also fails if it exceeds a --threshold that you give. Without one, a row
    over 10 % is only possibly slower. With one baseline, it differs. The run fails if at least half of its
    rows take over 1.5 times as long. Exit status: 0 no regression, 1 a regression or a wrong result, 2
    nothing compared, 3 possibly slower or nobody can tell (with --strict).
    """


@click.command(cls=Grouped, help=_COMPARE_HELP)
@click.argument("files", nargs=-1, type=FILE, metavar="BASE... NEW")
@takes(CompareOptions)
def compare(options: CompareOptions, files: tuple[Path, ...]) -> None:
    """``gemmbench compare``."""
    bases, news = _split(files)
    finish(api.compared(api.runs_of(bases), api.runs_of(news), options), options)


def _split(files: tuple[Path, ...]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """Split the files into baselines and new runs.

    The new runs are those after `--`, or else the last file. A `--` before all files does not count. Raise
    `UsageError` if either part is empty.
    """
    words = running.command_words()
    after = len(words) - words.index("--") - 1 if "--" in words else 1
    after = 1 if after == len(files) else after
    bases, news = files[: len(files) - after], files[len(files) - after :]
    if not bases or not news:
        raise UsageError("compare takes a baseline and a new run: gemmbench compare base.jsonl new.jsonl")
    return bases, news


def finish(
    comparison: Comparison, options: CompareOptions | CheckOptions, quiet: bool = False, ends: bool = True
) -> None:
    """Write, print, draw and report a comparison, then exit with 1 for a regression.

    --missing fail also exits with 1 for missing rows. Otherwise raise `UsageError` if nothing was compared.
    --strict exits with 3 for rows that may be slower. If `ends` is false, do not exit or raise.
    """
    for form, path in options.written:
        running.write(path, _rendered(comparison, form, options), quiet)
    running.show(_rendered(comparison, options.format, options))
    api.draw_and_report(comparison, options, quiet)
    if not ends:
        return
    if not comparison.ok or (options.missing == "fail" and comparison.lost):
        raise click.exceptions.Exit(EXIT_WRONG)
    if not comparison.compared:
        raise UsageError(why_nothing(comparison))
    if options.strict and comparison.is_inconclusive:
        raise click.exceptions.Exit(EXIT_INCONCLUSIVE)


def _rendered(comparison: Comparison, form: str, options: CompareOptions | CheckOptions) -> Any:
    """Render a comparison in one format: text, or a rich table. --verbose adds unchanged rows to tables."""
    every = bool(options.verbose)
    missing_fails = options.missing == "fail"
    if form == "github":
        return results.to_github(comparison, options.strict, missing_fails)
    if form == "junit":
        return results.to_junit(comparison, options.strict, missing_fails, options.command)
    if form == "markdown":
        return results.to_markdown(comparison, every)
    return results.to_json(comparison) if form == "json" else stack(results.sheets(comparison, every))


_CHECK_HELP = """Measure a baseline's cases again and compare the results.

    Suspicious rows are measured twice more, alternating with a control row. A row fails if every
    measurement takes over 1.5 times as long, or exceeds a --threshold that you give. --against
    interleaves each kernel with its old version, which finds much smaller changes. It samples rows that
    cannot be judged for up to a minute more. --aa measures how much rows vary from run to run on this
    machine. The file that it saves (--save) makes a good baseline.
    Devices, budget, --cold and --memory default to the baseline's. The exit status is the same as for
    compare.
    """


@click.command(cls=Grouped, help=_CHECK_HELP)
@click.argument("bases", nargs=-1, required=True, type=FILE, metavar="BASE...")
@takes(CheckOptions)
def check(options: CheckOptions, bases: tuple[Path, ...]) -> None:
    """``gemmbench check``."""
    with api.checked(api.runs_of(bases), options, running.command_words()) as job:
        if options.dry_run:
            running.print_plan(job.plan, job.header.devices, job.policy, options.aa or 1)
            return
        made = api.follow_check(job, options)
    if job.file:
        api.say(f"Saved {counted(len(job.rows), 'row')} in {job.file.path}.", options.quiet)
    if options.aa and job.rows:
        _show_aa(aa_report([job.run], options.rules), options)
    elif job.rows:
        finish(api.comparison_of(job, made), options, options.quiet, ends=made.comparison is not None)
    if made.error:
        raise UsageError(str(made.error))
    if made.interrupted:
        api.say("gemmbench: interrupted; the result covers the rows measured so far")
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if options.aa:
        _end_aa(job)


def _end_aa(job: Job) -> None:
    """After --aa (repeated measurements), print the first failed row. Exit with 1 if any row failed.

    Otherwise raise `NothingMeasured` if no row has a result.
    """
    lost = [row for row in job.rows if row.status in FAILED]
    if lost:
        more = f" ({len(lost)} measurements of {len(job.rows)} in all)" if len(lost) > 1 else ""
        api.say(f"gemmbench: {row_label(lost[0])}: {clean(outcome(lost[0]))}{more}")
        raise click.exceptions.Exit(EXIT_WRONG)
    api.check_repeated(job)


def _show_aa(report: AAReport, options: CheckOptions) -> None:
    sheets = aa_sheets(report)
    forms = {"table": stack(sheets), "markdown": markdown(sheets), "json": aa_json(report)}
    for form, path in options.written:
        running.write(path, forms[form], options.quiet)
    running.show(forms[options.format])


_SHOW_HELP = """Show a saved run as a table, or in a format for other programs.

    The schemas describe a saved run's header (line 1), its rows, and the records that --format json prints.
    """


@click.command(cls=Grouped, help=_SHOW_HELP)
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
def show(
    file: Path | None, format: str, out: Path | None, repetitions: bool, schema: str | None, verbose: bool,
    **selection: Any,
) -> None:  # fmt: skip
    """``gemmbench show``."""
    if schema is not None:
        if file or format != "table" or repetitions or any(selection.values()):
            raise UsageError("--schema takes no FILE and no other option but --out")
        output: RenderableType = json.dumps(records.schema(schema), indent=2, allow_nan=False) + "\n"
    elif not file:
        raise click.UsageError("Missing argument 'FILE'.", click.get_current_context())
    else:
        run = api.load(file)
        if any(value is not None for value in selection.values()):
            run = run.select(**selection)
        output = running.rendered(run, format, verbose, repetitions=repetitions)
    if out is None:
        running.show(output)
    else:
        running.write(out, output, inputs=[file] if file else ())


_PLOT_HELP = """Draw charts of saved runs.

    Sweeps from several runs share a chart. A run of `peak --all` provides peak and bandwidth for the others.
    """


def _complete_kind(context: click.Context, param: click.Parameter, word: str) -> list[str]:
    """Complete a kind of chart; nothing if matplotlib does not start."""
    with suppress(UsageError):
        load_matplotlib()
        from gemmbench import chart_views

        return completed(("list", "all", *chart_views.KINDS))(context, param, word)
    return []


@click.command(cls=Grouped, help=_PLOT_HELP)
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
def plot(files: tuple[Path, ...], kind: str | None, out: Path | None) -> None:
    """``gemmbench plot``."""
    load_matplotlib()
    from gemmbench import chart_views  # matplotlib takes a second to import

    if kind == "list":
        kinds = [Entry(name, "", chart.idea) for name, chart in chart_views.KINDS.items()]
        running.show(Group(*catalogue(kinds, {"": "kinds of charts, with what they show"})))
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
        running.draw(runs, kind, path)


def _draw_all(runs: Sequence[Run], path: Path) -> None:
    """Draw every kind of chart that suits the runs, each to its own file.

    Check all paths before drawing. Raise `UsageError` if no kind suits.
    """
    from gemmbench import chart_views

    paths = {kind: named(path, kind) for kind in chart_views.suited(runs, families(runs))}
    for each in paths.values():
        CHART.check("--plot", each)
    if not paths:
        raise UsageError(f"nothing to draw: no kind of chart suits {', '.join(run.path for run in runs)}")
    for kind, each in paths.items():
        running.draw(runs, kind, each)


_REPORT_HELP = """Write an HTML report on saved runs, in a single file.

    It starts with a summary, a chart and the fastest kernels. Comparisons of runs on the same device follow,
    then a section for each run. The report makes no network requests. A folder means all .jsonl files in it.
    """


@click.command(cls=Grouped, help=_REPORT_HELP)
@click.argument("files", nargs=-1, required=True, type=FILE, metavar="FILE|FOLDER...")
@takes(ReportOptions)
def report(options: ReportOptions, files: tuple[Path, ...]) -> None:
    """``gemmbench report``."""
    api.say(f"Wrote {api.reported(files, options)}.")
