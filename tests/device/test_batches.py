"""Batches on a device: exact for kernels with and without passes, and planted faults that are found."""

from __future__ import annotations

import time

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.opencl.runtime import Runtime
from tests import in_process
from tests.device.conftest import Plant, all_devices, executor
from tests.in_process import plan_case

pytestmark = pytest.mark.usefixtures("unoptimized")

QUICK = Policy(budget_s=60.0, batch_s=0.0005, min_batches=3, precision=10.0)


def measured(device: DeviceFacts, on: GemmExecutor, name: str, problem: Gemm) -> Row:
    case = plan_case(device, name, problem)
    return in_process.measured(on, case, QUICK)


@pytest.fixture(scope="module")
def first() -> DeviceFacts:
    """One driver: the others compile for long."""
    return all_devices()[0]


@pytest.mark.parametrize("name", ["naive", "cpu-packed"])
def test_a_batch_is_right_with_and_without_passes(first: DeviceFacts, name: str) -> None:
    if BY_NAME[name].needs.device_type not in ("", first.type):
        pytest.skip(f"{name} is not for a {first.type}")
    problem = Gemm(9, 7, 11, "float", 2.0, -1.0, ld=(12, 8, 9), batch=6)
    row = measured(first, executor(first), name, problem)
    assert (row.status, row.reason) == ("ok", "")


@pytest.mark.parametrize(
    ("line", "planted"),
    [
        ("BATCH_OFFSET(B, ROWS_B, ldb)", ""),  # every problem multiplies the first B
        ("get_group_id(2)", "(get_group_id(2) ? 1 : 0)"),  # only the first two problems
    ],
)
def test_a_kernel_that_does_not_step_through_the_batch_is_wrong(
    first: DeviceFacts, line: str, planted: str, plant: Plant
) -> None:
    plant((line, planted))
    row = measured(first, GemmExecutor(Runtime(first)), "naive", Gemm(5, 4, 3, batch=4))
    assert row.status == "wrong"
    assert "in problem " in row.reason


def test_the_waiting_kernel_ends(first: DeviceFacts) -> None:
    """It is run on NVIDIA GPUs alone, where it keeps one unit busy while launches are enqueued."""
    runtime = executor(first).runtime
    event = runtime.wait(1e-3)
    event.wait()
    assert event.command_execution_status == cl.command_execution_status.COMPLETE


def test_a_cpu_starts_when_all_launches_of_a_batch_are_enqueued() -> None:
    complete = cl.command_execution_status.COMPLETE
    for device in (each for each in all_devices() if each.type == "cpu"):
        runtime = executor(device).runtime
        buffer = runtime.buffer(4096)
        with runtime.held():
            events = [cl.enqueue_fill_buffer(runtime.queue, buffer, np.uint8(1), 0, 4096) for _ in range(9)]
            runtime.queue.flush()
            time.sleep(0.01)
            assert all(event.command_execution_status > complete for event in events)
        runtime.queue.finish()
        assert all(event.command_execution_status == complete for event in events)
