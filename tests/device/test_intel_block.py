"""intel-block beyond what every variant is tested for: sizes of sub-groups, both ways to load, refusals."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from itertools import product

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl.runtime import Runtime
from gemmbench.suite.plan import gemm_plan
from tests.device.conftest import Plant, exact_error

VARIANT = BY_NAME["intel-block"]
NEEDED = "cl_intel_subgroups"
SMALL = {"GY": 2, "TM": 4, "TN": 2}

#            m   n    k: whole blocks; columns that end within one; a short step along k; all of that at once
SHAPES = [(16, 128, 64), (16, 127, 64), (16, 128, 63), (13, 45, 37)]


def answers(device: DeviceFacts, dtype: str, overrides: dict[str, int]) -> list[str]:
    """What is wrong with each exact problem, or ""."""
    executor = GemmExecutor(Runtime(device))  # its own: a test may have changed the kernel's text
    parameters = VARIANT.preset(device.family, overrides, dtype)
    options = VARIANT.options(dtype, parameters)
    programs = {file: executor.runtime.build(file, options) for file in VARIANT.files}
    bind = partial(executor.bind, VARIANT, parameters, programs)
    return [exact_error(executor, Gemm(*shape, dtype, 2.0, -1.0), bind) for shape in SHAPES]


def needs_blocks(device: DeviceFacts, dtype: str = "float") -> None:
    if NEEDED not in device.extensions or VARIANT.needs.lacks(device, dtype):
        pytest.skip(VARIANT.needs.lacks(device, dtype) or f"the device has no {NEEDED}")


@pytest.mark.parametrize(
    ("lanes", "dtype"), [*product(VARIANT.parameters["LANES"].values, ["float"]), (8, "double"), (16, "half")]
)
def test_exact_with_every_size_of_sub_group(device: DeviceFacts, lanes: int, dtype: str) -> None:
    """The layout of `exact_error` has rows at odd distances, too: halves then start at odd addresses."""
    needs_blocks(device, dtype)
    assert set(answers(device, dtype, {**SMALL, "LANES": lanes})) == {""}


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("row_of_a[i][(p0) + x] : (REAL)0", "row_of_a[i][(p0)] : (REAL)0"),  # every lane the same column
        ("BLOCK_READ, TN)((__global const BITS *)(B +", "BLOCK_READ, TN)((__global const BITS *)(B + 1 +"),
        ("column0 + j * LANES + x;", "column0 + x * TN + j;"),  # a lane's columns side by side
        ("column + j * LANES < n", "column + j * LANES < n - 1"),
    ],
)
def test_a_broken_copy_is_caught(device: DeviceFacts, old: str, new: str, plant: Plant) -> None:
    needs_blocks(device)
    plant((old, new), files=VARIANT.files)
    assert any(answers(device, "float", {**SMALL, "LANES": 8}))


def test_a_device_that_requires_sub_groups_reports_their_sizes(device: DeviceFacts) -> None:
    assert bool(device.sub_group_sizes) == ("cl_intel_required_subgroup_size" in device.extensions)


def test_the_reason_names_what_a_device_lacks(device: DeviceFacts) -> None:
    """A size of sub-groups is asked for, never assumed."""

    def reason(facts: DeviceFacts, dtype: str = "float", **overrides: int) -> str:
        (step,) = gemm_plan([facts], [VARIANT], [Gemm(64, 64, 64, dtype)], overrides)
        return f"{step.row.status}: {step.row.reason}" if isinstance(step, Skip) else "runs"

    if device.family.endswith("-pocl"):  # which lists it from 5.0 on
        listing = replace(device, extensions=(*device.extensions, NEEDED))
        assert reason(listing) == f"unsupported: PoCL lists {NEEDED}, and does not link its functions"
        return
    if NEEDED not in device.extensions:
        assert reason(device) == f"unsupported: the device does not list {NEEDED}"
        return
    assert reason(device) == "runs"
    other = replace(device, sub_group_sizes=(16, 32))
    assert reason(other, LANES=8) == "unsupported: needs sub-groups of 8, the device has them of 16, 32"
    without = tuple(name for name in device.extensions if name != "cl_intel_subgroups_long")
    older = replace(device, extensions=without)
    assert reason(older, "double") == "unsupported: the device does not list cl_intel_subgroups_long"
    assert reason(older) == "runs"
