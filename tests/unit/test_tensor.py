"""Kernels for matrix units: which passes a problem takes, and what a device without such units is told."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmbench.ladder.nvidia import NV_MMA
from gemmbench.ladder.variant import Layout, ParameterError
from gemmbench.model.case import Case, Skip
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.plan import gemm_plan
from tests.unit.test_plan import DEVICE

H200 = replace(
    DEVICE, type="gpu", platform="NVIDIA CUDA", max_work_group_size=1024, compute_capability=(9, 0)
)


def roles(dtype: str, m: int, n: int, k: int, **layout: int) -> list[str]:
    problem = Gemm(m, n, k, dtype)
    known = NV_MMA.values(
        problem, NV_MMA.preset("gpu-nvidia", dtype=dtype), replace(Layout.tight(problem), **layout)
    )
    return [step.role for step in NV_MMA.steps(known)]


@pytest.mark.parametrize("dtype", NV_MMA.needs.dtypes)
def test_only_rows_that_do_not_start_at_16_bytes_are_padded(dtype: str) -> None:
    whole = 16 // DTYPES[dtype].itemsize
    packs = ["transpose"] if dtype == "char" else []
    assert roles(dtype, 5, 4 * whole, 3 * whole) == [*packs, "multiply"]
    assert roles(dtype, 5, 4 * whole, 3 * whole + 1) == ["pad", *packs, "multiply"]
    assert roles(dtype, 5, 4 * whole, 3 * whole + 1, lda=4 * whole) == [*packs, "multiply"]
    odd = [*packs] if dtype == "char" else ["pad"]  # what is transposed needs no padding
    assert roles(dtype, 5, 4 * whole + 1, 3 * whole) == [*odd, "multiply"]


def test_the_multiplication_takes_what_the_passes_made() -> None:
    problem = Gemm(5, 9, 7, "half")
    known = NV_MMA.values(problem, NV_MMA.preset("gpu", dtype="half"))
    *_, step = NV_MMA.steps(known)
    assert step.arguments[4:8] == ("AP", "aw", "BP", "bw")
    assert (known["aw"], known["bw"]) == (8, 16)
    sizes = NV_MMA.temporary_bytes(problem, NV_MMA.preset("gpu", dtype="half"))
    assert sizes == {"AP": 2 * 5 * 8, "BP": 2 * 7 * 16, "BT": 0}
    sizes = NV_MMA.temporary_bytes(Gemm(5, 16, 7, "char"), NV_MMA.preset("gpu", dtype="char"))
    assert sizes == {"AP": 5 * 16, "BP": 0, "BT": 16 * 16}


def test_a_tile_is_made_by_whole_warps() -> None:
    known = NV_MMA.values(Gemm(300, 257, 64, "half"), NV_MMA.preset("gpu", dtype="half"))
    *_, step = NV_MMA.steps(known)
    assert step.group(known) == (128,)
    assert step.items(known) == (3 * 3 * 128,)


@pytest.mark.parametrize("dtype", NV_MMA.needs.dtypes)
def test_a_group_can_have_more_local_memory_than_the_driver_lists(dtype: str) -> None:
    assert NV_MMA.local_bytes(dtype, {"BM": 128, "BN": 64, "ROW": 64, "STAGES": 3}) == 3 * (128 + 64) * 64
    assert NV_MMA.local_bytes(dtype, NV_MMA.preset("cpu", dtype=dtype)) <= 48 << 10
    small = replace(H200, platform="NVIDIA CUDA", compute_capability=(9, 0), local_mem_bytes=48 << 10)
    sizes = {"STAGES": 8, "BM": 128, "BN": 256, "ROW": 64, "WM": 64, "WN": 64}
    (step,) = gemm_plan([small], [NV_MMA], [Gemm(64, 64, 64, dtype)], sizes)
    assert isinstance(step, Case)
    (step,) = gemm_plan([small], [NV_MMA], [Gemm(64, 64, 64, dtype)], {**sizes, "STAGES": 10})
    assert isinstance(step, Skip)
    assert step.row.reason == "needs 240 KiB of local memory, the device has 227 KiB"


@pytest.mark.parametrize(
    ("parameters", "sentence"),
    [
        ({"WM": 48}, "WM must be a multiple of 32"),
        ({"WN": 24}, "WN must be a multiple of 16"),
        ({"BM": 96}, "BM must be a multiple of WM"),
        ({"BN": 96, "WN": 32}, "BN must be a multiple of 64"),
        ({"ROW": 48}, "ROW must be 32, 64 or 128"),
        ({"BN": 192}, "powers of two"),
        ({"BM": 64, "BN": 64}, "two warps or more"),
        ({"STAGES": 1}, "STAGES must be 2 or more"),
    ],
)
def test_a_broken_constraint_is_a_sentence(parameters: dict[str, int], sentence: str) -> None:
    with pytest.raises(ParameterError, match=sentence):
        NV_MMA.preset("gpu", {"WM": 64, "WN": 64, **parameters}, "half")


@pytest.mark.parametrize(
    ("n", "sides"),
    [
        (1024, (64, 32)),  # 128 tiles of 64 columns for 132 units; of 128 columns 64
        (2048, (128, 64)),  # 256 in 2 rounds
        (4096, (128, 64)),  # 1,024 in 8
    ],
)
def test_double_has_the_tiles_with_which_the_units_are_done_first(n: int, sides: tuple[int, int]) -> None:
    device = replace(H200, compute_units=132)
    preset = NV_MMA.preset("gpu-nvidia", dtype="double")
    chosen = NV_MMA.chosen(Gemm(n, n, n, "double"), device, preset)
    assert (chosen["BN"], chosen["WM"]) == sides
    narrow = {**preset, "BN": 64}
    assert NV_MMA.chosen(Gemm(n, n, n, "double"), device, narrow) == {"WM": 32}
    assert NV_MMA.chosen(Gemm(n, n, n, "half"), device, NV_MMA.preset("gpu-nvidia", dtype="half")) == {}


def test_a_step_of_double_is_64_bytes_deep() -> None:
    assert NV_MMA.preset("gpu", {"ROW": 32}, "half")["ROW"] == 32
    with pytest.raises(ParameterError, match="ROW must be 64 or 128 for double"):
        NV_MMA.preset("gpu", {"ROW": 32}, "double")
    assert {one["ROW"] for one in NV_MMA.space("double")} == {64, 128}
    assert {one["ROW"] for one in NV_MMA.space("char")} == {32, 64, 128}


def test_a_device_lists_no_half_and_has_tensor_cores_for_it() -> None:
    assert "half" not in H200.dtypes
    steps = gemm_plan([H200], [NV_MMA], [Gemm(64, 64, 64, dtype) for dtype in NV_MMA.needs.dtypes])
    assert all(isinstance(step, Case) for step in steps)


@pytest.mark.parametrize(
    ("dtype", "capability", "reason"),
    [
        ("half", (0, 0), "mma needs an NVIDIA device of compute capability 8.0 or later"),
        ("half", (7, 5), "mma needs an NVIDIA device of compute capability 8.0 or later; this one has 7.5"),
        ("double", (8, 6), "mma needs an NVIDIA device of compute capability 9.0 or later; this one has 8.6"),
        ("float", (9, 0), "nv-mma supports only half, bfloat16, tf32, double, char"),
    ],
)
def test_a_device_without_matrix_units_has_a_reason(
    dtype: str, capability: tuple[int, int], reason: str
) -> None:
    device = replace(DEVICE, compute_capability=capability)
    (step,) = gemm_plan([device], [NV_MMA], [Gemm(64, 64, 64, dtype)])
    assert isinstance(step, Skip)
    assert (step.row.status, step.row.reason) == ("unsupported", reason)


def test_the_passes_around_it_move_elements_without_knowing_them() -> None:
    assert NV_MMA.options("half", {"BM": 128}) == ("-DREAL_ushort", "-DMMA_half", "-DBM=128")
    assert NV_MMA.options("char", {"BM": 128}) == ("-DREAL_uchar", "-DMMA_char", "-DBM=128")
