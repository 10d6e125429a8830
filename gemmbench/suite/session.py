"""run(plan) -> events: cases go to the child process, rows to the file, events to the caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace

from gemmbench.ladder import AUTO
from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Plan, Policy, Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.events import Event, Finished, Planned, Started
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.model.run_file import RunFile, RunFileError
from gemmbench.stats import rates
from gemmbench.suite.auto import Automatic

_OVERHEAD_S = 0.5  # building and verifying, for the first estimate of the time left
_ENERGY_S = 2.5  # resting, warming up and the window
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

    Args:
        policy: with a total, or without one.
        cases: that are to be measured.
        now: seconds; replaced in tests.
    """

    def __init__(self, policy: Policy, cases: int, now: Callable[[], float] = time.monotonic) -> None:
        self._policy, self._cases, self._now = policy, cases, now
        self._end = now() + (policy.total_s or 0.0)

    def next(self, case: Case) -> Policy:
        """The policy for the next case."""
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
    automatic: Automatic | None = None,
) -> Generator[Event, None, None]:
    """Run a plan, case by case.

    Rows are appended to the file, and flushed, before they are yielded; rows that the file already holds
    (``--resume``) are yielded again and not measured again. `auto` chooses by what it knew before and by the
    rows so far.

    Raises:
        RunFileError: a row cannot be written; the rows before it are safe. Or those that the file held are
            of other kernels.
    """
    steps = Steps(devices, policy, file, automatic)
    steps.check(plan)
    yield steps.planned(sum(isinstance(step, Case) and step.key not in steps.done for step in plan))
    for step in plan:
        yield from steps.take(step, worker)


class Steps:
    """Takes the steps of a plan one by one.

    Attributes:
        done: the rows that the file held from the start, by key.
    """

    def __init__(
        self,
        devices: Sequence[DeviceFacts],
        policy: Policy,
        file: RunFile | None = None,
        automatic: Automatic | None = None,
    ) -> None:
        self.devices, self.policy = devices, policy
        self.automatic = automatic or Automatic()
        self.shares = Shares(policy, 0)
        self.done = {row.key: row for row in file.done} if file else {}
        self._file = file
        self._number = 0

    def check(self, plan: Iterable[Case | Skip]) -> None:
        """Check that the rows in the file are of the same kernels as the plan.

        Raises:
            RunFileError: a row is of other kernel sources than today's.
        """
        for step in plan:
            row = step.row if isinstance(step, Skip) else step.row("ok")
            done = self.done.get(row.key)
            if self._file and done and done.source not in ("", row.source):
                raise RunFileError(
                    f"cannot resume {self._file.path}: its rows of {done.variant} are of other kernel "
                    "sources than today's; --force drops them, or give --save another file"
                )

    def planned(self, cases: int) -> Planned:
        """The event before the first case: how many there are to measure."""
        self.shares = Shares(self.policy, cases)
        each_s = self.policy.budget_s + _OVERHEAD_S + (_ENERGY_S if self.policy.energy else 0.0)
        return Planned(cases, cases * each_s if self.policy.total_s is None else self.policy.total_s)

    def started(self, label: str) -> Started:
        """The event before a case is measured."""
        self._number += 1
        return Started(self._number, label)

    def finished(self, row: Row) -> Finished:
        """Write a row to the file, and return the event that says so.

        Raises:
            RunFileError: it cannot be written.
        """
        if self._file:
            self._file.append(row)
        return Finished(row)

    def take(self, step: Case | Skip, worker: Worker) -> Generator[Event, None, Row]:
        """Measure a case, unless the file holds its row. The row is yielded as finished, and returned."""
        done = self.done.get(step.row.key if isinstance(step, Skip) else step.key)
        if done is not None:
            self.automatic.record(done)
            yield Finished(done, resumed=True)
            return done
        if isinstance(step, Skip):
            row = step.row
        else:
            yield self.started(step.label)
            device = self.devices[step.device] if step.device >= 0 else None
            policy = self.shares.next(step)
            if device and step.variant == AUTO:
                row = yield from self.automatic.measure(step, device, policy, worker)
            else:
                known = replace(step, measured=self._measured(step))
                if step.versus:
                    known = replace(known, versus=replace(step.versus, measured=self._measured(step.versus)))
                row = yield from worker.run(known, device, policy)
                self.automatic.record(row, step)
        yield self.finished(row)
        return row

    def _measured(self, case: Case) -> tuple[tuple[Gemm, float], ...]:
        """The problems that this run has measured a case's kernel on, and seconds for one of each."""
        return tuple(
            (rates.gemm_of(row), times.median)
            for row in self.automatic.rows
            if (row.kind, row.variant, row.device, row.dtype)
            == ("gemm", case.variant, case.device, case.dtype)
            if row.parameters == case.parameters and row.status == "ok"
            if (times := rates.summary(row, "host"))
        )
