"""What kernels take: the compiler's log, and the groups that a driver takes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pyopencl as cl
import pytest

from gemmbench.cli.kernels import resource_sheets
from gemmbench.gemm.opencl import GemmExecutor, smaller_notes
from gemmbench.ladder import BY_NAME
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Resources
from gemmbench.opencl.runtime import BuiltProgram, Runtime, errors, registers_and_spills
from tests.fake_runs import CPU, GPU, POCL, fake_square
from tests.in_process import plan_case
from tests.unit.test_plan import DEVICE

LOG = """(): Warning: Function pad is a kernel, so overriding noinline attribute.

ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'unpad' for 'sm_90a'
ptxas info    : Function properties for unpad
ptxas         .     0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 14 registers, used 0 barriers
ptxas info    : Compiling entry function 'padded' for 'sm_90a'
ptxas info    : Function properties for padded
ptxas         .     64 bytes stack frame, 128 bytes spill stores, 256 bytes spill loads
ptxas info    : Used 128 registers, used 1 barriers, 33028 bytes smem
"""


def test_the_compilers_log_is_read_kernel_by_kernel() -> None:
    assert registers_and_spills(LOG, "padded") == (128, 128)
    assert registers_and_spills(LOG, "unpad") == (14, 0)
    assert registers_and_spills(LOG, "pad") == (None, None)
    assert registers_and_spills("", "naive") == (None, None)


def test_a_kernel_that_spills_differs_from_one_that_was_not_built() -> None:
    run = fake_square()
    row = next(row for row in run.rows if row.kind == "gemm" and row.device == 0)
    spilling = Resources("big", "multiply", 128, 256, 32, 0, 33028, 255, 128)
    rows = (
        replace(row, status="ok", resources=(spilling,)),
        replace(row, variant="tiled", status="unsupported", reason="no such thing", resources=()),
    )
    (sheet,) = resource_sheets(replace(run, rows=rows))
    (line,) = sheet.rows
    assert [cell.text for cell in line][:5] == [row.variant, "big", "128", "256", "32"]
    spills = line[sheet.columns.index("spills")]
    assert (spills.text, spills.style) == ("128 B", "yellow")
    assert any("no such thing" in note.text for note in sheet.notes)


class SmallKernel:
    """A compiled kernel of a driver that takes so many work-items in a group of any of them."""

    most = 32
    required = (0, 0, 0)

    def __init__(self, program: object, name: str) -> None:
        self.name = name

    def get_work_group_info(self, what: int, device: object) -> Any:
        info = cl.kernel_work_group_info
        return {info.WORK_GROUP_SIZE: self.most, info.COMPILE_WORK_GROUP_SIZE: self.required}.get(what, 0)


def built_for(
    monkeypatch: pytest.MonkeyPatch,
    name: str,
    given: dict[str, int] | None = None,
    device: DeviceFacts = DEVICE,
) -> Any:
    """What a variant becomes on such a driver, and the notes of its row."""
    monkeypatch.setattr(cl, "Kernel", SmallKernel)
    runtime = object.__new__(Runtime)
    runtime.facts, runtime.device = device, None
    executor = GemmExecutor(runtime)
    case = plan_case(device, name, Gemm(64, 64, 64), given)
    programs = dict.fromkeys(BY_NAME[name].files, BuiltProgram(None, 0.5, ""))
    smaller = executor._smaller_groups(case, programs)
    return executor._built(case, programs, smaller), smaller_notes(smaller)


@pytest.mark.parametrize(("device", "has_private"), [(CPU, False), (POCL, False), (GPU, True)])
def test_private_memory_is_shown_where_it_is_that_of_a_work_item(
    device: DeviceFacts, has_private: bool
) -> None:
    """Intel's runtime reported 4.25 KiB for an array of 256 bytes, and PoCL 1 KiB for every kernel."""
    run = fake_square()
    row = next(row for row in run.rows if row.kind == "gemm" and row.device == 0)
    row = replace(row, status="ok", resources=(Resources("priv", "multiply", 64, 128, 32, 4352, 2048),))
    (sheet,) = resource_sheets(replace(run, header=replace(run.header, devices=(device,)), rows=(row,)))
    texts = [cell.text for cell in sheet.rows[0]]
    assert len(texts) == len(sheet.columns)
    assert ("4.25 KiB" in texts, "private" in sheet.columns) == (has_private, has_private)
    assert any(note.label == "private" for note in sheet.notes) == has_private
    assert texts[sheet.columns.index("local")] == "2.00 KiB"


def test_a_kernel_is_launched_in_the_groups_that_its_driver_takes(monkeypatch: pytest.MonkeyPatch) -> None:
    built, notes = built_for(monkeypatch, "naive")
    assert built.choice == {"WX": 8, "WY": 4}
    assert [(kernel.group, kernel.most) for kernel in built.resources] == [(32, 32)]
    assert notes == ("work-groups of 8x4 instead of 16x16: the compiled kernel supports no more",)
    monkeypatch.setattr(SmallKernel, "most", 256)
    built, notes = built_for(monkeypatch, "naive")
    assert (built.choice, notes) == ({}, ())
    assert built.resources[0].group == 256


def test_groups_that_were_asked_for_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NotMeasuredError, match="naive supports work-groups of up to 32 work-items, not 128"):
        built_for(monkeypatch, "naive", {"WX": 8})


def test_a_large_buffer_is_filled_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """NVIDIA's driver hung at 2^31 words, and filled 6 GiB."""
    parts: list[tuple[int, int]] = []
    monkeypatch.setattr(cl, "enqueue_fill_buffer", lambda *given: parts.append(given[-2:]))
    runtime = object.__new__(Runtime)
    runtime.queue = None
    runtime.fill(None, b"\0", (2 << 30) + 5)
    assert parts == [(0, 1 << 30), (1 << 30, 1 << 30), (2 << 30, 5)]


@pytest.mark.parametrize("required", [(0, 0, 0), (16, 16, 1)])
def test_nvidias_limit_of_256_counts_only_where_the_source_requires_a_group(
    required: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its driver reports 256 for every other kernel, and launches 1,024 work-items."""
    monkeypatch.setattr(SmallKernel, "most", 256)
    monkeypatch.setattr(SmallKernel, "required", required)
    nvidia = replace(DEVICE, type="gpu", platform="NVIDIA CUDA", max_work_group_size=1024)
    if any(required):
        runtime = object.__new__(Runtime)
        runtime.facts, runtime.device = nvidia, None
        assert runtime.group_limit(SmallKernel(None, "tiled")) == (256, required)
        return
    built, notes = built_for(monkeypatch, "naive", {"WX": 32, "WY": 32}, nvidia)
    assert ([(kernel.group, kernel.most) for kernel in built.resources], notes) == ([(1024, 1024)], ())


@pytest.mark.parametrize(
    ("routine", "code", "status", "sentence"),
    [
        (
            "clEnqueueNDRangeKernel",
            cl.status_code.OUT_OF_RESOURCES,
            "unsupported",
            "the device has too few registers or too little local memory for such a work-group: ",
        ),
        (
            "clWaitForEvents",
            -9999,
            "failed",
            "a kernel accessed memory outside its buffers; this process cannot use the device again: ",
        ),
        ("clFinish", -1234, "failed", "the driver reported an unknown error (-1234): "),
        ("clFinish", cl.status_code.INVALID_VALUE, "failed", "the driver reported an error: "),
    ],
)
def test_an_error_of_the_driver_becomes_a_sentence(
    routine: str, code: int, status: str, sentence: str
) -> None:
    """NVIDIA's driver answers -9999 after an access outside a buffer, which OpenCL does not name."""
    with pytest.raises(NotMeasuredError) as caught, errors():
        raise cl.RuntimeError(cl._cl._ErrorRecord(routine, code, ""))
    assert (caught.value.status, caught.value.restart) == (status, code != cl.status_code.INVALID_VALUE)
    assert caught.value.reason.startswith(f"{sentence}{routine} failed: ")


def test_a_device_of_opencl_1_1_gets_its_own_language(monkeypatch: pytest.MonkeyPatch) -> None:
    runtime = object.__new__(Runtime)
    runtime.facts = DEVICE
    assert runtime._options(("-DTS=8",)) == ["-cl-std=CL1.2", "-DTS=8"]
    runtime.facts = replace(DEVICE, device_version="OpenCL 1.1 Mesa 22.3.6")
    assert runtime._options(("-DTS=8",)) == ["-cl-std=CL1.1", "-Dstatic=", "-Dinline=", "-DTS=8"]


def test_variants_share_the_programs_of_their_helper_kernels() -> None:
    executor = GemmExecutor.__new__(GemmExecutor)
    built: Any = SimpleNamespace(build=lambda *key: key)
    executor.runtime = built
    keys: dict[str, set[object]] = {}
    for name in ("rect", "register-wide", "prefetch", "padded"):
        variant = BY_NAME[name]
        for file, key in executor.programs(variant, "float", variant.preset("")).items():
            keys.setdefault(file, set()).add(key)
    assert keys["gemm/00_pad.cl"] == {("gemm/00_pad.cl", ("-DREAL_float",), "", "")}
    assert keys["gemm/00_transpose.cl"] == {("gemm/00_transpose.cl", ("-DREAL_float",), "", "")}
    assert len(keys) == 2 + 4  # and a program for each multiplication
    wgmma = BY_NAME["nv-wgmma"]
    aimed: Any = executor.programs(wgmma, "half", wgmma.preset(""))
    assert [file for file, key in aimed.items() if key[3]] == ["gemm/21_nv_wgmma.cl"]
