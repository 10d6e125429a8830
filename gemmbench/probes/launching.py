"""The launches that probes are timed by: what a probe brings to a device, and the bench that runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
import pyopencl as cl

from gemmbench.ladder.variant import smaller_group
from gemmbench.model import instrument
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.instrument import CHECKED, Batch, Prepared, Verified, When
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.row import Check, Parameters, Work
from gemmbench.opencl.batches import Comparer, erased
from gemmbench.opencl.runtime import Built, ChainSpan, Runtime, Span, errors
from gemmbench.probes.memory import MemoryProbe
from gemmbench.probes.reference import TABLE_ELEMENTS, RepeatedTable, sum_bits

_SHORTEST_S = 1e-9  # an event of no length is shorter than its clock's tick
MOST_TRIPS = 1 << 29  # twice as many still fit the kernels' int

Inspect = Callable[[], tuple[str, dict[str, float]]]
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
        """A candidate, ready to run; `NotMeasuredError` if the device's compiler refuses it."""


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
        return self.launcher.enqueue(self.arguments(work))

    def wrong(self, work: int) -> str:
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
        inspect: looks into its program: what is wrong there, or "", and figures for the check.
        written: the buffer that a launch writes, if it writes the same each time.
    """

    def __init__(
        self,
        operands: Operands,
        candidate: Candidate,
        choice: Parameters,
        unit: Work,
        trips: tuple[int, int],
        notes: tuple[str, ...] = (),
        inspect: Inspect = lambda: ("", {}),
        written: Any = None,
    ) -> None:
        self.operands, self.candidate, self._inspect = operands, candidate, inspect
        self._written, self._comparers = written, dict[int, Comparer]()
        built = replace(candidate.launcher.build, choice=choice)
        checked = written is not None
        self.prepared = Prepared(("device",), (), built, notes=notes, unit=unit, trips=trips, checked=checked)
        self._work = trips[0]  # of the latest launch

    def verify(self, when: When) -> Verified:
        with errors():
            wrong = self.candidate.wrong(self._work)
        lacking, figures = self._inspect()
        reasons = tuple(filter(None, (wrong, lacking)))
        return Verified(Check("suspect" if reasons else "ok", figures, reasons))

    def _checked_batch(self, count: int, work: int) -> Batch:
        """So many launches, what each writes compared with what the first has written."""
        queue = self.candidate.launcher.queue
        if work not in self._comparers:
            erased(queue, self._written)
            first = cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, self._written.size)
            self.candidate.enqueue(work)
            cl.enqueue_copy(queue, first, self._written)
            runtime = self.operands.runtime  # type: ignore[attr-defined]  # of those that say what is written
            self._comparers[work] = Comparer(runtime, first, self._written.size)

        def erase(number: int) -> list[Any]:
            return [erased(queue, self._written)]

        def launch(number: int) -> tuple[list[Any], Any]:
            return [self.candidate.enqueue(work)], self._written

        return self._comparers[work].batch(count, "kernel", erase, launch).finish()

    def start(self, clock: str, count: int, work: int) -> Batch:
        self._work = work
        with errors():
            if clock == CHECKED:
                return self._checked_batch(count, work)
            runtime = getattr(self.operands, "runtime", None)
            span = runtime.span() if runtime else None
            return timed(self.candidate.launcher.queue, lambda: self.candidate.enqueue(work), count, span)

    def release(self) -> None:
        """Nothing to do: buffers go with the last reference."""


def timed(queue: Any, enqueue: Enqueue, count: int = 1, span: Span | ChainSpan | None = None) -> Batch:
    """Launch so many times back to back and wait; event seconds of one launch.

    A span counts the device's cycles from before the first to after the last.
    """
    if span:
        queue.finish()
    begin = time.monotonic()
    events = [enqueue() for _ in range(count)]
    queue.finish()
    end = time.monotonic()
    spent = sum(event.profile.end - event.profile.start for event in events) * 1e-9 / count
    if span:
        span.end()
    mhz = span.mhz() if span else None
    return Batch({"kernel": max(spent, _SHORTEST_S)}, begin, end, count, mhz=mhz)


def verified(wrong: str) -> Verified:
    """A probe's answer, wrong for a reason or, if that is "", right."""
    return Verified(Check("suspect", {}, (wrong,)) if wrong else Check("ok"))


def launcher(
    runtime: Runtime, file: str, options: tuple[str, ...], kernel: str, items: int, group: int,
    built: Built | None = None, any_group: bool = False,
) -> Launcher:  # fmt: skip
    """A kernel of a file compiled with options, or of a program that was built from them.

    Where ``any_group`` will do, the group is a smaller one if the driver takes no such as compiled. Raises
    `NotMeasuredError` if it is refused, or needs too many registers for such a group.
    """
    built = built or runtime.build(file, options)
    build = instrument.Built(built.seconds, source=fingerprint((file,), options))
    if any_group:
        (group,) = smaller_group((group,), runtime.largest_group(built, kernel))
    return Launcher(runtime.queue, runtime.kernel(built, kernel, (group,)), items, group, build)


# --- Working sets on a device: buffers of the repeated table, and checks of what kernels read or wrote ------


_FILL = "memory/fill.cl"
_GROUPS_PER_UNIT = 8
_WORD = np.dtype(np.uint32)
_SLICES = 64
_SLICE_ELEMENTS = 4096


class Sets:
    """Makes buffers on one device and reads them back."""

    def __init__(self, runtime: Runtime, table: RepeatedTable) -> None:
        self._runtime, self.table = runtime, table

    def filled(self, elements: int, offset: int = 0) -> Any:
        """A buffer of floats that holds the table's sequence from an offset on."""
        facts = self._runtime.facts
        buffer = self._runtime.buffer(elements * _WORD.itemsize)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        source = cl.Buffer(self._runtime.context, flags, hostbuf=self.table.table)
        group = 1 if facts.type == "cpu" else min(256, facts.max_work_group_size)
        kernel = self._runtime.kernel(self._runtime.build(_FILL, ()), "fill", (group,))
        kernel.set_args(source, buffer, *map(np.uint32, (TABLE_ELEMENTS, offset, elements)))
        items = max(1, facts.compute_units) * _GROUPS_PER_UNIT * group
        cl.enqueue_nd_range_kernel(self._runtime.queue, kernel, (items,), (group,))
        self._runtime.queue.finish()
        return buffer

    def blank(self, elements: int) -> Any:
        buffer = self._runtime.buffer(elements * _WORD.itemsize)
        self.erase(buffer, elements)
        return buffer

    def erase(self, buffer: Any, elements: int) -> None:
        size = elements * _WORD.itemsize
        cl.enqueue_fill_buffer(self._runtime.queue, buffer, b"\xff" * _WORD.itemsize, 0, size)
        self._runtime.queue.finish()

    def read(self, buffer: Any, first: int, count: int) -> ReferenceArray:
        words = np.empty(count, _WORD)
        cl.enqueue_copy(self._runtime.queue, words, buffer, src_offset=first * _WORD.itemsize)
        return words

    def wrong_sum(self, sums: Any, items: int, expected: int) -> str:
        """How the sum over all work-items' sums differs from the host's, or ""."""
        got = sum_bits(self.read(sums, 0, items))
        if got == expected:
            return ""
        return f"the sum of all that was read is {got:#010x}, not {expected:#010x}"

    def wrong_group_sums(self, sums: Any, expected: ReferenceArray, group: int) -> str:
        """How the work-groups' sums (expected: a word each) differ from the host's, or ""."""
        items = expected.size * group
        got = self.read(sums, 0, items).reshape(-1, group).sum(axis=1, dtype=np.uint64).astype(_WORD)
        right = got == expected
        if right.all():
            return ""
        wrong, first = int((~right).sum()), int(np.argmin(right))
        return (
            f"{wrong} of {expected.size} groups' sums differ from the host's; "
            f"group {first} has {int(got[first]):#010x}, not {int(expected[first]):#010x}"
        )

    def wrong_words(self, buffer: Any, elements: int, expected: Callable[[int, int], ReferenceArray]) -> str:
        """How a buffer differs from what the host expects, in evenly spread slices; "" if it does not."""
        length = min(elements, _SLICE_ELEMENTS)
        for first in np.unique(np.linspace(0, elements - length, _SLICES).astype(np.int64)):
            right = self.read(buffer, int(first), length) == expected(int(first), length).view(_WORD)
            if not right.all():
                position = int(first) + int(np.argmin(right))
                return f"word {position} of {elements} is not what the host expects"
        return ""
