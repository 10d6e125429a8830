"""small and thin where vectors fit their rows, and small with cp.async, for which plain copies stand in."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.verify import ExactTest
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Layout, Values, laid_out
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from tests.device.conftest import executor
from tests.device.test_nv_async import copied_plainly

pytestmark = pytest.mark.usefixtures("unoptimized")

SHAPES = [(33, 35, 160), (16, 7, 32), (5, 66, 4), (1, 1, 0)]
FEW = [(16, 64, 512), (13, 70, 1300), (5, 66, 4), (3, 131, 260), (33, 64, 772), (2, 65, 0)]  # of `thin_many`


@pytest.fixture(autouse=True)
def one_driver(device: DeviceFacts) -> None:
    """Both run what is read by elements, in `test_gemm`; this costs compiling for seconds."""
    if device.family != "cpu-intel":
        pytest.skip("one driver is enough")


def wrong(made: GemmExecutor, name: str, given: Values, ops: str = "NN") -> list[str]:
    """What is wrong on shapes whose rows begin and, along k, end where vectors do; with NaN between them."""
    like = Gemm(8, 8, 8, trans_a=ops[0] == "T", trans_b=ops[1] == "T")
    variant, device = laid_out(BY_NAME[name], like), made.runtime.facts
    parameters = variant.compiled(like, device, variant.preset(device.family, given))
    bind = partial(made.bind, variant, parameters, made.programs(variant, "float", parameters))
    errors = []
    turned = [(n, m, k) if given.get("COLUMNS") else (m, n, k) for m, n, k in FEW]
    shapes = turned if "MANY" in given else SHAPES
    for (m, n, k), beta in product(shapes, (-1.0, 0.0)):  # which may not read C, where NaN is
        problem = replace(like, m=m, n=n, k=k, alpha=2.0, beta=beta)
        test = ExactTest.of(problem, Layout(*(-each % 4 + each + 4 for each in problem.tight)))
        errors.append(test.error(made._result(test, bind)))
    return [error for error in errors if error]


DIRECT = {"BM": 16, "BN": 32, "BK": 4, "TM": 4, "TN": 4, "SPLIT": 4, "STAGES": 1, "DIRECT": 1}
COLUMNS = {"AHEAD": 1, "COLUMNS": 1, "THIN": 4, "PARTS": 2, "KC": 16}
MANY = {"MANY": 64, "THIN": 16}


@pytest.mark.parametrize(
    ("name", "given", "ops"),
    [
        ("small", {}, "NN"),
        ("small", DIRECT, "NN"),
        ("thin", {"WIDE": 2}, "NN"),
        ("thin", {"KC": 16}, "NT"),
        ("thin", {"AHEAD": 1, "KC": 16}, "TN"),
        ("thin", COLUMNS, "NN"),
        ("thin", COLUMNS, "TT"),
        ("thin", {**COLUMNS, "WIDE": 2}, "NN"),
        ("thin", {"THIN": 1, "WIDE": 4, "LX": 16}, "NT"),
        ("thin", MANY, "NN"),
        ("thin", {**MANY, "COLUMNS": 1, "PARTS": 2}, "NT"),
        ("thin", MANY, "TT"),
    ],
)
def test_exact_by_whole_vectors(device: DeviceFacts, name: str, given: Values, ops: str) -> None:
    assert wrong(executor(device), name, given, ops) == []


def test_exact_with_copies_without_registers(device: DeviceFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernel_files.text
    monkeypatch.setattr(runtime_module, "text", lambda *file: copied_plainly(text(*file)))
    given = {"BM": 16, "BN": 16, "BK": 4, "TM": 2, "TN": 4, "SPLIT": 2, "STAGES": 3, "ASYNC": 1}
    assert wrong(GemmExecutor(Runtime(device)), "small", given) == []
