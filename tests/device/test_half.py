"""Half on a driver like NVIDIA's: its pragma enables the arithmetic, but there are no functions of half."""

from __future__ import annotations

from functools import partial

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder import BY_NAME
from gemmbench.model.device import DeviceFacts
from gemmbench.model.kernel_files import text
from gemmbench.model.problem import Gemm
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from tests.device.conftest import all_devices, exact_error

FUNCTIONS = ("dot", *(f"v{verb}{width}" for verb in ("load", "store") for width in (2, 4, 8, 16)))
USERS = (
    *("wide", "register-wide", "padded", "dot-v16", "dotf-v8", "dotf-v16"),
    *("block4x4-v8", "gpu-tile", "image-4x8"),
)


@pytest.fixture(scope="module")
def half_device() -> DeviceFacts:
    found = [device for device in all_devices() if "half" in device.dtypes]
    if not found:
        pytest.skip("no driver here has half")
    return found[0]


@pytest.mark.parametrize("name", USERS)
def test_kernels_need_no_functions_of_half(
    half_device: DeviceFacts, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver's own functions of these names are hidden behind others, so that a missing one shows."""
    monkeypatch.setattr(runtime_module, "text", lambda *where: f"#undef cl_khr_fp16\n{text(*where)}")
    hidden = [f"-D{function}=missing_{function}" for function in FUNCTIONS]
    options = Runtime._options
    monkeypatch.setattr(Runtime, "_options", lambda self, given: [*options(self, given), *hidden])
    made, variant = GemmExecutor(Runtime(half_device)), BY_NAME[name]
    parameters = variant.preset(half_device.family, None, "half", half_device)
    programs = made.programs(variant, "half", parameters)
    bind = partial(made.bind, variant, parameters, programs)
    for shape in ((67, 33, 29), (128, 128, 64)):
        assert exact_error(made, Gemm(*shape, "half", 2.0, -1.0), bind) == ""
