"""im2col on every device: bit for bit what numpy makes, and caught when broken."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmbench.gemm import workloads
from gemmbench.gemm.opencl import LoweringExecutor
from gemmbench.gemm.workloads import CONVOLUTIONS
from gemmbench.ladder import BY_NAME
from gemmbench.model import kernel_files
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from gemmbench.suite.plan import gemm_plan
from tests import in_process
from tests.device.test_gemm import QUICK


def measured(device: DeviceFacts, layer: str, dtype: str, batch: int = 1) -> Row:
    gemms = gemm_plan([device], [BY_NAME["naive"]], [Gemm(8, 8, 8)])
    plan = workloads.plan(
        [device], tuple(replace(step, dtype=dtype) for step in gemms if isinstance(step, Case)), dtype, batch
    )
    (case,) = [step for step in plan if isinstance(step, Case) and step.parameters["layer"] == layer]
    return in_process.measured(LoweringExecutor(Runtime(device)), case, QUICK)


@pytest.mark.parametrize(
    ("layer", "dtype", "batch"),
    [("conv1", "float", 1), ("conv2", "double", 2), ("conv3", "half", 1), ("conv5", "char", 3)],
)
def test_what_is_lowered_is_what_numpy_lowers(
    device: DeviceFacts, layer: str, dtype: str, batch: int
) -> None:
    row = measured(device, layer, dtype, batch)
    assert (row.kind, row.status, row.check.verdict) == ("lowering", "ok", "ok"), row.reason
    assert row.check_after is not None
    assert row.check_after.verdict == "ok"
    assert row.work is not None
    shape = next(each for each in CONVOLUTIONS if each.name == layer).shape(batch)
    assert row.work.bytes > shape.k * shape.n
    assert set(row.samples) - {"chain"} == {"kernel", "device"}


@pytest.mark.parametrize(
    ("old", "new"),
    [("y < EDGE", "y <= EDGE"), ("fx < SIZE", "fx < SIZE - 1"), ("x0 + fx", "x0 + fx + 1")],
)
def test_a_broken_im2col_is_wrong(
    device: DeviceFacts, old: str, new: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = kernel_files.source
    assert text(workloads.FILE).count(old) == 1
    monkeypatch.setattr(
        runtime_module, "source", lambda file, options, root: text(file, options, root).replace(old, new)
    )
    row = measured(device, "conv3", "float")
    assert row.status == "wrong"
    assert "elements differ from numpy's lowering" in row.reason
    assert row.samples == {}
