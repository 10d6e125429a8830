"""``gemmbench check``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from gemmbench import UsageError, api
from gemmbench.checking import Job
from gemmbench.cli import EXIT_INTERRUPTED, EXIT_WRONG, running
from gemmbench.cli.compare import end, present
from gemmbench.cli.options import takes
from gemmbench.facts.compare.aa import Floor, floor
from gemmbench.facts.compare.comparison import told
from gemmbench.facts.records import FAILED
from gemmbench.facts.text import clean
from gemmbench.options.comparing import Check
from gemmbench.render import aa
from gemmbench.render.progress import place


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
        click.echo(f"gemmbench: {place(lost[0])}: {clean(told(lost[0]))}{more}", err=True)
        raise click.exceptions.Exit(EXIT_WRONG)
    api.check_repeated(job)


def _show_floor(measured: Floor, options: Check) -> None:
    """Print and write an A/A measurement."""
    forms: dict[str, Callable[[Floor], Any]] = {
        "table": aa.table,
        "markdown": aa.to_markdown,
        "json": aa.to_json,
    }
    running.show(forms[options.format](measured))
    for form, path in options.written:
        running.write(path, forms[form](measured), options.quiet)
