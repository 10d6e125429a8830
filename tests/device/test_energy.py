"""``--energy`` on every OpenCL device: asked for or not, measured or not and why."""

from __future__ import annotations

import pytest

from gemmbench.gemm import measure
from gemmbench.measure.sensors import RunBatch
from gemmbench.model.case import Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Energy
from tests import in_process
from tests.device.conftest import executor
from tests.in_process import plan_case


@pytest.mark.parametrize("wanted", [True, False])
def test_energy_is_measured_when_asked(
    device: DeviceFacts, wanted: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fake_measure(run: RunBatch, **facts: DeviceFacts) -> Energy:
        run(3)
        assert facts == {"device": device}
        return Energy(0.25, "", "board", "FAKE")

    monkeypatch.setattr(measure, "measure_energy", fake_measure)
    case = plan_case(device, "naive", Gemm(32, 32, 32))
    policy = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0, energy=wanted)
    row = in_process.measured(executor(device), case, policy, device)
    assert row.status == "ok"
    assert row.energy.joules == (0.25 if wanted else None)
