"""A base's cases run again: once each, then the suspicious ones until their verdicts are settled."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemmbench import session
from gemmbench.facts.compare import gate
from gemmbench.facts.compare.comparison import Basis, Comparison, Line, compare, judged, told
from gemmbench.facts.compare.gate import Settled, Suspect, Wanted
from gemmbench.facts.compare.measures import measure
from gemmbench.facts.compare.pairing import slots
from gemmbench.facts.events import Event
from gemmbench.facts.records import Header, Policy, Row, RowKey, Run, RunFile
from gemmbench.facts.series import HOST
from gemmbench.rules.plan import Case, Plan
from gemmbench.rules.variants import BASELINES
from gemmbench.worker import Worker


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
    suspicious = {line.key: line for line in first.lines if line.judgement and (line.fails or line.open)}
    if not suspicious:
        return first
    cases = _cases(job)
    suspects = [_suspect(job.basis, first, line) for line in suspicious.values() if line.key in cases]
    settled, failures = yield from _settle(job, suspects, cases, first)
    lines = {one.suspect.key: _line(job.basis, first, suspicious, one, failures) for one in settled}
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


def _suspect(basis: Basis, first: Comparison, line: Line) -> Suspect:
    base = tuple(basis.base_figures(line.key, (first.news[0], line.row)))
    limits = basis.rules.limits(line.row)
    if basis.rules.ratio:
        return Suspect(line.key, base, limits, basis.references[line.key], ratio=True)
    control = next((key for key in _controls(basis, first, line.key) if key != line.key), None)
    figures = tuple(basis.base_figures(control)) if control else ()
    return Suspect(line.key, base, limits, control, figures)


def _controls(basis: Basis, first: Comparison, key: RowKey) -> list[RowKey]:
    """GEMMs that run where a row runs: on its device, and on a CPU device's processor the host's BLAS too."""
    homes = {key[1]}
    cpus = {place for place, device in enumerate(basis.header.devices) if device.type == "cpu"}
    if key[1] in cpus or key[1] == HOST:
        homes |= {*cpus, HOST}
    candidates = {
        line.key: (line.verdict, figure)
        for line in first.lines
        if line.judgement and line.row.kind == "gemm" and line.key[1] in homes
        if (figure := measure(line.row, basis.rules.scope)) is not None
    }
    outside = [other for other in candidates if other[2] in BASELINES]
    return gate.controls(candidates, outside)


Rounds = Generator[Event, None, tuple[tuple[Settled, ...], dict[RowKey, Row]]]


def _settle(job: Job, suspects: Sequence[Suspect], cases: Mapping[RowKey, Case], first: Comparison) -> Rounds:
    """Measure what the gate wants until it has settled; its findings, and the rows that failed."""
    end = job.clock() + job.patience.seconds
    steps = gate.settle(suspects, first.noise, lambda: job.clock() >= end, most_rounds=job.patience.rounds)
    yield job.steps.planned(2 * gate.LEAST_ROUNDS * len(suspects))  # if each is settled at once
    failures: dict[RowKey, Row] = {}
    figure = None
    while True:
        try:
            wanted: Wanted = steps.send(figure)
        except StopIteration as ended:
            return ended.value, failures
        if wanted.fresh:
            job.worker.stop()
        row = yield from job.steps.take(cases[wanted.key], job.worker)
        job.rows.append(row)
        figure = measure(row, job.basis.rules.scope)
        if figure is None:
            failures[wanted.key] = row


def _line(
    basis: Basis,
    first: Comparison,
    suspicious: Mapping[RowKey, Line],
    settled: Settled,
    failures: Mapping[RowKey, Row],
) -> Line:
    """A suspicious row's line after it was measured again."""
    line = suspicious[settled.suspect.key]
    if settled.failed:
        row = failures[line.key]
        return replace(line, row=row, verdict="broken", reason=f"measured again: {told(row)}", judgement=None)
    if settled.judgement is None:
        return replace(line, verdict="inconclusive", reason="not measured again: --patience was over")
    again = judged(basis, first.noise, line, settled.suspect.base, settled.new)
    found = settled.judgement
    return replace(again, judgement=found, verdict=found.verdict, reason=found.reason)


def _remarks(basis: Basis, settled: Sequence[Settled]) -> list[str]:
    """How often rows were measured again, and what the controls say of the machine."""
    times = sorted({len(one.new) for one in settled if one.new})
    if not times:
        return []
    often = str(times[0]) if len(times) == 1 else f"{times[0]} to {times[-1]}"
    rows = f"{len(settled)} suspicious row{'' if len(settled) == 1 else 's'}"
    found = [f"{rows} measured again, {often} times each; their verdicts are from that alone"]
    machines = {control: one.machine for one in settled if one.machine and (control := one.suspect.control)}
    for control, machine in machines.items():
        row = basis.rows[control]
        size = f" {row.problem.m}x{row.problem.n}x{row.problem.k}" if row.problem else ""
        found.append(
            f"control {row.variant}{size}: {1 / machine.ratio:.3f} of its speed in the base "
            f"({1 / machine.high:.3f} to {1 / machine.low:.3f})"
        )
    return found
