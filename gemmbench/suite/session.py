"""run(plan) -> events: cases go to the child process, rows to the file, events to the caller."""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import replace

from gemmbench.ladder import AUTO
from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Plan, Policy, Skip
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.events import Event, Finished, Planned, Started
from gemmbench.model.row import Row
from gemmbench.model.run_file import RunFile, RunFileError
from gemmbench.stats.conditions import disturbances
from gemmbench.suite.auto import Automatic

_OVERHEAD_S = 0.5  # building and verifying, for the first estimate of the time left
_AGAIN_SHARE = 0.25  # of the run's time, for rows that were disturbed
_ENERGY_S = 2.5  # resting, warming up and the window


def run(
    plan: Plan,
    devices: Sequence[DeviceFacts],
    policy: Policy,
    worker: Worker,
    file: RunFile | None = None,
    automatic: Automatic | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Generator[Event, None, None]:
    """Run a plan, case by case, and measure at the end again what was disturbed.

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
    took_s: list[float] = []  # of each row that is measured
    suspicious: list[tuple[Case, float]] = []  # and the seconds that it took; 0 if an earlier run measured it
    for step in plan:
        begin = clock()
        row = yield from steps.take(step, worker)
        if isinstance(step, Case):
            each_s = 0.0 if step.key in steps.done else clock() - begin
            took_s += [each_s] if each_s else []
            suspicious += [(step, each_s)] if steps.is_disturbed(row) else []
    if suspicious and took_s:
        mean_s, end = sum(took_s) / len(took_s), clock() + sum(took_s) * _AGAIN_SHARE
        cases = [(case, each_s or mean_s) for case, each_s in suspicious]
        yield from _again(cases, steps, worker, end, clock)


def _again(
    cases: Sequence[tuple[Case, float]],
    steps: Steps,
    worker: Worker,
    end: float,
    clock: Callable[[], float],
) -> Generator[Event, None, None]:
    """Measure disturbed cases again, as far as there is time for. Undisturbed rows supersede the first."""
    yield steps.planned(len(cases))
    for case, took_s in cases:
        if clock() + took_s > end:
            continue
        yield steps.started(f"{case.label} again: it was disturbed")
        row = yield from steps.measure(case, worker)
        if row.status == "ok" and not steps.is_disturbed(row):
            yield steps.finished(replace(row, supersedes=True))


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
        each_s = self.policy.budget_s + _OVERHEAD_S + (_ENERGY_S if self.policy.energy else 0.0)
        return Planned(cases, cases * each_s)

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
            row = yield from self.measure(step, worker)
        yield self.finished(row)
        return row

    def measure(self, case: Case, worker: Worker) -> Generator[Event, None, Row]:
        """Measure a case, and remember the row for `auto`; it is not saved yet."""
        device = self.devices[case.device] if case.device >= 0 else None
        if device and case.variant == AUTO:
            return (yield from self.automatic.measure(case, device, self.policy, worker))
        row = yield from worker.run(case, device, self.policy)
        self.automatic.record(row, None if self.is_disturbed(row) else case)
        return row

    def is_disturbed(self, row: Row) -> bool:
        """Whether the conditions of a row speak against it."""
        on_cpu = row.device == HOST or self.devices[row.device].type == "cpu" or row.ran_on == "host"
        return bool(disturbances(row.conditions, on_cpu))
