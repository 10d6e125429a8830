"""Every variant of the ladder on every device: exact on every edge, guarded, and caught when broken."""

from __future__ import annotations

import gc
import itertools
import shutil
import statistics
import weakref
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyopencl as cl
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gemmbench.gemm import opencl_bench
from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.opencl_bench import _device_seconds
from gemmbench.ladder import BY_NAME, LADDER
from gemmbench.ladder.variant import Values, laid_out
from gemmbench.model import instrument, kernel_files
from gemmbench.model.case import Case, Policy, Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import CYCLE, PARTS, WHOLE, Check, Row
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from gemmbench.stats import rates
from gemmbench.suite.plan import gemm_plan
from gemmbench.suite.selection import select
from tests import in_process
from tests.device.conftest import Plant, all_devices, exact_error, executor
from tests.in_process import plan_case

QUICK = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0)

#        m    n    k
EDGES = [
    (0, 5, 5),
    (5, 0, 5),
    (5, 5, 0),
    (0, 0, 0),
    (1, 1, 1),
    (1, 130, 3),
    (130, 1, 3),
    (3, 2, 130),
    (7, 13, 31),
    (63, 65, 64),
    (127, 129, 128),
    (128, 128, 128),
    (257, 64, 33),
]
SCALARS = [(1.0, 0.0), (2.0, -1.0), (0.0, 0.0), (0.0, 1.0), (-1.0, 0.5)]


def bound(
    device: DeviceFacts, name: str, dtype: str, overrides: Values | None = None
) -> tuple[GemmExecutor, Any]:
    """An executor and the function that binds a variant's kernels to a problem's buffers."""
    made = executor(device)
    variant = laid_out(BY_NAME[name], Gemm(8, 8, 8, dtype))
    parameters = variant.preset(device.family, overrides, dtype)
    plan_case(device, variant, Gemm(8, 8, 8, dtype), overrides, may_skip=True)
    parameters = variant.compiled(Gemm(8, 8, 8, dtype), device, parameters)
    programs = made.programs(variant, dtype, parameters)
    return made, partial(made.bind, variant, parameters, programs)


@pytest.mark.every_driver
@pytest.mark.parametrize(
    ("name", "dtype"), [(name, dtype) for name in LADDER for dtype in BY_NAME[name].needs.dtypes]
)
def test_exact_on_every_edge(
    device: DeviceFacts, name: str, dtype: str, request: pytest.FixtureRequest
) -> None:
    """With guard cells, lda > k, ldb > n, ldc > n, and NaN wherever nothing may be read.

    One type of each kernel is optimized; `make drivers` tries every type so, on every driver.
    """
    if dtype != BY_NAME[name].needs.dtypes[0] and device not in select(all_devices(), ""):
        pytest.skip("one type of each kernel is enough on other drivers")
    if dtype != BY_NAME[name].needs.dtypes[0]:
        request.getfixturevalue("unoptimized")
    made, bind = bound(device, name, dtype)
    for m, n, k in EDGES:
        for alpha, beta in SCALARS if (m, n, k) == (7, 13, 31) else SCALARS[:2]:
            if dtype == "char":
                beta = round(2 * beta)
            problem = Gemm(m, n, k, dtype, alpha, beta)
            assert exact_error(made, problem, bind) == "", problem


@pytest.mark.parametrize("name", LADDER)
@given(m=st.integers(0, 200), n=st.integers(0, 200), k=st.integers(0, 200), scalars=st.sampled_from(SCALARS))
@settings(max_examples=10, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_exact_on_any_shape(
    device: DeviceFacts, name: str, m: int, n: int, k: int, scalars: tuple[float, float]
) -> None:
    dtype = BY_NAME[name].needs.dtypes[0]
    made, bind = bound(device, name, dtype)
    alpha, beta = scalars
    problem = Gemm(m, n, k, dtype, alpha, round(2 * beta) if dtype == "char" else beta)
    assert exact_error(made, problem, bind) == ""


SMALL = list(itertools.product(range(1, 5), repeat=2))


@pytest.mark.parametrize(
    ("name", "dtype", "sizes"),
    [
        *(("naive", dtype, SMALL) for dtype in BY_NAME["naive"].needs.dtypes),
        *((name, BY_NAME[name].needs.dtypes[0], [(1, 1)]) for name in LADDER if name != "naive"),
    ],
)
def test_small_results_are_verified_on_the_launches_that_are_timed(
    device: DeviceFacts, name: str, dtype: str, sizes: list[tuple[int, int]]
) -> None:
    """Buffers have at least 16 bytes: the copy that erases a smaller C must not reach the guard cells."""
    policy = replace(QUICK, budget_s=0.01)
    for m, n in sizes:
        step = plan_case(device, name, Gemm(m, n, 64, dtype), may_skip=True)
        row = in_process.measured(executor(device), step, policy, device)
        assert row.status == "ok", (m, n, row.reason)


#   a kernel, its type, parameters beside its preset
PARAMETERS: list[tuple[str, str, dict[str, int]]] = [
    ("padded", "float", {"WIDTH": 4, "PAD": 2}),
    ("padded", "double", {"WIDTH": 2, "FUSED": 1}),
    ("padded-160x160", "float", {}),
    ("dot-v8-indexed", "float", {}),
    ("dotf-v16-indexed", "double", {}),
    ("thin", "float", {"COLUMNS": 1, "THIN": 4, "PARTS": 2}),
]


@pytest.mark.parametrize(("name", "dtype", "overrides"), PARAMETERS)
def test_exact_with_parameters(device: DeviceFacts, name: str, dtype: str, overrides: dict[str, int]) -> None:
    made, bind = bound(device, name, dtype, overrides)
    for shape in [(0, 5, 5), (5, 5, 0), (1, 1, 1), (7, 13, 31), (161, 159, 33)]:
        for alpha, beta in SCALARS[:2]:
            assert exact_error(made, Gemm(*shape, dtype, alpha, beta), bind) == "", shape


@pytest.mark.parametrize("exchange", [1, 2])
def test_a_sub_group_shares_by_shuffle_and_by_the_read_only_path(device: DeviceFacts, exchange: int) -> None:
    overrides = {"EXCHANGE": exchange, "LANES": 16}
    row = measured(device, "subgroup", Gemm(67, 45, 50, beta=1.0), overrides=overrides)
    shuffles = "cl_khr_subgroup_shuffle" in device.extensions
    assert row.status == ("ok" if shuffles or exchange == 2 else "unsupported"), row.reason


def measured(device: DeviceFacts, name: str, problem: Gemm, policy: Policy = QUICK, **extra: Any) -> Row:
    (step,) = gemm_plan([device], [BY_NAME[name]], [problem], **extra)
    if isinstance(step, Skip):
        return step.row
    return in_process.measured(executor(device), step, policy)


@pytest.mark.every_driver
@pytest.mark.parametrize("memory", ["mapped", "staged", "pageable"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
@pytest.mark.parametrize(("name", "m"), [("tiled", 65), ("image-4x8", 65), ("image-4x8", 3)])
def test_every_memory_mode_brings_the_right_answer_back(
    device: DeviceFacts, name: str, m: int, memory: str, beta: float
) -> None:
    policy = Policy(**{**vars(QUICK), "memory": memory})
    row = measured(device, name, Gemm(m, 33, 70, beta=beta), policy)
    assert (row.status, row.memory, row.check.verdict) == ("ok", memory, "ok")
    assert set(row.samples) - {"chain"} == {"kernel", "device", "host"}
    assert row.launches[0].running_s > 0
    _assert_it_adds_up(row, memory)


@pytest.mark.every_driver
@pytest.mark.parametrize("memory", ["svm", "svm-fine"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_shared_virtual_memory_brings_the_right_answer_back(
    device: DeviceFacts, memory: str, beta: float
) -> None:
    policy = Policy(**{**vars(QUICK), "memory": memory})
    capabilities = executor(device).runtime.device.svm_capabilities
    if memory == "svm-fine" and not capabilities & cl.device_svm_capabilities.FINE_GRAIN_BUFFER:
        pytest.skip("the device has no fine-grained shared virtual memory")
    row = measured(device, "tiled", Gemm(65, 33, 70, beta=beta), policy)
    assert (row.status, row.memory, row.check.verdict) == ("ok", memory, "ok")
    _assert_it_adds_up(row, memory)
    with pytest.raises(NotMeasuredError, match="an image cannot lie in shared virtual memory"):
        measured(device, "image-4x8", Gemm(65, 33, 70), policy)


@pytest.mark.parametrize(
    ("memory", "has", "reason"),
    [
        ("svm", 0, "the device has no shared virtual memory"),
        ("svm-fine", 1, "the device has no fine-grained shared virtual memory: use --memory svm"),
    ],
)
def test_a_device_without_shared_virtual_memory_is_unsupported(memory: str, has: int, reason: str) -> None:
    lacking = SimpleNamespace(device=SimpleNamespace(svm_capabilities=has), queue=None)
    with pytest.raises(NotMeasuredError, match=reason) as caught:
        runtime_module.operand(lacking, memory, (2, 2), np.dtype(np.float32))  # type: ignore[arg-type]  # all that it asks for
    assert caught.value.status == "unsupported"


def test_memory_is_free_as_soon_as_a_bench_is_released(device: DeviceFacts) -> None:
    """Also after a batch that nobody verified, as of a trial: a collection would disturb a later batch."""
    case = plan_case(device, "naive", Gemm(8, 8, 8))
    bench = GemmExecutor(Runtime(device)).prepare(case, Policy())
    started = bench.start("device", 2)
    assert (started if isinstance(started, Batch) else started.finish()).count == 2
    gone = weakref.ref(bench)
    gc.collect()
    gc.disable()
    try:
        bench.release()
        del bench, started
        assert gone() is None
    finally:
        gc.enable()


def _assert_it_adds_up(row: Row, memory: str) -> None:
    """Parts, and of mapped memory the cycle that begins with mapping, are the whole."""
    for parts, wanted in ((row.parts, True), (row.cycle, memory in runtime_module.MAPPED)):
        assert bool(parts) == wanted
        sums = [sum(part) for part in zip(*(parts[name] for name in parts if name != WHOLE), strict=True)]
        ratios = [whole / added for whole, added in zip(parts.get(WHOLE, sums), sums, strict=True)]
        assert statistics.median(ratios or [1.0]) == pytest.approx(1, rel=0.03)  # others may come in between


@pytest.mark.every_driver
def test_a_map_cycle_maps_all_three_before_and_after(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    step = plan_case(device, "tiled", Gemm(65, 33, 70))
    bench = executor(device).prepare(step, Policy(**{**vars(QUICK), "memory": "mapped"}))
    mapped: list[bool] = []
    to_host = runtime_module.Mapped.to_host

    def counted(self: runtime_module.Mapped, queue: Any, discard: bool = False) -> None:
        mapped.append(self._host is None)
        to_host(self, queue, discard)

    monkeypatch.setattr(runtime_module.Mapped, "to_host", counted)
    seconds = bench._host_run(0, CYCLE, bench._hosted[0])
    assert mapped == 6 * [True]
    assert set(seconds) == {WHOLE, *PARTS}
    assert all(operand._host is not None for operand in bench._operands[0])


class Stamped:
    """An event with stamps in nanoseconds, or a driver's refusal to tell them."""

    def __init__(self, nanoseconds: int | None) -> None:
        self._nanoseconds = nanoseconds

    @property
    def profile(self) -> SimpleNamespace:
        if self._nanoseconds is None:
            raise cl.LogicError("clGetEventProfilingInfo", cl.status_code.PROFILING_INFO_NOT_AVAILABLE, "")
        return SimpleNamespace(queued=0, submit=0, start=10, end=10 + self._nanoseconds)


def test_an_upload_without_stamps_is_waited_for_and_a_kernel_without_them_is_an_error() -> None:
    events = [("upload", Stamped(None)), ("upload", None), ("pad", Stamped(200)), ("multiply", Stamped(300))]
    assert _device_seconds(events) == pytest.approx({"upload": 0.0, "passes": 2e-7, "kernel": 3e-7})
    with pytest.raises(cl.Error):
        _device_seconds([("multiply", Stamped(None))])


@pytest.mark.parametrize("name", ["naive", "padded"])
def test_a_long_problem_has_every_scope_in_one_batch(
    device: DeviceFacts, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = plan_case(device, name, Gemm(60, 60, 60))
    bench = executor(device).prepare(case, QUICK)
    assert bench.verify("before").check.verdict == "ok"
    short = bench.start("host", 2)
    assert list(short.seconds) == ["host"]
    monkeypatch.setattr(opencl_bench, "LONG_S", 0.0)
    batch = bench.start("host", 2)
    assert list(batch.seconds) == ["kernel", "device", "host"]
    seconds = batch.seconds
    assert 0 < seconds["kernel"] <= seconds["device"] < seconds["host"]
    assert (seconds["kernel"] < seconds["device"]) == (name == "padded")  # which has passes
    assert bench.verify("after").check.verdict == "ok"


def test_a_long_problem_with_an_image_has_the_device_scope_apart(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the host a matrix goes into its image at once, so that the device scope has one launch more."""
    case = plan_case(device, "image-4x8", Gemm(64, 64, 64), may_skip=True)
    monkeypatch.setattr(opencl_bench, "LONG_S", 0.0)
    batch = executor(device).prepare(case, QUICK).start("host", 2)
    assert list(batch.seconds) == ["host"]


@pytest.mark.parametrize(("clock", "runs"), [("host", 1), ("device", 1), ("", 0)])
@pytest.mark.parametrize("is_right", [True, False])
def test_the_first_batch_of_a_long_problem_is_verified(
    device: DeviceFacts, clock: str, runs: int, is_right: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The device's clock has no C that was filled before, so another problem is verified there."""
    monkeypatch.setattr(opencl_bench, "_VERIFIED_BATCH_S", 0.0)
    case = plan_case(device, "naive", Gemm(60, 60, 60))
    bench = executor(device).prepare(case, QUICK)
    assert bench.verify("before").check == Check("ok")
    if not is_right:  # a kernel that integers do not find out
        plain = bench._read
        monkeypatch.setattr(bench, "_read", lambda index: plain(index) * np.float32(1.001))
    for _ in range(runs):
        bench.start(clock, 1)
    if clock:
        monkeypatch.undo()
    check = bench.verify("after").check
    assert check.verdict == ("ok" if is_right else "wrong")
    assert "element" in check.figures


@pytest.mark.parametrize(("clock", "stops_before"), [("host", 1), ("host", 2), ("host", 3), ("device", 1)])
def test_every_batch_of_a_long_problem_is_compared_and_nothing_runs_after(
    device: DeviceFacts, clock: str, stops_before: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A kernel that stops writing C is wrong from its first such batch on: the second, the third, or none.

    On a device without a clock batches are not compared, so one more problem runs.
    """
    monkeypatch.setattr(opencl_bench, "_VERIFIED_BATCH_S", 0.0)
    monkeypatch.setattr(executor(device).runtime, "has_clock", clock == "host")
    case = plan_case(device, "naive", Gemm(60, 60, 60))
    bench = executor(device).prepare(case, QUICK)
    assert bench.verify("before").check == Check("ok")
    for batch in range(3):
        if batch == stops_before:
            monkeypatch.setattr(opencl_bench.PreparedLaunch, "enqueue", lambda _, q: cl.enqueue_marker(q))
        bench.start(clock, 1)
    if stops_before == 3:
        monkeypatch.setattr(bench, "answer", None)  # nothing asks for it
    assert bench.verify("after").check.verdict == ("ok" if stops_before == 3 else "wrong")


def test_cold_runs_rotate_operands(device: DeviceFacts) -> None:
    policy = Policy(**{**vars(QUICK), "cold": True})
    row = measured(device, "naive", Gemm(200, 200, 20), policy)
    assert row.status == "ok"
    assert any("rotates among 64 operand sets" in note for note in row.notes)


def test_an_empty_product_is_verified_and_not_timed(device: DeviceFacts) -> None:
    row = measured(device, "naive", Gemm(8, 8, 0, beta=1.0))
    assert (row.status, row.samples, row.check.verdict) == ("ok", {}, "ok")


def test_what_cannot_finish_is_skipped_with_a_prediction(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instrument, "LONGEST_S", 0.001)
    policy = Policy(budget_s=0.001)
    with pytest.raises(NotMeasuredError, match=r"one problem takes about .* --budget \d+ runs it") as caught:
        measured(device, "naive", Gemm(2048, 2048, 2048), policy)
    assert caught.value.status == "skipped"


def test_the_batches_are_shared_among_the_launches(device: DeviceFacts) -> None:
    row = measured(device, "padded-fused", Gemm(90, 70, 50))
    assert [launch.name for launch in row.launches] == ["pad", "transpose", "padded", "unpad"]
    timed = [launch.timed_s for launch in row.launches]
    assert all(seconds is not None and seconds > 0 for seconds in timed)
    if row.samples["kernel"].seconds == row.samples["device"].seconds:
        pytest.skip("the events of the batches were not believed on this busy machine")
    assert 0 < (rates.helpers_share(row) or 0) < 1


BREAKS = {
    #  a variant, what in its source is replaced, by what
    "the wrong row packed": ("cpu-packed", "to[j] = WIDE(, from[j])", "to[j] = WIDE(, from[0])"),
    "wrong edge": ("naive", "row >= m || column >= n", "row >= m - 1 || column >= n"),
    "writes past the edge": ("naive", "row >= m || column >= n", "row >= m || column >= ldc"),
    "swapped index": ("tiled", "At[y][p] * Bt[p][x]", "At[y][p] * Bt[x][p]"),
    "short loop": ("register", "p0 < k; p0 += BK", "p0 < k - 1; p0 += BK"),
    "reads C when beta is 0": ("naive", "beta == 0 ? scaled : scaled +", "scaled +"),
    "no tail": ("dot-v8", "for (; p > 0; p--)", "for (; p > 1; p--)"),
    "lanes swapped": ("padded-160x160", "rows.lanes[i]", "rows.lanes[i ^ 1]"),
    "unscaled": ("padded", "(REAL)alpha * CP", "CP"),
    "no tail of an index": ("dot-v4-indexed", "for (; p < k; p++)", "for (; p < k - 1; p++)"),
    "neighbour": ("block2x2-v4", "store(c + 1, alpha, s01, beta)", "store(c + 1, alpha, s00, beta)"),
    "another work-item's row": ("coarse", "At[y + w * RTS][p] * b", "At[y + w][p] * b"),
    "a lane too few": ("wide", "STEP(2, s2) STEP(3, s3)", "STEP(2, s2)"),
    "another depth": ("rect", "At[p][y * TM + i] * b", "At[0][y * TM + i] * b"),
    "a lane past the edge": ("register-wide", "if (i < left)", "if (i <= left)"),
    "the half being written": ("prefetch", "At[now][p]", "At[now ^ 1][p]"),
    "rows of a micro-tile swapped": ("subgroup", "row = row0 + i, column", "row = row0 + (i ^ 1), column"),
    "half a dot product": ("dotf-v8", " + dot(a.hi, b.hi)", ""),
    "rows swapped": ("block4x4-v4", "(size_t)min(row + i, m - 1)", "(size_t)min(row + 3 - i, m - 1)"),
    "gathered twice": ("mali-sgemm", "b[2 * step], b[3 * step]", "b[2 * step], b[2 * step]"),
    "swapped pixels": ("image-4x8", "b2 = READ(BI, x, p + 2)", "b2 = READ(BI, x, p + 3)"),
    "pixels past the edge": ("image-4x8", "left > 1 ? b[1] : (REAL)0", "left > 1 ? b[0] : (REAL)0"),
    "swapped vectors": ("buffer-4x8", "b2 = READ(x, p + 2)", "b2 = READ(x, p + 3)"),
    "an image of zeros": ("image-4x8", "WRITE(BI, x, p,", "if (p == 0) WRITE(BI, x, p,"),
}


@pytest.mark.usefixtures("unoptimized")
@pytest.mark.parametrize("fault", BREAKS)
def test_a_broken_kernel_is_caught(device: DeviceFacts, fault: str, plant: Plant) -> None:
    name, *piece = BREAKS[fault]
    plant(piece, files=BY_NAME[name].files)
    (step,) = gemm_plan([device], [BY_NAME[name]], [Gemm(50, 50, 50)])
    if isinstance(step, Skip) and BY_NAME[name].needs.device_type not in ("", device.type):
        pytest.skip(step.row.reason)  # cpu-packed is for CPUs: on a GPU there is no copy of it to break
    assert isinstance(step, Case)
    row = in_process.measured(GemmExecutor(Runtime(device)), step, QUICK)
    assert row.status == "wrong", fault
    assert row.reason
    assert row.samples == {}


def test_a_build_error_shows_the_drivers_log(device: DeviceFacts, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runtime_module, "text", lambda *_: "__kernel void naive() { undeclared = 1; }")
    step = plan_case(device, "naive", Gemm(8, 8, 8))
    with pytest.raises(NotMeasuredError, match=r"(?s)01_naive.cl does not compile: .*undeclared") as caught:
        in_process.measured(GemmExecutor(Runtime(device)), step, QUICK)
    assert len(caught.value.reason) < 2000


def in_turn(
    device: DeviceFacts, folder: Path, old: str = "", new: str = "", beta: float = 0.0, memory: str = "auto"
) -> Row:
    """naive, in turn with itself as it is in a copy of the kernels in which something is replaced."""
    shutil.copytree(kernel_files.folder(), folder)
    file = folder / "gemm" / "01_naive.cl"
    source = file.read_text(encoding="utf-8")
    assert old in source
    file.write_text(source.replace(old, new), encoding="utf-8")
    step = plan_case(device, "naive", Gemm(50, 50, 50, beta=beta))
    policy = replace(QUICK, memory=memory)
    return in_process.measured(
        executor(device), replace(step, partner=replace(step, kernels=str(folder))), policy
    )


@pytest.mark.parametrize("memory", ["mapped", "staged"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_kernel_is_interleaved_with_its_old_version(
    device: DeviceFacts, tmp_path: Path, beta: float, memory: str
) -> None:
    row = in_turn(device, tmp_path / "kernels", "/*", "/* as it was\n *", beta, memory)
    assert row.status == "ok"
    assert row.former.source == BY_NAME["naive"].fingerprint("float", {}, str(tmp_path / "kernels"))
    assert row.former.source != row.source
    assert set(row.samples) - {"chain"} == {"kernel", "device", "host"}
    for name, scope in row.samples.items():
        assert len(scope.seconds) == len(row.former.samples[name].seconds) >= 3
        assert scope.seconds != row.former.samples[name].seconds


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("sum +=", "sum -=", "700 of 735 elements differ"),
        ("sum +=", "sum + undeclared;", "gemm/01_naive.cl does not compile"),
        ("__kernel void naive(", "__kernel void former(", "the driver reported an error"),
        ("__kernel void naive(", "__kernel void naive(const int more, ", ""),
    ],
)
def test_a_wrong_old_kernel_is_not_compared_with(
    device: DeviceFacts, tmp_path: Path, old: str, new: str, reason: str
) -> None:
    with pytest.raises(NotMeasuredError) as caught:
        in_turn(device, tmp_path / "kernels", old, new)
    assert caught.value.status == "unsupported"
    assert caught.value.reason.startswith(f"its kernel in the other folder: {reason}")
    assert str(tmp_path) not in caught.value.reason


@pytest.mark.parametrize("memory", ["mapped", "staged"])
def test_an_old_kernel_that_writes_nothing_at_this_size_is_caught(
    device: DeviceFacts, tmp_path: Path, memory: str
) -> None:
    """C holds the present kernel's answer by then."""
    old, new = "row >= m || column >= n", "row >= m || column >= n || m == 50"
    with pytest.raises(NotMeasuredError, match=r"C\[0\]\[0\] is nan") as caught:
        in_turn(device, tmp_path / "kernels", old, new, memory=memory)
    assert caught.value.status == "unsupported"


def test_a_wrong_kernel_is_wrong_whatever_the_old_kernel_is(
    device: DeviceFacts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At this size alone, so that it passes the exact test."""
    text = kernel_files.text

    def broken(file: str, root: str) -> str:
        source = text(file, root)
        return source if root else source.replace("column >= n", "column >= n || m == 50")

    monkeypatch.setattr(runtime_module, "text", broken)
    step = plan_case(device, "naive", Gemm(50, 50, 50))
    case = replace(step, partner=replace(step, kernels=str(tmp_path)))
    row = in_process.measured(GemmExecutor(Runtime(device)), case, QUICK)
    assert row.status == "wrong"


def test_a_missing_old_kernel_is_reported(device: DeviceFacts, tmp_path: Path) -> None:
    step = plan_case(device, "naive", Gemm(8, 8, 8))
    with pytest.raises(NotMeasuredError, match=r"^its kernel in the other folder: no such file") as caught:
        in_process.measured(
            executor(device), replace(step, partner=replace(step, kernels=str(tmp_path))), QUICK
        )
    assert caught.value.status == "unsupported"
