"""What a right answer is: operands, exact cases, and the O(n^2) check with its error bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmbench.ladder.variant import Layout
from gemmbench.model.dtypes import DTYPES, DType, ReferenceArray, decode, encode
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check

GUARD = 37.0  # what the cells around C hold; exact in every data type
_SAFETY = 8.0  # standard deviations allowed to the rounding errors of random operands
_BLOCK = 1024  # rows converted to double at a time
_CHAR = 128  # integers lie from -128 to 127
_HALF_A_UNIT = 0.5  # what a sum of integers may err by: nothing


def random_operands(problem: Gemm, seed: int = 1) -> tuple[ReferenceArray, ReferenceArray, ReferenceArray]:
    """A (m x k), B (k x n) and C (m x n), uniform in [-1, 1): never zeros, which some devices run faster.

    They are as a device stores them: bfloat16 as its bits. tf32 is stored as float with all of float's
    digits, as a user's matrices are, so that a device has to drop some. Integers are uniform over all that a
    char holds.
    The same problem gives the same operands.
    """
    rng = np.random.default_rng((seed, problem.m, problem.n, problem.k))

    def draw(rows: int, columns: int, dtype: DType) -> ReferenceArray:
        if not dtype.is_float:
            return rng.integers(-_CHAR, _CHAR, (rows, columns), dtype.numpy)
        drawn = np.float64 if dtype.itemsize == 8 else np.float32
        values = rng.random((rows, columns), dtype=drawn)
        values *= 2
        values -= 1
        return _stored(values, dtype)

    dtype = DTYPES[problem.dtype]
    return (
        draw(problem.m, problem.k, dtype),
        draw(problem.k, problem.n, dtype),
        draw(problem.m, problem.n, problem.result),
    )


def integer_operands(problem: Gemm, seed: int = 1) -> tuple[ReferenceArray, ReferenceArray, ReferenceArray]:
    """Like `random_operands` with integers from -2 to 2: every partial sum is exact, whatever the order.

    Of an integer type, all that a char holds.

    Raises:
        ValueError: k is so large that a sum could leave the integers that C's type holds exactly.
    """
    dtype, result = DTYPES[problem.dtype], problem.result
    most = 2 if dtype.is_float else _CHAR
    exact = 2 / result.eps if result.is_float else result.largest
    if _largest_sum(problem, most) > exact:
        raise ValueError(f"k = {problem.k} is too large for exact sums in {result.name}")
    rng = np.random.default_rng((seed, problem.m, problem.n, problem.k))

    def draw(rows: int, columns: int, dtype: DType) -> ReferenceArray:
        high = most if dtype.is_float else most - 1
        return encode(rng.integers(-most, high, (rows, columns), endpoint=True), dtype)

    return (
        draw(problem.m, problem.k, dtype),
        draw(problem.k, problem.n, dtype),
        draw(problem.m, problem.n, result),
    )


def could_overflow(problem: Gemm) -> bool:
    """Whether operands of an integer type exist for which a sum leaves C's type."""
    result = problem.result
    return not result.is_float and _largest_sum(problem, _CHAR) > result.largest


def _largest_sum(problem: Gemm, most: int) -> float:
    """What no sum exceeds if no element does ``most``."""
    product = most * most * problem.k
    return max(product, abs(problem.alpha) * product + abs(problem.beta) * most)


def poison(dtype: DType) -> Any:
    """What stands where nothing may be read, and in C before it is written: NaN, or the largest integer."""
    # The bits of the largest integer are a NaN of bfloat16 and fp8, which numpy stores as integers.
    return dtype.numpy.type(np.nan if dtype.numpy.kind == "f" else dtype.largest)


def _stored(values: ReferenceArray, dtype: DType) -> ReferenceArray:
    """Values as a device stores them, a block of rows at a time; those that are so already, untouched."""
    if values.dtype == dtype.numpy:
        return values
    stored = np.empty(values.shape, dtype.numpy)
    for start in range(0, len(values), _BLOCK):
        stored[start : start + _BLOCK] = encode(values[start : start + _BLOCK], dtype)
    return stored


def exact_product(problem: Gemm, a: ReferenceArray, b: ReferenceArray, c: ReferenceArray) -> ReferenceArray:
    """alpha A B + beta C in double precision; with beta = 0, C is not read."""
    dtype = DTYPES[problem.dtype]
    product = problem.alpha * (_numbers(a, dtype) @ _numbers(b, dtype))
    if problem.beta != 0:
        product += problem.beta * _numbers(c, problem.result)
    return np.asarray(product)


def edge_problem(dtype: str, edge: int) -> Gemm:
    """A shape no dimension of which is a multiple of a tile, with alpha and beta that must both be applied.

    k stays small enough for sums that are exact in every data type.
    """
    return Gemm(2 * edge + 3, edge + 5, min(edge + 1, 201), dtype, alpha=2.0, beta=-1.0)


def compare_exactly(expected: ReferenceArray, got: ReferenceArray) -> str:
    """Where an exact answer differs, in words; "" if it does not. NaN differs."""
    wrong = ~(got.astype(np.float64) == expected)
    if not wrong.any():
        return ""
    i, j = np.argwhere(wrong)[0]
    share = f"{int(wrong.sum())} of {wrong.size} elements"
    return f"{share} differ on the exact test; C[{i}][{j}] is {float(got[i, j]):g}, not {expected[i, j]:g}"


@dataclass(frozen=True)
class Residual:
    """The worst row of a residual, and its bound."""

    value: float  # largest |residual| over its bound: 1 or less is right
    row: int


def residual(
    problem: Gemm,
    a: ReferenceArray,
    b: ReferenceArray,
    c0: ReferenceArray,
    c: ReferenceArray,
    sums: str = "",
    zero_mean: bool = True,
) -> Residual:
    """C t against alpha A (B t) + beta C0 t for a random t, in double precision: O(n^2).

    Three errors make the bound of row i, each with its own unit:

    * d, what a multiplier may drop of an element of A or B, relative to it: 2^-10 for tf32, whose elements
      are stored as float and cut short; 0 where the type is stored as it is multiplied;
    * u = eps / 2 of the type that sums are kept in, once for each of k additions;
    * v = eps / 2 of C's type, once.

    For operands of mean zero rounding errors behave like a random walk (Higham and Mary, "A new approach to
    probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019): a sum of k products with partial
    sums of size s errs by about u sqrt(k) s, with s^2 the sum of the products' squares, so that

        bound_i = 8 (2 d + u sqrt(k + 4) + v) sqrt(alpha^2 (A.^2 (B.^2 t.^2))_i + beta^2 (C0.^2 t.^2)_i)

    For any other operands the worst case holds:

        bound_i = (2 d + u (k + 4) + v) (|alpha| |A| |B| |t| + |beta| |C0| |t|)_i

    Integers do not err: t is whole, and the two sides must be equal.

    Args:
        problem: the problem, with its data type.
        a: m x k.
        b: k x n.
        c0: m x n, C before; not read if beta is 0.
        c: m x n, C after.
        sums: the data type that sums are kept in, if it is not C's.
        zero_mean: whether the operands are the suite's own random ones.

    Returns:
        The worst ratio of residual to bound; infinite if C holds a NaN.
    """
    if problem.m == 0 or problem.n == 0:
        return Residual(0.0, 0)
    rng = np.random.default_rng(20261121)
    if not problem.result.is_float:
        return _whole_residual(problem, a, b, c0, c, rng)
    t = rng.uniform(0.5, 1.0, problem.n) * rng.choice((-1.0, 1.0), problem.n)
    dtype, result = DTYPES[problem.dtype], problem.result
    adding, storing = DTYPES[sums or result.name].eps / 2, result.eps / 2
    steps = np.sqrt(problem.k + 4) if zero_mean else problem.k + 4
    unit = 2 * dtype.dropped + adding * steps + storing
    alpha, beta = problem.alpha, problem.beta
    power = 2 if zero_mean else 1
    weight = np.abs(t) ** power
    bt = _apply(b, t, dtype)
    b_size = _apply(b, weight, dtype, power)

    worst, worst_row = 0.0, 0
    for start in range(0, problem.m, _BLOCK):
        part = slice(start, start + _BLOCK)
        expected = alpha * _apply(a[part], bt, dtype)
        bound = abs(alpha) ** power * _apply(a[part], b_size, dtype, power)
        if beta != 0:
            expected += beta * _apply(c0[part], t, result)
            bound += abs(beta) ** power * _apply(c0[part], weight, result, power)
        bound = _SAFETY * unit * np.sqrt(bound) if zero_mean else unit * bound
        bound += np.finfo(np.float64).tiny
        with np.errstate(all="ignore"):
            ratio = np.abs(_apply(c[part], t, result) - expected) / bound
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        index = int(ratio.argmax())
        if ratio[index] > worst:
            worst, worst_row = float(ratio[index]), start + index
    return Residual(worst, worst_row)


def _whole_residual(
    problem: Gemm,
    a: ReferenceArray,
    b: ReferenceArray,
    c0: ReferenceArray,
    c: ReferenceArray,
    rng: np.random.Generator,
) -> Residual:
    """See `residual`: both sides in 64-bit integers, with a t whose elements are 21 bits long.

    What overflows does so on both sides alike. A wrong row passes with a probability of one in two million.
    """
    t = rng.integers(-(2**20), 2**20, problem.n)
    alpha, beta = int(problem.alpha), int(problem.beta)
    bt = _apply_whole(b, t)
    difference = _apply_whole(c, t) - alpha * _apply_whole(a, bt)
    if beta != 0:
        difference -= beta * _apply_whole(c0, t)
    wrong = np.abs(difference.astype(np.float64)) / _HALF_A_UNIT
    index = int(wrong.argmax())
    return Residual(float(wrong[index]), index if wrong[index] else 0)


def _apply_whole(matrix: ReferenceArray, vector: ReferenceArray) -> ReferenceArray:
    """matrix times vector in 64-bit integers."""
    starts = range(0, len(matrix), _BLOCK)
    parts = [matrix[start : start + _BLOCK].astype(np.int64) @ vector for start in starts]
    return np.concatenate(parts) if parts else np.zeros(0, np.int64)


def _numbers(stored: ReferenceArray, dtype: DType) -> ReferenceArray:
    """What a device stores as numbers, in double precision."""
    return np.asarray(decode(stored, dtype), np.float64)


def _apply(matrix: ReferenceArray, vector: ReferenceArray, dtype: DType, power: int = 0) -> ReferenceArray:
    """A stored matrix times a vector in double precision; with a power, |matrix| to that power."""
    parts = []
    for start in range(0, matrix.shape[0], _BLOCK):
        block = _numbers(matrix[start : start + _BLOCK], dtype)
        if power:
            block = np.abs(block) if power == 1 else block * block
        with np.errstate(all="ignore"):
            parts.append(block @ vector)
    return np.concatenate(parts) if parts else np.zeros(0)


def judge(worst: Residual, exact_error: str, guard_error: str = "") -> Check:
    """The verdict of the exact test, the guard cells and the residual together. NaN fails."""
    reasons = [reason for reason in (exact_error, guard_error) if reason]
    if not worst.value <= 1:
        reasons.append(
            f"the residual of row {worst.row} is {worst.value:.3g} times its bound"
            if np.isfinite(worst.value)
            else f"row {worst.row} of C holds a NaN or an infinity"
        )
    figures = {"residual_over_bound": worst.value if np.isfinite(worst.value) else -1.0}
    return Check("wrong" if reasons else "ok", figures, tuple(reasons))


# --- The exact test: rows longer than the problem's, guard cells around C, NaN wherever nothing may be
# read.


_BEHIND = 64  # guard cells behind C


@dataclass(frozen=True)
class ExactTest:
    """One problem whose answer is known to the last bit, laid out in memory."""

    problem: Gemm
    layout: Layout
    host: dict[str, ReferenceArray]  # A, B and C before, flat
    expected: ReferenceArray  # m x n, in double precision

    @classmethod
    def of(cls, problem: Gemm, layout: Layout | None = None) -> ExactTest:
        """The test of a problem.

        Args:
            problem: small enough for exact sums.
            layout: leading dimensions beyond the tight ones; None for odd ones.
        """
        layout = layout or Layout(problem.k + 3, problem.n + 5, problem.n + 7)
        a, b, c = integer_operands(problem)
        unread, unwritten = poison(DTYPES[problem.dtype]), poison(problem.result)
        host = {
            "A": _embed(a, layout.lda, unread),
            "B": _embed(b, layout.ldb, unread),
            "C": _embed(
                c if problem.beta != 0 else np.full_like(c, unwritten),
                layout.ldc,
                c.dtype.type(GUARD),
                _BEHIND,
            ),
        }
        return cls(problem, layout, host, exact_product(problem, a, b, c))

    def error(self, result: ReferenceArray) -> str:
        """What is wrong with C as it came back, flat; or ""."""
        m, n, ldc = self.problem.m, self.problem.n, self.layout.ldc
        inside = result[: m * ldc].reshape(m, ldc)
        guard = np.concatenate([inside[:, n:].ravel(), result[m * ldc :]])
        if not (guard == result.dtype.type(GUARD)).all():
            return "cells outside C were written on the exact test"
        return compare_exactly(self.expected, inside[:, :n])


def _embed(matrix: ReferenceArray, ld: int, fill: Any, extra: int = 0) -> ReferenceArray:
    """A matrix in rows of ``ld`` elements, the rest filled, and ``extra`` more elements behind it; flat."""
    rows, columns = matrix.shape
    flat = np.full(rows * ld + extra, fill, matrix.dtype)
    flat[: rows * ld].reshape(rows, ld)[:, :columns] = matrix
    return flat
