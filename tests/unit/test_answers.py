"""Planted faults, in numpy: each is called wrong in every type, on generated and on a user's operands."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmbench.gemm import answers as answering
from gemmbench.gemm.answers import Answers, Paces, skipping
from gemmbench.gemm.operands import Matrices, load_operands
from gemmbench.gemm.reference import Reference
from gemmbench.gemm.verify import poison
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.dtypes import FP8_DTYPES, PLAIN_DTYPES, HostArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check
from tests import rounding

Fault = Callable[["Simulated", HostArray], HostArray]
POLICY = Policy(budget_s=30.0)  # the whole reference, however busy the machine is


class Simulated:
    """A bench whose kernel rounds as its type does, and may have a fault: a `gemm.answers.Answering`."""

    scopes = distinct = ("device", "host")
    sets = 3

    def __init__(self, case: Case, sums: str, fault: Fault) -> None:
        assert case.problem is not None
        self.problem, self._sums, self._fault = case.problem, sums, fault
        self.values = self.own = load_operands(case)
        self.c = self.values.c
        self.timed: Paces | None = None
        self.launches = self.index = 0
        self.kept: HostArray | None = None  # by a kernel that has memory of its own

    def put(self, values: Matrices, index: int = 0) -> None:
        self.values = values

    def answer(self, scope: str, index: int, c: HostArray) -> HostArray:
        self.c, self.index = c, index
        return self.run()

    def run(self) -> HostArray:
        """One more problem on whatever C holds."""
        right = self._right()
        if self.problem.beta:
            right += (self.problem.beta * self.c).astype(right.dtype)
        self.c = self._fault(self, right)
        return self.c

    def _right(self) -> HostArray:
        """A product that is made once for operands that differ by a power of 2 alone."""
        own, now = self.own, self.values
        if not own.generated or own.a.dtype.kind != "f":
            return _right(self.problem, now.a, now.b, self._sums)
        scale = 2.0 ** np.round(np.log2(np.abs(now.a).max() / np.abs(own.a).max()))
        a, b = (matrix / matrix.dtype.type(scale) for matrix in (now.a, now.b))
        right = _right(self.problem, a, b, self._sums)
        return right * right.dtype.type(scale**2)

    def left(self) -> HostArray | None:
        return None if self.problem.beta else self.c

    def paces(self, index: int, new: HostArray) -> Paces | None:
        return self.timed


_PRODUCTS: dict[tuple[Gemm, bytes, str], HostArray] = {}


def _right(problem: Gemm, a: HostArray, b: HostArray, sums: str) -> HostArray:
    """A right kernel's alpha A B, made once for some operands."""
    key = problem, a.tobytes(), sums
    if key not in _PRODUCTS:
        if len(_PRODUCTS) > 4:
            _PRODUCTS.clear()
        plain = Gemm(problem.m, problem.n, problem.k, problem.dtype, problem.alpha)
        _PRODUCTS[key] = rounding.product(plain, a, b, a, sums, "blocked")
    return _PRODUCTS[key].copy()


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


def for_a_tiny_alpha(bench: Simulated, right: HostArray) -> HostArray:
    """It leaves A B out where alpha times it is lost beside beta C."""
    return (bench.problem.beta * bench.c).astype(right.dtype)


def clamped(bench: Simulated, right: HostArray) -> HostArray:
    """It takes numbers above 2, which neither the exact test nor generated operands have, for 2."""
    return right if np.abs(bench.values.a).max() <= 2 else right / 2


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
    of_bench = Answers(case, bench.values, POLICY, sums)
    checks = [of_bench.check(bench, "before")]
    if checks[0].verdict == "ok":
        for _ in range(batches):
            bench.run()
        checks.append(of_bench.check(bench, "after"))
    return checks


SETTINGS = [
    (size, dtype, sums, draw)
    for size in (256, 1024, 2048)
    for dtype, kept in rounding.SUMS.items()
    for sums in kept
    for draw in ("generated", "normal", "one sign")
    if draw == "generated" or (dtype in PLAIN_DTYPES and sums == dtype)
    # Sums of 14 bits hide that alpha is 1 % off from k = 1,500 on. Faults are of numbers, not bits.
    if dtype not in FP8_DTYPES or (dtype, sums, size) == ("e4m3-half", "fp22", 256)
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
    names = {"element"} if dtype == "char" else {"element", "slope", "row_mean", "column_mean", "step"}
    assert all(check.figures.keys() - {"residual"} == names for check in right)
    return passed if all(check.verdict == "ok" for check in right) else ["none", *passed]


@pytest.mark.parametrize(("size", "dtype", "sums", "draw"), QUICK)
def test_a_planted_fault_is_wrong(size: int, dtype: str, sums: str, draw: str, folder: Path) -> None:
    """All faults of a setting in one test: they share their operands and the reference."""
    assert faults_that_passed(size, dtype, sums, draw, folder) == []


@pytest.mark.parametrize("dtype", ["float", "double", "half"])
def test_a_kernel_that_is_right_for_small_numbers_alone_is_wrong(dtype: str) -> None:
    case = Case("gemm", 0, "naive", dtype, {}, Gemm(40, 30, 20, dtype))
    before, after = verified(case, clamped, dtype)
    assert (before.verdict, after.verdict) == ("ok", "wrong")
    case = replace(case, problem=Gemm(40, 30, 20, dtype, alpha=1e3))  # C could overflow
    assert verified(case, clamped, dtype)[-1].verdict == "ok"


@pytest.mark.parametrize("batches", [3, 4])
def test_a_kernel_that_works_every_other_time_is_wrong(batches: int) -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20))
    before, after = verified(case, every_other_time, "float", batches)
    assert (before.verdict, after.verdict) == ("ok", "wrong")


def test_the_timed_operands_are_back_after_the_last_check() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20, beta=0.5))
    bench = Simulated(case, "float", no_fault)
    answers = Answers(case, bench.values, POLICY, "float")
    assert [answers.check(bench, when).verdict for when in ("before", "after")] == ["ok", "ok"]
    assert (bench.values.a == bench.own.a).all()
    assert (bench.values.b == bench.own.b).all()


class Recording(Simulated):
    """Keeps what it was asked, and what every operand set held then."""

    def __init__(self, case: Case) -> None:
        super().__init__(case, "float", no_fault)
        self.held = [self.own] * self.sets
        self.asked: list[tuple[str, HostArray]] = []

    def put(self, values: Matrices, index: int = 0) -> None:
        super().put(values, index)
        self.held[index] = values

    def answer(self, scope: str, index: int, c: HostArray) -> HostArray:
        self.values = self.held[index]
        a = self.values.a
        self.asked.append((scope, a / a.dtype.type(2.0 ** np.floor(np.log2(np.abs(a).max())))))
        return super().answer(scope, index, c)


def recorded(variant: str, problem: Gemm) -> Recording:
    """What a kernel was asked after batches."""
    case = Case("gemm", 0, variant, "float", {}, problem)
    bench = Recording(case)
    answers = Answers(case, bench.values, POLICY, "float")
    assert answers.check(bench, "before").verdict == "ok"
    bench.asked = []
    assert answers.check(bench, "after").verdict == "ok"
    return bench


def test_kernels_share_other_operands_but_a_kernel_that_comes_again_has_new_ones() -> None:
    """It could remember what it computed for them the last time."""
    problem = Gemm(41, 31, 21)
    first, tiled, again = (recorded(name, problem).asked[0][1] for name in ("naive", "tiled", "naive"))
    assert np.array_equal(first, tiled)
    assert not np.array_equal(first, again)


def test_the_last_problems_run_by_the_devices_clock_and_by_another() -> None:
    for _ in range(9):
        scopes = [scope for scope, _ in recorded("naive", Gemm(40, 30, 20)).asked]
        assert scopes == ["device", "host"]


def test_large_operands_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    """At 16384 A, B and C have 3 GiB."""
    monkeypatch.setattr(answering, "_MOST_NEW_BYTES", 0)
    answering._others.cache_clear()
    recorded("naive", Gemm(40, 30, 20))
    assert answering._others.cache_info().currsize == 0


def test_with_several_operand_sets_all_but_one_hold_the_timed_operands_when_batches_run_again() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20))
    bench = Recording(case)
    answers = Answers(case, bench.values, POLICY, "float")
    own: list[bool] = []

    def on_result(whole: bool) -> float:
        own.extend(np.array_equal(values.a, bench.own.a) for values in bench.held)
        return 0.01

    bench.timed = Paces(0.001, lambda: 0.02, on_result)
    assert [answers.check(bench, when).verdict for when in ("before", "after")] == ["ok", "ok"]
    assert own
    assert all(own)


@pytest.mark.parametrize("keyed", [False, True], ids=["while C holds them", "by what operands look like"])
def test_a_kernel_that_keeps_results_is_wrong_by_its_time(keyed: bool) -> None:
    """It copies a result that it has kept, if C or the operands are as they were then."""
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20))
    bench = Simulated(case, "float", no_fault)
    answers = Answers(case, bench.values, POLICY, "float")
    kept: list[HostArray] = []

    def seconds(c: HostArray) -> float:
        of = bench.values.a if keyed else c
        was_kept = bool(kept) and np.array_equal(kept[0], of)
        bench.answer("device", 0, c)
        kept[:] = [bench.values.a if keyed else bench.c]
        return 0.0005 if was_kept else 0.03

    right = bench.answer("device", 0, bench.c)
    bench.timed = Paces(
        0.0005, lambda: seconds(np.zeros_like(right)), lambda whole: [seconds(right) for _ in range(2)][1]
    )
    assert answers.check(bench, "before").verdict == "ok"
    (reason,) = answers.check(bench, "after").reasons
    assert reason.startswith("takes 30.0 ms on a new C and 500 us where C holds the result")


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_result_is_written_after_the_second_check_alone(beta: float, tmp_path: Path) -> None:
    out = tmp_path / "out.npy"
    own = Operands(out=str(out))
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20, beta=beta), operands=own)
    bench = Simulated(case, "float", no_fault)
    of_bench = Answers(case, bench.values, POLICY, "float")
    assert of_bench.check(bench, "before").verdict == "ok"
    assert not out.exists()
    right = bench.c.copy()
    bench.run()
    assert of_bench.check(bench, "after").verdict == "ok"
    assert (np.load(out) == right).all()  # with the case's own C, whatever C was verified with last


@pytest.fixture(autouse=True)
def _no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answering, "_REST_S", 0)


def paces(batch_s: float, on_new: list[float], on_result: list[float], again: Sequence[float] = ()) -> Paces:
    one, whole = iter(on_result), iter(again)
    return Paces(
        batch_s, partial(next, iter(on_new)), lambda all_batches: next(whole if all_batches else one)
    )


@pytest.mark.parametrize(
    ("batch_s", "on_new", "on_result", "again"),
    [
        pytest.param(0.001, [0.003], [], [], id="as in batches: no other is run"),
        pytest.param(1e-6, [22e-6], [], [], id="an overhead of microseconds"),
        pytest.param(0.001, [0.5, 0.4, 0.3, 0.0029], [0.001] * 3, [], id="delayed three times"),
        pytest.param(0.001, [0.006] * 30, [0.001] * 9 + [0.005] * 11, [0.001, 0.005], id="busier than then"),
        pytest.param(0.001, [0.012] * 24 + [0.0029], [0.005] * 20, [0.001], id="quiet at last"),
        pytest.param(0.0, [0.02] * 25, [0.02] * 20, [0.02], id="no batches by this clock"),
        pytest.param(0.02, [0.02], [], [], id="as busy as the batches"),
    ],
)
def test_an_honest_kernel_may_be_slow_at_times(
    batch_s: float, on_new: list[float], on_result: list[float], again: list[float]
) -> None:
    assert skipping(paces(batch_s, on_new, on_result, again)) == ""


def test_the_first_answer_on_a_new_c_is_timed_already() -> None:
    """Where it is as fast as the batches, no other problem is run."""
    assert skipping(Paces(0.001, no_more, no_more, answered_s=0.002)) == ""
    with pytest.raises(AssertionError, match="another problem"):
        skipping(Paces(0.001, no_more, no_more, answered_s=0.004))


@pytest.mark.parametrize(
    ("looked", "found"),
    [
        pytest.param([(0.02, 0.001)] * 5, True, id="its work on an erased C alone"),
        pytest.param([(0.02, 0.001)] * 4, False, id="too few"),
        pytest.param([(0.02, 0.001)] * 5 + [(0.02, 0.02)] * 4, True, id="in half of its batches"),
        pytest.param([(0.02, 0.001)] * 2 + [(0.02, 0.02)] * 3, False, id="in a few of its batches"),
        pytest.param([(0.02, 0.001)] * 5 + [(0.002, 0.001)], False, id="delayed five times"),
        pytest.param([(22e-6, 1e-6)] * 5, False, id="an overhead of microseconds"),
    ],
)
def test_a_problem_of_a_batch_that_was_looked_at_lasts_as_long_as_the_others(
    looked: list[tuple[float, float]], found: bool
) -> None:
    wrong = skipping(Paces(0.001, lambda: 0.02, lambda _: 0.02, looked=looked))
    says = "takes 20.0 ms on a new C and 1.00 ms where C holds the result: it does not do its work every time"
    assert wrong == (says if found else "")


def no_more(*_: object) -> float:
    raise AssertionError("another problem")


@pytest.mark.parametrize(
    ("saved", "slow_batches"),
    [
        pytest.param(0.7, 0, id="70 % of its work where C holds the result"),
        pytest.param(0.9, 20, id="what it does only after many launches on the same operands"),
    ],
)
def test_what_a_kernel_saves_in_batches_is_told(saved: float, slow_batches: int) -> None:
    fast = 0.01 * (1 - saved)
    on_result = [0.01] * slow_batches + [fast] * (20 - slow_batches)
    told = skipping(paces(fast, [0.01] * 40, on_result, [fast] * 4))
    assert told.endswith("it does not do its work every time")


def test_a_kernel_that_works_on_one_operand_set_is_wrong() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20))
    for _ in range(20):  # the set is drawn
        before, after = verified(case, in_one_set, "float", batches=0)
        assert (before.verdict, after.verdict) == ("ok", "wrong")


def test_a_kernel_that_leaves_out_what_a_tiny_alpha_hides_is_wrong() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20, alpha=1e-20, beta=0.5))
    before, after = verified(case, for_a_tiny_alpha, "float")
    assert (before.verdict, after.verdict) == ("ok", "wrong")


@pytest.mark.parametrize("generated", [False, True])
def test_what_zeros_would_pass_is_not_verified(generated: bool, tmp_path: Path) -> None:
    """A kernel that stores zeros was verified on numbers as small as these."""
    own = Operands()
    if not generated:
        own = Operands(str(tmp_path / "a.npy"), str(tmp_path / "b.npy"))
        np.save(str(own.a), np.full((40, 20), 1e-21, np.float32))
        np.save(str(own.b), np.full((20, 30), 1e-21, np.float32))
    problem = Gemm(40, 30, 20, alpha=1e-40 if generated else 1.0)
    case = Case("gemm", 0, "naive", "float", {}, problem, operands=own)
    with pytest.raises(NotMeasuredError, match=r"^no result can be verified with these operands: "):
        verified(case, no_fault, "float")


@pytest.mark.parametrize("batch_s", [0.000489, 0.0])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_kernel_that_skips_its_work_where_c_holds_the_answer_is_wrong(beta: float, batch_s: float) -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20, beta=beta))
    bench = Simulated(case, "float", no_fault)
    answers = Answers(case, bench.values, POLICY, "float")
    bench.timed = paces(batch_s, [0.03, 0.0247, 0.03, 0.028] * 5, [0.000489] * 40)
    assert answers.check(bench, "before").verdict == "ok"
    check = answers.check(bench, "after")
    assert (check.verdict, check.reasons) == (
        "wrong",
        ("takes 24.7 ms on a new C and 489 us where C holds the result: it does not do its work every time",),
    )


def test_a_reason_says_what_and_where(tmp_path: Path) -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(40, 30, 20))

    def reasons(fault: Fault) -> list[str]:
        return list(verified(case, fault, "float")[-1].reasons)

    element, *_ = reasons(FAULTS["last column"])
    assert element.startswith("40 of 1200 elements are further off than rounding: C[0][29] is 0, not ")
    assert any(reason.startswith("step 10 of k is missing") for reason in reasons(FAULTS["middle step"]))
    assert any(
        reason.startswith("C is 1.0100 times what it should be")
        for reason in reasons(FAULTS["alpha 1 % off"])
    )
    after, *_ = reasons(second_time)
    assert after.startswith("with another C and other operands after the last batch: 1200 of 1200 elements")


def test_the_same_c_is_compared_once(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[HostArray] = []
    check = Reference.check

    def counted(self: Reference, c: HostArray, *rest: Any) -> Check:
        compared.append(c)
        return check(self, c, *rest)

    monkeypatch.setattr(Reference, "check", counted)
    case = Case("gemm", 0, "naive", "float", {}, Gemm(41, 30, 20))
    assert [check.verdict for check in verified(case, no_fault, "float")] == ["ok", "ok"]
    assert len(compared) == 2  # and one of other operands
    again = verified(replace(case, variant="tiled"), no_fault, "float")
    assert ([check.verdict for check in again], len(compared)) == (["ok", "ok"], 2)
    assert verified(replace(case, variant="mac"), FAULTS["zero"], "float")[0].verdict == "wrong"
    assert len(compared) == 3


def test_a_reference_is_made_once_for_all_kernels() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(42, 30, 20))
    verified(case, no_fault, "float")
    (made,) = load_operands(case).references.values()
    verified(case, FAULTS["zero"], "float")
    assert list(load_operands(case).references.values()) == [made]
