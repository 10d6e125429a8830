"""Two drivers of one processor at once: real windows, answers verified."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.measure.child import Worker
from gemmbench.measure.machine import default
from gemmbench.model.case import Case, Finished, Plan, Policy
from gemmbench.model.problem import Gemm
from gemmbench.model.run_file import Run, RunFile, load
from gemmbench.probes.memory import memory_plan
from gemmbench.suite.plan import gemm_plan
from gemmbench.suite.session import Steps
from gemmbench.suite.together import crew, grouped, joints_of, run
from tests import fake_runs
from tests.device.conftest import all_devices

POLICY = Policy(budget_s=0.3, settle_s=0.05, batch_s=0.002, min_batches=5, time_limit_s=60)
MIB = 1 << 20


def measured(plan: Plan, path: Path) -> Run:
    devices = all_devices()[:2]
    header = fake_runs.header(("gemmbench", "square", "--device", "all", "--concurrent"), devices)
    with (
        Worker(default) as first,
        crew(first, partial(Worker, default), len(devices)) as worker_of,
        RunFile.create(path, header) as file,
    ):
        events = run(grouped(plan), worker_of, Steps(devices, POLICY, file))
        rows = tuple(event.row for event in events if isinstance(event, Finished))
    assert load(path).rows == rows
    return Run(header, rows)


@pytest.fixture(autouse=True)
def _two_devices() -> None:
    if len(all_devices()) < 2:
        pytest.skip("there is only one OpenCL device")


def test_gemms_at_once(tmp_path: Path) -> None:
    plan = gemm_plan(all_devices()[:2], [BY_NAME["tiled"], BY_NAME["register"]], [Gemm(64, 64, 64)])
    found = measured(plan, tmp_path / "run.jsonl")
    assert {row.status for row in found.rows} == {"ok"}
    assert {row.check.verdict for row in found.rows} == {"ok"}
    assert [joint.devices for joint in joints_of(found)] == [(0, 1), (0, 1)]
    for joint in joints_of(found):
        for part in joint.parts:
            assert part.together.samples.keys() == {"kernel", "device", "host"}
            assert all(len(scope.seconds) >= 3 for scope in part.together.samples.values())
            slowdown = part.slowdown("host")
            assert slowdown is not None
            assert slowdown.low <= slowdown.median <= slowdown.high


def test_transfers_and_bandwidth_at_once(tmp_path: Path) -> None:
    wanted = ("upload-pageable", "download-pinned", "working-set")
    every = memory_plan(all_devices()[:2], ("memory", "transfer"))
    cases = [step for step in every if isinstance(step, Case) and step.variant in wanted]
    plan = tuple(case for case in cases if case.parameters["bytes"] == MIB)
    assert len(plan) == 2 * len(wanted)
    found = measured(plan, tmp_path / "run.jsonl")
    assert [joint.devices for joint in joints_of(found)] == [(0, 1)] * len(wanted)
    assert all(joint.aggregate("kernel") for joint in joints_of(found))
