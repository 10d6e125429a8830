"""A base's cases run again: once each, then the suspicious ones until their verdicts are settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemmbench import session
from gemmbench.facts.compare import gate
from gemmbench.facts.compare.basis import Basis
from gemmbench.facts.compare.comparison import Comparison, Line, compare, judged, told
from gemmbench.facts.compare.gate import Answer, Settled, Suspect, Wanted
from gemmbench.facts.compare.measures import measure
from gemmbench.facts.compare.pairing import Repetition, repetitions, slots
from gemmbench.facts.events import Event
from gemmbench.facts.records import FAILED, Header, Policy, Row, RowKey, Run, RunFile
from gemmbench.facts.series import HOST
from gemmbench.measure.child import Worker
from gemmbench.rules.plan import Case, Plan
from gemmbench.rules.variants import BASELINES


@dataclass(frozen=True)
class Patience:
    """How long suspicious rows are measured again."""

    seconds: float = 600.0
    rounds: int = gate.MOST_ROUNDS


@dataclass
class Job:
    """What a check needs, and the rows that it has measured so far."""

    basis: Basis
    plan: Plan
    header: Header
    policy: Policy
    worker: Worker
    file: RunFile | None = None
    patience: Patience = field(default_factory=Patience)
    clock: Callable[[], float] = time.monotonic
    rows: list[Row] = field(default_factory=list)
    steps: session.Steps = field(init=False)

    def __post_init__(self) -> None:
        self.steps = session.Steps(self.header.devices, self.policy, self.file)

    @property
    def run(self) -> Run:
        """The rows so far as a run."""
        return Run(self.header, tuple(self.rows), str(self.file.path) if self.file else "")


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
    """Measure every case once, compare, and measure the suspicious rows again.

    Returns:
        The comparison, each suspicious row's verdict from its later measurements alone.

    Raises:
        RunFileError: a row cannot be written; the rows before it are safe.
    """
    yield from once(job)
    first = compare(job.basis.bases, [job.run], job.basis.rules, job.basis.noises)
    first = replace(first, remarks=(*first.remarks, *_of_equal(first.lines)))
    suspicious = {
        line.key: line
        for line in first.lines
        if (line.judgement and (line.fails or line.open)) or line.too_slow
    }
    if not suspicious:
        return first
    cases = _cases(job)
    now = repetitions(first.news[0], job.basis.header)[0]
    suspects = [_suspect(job.basis, first, now, line) for line in suspicious.values() if line.key in cases]
    settled, without, latest = yield from _settle(job, suspects, cases, first)
    for key, line in suspicious.items():
        if line.row.status != "ok":
            suspicious[key] = replace(line, row=latest.get(key, line.row))
    lines = {one.suspect.key: _line(job.basis, first, suspicious, one, without) for one in settled}
    for line in first.lines:  # a control that failed is nobody's suspect
        if line.key not in lines and (row := without.get(line.key)) is not None and row.status in FAILED:
            lines[line.key] = _broken(line, row)
    return replace(
        first,
        lines=tuple(lines.get(line.key, line) for line in first.lines),
        remarks=(*first.remarks, *_remarks(job.basis, settled)),
    )


def _cases(job: Job) -> dict[RowKey, Case]:
    """The cases that were run, by the key that the base gives them."""
    places = slots(job.basis.header, job.header)
    found = {}
    for step in job.plan:
        if isinstance(step, Case):
            place = places[step.device] if step.device >= 0 else HOST
            found[replace(step, device=place).key] = step
    return found


def _suspect(basis: Basis, first: Comparison, now: Repetition, line: Line) -> Suspect:
    base = tuple(basis.base_figures(line.key, now))
    limits = basis.rules.limits(line.row)
    if basis.rules.in_turn:  # its former self stands beside it, batch by batch
        return Suspect(line.key, base, limits, None)
    if basis.rules.ratio:
        return Suspect(line.key, base, limits, basis.references[line.key], ratio=True)
    control = next(iter(_controls(basis, first, line)), None)
    figures = tuple(basis.base_figures(control, now)) if control else ()
    return Suspect(line.key, base, limits, control, figures)


def _controls(basis: Basis, first: Comparison, suspect: Line) -> list[RowKey]:
    """GEMMs that run where a row runs: on its device, and on a CPU device's processor the host's BLAS too.

    Where a kernel's own rows have become uncertain with it, they say nothing of the machine.
    """
    key = suspect.key
    homes = {key[1]}
    cpus = {place for place, device in enumerate(basis.header.devices) if device.type == "cpu"}
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
    return gate.controls(candidates, outside, key)


Rows = dict[RowKey, Row]
Rounds = Generator[Event, None, tuple[tuple[Settled, ...], Rows, Rows]]


def _settle(job: Job, suspects: Sequence[Suspect], cases: Mapping[RowKey, Case], first: Comparison) -> Rounds:
    """Measure what the gate wants until it has settled.

    Returns:
        Its findings, the rows without a figure, and the latest with one.
    """
    end = job.clock() + job.patience.seconds
    steps = gate.settle(suspects, first.noise, lambda: job.clock() >= end, most_rounds=job.patience.rounds)
    yield job.steps.planned(2 * gate.LEAST_ROUNDS * len(suspects))  # if each is settled at once
    without: Rows = {}
    latest: Rows = {}
    answer: Answer = None
    while True:
        try:
            wanted: Wanted = steps.send(answer)
        except StopIteration as ended:
            return ended.value, without, latest
        if wanted.fresh:
            job.worker.stop()
        row = yield from job.steps.take(cases[wanted.key], job.worker)
        job.rows.append(row)
        failed = row.status in FAILED
        answer = gate.FAILED if failed else job.basis.rules.measured(row)
        if failed or (answer is None and wanted.key not in without):
            without[wanted.key] = row
        elif answer is not None:
            latest[wanted.key] = row


def _line(
    basis: Basis,
    first: Comparison,
    suspicious: Mapping[RowKey, Line],
    settled: Settled,
    without: Mapping[RowKey, Row],
) -> Line:
    """A suspicious row's line after it was measured again."""
    line, control = suspicious[settled.suspect.key], settled.suspect.control
    nothing = without.get(line.key)
    if settled.failed and nothing is not None:
        return _broken(line, nothing)
    if settled.judgement is None:
        if nothing is not None:  # skipped each time
            lost = _broken(line, nothing)
            return lost if line.verdict == "broken" else replace(lost, verdict="inconclusive")
        why = "not measured again: --patience was over"
        if control is not None and control in without:
            why = f"its control {without[control].variant} gave no figure: {told(without[control])}"
        return replace(line, verdict="inconclusive", reason=why)
    again = judged(basis, first.noise, line, settled.suspect.base, settled.new)
    found = settled.judgement
    return replace(again, too_slow=False, judgement=found, verdict=found.verdict, reason=found.reason)


def _broken(line: Line, row: Row) -> Line:
    return replace(line, row=row, verdict="broken", reason=f"measured again: {told(row)}", judgement=None)


def _of_equal(lines: Sequence[Line]) -> Iterator[str]:
    """That kernels were held against themselves."""
    former = [(line.row.former.source, line.row.source) for line in lines if line.row.former]
    if equal := sum(before == now for before, now in former):
        yield f"{equal} of {len(former)} rows have the same kernel in the other folder as here"


def _remarks(basis: Basis, settled: Sequence[Settled]) -> list[str]:
    """How often rows were measured again, and what the controls say of the machine."""
    times = sorted({len(one.new) for one in settled if one.new})
    if not times:
        return []
    often = str(times[0]) if len(times) == 1 else f"{times[0]} to {times[-1]}"
    rows = f"{len(settled)} suspicious row{'' if len(settled) == 1 else 's'}"
    found = [f"{rows} measured again, {often} times each; their verdicts are from that alone"]
    alone = sum(one.suspect.control is None for one in settled)
    if alone and not basis.rules.in_turn:
        found.append(
            f"{alone} of them without a control: no library was measured, no kernel was as fast as before; "
            "nothing would tell if the machine itself had become slower"
        )
    machines = {control: one.machine for one in settled if one.machine and (control := one.suspect.control)}
    for control, machine in machines.items():
        row = basis.rows[control]
        size = f" {row.problem.m}x{row.problem.n}x{row.problem.k}" if row.problem else ""
        found.append(
            f"control {row.variant}{size}: {1 / machine.ratio:.3f} of its speed in the base "
            f"({1 / machine.high:.3f} to {1 / machine.low:.3f})"
        )
    return found
