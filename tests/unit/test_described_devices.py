"""The ladder as planned for three described devices: a Mali-T760, an Adreno 530 and an Arc A770."""

from __future__ import annotations

import math
from pathlib import Path

import msgspec
import pytest

from gemmbench.ladder import BY_NAME, LADDER
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.suite.plan import gemm_plan

FOLDER = Path(__file__).parents[1] / "data" / "devices"
SQUARE = Gemm(1024, 1024, 1024)


def described(name: str) -> DeviceFacts:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=DeviceFacts)


MALI, ADRENO, ARC = map(described, ("mali-t760", "adreno-530", "arc-a770"))
# 32-bit registers of a core. Mali: Arm, Mali GPU Datasheet 2021. Adreno: Mesa, freedreno, ir3_compiler.c.
# Arc: Intel, GPU Occupancy Calculator: 128 threads of 1,024 registers in a subslice.
REGISTERS = {"gpu-arm": 4096, "gpu-qualcomm": 12_288, "gpu-intel": 131_072}


def planned(name: str, device: DeviceFacts, problem: Gemm = SQUARE) -> Case:
    (step,) = gemm_plan([device], [BY_NAME[name]], [problem])
    assert isinstance(step, Case), step.row.reason
    return step


def group_and_registers(case: Case, device: DeviceFacts, problem: Gemm = SQUARE) -> tuple[int, int]:
    """Work-items of a group of the multiplying kernel, and the registers that its elements of C need."""
    variant = BY_NAME[case.variant]
    values = variant.values(problem, {**case.numbers, **variant.chosen(problem, device, case.numbers)})
    multiply = next(step for step in variant.steps(values) if step.role == "multiply")
    elements = -(-problem.m * problem.n // math.prod(multiply.items(values)))
    return math.prod(multiply.group(values)), -(-elements * DTYPES[problem.dtype].itemsize // 4)


def test_the_mali_is_the_one_of_the_write_up() -> None:
    """strin/gemm-android: a Galaxy S6, clpeak's list of its GPU, double measured."""
    assert (MALI.compute_units, MALI.clock_mhz, MALI.max_work_group_size) == (8, 772, 256)
    assert MALI.max_alloc_bytes == 536_870_912
    assert "double" in MALI.dtypes
    assert MALI.family == "gpu-arm"


def test_the_adreno_takes_the_articles_kernel_in_float_and_half() -> None:
    """The article's kernel has B as an image and is for float and half; groups of 128 start there."""
    assert ADRENO.images
    assert ADRENO.family == "gpu-qualcomm"
    for dtype in ("float", "half"):
        problem = Gemm(1024, 1024, 1024, dtype)
        assert group_and_registers(planned("image-4x8", ADRENO, problem), ADRENO, problem)[0] == 128
    (step,) = gemm_plan([ADRENO], [BY_NAME["naive"]], [Gemm(64, 64, 64, "double")])
    assert not isinstance(step, Case)
    assert step.row.reason == "the device does not list cl_khr_fp64"


def test_the_arc_runs_intels_kernels() -> None:
    assert ARC.family == "gpu-intel"
    assert planned("subgroup", ARC).parameters["EXCHANGE"] == 1  # by shuffle
    planned("intel-block", ARC)


@pytest.mark.parametrize("device", [MALI, ADRENO, ARC], ids=lambda each: each.family)
def test_a_group_of_every_kernel_fits_its_device(device: DeviceFacts) -> None:
    """Presets for GPUs that nobody had: a core has registers for one work-group's elements of C."""
    ran = 0
    for step in gemm_plan([device], [BY_NAME[name] for name in LADDER], [SQUARE]):
        if isinstance(step, Case):
            group, registers = group_and_registers(step, device)
            assert group <= device.max_work_group_size, step.variant
            assert group * registers <= REGISTERS[device.family], step.variant
            ran += 1
    assert ran >= 22
