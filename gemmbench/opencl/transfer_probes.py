"""Brings the transfer probes to a device: host memory (pageable, pinned or mapped) and a buffer."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.records import Parameters, Work
from gemmbench.model.instrument import Batch, Built, Prepared, Verified, When
from gemmbench.opencl.launching import MemoryRow, verified
from gemmbench.opencl.memory import page_aligned
from gemmbench.opencl.runtime import errors
from gemmbench.rules.memory import FLOAT_BYTES
from gemmbench.rules.reference import Array

_BLANK = b"\xff" * FLOAT_BYTES
_BOTH = cl.map_flags.READ | cl.map_flags.WRITE


class TransferBench:
    """One way to make a transfer: see `measure.instrument.Bench`.

    Args:
        operands: what is moved.
        way: its name.
        transfer: moves everything once; seconds, without what need not be timed.
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

    def _read(self) -> Array:
        """What the buffer holds."""
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

    def result(self) -> Array:
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

    def _pinned(self) -> Array:
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
        self._arrived: Array | None = None  # in the first map after `blank`
        if not self._up:
            cl.enqueue_copy(row.runtime.plain_queue, self._buffer, self.values)

    def bench(self, parameters: Parameters) -> TransferBench:
        """See `launching.Operands`."""
        return TransferBench(self, str(parameters["way"]), self._give if self._up else self._take)

    def blank(self) -> None:
        """Make what is moved to differ."""
        self._arrived = None
        if self._up:
            self._erase()

    def result(self) -> Array:
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
