"""The launches that probes are timed by: what a probe brings to a device, and the bench that runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import pyopencl as cl

from gemmbench.facts.kernel_files import fingerprint
from gemmbench.facts.records import Check, Parameters, Work
from gemmbench.model import instrument
from gemmbench.model.instrument import Batch, Prepared, Verified, When
from gemmbench.opencl.runtime import Built, Runtime, errors

_SHORTEST_S = 1e-9  # an event of no length is shorter than its clock's tick
MOST_TRIPS = 1 << 29  # twice as many still fit the kernels' int

Enqueue = Callable[[], Any]  # puts one launch into the queue; its event


class Candidate(Protocol):
    """One way to run a probe: a kernel, and how it is launched."""

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
class Launcher:
    """A kernel with its geometry."""

    queue: Any
    kernel: Any
    items: int
    group: int

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
        queue: that it is launched in.
        candidate: what is launched.
        prepared: what is told of it.
        operands: what it shares with others.
    """

    def __init__(self, queue: Any, candidate: Candidate, prepared: Prepared, operands: Operands) -> None:
        self.candidate, self.prepared, self.operands = candidate, prepared, operands
        self._queue = queue
        self._work = prepared.trips[0]  # of the latest launch

    def verify(self, when: When) -> Verified:
        """Check what launches like the latest compute."""
        with errors():
            return verified(self.candidate.wrong(self._work))

    def start(self, clock: str, count: int, work: int) -> Batch:
        """See `measure.instrument.Bench`."""
        self._work = work
        with errors():
            return timed(self._queue, lambda: self.candidate.enqueue(work), count)

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


def prepared(
    built: Built,
    source: tuple[str, tuple[str, ...]],
    choice: Parameters,
    unit: Work,
    trips: tuple[int, int],
    notes: tuple[str, ...] = (),
) -> Prepared:
    """What is told of a candidate.

    Args:
        built: its program.
        source: the program's file and options.
        choice: what tells it from other candidates, for the row.
        unit: what it does in a unit of work.
        trips: the least and the most units of work in a launch that is measured.
        notes: for the row.
    """
    file, options = source
    facts = instrument.Built(built.seconds, choice=choice, source=fingerprint((file,), options))
    return Prepared(("device",), built=facts, notes=notes, unit=unit, trips=trips)


def launcher(
    runtime: Runtime, source: tuple[str, tuple[str, ...]], kernel: str, items: int, group: int
) -> tuple[Built, Launcher]:
    """A kernel of a file compiled with options, and its program.

    Raises:
        NotMeasuredError: it is refused, or needs too many registers for such a group.
    """
    built = runtime.build(*source)
    return built, Launcher(runtime.queue, runtime.kernel(built, kernel, (group,)), items, group)
