"""From a plan to what the user sees: the part that every measuring command shares."""

from __future__ import annotations

import sys
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from pathlib import Path

import click
from rich.console import Console, RenderableType
from rich.text import Text

from gemmbench import __version__, concurrent, session
from gemmbench.automatic import Automatic
from gemmbench.cache_folder import NoHomeError
from gemmbench.cli import COMMAND_WORDS, EXIT_INTERRUPTED, EXIT_WRONG
from gemmbench.cli.at_once import choose_groups, page
from gemmbench.cli.options import REMEASURE, RunOptions, UserError
from gemmbench.cli.tuned import find_tuned
from gemmbench.cli.tuned import notes as tuned_notes
from gemmbench.concurrent import Group
from gemmbench.facts.concurrent import alone, joints
from gemmbench.facts.events import Event, Finished
from gemmbench.facts.records import (
    BUSY_CORES,
    SCHEMA_VERSION,
    DeviceFacts,
    Header,
    HostFacts,
    Policy,
    Row,
    RowKey,
    Run,
    RunFile,
    RunFileError,
    essential,
)
from gemmbench.facts.series import AUTO
from gemmbench.facts.text import clean, spelt_out
from gemmbench.measure.child import Worker, WorkerError
from gemmbench.measured import KeptMeasurements
from gemmbench.opencl import machine
from gemmbench.peaks import KeptPeaks
from gemmbench.render.progress import Progress, place
from gemmbench.rules.plan import Case, Plan
from gemmbench.rules.selection import SelectionError, select
from gemmbench.rules.variants import FAMILIES, ParameterError

make_machine = machine.default  # replaced in tests

MakePlan = Callable[[Sequence[DeviceFacts]], Plan]
Render = Callable[[Run], RenderableType]


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the command line: rich would end with exit status 1, a wrong result's."""
        raise BrokenPipeError


def stdout() -> Console:
    """Where tables go: nothing in them is taken for markup or highlighted."""
    return _Console(file=sys.stdout, highlight=False, markup=False, emoji=False, soft_wrap=False)


def stderr() -> Console:
    """Where progress, warnings and advice go."""
    return Console(file=sys.stderr, highlight=False, markup=False, emoji=False)


@contextmanager
def user_errors() -> Iterator[None]:
    """Errors whose message is for the user become one sentence and exit status 2."""
    try:
        yield
    except (NoHomeError, ParameterError, RunFileError, SelectionError, WorkerError) as error:
        raise UserError(str(error)) from None


def every_device(worker: Worker) -> tuple[tuple[DeviceFacts, ...], HostFacts]:
    """The devices of this machine.

    Raises:
        UserError: there are none; the sentence holds the command that brings one.
    """
    from gemmbench.opencl.drivers import no_device_message

    with user_errors():
        devices, host = worker.devices()
    if not devices:
        raise UserError(no_device_message())
    return devices, host


@dataclass
class _Outcome:
    rows: list[Row]
    resumed: set[RowKey] = field(default_factory=set)  # the keys of those that the file held
    interrupted: bool = False
    error: RunFileError | None = None


def measure(options: RunOptions, make_plan: MakePlan, render: Render, chart: str | None = None) -> None:
    """Select devices, plan, run, save, print and draw; ends with the command's exit status.

    Args:
        options: the shared options.
        make_plan: the plan for the selected devices.
        render: the table of the finished (or interrupted) run.
        chart: kind of chart for ``--plot``; None for the one that suits the run.
    """
    with Worker(make_machine) as worker, user_errors():
        found, host = every_device(worker)
        devices = select(found, options.device)
        plan = make_plan(devices)
        kept, measured = KeptPeaks(), KeptMeasurements()
        if click.get_current_context().meta.get(REMEASURE) is False:
            plan = kept.fill(plan, devices)
        header = header_of(devices, host, options.policy)
        groups = choose_groups(plan, devices) if options.concurrent else ()
        if options.dry_run:
            print_plan(plan, devices, options.policy, groups)
            return
        warn_if_busy(host, options.quiet)
        chooses = any(isinstance(step, Case) and step.variant == AUTO for step in plan)
        automatic = Automatic(measured.points(devices, host) if chooses else {}, find_tuned)
        outcome = _run(plan, groups, header, worker, options, automatic)
    run = Run(header, tuple(outcome.rows), str(options.save or ""))
    kept.keep(alone(run), outcome.resumed)
    measured.keep(header, automatic.lessons)
    for note in () if options.quiet else (*kept.notes, *measured.notes, *tuned_notes()):
        click.echo(note, err=True)
    if run.rows:
        show(_table(run, options, render))
    if outcome.error:
        raise UserError(str(outcome.error))
    _say_where(run, options, outcome)
    if options.plot and run.rows:
        at_once = any(joint.figured for joint in joints(run))
        draw([run], "concurrent" if at_once else chart, options.plot, options.quiet)
    _exit(run, outcome)


def _table(run: Run, options: RunOptions, render: Render) -> RenderableType:
    """A command's own table, of each device alone; where they ran at once, what they did below it."""
    whole = render(run)
    if not options.concurrent or isinstance(whole, str):  # text for machines has every row
        return whole
    return page(render(alone(run)), run, bool(options.verbose))


def _events(
    plan: Plan,
    groups: Sequence[Group],
    header: Header,
    worker: Worker,
    options: RunOptions,
    automatic: Automatic,
    file: RunFile | None,
) -> Generator[Event, None, None]:
    """Run the plan on one device after another; where there are groups, these on all of them at once, too."""
    if not groups:
        yield from session.run(plan, header.devices, options.policy, worker, file, automatic)
        return
    steps = session.Steps(header.devices, options.policy, file, automatic)
    with concurrent.Crew(worker, lambda: Worker(make_machine), len(header.devices)) as crew:
        yield from concurrent.run(groups, crew, steps)


def _run(
    plan: Plan,
    groups: Sequence[Group],
    header: Header,
    worker: Worker,
    options: RunOptions,
    automatic: Automatic,
) -> _Outcome:
    outcome = _Outcome([])
    file = None
    if options.save:
        if options.resume:
            file = RunFile.resume(options.save, header)
        else:
            file = RunFile.create(options.save, header, options.force)
    try:
        with (
            Progress(stderr(), quiet=options.quiet, verbose=options.verbose) as progress,
            closing(_events(plan, groups, header, worker, options, automatic, file)) as events,
        ):
            for event in events:
                if isinstance(event, Finished):
                    outcome.rows.append(event.row)
                    if event.resumed:
                        outcome.resumed.add(event.row.key)
                progress.handle(event)
    except KeyboardInterrupt:
        outcome.interrupted = True
    except RunFileError as error:  # a full disk, say: the table so far is still worth showing
        outcome.error = error
    finally:
        if file:
            file.close()
    return outcome


def header_of(devices: Sequence[DeviceFacts], host: HostFacts, policy: Policy) -> Header:
    """The first line of a run on these devices."""
    context = click.get_current_context()
    words: tuple[str, ...] = context.meta[COMMAND_WORDS]
    return Header(
        schema_version=SCHEMA_VERSION,
        gemmbench=__version__,
        command=essential(map(spelt_out, words)),
        started_utc=datetime.now(timezone.utc).isoformat(timespec="seconds"),
        # Whoever is shown the file has no use for the folders of this machine.
        devices=tuple(replace(device, library=Path(device.library).name) for device in devices),
        host=host,
        policy=policy,
    )


def warn_if_busy(host: HostFacts, quiet: bool) -> None:
    """Say so where other programs use the processor."""
    if host.busy >= BUSY_CORES and not quiet:
        cores = f"{host.busy:.1f} of {host.cores} cores"
        click.echo(f"Other programs keep {cores} busy: rates will be low and noisy.", err=True)


def print_plan(
    plan: Plan, devices: Sequence[DeviceFacts], policy: Policy, groups: Sequence[Group] = ()
) -> None:
    """Say what would be measured, on one device after another and, group by group, on several at once."""
    console = stdout()
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
        stdout().print(output)


def _say_where(run: Run, options: RunOptions, outcome: _Outcome) -> None:
    """Where the rows are, and what an interrupted user can do."""
    if outcome.interrupted:
        where = (
            f"{len(run.rows)} rows are saved in {options.save}; the same command with --resume goes on"
            if options.save
            else "nothing was saved (--save FILE keeps rows as they come)"
        )
        click.echo(f"gemmbench: interrupted; {where}", err=True)
    elif options.save and not options.quiet:
        click.echo(f"Saved {len(run.rows)} rows in {options.save}.", err=True)


def as_text(output: RenderableType) -> str:
    """A table as it is printed, for a file."""
    console = stdout()
    with console.capture() as capture:
        console.print(output)
    return capture.get()


def draw(runs: Sequence[Run], kind: str | None, path: Path, quiet: bool = False) -> None:
    """Draw a chart of saved runs and say so.

    Raises:
        UserError: it cannot be drawn or written.
    """
    from gemmbench import charts  # matplotlib takes a second to import

    chosen = kind or charts.default_kind(runs[0])
    drawn(lambda: charts.draw(runs, chosen, path, FAMILIES), path, quiet)


def drawn(paint: Callable[[], None], path: Path, quiet: bool = False) -> None:
    """Call what draws a chart into a file, and say so.

    Raises:
        UserError: it cannot be drawn or written.
    """
    from gemmbench import charts

    try:
        paint()
    except charts.ChartError as error:
        raise UserError(str(error)) from None
    except OSError as error:
        raise UserError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
    if not quiet:
        click.echo(f"Drew {path}.", err=True)


def _exit(run: Run, outcome: _Outcome) -> None:
    if outcome.interrupted:
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if any(row.status == "wrong" for row in run.rows):
        raise click.exceptions.Exit(EXIT_WRONG)
    on_device = [row for row in run.rows if row.device >= 0]
    asked = [row for row in on_device if row.kind == "gemm"] or on_device  # a peak beside them is no answer
    if asked and all(row.status != "ok" for row in asked):
        first = asked[0]
        why = clean(f"{first.variant} {first.dtype}: {first.status}: {first.reason}")
        raise UserError(f"nothing was measured on the device: {why}")
