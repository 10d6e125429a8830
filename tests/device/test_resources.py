"""What the ladder's kernels take as the real drivers build them."""

from __future__ import annotations

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from tests.device.conftest import executor
from tests.in_process import plan_case


@pytest.mark.every_driver
@pytest.mark.parametrize("name", ["naive", "tiled", "padded", "image-4x8"])
def test_a_variant_is_inspected_pass_by_pass(device: DeviceFacts, name: str) -> None:
    variant = BY_NAME[name]
    case = plan_case(device, variant, Gemm(64, 64, 64))
    built = executor(device).build(case)
    assert built.source == case.source
    assert [kernel.role for kernel in built.resources].count("multiply") == 1
    for kernel in built.resources:
        assert 1 <= kernel.group <= kernel.most
        assert kernel.multiple >= 1
    if name == "tiled":
        elements = variant.needs.local_elements({k: int(v) for k, v in case.parameters.items()})
        assert built.resources[0].local_bytes >= 4 * elements
