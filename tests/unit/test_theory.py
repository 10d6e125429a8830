"""Ceilings that are derived, only where the driver tells enough."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmbench.model.device import DeviceFacts
from gemmbench.stats.ceilings import ceiling, group_local_bytes
from tests.fake_runs import CPU, GPU

H200 = replace(GPU, compute_capability=(9, 0))


@pytest.mark.parametrize(
    ("dtype", "tflops"), [("float", 66.9), ("double", 33.5), ("half", 133.8), ("int", 33.5)]
)
def test_an_h200(dtype: str, tflops: float) -> None:
    found = ceiling(H200, "flops", dtype)
    assert found is not None
    assert found.flops_per_second / 1e12 == pytest.approx(tflops, abs=0.05)
    assert found.source == ("132 units at 1980 MHz, each with the multiply-adds of compute capability 9.0")


@pytest.mark.parametrize(
    ("device", "variant", "dtype"),
    [
        (CPU, "flops", "float"),
        (GPU, "flops", "float"),  # it does not tell its capability
        (replace(H200, compute_capability=(99, 0)), "flops", "float"),
        (replace(H200, clock_mhz=0), "flops", "float"),
        (H200, "mma", "half"),
        (H200, "flops", "char"),
        (replace(H200, compute_capability=(5, 2)), "flops", "half"),
    ],
)
def test_where_it_is_not_known_there_is_none(device: DeviceFacts, variant: str, dtype: str) -> None:
    assert ceiling(device, variant, dtype) is None


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
