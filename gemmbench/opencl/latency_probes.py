"""Brings the latency probes to a device: a chase through memory, and launches of an empty kernel."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.records import Parameters, Work
from gemmbench.model.instrument import Batch, Prepared, Verified, When
from gemmbench.opencl.launching import MOST_TRIPS, Bench, Loop, MemoryRow, launcher, timed, verified
from gemmbench.opencl.runtime import Runtime, errors
from gemmbench.rules.memory_data import random_cycle

_WORD = np.dtype(np.uint32)
_MOST_WARMING = 1 << 20  # hops: a set with more nodes fits no cache
_SHORTEST_S = 1e-9  # stamps without a difference are closer than the clock's tick


class Chase:
    """A random cycle through a set of one size."""

    def __init__(self, row: MemoryRow) -> None:
        self._row, runtime = row, row.runtime
        self._spacing = 64 if runtime.facts.type == "cpu" else 128  # bytes: a line of a cache
        nodes = int(row.parameters["bytes"]) // self._spacing
        memory, self._cycle = random_cycle(nodes, self._spacing // _WORD.itemsize)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        self._nodes = cl.Buffer(runtime.context, flags, hostbuf=memory)
        self._where = runtime.buffer(_WORD.itemsize)

    def bench(self, parameters: Parameters) -> Bench:
        """See `launching.Operands`: its trips are hops."""
        runtime, probe = self._row.runtime, self._row.probe
        launched = launcher(runtime, probe.file, probe.options, probe.kernel, 1, 1)
        loop = Loop(launched, lambda hops: (self._nodes, self._where, np.uint32(hops)), self._check)
        self._start()
        if self._cycle.size <= _MOST_WARMING:
            timed(runtime.queue, lambda: loop.enqueue(self._cycle.size))
        return Bench(self, loop, {"spacing": self._spacing}, Work(), (2, MOST_TRIPS))

    def _start(self) -> None:
        cl.enqueue_copy(self._row.runtime.queue, self._where, np.zeros(1, _WORD))

    def _check(self, loop: Loop, hops: int) -> str:
        self._start()
        loop.enqueue(hops)
        got, expected = np.empty(1, _WORD), int(self._cycle[hops % self._cycle.size])
        cl.enqueue_copy(self._row.runtime.queue, got, self._where)
        return "" if got[0] == expected else f"{hops} hops end at {int(got[0])}, not at {expected}"


class Launches:
    """A kernel that does nothing: operands and bench at once."""

    def __init__(self, row: MemoryRow) -> None:
        self._runtime, self._probe = row.runtime, row.probe
        launched = launcher(row.runtime, row.probe.file, row.probe.options, row.probe.kernel, 1, 1)
        self._kernel, self.operands = launched.kernel, self
        self.prepared = Prepared(("host",), built=launched.build)

    def bench(self, parameters: Parameters) -> Launches:
        """See `launching.Operands`."""
        return self

    def verify(self, when: When) -> Verified:
        """Nothing is computed."""
        return verified("")

    def start(self, clock: str, count: int, work: int) -> Batch:
        """So many launches: each waited for and timed, or in one go."""
        begin = time.monotonic()
        with errors():
            if self._probe.chain:
                for _ in range(count):
                    _enqueue(self._runtime.plain_queue, self._kernel)
                self._runtime.plain_queue.finish()
                end = time.monotonic()
                return Batch({"host": (end - begin) / count}, begin, end, count)
            launch = _LAUNCHES[self._probe.name]
            each = tuple(launch(self._runtime, self._kernel) for _ in range(count))
        return Batch({"host": sum(each) / count}, begin, time.monotonic(), count, {"host": each})

    def release(self) -> None:
        """Nothing to do."""


# --- one launch: its seconds --------------------------------------------------------------------------------


def _enqueue(queue: Any, kernel: Any) -> Any:
    return cl.enqueue_nd_range_kernel(queue, kernel, (1,), (1,))


def _dispatch(runtime: Runtime, kernel: Any) -> float:
    queue = runtime.plain_queue
    begin = time.perf_counter()
    _enqueue(queue, kernel)
    spent = time.perf_counter() - begin
    queue.finish()
    return spent


def _start(runtime: Runtime, kernel: Any) -> float:
    event = _enqueue(runtime.queue, kernel)
    runtime.queue.finish()
    spent: int = event.profile.start - event.profile.queued
    return max(spent * 1e-9, _SHORTEST_S)


def _round_trip(runtime: Runtime, kernel: Any) -> float:
    queue = runtime.plain_queue
    begin = time.perf_counter()
    _enqueue(queue, kernel)
    queue.finish()
    return time.perf_counter() - begin


_LAUNCHES: Mapping[str, Callable[[Runtime, Any], float]] = {
    "launch-dispatch": _dispatch,
    "launch-start": _start,
    "launch-round-trip": _round_trip,
}
