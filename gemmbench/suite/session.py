"""run(plan) -> events: cases go to the child process, rows to the file, events to the caller."""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence

from gemmbench.ladder import AUTO
from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Event, Finished, Plan, Planned, Policy, Skip, Started
from gemmbench.model.device import DeviceFacts
from gemmbench.model.row import Row
from gemmbench.model.run_file import RunFile, RunFileError
from gemmbench.suite.auto import Automatic

_OVERHEAD_S = 0.5  # building and verifying, for the first estimate of the time left
_ENERGY_S = 2.5  # resting, warming up and the window


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
            device = self.devices[step.device] if step.device >= 0 else None
            if device and step.variant == AUTO:
                row = yield from self.automatic.measure(step, device, self.policy, worker)
            else:
                row = yield from worker.run(step, device, self.policy)
                self.automatic.record(row, step)
        yield self.finished(row)
        return row
