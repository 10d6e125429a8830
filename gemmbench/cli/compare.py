"""`gemmbench compare` and `gemmbench check`."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gemmbench import UsageError, api
from gemmbench.cli import EXIT_INCONCLUSIVE, EXIT_INTERRUPTED, EXIT_WRONG, running
from gemmbench.cli.running import takes
from gemmbench.model.row import FAILED
from gemmbench.model.units import clean
from gemmbench.options.comparing import Check, Compare, Comparing
from gemmbench.regress import compare_table as pages
from gemmbench.regress import history_table
from gemmbench.regress.check import Job
from gemmbench.regress.compare import Comparison, outcome
from gemmbench.regress.gate import Floor, floor
from gemmbench.report.progress import row_label


@click.command()
@click.argument("files", nargs=-1, type=click.Path(path_type=Path), metavar="BASE... NEW")
@takes(Compare)
def compare(options: Compare, files: tuple[Path, ...]) -> None:
    """Hold a saved run against base runs: a verdict for each row.

    The last file is the new run, those before it are bases, which are pooled; after `--` there may be several
    new ones: compare base1 base2 -- new1 new2. A row is slower, and fails, only if the whole confidence
    interval of its ratio is past the threshold; the noise from run to run widens the interval. Exit status: 0
    no regression, 1 a regression or a wrong result, 2 nothing compared, 3 inconclusive, with --strict.
    """
    bases, news = _split(files)
    comparison = api.compared(api.runs_of(bases), api.runs_of(news), options)
    present(comparison, options, options.verbose, options.plot)
    end(comparison, options)


def _split(files: tuple[Path, ...]) -> tuple[tuple[Path, ...], tuple[Path, ...]]:
    """The bases and the new runs: what stands after ``--``, or the last.

    Raises:
        UsageError: there are not both.
    """
    words = running.command_words()
    after = len(words) - words.index("--") - 1 if "--" in words else 1
    bases, news = files[: len(files) - after], files[len(files) - after :]
    if not bases or not news:
        raise UsageError("compare takes a base and a new run: gemmbench compare base.jsonl new.jsonl")
    return bases, news


def present(
    comparison: Comparison, options: Comparing, every: bool, plot: Path | None, quiet: bool = False
) -> None:
    """Print, write and draw a comparison.

    Raises:
        UsageError: a file cannot be written, or there is nothing to draw.
    """
    running.show(_rendered(comparison, options.format, options, every))
    for form, path in options.written:
        running.write(path, _rendered(comparison, form, options, every), quiet)
    if plot is not None and api.draw_comparison(comparison, plot):
        running.say_drawn(plot, quiet)


def end(comparison: Comparison, options: Comparing) -> None:
    """End with the command's exit status.

    Raises:
        UsageError: nothing was compared.
    """
    failed = any(line.fails for line in comparison.lines)
    if failed or (options.missing == "fail" and comparison.lost):
        raise click.exceptions.Exit(EXIT_WRONG)
    if not comparison.compared:
        raise UsageError(f"nothing was compared: {pages.why_nothing(comparison)}")
    coarse = comparison.resolution is not None and comparison.resolution.is_coarse
    if options.strict and (coarse or any(line.open for line in comparison.lines)):
        raise click.exceptions.Exit(EXIT_INCONCLUSIVE)


def _rendered(comparison: Comparison, form: str, options: Comparing, every: bool) -> Any:
    """Text for machines, a table for people."""
    missing_fails = options.missing == "fail"
    if form == "json":
        return pages.to_json(comparison)
    if form == "markdown":
        return pages.to_markdown(comparison, every)
    if form == "github":
        return pages.to_github(comparison, options.strict, missing_fails)
    if form == "junit":
        from gemmbench.regress.compare_table import to_junit

        return to_junit(comparison, options.strict, missing_fails)
    return pages.table(comparison, every)


# --- ``gemmbench check`` ------------------------------------------------------------------------------------


@click.command()
@click.argument("bases", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BASE...")
@takes(Check)
def check(options: Check, bases: tuple[Path, ...]) -> None:
    """Measure a base's cases again, what looks slower until it is settled.

    Each suspicious row is measured again between two measurements of a control that tells whether the
    machine itself has changed, until its verdict is settled or --patience is over; only that decides.
    --ratio holds ratios inside one run against the base's, for runners whose speed changes from job to job;
    --against holds each kernel against its former self, batch by batch in turn, which is more exact still.
    --aa measures the noise of this machine; its --save file is the best base. Devices are the base's, by
    name; budget, --cold and --memory are the base's unless given. Exit status as of compare.
    """
    with api.checked(api.runs_of(bases), options, running.command_words()) as job:
        if options.dry_run:
            running.print_plan(job.plan, job.header.devices, job.policy)
            return
        outcome = api.follow_check(job, options)
    if job.file and not options.quiet:
        click.echo(f"Saved {len(job.rows)} rows in {job.file.path}.", err=True)
    if options.aa and job.rows:
        _show_floor(floor([job.run], options.rules), options)
    elif job.rows:
        made = api.comparison_of(job, outcome)
        present(made, options, bool(options.verbose), options.plot, options.quiet)
        if outcome.comparison:
            end(made, options)
    if outcome.error:
        raise UsageError(str(outcome.error))
    if outcome.interrupted:
        click.echo("gemmbench: interrupted; what is shown is from what was measured so far", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if options.aa:
        _end_repeated(job)


def _end_repeated(job: Job) -> None:
    """End an A/A measurement of cases that were all ok in the base with the command's exit status.

    Raises:
        NothingMeasured: no case gave a result.
    """
    lost = [row for row in job.rows if row.status in FAILED]
    if lost:
        more = f" ({len(lost)} measurements of {len(job.rows)} in all)" if len(lost) > 1 else ""
        click.echo(f"gemmbench: {row_label(lost[0])}: {clean(outcome(lost[0]))}{more}", err=True)
        raise click.exceptions.Exit(EXIT_WRONG)
    api.check_repeated(job)


def _show_floor(measured: Floor, options: Check) -> None:
    """Print and write an A/A measurement."""
    forms: dict[str, Callable[[Floor], Any]] = {
        "table": history_table.aa_table,
        "markdown": history_table.aa_to_markdown,
        "json": history_table.aa_to_json,
    }
    running.show(forms[options.format](measured))
    for form, path in options.written:
        running.write(path, forms[form](measured), options.quiet)
