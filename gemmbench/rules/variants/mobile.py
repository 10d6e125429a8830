"""For mobile GPUs: few registers, no fast local memory, B transposed."""

from __future__ import annotations

from dataclasses import replace

from gemmbench.rules.variants.model import Constraint, Parameter, Variant
from gemmbench.rules.variants.pieces import (
    BT,
    BT_EXTENTS,
    TRANSPOSE_B,
    WITH_BT,
    group_of,
    group_shape,
    multiply,
)

FAMILY = "mobile"
_SOURCE = "Profiling GEMM on Android (Mali-T760); Gronqvist and Lokhotmov, GPU Pro 5"


def _dot_products(name: str, idea: str, file: str, kernel: str, block: int = 1) -> Variant:
    """A variant whose name ends in its vector width and whose work-items make block x block of C."""
    width = int(name.rpartition("-v")[2])
    across, down = ("columns of C", "rows of C") if block == 1 else ("blocks of C", "blocks of C")
    return Variant(
        name=name,
        family=FAMILY,
        idea=idea.format(width),
        source=_SOURCE,
        passes=(
            TRANSPOSE_B,
            multiply(
                file,
                kernel,
                lambda v: (-(-v["n"] // block), -(-v["m"] // block)),
                group_of,
                WITH_BT,
            ),
        ),
        parameters={
            "WIDTH": Parameter("elements of a vector", (width,)),
            **group_shape(across, down, (4, 8, 16), (1, 4, 8, 16)),
        },
        presets={"default": {"WIDTH": width, "WX": 8, "WY": 8}},
        constraints=(Constraint(lambda p: p["WIDTH"] == width, f"WIDTH is {width} in {name}"),),
        extents=BT_EXTENTS,
        temporaries=BT,
        edge=lambda p: max(p["WIDTH"], block * p["WX"], block * p["WY"]),
    )


_DOT = "B transposed: each element of C is a dot product of two rows, by vectors of {}"
_DOTF = "the same by the built-in dot on the 4-wide parts of vectors of {}"
_TWO = "a 2 x 2 block of C per work-item: four dot products share the rows they load, by vectors of {}"
_FOUR = "a 4 x 4 block of C per work-item, by vectors of {}: more reuse, more registers"

VARIANTS = (
    _dot_products("dot-v4", _DOT, "11_dot.cl", "dot_rows"),
    _dot_products("dot-v8", _DOT, "11_dot.cl", "dot_rows"),
    replace(_dot_products("dot-v16", _DOT, "11_dot.cl", "dot_rows"), likely={"narrow-cpu": 2}),
    _dot_products("dotf-v8", _DOTF, "12_dotf.cl", "dotf_rows"),
    _dot_products("dotf-v16", _DOTF, "12_dotf.cl", "dotf_rows"),
    _dot_products("block2x2-v4", _TWO, "13_block2x2.cl", "block2x2", 2),
    _dot_products("block2x2-v8", _TWO, "13_block2x2.cl", "block2x2", 2),
    _dot_products("block4x4-v4", _FOUR, "14_block4x4.cl", "block4x4", 4),
    _dot_products("block4x4-v8", _FOUR, "14_block4x4.cl", "block4x4", 4),
)
