"""Batches: how they are asked for, how much work they are, and that each of their problems is verified."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from msgspec import UNSET

from gemmbench import UsageError
from gemmbench.gemm.answers import exact_operands
from gemmbench.gemm.numpy_blas import NumpyBench, NumpyExecutor, multiply_by_numpy
from gemmbench.gemm.operands import Matrices
from gemmbench.gemm.verify import ExactTest, as_stack, exact_product, random_operands, transpose_each
from gemmbench.gemm.workloads import Shape, read_shapes
from gemmbench.ladder import BY_NAME, LADDER
from gemmbench.ladder.variant import laid_out
from gemmbench.model import kernel_files
from gemmbench.model.case import Policy, saved_problem
from gemmbench.model.dtypes import HostArray, encode
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.stats import rates
from gemmbench.stats.panels import panels, sweep_axis
from gemmbench.suite import refusal
from gemmbench.suite.options.comparing import TuneOptions
from gemmbench.suite.options.measuring import GemmOptions, SquareOptions, WorkloadsOptions
from gemmbench.suite.plan import gemm_plan, rebuild_plan
from gemmbench.suite.refusal import why_not
from tests import fake_runs as fake
from tests import in_process
from tests.in_process import plan_case

QUICK = Policy(budget_s=60.0, batch_s=0.0005, min_batches=3, precision=10.0)
BATCH = Gemm(9, 7, 11, batch=5)


def test_a_batch_is_so_many_problems() -> None:
    assert BATCH.flops == 5 * replace(BATCH, batch=1).flops == 5 * 2 * 9 * 7 * 11
    assert BATCH.bytes_of == {name: 5 * size for name, size in replace(BATCH, batch=1).bytes_of.items()}
    assert (BATCH.shape, Gemm(8, 8, 8, batch=3).size) == ("9x7x11 batch=5", "8 batch=3")
    assert Gemm(8, 8, 8, trans_b=True, batch=3).title == "m = n = k = 8, NT, batch = 3"
    with pytest.raises(ValueError, match="batch must be 1 or more, not 0"):
        Gemm(8, 8, 8, batch=0)


def test_a_row_keeps_how_many_there_were_and_one_problem_is_saved_as_before() -> None:
    assert saved_problem(replace(BATCH, batch=1)).batch is UNSET
    saved = saved_problem(BATCH)
    assert (saved.batch, saved.count, saved.flops) == (5, 5, BATCH.flops)
    assert saved != saved_problem(replace(BATCH, batch=4))
    row = fake.gemm_row("naive", saved, 1.0, parameters={"WX": 16, "WY": 16})
    assert rates.gemm_of(row) == BATCH
    (step,) = rebuild_plan([row], [fake.CPU], {0: 0})
    assert step.problem == BATCH


@pytest.mark.parametrize("name", LADDER)
def test_passes_over_a_batch_have_a_third_dimension_and_a_temporary_for_each_problem(name: str) -> None:
    single = BY_NAME[name]
    batched = single.batched(5)
    assert single.batched(1) is single
    if not single.launches.batches:
        assert single.launches.images, f"{name} could compute batches"
        return
    device = fake.GPU
    parameters = single.preset(device.family)
    full = {**parameters, **single.chosen(BATCH, device, parameters)}
    one, five = single.values(replace(BATCH, batch=1), full), batched.values(BATCH, full)
    for step, other in zip(single.steps(one), batched.steps(five), strict=True):
        assert math.prod(other.items(five)) == 5 * math.prod(step.items(one))
        assert (other.items(five)[2], other.group(five)[2], len(other.group(five))) == (5, 1, 3)
    sizes = single.temporary_bytes(replace(BATCH, batch=1), full)
    assert batched.temporary_bytes(BATCH, full) == {each: 5 * size for each, size in sizes.items()}
    for file in single.files:
        assert "BATCH_OFFSET(" in kernel_files.text(file)


def test_what_computes_one_problem_says_so_and_a_batch_may_be_larger_than_an_index(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(refusal, "free_memory_bytes", lambda: 1 << 50)
    (step,) = gemm_plan([fake.GPU], [BY_NAME["image-4x8"]], [Gemm(64, 64, 64, batch=2)])
    assert step.row.reason == "image-4x8 does not support batches"
    large = replace(fake.GPU, max_alloc_bytes=1 << 50, global_mem_bytes=1 << 50)
    assert "2^31 elements" in why_not(large, BY_NAME["naive"], Gemm(1 << 16, 1 << 16, 8), {"WX": 8, "WY": 8})
    many = Gemm(1 << 12, 1 << 12, 8, batch=1 << 10)
    assert why_not(large, BY_NAME["naive"], many, {"WX": 8, "WY": 8}) == ""


def test_a_sweep_says_how_many_and_mixed_batches_are_no_sweep() -> None:
    def rows(*batches: int) -> list[Row]:
        pairs = zip((16, 32), batches, strict=True)
        problems = [saved_problem(Gemm(size, size, size, batch=batch)) for size, batch in pairs]
        return [fake.gemm_row("naive", problem, 1.0, parameters={}) for problem in problems]

    run = Run(fake.header(("square",), (fake.CPU,)), tuple(rows(8, 8)))
    assert [panel.shape for panel in panels(run, "m")] == ["m = n = k, batch = 8"]
    assert sweep_axis(rows(8, 8)) == "m"
    assert sweep_axis(rows(8, 4)) is None


def test_every_problem_has_operands_of_its_own_and_an_exact_answer() -> None:
    a, b, c = random_operands(BATCH)
    assert (a.shape, b.shape, c.shape) == ((45, 11), (55, 7), (45, 7))
    assert len({matrix.tobytes() for matrix in as_stack(a, 5)}) == 5
    product = exact_product(BATCH, a, b, c)
    for number in range(5):
        assert np.allclose(as_stack(product, 5)[number], as_stack(a, 5)[number] @ as_stack(b, 5)[number])
    turned = transpose_each(a, 5)
    assert turned.shape == (55, 9)
    assert np.array_equal(as_stack(turned, 5)[3], as_stack(a, 5)[3].T)
    test = ExactTest.of(BATCH)
    right = test.host["C"].copy()
    ldc = test.layout.ldc
    right[: 45 * ldc].reshape(45, ldc)[:, :7] = test.expected
    assert test.error(right) == ""
    right[(3 * 9 + 2) * ldc + 4] += 1
    assert test.error(right).startswith("in problem 3 of a batch, 1 of 63 elements differ")


# --- planted faults ----------------------------------------------------------------------------------------


def answer(problem: Gemm) -> tuple[Matrices, HostArray]:
    """Operands, and the right answer as C's type stores it."""
    a, b, c = random_operands(problem)
    return Matrices(a, b, c, True), encode(exact_product(problem, a, b, c), problem.result)


def first_alone(c: HostArray, c0: HostArray) -> None:
    c[1:] = c0[1:]


def one_twice(c: HostArray, _: HostArray) -> None:
    c[6] = c[5]


def last_missing(c: HostArray, c0: HostArray) -> None:
    c[-1] = c0[-1]


def one_element(c: HostArray, _: HostArray) -> None:
    c[7, 3, 2] += 1


@pytest.mark.parametrize("dtype", ["float", "half", "char"])
@pytest.mark.parametrize("fault", [None, first_alone, one_twice, last_missing, one_element])
def test_a_fault_in_any_problem_is_found(
    fault: Callable[[HostArray, HostArray], None] | None, dtype: str
) -> None:
    exact = exact_operands(Gemm(40, 33, 65, dtype, beta=1.0, batch=120))
    c = encode(
        exact_product(exact.problem, exact.operands.a, exact.operands.b, exact.operands.c),
        exact.problem.result,
    )
    if fault:
        fault(as_stack(c, 120), as_stack(exact.operands.c, 120))
    assert exact.error(c).startswith("in problem ") == bool(fault)


def measured(problem: Gemm) -> Row:
    case = plan_case(fake.CPU, "numpy", problem)
    return in_process.measured(NumpyExecutor(), case, QUICK)


@pytest.mark.parametrize(("trans_a", "ld"), [(False, None), (True, (20, 40, 19))])
def test_numpy_multiplies_a_stack(trans_a: bool, ld: tuple[int, int, int] | None) -> None:
    row = measured(Gemm(16, 17, 15, trans_a=trans_a, ld=ld, beta=2.0, batch=8))
    assert (row.status, row.reason) == ("ok", "")
    assert rates.flops_of(row) == 8 * 2 * 16 * 17 * 15


@pytest.mark.parametrize("fault", [first_alone, one_twice, last_missing, one_element])
def test_a_timed_answer_that_is_wrong_in_one_problem_has_no_rate(
    fault: Callable[[HostArray, HostArray], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """numpy, whose answers have a fault."""

    def faulty(
        bench: NumpyBench, problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray
    ) -> list[Callable[[], None]]:
        def call() -> None:
            inside = bench._inside(a, b, c, out)
            before = inside[-1].copy()
            multiply_by_numpy(problem, *inside)
            if before.ndim == 3:  # not in the trial, which is one problem
                fault(inside[-1], before)

        return [call]

    monkeypatch.setattr(NumpyBench, "_calls", faulty)
    row = measured(Gemm(16, 17, 15, batch=9))
    assert row.status == "wrong"
    assert "problem" in row.reason
    assert not row.samples


# --- how they are asked for --------------------------------------------------------------------------------


def test_options_and_a_column_say_how_many(tmp_path: Path) -> None:
    assert SquareOptions(sizes="16,32", batch=3).shapes[1] == Shape("", 32, 32, 32, batch=3)
    assert GemmOptions(m=4, batch=7).shapes[0].batch == 7
    file = tmp_path / "shapes.csv"
    file.write_text("m,n,k,batch\n64,64,64,1024\n64,64,64,\n64,64,64,2\n")
    assert [shape.batch for shape in read_shapes(file)] == [1024, 1, 2]
    assert [shape.batch for shape in WorkloadsOptions(file=file).shapes] == [
        1024,
        1,
        2,
    ]  # three problems, no two alike
    (problem,) = TuneOptions(kernel="naive", m=8, batch=6).problems(fake.CPU)
    assert problem == Gemm(8, 8, 8, batch=6)


@pytest.mark.parametrize(
    ("make", "why"),
    [
        (lambda here: GemmOptions(batch=2, n=8, a=here / "a.npy"), "--batch generates its operands"),
        (lambda _: TuneOptions(kernel="naive", batch=2).problems(fake.CPU), "give --sizes or -m too"),
    ],
)
def test_bad_input_is_refused_in_a_sentence(tmp_path: Path, make: Callable[[Path], object], why: str) -> None:
    np.save(tmp_path / "a.npy", np.ones((1024, 1024), np.float32))
    with pytest.raises(UsageError, match=why):
        make(tmp_path)


@pytest.mark.parametrize(
    ("value", "why"), [("x", "'x': expected a whole number"), ("70000", "expected a whole number <= 65535")]
)
def test_a_bad_column_names_file_line_and_field(tmp_path: Path, value: str, why: str) -> None:
    file = tmp_path / "shapes.csv"
    file.write_text(f"m,n,k,batch\n64,64,64,{value}\n")
    with pytest.raises(UsageError, match=f"line 2: batch: .*{why}"):
        read_shapes(file)


def test_kernels_compile_alike_in_every_order_of_their_flags() -> None:
    """The hash of a plan's case is that of what its executor compiles."""
    for name in ("gpu-tile", "naive"):
        problem = Gemm(8, 8, 8, trans_b=True, batch=2)
        planned = laid_out(BY_NAME[name], problem).with_math("fast")
        assert planned.compilation.flags[-1] == "-cl-fast-relaxed-math"
        assert "-DBATCHED" in planned.compilation.flags
