"""Runs the transfer probes: between host memory (pageable, pinned or mapped) and a buffer of the device."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.records import Check, Policy, Row, Work
from gemmbench.measure.sampling import sample
from gemmbench.opencl.memory import page_aligned
from gemmbench.opencl.runtime import Runtime, errors
from gemmbench.rules.executor import Tell
from gemmbench.rules.memory import BY_NAME, FLOAT_BYTES, MIB, MemoryProbe
from gemmbench.rules.memory_data import RepeatedTable
from gemmbench.rules.plan import Case
from gemmbench.rules.reference import Array

_BUDGET_SHARE = 1 / 10  # of a row's budget: there are many sizes
_RUNS = 3
_BLANK = b"\xff" * FLOAT_BYTES
_BOTH = cl.map_flags.READ | cl.map_flags.WRITE
_MAP_SAMPLE_BYTES = 32 * MIB  # a map that moves this much shows in its time
_MAP_GROWTH = 2.0  # at least, from a quarter of it, if anything is moved


@dataclass(frozen=True)
class Way:
    """One way to make a transfer. The host's and the device's data differ until it has run."""

    name: str
    transfer: Callable[[], float]  # moves everything once; seconds, without what need not be timed
    result: Callable[[], Array]  # what has arrived


class TransferExecutor:
    """Runs transfer cases on one OpenCL device."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._table = RepeatedTable()
        self._moving: dict[str, bool] = {}  # by direction: whether mapping moves anything

    def run(self, case: Case, policy: Policy, tell: Tell) -> Row:
        """See `rules.executor.Executor`."""
        probe, nbytes = BY_NAME[case.variant], int(case.parameters["bytes"])
        values = self._table.values(0, nbytes // FLOAT_BYTES)
        with errors():
            tell("racing")
            ways = self._mapped(probe, values) if probe.bench == "map" else self._copied(probe, values)
            best = min(ways, key=lambda way: min(way.transfer() for _ in range(_RUNS)))
            tell("checking")
            arrived = bool((best.result().view(np.uint32) == values.view(np.uint32)).all())
            tell("timing")
            samples = sample(
                lambda count: {"host": sum(best.transfer() for _ in range(count)) / count},
                policy,
                policy.budget_s * _BUDGET_SHARE,
            )
            moved = probe.bench != "map" or self._map_moves(probe)
        check = Check("ok") if arrived else Check("suspect", {}, ("what arrived is not what was sent",))
        note = "zero-copy: the buffer is mapped where it is, and nothing is transferred"
        return replace(
            case.row("ok"),
            work=Work(bytes=nbytes if moved else 0),
            choice={"way": best.name if moved else "zero-copy"},
            samples=samples,
            check=check,
            memory=probe.name.partition("-")[2],
            notes=() if moved else (note,),
        )

    # --- copies between host memory and a buffer ------------------------------------------------------------

    def _copied(self, probe: MemoryProbe, values: Array) -> list[Way]:
        """A copy enqueued and waited for, a blocking one; from pinned memory also on two queues."""
        runtime, up = self._runtime, probe.direction == "up"
        host = self._pinned(values) if probe.pinned else page_aligned(values.size, values.dtype)
        buffer = runtime.buffer(values.nbytes)
        if up:
            host[...] = values
            self._blank(buffer, values.nbytes)
        else:
            host[...] = 0
            cl.enqueue_copy(runtime.queue, buffer, values)

        def copy(queue: Any, first: int, end: int, blocking: bool) -> None:
            part, offset = host[first:end], first * FLOAT_BYTES
            if up:
                cl.enqueue_copy(queue, buffer, part, dst_offset=offset, is_blocking=blocking)
            else:
                cl.enqueue_copy(queue, part, buffer, src_offset=offset, is_blocking=blocking)

        def blocking() -> None:
            copy(runtime.plain_queue, 0, values.size, True)

        def waited_for() -> None:
            copy(runtime.plain_queue, 0, values.size, False)
            runtime.plain_queue.finish()

        def two_queues() -> None:
            queues = (runtime.plain_queue, runtime.queue)
            half = values.size // 2
            copy(queues[0], 0, half, False)
            copy(queues[1], half, values.size, False)
            for queue in queues:
                queue.flush()
            for queue in queues:
                queue.finish()

        def result() -> Array:
            return self._read(buffer, values) if up else np.array(host)

        ways = {"blocking": blocking, "enqueued": waited_for}
        if probe.pinned:
            ways["two queues"] = two_queues
        return [Way(name, _timed(transfer), result) for name, transfer in ways.items()]

    def _pinned(self, values: Array) -> Array:
        """Host memory of the driver's own, page-locked where that means anything; mapped for good."""
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        staging = self._runtime.buffer(values.nbytes, flags)
        view, _ = cl.enqueue_map_buffer(
            self._runtime.queue, staging, _BOTH, 0, values.shape, values.dtype, is_blocking=True
        )
        return np.asarray(view)

    # --- a buffer that is mapped ----------------------------------------------------------------------------

    def _mapped(self, probe: MemoryProbe, values: Array) -> list[Way]:
        """Up: the time of unmapping what the host has filled; down: of mapping what the device has."""
        buffer = self._mappable(values.nbytes)
        queue = self._runtime.plain_queue
        arrived: list[Array] = []
        if probe.direction == "up":

            def transfer() -> float:
                view = self._map(buffer, values, cl.map_flags.WRITE)
                view[...] = values
                begin = time.perf_counter()
                view.base.release(queue)
                queue.finish()
                return time.perf_counter() - begin

        else:
            cl.enqueue_copy(queue, buffer, values)

            def transfer() -> float:
                # A driver may keep what it has mapped before, unless the device changes it.
                cl.enqueue_copy(queue, buffer, values[:1])
                queue.finish()
                begin = time.perf_counter()
                view = self._map(buffer, values, cl.map_flags.READ)
                spent = time.perf_counter() - begin
                if not arrived:
                    arrived.append(np.array(view))
                view.base.release(queue)
                queue.finish()
                return spent

        def result() -> Array:
            return arrived[0] if arrived else self._read(buffer, values)

        return [Way("map", transfer, result)]

    def _mappable(self, nbytes: int) -> Any:
        """A buffer where the device wants it: in shared memory, where host and device share it."""
        flags = cl.mem_flags.READ_WRITE
        if self._runtime.facts.unified_memory:
            flags |= cl.mem_flags.ALLOC_HOST_PTR
        return self._runtime.buffer(nbytes, flags)

    def _map(self, buffer: Any, values: Array, flags: int) -> Any:
        view, _ = cl.enqueue_map_buffer(
            self._runtime.plain_queue, buffer, flags, 0, values.shape, values.dtype, is_blocking=True
        )
        return view

    def _map_moves(self, probe: MemoryProbe) -> bool:
        """Whether mapping transfers anything: if so, it takes longer the more there is."""
        if self._runtime.facts.unified_memory:
            return False
        if probe.direction not in self._moving:
            times = []
            for nbytes in (_MAP_SAMPLE_BYTES // 4, _MAP_SAMPLE_BYTES):
                (way,) = self._mapped(probe, self._table.values(0, nbytes // FLOAT_BYTES))
                times.append(min(way.transfer() for _ in range(_RUNS)))
            self._moving[probe.direction] = times[1] > _MAP_GROWTH * times[0]
        return self._moving[probe.direction]

    # --- both -----------------------------------------------------------------------------------------------

    def _blank(self, buffer: Any, nbytes: int) -> None:
        cl.enqueue_fill_buffer(self._runtime.queue, buffer, _BLANK, 0, nbytes)
        self._runtime.queue.finish()

    def _read(self, buffer: Any, like: Array) -> Array:
        """What a buffer holds."""
        found = np.empty_like(like)
        cl.enqueue_copy(self._runtime.queue, found, buffer)
        return found


def _timed(transfer: Callable[[], None]) -> Callable[[], float]:
    def timed() -> float:
        begin = time.perf_counter()
        transfer()
        return time.perf_counter() - begin

    return timed
