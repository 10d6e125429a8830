"""What a right answer is: operands, exact cases, and the O(n^2) check with its error bound."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Check

Array = npt.NDArray[Any]

GUARD = 37.0  # what the cells around C hold; exact in every data type
_SAFETY = 8.0  # standard deviations allowed to the rounding errors of random operands
_BLOCK = 1024  # rows converted to double at a time


def random_operands(problem: Gemm, seed: int = 1) -> tuple[Array, Array, Array]:
    """A (m x k), B (k x n) and C (m x n), uniform in [-1, 1): never zeros, which some devices run faster.

    The same problem gives the same operands.
    """
    rng = np.random.default_rng((seed, problem.m, problem.n, problem.k))
    dtype = DTYPES[problem.dtype].numpy
    drawn = np.float64 if dtype.itemsize == 8 else np.float32

    def draw(rows: int, columns: int) -> Array:
        values = rng.random((rows, columns), dtype=drawn)
        values *= 2
        values -= 1
        return values.astype(dtype, copy=False)

    return draw(problem.m, problem.k), draw(problem.k, problem.n), draw(problem.m, problem.n)


def integer_operands(problem: Gemm, seed: int = 1) -> tuple[Array, Array, Array]:
    """Like `random_operands` with integers from -2 to 2: every partial sum is exact, whatever the order.

    Raises:
        ValueError: k is so large that a sum could leave the integers that the type holds exactly.
    """
    row = DTYPES[problem.dtype]
    scale = abs(problem.alpha) * 4 * problem.k + abs(problem.beta) * 2
    if max(scale, 4 * problem.k) > 2 / row.eps:
        raise ValueError(f"k = {problem.k} is too large for exact sums in {row.name}")
    rng = np.random.default_rng((seed, problem.m, problem.n, problem.k))

    def draw(rows: int, columns: int) -> Array:
        return rng.integers(-2, 3, (rows, columns)).astype(row.numpy)

    return draw(problem.m, problem.k), draw(problem.k, problem.n), draw(problem.m, problem.n)


def exact_product(problem: Gemm, a: Array, b: Array, c: Array) -> Array:
    """alpha A B + beta C in double precision; with beta = 0, C is not read."""
    product = problem.alpha * (a.astype(np.float64) @ b.astype(np.float64))
    if problem.beta != 0:
        product += problem.beta * c.astype(np.float64)
    return np.asarray(product)


def edge_problem(dtype: str, edge: int) -> Gemm:
    """A shape no dimension of which is a multiple of a tile, with alpha and beta that must both be applied.

    k stays small enough for sums that are exact in every data type.
    """
    return Gemm(2 * edge + 3, edge + 5, min(edge + 1, 201), dtype, alpha=2.0, beta=-1.0)


def compare_exactly(expected: Array, got: Array) -> str:
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
    problem: Gemm, a: Array, b: Array, c0: Array, c: Array, eps: float | None = None, zero_mean: bool = True
) -> Residual:
    """C t against alpha A (B t) + beta C0 t for a random t, in double precision: O(n^2).

    The bound of row i, with u = eps / 2 the unit roundoff of the data type:

    * For operands of mean zero rounding errors behave like a random walk (Higham and Mary, "A new approach to
      probabilistic rounding error analysis", SIAM J. Sci. Comput. 41, 2019): a sum of k products with partial
      sums of size s errs by about u sqrt(k) s, with s^2 the sum of the products' squares, so that

          bound_i = 8 u sqrt(k + 4) sqrt(alpha^2 (A.^2 (B.^2 t.^2))_i + beta^2 (C0.^2 t.^2)_i)

    * For any other operands the worst case holds: u (k + 4) (|alpha| |A| |B| |t| + |beta| |C0| |t|)_i.

    Args:
        problem: the problem, with its data type.
        a: m x k.
        b: k x n.
        c0: m x n, C before; not read if beta is 0.
        c: m x n, C after.
        eps: the epsilon of the arithmetic, if it is not the data type's.
        zero_mean: whether the operands are the suite's own random ones.

    Returns:
        The worst ratio of residual to bound; infinite if C holds a NaN.
    """
    if problem.m == 0 or problem.n == 0:
        return Residual(0.0, 0)
    rng = np.random.default_rng(20261121)
    t = rng.uniform(0.5, 1.0, problem.n) * rng.choice((-1.0, 1.0), problem.n)
    unit = (eps if eps is not None else DTYPES[problem.dtype].eps) / 2
    alpha, beta = problem.alpha, problem.beta
    power = 2 if zero_mean else 1
    weight = np.abs(t) ** power
    bt = _apply(b, t)
    b_size = _apply(b, weight, power)

    worst, worst_row = 0.0, 0
    for start in range(0, problem.m, _BLOCK):
        part = slice(start, start + _BLOCK)
        expected = alpha * _apply(a[part], bt)
        bound = abs(alpha) ** power * _apply(a[part], b_size, power)
        if beta != 0:
            expected += beta * _apply(c0[part], t)
            bound += abs(beta) ** power * _apply(c0[part], weight, power)
        if zero_mean:
            bound = _SAFETY * unit * np.sqrt((problem.k + 4) * bound)
        else:
            bound = unit * (problem.k + 4) * bound
        bound += np.finfo(np.float64).tiny
        with np.errstate(all="ignore"):
            ratio = np.abs(_apply(c[part], t) - expected) / bound
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        index = int(ratio.argmax())
        if ratio[index] > worst:
            worst, worst_row = float(ratio[index]), start + index
    return Residual(worst, worst_row)


def _apply(matrix: Array, vector: Array, power: int = 0) -> Array:
    """matrix times vector in double precision; with a power, |matrix| to that power."""
    parts = []
    for start in range(0, matrix.shape[0], _BLOCK):
        block = matrix[start : start + _BLOCK].astype(np.float64)
        if power:
            block = np.abs(block) if power == 1 else block * block
        with np.errstate(all="ignore"):
            parts.append(block @ vector)
    return np.concatenate(parts) if parts else np.zeros(0)


def judge(found: Residual, exact_error: str, guard_error: str = "") -> Check:
    """The verdict of the exact test, the guard cells and the residual together. NaN fails."""
    reasons = [reason for reason in (exact_error, guard_error) if reason]
    if not found.value <= 1:
        reasons.append(
            f"the residual of row {found.row} is {found.value:.3g} times its bound"
            if np.isfinite(found.value)
            else f"row {found.row} of C holds a NaN or an infinity"
        )
    figures = {"residual_over_bound": found.value if np.isfinite(found.value) else -1.0}
    return Check("wrong" if reasons else "ok", figures, tuple(reasons))
