"""Whether what a bench computes is right: before the first timed batch, in the batches and after the last.

The same for every executor: OpenCL kernels, numpy and the libraries. Before and after, the timed launches
multiply integers, and C is checked exactly (`gemm.freivalds`). Before, they also multiply the operands that
are timed, and drawn rows of C must lie within the bounds of rounding (`gemm.rounding`). The C of every later
problem must have the same bits, or lie within those bounds if the order of summation varies.

A user's ``--out`` is written when all that has passed.
"""

from __future__ import annotations

from functools import cached_property
from typing import Protocol

import numpy as np

from gemmbench.gemm import freivalds
from gemmbench.gemm.operands import Matrices, guarded, same_bits, save_result
from gemmbench.gemm.rounding import DrawnRows, merged, repeat_bounds
from gemmbench.gemm.verify import GUARD, numbers, poison
from gemmbench.model.case import Case
from gemmbench.model.dtypes import DTYPES, HostArray, decode
from gemmbench.model.instrument import NotMeasuredError, Verified, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import SHOWN, Check, Elements

_DIGITS = 11  # at most: powers of 2 by which exact operands are scaled; of half and shorter types 2
_ROWS = 512  # of C that are converted to double at a time


class Answering(Protocol):
    """A bench as far as it is verified."""

    @property
    def scopes(self) -> tuple[str, ...]:
        """What is timed: device, host."""

    @property
    def distinct(self) -> tuple[str, ...]:
        """Those of them whose launches are not the same as an earlier one's; only the transfers differ."""

    @property
    def sets(self) -> int:
        """How many operand sets it rotates among."""

    def put(self, values: Matrices, index: int = 0) -> None:
        """Replace A and B of an operand set; they are as `Matrices.stored` has them."""

    def answer(self, scope: str, index: int, c: HostArray, problem: Gemm | None = None) -> HostArray:
        """Run the timed launches once on an operand set whose C was filled.

        Args:
            scope: one of `scopes`.
            index: of the operand set.
            c: C before, m x ldc.
            problem: the timed one with another alpha or beta; None for the timed one itself.

        Returns:
            C afterwards, m x ldc.
        """

    def left(self) -> HostArray | None:
        """C as the last batch left it; None if it was filled since, or where every problem added to C."""


class Answers:
    """What the answers of one bench are compared with.

    Args:
        case: with the problem, and the file for C.
        values: its operands.
        sums: the data type that sums are kept in, if it is not C's.
        without: "alpha", "beta": what the kernel does not take.
        tile: rows and columns of C that a work-group computes, if known.
    """

    def __init__(
        self,
        case: Case,
        values: Matrices,
        sums: str = "",
        without: tuple[str, ...] = (),
        tile: tuple[int, int] | None = None,
    ) -> None:
        self._case, self._problem, self._values = case, case.gemm, values
        self._sums, self._without, self._tile = sums, without, tile
        self._result: HostArray | None = None  # that was right, with the case's own C

    @property
    def before(self) -> HostArray:
        """C before a problem, m x ldc: poisoned where it must not be read."""
        return guarded(self._problem, unwritten(self._problem, self._values.c))

    @property
    def verified_result(self) -> HostArray:
        """C as it was verified on the case's own operands, m x ldc.

        Raises:
            NotMeasuredError: it was not yet.
        """
        if self._result is None:
            raise NotMeasuredError("failed", "there is no verified result to compare with")
        return guarded(self._problem, self._result)

    @property
    def erased_result(self) -> HostArray:
        """The verified result with every bit inverted, m x ldc: what is not written over it is wrong.

        Raises:
            NotMeasuredError: nothing was verified yet.
        """
        right = np.ascontiguousarray(self._inside(self.verified_result))
        return guarded(self._problem, np.invert(right.view(np.uint8)).view(right.dtype))

    def _inside(self, c: HostArray) -> HostArray:
        """C without the guard cells between its rows."""
        return c[:, : self._problem.n]

    def verified(self, bench: Answering, when: When) -> Verified:
        """A check, and the numbers of a small problem."""
        check = self._before(bench) if when == "before" else self._after(bench)
        return Verified(check, matrices=self._shown() if check.verdict == "ok" else {})

    def _shown(self) -> dict[str, Elements]:
        """Those of A, B, C before and the result that have no more than `SHOWN` rows and columns."""
        if self._problem.batch > 1:
            return {}
        dtype, result = DTYPES[self._problem.dtype], self._problem.result
        problem, values = self._problem, self._values
        matrices = {
            "A": (values.a.T if problem.trans_a else values.a, dtype),
            "B": (values.b.T if problem.trans_b else values.b, dtype),
        }
        if self._problem.beta != 0:
            matrices["C before"] = self._values.c, result
        if self._result is not None:
            matrices["C"] = self._result, result
        return {
            name: tuple(tuple(map(float, row)) for row in decode(matrix, kind))
            for name, (matrix, kind) in matrices.items()
            if matrix.size and max(matrix.shape) <= SHOWN
        }

    def of_batch(self, left: HostArray) -> Check:
        """What is wrong with the C of a batch, m x ldc, that was filled before its last problem."""
        return self._repeated(left, "in a batch: ")

    def _before(self, bench: Answering) -> Check:
        exact = freivalds.drawn(self._problem, self._sums, self._without)
        bench.put(exact.operands.stored(exact.problem))
        checks = [self._exact(bench, scope, 0, exact) for scope in bench.distinct]
        bench.put(self._values.stored(self._problem))
        for scope in bench.distinct:
            if all(check.verdict == "ok" for check in checks):
                result = bench.answer(scope, 0, self.before)
                self._result = self._inside(result)
                checks += [self._guards(result), self._rows.check(self._result, self._values.c, self._sums)]
        return merged(checks)

    def _after(self, bench: Answering) -> Check:
        left = bench.left()
        checks = [] if left is None else [self._repeated(left, "after the last batch: ")]
        rng, (device, *others) = np.random.default_rng(), bench.scopes
        other = str(rng.choice(others or [device]))
        # One run checks the same launches on the only operand set; a long problem is not run a second time.
        is_same = len(bench.distinct) == bench.sets == 1
        scopes = [str(rng.choice([device, other]))] if is_same else [device, other]
        index, dtype = int(rng.integers(bench.sets)), DTYPES[self._problem.dtype]
        most = _DIGITS if min(dtype.itemsize, self._problem.result.itemsize) > 2 else 2
        digits = int(rng.integers(1, most, endpoint=True)) if dtype.is_float else 0
        exact = freivalds.drawn(self._problem, self._sums, self._without).scaled(digits)
        every = {index, (index + 1) % bench.sets}
        for each in every:
            bench.put(exact.operands.stored(exact.problem), each)
        for scope in scopes:
            checks.append(self._exact(bench, scope, index, exact, "after the last batch: "))
            index = (index + 1) % bench.sets
        for each in every:
            bench.put(self._values.stored(self._problem), each)
        check = merged(checks)
        if check.verdict == "ok" and self._case.operands.out and self._result is not None:
            save_result(self._case.operands.out, self._result)
        return check

    def _exact(
        self, bench: Answering, scope: str, index: int, exact: freivalds.Exact, what: str = ""
    ) -> Check:
        """Freivalds' check of the timed launches on integers, which an operand set holds.

        After the batches C before holds numbers, so that a kernel that leaves what is written alone is wrong.
        """
        c0 = guarded(exact.problem, exact.c if what else unwritten(exact.problem, exact.c))
        result = bench.answer(scope, index, c0, exact.problem)
        if error := exact.error(self._inside(result), self._tile):
            return Check("wrong", {}, (f"{what}{error}",))
        return self._guards(result)

    def _guards(self, result: HostArray) -> Check:
        """Whether the cells between the rows of C are untouched."""
        between = result[:, self._problem.n :]
        if (between == between.dtype.type(GUARD)).all():
            return Check("ok")
        return Check("wrong", {}, ("cells between the rows of C were written",))

    @cached_property
    def _rows(self) -> DrawnRows:
        """Rows of the reference, which all kernels of these operands share."""
        values = self._values
        if not values.rows:
            values.rows.append(DrawnRows(self._problem, values.a, values.b, values.generated))
        return values.rows[0]

    def _repeated(self, left: HostArray, what: str) -> Check:
        """Whether a later C is the verified one: the same bits, or as near as another order of summation."""
        right, got = self.verified_result, np.ascontiguousarray(left)
        if same_bits(got, np.ascontiguousarray(right)):
            return Check("ok")
        problem, values = self._problem, self._values
        bounds = repeat_bounds(problem, values.a, values.b, values.c, values.generated, self._sums)
        shape = (problem.batch, problem.m, problem.n)
        wrong, first = 0, ""
        for number, (now, before) in enumerate(
            zip(*(self._inside(c).reshape(shape) for c in (got, right)), strict=True)
        ):
            for start in range(0, problem.m, _ROWS):
                rows = slice(start, start + _ROWS)
                verified = numbers(before[rows], problem.result)
                with np.errstate(invalid="ignore"):
                    far = ~(np.abs(numbers(now[rows], problem.result) - verified) <= bounds(number, verified))
                if far.any() and not wrong:
                    i, j = np.argwhere(far)[0]
                    first = f"C[{start + i}][{j}] is {now[rows][i, j]:g}, verified was {before[rows][i, j]:g}"
                wrong += int(far.sum())
        if not wrong:
            return self._guards(left)
        return Check("wrong", {}, (f"{what}{first}; {wrong} of {now.size * problem.batch} elements differ",))


def unwritten(problem: Gemm, c: HostArray) -> HostArray:
    """C before a problem: poisoned where it must not be read."""
    return c if problem.beta != 0 else np.full_like(c, poison(problem.result))
