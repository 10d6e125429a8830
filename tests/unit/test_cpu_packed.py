"""How cpu-packed divides a problem (packing, depth, blocks), and its micro-tiles by width of registers."""

from __future__ import annotations

from dataclasses import replace
from heapq import heapreplace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.cpu import _counts
from gemmbench.ladder.variant import ParameterError, Values, laid_out
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.units import ceil_div
from gemmbench.opencl.discovery import data_caches
from gemmbench.opencl.runtime import ask_for_huge_pages
from tests.unit.test_plan import DEVICE

VARIANT = BY_NAME["cpu-packed"]
KIB, MIB = 1 << 10, 1 << 20
SERVER = replace(DEVICE, last_level_cache_bytes=48 * MIB, local_mem_bytes=256 * KIB, processor="x86_64")


def cpu(bits: int, cores: int, caches: tuple[int, ...], processor: str = "x86_64") -> DeviceFacts:
    """A made-up CPU."""
    return replace(
        SERVER,
        compute_units=cores,
        vector_widths={"float": bits // 32, "double": bits // 64},
        data_caches=caches,
        cache_bytes=caches[1],
        last_level_cache_bytes=caches[-1],
        processor=processor,
    )


LAPTOP = cpu(256, 2, (32 * KIB, 256 * KIB, 4 * MIB))
WIDE = cpu(512, 32, (48 * KIB, 2 * MIB, 60 * MIB))
BOARD = cpu(128, 4, (64 * KIB, 512 * KIB), "aarch64")


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


def kernels(problem: Gemm, device: DeviceFacts = WIDE) -> list[str]:
    known = full(problem, device)
    return [step.kernel for step in VARIANT.steps(known) if 0 not in step.items(known)]


def test_the_preset_is_what_a_device_says_of_itself() -> None:
    def preset(device: DeviceFacts, dtype: str) -> tuple[int, ...]:
        chosen = VARIANT.preset("cpu-other", dtype=dtype, device=device)
        return tuple(chosen[name] for name in ("MR", "NV", "WIDTH", "DEPTH"))

    assert preset(LAPTOP, "float") == (6, 2, 8, 1024)  # of 256 KiB a quarter: 1,024 rows of 64 bytes
    assert preset(LAPTOP, "double") == (6, 2, 4, 1024)
    assert preset(WIDE, "float") == (6, 4, 16, 1024)
    assert preset(WIDE, "double") == (6, 4, 8, 1024)
    assert preset(BOARD, "float") == (6, 4, 4, 1024)  # as many registers as AVX-512 has, a quarter as wide
    assert preset(replace(WIDE, local_mem_bytes=32 * KIB), "float") == (6, 4, 16, 128)
    assert preset(replace(BOARD, processor="x86_64"), "float") == (6, 2, 4, 1024)
    assert preset(replace(SERVER, vector_widths={}, data_caches=()), "float") == (6, 4, 16, 512)


def test_b_is_packed_by_whoever_reads_it_unless_many_do() -> None:
    assert kernels(Gemm(256, 256, 256)) == ["cpu_packed"]
    assert kernels(Gemm(4096, 2048, 4096), LAPTOP) == ["pack_b", "cpu_packed"]
    assert kernels(Gemm(8, 4096, 512)) == ["cpu_packed"]
    assert full(Gemm(8, 4096, 512))["PACKB"] == 0
    token = Gemm(1, 4096, 512)
    assert set(VARIANT.temporary_bytes(token, full(token, LAPTOP)).values()) <= {0, 4096 * 4 * 2}


def test_one_row_and_one_column_have_kernels_of_their_own() -> None:
    assert kernels(Gemm(1, 4096, 64)) == ["one_row"]
    assert kernels(Gemm(1, 4096, 4096)) == ["one_row", "add"]
    assert kernels(Gemm(4096, 1, 4096)) == ["one_column"]
    assert kernels(Gemm(1, 1, 64)) == ["one_row"]


def test_what_is_stored_transposed_is_packed() -> None:
    assert full(Gemm(8, 4096, 512, trans_b=True), WIDE)["PACKB"] == 2  # few rows, which no vector reads there
    assert kernels(Gemm(1, 4096, 64, trans_b=True)) == ["cpu_packed"]
    assert kernels(Gemm(4096, 1, 64, trans_a=True)) == ["cpu_packed"]
    assert kernels(Gemm(2048, 2048, 2048, trans_a=True), LAPTOP) == ["pack_a", "pack_b", "cpu_packed"]


def test_a_long_k_is_split_where_there_are_fewer_tiles_than_cores() -> None:
    deep = Gemm(12, 64, 8192)  # two micro-tiles
    assert full(deep, LAPTOP)["SLICES"] == 1
    known = full(deep, WIDE)
    assert known["slices"] * known["span"] >= 8192 > (known["slices"] - 1) * known["span"]
    assert known["slices"] == 16
    assert kernels(deep) == ["cpu_packed", "add"]
    assert VARIANT.temporary_bytes(deep, known)["P"] == 16 * 12 * 64 * 4


@pytest.mark.parametrize("dtype", VARIANT.needs.dtypes)
@pytest.mark.parametrize("device", [LAPTOP, WIDE, BOARD])
def test_what_is_read_again_fits_in_the_caches(dtype: str, device: DeviceFacts) -> None:
    known = full(Gemm(4096, 4096, 4096, dtype), device)
    element, near = DTYPES[dtype].itemsize, device.data_caches[1]
    assert known["KC"] <= known["DEPTH"]
    assert known["NV"] * known["WIDTH"] * known["DEPTH"] * element <= min(near // 4, device.local_mem_bytes)
    assert known["rows"] * known["KC"] * element <= 2 * near


def test_slices_along_k_are_alike() -> None:
    assert full(Gemm(1024, 1024, 2049), WIDE)["KC"] == 683  # three of them, not 1024, 1024 and 1


def test_sums_of_few_rows_go_to_c_often_only_where_b_comes_from_memory() -> None:
    assert full(Gemm(24, 110, 2596), LAPTOP)["KC"] == 866  # in three turns
    assert [full(Gemm(rows, 4096, 4096), LAPTOP)["KC"] for rows in (8, 9)] == [8, 16]


@pytest.mark.parametrize("dtype", VARIANT.needs.dtypes)
@pytest.mark.parametrize(("bits", "registers"), [(128, 16), (256, 16), (512, 32)])
def test_a_micro_tile_fills_the_registers(dtype: str, bits: int, registers: int) -> None:
    preset = VARIANT.preset("cpu-other", dtype=dtype, device=cpu(bits, 2, (32 * KIB, MIB)))
    assert preset["WIDTH"] * 8 * max(4, DTYPES[dtype].itemsize) == bits  # the shorter ones become float
    needed = preset["MR"] * preset["NV"] + preset["NV"] + 1
    assert registers // 2 < needed <= registers


def test_more_panels_than_a_row_has_room_for_are_refused() -> None:
    with pytest.raises(ParameterError, match="PANELS must be at most DEPTH"):
        VARIANT.preset("cpu-other", {"PANELS": 2000}, device=WIDE)


def test_panels_of_shorter_types_are_float_and_hold_no_more_than_exact_sums_of_char() -> None:
    problem = Gemm(64, 64, 512)
    memory = VARIANT.temporary_bytes(problem, {**full(problem), "PACKA": 1, "PACKB": 1})
    local = VARIANT.local_bytes("float", VARIANT.preset("cpu-other", device=SERVER))
    for dtype in ("bfloat16", "char"):
        short = replace(problem, dtype=dtype)
        variant, known = laid_out(VARIANT, short), full(short)
        assert known["PACKA"] == 1
        assert full(replace(short, m=1))["PACKB"] > 0
        assert variant.temporary_bytes(short, {**known, "PACKB": 1}) == memory
        assert variant.local_bytes(dtype, known) == local
    with pytest.raises(ParameterError, match="DEPTH must be at most 1024 for char"):
        VARIANT.preset("cpu-other", {"DEPTH": 1025}, "char", WIDE)


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


def test_two_parts_of_k_are_added_up_and_short_ones_are_not_made() -> None:
    assert kernels(Gemm(6, 16, 8192), LAPTOP) == ["cpu_packed", "add"]
    assert full(Gemm(6, 16, 8192), LAPTOP)["SLICES"] == 2
    assert full(Gemm(6, 16, 100), WIDE)["SLICES"] == 1


def test_a_batch_keeps_the_cores_busy_with_whole_problems() -> None:
    assert full(Gemm(12, 64, 8192, batch=64), WIDE)["SLICES"] == 1
    alone, many = (len(blocks(full(Gemm(512, 512, 512, batch=batch), WIDE))) for batch in (1, 64))
    assert alone >= 32 > 4 >= many


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


def test_b_is_copied_once_where_all_of_a_has_room() -> None:
    two = replace(
        WIDE, compute_units=2, data_caches=(32 << 10, 1 << 20, 32 << 20), last_level_cache_bytes=32 << 20
    )
    for size, rows, packed in ((1024, 1026, 2), (4096, 456, 1)):
        known = full(Gemm(size, size, size, "double"), two)
        assert (known["TILES"] * known["MR"], known["PACKB"]) == (rows, packed)


def test_what_is_read_where_it_lies_is_not_packed() -> None:
    assert kernels(Gemm(4096, 8192, 16), LAPTOP) == ["cpu_packed"]
    assert VARIANT.launches.edge({**full(Gemm(64, 64, 64), WIDE)}) == 64


def test_a_near_b_is_read_in_small_blocks_where_it_lies_if_the_first_cache_has_ways_for_it() -> None:
    two = cpu(512, 2, (48 * KIB, MIB, 32 * MIB))
    known = full(Gemm(256, 256, 256), two)
    assert (known["PACKB"], len(blocks(known)) >= 2 * two.compute_units) == (0, True)
    fewer_ways = replace(two, data_caches=(32 * KIB, MIB, 32 * MIB))
    assert full(Gemm(256, 256, 256), fewer_ways)["PACKB"] == 2
    assert len(blocks(full(Gemm(256, 256, 256), fewer_ways))) == 2
    assert full(Gemm(256, 256, 256), replace(two, processor="aarch64"))["PACKB"] == 2  # wide ways
    wide = Gemm(300, 256, 256, ld=(256, 260, 256))
    for other in (Gemm(300, 250, 256), wide, Gemm(1024, 1024, 1024), Gemm(256, 256, 256, trans_b=True)):
        assert full(other, two)["PACKB"] == 2  # vectors across two lines, a B that is far, no rows of B


def test_few_rows_read_b_where_it_lies_from_far_too_unless_its_rows_meet_in_the_second_cache() -> None:
    two = cpu(512, 2, (48 * KIB, MIB, 32 * MIB))
    known = full(Gemm(96, 3025, 363), two)
    assert (known["PACKB"], known["TILES"], len(blocks(known))) == (0, 16, 8)  # each panel comes once
    assert full(Gemm(192, 169, 1728), two)["PACKB"] == 0  # vectors across two lines
    assert full(Gemm(96, 4096, 512), two)["PACKB"] == 2
    assert full(Gemm(300, 3025, 363), two)["PACKB"] == 2


def test_shallow_blocks_are_several_for_each_core() -> None:
    assert len(blocks(full(Gemm(1000, 1000, 7), cpu(512, 2, (48 * KIB, MIB, 32 * MIB))))) == 8


def test_few_grids_are_tried_on_many_cores() -> None:
    """Most of (4 x 192)^2 grids give blocks of the same sizes."""
    rows, columns, most = 16384 // 6, 16384 // 64, 4 * 192
    grids = [(down, across) for down in _counts(rows, 1, most) for across in _counts(columns, 1, most)]
    assert len(grids) < 5000
    for length in (1, 7, rows, columns):
        every = {ceil_div(length, count) for count in range(1, min(length, most) + 1)}
        assert {ceil_div(length, count) for count in _counts(length, 1, most)} == every
