"""How a candidate of a probe is launched, timed and checked on an OpenCL device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pyopencl as cl

from gemmbench.ladder.variant import smaller_group
from gemmbench.model.instrument import Batch, Built, Prepared, Verified, When
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.row import Check, Parameters, Work
from gemmbench.opencl.runtime import BuiltProgram, Runtime, errors

SHORTEST_S = 1e-9  # an event of no length is shorter than its clock's tick
MOST_TRIPS = 1 << 29  # twice as many still fit the kernels' int

Enqueue = Callable[[int], Any]  # enqueues one launch of so much work; returns its event


@dataclass
class ProbeBench:
    """What a candidate runs, how it is checked, and its unit of work: a `measure.instrument.Bench`."""

    prepared: Prepared
    run: Callable[[int, int], Batch]  # with so much work, so many times
    check: Callable[..., str]  # how the result of so much work differs from the host's, or ""
    make: Make | None = None  # makes the row's other candidates, which share its buffers

    def __post_init__(self) -> None:
        self._work = self.prepared.trips[0]  # of the latest launch

    def verify(self, when: When) -> Verified:
        with errors():
            wrong = self.check(self._work)
        return Verified(Check("suspect", {}, (wrong,)) if wrong else Check("ok"))

    def start(self, clock: str, count: int, work: int) -> Batch:
        self._work = work
        with errors():
            return self.run(work, count)

    def release(self) -> None:
        """Nothing to do: buffers go with the last reference."""


Make = Callable[[Parameters], ProbeBench]
"""The buffers of a row: makes the bench of a candidate, whose parameters include the row's."""


@dataclass(frozen=True)
class Launcher:
    """A kernel with its geometry."""

    queue: Any
    kernel: Any
    items: int
    group: int
    build: Built  # of its program

    def enqueue(self, arguments: Sequence[Any], items: int = 0) -> Any:
        """Enqueue a launch, perhaps with another number of work-items; its event."""
        self.kernel.set_args(*arguments)
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (items or self.items,), (self.group,))

    def bench(
        self, enqueue: Enqueue, check: Callable[..., str], choice: Parameters, unit: Work,
        trips: tuple[int, int] = (1, MOST_TRIPS), notes: tuple[str, ...] = (),
    ) -> ProbeBench:  # fmt: skip
        """A bench timed by events. `trips` are the units of work in a launch, at least and at most."""
        built = replace(self.build, choice=choice)
        prepared = Prepared(("device",), built=built, notes=notes, unit=unit, trips=trips)
        return ProbeBench(prepared, lambda *work: time_launches(self.queue, enqueue, *work), check)


def make_launcher(
    runtime: Runtime, file: str, options: tuple[str, ...], kernel: str, items: int, group: int,
    built: BuiltProgram | None = None, any_group: bool = False,
) -> Launcher:  # fmt: skip
    """A kernel with its number of work-items and its work-group, from a file compiled with options.

    With `any_group`, the group is halved until the kernel takes it. Raises `NotMeasuredError` if the file
    does not compile, or the group is too large.
    """
    built = built or runtime.build(file, options)
    build = Built(built.seconds, source=fingerprint((file,), options))
    made, (group,) = runtime.shaped(
        built, kernel, lambda most: smaller_group((group,), most) if any_group else (group,)
    )
    return Launcher(runtime.queue, made, items, group, build)


def time_launches(queue: Any, enqueue: Enqueue, work: int, count: int = 1) -> Batch:
    """Mean seconds of `count` launches of so much work, one after another; wall time without event times."""
    begin = time.perf_counter()
    events = [enqueue(work) for _ in range(count)]
    queue.finish()
    end = time.perf_counter()
    try:
        spent = sum(event.profile.end - event.profile.start for event in events) * 1e-9 / count
    except cl.Error:  # the driver has no event times
        spent = (end - begin) / count
    return Batch({"kernel": max(spent, SHORTEST_S)}, begin, end, count)


def host_bench(built: Built, run: Callable[[], float], check: Callable[[], str], unit: Work) -> ProbeBench:
    """A bench that is timed by the host: `run` does a problem and returns the seconds that count."""

    def run_batch(work: int, count: int) -> Batch:
        begin = time.perf_counter()
        each = tuple(run() for _ in range(count))
        return Batch({"host": sum(each) / count}, begin, time.perf_counter(), count, {"host": each})

    return ProbeBench(Prepared(("host",), built=built, unit=unit), run_batch, lambda _: check())


def seconds_of(action: Callable[[], object]) -> float:
    """Wall seconds of an action."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin
