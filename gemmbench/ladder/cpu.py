"""For CPU drivers: B packed into panels, a micro-kernel in vector registers, one work-item per block of C."""

from __future__ import annotations

from functools import lru_cache

from gemmbench.ladder.variant import (
    OURS,
    Constraint,
    Parameter,
    Pass,
    Values,
    Variant,
    multiply,
    unsupported_type,
)
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import Gemm

_FILE = "gemm/17_cpu_packed.cl"
_ONE = (1, 1)  # work-group: a work-item has a core to itself

# Of a core's share of the last cache; the nearer ones a driver does not tell, or tells wrong.
_BLOCK_SHARE, _LEAST_BLOCK, _MOST_BLOCK = 4, 256 << 10, 1 << 20  # bytes of A that stay while B goes past
_PANEL_SHARE, _LEAST_PANEL, _MOST_PANEL = 32, 64 << 10, 128 << 10  # bytes of B that stay while A goes past
_DEPTH = 512  # steps along k after which sums go to C, if so much of a panel of B fits
_DEPTH_THERE = 16  # the same for B read where it lies: as many rows of it as are fetched side by side
_ROWS_TO_PACK = 48  # of C: fewer read B too seldom to pay for a copy
_COLUMNS_TO_PACK = 4096  # of C: fewer read A too seldom
_COLUMNS_TO_TURN = 256  # the same for A stored transposed, of which every step along k lies in another page
_BLOCKS_EACH = 4  # blocks for each compute unit, at most
_FETCH = 4  # multiplications in the time that one more element of A or B takes to come
_PACK_STEPS = 64  # along k that a work-item packs


def _panels(v: Values) -> int:
    """Panels of B, the last one perhaps not whole."""
    return -(-v["n"] // _width(v))


def _width(v: Values) -> int:
    """Columns of a panel."""
    return v["NV"] * v["WIDTH"]


def _tiles(v: Values) -> int:
    """Panels of A, that is micro-tiles down C; the last one perhaps not whole."""
    return -(-v["m"] // v["MR"])


def _there(v: Values) -> int:
    """Panels that are read where they lie in B; the rest is packed."""
    return 0 if v["PACKB"] or v["tb"] else v["n"] // _width(v)


@lru_cache(maxsize=1024)
def _grid(
    tiles: int, panels: int, tallest: int, cores: int, height: int, width: int, batch: int
) -> tuple[int, int]:
    """How many blocks of C go down and across: see `_blocks`.

    Args:
        tiles: micro-tiles down C.
        panels: micro-tiles across C.
        tallest: the most micro-tiles down a block.
        cores: of the device.
        height: rows of a micro-tile.
        width: its columns.
        batch: problems, each cut into such a grid.
    """

    def cost(grid: tuple[int, int]) -> tuple[float, int]:
        down, across = grid
        rows, columns = -(-tiles // down), -(-panels // across)
        rounds = -(-(batch * -(-tiles // rows) * -(-panels // columns)) // cores)
        fetched = 1 / (rows * height) + 1 / (columns * width)
        return rounds * rows * columns * (1 + _FETCH * fetched), down * across

    least, wanted = -(-tiles // tallest), -(-cores * _BLOCKS_EACH // batch)
    grids = [
        (down, across)
        for down in range(least, min(tiles, max(least, wanted)) + 1)
        for across in range(1, min(panels, wanted) + 1)
    ]
    return min(grids, key=cost)


def _blocks(problem: Gemm, device: DeviceFacts, parameters: Values) -> dict[str, int]:
    """Whether to pack, how far to go along k at once, and blocks of C that give every core as much work.

    Among the grids of blocks: the one whose busiest core has the least to do, counted in micro-tiles and with
    the elements that a block must fetch for them.
    """
    itemsize = DTYPES[problem.dtype].itemsize
    pack_b = problem.m >= _ROWS_TO_PACK
    pack_a = pack_b and problem.n >= (_COLUMNS_TO_TURN if problem.trans_a else _COLUMNS_TO_PACK)
    height, width = parameters["MR"], parameters["NV"] * parameters["WIDTH"]
    share = max(device.cache_bytes, device.last_level_cache_bytes) // device.compute_units
    panel = min(max(share // _PANEL_SHARE, _LEAST_PANEL), _MOST_PANEL)
    most = min(_DEPTH, panel // (width * itemsize)) if pack_b else _DEPTH_THERE
    slices = max(1, -(-problem.k // most))
    depth = max(1, -(-problem.k // slices))
    tiles, panels = max(1, -(-problem.m // height)), max(1, -(-problem.n // width))
    block = min(max(share // _BLOCK_SHARE, _LEAST_BLOCK), _MOST_BLOCK)
    tallest = max(1, block // (depth * itemsize * height))

    down, across = _grid(tiles, panels, tallest, device.compute_units, height, width, problem.batch)
    return {
        "PACKA": int(pack_a),
        "PACKB": int(pack_b),
        "KC": depth,
        "TILES": -(-tiles // down),
        "PANELS": -(-panels // across),
    }


CPU_PACKED = Variant(
    name="cpu-packed",
    family=OURS,
    likely={"cpu": 1, "narrow-cpu": 1, "batched-cpu": 1},
    idea="for CPUs: B packed into panels, a micro-tile of C in vector registers, a work-item per block of C",
    source="gemmbench, after the structure of BLIS (Van Zee and van de Geijn, ACM TOMS 41, 2015)",
    passes=(
        Pass(
            "pack",
            _FILE,
            "pack_a",
            ("steps", "m", "k", "A", "lda", "AP"),
            lambda v: (_tiles(v), -(-v["k"] // v["steps"])),
            lambda _: _ONE,
            when=lambda v: v["PACKA"] == 1,
        ),
        Pass(
            "pack",
            _FILE,
            "pack_b",
            ("there", "steps", "k", "n", "B", "ldb", "BP"),
            lambda v: (_panels(v) - v["there"], -(-v["k"] // v["steps"])),
            lambda _: _ONE,
        ),
        Pass(
            "multiply",
            _FILE,
            "cpu_packed",
            (
                *("m", "n", "k", "alpha", "A", "lda", "PACKA", "AP", "B", "ldb", "there", "BP"),
                *("beta", "C", "ldc", "PANELS", "rows", "KC"),
            ),
            lambda v: (-(-_panels(v) // v["PANELS"]), -(-v["m"] // v["rows"])),
            lambda _: _ONE,
        ),
    ),
    parameters={
        "MR": Parameter("rows of a micro-tile", (4, 6, 8, 12, 14)),
        "NV": Parameter("vectors across a micro-tile", (1, 2, 3, 4)),
        "WIDTH": Parameter("elements of a vector: what a register of the CPU holds", (2, 4, 8, 16)),
        "UNROLL": Parameter("steps along k in a turn of the innermost loop", (1, 2, 4)),
        "PACKA": Parameter("1: A in panels; 0: as it is", (0, 1), True, 0),
        "PACKB": Parameter("1: B in panels; 0: only what whole panels leave over", (0, 1), True, 0),
        "KC": Parameter("steps along k before the sums go to C", (16, 256, 384, 512), launch=True),
        "TILES": Parameter("micro-tiles down a work-item's block", (1, 8, 16, 32), launch=True),
        "PANELS": Parameter("panels across a work-item's block", (1, 4, 11, 22), launch=True),
    },
    presets={
        "default": {"MR": 6, "NV": 4, "WIDTH": 16, "UNROLL": 4},
        "default:double": {"WIDTH": 8},
        # Sixteen registers: twelve of sums, two of B, one of A.
        "256-bit": {"NV": 2, "WIDTH": 8},
        "256-bit:double": {"WIDTH": 4},
        "128-bit": {"NV": 2, "WIDTH": 4},
        "128-bit:double": {"WIDTH": 2},
    },
    choose=_blocks,
    extents={
        "there": _there,
        "steps": lambda _: _PACK_STEPS,
        "rows": lambda v: v["TILES"] * v["MR"],
    },
    temporaries={
        "AP": lambda v: _tiles(v) * v["k"] * v["MR"] if v["PACKA"] else 0,
        "BP": lambda v: (_panels(v) - v["there"]) * v["k"] * _width(v),
    },
    device_type="cpu",
    either=lambda _: ("A", "B"),
    batches=True,
    edge=lambda p: max(p["MR"], p["NV"] * p["WIDTH"]),
)

VARIANTS = (CPU_PACKED,)


# --- Ours for Intel's GPUs: what a sub-group can do there that OpenCL has no other word for -----------------


_SUBGROUPS = "cl_intel_subgroups"


def _lacks(device: DeviceFacts, dtype: str) -> str:
    if device.family.endswith("-pocl") and _SUBGROUPS in device.extensions:
        return f"PoCL lists {_SUBGROUPS}, and does not link its functions"
    return unsupported_type(device, dtype)


INTEL_BLOCK = Variant(
    name="intel-block",
    family=OURS,
    likely={"gpu": 6},
    idea="for Intel's GPUs, and untested on one: sub-group block reads and shuffles",
    source="gemmbench; Intel's extension cl_intel_subgroups describes the block reads",
    passes=(
        multiply(
            "22_intel_block.cl",
            "intel_block",
            lambda v: (-(-v["n"] // (v["LANES"] * v["TN"])) * v["LANES"], -(-v["m"] // v["TM"])),
            lambda v: (v["LANES"], v["GY"]),
        ),
    ),
    parameters={
        "LANES": Parameter("work-items of a sub-group; the device must have sub-groups of that", (8, 16, 32)),
        "GY": Parameter("sub-groups in a work-group, one below the other", (1, 2, 4, 8)),
        "TM": Parameter("rows of C of a sub-group", (4, 8, 16)),
        "TN": Parameter("columns of C of a lane: elements of a block read", (2, 4, 8)),
    },
    presets={
        "default": {"LANES": 16, "GY": 4, "TM": 8, "TN": 4},
        "default:double": {"TN": 2},
        "cpu-intel": {"LANES": 8, "TN": 2},
        "cpu-intel:double": {"TM": 4},
    },
    constraints=(
        Constraint(lambda p: p["TN"] in (2, 4, 8), "TN is 2, 4 or 8: block reads come in these widths"),
    ),
    extensions=lambda _: (_SUBGROUPS, "cl_intel_required_subgroup_size"),
    type_extensions={"double": ("cl_intel_subgroups_long",), "half": ("cl_intel_subgroups_short",)},
    lacks=_lacks,
    batches=True,
    sub_group=lambda p: p["LANES"],
    edge=lambda p: max(p["LANES"] * p["TN"], p["GY"] * p["TM"]),
)

INTEL_VARIANTS = (INTEL_BLOCK,)
