"""Caches and local memory: loops that read a set of a given size again and again."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gemmbench.facts.records import Parameters, Work
from gemmbench.opencl.launching import MOST_TRIPS, Bench, Loop, MemoryRow, launcher
from gemmbench.opencl.sets import Sets
from gemmbench.rules.memory import FLOAT_BYTES, Way, candidates

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
        loop = Loop(
            launched, lambda trips: (self._data, self._sums, *map(np.uint32, (*numbers, trips))), check
        )
        return Bench(self, loop, choice, Work(bytes=trip_bytes), (least, MOST_TRIPS), notes)

    def bench(self, parameters: Parameters) -> Bench:
        """See `launching.Operands`."""
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
        """See `launching.Operands`."""
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
    """All that are raced."""
    return [Way.of(candidate) for candidate in candidates(row.probe, row.runtime.facts, row.parameters)]
