"""run(plan) -> events: cases go to the child process, rows to the file, events to the caller."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace

from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Event, Finished, Plan, Planned, Policy, Skip, Started
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Parameters, Row
from gemmbench.model.run_file import RunFile, RunFileError
from gemmbench.stats import rates
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
    steps = Steps(devices, policy, file)
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

    def __init__(self, devices: Sequence[DeviceFacts], policy: Policy, file: RunFile | None = None) -> None:
        self.devices, self.policy = devices, policy
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
        """Measure a case; its row is not saved yet."""
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
