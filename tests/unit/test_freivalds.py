"""Freivalds' check: exact at its limits, and wrong results do not pass."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gemmbench.gemm import answers
from gemmbench.gemm.answers import Exact, exact_limit, exact_operands
from gemmbench.gemm.verify import Terms, as_stack, exact_product
from gemmbench.model import dtypes
from gemmbench.model.dtypes import DTYPES, GEMM_DTYPES, HostArray, decode, encode
from gemmbench.model.problem import Gemm

SUMS = [("half", ""), ("half", "float"), ("bfloat16", ""), ("e4m3", "fp22"), ("e4m3-bfloat16", "fp22")]


@pytest.fixture(autouse=True)
def fresh() -> None:
    exact_operands.cache_clear()


def product(exact: Exact) -> HostArray:
    """C as a right kernel leaves it."""
    right = exact_product(exact.problem, exact.operands.a, exact.operands.b, exact.operands.c)
    stored = encode(right, exact.problem.result)
    assert (decode(stored, exact.problem.result) == right).all(), "C does not hold the result exactly"
    return stored


@given(
    m=st.integers(0, 40),
    n=st.integers(0, 40),
    k=st.integers(0, 300),
    batch=st.integers(1, 3),
    beta=st.sampled_from((0.0, 1.0)),
    kinds=st.sampled_from([*((name, "") for name in GEMM_DTYPES), *SUMS]),
    digits=st.integers(0, 2),
)
@settings(max_examples=200, deadline=None)
def test_a_right_result_passes_and_a_wrong_element_is_named(
    m: int, n: int, k: int, batch: int, beta: float, kinds: tuple[str, str], digits: int
) -> None:
    dtype, sums = kinds
    exact = exact_operands(Gemm(m, n, k, dtype, beta=beta, batch=batch), sums)
    digits = digits if DTYPES[dtype].is_float else 0
    c = product(exact)
    assert exact.error(c) == ""
    result, scaled = exact.problem.result, exact.scaled(digits)
    assert scaled.error(product(scaled)) == ""
    if not c.size:
        return
    rng = np.random.default_rng(k)
    row, column = int(rng.integers(len(c))), int(rng.integers(n))
    numbers = np.asarray(decode(c, result), np.float64)
    numbers[row, column] = 0.0 if numbers[row, column] else 1.0
    error = exact.error(encode(numbers, result), Terms((16, 32)))
    assert f"C[{row % m}][{column}] is {numbers[row, column]:g}, not " in error
    assert "in the tile of rows" in error


@pytest.mark.parametrize(
    ("dtype", "sums", "limit"),
    [
        ("half", "", 2**11),
        ("half", "float", 2**11),  # C is half
        ("bfloat16", "", 2**24),  # C is float
        ("e4m3-bfloat16", "float", 2**8),
        ("e4m3", "fp22", 2**13),
        ("float", "", 2**24),
        ("double", "", 2**53),
        ("char", "", 2**31 - 1),
    ],
)
def test_the_limit_of_exact_sums(dtype: str, sums: str, limit: int) -> None:
    assert exact_limit(Gemm(1, 1, 1, dtype), sums) == limit


@pytest.mark.parametrize("k", [1, 64, 4096, 1 << 16])
@pytest.mark.parametrize(("dtype", "sums"), [("float", ""), ("double", ""), ("char", ""), *SUMS])
def test_partial_sums_stay_below_the_limit(dtype: str, sums: str, k: int) -> None:
    """In any order: of all products, of the positive ones and the negative ones in turns of every length."""
    exact = exact_operands(Gemm(4, 4, k, dtype, beta=1.0), sums)
    kind, result = DTYPES[dtype], exact.problem.result
    limit = exact_limit(exact.problem, sums)
    a, b = (np.asarray(decode(matrix, kind), np.float64) for matrix in (exact.operands.a, exact.operands.b))
    c = np.abs(np.asarray(decode(exact.operands.c, result), np.float64)).max()
    for row, column in ((0, 0), (3, 3)):
        partial = np.abs(np.cumsum(a[row] * b[:, column])).max()
        assert abs(exact.problem.alpha) * partial + abs(exact.problem.beta) * c <= limit


def test_one_vector_misses_a_wrong_element_in_half_of_the_cases(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(answers, "VECTORS", 1000)
    exact = exact_operands(Gemm(2000, 16, 8))
    c = product(exact)
    c[:, 3] += 1
    missed = (c[:, None, :] @ exact.x[0] == exact.expected[0][:, None, :])[:, 0, :]
    assert missed.mean() == pytest.approx(0.5, abs=0.1)
    assert not missed.all(axis=1).any()


def test_integers_do_not_overflow() -> None:
    exact = exact_operands(Gemm(3, 3, 1 << 17, "char", beta=1.0))
    right = exact_product(exact.problem, exact.operands.a, exact.operands.b, exact.operands.c)
    assert np.abs(right).max() < 2**31
    assert np.abs(exact.operands.a.astype(int)).max() > 100


def test_operands_are_other_ones_in_every_process(monkeypatch: pytest.MonkeyPatch) -> None:
    first = exact_operands(Gemm(8, 8, 8)).operands.a
    exact_operands.cache_clear()
    assert (exact_operands(Gemm(8, 8, 8)).operands.a != first).any()


def test_a_kernel_that_takes_no_scalars_is_checked_without() -> None:
    problem = exact_operands(Gemm(8, 8, 8, beta=1.0), without=("alpha", "beta")).problem
    assert (problem.alpha, problem.beta) == (1.0, 0.0)


def test_large_matrices_are_converted_in_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dtypes, "_AT_ONCE", 100)
    exact = exact_operands(Gemm(37, 41, 43, batch=3, beta=1.0))
    c = product(exact)
    assert exact.error(c) == ""
    as_stack(c, 3)[2, 36, 40] += 1
    assert "in problem 2 of 3, C[36][40]" in exact.error(c)
