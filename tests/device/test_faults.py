"""A kernel that never ends, a crash of the driver, an allocation past the device: one row each, no more."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.measure.child import Worker
from gemmbench.model.case import Finished, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row, current
from gemmbench.model.run_file import RunFile, load
from gemmbench.suite import session
from gemmbench.suite.plan import gemm_plan
from tests.device import faulty
from tests.unit.test_run_file import HEADER

# No row waits for its precision. On a busy machine each samples for its budget.
POLICY = Policy(budget_s=2.0, batch_s=0.001, min_batches=3, precision=10.0, time_limit_s=40.0, patience_s=0.0)


def rows_of(device: DeviceFacts, sizes: list[int], path: Path) -> list[Row]:
    plan = gemm_plan([device], [BY_NAME["naive"]], [Gemm(size, size, size) for size in sizes])
    with Worker(faulty.make) as worker, RunFile.create(path, HEADER) as file:
        events = session.run_plan(plan, [device], POLICY, worker, file)
        return [event.row for event in events if isinstance(event, Finished)]


@pytest.mark.usefixtures("skips")
def test_each_fault_costs_its_own_row_and_nothing_else(device: DeviceFacts, tmp_path: Path) -> None:
    sizes = [16, faulty.ENDLESS, 17, faulty.SEGFAULT, 18, faulty.HUNGRY, 19]
    rows = rows_of(device, sizes, tmp_path / "run.jsonl")
    assert [row.status for row in rows] == ["ok", "timed-out", "ok", "crashed", "ok", "failed", "ok"]
    assert "stopped after 40 s (--time-limit 40)" in rows[1].reason
    assert "killed by SIGSEGV: " in rows[3].reason
    assert "the driver's last words" in rows[3].reason
    assert rows[5].reason
    assert load(tmp_path / "run.jsonl").rows == current(rows)
