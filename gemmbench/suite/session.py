"""run(plan) -> events: cases go to the child process, rows to the file, events to the caller.

`estimate` predicts how long that takes.
"""

from __future__ import annotations

import math
import time
from collections import defaultdict
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass, replace

from gemmbench.gemm.measure import INTERLEAVED_S
from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Event, Finished, Plan, Planned, Policy, Skip, Started
from gemmbench.model.device import HOST, Conditions, DeviceFacts
from gemmbench.model.instrument import LEAST_SAMPLES, Handle, NotMeasuredError, too_slow
from gemmbench.model.problem import Gemm
from gemmbench.model.row import FAILED, Row
from gemmbench.model.run_file import RunFile, RunFileError
from gemmbench.model.units import GIGA
from gemmbench.probes.race import amount, control_case, trips_for
from gemmbench.stats import rates
from gemmbench.stats.ceilings import upper_bound

_BURST_S = 0.005  # of the control kernel in one launch
_LAUNCHES = 250  # and so many of the least work, which show slow wake-ups of threads
_BURSTS = 3  # the fastest counts
_FRESH_S = 0.1  # so long the burst after a row is also that before the next
_MOST_FAILURES = 3  # rows that are slow again; then the machine is busy, and no more rows are repeated
_REPEAT_BUDGETS = 4  # for each row of the run: the time after which no more rows are repeated


class Control:
    """Control bursts: a fixed kernel that keeps all cores of a CPU busy, run before and after each row.

    A slower burst shows other programs, steal, a shared physical core and a lower clock alike.

    Args:
        devices: of the run; the first CPU among them runs the bursts, or the host's BLAS if there is none.
        worker: measures.
        limit_s: for a burst, including its preparation.
    """

    def __init__(self, devices: Sequence[DeviceFacts], worker: Worker, limit_s: float) -> None:
        self._device = next((device for device in devices if device.type == "cpu"), None)
        self._worker, self._limit_s = worker, limit_s
        self._kernels: tuple[tuple[Handle, int], ...] = ()  # with the number of launches
        self._last: tuple[float, tuple[float, ...]] = -math.inf, ()

    def burst(self, case: Case, devices: Sequence[DeviceFacts]) -> tuple[float, ...]:
        """Run the control kernel on the CPU, and return its seconds per 10^9 operations as a tuple of one.

        A burst less than 0.1 s old is used again. Return () for GPU cases, or after an error.
        """
        on_cpu = case.device == HOST or devices[case.device].type == "cpu"
        if not on_cpu:
            return ()
        ended, last = self._last
        if time.monotonic() - ended < _FRESH_S:
            return last
        self._worker.limit(self._limit_s)
        try:
            self._kernels = self._kernels or self._prepared(case)
            seconds = work = 0.0
            for kernel, count in self._kernels:
                clock = kernel.prepared.clocks[0]
                seconds += count * min(kernel.batch(clock, count).wall_s for _ in range(_BURSTS))
                work += count * amount(kernel.prepared) * kernel.work
            self._last = time.monotonic(), (seconds / work * GIGA,)
        except NotMeasuredError:
            self._last = math.inf, ()  # never too old
        return self._last[1]

    def _prepared(self, case: Case) -> tuple[tuple[Handle, int], ...]:
        """A long launch and many short ones; of the host's BLAS, which has no launches, products alone."""
        handle = self._worker.prepare(control_case(self._device, case), self._device, Policy())
        if self._device is None:
            product_s = min(handle.batch(handle.prepared.clocks[0], 1).wall_s for _ in range(_BURSTS))
            return ((handle, math.ceil(_BURST_S / product_s)),)
        trips, least = trips_for(handle, _BURST_S), handle.prepared.trips[0]
        return (replace(handle, work=trips), 1), (replace(handle, work=least), _LAUNCHES)


def run(
    plan: Plan, devices: Sequence[DeviceFacts], policy: Policy, worker: Worker, file: RunFile | None = None
) -> Generator[Event, None, None]:
    """Measure a plan case by case, and yield its events.

    Each row is saved before it is yielded; rows already in the file are yielded without measuring. Then rows
    whose control bursts were over 5 % slow are measured again, and saved and yielded if they improved or
    failed. This stops after three that are still slow, or when it has taken four budgets for each row of the
    run, so that a smaller budget always takes less time. `RunFileError` if `Steps.check` raises it.
    """
    steps = Steps(devices, policy, file)
    steps.check(plan)
    yield Planned(sum(isinstance(step, Case) and step.key not in steps.done for step in plan))
    rows: list[Row] = []
    measured: list[tuple[Case, Row]] = []
    for step in plan:
        row = yield from steps.take(step, worker)
        rows.append(row)
        if isinstance(step, Case) and step.key not in steps.done:
            measured.append((step, row))
    best_s, failures = rates.best_burst(rows), 0
    slow = [(case, row) for case, row in measured if rates.burst_loss(row, best_s) > rates.UNCERTAIN]
    yield from [Planned(len(slow))] if slow else []
    end = time.monotonic() + _REPEAT_BUDGETS * policy.budget_s * len(measured)
    for case, before in slow:
        yield steps.started(f"{case.label} again: other programs slowed the CPU")
        row = yield from steps.measure(case, worker)
        loss = rates.burst_loss(row, best_s) if row.conditions and row.conditions.control_s else math.inf
        if row.status in FAILED or (row.status == "ok" and loss < rates.burst_loss(before, best_s)):
            yield steps.finished(replace(row, supersedes=True))
        failures += loss > rates.UNCERTAIN
        if failures == _MOST_FAILURES or time.monotonic() > end:
            return


class Steps:
    """Runs the steps of a plan one by one.

    `done` has the rows that the file held from the start, by key. Raises `RunFileError` if a row cannot be
    written; the rows before it are safe.
    """

    def __init__(self, devices: Sequence[DeviceFacts], policy: Policy, file: RunFile | None = None) -> None:
        """Take the rows of the file, if any, as done. Without a file nothing is saved."""
        self.devices, self.policy = devices, policy
        self.done = {row.key: row for row in (file.done if file else ())}
        self._file = file
        self._number = 0
        self._has_gemms = False
        self._control: Control | None = None
        self._timed = defaultdict[tuple[object, ...], list[tuple[Gemm, float]]](list)

    def check(self, plan: Iterable[Case | Skip]) -> None:
        """Raise `RunFileError` if the file holds a row of this plan from other kernel sources or parameters.

        The parameters change when `tune` saves a preset. Also note whether the plan has GEMMs, for `measure`.
        """
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
        """Yield the events of a step and return its row. A row that the file already holds is not measured.

        New rows are saved, also those of skipped steps.
        """
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

    def measure(self, case: Case, worker: Worker) -> Generator[Event, None, Row]:
        """Measure a case, yield its stages, and return its row unsaved.

        On a CPU a control burst (a fixed kernel) runs before and after, and the row stores their times.
        Energy is not measured for probes if the plan has GEMMs. A GEMM's time is kept as a hint for later.
        """
        device = self.devices[case.device] if case.device >= 0 else None
        policy = self.policy
        if self._has_gemms and case.kind != "gemm":  # measured for its rate alone
            policy = replace(policy, energy=False)
        known = replace(case, measured=self._largest_smaller(case))
        if case.versus:
            known = replace(known, versus=replace(case.versus, measured=self._largest_smaller(case.versus)))
        self._control = self._control or Control(self.devices, worker, policy.time_limit_s)
        bursts = self._control.burst(case, self.devices)
        row = yield from worker.run(known, device, policy)
        bursts += self._control.burst(case, self.devices) if bursts else ()
        if bursts:
            row = replace(row, conditions=replace(row.conditions or Conditions(), control_s=bursts))
        self._remember_time(row)
        return row

    def _remember_time(self, row: Row) -> None:
        times = rates.summary(row, "host")
        if row.kind == "gemm" and row.status == "ok" and times:
            self._timed[_kernel_key(row)].append((rates.gemm_of(row), times.median))

    def _largest_smaller(self, case: Case) -> tuple[Gemm, float] | None:
        """The largest smaller problem that was measured with a case's kernel, and its least seconds."""
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
    """The time that a plan takes, and how many of its cases are probably over budget."""

    seconds: float
    over_budget: int


def estimate(plan: Plan, devices: Sequence[DeviceFacts], policy: Policy) -> Estimate:
    """Predict the time of a plan on a quiet machine. Cases that are over budget take almost none."""
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
    """Predict the time of a row whose product takes `product_s`, without builds."""
    is_pair = bool(case.versus or case.former)
    samples_s = max(policy.budget_s, INTERLEAVED_S * is_pair, LEAST_SAMPLES * product_s)
    verified_s = _ROW_S + _ELEMENT_S * sum(case.gemm.elements_of.values()) + _PRODUCTS * product_s
    return samples_s + verified_s * (2 if is_pair else 1) + _ENERGY_S * policy.energy


def _product_s(case: Case, devices: Sequence[DeviceFacts]) -> float:
    """Guess the time of a case's product from a share of the upper bound; 0 where there is no bound."""
    cpus = [device for device in devices if device.type == "cpu"]
    device = devices[case.device] if case.device != HOST else next(iter(cpus), None)
    bound = upper_bound(device, case.dtype, case.ran_on == "matrix") if device else None
    return case.gemm.flops / (_SHARE * bound.per_second) if bound else 0.0
