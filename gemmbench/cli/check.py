"""``gemmbench check``."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from gemmbench import checking
from gemmbench.checking import Job, Patience
from gemmbench.cli import EXIT_INTERRUPTED, EXIT_WRONG, running
from gemmbench.cli.comparing import CompareOptions, check_paths, comparing, end, load_all, present, write
from gemmbench.cli.options import RunOptions, UserError, measuring
from gemmbench.facts.compare.aa import Floor, floor
from gemmbench.facts.compare.basis import Basis
from gemmbench.facts.compare.comparison import Comparison, compare, has_former, told
from gemmbench.facts.compare.gate import LEAST_ROUNDS, MOST_ROUNDS
from gemmbench.facts.compare.pairing import foreign, strictly
from gemmbench.facts.concurrent import alone
from gemmbench.facts.events import Event
from gemmbench.facts.kernel_files import MARK
from gemmbench.facts.records import FAILED, DeviceFacts, Policy, Row, RunFile, RunFileError
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean
from gemmbench.measure.child import Worker
from gemmbench.render import aa
from gemmbench.render.progress import Progress, place
from gemmbench.rules.plan import Case, Plan
from gemmbench.rules.rebuild import rebuild
from gemmbench.rules.selection import select
from gemmbench.rules.variants import BY_NAME

_AA_FORMATS = ("table", "markdown", "json")


@click.command()
@click.argument("bases", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="BASE...")
@click.option(
    "--aa",
    "times",
    type=click.IntRange(min=2),
    metavar="TIMES",
    help="Compare nothing: measure the cases so many times, and say which threshold this machine carries.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=LEAST_ROUNDS),
    default=MOST_ROUNDS,
    show_default=True,
    help="Measure a suspicious row again at most so many times.",
)
@click.option(
    "--patience",
    type=float,
    default=Patience.seconds,
    show_default=True,
    metavar="SECONDS",
    help="Measure suspicious rows again for at most so long altogether.",
)
@click.option(
    "--against",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Time every kernel in turn with itself as it is in this folder: the kernels that the base was "
    "measured with.",
)
@comparing
@measuring
def check(
    options: RunOptions,
    comparison: CompareOptions,
    bases: tuple[Path, ...],
    times: int | None,
    rounds: int,
    patience: float,
    against: Path | None,
) -> None:
    """Measure a base's cases again, what looks slower until it is settled.

    Each suspicious row is measured again between two measurements of a control that tells whether the
    machine itself has changed, until its verdict is settled or --patience is over; only that decides.
    --ratio holds ratios inside one run against the base's, for runners whose speed changes from job to job;
    --against holds each kernel against its former self, batch by batch in turn, which is more exact still.
    --aa measures the noise of this machine; its --save file is the best base. Devices are the base's, by
    name; budget, --cold and --memory are the base's unless given. Exit status as of compare.
    """
    if options.resume:
        raise UserError("check starts anew: it takes no --resume")
    if options.concurrent:
        raise UserError("check measures one device after another: it takes no --concurrent")
    if not patience >= 0:  # NaN is on neither side
        raise UserError(f"--patience is 0 or more, not {patience:g}")
    if times and (odd := {comparison.form, *(form for form, _ in comparison.write)} - set(_AA_FORMATS)):
        raise UserError(f"--aa compares nothing: it has no {sorted(odd)[0]}, but {', '.join(_AA_FORMATS)}")
    if times and options.plot:
        raise UserError("--aa draws no chart: it compares nothing")
    if against is not None:
        _check_against(against, comparison, options, times)
        comparison = replace(comparison, rules=replace(comparison.rules, in_turn=True))
    check_paths(bases, options.plot, options.save, comparison)
    with running.user_errors():
        basis = Basis(tuple(map(alone, load_all(bases))), comparison.rules, tuple(comparison.noise_runs()))
    policy = _policy(basis.header.policy, options.policy)
    if against is not None:  # two kernels are built and verified
        policy = replace(policy, time_limit_s=2 * policy.time_limit_s)
    with Worker(running.make_machine) as worker, running.user_errors():
        found, host = running.every_device(worker)
        devices, places = _chosen(basis, found, options.device)
        plan = rebuild(
            _wanted(basis, bool(times)), devices, places, str(against.absolute()) if against else ""
        )
        if not any(isinstance(step, Case) for step in plan):
            raise UserError(f"{basis.bases[0].path} has no rows that can be measured again{_of_ratio(basis)}")
        if against is not None and "source" not in basis.rules.across:
            _check_former(basis, plan, against)
        header = running.header_of(devices, host, policy)
        if options.dry_run:
            running.print_plan(plan, devices, policy)
            return
        running.warn_if_busy(host, options.quiet)
        file = RunFile.create(options.save, header, options.force) if options.save else None
        job = Job(basis, plan, header, policy, worker, file, Patience(patience, rounds))
        steps: Generator[Event, None, Any] = checking.repeat(job, times) if times else checking.check(job)
        outcome = _follow(steps, options)
    if file:
        file.close()
        if not options.quiet:
            click.echo(f"Saved {len(job.rows)} rows in {file.path}.", err=True)
    if times and job.rows:
        _show_floor(floor([job.run], comparison.rules), comparison, options.quiet)
    elif job.rows:
        made = outcome.comparison or compare(basis.bases, [job.run], basis.rules, basis.noises)
        present(made, comparison, bool(options.verbose), options.plot, options.quiet)
        if outcome.comparison:
            end(made, comparison)
    if outcome.error:
        raise UserError(str(outcome.error))
    if outcome.interrupted:
        click.echo("gemmbench: interrupted; what is shown is from what was measured so far", err=True)
        raise click.exceptions.Exit(EXIT_INTERRUPTED)
    if times:
        _end_repeated(job.rows)


def _check_against(folder: Path, comparison: CompareOptions, options: RunOptions, times: int | None) -> None:
    """Whether there are kernels to hold others against, and nothing was asked for that this cannot give.

    Raises:
        UserError: there are none, or it was.
    """
    try:
        found = (folder / MARK).is_file()
    except OSError:  # no permission, too long a name
        found = False
    if not found:
        raise UserError(f"--against {folder} is no folder of kernels: it has no {MARK}")
    if times:
        raise UserError("--aa compares nothing: it takes no --against")
    if comparison.rules.ratio:
        raise UserError("--against holds each kernel against its former self: it takes no --ratio")
    if comparison.noises:
        raise UserError("--against shows its own noise: it takes no --noise")
    if options.policy.energy:
        raise UserError("--against runs two kernels in turn: it takes no --energy")


def _check_former(basis: Basis, plan: Plan, folder: Path) -> None:
    """Whether a folder has any of the kernels that a base was measured with, before time is spent on it.

    Raises:
        UserError: it has none.
    """
    theirs = {(key[2:]): row.source for key, row in basis.rows.items()}
    for step in plan:
        if isinstance(step, Case) and step.former:
            parameters = {name: int(value) for name, value in step.parameters.items()}
            with contextlib.suppress(OSError, UnicodeDecodeError):
                found = BY_NAME[step.variant].fingerprint(step.dtype, parameters, step.former)
                if found == theirs.get(step.key[2:]):
                    return
    raise UserError(
        f"--against {folder} has none of the kernels that {basis.bases[0].path} was measured with "
        "(--across source compares nevertheless)"
    )


@dataclass
class _Outcome:
    comparison: Comparison | None = None  # None for an A/A measurement, and if it did not get so far
    interrupted: bool = False
    error: RunFileError | None = None


def _follow(steps: Generator[Event, None, Comparison | None], options: RunOptions) -> _Outcome:
    """Let the progress bar follow what is measured, to its end or to Ctrl-C."""
    try:
        with Progress(running.stderr(), quiet=options.quiet, verbose=options.verbose) as progress:
            while True:
                progress.handle(next(steps))
    except StopIteration as ended:
        return _Outcome(ended.value)
    except KeyboardInterrupt:
        return _Outcome(interrupted=True)
    except RunFileError as error:  # a full disk, say: the table so far is still worth showing
        return _Outcome(error=error)


def _policy(base: Policy, own: Policy) -> Policy:
    """The base's sampling, but for what was given here."""
    context = click.get_current_context()

    def given(option: str) -> bool:
        return context.get_parameter_source(option) not in (None, ParameterSource.DEFAULT)

    return replace(
        base,
        budget_s=own.budget_s if given("budget") else base.budget_s,
        time_limit_s=own.time_limit_s if given("time_limit") or given("budget") else base.time_limit_s,
        memory=own.memory if given("memory") else base.memory,
        cold=own.cold if given("cold") else base.cold,
        energy=own.energy,
    )


def _wanted(basis: Basis, every: bool) -> list[Row]:
    """The base's rows that are measured again: in ratio mode only those that a ratio needs.

    An A/A measurement takes them all: it is a base for either mode.
    """
    keys = {key for key, row in basis.rows.items() if row.status == "ok"}
    if basis.rules.in_turn:
        keys = {key for key in keys if has_former(basis.rows[key])}
    if basis.rules.ratio and not every:
        keys &= {*basis.references, *basis.references.values()}
    return [replace(row, device=key[1]) for key, row in basis.rows.items() if key in keys]


def _of_ratio(basis: Basis) -> str:
    if basis.rules.in_turn:
        return " in turn with their former selves"
    names = ", ".join(basis.rules.ratio)
    return f" as a ratio to {names}" if names else ""


def _chosen(
    basis: Basis, found: Sequence[DeviceFacts], selector: str
) -> tuple[tuple[DeviceFacts, ...], dict[int, int]]:
    """The devices to measure on, and for each of the base's that is among them its position.

    They are those that the base was measured on, by platform and name; of those that a selector names, what
    is left stands in order for what is left of the base's.

    Raises:
        UserError: they are not here, or differ in what `--across` does not allow.
    """
    theirs = basis.header.devices
    used = sorted({key[1] for key in basis.rows if HOST < key[1] < len(theirs)})
    if not used:
        return select(found, selector), {}
    devices = select(found, selector) if selector else found
    places = strictly([theirs[slot] for slot in used], devices)
    others = iter([number for number in range(len(devices)) if selector and number not in places])
    matched = [number if number is not None else next(others, None) for number in places]
    pairs = [
        (slot, devices[number]) for slot, number in zip(used, matched, strict=True) if number is not None
    ]
    if not pairs:
        here = ", ".join(clean(device.title) for device in found)
        raise UserError(
            f"the base's device is not here: {clean(theirs[used[0]].title)}; there are {here} "
            "(--device chooses one, --across device,driver compares nevertheless)"
        )
    for slot, device in pairs:
        if basis.rules.in_turn:  # both kernels run here
            continue
        if why := foreign(theirs[slot], device, basis.rules.across):
            hint = f"--across {'device,driver' if why.startswith('other device') else 'driver'}"
            raise UserError(f"{why} ({hint} compares nevertheless)")
    return tuple(device for _, device in pairs), {slot: number for number, (slot, _) in enumerate(pairs)}


def _end_repeated(rows: Sequence[Row]) -> None:
    """End an A/A measurement of cases that were all ok in the base with the command's exit status.

    Raises:
        UserError: nothing was measured.
    """
    lost = [row for row in rows if row.status in FAILED]
    if lost:
        more = f" ({len(lost)} measurements of {len(rows)} in all)" if len(lost) > 1 else ""
        click.echo(f"gemmbench: {_of_row(lost[0])}{more}", err=True)
        raise click.exceptions.Exit(EXIT_WRONG)
    if all(row.status != "ok" for row in rows):
        raise UserError(f"nothing was measured: {_of_row(rows[0])}")


def _of_row(row: Row) -> str:
    return f"{place(row)}: {clean(told(row))}"


def _show_floor(found: Floor, options: CompareOptions, quiet: bool) -> None:
    """Print and write an A/A measurement."""
    forms: dict[str, Callable[[Floor], Any]] = {
        "table": aa.table,
        "markdown": aa.to_markdown,
        "json": aa.to_json,
    }
    running.show(forms[options.form](found))
    for form, path in options.write:
        write(path, forms[form](found), quiet)
