"""Whether C = alpha A B + beta C0, exactly and in O(n^2): Freivalds' check.

The kernel multiplies integers that are drawn so that every partial sum is exact, in any order. Then
C x = alpha A (B x) + beta C0 x holds exactly for every vector x. For a wrong C it holds with a probability of
at most 1/2 if the elements of x are drawn from 0 and 1, and for 32 such vectors with at most 2^-32.

Source: R. Freivalds, "Probabilistic machines can use less running time", IFIP Congress 1977.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np

from gemmbench.gemm.operands import Matrices
from gemmbench.gemm.verify import blocks, in_tile, numbers, stack
from gemmbench.model.dtypes import DTYPES, DType, HostArray, encode
from gemmbench.model.problem import Gemm

VECTORS = 32
_SIGMAS = 9  # standard deviations of a sum that stay exact: 1e-18 is the probability of more
_C_SHARE = 0.25  # of the exact range, for beta C0
_HOST_EXACT = 2.0**53  # integers that the host's double sums hold
_MOST_DRAWN = 1 << 12  # of an operand in float or double: more finds no more faults


@dataclass(frozen=True)
class Exact:
    """Integer operands of a problem, and what the product of C with random vectors must be.

    Attributes:
        problem: with an alpha other than 1, and a beta other than 0 where the timed one is not 0.
        a: op(A), m x k of every problem of the batch, one below the other, as a device stores them.
        b: op(B), k x n, stored in the same way.
        c: C before, m x n, stored in the same way.
        x: batch x n x `VECTORS`.
        expected: alpha A (B x) + beta C0 x: batch x m x `VECTORS`.
    """

    problem: Gemm
    a: HostArray
    b: HostArray
    c: HostArray
    x: HostArray
    expected: HostArray

    @property
    def operands(self) -> Matrices:
        return Matrices(self.a, self.b, self.c, generated=True)

    def scaled(self, digits: int) -> Exact:
        """The smaller one of A and B times 2^digits, and C before as well."""
        dtype, result = DTYPES[self.problem.dtype], self.problem.result
        a, b = self.a, self.b
        if a.size <= b.size:
            a = _scaled(a, dtype, digits)
        else:
            b = _scaled(b, dtype, digits)
        c = _scaled(self.c, result, digits)
        return replace(self, a=a, b=b, c=c, expected=2.0**digits * self.expected)

    def error(self, c: HostArray, tile: tuple[int, int] | None = None) -> str:
        """The first wrong element of C with its tile, or "".

        Args:
            c: m x n of every problem, one below the other, as the kernel left it.
            tile: rows and columns of C that a work-group computes, if known.
        """
        problem, batch = self.problem, self.problem.batch
        wrong = np.argwhere(~(_times(stack(c, batch), problem.result, self.x) == self.expected).all(axis=2))
        if not wrong.size:
            return ""
        number, row = map(int, wrong[0])
        dtype, result = DTYPES[problem.dtype], problem.result
        a_row = numbers(stack(self.a, batch)[number, row : row + 1], dtype)
        b, right = stack(self.b, batch)[number], np.zeros(problem.n)
        for steps in blocks(problem.k, problem.n):
            right += (a_row[:, steps] @ numbers(b[steps], dtype))[0]
        right = problem.alpha * right
        if problem.beta != 0:
            right += problem.beta * numbers(stack(self.c, batch)[number, row], result)
        row_got = numbers(stack(c, batch)[number, row], result)
        column = int(np.argmax(row_got != right))
        where = f"in problem {number} of {batch}, " if batch > 1 else ""
        return (
            f"{where}C[{row}][{column}] is {row_got[column]:.17g}, not {right[column]:.17g}"
            f"{in_tile(tile, row, column)}; {len(wrong)} of {batch * problem.m} rows are wrong"
        )


def exact_limit(problem: Gemm, sums: str = "") -> float:
    """The largest integer L up to which all integers are exact in C and in the sums of a kernel.

    Half: 2^11; bfloat16: 2^8; float: 2^24; double: 2^53; int: 2^31 - 1. Of sums that tensor cores keep in
    fewer digits than float has, half the range: 2^13 for fp8.

    Args:
        problem: its data type defines C's.
        sums: the data type that sums are kept in, if it is not C's.
    """
    result = problem.result
    if not result.is_float:
        return result.largest
    kept = DTYPES[sums] if sums else result
    return min(2 / result.eps, (1 if kept.dropped else 2) / kept.eps)


@lru_cache(maxsize=2)  # every kernel of a problem, before and after its batches
def drawn(problem: Gemm, sums: str = "", without: tuple[str, ...] = ()) -> Exact:
    """Operands whose partial sums are exact, of the widest range; other ones in every process.

    The range of A and B, and the share d of their elements that are not 0, satisfy
    9 sqrt(k var(A) var(B)) |alpha| + |beta| max|C0| <= L, with L from `exact_limit`. The host's sums in
    double precision are exact as well.

    Args:
        problem: the timed one; alpha becomes 2 or -3, a beta other than 0 becomes -2.
        sums: as of `exact_limit`.
        without: "alpha" and "beta" where a kernel does not take them.
    """
    rng = np.random.default_rng(secrets.randbits(64))
    problem = replace(
        problem,
        alpha=1.0 if "alpha" in without else float(rng.choice((2, -3))),
        beta=0.0 if problem.beta == 0 or "beta" in without else -2.0,
    )
    dtype, result, batch = DTYPES[problem.dtype], problem.result, problem.batch
    limit = min(exact_limit(problem, sums), _HOST_EXACT / (4 * max(problem.n, 1)))
    most_c = _most(result, _C_SHARE * limit / 2)
    # var(A) = var(B): the largest for which the sums stay exact
    variance = (limit - abs(problem.beta) * most_c) / (
        _SIGMAS * abs(problem.alpha) * math.sqrt(max(problem.k, 1))
    )
    on_host = math.sqrt(_HOST_EXACT / (4 * abs(problem.alpha) * max(problem.k * problem.n, 1)))
    most = _most(dtype, min(on_host, _widest(variance)))
    density = min(1.0, variance / _mean_square(most))

    def draw(rows: int, columns: int, kind: DType, largest: int, share: float) -> HostArray:
        stored = np.empty((batch * rows, columns), kind.numpy)
        for part in blocks(*stored.shape):
            values = rng.integers(-largest, largest, stored[part].shape, np.int16)
            values += values >= 0  # never 0
            if share < 1:
                values *= rng.random(values.shape, np.float32) < share
            stored[part] = encode(values.astype(np.float32), kind)
        return stored

    a, b = draw(problem.m, problem.k, dtype, most, density), draw(problem.k, problem.n, dtype, most, density)
    c = draw(problem.m, problem.n, result, most_c, 1.0)
    x = rng.integers(0, 2, (batch, problem.n, VECTORS)).astype(np.float64)
    expected = problem.alpha * _times(stack(a, batch), dtype, _times(stack(b, batch), dtype, x))
    if problem.beta != 0:
        expected += problem.beta * _times(stack(c, batch), result, x)
    return Exact(problem, a, b, c, x, expected)


def _mean_square(largest: int) -> float:
    """Of integers from 1 to the largest."""
    return (largest + 1) * (2 * largest + 1) / 6


def _widest(variance: float) -> float:
    """The range of integers of a variance: `_mean_square` solved for the largest."""
    return max(1.0, (math.sqrt(1 + 48 * variance) - 3) / 4)


def _most(dtype: DType, wanted: float) -> int:
    """The largest integer up to the one wanted below which a type holds all; 1 at least."""
    exact = min(2 / dtype.eps, _MOST_DRAWN) if dtype.is_float else min(dtype.largest, 127)
    return max(1, int(min(wanted, exact)))


def _scaled(stored: HostArray, dtype: DType, digits: int) -> HostArray:
    """Stored elements times 2^digits, which is exact."""
    if not digits:
        return stored
    if dtype.itemsize > 2:
        return np.asarray(stored * dtype.numpy.type(2.0**digits))
    bits = stored.view(f"u{dtype.itemsize}")  # numpy has no fast arithmetic of these types
    magnitude = bits.dtype.type((1 << (8 * dtype.itemsize - 1)) - 1)
    exponent = bits.dtype.type(digits << round(-math.log2(dtype.eps)))
    return np.asarray(bits + exponent * ((bits & magnitude) != 0)).view(stored.dtype)


def _times(matrices: HostArray, dtype: DType, x: HostArray) -> HostArray:
    """A stack of stored matrices (batch x rows x columns) times one of vectors, in double precision."""
    batch, rows, columns = matrices.shape
    product = np.zeros((batch, rows, x.shape[2]))
    for problems in blocks(batch, rows * columns):
        for part in blocks(rows, columns):
            product[problems, part] = numbers(matrices[problems, part], dtype) @ x[problems]
    return product
