"""Brings the transfer probes to a device: host memory (pageable, pinned or mapped) and a buffer."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.model.case import Case, Policy
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.instrument import Batch, Built, Prepared, Verified, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Parameters, Work
from gemmbench.opencl.runtime import Runtime, errors, page_aligned
from gemmbench.probes import PROBES
from gemmbench.probes.arithmetic import ChainProbe, MatrixProbe
from gemmbench.probes.arithmetic_opencl import Chains, Tiles
from gemmbench.probes.launching import MOST_TRIPS, Bench, Loop, MemoryRow, Operands, launcher, timed, verified
from gemmbench.probes.memory import BY_NAME, FLOAT_BYTES
from gemmbench.probes.memory_opencl import GlobalMemory, Image, LocalMemory, WorkingSet
from gemmbench.probes.reference import RepeatedTable, random_cycle

_BLANK = b"\xff" * FLOAT_BYTES
_BOTH = cl.map_flags.READ | cl.map_flags.WRITE


class TransferBench:
    """One way to make a transfer: see `measure.instrument.Bench`.

    `transfer` moves everything once; seconds, without what need not be timed.
    """

    def __init__(self, operands: Copies | Maps, way: str, transfer: Callable[[], float]) -> None:
        self.operands, self._transfer = operands, transfer
        unit = Work(bytes=operands.values.nbytes)
        self.prepared = Prepared(("host",), built=Built(choice={"way": way}), unit=unit)

    def verify(self, when: When) -> Verified:
        """Whether what is sent arrives where it was not before."""
        with errors():
            self.operands.blank()
            self._transfer()
            arrived = self.operands.result().view(np.uint32) == self.operands.values.view(np.uint32)
        return verified("" if arrived.all() else "what arrived is not what was sent")

    def start(self, clock: str, count: int, work: int) -> Batch:
        """Transfer so many times, one after the other."""
        begin = time.monotonic()
        with errors():
            total = sum(self._transfer() for _ in range(count))
        return Batch({"host": total / count}, begin, time.monotonic(), count)

    def release(self) -> None:
        """Nothing to do: buffers go with the last reference."""


class _Buffer:
    """A buffer of one size, and the values that are moved to it or from it."""

    def __init__(self, row: MemoryRow, flags: int) -> None:
        self._runtime, self._up = row.runtime, row.probe.direction == "up"
        self.values = row.table.values(0, int(row.parameters["bytes"]) // FLOAT_BYTES)
        self._buffer = row.runtime.buffer(self.values.nbytes, flags)

    def _erase(self) -> None:
        cl.enqueue_fill_buffer(self._runtime.queue, self._buffer, _BLANK, 0, self.values.nbytes)
        self._runtime.queue.finish()

    def _read(self) -> ReferenceArray:
        """The buffer's values."""
        held = np.empty_like(self.values)
        cl.enqueue_copy(self._runtime.queue, held, self._buffer)
        return held


class Copies(_Buffer):
    """Copies between host memory and a buffer."""

    def __init__(self, row: MemoryRow) -> None:
        super().__init__(row, cl.mem_flags.READ_WRITE)
        values = self.values
        self._host = self._pinned() if row.probe.pinned else page_aligned(values.size, values.dtype)
        if self._up:
            self._host[...] = values
        else:
            cl.enqueue_copy(row.runtime.queue, self._buffer, values)
        self.blank()

    def bench(self, parameters: Parameters) -> TransferBench:
        """See `launching.Operands`: a copy enqueued and waited for, a blocking one, or two on two queues."""
        way = str(parameters["way"])
        transfer = {
            "blocking": self._blocking, "enqueued": self._enqueued, "two queues": self._two_queues
        }[way]  # fmt: skip
        return TransferBench(self, way, _timed(transfer))

    def blank(self) -> None:
        """Make what is copied to differ."""
        if self._up:
            self._erase()
        else:
            self._host[...] = 0

    def result(self) -> ReferenceArray:
        """What has arrived."""
        return self._read() if self._up else np.array(self._host)

    def _copy(self, queue: Any, first: int, end: int, blocking: bool) -> None:
        part, offset = self._host[first:end], first * FLOAT_BYTES
        if self._up:
            cl.enqueue_copy(queue, self._buffer, part, dst_offset=offset, is_blocking=blocking)
        else:
            cl.enqueue_copy(queue, part, self._buffer, src_offset=offset, is_blocking=blocking)

    def _blocking(self) -> None:
        self._copy(self._runtime.plain_queue, 0, self.values.size, True)

    def _enqueued(self) -> None:
        self._copy(self._runtime.plain_queue, 0, self.values.size, False)
        self._runtime.plain_queue.finish()

    def _two_queues(self) -> None:
        queues = (self._runtime.plain_queue, self._runtime.queue)
        half = self.values.size // 2
        self._copy(queues[0], 0, half, False)
        self._copy(queues[1], half, self.values.size, False)
        for queue in queues:
            queue.flush()
        for queue in queues:
            queue.finish()

    def _pinned(self) -> ReferenceArray:
        """Host memory of the driver's own, page-locked where that means anything; mapped for good."""
        values, flags = self.values, cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        staging = self._runtime.buffer(values.nbytes, flags)
        view, _ = cl.enqueue_map_buffer(
            self._runtime.queue, staging, _BOTH, 0, values.shape, values.dtype, is_blocking=True
        )
        return np.asarray(view)


class Maps(_Buffer):
    """A buffer that is mapped; where host and device share memory, the buffer lies there."""

    def __init__(self, row: MemoryRow) -> None:
        shared = cl.mem_flags.ALLOC_HOST_PTR if row.runtime.facts.unified_memory else 0
        super().__init__(row, cl.mem_flags.READ_WRITE | shared)
        self._arrived: ReferenceArray | None = None  # in the first map after `blank`
        if not self._up:
            cl.enqueue_copy(row.runtime.plain_queue, self._buffer, self.values)

    def bench(self, parameters: Parameters) -> TransferBench:
        return TransferBench(self, str(parameters["way"]), self._give if self._up else self._take)

    def blank(self) -> None:
        """Make what is moved to differ."""
        self._arrived = None
        if self._up:
            self._erase()

    def result(self) -> ReferenceArray:
        """What has arrived."""
        return self._read() if self._arrived is None else self._arrived

    def _give(self) -> float:
        """The time of unmapping what the host has filled."""
        queue = self._runtime.plain_queue
        view = self._map(cl.map_flags.WRITE)
        view[...] = self.values
        begin = time.perf_counter()
        view.base.release(queue)
        queue.finish()
        return time.perf_counter() - begin

    def _take(self) -> float:
        """The time of mapping what the device has."""
        queue = self._runtime.plain_queue
        # A driver may keep what it has mapped before, unless the device changes it.
        cl.enqueue_copy(queue, self._buffer, self.values[:1])
        queue.finish()
        begin = time.perf_counter()
        view = self._map(cl.map_flags.READ)
        spent = time.perf_counter() - begin
        if self._arrived is None:
            self._arrived = np.array(view)
        view.base.release(queue)
        queue.finish()
        return spent

    def _map(self, flags: int) -> Any:
        values = self.values
        view, _ = cl.enqueue_map_buffer(
            self._runtime.plain_queue, self._buffer, flags, 0, values.shape, values.dtype, is_blocking=True
        )
        return view


def _timed(transfer: Callable[[], None]) -> Callable[[], float]:
    def timed() -> float:
        begin = time.perf_counter()
        transfer()
        return time.perf_counter() - begin

    return timed


# --- Brings the latency probes to a device: a chase through memory, and launches of an empty kernel ---------


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


# --- Brings the probes to a device: one executor for all kinds, which prepares the candidates of their
# races.


_MEMORY: Mapping[str, Callable[[MemoryRow], Operands]] = {
    "global": GlobalMemory,
    "image": Image,
    "working-set": WorkingSet,
    "local": LocalMemory,
    "chase": Chase,
    "launch": Launches,
    "copy": Copies,
    "map": Maps,
}
"""By bench."""


class ProbeExecutor:
    """Prepares the probes' cases on one OpenCL device: see `measure.instrument.Executor`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._table = RepeatedTable()

    def prepare(self, case: Case, policy: Policy, like: Any, problem: Gemm | None = None) -> Any:
        """A candidate: its parameters are the row's and those that tell it from the others."""
        with errors():
            operands: Operands = like.operands if like else self._operands(case)
            return operands.bench(case.parameters)

    def _operands(self, case: Case) -> Operands:
        if case.kind != "peak":
            probe = BY_NAME[case.variant]
            return _MEMORY[probe.bench](MemoryRow(self._runtime, probe, case.parameters, self._table))
        arithmetic = PROBES[case.variant]
        if isinstance(arithmetic, ChainProbe):
            return Chains(self._runtime, arithmetic, case.dtype, int(case.parameters["width"]))
        assert isinstance(arithmetic, MatrixProbe), f"{arithmetic.name} has no kernel"
        return Tiles(self._runtime, arithmetic, case.dtype, case.parameters)
