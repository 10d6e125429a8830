"""run(plan) -> events: cases go to the child process, rows to the file, events to the caller."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from gemmbench.measure.child import Worker
from gemmbench.measure.sampling import Pairs, in_turn
from gemmbench.model.case import Case, Event, Finished, Plan, Planned, Policy, Skip, Staged, Started
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Parameters, Row, Scope, Work
from gemmbench.model.run_file import RunFile, RunFileError
from gemmbench.model.units import rate
from gemmbench.probes.race import LAUNCH_S, sized, trips_for, winner
from gemmbench.stats import ceilings, rates
from gemmbench.stats.conditions import disturbances

_AGAIN_SHARE = 0.1  # of the run's time, for rows that were disturbed
_LEAST_SHARE_S = 0.12  # that a row samples for, however many there are
_BATCHES = 24  # in the least time: ten of each of two scopes, and some to settle
_MOST_SHARES = 4  # of the total for a slow row


def with_budget(policy: Policy, plan: Plan) -> Policy:
    """The policy of a plan's GEMM rows: where they share out a total, none may have more than four shares.

    That is what its least number of runs has to fit; a row that needs longer is skipped.
    """
    rows = sum(isinstance(step, Case) and step.kind == "gemm" for step in plan)
    if policy.total_s is None or not rows:
        return policy
    return replace(policy, budget_s=min(policy.budget_s, _MOST_SHARES * policy.total_s / rows))


class Shares:
    """Shares the total time of a policy out to the rows of a run, as it passes.

    What a row does not use goes to those after it. Only GEMM rows share: races of a peak need their time.
    """

    def __init__(self, policy: Policy, cases: int, now: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._cases, self._now = policy, cases, now
        self._end = now() + (policy.total_s or 0.0)

    def next(self, case: Case) -> Policy:
        left, self._cases = self._cases, self._cases - 1
        if self._policy.total_s is None:
            return self._policy
        if case.kind != "gemm":
            return replace(self._policy, budget_s=Policy.budget_s)
        share_s = max(_LEAST_SHARE_S, (self._end - self._now()) / max(1, left))
        share_s = min(share_s, self._policy.budget_s)
        batch_s = min(self._policy.batch_s, share_s / _BATCHES)
        return replace(self._policy, share_s=share_s, batch_s=batch_s)


def run(
    plan: Plan,
    devices: Sequence[DeviceFacts],
    policy: Policy,
    worker: Worker,
    file: RunFile | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Event, None, None]:
    """Run a plan, case by case, and measure at the end again what was disturbed.

    Rows are appended to the file, and flushed, before they are yielded; rows that the file already holds
    (``--resume``) are yielded again and not measured again. Raises `RunFileError` as of `Steps`.
    """
    steps = Steps(devices, policy, file, peaks=PeakWatch())
    steps.check(plan)
    yield steps.planned(sum(isinstance(step, Case) and step.key not in steps.done for step in plan))
    suspicious, begin = list[Case](), clock()
    for step in plan:
        row = yield from steps.take(step, worker)
        suspicious += [step] if isinstance(step, Case) and steps.is_disturbed(row) else []
    left_s = (clock() - begin) * _AGAIN_SHARE
    mean_s, end = (clock() - begin) / max(1, len(plan)), clock() + left_s
    yield from [steps.planned(len(suspicious))] if suspicious and mean_s <= left_s else []
    for case in suspicious:  # as far as there is time for; undisturbed rows supersede the first
        if clock() + mean_s > end:
            return
        yield steps.started(f"{case.label} again: it was disturbed")
        row = yield from steps.measure(case, worker)
        if steps.is_disturbed(row):
            return  # and so would the next be
        if row.status == "ok":
            yield steps.finished(replace(row, supersedes=True))


_Timed = tuple[Parameters, Gemm, float]
"""A kernel's parameters, its problem, and seconds for one."""


class Steps:
    """Takes the steps of a plan one by one.

    `held` are the rows that the file held from the start, `done` the same by key, without the incomplete
    ones, which are measured anew. Raises `RunFileError` if a row cannot be written; the rows before it are
    safe.
    """

    def __init__(
        self,
        devices: Sequence[DeviceFacts],
        policy: Policy,
        file: RunFile | None = None,
        peaks: PeakWatch | None = None,
    ) -> None:
        self.devices, self.policy = devices, policy
        self._peaks = peaks
        self.shares = Shares(policy, 0)
        self.held = file.done if file else ()
        self.done = {row.key: row for row in self.held}
        self._file = file
        self._number = 0
        self._has_gemms = False
        self._gemms = defaultdict[tuple[str, int, str], list[Row]](list)
        self._timed = defaultdict[tuple[str, int, str], list[_Timed | None]](list)

    def check(self, plan: Iterable[Case | Skip]) -> None:
        """Raise `RunFileError` if a row in the file is of other kernel sources than the plan's."""
        for step in plan:
            row = step.row if isinstance(step, Skip) else step.row("ok")
            self._has_gemms |= row.kind == "gemm"
            done = self.done.get(row.key)
            if self._file and done and done.source not in ("", row.source):
                raise RunFileError(
                    f"cannot resume {self._file.path}: its rows of {done.variant} are of other kernel "
                    "sources than today's; --force drops them, or give --save another file"
                )

    def planned(self, cases: int) -> Planned:
        """The event before the first case."""
        self.shares = Shares(self.policy, cases)
        return Planned(cases)

    def started(self, label: str) -> Started:
        self._number += 1
        return Started(self._number, label)

    def finished(self, row: Row, is_planned: bool = True) -> Finished:
        """Write a row to the file, and return the event that says so: of a planned case, or of another."""
        if self._file:
            self._file.append(row)
        return Finished(row, is_planned=is_planned)

    def take(self, step: Case | Skip, worker: Worker) -> Generator[Event, None, Row]:
        """Measure a case, unless the file holds its row. The row is yielded as finished, and returned."""
        done = self.done.get(step.row.key if isinstance(step, Skip) else step.key)
        if done is not None:
            self._record(done)
            if self._peaks:
                self._peaks.record(done)
            yield Finished(done, resumed=True)
            return done
        if isinstance(step, Skip):
            row = step.row
        else:
            yield self.started(step.label)
            row = yield from self.measure(step, worker)
        if self._peaks:
            self._peaks.record(row)
        yield self.finished(row, isinstance(step, Case))
        return row

    def measure(self, case: Case, worker: Worker) -> Generator[Event, None, Row]:
        """Measure a case and hold it against the peak; it is not saved yet."""
        device = self.devices[case.device] if case.device >= 0 else None
        policy = self.shares.next(case)
        if self._has_gemms and case.kind != "gemm":  # measured for its rate alone
            policy = replace(policy, energy=False)
        measured = self._measured(case)
        known = replace(case, measured=measured) if measured else case
        if case.versus:
            known = replace(known, versus=replace(case.versus, measured=self._measured(case.versus)))
        row = yield from worker.run(known, device, policy)
        self._record(row)
        if device and self._peaks and not self.is_disturbed(row):
            row, better = yield from self._peaks.beside(row, case, device, policy, worker)
            if better:
                yield self.finished(better, is_planned=False)
        return row

    def _record(self, row: Row) -> None:
        if row.kind == "gemm":
            self._gemms[row.variant, row.device, row.dtype].append(row)

    def is_disturbed(self, row: Row) -> bool:
        on_cpu = row.device == HOST or self.devices[row.device].type == "cpu" or row.ran_on == "host"
        return bool(disturbances(row.conditions, on_cpu))

    def _measured(self, case: Case) -> tuple[tuple[Gemm, float], ...]:
        """The problems that this run has measured a case's kernel on, and seconds for one of each."""
        key = case.variant, case.device, case.dtype
        timed = self._timed[key]
        timed += map(self._time, self._gemms[key][len(timed) :])
        return tuple(each[1:] for each in timed if each and each[0] == case.parameters)

    def _time(self, row: Row) -> _Timed | None:
        """What a row tells of its kernel's time; None if it has none that is believed."""
        times = rates.summary(row, "host")
        if row.status != "ok" or times is None or self.is_disturbed(row):
            return None
        return row.parameters, rates.gemm_of(row), times.median


# --- A GEMM above the measured peak: the peak is measured again, in turn with it ----------------------------


_MOST_AGAIN = 3  # times that a run measures the peak of the same units again
_SHORTEST_S = 1e-3  # of the peak's launches; no longer than the GEMM takes, and no longer than a peak's are


class PeakWatch:
    """The measured peaks of a run, and the GEMMs that are above them.

    One of the two is wrong then. The peak is measured again, batch by batch in turn with the GEMM: where the
    machine was slow before, it rises; a GEMM that stays above it by more than `rates.ABOVE` is suspect.
    """

    def __init__(self) -> None:
        self._rows: list[Row] = []
        self._again: Counter[tuple[int, str, bool, str]] = Counter()

    def record(self, row: Row) -> None:
        if row.kind == "peak":
            self._rows.append(row)

    def beside(
        self, row: Row, case: Case, device: DeviceFacts, policy: Policy, worker: Worker
    ) -> Generator[Staged, None, tuple[Row, Row | None]]:
        """Hold a row against the peak of its units.

        The row, with a note or as suspect where it is above, and the peak's row if that has risen.
        """
        if row.kind != "gemm" or row.status != "ok" or rates.on_host(row):
            return row, None
        reached = rates.shown_rate(row, "kernel")
        units = (row.device, row.dtype, row.ran_on == "matrix", row.sums)
        top = rates.best_peak(self._rows, *units, policy.state)
        if top is None or reached is None or reached.median <= top[0]:
            return row, None
        shown = partial(rate, integer=rates.is_integer(row.dtype))
        text = f"{shown(reached.median)} is above the measured peak of {shown(top[0])}"
        if self._again[units] >= _MOST_AGAIN:
            return _judged(row, reached.median / top[0], f"{text}, measured again with others"), None
        self._again[units] += 1
        yield Staged("measuring the peak again")
        try:
            worker.limit(policy.time_limit_s)
            pairs, again = _in_turn(worker, case, device, policy, top[1])
        except NotMeasuredError as error:
            reason = f"{text}, which could not be measured again: {error.reason}"
            return _judged(row, reached.median / top[0], reason), None
        best = rates.rate(again, "kernel")
        assert best is not None  # it is ok, and has samples
        ceiling = ceilings.most(device, again.dtype, again.ran_on == "matrix", again.max_mhz)
        is_possible = not ceilings.why_above(best.best, ceiling, rate)
        better = again if best.best > top[0] and is_possible else None
        if better:
            self.record(better)
        highest = best.best if better else top[0]
        if reached.median <= highest:
            return row, better
        side = next(iter(pairs.first.scopes.values()))
        beside = rates.gemm_of(row).flops / float(np.median(side.seconds))
        reason = f"{text}; in turn with it the peak was {shown(best.best)} and this row {shown(beside)}"
        return _judged(row, beside / highest, reason), better


def _judged(row: Row, share: float, reason: str) -> Row:
    """A row above the peak: suspect where it stays above by more than is allowed, else with a note."""
    if share <= rates.ABOVE:
        return replace(row, notes=(*row.notes, reason))
    check = replace(row.check, verdict="suspect", reasons=(*row.check.reasons, reason))
    return replace(row, check=check)


def _in_turn(worker: Worker, case: Case, device: DeviceFacts, policy: Policy, peak: Row) -> tuple[Pairs, Row]:
    """Batches of a GEMM and of a peak's winner in turn, and the peak's row with its own."""
    probe = Case(peak.kind, peak.device, peak.variant, peak.dtype, winner(peak), source=peak.source)
    with worker.prepare(case, device, policy) as gemm, worker.prepare(probe, device, policy) as units:
        clock = gemm.prepared.clocks[0]
        gemm.batch(clock, 1)  # the first launch may compile
        one_s = min(LAUNCH_S, max(_SHORTEST_S, gemm.batch(clock, 1).wall_s))
        work = trips_for(units, one_s)
        pairs = in_turn(gemm, sized(units, work), clock, policy, policy.budget_s)
    seconds = tuple(batch.finest_s for batch in pairs.second.batches)
    again = replace(
        peak,
        work=Work(flops=units.prepared.unit.flops * work),
        samples={"kernel": Scope(seconds, pairs.second.size, pairs.second.stop)},
        choice={**peak.choice, "trips": work},
        notes=(*peak.notes, f"measured again, in turn with {case.label}, which was above it"),
        measured_utc="",
        supersedes=True,
    )
    return pairs, again
