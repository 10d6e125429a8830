"""Launches in the manner of other tools on a device: timed, and C still right after them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Case, Operands, Policy, Values
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch, Manner, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.opencl.batches import EXTENSION
from gemmbench.suite.plan import gemm_plan
from tests.device.conftest import executor


@pytest.mark.parametrize("values", ["normal", "zeros"])
def test_launches_in_other_manners_leave_the_right_answer(device: DeviceFacts, values: Values) -> None:
    problem = Gemm(16, 16, 16, "float")
    (case,) = gemm_plan([device], [BY_NAME["naive"]], [problem], operands=Operands(values=values))
    assert isinstance(case, Case)
    bench = executor(device).prepare(case, Policy(budget_s=1.0))
    assert bench.verify("before").check.verdict == "ok"
    for manner, scope in (
        (Manner(flush_bytes=4096, resets=True, warms=2), "device"),
        (Manner(waits=True, held=True), "device"),
        (Manner(wall=True), "host"),
    ):
        batch = bench.launches(3, manner)
        assert list(batch.each) == [scope]
        assert len(batch.each[scope]) == 3
        assert all(0 < seconds <= batch.end - batch.begin for seconds in batch.each[scope])
    assert bench.launches(4, Manner(apart=False)).each == {}
    chain = bench.start("chain", 201)  # in two parts, of which the second is a single launch
    assert isinstance(chain, Batch)
    assert 0 < 201 * chain.seconds["chain"] <= chain.end - chain.begin
    assert bench.verify("after").check.verdict == "ok"


def test_a_chain_is_replayed_from_a_command_buffer(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    (case,) = gemm_plan([device], [BY_NAME["naive"]], [Gemm(16, 16, 16)])
    assert isinstance(case, Case)
    bench = executor(device).prepare(case, Policy(budget_s=1.0))
    replayed = Manner(apart=False, graph=True)
    if EXTENSION in device.extensions:
        assert bench.verify("before").check.verdict == "ok"
        queue = bench.runtime.queue
        for _ in range(2):  # recorded, and then as it was recorded
            bench._on_device()
            cl.enqueue_fill_buffer(queue, bench._buffers[0][0]["C"], np.uint8(255), 0, 16 * 16 * 4)
            batch = bench.launches(3, replayed)
            assert (batch.count, list(batch.seconds)) == (3, ["host"])
            assert bench.verify("after").check.verdict == "ok"
        assert len(bench._recorded) == 1
    without = replace(device, extensions=(), compute_capability=(0, 0))  # NVIDIA's is a CUDA graph
    monkeypatch.setattr(bench.runtime, "facts", without)
    with pytest.raises(NotMeasuredError, match="does not list cl_khr_command_buffer"):
        bench.launches(2, replayed)
