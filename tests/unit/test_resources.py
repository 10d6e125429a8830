"""What kernels take: the compiler's log, and how many work-items fit."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gemmbench.cli.kernels import sheets
from gemmbench.ladder.architectures import Fit, fit
from gemmbench.model.row import Resources
from gemmbench.opencl.runtime import registers_and_spills
from tests.fake_runs import fake_square
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


HOPPER = replace(DEVICE, type="gpu", local_mem_emulated=False, compute_capability=(9, 0))
UNKNOWN_GPU = replace(HOPPER, compute_capability=(0, 0))


@pytest.mark.parametrize(
    ("facts", "group", "local", "registers", "file", "expected"),
    [
        (HOPPER, 256, 0, 32, 65536, (2048, "work-items")),
        (HOPPER, 256, 33028, 128, 65536, (512, "registers")),
        (HOPPER, 64, 49152, 32, 65536, (4 * 64, "local memory")),
        (HOPPER, 256, 0, 33, 65536, (6 * 256, "registers")),  # 33 registers are handed out as 40
        (UNKNOWN_GPU, 64, 16 << 10, None, 0, (3 * 64, "local memory")),
        (UNKNOWN_GPU, 64, 0, None, 0, (None, "")),
        (DEVICE, 64, 16 << 10, None, 0, (None, "")),  # a CPU runs one group after the other
    ],
)
def test_how_many_work_items_fit(
    facts: Any, group: int, local: int, registers: int | None, file: int, expected: tuple[int | None, str]
) -> None:
    assert fit(facts, group, local, registers, file) == Fit(*expected)


def test_a_kernel_that_spills_and_one_that_was_not_built_are_told_apart() -> None:
    run = fake_square()
    row = next(row for row in run.rows if row.kind == "gemm" and row.device == 0)
    spilling = Resources("big", "multiply", 128, 256, 32, 0, 33028, 255, 128, 256, "registers")
    rows = (
        replace(row, status="ok", resources=(spilling,)),
        replace(row, variant="tiled", status="unsupported", reason="no such thing", resources=()),
    )
    (sheet,) = sheets(replace(run, rows=rows))
    (line,) = sheet.rows
    assert [cell.text for cell in line][:5] == [row.variant, "big", "128", "256", "32"]
    spills = line[sheet.columns.index("spills")]
    assert (spills.text, spills.style) == ("128 B", "yellow")
    assert any("no such thing" in note.text for note in sheet.notes)
