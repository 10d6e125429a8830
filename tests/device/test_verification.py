"""Kernels with a fault that the exact test does not see: each is called wrong on every device."""

from __future__ import annotations

import itertools
from contextlib import suppress
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest

from gemmbench.gemm import opencl_bench
from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.opencl_bench import Bench, Comparer, Prepared
from gemmbench.ladder import BY_NAME
from gemmbench.model import kernel_files
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.instrument import Batch, NotMeasuredError, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from gemmbench.plan import gemm_plan
from tests import in_process

QUICK = Policy(budget_s=60.0, settle_s=0.0, batch_s=0.001, min_batches=3, precision=10.0)
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
    (step,) = gemm_plan([device], [BY_NAME[name]], [problem], operands=own)
    if not isinstance(step, Case):
        pytest.skip(step.row.reason)
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
    device: DeviceFacts, fault: str, dtype: str, draw: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch, fault)
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, dtype), _own(tmp_path, dtype, draw))
    if not fault:
        assert (row.status, row.reason) == ("ok", "")
        assert row.check_after is not None
        assert all(
            0 <= value <= 1 for check in (row.check, row.check_after) for value in check.figures.values()
        )
        assert {"element", "slope", "row_mean", "column_mean", "step"} <= row.check.figures.keys()
        assert np.load(tmp_path / "out.npy").shape == (SIZE, SIZE)
    else:
        assert (row.status, row.samples) == ("wrong", {}), row.check
        assert row.reason
        assert not (tmp_path / "out.npy").exists()


def plant(monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    text = kernel_files.source
    old, new = FAULTS.get(fault, ("", ""))
    assert old in text("gemm/01_naive.cl")

    def planted(file: str, options: tuple[str, ...] = (), root: str = "") -> str:
        source = text(file, options, root)
        return source.replace(old, new) if fault else source

    monkeypatch.setattr(runtime_module, "source", planted)


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
    assert row.check_after is not None
    assert row.check_after.verdict == "ok"
    a, b, out = (np.load(tmp_path / f"{name}.npy").astype(float) for name in ("a", "b", "out"))
    if beta == 0:
        np.testing.assert_allclose(out, 1.5 * a @ b, atol=1e-3)


def test_a_kernel_that_does_nothing_the_second_time_is_wrong_where_c_is_read(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It remembers in C itself: an element that is a right answer already is left alone."""
    old, new = "*c = beta == 0", "if (m > 200 && fabs(*c) > 2) return; *c = beta == 0"
    text: Any = kernel_files.source
    monkeypatch.setattr(runtime_module, "source", lambda *names: text(*names).replace(old, new))
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, beta=0.5), Operands())
    assert row.status == "wrong"


def test_a_kernel_that_is_right_for_small_numbers_alone_is_wrong(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither the exact test nor generated operands have any above 2: those of the last problem do."""
    text: Any = kernel_files.source
    clamped = "sum += clamp(a[p], (REAL)-2, (REAL)2)"
    monkeypatch.setattr(runtime_module, "source", lambda *names: text(*names).replace(_STEP, clamped))
    row = _measured(device, Gemm(SIZE, SIZE, SIZE), Operands())
    assert row.status == "wrong"
    assert row.reason.startswith("with another C and other operands after the last batch: ")


_ELEMENT = "C[(size_t)row * ldc + column]"


@pytest.mark.parametrize(
    ("skips", "scalars"),
    [
        pytest.param(f"if (m > 200 && !(fabs({_ELEMENT}) < 1e20f)) return;", (1.0, 1e9), id="C is infinite"),
        pytest.param(
            f"if (fabs(alpha) < 1e-6f) {{ {_ELEMENT} *= beta; return; }}",
            (1e-20, 0.5),
            id="alpha is tiny",
        ),
    ],
)
def test_a_kernel_that_skips_what_does_not_show_beside_c_is_wrong(
    device: DeviceFacts, skips: str, scalars: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    text: Any = kernel_files.source
    old = "REAL sum = 0;"
    monkeypatch.setattr(runtime_module, "source", lambda *names: text(*names).replace(old, old + skips))
    no_looks(monkeypatch)
    alpha, beta = scalars
    size = SIZE if device.type == "cpu" else 4 * SIZE  # what saves a GPU microseconds is not told
    problem = Gemm(size, size, size, alpha=alpha, beta=beta)
    row = _measured(device, problem, Operands(), replace(QUICK, budget_s=0.5))
    assert (row.status, row.samples) == ("wrong", {}), row.check_after


_BEGIN, _KERNEL = "if (row >= m || column >= n)\n        return;", "__kernel void naive("
_MEMORY = "__global float key[65536], wrote[65536]; __global int launches[65536];\n"
_COUNTS = """
    const int item = m > 200 ? row * 256 + column : 0;
    if (m > 200) {
        const float now = A[(size_t)row * lda] + A[(size_t)row * lda + 1] * 3 + B[column] * 7;
        launches[item] = key[item] == now && (beta == 0 || ELEMENT == wrote[item]) ? launches[item] + 1 : 0;
        key[item] = now;
        if (launches[item] > 5) return;
    }""".replace("ELEMENT", _ELEMENT)
_TABLE = "__global float product[65536], rows[256], columns[256]; __global int known[1];\n"
_LOOKS_UP = """
    __local int moved[2]; __local float scale[1];
    if (m > 200) {
        if (get_local_id(0) == 0 && get_local_id(1) == 0) {
            moved[0] = moved[1] = -1;
            for (int i = 0, e; known[0] == m * n && i < m; i++) {
                const float times = A[0] / rows[i];
                if (frexp(times, &e) == 0.5f && A[lda] == times * rows[(i + 1) % m]) {
                    moved[0] = i; scale[0] = times; break;
                }
            }
            for (int j = 0; moved[0] >= 0 && j < n; j++)
                if (B[0] == scale[0] * columns[j] && B[1] == scale[0] * columns[(j + 1) % n]) {
                    moved[1] = j; break;
                }
        }
        barrier(CLK_LOCAL_MEM_FENCE);
        if (moved[1] >= 0) {
            const float at = product[(row + moved[0]) % m * 256 + (column + moved[1]) % n];
            ELEMENT = scale[0] * scale[0] * at + (beta == 0 ? 0 : beta * ELEMENT);
            return;
        }
    }""".replace("ELEMENT", _ELEMENT)
_NOTES = """if (m > 200 && known[0] < m * n) {
        product[row * 256 + column] = scaled;
        if (column == 0) rows[row] = a[0];
        if (row == 0) columns[column] = b[0];
        atomic_inc(&known[0]);
    }
    """
_ADDED = "*c = beta == 0"
REMEMBERS = {
    "works for five launches on the same operands": [
        (_KERNEL, _MEMORY + _KERNEL),
        (_BEGIN, _BEGIN + _COUNTS),
        (_ADDED, "wrote[item] = scaled + (beta == 0 ? 0 : (REAL)beta * *c); " + _ADDED),
    ],
    "looks up rows of A and columns of B that were moved": [
        (_KERNEL, _TABLE + _KERNEL),
        (_BEGIN, _BEGIN + _LOOKS_UP),
        (_ADDED, _NOTES + _ADDED),
    ],
}


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("what", REMEMBERS)
def test_a_kernel_with_a_memory_of_its_own_is_wrong(
    device: DeviceFacts, what: str, beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Variables of a program outlast a launch: such kernels had 100 to 600 GFLOPS on two cores."""
    if device.type != "cpu" or "Portable" in device.platform:
        pytest.skip("the driver takes no variables of a program")
    no_looks(monkeypatch)
    replaced(monkeypatch, *REMEMBERS[what])
    monkeypatch.setattr(runtime_module, "STANDARD", "-cl-std=CL3.0")
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, beta=beta), Operands(), replace(QUICK, budget_s=1.0))
    assert (row.status, row.samples) == ("wrong", {}), row.check_after


def no_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """No batch has its C filled anew: that makes some kernels do their work after all."""
    monkeypatch.setattr(Bench, "_looks", lambda bench: False)


def replaced(monkeypatch: pytest.MonkeyPatch, *pieces: tuple[str, str]) -> None:
    """Replace pieces of naive's source."""
    text = kernel_files.source

    def planted(*names: Any) -> str:
        source = text(*names)
        for old, new in pieces:
            source = source.replace(old, new)
        return source

    monkeypatch.setattr(runtime_module, "source", planted)


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
    device: DeviceFacts, writes: str, reason: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At the timed size alone: the exact test does not see it."""
    replaced(monkeypatch, (_BEGIN, _BEGIN + writes))
    policy = replace(QUICK, memory=memory, budget_s=1.0)
    row = _measured(device, Gemm(SIZE, SIZE, SIZE), Operands(), policy)
    assert (row.status, row.samples, row.reason) == ("wrong", {}, reason)


_WRITES = {
    "cells behind C were written": "C[(size_t)m * ldc + column] = 1;",
    "A was written": "((__global int *)A)[column] |= 1;",
}


@pytest.mark.parametrize("memory", ["mapped", "staged"])
@pytest.mark.parametrize("reason", _WRITES)
def test_what_one_kernel_writes_is_no_fault_of_the_one_in_turn_with_it(
    device: DeviceFacts, reason: str, memory: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replaced(monkeypatch, (_BEGIN, _BEGIN + f"if (m > 200 && row == 0) {_WRITES[reason]}"))
    present, former = in_turn(device, "tiled", "naive", memory)
    assert present.verify("before").check.verdict == "ok"
    assert former.verify("before").check.reasons == (reason,)
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
    with pytest.raises(NotMeasuredError, match="were written, by it or by the kernel in turn") as caught:
        present.verify("after")
    assert caught.value.status == "failed"
    assert former.verify("after").check.reasons == ()


@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize("memory", ["mapped", "staged", "pageable"])
def test_what_the_devices_batches_wrote_is_not_hidden_by_the_hosts(
    device: DeviceFacts, memory: str, beta: float
) -> None:
    (case,) = gemm_plan([device], [BY_NAME["naive"]], [Gemm(SIZE, SIZE, SIZE, beta=beta)])
    assert isinstance(case, Case)
    bench = GemmExecutor(Runtime(device)).prepare(case, replace(QUICK, memory=memory))
    assert bench.verify("before").check.verdict == "ok"
    clocks = [clock for clock in ("host", "pageable") if clock in bench.prepared.clocks]
    assert "host" in clocks
    for clock, (scribbles, reasons) in itertools.product(clocks, ((True, ("A was written",)), (False, ()))):
        bench.start("device", 2)
        if scribbles:
            scribble(bench, "A")
        for _ in range(2):
            bench.start(clock, 1)
        assert bench.verify("after").check.reasons == reasons


def skip_launches(monkeypatch: pytest.MonkeyPatch, looks_at_c: bool = False) -> None:
    """From now on launches do nothing; or that alone which C does not hold already."""
    enqueue, wrote = Prepared.enqueue, np.zeros(1, np.uint32)
    nothing = cache(lambda queue: cl.Buffer(queue.context, cl.mem_flags.READ_WRITE, 16))

    def skipping(self: Prepared, queue: Any) -> Any:
        held, event = np.zeros(1, np.uint32), None
        if looks_at_c:
            cl.enqueue_copy(queue, held, self.held["C"], src_offset=4 * SIZE)
        if held != wrote:
            event = enqueue(self, queue)
            cl.enqueue_copy(queue, wrote, self.held["C"], src_offset=4 * SIZE)
        return event or cl.enqueue_fill_buffer(queue, nothing(queue), np.uint32(0), 0, 16)

    monkeypatch.setattr(Prepared, "enqueue", skipping)


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


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_kernel_that_skips_between_two_launches_what_c_holds_already_is_wrong(
    device: DeviceFacts, beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It does its work on a C that was erased: that problem lasts longer than the others of its batch."""
    size = SIZE if device.type == "cpu" else 4 * SIZE  # what a GPU does in 20 us is not told
    bench = prepared(device, beta, "mapped", size=size)
    with monkeypatch.context() as patch:
        skip_launches(patch, looks_at_c=True)
        run_batches(bench, "device")
    run_batches(bench, "device", 1)
    check = bench.verify("after").check
    assert check.verdict == "wrong"
    assert check.reasons[0].endswith("where C holds the result: it does not do its work every time")


def test_a_batch_is_judged_by_what_it_left_not_by_the_next(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a GPU the next is in the queue before a batch is read."""
    monkeypatch.setattr(Bench, "_ahead", ("device",))
    monkeypatch.setattr("secrets.randbelow", lambda most: 0)  # every batch is looked at
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
    comparer = Comparer(runtime, runtime.filled(values), values.nbytes)
    assert not comparer.compare(runtime.filled(values)).differs()
    for word, bit in ((0, 0), (777, 9), (999, 31)):
        changed = values.copy()
        changed.view(np.uint32)[word] ^= np.uint32(1 << bit)
        assert comparer.compare(runtime.filled(changed)).differs()
    assert not comparer.compare(runtime.filled(values)).differs()


def prepared(device: DeviceFacts, beta: float, memory: str, cold: bool = False, size: int = SIZE) -> Bench:
    """Naive, verified once."""
    (case,) = gemm_plan([device], [BY_NAME["naive"]], [Gemm(size, size, size, beta=beta)])
    assert isinstance(case, Case)
    bench = GemmExecutor(Runtime(device)).prepare(case, replace(QUICK, memory=memory, cold=cold))
    assert bench.verify("before").check.verdict == "ok"
    return bench


def run_batches(bench: Bench, clock: str, count: int = 40) -> None:
    """So many: of forty, none is looked at once in 2^30."""
    for _ in range(count):
        running = bench.start(clock, 4)
        if not isinstance(running, Batch):
            running.finish()


def in_turn(device: DeviceFacts, first: str, second: str, memory: str) -> tuple[Bench, Bench]:
    """Two kernels on the same operands."""
    runs, policy = GemmExecutor(Runtime(device)), replace(QUICK, memory=memory)
    one, other = gemm_plan([device], [BY_NAME[first], BY_NAME[second]], [Gemm(SIZE, SIZE, SIZE)])
    assert isinstance(one, Case)
    assert isinstance(other, Case)
    bench = runs.prepare(one, policy)
    return bench, runs.prepare(other, policy, bench)


def scribble(bench: Bench, name: str, offset: int = 64) -> None:
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
    (case,) = gemm_plan([device], [BY_NAME[name]], [Gemm(SIZE, SIZE, SIZE)])
    if not isinstance(case, Case):
        pytest.skip(case.row.reason)
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
    (case,) = gemm_plan([few], [BY_NAME["naive"]], [Gemm(SIZE, SIZE, SIZE)])
    assert isinstance(case, Case)
    bench = GemmExecutor(Runtime(few)).prepare(case, replace(QUICK, memory=memory))
    sizes = [operand.buffer.size for operand in bench._operands[0]]
    assert sizes == [nbytes, nbytes, nbytes + min(spare, 4096)]
    assert bench.verify("before").check.reasons == bench.verify("after").check.reasons == ()


def test_batches_run_again_for_a_share_of_the_time_limit(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of a long row, warming and energy among them, would take four times what it took."""
    (case,) = gemm_plan([device], [BY_NAME["naive"]], [Gemm(16, 12, 8)])
    assert isinstance(case, Case)
    bench = GemmExecutor(Runtime(device)).prepare(case, replace(QUICK, time_limit_s=8.0))
    assert bench.verify("before").check.verdict == "ok"
    for count in range(1, 6):
        bench.start("device", count)
    timed, enqueue = list(bench.timed), bench._enqueue
    counts: list[int] = []

    def counted(plan: Any, count: int) -> Any:
        counts.append(count)
        if count > 3:
            raise cl.RuntimeError("no more")
        return enqueue(plan, count)

    paces = bench.paces(0, bench._answers.before)
    assert paces is not None
    monkeypatch.setattr(bench, "_enqueue", counted)
    for tick_s, wanted in (0.15, [1, 2, 3]), (0.1, [1, 2, 3, 4]):  # of which a batch takes three
        counts.clear()
        clock = SimpleNamespace(monotonic=partial(next, itertools.count(0.0, tick_s)))
        monkeypatch.setattr(opencl_bench, "time", clock)
        with suppress(cl.RuntimeError):
            paces.on_result(True)
        assert (counts, bench.timed) == (wanted, timed)


def test_a_kernel_is_timed_on_the_c_that_batches_left(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where problems add to C, one could do less from a size on: it is as large as in the batches."""
    (case,) = gemm_plan([device], [BY_NAME["naive"]], [Gemm(16, 12, 8, beta=1.0)])
    assert isinstance(case, Case)
    bench = GemmExecutor(Runtime(device)).prepare(case, QUICK)
    assert bench.verify("before").check.verdict == "ok"
    no_looks(monkeypatch)
    for _ in range(3):
        bench.start("device", 500)
    bench.start("host", 1)
    values = bench._values
    expected = values.c + 1501 * (values.a.astype(float) @ values.b)
    assert bench._left is not None
    np.testing.assert_allclose(bench._left, expected, rtol=1e-3, atol=1e-1)


def test_nothing_is_multiplied_where_alpha_is_0(device: DeviceFacts) -> None:
    """A BLAS may leave A and B alone then: its rate was 100 times that of a multiplication."""
    row = _measured(device, Gemm(SIZE, SIZE, SIZE, alpha=0.0, beta=0.5), Operands())
    assert (row.status, row.samples) == ("ok", {})
