"""For CPU drivers: how cpu-packed, cpu-amx and cpu-vnni divide C among cores."""

from __future__ import annotations

import itertools
import math
from dataclasses import replace
from functools import lru_cache

from gemmbench.ladder.described import DESCRIBED
from gemmbench.ladder.variant import Compilation, Needs, Values, Variant
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import AMX, DTYPES, VNNI
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div

_THERE, _BEFORE, _INSIDE = 0, 1, 2  # PACKB
_L1, _L2 = 32 << 10, 512 << 10  # bytes, if the system does not report them
_WIDEST = 16  # elements of a vector of OpenCL C
_BITS = 512  # of a vector register, if the driver does not report it
_PANEL_SHARE = 4  # of the second cache: a panel of B, which stays there while A goes past
_DEPTH = 1024  # steps along k after which C's tile costs 1 %: read and written, a line takes about 10 cycles
_BLOCK_SHARE = 4  # of a core's share of the last cache: A's part of a block, which B goes past
_NEAR_BLOCK = 4  # second caches, at most, that A's part of a block fills
_DEPTHS_THERE = 8, 16  # rows of B as it is that memory gives side by side, to so many rows of C and beyond
_ROWS_TO_PACK = 48  # of C: fewer read B too seldom to pay for a copy
_ROWS_IN_PLACE = 256  # of C: to so many a copy of B costs more than rows that lie anywhere in their lines
_WAYS = 16  # of a second cache
_COLUMNS_TO_TURN = 256  # of C: fewer read A too seldom to pay for a copy, if it is stored transposed
_COPIES = 2  # of B, made inside by the blocks of a column of blocks, that cost no more than a pass before
_BLOCKS_EACH = 4  # blocks for each compute unit, down and across each, at most
_FETCH = 4  # multiplications in the time that one more element of A or B takes to come
_COPY = 6  # and an element of B takes to be copied, by each block or by a pass
_FAR = 24  # and one of a B that no second cache holds, where it lies, to come for a block's first rows
_WAY = 4096  # bytes of a way of an x86 processor's first cache: a page
_START = 256  # steps along k of a micro-tile that a block costs beside its own
_SHALLOW_START = 64  # micro-tiles that it costs where k is short: their time is C's, not that of their steps
_LEAST_SPAN = 256  # steps along k that are worth a work-item of their own
_ROW_PARTS = 2  # work-items for each core, where C is one row
_WIDENED = ("bfloat16", "char")  # which panels hold as float, so that A and B are always packed


def micro_tile(registers: int) -> tuple[int, int]:
    """Rows and vectors of the micro-tile with the most products per load.

    Eight sums or more keep two units busy while an addition takes four cycles: Low, Igual, Smith and
    Quintana-Orti, Analytical Modeling is Enough for High-Performance BLIS, ACM TOMS 43, 2016, section 4.1.
    """
    tiles = [((registers - 1 - vectors) // vectors, vectors) for vectors in (1, 2, 4)]
    return max(tiles, key=lambda tile: (tile[0] * tile[1] / sum(tile), tile[1]))


def _itemsize(dtype: str) -> int:
    return DTYPES["float" if dtype in _WIDENED else dtype].itemsize


def _second_cache(device: DeviceFacts) -> int:
    return device.data_caches[1] if len(device.data_caches) > 1 else _L2


def blocking(device: DeviceFacts, dtype: str) -> dict[str, int]:
    """MR, NV, WIDTH and DEPTH by registers and caches; a panel of B gets a quarter of the second cache."""
    itemsize = _itemsize(dtype)
    lane = max(itemsize, 4)  # half is computed as float
    width = max(2, min(_WIDEST, (device.vector_bits or _BITS) // 8 // lane))
    # Of vector registers, x86 has 16 before AVX-512, other architectures have 32.
    rows, vectors = micro_tile(16 if _is_x86(device) and 0 < device.vector_bits < _BITS else 32)
    panel = min(_second_cache(device) // _PANEL_SHARE, device.local_mem_bytes)
    return {
        "MR": rows,
        "NV": vectors,
        "WIDTH": width,
        "DEPTH": max(16, min(_DEPTH, panel // (vectors * width * itemsize))),
    }


def _is_x86(device: DeviceFacts) -> bool:
    return device.processor.lower() in ("", "x86_64", "amd64", "i386", "i686")


@lru_cache(maxsize=1024)
def _grid(
    tiles: int, panels: int, tallest: int, cores: int, height: int, width: int, batch: int, start: float,
    copy: int,
) -> tuple[int, int]:  # fmt: skip
    """The blocks (down, across) of `height` x `width` elements with the least work for the busiest core."""

    def cost(grid: tuple[int, int]) -> tuple[float, int]:
        down, across = grid
        rows, columns = ceil_div(tiles, down), ceil_div(panels, across)
        blocks = batch * ceil_div(tiles, rows) * ceil_div(panels, columns)
        fetched = (_FETCH + copy) / (rows * height) + _FETCH / (columns * width)
        rounds = blocks / cores + 1 if start else ceil_div(blocks, cores)
        return rounds * (rows * columns + start) * (1 + fetched), down * across

    least, wanted = ceil_div(tiles, tallest), ceil_div(cores * _BLOCKS_EACH, batch)
    downs, acrosses = _counts(tiles, least, max(least, wanted)), _counts(panels, 1, wanted)
    return min(itertools.product(downs, acrosses), key=cost)


def _counts(length: int, least: int, most: int) -> list[int]:
    """Numbers of blocks: the fewest for each size of block."""
    fewest = {ceil_div(length, count): count for count in range(min(length, most), least - 1, -1)}
    return sorted(fewest.values())


def _blocks(problem: Gemm, device: DeviceFacts, parameters: Values) -> dict[str, int]:
    """PACKA, PACKB, KC, TILES, PANELS and SLICES, so that every core has the same work."""
    itemsize, cores = _itemsize(problem.dtype), device.compute_units
    is_widened = problem.dtype in _WIDENED
    height, width = parameters["MR"], parameters["NV"] * parameters["WIDTH"]
    tiles, panels = max(1, ceil_div(problem.m, height)), max(1, ceil_div(problem.n, width))
    longest = max(1, problem.k // _LEAST_SPAN)
    near = _second_cache(device)
    is_near = problem.n * problem.k * itemsize <= near
    is_packed = problem.trans_a or problem.trans_b or is_widened
    if problem.m == 1 and not is_packed:  # long rows of B; the sums of what is near in half the first cache
        first = device.data_caches[0] if device.data_caches else _L1
        short = min(ceil_div(panels, cores), first // 2 // itemsize // width)
        strip = max(1, min(short if is_near else panels, parameters["DEPTH"]))
        most = 1 if is_near else longest
        slices = min(most, ceil_div(cores * _ROW_PARTS, ceil_div(panels, strip) * problem.batch))
        return {"PACKA": 0, "PACKB": _THERE, "KC": 1, "TILES": 1, "PANELS": strip, "SLICES": slices}

    share = max(device.cache_bytes, device.last_level_cache_bytes) // cores
    block = max(near // 2, min(share // _BLOCK_SHARE, _NEAR_BLOCK * near))
    slices = min(longest, ceil_div(cores, tiles * panels * problem.batch))
    steps = ceil_div(problem.k, slices)
    is_few = problem.m < _ROWS_TO_PACK
    is_there = not (problem.trans_b or is_widened) and (is_few or problem.k <= _DEPTHS_THERE[1])
    is_far = 2 * problem.n * problem.k * itemsize > cores * share
    most = _DEPTHS_THERE[problem.m > _DEPTHS_THERE[0]] if is_there and is_far else parameters["DEPTH"]
    turns = max(1, ceil_div(steps, most))
    depth = max(1, ceil_div(steps, turns))
    tallest = max(1, block // (depth * itemsize * height))
    if turns == 1 and cores * share // _BLOCK_SHARE >= problem.m * depth * itemsize:
        tallest = tiles  # C is written once, so that there is room for all of A: B is copied once

    ldb = (problem.ld or problem.tight)[1]
    # Rows of a panel fall into as many sets of the second cache as take half of its ways.
    has_room = depth * math.gcd(ldb * itemsize, near // _WAYS) <= near // 2
    in_place = (
        not (is_packed or is_few or is_there)
        and problem.n >= width
        # Of many rows, vectors that lie across two lines cost more than a copy.
        and ((problem.m <= _ROWS_IN_PLACE and has_room) or (is_near and ldb % parameters["WIDTH"] == 0))
        # Each of a tile's rows wants a way for A and one for B, at worst in one set.
        and _is_x86(device)
        and 2 * height * _WAY <= (device.data_caches or (_L1,))[0]
    )
    is_shallow = is_there and not is_few
    start = _SHALLOW_START if is_shallow else _START / problem.k if in_place else 0
    copy = _COPY if not start else 0 if is_near or is_shallow else _FAR
    down, across = _grid(tiles, panels, tallest, cores, height, width, problem.batch, start, copy)
    packs_a = problem.trans_a and not is_few and not is_there and problem.n >= _COLUMNS_TO_TURN
    is_inside = is_few or ((is_near or down <= _COPIES) and not packs_a)
    packed = _INSIDE if is_inside else _BEFORE
    return {
        "PACKA": int(is_widened or (packs_a and packed == _BEFORE)),
        "PACKB": _THERE if is_there or in_place else packed,
        "KC": depth,
        "TILES": ceil_div(tiles, down),
        "PANELS": ceil_div(panels, across),
        "SLICES": slices,
    }


def _specialize(variant: Variant, problem: Gemm) -> Variant:
    """Memory of bfloat16 and char counts as float's."""
    if problem.dtype not in _WIDENED:
        return variant
    launches, local = variant.launches, variant.needs.local_elements
    share = 4 // DTYPES[problem.dtype].itemsize
    return replace(
        variant,
        launches=replace(launches, extents={**launches.extents, "widened": lambda _: 1}),
        needs=replace(variant.needs, local_elements=lambda p: share * local(p)),
    )


_CPU_PACKED = DESCRIBED["cpu-packed"]
CPU_PACKED = replace(
    _CPU_PACKED,
    parameters=replace(_CPU_PACKED.parameters, derive=blocking, choose=_blocks),
    specialize=_specialize,
)


_STRIP = 32  # rows of A, and columns of B
_LONG_BLOCK, _SHORT_BLOCK = 8, 4  # strips down and across a block
_AMX_DEPTH = 32  # steps along k: half a MiB of a long block's A, and as much of its B
_AMX_ITEMS = 4  # work-items for each core, so that a slow core gets fewer


def _amx_blocks(problem: Gemm, device: DeviceFacts, parameters: Values) -> dict[str, int]:
    """DOWN and ACROSS, strips of a block, halved until each core has some; DEPTH; ITEMS."""
    cores, rows, columns = device.compute_units, ceil_div(problem.m, _STRIP), ceil_div(problem.n, _STRIP)
    down, across = max(1, min(rows, _LONG_BLOCK)), max(1, min(columns, _LONG_BLOCK))
    for each, least in ((_AMX_ITEMS, _SHORT_BLOCK), (1, 1)):  # blocks for a core, strips of one
        while ceil_div(rows, down) * ceil_div(columns, across) * problem.batch < each * cores:
            if max(down, across) <= least:
                break
            down, across = (ceil_div(down, 2), across) if down >= across else (down, ceil_div(across, 2))
    down, across = parameters.get("DOWN", down), parameters.get("ACROSS", across)
    blocks = ceil_div(rows, down) * ceil_div(columns, across)
    items = min(blocks, ceil_div(cores * _AMX_ITEMS, problem.batch))
    return {"DOWN": down, "ACROSS": across, "DEPTH": _AMX_DEPTH, "ITEMS": max(1, items)}


def _lacks_amx(device: DeviceFacts, dtype: str) -> str:
    types = _CPU_AMX.needs.dtypes
    return AMX.lacks(device, dtype if dtype in types else types[0])


_CPU_AMX = DESCRIBED["cpu-amx"]
CPU_AMX = replace(
    _CPU_AMX,
    parameters=replace(_CPU_AMX.parameters, choose=_amx_blocks),
    needs=replace(_CPU_AMX.needs, lacks=_lacks_amx),
    compilation=Compilation(of_type=lambda dtype: (f"-DSTORED_{dtype}",)),
)
CPU_VNNI = replace(
    CPU_AMX,
    name="cpu-vnni",
    idea="dot products of VNNI",
    source="gemmbench; Intel's Software Developer's Manual describes VPDPBUSD",
    needs=Needs(
        dtypes=("char",),
        device_type="cpu",
        hardware="a CPU with VNNI",
        lacks=lambda device, _: VNNI.lacks(device, "char"),
    ),
    compilation=Compilation(of_type=lambda _: ("-DVNNI",)),
)
