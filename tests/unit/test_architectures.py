"""What makers document, held against what the write-ups and other tools say of the same devices."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import msgspec
import pytest

from gemmbench.ladder import BY_NAME, LADDER, architectures
from gemmbench.ladder.architectures import ARCHITECTURES, Architecture, fit
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.suite.plan import gemm_plan
from tests.fake_runs import GPU

FOLDER = Path(__file__).parents[1] / "data" / "devices"
SQUARE = Gemm(1024, 1024, 1024)


def described(name: str) -> DeviceFacts:
    return msgspec.json.decode((FOLDER / f"{name}.json").read_bytes(), type=DeviceFacts)


MALI, ADRENO, ARC = map(described, ("mali-t760", "adreno-530", "arc-a770"))
BY_ARCHITECTURE = {each.name: each for each in ARCHITECTURES}


def in_flight(name: str, device: DeviceFacts, problem: Gemm = SQUARE) -> int:
    """Work-items of a kernel on a core, as planned."""
    (step,) = gemm_plan([device], [BY_NAME[name]], [problem])
    assert isinstance(step, Case), step.row.reason
    return planned(name, device, step, problem)[1]


def planned(name: str, device: DeviceFacts, step: Case, problem: Gemm) -> tuple[int, int]:
    variant = BY_NAME[name]
    full = {**step.numbers, **variant.chosen(problem, device, step.numbers)}
    values = variant.values(problem, full)
    multiply = next(each for each in variant.steps(values) if each.role == "multiply")
    group = math.prod(multiply.group(values))
    registers = variant.wanted_registers(problem, device, step.numbers)
    room = fit(device, group, variant.local_bytes(problem.dtype, full), registers)
    assert room.items is not None
    return group, room.items


@pytest.mark.parametrize("known", ARCHITECTURES, ids=lambda each: each.name)
def test_more_registers_leave_fewer_work_items(known: Architecture) -> None:
    registers, items = zip(*known.steps, strict=True)
    assert list(registers) == sorted(set(registers))
    assert list(items) == sorted(set(items), reverse=True)
    assert known.in_flight(1) == known.resident
    assert known.in_flight(known.steps[-1][0] + 1) == 0
    assert all(known.in_flight(most) == count for most, count in known.steps)
    assert known.source


@pytest.mark.parametrize(
    ("name", "architecture"),
    [
        ("Mali-T760", "Mali Midgard"), ("Mali-T880", "Mali Midgard"), ("Mali-G71", "Mali-G71, G72"),
        ("Mali-G76", "Mali-G76"), ("Mali-G78", "Mali Valhall"), ("Mali-G31", None), ("Mali-G720", None),
        ("Mali-G51", "Mali-G51"), ("Mali-G52", None),
        ("QUALCOMM Adreno(TM) 540", "Adreno 5xx"), ("QUALCOMM Adreno(TM) 630", "Adreno 6xx, gen 1 and 2"),
        ("QUALCOMM Adreno(TM) 660", "Adreno 6xx, gen 3 and 4"), ("QUALCOMM Adreno(TM) 740", "Adreno 7xx"),
        ("QUALCOMM Adreno(TM) 621", "Adreno 6xx, gen 3 and 4"), ("QUALCOMM Adreno(TM) 610", None),
        ("QUALCOMM Adreno(TM) 620", "Adreno 6xx, gen 1 and 2"), ("QUALCOMM Adreno(TM) 702", None),
        ("Qualcomm(R) Adreno(TM) X1-85 GPU", "Adreno 7xx"),
        ("QUALCOMM Adreno(TM) 430", None), ("Apple M1 Pro", "Apple M1, M2"), ("Apple M3", None),
        ("Intel(R) HD Graphics 530", "Intel Gen9"), ("Intel(R) UHD Graphics 630", "Intel Gen9"),
        ("Intel(R) HD Graphics P530", "Intel Gen9"), ("Intel(R) HD Graphics 510", None),
        ("Intel(R) HD Graphics 500", None), ("Intel(R) UHD Graphics 605", None),
        ("Intel(R) Iris(R) Xe Graphics", "Intel Xe-LP"), ("Intel(R) UHD Graphics 770", "Intel Xe-LP"),
        ("Intel(R) Arc(TM) A770 Graphics", "Intel Xe-HPG"), ("Intel(R) Arc(TM) B580 Graphics", None),
        ("gfx600", None), ("gfx701", "AMD GCN 2"), ("gfx803", "AMD GCN 3 to 5"),
        ("gfx906:sramecc+:xnack-", "AMD GCN 3 to 5"), ("gfx908", "AMD CDNA 1"), ("gfx950", None),
        ("gfx90a", "AMD CDNA 2, 3"), ("gfx942", "AMD CDNA 2, 3"), ("gfx1030", "AMD RDNA 2"),
        ("gfx1100", "AMD RDNA 3"), ("gfx1102", None),
    ],
)  # fmt: skip
def test_a_device_is_known_by_its_name(name: str, architecture: str | None) -> None:
    known = architectures.of(replace(GPU, name=name, device_version="", compute_capability=(0, 0)))
    assert (known.name if known else None) == architecture


def test_gcn_has_the_waves_that_llvm_lists() -> None:
    """LLVM's table of waves by vector registers, before it became a formula; 256 are addressable."""
    llvm = {24: 10, 28: 9, 32: 8, 36: 7, 40: 6, 48: 5, 64: 4, 84: 3, 128: 2, 256: 1}
    steps = BY_ARCHITECTURE["AMD GCN 3 to 5"].steps
    assert dict(steps) == {most: 256 * waves for most, waves in llvm.items()}


def test_an_h100s_multiprocessor_holds_what_the_guide_says() -> None:
    known = architectures._nvidia((9, 0), 2048, 228)
    assert known.product == 65_536
    assert [known.in_flight(registers) for registers in (32, 33, 64, 128, 255)] == [
        2048,
        1536,
        1024,
        512,
        256,
    ]


# --- the three descriptions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("device", [MALI, ADRENO, ARC], ids=lambda each: each.family)
def test_a_description_is_of_its_architecture(device: DeviceFacts) -> None:
    known = architectures.of(device)
    assert known is not None
    assert known.group == device.max_work_group_size
    assert known.group_kib == device.local_mem_bytes >> 10
    assert known.half == ("half" in device.dtypes) == ("cl_khr_fp16" in device.extensions)
    assert device.local_mem_emulated == (known.core_kib is None)
    assert set(device.sub_group_sizes) <= set(known.waves)


def test_the_mali_is_the_write_ups() -> None:
    """strin/gemm-android: a Galaxy S6, clpeak's list of its GPU, double measured."""
    assert (MALI.compute_units, MALI.clock_mhz, MALI.max_work_group_size) == (8, 772, 256)
    assert MALI.max_alloc_bytes == 536_870_912
    assert "double" in MALI.dtypes
    assert MALI.family == "gpu-arm"
    known = architectures.of(MALI)
    assert known is not None
    assert known.product == 1024 * 4  # registers of 128 bits


def test_the_constraint_agrees_with_the_write_ups_ranking() -> None:
    """2 x 2 blocks of vectors of 4 were its fastest at 1024 and 2048, vectors of 16 slower than of 8."""
    best = in_flight("block2x2-v4", MALI)
    for slower in ("dot-v8", "dot-v16", "dotf-v16", "block2x2-v8", "block4x4-v4", "block4x4-v8"):
        assert in_flight(slower, MALI) < best, slower
    assert in_flight("dot-v16", MALI) * 2 == in_flight("dot-v8", MALI)


def test_the_adreno_takes_the_articles_kernel_in_float_and_half() -> None:
    """The articles' kernel has B as an image and is for float and half; groups of 128 start there."""
    assert ADRENO.images
    assert ADRENO.family == "gpu-qualcomm"
    for dtype in ("float", "half"):
        (step,) = gemm_plan([ADRENO], [BY_NAME["image-4x8"]], [Gemm(1024, 1024, 1024, dtype)])
        assert isinstance(step, Case)
        group, items = planned("image-4x8", ADRENO, step, Gemm(1024, 1024, 1024, dtype))
        assert group == 128
        assert items >= group
    (step,) = gemm_plan([ADRENO], [BY_NAME["naive"]], [Gemm(64, 64, 64, "double")])
    assert not isinstance(step, Case)
    assert step.row.reason == "the device does not list cl_khr_fp64"


def test_the_arc_runs_intels_kernels() -> None:
    assert ARC.family == "gpu-intel"
    (step,) = gemm_plan([ARC], [BY_NAME["subgroup"]], [SQUARE])
    assert isinstance(step, Case)
    assert step.parameters["EXCHANGE"] == 1  # by shuffle
    assert in_flight("intel-block", ARC) > 0


@pytest.mark.parametrize("device", [MALI, ADRENO, ARC], ids=lambda each: each.family)
def test_a_group_of_every_kernel_fits_its_device(device: DeviceFacts) -> None:
    """Presets for GPUs that nobody had: what they start, the registers of a core hold."""
    ran = 0
    for step in gemm_plan([device], [BY_NAME[name] for name in LADDER], [SQUARE]):
        if isinstance(step, Case):
            group, items = planned(step.variant, device, step, SQUARE)
            assert items >= group, step.variant
            ran += 1
    assert ran >= 22
