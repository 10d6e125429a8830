"""Ceilings that are derived, only where the driver tells enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmbench.ladder.nvidia import group_local_bytes
from gemmbench.model.device import DeviceFacts
from gemmbench.stats.ceilings import ceiling, upper_bound, upper_bound_bytes, why_above
from tests.fake_runs import CPU, GPU

H200 = replace(GPU, compute_capability=(9, 0))


@pytest.mark.parametrize(
    ("dtype", "tflops"), [("float", 66.9), ("double", 33.5), ("half", 133.8), ("int", 33.5)]
)
def test_an_h200(dtype: str, tflops: float) -> None:
    top = ceiling(H200, dtype)
    assert top.per_second / 1e12 == pytest.approx(tflops, abs=0.05)
    assert top.source == ("132 units at 1980 MHz, each with the multiply-adds of compute capability 9.0")


@pytest.mark.parametrize(
    ("dtype", "tflops"),
    [
        ("half", 1070.5),
        ("bfloat16", 1070.5),
        ("tf32", 535),
        ("double", 66.9),
        ("fp8", 2141),
        ("e5m2-half", 2141),
        ("char", 2141),
    ],
)
def test_matrix_units_of_an_h200(dtype: str, tflops: float) -> None:
    top = ceiling(H200, dtype, matrix=True)
    assert top.per_second / 1e12 == pytest.approx(tflops, abs=0.7)
    assert "matrix multiply-adds of compute capability 9.0" in top.source


@pytest.mark.parametrize(
    ("device", "dtype", "matrix"),
    [
        (CPU, "float", False),
        (GPU, "float", False),  # it does not tell its capability
        (replace(H200, compute_capability=(99, 0)), "float", False),
        (replace(H200, clock_mhz=0), "float", False),
        (H200, "float", True),
        (H200, "char", False),
        (replace(H200, compute_capability=(5, 2)), "half", False),
    ],
)
def test_where_it_is_not_known_there_is_none(device: DeviceFacts, dtype: str, matrix: bool) -> None:
    assert ceiling(device, dtype, matrix) is None


def test_cpus_have_bounds() -> None:
    top, moved = upper_bound(CPU, "float"), upper_bound_bytes(CPU)
    assert top.per_second == CPU.compute_units * 2 * 16 * 2 * 7e9
    assert moved.per_second == CPU.compute_units * 192 * 7e9
    tiles = upper_bound(replace(CPU, units=("amx_bf16",)), "bfloat16", matrix=True)
    assert tiles.per_second == CPU.compute_units * 1024 * 7e9  # a product of 16 x 16 x 32 in 16 cycles
    assert upper_bound(CPU, "bfloat16", matrix=True) == upper_bound(CPU, "bfloat16")
    assert upper_bound(H200, "float") == ceiling(H200, "float")
    assert upper_bound_bytes(H200) is None


RTX_4060 = replace(GPU, compute_capability=(8, 9), compute_units=24, clock_mhz=2505)
RTX_4090 = replace(GPU, compute_capability=(8, 9), compute_units=128, clock_mhz=2520)


@pytest.mark.parametrize(
    ("device", "dtype", "listed", "reached"),
    [(RTX_4060, "float", 15.39, 16.67), (RTX_4090, "int", 41.3, 46.5)],
)
def test_a_geforce_card_may_exceed_the_clock_that_opencl_lists(
    device: DeviceFacts, dtype: str, listed: float, reached: float
) -> None:
    def is_wrong(tflops: float, max_mhz: float | None) -> bool:
        return why_above(tflops * 1e12, upper_bound(device, dtype, max_mhz=max_mhz), str) != ""

    top = upper_bound(device, dtype)
    assert top.per_second / 1e12 == pytest.approx(listed, rel=1e-3)
    assert not is_wrong(reached, None)
    assert is_wrong(1.26 * listed, None)
    assert not is_wrong(reached, 3105.0)  # by NVML
    # Where NVML says that the listed clock is the maximum, 2 % more is possible, and no more.
    assert not is_wrong(1.019 * listed, float(device.clock_mhz))
    assert is_wrong(reached, float(device.clock_mhz))


@pytest.mark.parametrize(
    ("capability", "kib"),
    [
        ((0, 0), 48),
        ((7, 5), 48),
        ((8, 0), 163),
        ((8, 6), 99),
        ((8, 7), 163),
        ((8, 9), 99),
        ((9, 0), 227),
        ((10, 0), 227),
        ((10, 3), 227),
        ((12, 0), 99),
        ((12, 1), 99),
        ((99, 0), 99),  # not known: what the least of them have
    ],
)
def test_local_memory_that_a_group_can_have(capability: tuple[int, int], kib: int) -> None:
    device = replace(GPU, compute_capability=capability, local_mem_bytes=48 << 10)
    assert group_local_bytes(device) == kib << 10


def test_a_driver_that_lists_more_is_believed() -> None:
    assert group_local_bytes(replace(H200, local_mem_bytes=1 << 20)) == 1 << 20
