"""small and thin where vectors fit their rows, and small with cp.async, for which plain copies stand in."""

from __future__ import annotations

from functools import partial
from itertools import product

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.verify import ExactTest
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Layout, Values
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from tests.device.conftest import executor
from tests.device.test_nv_async import copied_plainly

SHAPES = [(33, 35, 160), (16, 7, 32), (5, 66, 4), (1, 1, 0)]


@pytest.fixture(autouse=True)
def one_driver(device: DeviceFacts) -> None:
    """Both run what is read by elements, in `test_gemm`; this costs compiling for seconds."""
    if device.family != "cpu-intel":
        pytest.skip("one driver is enough")


def wrong(made: GemmExecutor, name: str, given: Values) -> list[str]:
    """What is wrong on shapes whose rows begin and, of A, end where vectors do; with NaN between them."""
    variant, device = BY_NAME[name], made.runtime.facts
    parameters = variant.compiled(Gemm(8, 8, 8), device, variant.preset(device.family, given))
    bind = partial(made.bind, variant, parameters, made.programs(variant, "float", parameters))
    errors = []
    for (m, n, k), beta in product(SHAPES, (-1.0, 0.0)):  # which may not read C, where NaN is
        test = ExactTest.of(Gemm(m, n, k, "float", 2.0, beta), Layout(k + 8, -n % 4 + n + 4, -n % 4 + n + 4))
        errors.append(test.error(made._result(test, bind)))
    return [error for error in errors if error]


@pytest.mark.parametrize(
    ("name", "given"),
    [
        ("small", {}),
        ("thin", {}),
        ("thin", {"AHEAD": 1, "KC": 16}),
        ("thin", {"AHEAD": 1, "COLUMNS": 1, "THIN": 4, "PARTS": 2, "KC": 16}),
    ],
)
def test_exact_by_whole_vectors(device: DeviceFacts, name: str, given: Values) -> None:
    assert wrong(executor(device), name, given) == []


def test_exact_with_copies_without_registers(device: DeviceFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    text = kernel_files.source
    monkeypatch.setattr(runtime_module, "source", lambda *file: copied_plainly(text(*file)))
    given = {"BM": 16, "BN": 16, "BK": 4, "TM": 2, "TN": 4, "SPLIT": 2, "STAGES": 3, "ASYNC": 1}
    assert wrong(GemmExecutor(Runtime(device)), "small", given) == []
