"""How probes are launched and timed, and the probes of global memory, images, caches and local memory."""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import cycle
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.ladder.variant import smaller_group
from gemmbench.model import instrument
from gemmbench.model.device import DeviceFacts, is_cache_assumed, last_level_cache
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import Batch, Prepared, Verified, When
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.row import Check, Parameters, Work
from gemmbench.model.units import ceil_div, size
from gemmbench.opencl.runtime import BuiltProgram, Runtime, errors
from gemmbench.probes.memory import (
    FLOAT_BYTES,
    ONCE,
    SCALAR,
    TABLE_ELEMENTS,
    TEXEL_BYTES,
    MemoryProbe,
    RepeatedTable,
    Way,
    candidates,
    image_shape,
    set_bytes,
    sum_bits,
    written,
)

SHORTEST_S = 1e-9  # an event of no length is shorter than its clock's tick
MOST_TRIPS = 1 << 29  # twice as many still fit the kernels' int

Enqueue = Callable[[int], Any]  # enqueues one launch of so much work; returns its event


@dataclass(frozen=True)
class Launcher:
    """A kernel with its geometry."""

    queue: Any
    kernel: Any
    items: int
    group: int
    build: instrument.Built  # of its program

    def enqueue(self, arguments: Sequence[Any], items: int = 0) -> Any:
        """Enqueue a launch, perhaps with another number of work-items; its event."""
        self.kernel.set_args(*arguments)
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (items or self.items,), (self.group,))


@dataclass
class KernelBench:
    """A candidate timed by its events and the wall clock: a `measure.instrument.Bench`."""

    operands: object  # of the row: the buffers that its candidates share
    launcher: Launcher
    enqueue: Enqueue
    check: Callable[[int], str]  # how the result of a launch of so much work differs from the host's, or ""
    choice: Parameters  # what distinguishes it from the others, for the row
    unit: Work  # what it does in a unit of work
    trips: tuple[int, int] = (1, MOST_TRIPS)  # units of work in a measured launch, at least and at most
    notes: tuple[str, ...] = ()  # for the row

    def __post_init__(self) -> None:
        self._work = self.trips[0]  # of the latest launch

    @cached_property
    def prepared(self) -> Prepared:
        return Prepared(
            ("device",),
            built=replace(self.launcher.build, choice=self.choice),
            notes=self.notes,
            unit=self.unit,
            trips=self.trips,
        )

    def verify(self, when: When) -> Verified:
        with errors():
            return verified(self.check(self._work))

    def start(self, clock: str, count: int, work: int) -> Batch:
        self._work = work
        with errors():
            return time_launches(self.launcher.queue, self.enqueue, work, count)

    def release(self) -> None:
        """Nothing to do: buffers go with the last reference."""


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


def verified(wrong: str) -> Verified:
    """A probe's check: suspect for a reason, or ok if that is ""."""
    return Verified(Check("suspect", {}, (wrong,)) if wrong else Check("ok"))


def make_launcher(
    runtime: Runtime, file: str, options: tuple[str, ...], kernel: str, items: int, group: int,
    built: BuiltProgram | None = None, any_group: bool = False,
) -> Launcher:  # fmt: skip
    """A kernel with its number of work-items and its work-group, from a file compiled with options.

    `built` is the program if it is compiled already. With ``any_group``, the group is halved until the kernel
    takes it. Raises `NotMeasuredError` if the file does not compile, or the group is too large.
    """
    built = built or runtime.build(file, options)
    build = instrument.Built(built.seconds, source=fingerprint((file,), options))
    made, (group,) = runtime.shaped(
        built, kernel, lambda most: smaller_group((group,), most) if any_group else (group,)
    )
    return Launcher(runtime.queue, made, items, group, build)


_FILL = "memory/fill.cl"
_GROUPS_PER_UNIT = 8
_WORD = np.dtype(np.uint32)
_SLICES = 64
_SLOTS = 1 << 20
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
        """The ways to share the work that are raced."""
        return [Way.of(each) for each in candidates(self.probe, self.runtime.facts, self.parameters)]

    def launcher(self, options: tuple[str, ...] = (), items: int = 1, group: int = 1) -> Launcher:
        return make_launcher(self.runtime, self.probe.file, options, self.probe.kernel, items, group)

    def filled(self, elements: int, offset: int = 0) -> Any:
        """A buffer of the table's endless sequence of floats from an offset on. Waits until it is filled."""
        runtime = self.runtime
        buffer = runtime.buffer(elements * _WORD.itemsize)
        group = 1 if runtime.facts.type == "cpu" else min(256, runtime.facts.max_work_group_size)
        fill = make_launcher(runtime, _FILL, (), "fill", self.compute_units * _GROUPS_PER_UNIT * group, group)
        numbers = map(np.uint32, (TABLE_ELEMENTS, offset, elements))
        fill.enqueue((runtime.filled(self.table.table), buffer, *numbers))
        runtime.queue.finish()
        return buffer

    def blank(self, elements: int) -> Any:
        buffer = self.runtime.buffer(elements * _WORD.itemsize)
        self.erase(buffer, elements)
        return buffer

    def erase(self, buffer: Any, elements: int, byte: bytes = b"\xff") -> None:
        self.runtime.fill(buffer, byte * _WORD.itemsize, elements * _WORD.itemsize)
        self.runtime.queue.finish()

    def read(self, buffer: Any, first: int, count: int) -> HostArray:
        words = np.empty(count, _WORD)
        cl.enqueue_copy(self.runtime.queue, words, buffer, src_offset=first * _WORD.itemsize)
        return words

    def wrong_sum(self, sums: Any, items: int, expected: int) -> str:
        """How the sum of all work-items' sums differs from the host's, or ""."""
        got = sum_bits(self.read(sums, 0, items))
        wrong = f"the sum of all that was read is {got:#010x}, not {expected:#010x}"
        return "" if got == expected else wrong

    def wrong_group_sums(self, sums: Any, expected: HostArray, group: int) -> str:
        """How the sums of each group's words differ from the expected ones (a word each), or ""."""
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
        """The first difference from the expected words in 64 spread slices of at most 4096 words; or ""."""
        length = min(elements, _SLICE_ELEMENTS)
        for first in np.unique(np.linspace(0, elements - length, _SLICES).astype(np.int64)):
            right = self.read(buffer, int(first), length) == expected(int(first), length).view(_WORD)
            if not right.all():
                position = int(first) + int(np.argmin(right))
                return f"word {position} of {elements} is not what the host expects"
        return ""


_PARTS = 4  # units of work in a launch that is sampled: the race is run with one of them
_SAMPLE_SHIFT = 10  # a 1024th of the image shows how slow its texels are
_LAUNCH_S = 0.05
_WHOLE = 1 << 12  # vectors: halves and quarters of a set then begin at the beginning of a page
_SECOND_OFFSET = 12345  # the triad's c is the same sequence as its b, from here on


@dataclass
class MemoryPass:
    """A kernel that goes once through a set, or through a part of it and next time through the next."""

    launcher: Launcher
    arguments: Callable[[int, int], Sequence[Any]]  # of the kernel, from first unit and number of units
    units: int  # vectors or texels in the set
    part: int  # of them in a launch of the most work
    flat: bool  # whether there are as many work-items as there is work: fewer for a part
    stretches: dict[int, Any] = field(default_factory=dict)  # where the next launch begins, by work

    def launch(self, first: int, count: int) -> Any:
        """Launch the kernel on `count` units from `first` on."""
        items = self.launcher.items
        if self.flat:
            group = self.launcher.group
            items = max(group, items * count // self.units // group * group)
        return self.launcher.enqueue(self.arguments(first, count), items)

    def enqueue(self, work: int) -> Any:
        """Launch on ``work`` quarters of a part, each time the next ones, so that caches do not help."""
        count = self.part * work // _PARTS
        if work not in self.stretches:
            self.stretches[work] = cycle(range(0, self.units - count + 1, count))
        return self.launch(next(self.stretches[work]), count)


class _PassProbe(ABC):
    """A set that kernels go through once: the buffers that the candidates of a row share."""

    def __init__(self, row: MemoryRow, units: int, vector_bytes: int, options: tuple[str, ...]) -> None:
        """Allocate what kernels write: a stream as large as one that is read, or a sum for each work-item.

        Each stream of the set has `units` vectors or texels of `vector_bytes`. The compiler gets `options`.
        """
        self._row, self._units, self._options = row, units, options
        self._part = units  # read by a launch of the most work
        self._unit_bytes = (row.probe.loads + row.probe.stores) * vector_bytes
        self._elements = units * vector_bytes // FLOAT_BYTES
        self._slots = 0  # words that collect the sums of a pass without a loop, while it is checked
        sums = (_SLOTS if way.pattern == ONCE else self._items(way) for way in row.ways)
        self._target = row.blank(self._elements if row.probe.stores else max(sums))
        self._note = ""

    def bench(self, parameters: Parameters) -> KernelBench:
        """Compile the kernel for one way to share the work, and return what times and checks it.

        A launch goes once through the set, or a part of it. It is four units of work.
        """
        way = Way.of(parameters)
        pattern = (f"-DPATTERN_{way.pattern.upper()}",) if way.pattern else ()
        options = (*self._options, f"-DUNROLL={way.unroll}", *pattern)
        launcher = self._row.launcher(options, self._items(way), way.group)
        memory_pass = self._pass(launcher, not way.groups)
        choice: Parameters = {"pattern": way.pattern} if way.pattern else {}
        choice = {**choice, "unroll": way.unroll, "group": way.group, "items": launcher.items}
        return KernelBench(
            operands=self,
            launcher=launcher,
            enqueue=memory_pass.enqueue,
            check=lambda _: self._wrong(memory_pass),
            choice={**choice, "set_bytes": self._units * self._unit_bytes},
            unit=Work(bytes=self._part * self._unit_bytes // _PARTS),
            trips=(_PARTS, _PARTS),
            notes=(self._note,),
        )

    def _items(self, way: Way) -> int:
        """Work-items in whole groups: a way's groups for each unit, or enough for the whole set."""
        groups = self._row.compute_units * way.groups or ceil_div(self._units, way.unroll * way.group)
        return groups * way.group

    def _pass(self, launcher: Launcher, flat: bool) -> MemoryPass:
        return MemoryPass(launcher, self._arguments, self._units, self._part, flat)

    @abstractmethod
    def _arguments(self, first: int, count: int) -> tuple[Any, ...]:
        """The kernel's arguments for `count` units from `first` on."""

    def _wrong(self, memory_pass: MemoryPass) -> str:
        """How the sum of all words that a launch reads differs from the host's, or ""."""
        memory_pass.launch(0, self._part)
        expected = self._row.table.sum_of(0, self._part * self._unit_bytes // FLOAT_BYTES)
        return self._row.wrong_sum(self._target, self._slots or memory_pass.launcher.items, expected)


class GlobalMemory(_PassProbe):
    """Buffers for read, write, copy and triad at one vector width."""

    def __init__(self, row: MemoryRow) -> None:
        """Allocate and fill the streams that are read, and allocate the one that is written."""
        probe, width = row.probe, int(row.parameters["width"])
        total = set_bytes(row.runtime.facts) // (probe.loads + probe.stores)
        vectors = max(1, total // (width * FLOAT_BYTES) // _WHOLE) * _WHOLE
        super().__init__(row, vectors, width * FLOAT_BYTES, ("-DREAL_float", f"-DWIDTH={width}"))
        self._sources = [row.filled(self._elements, n * _SECOND_OFFSET) for n in range(probe.loads)]
        self._note = _set_note(row.runtime.facts, vectors * self._unit_bytes)

    def _arguments(self, first: int, count: int) -> tuple[Any, ...]:
        slots = () if self._row.probe.stores else (np.uint32(self._slots),)
        return *self._sources, self._target, np.uint32(first), np.uint32(count), *slots

    def _wrong(self, memory_pass: MemoryPass) -> str:
        """A pass that stores is compared word by word; of a reading pass, the sum of all words is."""
        if not self._row.probe.stores:
            try:
                if memory_pass.flat:
                    self._slots = _SLOTS
                    self._row.erase(self._target, self._slots, b"\0")
                return super()._wrong(memory_pass)
            finally:
                self._slots = 0
        self._row.erase(self._target, self._elements)
        memory_pass.launch(0, self._units)
        return self._row.wrong_words(self._target, self._elements, self._expected)

    def _expected(self, first: int, count: int) -> HostArray:
        """What a write (of hashed positions), copy or triad (b + 3 c) leaves in `count` words."""
        if not self._sources:
            return written(first, count)
        values = self._row.table.values(first, count)
        if len(self._sources) == 1:
            return values
        others = self._row.table.values(first + _SECOND_OFFSET, count)
        return np.asarray(values + np.float32(SCALAR) * others)


class ImageProbe(_PassProbe):
    """An image of RGBA floats, read row by row."""

    def __init__(self, row: MemoryRow) -> None:
        """Create the image and fill it with the table's sequence."""
        self._width_shift, height_shift = image_shape(row.runtime.facts)
        super().__init__(row, 1 << self._width_shift + height_shift, TEXEL_BYTES, ())
        runtime, shape = row.runtime, (1 << self._width_shift, 1 << height_shift)
        self._image = runtime.image(*shape, np.dtype(np.float32), cl.mem_flags.READ_ONLY)
        floats = row.filled(self._elements)
        cl.enqueue_copy(runtime.queue, self._image, floats, offset=0, origin=(0, 0), region=shape)
        runtime.queue.finish()
        self._note = f"an image of {shape[0]} x {shape[1]} texels"
        self._part = 0  # known once a kernel is there to be timed

    def _pass(self, launcher: Launcher, flat: bool) -> MemoryPass:
        """What launches the kernel over all texels, or over a power of two of them that takes 0.05 s at most.

        The first call times two launches on a 1024th of the image to choose how many. Later calls keep that.
        """
        memory_pass = MemoryPass(launcher, self._arguments, self._units, self._part, flat=False)
        if not self._part:
            sample = max(_PARTS, self._units >> _SAMPLE_SHIFT)
            launch = partial(time_launches, launcher.queue, partial(memory_pass.launch, 0), sample)
            launch()  # it may compile
            self._part, part_s = sample, launch().finest_s
            while self._part < self._units and 2 * part_s <= _LAUNCH_S:
                self._part, part_s = 2 * self._part, 2 * part_s
        return replace(memory_pass, part=self._part)

    def _arguments(self, first: int, count: int) -> tuple[Any, ...]:
        return self._image, self._target, *map(np.uint32, (self._width_shift, first, count))


def _set_note(device: DeviceFacts, total: int) -> str:
    """A note on the size of the working set relative to the last-level cache."""
    cache = last_level_cache(device)
    times = f"{total / cache:.1f}".removesuffix(".0")
    allowed = "" if total >= 7.5 * cache else ", and memory allows no more"
    assumed = "an assumed" if is_cache_assumed(device) else "a"
    return f"working set {size(total)}, {times} times {assumed} last-level cache of {size(cache)}{allowed}"


_EMULATED = "emulated: the driver keeps local memory in ordinary memory"
_VISIT_BYTES = 64 << 10  # read in a row: prefetchers of CPUs may get going
_CHECKED_VISITS = 256


class _LoopProbe:
    """A set that loops read, and a sum for each work-item: the buffers that a row's candidates share."""

    def __init__(self, row: MemoryRow, elements: int) -> None:
        self._row = row
        self._data = row.filled(elements)
        self._sums = row.blank(max(self._groups(way) * way.group for way in row.ways))

    def _groups(self, way: Way) -> int:
        return self._row.compute_units * way.groups

    def _bench(
        self, parameters: Parameters, numbers: tuple[int, ...], trip_bytes: int, least: int,
        expected: Callable[[int], tuple[int, HostArray]], notes: tuple[str, ...] = (),
    ) -> KernelBench:  # fmt: skip
        """Compile a kernel that loops over a set, and return what times and checks it.

        The kernel takes `numbers` and then the number of trips (iterations). A trip moves `trip_bytes`; a
        measured launch makes `least` trips or more. `expected` gets the trips of the last launch. It returns
        how many to check instead, and the sums of the groups after them.
        """
        way, width = Way.of(parameters), int(parameters["width"])
        options = ("-DREAL_float", f"-DWIDTH={width}", f"-DUNROLL={way.unroll}", f"-DGROUP={way.group}")
        launcher = self._row.launcher(options, self._groups(way) * way.group, way.group)
        choice: Parameters = {"width": width, "unroll": way.unroll, "group": way.group}
        choice["items"] = launcher.items

        def enqueue(trips: int) -> Any:
            return launcher.enqueue((self._data, self._sums, *map(np.uint32, (*numbers, trips))))

        def check(trips: int) -> str:
            checked_trips, sums = expected(trips)
            enqueue(checked_trips)
            return self._row.wrong_group_sums(self._sums, sums, way.group)

        unit = Work(bytes=trip_bytes)
        return KernelBench(self, launcher, enqueue, check, choice, unit, (least, MOST_TRIPS), notes)


class WorkingSet(_LoopProbe):
    """A set of global memory of one size, read by every work-group."""

    def __init__(self, row: MemoryRow) -> None:
        self._bytes = int(row.parameters["bytes"])
        super().__init__(row, self._bytes // FLOAT_BYTES)

    def bench(self, parameters: Parameters) -> KernelBench:
        """Compile the kernel for one way to share the work, and return what times and checks it.

        A trip is a visit of each work-group: it reads about 64 KiB from a random block on. A block is what it
        reads at once. A measured launch makes two trips or more, and reads at least the size of the set.
        """
        way, width = Way.of(parameters), int(parameters["width"])
        groups = self._groups(way)
        block = way.unroll * way.group * width  # elements
        blocks = self._bytes // FLOAT_BYTES // block
        steps = max(1, _VISIT_BYTES // FLOAT_BYTES // block)

        def expected(visits: int) -> tuple[int, HostArray]:
            visits = min(visits, _CHECKED_VISITS)
            return visits, self._row.table.sums_of_visits(groups, block, blocks, steps, visits)

        moved = groups * steps * block * FLOAT_BYTES
        least = max(2, ceil_div(self._bytes, moved))  # the groups together read as much as the set holds
        numbers = (blocks * block // width, blocks - 1, steps)
        return self._bench(parameters, numbers, moved, least, expected)


class LocalMemory(_LoopProbe):
    """Local memory, read or copied at one vector width."""

    def __init__(self, row: MemoryRow) -> None:
        most = max(2 * way.unroll * way.group for way in row.ways)
        super().__init__(row, most * int(row.parameters["width"]))

    def bench(self, parameters: Parameters) -> KernelBench:
        """Compile the kernel for one way to share the work, and return what times and checks it.

        In a trip, each work-group reads or copies a block: half of its local memory, with `unroll` vectors
        for each work-item. A launch makes two trips or more. Emulated local memory gets a note.
        """
        way, width = Way.of(parameters), int(parameters["width"])
        groups, probe = self._groups(way), self._row.probe
        block = way.unroll * way.group  # vectors; a round is two blocks

        def expected(trips: int) -> tuple[int, HostArray]:
            trips += trips % 2  # whole rounds
            once = self._row.table.sum_of(0, 2 * block * width)
            # Of a copy, every word has the number of the last trip that wrote it on top.
            copied = once + block * width * ((trips - 1) + (trips - 2))
            total = copied if probe.stores else trips // 2 * once
            return trips, np.full(groups, total % (1 << 32), np.uint32)

        moved = groups * block * width * FLOAT_BYTES * (probe.loads + probe.stores)
        notes = (_EMULATED,) if self._row.runtime.facts.local_mem_emulated else ()
        return self._bench(parameters, (2 * block - 1,), moved, 2, expected, notes)
