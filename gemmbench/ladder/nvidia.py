"""NVIDIA's multiprocessors and tensor cores."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from gemmbench.ladder.described import DESCRIBED
from gemmbench.ladder.variant import Compilation, Constraint, Values, Variant
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, FP8_DTYPES, MMA, WGMMA
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div

_STORED: Mapping[str, str] = {
    "half": "ushort",
    "bfloat16": "ushort",
    "tf32": "float",
    "double": "double",
    "char": "uchar",
}
"""What the passes around a multiplication, which only move elements, take them for."""


# Work-items and KiB of shared memory of one multiprocessor, by compute capability, from the CUDA
# programming guide's technical specifications; each resident group takes one KiB for itself.
_MULTIPROCESSOR: dict[tuple[int, int], tuple[int, int]] = {
    (7, 0): (2048, 96),
    (7, 5): (1024, 64),
    (8, 0): (2048, 164),
    (8, 6): (1536, 100),
    (8, 7): (1536, 164),
    (8, 9): (1536, 100),
    (9, 0): (2048, 228),
    (10, 0): (2048, 228),
    (10, 3): (2048, 228),
    (12, 0): (1536, 100),
    (12, 1): (1536, 100),
}
_OF_A_GROUP = 1024  # bytes
_LARGE_GROUPS = (8, 0)  # from here on a group can be compiled for more than the driver lists
_LEAST_KIB = 100  # of a multiprocessor that has them


def group_local_bytes(device: DeviceFacts) -> int:
    """Bytes of local memory that a work-group can have. NVIDIA's driver lists less: 48 KiB."""
    if device.compute_capability < _LARGE_GROUPS:
        return device.local_mem_bytes
    _, kib = _MULTIPROCESSOR.get(device.compute_capability, (0, _LEAST_KIB))
    return max(device.local_mem_bytes, (kib << 10) - _OF_A_GROUP)


def resident_groups(device: DeviceFacts, items: int, local: int) -> int:
    """How many work-groups a compute unit holds at once, by work-items and bytes of local memory.

    A lower bound, by local memory alone, for devices that are not in the table.
    """
    if device.compute_capability not in _MULTIPROCESSOR:
        return device.local_mem_bytes // local  # at least: what one group may have
    most, kib = _MULTIPROCESSOR[device.compute_capability]
    return min(most // items, (kib << 10) // (local + _OF_A_GROUP))


def compiled_for(dtype: str) -> tuple[str, ...]:
    """The -D options of a data type: what stores an element, its format, and fp8's type of C."""
    if dtype in FP8_DTYPES:
        kind, _, result = dtype.partition("-")
        return "-DREAL_uchar", f"-DMMA_{kind}", *([f"-DRESULT_{result}"] if result else [])
    # A row of a type that a variant lacks has options, too.
    return f"-DREAL_{_STORED.get(dtype, dtype)}", f"-DMMA_{dtype}"


def _as_stored(variant: Variant, problem: Gemm) -> Variant:
    """Kernels read A and B of two bytes as stored, none of double, else B."""
    if problem.ops == "NN" or problem.dtype == "double":
        return variant
    either = ("A", "B") if DTYPES[problem.dtype].itemsize == 2 else ("B",)
    return replace(variant, launches=replace(variant.launches, either=either))


_DOUBLE_COST: Mapping[tuple[int, int], float] = {(128, 64): 1.0, (64, 32): 1.067}
"""Of an element of a tile of 128 rows of double on NVIDIA's, by its columns and the rows of a warp."""


def _sides(p: Values) -> Values:
    """Parameters with both sides; one not chosen yet counts as the larger."""
    return {"BN": p["BM"], "WM": p["BM"] // 2, **p}


def _of_sides(constraint: Constraint) -> Constraint:
    names = constraint.names | {"BM"}
    return replace(constraint, rule=lambda p: constraint.rule(_sides(p)), names=names)


def _double_shape(problem: Gemm, device: DeviceFacts, p: Values) -> dict[str, int]:
    """BN and WM of double with the least predicted time; 128 and 64 if given ones are no known pair."""

    def cost(sides: tuple[int, int]) -> float:
        rounds = ceil_div(_tiles(problem, p["BM"], sides[0]), max(1, device.compute_units))
        return rounds * sides[0] * _DOUBLE_COST[sides]

    known = [each for each in _DOUBLE_COST if (p.get("BN", each[0]), p.get("WM", each[1])) == each]
    columns, rows = min(known, key=cost, default=(128, 64))
    return {"BN": columns, "WM": rows}


_MMA_KERNEL, _WGMMA_KERNEL = DESCRIBED["nv-mma"], DESCRIBED["nv-wgmma"]
NV_MMA = replace(
    _MMA_KERNEL,
    launches=replace(_MMA_KERNEL.launches, edge=lambda p: max(p["BM"], _sides(p)["BN"])),
    parameters=replace(
        _MMA_KERNEL.parameters,
        constraints=tuple(map(_of_sides, _MMA_KERNEL.parameters.constraints)),
        choose=_double_shape,
    ),
    needs=replace(
        _MMA_KERNEL.needs,
        lacks=MMA.lacks,
        local_elements=lambda p: p["STAGES"] * (p["BM"] + _sides(p)["BN"]) * p["ROW"] // p["itemsize"],
        local_limit=group_local_bytes,
    ),
    specialize=_as_stored,
    compilation=Compilation(compiled_for),
)


_ROW = 128  # bytes of a row of a tile in local memory: how deep tiles are
_LOCAL = 225 << 10  # bytes of local memory for tiles: a group has 227 KiB, with maps and barriers
_SHALLOW = 6  # stages for a k that is not deep

_COST: Mapping[tuple[int, int], float] = {
    (128, 256): 1.0,
    (256, 192): 1.01,
    (128, 192): 1.02,
    (256, 128): 1.07,
    (128, 128): 1.08,
    (64, 256): 1.35,
    (64, 192): 1.4,
    (128, 64): 1.6,
    (256, 64): 1.6,
    (64, 128): 1.5,
    (64, 64): 2.2,
}
"""Of an element of a tile, by its rows and columns: smaller tiles read more bytes for each product."""
_ADD, _WAIT = 50, 200_000  # for an element and for a group whose k is split, in the same unit
_MOST_PARTS = 16


def _stored(rows: int, columns: int) -> int:
    """Rows of local memory for the part of C that is stored at once."""
    return columns * (1 if rows == 64 else 2)


def _room(rows: int, columns: int) -> int:
    """Pairs of tiles that fit local memory next to the stored part of C."""
    return (_LOCAL // _ROW - _stored(rows, columns)) // (rows + columns)


def _tiles_bytes(p: Values) -> int:
    """Bytes of local memory; of the widest tile while none is chosen."""
    rows, columns = p.get("BM", 128), p.get("BN", 256)
    stages = p.get("STAGES", _room(rows, columns))
    return (stages * (rows + columns) + _stored(rows, columns)) * _ROW


def _shape(problem: Gemm, device: DeviceFacts, p: Values) -> dict[str, int]:
    """BM, BN, PARTS (which all run at once), STAGES and GROUPS that finish first, by a table of costs."""
    units = p.get("GROUPS", max(1, device.compute_units))
    depth = ceil_div(problem.k * DTYPES[problem.dtype].itemsize, _ROW)

    def parts(tile: tuple[int, int]) -> int:
        groups = max(1, _tiles(problem, *tile)) * problem.batch
        return p.get("PARTS", max(1, min(units // groups, depth, _MOST_PARTS)))

    def cost(plan: tuple[tuple[int, int], int]) -> float:
        (rows, columns), count = plan
        steps = ceil_div(_tiles(problem, rows, columns) * count, units) * depth / count
        added, waited = (_ADD, _WAIT) if count > 1 else (0, 0)
        return rows * columns * (_COST.get((rows, columns), 1) * steps + added) + waited

    known = [tile for tile in _COST if _is_given(tile, p) and p.get("STAGES", 2) <= _room(*tile)]
    known = known or [(p.get("BM", 128), p.get("BN", 128))]  # breaks a constraint, which is checked later
    plans = [(tile, count) for tile in known for count in sorted({p.get("PARTS", 1), parts(tile)})]
    (rows, columns), count = min(plans, key=cost)
    stages = p.get("STAGES", min(_room(rows, columns), max(_SHALLOW, depth // (3 * count))))
    works = max(1, _tiles(problem, rows, columns)) * count
    groups = ceil_div(works, ceil_div(works, units))
    return {"BM": rows, "BN": columns, "STAGES": stages, "PARTS": count, "GROUPS": groups}


def _is_given(tile: tuple[int, int], p: Values) -> bool:
    return (p.get("BM", tile[0]), p.get("BN", tile[1])) == tile


def _tiles(problem: Gemm, rows: int, columns: int) -> int:
    return ceil_div(problem.m, rows) * ceil_div(problem.n, columns)


NV_WGMMA = replace(
    _WGMMA_KERNEL,
    launches=replace(_WGMMA_KERNEL.launches, edge=lambda p: max(p.get("BM", 256), p.get("BN", 256))),
    parameters=replace(
        _WGMMA_KERNEL.parameters,
        constraints=(
            Constraint(
                lambda p: any(_is_given(tile, p) for tile in _COST),
                "BM must be 64, 128 or 256, BN 64, 128, 192 or 256, not both 256: sums must fit in registers",
            ),
            Constraint(
                lambda p: (
                    p.get("STAGES", 2)
                    <= max((_room(*tile) for tile in _COST if _is_given(tile, p)), default=9)
                ),
                "(STAGES x (BM + BN) + 2 x BN) x 128 bytes must fit in 225 KiB of local memory "
                "(BM 64: 1 x BN)",
            ),
        ),
        choose=_shape,
    ),
    needs=replace(
        _WGMMA_KERNEL.needs,
        lacks=lambda device, dtype: WGMMA.lacks(device, DTYPES[dtype].instruction),
        local_elements=lambda p: _tiles_bytes(p) // p["itemsize"],
        local_limit=group_local_bytes,
        sums={"half": "float", **dict.fromkeys(FP8_DTYPES, "fp22")},
    ),
    specialize=_as_stored,
    compilation=Compilation(compiled_for, target=WGMMA.target),
)
