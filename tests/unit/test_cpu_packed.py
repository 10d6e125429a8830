"""How cpu-packed divides a problem (packing, depth, blocks), and its micro-tiles by width of registers."""

from __future__ import annotations

from dataclasses import replace
from heapq import heapreplace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.cpu import _counts
from gemmbench.ladder.variant import Values
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div
from gemmbench.opencl.discovery import data_caches
from gemmbench.opencl.runtime import ask_for_huge_pages
from tests.unit.test_plan import DEVICE
from tests.unit.test_plans import DEVICES, cpu

VARIANT = BY_NAME["cpu-packed"]
KIB, MIB = 1 << 10, 1 << 20
SERVER = replace(DEVICE, last_level_cache_bytes=48 * MIB, local_mem_bytes=256 * KIB, processor="x86_64")


LAPTOP, WIDE, BOARD = (DEVICES[name] for name in ("laptop", "server", "board"))


def full(problem: Gemm, device: DeviceFacts = SERVER) -> Values:
    """All that its formulas may name."""
    preset = VARIANT.preset(device.family, dtype=problem.dtype, device=device)
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


@pytest.mark.parametrize("dtype", VARIANT.needs.dtypes)
@pytest.mark.parametrize("device", [LAPTOP, WIDE, BOARD])
def test_what_is_read_again_fits_in_the_caches(dtype: str, device: DeviceFacts) -> None:
    known = full(Gemm(4096, 4096, 4096, dtype), device)
    element, near = DTYPES[dtype].itemsize, device.data_caches[1]
    assert known["KC"] <= known["DEPTH"]
    assert known["NV"] * known["WIDTH"] * known["DEPTH"] * element <= min(near // 4, device.local_mem_bytes)
    assert known["rows"] * known["KC"] * element <= 2 * near


@pytest.mark.parametrize("dtype", VARIANT.needs.dtypes)
@pytest.mark.parametrize(("bits", "registers"), [(128, 16), (256, 16), (512, 32)])
def test_a_micro_tile_fills_the_registers(dtype: str, bits: int, registers: int) -> None:
    preset = VARIANT.preset("cpu-other", dtype=dtype, device=cpu(bits, 2, (32 * KIB, MIB)))
    assert preset["WIDTH"] * 8 * max(4, DTYPES[dtype].itemsize) == bits  # the shorter ones become float
    needed = preset["MR"] * preset["NV"] + preset["NV"] + 1
    assert registers // 2 < needed <= registers


def test_caches_are_those_of_data_by_level(tmp_path: Path) -> None:
    kinds = [("Instruction", 1, "64K"), ("Unified", 3, "32768K"), ("Data", 1, "32K"), ("Unified", 2, "1024K")]
    for index, (kind, level, size) in enumerate(kinds):
        folder = tmp_path / f"index{index}"
        folder.mkdir()
        for name, text in (("type", kind), ("level", str(level)), ("size", size)):
            (folder / name).write_text(f"{text}\n")
    (tmp_path / "index9").mkdir()  # a container may hide files
    assert data_caches(tmp_path) == (32 * KIB, MIB, 32 * MIB)


def test_huge_pages_are_asked_for_whole_pages_of_large_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[int, int]] = []
    library = SimpleNamespace(madvise=lambda begin, length, _: asked.append((begin.value, length.value)))
    monkeypatch.setattr("ctypes.CDLL", lambda _: library)
    monkeypatch.setattr("mmap.MADV_HUGEPAGE", 14, raising=False)
    ask_for_huge_pages(4096, 4 * MIB - 1)
    assert asked == []
    ask_for_huge_pages(4096 + 64, 4 * MIB)
    assert asked == [(2 * 4096, 4 * MIB - 4096)]


@pytest.mark.parametrize("device", [LAPTOP, WIDE, BOARD])
def test_sums_of_one_row_stay_in_the_caches(device: DeviceFacts) -> None:
    """Whole rows of B where they come from memory: it is read faster in long pieces."""
    far, near = (full(problem, device) for problem in (Gemm(1, 1 << 20, 4096), Gemm(1, 4096, 16)))
    assert far["PANELS"] * far["NV"] * far["WIDTH"] * 4 <= device.data_caches[1] // 4
    assert near["PANELS"] * near["NV"] * near["WIDTH"] * 4 <= device.data_caches[0] // 2
    whole = full(Gemm(1, 14336, 4096), WIDE)
    assert (whole["PANELS"] * whole["NV"] * whole["WIDTH"], whole["SLICES"] > 1) == (14336, True)
    given = VARIANT.preset(device.family, {"DEPTH": 16}, device=device)
    assert VARIANT.chosen(Gemm(1, 1 << 20, 4096), device, given)["PANELS"] <= 16


def test_few_grids_are_tried_on_many_cores() -> None:
    """Most of (4 x 192)^2 grids give blocks of the same sizes."""
    rows, columns, most = 16384 // 6, 16384 // 64, 4 * 192
    grids = [(down, across) for down in _counts(rows, 1, most) for across in _counts(columns, 1, most)]
    assert len(grids) < 5000
    for length in (1, 7, rows, columns):
        every = {ceil_div(length, count) for count in range(1, min(length, most) + 1)}
        assert {ceil_div(length, count) for count in _counts(length, 1, most)} == every
