"""Caches and local memory: loops that read a set of a given size again and again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from gemmbench.facts.records import Parameters
from gemmbench.opencl.launching import Builder, Contender, Entered, Loop
from gemmbench.opencl.runtime import Runtime
from gemmbench.opencl.sets import Sets
from gemmbench.rules.memory import FLOAT_BYTES, MemoryProbe, Way, ways, working_set_widths
from gemmbench.rules.memory_data import RepeatedTable

_EMULATED = "emulated: the driver keeps local memory in ordinary memory"
_VISIT_BYTES = 64 << 10  # read in a row: prefetchers of CPUs may get going
_CHECKED_VISITS = 256
_LOCAL_BYTES = 48 << 10  # more would leave room for few groups side by side


def working_set(
    runtime: Runtime, probe: MemoryProbe, parameters: Parameters, table: RepeatedTable
) -> Entered:
    """A set of global memory of one size, read by every work-group."""
    set_bytes = int(parameters["bytes"])
    sets = Sets(runtime, table)
    data = sets.filled(set_bytes // FLOAT_BYTES)
    builder = Builder(runtime, probe.file)
    entries = [
        (way, width)
        for way in ways("working-set", runtime.facts)
        for width in working_set_widths(runtime.facts)
        if way.unroll * way.group * width * FLOAT_BYTES <= set_bytes
    ]
    sums = sets.blank(max(_groups(runtime, way) * way.group for way, _ in entries))

    def loop(way: Way, width: int) -> Loop | None:
        groups = _groups(runtime, way)
        block = way.unroll * way.group * width  # elements
        blocks = set_bytes // FLOAT_BYTES // block
        steps = max(1, _VISIT_BYTES // FLOAT_BYTES // block)

        def arguments(visits: int) -> Sequence[Any]:
            return data, sums, *map(np.uint32, (blocks * block // width, blocks - 1, steps, visits))

        def check(one: Loop, visits: int) -> str:
            visits = min(visits, _CHECKED_VISITS)
            one.load(visits).enqueue()
            expected = table.sums_of_visits(groups, block, blocks, steps, visits)
            return sets.wrong_group_sums(sums, expected, way.group)

        launcher = builder.launcher(probe.kernel, _options(way, width), groups * way.group, way.group)
        if launcher is None:
            return None
        moved = groups * steps * block * FLOAT_BYTES
        whole = -(-set_bytes // moved)  # visits in which the groups together read as much as the set holds
        return Loop(launcher, _choice(way, width, groups), arguments, moved, check, whole)

    return _entered(builder, [loop(way, width) for way, width in entries])


def local(runtime: Runtime, probe: MemoryProbe, parameters: Parameters, table: RepeatedTable) -> Entered:
    """Local memory, read or copied at one vector width."""
    width = int(parameters["width"])
    facts = runtime.facts
    arrays = probe.loads + probe.stores
    room = min(facts.local_mem_bytes, _LOCAL_BYTES) // (arrays * width * FLOAT_BYTES)
    usable = [way for way in ways("local", facts) if 2 * way.unroll * way.group <= room]
    if not usable:
        return Entered((), 0.0, f"{facts.local_mem_bytes} bytes of local memory hold no array to read")
    sets = Sets(runtime, table)
    data = sets.filled(max(2 * way.unroll * way.group for way in usable) * width)
    sums = sets.blank(max(_groups(runtime, way) * way.group for way in usable))
    builder = Builder(runtime, probe.file)

    def loop(way: Way) -> Loop | None:
        groups = _groups(runtime, way)
        block = way.unroll * way.group  # vectors; a round is two blocks

        def arguments(trips: int) -> Sequence[Any]:
            return data, sums, np.uint32(2 * block - 1), np.uint32(trips)

        def check(one: Loop, trips: int) -> str:
            one.load(trips).enqueue()
            if probe.stores:  # every word has the number of the last trip that wrote it on top
                added = block * width * ((trips - 1) + (trips - 2))
                expected = table.sum_of(0, 2 * block * width) + added
            else:
                expected = trips // 2 * table.sum_of(0, 2 * block * width)  # trips are even
            return sets.wrong_group_sums(sums, np.full(groups, expected % (1 << 32), np.uint32), way.group)

        launcher = builder.launcher(probe.kernel, _options(way, width), groups * way.group, way.group)
        if launcher is None:
            return None
        moved = groups * block * width * FLOAT_BYTES * arrays
        return Loop(launcher, _choice(way, width, groups), arguments, moved, check)

    notes = (_EMULATED,) if facts.local_mem_emulated else ()
    return _entered(builder, [loop(way) for way in usable], notes)


def _entered(builder: Builder, loops: Sequence[Loop | None], notes: tuple[str, ...] = ()) -> Entered:
    contenders: list[Contender] = [loop for loop in loops if loop is not None]
    return Entered(contenders, builder.seconds, builder.failure, notes)


def _groups(runtime: Runtime, way: Way) -> int:
    return max(1, runtime.facts.compute_units) * way.groups


def _options(way: Way, width: int) -> tuple[str, ...]:
    return "-DREAL_float", f"-DWIDTH={width}", f"-DUNROLL={way.unroll}", f"-DGROUP={way.group}"


def _choice(way: Way, width: int, groups: int) -> Parameters:
    return {"width": width, "unroll": way.unroll, "group": way.group, "items": groups * way.group}
