"""What an instrument's bench does on every device: batches that are queued behind each other, and stamps."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench.gemm.opencl_bench import GemmBench
from gemmbench.measure import machine
from gemmbench.measure.child import POCL_CACHE, Worker
from gemmbench.measure.sampling import alone, in_turn
from gemmbench.model.case import Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Handle
from gemmbench.model.problem import Gemm
from gemmbench.opencl.runtime import Mapped
from tests.device.conftest import executor
from tests.in_process import InProcess, plan_case

QUICK = Policy(budget_s=60.0, batch_s=0.002, min_batches=5, precision=10.0)


@pytest.fixture
def queued(monkeypatch: pytest.MonkeyPatch) -> None:
    """CPU devices have a queue as well as GPUs, only nobody uses it."""
    monkeypatch.setattr(GemmBench, "_ahead", ("device",))


def prepared(
    device: DeviceFacts, like: Handle | None = None, beta: float = 0.5, memory: str = "auto"
) -> Handle:
    case = plan_case(device, "tiled", Gemm(96, 80, 64, beta=beta))
    instrument = like.instrument if like else InProcess(executor(device))
    policy = replace(QUICK, memory=memory)
    return instrument.prepare(case, device, policy, like.number if like else None)


@pytest.mark.every_driver
@pytest.mark.usefixtures("queued")
def test_batches_run_behind_each_other(device: DeviceFacts) -> None:
    handle = prepared(device)
    handle.batch("device", 1)
    for _ in range(3):
        handle.start("device", 8)
    before = time.perf_counter()
    batches = [handle.finish() for _ in range(3)]
    for batch in batches:
        assert batch.begin <= batch.end <= time.perf_counter()
        assert batch.begin <= before or batch.begin in {other.end for other in batches}
        assert 0 < batch.seconds["kernel"] <= batch.seconds["device"]
    spans = [batch.device for batch in batches if batch.device]
    assert len(spans) == 3
    assert spans == sorted(spans)
    assert all(end > begin for begin, end in spans)


@pytest.mark.usefixtures("queued")
def test_sampling_ahead_alone_and_interleaved_leaves_the_right_answer(device: DeviceFacts) -> None:
    first = prepared(device)
    second = prepared(device, first)
    assert first.verify("before").check.verdict == "ok"
    assert len(alone(first, "device", QUICK, QUICK.budget_s).batches) >= 4
    pairs = in_turn(first, second, "device", QUICK, QUICK.budget_s)
    assert len(pairs[0].batches) == len(pairs[1].batches) >= 3
    assert len(alone(first, "host", QUICK, QUICK.budget_s).batches) >= 3
    for handle in (first, second):
        assert handle.verify("before").check.verdict == "ok"
    assert first.batch("device", 2).seconds["device"] > 0  # operands go back to the device


@pytest.mark.every_driver
def test_operands_go_to_the_device_when_the_host_had_them(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[object] = []
    keep = Mapped.keep_on_device
    monkeypatch.setattr(Mapped, "keep_on_device", lambda self, queue: (moved.append(self), keep(self, queue)))
    handle = prepared(device, memory="mapped", beta=0.0)
    moved.clear()
    counts = []
    for clock in ("device", "device", "host", "device"):
        handle.batch(clock, 2)
        counts.append(len(moved))
        moved.clear()
    assert counts == [3, 0, 3, 3]  # before the host has them what launches wrote is looked for, once


@pytest.mark.every_driver
def test_the_hosts_clock_holds_the_devices_batch(device: DeviceFacts) -> None:
    handle = prepared(device)
    begin = time.perf_counter()
    batch = handle.batch("device", 4)
    assert begin <= batch.begin < batch.end <= time.perf_counter()
    assert batch.wall_s == pytest.approx((batch.end - batch.begin) / 4)


@pytest.mark.every_driver
def test_the_measuring_process_leaves_no_file(
    device: DeviceFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(POCL_CACHE, str(tmp_path))
    with Worker(machine.default) as worker:
        here = next(each for each in worker.devices()[0] if each.address == device.address)
        case = plan_case(here, "naive", Gemm(32, 32, 32))
        worker.prepare(case, here, QUICK).batch("device", 1)
    assert not [path for path in tmp_path.rglob("*") if path.is_file()]
