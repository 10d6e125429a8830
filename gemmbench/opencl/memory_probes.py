"""Global memory and images: kernels that go once through a set past the last-level cache."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.records import Parameters
from gemmbench.facts.units import size
from gemmbench.opencl.launching import Builder, Contender, Entered, Launcher, Pass
from gemmbench.opencl.runtime import Runtime
from gemmbench.opencl.sets import Sets
from gemmbench.opencl.timing import elapsed
from gemmbench.rules.memory import (
    FLOAT_BYTES,
    TEXEL_BYTES,
    MemoryProbe,
    Way,
    image_shape,
    last_level_cache,
    set_bytes,
    ways,
)
from gemmbench.rules.memory_data import SCALAR, RepeatedTable, walked_texels, written
from gemmbench.rules.reference import Array

Arguments = Callable[[int, int], Sequence[Any]]  # of a kernel, from first unit and number of units

_SAMPLE_SHIFT = 10  # a 1024th of the image tells how slow its texels are
_LAUNCH_S = 0.05
_WHOLE = 1 << 12  # vectors: halves and quarters of a set then begin at the beginning of a page
_SECOND_OFFSET = 12345  # the triad's c is the same sequence as its b, from here on


def global_memory(
    runtime: Runtime, probe: MemoryProbe, parameters: Parameters, table: RepeatedTable
) -> Entered:
    """Read, write, copy and triad, at one vector width."""
    width = int(parameters["width"])
    streams = probe.loads + probe.stores
    vectors = max(1, set_bytes(runtime.facts) // streams // (width * FLOAT_BYTES) // _WHOLE) * _WHOLE
    total = vectors * streams * width * FLOAT_BYTES
    elements = vectors * width
    sets = Sets(runtime, table)
    sources = [sets.filled(elements, number * _SECOND_OFFSET) for number in range(probe.loads)]
    builder = Builder(runtime, probe.file)
    usable = ways("global", runtime.facts)
    if not probe.stores:
        # A work-item of a read stores its sum: it must have read much more than that.
        usable = tuple(way for way in usable if way.groups)
    geometry = [(way, _items(runtime, way, vectors)) for way in usable]
    target = sets.blank(elements if probe.stores else max(items for _, items in geometry))

    def arguments(first: int, count: int) -> tuple[Any, ...]:
        return *sources, target, np.uint32(first), np.uint32(count)

    def expected(first: int, count: int) -> Array:
        if not sources:
            return written(first, count)
        found = table.values(first, count)
        if len(sources) == 1:
            return found
        triad: Array = found + np.float32(SCALAR) * table.values(first + _SECOND_OFFSET, count)
        return triad

    def check(one: Pass) -> str:
        if probe.stores:
            sets.erase(target, elements)
        one.load(0, vectors).enqueue()
        if probe.stores:
            return sets.wrong_words(target, elements, expected)
        return sets.wrong_sum(target, one.launcher.items, table.sum_of(0, elements))

    contenders = []
    for way, items in geometry:
        options = (
            "-DREAL_float",
            f"-DWIDTH={width}",
            f"-DUNROLL={way.unroll}",
            f"-DPATTERN_{way.pattern.upper()}",
        )
        launcher = builder.launcher(probe.kernel, options, items, way.group)
        if launcher:
            choice: Parameters = {"pattern": way.pattern, **_choice(way, items), "set_bytes": total}
            unit = streams * width * FLOAT_BYTES
            flat = not way.groups
            contenders.append(Pass(launcher, choice, arguments, vectors, vectors, unit, check, flat))
    return Entered(contenders, builder.seconds, builder.failure, (_set_note(runtime, total),))


def image(runtime: Runtime, probe: MemoryProbe, parameters: Parameters, table: RepeatedTable) -> Entered:
    """An image of RGBA floats, read in one walking order."""
    width_shift, height_shift = image_shape(runtime.facts)
    texels = 1 << (width_shift + height_shift)
    elements = texels * TEXEL_BYTES // FLOAT_BYTES
    sets = Sets(runtime, table)
    picture = _image_of(runtime, sets.filled(elements), 1 << width_shift, 1 << height_shift)
    builder = Builder(runtime, probe.file)
    geometry = [(way, _items(runtime, way, texels)) for way in ways("image", runtime.facts) if way.groups]
    sums = sets.blank(max(items for _, items in geometry))
    shifts = (np.uint32(width_shift), np.uint32(height_shift))

    def arguments(first: int, count: int) -> tuple[Any, ...]:
        return picture, sums, *shifts, np.uint32(first), np.uint32(count)

    def check(one: Pass) -> str:
        one.load(0, one.part).enqueue()
        if one.part == texels:
            expected = table.sum_of(0, elements)
        else:
            order = probe.name.removeprefix("image-")
            places = walked_texels(order, one.part, width_shift, height_shift)
            expected = table.sum_at(places, TEXEL_BYTES // FLOAT_BYTES)
        return sets.wrong_sum(sums, one.launcher.items, expected)

    contenders: list[Contender] = []
    part = 0
    for way, items in geometry:
        options = (*probe.options, f"-DUNROLL={way.unroll}")
        launcher = builder.launcher(probe.kernel, options, items, way.group)
        if launcher:
            choice: Parameters = {**_choice(way, items), "set_bytes": texels * TEXEL_BYTES}
            part = part or _affordable(launcher, arguments, texels)
            contenders.append(Pass(launcher, choice, arguments, texels, part, TEXEL_BYTES, check))
    note = f"an image of {1 << width_shift} x {1 << height_shift} texels"
    return Entered(contenders, builder.seconds, builder.failure, (note,))


def _affordable(launcher: Launcher, arguments: Arguments, texels: int) -> int:
    """How many texels a launch may read: all, or a power of two where the driver reads them slowly."""
    sample = texels >> min(_SAMPLE_SHIFT, texels.bit_length() - 1)

    def enqueue() -> Any:
        return launcher.enqueue(arguments(0, sample))

    elapsed(launcher.queue, enqueue)  # the first launch may compile
    part, spent = sample, elapsed(launcher.queue, enqueue).event
    while part < texels and 2 * spent <= _LAUNCH_S:
        part, spent = 2 * part, 2 * spent
    return part


def _image_of(runtime: Runtime, buffer: Any, width: int, height: int) -> Any:
    """An image with a buffer's floats."""
    layout = cl.ImageFormat(cl.channel_order.RGBA, cl.channel_type.FLOAT)
    found = cl.create_image(runtime.context, cl.mem_flags.READ_ONLY, layout, shape=(width, height))
    cl.enqueue_copy(runtime.queue, found, buffer, offset=0, origin=(0, 0), region=(width, height))
    runtime.queue.finish()
    return found


def _items(runtime: Runtime, way: Way, units: int) -> int:
    """Work-items in whole groups."""
    if way.groups:
        return max(1, runtime.facts.compute_units) * way.groups * way.group
    return -(-units // (way.unroll * way.group)) * way.group


def _choice(way: Way, items: int) -> Parameters:
    return {"unroll": way.unroll, "group": way.group, "items": items}


def _set_note(runtime: Runtime, total: int) -> str:
    cache = last_level_cache(runtime.facts)
    times = f"{total / cache:.1f}".removesuffix(".0")
    allowed = "" if total >= 7.5 * cache else ", and memory allows no more"
    return f"working set {size(total)}, {times} times a last-level cache of {size(cache)}{allowed}"
