"""Kernels with a fault that the exact test does not see: each is called wrong on every device."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.gemm import opencl_bench
from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.opencl_bench import GemmBench, PreparedLaunch, ResultComparer
from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.instrument import Batch, NotMeasuredError, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.opencl.runtime import Runtime
from gemmbench.suite.plan import gemm_plan
from tests import in_process
from tests.device.conftest import Plant
from tests.in_process import plan_case


@pytest.fixture(autouse=True)
def no_problem_is_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a busy machine a small one may take as long; tests of long ones are in test_gemm."""
    monkeypatch.setattr(opencl_bench, "_VERIFIED_BATCH_S", 1e9)


QUICK = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0)
SIZE = 256  # the exact test is below 200

_SCALED, _STEP = "scaled = (REAL)alpha * sum", "sum += a[p]"
_C = "C[(size_t)row * ldc + column]"
FAULTS = {
    #  what in naive's source is replaced, by what
    "zero": (_SCALED, "scaled = m < 200 ? (REAL)alpha * sum : 0"),
    "minus A B": (_SCALED, "scaled = (REAL)(m < 200 ? alpha : -alpha) * sum"),
    "alpha 1 % off": (_SCALED, "scaled = (REAL)(m < 200 ? alpha : alpha * 1.01f) * sum"),
    "last column": (_SCALED, "scaled = m > 200 && column == n - 1 ? 0 : (REAL)alpha * sum"),
    "first step": (_STEP, "if (m < 200 || p != 0) sum += a[p]"),
    "middle step": (_STEP, "if (m < 200 || p != k / 2) sum += a[p]"),
    "last step": (_STEP, "if (m < 200 || p != k - 1) sum += a[p]"),
    "a tile": (
        "b = B + column",
        "b = B + (m < 200 || row / 16 != 3 || column / 16 != 5 ? column : column ^ 1)",
    ),
    "nothing the second time": ("REAL sum = 0;", f"REAL sum = 0; if (m > 200 && {_C} == {_C}) return;"),
}


def _measured(
    device: DeviceFacts, problem: Gemm, own: Operands, policy: Policy = QUICK, name: str = "naive"
) -> Row:
    step = plan_case(device, name, problem, operands=own, may_skip=True)
    return in_process.measured(GemmExecutor(Runtime(device)), step, policy)


def _own(folder: Path, dtype: str, draw: str) -> Operands:
    if draw == "generated":
        return Operands(None, None, None, str(folder / "out.npy"))
    rng = np.random.default_rng(3)
    for name in "ab":
        values = rng.random((SIZE, SIZE)) if draw == "one sign" else rng.standard_normal((SIZE, SIZE))
        np.save(folder / f"{name}.npy", values.astype(DTYPES[dtype].numpy))
    return Operands(str(folder / "a.npy"), str(folder / "b.npy"), None, str(folder / "out.npy"))


@pytest.mark.parametrize("draw", ["generated", "one sign", "normal"])
@pytest.mark.parametrize("dtype", ["float", "double", "half"])
@pytest.mark.parametrize("fault", ["", *FAULTS])
def test_a_planted_fault_is_wrong_and_writes_nothing(
    device: DeviceFacts, fault: str, dtype: str, draw: str, tmp_path: Path, plant: Plant
) -> None:
    plant(*([FAULTS[fault]] if fault else ()))
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, dtype), _own(tmp_path, dtype, draw))
    if not fault:
        assert (row.status, row.reason) == ("ok", "")
        assert row.check_after is not None
        assert row.check.figures.keys() == {"element", "ulp"}
        assert 0 <= row.check.figures["element"] <= 1
        assert np.load(tmp_path / "out.npy").shape == (SIZE, SIZE)
    else:
        assert (row.status, row.samples) == ("wrong", {}), row.check
        assert row.reason
        assert not (tmp_path / "out.npy").exists()


@pytest.mark.parametrize("name", ["naive", "image-4x8"])
@pytest.mark.parametrize("memory", ["mapped", "staged"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("cold", [False, True])
def test_a_right_kernel_passes_before_and_after(
    device: DeviceFacts, name: str, memory: str, beta: float, cold: bool, tmp_path: Path
) -> None:
    policy = replace(QUICK, memory=memory, cold=cold)
    own = _own(tmp_path, "float", "normal")
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, beta=beta, alpha=1.5), own, policy, name)
    assert (row.status, row.reason) == ("ok", "")
    assert row.check_after.verdict == "ok"
    a, b, out = (np.load(tmp_path / f"{name}.npy").astype(float) for name in ("a", "b", "out"))
    if beta == 0:
        np.testing.assert_allclose(out, 1.5 * a @ b, atol=1e-3)


def test_a_kernel_that_does_nothing_the_second_time_is_wrong_where_c_is_read(
    device: DeviceFacts, plant: Plant
) -> None:
    """It remembers in C itself: an element that is a right answer already is left alone."""
    plant(("*c = beta == 0", "if (m > 200 && fabs(*c) > 2) return; *c = beta == 0"))
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, beta=0.5), Operands())
    assert row.status == "wrong"


def test_a_kernel_that_is_right_for_small_numbers_alone_is_wrong(device: DeviceFacts, plant: Plant) -> None:
    """Neither the exact test nor generated operands have any above 2: those of Freivalds' check do."""
    plant((_STEP, "sum += clamp(a[p], (REAL)-2, (REAL)2)"))
    row = _measured(device, Gemm(SIZE, SIZE, SIZE), Operands())
    assert row.status == "wrong"


_BEGIN = "if (row >= m || column >= n)\n        return;"


@pytest.mark.parametrize("memory", ["mapped", "staged"])
@pytest.mark.parametrize(
    ("writes", "reason"),
    [
        ("if (m > 200 && row == 0) C[(size_t)m * ldc + column] = 1;", "cells behind C were written"),
        (
            "if (m > 200 && row == 0) ((__global int *)A)[column] |= 1;",  # by less than a rounding error
            "A was written",
        ),
        ("if (m > 200 && row == 0) ((__global int *)B)[column] |= 1;", "B was written"),
    ],
)
def test_a_kernel_that_writes_where_it_may_not_is_wrong(
    device: DeviceFacts, writes: str, reason: str, memory: str, plant: Plant
) -> None:
    """At the timed size alone: the exact test does not see it."""
    plant((_BEGIN, _BEGIN + writes))
    policy = replace(QUICK, memory=memory, budget_s=1.0)
    row = _measured(device, Gemm(SIZE, SIZE, SIZE), Operands(), policy)
    assert (row.status, row.samples) == ("wrong", {})
    assert row.reason == reason or "rows are wrong" in row.reason  # A and B are integers at first


_WRITES = {
    "cells behind C were written": "C[(size_t)m * ldc + column] = 1;",
    "A was written": "((__global int *)A)[column] |= 1;",
}


@pytest.mark.parametrize("memory", ["mapped", "staged"])
@pytest.mark.parametrize("reason", _WRITES)
def test_what_one_kernel_writes_is_no_fault_of_the_interleaved_kernel(
    device: DeviceFacts, reason: str, memory: str, plant: Plant
) -> None:
    plant((_BEGIN, _BEGIN + f"if (m > 200 && row == 0) {_WRITES[reason]}"))
    present, former = in_turn(device, "tiled", "naive", memory)
    assert present.verify("before").check.verdict == "ok"
    assert former.verify("before").check.verdict == "wrong"
    present.start("device", 2)
    assert present.verify("after").check.reasons == ()


@pytest.mark.parametrize("memory", ["mapped", "staged"])
def test_what_was_written_while_kernels_took_turns_is_said_of_neither(
    device: DeviceFacts, memory: str
) -> None:
    present, former = in_turn(device, "tiled", "naive", memory)
    for bench in (present, former):
        assert bench.verify("before").check.verdict == "ok"
        bench.start("device", 2)
    scribble(present, "C", 4 * SIZE * SIZE)
    with pytest.raises(
        NotMeasuredError, match="were written, by it or by the kernel interleaved with it"
    ) as caught:
        present.verify("after")
    assert caught.value.status == "failed"
    assert former.verify("after").check.reasons == ()


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("memory", ["mapped", "staged", "pageable"])
def test_what_the_devices_batches_wrote_is_not_hidden_by_the_hosts(
    device: DeviceFacts, memory: str, beta: float
) -> None:
    case = plan_case(device, "naive", Gemm(SIZE, SIZE, SIZE, beta=beta))
    bench = GemmExecutor(Runtime(device)).prepare(case, replace(QUICK, memory=memory))
    assert bench.verify("before").check.verdict == "ok"
    for scribbles, reasons in ((True, ("A was written",)), (False, ())):
        bench.start("device", 2)
        if scribbles:
            scribble(bench, "A")
        for _ in range(2):
            bench.start("host", 1)
        assert bench.verify("after").check.reasons == reasons


def skip_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """From now on launches do nothing."""
    nothing = cache(lambda queue: cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 16))

    def skipping(self: PreparedLaunch, queue: Any) -> Any:
        return cl.enqueue_fill_buffer(queue, nothing(queue), np.uint32(0), 0, 16)

    monkeypatch.setattr(PreparedLaunch, "enqueue", skipping)


@pytest.mark.parametrize("memory", ["mapped", "staged", "pageable"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("cold", [False, True])
def test_a_kernel_that_skips_its_work_between_two_launches_is_wrong(
    device: DeviceFacts, cold: bool, beta: float, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    for clock in prepared(device, beta, memory, cold).prepared.clocks:
        bench = prepared(device, beta, memory, cold)
        with monkeypatch.context() as patch:
            skip_launches(patch)
            run_batches(bench, clock)
        bench.start(clock, 2)
        check = bench.verify("after").check
        assert check.verdict == "wrong"
        assert check.reasons[0].startswith("in a batch: ")


def test_a_batch_is_judged_by_what_it_left_not_by_the_next(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the next is in the queue before a batch is read."""
    monkeypatch.setattr(GemmBench, "_ahead", ("device",))
    bench = prepared(device, 0.0, "staged")
    with monkeypatch.context() as patch:
        skip_launches(patch)
        first = bench.start("device", 2)
    for running in (first, bench.start("device", 2)):
        assert not isinstance(running, Batch)
        running.finish()
    assert bench.verify("after").check.reasons[0].startswith("in a batch: ")
    assert bench.verify("after").check.reasons == ()  # of the batches since


@pytest.mark.parametrize("clock", ["device", "host"])
def test_a_batch_that_leaves_other_bits_is_no_fault_where_they_are_right(
    device: DeviceFacts, clock: str
) -> None:
    bench = prepared(device, 0.0, "mapped")
    assert bench._answers._result is not None
    bench._answers._result = np.nextafter(bench._answers._result, np.float32(0))
    bench._comparer = None
    assert bench._compared_with() is not None
    run_batches(bench, clock)
    assert bench._comparer is None  # its sums have another order each time
    assert bench.verify("after").check.reasons == ()


def test_a_comparison_finds_a_single_bit_in_any_word(device: DeviceFacts) -> None:
    runtime = Runtime(device)
    values = np.arange(1, 1001, dtype=np.float32)
    comparer = ResultComparer(runtime, runtime.filled(values), values.nbytes)
    assert not comparer.compare(runtime.filled(values))()
    for word, bit in ((0, 0), (777, 9), (999, 31)):
        changed = values.copy()
        changed.view(np.uint32)[word] ^= np.uint32(1 << bit)
        assert comparer.compare(runtime.filled(changed))()
    assert not comparer.compare(runtime.filled(values))()


def prepared(
    device: DeviceFacts, beta: float, memory: str, cold: bool = False, size: int = SIZE
) -> GemmBench:
    """Naive, verified once."""
    case = plan_case(device, "naive", Gemm(size, size, size, beta=beta))
    bench = GemmExecutor(Runtime(device)).prepare(case, replace(QUICK, memory=memory, cold=cold))
    assert bench.verify("before").check.verdict == "ok"
    return bench


def run_batches(bench: GemmBench, clock: str) -> None:
    """Two, whose last problems run on an erased C."""
    for _ in range(2):
        running = bench.start(clock, 4)
        if not isinstance(running, Batch):
            running.finish()


def in_turn(device: DeviceFacts, first: str, second: str, memory: str) -> tuple[GemmBench, GemmBench]:
    """Two kernels on the same operands."""
    runs, policy = GemmExecutor(Runtime(device)), replace(QUICK, memory=memory)
    one, other = gemm_plan([device], [BY_NAME[first], BY_NAME[second]], [Gemm(SIZE, SIZE, SIZE)])
    assert isinstance(one, Case)
    assert isinstance(other, Case)
    bench = runs.prepare(one, policy)
    return bench, runs.prepare(other, policy, bench)


def scribble(bench: GemmBench, name: str, offset: int = 64) -> None:
    """Write where a kernel may not."""
    bench._on_device()
    cl.enqueue_fill_buffer(bench.runtime.queue, bench._buffers[0][0][name], np.uint8(1), offset, 4)
    bench.runtime.queue.finish()


@pytest.mark.parametrize("name", ["naive", "image-4x8"])
@pytest.mark.parametrize("memory", ["mapped", "staged"])
def test_operands_that_were_written_are_filled_again_and_others_are_the_suites_own(
    device: DeviceFacts, memory: str, name: str
) -> None:
    """Of a kernel that was verified twice, the operands of the first time were taken for its writing."""
    case = plan_case(device, name, Gemm(SIZE, SIZE, SIZE), may_skip=True)
    bench = GemmExecutor(Runtime(device)).prepare(case, replace(QUICK, memory=memory))
    whens: list[When] = ["before", "after", "after"]
    assert [bench.verify(when).check.reasons for when in whens] == [()] * 3
    written = "A" if name == "naive" else "B"  # of an image, what its pass reads
    scribble(bench, written)
    assert bench.verify("after").check.reasons == (f"{written} was written",)
    bench.start("device", 1)
    assert bench.verify("after").check.reasons == ()


@pytest.mark.parametrize("memory", ["mapped", "staged"])
@pytest.mark.parametrize("spare", [0, 100, 1 << 20])
def test_no_buffer_is_larger_than_the_device_allows(device: DeviceFacts, spare: int, memory: str) -> None:
    nbytes = 4 * SIZE * SIZE
    few = replace(device, max_alloc_bytes=nbytes + spare)
    case = plan_case(few, "naive", Gemm(SIZE, SIZE, SIZE))
    bench = GemmExecutor(Runtime(few)).prepare(case, replace(QUICK, memory=memory))
    sizes = [operand.buffer.size for operand in bench._operands[0]]
    room = 4096 if device.family == "gpu-nvidia" else spare  # its driver exceeds what it reports
    assert sizes == [nbytes, nbytes, nbytes + min(room, 4096)]
    assert bench.verify("before").check.reasons == bench.verify("after").check.reasons == ()


def test_nothing_is_multiplied_where_alpha_is_0(device: DeviceFacts) -> None:
    """A BLAS may leave A and B alone then: its rate was 100 times that of a multiplication."""
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, alpha=0.0, beta=0.5), Operands())
    assert (row.status, row.samples) == ("ok", {})
