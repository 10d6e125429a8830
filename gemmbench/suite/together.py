"""run(plan) -> events on several devices: each case on each device alone, then on all of them at once.

Every device has a child process of its own. Those of one case are prepared and verified one after another,
and then sampled at once: see `measure.sampling.together`.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace

from gemmbench.ladder import AUTO
from gemmbench.measure.child import Ready, Worker
from gemmbench.measure.sampling import AloneError, Sampled, Window, together
from gemmbench.model.case import Case, Event, Finished, Plan, Policy, Skip, Staged
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.row import Energy, Row, RowKey
from gemmbench.suite.auto import auto_row
from gemmbench.suite.session import Steps
from gemmbench.suite.together_table import case_key, same_place

_MEMORY_KINDS = ("bandwidth", "transfer")  # run at once where there are no GEMMs
_ENERGY = Energy(why="not measured: with other devices busy a counter may count them too")


@dataclass(frozen=True)
class Group:
    """The steps of one case on every device; `cases` are run at once, and are none if fewer than two."""

    steps: tuple[Case | Skip, ...]
    cases: tuple[Case, ...] = ()

    @property
    def label(self) -> str:
        """For people: ``register float 512x512x512 on 0 and 1 at once``."""
        places = [str(case.device) for case in self.cases]
        return f"{self.cases[0].label} on {', '.join(places[:-1])} and {places[-1]} at once"


def grouped(plan: Plan) -> tuple[Group, ...]:
    """A plan case by case, not device by device: both rows of a ratio are measured close in time.

    GEMMs are run at once; of a plan without them, bandwidth and transfers. What runs on the host, and what
    fewer than two devices can run, is run alone.
    """
    has_gemms = any(isinstance(step, Case) and step.kind == "gemm" for step in plan)
    kinds = ("gemm",) if has_gemms else _MEMORY_KINDS

    def group_key(step: Case | Skip) -> object:
        row = step.row if isinstance(step, Skip) else step.row("ok")
        return same_place(row) if row.kind in kinds and row.device != HOST else step

    groups: dict[object, list[Case | Skip]] = {}
    for number, step in enumerate(plan):
        key = group_key(step)
        groups.setdefault(number if key is step else key, []).append(step)
    return tuple(_group(steps, kinds) for steps in groups.values())


def _group(steps: Sequence[Case | Skip], kinds: Sequence[str]) -> Group:
    cases = tuple(
        step
        for step in steps
        if isinstance(step, Case) and step.kind in kinds and step.device != HOST
        if step.problem is None or step.problem.flops
    )
    several = len({case.device for case in cases}) > 1
    return Group(tuple(steps), cases if several else ())


class Crew:
    """A child process for each device: a context manager that ends them all.

    Args:
        first: the first device's, which the host's own BLAS shares; it is left to whoever started it.
        another: makes one for a further device.
        devices: how many there are.
    """

    def __init__(self, first: Worker, another: Callable[[], Worker], devices: int) -> None:
        self._first, self._another, self._devices = first, another, devices
        self._stack = ExitStack()
        self._workers: list[Worker] = []

    def __enter__(self) -> Crew:
        """Start the child processes.

        Raises:
            WorkerError: one cannot list the devices.
        """
        with ExitStack() as stack:
            others = [stack.enter_context(self._another()) for _ in range(1, self._devices)]
            for worker in others:
                worker.devices()  # importing a driver is not to count as the time of a case
            self._stack = stack.pop_all()
        self._workers = [self._first, *others]
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def of(self, device: int) -> Worker:
        """The child process of a device; the host's cases run in the first device's."""
        return self._workers[max(device, 0)]


def run(groups: Sequence[Group], crew: Crew, steps: Steps) -> Generator[Event, None, None]:
    """Run groups one after another: each case on each device alone, then all at once.

    Rows are on the disk before they are yielded. Rows that the file held already are not measured again; of
    a group that lacks some only those are added.

    Raises:
        RunFileError: a row cannot be written; the rows before it are safe. Or those that the file held are
            of other kernels.
    """
    steps.check(step for group in groups for step in group.steps)
    done = {case_key(row): row for row in steps.done.values() if row.beside}
    alone = sum(
        isinstance(step, Case) and step.key not in steps.done for group in groups for step in group.steps
    )
    at_once = sum(case.key not in done for group in groups for case in group.cases)
    yield steps.planned(alone + at_once)
    for group in groups:
        rows: dict[RowKey, Row] = {}
        for step in group.steps:
            row = yield from steps.take(step, crew.of(_device(step)))
            if isinstance(step, Case):
                rows[step.key] = row
        if not group.cases:
            continue
        missing = [case for case in group.cases if case.key not in done]
        yield from (Finished(done[case.key], resumed=True) for case in group.cases if case.key in done)
        if missing:
            joint_rows = yield from _at_once(group, rows, crew, steps)
            for case in missing:
                yield steps.finished(joint_rows[case.key])


def _device(step: Case | Skip) -> int:
    return step.row.device if isinstance(step, Skip) else step.device


def _at_once(
    group: Group, alone: dict[RowKey, Row], crew: Crew, steps: Steps
) -> Generator[Event, None, dict[RowKey, Row]]:
    """A row for each case of a group: those that were ok alone are run, the others say why they are not."""
    rows: dict[RowKey, Row] = {}
    able: list[tuple[Case, Case]] = []  # and what it runs: `auto` what it took when it was alone
    for case in group.cases:
        row = alone[case.key]
        inner = case if case.variant != AUTO else steps.automatic.ran(case, steps.devices[case.device], row)
        if row.status != "ok":
            rows[case.key] = case.row("skipped", f"alone it is {row.status}")
        elif inner is None:
            rows[case.key] = case.row("skipped", "alone the host's own BLAS was taken")
        else:
            able.append((case, inner))
    if len(able) == 1:
        case, _ = able.pop()
        rows[case.key] = case.row("skipped", "no other device has a figure of its own")
    beside: dict[int, set[int]] = {}
    if able:
        yield steps.started(group.label)
        members = [
            _Member(crew.of(inner.device), inner, steps.devices[inner.device], steps.policy)
            for _, inner in able
        ]
        yield from _measure(members)
        for (case, inner), member in zip(able, members, strict=True):
            reason = str(alone[case.key].choice.get("why", ""))
            assert member.row is not None  # of every member that was measured
            together = member.row if case is inner else auto_row(case, inner, reason, member.row)
            rows[case.key] = replace(together, energy=_ENERGY if together.status == "ok" else together.energy)
            beside[case.device] = member.beside
    every = {case.device for case in group.cases}
    return {
        key: row.placed(row.device, beside.get(row.device) or every - {row.device})
        for key, row in rows.items()
    }


class _Member:
    """One device's part in a case that several run at once."""

    def __init__(self, worker: Worker, case: Case, device: DeviceFacts, policy: Policy) -> None:
        self.worker, self.case, self.device = worker, case, device
        self.policy = replace(policy, energy=False)
        self.row: Row | None = None
        self.beside: set[int] = set()  # the devices that were busy through its latest window
        self.ready: Ready | None = None
        self.sampled: list[Sampled] = []

    def begin(self) -> Generator[Staged, None, None]:
        """Bring the child to its first batch; if that fails, its row is made."""
        outcome = yield from self.worker.begun(self.case, self.device, self.policy)
        self.row, self.ready = (outcome, None) if isinstance(outcome, Row) else (None, outcome)

    def end(self) -> None:
        """Release the child's memory, and make its row if there is none yet."""
        if self.ready:
            with self.ready.handle:
                try:
                    self.row = self.row or self.ready.completed(self.sampled)
                except Exception as error:
                    self.row = self.worker.row_of(self.case, error)

    def lose(self, error: Exception, gone: Sequence[_Member]) -> None:
        """End without a figure: the child failed, or no other device is left."""
        if isinstance(error, AloneError):
            statuses = ", ".join(f"{member.row.device} {member.row.status}" for member in gone if member.row)
            error = NotMeasuredError("skipped", f"no other device was left beside it: {statuses}")
        self.row = self.worker.row_of(self.case, error)


def _measure(members: Sequence[_Member]) -> Iterator[Staged]:
    """Measure the members' case on all of them at once; afterwards each has its row."""
    for member in members:
        for stage in member.begin():
            yield Staged(f"{member.case.device}: {stage.stage}")
    windows = next((member.ready.windows for member in members if member.ready), ())
    for window in windows:
        yield Staged(f"timing {window.clock}")
        _sample([member for member in members if member.row is None], members, window)
    for member in members:
        member.end()


def _sample(live: Sequence[_Member], members: Sequence[_Member], window: Window) -> None:
    """Measure one window on every member that has no row yet."""
    devices = {member.case.device for member in live}
    for member in live:
        member.beside = devices - {member.case.device} or member.beside
    handles = [member.ready.handle for member in live if member.ready]
    policy = members[0].policy
    results = together(handles, window.clock, policy, window.budget_s, window.settle)
    outcomes = list(zip(live, results, strict=True))
    left = {member.case.device for member, result in outcomes if isinstance(result, Sampled)}
    # Those that went wrong come first: whoever was left alone names them.
    for member, result in sorted(outcomes, key=lambda outcome: isinstance(outcome[1], AloneError)):
        if isinstance(result, Sampled):
            member.sampled.append(result)
            member.beside = left - {member.case.device}
        else:
            member.lose(result, members)
