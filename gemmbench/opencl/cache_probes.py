"""Caches and local memory: loops that read a set of a given size again and again."""

from __future__ import annotations

from typing import Any

import numpy as np

from gemmbench.facts.records import Parameters, Work
from gemmbench.opencl.launching import MOST_TRIPS, Bench, Loop, launcher, prepared
from gemmbench.opencl.runtime import Runtime
from gemmbench.opencl.sets import Sets
from gemmbench.rules.memory import FLOAT_BYTES, MemoryProbe, Way, candidates
from gemmbench.rules.memory_data import RepeatedTable

_EMULATED = "emulated: the driver keeps local memory in ordinary memory"
_VISIT_BYTES = 64 << 10  # read in a row: prefetchers of CPUs may get going
_CHECKED_VISITS = 256


class _Reading:
    """A set that loops read, and a sum for each work-item.

    Args:
        runtime: the device.
        probe: what reads it.
        parameters: of the row, or of one of its candidates.
        table: what it is filled with.
        elements: of the set.
    """

    notes: tuple[str, ...] = ()

    def __init__(
        self,
        runtime: Runtime,
        probe: MemoryProbe,
        parameters: Parameters,
        table: RepeatedTable,
        elements: int,
    ) -> None:
        self._runtime, self._probe, self._table = runtime, probe, table
        self._sets = Sets(runtime, table)
        self._data = self._sets.filled(elements)
        ways = [Way.of(candidate) for candidate in candidates(probe, runtime.facts, parameters)]
        self._sums = self._sets.blank(max(self._groups(way) * way.group for way in ways))

    def _groups(self, way: Way) -> int:
        return max(1, self._runtime.facts.compute_units) * way.groups

    def _loop(
        self, parameters: Parameters, numbers: tuple[int, ...], trip_bytes: int, least: int, check: Any
    ) -> Bench:
        """A loop with such arguments before the number of its trips."""
        way, width, probe = Way.of(parameters), int(parameters["width"]), self._probe
        items = self._groups(way) * way.group
        options = ("-DREAL_float", f"-DWIDTH={width}", f"-DUNROLL={way.unroll}", f"-DGROUP={way.group}")
        source = (probe.file, options)
        built, launched = launcher(self._runtime, source, probe.kernel, items, way.group)
        choice: Parameters = {"width": width, "unroll": way.unroll, "group": way.group, "items": items}
        unit = Work(bytes=trip_bytes)
        facts = prepared(built, source, choice, unit, (least, MOST_TRIPS), self.notes)
        loop = Loop(
            launched, lambda trips: (self._data, self._sums, *map(np.uint32, (*numbers, trips))), check
        )
        return Bench(self._runtime.queue, loop, facts, self)

    def bench(self, parameters: Parameters) -> Bench:
        """See `launching.Operands`."""
        raise NotImplementedError


class WorkingSet(_Reading):
    """A set of global memory of one size, read by every work-group."""

    def __init__(
        self, runtime: Runtime, probe: MemoryProbe, parameters: Parameters, table: RepeatedTable
    ) -> None:
        self._bytes = int(parameters["bytes"])
        super().__init__(runtime, probe, parameters, table, self._bytes // FLOAT_BYTES)

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
            expected = self._table.sums_of_visits(groups, block, blocks, steps, visits)
            return self._sets.wrong_group_sums(self._sums, expected, way.group)

        moved = groups * steps * block * FLOAT_BYTES
        least = max(2, -(-self._bytes // moved))  # the groups together read as much as the set holds
        return self._loop(parameters, (blocks * block // width, blocks - 1, steps), moved, least, check)


class LocalMemory(_Reading):
    """Local memory, read or copied at one vector width."""

    def __init__(
        self, runtime: Runtime, probe: MemoryProbe, parameters: Parameters, table: RepeatedTable
    ) -> None:
        ways = [Way.of(candidate) for candidate in candidates(probe, runtime.facts, parameters)]
        elements = max(2 * way.unroll * way.group for way in ways) * int(parameters["width"])
        super().__init__(runtime, probe, parameters, table, elements)
        self.notes = (_EMULATED,) if runtime.facts.local_mem_emulated else ()

    def bench(self, parameters: Parameters) -> Bench:
        """See `launching.Operands`."""
        way, width = Way.of(parameters), int(parameters["width"])
        groups = self._groups(way)
        block = way.unroll * way.group  # vectors; a round is two blocks

        def check(loop: Loop, trips: int) -> str:
            trips += trips % 2  # whole rounds
            loop.enqueue(trips)
            once = self._table.sum_of(0, 2 * block * width)
            if self._probe.stores:  # every word has the number of the last trip that wrote it on top
                expected = once + block * width * ((trips - 1) + (trips - 2))
            else:
                expected = trips // 2 * once
            sums = np.full(groups, expected % (1 << 32), np.uint32)
            return self._sets.wrong_group_sums(self._sums, sums, way.group)

        moved = groups * block * width * FLOAT_BYTES * (self._probe.loads + self._probe.stores)
        return self._loop(parameters, (2 * block - 1,), moved, 2, check)
