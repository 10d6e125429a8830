"""The launches that probes are timed by: what a probe brings to a device, and the bench that runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import pyopencl as cl

from gemmbench.facts.kernel_files import fingerprint
from gemmbench.facts.records import Check, Parameters, Work
from gemmbench.model import instrument
from gemmbench.model.instrument import Batch, Prepared, Verified, When
from gemmbench.opencl.runtime import Built, Runtime, errors
from gemmbench.rules.memory import MemoryProbe
from gemmbench.rules.memory_data import RepeatedTable

_SHORTEST_S = 1e-9  # an event of no length is shorter than its clock's tick
MOST_TRIPS = 1 << 29  # twice as many still fit the kernels' int

Enqueue = Callable[[], Any]  # puts one launch into the queue; its event


class Candidate(Protocol):
    """One way to run a probe: a kernel, and how it is launched."""

    @property
    def launcher(self) -> Launcher:
        """The kernel with its geometry."""

    def enqueue(self, work: int) -> Any:
        """One launch of so much work; its event."""

    def wrong(self, work: int) -> str:
        """How the result of such a launch differs from what the host expects, or ""."""


class Operands(Protocol):
    """What the candidates of a row share: its buffers on the device, and what the host knows of them."""

    def bench(self, parameters: Parameters) -> Bench | Any:
        """A candidate, ready to run.

        Raises:
            NotMeasuredError: the device's compiler refuses it.
        """


@dataclass(frozen=True)
class MemoryRow:
    """A row of a probe of memory, transfers or latencies."""

    runtime: Runtime
    probe: MemoryProbe
    parameters: Parameters  # the row's, or those of one of its candidates
    table: RepeatedTable  # what sets are filled with


@dataclass(frozen=True)
class Launcher:
    """A kernel with its geometry."""

    queue: Any
    kernel: Any
    items: int
    group: int
    build: instrument.Built  # of its program

    def enqueue(self, arguments: Sequence[Any], items: int = 0) -> Any:
        """One launch, perhaps of another number of work-items; its event."""
        self.kernel.set_args(*arguments)
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (items or self.items,), (self.group,))


@dataclass(frozen=True)
class Loop:
    """A kernel that runs so many trips of a loop, its work."""

    launcher: Launcher
    arguments: Callable[[int], Sequence[Any]]  # of the kernel, from the number of trips
    check: Callable[[Loop, int], str]

    def enqueue(self, work: int) -> Any:
        """See `Candidate`."""
        return self.launcher.enqueue(self.arguments(work))

    def wrong(self, work: int) -> str:
        """See `Candidate`."""
        return self.check(self, work)


class Bench:
    """A candidate that is timed by its events and the wall clock: see `measure.instrument.Bench`.

    Args:
        operands: what it shares with others.
        candidate: what is launched.
        choice: what tells it from the others, for the row.
        unit: what it does in a unit of work.
        trips: the least and the most units of work in a launch that is measured.
        notes: for the row.
    """

    def __init__(
        self,
        operands: Operands,
        candidate: Candidate,
        choice: Parameters,
        unit: Work,
        trips: tuple[int, int],
        notes: tuple[str, ...] = (),
    ) -> None:
        self.operands, self.candidate = operands, candidate
        built = replace(candidate.launcher.build, choice=choice)
        self.prepared = Prepared(("device",), built=built, notes=notes, unit=unit, trips=trips)
        self._work = trips[0]  # of the latest launch

    def verify(self, when: When) -> Verified:
        """Check what launches like the latest compute."""
        with errors():
            return verified(self.candidate.wrong(self._work))

    def start(self, clock: str, count: int, work: int) -> Batch:
        """See `measure.instrument.Bench`."""
        self._work = work
        with errors():
            return timed(self.candidate.launcher.queue, lambda: self.candidate.enqueue(work), count)

    def release(self) -> None:
        """Nothing to do: buffers go with the last reference."""


def timed(queue: Any, enqueue: Enqueue, count: int = 1) -> Batch:
    """Launch so many times back to back and wait; event seconds of one launch."""
    begin = time.monotonic()
    events = [enqueue() for _ in range(count)]
    queue.finish()
    end = time.monotonic()
    spent = sum(event.profile.end - event.profile.start for event in events) * 1e-9 / count
    return Batch({"kernel": max(spent, _SHORTEST_S)}, begin, end, count)


def verified(wrong: str) -> Verified:
    """A probe's answer, wrong for a reason or, if that is "", right."""
    return Verified(Check("suspect", {}, (wrong,)) if wrong else Check("ok"))


def launcher(
    runtime: Runtime,
    file: str,
    options: tuple[str, ...],
    kernel: str,
    items: int,
    group: int,
    built: Built | None = None,
) -> Launcher:
    """A kernel of a file compiled with options, or of a program that was built from them.

    Raises:
        NotMeasuredError: it is refused, or needs too many registers for such a group.
    """
    built = built or runtime.build(file, options)
    build = instrument.Built(built.seconds, source=fingerprint((file,), options))
    return Launcher(runtime.queue, runtime.kernel(built, kernel, (group,)), items, group, build)
