"""The probes of transfers, latencies and arithmetic on an OpenCL device, and the executor of all probes."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
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
)
from gemmbench.probes.memory import BY_NAME, FLOAT_BYTES, RepeatedTable, random_cycle
from gemmbench.probes.memory_opencl import (
    MOST_TRIPS,
    SHORTEST_S,
    Enqueue,
    GlobalMemory,
    ImageProbe,
    KernelBench,
    Launcher,
    LocalMemory,
    MemoryRow,
    WorkingSet,
    make_launcher,
    time_launches,
    verified,
)
from gemmbench.probes.race import compare_results

_BLANK = b"\xff" * FLOAT_BYTES


class HostBench:
    """A candidate timed by the host's clock: a `measure.instrument.Bench`.

    `run` does a problem and returns the seconds that count. `check` returns how its result differs, or "".
    """

    def __init__(
        self, operands: object, built: Built, run: Callable[[], float], check: Callable[[], str], unit: Work
    ) -> None:
        self.operands, self._run, self._check = operands, run, check
        self.prepared = Prepared(("host",), built=built, unit=unit)

    def verify(self, when: When) -> Verified:
        with errors():
            return verified(self._check())

    def start(self, clock: str, count: int, work: int) -> Batch:
        begin = time.perf_counter()
        with errors():
            each = tuple(self._run() for _ in range(count))
        return Batch({"host": sum(each) / count}, begin, time.perf_counter(), count, {"host": each})

    def release(self) -> None:
        """Nothing to do: buffers go with the last reference."""


def seconds_of(action: Callable[[], object]) -> float:
    """Wall seconds of an action."""
    begin = time.perf_counter()
    action()
    return time.perf_counter() - begin


class _Transfer(ABC):
    """A buffer of one size, and the values that are moved to it or from it."""

    def __init__(self, row: MemoryRow, flags: int) -> None:
        self._runtime, self._up = row.runtime, row.probe.direction == "up"
        self.values = row.table.values(0, int(row.parameters["bytes"]) // FLOAT_BYTES)
        self._buffer = row.runtime.buffer(self.values.nbytes, flags)

    def _bench(self, way: str, transfer: Callable[[], float]) -> HostBench:
        """What times and checks a way to transfer everything once; `transfer` returns the seconds that count.

        The check erases the target, transfers, and compares all bits. `way` is the row's choice.
        """

        def check() -> str:
            self.blank()
            transfer()
            arrived = self.result().view(np.uint32) == self.values.view(np.uint32)
            return "" if arrived.all() else "what arrived is not what was sent"

        return HostBench(self, Built(choice={"way": way}), transfer, check, Work(bytes=self.values.nbytes))

    @abstractmethod
    def blank(self) -> None:
        """Erase the target."""

    @abstractmethod
    def result(self) -> HostArray:
        """What arrived at the target."""

    def _erase(self) -> None:
        cl.enqueue_fill_buffer(self._runtime.queue, self._buffer, _BLANK, 0, self.values.nbytes)
        self._runtime.queue.finish()

    def _read(self) -> HostArray:
        held = np.empty_like(self.values)
        cl.enqueue_copy(self._runtime.queue, held, self._buffer)
        return held


class Copies(_Transfer):
    """Copies between host memory and a buffer."""

    def __init__(self, row: MemoryRow) -> None:
        """Allocate a buffer and a pinned or page-aligned host array. Fill the source and erase the target."""
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

    def bench(self, parameters: Parameters) -> HostBench:
        """The bench of a candidate: a blocking copy, one enqueued and waited for, or two on two queues."""
        way = str(parameters["way"])
        copy = self._two_queues if way == "two queues" else partial(self._whole, way == "blocking")
        return self._bench(way, partial(seconds_of, copy))

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
        """Copy each half in a queue of its own, at the same time, and wait for both."""
        queues = (self._runtime.plain_queue, self._runtime.queue)
        half = self.values.size // 2
        self._copy(queues[0], 0, half, False)
        self._copy(queues[1], half, self.values.size, False)
        for queue in queues:
            queue.flush()
        for queue in queues:
            queue.finish()


class Maps(_Transfer):
    """A mapped buffer, in host memory if the device shares it."""

    def __init__(self, row: MemoryRow) -> None:
        shared = cl.mem_flags.ALLOC_HOST_PTR if row.runtime.facts.unified_memory else 0
        super().__init__(row, cl.mem_flags.READ_WRITE | shared)
        self._arrived: HostArray | None = None  # in the first map after `blank`
        if not self._up:
            cl.enqueue_copy(row.runtime.plain_queue, self._buffer, self.values)

    def bench(self, parameters: Parameters) -> HostBench:
        return self._bench(str(parameters["way"]), self._unmap_filled if self._up else self._map_for_reading)

    def blank(self) -> None:
        self._arrived = None
        if self._up:
            self._erase()

    def result(self) -> HostArray:
        return self._read() if self._arrived is None else self._arrived

    def _unmap_filled(self) -> float:
        """Map the buffer, fill it on the host, and return the seconds that only unmapping it takes."""
        queue = self._runtime.plain_queue
        view = self._map(cl.map_flags.WRITE)
        view[...] = self.values
        begin = time.perf_counter()
        view.base.release(queue)
        queue.finish()
        return time.perf_counter() - begin

    def _map_for_reading(self) -> float:
        """Seconds to map a buffer for reading, after a small write. Keeps a copy of the first contents."""
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


_WORD = np.dtype(np.uint32)
_MOST_WARMING = 1 << 20  # hops: a set with more nodes fits no cache


class Chase:
    """A random cycle through a set of one size."""

    def __init__(self, row: MemoryRow) -> None:
        """Draw the cycle, with nodes 64 bytes (on a CPU) or 128 bytes apart, and copy it to the device."""
        self._row, runtime = row, row.runtime
        self._spacing = 64 if runtime.facts.type == "cpu" else 128  # bytes: a line of a cache
        nodes = int(row.parameters["bytes"]) // self._spacing
        memory, self._cycle = random_cycle(nodes, self._spacing // _WORD.itemsize)
        flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
        self._nodes = cl.Buffer(runtime.context, flags, hostbuf=memory)
        self._position = runtime.buffer(_WORD.itemsize)

    def bench(self, parameters: Parameters) -> KernelBench:
        """What times a chase along the cycle: a unit of work is a hop, a load that waits for the one before.

        A launch goes on where the last one ended. A check starts at the cycle's start and compares the end. A
        set of at most 2^20 nodes is gone through once before, to warm caches.
        """
        launcher, queue = self._row.launcher(), self._row.runtime.queue

        def enqueue(hops: int) -> Any:
            return launcher.enqueue((self._nodes, self._position, np.uint32(hops)))

        def go_to_start() -> None:
            cl.enqueue_copy(queue, self._position, np.zeros(1, _WORD))

        def check(hops: int) -> str:
            go_to_start()
            enqueue(hops)
            got, expected = np.empty(1, _WORD), int(self._cycle[hops % self._cycle.size])
            cl.enqueue_copy(queue, got, self._position)
            return "" if got[0] == expected else f"{hops} hops end at {int(got[0])}, not at {expected}"

        go_to_start()
        if self._cycle.size <= _MOST_WARMING:
            time_launches(queue, enqueue, self._cycle.size)
        choice: Parameters = {"spacing": self._spacing}
        return KernelBench(self, launcher, enqueue, check, choice, Work(), (2, MOST_TRIPS))


class Launches:
    """A kernel that does nothing, launched in one of several ways."""

    def __init__(self, row: MemoryRow) -> None:
        self._runtime, self._probe, self._launcher = row.runtime, row.probe, row.launcher()

    def bench(self, parameters: Parameters) -> HostBench:
        """What times a launch, by the probe: enqueueing, queued to start, round trip, or mean of a chain."""
        by_probe = {
            "launch-dispatch": self._dispatch_s,
            "launch-start": self._queued_to_start_s,
            "launch-round-trip": lambda: seconds_of(self._launch_and_wait),
            "launch-chain": lambda: seconds_of(self._launch_and_wait) / self._probe.chain,
        }
        return HostBench(self, self._launcher.build, by_probe[self._probe.name], lambda: "", Work())

    def _enqueue(self, queue: Any) -> Any:
        return cl.enqueue_nd_range_kernel(queue, self._launcher.kernel, (1,), (1,))

    def _launch_and_wait(self) -> None:
        for _ in range(self._probe.chain or 1):
            self._enqueue(self._runtime.plain_queue)
        self._runtime.plain_queue.finish()

    def _dispatch_s(self) -> float:
        spent = seconds_of(lambda: self._enqueue(self._runtime.plain_queue))
        self._runtime.plain_queue.finish()
        return spent

    def _queued_to_start_s(self) -> float:
        """Seconds from QUEUED to START by the device's clock; `NotMeasuredError` if the driver has none."""
        event = self._enqueue(self._runtime.queue)
        self._runtime.queue.finish()
        if not self._runtime.has_clock:
            raise NotMeasuredError("unsupported", NO_CLOCK)
        return max(float(event.profile.start - event.profile.queued) * 1e-9, SHORTEST_S)


_MEMORY: Mapping[str, Callable[[MemoryRow], Any]] = {
    "global": GlobalMemory, "image": ImageProbe, "working-set": WorkingSet, "local": LocalMemory,
    "chase": Chase, "launch": Launches, "copy": Copies, "map": Maps,
}  # fmt: skip
"""The operands of a row, which its candidates share, by the probe's bench."""


class ProbeExecutor:
    """Prepares the probes' cases on one OpenCL device: see `measure.instrument.Executor`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._table = RepeatedTable()

    def prepare(
        self, case: Case, policy: Policy, like: Any, problem: Gemm | None = None
    ) -> KernelBench | HostBench:
        """What times and checks a candidate, whose parameters include the row's.

        It shares operands with `like`, if given. Ignores `policy` and `problem`. Raises `NotMeasuredError`.
        """
        with errors():
            operands = like.operands if like else self._operands(case)
            bench: KernelBench | HostBench = operands.bench(case.parameters)
            return bench

    def _operands(self, case: Case) -> Any:
        """The operands of a case's row, which its candidates share."""
        if case.kind != "peak":
            probe = BY_NAME[case.variant]
            return _MEMORY[probe.bench](MemoryRow(self._runtime, probe, case.parameters, self._table))
        arithmetic = PROBES[case.variant]
        if isinstance(arithmetic, ChainProbe):
            return Chains(self._runtime, arithmetic, case.dtype, int(case.parameters["width"]))
        return MatrixTiles(self._runtime, arithmetic, case.dtype, case.parameters)


_CHECKED_TRIPS = 3
_ON_CPU, _ON_GPU = (8, 64), (32, 256)  # work-groups for each compute unit, work-items in each


class Chains:
    """The operands of one row of a chain probe, which its candidates share."""

    def __init__(self, runtime: Runtime, probe: ChainProbe, dtype: str, width: int) -> None:
        """Allocate a sum for each work-item: 8 groups of 64 a unit on a CPU, elsewhere 32 groups of 256."""
        self._runtime, self._probe, self._dtype, self._width = runtime, probe, DTYPES[dtype], width
        facts = runtime.facts
        groups, self._group = _ON_CPU if facts.type == "cpu" else _ON_GPU
        self.items = max(1, facts.compute_units) * groups * self._group
        self._sums = runtime.buffer(self.items * max(4, self._dtype.itemsize))
        self._forms = {form.name: form for form in probe.forms[dtype]}
        self._drawn: dict[str, tuple[ChainOperands, Any, Any]] = {}

    def bench(self, parameters: Parameters) -> KernelBench:
        """Compile one form (way to write a step), number of chains and unrolling, and return what times it.

        A unit of work is an iteration, in which each chain makes `unroll` steps. A check compares the sums.
        """
        form = self._forms[str(parameters["form"])]
        chains, unroll = int(parameters["chains"]), int(parameters["unroll"])
        options = form.options(self._width, unroll, map(int, str(parameters["kernels"]).split(",")))
        launcher = make_launcher(
            self._runtime, form.file, options, f"chains_{chains}", self.items, self._group, any_group=True
        )
        choice: Parameters = {"chains": chains, "form": form.name, "unroll": unroll}
        choice |= {"items": self.items, "group": launcher.group}
        unit = Work(flops=self._probe.operations * self.items * self._width * chains * unroll)

        def enqueue(trips: int) -> Any:
            _, seeds, coefficients = self._operands(form.recurrence)
            return launcher.enqueue((seeds, coefficients, self._sums, np.int32(trips)))

        def check(_: int) -> str:
            return self.wrong_sums(enqueue, form, chains, unroll)

        return KernelBench(self, launcher, enqueue, check, choice, unit)

    def _operands(self, recurrence: str) -> tuple[ChainOperands, Any, Any]:
        """The operands of a recurrence on the host, and its buffers of seeds and coefficients; drawn once."""
        if recurrence not in self._drawn:
            rng = np.random.default_rng((20261121, self._width))
            host = RECURRENCES[recurrence].draw(self._dtype, self._width, rng)
            filled = self._runtime.filled
            self._drawn[recurrence] = host, filled(host.seeds), filled(host.coefficients)
        return self._drawn[recurrence]

    def wrong_sums(self, enqueue: Enqueue, form: Form, chains: int, steps: int) -> str:
        """How the sums of three iterations, each `steps` steps a chain, differ from the host's, or "".

        If merged chains, or another number of iterations up to two, explain the sums, it says so.
        """
        recurrence = RECURRENCES[form.recurrence]
        stored = recurrence.sum_type(self._dtype)
        got = np.empty(self.items, stored.numpy)
        _launch_and_read(self._runtime, self._sums, got, lambda: enqueue(_CHECKED_TRIPS))
        host, *_ = self._operands(form.recurrence)

        def differs(trips: int, merged: bool = False) -> str:
            sums = expected_sums(
                recurrence, self._dtype, host, self.items, self._width, chains, steps * trips, merged
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


def _launch_and_read(runtime: Runtime, results: Any, got: HostArray, launch: Callable[[], Any]) -> None:
    """Launch a kernel and read the results into `got`. What is not written is NaN, which cannot pass."""
    got.view(np.uint8).fill(0xFF)
    cl.enqueue_copy(runtime.queue, results, got)
    launch()
    cl.enqueue_copy(runtime.queue, got, results)


_GROUP = 128  # work-items of a GPU: four warps
_WARP = 32


class MatrixTiles:
    """The operands of one row of a matrix probe, which its candidates share."""

    def __init__(self, runtime: Runtime, probe: MatrixProbe, dtype: str, parameters: Parameters) -> None:
        """Copy exact tiles to be checked, and others to be timed, to the device, and allocate the results."""
        self._runtime, self._probe = runtime, probe
        self._instruction = probe.instruction(dtype, parameters)
        self._result = DTYPES[self._instruction.accumulator]
        self._units, self._group = max(1, runtime.facts.compute_units), _GROUP if probe.warps else 1
        rng = np.random.default_rng(20261121)
        self._exact = draw_tiles("exact", self._instruction, probe.tiles, rng)
        drawn = draw_tiles(str(parameters["operands"]), self._instruction, probe.tiles, rng)
        self._checked, self._timed = self._copied(self._exact), self._copied(drawn)
        most = max(probe.groups) * self._units * self._products(max(probe.chains))
        nbytes = most * self._instruction.m * self._instruction.n * self._result.itemsize
        self._results = runtime.buffer(nbytes)

    def bench(self, parameters: Parameters) -> KernelBench:
        """Compile one number of chains, unrolling and work-groups per unit, and return what times it.

        Chains are independent products of a warp. A unit of work is an iteration of `unroll` steps.
        """
        probe, instruction = self._probe, self._instruction
        chains, unroll, groups = (int(parameters[name]) for name in ("chains", "unroll", "groups"))
        options = probe.options(instruction, chains, unroll)
        built = self._runtime.build(probe.file, options, target=probe.family.target)
        items = groups * self._units * self._group
        launcher = make_launcher(self._runtime, probe.file, options, probe.name, items, self._group, built)
        choice: Parameters = {"form": f"{probe.name} {instruction.shape}", "chains": chains, "unroll": unroll}
        choice |= {"groups": groups, "items": items, "group": self._group}
        products = groups * self._units * self._products(chains)

        def enqueue(trips: int) -> Any:
            return launcher.enqueue((*self._timed, self._results, np.int32(trips)))

        def check(_: int) -> str:
            return self.wrong_products(launcher, products, chains, unroll)

        unit = Work(flops=instruction.operations * products * unroll)
        return KernelBench(self, launcher, enqueue, check, choice, unit)

    def _products(self, chains: int) -> int:
        """Products that a work-group computes at once."""
        return chains * (_GROUP // _WARP // self._probe.warps if self._probe.warps else 1)

    def _copied(self, operands: TileOperands) -> tuple[Any, ...]:
        return tuple(map(self._runtime.filled, operands.stored(self._instruction)))

    def wrong_products(self, launcher: Launcher, products: int, chains: int, steps: int) -> str:
        """How three iterations on small whole numbers differ from the host's products, or ""."""
        got: HostArray = np.empty((products, self._instruction.m, self._instruction.n), self._result.numpy)
        arguments = *self._checked, self._results, np.int32(_CHECKED_TRIPS)
        _launch_and_read(self._runtime, self._results, got, lambda: launcher.enqueue(arguments))
        # Which tiles a product took: those of its warp (or work-group), and those of its chain.
        count, product = self._probe.tiles, np.arange(products)
        pairs = np.stack([product // chains % count, product % count], axis=1)
        unique, where = np.unique(pairs, axis=0, return_inverse=True)
        host = expected_product(self._exact, unique, steps * _CHECKED_TRIPS)
        return compare_results(got, host[where.reshape(-1)], self._result, slack=0)
