"""NT, TN and TT on a device: exact, with guard cells, in rows that vectors fit and in others."""

from __future__ import annotations

from functools import partial

import pytest

from gemmbench.gemm.verify import ExactTest
from gemmbench.ladder import BY_NAME, variant_of
from gemmbench.ladder.variant import Layout, round_up
from gemmbench.model.problem import Gemm
from tests.device.conftest import all_devices, executor
from tests.in_process import plan_case

pytestmark = pytest.mark.usefixtures("unoptimized")

SHAPES = [(33, 21, 17), (16, 48, 32), (1, 1, 1), (5, 7, 0)]
WIDEST = 16  # elements of a vector

#  kernels that read what is stored transposed; and those with a pass more, or one less, or another one
KERNELS = [
    ("gpu-tile", "float", "NT"),
    ("gpu-tile", "float", "TN"),
    ("cpu-packed", "float", "TT"),
    *(("cpu-packed", dtype, ops) for dtype in ("bfloat16", "char") for ops in ("NT", "TN", "TT")),
    ("tiled", "double", "TT"),
    ("register", "float", "TT"),
    ("padded", "float", "TT"),
    ("dot-v4", "float", "NT"),
    ("image-4x8", "float", "TT"),
    ("naive", "half", "TT"),
    ("small", "half", "TT"),  # whose passes move what they take for something else than it does
]


@pytest.mark.parametrize(("name", "dtype", "ops"), KERNELS)
def test_exact_in_every_layout(name: str, dtype: str, ops: str) -> None:
    device = next((each for each in all_devices() if not BY_NAME[name].needs.lacks(each, dtype)), None)
    if device is None:
        pytest.skip(f"no device has {dtype}")
    made = executor(device)
    for m, n, k in SHAPES:
        problem = Gemm(m, n, k, dtype, 2.0, -1.0, trans_a=ops[0] == "T", trans_b=ops[1] == "T")
        case = plan_case(device, name, problem, may_skip=True)
        parameters = made._compiled(case)
        bind = partial(made.bind, variant_of(case), parameters, made._programs_of(case))
        fitting = Layout(*(round_up(length, WIDEST) for length in problem.tight))
        for layout in (None, fitting):
            test = ExactTest.of(problem, layout)
            assert test.error(made._result(test, bind)) == "", (problem, layout)
