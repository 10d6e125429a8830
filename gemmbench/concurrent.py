"""run(plan) -> events on several devices: each case on each device alone, then on all of them at once.

Every device has a child process of its own. Those of one case keep step: each verifies its answer and waits;
when all are ready they start, once all are busy batches count, when all have samples enough batches no longer
count, and once that is so everywhere they stop: every sample was taken while all devices were busy. A child
that dies or hangs costs its own row: the others begin their window anew without it.

    child   verifying -> ready    a batch -> begun    sampling -> sampled    sampling on -> past    row
    parent           all ready: go     all begun: count    all sampled: past        all past: stop
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection, wait
from typing import Literal

from gemmbench.automatic import named
from gemmbench.facts.concurrent import case_key, same_place
from gemmbench.facts.events import Event, Finished, Staged
from gemmbench.facts.records import DeviceFacts, Energy, Policy, Row, RowKey
from gemmbench.facts.series import HOST
from gemmbench.rules.plan import Case, Plan, Skip
from gemmbench.rules.variants import AUTO
from gemmbench.session import Steps
from gemmbench.worker import Worker, timed_out

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
    """A plan case by case, not device by device, so that a ratio does not hold two moods of a machine.

    GEMMs are run at once; of a plan without them, bandwidth and transfers. What runs on the host, and what
    fewer than two devices can run, is run alone.
    """
    has_gemms = any(isinstance(step, Case) and step.kind == "gemm" for step in plan)
    kinds = ("gemm",) if has_gemms else _MEMORY_KINDS

    def place(step: Case | Skip) -> object:
        row = step.row if isinstance(step, Skip) else step.row("ok")
        return same_place(row) if row.kind in kinds and row.device != HOST else step

    groups: dict[object, list[Case | Skip]] = {}
    for number, step in enumerate(plan):
        found = place(step)
        groups.setdefault(number if found is step else found, []).append(step)
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
        """Start them.

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
        """A device's; the host's is the first."""
        return self._workers[max(device, 0)]


def run(groups: Sequence[Group], crew: Crew, steps: Steps) -> Generator[Event, None, None]:
    """Run groups one after another: each case on each device alone, then all at once.

    Rows are on the disk before they are yielded. Rows that the file held already are not measured again; of
    a group that lacks some only those are added.

    Raises:
        RunFileError: a row cannot be written; the rows before it are safe. Or those that the file held are
            of other kernels.
    """
    steps.check(step for one in groups for step in one.steps)
    done = {case_key(row): row for row in steps.done.values() if row.beside}
    alone = sum(isinstance(step, Case) and step.key not in steps.done for one in groups for step in one.steps)
    at_once = sum(case.key not in done for one in groups for case in one.cases)
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
            found = yield from _at_once(group, rows, crew, steps)
            for case in missing:
                yield steps.finished(found[case.key])


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
        inner = case if case.variant != AUTO else steps.automatic.taken(case, steps.devices[case.device], row)
        if row.status != "ok":
            rows[case.key] = case.row("skipped", f"alone it is {row.status}")
        elif inner is None:
            rows[case.key] = case.row("skipped", "alone the host's own BLAS was taken")
        else:
            able.append((case, inner))
    if len(able) == 1:
        case, _ = able.pop()
        rows[case.key] = case.row("skipped", "no other device has a figure of its own")
    if able:
        yield steps.started(group.label)
        members = [
            _Member(crew.of(inner.device), inner, steps.devices[inner.device], steps.policy)
            for _, inner in able
        ]
        yield from _in_step(members)
        for (case, inner), member in zip(able, members, strict=True):
            why = str(alone[case.key].choice.get("why", ""))
            assert member.row is not None  # of every member that has been in step
            found = member.row if case is inner else named(case, inner, why, member.row)
            rows[case.key] = replace(found, energy=_ENERGY if found.status == "ok" else found.energy)
    beside = {member.case.device: member.beside for member in (members if able else [])}
    every = {case.device for case in group.cases}
    return {
        key: row.placed(row.device, beside.get(row.device) or every - {row.device})
        for key, row in rows.items()
    }


State = Literal["running", "ready", "starting", "begun", "busy", "sampled", "leaving", "past", "done"]
_SAID: dict[str, State] = {"begun": "begun", "sampled": "sampled", "past": "past"}
_WINDOW: tuple[State, ...] = ("starting", "begun", "busy", "sampled", "leaving", "past")
_WORKING: tuple[State, ...] = (
    "running",
    "starting",
    "busy",
    "leaving",
)  # its own time passes, nobody else is waited for


class _Member:
    """One device's part in a case that several run at once."""

    def __init__(self, worker: Worker, case: Case, device: DeviceFacts, policy: Policy) -> None:
        self.case = case
        self.row: Row | None = None
        self.beside: set[int] = set()  # the devices that were busy through its latest window
        self._worker, self._policy = worker, replace(policy, energy=False)
        self._device = device
        self._state: State = "running"
        self._starts = 0  # of windows begun anew
        self._left_s = policy.time_limit_s  # of its own time: waiting for others is not its fault
        self._since = 0.0

    def begin(self) -> Connection:
        """Start its child on the case."""
        self._since = time.monotonic()
        return self._worker.begin(self.case, self._device, self._policy)

    @property
    def state(self) -> State:
        """How far it is."""
        return self._state

    @state.setter
    def state(self, new: State) -> None:
        now = time.monotonic()
        if self._works:
            self._left_s -= now - self._since
        self._since, self._state = now, new

    @property
    def _works(self) -> bool:
        return self._state in _WORKING

    @property
    def left_s(self) -> float | None:
        """Its own time that is left; None while it waits for others."""
        return self._left_s - (time.monotonic() - self._since) if self._works else None

    def hear(self) -> str:
        """Take in what its child says next; a stage, for people."""
        kind, value = self._worker.receive()
        if kind == "stage":
            return str(value.stage)
        if kind == "ready":
            self.state = "ready"
            return "waiting for the others"
        if kind in _SAID:
            if value == self._starts:  # not said before it heard that it must begin anew
                self.state = _SAID[kind]
        else:
            self._finish(value if isinstance(value, Row) else self.case.row("crashed", str(value)))
        return ""

    def expire(self) -> None:
        """Its time is over."""
        self._worker.stop()
        self._finish(timed_out(self.case, self._policy.time_limit_s, self._policy))

    def _finish(self, row: Row) -> None:
        self.row = row
        self.state = "done"

    def go(self, beside: set[int]) -> None:
        """Enter a window with others."""
        self.beside = beside
        self.state = "starting"
        self._worker.order("go")

    def count(self) -> None:
        """All are busy."""
        self.state = "busy"
        self._worker.order("count")

    def leave(self) -> None:
        """All have samples enough."""
        self.state = "leaving"
        self._worker.order("past")

    def stop(self) -> None:
        """No batch counts any more, anywhere."""
        self.state = "running"
        self._worker.order("stop")

    def anew(self, beside: set[int]) -> None:
        """Begin the window again: one of the others is gone."""
        self.beside = beside
        self._starts += 1
        self.state = "starting"
        self._worker.order("anew")

    def give_up(self, reason: str) -> None:
        """Nobody is left to keep step with."""
        self.state = "running"
        self._worker.order("nobody", reason)


def _in_step(members: Sequence[_Member]) -> Iterator[Staged]:
    """Lead the members through their case; afterwards each has its row."""
    channels = {member.begin(): member for member in members}
    try:
        while any(member.row is None for member in members):
            _lead(members)
            working = [left for member in members if (left := member.left_s) is not None]
            speaking = wait(
                [channel for channel, member in channels.items() if member.row is None],
                max(0.0, min(working, default=1.0)),
            )
            for channel in speaking:
                assert isinstance(channel, Connection)
                member = channels[channel]
                if stage := member.hear():
                    yield Staged(f"{member.case.device}: {stage}")
            for member in members:
                if (left := member.left_s) is not None and left <= 0:
                    member.expire()
    finally:
        for member in members:
            if member.row is None:  # Ctrl-C, say
                member.expire()


def _lead(members: Sequence[_Member]) -> None:
    """Give the orders that the members' states ask for."""
    left = [member for member in members if member.state != "done"]
    gone = [member for member in members if member.state == "done"]
    window = [member for member in left if member.state in _WINDOW]
    places = {member.case.device for member in left}
    if window and any(member.beside - places for member in window):
        for member in window:
            if len(left) > 1:
                member.anew(places - {member.case.device})
            else:
                member.give_up(_why_alone(gone))
    elif window and all(member.state == "begun" for member in left):
        for member in window:
            member.count()
    elif window and all(member.state == "sampled" for member in left):
        for member in window:
            member.leave()
    elif window and all(member.state == "past" for member in left):
        for member in window:
            member.stop()
    elif left and all(member.state == "ready" for member in left):
        for member in left:
            if len(left) > 1:
                member.go(places - {member.case.device})
            else:
                member.give_up(_why_alone(gone))


def _why_alone(gone: Sequence[_Member]) -> str:
    rows = [member.row for member in gone if member.row]
    told = ", ".join(f"{row.device} {row.status}" for row in rows)
    return f"no other device was left beside it: {told}"
