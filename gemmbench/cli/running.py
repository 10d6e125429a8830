"""From options to exit status: the part that every measuring command shares."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import click
from rich.console import RenderableType
from rich.text import Text

from gemmbench import UsageError, api
from gemmbench.cli import COMMAND_WORDS, EXIT_INTERRUPTED, EXIT_WRONG
from gemmbench.concurrent import Group
from gemmbench.facts.records import DeviceFacts, Policy, Run
from gemmbench.facts.text import reason_of
from gemmbench.options.measuring import Measuring
from gemmbench.render.progress import place
from gemmbench.rules.plan import Case, Plan
from gemmbench.suite.run import Outcome


def command_words() -> tuple[str, ...]:
    """The words of the command line, for the header of a saved run."""
    words: tuple[str, ...] = click.get_current_context().meta[COMMAND_WORDS]
    return words


def measure(options: Measuring, as_text: Callable[[Run], str] | None = None) -> None:
    """Measure, print and draw as the options say; ends with the command's exit status.

    Args:
        options: the command's.
        as_text: what is printed instead of the command's table.
    """
    with api.prepared(options, command_words()) as measurement:
        if options.dry_run:
            print_plan(measurement.plan, measurement.header.devices, options.policy, measurement.groups)
            return
        outcome, run = api.follow(measurement, options)
    if run.rows:
        show(as_text(run) if as_text else run.table(bool(options.verbose)))
    if outcome.error:
        raise UsageError(str(outcome.error))
    _say_where(options, outcome)
    if options.plot and run.rows:
        draw([run], api.chart_of(run, options), options.plot, options.quiet)
    if outcome.interrupted:
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if not run.ok:
        raise click.exceptions.Exit(EXIT_WRONG)
    run.check_measured()


def print_plan(
    plan: Plan, devices: Sequence[DeviceFacts], policy: Policy, groups: Sequence[Group] = ()
) -> None:
    """Say what would be measured, on one device after another and, group by group, on several at once."""
    console = api.stdout()
    for device in devices:
        console.print(Text(device.title))
    cases = 0
    for step in plan:
        if isinstance(step, Case):
            cases += 1
            console.print(Text(f"  run   {step.label}"))
        else:
            row = step.row
            what = (
                f"kept  {place(row)}" if row.status == "ok" else f"{row.status}  {place(row)}: {row.reason}"
            )
            console.print(Text(f"  {what}"))
    for group in groups:
        if group.cases:
            cases += 1
            console.print(Text(f"  run   {group.label}"))
    console.print(Text(f"{cases} cases, at most about {cases * policy.budget_s:.0f} s of sampling"))


def show(output: RenderableType) -> None:
    """Print a table, or text for machines as it is."""
    if isinstance(output, str):
        click.echo(output, nl=not output.endswith("\n"))
    else:
        api.stdout().print(output)


def _say_where(options: Measuring, outcome: Outcome) -> None:
    """Where the rows are, and what an interrupted user can do."""
    rows = len(outcome.run.rows)
    if outcome.interrupted:
        where = (
            f"{rows} rows are saved in {options.save}; the same command with --resume goes on"
            if options.save
            else "nothing was saved (--save FILE keeps rows as they come)"
        )
        click.echo(f"gemmbench: interrupted; {where}", err=True)
    elif options.save and not options.quiet:
        click.echo(f"Saved {rows} rows in {options.save}.", err=True)


def write(path: Path, output: RenderableType, quiet: bool = False) -> None:
    """Write text, or a table, into a file, and say so.

    Raises:
        UsageError: it cannot be written.
    """
    if not isinstance(output, str):
        console = api.stdout()
        with console.capture() as capture:
            console.print(output)
        output = capture.get()
    try:
        path.write_text(output, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"cannot write {path}: {reason_of(error)}") from None
    if not quiet:
        click.echo(f"Wrote {path}.", err=True)


def draw(runs: Sequence[Run], kind: str | None, path: Path, quiet: bool = False) -> None:
    """Draw a chart of runs and say so.

    Raises:
        UsageError: it cannot be drawn or written.
    """
    api.draw(runs, kind, path)
    say_drawn(path, quiet)


def say_drawn(path: Path, quiet: bool = False) -> None:
    """Where a chart is."""
    if not quiet:
        click.echo(f"Drew {path}.", err=True)
