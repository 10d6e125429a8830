"""cpu-packed with every micro-tile and every way to read A and B, on the shapes that tell them apart."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import laid_out
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from tests.device.conftest import exact_error, executor

VARIANT = BY_NAME["cpu-packed"]

#        m    n    k     for micro-tiles of 6 x 64 and 6 x 32
SHAPES = [
    (6, 64, 16),  # one whole tile
    (13, 130, 40),  # a row left over, two columns
    (8, 97, 33),  # two rows left over, more than half a panel
    (21, 25, 7),  # three rows left over, less than half a panel
    (1, 200, 50),
    (2, 1, 90),
    (50, 3, 1),
    (1, 70, 21),
    (1, 149, 300),  # rows that lie alike in their lines
    (29, 1, 75),
]

WAYS = [  # PACKA, PACKB, SLICES, TILES: blocks of more than 20 x 6 rows copy a last panel
    (0, 0, 1, 21),
    (0, 1, 1, 2),
    (0, 2, 3, 25),
    (1, 0, 1, 2),
    (1, 1, 3, 2),
    (1, 2, 1, 2),
]


@pytest.mark.parametrize(
    ("bits", "dtype"),
    [(128, "float"), (256, "float"), (512, "float"), (512, "double"), (256, "char"), (512, "bfloat16")],
)
def test_exact_however_it_is_packed(device: DeviceFacts, bits: int, dtype: str) -> None:
    made = executor(device)
    narrower = replace(device, vector_widths={**device.vector_widths, "float": bits // 32})
    variant = laid_out(VARIANT, Gemm(1, 1, 1, dtype))
    preset = {**variant.preset(device.family, dtype=dtype, device=narrower), "DEPTH": 24}
    programs = {file: made.runtime.build(file, variant.options(dtype, preset)) for file in variant.files}
    for pack_a, pack_b, slices, tiles in WAYS:
        launch = {
            "KC": 16 if slices == 1 else 40,
            "TILES": tiles,
            "PANELS": 1,
            "SLICES": slices,
        }  # DEPTH is less than 40
        blocks = {"PACKA": pack_a, "PACKB": pack_b, **launch}
        bind = partial(made.bind, variant, {**preset, **blocks}, programs)
        for m, n, k in SHAPES:
            for alpha, beta in ((1.0, 0.0), (2.0, -1.0)):
                problem = Gemm(m, n, k, dtype, alpha, beta)
                assert exact_error(made, problem, bind) == "", (problem, blocks)
