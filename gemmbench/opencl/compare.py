"""Batches of which every result is compared with the first, on the device: see `CHECKED`."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.instrument import Batch, WrongResult
from gemmbench.opencl.runtime import Runtime, errors

_FILE = "check/compare.cl"
_GROUPS_PER_UNIT = 8
_GROUP = 256  # on a GPU
_WORDS = {4: "uint", 2: "ushort", 1: "uchar"}
_COUNTERS = 4
_CLEAR = np.array((0, 0, (1 << 32) - 1, 0), np.uint32)  # no word, no bit, none the first


class Comparer:
    """Compares buffers of one size with a reference."""

    def __init__(self, runtime: Runtime, first: Any, nbytes: int) -> None:
        self._queue, self._first = runtime.queue, first
        self._width = next(width for width in _WORDS if nbytes % width == 0)
        self._words = nbytes // self._width
        self._group = 1 if runtime.facts.type == "cpu" else min(_GROUP, runtime.facts.max_work_group_size)
        built = runtime.build(_FILE, (f"-DWORD={_WORDS[self._width]}",))
        self._kernel = runtime.kernel(built, "compare", (self._group,))
        self._items = max(1, runtime.facts.compute_units) * _GROUPS_PER_UNIT * self._group
        # Two: while one batch is read, the next is in the queue.
        self._counters = cycle([_Counters(runtime) for _ in range(2)])

    def batch(
        self,
        count: int,
        scope: str,
        erase: Callable[[int], Sequence[Any]],
        launch: Callable[[int], tuple[Sequence[Any], Any]],
    ) -> Checked:
        """Put problems into the queue, before each its result erased, and behind it compared.

        Args:
            count: of problems.
            scope: of their seconds.
            erase: enqueues what overwrites the result of a number; its events.
            launch: enqueues the problem of a number; its events, None for steps without, and its result.
        """
        counters = next(self._counters)
        counters.clear(count)
        begin = time.monotonic()
        events: list[Sequence[Any]] = []
        checks: list[Any] = []
        for number in range(count):
            checks += erase(number)
            steps, result = launch(number)
            events.append(steps)
            self._kernel.set_args(
                result, self._first, counters.buffer, np.uint32(_COUNTERS * number), np.uint32(self._words)
            )
            checks.append(
                cl.enqueue_nd_range_kernel(self._queue, self._kernel, (self._items,), (self._group,))
            )
        last = counters.read(count)
        self._queue.flush()
        return Checked(events, checks, last, counters.host[:count], self._width, scope, begin)


class _Counters:
    """Four numbers for each problem of a batch, on the device and on the host: words, bits, the first, 0."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._room = runtime, 0
        self.buffer: Any = None
        self.host: ReferenceArray = np.empty((0, _COUNTERS), np.uint32)

    def clear(self, count: int) -> None:
        """Nothing is wrong so far."""
        if count > self._room:
            self._room = count
            self.buffer = self._runtime.buffer(count * _CLEAR.nbytes)
            self.host = self._pinned(count)
        cl.enqueue_fill_buffer(self._runtime.queue, self.buffer, _CLEAR, 0, count * _CLEAR.nbytes)

    def _pinned(self, count: int) -> ReferenceArray:
        """Host memory that is copied to without waiting; mapped for good."""
        staging = self._runtime.buffer(
            count * _CLEAR.nbytes, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        )
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        view, _ = cl.enqueue_map_buffer(
            self._runtime.queue, staging, flags, 0, (count, _COUNTERS), np.dtype(np.uint32), is_blocking=True
        )
        return np.asarray(view)

    def read(self, count: int) -> Any:
        """Enqueue reading them; the event."""
        return cl.enqueue_copy(self._runtime.queue, self.host[:count], self.buffer, is_blocking=False)


@dataclass(frozen=True)
class Checked:
    """A batch in the queue: a `measure.instrument.Running`."""

    events: Sequence[Sequence[Any]]  # of each problem
    checks: Sequence[Any]  # of erasing and comparing
    last: Any
    counted: ReferenceArray
    width: int
    scope: str
    begin: float

    def done(self) -> bool:
        with errors():
            return int(self.last.command_execution_status) <= int(cl.command_execution_status.COMPLETE)

    def finish(self) -> Batch:
        """Wait for it: seconds of a problem and of its comparison, and the results that differ."""
        with errors():
            self.last.wait()
            end = time.monotonic()
            check_s = sum(map(_seconds, self.checks))
            count = len(self.events)
            if all(event is not None for steps in self.events for event in steps):
                spent_s = sum(_seconds(event) for steps in self.events for event in steps)
            else:
                spent_s = end - self.begin - check_s
        wrong = tuple(
            WrongResult(number, int(bits), int(words), int(first) * self.width)
            for number, (words, bits, first, _) in enumerate(self.counted)
            if words
        )
        seconds = {self.scope: max(spent_s, 1e-9) / count, "check": check_s / count}
        return Batch(seconds, self.begin, end, count, wrong=wrong)


def erased(queue: Any, buffer: Any) -> Any:
    """Enqueue setting every bit of a buffer; the event."""
    pattern = np.uint32(0xFFFFFFFF) if buffer.size % 4 == 0 else np.uint8(0xFF)
    return cl.enqueue_fill_buffer(queue, buffer, pattern, 0, buffer.size)


def _seconds(event: Any) -> float:
    return float(event.profile.end - event.profile.start) * 1e-9
