"""run(plan) -> events: cases go to the child process, rows to the file, events to the caller.

`estimate` predicts how long that takes.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from gemmbench.gemm.measure import INTERLEAVED_S
from gemmbench.ladder import control_case
from gemmbench.measure.child import Worker
from gemmbench.model import instrument as wire
from gemmbench.model import quiet
from gemmbench.model.case import Case, Event, Finished, Plan, Planned, Policy, Skip, Started
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import LEAST_SAMPLES, Bursts, NotMeasuredError, too_slow
from gemmbench.model.problem import Gemm
from gemmbench.model.row import FAILED, Row
from gemmbench.model.run_file import RunFile, RunFileError
from gemmbench.stats import rates
from gemmbench.stats.ceilings import upper_bound

_VISIT_S = 1.0  # at most, for a clock of a row that is visited again, until enough batches are quiet
_MOST_VISITS = 3  # to a row with a wide interval: it may be the kernel's own
# For uncertain rows, without --patience: as long as the plan took, half of that from 20 s on
_LEAST_PATIENCE_S, _PATIENCE_S = 10.0, 60.0
_RESUMED_S = 1.0  # that a row took about, if it was in the file already
_BURST_S = 7e-4  # of a control burst: shorter and longer ones repeat less well (docs/methodology.md)

Listen = Callable[[Event], None]
_T = TypeVar("_T")


def drive(events: Generator[Event, None, _T], listen: Listen) -> _T:
    """Pass each event of a generator to `listen`, and return the generator's result."""
    with contextlib.closing(events):
        while True:
            try:
                listen(next(events))
            except StopIteration as end:
                result: _T = end.value
                return result


class Control:
    """Prepares control bursts in each process that needs them."""

    def __init__(self, devices: Sequence[DeviceFacts], worker: Worker, known_s: quiet.References) -> None:
        self._devices, self._worker, self._known_s = devices, worker, known_s
        self._tried: set[int] = set()  # devices

    def prepare(self, case: Case) -> None:
        """Prepare the burst for a case and its partner, once for each device."""
        for index in {case.device, *([case.partner.device] if case.partner else [])} - self._tried:
            self._tried.add(index)
            device = self._devices[index] if index != HOST else None
            if device is None or device.type == "cpu":
                with contextlib.suppress(NotMeasuredError):
                    bursts = self._control_bursts(case, device, self._known_s.get(str(index), 0.0))
                    self._worker.bursts[None if device is None else device.index] = bursts

    def _control_bursts(self, case: Case, device: DeviceFacts | None, known_s: float) -> Bursts:
        """Prepare the control case that goes with a case, as bursts of about 0.7 ms."""
        control = control_case(device, case)
        handle = self._worker.prepare(control, device, Policy())
        clock = handle.prepared.clocks[0]
        handle.batch(clock, 1)
        batches = [handle.batch(clock, 4) for _ in range(3)]
        one_s = min(max(batch.finest_s, batch.wall_s / 10) for batch in batches)  # an event may take 0
        count = math.ceil(_BURST_S / one_s)
        return Bursts(wire.ControlBurst(handle.number, clock, count, control.gemm.flops * count), known_s)


def run_plan(
    plan: Plan,
    devices: Sequence[DeviceFacts],
    policy: Policy,
    worker: Worker,
    file: RunFile | None = None,
    known_s: quiet.References | None = None,
) -> Generator[Event, None, None]:
    """Measure a plan case by case, save its rows, and yield its events.

    Uncertain rows on CPUs are measured again, until the policy's patience is used up: by default as
    long as the plan took, from 20 s on half of that, at most 60 s. Their batches join the earlier ones.
    """
    known_s = known_s or {}
    steps = Steps(devices, policy, file, known_s)
    steps.check(plan)
    yield Planned(sum(isinstance(step, Case) and step.key not in steps.done for step in plan))
    begin = time.monotonic()
    visited: list[tuple[Case, Row]] = []
    for step in plan:
        row = yield from steps.take(step, worker)
        if isinstance(step, Case):
            visited.append((step, row))
    now = time.monotonic()
    plan_s = now - begin + _RESUMED_S * sum(case.key in steps.done for case, _ in visited)
    usual_s = min(plan_s, max(_LEAST_PATIENCE_S, plan_s / 2), _PATIENCE_S)
    end = now + (usual_s if policy.patience_s is None else policy.patience_s)
    visits, turn = Counter[int](), 0
    while time.monotonic() < end and (unsure := _unsure([row for _, row in visited], known_s, visits)):
        index = next((index for index in unsure if index >= turn), unsure[0])
        turn, (case, before) = index + 1, visited[index]
        visits[index] += 1
        yield Planned(1)
        yield steps.started(f"{case.label} again: it is uncertain")
        left_s = min(_VISIT_S, max(0.0, end - time.monotonic()))
        row = yield from steps.measure(case, worker, left_s)
        if row.status == before.status:
            row = _joined(before, row)
        if row.status == before.status or row.status in FAILED:
            visited[index] = case, row
            yield steps.finished(replace(row, supersedes=True))


def _unsure(rows: Sequence[Row], known_s: quiet.References, visits: Counter[int]) -> list[int]:
    """The positions of rows that lack quiet batches, else of those with a wide interval after few visits."""
    settled = enumerate(quiet.with_references(rows, known_s))
    on_cpu = [(i, row) for i, row in settled if row.status == "ok" and rates.has_bursts(row)]
    lacking = [i for i, row in on_cpu if not all(scope.is_complete for scope in row.samples.values())]
    noises = {i: [rates.noise(row, name) or 0.0 for name in row.samples] for i, row in on_cpu if not lacking}
    return lacking or [i for i in noises if visits[i] < _MOST_VISITS and max(noises[i]) > rates.UNCERTAIN]


def _joined(before: Row, after: Row) -> Row:
    if (before.work, before.choice) != (after.work, after.choice):  # a probe's race ended differently
        return max(after, before, key=lambda row: sum(map(sum, map(quiet.flags, row.samples.values()))))
    joined = {
        name: quiet.join_visits(before.samples[name], scope) if name in before.samples else scope
        for name, scope in after.samples.items()
    }
    return replace(after, samples={**before.samples, **joined})


class Steps:
    """Runs the steps of a plan. `done` has the rows of the file."""

    def __init__(
        self, devices: Sequence[DeviceFacts], policy: Policy, file: RunFile | None = None,
        known_s: quiet.References | None = None,
    ) -> None:  # fmt: skip
        self.devices, self.policy = devices, policy
        self.done = {row.key: row for row in (file.done if file else ())}
        self._file = file
        self._number = 0
        self._has_gemms = False
        self._control: Control | None = None
        self._known_s = known_s or {}
        self._timed = defaultdict[tuple[object, ...], list[tuple[Gemm, float]]](list)

    def check(self, plan: Iterable[Case | Skip]) -> None:
        """`RunFileError` if the file's rows are of other sources or parameters."""
        rows = [step.row if isinstance(step, Skip) else step.row("ok") for step in plan]
        self._has_gemms = any(row.kind == "gemm" for row in rows)
        sources = {row.key: row.source for row in rows}
        subjects = {(row.variant, row.device, row.dtype, row.problem) for row in rows if row.problem}
        for done in self.done.values():
            is_planned = (done.variant, done.device, done.dtype, done.problem) in subjects
            other = "parameters" if is_planned and done.key not in sources else ""
            if done.source not in ("", sources.get(done.key, done.source)):
                other = "kernel sources"
            if self._file and other:
                raise RunFileError(
                    f"cannot resume {self._file.path}: its rows of {done.variant} are of other {other} than "
                    "today's; --force drops them, or give --save another file"
                )

    def started(self, label: str) -> Started:
        self._number += 1
        return Started(self._number, label)

    def finished(self, row: Row, is_planned: bool = True) -> Finished:
        if self._file:
            self._file.append(row)
        return Finished(row, is_planned=is_planned)

    def take(self, step: Case | Skip, worker: Worker) -> Generator[Event, None, Row]:
        """Yield a step's events, save and return its row, unless the file has it."""
        done = self.done.get(step.row.key if isinstance(step, Skip) else step.key)
        if done is not None:
            self._remember_time(done)
            yield Finished(done, resumed=True)
            return done
        if isinstance(step, Skip):
            row = step.row
        else:
            yield self.started(step.label)
            row = yield from self.measure(step, worker)
        yield self.finished(row, isinstance(step, Case))
        return row

    def measure(self, case: Case, worker: Worker, patience_s: float = 0.0) -> Generator[Event, None, Row]:
        """Measure a case. Yield its stages, and return its row unsaved."""
        device = self.devices[case.device] if case.device >= 0 else None
        policy = replace(self.policy, patience_s=patience_s)
        if self._has_gemms and case.kind != "gemm":  # measured for its rate alone
            policy = replace(policy, energy=False)
        known = replace(case, measured=self._largest_smaller(case))
        if case.partner:
            partner = replace(case.partner, measured=self._largest_smaller(case.partner))
            known = replace(known, partner=partner)
        self._control = self._control or Control(self.devices, worker, self._known_s)
        self._control.prepare(case)
        row = yield from worker.run(known, device, policy)
        self._remember_time(row)
        return row

    def _remember_time(self, row: Row) -> None:
        times = rates.summary(row, "host")
        if row.kind == "gemm" and row.status == "ok" and times:
            self._timed[_kernel_key(row)].append((rates.gemm_of(row), times.median))

    def _largest_smaller(self, case: Case) -> tuple[Gemm, float] | None:
        smaller = [each for each in self._timed[_kernel_key(case)] if each[0].flops < case.gemm.flops]
        return max(smaller, key=lambda each: (each[0].flops, -each[1]), default=None)


def _kernel_key(of: Case | Row) -> tuple[object, ...]:
    return of.variant, of.device, of.dtype, frozenset(of.parameters.items())


# --- How long a plan takes, for --dry-run -------------------------------------------------------------------

# Measured on two quiet cores of a server with Intel's CPU driver. An H200 differs by less than a third.
_START_S = 1.2  # Python, the drivers, two processes, the first control burst
_BUILD_S = 0.4  # of a kernel, once for all its rows: 0.05 s for naive, 1.8 s for cpu-packed
_ROW_S = 0.15  # exact tests, warm-up and control bursts
_ELEMENT_S = 25e-9  # to generate, copy and verify an element of A, B or C, mostly in numpy on one core
_PRODUCTS = 4  # of a row in addition to its samples, most of them verified
_SHARE = 0.1  # of the upper bound for rates, which a kernel reaches on average
_RACE_S = 0.9  # the builds and launches of an arithmetic probe's race, without its samples; 0.3 for float
_MEMORY_S = 0.7  # of another probe
_ENERGY_S = 2.5


@dataclass(frozen=True)
class Estimate:
    """The time of a plan, and how many cases are probably over budget."""

    seconds: float
    over_budget: int


def estimate(plan: Plan, devices: Sequence[DeviceFacts], policy: Policy) -> Estimate:
    """Predict the time of a plan on a quiet machine."""
    cases = [step for step in plan if isinstance(step, Case)]
    gemms = [case for case in cases if case.kind == "gemm"]
    product_s = [_product_s(case, devices) for case in gemms]
    slow = [too_slow(seconds, policy) is not None for seconds in product_s]
    sides = [case for gemm in gemms for case in (gemm, gemm.versus) if case and case.device != HOST]
    kernels = {(case.variant, case.device, case.dtype, *sorted(case.parameters.items())) for case in sides}
    parts = [_START_S * bool(cases), _BUILD_S * len(kernels)]
    for case, seconds, is_over in zip(gemms, product_s, slow, strict=True):
        parts.append(_ROW_S if is_over else _gemm_s(case, seconds, policy))
    for case in cases:
        if case.kind != "gemm":
            parts.append(_RACE_S + policy.budget_s if case.kind == "peak" else _MEMORY_S)
            parts.append(_ENERGY_S * (policy.energy and case.kind == "peak" and not gemms))
    return Estimate(sum(parts), sum(slow))


def _gemm_s(case: Case, product_s: float, policy: Policy) -> float:
    is_pair = case.partner is not None
    samples_s = max(policy.budget_s, INTERLEAVED_S * is_pair, LEAST_SAMPLES * product_s)
    verified_s = _ROW_S + _ELEMENT_S * sum(case.gemm.elements_of.values()) + _PRODUCTS * product_s
    return samples_s + verified_s * (2 if is_pair else 1) + _ENERGY_S * policy.energy


def _product_s(case: Case, devices: Sequence[DeviceFacts]) -> float:
    cpus = [device for device in devices if device.type == "cpu"]
    device = devices[case.device] if case.device != HOST else next(iter(cpus), None)
    bound = upper_bound(device, case.dtype, case.ran_on == "matrix") if device else None
    return case.gemm.flops / (_SHARE * bound.per_second) if bound else 0.0
