"""The oracle must pass what is right and catch what is wrong, in every data type."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmbench.facts.dtypes import DTYPES, GEMM_DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.rules import reference

DIMENSION = st.integers(0, 70)


def product(problem: Gemm, a: reference.Array, b: reference.Array, c: reference.Array) -> reference.Array:
    """Computed as a kernel would: in the data type, a term at a time."""
    dtype = DTYPES[problem.dtype].numpy
    total = np.zeros((problem.m, problem.n), dtype)
    for p in range(problem.k):
        total += a[:, p : p + 1] * b[p : p + 1, :]
    result = dtype.type(problem.alpha) * total
    if problem.beta:
        result = result + dtype.type(problem.beta) * c
    return result.astype(dtype)


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
    problem = Gemm(m, n, k, dtype, alpha, beta)
    a, b, c = reference.random_operands(problem)
    found = reference.residual(problem, a, b, c, product(problem, a, b, c))
    assert found.value <= 1


@pytest.mark.parametrize("dtype", GEMM_DTYPES)
@pytest.mark.parametrize("size", [17, 100, 400])
@pytest.mark.parametrize("fault", ["element", "row", "swapped", "short", "nan", "zero"])
def test_a_wrong_answer_is_caught(dtype: str, size: int, fault: str) -> None:
    problem = Gemm(size, size + 1, size + 2, dtype)
    a, b, c = reference.random_operands(problem)
    right = product(problem, a, b, c)
    wrong = right.copy()
    if fault == "element":
        wrong[size // 2, size // 3] += DTYPES[dtype].numpy.type(4 * np.sqrt(size) if dtype == "half" else 1)
    elif fault == "row":
        wrong[-1] = 0
    elif fault == "swapped":
        wrong[:, [0, 1]] = wrong[:, [1, 0]]
    elif fault == "short":
        wrong = product(Gemm(size, size + 1, size - 4, dtype), a, b, c)
    elif fault == "nan":
        wrong[0, 0] = np.nan
    else:
        wrong[...] = 0
    assert reference.residual(problem, a, b, c, right).value <= 1
    found = reference.residual(problem, a, b, c, wrong)
    assert not found.value <= 1
    assert reference.judge(found, "").verdict == "wrong"


def test_operands_that_are_not_of_mean_zero_have_the_worst_case_bound() -> None:
    problem = Gemm(40, 40, 300)
    rng = np.random.default_rng(1)
    a, b, c = (rng.random(shape, dtype=np.float32) for shape in ((40, 300), (300, 40), (40, 40)))
    right = product(problem, a, b, c)
    assert reference.residual(problem, a, b, c, right, zero_mean=False).value <= 1
    assert reference.residual(problem, a, b, c, right * np.float32(1.01), zero_mean=False).value > 1


@pytest.mark.parametrize("dtype", GEMM_DTYPES)
@pytest.mark.parametrize("edge", [8, 16, 64, 160, 256])
def test_exact_operands_are_exact_in_every_type(dtype: str, edge: int) -> None:
    problem = reference.edge_problem(dtype, edge)
    a, b, c = reference.integer_operands(problem)
    expected = reference.exact_product(problem, a, b, c)
    assert reference.compare_exactly(expected, product(problem, a, b, c)) == ""
    got = product(problem, a, b, c)
    got[1, 2] += 1
    assert "1 of" in reference.compare_exactly(expected, got)
    got[1, 2] = np.nan
    assert "nan" in reference.compare_exactly(expected, got)


def test_exact_operands_refuse_what_cannot_be_exact() -> None:
    with pytest.raises(ValueError, match="too large"):
        reference.integer_operands(Gemm(2, 2, 100_000, "half"))


def test_the_same_problem_has_the_same_operands_and_they_are_not_zeros() -> None:
    first, second = (reference.random_operands(Gemm(30, 20, 10)) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert (one == other).all()
        assert np.count_nonzero(one) == one.size
        assert abs(one.mean()) < 0.2
