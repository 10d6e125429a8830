"""The passes around a multiplication on tensor cores need none themselves: they run on every device."""

from __future__ import annotations

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.nvidia import VARIANTS, compiled_for
from gemmbench.ladder.variant import Layout, Pass, Values, round_up
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, FP8_DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.opencl.runtime import Runtime
from tests.device import conftest

SHAPES = [(1, 1, 1), (5, 9, 7), (33, 130, 65), (64, 70, 31), (3, 200, 129)]
CASES = [
    (variant.name, dtype)
    for variant in VARIANTS
    for dtype in variant.needs.dtypes
    if dtype not in FP8_DTYPES[1:]  # they take the same passes as the first
]


def run(runtime: Runtime, step: Pass, dtype: str, values: Values) -> tuple[np.ndarray, np.ndarray]:
    """A pass on a random operand; what it made, and what it should have."""
    rows, columns = (values[name] for name in step.arguments[:2])
    source, target = (name for name in step.arguments if name in ("A", "B", "AP", "BP", "BT"))
    pitch = values[{"AP": "aw", "BP": "bw", "BT": "kw"}[target]]
    held = np.random.default_rng(1).integers(1, 100, (rows, values["ld" + source.lower()]))
    held = held.astype(DTYPES[dtype].numpy)  # what lies between rows is no zero
    given = held[:, :columns].T if step.role == "transpose" else held[:, :columns]
    want = np.zeros((len(given), pitch), held.dtype)
    want[:, : given.shape[1]] = given
    got = np.full_like(want, 77)
    buffers = {source: runtime.filled(held), target: runtime.filled(got)}
    known = {name: np.int32(value) for name, value in values.items()} | buffers
    group = step.group(values)
    kernel = runtime.kernel(runtime.build(step.file, compiled_for(dtype)), step.kernel, group)
    kernel.set_args(*(known[name] for name in step.arguments))
    items = tuple(round_up(*pair) for pair in zip(step.items(values), group, strict=True))
    cl.enqueue_nd_range_kernel(runtime.queue, kernel, items, group)
    cl.enqueue_copy(runtime.queue, got, buffers[target])
    return got, want


@pytest.mark.parametrize(("name", "dtype"), CASES)
def test_operands_arrive_as_they_should(device: DeviceFacts, name: str, dtype: str) -> None:
    variant, runtime, roles = BY_NAME[name], conftest.runtime(device), set()
    if dtype == "double" and dtype not in device.dtypes:
        pytest.skip("the device has no double")
    for m, n, k in SHAPES:
        problem = Gemm(m, n, k, dtype)
        parameters = variant.preset(device.family, dtype=dtype)
        parameters |= variant.chosen(problem, device, parameters)
        values = variant.values(problem, parameters, Layout(k + 1, n + 2, n))
        for step in variant.steps(values)[:-1]:
            if step.once:
                continue
            roles.add(step.role)
            got, want = run(runtime, step, dtype, values)
            assert (got == want).all(), (step.kernel, m, n, k)
    assert "pad" in roles
    assert ("transpose" in roles) == (dtype in ("char", "e4m3") or (name, dtype) == ("nv-wgmma", "tf32"))
