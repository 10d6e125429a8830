"""Whether what a bench computes is right: before the first timed batch, in the batches and after the last.

Before and after, the timed launches multiply integers, and Freivalds' check finds any wrong element of C.
Before (a long problem in its first batch), drawn rows of the timed operands' C must lie within the bounds of
rounding. The C of later problems must have the same bits, or lie within those bounds.
"""

from __future__ import annotations

import math
import secrets
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Protocol

import numpy as np

from gemmbench.gemm import operands, verify
from gemmbench.gemm.operands import Matrices, add_guards, same_bits, save_result, unwritten
from gemmbench.gemm.verify import PLAIN, DrawnRows, Terms, as_stack, widen
from gemmbench.model.case import Case
from gemmbench.model.dtypes import DTYPES, DType, HostArray, blocks, decode, encode
from gemmbench.model.instrument import NotMeasuredError, Verified, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import ADDS_IN_HALF, SHOWN, Check, Elements

# --- Freivalds' check: whether C = alpha A B + beta C0, exactly and in O(n^2) -------------------------------
#
# The kernel multiplies integers that are drawn so that every partial sum is exact, in any order. Then
# C x = alpha A (B x) + beta C0 x holds exactly for every vector x. If C is wrong and the elements of x are
# drawn from 0 and 1, it holds with a probability of at most 1/2. For 32 such vectors that is at most 2^-32.
#
# Source: R. Freivalds, "Probabilistic machines can use less running time", IFIP Congress 1977.

VECTORS = 32
_SIGMAS = 9  # standard deviations of a sum that stay exact: 1e-18 is the probability of more
_C_SHARE = 0.25  # of the exact range, for beta C0
_HOST_EXACT = 2.0**53  # integers that the host's double sums hold
_WORTH_A_NOTE = 0.01  # of an element, lost in sums of half
_MOST_DRAWN = 1 << 12  # of an operand in float or double: more finds no more faults


@dataclass(frozen=True)
class Exact:
    """Integer operands of a problem, and the product of C with random vectors."""

    problem: Gemm  # with an alpha other than 1, and a beta other than 0 where the timed one is not 0
    operands: Matrices  # as a device stores them
    x: HostArray  # batch x n x `VECTORS`
    expected: HostArray  # alpha A (B x) + beta C0 x: batch x m x `VECTORS`

    def scaled(self, digits: int) -> Exact:
        """A copy with C before, `expected` and the smaller of A and B multiplied by 2^digits."""
        dtype, a, b = DTYPES[self.problem.dtype], self.operands.a, self.operands.b
        of_a, of_b = (digits, 0) if a.size <= b.size else (0, digits)
        a, b = _scaled_elements(a, dtype, of_a), _scaled_elements(b, dtype, of_b)
        c = _scaled_elements(self.operands.c, self.problem.result, digits)
        return replace(self, operands=Matrices(a, b, c, True), expected=2.0**digits * self.expected)

    def error(self, c: HostArray, terms: Terms = PLAIN) -> str:
        """The first wrong element of a C and the number of wrong rows, or ""."""
        problem, batch = self.problem, self.problem.batch
        wrong = np.argwhere(
            ~(_product(as_stack(c, batch), problem.result, self.x) == self.expected).all(axis=2)
        )
        if not wrong.size:
            return ""
        number, row = map(int, wrong[0])
        dtype, result = DTYPES[problem.dtype], problem.result
        a_row = widen(as_stack(self.operands.a, batch)[number, row : row + 1], dtype)
        columns = as_stack(self.operands.b, batch)[number : number + 1].swapaxes(1, 2)
        right = problem.alpha * _product(columns, dtype, a_row.T[None])[0, :, 0]
        if problem.beta != 0:
            right += problem.beta * widen(as_stack(self.operands.c, batch)[number, row], result)
        row_got = widen(as_stack(c, batch)[number, row], result)
        column = int(np.argmax(row_got != right))
        where = f"in problem {number} of {batch}, " if batch > 1 else ""
        return (
            f"{where}{terms.element(row, column)} is {row_got[column]:.17g}, not {right[column]:.17g}"
            f"{terms.in_tile(row, column)}; {len(wrong)} of {batch * problem.m} "
            f"{'columns' if terms.by_columns else 'rows'} are wrong"
        )


def exact_limit(problem: Gemm, sums: str = "") -> float:
    """The largest L up to which all integers are exact in C, and in sums of a kernel, also if cut off."""
    result = problem.result
    if not result.is_float:
        return result.largest
    kept = DTYPES[sums] if sums else result
    return min(2 / result.eps, (1 if kept.dropped else 2) / kept.eps)


@lru_cache(maxsize=2)  # every kernel of a problem, before and after its batches
def exact_operands(problem: Gemm, sums: str = "", without: tuple[str, ...] = ()) -> Exact:
    """Random integer operands whose partial sums are exact, with the widest range possible.

    The range and the density of A and B satisfy 9 sqrt(k var(A) var(B)) |alpha| + |beta| max|C0| <= L, with L
    from `exact_limit`. alpha becomes 2 or -3, a beta other than 0 becomes -2; those in `without` 1 and 0.
    """
    rng = np.random.default_rng(secrets.randbits(64))
    problem = replace(
        problem,
        alpha=1.0 if "alpha" in without else float(rng.choice((2, -3))),
        beta=0.0 if problem.beta == 0 or "beta" in without else -2.0,
    )
    dtype, result, batch = DTYPES[problem.dtype], problem.result, problem.batch
    limit = min(exact_limit(problem, sums), _HOST_EXACT / (4 * max(problem.n, 1)))
    most_c = _largest_exact(result, _C_SHARE * limit / 2)
    # var(A) = var(B): the largest for which the sums stay exact
    variance = (limit - abs(problem.beta) * most_c) / (
        _SIGMAS * abs(problem.alpha) * math.sqrt(max(problem.k, 1))
    )
    on_host = math.sqrt(_HOST_EXACT / (4 * abs(problem.alpha) * max(problem.k * problem.n, 1)))
    # The mean square of the integers from 1 to L is (L + 1) (2 L + 1) / 6: the largest L of the variance.
    most = _largest_exact(dtype, min(on_host, max(1.0, (math.sqrt(1 + 48 * variance) - 3) / 4)))
    density = min(1.0, 6 * variance / ((most + 1) * (2 * most + 1)))

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
    expected = problem.alpha * _product(as_stack(a, batch), dtype, _product(as_stack(b, batch), dtype, x))
    if problem.beta != 0:
        expected += problem.beta * _product(as_stack(c, batch), result, x)
    return Exact(problem, Matrices(a, b, c, True), x, expected)


def forget_operands() -> None:
    """Drop all cached operands."""
    exact_operands.cache_clear()
    operands.clear_caches()


def _largest_exact(dtype: DType, wanted: float) -> int:
    exact = min(2 / dtype.eps, _MOST_DRAWN) if dtype.is_float else min(dtype.largest, 127)
    return max(1, int(min(wanted, exact)))


def _scaled_elements(stored: HostArray, dtype: DType, digits: int) -> HostArray:
    """Stored elements times 2^digits, added to the exponents of short types."""
    if not digits:
        return stored
    if dtype.itemsize > 2:
        return np.asarray(stored * dtype.numpy.type(2.0**digits))
    bits = stored.view(f"u{dtype.itemsize}")  # numpy has no fast arithmetic of these types
    magnitude = bits.dtype.type((1 << (8 * dtype.itemsize - 1)) - 1)
    exponent = bits.dtype.type(digits << round(-math.log2(dtype.eps)))
    return np.asarray(bits + exponent * ((bits & magnitude) != 0)).view(stored.dtype)


def _product(matrices: HostArray, dtype: DType, x: HostArray) -> HostArray:
    batch, rows, columns = matrices.shape
    product = np.zeros((batch, rows, x.shape[2]))
    for problems in blocks(batch, rows * columns):
        for part in blocks(rows, columns):
            product[problems, part] = widen(matrices[problems, part], dtype) @ x[problems]
    return product


_DIGITS = 11  # at most: powers of 2 by which exact operands are scaled; of half and shorter types 2
_ROWS = 512  # of C that are converted to double at a time


class Verifiable(Protocol):
    """What verification needs of a bench."""

    @property
    def scopes(self) -> tuple[str, ...]: ...

    @property
    def distinct(self) -> tuple[str, ...]: ...

    @property
    def sets(self) -> int: ...

    @property
    def is_long(self) -> bool:
        """Whether its first batch, of one problem, is what `Answers.check_own` gets."""

    @property
    def erases(self) -> bool:
        """Whether every batch is one problem on an erased C, which is compared then."""

    def put(self, values: Matrices, index: int = 0) -> None:
        """Replace A and B of an operand set, as `Matrices.stored` has them."""

    def answer(self, scope: str, index: int, c: HostArray, problem: Gemm | None = None) -> HostArray:
        """Run the timed launches of a scope once. Return C, m x ldc; the next launch may change it.

        `c` is C before. `problem` has another alpha or beta.
        """

    def left(self) -> HostArray | None:
        """C as the last batch left it, unless it was filled or added to since."""


class Answers:
    """Verifies the results of one bench. `sums` is the type of sums, "" for C's."""

    def __init__(
        self, case: Case, values: Matrices, sums: str = "", without: tuple[str, ...] = (),
        terms: Terms = PLAIN,
    ) -> None:  # fmt: skip
        self._case, self._problem, self._values = case, case.gemm, values
        self._sums, self._without, self._terms = sums, without, terms
        self._result: HostArray | None = None  # that was right, with the case's own C

    @property
    def before(self) -> HostArray:
        return add_guards(self._problem, unwritten(self._problem, self._values.c))

    @property
    def verified_result(self) -> HostArray:
        if self._result is None:
            raise NotMeasuredError("failed", "there is no verified result to compare with")
        return add_guards(self._problem, self._result)

    @property
    def erased_result(self) -> HostArray:
        """The verified result inverted, so that unwritten elements are wrong."""
        right = np.ascontiguousarray(self._inside(self.verified_result))
        return add_guards(self._problem, np.invert(right.view(np.uint8)).view(right.dtype))

    def _inside(self, c: HostArray) -> HostArray:
        return c[:, : self._problem.n]

    def verified(self, bench: Verifiable, when: When) -> Verified:
        """Run the checks before or after the batches. Small matrices are returned."""
        check = self._check_before(bench) if when == "before" else self._check_after(bench)
        if check.verdict != "ok":
            return Verified(check)
        notes = (self._stalled_note(),) if when == "after" and self._case.operands.out else ()
        return Verified(check, matrices=self._small_matrices(), notes=tuple(filter(None, notes)))

    def _stalled_note(self) -> str:
        kept = DTYPES[self._sums] if self._sums else self._problem.result
        if kept.name != "half" or self._values.generated or self._result is None:
            return ""
        share = self._rows.share_off(self._result, self._values.c)
        return f"{ADDS_IN_HALF}: C is up to {100 * share:.2g} % off" if share > _WORTH_A_NOTE else ""

    def _small_matrices(self) -> dict[str, Elements]:
        """Operands and result in full, if they are small enough to be saved."""
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

    def _check_before(self, bench: Verifiable) -> Check:
        """Check exact integers, then the case's own operands, in every distinct scope."""
        exact = exact_operands(self._problem, self._sums, self._without)
        bench.put(exact.operands.stored(exact.problem))
        checks = [self._check_exact(bench, scope, 0, exact) for scope in bench.distinct]
        bench.put(self._values.stored(self._problem))
        for scope in () if bench.is_long else bench.distinct:
            if all(check.verdict == "ok" for check in checks):
                checks.append(self.check_own(bench.answer(scope, 0, self.before)))
        return verify.merge_checks(checks)

    def check_own(self, result: HostArray) -> Check:
        """Check a product of the case's own operands, and store it for comparisons."""
        self._result = self._inside(result).copy()
        checks = [self._check_guards(result), self._check_finite(self._result)]
        if checks[-1].verdict == "ok":
            checks.append(self._rows.check(self._result, self._values.c, self._sums, self._terms))
        return verify.merge_checks(checks)

    def _check_finite(self, c: HostArray) -> Check:
        """Whether C is finite, by its first NaN or infinity. Operands that overflow cannot be verified."""
        problem, values = self._problem, self._values
        row = verify.first_not_finite(c, problem.result) if problem.result.is_float else None
        if row is None:
            return Check("ok")
        rows = DrawnRows(problem, values.a, values.b, False, row)
        if beyond := rows.beyond(c, values.c, self._sums):
            raise NotMeasuredError("failed", f"{beyond}, so nothing can be verified")
        return rows.check(c, values.c, self._sums, self._terms)

    def _check_after(self, bench: Verifiable) -> Check:
        """Check what the last batch left, and exact integers. Write ``--out``."""
        left = bench.left()
        checks = [] if left is None else [self.check_repeated(left, "after the last batch: ")]
        if not (checks and bench.erases):
            checks += self._exact_checks_after(bench)
        check = verify.merge_checks(checks)
        if check.verdict == "ok" and self._case.operands.out and self._result is not None:
            save_result(self._case.operands.out, self._result)
        return check

    def _exact_checks_after(self, bench: Verifiable) -> list[Check]:
        """Check exact integers times a power of 2 on random operand sets."""
        checks = []
        rng, (device, *others) = np.random.default_rng(), bench.scopes
        other = str(rng.choice(others or [device]))
        # One run checks the same launches on the only operand set; a long problem is not run a second time.
        is_same = len(bench.distinct) == bench.sets == 1
        scopes = [str(rng.choice([device, other]))] if is_same else [device, other]
        index, dtype = int(rng.integers(bench.sets)), DTYPES[self._problem.dtype]
        most = _DIGITS if min(dtype.itemsize, self._problem.result.itemsize) > 2 else 2
        digits = int(rng.integers(1, most, endpoint=True)) if dtype.is_float else 0
        exact = exact_operands(self._problem, self._sums, self._without).scaled(digits)
        every = {index, (index + 1) % bench.sets}
        for each in every:
            bench.put(exact.operands.stored(exact.problem), each)
        for scope in scopes:
            checks.append(self._check_exact(bench, scope, index, exact, "after the last batch: "))
            index = (index + 1) % bench.sets
        for each in every:
            bench.put(self._values.stored(self._problem), each)
        return checks

    def _check_exact(self, bench: Verifiable, scope: str, index: int, exact: Exact, what: str = "") -> Check:
        """Check the exact problem on operand set `index`, which must hold its A and B.

        C before is NaN if beta is 0; after the timed batches (`what`) integers, so that it must be written.
        """
        c0 = exact.operands.c if what else unwritten(exact.problem, exact.operands.c)
        c0 = add_guards(exact.problem, c0)
        result = bench.answer(scope, index, c0, exact.problem)
        if error := exact.error(self._inside(result), self._terms):
            return Check("wrong", {}, (f"{what}{error}",))
        return self._check_guards(result)

    def _check_guards(self, result: HostArray) -> Check:
        between = result[:, self._problem.n :]
        if (between == between.dtype.type(verify.GUARD)).all():
            return Check("ok")
        return Check("wrong", {}, ("cells between the rows of C were written",))

    @cached_property
    def _rows(self) -> DrawnRows:
        values = self._values
        if not values.rows:
            values.rows.append(DrawnRows(self._problem, values.a, values.b, values.generated))
        return values.rows[0]

    def check_repeated(self, left: HostArray, what: str) -> Check:
        """Check that a C is the verified one but for rounding; `what` is a prefix."""
        right, got = self.verified_result, np.ascontiguousarray(left)
        if same_bits(got, np.ascontiguousarray(right)):
            return Check("ok")
        problem, values = self._problem, self._values
        bounds = verify.repeat_bounds(problem, values.a, values.b, values.c, values.generated, self._sums)
        stacks = (as_stack(self._inside(c), problem.batch) for c in (got, right))
        wrong, first = 0, ""
        for number, (now, before) in enumerate(zip(*stacks, strict=True)):
            for start in range(0, problem.m, _ROWS):
                rows = slice(start, start + _ROWS)
                verified = widen(before[rows], problem.result)
                with np.errstate(invalid="ignore"):
                    far = ~(np.abs(widen(now[rows], problem.result) - verified) <= bounds(number, verified))
                if far.any() and not wrong:
                    i, j = np.argwhere(far)[0]
                    element = self._terms.element(start + i, j)
                    first = f"{element} is {now[rows][i, j]:g}, not the verified {before[rows][i, j]:g}"
                wrong += int(far.sum())
        if not wrong:
            return self._check_guards(left)
        return Check("wrong", {}, (f"{what}{first}; {wrong} of {now.size * problem.batch} elements differ",))
