"""cuBLAS against numpy, on a GPU that is the host: order of arguments, types, what is refused."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from gemmbench.gemm import cublas, opencl_bench
from gemmbench.gemm.answers import Answers
from gemmbench.gemm.cublas import CublasBench, CublasExecutor, step
from gemmbench.gemm.opencl import load_library
from gemmbench.gemm.verify import ExactTest
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Layout, round_up
from gemmbench.measure.machine import OpenCLMachine
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.dtypes import FP8_DTYPES
from gemmbench.model.instrument import Batch, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Row
from gemmbench.suite.plan import gemm_plan
from tests import fake_runs, in_process
from tests.fake_cuda import NOT_SUPPORTED, FakeCublas, FakeCuda
from tests.in_process import plan_case

DEVICE = replace(fake_runs.GPU, pci="0000:17:00.0")
QUICK = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0)
CUBLAS = BY_NAME["cublas"]
ORDINARY = tuple(name for name in CUBLAS.needs.dtypes if name not in FP8_DTYPES)
Install = Callable[..., tuple[FakeCuda, FakeCublas]]


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Install:
    """Put made-up libraries where the real ones would be."""

    def install(
        driver: FakeCuda | None = None, library: FakeCublas | None = None
    ) -> tuple[FakeCuda, FakeCublas]:
        made = driver or FakeCuda(), library or FakeCublas()
        made[1].driver = made[0]

        def found(title: str) -> Any:
            return made[1].lt if title == "cuBLASLt" else made[title == "cuBLAS"]

        monkeypatch.setattr(cublas, "load_library", lambda title, *_: found(title))
        return made

    return install


def case(problem: Gemm, operands: Operands | None = None) -> Case:
    return plan_case(DEVICE, CUBLAS, problem, operands=operands)


def exact_error(executor: CublasExecutor, problem: Gemm) -> str:
    """What is wrong with one problem in padded, guarded buffers, or ""."""
    dtype = problem.dtype
    rows = (round_up(length + gap, step(dtype)) for length, gap in zip(problem.tight, (3, 5, 7), strict=True))
    test = ExactTest.of(problem, Layout(*rows))
    bind = partial(executor.bind, CUBLAS, {}, {})
    return test.error(executor._result(test, bind))


def ready(problem: Gemm, policy: Policy = QUICK, executor: CublasExecutor | None = None) -> CublasBench:
    bench = (executor or CublasExecutor(DEVICE)).prepare(case(problem), policy)
    assert isinstance(bench, CublasBench)
    return bench


def measured(problem: Gemm, policy: Policy = QUICK, operands: Operands | None = None) -> Row:
    return in_process.measured(CublasExecutor(DEVICE), case(problem, operands), policy)


@pytest.mark.parametrize("dtype", ORDINARY)
@pytest.mark.parametrize("shape", [(0, 5, 5), (5, 0, 5), (5, 5, 0), (1, 1, 1), (3, 2, 130), (63, 17, 31)])
@pytest.mark.parametrize("scalars", [(1.0, 0.0), (2.0, -1.0), (0.0, 1.0)])
def test_row_major_operands_give_the_exact_answer(
    install: Install, dtype: str, shape: tuple[int, int, int], scalars: tuple[float, float]
) -> None:
    """The library reads columns; with guard cells, long rows, and NaN in C where beta is 0."""
    install()
    m, n, k = shape
    taken = Gemm(m, round_up(n, step(dtype)), round_up(k, step(dtype)), dtype, *scalars)
    assert exact_error(CublasExecutor(DEVICE), taken) == ""


@pytest.mark.parametrize("dtype", ["float", "char"])
@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, True), (True, False), (True, True)])
def test_operands_may_be_stored_transposed(
    install: Install, dtype: str, trans_a: bool, trans_b: bool
) -> None:
    install()
    m, n, k = (round_up(length, step(dtype)) for length in (21, 9, 14))
    problem = Gemm(m, n, k, dtype, 2.0, -1.0, trans_a=trans_a, trans_b=trans_b)
    assert exact_error(CublasExecutor(DEVICE), problem) == ""
    row = measured(problem)
    assert (row.status, row.reason) == ("ok", "")


def test_n_may_be_anything_where_b_is_stored_transposed(install: Install) -> None:
    install()
    row = measured(Gemm(9, 7, 8, "char", trans_b=True))
    assert (row.status, row.reason) == ("ok", "")


@pytest.mark.parametrize(("dtype", "ld"), [("float", (33, 18, 19)), ("char", (40, 20, 19))])
@pytest.mark.parametrize("memory", ["auto", "pageable"])
def test_rows_may_be_apart(install: Install, dtype: str, ld: tuple[int, int, int], memory: str) -> None:
    install()
    row = measured(Gemm(21, 16, 32, dtype, 2.0, -1.0, ld=ld), replace(QUICK, memory=memory))
    assert (row.status, row.reason) == ("ok", "")


@pytest.mark.parametrize("dtype", ORDINARY)
@pytest.mark.parametrize("beta", [0.0, 1.0])
def test_a_row_is_verified_and_has_a_device_and_a_host_scope(
    install: Install, dtype: str, beta: float
) -> None:
    install()
    row = measured(Gemm(33, 20, 44, dtype, beta=beta))
    assert (row.status, row.check.verdict, row.memory) == ("ok", "ok", "staged"), row.reason
    assert set(row.samples) == {"device", "host"}
    assert set(row.parts) == {"upload", "enqueue", "passes", "download", "whole"}
    assert all(0 <= seconds < 1 for part in row.parts.values() for seconds in part)
    assert row.samples["device"].seconds[0] * row.samples["device"].batch == pytest.approx(1e-5)
    assert row.notes[-1:] == (
        "cuBLAS 13.1.0, device scope, by CUDA's events around each batch, which is replayed as a CUDA graph",
    )
    assert row.notes[:-1] == (("cublas rounds operands to tf32, to nearest",) if dtype == "tf32" else ())


@pytest.mark.parametrize("dtype", ORDINARY)
def test_a_batch_is_one_call_whose_problems_lie_one_behind_the_other(install: Install, dtype: str) -> None:
    _, library = install()
    problem = Gemm(16, 12, 8, dtype, 2.0, 0.0 if dtype == "char" else -1.0, trans_b=True, batch=3)
    assert exact_error(CublasExecutor(DEVICE), problem) == ""
    calls: list[int] = []
    library.cublasGemmStridedBatchedEx = lambda *rest: calls.append(rest[-3]) or 0  # type: ignore[method-assign]  # of this fake alone
    assert exact_error(CublasExecutor(DEVICE), problem) != ""
    assert calls == [3]


def test_what_is_timed_is_a_graph_and_no_loop_of_calls(install: Install) -> None:
    """A call from Python takes longer than the device does for n = 256."""
    driver, _ = install()
    bench = ready(Gemm(8, 8, 8))
    for count in (1, 5, 5, 1000):
        batch = bench.start("device", count)
        assert not isinstance(batch, Batch)
        finished = batch.finish()
        assert finished.seconds["device"] == pytest.approx(1e-5 / count)
    assert [len(graph) for graph in driver.graphs] == [5, 1000]  # a single call is no graph
    assert driver.replayed == [1, 1, 2]
    bench.release()
    assert sorted(driver.forgotten) == [1, 2]


def test_what_cannot_be_captured_ends_the_capture(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, library = install()
    executor = CublasExecutor(DEVICE)
    bench = ready(Gemm(8, 8, 8), executor=executor)
    library.status = NOT_SUPPORTED
    with pytest.raises(NotMeasuredError):
        bench.start("device", 5)
    assert driver.capturing is None
    monkeypatch.setattr(executor._library, "enqueue", lambda *_: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        bench.start("device", 5)
    assert driver.capturing is None


def test_a_graph_as_captured_is_given_back_whatever_happens(install: Install) -> None:
    driver, _ = install()
    bench = ready(Gemm(8, 8, 8))
    bench.start("device", 5)
    driver.cuGraphInstantiateWithFlags = lambda *_: 2  # type: ignore[method-assign]  # out of memory
    with pytest.raises(NotMeasuredError):
        bench.start("device", 6)
    assert driver.destroyed == [1, 2]


@pytest.mark.parametrize("length", [16, 24])
def test_every_call_in_a_graph_has_cold_operands(install: Install, length: int) -> None:
    """With 64 sets, 65 or 100 problems would begin with the set that the last ones had."""
    _, library = install()
    bench = ready(Gemm(length, 8, 8), replace(QUICK, cold=True))
    assert bench.sets == 64
    for count in (65, 65, 100, 100, 1, 65):
        bench.start("device", count)
        assert bench._buffers[bench._rotation.index(-1)][0]["C"] == library.results[-1]
    last: dict[int, int] = {}
    for number, address in enumerate(library.results):
        assert number - last.get(address, -64) > 32
        last[address] = number
    assert len(bench._graphs) <= 4
    bench.release()


def test_half_is_held_to_sums_in_float(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong rounding of one unit of half passes where sums are kept in half, and not here."""
    install(library=FakeCublas(off_by=0.02))
    with_exact = CublasExecutor(DEVICE)
    monkeypatch.setattr(with_exact, "_exact_error", lambda *_: "")  # exact tests would find it first
    monkeypatch.setattr(Answers, "_check_exact", lambda *_, **__: Check("ok"))
    row = in_process.measured(with_exact, case(Gemm(64, 64, 64, "half")), QUICK)
    assert row.status == "wrong"
    assert "elements exceed the rounding bound" in row.reason


def test_a_wrong_answer_has_no_rate(install: Install) -> None:
    install(library=FakeCublas(off_by=1.0))
    row = measured(Gemm(8, 8, 8))
    assert (row.status, row.samples) == ("wrong", {})
    assert "differ on the exact test" in row.reason


def test_reading_c_where_beta_is_0_is_found(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    install(library=FakeCublas(always_reads_c=True))
    executor = CublasExecutor(DEVICE)
    assert "differ on the exact test; C[0][0] is nan" in exact_error(executor, Gemm(3, 4, 5))
    monkeypatch.setattr(executor, "_exact_error", lambda *_: "")
    row = in_process.measured(executor, case(Gemm(8, 8, 8)), QUICK)
    assert row.status == "wrong"
    assert re.fullmatch(r"C\[0\]\[0\] is nan, not -?\d+; 8 of 8 rows are wrong", row.reason)


@pytest.mark.parametrize(
    ("memory", "told"), [("auto", "staged"), ("mapped", "staged"), ("pageable", "pageable")]
)
def test_the_row_says_how_operands_came(install: Install, memory: str, told: str) -> None:
    install()
    assert measured(Gemm(8, 8, 8), replace(QUICK, memory=memory)).memory == told


def test_memory_is_given_back(install: Install) -> None:
    driver, _ = install()
    before = driver.left
    measured(Gemm(100, 100, 100, beta=0.5))
    assert (driver.left, driver.held) == (before, {})


def test_transfers_are_in_the_host_scope(install: Install, monkeypatch: pytest.MonkeyPatch) -> None:
    driver, _ = install()
    executor = CublasExecutor(DEVICE)
    monkeypatch.setattr(executor, "_exact_error", lambda *_: "")
    in_process.measured(executor, case(Gemm(8, 8, 8, beta=1.0)), replace(QUICK, budget_s=1e-9))
    # C once; verified on integers and on the case's operands; batches; verified on integers on the device or
    # with transfers, before which C is filled
    copies = "".join(name[0] for name in driver.copies)
    assert re.fullmatch("u" + "(uuud){2}" + "(uuud){4,}" + "u?uuud", copies)


def test_a_long_problem_has_both_scopes_in_one_batch(
    install: Install, monkeypatch: pytest.MonkeyPatch
) -> None:
    install()
    bench = ready(Gemm(8, 8, 8))
    monkeypatch.setattr(opencl_bench, "LONG_S", 0.0)
    batch = bench.start("host", 2)
    assert list(batch.seconds) == ["device", "host"]
    assert 0 < batch.seconds["device"] < batch.seconds["host"]


def refusal(device: Any = DEVICE, problem: Gemm | None = None) -> NotMeasuredError:
    with pytest.raises(NotMeasuredError) as caught:
        in_process.measured(CublasExecutor(device), case(problem or Gemm(8, 8, 8)), QUICK)
    return caught.value


SMALL, FP8 = Gemm(8, 8, 8), Gemm(16, 16, 16, "e4m3", trans_b=True)


@pytest.mark.parametrize(
    ("status", "problem", "reason"),
    [
        (
            15,
            SMALL,
            "cuBLAS does not do this here: the requested functionality is not supported (cublasGemmEx)",
        ),
        (15, FP8, "cuBLAS does not do this here (cublasLtMatmulAlgoGetHeuristic: 15)"),
        (13, SMALL, "cublasGemmEx failed: cuBLAS says WHAT"),
        (13, FP8, "cublasLtMatmulAlgoGetHeuristic failed: status 13"),
    ],
)
def test_a_status_that_is_no_lack_wants_a_fresh_process(
    install: Install, status: int, problem: Gemm, reason: str
) -> None:
    install(library=FakeCublas(status=status))
    found = refusal(problem=problem)
    assert (found.status, found.restart) == (("unsupported", False) if status == 15 else ("failed", True))
    assert found.reason == reason.replace("WHAT", "the requested functionality is not supported")


def test_too_little_memory_fails_that_case_alone(install: Install) -> None:
    driver, _ = install(FakeCuda(memory_bytes=3_000_000))
    found = refusal(problem=Gemm(700, 700, 700))
    assert (found.status, found.restart) == ("failed", False)
    assert found.reason == "the device ran out of memory: CUDA says out of memory"
    assert driver.held == {}


def test_cuda_without_a_gpu_is_unsupported(install: Install) -> None:
    driver, _ = install()
    driver.start_status = 100
    found = refusal()
    assert (found.status, found.reason) == (
        "unsupported",
        "CUDA does not start: no CUDA-capable device is detected",
    )


def test_the_gpu_is_the_one_in_the_devices_slot(install: Install) -> None:
    install()
    found = refusal(replace(DEVICE, pci="0000:65:00.0"))
    assert (found.status, found.reason) == ("unsupported", "CUDA does not show the GPU at 0000:65:00.0")


def test_without_a_slot_the_gpu_is_the_only_one_of_its_name(install: Install) -> None:
    install()
    assert exact_error(CublasExecutor(replace(DEVICE, pci="")), Gemm(2, 3, 4)) == ""
    found = refusal(replace(DEVICE, pci="", name="NVIDIA H100"))
    assert found.reason == "CUDA shows 0 GPUs called NVIDIA H100"


def test_what_is_not_installed_is_unsupported_with_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where this machine has either library: both are sought under no name."""
    monkeypatch.setattr(cublas, "_CUDA_FILES", ())
    with pytest.raises(NotMeasuredError) as caught:
        OpenCLMachine()._make("cublas", DEVICE)
    assert caught.value.status == "unsupported"
    assert caught.value.reason == "CUDA is not there: install NVIDIA's driver with CUDA (libcuda1 on Debian)"

    def without_cublas(title: str, *arguments: Any) -> Any:
        return load_library(title, *arguments) if title == "cuBLAS" else FakeCuda()

    monkeypatch.setattr(cublas, "load_library", without_cublas)
    monkeypatch.setattr(cublas, "_candidates", list)
    with pytest.raises(NotMeasuredError) as caught:
        OpenCLMachine()._make("cublas", DEVICE)
    assert caught.value.reason == (
        'cuBLAS is not there: pip install "gemmbench[cublas]", or install the CUDA toolkit'
    )


def test_a_library_that_lacks_another_says_which(tmp_path: Path) -> None:
    broken = tmp_path / "libbroken.so"
    broken.write_text("not a library")
    with pytest.raises(NotMeasuredError, match=r"thing is not there \(.*libbroken\.so: .*\): install it"):
        load_library("thing", [str(broken), "libnothing-at-all.so"], "install it")


def test_nvidias_packages_come_before_the_systems(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for folder in ("cublas/lib/libcublas.so.12", "cu13/lib/libcublas.so.13"):
        path = tmp_path / "nvidia" / folder
        path.parent.mkdir(parents=True)
        path.touch()
    monkeypatch.syspath_prepend(tmp_path)
    found = cublas._candidates()
    assert found[:2] == [
        str(tmp_path / "nvidia/cu13/lib/libcublas.so.13"),
        str(tmp_path / "nvidia/cublas/lib/libcublas.so.12"),
    ]
    assert "libcublas.so.13" in found[2:]
    assert cublas.CublasExecutor.is_installed(DEVICE)
    assert not cublas.CublasExecutor.is_installed(fake_runs.CPU)


def test_only_nvidias_gpus_are_planned() -> None:
    (planned,) = gemm_plan([fake_runs.CPU], [CUBLAS], [Gemm(8, 8, 8)])
    assert (planned.row.status, planned.row.reason) == ("unsupported", "cuBLAS runs only on NVIDIA GPUs")
    (planned,) = gemm_plan([DEVICE], [CUBLAS], [Gemm(8, 8, 8, "half")])
    assert isinstance(planned, Case), "NVIDIA's OpenCL lists no half, cuBLAS has it"
    assert (planned.device, planned.source) == (0, "")


@pytest.mark.parametrize("dtype", ["e4m3", "e4m3-half", "e4m3-bfloat16"])
def test_fp8_is_multiplied_where_b_is_stored_transposed(install: Install, dtype: str) -> None:
    _, library = install()
    row = measured(Gemm(24, 16, 32, dtype, 0.5, 0.5, trans_b=True))
    assert (row.status, row.check.verdict, row.sums) == ("ok", "ok", "fp22"), row.reason
    assert library.lt.asked == [cublas.WORKSPACE_BYTES] * 3  # two exact shapes, and this


@pytest.mark.parametrize(
    ("problem", "only"),
    [
        (Gemm(8, 7, 8, "char"), "with n and k that are multiples of 4"),
        (Gemm(8, 8, 7, "char"), "with n and k that are multiples of 4"),
        (Gemm(7, 8, 8, "char", trans_a=True), "with m, n and k that are multiples of 4"),
        (Gemm(16, 16, 16, "e5m2", trans_b=True), "by e4m3, not two matrices of it"),
        (Gemm(16, 16, 16, "e4m3"), "where B is stored transposed and A is not: --trans-b"),
        (Gemm(16, 16, 16, "e4m3", trans_b=True, batch=2), "one problem at a time, as it is called here"),
        (
            Gemm(16, 16, 16, "e4m3", trans_a=True, trans_b=True),
            "where B is stored transposed and A is not: --trans-b",
        ),
        (Gemm(16, 24, 16, "e4m3", trans_b=True), "with n, k and rows of A and B that are multiples of 16"),
        (Gemm(16, 16, 24, "e4m3", trans_b=True), "with n, k and rows of A and B that are multiples of 16"),
    ],
)
def test_what_it_takes_of_a_type_is_said(install: Install, problem: Gemm, only: str) -> None:
    install()
    found = refusal(problem=problem)
    assert (found.status, found.restart) == ("unsupported", False)
    assert found.reason == f"cuBLAS supports {problem.dtype} only {only}"


def test_descriptions_of_fp8_are_given_back(install: Install) -> None:
    _, library = install()
    executor = CublasExecutor(DEVICE)

    def descriptions() -> int:
        return sum(each not in (None, "library") for each in library.lt.made)

    for size in (16, 32, 48):
        assert exact_error(executor, Gemm(size, size, size, "e4m3", trans_b=True)) == ""
        assert descriptions() == 5
    library.status = NOT_SUPPORTED
    for _ in range(2):
        with pytest.raises(NotMeasuredError):
            exact_error(executor, Gemm(16, 16, 16, "e4m3", trans_b=True))
        assert descriptions() == 5


def test_integers_are_on_tensor_cores_where_b_alone_is_stored_transposed() -> None:
    for ops, units in (((False, True), "matrix"), ((True, True), "device"), ((False, False), "device")):
        assert case(Gemm(8, 8, 8, "char", trans_a=ops[0], trans_b=ops[1])).ran_on == units


@pytest.mark.parametrize(("clock", "waits"), [("host", 2), ("parts", 4)])
def test_only_a_problem_by_part_is_waited_for_between(
    install: Install, monkeypatch: pytest.MonkeyPatch, clock: str, waits: int
) -> None:
    """Before it begins and for its result; the parts wait after the upload and the launches, too."""
    install()
    bench = ready(Gemm(8, 16, 24, "half"))
    finish, calls = bench._cuda.finish, []
    monkeypatch.setattr(bench._cuda, "finish", lambda: (calls.append(1), finish()))
    bench.start(clock, 1)
    assert len(calls) == waits
    bench.release()
