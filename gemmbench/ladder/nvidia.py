"""NVIDIA's tensor cores."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

from gemmbench.ladder import variant as entry
from gemmbench.ladder.described import DESCRIBED
from gemmbench.ladder.variant import Compilation, Constraint, Launches, Pass, Values, Variant, round_up
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, FP8_DTYPES, MMA, WGMMA
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div
from gemmbench.stats import ceilings

_CHUNK = 16  # bytes that are copied at once, where rows have to start
_WARP = 32

_STORED: Mapping[str, str] = {
    "half": "ushort",
    "bfloat16": "ushort",
    "tf32": "float",
    "double": "double",
    "char": "uchar",
}
"""What the passes around a multiplication, which only move elements, take them for."""


def compiled_for(dtype: str) -> tuple[str, ...]:
    """The -D options of a data type: what stores an element, its format, and fp8's type of C."""
    if dtype in FP8_DTYPES:
        kind, _, result = dtype.partition("-")
        return "-DREAL_uchar", f"-DMMA_{kind}", *([f"-DRESULT_{result}"] if result else [])
    # A row of a type that a variant lacks has options, too.
    return f"-DREAL_{_STORED.get(dtype, dtype)}", f"-DMMA_{dtype}"


def _is_even(v: Values, ld: str) -> bool:
    return v[ld] * v["itemsize"] % _CHUNK == 0


def _is_char(v: Values) -> bool:
    """Whether a register of B holds several elements along k, which no instruction gathers."""
    return v["itemsize"] == 1


def _a(v: Values) -> str:
    return "A" if _is_even(v, "lda") else "AP"


def _b(v: Values) -> str:
    return "BT" if _is_char(v) and not v["tb"] else "B" if _is_even(v, "ldb") else "BP"


def _as_stored(variant: Variant, problem: Gemm) -> Variant:
    """Kernels read A and B of two bytes as stored, none of double, else B."""
    if problem.ops == "NN" or problem.dtype == "double":
        return variant
    return replace(
        variant,
        launches=replace(
            variant.launches, either=("A", "B") if DTYPES[problem.dtype].itemsize == 2 else ("B",)
        ),
    )


_TRANSPOSE_BYTES = replace(
    entry.transpose_bytes("k", "n", "B", "ldb", "BT", "kw"), when=lambda v: _is_char(v) and not v["tb"]
)


def _pad_chunks(rows: str, columns: str, source: str, ld: str, pitch: str, target: str) -> Pass:
    """target (rows x pitch) = source (rows x columns), padded with zeros; pitch is whole chunks."""
    return Pass(
        "pad",
        "gemm/00_pad_chunks.cl",
        "pad_chunks",
        (rows, columns, source, ld, pitch, target),
        lambda v: (v[pitch] * v["itemsize"] // _CHUNK, v[rows]),
        lambda _: (32, 8),
        any_group=True,
    )


_PAD_A = replace(_pad_chunks("rows_a", "columns_a", "A", "lda", "aw", "AP"), when=lambda v: _a(v) == "AP")
_PAD_B = _pad_chunks("rows_b", "columns_b", "B", "ldb", "bw", "BP")

_LENGTHS = {"A": "lda", "AP": "aw", "B": "ldb", "BP": "bw", "BT": "kw"}


def _widths(row: int) -> Mapping[str, entry.Formula]:
    """Row lengths of copies, in elements: multiples of `row` bytes."""
    return {
        "kw": lambda v: round_up(v["k"], row // v["itemsize"]),
        "aw": lambda v: round_up(v["columns_a"], row // v["itemsize"]),
        "bw": lambda v: round_up(v["columns_b"], row // v["itemsize"]),
    }


def _items(v: Values) -> int:
    return v["BM"] // v["WM"] * (v["BN"] // v["WN"]) * _WARP


_DOUBLE_COST: Mapping[tuple[int, int], float] = {(128, 64): 1.0, (64, 32): 1.067}
"""Of an element of a tile of 128 rows of double on NVIDIA's, by its columns and the rows of a warp."""


def _sides(p: Values) -> Values:
    """Parameters with both sides; one not chosen yet counts as the larger."""
    return {"BN": p["BM"], "WM": p["BM"] // 2, **p}


def _of_sides(rule: Callable[[Values], bool], sentence: str) -> Constraint:
    return Constraint(lambda p: rule(_sides(p)), sentence)


def _double_shape(problem: Gemm, device: DeviceFacts, p: Values) -> dict[str, int]:
    """For double, the BN and WM with which all groups finish first, else 128 and 64."""

    def cost(sides: tuple[int, int]) -> float:
        rounds = ceil_div(_tiles(problem, p["BM"], sides[0]), max(1, device.compute_units))
        return rounds * sides[0] * _DOUBLE_COST[sides]

    known = [each for each in _DOUBLE_COST if (p.get("BN", each[0]), p.get("WM", each[1])) == each]
    columns, rows = min(known, key=cost, default=(128, 64))
    return {"BN": columns, "WM": rows}


def _multiply(a: str, b: str) -> Pass:
    step = entry.multiply(
        "20_nv_mma.cl",
        "nv_mma",
        lambda v: (ceil_div(v["m"], v["BM"]) * ceil_div(v["n"], v["BN"]) * _items(v),),
        lambda v: (_items(v),),
        ("m", "n", "k", "alpha", a, _LENGTHS[a], b, _LENGTHS[b], "beta", "C", "ldc"),
    )
    return replace(step, when=lambda v: (_a(v), _b(v)) == (a, b))


_MMA_KERNEL, _WGMMA_KERNEL = DESCRIBED["nv-mma"], DESCRIBED["nv-wgmma"]
NV_MMA = replace(
    _MMA_KERNEL,
    launches=Launches(
        batches=True,
        passes=(
            _PAD_A,
            replace(_PAD_B, when=lambda v: _b(v) == "BP"),
            _TRANSPOSE_BYTES,
            *(_multiply(a, b) for a in ("A", "AP") for b in ("B", "BP", "BT")),
        ),
        extents=_widths(_CHUNK),
        temporaries={
            "AP": lambda v: v["rows_a"] * v["aw"] if _a(v) == "AP" else 0,
            "BP": lambda v: v["rows_b"] * v["bw"] if _b(v) == "BP" else 0,
            "BT": lambda v: v["n"] * v["kw"] if _b(v) == "BT" else 0,
        },
        edge=lambda p: max(p["BM"], _sides(p)["BN"]),
    ),
    parameters=replace(
        _MMA_KERNEL.parameters,
        constraints=(
            _of_sides(
                lambda p: p["WM"] % 32 == 0,
                "WM must be a multiple of 32: half a warp's rows are whole products",
            ),
            Constraint(
                lambda p: p["WN"] % 16 == 0, "WN must be a multiple of 16, the columns of two products"
            ),
            _of_sides(lambda p: p["BM"] % p["WM"] == 0, "BM must be a multiple of WM, to be whole warps"),
            _of_sides(lambda p: p["BN"] % p["WN"] == 0, "BN must be a multiple of WN, to be whole warps"),
            _of_sides(lambda p: p["BN"] % 64 == 0, "BN must be a multiple of 64: rows of B fill every bank"),
            Constraint(
                lambda p: p["ROW"] in (32, 64, 128),
                "ROW must be 32, 64 or 128: whole steps of 32 bytes, no more than there are banks",
            ),
            Constraint(
                lambda p: p["itemsize"] < 8 or p["ROW"] >= 64,
                "ROW must be 64 or 128 for double, whose steps are 64 bytes deep",
            ),
            _of_sides(
                lambda p: all(count & count - 1 == 0 for count in (p["BM"] // p["WM"], p["BN"] // p["WN"])),
                "BM / WM and BN / WN must be powers of two, so that all lanes order chunks alike",
            ),
            _of_sides(
                lambda p: _items(p) >= 64, "two warps or more must make a tile: they copy 8 rows at once"
            ),
        ),
        choose=_double_shape,
    ),
    needs=replace(
        _MMA_KERNEL.needs,
        lacks=MMA.lacks,
        local_elements=lambda p: p["STAGES"] * (p["BM"] + _sides(p)["BN"]) * p["ROW"] // p["itemsize"],
        local_limit=ceilings.group_local_bytes,
        matrix_units=_MMA_KERNEL.needs.dtypes,
        sums={"half": "float"},
    ),
    specialize=_as_stored,
    compilation=Compilation(compiled_for),
)


_ROW = 128  # bytes of a row of a tile in local memory: how deep tiles are
_MAPPED = 3  # matrices whose maps the copy engine reads
_MAPS = _MAPPED * 128  # bytes of those
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


def _is_turned(v: Values) -> bool:
    """Whether B must be transposed: wgmma reads rows of k only of two-byte elements."""
    return v["itemsize"] != 2 and not v["tb"]


def _wgmma_b(v: Values) -> str:
    return "BT" if _is_turned(v) else _b(v)


def _workers(v: Values) -> int:
    """Groups of four warps that multiply; one more copies."""
    return 1 if v["BM"] == 64 else 2


def _room(rows: int, columns: int) -> int:
    """Pairs of tiles that fit local memory next to the stored part of C."""
    return (_LOCAL // _ROW - _workers({"BM": rows}) * columns) // (rows + columns)


def _tiles_bytes(p: Values) -> int:
    """Bytes of local memory; of the widest tile while none is chosen."""
    rows, columns = p.get("BM", 128), p.get("BN", 256)
    stages = p.get("STAGES", _room(rows, columns))
    return (stages * (rows + columns) + _workers({"BM": rows}) * columns) * _ROW


def _shape(problem: Gemm, device: DeviceFacts, p: Values) -> dict[str, int]:
    """BM, BN, PARTS, STAGES and GROUPS with which all groups finish first, by a table of costs.

    Given parameters stay. All parts run at once, because they wait for each other.
    """
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


def _wgmma(a: str, b: str) -> tuple[Pass, Pass]:
    """Two launches for operands `a` and `b`: once the maps of the copy engine, then the multiplication."""
    operands = (a, _LENGTHS[a], b, _LENGTHS[b])
    step = entry.multiply(
        "21_nv_wgmma.cl",
        "nv_wgmma",
        lambda v: (min(v["GROUPS"], _works(v)) * _items_of(v),),
        lambda v: (_items_of(v),),
        ("m", "n", "k", "alpha", *operands, "beta", "C", "ldc", "P", "MAPS"),
    )
    maps = replace(
        step,
        role="map",
        kernel="nv_wgmma_maps",
        arguments=("m", "n", "k", *operands, "C", "ldc", "MAPS"),
        items=lambda _: (_MAPPED * _WARP,),
        group=lambda _: (_MAPPED * _WARP,),
        once=True,
    )

    def when(v: Values) -> bool:
        return (_a(v), _wgmma_b(v)) == (a, b)

    return replace(maps, when=when), replace(step, when=when)


def _works(v: Values) -> int:
    return ceil_div(v["m"], v["BM"]) * ceil_div(v["n"], v["BN"]) * v["PARTS"]


def _items_of(v: Values) -> int:
    return (_workers(v) + 1) * 4 * _WARP


NV_WGMMA = replace(
    _WGMMA_KERNEL,
    launches=Launches(
        batches=True,
        passes=(
            _PAD_A,
            replace(_PAD_B, when=lambda v: _wgmma_b(v) == "BP"),
            _TRANSPOSE_BYTES,
            replace(
                entry.transpose_padded("k", "n", "B", "ldb", "n", "kw", "BT", "kw"),
                when=lambda v: _is_turned(v) and not _is_char(v),
            ),
            *(step for a in ("A", "AP") for b in ("B", "BP", "BT") for step in _wgmma(a, b)),
        ),
        extents=_widths(_ROW),
        temporaries={
            "AP": NV_MMA.launches.temporaries["AP"],
            "BP": lambda v: v["rows_b"] * v["bw"] if _wgmma_b(v) == "BP" else 0,
            "BT": lambda v: v["n"] * v["kw"] if _wgmma_b(v) == "BT" else 0,
            "P": lambda v: (v["PARTS"] > 1) * _works(v) * v["BM"] * v["BN"] * 4 // v["itemsize"],
            "MAPS": lambda v: (_MAPS + (v["PARTS"] > 1) * round_up(8 * _works(v), 128)) // v["itemsize"],
        },
        edge=lambda p: max(p.get("BM", 256), p.get("BN", 256)),
    ),
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
        local_limit=ceilings.group_local_bytes,
        matrix_units=_WGMMA_KERNEL.needs.dtypes,
        sums={"half": "float", **dict.fromkeys(FP8_DTYPES, "fp22")},
    ),
    specialize=_as_stored,
    compilation=Compilation(compiled_for, target=WGMMA.target),
)
