"""cpu-amx, exact: on AMX where the CPU has it, elsewhere with tiles that are ordinary memory."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.verify import ExactTest
from gemmbench.ladder import BY_NAME, variant_of
from gemmbench.model import kernel_files
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from gemmbench.plan import gemm_plan
from tests.device.conftest import all_devices

pytestmark = pytest.mark.usefixtures("unoptimized")

_ASSEMBLY = "#define LINES("  # in amx.clh: from here to its end
_IN_MEMORY = """
#define begin_tiles() SUM tiles[1024]
#define END_TILES
#define FETCH_FAR(from)
#define ZERO_SUMS for (int x = 0; x < 1024; x++) tiles[x] = 0
#define LOAD_SUMS(from) for (int x = 0; x < 1024; x++) tiles[x] = (from)[x]
#define STORE_SUMS(to) for (int x = 0; x < 1024; x++) (to)[x] = tiles[x]
#if PER_WORD == 2
#define NUMBER(p, at) as_float((uint)((__global const ushort *)(p))[at] << 16)
#else
#define NUMBER(p, at) (int)((p)[at])
#endif
#define MULTIPLY(a, b) \\
    for (int x = 0; x < 1024; x++) \\
        for (int w = 0; w < 16 * PER_WORD; w++) \\
            tiles[x] += NUMBER(a, (x / 512 * 256 + x / 16 % 16 * 16) * PER_WORD + w) \\
                * NUMBER(b, (x / 256 % 2 * 256 + w / PER_WORD * 16 + x % 16) * PER_WORD + w % PER_WORD)
"""

SHAPES = [(1, 1, 1), (5, 7, 0), (16, 48, 32), (33, 21, 17), (70, 99, 200), (130, 65, 64)]
BLOCKS: list[dict[str, int]] = [
    {},
    {"DOWN": 2, "ACROSS": 1, "DEPTH": 2, "ITEMS": 2},
    {"DEPTH": 1, "ITEMS": 3},
]


@pytest.fixture
def cpu() -> DeviceFacts:
    device = next((each for each in all_devices() if each.type == "cpu"), None)
    if device is None:
        pytest.skip("no CPU driver: AMX is a unit of CPUs")
    return device


@pytest.fixture
def made(cpu: DeviceFacts, monkeypatch: pytest.MonkeyPatch) -> GemmExecutor:
    replace_text(monkeypatch, "amx_bf16" in cpu.units)
    return GemmExecutor(Runtime(replace(cpu, units=("amx_bf16", "amx_int8"))))


def replace_text(monkeypatch: pytest.MonkeyPatch, has_tiles: bool, old: str = "\0", new: str = "") -> None:
    """Replace something in the kernels' text and, where there are no tiles, the assembly by plain C."""
    text: Any = kernel_files.text
    assembly = text("amx.clh")[text("amx.clh").index(_ASSEMBLY) :]
    assert old == "\0" or text("gemm/26_cpu_amx.cl").count(old) > 0

    def replaced(*of: str) -> str:
        source: str = text(*of).replace(old, new)
        return source if has_tiles else source.replace(assembly, _IN_MEMORY)

    monkeypatch.setattr(runtime_module, "text", replaced)


def errors(made: GemmExecutor, problem: Gemm, blocks: dict[str, int]) -> str:
    (case,) = gemm_plan([made.runtime.facts], [BY_NAME["cpu-amx"]], [problem], blocks)
    assert isinstance(case, Case)
    bind = partial(made.bind, variant_of(case), made._compiled(case), made._programs_of(case))
    test = ExactTest.of(problem)
    return test.error(made._result(test, bind))


@pytest.mark.parametrize("dtype", ["bfloat16", "char"])
@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_exact(made: GemmExecutor, dtype: str, ops: str) -> None:
    for m, n, k in SHAPES:
        for blocks in BLOCKS:
            for batch, alpha, beta in ((1, 2.0, -1.0), (2, 1.0, 0.0)):
                problem = Gemm(m, n, k, dtype, alpha, beta, batch=batch)
                problem = replace(problem, trans_a=ops[0] == "T", trans_b=ops[1] == "T")
                assert errors(made, problem, blocks) == "", (problem, blocks)


FAULTS = {
    "a step along k is left out": ("p < count; p++", "p < count - 1; p++"),
    "a pair is swapped in the packing": ("vstore16(words, 0,", "vstore16(words << 16 | words >> 16, 0,"),
    "a tile has a wrong row": ("* 16 + r % 16, sums", "* 16 + (r ^ 1) % 16, sums"),
    "sums are not taken up again": ("LOAD_SUMS(between)", "ZERO_SUMS"),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("dtype", ["bfloat16", "char"])
def test_a_fault_is_found(
    cpu: DeviceFacts, made: GemmExecutor, dtype: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    replace_text(monkeypatch, "amx_bf16" in cpu.units, *FAULTS[fault])
    assert "differ on the exact test" in errors(made, Gemm(70, 99, 200, dtype, 2.0, -1.0), {"DEPTH": 2})
