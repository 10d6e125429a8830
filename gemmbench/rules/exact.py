"""The exact test: rows longer than the problem's, guard cells around C, NaN wherever nothing may be read."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.rules import reference
from gemmbench.rules.reference import Array
from gemmbench.rules.variants import Layout

_BEHIND = 64  # guard cells behind C


@dataclass(frozen=True)
class ExactTest:
    """One problem whose answer is known to the last bit, laid out in memory."""

    problem: Gemm
    layout: Layout
    host: dict[str, Array]  # A, B and C before, flat
    expected: Array  # m x n, in double precision

    @classmethod
    def of(cls, problem: Gemm, layout: Layout | None = None) -> ExactTest:
        """The test of a problem.

        Args:
            problem: small enough for exact sums.
            layout: leading dimensions beyond the tight ones; None for odd ones.
        """
        layout = layout or Layout(problem.k + 3, problem.n + 5, problem.n + 7)
        a, b, c = reference.integer_operands(problem)
        unread, unwritten = reference.poison(DTYPES[problem.dtype]), reference.poison(problem.result)
        host = {
            "A": _embed(a, layout.lda, unread),
            "B": _embed(b, layout.ldb, unread),
            "C": _embed(
                c if problem.beta != 0 else np.full_like(c, unwritten),
                layout.ldc,
                c.dtype.type(reference.GUARD),
                _BEHIND,
            ),
        }
        return cls(problem, layout, host, reference.exact_product(problem, a, b, c))

    def error(self, result: Array) -> str:
        """What is wrong with C as it came back, flat; or ""."""
        m, n, ldc = self.problem.m, self.problem.n, self.layout.ldc
        inside = result[: m * ldc].reshape(m, ldc)
        guard = np.concatenate([inside[:, n:].ravel(), result[m * ldc :]])
        if not (guard == result.dtype.type(reference.GUARD)).all():
            return "cells outside C were written on the exact test"
        return reference.compare_exactly(self.expected, inside[:, :n])


def _embed(matrix: Array, ld: int, fill: Any, extra: int = 0) -> Array:
    """A matrix in rows of ``ld`` elements, the rest filled, and ``extra`` more elements behind it; flat."""
    rows, columns = matrix.shape
    flat = np.full(rows * ld + extra, fill, matrix.dtype)
    flat[: rows * ld].reshape(rows, ld)[:, :columns] = matrix
    return flat
