"""How cpu-packed divides a problem (packing, depth, blocks), and its micro-tiles by width of registers."""

from __future__ import annotations

from dataclasses import replace
from heapq import heapreplace

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Values
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import Gemm
from tests.unit.test_plan import DEVICE

VARIANT = BY_NAME["cpu-packed"]
SERVER = replace(DEVICE, last_level_cache_bytes=48 << 20)


def full(problem: Gemm, device: DeviceFacts = SERVER) -> Values:
    """All that its formulas may name."""
    preset = VARIANT.preset(device.family, dtype=problem.dtype, vector_bits=device.vector_bits)
    return VARIANT.values(problem, {**preset, **VARIANT.chosen(problem, device, preset)})


def blocks(known: Values) -> list[int]:
    """Micro-tiles in each work-item's block, in the order of their numbers."""
    across, down = VARIANT.steps(known)[-1].items(known)
    panels, tiles = -(-known["n"] // (known["NV"] * known["WIDTH"])), -(-known["m"] // known["MR"])
    return [
        min(known["PANELS"], panels - x * known["PANELS"]) * min(known["TILES"], tiles - y * known["TILES"])
        for y in range(down)
        for x in range(across)
    ]


@pytest.mark.parametrize("units", [2, 4, 16, 64])
@pytest.mark.parametrize(
    "shape", [(1000, 1000, 1000), (1024, 1024, 1024), (2048, 2048, 64), (512, 4096, 4096)]
)
def test_every_core_has_the_same_work(units: int, shape: tuple[int, int, int]) -> None:
    work = blocks(full(Gemm(*shape), replace(SERVER, compute_units=units)))
    loads = [0] * units
    for block in work:  # each goes to the core that is free first
        heapreplace(loads, loads[0] + block)
    assert sum(loads) / units >= 0.97 * max(loads)


@pytest.mark.parametrize("shape", [(1, 1, 1), (1, 5000, 3), (5000, 1, 3), (6, 64, 0), (97, 131, 700)])
def test_blocks_are_all_of_c_and_none_is_empty(shape: tuple[int, int, int]) -> None:
    known = full(Gemm(*shape))
    work = blocks(known)
    assert min(work) > 0
    assert sum(work) == -(-shape[0] // known["MR"]) * -(-shape[1] // (known["NV"] * known["WIDTH"]))


def kernels(problem: Gemm) -> list[tuple[str, tuple[int, ...]]]:
    known = full(problem)
    return [(step.kernel, step.items(known)) for step in VARIANT.steps(known)]


def test_nothing_is_packed_where_it_does_not_pay() -> None:
    assert kernels(Gemm(1, 4096, 512))[0] == ("pack_b", (0, 8))  # a pass without work-items does not run
    assert kernels(Gemm(1, 4097, 512))[0] == ("pack_b", (1, 8))  # only the panel that is not whole
    assert [name for name, _ in kernels(Gemm(1, 4096, 512))] == ["pack_b", "cpu_packed"]
    assert [name for name, _ in kernels(Gemm(4096, 128, 512))] == ["pack_b", "cpu_packed"]
    assert [name for name, _ in kernels(Gemm(4096, 4096, 512))] == ["pack_a", "pack_b", "cpu_packed"]
    token = Gemm(1, 4096, 512)
    assert VARIANT.temporary_bytes(token, full(token)) == {"AP": 0, "BP": 0}


@pytest.mark.parametrize("dtype", VARIANT.dtypes)
@pytest.mark.parametrize("cache", [1 << 20, 8 << 20, 48 << 20])
def test_what_a_block_reads_again_fits_in_the_cache(dtype: str, cache: int) -> None:
    known = full(Gemm(4096, 4096, 4096, dtype), replace(SERVER, cache_bytes=0, last_level_cache_bytes=cache))
    element = DTYPES[dtype].itemsize
    assert known["rows"] * known["KC"] * element <= min(max(cache // 8, 256 << 10), 1 << 20)
    assert known["NV"] * known["WIDTH"] * known["KC"] * element <= min(max(cache // 64, 64 << 10), 128 << 10)


def test_slices_along_k_are_alike() -> None:
    assert full(Gemm(1024, 1024, 1025))["KC"] == 342  # three of them, not 512, 512 and 1


@pytest.mark.parametrize("dtype", VARIANT.dtypes)
@pytest.mark.parametrize(("bits", "registers"), [(128, 16), (256, 16), (512, 32)])
def test_a_micro_tile_fills_the_registers(dtype: str, bits: int, registers: int) -> None:
    device = replace(DEVICE, vector_widths={"float": bits // 32})
    preset = VARIANT.preset("cpu-other", dtype=dtype, vector_bits=device.vector_bits)
    if dtype != "half":  # computed as float
        assert preset["WIDTH"] * 8 * DTYPES[dtype].itemsize == bits
    needed = preset["MR"] * preset["NV"] + preset["NV"] + 1
    assert registers // 2 < needed <= registers


def test_a_device_that_does_not_tell_its_registers_has_a_preset() -> None:
    assert replace(DEVICE, vector_widths={}).vector_bits == 0
    assert VARIANT.preset("cpu-other", vector_bits=0)["WIDTH"] == 16
