"""cpu-amx and cpu-vnni, exact: on the unit if the CPU has it, else with plain C instead of the assembly."""

from __future__ import annotations

import platform
from dataclasses import replace
from functools import partial
from typing import Any

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.verify import ExactTest
from gemmbench.ladder import variant_of
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from tests.device.conftest import all_devices
from tests.in_process import plan_case

pytestmark = pytest.mark.usefixtures("unoptimized")

TILES = """
#if PER_WORD == 2
#define NUMBER(p, at) as_float((uint)((__global const ushort *)(p))[at] << 16)
#else
#define NUMBER(p, at) (int)((p)[at])
#endif
#define begin_tiles() SUM tiles[1024]
#define END_TILES
#define FETCH_FAR(from)
#define ZERO_SUMS for (int x = 0; x < 1024; x++) tiles[x] = 0
#define LOAD_SUMS(from) for (int x = 0; x < 1024; x++) tiles[x] = (from)[x]
#define STORE_SUMS(to) for (int x = 0; x < 1024; x++) (to)[x] = tiles[x]
#define MULTIPLY(a, b, count, next) \\
    for (int p = 0; p < count; p++, a += 2048, b += 2048) \\
        for (int x = 0; x < 1024; x++) \\
            for (int w = 0; w < 16 * PER_WORD; w++) \\
                tiles[x] += NUMBER(a, (x / 512 * 256 + x / 16 % 16 * 16) * PER_WORD + w) \\
                    * NUMBER(b, (x / 256 % 2 * 256 + w / PER_WORD * 16 + x % 16) * PER_WORD + w % PER_WORD)
"""
DOTS = """
static inline void eight_rows(__global const char *a, __global const char *b, int *sums, int count)
{
    for (int p = 0; p < count; p++, a += 2048, b += 2048)
        for (int x = 0; x < 256; x++)
            for (int w = 0; w < 64; w++) {
                const int at = (x % 32 / 16 * 256 + w / 4 * 16 + x % 16) * 4 + w % 4;
                sums[x % 32 / 16 * 256 + x / 32 * 16 + x % 16] += a[x / 32 * 64 + w] * (uchar)b[at];
            }
}
"""
# By kernel: the file with its assembly, where that begins, what replaces it, and the units that it is for
KERNELS = {
    "cpu-amx": ("amx.clh", "#define LINES(", TILES, ("amx_bf16", "amx_int8")),
    "cpu-vnni": ("vnni.clh", "#define ROW(", DOTS, ("avx512_vnni",)),
}
CASES = [("cpu-amx", "bfloat16"), ("cpu-amx", "char"), ("cpu-vnni", "char")]

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
def made(cpu: DeviceFacts, kernel: str, monkeypatch: pytest.MonkeyPatch) -> GemmExecutor:
    replace_text(monkeypatch, cpu, kernel)
    return GemmExecutor(Runtime(replace(cpu, units=KERNELS[kernel][-1])))


def replace_text(
    monkeypatch: pytest.MonkeyPatch, cpu: DeviceFacts, kernel: str, old: str = "\0", new: str = ""
) -> None:
    """Replace something in the kernels' text and, where the CPU lacks the units, the assembly by plain C."""
    text: Any = kernel_files.text
    name, begin, plain, units = KERNELS[kernel]
    assembly = text(name)[text(name).index(begin) :]
    files = (text("gemm/26_cpu_amx.cl"), plain, assembly)
    assert old == "\0" or any(old in file for file in files)

    def replaced(*of: str) -> str:
        source: str = text(*of)
        if not {*units} <= {*cpu.units}:
            source = source.replace(assembly, plain)
        return source.replace(old, new)

    monkeypatch.setattr(runtime_module, "text", replaced)


def errors(made: GemmExecutor, kernel: str, problem: Gemm, blocks: dict[str, int]) -> str:
    case = plan_case(made.runtime.facts, kernel, problem, blocks)
    bind = partial(made.bind, variant_of(case), made._compiled(case), made._programs_of(case))
    test = ExactTest.of(problem)
    return test.error(made._result(test, bind))


@pytest.mark.parametrize(("kernel", "dtype"), CASES)
@pytest.mark.parametrize(
    ("ops", "blocks"), [*(("NN", each) for each in BLOCKS), *zip(("NT", "TN", "TT"), BLOCKS, strict=True)]
)
def test_exact(made: GemmExecutor, kernel: str, dtype: str, ops: str, blocks: dict[str, int]) -> None:
    for m, n, k in SHAPES:
        for batch, alpha, beta in ((1, 2.0, -1.0), (2, 1.0, 0.0)):
            problem = Gemm(m, n, k, dtype, alpha, beta, batch=batch)
            problem = replace(problem, trans_a=ops[0] == "T", trans_b=ops[1] == "T")
            assert errors(made, kernel, problem, blocks) == "", problem


FAULTS = {
    "a step along k is left out": ("MULTIPLY(a, b, count, next);", "MULTIPLY(a, b, count - 1, next);"),
    "a pair is swapped in the packing": ("vstore16(words ^", "vstore16((words << 16 | words >> 16) ^"),
    "a tile has a wrong row": ("* 16 + r % 16, sums", "* 16 + (r ^ 1) % 16, sums"),
    "sums are not taken up again": ("LOAD_SUMS(between)", "ZERO_SUMS"),
}


@pytest.mark.parametrize(("kernel", "dtype"), CASES)
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_is_found(
    cpu: DeviceFacts, made: GemmExecutor, kernel: str, dtype: str, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()
    replace_text(monkeypatch, cpu, kernel, *FAULTS[fault])
    assert "differ on the exact test" in errors(
        made, kernel, Gemm(70, 99, 200, dtype, 2.0, -1.0), {"DEPTH": 2}
    )


@pytest.mark.skipif(platform.machine() not in ("x86_64", "AMD64"), reason="the assembly is of x86")
@pytest.mark.parametrize(("kernel", "dtype"), CASES)
def test_every_driver_compiles_the_assembly(kernel: str, dtype: str) -> None:
    """Also for a CPU without the unit: assemblers know all instructions."""
    for device in (each for each in all_devices() if each.type == "cpu"):
        able = replace(device, units=KERNELS[kernel][-1])
        case = plan_case(able, kernel, Gemm(64, 64, 64, dtype))
        assert GemmExecutor(Runtime(able)).build(case).build_s
