"""Global memory and images: kernels that go once through a set past the last-level cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.model.device import is_cache_assumed, last_level_cache
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.row import Parameters, Work
from gemmbench.model.units import size
from gemmbench.opencl.runtime import Runtime
from gemmbench.probes.launching import MOST_TRIPS, Bench, Launcher, Loop, MemoryRow, Sets, launcher, timed
from gemmbench.probes.memory import FLOAT_BYTES, TEXEL_BYTES, Way, candidates, image_shape, set_bytes
from gemmbench.probes.reference import SCALAR, walked_texels, written

Arguments = Callable[[int, int], Sequence[Any]]  # of a kernel, from first unit and number of units

_PARTS = 4  # units of work in a launch that is sampled: the race is run with one of them
_SAMPLE_SHIFT = 10  # a 1024th of the image tells how slow its texels are
_LAUNCH_S = 0.05
_WHOLE = 1 << 12  # vectors: halves and quarters of a set then begin at the beginning of a page
_SECOND_OFFSET = 12345  # the triad's c is the same sequence as its b, from here on


class Pass:
    """A kernel that goes once through a set; or through a part of it, and next time through the next.

    Args:
        launcher: the kernel with its geometry.
        arguments: of the kernel.
        units: vectors or texels in the set.
        part: of them in a launch of the most work.
        flat: whether there are as many work-items as there is work: fewer for a part.
        check: how the result of a launch of all of a part differs from what the host expects, or "".
    """

    def __init__(
        self,
        launcher: Launcher,
        arguments: Arguments,
        units: int,
        part: int,
        flat: bool,
        check: Callable[[Pass], str],
    ) -> None:
        self.launcher = launcher
        self._arguments, self._units, self.part, self._flat = arguments, units, part, flat
        self._check = check
        self._stretches: dict[int, Any] = {}

    def launch(self, first: int, count: int) -> Any:
        items = self.launcher.items
        if self._flat:
            group = self.launcher.group
            items = max(group, items * count // self._units // group * group)
        return self.launcher.enqueue(self._arguments(first, count), items)

    def enqueue(self, work: int) -> Any:
        """Quarters of a part, stretch after stretch: what a cache has kept of one is gone in a round."""
        count = self.part * work // _PARTS
        if work not in self._stretches:
            self._stretches[work] = cycle(range(0, self._units - count + 1, count))
        return self.launch(next(self._stretches[work]), count)

    def wrong(self, work: int) -> str:
        return self._check(self)


class GlobalMemory:
    """Read, write, copy and triad, at one vector width: the streams that a row's candidates share."""

    def __init__(self, row: MemoryRow) -> None:
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

    def bench(self, parameters: Parameters) -> Bench:
        runtime, probe, way = self._row.runtime, self._row.probe, Way.of(parameters)
        pattern = f"-DPATTERN_{way.pattern.upper()}"
        options = ("-DREAL_float", f"-DWIDTH={self._width}", f"-DUNROLL={way.unroll}", pattern)
        vectors, total = self._vectors, self._vectors * self._unit_bytes
        items = _items(runtime, way, vectors)
        launched = launcher(runtime, probe.file, options, probe.kernel, items, way.group)
        choice: Parameters = {"pattern": way.pattern, "unroll": way.unroll, "group": way.group}
        choice |= {"items": items, "set_bytes": total}
        passed = Pass(launched, self._arguments, vectors, vectors, not way.groups, self._check)
        unit, notes = Work(bytes=total // _PARTS), (_set_note(runtime, total),)
        return Bench(self, passed, choice, unit, (_PARTS, _PARTS), notes)

    def _arguments(self, first: int, count: int) -> tuple[Any, ...]:
        return *self._sources, self._target, np.uint32(first), np.uint32(count)

    def _check(self, passed: Pass) -> str:
        sets, elements = self._sets, self._elements
        if self._row.probe.stores:
            sets.erase(self._target, elements)
        passed.launch(0, self._vectors)
        if self._row.probe.stores:
            return sets.wrong_words(self._target, elements, self._expected)
        return sets.wrong_sum(self._target, passed.launcher.items, self._row.table.sum_of(0, elements))

    def _expected(self, first: int, count: int) -> ReferenceArray:
        """What a launch leaves at elements of the target."""
        if not self._sources:
            return written(first, count)
        values = self._row.table.values(first, count)
        if len(self._sources) == 1:
            return values
        others = self._row.table.values(first + _SECOND_OFFSET, count)
        triad: ReferenceArray = values + np.float32(SCALAR) * others
        return triad


class Image:
    """An image of RGBA floats, read in one walking order."""

    def __init__(self, row: MemoryRow) -> None:
        self._row, self._shifts = row, image_shape(row.runtime.facts)
        self._texels = 1 << sum(self._shifts)
        self._elements = self._texels * TEXEL_BYTES // FLOAT_BYTES
        self._sets = Sets(row.runtime, row.table)
        runtime, shape = row.runtime, (1 << self._shifts[0], 1 << self._shifts[1])
        layout = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
        self._picture = cl.create_image(runtime.context, cl.mem_flags.READ_ONLY, layout, shape=shape)
        floats = self._sets.filled(self._elements)
        cl.enqueue_copy(runtime.queue, self._picture, floats, offset=0, origin=(0, 0), region=shape)
        runtime.queue.finish()
        self._sums = self._sets.blank(_most_items(row, self._texels))
        self._part = 0  # texels in a launch; known once a kernel is there to be timed

    def bench(self, parameters: Parameters) -> Bench:
        runtime, probe, way = self._row.runtime, self._row.probe, Way.of(parameters)
        options = (*probe.options, f"-DUNROLL={way.unroll}")
        items = _items(runtime, way, self._texels)
        launched = launcher(runtime, probe.file, options, probe.kernel, items, way.group)
        self._part = self._part or self._affordable(launched)
        choice: Parameters = {"unroll": way.unroll, "group": way.group, "items": items}
        choice["set_bytes"] = self._texels * TEXEL_BYTES
        width, height = (1 << shift for shift in self._shifts)
        passed = Pass(launched, self._arguments, self._texels, self._part, False, self._check)
        unit, note = Work(bytes=self._part * TEXEL_BYTES // _PARTS), f"an image of {width} x {height} texels"
        return Bench(self, passed, choice, unit, (_PARTS, _PARTS), (note,))

    def _arguments(self, first: int, count: int) -> tuple[Any, ...]:
        return self._picture, self._sums, *map(np.uint32, (*self._shifts, first, count))

    def _check(self, passed: Pass) -> str:
        passed.launch(0, self._part)
        if self._part == self._texels:
            expected = self._row.table.sum_of(0, self._elements)
        else:
            order = self._row.probe.name.removeprefix("image-")
            positions = walked_texels(order, self._part, *self._shifts)
            expected = self._row.table.sum_at(positions, TEXEL_BYTES // FLOAT_BYTES)
        return self._sets.wrong_sum(self._sums, passed.launcher.items, expected)

    def _affordable(self, launched: Launcher) -> int:
        """How many texels a launch may read: all, or a power of two where the driver reads them slowly."""
        sample = max(_PARTS, self._texels >> _SAMPLE_SHIFT)
        arguments = self._arguments(0, sample)
        # The first launch may compile.
        spent = [timed(launched.queue, lambda: launched.enqueue(arguments)) for _ in range(2)][1]
        part, part_s = sample, spent.seconds["kernel"]
        while part < self._texels and 2 * part_s <= _LAUNCH_S:
            part, part_s = 2 * part, 2 * part_s
        return part


def _items(runtime: Runtime, way: Way, units: int) -> int:
    """Work-items in whole groups."""
    if way.groups:
        return max(1, runtime.facts.compute_units) * way.groups * way.group
    return -(-units // (way.unroll * way.group)) * way.group


def _most_items(row: MemoryRow, units: int) -> int:
    """Of all candidates of a row."""
    every = candidates(row.probe, row.runtime.facts, row.parameters)
    return max(_items(row.runtime, Way.of(candidate), units) for candidate in every)


def _set_note(runtime: Runtime, total: int) -> str:
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
    """A set of so many elements that loops read, and a sum for each work-item."""

    def __init__(self, row: MemoryRow, elements: int) -> None:
        self._row, self._sets = row, Sets(row.runtime, row.table)
        self._data = self._sets.filled(elements)
        self._sums = self._sets.blank(max(self._groups(way) * way.group for way in _ways(row)))

    def _groups(self, way: Way) -> int:
        return max(1, self._row.runtime.facts.compute_units) * way.groups

    def _loop(
        self,
        parameters: Parameters,
        numbers: tuple[int, ...],
        trip_bytes: int,
        least: int,
        check: Callable[[Loop, int], str],
        notes: tuple[str, ...] = (),
    ) -> Bench:
        """A loop with such arguments before the number of its trips."""
        way, width, probe = Way.of(parameters), int(parameters["width"]), self._row.probe
        items = self._groups(way) * way.group
        options = ("-DREAL_float", f"-DWIDTH={width}", f"-DUNROLL={way.unroll}", f"-DGROUP={way.group}")
        launched = launcher(self._row.runtime, probe.file, options, probe.kernel, items, way.group)
        choice: Parameters = {"width": width, "unroll": way.unroll, "group": way.group, "items": items}

        def arguments(trips: int) -> tuple[Any, ...]:
            return self._data, self._sums, *map(np.uint32, (*numbers, trips))

        loop = Loop(launched, arguments, check)
        return Bench(self, loop, choice, Work(bytes=trip_bytes), (least, MOST_TRIPS), notes)

    def bench(self, parameters: Parameters) -> Bench:
        raise NotImplementedError


class WorkingSet(_Reading):
    """A set of global memory of one size, read by every work-group."""

    def __init__(self, row: MemoryRow) -> None:
        self._bytes = int(row.parameters["bytes"])
        super().__init__(row, self._bytes // FLOAT_BYTES)

    def bench(self, parameters: Parameters) -> Bench:
        """See `launching.Operands`: its trips are visits of each group."""
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
        least = max(2, -(-self._bytes // moved))  # the groups together read as much as the set holds
        return self._loop(parameters, (blocks * block // width, blocks - 1, steps), moved, least, check)


class LocalMemory(_Reading):
    """Local memory, read or copied at one vector width."""

    def __init__(self, row: MemoryRow) -> None:
        most = max(2 * way.unroll * way.group for way in _ways(row))
        super().__init__(row, most * int(row.parameters["width"]))

    def bench(self, parameters: Parameters) -> Bench:
        way, width = Way.of(parameters), int(parameters["width"])
        groups, probe = self._groups(way), self._row.probe
        block = way.unroll * way.group  # vectors; a round is two blocks

        def check(loop: Loop, trips: int) -> str:
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
