"""auto on every device: what it takes is verified, whatever the shape, and it learns from what it ran."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Case, Operands, Policy, Staged
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.suite.auto import CHOOSABLE, Automatic
from gemmbench.suite.plan import gemm_plan
from tests import in_process
from tests.device.conftest import machine

QUICK = Policy(budget_s=60.0, settle_s=0.0, batch_s=0.001, min_batches=3, precision=10.0)


class InProcess:
    """A worker without a child: the drivers are loaded here already."""

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        yield Staged("running")
        try:
            return in_process.measured(machine().executor(case, device), case, policy, device)
        except NotMeasuredError as error:
            return case.row(error.status, error.reason)


def measured(automatic: Automatic, device: DeviceFacts, problem: Gemm, own: Operands | None = None) -> Row:
    (step,) = gemm_plan([device], [BY_NAME["auto"]], [problem], operands=own)
    assert isinstance(step, Case)
    steps = automatic.measure(step, device, QUICK, InProcess())  # type: ignore[arg-type]
    while True:
        try:
            next(steps)
        except StopIteration as end:
            row: Row = end.value
            return row


@pytest.mark.parametrize("dtype", ["float", "double", "half"])
def test_what_it_takes_is_right(device: DeviceFacts, dtype: str) -> None:
    automatic = Automatic()
    for m, n, k in ((96, 96, 96), (1, 300, 200), (257, 64, 33), (130, 5, 70), (8, 8, 0)):
        row = measured(automatic, device, Gemm(m, n, k, dtype, 2.0, -1.0))
        if dtype not in device.dtypes:
            assert row.status == "unsupported" or row.choice["kernel"] in CHOOSABLE
            continue
        assert (row.status, row.check.verdict) == ("ok", "ok"), row.reason
        assert (row.variant, row.device) == ("auto", 0)
        assert row.choice["kernel"] in CHOOSABLE
        assert ("host" in row.samples) == (k > 0)


def test_the_result_is_written_whoever_computes_it(device: DeviceFacts, tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    a, b = rng.random((20, 30), np.float32), rng.random((30, 10), np.float32)
    np.save(tmp_path / "a.npy", a)
    np.save(tmp_path / "b.npy", b)
    own = Operands(str(tmp_path / "a.npy"), str(tmp_path / "b.npy"), None, str(tmp_path / "out.npy"))
    assert measured(Automatic(), device, Gemm(20, 10, 30), own).status == "ok"
    np.testing.assert_allclose(np.load(tmp_path / "out.npy"), a @ b, rtol=1e-5)


def test_the_choice_is_the_fastest_that_it_has_seen(device: DeviceFacts) -> None:
    """Scripted: the trials' times are replaced, so that the slowest variant must win."""
    automatic = Automatic()
    first = measured(automatic, device, Gemm(64, 64, 64))
    seen = {row.variant for row in automatic.rows}
    loser = next(name for name in sorted(seen) if name != first.choice["kernel"])
    rows = automatic.rows
    automatic.rows = [
        replace(row, samples={scope: replace(one, seconds=(1e-9,)) for scope, one in row.samples.items()})
        if row.variant == loser
        else row
        for row in rows
    ]
    assert measured(automatic, device, Gemm(64, 64, 64)).choice["kernel"] == loser
