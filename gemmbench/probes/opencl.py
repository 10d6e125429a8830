"""Brings probes to a device: transfers and launches, and chains with their operands and the host's check."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.model.case import Case, Policy
from gemmbench.model.dtypes import DTYPES, HostArray
from gemmbench.model.instrument import Batch, Built, NotMeasuredError, Prepared, Verified, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import NO_CLOCK, Parameters, Work
from gemmbench.opencl.runtime import Runtime, errors, page_aligned
from gemmbench.probes import PROBES
from gemmbench.probes.arithmetic import (
    RECURRENCES,
    ChainOperands,
    ChainProbe,
    Form,
    MatrixProbe,
    TileOperands,
    draw_tiles,
    expected_product,
    expected_sums,
    kernels_of,
)
from gemmbench.probes.memory import BY_NAME, FLOAT_BYTES, RepeatedTable, random_cycle
from gemmbench.probes.memory_opencl import (
    MOST_TRIPS,
    GlobalMemory,
    ImageProbe,
    Launcher,
    LocalMemory,
    Loop,
    MemoryBench,
    MemoryRow,
    ProbeBuffers,
    WorkingSet,
    launcher,
    timed,
    verified,
)
from gemmbench.probes.race import compare_results

_BLANK = b"\xff" * FLOAT_BYTES


class TransferBench:
    """A way to make a transfer. `transfer` moves everything once and returns the seconds that count."""

    def __init__(self, operands: Copies | Maps, way: str, transfer: Callable[[], float]) -> None:
        self.operands, self._transfer = operands, transfer
        unit = Work(bytes=operands.values.nbytes)
        self.prepared = Prepared(("host",), built=Built(choice={"way": way}), unit=unit)

    def verify(self, when: When) -> Verified:
        """Check that what is sent arrives, after the target was erased."""
        with errors():
            self.operands.blank()
            self._transfer()
            arrived = self.operands.result().view(np.uint32) == self.operands.values.view(np.uint32)
        return verified("" if arrived.all() else "what arrived is not what was sent")

    def start(self, clock: str, count: int, work: int) -> Batch:
        begin = time.perf_counter()
        with errors():
            total = sum(self._transfer() for _ in range(count))
        return Batch({"host": total / count}, begin, time.perf_counter(), count)

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

    def _read(self) -> HostArray:
        held = np.empty_like(self.values)
        cl.enqueue_copy(self._runtime.queue, held, self._buffer)
        return held


class Copies(_Buffer):
    """Copies between host memory and a buffer."""

    def __init__(self, row: MemoryRow) -> None:
        """Allocate both sides, and put the values at the source."""
        super().__init__(row, cl.mem_flags.READ_WRITE)
        values = self.values
        if row.probe.pinned:
            self._host = row.runtime.pinned(values.shape, values.dtype)
        else:
            self._host = page_aligned(values.size, values.dtype)
        if self._up:
            self._host[...] = values
        else:
            cl.enqueue_copy(row.runtime.queue, self._buffer, values)
        self.blank()

    def bench(self, parameters: Parameters) -> TransferBench:
        """The bench of a candidate: a blocking copy, one enqueued and waited for, or two on two queues."""
        way = str(parameters["way"])
        transfer = self._two_queues if way == "two queues" else partial(self._whole, way == "blocking")
        return TransferBench(self, way, _timed(transfer))

    def blank(self) -> None:
        if self._up:
            self._erase()
        else:
            self._host[...] = 0

    def result(self) -> HostArray:
        return self._read() if self._up else np.array(self._host)

    def _copy(self, queue: Any, first: int, end: int, blocking: bool) -> None:
        part, offset = self._host[first:end], first * FLOAT_BYTES
        if self._up:
            cl.enqueue_copy(queue, self._buffer, part, dst_offset=offset, is_blocking=blocking)
        else:
            cl.enqueue_copy(queue, part, self._buffer, src_offset=offset, is_blocking=blocking)

    def _whole(self, blocking: bool) -> None:
        self._copy(self._runtime.plain_queue, 0, self.values.size, blocking)
        if not blocking:
            self._runtime.plain_queue.finish()

    def _two_queues(self) -> None:
        """Copy each half in a queue of its own."""
        queues = (self._runtime.plain_queue, self._runtime.queue)
        half = self.values.size // 2
        self._copy(queues[0], 0, half, False)
        self._copy(queues[1], half, self.values.size, False)
        for queue in queues:
            queue.flush()
        for queue in queues:
            queue.finish()


class Maps(_Buffer):
    """A mapped buffer, in host memory if the device shares it."""

    def __init__(self, row: MemoryRow) -> None:
        shared = cl.mem_flags.ALLOC_HOST_PTR if row.runtime.facts.unified_memory else 0
        super().__init__(row, cl.mem_flags.READ_WRITE | shared)
        self._arrived: HostArray | None = None  # in the first map after `blank`
        if not self._up:
            cl.enqueue_copy(row.runtime.plain_queue, self._buffer, self.values)

    def bench(self, parameters: Parameters) -> TransferBench:
        return TransferBench(self, str(parameters["way"]), self._give if self._up else self._take)

    def blank(self) -> None:
        self._arrived = None
        if self._up:
            self._erase()

    def result(self) -> HostArray:
        return self._read() if self._arrived is None else self._arrived

    def _give(self) -> float:
        """Seconds to unmap a buffer that the host has filled."""
        queue = self._runtime.plain_queue
        view = self._map(cl.map_flags.WRITE)
        view[...] = self.values
        begin = time.perf_counter()
        view.base.release(queue)
        queue.finish()
        return time.perf_counter() - begin

    def _take(self) -> float:
        """Seconds to map a buffer for reading. A small write before makes the device's contents new."""
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
        """Draw the cycle, with nodes a cache line apart, and copy it to the device."""
        self._row, runtime = row, row.runtime
        self._spacing = 64 if runtime.facts.type == "cpu" else 128  # bytes: a line of a cache
        nodes = int(row.parameters["bytes"]) // self._spacing
        memory, self._cycle = random_cycle(nodes, self._spacing // _WORD.itemsize)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        self._nodes = cl.Buffer(runtime.context, flags, hostbuf=memory)
        self._where = runtime.buffer(_WORD.itemsize)

    def bench(self, parameters: Parameters) -> MemoryBench:
        """The bench of a chase from the cycle's start. A trip is a hop. A small set is read once before."""
        runtime, probe = self._row.runtime, self._row.probe
        launched = launcher(runtime, probe.file, (), probe.kernel, 1, 1)
        loop = Loop(launched, lambda hops: (self._nodes, self._where, np.uint32(hops)), self._check)
        self._start()
        if self._cycle.size <= _MOST_WARMING:
            timed(runtime.queue, lambda: loop.enqueue(self._cycle.size))
        return MemoryBench(self, loop, {"spacing": self._spacing}, Work(), (2, MOST_TRIPS))

    def _start(self) -> None:
        cl.enqueue_copy(self._row.runtime.queue, self._where, np.zeros(1, _WORD))

    def _check(self, loop: Loop, hops: int) -> str:
        """How the position after `hops` hops differs from the host's, or ""."""
        self._start()
        loop.enqueue(hops)
        got, expected = np.empty(1, _WORD), int(self._cycle[hops % self._cycle.size])
        cl.enqueue_copy(self._row.runtime.queue, got, self._where)
        return "" if got[0] == expected else f"{hops} hops end at {int(got[0])}, not at {expected}"


class Launches:
    """A kernel that does nothing: operands and bench in one."""

    def __init__(self, row: MemoryRow) -> None:
        self._runtime, self._probe = row.runtime, row.probe
        launched = launcher(row.runtime, row.probe.file, (), row.probe.kernel, 1, 1)
        self._kernel, self.operands = launched.kernel, self
        self.prepared = Prepared(("host",), built=launched.build)

    def bench(self, parameters: Parameters) -> Launches:
        return self

    def verify(self, when: When) -> Verified:
        return verified("")

    def start(self, clock: str, count: int, work: int) -> Batch:
        """So many launches, each waited for and timed, or as one chain."""
        begin = time.perf_counter()
        with errors():
            if self._probe.chain:
                for _ in range(count):
                    self._enqueue(self._runtime.plain_queue)
                self._runtime.plain_queue.finish()
                end = time.perf_counter()
                return Batch({"host": (end - begin) / count}, begin, end, count)
            each = tuple(self._launch_s() for _ in range(count))
        return Batch({"host": sum(each) / count}, begin, time.perf_counter(), count, {"host": each})

    def _launch_s(self) -> float:
        """Seconds of one launch: of enqueueing it, from QUEUED to START, or until it has been waited for."""
        is_stamped = self._probe.name == "launch-start"
        queue = self._runtime.queue if is_stamped else self._runtime.plain_queue
        begin = time.perf_counter()
        event = self._enqueue(queue)
        if self._probe.name == "launch-dispatch":
            spent = time.perf_counter() - begin
            queue.finish()
            return spent
        queue.finish()
        if not is_stamped:
            return time.perf_counter() - begin
        if not self._runtime.has_clock:
            raise NotMeasuredError("unsupported", NO_CLOCK)
        return max(float(event.profile.start - event.profile.queued) * 1e-9, _SHORTEST_S)

    def _enqueue(self, queue: Any) -> Any:
        return cl.enqueue_nd_range_kernel(queue, self._kernel, (1,), (1,))

    def release(self) -> None:
        """Nothing to do."""


_MEMORY: Mapping[str, Callable[[MemoryRow], ProbeBuffers]] = {
    "global": GlobalMemory, "image": ImageProbe, "working-set": WorkingSet, "local": LocalMemory,
    "chase": Chase, "launch": Launches, "copy": Copies, "map": Maps,
}  # fmt: skip
"""By bench."""


class ProbeExecutor:
    """Prepares the probes' cases on one OpenCL device: see `measure.instrument.Executor`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._table = RepeatedTable()

    def prepare(self, case: Case, policy: Policy, like: Any, problem: Gemm | None = None) -> Any:
        """A bench of a candidate, whose parameters include the row's. It shares the operands of `like`."""
        with errors():
            operands: ProbeBuffers = like.operands if like else self._operands(case)
            return operands.bench(case.parameters)

    def _operands(self, case: Case) -> ProbeBuffers:
        """The operands of a case's row, which its candidates share."""
        if case.kind != "peak":
            probe = BY_NAME[case.variant]
            return _MEMORY[probe.bench](MemoryRow(self._runtime, probe, case.parameters, self._table))
        arithmetic = PROBES[case.variant]
        if isinstance(arithmetic, ChainProbe):
            return Chains(self._runtime, arithmetic, case.dtype, int(case.parameters["width"]))
        return MatrixTiles(self._runtime, arithmetic, case.dtype, case.parameters)


# --- Brings the probes of dependent chains to a device: operands, programs and the host's check -------------

_CHECKED_TRIPS = 3
_CPU_GROUP, _GPU_GROUP = 64, 256
_CPU_ITEMS, _GPU_ITEMS = 8 * _CPU_GROUP, 32 * _GPU_GROUP  # for each compute unit


class Chains:
    """The operands of one row of a chain probe, which its candidates share."""

    def __init__(self, runtime: Runtime, probe: ChainProbe, dtype: str, width: int) -> None:
        """Choose the work-items, and allocate their sums."""
        self.runtime, self._probe, self.dtype, self.width = runtime, probe, DTYPES[dtype], width
        facts = runtime.facts
        self._group = _CPU_GROUP if facts.type == "cpu" else _GPU_GROUP
        per_unit = _CPU_ITEMS if facts.type == "cpu" else _GPU_ITEMS
        self.items = max(1, facts.compute_units) * per_unit
        self.sums = runtime.buffer(self.items * max(4, self.dtype.itemsize))
        self._forms = {form.name: form for form in probe.forms[dtype]}
        self._drawn: dict[str, tuple[ChainOperands, Any, Any]] = {}

    def bench(self, parameters: Parameters) -> MemoryBench:
        """The bench of a candidate: one form, number of chains and depth of unrolling."""
        form = self._forms[str(parameters["form"])]
        chains, unroll = int(parameters["chains"]), int(parameters["unroll"])
        options = form.options(self.width, unroll, kernels_of(int(parameters["kernels"])))
        kernel = f"chains_{chains}"
        launched = launcher(self.runtime, form.file, options, kernel, self.items, self._group, any_group=True)
        choice: Parameters = {"chains": chains, "form": form.name, "unroll": unroll}
        choice |= {"items": self.items, "group": launched.group}
        unit = Work(flops=self._probe.operations * self.items * self.width * chains * unroll)
        chain = Chain(self, launched, form, chains, unroll)
        return MemoryBench(self, chain, choice, unit, (1, MOST_TRIPS))

    def drawn(self, recurrence: str) -> tuple[ChainOperands, Any, Any]:
        """The operands of a recurrence on the host, and its buffers of seeds and coefficients; drawn once."""
        if recurrence not in self._drawn:
            rng = np.random.default_rng((20261121, self.width))
            host = RECURRENCES[recurrence].draw(self.dtype, self.width, rng)
            filled = self.runtime.filled
            self._drawn[recurrence] = host, filled(host.seeds), filled(host.coefficients)
        return self._drawn[recurrence]


@dataclass(frozen=True)
class Chain:
    """One candidate: its work is the trips of the kernel's loop."""

    operands: Chains
    launcher: Launcher
    form: Form
    chains: int
    steps: int  # of every chain in a trip

    def enqueue(self, work: int) -> Any:
        _, seeds, coefficients = self.operands.drawn(self.form.recurrence)
        return self.launcher.enqueue((seeds, coefficients, self.operands.sums, np.int32(work)))

    def wrong(self, work: int = 0) -> str:
        """How the sums of a short run differ from the host's; merged chains and ignored trips are named.

        Or "".
        """
        shared, queue = self.operands, self.operands.runtime.queue
        recurrence = RECURRENCES[self.form.recurrence]
        stored = recurrence.sum_type(shared.dtype)
        got = np.empty(shared.items, stored.numpy)
        got.view(np.uint8).fill(0xFF)  # NaN, so that what was not written cannot pass
        cl.enqueue_copy(queue, shared.sums, got)
        self.enqueue(_CHECKED_TRIPS)
        cl.enqueue_copy(queue, got, shared.sums)

        host, *_ = shared.drawn(self.form.recurrence)

        def differs(trips: int, merged: bool = False) -> str:
            steps = self.steps * trips
            sums = expected_sums(
                recurrence, shared.dtype, host, shared.items, shared.width, self.chains, steps, merged
            )
            return compare_results(got, sums, stored)

        wrong = differs(_CHECKED_TRIPS)
        if not wrong:
            return ""
        if not differs(_CHECKED_TRIPS, merged=True):
            same = "every chain of a work-item has the same sum"
            return f"{same}: equal seeds, which let a compiler merge chains"
        for trips in range(_CHECKED_TRIPS):
            if not differs(trips):
                return f"the sums are those of {trips} trips, not {_CHECKED_TRIPS}: the trip count is ignored"
        return wrong


# --- Brings the probes of NVIDIA's tensor cores to a device: operands, programs and the host's check --------

_GROUP = 128  # work-items: four warps
_WARP = 32


class MatrixTiles:
    """The operands of one row of a matrix probe, which its candidates share."""

    def __init__(self, runtime: Runtime, probe: MatrixProbe, dtype: str, parameters: Parameters) -> None:
        """Draw and copy tiles to be checked and to be timed, and allocate the results."""
        self.runtime, self.probe = runtime, probe
        self.instruction = probe.instruction(dtype, parameters)
        self.result = DTYPES[self.instruction.accumulator]
        self._units = max(1, runtime.facts.compute_units)
        rng = np.random.default_rng(20261121)
        self.exact, drawn = (
            draw_tiles(kind, self.instruction, probe.tiles, rng)
            for kind in ("exact", str(parameters["operands"]))
        )
        self.checked, self.timed = self._arguments(self.exact), self._arguments(drawn)
        most = max(probe.groups) * self._units * self.products(max(probe.chains))
        self.results = runtime.buffer(most * self.instruction.m * self.instruction.n * self.result.itemsize)

    def bench(self, parameters: Parameters) -> MemoryBench:
        """The bench of a candidate: one number of chains, depth of unrolling and work-groups per unit."""
        probe, instruction = self.probe, self.instruction
        chains, unroll, groups = (int(parameters[name]) for name in ("chains", "unroll", "groups"))
        options = probe.options(instruction, chains, unroll)
        built = self.runtime.build(probe.file, options, target=probe.target)
        items = groups * self._units * _GROUP
        launched = launcher(self.runtime, probe.file, options, probe.name, items, _GROUP, built)
        choice: Parameters = {"form": f"{probe.name} {instruction.shape}", "chains": chains, "unroll": unroll}
        choice |= {"groups": groups, "items": items, "group": _GROUP}
        products = groups * self._units * self.products(chains)
        unit = Work(flops=instruction.operations * products * unroll)
        return MemoryBench(self, Product(self, launched, chains, unroll), choice, unit, (1, MOST_TRIPS))

    def products(self, chains: int) -> int:
        """Products that a work-group computes at once."""
        return chains * (_GROUP // _WARP // self.probe.warps)

    def _arguments(self, operands: TileOperands) -> Callable[[int], tuple[Any, ...]]:
        a, b = (self.runtime.filled(stored) for stored in operands.stored(self.instruction))
        return lambda trips: (a, b, self.results, np.int32(trips))


@dataclass(frozen=True)
class Product:
    """One candidate: its work is the trips of the kernel's loop."""

    operands: MatrixTiles
    launcher: Launcher
    chains: int
    steps: int  # of every chain in a trip

    def enqueue(self, work: int) -> Any:
        return self.launcher.enqueue(self.operands.timed(work))

    def wrong(self, work: int = 0) -> str:
        """How D of a short run on small whole numbers differs from the host's, or ""."""
        shared, queue = self.operands, self.operands.runtime.queue
        instruction = shared.instruction
        products = self.launcher.items // _GROUP * shared.products(self.chains)
        got: HostArray = np.empty((products, instruction.m, instruction.n), shared.result.numpy)
        got.view(np.uint8).fill(0xFF)  # NaN, so that what was not written cannot pass
        cl.enqueue_copy(queue, shared.results, got)
        self.launcher.enqueue(shared.checked(_CHECKED_TRIPS))
        cl.enqueue_copy(queue, got, shared.results)
        # Which tiles a product took: those of its warp (or work-group), and those of its chain.
        count = shared.probe.tiles
        product = np.arange(products)
        pairs = np.stack([product // self.chains % count, product % count], axis=1)
        unique, where = np.unique(pairs, axis=0, return_inverse=True)
        host = expected_product(shared.exact, unique, self.steps * _CHECKED_TRIPS)
        return compare_results(got, host[where.reshape(-1)], shared.result, slack=0)
