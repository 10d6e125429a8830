"""Options of the measuring commands, on every device."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import FAST_MATH
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl.runtime import Runtime
from gemmbench.suite.plan import Axes, gemm_plan
from tests import in_process
from tests.device.conftest import executor

QUICK = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0)


def cases(device: DeviceFacts, variant: str, problem: Gemm, axes: Axes) -> list[Case]:
    steps = gemm_plan([device], [BY_NAME[variant]], [problem], axes=axes)
    return [step for step in steps if isinstance(step, Case)]


def test_strict_and_fast_math_are_two_programs_and_both_are_right(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    runner, built = GemmExecutor(Runtime(device)), []  # of its own: another has built the programs
    plain = runner.runtime._options
    monkeypatch.setattr(runner.runtime, "_options", lambda options: built.append(options) or plain(options))
    rows = [
        in_process.measured(runner, each, replace(QUICK, seed=5), device)
        for each in cases(device, "tiled", Gemm(7, 5, 8, beta=0.5), Axes(("strict", "fast")))
    ]
    tiled = [options for options in built if any("TS" in option for option in options)]  # not what compares C
    assert [FAST_MATH in options for options in tiled] == [False, True]
    assert [row.status for row in rows] == ["ok", "ok"]
    assert rows[1].former.parameters == rows[0].parameters
    for row in rows:
        a, b, c0, c = (np.array((row.matrices or {})[name]) for name in ("A", "B", "C before", "C"))
        np.testing.assert_allclose(c, a @ b + 0.5 * c0, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(("variant", "memory"), [("tiled", "auto"), ("image-4x8", "staged")])
def test_rows_that_are_apart(device: DeviceFacts, variant: str, memory: str) -> None:
    problem = Gemm(21, 13, 34, alpha=2.0, beta=0.5, ld=(37, 17, 16))
    if not (step := cases(device, variant, problem, Axes())):
        pytest.skip("not for this device")
    row = in_process.measured(executor(device), step[0], replace(QUICK, memory=memory), device)
    assert (row.status, row.reason) == ("ok", "")
    assert row.problem.ld == (37, 17, 16)
