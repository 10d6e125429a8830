"""The registry of memory probes: its files, its sizes, its plan."""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest

from gemmbench.model import kernel_files
from gemmbench.model.case import Case, Skip
from gemmbench.model.device import DeviceFacts, last_level_cache
from gemmbench.model.units import GIB, MIB
from gemmbench.probes.memory import (
    BY_NAME,
    FAMILIES,
    PROBES,
    TEXEL_BYTES,
    WAYS,
    MemoryProbe,
    bandwidth_plan,
    image_shape,
    memory_plan,
    set_bytes,
    transfer_sizes,
    ways,
    working_sets,
)
from tests.unit.test_plan import DEVICE

FILLS = {"memory/fill.cl", "memory/wait.cl"}  # no probes: they fill sets, and keep a GPU busy
CPU = replace(
    DEVICE,
    last_level_cache_bytes=48 * MIB,
    global_mem_bytes=16 * GIB,
    max_alloc_bytes=8 * GIB,
    cache_bytes=MIB,
)
GPU = replace(
    CPU,
    type="gpu",
    unified_memory=False,
    last_level_cache_bytes=0,
    global_mem_bytes=140 * GIB,
    max_alloc_bytes=35 * GIB,
    image2d_max=(32768, 32768),
    max_work_group_size=1024,
    max_work_item_sizes=(1024, 1024, 64),
)


def test_every_kernel_file_is_used() -> None:
    there = {f"memory/{path.name}" for path in (kernel_files.folder() / "memory").glob("*.cl")}
    assert there == {probe.file for probe in PROBES if probe.file} | FILLS


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: probe.name)
def test_every_entry_is_whole(probe: MemoryProbe) -> None:
    assert probe.family in FAMILIES
    assert len(probe.idea) > 10
    if probe.kind == "bandwidth":
        assert probe.loads + probe.stores > 0
    if probe.kind == "transfer":
        assert probe.direction
        assert probe.fingerprint() == ""
    else:
        assert re.search(rf"\b{probe.kernel}\(", kernel_files.raw(probe.file))
        assert len(probe.fingerprint(4)) == 16


def test_names_are_unique() -> None:
    assert [name for name, count in Counter(probe.name for probe in PROBES).items() if count > 1] == []


def test_the_fingerprint_distinguishes_kernels_and_widths() -> None:
    prints = [BY_NAME[name].fingerprint(width) for name in ("global-read", "global-copy") for width in (1, 4)]
    assert len(set(prints)) == 4


@pytest.mark.parametrize(
    ("device", "cache", "size"),
    [
        (CPU, 48 * MIB, 384 * MIB),
        (replace(CPU, last_level_cache_bytes=0), 64 * MIB, 512 * MIB),  # not known: the largest of its kind
        (replace(CPU, cache_bytes=96 * MIB), 96 * MIB, 768 * MIB),  # the driver knows better
        (replace(CPU, max_alloc_bytes=128 * MIB), 48 * MIB, 128 * MIB),
        (replace(CPU, global_mem_bytes=GIB), 48 * MIB, 256 * MIB),  # a quarter
        (GPU, 256 * MIB, 8 * GIB),  # 1.8 ms at 4.7 TB/s
        (replace(GPU, global_mem_bytes=8 * GIB, max_alloc_bytes=2 * GIB), 256 * MIB, 2 * GIB),
    ],
)
def test_the_working_set_is_past_the_last_level_cache_where_memory_allows(
    device: DeviceFacts, cache: int, size: int
) -> None:
    assert last_level_cache(device) == cache
    assert set_bytes(device) == size


def test_the_staircase_goes_past_the_cache() -> None:
    for device in (CPU, GPU):
        sizes = working_sets(device)
        assert sizes[0] == 4096
        assert all(later == 2 * earlier for earlier, later in pairwise(sizes))
        assert sizes[-1] > 3 * last_level_cache(device)


def test_transfers_stay_within_what_the_device_allows() -> None:
    assert transfer_sizes(GPU)[-1] == 256 * MIB
    assert transfer_sizes(replace(GPU, max_alloc_bytes=MIB))[-1] == MIB


@pytest.mark.parametrize(
    "device", [CPU, GPU, replace(CPU, image2d_max=(8192, 8192)), replace(CPU, max_alloc_bytes=MIB)]
)
def test_the_image_fits(device: DeviceFacts) -> None:
    width, height = image_shape(device)
    assert 1 << width <= device.image2d_max[0]
    assert 1 << height <= device.image2d_max[1]
    assert TEXEL_BYTES << (width + height) <= device.max_alloc_bytes


def test_ways_are_those_that_the_device_takes() -> None:
    for bench, by_kind in WAYS.items():
        assert ways(bench, CPU) == by_kind["cpu"]
        for most in (100, 128):
            groups = [way.group for way in ways(bench, replace(GPU, max_work_group_size=most))]
            assert groups
            assert set(groups) <= {64, 128 if most == 128 else 64}
        flat = replace(GPU, max_work_item_sizes=(128, 1, 1))
        assert ways(bench, flat) == ways(bench, replace(GPU, max_work_group_size=128))


def test_every_probe_is_planned_once_for_each_parameter() -> None:
    plan = memory_plan([CPU, GPU], tuple(FAMILIES))
    keys = [step.key for step in plan if isinstance(step, Case)]
    assert len(keys) == len(plan) == len(set(keys))
    assert {key[2] for key in keys} == set(BY_NAME)
    assert {step.device for step in plan if isinstance(step, Case)} == {0, 1}


def test_families_choose() -> None:
    kinds = {step.kind for step in memory_plan([CPU], ("transfer",)) if isinstance(step, Case)}
    assert kinds == {"transfer"}
    assert memory_plan([CPU], ("compute",)) == ()


def test_images_are_unsupported_where_there_are_none() -> None:
    rows = [
        step.row for step in memory_plan([replace(CPU, images=False)], ("memory",)) if isinstance(step, Skip)
    ]
    assert {row.variant for row in rows} == {"image-read"}
    assert {(row.status, row.reason) for row in rows} == {("unsupported", "the device has no images")}


def test_a_sweep_measures_two_bandwidths_of_each_device() -> None:
    steps = bandwidth_plan([CPU, GPU])
    found = [(step.device, step.variant, step.parameters) for step in steps if isinstance(step, Case)]
    assert found == [
        (0, "global-read", {"width": 16}),
        (0, "global-copy", {"width": 16}),
        (1, "global-read", {"width": 4}),
        (1, "global-copy", {"width": 4}),
    ]
