"""nv-thin: products with 1 to 16 rows or columns in 16 bits, on NVIDIA's tensor cores."""

from __future__ import annotations

from dataclasses import replace

from gemmbench.ladder.described import DESCRIBED
from gemmbench.ladder.few import along_k, thin_whole
from gemmbench.ladder.nvidia import NV_MMA
from gemmbench.ladder.variant import ARGUMENTS, Launches, Values, multiply
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import MMA
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div

_FEW, _LONG = 16, 32  # most rows or columns of the small operand; those of the large one in a tile
_WARP = 32
_MOST_CACHED = 40 << 20  # bytes of the large operand that an H100's second-level cache of 50 MiB can hold
_STEP = {True: 32, False: 16}  # along k, by whether rows of the large operand run along k
_VECTOR = {"WIDTH": 8}  # elements of a load


def _tiles(v: Values) -> tuple[int, int]:
    long, few = (v["m"], v["n"]) if v["COLUMNS"] else (v["n"], v["m"])
    return ceil_div(long, _LONG), ceil_div(few, v["THIN"])


def _plan(problem: Gemm, device: DeviceFacts, p: Values) -> dict[str, int]:
    """COLUMNS, THIN, WARPS, AHEAD, PARTS and KEEP for a problem; given ones stay.

    A tile has 32 rows or columns of the large operand. If tiles are fewer than about two thirds of the units,
    k is cut into PARTS, otherwise more tiles mean fewer warps.
    """
    columns = p.get("COLUMNS", int(problem.n < problem.m))
    long, few = (problem.m, problem.n) if columns else (problem.n, problem.m)
    along = along_k({"COLUMNS": columns, "ta": int(problem.trans_a), "tb": int(problem.trans_b)})
    units, thin = max(1, device.compute_units), 8 if few <= 8 else _FEW
    tiles = max(1, problem.batch * ceil_div(long, _LONG))
    is_split, is_many = round(units / tiles) > 1, tiles >= 4 * units
    warps, ahead = (16, 4) if tiles <= units else (16, 2) if thin == 8 else (8, 4)
    if is_split or is_many:
        warps, ahead = 4, 4 if is_split else 8 if along else 2
    plan = {"COLUMNS": columns, "THIN": thin, "WARPS": warps, "AHEAD": ahead // (1 + along), **p}
    deepest = problem.k // (_STEP[along] * plan["AHEAD"] * plan["WARPS"])
    parts = max(1, min(round(4 * units / tiles) if is_split else 1, deepest, 64))
    return {"PARTS": parts, "KEEP": int(2 * problem.batch * long * problem.k < _MOST_CACHED), **plan}


def _items(v: Values) -> tuple[int, int]:
    long, few = _tiles(v)
    return long * _WARP * v["WARPS"], few * v["PARTS"]


_MULTIPLY = multiply(
    "25_nv_thin.cl",
    "nv_thin",
    _items,
    lambda v: (_WARP * v["WARPS"], 1),
    (*ARGUMENTS, "P", "PARTS", "COUNTS"),
)

_NV_THIN = DESCRIBED["nv-thin"]
NV_THIN = replace(
    _NV_THIN,
    launches=Launches(
        passes=(
            replace(
                _MULTIPLY,
                role="map",
                kernel="nv_thin_counts",
                arguments=("tiles", "COUNTS"),
                items=lambda v: (v["tiles"], 1),
                group=lambda _: (_WARP, 1),
                any_group=True,
                once=True,
            ),
            replace(_MULTIPLY, when=lambda v: thin_whole({**v, **_VECTOR})),
            replace(_MULTIPLY, kernel="nv_thin_ragged", when=lambda v: not thin_whole({**v, **_VECTOR})),
        ),
        extents={"tiles": lambda v: _tiles(v)[0] * _tiles(v)[1] if "THIN" in v else 1},
        temporaries={
            "P": lambda v: (v["PARTS"] > 1) * v["PARTS"] * v["tiles"] * v["THIN"] * _LONG * 2,  # float
            "COUNTS": lambda v: 2 * v["tiles"],  # of 4 bytes
        },
        batches=True,
        edge=lambda _: _LONG,
        tile=lambda v: (_LONG, v["THIN"]) if v["COLUMNS"] else (v["THIN"], _LONG),
        either=("A", "B"),
    ),
    parameters=replace(_NV_THIN.parameters, choose=_plan),
    needs=replace(
        _NV_THIN.needs,
        lacks=MMA.lacks,
        local_elements=lambda p: 2 * p.get("WARPS", 16) * p.get("THIN", _FEW) * (_LONG + 4),
        matrix_units=_NV_THIN.needs.dtypes,
        sums={"half": "float"},
        unfit=lambda g: "" if min(g.m, g.n) <= _FEW else f"nv-thin is for m or n of {_FEW} or less",
    ),
    compilation=NV_MMA.compilation,
)
