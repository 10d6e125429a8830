"""Pieces that several variants are made of."""

from __future__ import annotations

from collections.abc import Mapping

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.records import DeviceFacts
from gemmbench.rules.variants.model import Constraint, Formula, Parameter, Pass, Shape, Values, round_up

PLAIN = ("m", "n", "k", "alpha", "A", "lda", "B", "ldb", "beta", "C", "ldc")
WITH_AT = ("m", "n", "k", "alpha", "AT", "ldat", "B", "ldb", "beta", "C", "ldc")
WITH_BT = ("m", "n", "k", "alpha", "A", "lda", "BT", "ldbt", "beta", "C", "ldc")

_HELPER = (16, 16)  # work-group of the passes around the multiplication


def multiply(file: str, kernel: str, items: Shape, group: Shape, arguments: tuple[str, ...] = PLAIN) -> Pass:
    """The pass that a variant is about."""
    return Pass("multiply", f"gemm/{file}", kernel, arguments, items, group)


def transpose(rows: str, columns: str, source: str, ld: str, target: str, target_ld: str) -> Pass:
    """target (columns x rows) = source (rows x columns) transposed."""
    return transpose_padded(rows, columns, source, ld, columns, rows, target, target_ld)


def transpose_padded(
    rows: str, columns: str, source: str, ld: str, target_rows: str, target_columns: str, target: str,
    target_ld: str,
) -> Pass:  # fmt: skip
    """target (target_rows x target_columns) = source (rows x columns) transposed, zeros past it."""
    return Pass(
        "transpose",
        "gemm/00_transpose.cl",
        "transpose",
        (rows, columns, source, ld, target_rows, target_columns, target, target_ld),
        lambda v: (v[target_rows], v[target_columns]),
        lambda _: _HELPER,
    )


def pad(
    rows: str, columns: str, source: str, ld: str, target_rows: str, target_columns: str, target: str
) -> Pass:
    """target (target_rows x target_columns) = source (rows x columns), zeros past it."""
    return Pass(
        "pad",
        "gemm/00_pad.cl",
        "pad",
        (rows, columns, source, ld, target_rows, target_columns, target),
        lambda v: (v[target_columns], v[target_rows]),
        lambda _: _HELPER,
    )


TRANSPOSE_A = transpose("m", "k", "A", "lda", "AT", "ldat")
AT_EXTENTS: Mapping[str, Formula] = {"ldat": lambda v: v["m"]}
AT: Mapping[str, Formula] = {"AT": lambda v: v["m"] * v["k"]}

TRANSPOSE_B = transpose("k", "n", "B", "ldb", "BT", "ldbt")
BT_EXTENTS: Mapping[str, Formula] = {"ldbt": lambda v: v["k"]}
BT: Mapping[str, Formula] = {"BT": lambda v: v["n"] * v["k"]}

# Lengths rounded up to whole tiles.
PADDED: Mapping[str, Formula] = {
    "mp": lambda v: round_up(v["m"], v["BM"]),
    "np": lambda v: round_up(v["n"], v["BN"]),
    "kp": lambda v: round_up(v["k"], v["BK"]),
}


def tile_parameters(
    widths: tuple[int, ...] = (32, 64, 128), micro: tuple[int, ...] = (4, 8)
) -> dict[str, Parameter]:
    """A work-group's tile of C, its depth, and the micro-tile of a work-item."""
    return {
        "BM": Parameter("rows of C in a work-group's tile", widths),
        "BN": Parameter("columns of C in a work-group's tile", widths),
        "BK": Parameter("depth of the tiles of A and B", (8, 16, 32)),
        "TM": Parameter("rows of C in a work-item's micro-tile", micro),
        "TN": Parameter("columns of C in a work-item's micro-tile", micro),
    }


ROWS = Constraint(
    lambda p: p["BM"] % p["TM"] == 0, "BM must be a multiple of TM, so that each work-item owns whole rows"
)
COLUMNS = Constraint(
    lambda p: p["BN"] % p["TN"] == 0,
    "BN must be a multiple of TN, so that each work-item owns whole columns",
)


def tile_items(v: Values) -> tuple[int, int]:
    """A work-item for each TM x TN micro-tile, in whole BM x BN tiles."""
    return round_up(v["n"], v["BN"]) // v["TN"], round_up(v["m"], v["BM"]) // v["TM"]


def tile_group(v: Values) -> tuple[int, int]:
    """A work-group for each BM x BN tile."""
    return v["BN"] // v["TN"], v["BM"] // v["TM"]


def tile_edge(v: Values) -> int:
    """The longer edge of a tile."""
    return max(v["BM"], v["BN"])


def group_shape(
    columns: str, rows: str, wide: tuple[int, ...], tall: tuple[int, ...]
) -> dict[str, Parameter]:
    """WX x WY: how many work-items across and down make a group, where the kernel does not care."""
    return {
        "WX": Parameter(f"{columns} across a work-group", wide, launch=True),
        "WY": Parameter(f"{rows} down a work-group", tall, launch=True),
    }


def group_of(v: Values) -> tuple[int, int]:
    """The group that WX and WY say."""
    return v["WX"], v["WY"]


def unsupported_type(device: DeviceFacts, dtype: str) -> str:
    """Why a device cannot compute with a data type, or ""."""
    if dtype in device.dtypes:
        return ""
    extension = DTYPES[dtype].extension
    return f"the device does not list {extension}" if extension else f"the device has no {dtype}"
