"""A short tune on every device: every configuration verified, the file whole, the driver's cache shared."""

from __future__ import annotations

import time
from contextlib import closing
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.measure import machine
from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.run_file import SCHEMA_VERSION, Header, load
from gemmbench.opencl.runtime import Runtime
from gemmbench.tune import result as facts
from gemmbench.tune import space as rules
from gemmbench.tune.session import Builders, Cache, Task, Tuner, measure_with
from tests import fake_runs

TILED = BY_NAME["tiled"]
PROBLEM = Gemm(64, 64, 64)


def task(device: DeviceFacts) -> Task:
    space = rules.space(TILED, device, [PROBLEM])
    return Task(device, TILED, (PROBLEM,), space, 1, 10.0, 60.0)


def test_a_short_tune(device: DeviceFacts, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    header = Header(
        SCHEMA_VERSION, "0", ("tune",), "2026-11-21T04:30:00Z", (device,), fake_runs.HOST, Policy()
    )
    with Worker(machine.default) as worker, closing(Cache(path, header)) as cache:
        # Time stands still: on a busy machine too the whole, small space is searched.
        measure = measure_with(worker, device)
        Tuner(task(device), measure, cache, lambda _: None, clock=lambda: 0.0).run()
    saved = load(path)
    found = facts.result(saved)
    assert len(found.attempts) == len(task(device).space.configurations)
    assert found.attempts[0].parameters["TS"] == TILED.preset(device.family)["TS"]
    for row in (row for row in saved.rows if row.status != "skipped"):  # for want of time
        assert row.status == "ok", row.reason
        assert row.check.verdict == "ok"
        assert set(row.samples) - {"chain"} == {"kernel", "device", "host"}
    assert found.finished


def test_builders_survive_what_they_are_given_and_end_at_once(device: DeviceFacts, tmp_path: Path) -> None:
    good = rules.case(device, TILED, PROBLEM, {"TS": 8})
    assert isinstance(good, Case)
    broken = replace(good, variant="no such variant", source="1")
    make = partial(Worker, environment={machine.BUILD_CACHE: str(tmp_path)})
    with closing(Builders(make, 1, device, Policy(time_limit_s=60))) as builders:
        builders.want([broken, good])
        time.sleep(0.5)  # in the middle of something
    assert not any(thread.is_alive() for thread in builders.threads)


def test_a_tuner_does_not_keep_every_program(device: DeviceFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmbench.opencl.runtime._MOST_PROGRAMS", 2)
    runtime = Runtime(device)

    def build(tile: int) -> object:
        return runtime.build(TILED.files[0], TILED.options("float", {"TS": tile}))

    first, second = build(4), build(8)
    assert build(4) is first
    build(16)  # drops the one that was not used for longest
    assert build(4) is first
    assert build(8) is not second


@pytest.mark.every_driver
def test_what_one_child_has_compiled_is_in_the_folder_of_the_others(
    device: DeviceFacts, tmp_path: Path
) -> None:
    """Where the driver has a cache at all: Intel's for CPUs has none."""
    if not device.family.endswith(("pocl", "nvidia")):
        pytest.skip("the driver keeps no cache")
    case = rules.case(device, TILED, PROBLEM, {"TS": 8})
    assert isinstance(case, Case)
    with Worker(environment={machine.BUILD_CACHE: str(tmp_path)}) as worker:
        assert worker.inspect(case, device, Policy()).status == "ok"
    assert any(path.is_file() for path in tmp_path.rglob("*"))
