"""Rounding bounds pass what is right and catch what is wrong, in every data type; operands of every type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmbench.gemm import verify
from gemmbench.gemm import verify as bounds
from gemmbench.gemm.verify import DrawnRows
from gemmbench.ladder.variant import Layout
from gemmbench.model import dtypes
from gemmbench.model.dtypes import DTYPES, GEMM_DTYPES, decode
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check
from tests import rounding

DIMENSION = st.integers(0, 70)
_WIDER = {"bfloat16": "float"}  # nothing is summed up in it
KINDS = (*GEMM_DTYPES[:6], "e5m2-bfloat16")  # the other types of fp8 are like this or an earlier one


def product(
    problem: Gemm, a: dtypes.HostArray, b: dtypes.HostArray, c: dtypes.HostArray, sums: str = ""
) -> dtypes.HostArray:
    """Computed as a kernel would: a term at a time, sums kept in C's type or the one given."""
    own = problem.result.name
    return rounding.product(problem, a, b, c, sums or _WIDER.get(own, own), "sequential")


def checked(
    problem: Gemm,
    a: dtypes.HostArray,
    b: dtypes.HostArray,
    c0: dtypes.HostArray,
    c: dtypes.HostArray,
    sums: str = "",
    generated: bool = True,
) -> Check:
    return DrawnRows(problem, a, b, generated).check(c, c0, sums)


@given(
    m=DIMENSION,
    n=DIMENSION,
    k=DIMENSION,
    dtype=st.sampled_from(GEMM_DTYPES),
    alpha=st.sampled_from([1.0, 0.0, -1.5]),
    beta=st.sampled_from([0.0, 1.0, 0.5]),
)
@settings(deadline=None, max_examples=60)
def test_a_right_answer_is_within_every_bound(
    m: int, n: int, k: int, dtype: str, alpha: float, beta: float
) -> None:
    if dtype == "char":
        alpha, beta = round(alpha), round(beta)
    problem = Gemm(m, n, k, dtype, alpha, beta)
    a, b, c = verify.random_operands(problem)
    check = checked(problem, a, b, c, product(problem, a, b, c))
    assert (check.verdict, check.reasons) == ("ok", ())
    assert 0 <= check.figures.get("element", 0) <= 1


@pytest.mark.parametrize("seed", range(4))
def test_drawn_right_cases_pass_in_every_type_and_order(seed: int) -> None:
    """The long run is `tools/verification.py`."""
    for case in rounding.right_cases(np.random.default_rng(seed), 40):
        assert rounding.judged(case).reasons == (), case


@pytest.mark.parametrize("dtype", KINDS)
@pytest.mark.parametrize("size", [17, 150])
@pytest.mark.parametrize("fault", ["element", "row", "swapped", "short", "nan", "zero"])
def test_a_wrong_answer_is_caught(dtype: str, size: int, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ROWS", 1 << 10)  # all
    problem = Gemm(size, size + 1, size + 2, dtype)
    a, b, c = verify.random_operands(problem)
    right = product(problem, a, b, c)
    wrong = right.copy()
    if fault == "element":
        moved = decode(wrong[[size // 2], size // 3], problem.result)
        moved = moved + {"half": np.sqrt(size) / 4, "e5m2-bfloat16": np.sqrt(size)}.get(dtype, 1)
        wrong[size // 2, size // 3] = dtypes.encode(moved, problem.result)[0]
    elif fault == "row":
        wrong[-1] = 0
    elif fault == "swapped":
        wrong[:, [0, 1]] = wrong[:, [1, 0]]
    elif fault == "short":
        wrong = product(Gemm(size, size + 1, size - 4, dtype), a[:, : size - 4], b[: size - 4], c)
    elif fault == "nan":
        wrong[0, 0] = verify.poison(problem.result)
    else:
        wrong[...] = 0
    assert checked(problem, a, b, c, right).verdict == "ok"
    check = checked(problem, a, b, c, wrong)
    assert check.verdict == "wrong"
    if fault == "element":
        (reason,) = check.reasons
        assert reason.startswith(f"C[{size // 2}][{size // 3}] is ")
        assert reason.endswith(f": 1 of {size * (size + 1)} elements exceed the rounding bound")


def test_integers_must_be_right_to_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "ROWS", 150)
    problem = Gemm(150, 160, 500, "char", 3, -2)
    a, b, c = verify.random_operands(problem)
    assert (a.dtype, c.dtype) == (np.int8, np.int32)
    assert (a.min(), a.max()) == (-128, 127)
    right = product(problem, a, b, c)
    assert set(checked(problem, a, b, c, right).figures.values()) == {0.0}
    right[33, 7] += 1
    (reason,) = checked(problem, a, b, c, right).reasons
    assert "C[33][7]" in reason


def test_rows_are_drawn_from_all_problems_of_a_batch() -> None:
    problem = Gemm(3, 5, 7, beta=1.0, batch=20)
    a, b, c = verify.random_operands(problem)
    right = verify.exact_product(problem, a, b, c).astype(np.float32)
    rows = DrawnRows(problem, a, b, True)
    assert len(rows._rows) == bounds.ROWS
    assert rows.check(right, c).verdict == "ok"
    right[rows._rows[-1], 4] += 1
    number, row = divmod(int(rows._rows[-1]), 3)
    (reason,) = rows.check(right, c).reasons
    assert reason.startswith(f"in problem {number} of 20, C[{row}][4] is ")


def test_half_sums_of_one_sign_pass_where_a_random_walk_would_not() -> None:
    """Right sums of numbers in [0, 1) stagnate in half, far beyond the bound of operands of mean zero."""
    problem = Gemm(24, 24, 4096, "half")
    rng = np.random.default_rng(1)
    a, b, c = (rng.random(shape).astype(np.float16) for shape in ((24, 4096), (4096, 24), (24, 24)))
    right = product(problem, a, b, c)
    error = np.abs(right - a.astype(float) @ b.astype(float)).max()
    assert error > 17 * 8 * np.sqrt(4096) * 2.0**-11 * np.sqrt(4096) / 3
    assert checked(problem, a, b, c, right, generated=False).verdict == "ok"


@pytest.mark.parametrize("dtype", GEMM_DTYPES[:6])
@pytest.mark.parametrize("edge", [8, 16, 64, 160, 256])
def test_exact_operands_are_exact_in_every_type(dtype: str, edge: int) -> None:
    problem = verify.edge_problem(dtype, edge)
    a, b, c = verify.integer_operands(problem)
    expected = verify.exact_product(problem, a, b, c)
    assert verify.compare_exactly(expected, product(problem, a, b, c)) == ""
    got = product(problem, a, b, c)
    got[1, 2] += 1
    assert "1 of" in verify.compare_exactly(expected, got)
    got[1, 2] = verify.poison(problem.result)
    assert f"{got[1, 2]:g}" in verify.compare_exactly(expected, got)


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2-half", "e4m3-bfloat16"])
def test_sums_of_14_bits_are_exact_on_the_exact_test_and_c_is_rounded_once(dtype: str) -> None:
    problem = verify.edge_problem(dtype, 256)
    test = verify.ExactTest.of(problem, Layout.tight(problem))
    a, b, c = verify.integer_operands(problem)
    got = product(problem, a, b, c, "fp22")
    flat = np.concatenate([got.ravel(), np.full(64, verify.GUARD).astype(got.dtype)])
    assert test.error(flat) == ""
    flat[7] = dtypes.encode(2 * test.expected.ravel()[[7]] + 1, problem.result)[0]
    assert "1 of" in test.error(flat)


def test_sums_of_14_bits_are_held_to_no_more_and_to_no_less() -> None:
    """Where they are as long as on Hopper's tensor cores, as where a float's whole length is expected."""
    problem = Gemm(24, 40, 4096, "e4m3-half")
    a, b, c = verify.random_operands(problem)
    right = product(problem, a, b, c, "fp22")
    assert checked(problem, a, b, c, right, "fp22").verdict == "ok"
    assert checked(problem, a, b, c, right, "float").verdict == "wrong"


def test_exact_operands_refuse_what_cannot_be_exact() -> None:
    with pytest.raises(ValueError, match="too large"):
        verify.integer_operands(Gemm(2, 2, 100_000, "half"))


def test_the_same_problem_has_the_same_operands_and_they_are_not_zeros() -> None:
    first, second = (verify.random_operands(Gemm(30, 20, 10)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert (one == other).all()
        assert np.count_nonzero(one) == one.size
        assert abs(one.mean()) < 0.2


@pytest.mark.parametrize("sums", ["half", "float"])
def test_a_half_summed_in_half_is_not_as_good_as_one_summed_in_float(sums: str) -> None:
    problem = Gemm(60, 60, 400, "half")
    a, b, c = verify.random_operands(problem)
    got = product(problem, a, b, c, sums)
    assert checked(problem, a, b, c, got).verdict == "ok"
    assert (checked(problem, a, b, c, got, "float").verdict == "ok") == (sums == "float")


def test_elements_of_bfloat16_are_bits_and_those_of_tf32_are_floats_with_all_their_digits() -> None:
    a, _, c = verify.random_operands(Gemm(30, 20, 10, "bfloat16"))
    assert (a.dtype, c.dtype) == (np.uint16, np.float32)
    assert np.abs(decode(a, DTYPES["bfloat16"])).max() <= 1
    a, _, c = verify.random_operands(Gemm(30, 20, 10, "tf32"))
    assert (a.dtype, c.dtype) == (np.float32, np.float32)
    assert (a.view(np.uint32) & 0x1FFF).any()  # what a multiplier drops
    assert [name for name in GEMM_DTYPES if DTYPES[name].dropped] == ["tf32"]
    a, _, c = verify.random_operands(Gemm(30, 20, 10, "e5m2-bfloat16"))
    assert (a.dtype, c.dtype) == (np.uint8, np.uint16)
    assert np.unique(decode(a, DTYPES["e5m2"])).size > 30


def test_sums_of_integers_that_could_overflow_are_reported() -> None:
    assert not verify.could_overflow(Gemm(1, 1, 2**17 - 1, "char"))
    assert verify.could_overflow(Gemm(1, 1, 2**17, "char"))
    assert verify.could_overflow(Gemm(1, 1, 2**17, "char", alpha=0))  # the product alone
    assert verify.could_overflow(Gemm(1, 1, 1, "char", alpha=2**20))
    assert not verify.could_overflow(Gemm(1, 1, 2**20, "half"))


@pytest.mark.parametrize("dtype", GEMM_DTYPES)
def test_poison_shows(dtype: str) -> None:
    row = DTYPES[dtype]
    value = decode(np.array([verify.poison(row)]), row)[0]
    assert np.isnan(value) if row.is_float else value == 127


@pytest.mark.parametrize(("dtype", "off", "units"), [("float", 2.0**-20, 2.0), ("char", 0, 0.0)])
def test_an_error_is_also_in_last_places_of_the_largest_element(dtype: str, off: float, units: float) -> None:
    problem = Gemm(1, 2, 1, dtype)
    a, b, c = (np.array([row], problem.result.numpy) for row in ([2], [3, 1], [6 + off, 2]))
    a, b = (each.astype(DTYPES[dtype].numpy) for each in (a, b))
    assert checked(problem, a, b, c, c, generated=False).figures["ulp"] == units
