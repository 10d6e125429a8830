from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gemmbench.ladder import BY_NAME, VARIANTS
from gemmbench.ladder.variant import ParameterError
from gemmbench.model.case import Case, Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.suite.options.measuring import SquareOptions
from gemmbench.suite.plan import alternating_with, gemm_plan, peak_plan, quick_widths
from tests import fake_runs
from tests.in_process import plan_case

DEVICE = replace(
    fake_runs.CPU,
    platform="Platform",
    vendor="Vendor",
    name="Device",
    driver="1.0",
    clock_mhz=0,
    global_mem_bytes=1 << 30,
    max_alloc_bytes=1 << 28,
    local_mem_bytes=48 << 10,
    cache_bytes=1 << 20,
    max_work_group_size=4096,
    max_work_item_sizes=(4096, 4096, 4096),
    image2d_max=(4096, 4096),
    dtypes=("float", "double", "int"),
    vector_widths={"float": 16, "double": 8},
    extensions=("cl_khr_fp64",),
    origin="system",
)
SQUARE = [Gemm(64, 64, 64)]


def skipped(device: DeviceFacts, problem: Gemm, name: str) -> str:
    (step,) = gemm_plan([device], [BY_NAME[name]], [problem])
    return f"{step.row.status}: {step.row.reason}"


def test_an_image_past_the_devices_cap_is_skipped_with_the_cap_named() -> None:
    assert skipped(DEVICE, Gemm(8, 8, 5000), "image-4x8") == (
        "skipped: B is an image 5000 pixels high, the device allows 4096"
    )
    wide = Gemm(8, 4 * 4096 + 1, 8)
    assert skipped(DEVICE, wide, "image-4x8") == (
        "skipped: B is an image 4097 pixels wide, the device allows 4096"
    )
    assert skipped(replace(DEVICE, images=False), Gemm(8, 8, 8), "image-4x8") == (
        "unsupported: the device has no images"
    )
    assert "supports only float, half" in skipped(DEVICE, Gemm(8, 8, 8, "double"), "image-4x8")


def test_one_of_several_extensions_is_enough() -> None:
    shuffle = {"EXCHANGE": 1}
    (step,) = gemm_plan([DEVICE], [BY_NAME["subgroup"]], SQUARE, shuffle)
    assert step.row.reason == "the device does not list cl_khr_subgroup_shuffle or cl_intel_subgroups"
    able = replace(DEVICE, extensions=("cl_intel_subgroups", "cl_intel_required_subgroup_size"))
    (step,) = gemm_plan([able], [BY_NAME["subgroup"]], SQUARE, shuffle)
    assert isinstance(step, Case)


def test_variants_are_interleaved_problem_by_problem() -> None:
    plan = gemm_plan([DEVICE], VARIANTS, [Gemm(8, 8, 8), Gemm(16, 16, 16)])
    keys = [step.row.key if isinstance(step, Skip) else step.key for step in plan]
    assert [problem.m for *_, problem in keys if problem] == [8] * len(VARIANTS) + [16] * len(VARIANTS)
    assert {name for _, _, name, *_ in keys} == {variant.name for variant in VARIANTS}


@pytest.mark.parametrize(
    ("name", "dtype", "notes"),
    [
        ("nv-mma", "tf32", ["tensor cores truncate operands to tf32: up to twice the error of rounding"]),
        ("cublas", "tf32", ["cublas rounds operands to tf32, to nearest"]),
        ("nv-mma", "half", []),
    ],
)
def test_rows_of_tf32_say_who_makes_the_operands_shorter(name: str, dtype: str, notes: list[str]) -> None:
    nvidia = replace(fake_runs.GPU, compute_capability=(9, 0))
    (case,) = gemm_plan([nvidia], [BY_NAME[name]], [Gemm(64, 64, 64, dtype)])
    assert list(case.notes) == notes


def test_the_host_is_measured_once_for_several_devices() -> None:
    plan = gemm_plan([DEVICE, DEVICE], [BY_NAME["naive"], BY_NAME["numpy"]], SQUARE)
    assert [step.device for step in plan if isinstance(step, Case)] == [0, -1, 1]


def test_what_a_device_lacks_is_a_row_with_the_reason() -> None:
    half = Gemm(64, 64, 64, "half")
    assert skipped(DEVICE, half, "naive") == "unsupported: the device does not list cl_khr_fp16"
    assert skipped(DEVICE, half, "numpy") == "unsupported: numpy has no BLAS for half"
    small_groups = replace(DEVICE, max_work_group_size=12)
    assert "work-groups of 256" in skipped(small_groups, SQUARE[0], "tiled")
    thin = replace(DEVICE, max_work_item_sizes=(4, 4, 4))
    assert "16 work-items in one dimension" in skipped(thin, SQUARE[0], "tiled")
    no_local = replace(DEVICE, local_mem_bytes=256)
    assert "needs 2.00 KiB of local memory" in skipped(no_local, SQUARE[0], "tiled")


def test_a_preset_whose_groups_a_device_does_not_take_gives_way_to_the_nearest() -> None:
    mobile = replace(DEVICE, max_work_group_size=128)
    (step,) = gemm_plan([mobile], [BY_NAME["tiled"]], SQUARE)
    assert (step.parameters, step.given) == ({"TS": 8}, ())
    assert step.notes == (
        "TS=8 instead of the preset's, which needs work-groups of 256, the device supports 128",
    )
    problem = Gemm(64, 64, 64)
    for name in ("coarse", "wide", "gpu-tile"):
        step = plan_case(replace(mobile, max_work_group_size=32), name, problem)
        values = BY_NAME[name].values(problem, step.numbers)
        own = [one for one in BY_NAME[name].steps(values) if one.role == "multiply"]
        assert all(math.prod(each.group(values)) <= 32 for each in own), name
    (asked,) = gemm_plan([mobile], [BY_NAME["tiled"]], SQUARE, {"TS": 16})
    assert asked.row.reason == "needs work-groups of 256, the device supports 128"


def test_groups_of_the_launch_alone_need_no_other_preset() -> None:
    small = replace(DEVICE, max_work_group_size=32, max_work_item_sizes=(16, 8, 1))
    (step,) = gemm_plan([small], [BY_NAME["naive"]], SQUARE)
    assert (step.parameters, step.notes) == ({"WX": 16, "WY": 16}, ())
    (asked,) = gemm_plan([small], [BY_NAME["naive"]], SQUARE, {"WX": 32})
    assert isinstance(asked, Skip)


def test_what_does_not_fit_is_skipped_before_it_runs() -> None:
    one_buffer = Gemm(10_000, 10_000, 16)
    assert "C needs 381 MiB, the device allows 256 MiB" in skipped(DEVICE, one_buffer, "naive")
    in_all = replace(DEVICE, max_alloc_bytes=1 << 30)
    assert "of device memory, the device has" in skipped(in_all, Gemm(11_000, 11_000, 11_000), "naive")
    # NVIDIA's driver allocates more than it reports, up to what is free.
    nvidia = replace(DEVICE, platform="NVIDIA CUDA", type="gpu")
    plan_case(nvidia, "naive", Gemm(8500, 8500, 8500))
    roomy = replace(DEVICE, max_alloc_bytes=1 << 50, global_mem_bytes=1 << 50)
    assert "32-bit indexing" in skipped(roomy, Gemm(60_000, 60_000, 1), "naive")


def test_overrides_reach_only_the_variants_that_have_them() -> None:
    plan = gemm_plan([DEVICE], [BY_NAME["naive"], BY_NAME["tiled"]], SQUARE, {"TS": 8})
    assert [step.parameters for step in plan if isinstance(step, Case)] == [{"WX": 16, "WY": 16}, {"TS": 8}]
    with pytest.raises(ParameterError, match="no chosen kernel has a parameter BK"):
        gemm_plan([DEVICE], [BY_NAME["tiled"]], SQUARE, {"BK": 8})


def test_a_peak_is_planned_for_every_type_and_width() -> None:
    plan = peak_plan([DEVICE], ["float", "half"], [1, 4], first=3)
    assert [(s.device, s.dtype, s.parameters["width"]) for s in plan if isinstance(s, Case)] == [
        (3, "float", 1),
        (3, "float", 4),
    ]
    assert [s.row.status for s in plan if isinstance(s, Skip)] == ["unsupported"] * 2
    assert quick_widths(DEVICE, "float") == (1, 16)
    assert quick_widths(replace(DEVICE, vector_widths={"half": 32}), "half") == (1, 16)
    assert quick_widths(replace(DEVICE, type="gpu", vector_widths={"float": 1}), "float") == (1, 2)


def test_keys_tell_cases_apart_and_survive_the_row() -> None:
    plan = gemm_plan([DEVICE], VARIANTS, [Gemm(8, 8, 8), Gemm(8, 8, 9), Gemm(8, 8, 8, "double")])
    cases = [step for step in plan if isinstance(step, Case)]
    assert len({case.key for case in cases}) == len(cases)
    assert all(case.row("failed", "x").key == case.key for case in cases)


@pytest.mark.parametrize("bad", [{"m": -1}, {"k": -5}, {"dtype": "quad"}])
def test_a_problem_that_is_none_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"must be 0 or more|unknown data type"):
        Gemm(**{"m": 1, "n": 1, "k": 1, **bad})


@pytest.mark.parametrize(("alpha", "beta", "name"), [(1.5, 0.0, "alpha"), (2.0, -0.5, "beta")])
def test_integers_are_scaled_by_whole_numbers_alone(alpha: float, beta: float, name: str) -> None:
    with pytest.raises(ParameterError, match=f"{name} must be a whole number for char"):
        gemm_plan([DEVICE], [BY_NAME["naive"]], [Gemm(8, 8, 8, "char", alpha, beta)])


def test_alpha_must_fit_the_type_of_c() -> None:
    able = replace(DEVICE, dtypes=(*DEVICE.dtypes, "half"))
    with pytest.raises(ParameterError, match=r"alpha = 1e\+06 is beyond the range of half"):
        gemm_plan([able], [BY_NAME["tiled"]], [Gemm(8, 8, 8, "half", alpha=1e6)])


def test_a_library_that_was_named_is_shown_even_if_it_cannot_run() -> None:
    assert SquareOptions(kernels="tiled", baseline="cublas,numpy").named == ("tiled", "cublas", "numpy")
    assert SquareOptions(kernels="best", baseline="all").named == ()


def test_sums_that_could_leave_the_integers_of_c_are_skipped() -> None:
    hopper = replace(DEVICE, type="gpu", compute_capability=(9, 0))
    reason = "skipped: sums of 131072 products could overflow C"
    assert skipped(hopper, Gemm(8, 16, 2**17, "char"), "nv-mma") == reason
    plan_case(hopper, "nv-mma", Gemm(8, 16, 2**16, "char"))


def test_c_counts_in_its_own_type() -> None:
    problem = Gemm(100, 200, 10, "bfloat16")
    assert problem.bytes_of == {"A": 2000, "B": 4000, "C": 80_000}
    assert problem.operand_bytes == 86_000
    assert Gemm(100, 200, 10, "char").bytes_of["C"] == 80_000
    assert Gemm(100, 200, 10, "half").bytes_of["C"] == 40_000


# --- in turn with another kernel ----------------------------------------------------------------------------


def paired(name: str, *problems: Gemm, **overrides: int) -> dict[str, list[Case | Skip]]:
    variants = [BY_NAME[each] for each in ("naive", "tiled", "numpy")]
    plan = gemm_plan([DEVICE], variants, problems, overrides)
    by_variant: dict[str, list[Case | Skip]] = {}
    for step in alternating_with(plan, [DEVICE], BY_NAME[name], overrides, None, lambda *_: None):
        by_variant.setdefault((step.row if isinstance(step, Skip) else step).variant, []).append(step)
    return by_variant


def test_every_other_kernel_is_interleaved_with_the_versus_kernel() -> None:
    plan = paired("tiled", Gemm(64, 64, 64), Gemm(128, 128, 128), TS=8)
    for step, size in zip(plan["naive"], (64, 128), strict=True):
        assert (step.versus.variant, step.versus.parameters) == ("tiled", {"TS": 8})
        assert step.versus.problem == Gemm(size, size, size)
    others = [step for name in ("tiled", "numpy") for step in plan[name]]
    assert all(isinstance(step, Case) and step.versus is None for step in others)


def test_the_hosts_blas_can_be_what_kernels_are_timed_alternating_with() -> None:
    (step,) = paired("numpy", Gemm(64, 64, 64))["tiled"]
    assert (step.versus.variant, step.versus.device) == ("numpy", -1)


def test_a_kernel_that_the_device_cannot_run_is_nothing_to_be_timed_alternating_with() -> None:
    with pytest.raises(ParameterError, match=r"^--versus nv-mma cannot run on Device: nv-mma supports only"):
        paired("nv-mma", Gemm(64, 64, 64))


def test_where_a_problem_does_not_fit_the_other_kernel_the_row_says_so() -> None:
    plan = paired("image-4x8", Gemm(64, 64, 64), Gemm(64, 64, 32768))
    small, large = plan["tiled"]
    assert small.versus is not None
    assert large.versus is None
    (note,) = large.notes
    assert note.startswith("not interleaved with image-4x8: ")
