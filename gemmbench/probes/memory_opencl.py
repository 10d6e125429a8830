"""How candidates of probes are launched, timed and checked; the probes of memory, transfers and launches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import cycle
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.ladder.variant import smaller_group
from gemmbench.model.device import DeviceFacts, is_cache_assumed, last_level_cache
from gemmbench.model.dtypes import HostArray, allocate_page_aligned
from gemmbench.model.instrument import Batch, Built, NotMeasuredError, Prepared, Verified, When
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.row import NO_CLOCK, Check, Parameters, Work
from gemmbench.model.units import ceil_div, size
from gemmbench.opencl.runtime import BuiltProgram, Runtime, errors
from gemmbench.probes import memory
from gemmbench.probes.memory import FLOAT_BYTES, MemoryProbe, RepeatedTable, Way

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
        """Buffers go with the last reference."""


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
        """Enqueue a launch, perhaps with another number of work-items."""
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
    """A kernel with its geometry, from a file compiled with options; `any_group`: a smaller one will do.

    Raises `NotMeasuredError` if the file does not compile, or the group is too large.
    """
    built = built or runtime.build(file, options)
    build = Built(built.seconds, source=fingerprint((file,), options))
    made, (group,) = runtime.shaped(
        built, kernel, lambda most: smaller_group((group,), most) if any_group else (group,)
    )
    return Launcher(runtime.queue, made, items, group, build)


def time_launches(queue: Any, enqueue: Enqueue, work: int, count: int = 1) -> Batch:
    """Mean seconds of `count` launches, one after another; wall time without event times."""
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


# --- Memory, transfers and launches: the buffers of a row, which its candidates share -----------------------

_FILL = "memory/fill.cl"
_GROUPS_PER_UNIT = 8
_WORD = np.dtype(np.uint32)
_SLICES = 64
_SLICE_ELEMENTS = 4096


@dataclass(frozen=True)
class MemoryRow:
    """A row of a probe of memory, transfers or latencies: makes its buffers and reads them back."""

    runtime: Runtime
    probe: MemoryProbe
    parameters: Parameters
    table: RepeatedTable  # what sets are filled with

    @property
    def compute_units(self) -> int:
        return max(1, self.runtime.facts.compute_units)

    @property
    def ways(self) -> list[Way]:
        raced = memory.candidates(self.probe, self.runtime.facts, self.parameters)
        return [Way.of(candidate) for candidate in raced]

    def launcher(self, options: tuple[str, ...] = (), items: int = 1, group: int = 1) -> Launcher:
        probe = self.probe
        return make_launcher(self.runtime, probe.file, options, probe.kernel, items, group)

    def filled(self, elements: int, offset: int = 0) -> Any:
        """A buffer of the table's endless sequence of floats from an offset on, once it is filled."""
        runtime, buffer = self.runtime, self.runtime.buffer(elements * FLOAT_BYTES)
        group = 1 if runtime.facts.type == "cpu" else min(256, runtime.facts.max_work_group_size)
        items = self.compute_units * _GROUPS_PER_UNIT * group
        fill = make_launcher(runtime, _FILL, (), "fill", items, group)
        numbers = map(np.uint32, (memory.TABLE_ELEMENTS, offset, elements))
        fill.enqueue((runtime.filled(self.table.table), buffer, *numbers))
        runtime.queue.finish()
        return buffer

    def blank(self, elements: int) -> Any:
        buffer = self.runtime.buffer(elements * FLOAT_BYTES)
        self.erase(buffer, elements)
        return buffer

    def erase(self, buffer: Any, elements: int, byte: bytes = b"\xff") -> None:
        self.runtime.fill(buffer, byte * FLOAT_BYTES, elements * FLOAT_BYTES)
        self.runtime.queue.finish()

    def read(self, buffer: Any, first: int, count: int) -> HostArray:
        words = np.empty(count, _WORD)
        cl.enqueue_copy(self.runtime.queue, words, buffer, src_offset=first * FLOAT_BYTES)
        return words

    def wrong_sum(self, sums: Any, items: int, expected: int) -> str:
        got = memory.sum_bits(self.read(sums, 0, items))
        wrong = f"the sum of all that was read is {got:#010x}, not {expected:#010x}"
        return "" if got == expected else wrong

    def wrong_group_sums(self, sums: Any, expected: HostArray, group: int) -> str:
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

    def wrong_words(self, buffer: Any, elements: int, expected: Callable[[int, int], HostArray]) -> str:
        """The first difference from the expected words in 64 spread slices; or ""."""
        length = min(elements, _SLICE_ELEMENTS)
        for first in np.unique(np.linspace(0, elements - length, _SLICES).astype(np.int64)):
            right = self.read(buffer, int(first), length) == expected(int(first), length).view(_WORD)
            if not right.all():
                position = int(first) + int(np.argmin(right))
                return f"word {position} of {elements} is not what the host expects"
        return ""


# --- A set that kernels go through once, in whole or part by part -------------------------------------------

_PARTS = 4  # units of work in a launch that is sampled: the race is run with one of them
_SAMPLE_SHIFT = 10  # a 1024th of the image shows how slow its texels are
_LAUNCH_S = 0.05
_WHOLE = 1 << 12  # vectors: halves and quarters of a set then begin at the beginning of a page
_SECOND_OFFSET = 12345  # the triad's c is the same sequence as its b, from here on
_SLOTS = 1 << 20  # words that collect the sums of a pass without a loop


class _Passes:
    """Makes kernels that go once through a set; four units of work are a launch."""

    may_be_flat = True  # without a loop, a launch on a part has fewer work-items

    def __init__(self, row: MemoryRow, units: int, vector_bytes: int, options: tuple[str, ...]) -> None:
        self.row, self.units, self.options = row, units, options
        self.part = units  # in a launch of the most work
        self.unit_bytes = (row.probe.loads + row.probe.stores) * vector_bytes
        self.elements = units * vector_bytes // FLOAT_BYTES
        sums = (_SLOTS if way.pattern == memory.ONCE else self._items(way) for way in row.ways)
        self.target = row.blank(self.elements if row.probe.stores else max(sums))
        self.note = ""

    def __call__(self, parameters: Parameters) -> ProbeBench:
        way = Way.of(parameters)
        pattern = (f"-DPATTERN_{way.pattern.upper()}",) if way.pattern else ()
        options = (*self.options, f"-DUNROLL={way.unroll}", *pattern)
        launcher = self.row.launcher(options, self._items(way), way.group)
        is_flat = self.may_be_flat and not way.groups
        stretches: dict[int, Iterator[int]] = {}  # where the next launch begins, by work

        def launch(first: int, count: int, slots: int = 0) -> Any:
            items = launcher.items
            if is_flat:
                items = max(way.group, items * count // self.units // way.group * way.group)
            return launcher.enqueue(self.arguments(first, count, slots), items)

        def enqueue(work: int) -> Any:
            """Launch on so many quarters of a part, each time the next ones, so that caches do not help."""
            count = self.part * work // _PARTS
            if work not in stretches:
                stretches[work] = cycle(range(0, self.units - count + 1, count))
            return launch(next(stretches[work]), count)

        self.choose_part(partial(launch, 0))
        choice: Parameters = {"pattern": way.pattern} if way.pattern else {}
        choice = {**choice, "unroll": way.unroll, "group": way.group, "items": launcher.items}
        return launcher.bench(
            enqueue,
            lambda _: self.wrong(launch, launcher.items, is_flat),
            {**choice, "set_bytes": self.units * self.unit_bytes},
            Work(bytes=self.part * self.unit_bytes // _PARTS),
            (_PARTS, _PARTS),
            (self.note,),
        )

    def _items(self, way: Way) -> int:
        groups = self.row.compute_units * way.groups or ceil_div(self.units, way.unroll * way.group)
        return groups * way.group

    def arguments(self, first: int, count: int, slots: int) -> tuple[Any, ...]:
        """The kernel's arguments for `count` units from `first` on, with so many words for sums."""
        raise NotImplementedError  # each set of kernels has its own

    def choose_part(self, launch: Enqueue) -> None: ...

    def wrong(self, launch: Callable[..., Any], items: int, is_flat: bool) -> str:
        slots = _SLOTS if is_flat else 0
        if slots:
            self.row.erase(self.target, slots, b"\0")
        launch(0, self.part, slots)
        expected = self.row.table.sum_of(0, self.part * self.unit_bytes // FLOAT_BYTES)
        return self.row.wrong_sum(self.target, slots or items, expected)


class GlobalMemory(_Passes):
    """Buffers for read, write, copy and triad at one vector width."""

    def __init__(self, row: MemoryRow) -> None:
        probe, width, facts = row.probe, int(row.parameters["width"]), row.runtime.facts
        total = memory.set_bytes(facts) // (probe.loads + probe.stores)
        vectors = max(1, total // (width * FLOAT_BYTES) // _WHOLE) * _WHOLE
        super().__init__(row, vectors, width * FLOAT_BYTES, ("-DREAL_float", f"-DWIDTH={width}"))
        self._sources = [row.filled(self.elements, n * _SECOND_OFFSET) for n in range(probe.loads)]
        self.note = _describe_set(facts, vectors * self.unit_bytes)

    def arguments(self, first: int, count: int, slots: int) -> tuple[Any, ...]:
        collected = () if self.row.probe.stores else (np.uint32(slots),)
        return *self._sources, self.target, np.uint32(first), np.uint32(count), *collected

    def wrong(self, launch: Callable[..., Any], items: int, is_flat: bool) -> str:
        """A pass that stores is compared word by word; of a reading pass, the sum of all words is."""
        if not self.row.probe.stores:
            return super().wrong(launch, items, is_flat)
        self.row.erase(self.target, self.elements)
        launch(0, self.units)
        return self.row.wrong_words(self.target, self.elements, self._expected)

    def _expected(self, first: int, count: int) -> HostArray:
        if not self._sources:
            return memory.written(first, count)
        values = self.row.table.values(first, count)
        if len(self._sources) == 1:
            return values
        others = self.row.table.values(first + _SECOND_OFFSET, count)
        return np.asarray(values + np.float32(memory.SCALAR) * others)


class ImageProbe(_Passes):
    """An image of RGBA floats, read row by row."""

    may_be_flat = False

    def __init__(self, row: MemoryRow) -> None:
        self._width_shift, height_shift = memory.image_shape(row.runtime.facts)
        super().__init__(row, 1 << self._width_shift + height_shift, memory.TEXEL_BYTES, ())
        runtime, shape = row.runtime, (1 << self._width_shift, 1 << height_shift)
        self._image = runtime.image(*shape, np.dtype(np.float32), cl.mem_flags.READ_ONLY)
        floats = row.filled(self.elements)
        cl.enqueue_copy(runtime.queue, self._image, floats, offset=0, origin=(0, 0), region=shape)
        runtime.queue.finish()
        self.note = f"an image of {shape[0]} x {shape[1]} texels"
        self.part = 0  # known once a kernel is there to be timed

    def arguments(self, first: int, count: int, slots: int) -> tuple[Any, ...]:
        return self._image, self.target, *map(np.uint32, (self._width_shift, first, count))

    def choose_part(self, launch: Enqueue) -> None:
        """Choose all texels, or a power of two of them that takes 0.05 s at most."""
        if self.part:
            return
        sample = max(_PARTS, self.units >> _SAMPLE_SHIFT)
        *_, part_s = (time_launches(self.row.runtime.queue, launch, sample).finest_s for _ in range(2))
        self.part = sample
        while self.part < self.units and 2 * part_s <= _LAUNCH_S:
            self.part, part_s = 2 * self.part, 2 * part_s


def _describe_set(device: DeviceFacts, total: int) -> str:
    cache = last_level_cache(device)
    times = f"{total / cache:.1f}".removesuffix(".0")
    allowed = "" if total >= 7.5 * cache else ", and memory allows no more"
    assumed = "an assumed" if is_cache_assumed(device) else "a"
    return f"working set {size(total)}, {times} times {assumed} last-level cache of {size(cache)}{allowed}"


# --- A set that loops read ----------------------------------------------------------------------------------

_EMULATED = "emulated: the driver keeps local memory in ordinary memory"
_VISIT_BYTES = 64 << 10  # read in a row: prefetchers of CPUs may get going
_CHECKED_VISITS = 256


class _Loops:
    """Makes kernels that loop over a set, with a sum for each work-item."""

    def __init__(self, row: MemoryRow, elements: int) -> None:
        self._row = row
        self._data = row.filled(elements)
        self._sums = row.blank(max(self.groups(way) * way.group for way in row.ways))

    def groups(self, way: Way) -> int:
        return self._row.compute_units * way.groups

    def bench(
        self, parameters: Parameters, numbers: tuple[int, ...], trip_bytes: int, least: int,
        expected: Callable[[int], tuple[int, HostArray]], notes: tuple[str, ...] = (),
    ) -> ProbeBench:  # fmt: skip
        """A kernel that takes `numbers` and then the number of trips, each of `trip_bytes`.

        `expected` returns how many trips to check, and their sums.
        """
        way, width = Way.of(parameters), int(parameters["width"])
        options = ("-DREAL_float", f"-DWIDTH={width}", f"-DUNROLL={way.unroll}", f"-DGROUP={way.group}")
        launcher = self._row.launcher(options, self.groups(way) * way.group, way.group)
        choice: Parameters = {"width": width, "unroll": way.unroll, "group": way.group}
        choice["items"] = launcher.items

        def enqueue(trips: int) -> Any:
            return launcher.enqueue((self._data, self._sums, *map(np.uint32, (*numbers, trips))))

        def check(trips: int) -> str:
            checked_trips, sums = expected(trips)
            enqueue(checked_trips)
            return self._row.wrong_group_sums(self._sums, sums, way.group)

        return launcher.bench(enqueue, check, choice, Work(bytes=trip_bytes), (least, MOST_TRIPS), notes)


def working_set(row: MemoryRow) -> Make:
    """A set of one size. A trip is a visit of each work-group to 64 KiB at a random place."""
    nbytes = int(row.parameters["bytes"])
    loops = _Loops(row, nbytes // FLOAT_BYTES)

    def make(parameters: Parameters) -> ProbeBench:
        way, width = Way.of(parameters), int(parameters["width"])
        groups, block = loops.groups(way), way.unroll * way.group * width  # elements
        blocks = nbytes // FLOAT_BYTES // block
        steps = max(1, _VISIT_BYTES // FLOAT_BYTES // block)

        def expected(visits: int) -> tuple[int, HostArray]:
            visits = min(visits, _CHECKED_VISITS)
            return visits, row.table.sums_of_visits(groups, block, blocks, steps, visits)

        moved = groups * steps * block * FLOAT_BYTES
        least = max(2, ceil_div(nbytes, moved))  # the groups together read as much as the set holds
        numbers = (blocks * block // width, blocks - 1, steps)
        return loops.bench(parameters, numbers, moved, least, expected)

    return make


def local_memory(row: MemoryRow) -> Make:
    """Local memory, read or copied at one vector width. In a trip, each group moves half of it."""
    most = max(2 * way.unroll * way.group for way in row.ways)
    loops, probe = _Loops(row, most * int(row.parameters["width"])), row.probe

    def make(parameters: Parameters) -> ProbeBench:
        way, width = Way.of(parameters), int(parameters["width"])
        groups, block = loops.groups(way), way.unroll * way.group  # vectors; a round is two blocks

        def expected(trips: int) -> tuple[int, HostArray]:
            trips += trips % 2  # whole rounds
            once = row.table.sum_of(0, 2 * block * width)
            # Of a copy, every word has the number of the last trip that wrote it on top.
            copied = once + block * width * ((trips - 1) + (trips - 2))
            total = copied if probe.stores else trips // 2 * once
            return trips, np.full(groups, total % (1 << 32), np.uint32)

        moved = groups * block * width * FLOAT_BYTES * (probe.loads + probe.stores)
        notes = (_EMULATED,) if row.runtime.facts.local_mem_emulated else ()
        return loops.bench(parameters, (2 * block - 1,), moved, 2, expected, notes)

    return make


# --- Latencies ----------------------------------------------------------------------------------------------

_MOST_WARMING = 1 << 20  # hops: a set with more nodes fits no cache


def chase(row: MemoryRow) -> Make:
    """A random cycle through a set of one size. A unit of work is a hop, which waits for the one before."""
    runtime = row.runtime
    spacing = 64 if runtime.facts.type == "cpu" else 128  # bytes: a line of a cache
    contents, order = memory.random_cycle(int(row.parameters["bytes"]) // spacing, spacing // FLOAT_BYTES)
    flags = cl.mem_flags.READ_ONLY | cl.mem_flags.COPY_HOST_PTR
    nodes = cl.Buffer(runtime.context, flags, hostbuf=contents)
    position = runtime.buffer(FLOAT_BYTES)

    def make(_: Parameters) -> ProbeBench:
        launcher = row.launcher()

        def enqueue(hops: int) -> Any:
            return launcher.enqueue((nodes, position, np.uint32(hops)))

        def go_to_start() -> None:
            cl.enqueue_copy(runtime.queue, position, np.zeros(1, _WORD))

        def check(hops: int) -> str:
            go_to_start()
            enqueue(hops)
            got, expected = int(row.read(position, 0, 1)[0]), int(order[hops % order.size])
            return "" if got == expected else f"{hops} hops end at {got}, not at {expected}"

        go_to_start()
        if order.size <= _MOST_WARMING:  # once through, to warm caches
            time_launches(runtime.queue, enqueue, order.size)
        return launcher.bench(enqueue, check, {"spacing": spacing}, Work(), (2, MOST_TRIPS))

    return make


def launches(row: MemoryRow) -> Make:
    """A kernel that does nothing: enqueued, started, waited for, or launched in a chain."""
    runtime, chain, launcher = row.runtime, row.probe.chain, row.launcher()
    plain_queue = runtime.plain_queue

    def enqueue(queue: Any) -> Any:
        return cl.enqueue_nd_range_kernel(queue, launcher.kernel, (1,), (1,))

    def launch_and_wait() -> None:
        for _ in range(chain or 1):
            enqueue(plain_queue)
        plain_queue.finish()

    def dispatch_s() -> float:
        spent = seconds_of(lambda: enqueue(plain_queue))
        plain_queue.finish()
        return spent

    def queued_to_start_s() -> float:
        """By the device's clock; `NotMeasuredError` if the driver has none."""
        event = enqueue(runtime.queue)
        runtime.queue.finish()
        if not runtime.has_clock:
            raise NotMeasuredError("unsupported", NO_CLOCK)
        return max(float(event.profile.start - event.profile.queued) * 1e-9, SHORTEST_S)

    seconds: Mapping[str, Callable[[], float]] = {
        "launch-dispatch": dispatch_s,
        "launch-start": queued_to_start_s,
        "launch-round-trip": lambda: seconds_of(launch_and_wait),
        "launch-chain": lambda: seconds_of(launch_and_wait) / chain,
    }
    return lambda _: host_bench(launcher.build, seconds[row.probe.name], lambda: "", Work())


# --- Transfers ----------------------------------------------------------------------------------------------


def _transfer_bench(
    values: HostArray, way: str, transfer: Callable[[], float], blank: Callable[[], None],
    result: Callable[[], HostArray],
) -> ProbeBench:  # fmt: skip
    """A way to transfer everything once, and to compare all bits."""

    def check() -> str:
        blank()
        transfer()
        arrived = result().view(_WORD) == values.view(_WORD)
        return "" if arrived.all() else "what arrived is not what was sent"

    return host_bench(Built(choice={"way": way}), transfer, check, Work(bytes=values.nbytes))


def _values(row: MemoryRow) -> HostArray:
    return row.table.values(0, int(row.parameters["bytes"]) // FLOAT_BYTES)


def copies(row: MemoryRow) -> Make:
    """Copies between pinned or page-aligned host memory and a buffer: blocking, enqueued, on two queues."""
    runtime, values, is_up = row.runtime, _values(row), row.probe.direction == "up"
    buffer, count = runtime.buffer(values.nbytes), values.size
    host = (
        runtime.pinned(values.shape, values.dtype)
        if row.probe.pinned
        else allocate_page_aligned(count, values.dtype)
    )
    if is_up:
        host[...] = values
    else:
        cl.enqueue_copy(runtime.queue, buffer, values)

    def blank() -> None:
        if is_up:
            row.erase(buffer, count)
        else:
            host[...] = 0

    def copy(queue: Any, first: int, end: int, blocking: bool) -> None:
        part, offset = host[first:end], first * FLOAT_BYTES
        if is_up:
            cl.enqueue_copy(queue, buffer, part, dst_offset=offset, is_blocking=blocking)
        else:
            cl.enqueue_copy(queue, part, buffer, src_offset=offset, is_blocking=blocking)

    def copy_enqueued() -> None:
        copy(runtime.plain_queue, 0, count, False)
        runtime.plain_queue.finish()

    def copy_on_two_queues() -> None:
        queues, half = (runtime.plain_queue, runtime.queue), count // 2
        copy(queues[0], 0, half, False)
        copy(queues[1], half, count, False)
        for queue in queues:
            queue.flush()
        for queue in queues:
            queue.finish()

    ways: Mapping[str, Callable[[], None]] = {
        "blocking": partial(copy, runtime.plain_queue, 0, count, True),
        "enqueued": copy_enqueued,
        "two queues": copy_on_two_queues,
    }

    def make(parameters: Parameters) -> ProbeBench:
        way = str(parameters["way"])
        result = partial(row.read, buffer, 0, count) if is_up else host.copy
        return _transfer_bench(values, way, partial(seconds_of, ways[way]), blank, result)

    blank()
    return make


def maps(row: MemoryRow) -> Make:
    """A mapped buffer, in host memory if the device shares it: filled and unmapped, or mapped for reading."""
    runtime, values, is_up = row.runtime, _values(row), row.probe.direction == "up"
    queue = runtime.plain_queue
    shared = cl.mem_flags.ALLOC_HOST_PTR if runtime.facts.unified_memory else 0
    buffer = runtime.buffer(values.nbytes, cl.mem_flags.READ_WRITE | shared)
    arrived: list[HostArray] = []  # in the first map after `blank`
    if not is_up:
        cl.enqueue_copy(queue, buffer, values)

    def blank() -> None:
        arrived.clear()
        if is_up:
            row.erase(buffer, values.size)

    def map_buffer(flags: int) -> Any:
        view, _ = cl.enqueue_map_buffer(queue, buffer, flags, 0, values.shape, values.dtype, is_blocking=True)
        return view

    def unmap_filled() -> float:
        view = map_buffer(cl.map_flags.WRITE)
        view[...] = values
        begin = time.perf_counter()
        view.base.release(queue)
        queue.finish()
        return time.perf_counter() - begin

    def map_for_reading() -> float:
        # A driver may keep what it has mapped before, unless the device changes it.
        cl.enqueue_copy(queue, buffer, values[:1])
        queue.finish()
        begin = time.perf_counter()
        view = map_buffer(cl.map_flags.READ)
        spent = time.perf_counter() - begin
        if not arrived:
            arrived.append(np.array(view))
        view.base.release(queue)
        queue.finish()
        return spent

    def result() -> HostArray:
        return arrived[0] if arrived else row.read(buffer, 0, values.size)

    transfer = unmap_filled if is_up else map_for_reading
    return lambda parameters: _transfer_bench(values, str(parameters["way"]), transfer, blank, result)


MAKERS: Mapping[str, Callable[[MemoryRow], Make]] = {
    "global": GlobalMemory, "image": ImageProbe, "working-set": working_set, "local": local_memory,
    "chase": chase, "launch": launches, "copy": copies, "map": maps,
}  # fmt: skip
"""By the probe's bench: makes the operands of a row, which make its candidates."""
