"""How far from C in double precision a right kernel may come, and whether drawn rows are that near.

With u = eps / 2 of the type that sums are kept in, v that of C's type and d what a multiplier may drop of an
element (tf32: 2^-10), elements of gemmbench's own operands may be off by

    bound_ij = 8 (2 d + u sqrt(k + 4) + v) s_ij + e |A B|_ij

with s_ij^2 = alpha^2 (A.^2 B.^2)_ij + beta^2 C0_ij^2, and e a share that may be gone by no chance: rounding
errors of random operands are independent. Nothing is known of a user's matrices. There the worst case
counts, with t = |alpha| |A| |B| + |beta| |C0|:

    bound_ij = (2 d + u (k + 4) + v) t_ij

docs/methodology.md derives the bounds and names the sources.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from gemmbench.gemm.verify import blocks, numbers, stack
from gemmbench.model.dtypes import DTYPES, DType, HostArray
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check

SAFETY = 8.0  # standard deviations allowed to rounding errors
ROWS = 32  # drawn, of all problems of a batch
_CUT_SHORT = 2.0**-24  # eps / 2 of float: sums of wider types are not cut short


@dataclass(frozen=True)
class Model:
    """What rounding does to the elements of C: see the module."""

    adding: float  # u
    storing: float  # v
    dropped: float  # d
    smallest: float  # what the operations may lose below the type's range
    steps: int  # k + 4: two more for alpha, one each for beta and for C
    cut: float  # of sums that tensor cores cut short far above float's digits

    @classmethod
    def of(cls, problem: Gemm, sums: str = "") -> Model:
        """The model of a kernel that keeps its sums in a data type; "" for C's."""
        result = problem.result
        kept, steps, smallest = DTYPES[sums] if sums else result, problem.k + 4, 0.0
        if kept.is_float:
            info = _limits(kept)
            # Half has subnormal numbers on every device; of the others they may be flushed to zero.
            smallest = float(info.smallest_subnormal if kept.itemsize == 2 else info.smallest_normal)
            smallest += float(_limits(result).smallest_subnormal)
        # Every product is cut off at the last digit of the partial sum, which is sqrt(k) times as large.
        cut = kept.dropped * math.sqrt(steps)
        dropped = DTYPES[problem.dtype].dropped
        return cls(kept.eps / 2, result.eps / 2, dropped, steps * smallest, steps, cut)

    def random(self, size: HostArray, product: HostArray) -> HostArray:
        """The bound for random operands.

        Args:
            size: s.
            product: alpha A B.
        """
        unit = SAFETY * (2 * self.dropped + self.adding * math.sqrt(self.steps) + self.storing)
        lost = self.cut or self.adding * self.steps * (1.0 if self.adding <= _CUT_SHORT else self.adding)
        share = 2 * self.dropped + 4 * (self.adding + self.storing) + lost
        return np.asarray(unit * size + share * np.abs(product) + self.smallest)

    def worst(self, size: HostArray) -> HostArray:
        """The bound for any operands; `size` is t."""
        share = 2 * self.dropped + max(self.cut, self.adding * self.steps) + self.storing
        return np.asarray(share * size + self.smallest)


class DrawnRows:
    """Rows of C in double precision, made once for the operands of a problem.

    Args:
        problem: the problem.
        a: op(A), m x k of every problem of the batch, one below the other, as stored.
        b: op(B), k x n, stored in the same way.
        generated: whether the operands are gemmbench's own, uniform ones.
    """

    def __init__(self, problem: Gemm, a: HostArray, b: HostArray, generated: bool) -> None:
        self._problem, self._generated = problem, generated
        every = problem.batch * problem.m
        rng = np.random.default_rng()
        self._rows = np.sort(rng.choice(every, min(ROWS, every), replace=False)) if every else np.arange(0)
        dtype, power = DTYPES[problem.dtype], 2 if generated else 1
        self._product = np.zeros((len(self._rows), problem.n))
        self._size = np.zeros_like(self._product)  # s^2 or t, of A B
        stacked = stack(b, problem.batch)
        for number in np.unique(self._rows // max(1, problem.m)):
            chosen = self._rows // problem.m == number
            rows = numbers(a[self._rows[chosen]], dtype)
            for part in blocks(problem.k, problem.n):
                block = numbers(stacked[number, part], dtype)
                self._product[chosen] += rows[:, part] @ block
                self._size[chosen] += np.abs(rows[:, part]) ** power @ np.abs(block) ** power

    def check(self, c: HostArray, c0: HostArray, sums: str = "") -> Check:
        """Whether every element of the rows is within its bound. NaN is not.

        Args:
            c: m x n of every problem, C after.
            c0: C before; not read if beta is 0.
            sums: the data type that the kernel keeps its sums in, if it is not C's.
        """
        problem, result = self._problem, self._problem.result
        got = numbers(c[self._rows], result)
        product = problem.alpha * self._product
        added = problem.beta * numbers(c0[self._rows], result) if problem.beta != 0 else np.zeros_like(got)
        bound = self._bound(product, added, sums)
        with np.errstate(all="ignore"):
            ratio = np.abs(got - (product + added)) / (bound + np.finfo(np.float64).tiny)
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        if not ratio.size:
            return Check("ok")
        worst = float(ratio.max())
        if worst <= 1:
            return Check("ok", {"element": worst})
        i, j = np.argwhere(~(ratio <= 1))[0]
        row = int(self._rows[i])
        where = f"in problem {row // problem.m} of {problem.batch}, " if problem.batch > 1 else ""
        reason = (
            f"{where}C[{row % problem.m}][{j}] is {got[i, j]:.6g}, not {(product + added)[i, j]:.6g}: "
            f"{int((~(ratio <= 1)).sum())} of {ratio.size} elements are further off than rounding"
        )
        return Check("wrong", {"element": worst} if math.isfinite(worst) else {}, (reason,))

    def _bound(self, product: HostArray, added: HostArray, sums: str) -> HostArray:
        problem, model = self._problem, Model.of(self._problem, sums)
        if not problem.result.is_float:
            return np.full(product.shape, 0.5)
        if self._generated:
            size = np.hypot(abs(problem.alpha) * np.sqrt(self._size), added)
            return model.random(size, product)
        return model.worst(abs(problem.alpha) * self._size + np.abs(added))


def repeat_bounds(
    problem: Gemm, a: HostArray, b: HostArray, c0: HostArray, generated: bool, sums: str
) -> Callable[[int, HostArray], HostArray]:
    """How far results may lie apart whose order of summation differs.

    Each is within its bound of the same number. The bound is that of the largest row of A.

    Returns:
        A function of a problem's number in the batch and its verified rows of C; the bound of each element.
    """
    dtype, batch, model = DTYPES[problem.dtype], problem.batch, Model.of(problem, sums)

    def bounds(number: int, verified: HostArray) -> HostArray:
        if not problem.result.is_float:
            return np.zeros_like(verified)
        largest = np.abs(numbers(stack(a, batch)[number], dtype)).max(initial=0)
        columns = np.abs(numbers(stack(b, batch)[number], dtype))
        added = 0.0
        if problem.beta != 0:
            added = abs(problem.beta) * float(
                np.abs(numbers(stack(c0, batch)[number], problem.result)).max(initial=0)
            )
        if generated:
            size = np.hypot(abs(problem.alpha) * largest * np.sqrt(np.square(columns).sum(axis=0)), added)
            return 2 * model.random(size, verified)
        size = abs(problem.alpha) * largest * columns.sum(axis=0) + added
        return np.broadcast_to(2 * model.worst(size), verified.shape)

    return bounds


def _limits(dtype: DType) -> Any:
    """numpy's facts of a floating-point type, or of float, whose exponents bfloat16 has."""
    kind: Any = dtype.numpy if dtype.numpy.kind == "f" else np.float32
    return np.finfo(kind)


def merged(checks: Sequence[Check]) -> Check:
    """Several checks of one kernel: the worst of each figure, and every reason once."""
    figures: dict[str, float] = {}
    for check in checks:
        for name, value in check.figures.items():
            figures[name] = max(figures.get(name, 0.0), value)
    reasons = tuple(dict.fromkeys(reason for check in checks for reason in check.reasons))
    return Check("wrong" if reasons else "ok", figures, reasons)
