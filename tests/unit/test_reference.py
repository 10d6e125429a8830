"""The oracle must pass what is right and catch what is wrong, in every data type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmbench.gemm import verify
from gemmbench.model import dtypes
from gemmbench.model.dtypes import DTYPES, GEMM_DTYPES, decode
from gemmbench.model.problem import Gemm

DIMENSION = st.integers(0, 70)


def product(
    problem: Gemm,
    a: dtypes.ReferenceArray,
    b: dtypes.ReferenceArray,
    c: dtypes.ReferenceArray,
    sums: str = "",
) -> dtypes.ReferenceArray:
    """Computed as a kernel would: a term at a time, sums kept in C's type or the one given."""
    dtype, result = DTYPES[problem.dtype], problem.result.numpy
    kept = DTYPES[sums].numpy if sums else result
    if dtype.dropped:  # cut short, as matrix units do
        a, b = ((x.view(np.uint32) & 0xFFFFE000).view(np.float32) for x in (a, b))
    a, b = (decode(x, dtype).astype(kept) for x in (a, b))
    total = np.zeros((problem.m, problem.n), kept)
    for p in range(problem.k):
        total += a[:, p : p + 1] * b[p : p + 1, :]
    answer = kept.type(problem.alpha) * total
    if problem.beta:
        answer = answer + kept.type(problem.beta) * c
    return answer.astype(result)


@given(
    m=DIMENSION,
    n=DIMENSION,
    k=DIMENSION,
    dtype=st.sampled_from(GEMM_DTYPES),
    alpha=st.sampled_from([1.0, 0.0, -1.5]),
    beta=st.sampled_from([0.0, 1.0, 0.5]),
)
@settings(deadline=None, max_examples=60)
def test_a_right_answer_is_within_the_bound(
    m: int, n: int, k: int, dtype: str, alpha: float, beta: float
) -> None:
    if dtype == "char":
        alpha, beta = round(alpha), round(beta)
    problem = Gemm(m, n, k, dtype, alpha, beta)
    a, b, c = verify.random_operands(problem)
    found = verify.residual(problem, a, b, c, product(problem, a, b, c))
    assert found.value <= 1


@pytest.mark.parametrize("dtype", GEMM_DTYPES)
@pytest.mark.parametrize("size", [17, 100, 300])
@pytest.mark.parametrize("fault", ["element", "row", "swapped", "short", "nan", "zero"])
def test_a_wrong_answer_is_caught(dtype: str, size: int, fault: str) -> None:
    problem = Gemm(size, size + 1, size + 2, dtype)
    a, b, c = verify.random_operands(problem)
    right = product(problem, a, b, c)
    wrong = right.copy()
    if fault == "element":
        wrong[size // 2, size // 3] += {"half": 4 * np.sqrt(size), "tf32": np.sqrt(size) / 2}.get(dtype, 1)
    elif fault == "row":
        wrong[-1] = 0
    elif fault == "swapped":
        wrong[:, [0, 1]] = wrong[:, [1, 0]]
    elif fault == "short":
        wrong = product(Gemm(size, size + 1, size - 4, dtype), a, b, c)
    elif fault == "nan":
        wrong[0, 0] = verify.poison(problem.result)
    else:
        wrong[...] = 0
    assert verify.residual(problem, a, b, c, right).value <= 1
    found = verify.residual(problem, a, b, c, wrong)
    assert not found.value <= 1
    assert verify.judge(found, "").verdict == "wrong"


def test_operands_that_are_not_of_mean_zero_have_the_worst_case_bound() -> None:
    problem = Gemm(40, 40, 300)
    rng = np.random.default_rng(1)
    a, b, c = (rng.random(shape, dtype=np.float32) for shape in ((40, 300), (300, 40), (40, 40)))
    right = product(problem, a, b, c)
    assert verify.residual(problem, a, b, c, right, zero_mean=False).value <= 1
    assert verify.residual(problem, a, b, c, right * np.float32(1.01), zero_mean=False).value > 1


@pytest.mark.parametrize("dtype", GEMM_DTYPES)
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
    assert verify.residual(problem, a, b, c, got).value <= 1
    tight = verify.residual(problem, a, b, c, got, "float")
    assert (tight.value <= 1) == (sums == "float")


def test_elements_of_bfloat16_are_bits_and_those_of_tf32_are_floats_with_all_their_digits() -> None:
    a, _, c = verify.random_operands(Gemm(30, 20, 10, "bfloat16"))
    assert (a.dtype, c.dtype) == (np.uint16, np.float32)
    assert np.abs(decode(a, DTYPES["bfloat16"])).max() <= 1
    a, _, c = verify.random_operands(Gemm(30, 20, 10, "tf32"))
    assert (a.dtype, c.dtype) == (np.float32, np.float32)
    assert (a.view(np.uint32) & 0x1FFF).any()  # what a multiplier drops
    assert [name for name in GEMM_DTYPES if DTYPES[name].dropped] == ["tf32"]


def test_integers_are_all_that_a_char_holds_and_must_be_right_to_the_last() -> None:
    problem = Gemm(50, 60, 500, "char", 3, -2)
    a, b, c = verify.random_operands(problem)
    assert (a.dtype, c.dtype) == (np.int8, np.int32)
    assert (a.min(), a.max()) == (-128, 127)
    right = product(problem, a, b, c)
    assert verify.residual(problem, a, b, c, right) == verify.Residual(0.0, 0)
    right[33, 7] += 1
    found = verify.residual(problem, a, b, c, right)
    assert found.row == 33
    assert verify.judge(found, "").verdict == "wrong"


def test_sums_of_integers_are_told_that_could_leave_c() -> None:
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
