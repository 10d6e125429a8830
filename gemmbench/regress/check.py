"""A base's cases run again: once each, then the suspicious ones until their verdicts are settled."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from gemmbench import UsageError
from gemmbench.ladder import BASELINES, variant_of
from gemmbench.measure.child import Maker, Worker
from gemmbench.model.case import DRIVER, Case, Event, Plan, Policy, Skip, kernels_of
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.row import FAILED, Row, RowKey
from gemmbench.model.run_file import Header, Run, RunFile, RunFileError, is_tuning
from gemmbench.model.units import clean, counted
from gemmbench.options.comparing import Check
from gemmbench.options.rules import LEAST_ROUNDS
from gemmbench.plan import rebuild, select
from gemmbench.regress import gate
from gemmbench.regress.baseline import (
    Basis,
    Repetition,
    exact_positions,
    foreign,
    pairing,
    repetitions,
    slots,
)
from gemmbench.regress.compare import Comparison, Line, compare, doubted, judged, outcome
from gemmbench.regress.gate import Answer, Settled, Suspect, Wanted
from gemmbench.stats.rates import measure
from gemmbench.suite import session
from gemmbench.suite.run import Listen, Outcome, every_device, header_of


@dataclass
class CheckOutcome(Outcome):
    """How a check ended."""

    comparison: Comparison | None = None  # None for an A/A measurement, and if it did not get so far


@dataclass
class Job:
    """What a check needs, and the rows that it has measured so far."""

    basis: Basis
    plan: Plan
    header: Header
    policy: Policy
    worker: Worker
    file: RunFile | None = None
    clock: Callable[[], float] = time.monotonic
    rows: list[Row] = field(default_factory=list)
    options: Check = field(default_factory=Check)
    steps: session.Steps = field(init=False)

    def __post_init__(self) -> None:
        self.steps = session.Steps(self.header.devices, self.policy, self.file)

    @property
    def run(self) -> Run:
        return Run(self.header, tuple(self.rows), str(self.file.path) if self.file else "")

    def open_file(self) -> None:
        """Create the file that rows are saved in, if any; `RunFileError` if that cannot be done."""
        if self.options.save:
            self.file = RunFile.create(self.options.save, self.header, self.options.force)
            self.steps = session.Steps(self.header.devices, self.policy, self.file)


@contextlib.contextmanager
def prepared(basis: Basis, options: Check, command: Sequence[str], make_machine: Maker) -> Iterator[Job]:
    """Choose devices and plan; the measuring process lives as long as the context.

    Raises `UsageError` if the base, the options and this machine do not fit together.
    """
    against, own, policy = options.against, options.own, options.policy_of(basis.header.policy)
    if against is not None:  # two kernels are built and verified
        policy = replace(policy, time_limit_s=2 * policy.time_limit_s)
    with Worker(make_machine) as worker:
        all_devices, host = every_device(worker)
        devices, places = _chosen(basis, all_devices, options.device)
        folder = ""  # or what else `Case.former` names
        if against and not own.former:
            folder = str(against if str(against).startswith(DRIVER) else against.absolute())
        plan = rebuild(_wanted(basis), devices, places, folder, own)
        for step in plan:  # the user's own kernels that the base has rows of must be there
            if isinstance(step, Skip) and step.row.own and not step.row.source:
                raise UsageError(step.row.reason)
        if not any(isinstance(step, Case) for step in plan):
            how = " in turn with their former selves" if basis.rules.in_turn else ""
            raise UsageError(f"{basis.bases[0].path} has no rows that can be measured again{how}")
        if against is not None:
            for step in plan:  # start what else times the cases, before time is spent on them
                if isinstance(step, Case) and step.former and step.device >= 0:
                    try:
                        worker.of_former(step, devices[step.device])
                    except NotMeasuredError as error:
                        raise UsageError(f"--against {against}: {error.reason}") from None
            if "source" not in basis.rules.across:
                _check_former(basis, plan, against)
        # The base's tables suit its cases, but a search, or every case several times, is another thing.
        view = "" if options.aa or is_tuning(basis.bases[0]) else basis.header.view
        header = header_of(devices, host, policy, command, view, basis.header.scope)
        yield Job(basis, plan, header, policy, worker, options=options)


def follow(job: Job, listen: Listen) -> CheckOutcome:
    """Measure to the end, to Ctrl-C or to a full disk."""
    outcome = CheckOutcome(job.run)
    steps: Generator[Event, None, Comparison | None]
    steps = repeat(job, job.options.aa) if job.options.aa else check(job)
    try:
        while True:
            listen(next(steps))
    except StopIteration as ended:
        outcome.comparison = ended.value
    except KeyboardInterrupt:
        outcome.interrupted = True
    except RunFileError as error:  # a full disk, for example: the rows so far are worth showing
        outcome.error = error
    finally:
        if job.file:
            job.file.close()
    outcome.run = job.run
    return outcome


def once(job: Job) -> Generator[Event, None, None]:
    """Measure every case once."""
    yield job.steps.planned(sum(isinstance(step, Case) for step in job.plan))
    for step in job.plan:
        job.rows.append((yield from job.steps.take(step, job.worker)))


def repeat(job: Job, times: int) -> Generator[Event, None, None]:
    """Measure every case so many times, each round in a process of its own: an A/A measurement."""
    for _ in range(times):
        job.worker.stop()
        yield from once(job)


def check(job: Job) -> Generator[Event, None, Comparison]:
    """Measure every case once, compare, and measure suspicious rows again: their verdicts are of that alone.

    Raises `RunFileError` if a row cannot be written; the rows before it are safe.
    """
    yield from once(job)
    first = compare(job.basis.bases, [job.run], job.basis.rules)
    former = [(line.row.former.source, line.row.source) for line in first.lines if line.row.former]
    if equal := sum(before == now for before, now in former):
        remark = f"{equal} of {len(former)} rows have the same kernel in the other folder as here"
        first = replace(first, remarks=(*first.remarks, remark))
    suspicious = {
        line.key: line
        for line in first.lines
        if (line.judgement and (line.fails or line.open)) or line.too_slow
        if line.verdict != "changed"  # measuring again changes nothing of that
    }
    if not suspicious:
        return first
    cases = _cases(job)
    now = repetitions(first.news[0], job.basis.header)[0]
    suspects = [_suspect(job.basis, first, now, line) for line in suspicious.values() if line.key in cases]
    settled, without, looks = yield from _settle(job, suspects, cases, first)
    for key, line in suspicious.items():
        if line.row.status != "ok":
            suspicious[key] = replace(line, row=looks.get(key, [line.row])[-1])
    lines = {}
    for each in settled:
        key = each.suspect.key
        line = _line(job.basis, first, suspicious[key], each, without)
        lines[key] = doubted(job.basis.rules, line, [(job.run, row) for row in looks.get(key, ())])
    for line in first.lines:  # a control that failed is nobody's suspect
        if line.key not in lines and (row := without.get(line.key)) and row.status in FAILED:
            lines[line.key] = _broken(line, row)
    return replace(
        first,
        lines=tuple(lines.get(line.key, line) for line in first.lines),
        remarks=(*first.remarks, *_remarks(job.basis, settled)),
    )


def _cases(job: Job) -> dict[RowKey, Case]:
    """The cases that were run, by the key that the base gives them."""
    positions = slots(job.basis.header, job.header)
    return {
        pairing(step, positions[step.device] if step.device >= 0 else HOST): step
        for step in job.plan
        if isinstance(step, Case)
    }


def _suspect(basis: Basis, first: Comparison, now: Repetition, line: Line) -> Suspect:
    base = tuple(basis.base_figures(line.key, now))
    limits = basis.rules.limits(line.row)
    if basis.rules.in_turn:  # its former self stands beside it, batch by batch
        return Suspect(line.key, base, limits, None)
    control = _control(basis, first, line)
    figures = tuple(basis.base_figures(control, now)) if control else ()
    return Suspect(line.key, base, limits, control, figures)


def _control(basis: Basis, first: Comparison, suspect: Line) -> RowKey | None:
    """A GEMM that runs where a row runs: on its device; all CPU devices and the host's BLAS count as one.

    Other rows of the same kernel serve only if their verdict is "same".
    """
    key = suspect.key
    homes = {key[1]}
    cpus = {slot for slot, device in enumerate(basis.header.devices) if device.type == "cpu"}
    if key[1] in cpus or key[1] == HOST:
        homes |= {*cpus, HOST}
    candidates = {
        line.key: (line.verdict, figure)
        for line in first.lines
        if line.judgement and line.row.kind == "gemm" and line.key[1] in homes
        if line.verdict == "same" or line.row.variant != suspect.row.variant
        if (figure := measure(line.row, basis.rules.scope)) is not None
    }
    outside = [other for other in (*candidates, key) if other[2] in BASELINES]
    return next(iter(gate.controls(candidates, outside, key)), None)


Rows = dict[RowKey, Row]
Rounds = Generator[Event, None, tuple[tuple[Settled, ...], Rows, dict[RowKey, list[Row]]]]


def _settle(job: Job, suspects: Sequence[Suspect], cases: Mapping[RowKey, Case], first: Comparison) -> Rounds:
    """Measure what the gate wants; its findings, the rows without a figure, and those with one."""
    end = job.clock() + job.options.patience
    steps = gate.settle(suspects, first.noise, lambda: job.clock() >= end, most_rounds=job.options.rounds)
    yield job.steps.planned(2 * LEAST_ROUNDS * len(suspects))  # if each is settled at once
    without: Rows = {}
    looks: dict[RowKey, list[Row]] = {}
    answer: Answer = None
    while True:
        try:
            wanted: Wanted = steps.send(answer)
        except StopIteration as ended:
            return ended.value, without, looks
        if wanted.fresh:
            job.worker.stop()
        row = yield from job.steps.take(cases[wanted.key], job.worker)
        job.rows.append(row)
        failed = row.status in FAILED
        answer = gate.FAILED if failed else job.basis.rules.measured(row)
        if failed or (answer is None and wanted.key not in without):
            without[wanted.key] = row
        elif answer is not None:
            looks.setdefault(wanted.key, []).append(row)


def _line(
    basis: Basis, first: Comparison, line: Line, settled: Settled, without: Mapping[RowKey, Row]
) -> Line:
    control = settled.suspect.control
    nothing = without.get(line.key)
    if settled.failed and nothing is not None:
        return _broken(line, nothing)
    if settled.judgement is None:
        if nothing is not None:  # skipped each time
            lost = _broken(line, nothing)
            return lost if line.verdict == "broken" else replace(lost, verdict="inconclusive")
        why = "not measured again: --patience was over"
        if control is not None and control in without:
            why = f"its control {without[control].variant} gave no figure: {outcome(without[control])}"
        return replace(line, verdict="inconclusive", reason=why)
    again = judged(basis, first.noise, line, settled.suspect.base, settled.new)
    final = settled.judgement
    return replace(again, too_slow=False, judgement=final, verdict=final.verdict, reason=final.reason)


def _broken(line: Line, row: Row) -> Line:
    return replace(line, row=row, verdict="broken", reason=f"measured again: {outcome(row)}", judgement=None)


def _remarks(basis: Basis, settled: Sequence[Settled]) -> list[str]:
    """How often rows were measured again, and what the controls say of the machine."""
    times = sorted({len(each.new) for each in settled if each.new})
    if not times:
        return []
    often = str(times[0]) if len(times) == 1 else f"{times[0]} to {times[-1]}"
    rows = counted(len(settled), "suspicious row")
    remarks = [f"{rows} measured again, {often} times each; their verdicts are from that alone"]
    alone = sum(each.suspect.control is None for each in settled)
    if alone and not basis.rules.in_turn:
        remarks.append(
            f"{alone} of them without a control: no library was measured, no kernel was as fast as before; "
            "nothing would tell if the machine itself had become slower"
        )
    machines = {each.suspect.control: each.machine for each in settled if each.machine}
    for control, machine in machines.items():
        assert control is not None  # of every machine
        row = basis.rows[control]
        size = f" {row.problem.shape}" if row.problem else ""
        remarks.append(
            f"control {row.variant}{size}: {1 / machine.ratio:.3f} of its speed in the base "
            f"({1 / machine.high:.3f} to {1 / machine.low:.3f})"
        )
    return remarks


def _check_former(basis: Basis, plan: Plan, folder: Path) -> None:
    """Refuse a folder that has none of the kernels that a base was measured with."""
    sources = {row.source for row in basis.rows.values()}
    for step in plan:
        if isinstance(step, Case) and step.former:
            with contextlib.suppress(OSError, UnicodeDecodeError):
                numbers = step.former_case.numbers
                variant = variant_of(step.former_case).with_math(step.math)
                if variant.fingerprint(step.dtype, numbers, kernels_of(step.former)) in sources:
                    return
    raise UsageError(
        f"--against {folder} has none of the kernels that {basis.bases[0].path} was measured with "
        "(--across source compares nevertheless)"
    )


def _wanted(basis: Basis) -> list[Row]:
    """The base's rows that are measured again."""
    keys = {key for key, row in basis.rows.items() if row.status == "ok"}
    if basis.rules.in_turn:
        keys = {key for key in keys if basis.rules.has_former(basis.rows[key])}
    return [replace(row, device=key[1]) for key, row in basis.rows.items() if key in keys]


def _chosen(
    basis: Basis, available: Sequence[DeviceFacts], selector: str
) -> tuple[tuple[DeviceFacts, ...], dict[int, int]]:
    """The devices to measure on, and for each of the base's that is among them its position.

    They are the base's devices, by platform and name. With a selector, its other devices are matched in order
    with the base's that are left. Raises `UsageError` if they are not here, or differ beyond `--across`.
    """
    base_devices = basis.header.devices
    used = sorted({key[1] for key in basis.rows if HOST < key[1] < len(base_devices)})
    if not used:
        return select(available, selector), {}
    devices = select(available, selector) if selector else available
    positions = exact_positions([base_devices[slot] for slot in used], devices)
    others = iter([number for number in range(len(devices)) if selector and number not in positions])
    matched = [number if number is not None else next(others, None) for number in positions]
    pairs = [(slot, devices[at]) for slot, at in zip(used, matched, strict=True) if at is not None]
    if not pairs:
        here = ", ".join(clean(device.title) for device in available)
        raise UsageError(
            f"the base's device is not here: {clean(base_devices[used[0]].title)}; there are {here} "
            "(--device chooses one, --across device,driver compares nevertheless)"
        )
    for slot, device in () if basis.rules.in_turn else pairs:  # in turn, both kernels run here
        if different := foreign(base_devices[slot], device, basis.rules.across):
            across = "device,driver" if different.kind == "device" else "driver"
            raise UsageError(f"{different.reason} (--across {across} compares nevertheless)")
    return tuple(device for _, device in pairs), {slot: number for number, (slot, _) in enumerate(pairs)}
