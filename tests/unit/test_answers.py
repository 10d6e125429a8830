"""Planted faults, in numpy: each is called wrong in every type, on generated and on a user's operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmbench.gemm.answers import Answers
from gemmbench.gemm.operands import Matrices, load_operands
from gemmbench.gemm.verify import poison
from gemmbench.model.case import Case, Operands
from gemmbench.model.dtypes import DTYPES, PLAIN_DTYPES, HostArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check
from tests import rounding

Fault = Callable[["Simulated", HostArray], HostArray]


class Simulated:
    """A bench whose kernel rounds as its type does, and may have a fault: a `gemm.answers.Verifiable`."""

    scopes = distinct = ("device", "host")
    is_long = erases = False
    sets = 3

    def __init__(self, case: Case, sums: str, fault: Fault) -> None:
        assert case.problem is not None
        self.problem = self.timed = case.problem
        self._sums, self._fault = sums, fault
        self.own = load_operands(case)
        self.held = [self.own] * self.sets
        self.c = self.own.c
        self.launches = self.index = 0
        self.largest = 0.0
        self.asked: list[str] = []
        self.kept: HostArray | None = None  # by a kernel that has memory of its own

    @property
    def values(self) -> Matrices:
        return self.held[self.index]

    def put(self, values: Matrices, index: int = 0) -> None:
        self.held[index] = values

    def answer(self, scope: str, index: int, c: HostArray, problem: Gemm | None = None) -> HostArray:
        self.c, self.index, self.problem = c, index, problem or self.timed
        self.asked.append(scope)
        return self.run()

    def run(self) -> HostArray:
        """One more problem on whatever C holds."""
        right = _right(self.problem, self.values.a, self.values.b, self._sums)
        if self.problem.beta:
            right += (self.problem.beta * self.c).astype(right.dtype)
        self.c = self._fault(self, right)
        return self.c

    def left(self) -> HostArray | None:
        return None if self.problem.beta else self.c


@cache
def _pairs() -> dict[tuple[Gemm, bytes, str], HostArray]:
    return {}


def _right(problem: Gemm, a: HostArray, b: HostArray, sums: str) -> HostArray:
    """A right kernel's alpha A B, made once for some operands."""
    known, key = _pairs(), (problem, a.tobytes() + b.tobytes(), sums)
    if key not in known:
        if len(known) > 8:
            known.clear()
        plain = Gemm(problem.m, problem.n, problem.k, problem.dtype, problem.alpha)
        known[key] = rounding.product(plain, a, b, a, sums, "blocked")
    return known[key].copy()


def no_fault(bench: Simulated, right: HostArray) -> HostArray:
    return right


def without_step(where: float) -> Fault:
    """A kernel that leaves out a step of k: the first, a middle or the last."""

    def fault(bench: Simulated, right: HostArray) -> HostArray:
        step, dtype = round(where * (bench.problem.k - 1)), bench.problem.dtype
        column = rounding.numbers(bench.values.a[:, step], dtype)
        row = rounding.numbers(bench.values.b[step], dtype)
        return (right - bench.problem.alpha * np.multiply.outer(column, row)).astype(right.dtype)

    return fault


def in_part(rows: slice, columns: slice, change: Callable[[HostArray], HostArray]) -> Fault:
    def fault(bench: Simulated, right: HostArray) -> HostArray:
        right[rows, columns] = change(right[rows, columns])
        return right

    return fault


def second_time(bench: Simulated, right: HostArray) -> HostArray:
    """It acts on a C that was not written yet."""
    unwritten = poison(bench.problem.result)
    is_fresh = np.isnan(bench.c).all() if np.isnan(unwritten) else (bench.c == unwritten).all()
    return right if is_fresh else bench.c


def kept(bench: Simulated, right: HostArray) -> HostArray:
    """It keeps its first result, in memory that nobody sees, and copies it from then on."""
    bench.kept = right if bench.kept is None else bench.kept
    return bench.kept


def every_other_time(bench: Simulated, right: HostArray) -> HostArray:
    """It leaves C as it was in every second launch, whatever the operands are."""
    bench.launches += 1
    return right if bench.launches < 3 or bench.launches % 2 else bench.c


def in_one_set(bench: Simulated, right: HostArray) -> HostArray:
    """It works on one operand set, which it knows by where its matrices lie."""
    return bench.c if bench.index else right


def clamped(bench: Simulated, right: HostArray) -> HostArray:
    """It takes larger numbers than those of the first checks for half of them."""
    largest = float(max(np.abs(matrix.astype(float)).max() for matrix in (bench.values.a, bench.values.b)))
    bench.largest = bench.largest or largest
    return right if largest <= bench.largest else right / 2


def poisoned(bench: Simulated, right: HostArray) -> HostArray:
    right[3, 5] = poison(bench.problem.result)
    return right


ALL = slice(None)
FAULTS: dict[str, Fault] = {
    "zero": in_part(ALL, ALL, np.zeros_like),
    "minus A B": in_part(ALL, ALL, np.negative),
    "last column": in_part(ALL, slice(-1, None), np.zeros_like),
    "first step": without_step(0),
    "middle step": without_step(0.5),
    "last step": without_step(1),
    "alpha 1 % off": in_part(ALL, ALL, lambda c: (c * 1.01).astype(c.dtype)),
    "a tile": in_part(slice(32, 48), slice(64, 80), lambda c: c[:, ::-1].copy()),
    "nothing the second time": second_time,
    "the first result again": kept,
    "an element not written": poisoned,
}


@cache
def _files(folder: Path, draw: str, size: int, dtype: str) -> Operands:
    if draw == "generated":
        return Operands()
    rng = np.random.default_rng(5)
    for name in "ab":
        np.save(folder / f"{name}-{draw}-{size}-{dtype}.npy", rounding.drawn(rng, draw, size, size, dtype))
    a, b = (str(folder / f"{name}-{draw}-{size}-{dtype}.npy") for name in "ab")
    return Operands(a, b)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("operands")


def verified(case: Case, fault: Fault, sums: str, batches: int = 3) -> list[Check]:
    """The checks before and after some batches; those after a wrong one are not made."""
    bench = Simulated(case, sums, fault)
    answers = Answers(case, bench.own, sums if sums != case.dtype else "")
    checks = [answers.verified(bench, "before").check]
    if checks[0].verdict == "ok":
        for _ in range(batches):
            bench.index = 0
            bench.run()
        checks.append(answers.verified(bench, "after").check)
    return checks


SETTINGS = [
    (size, dtype, sums, draw)
    for size in (256, 1024, 2048)
    for dtype, kept in rounding.SUMS.items()
    for sums in kept
    for draw in ("generated", "one sign")
    if draw == "generated" or (dtype in PLAIN_DTYPES and sums == dtype and size == 256)
]
"""All of them take minutes: see `tools.verification`."""
QUICK = [  # smaller, and as hard
    (96 if size == 256 else 512, *setting)
    for size, *setting in SETTINGS
    if size == 256 or (size, *setting[:2]) == (1024, "half", "half")
]


def faults_that_passed(size: int, dtype: str, sums: str, draw: str, folder: Path) -> list[str]:
    """The planted faults that are not called wrong, and "none" if a kernel without any is."""
    problem = Gemm(size, size, size, dtype)
    case = Case("gemm", 0, "naive", dtype, {}, problem, operands=_files(folder, draw, size, dtype))
    passed = [name for name, fault in FAULTS.items() if verified(case, fault, sums)[-1].verdict == "ok"]
    right = verified(case, no_fault, sums)
    return passed if all(check.verdict == "ok" for check in right) else ["none", *passed]


@pytest.mark.parametrize(("size", "dtype", "sums", "draw"), QUICK)
def test_a_planted_fault_is_wrong(size: int, dtype: str, sums: str, draw: str, folder: Path) -> None:
    """All faults of a setting in one test: they share their operands."""
    assert faults_that_passed(size, dtype, sums, draw, folder) == []


@pytest.mark.parametrize("dtype", ["float", "double", "half"])
def test_a_kernel_that_is_right_for_small_numbers_alone_is_wrong(dtype: str) -> None:
    case = Case("gemm", 0, "naive", dtype, {}, Gemm(40, 30, 20, dtype))
    before, after = verified(case, clamped, dtype)
    assert (before.verdict, after.verdict) == ("ok", "wrong")


@pytest.mark.parametrize("batches", [3, 4])
def test_a_kernel_that_works_every_other_time_is_wrong(batches: int) -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20))
    assert verified(case, every_other_time, "float", batches)[-1].verdict == "wrong"


def test_a_kernel_that_works_on_one_operand_set_is_wrong() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20))
    for _ in range(20):  # the set is drawn
        before, after = verified(case, in_one_set, "float", batches=0)
        assert (before.verdict, after.verdict) == ("ok", "wrong")


@pytest.mark.parametrize(
    ("sets", "distinct", "runs"), [(1, ("device",), 1), (1, ("device", "host"), 2), (2, ("device",), 2)]
)
def test_the_same_launches_run_once_after_the_last_batch(sets: int, distinct: Any, runs: int) -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(5, 6, 7))
    bench = Simulated(case, "float", lambda _, right: right)
    bench.sets, bench.distinct = sets, distinct
    answers = Answers(case, bench.own)
    assert answers.verified(bench, "before").check.verdict == "ok"
    bench.asked.clear()
    assert answers.verified(bench, "after").check.verdict == "ok"
    assert len(bench.asked) == runs


def test_the_timed_operands_are_back_after_the_last_check() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20, beta=0.5))
    bench = Simulated(case, "float", no_fault)
    answers = Answers(case, bench.own)
    assert answers.verified(bench, "before").check.verdict == "ok"
    bench.asked = []
    assert answers.verified(bench, "after").check.verdict == "ok"
    assert bench.asked == ["device", "host"]
    assert all((values.a == bench.own.a).all() and (values.b == bench.own.b).all() for values in bench.held)


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_result_is_written_after_the_second_check_alone(beta: float, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20, beta=beta), operands=Operands(out=str(out)))
    bench = Simulated(case, "float", no_fault)
    answers = Answers(case, bench.own)
    assert answers.verified(bench, "before").check.verdict == "ok"
    assert not out.exists()
    right = bench.c.copy()
    bench.run()
    assert answers.verified(bench, "after").check.verdict == "ok"
    assert (np.load(out) == right).all()  # with the case's own C, whatever C was verified with last


def test_a_half_kernel_at_a_large_alpha_and_k_is_right() -> None:
    """Its sums of dense integers would leave the range in which half is exact."""
    case = Case("gemm", 0, "naive", "half", {}, Gemm(4, 4, 1 << 20, "half", alpha=4.0))
    assert [check.reasons for check in verified(case, no_fault, "half")] == [(), ()]


def test_a_float_kernel_that_computes_in_half_is_wrong() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(64, 64, 256))

    def in_half(bench: Simulated, right: HostArray) -> HostArray:
        exact = np.array_equal(right, np.rint(right))
        return right if exact else right.astype(np.float16).astype(np.float32)

    (check,) = verified(case, in_half, "float")
    assert "elements exceed the rounding bound" in check.reasons[0]


def test_a_reason_says_what_and_where() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20))
    (check,) = verified(case, FAULTS["last column"], "float")
    assert check.reasons[0].startswith("C[")
    assert "][29] is 0, not " in check.reasons[0]
    assert verified(case, second_time, "float")[-1].reasons[0].startswith("after the last batch: C[")


@pytest.mark.parametrize("generated", [True, False])
def test_another_order_of_summation_is_right_and_a_wrong_element_is_not(
    generated: bool, tmp_path: Path
) -> None:
    own = Operands()
    if not generated:
        own = _files(tmp_path, "one sign", 64, "float")
    case = Case("gemm", 0, "naive", "float", {}, Gemm(64, 64, 64), operands=own)
    bench = Simulated(case, "float", no_fault)
    answers = Answers(case, bench.own)
    assert answers.verified(bench, "before").check.verdict == "ok"
    other = rounding.product(bench.timed, bench.own.a, bench.own.b, bench.own.c, "float", "lanes")
    assert not np.array_equal(other, answers.verified_result)
    assert answers.check_repeated(other, "in a batch: ").verdict == "ok"
    other[3, 5] += 0.01
    check = answers.check_repeated(other, "in a batch: ")
    assert check.verdict == "wrong"
    assert check.reasons[0].startswith("in a batch: C[3][5] is ")


def test_rows_of_the_reference_are_made_once_for_all_kernels() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(42, 30, 20))
    verified(case, no_fault, "float")
    (made,) = load_operands(case).rows
    verified(replace(case, variant="tiled"), no_fault, "float")
    assert load_operands(case).rows == [made]


def own_case(folder: Path, problem: Gemm, **matrices: HostArray) -> Case:
    """A case of a user's matrices; an operand that is not given is of ones."""
    held = {"a": np.ones((problem.m, problem.k)), "b": np.ones((problem.k, problem.n)), **matrices}
    for name, values in held.items():
        np.save(folder / f"{name}.npy", values.astype(problem.result.numpy))
    operands = Operands(**{name: str(folder / f"{name}.npy") for name in held})
    return Case("gemm", 0, "naive", problem.dtype, {}, problem, operands=operands)


def refusal(case: Case, sums: str) -> str:
    with np.errstate(over="ignore", invalid="ignore"), pytest.raises(NotMeasuredError) as caught:
        verified(case, no_fault, sums)
    assert caught.value.status == "failed"
    return str(caught.value)


BEYOND = "the product exceeds half (65504), so nothing can be verified"


@pytest.mark.parametrize("sums", ["half", "float"])
@pytest.mark.parametrize("elements", ["all", "one"])
def test_a_product_beyond_its_type_is_no_wrong_result(tmp_path: Path, sums: str, elements: str) -> None:
    problem = Gemm(96, 20, 1024, "half")
    a = np.full((96, 1024), 8.5 if elements == "all" else 0.25)
    a[77] = 8.5
    assert refusal(own_case(tmp_path, problem, a=a, b=np.full((1024, 20), 8.5)), sums) == BEYOND


@pytest.mark.parametrize("dtype", ["half", "float", "double"])
@pytest.mark.parametrize("scalar", ["alpha", "beta"])
def test_alpha_and_beta_may_bring_it_there(tmp_path: Path, dtype: str, scalar: str) -> None:
    largest = float(np.finfo(DTYPES[dtype].numpy.name).max)
    alpha, beta = (largest, 0.0) if scalar == "alpha" else (1.0, largest)
    problem = Gemm(40, 30, 20, dtype, alpha, beta)
    case = Case("gemm", 0, "naive", dtype, {}, problem)
    if scalar == "beta":
        case = own_case(tmp_path, problem, c=np.full((40, 30), 2.0))
    assert refusal(case, dtype) == f"the product exceeds {dtype} ({largest:.6g}), so nothing can be verified"


def infinite(bench: Simulated, right: HostArray) -> HostArray:
    """It is right for the integers of the exact checks."""
    exact = np.array_equal(right, np.rint(right))
    if not exact:
        right[min(123, len(right) - 1), 7] = np.inf
    return right


def test_sums_beyond_their_type_are_no_wrong_result(tmp_path: Path) -> None:
    """The product is 0.3. Sums in half may leave their range on the way, sums in float do not."""
    problem = Gemm(5, 8, 65, "half")
    a = np.tile([*[4500.0] * 32, *[-4500.0] * 32, 0.3], (5, 1))
    case = own_case(tmp_path, problem, a=a)
    with pytest.raises(
        NotMeasuredError, match=r"^sums of the product exceed half \(65504\), so nothing can be"
    ):
        verified(case, infinite, "half")
    assert verified(case, infinite, "float")[0].reasons[0].startswith("C[4][7] is inf, not ")


def test_what_is_not_finite_without_need_is_wrong_in_every_row() -> None:
    for m in range(400, 405):  # 32 of their rows are drawn
        (check,) = verified(Case("gemm", 0, "naive", "float", {}, Gemm(m, 30, 20)), infinite, "float")
        assert check.reasons[0].startswith("C[123][7] is inf, not ")


@pytest.mark.parametrize(
    ("sums", "sign", "out", "notes"),
    [
        ("half", 1.0, True, ("adds in half: C is up to 50 % off",)),
        ("float", 1.0, True, ()),
        ("half", -1.0, True, ()),
        ("half", 1.0, False, ()),
    ],
)
def test_a_saved_result_of_half_sums_that_stall_has_a_note(
    tmp_path: Path, sums: str, sign: float, out: bool, notes: tuple[str, ...]
) -> None:
    """A half stops to grow at 2048 if ones are added. With both signs it does not come there."""
    problem = Gemm(4, 5, 4096, "half")
    case = own_case(tmp_path, problem, a=np.tile([1.0, sign], (4, 2048)))
    if out:
        case = replace(case, operands=replace(case.operands, out=str(tmp_path / "out.npy")))
    bench = Simulated(case, sums, no_fault)
    bench.run = lambda: one_after_another(bench, sums)  # type: ignore[method-assign]  # this one alone
    answers = Answers(case, bench.own, "" if sums == "half" else sums)
    assert answers.verified(bench, "before").notes == ()
    assert answers.verified(bench, "after").notes == notes


def one_after_another(bench: Simulated, sums: str) -> HostArray:
    values, problem = bench.values, bench.problem
    product = rounding.product(
        Gemm(problem.m, problem.n, problem.k, "half", problem.alpha),
        values.a,
        values.b,
        values.c,
        sums,
        "sequential",
    )
    bench.c = product
    return product
