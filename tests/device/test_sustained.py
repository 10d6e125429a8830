"""Checked batches on a device: right ones are right, and a bit that flips in one result is found."""

from __future__ import annotations

import numpy as np
import pytest

from gemmbench.gemm.opencl_bench import Bench
from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import CHECKED, Batch, WrongResult
from gemmbench.model.problem import Gemm
from gemmbench.suite.plan import gemm_plan
from tests.device import planted
from tests.device.conftest import executor


def bench_of(device: DeviceFacts, problem: Gemm) -> Bench:
    (case,) = gemm_plan([device], [BY_NAME["naive"]], [problem])
    assert isinstance(case, Case)
    bench = executor(device).prepare(case, Policy(budget_s=1.0))
    assert bench.verify("before").check.verdict == "ok"
    return bench


def checked(bench: Bench, count: int) -> Batch:
    started = bench.start(CHECKED, count)
    return started if isinstance(started, Batch) else started.finish()


class Idle:
    """A launch that does nothing."""

    role, name = "multiply", "idle"

    def enqueue(self, queue: object) -> None:
        """Nothing."""


def test_a_flipped_bit_is_found_in_its_result_and_its_place(device: DeviceFacts) -> None:
    bench = bench_of(device, Gemm(16, 15, 16, "float"))
    right = checked(bench, 5)
    assert (right.wrong, right.count) == ((), 5)
    assert set(right.seconds) == {"device", "check"}
    assert all(seconds > 0 for seconds in right.seconds.values())
    planted.plant(bench, number=3, element=100, bit=9)
    assert checked(bench, 2).wrong == ()
    assert checked(bench, 4).wrong == (WrongResult(1, 1, 1, 400),)
    assert checked(bench, 4).wrong == ()
    steps = bench._prepared[0]
    bench._prepared[0] = [Idle()]
    assert [wrong.number for wrong in checked(bench, 2).wrong] == [0, 1]  # nothing was written
    bench._prepared[0] = steps
    assert checked(bench, 1).wrong == ()
    assert bench.verify("after").check.verdict == "ok"


def test_the_host_finds_it_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from gemmbench.gemm.numpy_blas import NumpyExecutor

    case = Case("gemm", -1, "numpy", "float", {}, Gemm(8, 9, 10, "float"))
    bench = NumpyExecutor().prepare(case, Policy(budget_s=1.0))
    assert bench.verify("before").check.verdict == "ok"
    multiply, calls = bench._multiply, []

    def flipping(*arguments: np.ndarray) -> None:
        multiply(*arguments)  # type: ignore[arg-type]
        calls.append(1)
        if len(calls) == 2:
            arguments[-1].reshape(-1).view(np.uint32)[20] ^= 1 << 30

    monkeypatch.setattr(bench, "_multiply", flipping)
    assert bench.start(CHECKED, 3).wrong == (WrongResult(1, 1, 1, 80),)
    monkeypatch.setattr(bench, "_multiply", lambda *arguments: None)
    assert bench.start(CHECKED, 1).wrong == (WrongResult(0, 32 * 8 * 9, 8 * 9, 0),)
