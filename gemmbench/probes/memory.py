"""The microbenchmarks of memory, transfers and launches: one entry per probe, and the plan made of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import product
from typing import Literal

import numpy as np

from gemmbench.model.case import Case, Plan, Skip
from gemmbench.model.device import DeviceFacts, broad_type, last_level_cache
from gemmbench.model.dtypes import HostArray
from gemmbench.model.kernel_files import fingerprint
from gemmbench.model.row import Kind, Parameters
from gemmbench.model.units import GIB, KIB, MIB
from gemmbench.probes.arithmetic import WIDTHS

Bench = Literal["global", "image", "working-set", "local", "chase", "launch", "copy", "map"]
Direction = Literal["", "up", "down"]
FLOAT_BYTES = 4
TEXEL_BYTES = 16  # RGBA in float


@dataclass(frozen=True)
class MemoryProbe:
    """A microbenchmark of memory, transfers or launches."""

    name: str
    kind: Kind
    bench: Bench  # what runs it: the probes of one bench share their code
    idea: str
    file: str = ""
    kernel: str = ""
    loads: int = 0  # streams that are read, each as large as the other ones
    stores: int = 0  # and written
    widths: tuple[int, ...] = ()  # vector widths to measure; () where there is no such choice
    pinned: bool = False  # whether the host's side of a transfer is page-locked memory of the driver's
    direction: Direction = ""  # of a transfer: up to the device, down to the host
    chain: int = 0  # launches that are enqueued in one go; 0: each is waited for

    @property
    def family(self) -> str:
        return "memory" if self.kind == "bandwidth" else self.kind

    def fingerprint(self, width: int = 0) -> str:
        words = (self.kernel, f"WIDTH={width}", repr(WAYS))
        return fingerprint((self.file,), words) if self.file else ""


@dataclass(frozen=True)
class Way:
    """How work-items share the work: a contender of a race."""

    unroll: int  # vectors on their way at once
    group: int  # work-items in a group
    groups: int  # for each compute unit; 0: as many as give every work-item its vectors once
    pattern: str = ""  # of global.cl

    @classmethod
    def of(cls, candidate: Parameters) -> Way:
        unroll, group, groups = (int(candidate[name]) for name in ("unroll", "group", "groups"))
        return cls(unroll, group, groups, str(candidate.get("pattern", "")))


def _ways(
    unrolls: Iterable[int], groups: Iterable[int], per_unit: Iterable[int], patterns: Iterable[str] = ("",)
) -> tuple[Way, ...]:
    return tuple(Way(*values) for values in product(unrolls, groups, per_unit, patterns))


ONCE = "once"  # a pattern without a loop: every work-item takes its vectors and is done

# By bench, then by type of device ("gpu" also stands for every other type). On a CPU, work-items of a group
# take turns on one core, so that a group of one with a piece of memory of its own is often the best there is.
WAYS: Mapping[str, Mapping[str, tuple[Way, ...]]] = {
    "global": {
        "cpu": (
            *_ways((1, 4), (1, 64), (1, 8), ("item", "group")),
            *_ways((4, 16), (1,), (1, 8), ("streams",)),
        ),
        "gpu": (
            *_ways((2, 4, 8), (256,), (8, 32, 0), ("grid",)),
            *_ways((4, 8), (256,), (8, 32), ("group",)),
            *_ways((1, 2, 4), (256,), (0,), (ONCE,)),
        ),
    },
    "image": {"cpu": _ways((1, 4), (1, 64), (8, 64)), "gpu": _ways((1, 4, 8), (256,), (8, 32, 0))},
    "working-set": {"cpu": _ways((4, 8), (1, 16), (1, 8)), "gpu": _ways((2, 4, 8), (64, 256), (8, 32))},
    "local": {"cpu": _ways((4, 8), (1, 16, 64), (8,)), "gpu": _ways((2, 4, 8), (64, 128, 256, 512), (16,))},
}
_LOCAL_BYTES = 48 << 10  # more would leave room for few groups side by side
_WORKING_SET_WIDTHS: Mapping[str, tuple[int, ...]] = {"cpu": (4, 16), "gpu": (1, 4)}


def ways(bench: str, device: DeviceFacts) -> tuple[Way, ...]:
    """How a device may share the work: `WAYS` of its type, with groups no larger than it allows."""
    most = max(1, min(device.max_work_group_size, *device.max_work_item_sizes[:1]))
    largest = 1 << most.bit_length() - 1
    shared = WAYS[bench][broad_type(device)]
    return tuple(dict.fromkeys(replace(way, group=min(way.group, largest)) for way in shared))


def candidates(probe: MemoryProbe, device: DeviceFacts, parameters: Parameters) -> tuple[Parameters, ...]:
    """The parameters raced for a row: ways to share the work with widths, or ways to copy a transfer."""
    if probe.kind == "latency":
        return ({},)
    if probe.kind == "transfer":
        copies = ("blocking", "enqueued", *(["two queues"] if probe.pinned else []))
        return tuple({"way": way} for way in (("map",) if probe.bench == "map" else copies))
    staircase = probe.bench == "working-set"
    widths = _WORKING_SET_WIDTHS[broad_type(device)] if staircase else (int(parameters["width"]),)
    if probe.bench == "local":
        room = min(device.local_mem_bytes, _LOCAL_BYTES) // (probe.loads + probe.stores) // 2
    else:
        room = int(parameters.get("bytes", _LARGEST_SET))
    return tuple(
        {**asdict(way), "width": width}
        for way in ways(probe.bench, device)
        for width in widths
        # A work-item of a read stores its sum, except without a loop: it must have read much more than that.
        if way.groups or probe.stores or way.pattern == ONCE
        if way.unroll * way.group * width * FLOAT_BYTES <= room
    )


def _bandwidth(
    name: str, bench: Bench, idea: str, loads: int = 1, stores: int = 0, widths: tuple[int, ...] = WIDTHS
) -> MemoryProbe:
    file, kernel = f"memory/{bench.replace('-', '_')}.cl", name.replace("-", "_")
    return MemoryProbe(name, "bandwidth", bench, idea, file, kernel, loads, stores, widths)


def _launch(name: str, idea: str, chain: int = 0) -> MemoryProbe:
    return MemoryProbe(name, "latency", "launch", idea, "memory/empty.cl", "empty", chain=chain)


def _transfer(direction: Direction, way: str, bench: Bench, idea: str) -> MemoryProbe:
    word = {"up": "upload", "down": "download"}[direction]
    return MemoryProbe(f"{word}-{way}", "transfer", bench, idea, pinned=way == "pinned", direction=direction)


PROBES: tuple[MemoryProbe, ...] = (
    _bandwidth("global-read", "global", "every vector of a set past the last-level cache, read once"),
    _bandwidth("global-write", "global", "every vector of such a set, written once", 0, 1),
    _bandwidth(
        "global-copy", "global", "one half of such a set copied to the other; both directions count", 1, 1
    ),
    _bandwidth(
        "global-triad", "global", "STREAM's triad a = b + 3 c over three thirds; all three count", 2, 1
    ),
    _bandwidth("local-read", "local", "local memory, read by work-groups side by side"),
    _bandwidth(
        "local-copy", "local", "local memory, copied from one array to another; both directions count", 1, 1
    ),
    _bandwidth("image-read", "image", "an image of RGBA floats, a texel is four", widths=(4,)),
    _bandwidth(
        "working-set",
        "working-set",
        "every group reads the same set again and again: over the set's size, a step for each cache",
        widths=(),
    ),
    MemoryProbe(
        "pointer-chase",
        "latency",
        "chase",
        "one work-item follows a random cycle through a set, each load waiting for the one before it",
        "memory/chase.cl",
        "chase",
    ),
    _launch("launch-dispatch", "what enqueueing an empty kernel costs the host, the queue being idle"),
    _launch("launch-start", "from QUEUED to START by the device's stamps, which clpeak calls launch latency"),
    _launch("launch-round-trip", "an empty kernel enqueued and waited for"),
    _launch(
        "launch-chain",
        "each kernel of a long chain of empty ones, enqueued in one go and waited for at the end",
        chain=500,
    ),
    _transfer("up", "pageable", "copy", "from ordinary, page-aligned host memory to a buffer"),
    _transfer("down", "pageable", "copy", "from a buffer to ordinary, page-aligned host memory"),
    _transfer("up", "pinned", "copy", "from page-locked memory that the driver allocated to a buffer"),
    _transfer("down", "pinned", "copy", "from a buffer to page-locked memory that the driver allocated"),
    _transfer("up", "mapped", "map", "a mapped buffer, filled by the host, given back to the device"),
    _transfer("down", "mapped", "map", "a buffer mapped for the host to read"),
)
BY_NAME: Mapping[str, MemoryProbe] = {probe.name: probe for probe in PROBES}

FAMILIES: Mapping[str, str] = {
    "memory": "bandwidth of global and local memory and of images, and over the size of the working set",
    "transfer": "between host and device: pageable, pinned and mapped, over sizes",
    "latency": "of a load that waits for the one before it, and of launching a kernel",
}

_TIMES_CACHE = 8
_SMALLEST_SET = 4 * KIB
_LARGEST_SET = 8 * GIB  # 2^31 floats: kernels count in 32-bit integers, up to twice as far
_STAIRCASE_END = 1 * GIB
_SMALLEST_TRANSFER = 1 * KIB
_LARGEST_TRANSFER = 256 * MIB


def set_bytes(device: DeviceFacts) -> int:
    """Bytes of the global probes' working set: 8 times the last-level cache, as far as memory allows.

    A GPU with its own memory uses a 16th of it if that is more: an event is 3 us too long.
    """
    wanted = _TIMES_CACHE * last_level_cache(device)
    if not device.unified_memory:
        wanted = max(wanted, device.global_mem_bytes // 16)
    return min(wanted, _most_bytes(device), _LARGEST_SET)


def working_sets(device: DeviceFacts) -> tuple[int, ...]:
    """Set sizes: powers of two from 4 KiB to 8 times the last-level cache, as far as memory allows."""
    most = min(_TIMES_CACHE * last_level_cache(device), _most_bytes(device), _STAIRCASE_END)
    return tuple(1 << bit for bit in range(_SMALLEST_SET.bit_length() - 1, most.bit_length()))


def image_shape(device: DeviceFacts) -> tuple[int, int]:
    """Binary logarithms of width and height of the image that is read, about as large as `set_bytes`."""
    wanted = min(set_bytes(device), _most_bytes(device) // 2) // TEXEL_BYTES
    bits = max(wanted - 1, 1).bit_length()
    if TEXEL_BYTES << bits > _most_bytes(device):
        bits -= 1
    across, down = (limit.bit_length() - 1 for limit in device.image2d_max)
    width = min((bits + 1) // 2, across)
    return width, min(bits - width, down)


def transfer_sizes(device: DeviceFacts) -> tuple[int, ...]:
    """Powers of four from 1 KiB to 256 MiB, as far as memory allows."""
    most = min(_most_bytes(device), _LARGEST_TRANSFER)
    return tuple(1 << bit for bit in range(_SMALLEST_TRANSFER.bit_length() - 1, most.bit_length(), 2))


def _most_bytes(device: DeviceFacts) -> int:
    return min(device.max_alloc_bytes, device.global_mem_bytes // 4)


def memory_plan(devices: Sequence[DeviceFacts], families: Sequence[str]) -> Plan:
    """A case, or a skip without images, for each row of the families, on every device."""
    return tuple(
        _case_or_skip(index, device, probe, parameters)
        for index, device in enumerate(devices)
        for probe in PROBES
        if probe.family in families
        for parameters in _parameters(probe, device)
    )


def bandwidth_plan(devices: Sequence[DeviceFacts]) -> Plan:
    """Cases for a roofline: global memory read and copied, at the vector width that is likely to be best."""
    return tuple(
        _case_or_skip(index, device, BY_NAME[name], {"width": 16 if device.type == "cpu" else 4})
        for index, device in enumerate(devices)
        for name in ("global-read", "global-copy")
    )


def _parameters(probe: MemoryProbe, device: DeviceFacts) -> list[Parameters]:
    if probe.bench in ("working-set", "chase"):
        return [{"bytes": size} for size in working_sets(device)]
    if probe.kind == "transfer":
        return [{"bytes": size} for size in transfer_sizes(device)]
    return [{"width": width} for width in probe.widths] or [{}]


def _case_or_skip(index: int, device: DeviceFacts, probe: MemoryProbe, parameters: Parameters) -> Case | Skip:
    dtype = "int" if probe.kind == "latency" else "float"
    source = probe.fingerprint(int(parameters.get("width", 0)))
    case = Case(probe.kind, index, probe.name, dtype, parameters, source=source)
    if probe.bench == "image" and not device.images:
        return Skip(case.row("unsupported", "the device has no images"))
    return case


# --- What memory probes read, and what the host knows about it: a table of random floats, repeated ----------
# The table's length is prime, so that no stride of a kernel matches it, and the host can compute
# the sum of any stretch of any set without holding the set. Values are integers of 22 bits as floats: random
# enough for every memory system, and exact in STREAM's triad with or without contraction.

TABLE_ELEMENTS = (1 << 20) - 3  # prime
SCALAR = 3.0  # of the triad, as in global.cl
_LARGEST = 1 << 21  # b + 3 c stays below 2^24
_KNUTH = np.uint64(2654435761)  # as in global.cl
_SPREAD = np.uint64(0x9E3779B1)  # as in working_set.cl
_SEED = 20261121
_WRAP = 1 << 32


class RepeatedTable:
    """The endless sequence of floats that sets are filled with."""

    def __init__(self) -> None:
        draw = np.random.default_rng(_SEED).integers(-_LARGEST + 1, _LARGEST, TABLE_ELEMENTS)
        self.table: HostArray = draw.astype(np.float32)
        bits = self.table.view(np.uint32)
        self._before: HostArray = np.append(np.uint64(0), np.cumsum(bits, dtype=np.uint64))

    def values(self, first: int, count: int) -> HostArray:
        return np.asarray(self.table[(first + np.arange(count)) % TABLE_ELEMENTS])

    def sum_of(self, first: int, count: int) -> int:
        before, after = map(int, self._sums_before(np.array([first, first + count], np.uint64)))
        return (after - before) % _WRAP

    def sums_of_visits(self, groups: int, block: int, blocks: int, steps: int, visits: int) -> HostArray:
        """Sums of the bits that each group of ``working_set`` reads, modulo 2^32.

        In each visit, a group reads `steps` blocks from a hashed one of `blocks` (a power of two) on,
        wrapping around.
        """
        number = np.arange(groups, dtype=np.uint64)
        rounds, rest = divmod(steps, blocks)
        total = np.full(groups, visits * rounds * self.sum_of(0, block * blocks) % _WRAP, np.uint64)
        for visit in range(visits):
            first = _hash(number * _SPREAD + np.uint64(visit)) % np.uint64(blocks)
            end = first + np.uint64(rest)
            over = np.where(end > blocks, end - np.uint64(blocks), np.uint64(0))
            total += self._sums_before((end - over) * block) - self._sums_before(first * block)
            total += self._sums_before(over * block)
        return (total % _WRAP).astype(np.uint32)

    def _sums_before(self, counts: HostArray) -> HostArray:
        rounds, rest = np.divmod(counts, TABLE_ELEMENTS)
        return np.asarray(rounds * self._before[-1] + self._before[rest])


def written(first: int, count: int) -> HostArray:
    """What ``global_write`` leaves in elements from `first` on, as unsigned integers."""
    return np.asarray(np.arange(first, first + count, dtype=np.uint64) * _KNUTH, np.uint32)


def sum_bits(words: HostArray) -> int:
    """Sum of 32-bit words, modulo 2^32."""
    return int(words.view(np.uint32).sum(dtype=np.uint64)) % _WRAP


def _hash(words: HostArray) -> HostArray:
    x = words.astype(np.uint32)
    x = (x ^ x >> 16) * np.uint32(0x85EBCA6B)
    x = (x ^ x >> 13) * np.uint32(0xC2B2AE35)
    return np.asarray((x ^ x >> 16).astype(np.uint64))


def random_cycle(nodes: int, spacing: int) -> tuple[HostArray, HostArray]:
    """A random cycle through `nodes` nodes that are `spacing` elements apart: memory, and the positions."""
    order = np.random.default_rng(_SEED).permutation(nodes).astype(np.uint32)
    order = np.roll(order, -int(np.argmin(order)))
    places = order * np.uint32(spacing)
    memory = np.zeros(nodes * spacing, np.uint32)
    memory[places] = np.roll(places, -1)
    return memory, places
