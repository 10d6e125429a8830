"""The launches that probes are timed by, the bench that runs them, and the probes of memory on a device."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import cycle
from typing import Any, Protocol

import numpy as np
import pyopencl as cl

from gemmbench.ladder.variant import smaller_group
from gemmbench.model import instrument
from gemmbench.model.device import is_cache_assumed, last_level_cache
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import Batch, Prepared, Verified, When
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.row import Check, Parameters, Work
from gemmbench.model.units import ceil_div, size
from gemmbench.opencl.runtime import BuiltProgram, Runtime, errors
from gemmbench.probes.memory import (
    FLOAT_BYTES,
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

_SHORTEST_S = 1e-9  # an event of no length is shorter than its clock's tick
MOST_TRIPS = 1 << 29  # twice as many still fit the kernels' int

Enqueue = Callable[[], Any]  # puts one launch into the queue; its event


class ProbeCandidate(Protocol):
    """One way to run a probe: a kernel, and how it is launched."""

    @property
    def launcher(self) -> Launcher:
        """The kernel with its geometry."""

    def enqueue(self, work: int) -> Any:
        """Enqueue one launch of so much work; its event."""

    def wrong(self, work: int) -> str:
        """How the result of a launch of so much work differs from the host's, or ""."""


class ProbeBuffers(Protocol):
    """What the candidates of a row share: its buffers on the device, and what the host knows of them."""

    def bench(self, parameters: Parameters) -> MemoryBench | Any:
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
        """Enqueue a launch, perhaps with another number of work-items; its event."""
        self.kernel.set_args(*arguments)
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (items or self.items,), (self.group,))


@dataclass(frozen=True)
class Loop:
    """A kernel whose work is the trips of a loop."""

    launcher: Launcher
    arguments: Callable[[int], Sequence[Any]]  # of the kernel, from the number of trips
    check: Callable[[Loop, int], str]

    def enqueue(self, work: int) -> Any:
        return self.launcher.enqueue(self.arguments(work))

    def wrong(self, work: int) -> str:
        return self.check(self, work)


@dataclass
class MemoryBench:
    """A candidate timed by its events and the wall clock: a `measure.instrument.Bench`."""

    operands: ProbeBuffers  # what it shares with others
    candidate: ProbeCandidate  # what is launched
    choice: Parameters  # what distinguishes it from the others, for the row
    unit: Work  # what it does in a unit of work
    trips: tuple[int, int]  # the least and the most units of work in a launch that is measured
    notes: tuple[str, ...] = ()  # for the row

    def __post_init__(self) -> None:
        self._work = self.trips[0]  # of the latest launch

    @cached_property
    def prepared(self) -> Prepared:
        """The candidate's build, choice and unit of work, for the parent."""
        return Prepared(
            ("device",),
            built=replace(self.candidate.launcher.build, choice=self.choice),
            notes=self.notes,
            unit=self.unit,
            trips=self.trips,
        )

    def verify(self, when: When) -> Verified:
        with errors():
            wrong = self.candidate.wrong(self._work)
        return verified(wrong)

    def start(self, clock: str, count: int, work: int) -> Batch:
        self._work = work
        with errors():
            return timed(self.candidate.launcher.queue, lambda: self.candidate.enqueue(work), count)

    def release(self) -> None:
        """Nothing to do: buffers go with the last reference."""


def timed(queue: Any, enqueue: Enqueue, count: int = 1) -> Batch:
    """Launch back to back, `count` times, and wait. Seconds are of one launch, by events if there are any."""
    begin = time.perf_counter()
    events = [enqueue() for _ in range(count)]
    queue.finish()
    end = time.perf_counter()
    try:
        spent = sum(event.profile.end - event.profile.start for event in events) * 1e-9 / count
    except cl.Error:  # the driver has no event times
        spent = (end - begin) / count
    return Batch({"kernel": max(spent, _SHORTEST_S)}, begin, end, count)


def verified(wrong: str) -> Verified:
    """A probe's check: suspect for a reason, or ok if that is ""."""
    return Verified(Check("suspect", {}, (wrong,)) if wrong else Check("ok"))


def launcher(
    runtime: Runtime, file: str, options: tuple[str, ...], kernel: str, items: int, group: int,
    built: BuiltProgram | None = None, any_group: bool = False,
) -> Launcher:  # fmt: skip
    """A kernel with its geometry, from a file compiled with options, or from a program `built` from them.

    With ``any_group``, the group shrinks to what the compiled kernel takes. Raises `NotMeasuredError` if it
    does not compile, or needs too many registers for the group.
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
        """A buffer of floats with the table's sequence from an offset on, filled on the device."""
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

    def read(self, buffer: Any, first: int, count: int) -> HostArray:
        words = np.empty(count, _WORD)
        cl.enqueue_copy(self._runtime.queue, words, buffer, src_offset=first * _WORD.itemsize)
        return words

    def wrong_sum(self, sums: Any, items: int, expected: int) -> str:
        """How the sum of all work-items' sums differs from the host's, or ""."""
        got = sum_bits(self.read(sums, 0, items))
        if got == expected:
            return ""
        return f"the sum of all that was read is {got:#010x}, not {expected:#010x}"

    def wrong_group_sums(self, sums: Any, expected: HostArray, group: int) -> str:
        """How the work-groups' sums differ from the expected ones (a word each), or ""."""
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
        """The first difference between a buffer and the expected words, in 64 slices; "" if there is none."""
        length = min(elements, _SLICE_ELEMENTS)
        for first in np.unique(np.linspace(0, elements - length, _SLICES).astype(np.int64)):
            right = self.read(buffer, int(first), length) == expected(int(first), length).view(_WORD)
            if not right.all():
                position = int(first) + int(np.argmin(right))
                return f"word {position} of {elements} is not what the host expects"
        return ""


# --- Global memory and images: kernels that go once through a set past the last-level cache -----------------

Arguments = Callable[[int, int], Sequence[Any]]  # of a kernel, from first unit and number of units

_PARTS = 4  # units of work in a launch that is sampled: the race is run with one of them
_SAMPLE_SHIFT = 10  # a 1024th of the image shows how slow its texels are
_LAUNCH_S = 0.05
_WHOLE = 1 << 12  # vectors: halves and quarters of a set then begin at the beginning of a page
_SECOND_OFFSET = 12345  # the triad's c is the same sequence as its b, from here on


@dataclass
class MemoryPass:
    """A kernel that goes once through a set, or through a part of it and next time through the next."""

    launcher: Launcher
    arguments: Arguments  # of the kernel
    units: int  # vectors or texels in the set
    part: int  # of them in a launch of the most work
    flat: bool  # whether there are as many work-items as there is work: fewer for a part
    check: Callable[[MemoryPass], str]  # how a launch of a whole part differs from the host, or ""
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

    def wrong(self, work: int) -> str:
        return self.check(self)


class GlobalMemory:
    """Buffers for read, write, copy and triad at one vector width, which a row's candidates share."""

    def __init__(self, row: MemoryRow) -> None:
        """Allocate and fill the streams that are read, and the one that is written or gets the sums."""
        self._row, self._width = row, int(row.parameters["width"])
        facts, probe = row.runtime.facts, row.probe
        self._unit_bytes = (probe.loads + probe.stores) * self._width * FLOAT_BYTES
        self._vectors = max(1, set_bytes(facts) // self._unit_bytes // _WHOLE) * _WHOLE
        self._elements = self._vectors * self._width
        self._sets = Sets(row.runtime, row.table)
        self._sources = [
            self._sets.filled(self._elements, number * _SECOND_OFFSET) for number in range(probe.loads)
        ]
        self._target = self._sets.blank(self._elements if probe.stores else _most_items(row, self._vectors))

    def bench(self, parameters: Parameters) -> MemoryBench:
        """The bench of a candidate, one way to share the work. A launch is a pass over the whole set."""
        runtime, probe, way = self._row.runtime, self._row.probe, Way.of(parameters)
        pattern = f"-DPATTERN_{way.pattern.upper()}"
        options = ("-DREAL_float", f"-DWIDTH={self._width}", f"-DUNROLL={way.unroll}", pattern)
        vectors, total = self._vectors, self._vectors * self._unit_bytes
        items = _items(runtime, way, vectors)
        launched = launcher(runtime, probe.file, options, probe.kernel, items, way.group)
        choice: Parameters = {"pattern": way.pattern, "unroll": way.unroll, "group": way.group}
        choice |= {"items": items, "set_bytes": total}
        passed = MemoryPass(launched, self._arguments, vectors, vectors, not way.groups, self._check)
        unit, notes = Work(bytes=total // _PARTS), (_set_note(runtime, total),)
        return MemoryBench(self, passed, choice, unit, (_PARTS, _PARTS), notes)

    def _arguments(self, first: int, count: int) -> tuple[Any, ...]:
        return *self._sources, self._target, np.uint32(first), np.uint32(count)

    def _check(self, passed: MemoryPass) -> str:
        """How one pass over the whole set differs from the host's result, or "".

        A pass that stores is compared word by word; of a reading pass, the sum of all words is.
        """
        sets, elements = self._sets, self._elements
        if self._row.probe.stores:
            sets.erase(self._target, elements)
        passed.launch(0, self._vectors)
        if self._row.probe.stores:
            return sets.wrong_words(self._target, elements, self._expected)
        return sets.wrong_sum(self._target, passed.launcher.items, self._row.table.sum_of(0, elements))

    def _expected(self, first: int, count: int) -> HostArray:
        """The words that a write, copy or triad leaves."""
        if not self._sources:
            return written(first, count)
        values = self._row.table.values(first, count)
        if len(self._sources) == 1:
            return values
        others = self._row.table.values(first + _SECOND_OFFSET, count)
        return np.asarray(values + np.float32(SCALAR) * others)


class ImageProbe:
    """An image of RGBA floats, read row by row."""

    def __init__(self, row: MemoryRow) -> None:
        """Create the image and fill it with the table's sequence."""
        self._row, self._shifts = row, image_shape(row.runtime.facts)
        self._texels = 1 << sum(self._shifts)
        self._sets = Sets(row.runtime, row.table)
        runtime, shape = row.runtime, (1 << self._shifts[0], 1 << self._shifts[1])
        layout = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
        self._picture = cl.create_image(runtime.context, cl.mem_flags.READ_ONLY, layout, shape=shape)
        floats = self._sets.filled(self._texels * TEXEL_BYTES // FLOAT_BYTES)
        cl.enqueue_copy(runtime.queue, self._picture, floats, offset=0, origin=(0, 0), region=shape)
        runtime.queue.finish()
        self._sums = self._sets.blank(_most_items(row, self._texels))
        self._part = 0  # texels in a launch; known once a kernel is there to be timed

    def bench(self, parameters: Parameters) -> MemoryBench:
        """The bench of a candidate, one way to share the work. The first decides how many texels are read."""
        runtime, probe, way = self._row.runtime, self._row.probe, Way.of(parameters)
        items, options = _items(runtime, way, self._texels), (f"-DUNROLL={way.unroll}",)
        launched = launcher(runtime, probe.file, options, probe.kernel, items, way.group)
        self._part = self._part or self._affordable(launched)
        choice: Parameters = {"unroll": way.unroll, "group": way.group, "items": items}
        choice["set_bytes"] = self._texels * TEXEL_BYTES
        width, height = (1 << shift for shift in self._shifts)
        passed = MemoryPass(launched, self._arguments, self._texels, self._part, False, self._check)
        unit, note = Work(bytes=self._part * TEXEL_BYTES // _PARTS), f"an image of {width} x {height} texels"
        return MemoryBench(self, passed, choice, unit, (_PARTS, _PARTS), (note,))

    def _arguments(self, first: int, count: int) -> tuple[Any, ...]:
        return self._picture, self._sums, *map(np.uint32, (self._shifts[0], first, count))

    def _check(self, passed: MemoryPass) -> str:
        passed.launch(0, self._part)
        expected = self._row.table.sum_of(0, self._part * TEXEL_BYTES // FLOAT_BYTES)
        return self._sets.wrong_sum(self._sums, passed.launcher.items, expected)

    def _affordable(self, launched: Launcher) -> int:
        """Texels that a launch may read in 0.05 s: all, or a power of two, from a timed sample."""
        sample = max(_PARTS, self._texels >> _SAMPLE_SHIFT)
        arguments = self._arguments(0, sample)
        # The first launch may compile.
        spent = [timed(launched.queue, lambda: launched.enqueue(arguments)) for _ in range(2)][1]
        part, part_s = sample, spent.seconds["kernel"]
        while part < self._texels and 2 * part_s <= _LAUNCH_S:
            part, part_s = 2 * part, 2 * part_s
        return part


def _items(runtime: Runtime, way: Way, units: int) -> int:
    """Work-items in whole groups: a way's groups for each unit, or enough for all units of work."""
    if way.groups:
        return max(1, runtime.facts.compute_units) * way.groups * way.group
    return ceil_div(units, way.unroll * way.group) * way.group


def _most_items(row: MemoryRow, units: int) -> int:
    """Of all candidates of a row."""
    return max(_items(row.runtime, way, units) for way in _ways(row))


def _set_note(runtime: Runtime, total: int) -> str:
    """A note on the size of the working set relative to the last-level cache."""
    cache = last_level_cache(runtime.facts)
    times = f"{total / cache:.1f}".removesuffix(".0")
    allowed = "" if total >= 7.5 * cache else ", and memory allows no more"
    assumed = "an assumed" if is_cache_assumed(runtime.facts) else "a"
    return f"working set {size(total)}, {times} times {assumed} last-level cache of {size(cache)}{allowed}"


# --- Caches and local memory: loops that read a set of a given size again and again -------------------------

_EMULATED = "emulated: the driver keeps local memory in ordinary memory"
_VISIT_BYTES = 64 << 10  # read in a row: prefetchers of CPUs may get going
_CHECKED_VISITS = 256


class _Reading:
    """A set that loops read, and a sum for each work-item."""

    def __init__(self, row: MemoryRow, elements: int) -> None:
        self._row, self._sets = row, Sets(row.runtime, row.table)
        self._data = self._sets.filled(elements)
        self._sums = self._sets.blank(max(self._groups(way) * way.group for way in _ways(row)))

    def _groups(self, way: Way) -> int:
        return max(1, self._row.runtime.facts.compute_units) * way.groups

    def _loop(
        self, parameters: Parameters, numbers: tuple[int, ...], trip_bytes: int, least: int,
        check: Callable[[Loop, int], str], notes: tuple[str, ...] = (),
    ) -> MemoryBench:  # fmt: skip
        """A bench of a loop whose kernel takes `numbers` and then the number of trips.

        A trip moves `trip_bytes`; a measured launch makes `least` trips or more.
        """
        way, width, probe = Way.of(parameters), int(parameters["width"]), self._row.probe
        items = self._groups(way) * way.group
        options = ("-DREAL_float", f"-DWIDTH={width}", f"-DUNROLL={way.unroll}", f"-DGROUP={way.group}")
        launched = launcher(self._row.runtime, probe.file, options, probe.kernel, items, way.group)
        choice: Parameters = {"width": width, "unroll": way.unroll, "group": way.group, "items": items}

        def arguments(trips: int) -> tuple[Any, ...]:
            return self._data, self._sums, *map(np.uint32, (*numbers, trips))

        loop = Loop(launched, arguments, check)
        return MemoryBench(self, loop, choice, Work(bytes=trip_bytes), (least, MOST_TRIPS), notes)

    def bench(self, parameters: Parameters) -> MemoryBench:
        raise NotImplementedError


class WorkingSet(_Reading):
    """A set of global memory of one size, read by every work-group."""

    def __init__(self, row: MemoryRow) -> None:
        self._bytes = int(row.parameters["bytes"])
        super().__init__(row, self._bytes // FLOAT_BYTES)

    def bench(self, parameters: Parameters) -> MemoryBench:
        """The bench of a candidate, one way to share the work. A trip is a visit of each work-group."""
        way, width = Way.of(parameters), int(parameters["width"])
        groups = self._groups(way)
        block = way.unroll * way.group * width  # elements
        blocks = self._bytes // FLOAT_BYTES // block
        steps = max(1, _VISIT_BYTES // FLOAT_BYTES // block)

        def check(loop: Loop, visits: int) -> str:
            visits = min(visits, _CHECKED_VISITS)
            loop.enqueue(visits)
            expected = self._row.table.sums_of_visits(groups, block, blocks, steps, visits)
            return self._sets.wrong_group_sums(self._sums, expected, way.group)

        moved = groups * steps * block * FLOAT_BYTES
        least = max(2, ceil_div(self._bytes, moved))  # the groups together read as much as the set holds
        return self._loop(parameters, (blocks * block // width, blocks - 1, steps), moved, least, check)


class LocalMemory(_Reading):
    """Local memory, read or copied at one vector width."""

    def __init__(self, row: MemoryRow) -> None:
        most = max(2 * way.unroll * way.group for way in _ways(row))
        super().__init__(row, most * int(row.parameters["width"]))

    def bench(self, parameters: Parameters) -> MemoryBench:
        """The bench of a candidate, one way to share the work. A trip is a block in each work-group."""
        way, width = Way.of(parameters), int(parameters["width"])
        groups, probe = self._groups(way), self._row.probe
        block = way.unroll * way.group  # vectors; a round is two blocks

        def check(loop: Loop, trips: int) -> str:
            """How the groups' sums after whole rounds differ from the host's, or ""."""
            trips += trips % 2  # whole rounds
            loop.enqueue(trips)
            once = self._row.table.sum_of(0, 2 * block * width)
            # Of a copy, every word has the number of the last trip that wrote it on top.
            written = once + block * width * ((trips - 1) + (trips - 2))
            expected = written if probe.stores else trips // 2 * once
            sums = np.full(groups, expected % (1 << 32), np.uint32)
            return self._sets.wrong_group_sums(self._sums, sums, way.group)

        moved = groups * block * width * FLOAT_BYTES * (probe.loads + probe.stores)
        notes = (_EMULATED,) if self._row.runtime.facts.local_mem_emulated else ()
        return self._loop(parameters, (2 * block - 1,), moved, 2, check, notes)


def _ways(row: MemoryRow) -> list[Way]:
    return [Way.of(candidate) for candidate in candidates(row.probe, row.runtime.facts, row.parameters)]
