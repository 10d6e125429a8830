"""What verification needs: operands, the exact test around the edges of tiles, and the bounds of rounding.

In the exact test, guard cells stand around C and NaN wherever nothing may be read. Every element is compared.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmbench.ladder.variant import Layout, round_up
from gemmbench.model.dtypes import DTYPES, DType, HostArray, blocks, decode, encode
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check

GUARD = 37.0  # what the cells around C hold; exact in every data type
_CHAR = 128  # integers lie from -128 to 127


def random_operands(problem: Gemm, seed: int = 1) -> tuple[HostArray, HostArray, HostArray]:
    """op(A) (m x k), op(B) (k x n) and C (m x n) of every problem, one below the other, uniform in [-1, 1).

    Integers are uniform over the range of a char. How a problem is stored changes no operand.
    """
    rng = np.random.default_rng((seed, problem.m, problem.n, problem.k))

    def draw(rows: int, columns: int, dtype: DType) -> HostArray:
        rows *= problem.batch
        if not dtype.is_float:
            return rng.integers(-_CHAR, _CHAR, (rows, columns), dtype.numpy)
        drawn = np.float64 if dtype.itemsize == 8 else np.float32
        values = rng.random((rows, columns), dtype=drawn)
        values *= 2
        values -= 1
        return _stored(values, dtype)

    return _draw_operands(problem, draw)


def _draw_operands(
    problem: Gemm, draw: Callable[[int, int, DType], HostArray]
) -> tuple[HostArray, HostArray, HostArray]:
    m, n, k, dtype = problem.m, problem.n, problem.k, DTYPES[problem.dtype]
    return draw(m, k, dtype), draw(k, n, dtype), draw(m, n, problem.result)


def integer_operands(problem: Gemm) -> tuple[HostArray, HostArray, HostArray]:
    """The same with integers from -2 to 2, or a char's; `ValueError` if sums could be inexact."""
    dtype, result = DTYPES[problem.dtype], problem.result
    most = 2 if dtype.is_float else _CHAR
    sums = DTYPES["half"] if result.name == "bfloat16" else result  # never bfloat16, which is stored only
    exact = 2 / sums.eps if result.is_float else result.largest
    if _largest_sum(problem, most) > exact:
        raise ValueError(f"k = {problem.k} is too large for exact sums in {result.name}")
    rng = np.random.default_rng((1, problem.m, problem.n, problem.k))

    def draw(rows: int, columns: int, dtype: DType) -> HostArray:
        rows *= problem.batch
        high = most if dtype.is_float else most - 1
        return encode(rng.integers(-most, high, (rows, columns), endpoint=True), dtype)

    return _draw_operands(problem, draw)


def could_overflow(problem: Gemm) -> bool:
    """Whether a sum of an integer type could exceed C's type with some operands."""
    result = problem.result
    return not result.is_float and _largest_sum(problem, _CHAR) > result.largest


def _largest_sum(problem: Gemm, most: int) -> float:
    product = most * most * problem.k
    return max(product, abs(problem.alpha) * product + abs(problem.beta) * most)


def poison(dtype: DType) -> Any:
    """The value of unwritten and forbidden cells: NaN, or the largest integer."""
    # The bits of the largest integer are a NaN of bfloat16 and fp8, which numpy stores as integers.
    return dtype.numpy.type(np.nan if dtype.numpy.kind == "f" else dtype.largest)


def _stored(values: HostArray, dtype: DType) -> HostArray:
    if values.dtype == dtype.numpy:
        return values
    stored = np.empty(values.shape, dtype.numpy)
    for part in blocks(*values.shape):
        stored[part] = encode(values[part], dtype)
    return stored


def exact_product(problem: Gemm, a: HostArray, b: HostArray, c: HostArray) -> HostArray:
    """alpha A B + beta C in double precision; C is not read if beta is 0."""
    stacks = (as_stack(widen(matrix, DTYPES[problem.dtype]), problem.batch) for matrix in (a, b))
    product = problem.alpha * np.matmul(*stacks).reshape(c.shape)
    if problem.beta != 0:
        product += problem.beta * widen(c, problem.result)
    return np.asarray(product)


def as_stack(matrix: HostArray, batch: int) -> HostArray:
    """The matrices of a batch, one below the other, as batch x rows x columns."""
    return matrix.reshape(batch, len(matrix) // batch, matrix.shape[1])


def transpose_each(matrix: HostArray, batch: int = 1) -> HostArray:
    """The transpose of every matrix of a batch, one below the other."""
    turned = as_stack(matrix, batch).transpose(0, 2, 1)
    return np.asarray(turned.reshape(batch * turned.shape[1], turned.shape[2]) if batch > 1 else turned[0])


def edge_problem(dtype: str, edge: int, ops: str = "NN") -> Gemm:
    """A problem around tiles of up to `edge`, with k of at most 201: sums are then exact in every type."""
    trans_a, trans_b = (each == "T" for each in ops)
    k = min(edge + 1, 201)
    return Gemm(2 * edge + 3, edge + 5, k, dtype, 2.0, -1.0, trans_a=trans_a, trans_b=trans_b)


@dataclass(frozen=True)
class Terms:
    """How sentences name elements of C."""

    tile: tuple[int, int] | None = None  # rows and columns of the row-major C of a work-group, if known
    by_columns: bool = False  # the kernel is column-major: its rows are the columns of the row-major C

    def element(self, i: int, j: int) -> str:
        return f"C[{j}][{i}]" if self.by_columns else f"C[{i}][{j}]"

    def in_tile(self, i: int, j: int) -> str:
        """The tile of C that holds an element, in words."""
        if self.tile is None:
            return ""
        rows, columns = (
            f"{at - at % side} to {at - at % side + side - 1}"
            for at, side in zip((i, j), self.tile, strict=True)
        )
        if self.by_columns:
            rows, columns = columns, rows
        return f", in the tile of rows {rows} and columns {columns}"


PLAIN = Terms()


def compare_exactly(expected: HostArray, got: HostArray, terms: Terms = PLAIN) -> str:
    """How many elements differ (NaN does), the first, its tile; or ""."""
    wrong = ~(got.astype(np.float64) == expected)
    if not wrong.any():
        return ""
    i, j = map(int, np.argwhere(wrong)[0])
    share = f"{int(wrong.sum())} of {wrong.size} elements"
    first = f"{terms.element(i, j)} is {float(got[i, j]):g}, not {expected[i, j]:g}"
    return f"{share} differ on the exact test; {first}{terms.in_tile(i, j)}"


def widen(stored: HostArray, dtype: DType) -> HostArray:
    """Stored values as numbers in double precision."""
    return np.asarray(decode(stored, dtype), np.float64)


_BEHIND = 64  # guard cells behind C
BATCH = 3  # problems of the exact test of a batch


@dataclass(frozen=True)
class ExactTest:
    """One problem with a known answer, laid out in memory."""

    problem: Gemm
    layout: Layout
    host: dict[str, HostArray]  # A, B and C before, flat
    expected: HostArray  # m x n of every problem, one below the other, in double precision

    @classmethod
    def of(
        cls, problem: Gemm, layout: Layout | None = None, room: int = 0, unread: int = 0,
        has_numbers: bool = False,
    ) -> ExactTest:  # fmt: skip
        """The test of a problem that is small enough for exact sums; `ValueError` if it is not.

        Gaps between rows of A and B are NaN, and C if beta is 0, unless it `has_numbers`. Guards are around
        the rows of C. `room` rows behind A, B and C belong to nobody. `unread` elements behind A and B may
        not be read.
        """
        lda, ldb, ldc = problem.tight
        layout = layout or Layout(lda + 3, ldb + 5, ldc + 7)
        a, b, c = integer_operands(problem)
        dtype, result = DTYPES[problem.dtype], problem.result
        nan, guard = poison(dtype), c.dtype.type(GUARD)
        stored_a = transpose_each(a, problem.batch) if problem.trans_a else a
        stored_b = transpose_each(b, problem.batch) if problem.trans_b else b
        stored_c = c if problem.beta != 0 or has_numbers else np.full_like(c, poison(result))
        host = {
            "A": _flat_with_gaps(stored_a, layout.lda, nan, unread + room * layout.lda),
            "B": _flat_with_gaps(stored_b, layout.ldb, nan, unread + room * layout.ldb),
            "C": _flat_with_gaps(stored_c, layout.ldc, guard, _BEHIND + room * layout.ldc),
        }
        expected = exact_product(problem, a, b, c)
        if result.name == "bfloat16":  # the sum is exact, and rounded once
            expected = decode(encode(expected, result), result)
        return cls(problem, layout, host, expected)

    def described(self, terms: Terms) -> str:
        """The test's problem as the kernel gets it, in words."""
        problem, layout = self.problem, self.layout
        m, n, lda, ldb, ops = problem.m, problem.n, layout.lda, layout.ldb, problem.ops
        if terms.by_columns:  # the kernel multiplies the transposed matrices in the other order
            m, n, lda, ldb, ops = n, m, ldb, lda, ops[::-1]
        return (
            f"{f'{ops}, ' if ops != 'NN' else ''}m {m}, n {n}, k {problem.k}, alpha {problem.alpha:g}, "
            f"beta {problem.beta:g}, lda {lda}, ldb {ldb}, ldc {layout.ldc}"
            f"{f', batch {problem.batch}' if problem.batch > 1 else ''}"
        )

    def error(self, result: HostArray, terms: Terms = PLAIN) -> str:
        """The first cell written outside a flat C, or its first wrong element; or ""."""
        batch, n, ldc = self.problem.batch, self.problem.n, self.layout.ldc
        m = self.problem.m * batch
        written = result != result.dtype.type(GUARD)
        written[: m * ldc].reshape(m, ldc)[:, :n] = False
        if written.any():
            at = int(np.argmax(written))
            where = terms.element(*divmod(at, ldc or 1))
            rows, columns = (n, m) if terms.by_columns else (m, n)
            first = f"the first is {where}, {float(result[at]):g}, where C has {rows} rows of {columns}"
            return f"cells outside C were written on the exact test; {first} ({self.described(terms)})"
        got = as_stack(decode(result[: m * ldc].reshape(m, ldc)[:, :n], self.problem.result), batch)
        for number, expected in enumerate(as_stack(self.expected, batch)):
            if wrong := compare_exactly(expected, got[number], terms):
                where = f"in problem {number} of a batch, " if batch > 1 else ""
                return f"{where}{wrong} ({self.described(terms)})"
        return ""


def with_row_length(matrix: HostArray, ld: int, fill: Any) -> HostArray:
    """A matrix in rows of ``ld`` elements, the rest filled."""
    if matrix.shape[1] == ld:
        return np.ascontiguousarray(matrix)
    return _flat_with_gaps(matrix, ld, fill).reshape(len(matrix), ld)


def _flat_with_gaps(matrix: HostArray, ld: int, fill: Any, extra: int = 0) -> HostArray:
    rows, columns = matrix.shape
    flat = np.full(rows * ld + extra, fill, matrix.dtype)
    flat[: rows * ld].reshape(rows, ld)[:, :columns] = matrix
    return flat


_RAGGED = (3, 5, 7)  # elements between the rows of A, B and C: vector loads of rows are not aligned
_ALIGNED = 64  # elements: aligned rows are a multiple of it long, so that kernels use their vector paths
_WHOLE = 16  # m, n and k are multiples of it in the test of aligned rows

Run = Callable[[ExactTest], HostArray]


@dataclass(frozen=True)
class Kernel:
    """A kernel to be tested."""

    run: Run  # C after a test's problem has run: flat, with the guard cells behind it
    edge: int  # the longest side of its tiles
    without: tuple[str, ...] = ()  # of alpha, beta, lda, ldb, ldc, what it does not take
    terms: Terms = PLAIN
    room: int = 0  # rows behind A, B and C that a kernel without bounds checks may reach
    ops: str = "NN"  # how A and B are stored, as `Gemm.ops`
    batch: int = 1  # problems in a launch
    step: int = 1  # leading dimensions must be a multiple of this
    may_read_c: bool = False  # although beta is 0, so that C has numbers: the user asks for another beta

    def tests(self, dtype: str) -> Iterator[ExactTest]:
        """Its tests: ragged and aligned rows, each with alpha, beta of 2, -1 and 1, 0, if it takes them."""
        odd = edge_problem(dtype, self.edge, self.ops)
        alpha = 1.0 if "alpha" in self.without else odd.alpha
        beta = 0.0 if "beta" in self.without else odd.beta
        for whole, gaps, lead in ((1, _RAGGED, 1), (_WHOLE, (1, 1, 1), _ALIGNED)):
            whole, lead = math.lcm(whole, self.step), math.lcm(lead, self.step)
            m, n, k = (round_up(length, whole) for length in (odd.m, odd.n, odd.k))
            problem = replace(odd, m=m, n=n, k=k, batch=self.batch)
            lengths = (
                tight if name in self.without else round_up(tight + gap, lead)
                for name, tight, gap in zip(("lda", "ldb", "ldc"), problem.tight, gaps, strict=True)
            )
            layout = Layout(*lengths)
            for a, b in dict.fromkeys(((alpha, beta), (1.0, 0.0))):
                yield self._test(replace(problem, alpha=a, beta=b), layout, self.may_read_c)

    def _test(self, problem: Gemm, layout: Layout, has_numbers: bool) -> ExactTest:
        return ExactTest.of(problem, layout, self.room, _BEHIND, has_numbers)

    def error(self, test: ExactTest) -> str:
        """What is wrong with the kernel on a test, or "", and whether NaN in C is why."""
        error = test.error(self.run(test), self.terms)
        if not error or test.problem.beta != 0 or self.may_read_c:
            return error
        with_numbers = self._test(test.problem, test.layout, True)
        reads_c = not with_numbers.error(self.run(with_numbers))
        return f"reads C although beta is 0: C held NaN; {error}" if reads_c else error


def exact_test_error(kernel: Kernel, dtype: str) -> str:
    """What is wrong with a kernel on the first failing exact test, or ""."""
    return next(filter(None, map(kernel.error, kernel.tests(dtype))), "")


# --- The bounds of rounding: how far from C in double precision a right kernel may come ---------------------
#
# Let u be eps / 2 of the type that sums are kept in, v that of C's type, and d what a multiplier may drop of
# an element (tf32: 2^-10). With gemmbench's own operands, an element of C may be off by
#
#     bound_ij = 8 (2 d + u sqrt(k + 4) + v) s_ij + e |A B|_ij
#
# where s_ij^2 = alpha^2 (A.^2 B.^2)_ij + beta^2 C0_ij^2, because rounding errors of random operands are
# independent, and e is a systematic share. Nothing is known of a user's matrices. There the worst case
# counts, with t = |alpha| |A| |B| + |beta| |C0|:
#
#     bound_ij = (2 d + u (k + 4) + v) t_ij
#
# with u = 2^-13 17/16 for the 14 bits of fp8's sums. Their random bound holds for operands of mean zero.
# docs/methodology.md derives the bounds and names the sources.

SAFETY = 8.0  # standard deviations allowed to rounding errors
ROWS = 32  # drawn, of all problems of a batch
_CUTS_A_STEP = 34 / 32  # an instruction of 32 steps cuts 32 products, the sum before and the new one
_CUT_SHORT = 2.0**-24  # eps / 2 of float: sums of wider types are not cut short


@dataclass(frozen=True)
class RoundingModel:
    """What rounding does to the elements of C: see above."""

    adding: float  # u
    storing: float  # v
    dropped: float  # d
    smallest: float  # what the operations may lose below the type's range
    steps: int  # k + 4: two more for alpha, one each for beta and for C
    cut: float  # of sums that tensor cores cut off far above float's digits: their last digit, relative

    @classmethod
    def of(cls, problem: Gemm, sums: str = "") -> RoundingModel:
        """The model for a problem whose sums are kept in `sums`, or in the result's type."""
        result = problem.result
        kept, steps, smallest = DTYPES[sums] if sums else result, problem.k + 4, 0.0
        if kept.is_float:
            info = _limits(kept)
            # Half has subnormal numbers on every device; of the others they may be flushed to zero.
            smallest = float(info.smallest_subnormal if kept.itemsize == 2 else info.smallest_normal)
            smallest += float(_limits(result).smallest_subnormal)
        dropped = DTYPES[problem.dtype].dropped
        return cls(kept.eps / 2, result.eps / 2, dropped, steps * smallest, steps, kept.dropped)

    def random(self, size: HostArray, product: HostArray) -> HostArray:
        unit = SAFETY * (2 * self.dropped + self.adding * math.sqrt(self.steps) + self.storing)
        # Every product is cut off at the last digit of the partial sum, which is sqrt(k) times as large.
        lost = self.cut * math.sqrt(self.steps)
        lost = lost or self.adding * self.steps * (1.0 if self.adding <= _CUT_SHORT else self.adding)
        share = 2 * self.dropped + 4 * (self.adding + self.storing) + lost
        return np.asarray(unit * size + share * np.abs(product) + self.smallest)

    def worst(self, size: HostArray) -> HostArray:
        adding = self.cut * _CUTS_A_STEP or self.adding
        share = 2 * self.dropped + adding * self.steps + self.storing
        return np.asarray(share * size + self.smallest)


class DrawnRows:
    """Up to 32 random rows of C in double precision, for the operands of a problem."""

    def __init__(
        self, problem: Gemm, a: HostArray, b: HostArray, generated: bool, row: int | None = None
    ) -> None:
        """Draw rows of C of all problems (or use one `row`), and compute A B and its errors' size.

        That is a sum of squares for `generated` operands, which are uniform, else of absolute values.
        """
        self._problem, self._generated = problem, generated
        every = problem.batch * problem.m
        rng = np.random.default_rng()
        self._rows = np.arange(0) if row is None else np.array([row])
        if every and row is None:
            self._rows = np.sort(rng.choice(every, min(ROWS, every), replace=False))
        dtype, size = DTYPES[problem.dtype], np.square if generated else np.abs
        self._product = np.zeros((len(self._rows), problem.n))
        self._size = np.zeros_like(self._product)  # s^2 or t, of A B
        stacked = as_stack(b, problem.batch)
        for number in np.unique(self._rows // max(1, problem.m)):
            chosen = self._rows // problem.m == number
            rows = widen(a[self._rows[chosen]], dtype)
            for part in blocks(problem.k, problem.n, 2):  # each is added to all columns
                block = widen(stacked[number, part], dtype)
                self._product[chosen] += rows[:, part] @ block
                self._size[chosen] += size(rows[:, part]) @ size(block)

    def _values(self, c: HostArray, c0: HostArray) -> tuple[HostArray, HostArray, HostArray]:
        problem, result = self._problem, self._problem.result
        got = widen(c[self._rows], result)
        added = problem.beta * widen(c0[self._rows], result) if problem.beta != 0 else np.zeros_like(got)
        return got, problem.alpha * self._product, added

    def check(self, c: HostArray, c0: HostArray, sums: str = "", terms: Terms = PLAIN) -> Check:
        """Check that every element of the rows is within its bound of rounding. NaN is outside.

        `c` is C after, m x n of every problem, `c0` C before. The figures are the largest error over its
        bound, and in units of the last place of C's largest element.
        """
        problem = self._problem
        got, product, added = self._values(c, c0)
        bound = self._bound(product, added, sums)
        with np.errstate(all="ignore"):
            error = np.abs(got - (product + added))
            ratio = error / (bound + np.finfo(np.float64).tiny)
        ratio = np.where(np.isnan(ratio), np.inf, ratio)
        if not ratio.size:
            return Check("ok")
        worst = float(ratio.max())
        unit = np.exp2(np.floor(np.log2(max(np.abs(product + added).max(), np.finfo(np.float64).tiny))))
        figures = {"element": worst, "ulp": float(error.max() / (unit * problem.result.eps or 1.0))}
        if worst <= 1:
            return Check("ok", figures)
        i, j = np.argwhere(~(ratio <= 1))[0]
        row = int(self._rows[i])
        where = f"in problem {row // problem.m} of {problem.batch}, " if problem.batch > 1 else ""
        reason = (
            f"{where}{terms.element(row % problem.m, j)} is {got[i, j]:.6g}, "
            f"not {(product + added)[i, j]:.6g}: "
            f"{int((~(ratio <= 1)).sum())} of {ratio.size} elements exceed the rounding bound"
        )
        return Check("wrong", figures if all(map(math.isfinite, figures.values())) else {}, (reason,))

    def beyond(self, c: HostArray, c0: HostArray, sums: str = "") -> str:
        """What exceeds its type's largest number where C is not finite, or ""."""
        got, product, added = self._values(c, c0)
        result, kept = self._problem.result, DTYPES[sums] if sums else self._problem.result
        with np.errstate(all="ignore"):
            size = abs(self._problem.alpha) * self._size + np.abs(added)
            value = np.abs(product + added) + RoundingModel.of(self._problem, sums).worst(size)
            for what, most, dtype in (
                ("the product exceeds", value, result),
                ("sums of the product exceed", np.maximum(self._size, size), kept),
            ):
                if (~np.isfinite(got) & ~(most <= largest(dtype))).any():
                    return f"{what} {dtype.name} ({largest(dtype):.6g})"
        return ""

    def share_off(self, c: HostArray, c0: HostArray) -> float:
        got, product, added = self._values(c, c0)
        size = abs(self._problem.alpha) * self._size + np.abs(added)
        return float(
            (np.abs(got - (product + added)) / np.maximum(size, np.finfo(np.float64).tiny)).max(initial=0)
        )

    def _bound(self, product: HostArray, added: HostArray, sums: str) -> HostArray:
        """The allowed error of each element: typical for random operands, else the worst."""
        problem, model = self._problem, RoundingModel.of(self._problem, sums)
        if not problem.result.is_float:
            return np.full(product.shape, 0.5)
        if self._generated:
            size = np.hypot(abs(problem.alpha) * np.sqrt(self._size), added)
            return model.random(size, product)
        return model.worst(abs(problem.alpha) * self._size + np.abs(added))


def repeat_bounds(
    problem: Gemm, a: HostArray, b: HostArray, c0: HostArray, generated: bool, sums: str
) -> Callable[[int, HostArray], HostArray]:
    """Bounds for the difference of two results whose order of summation differs: twice the bound of one.

    They are a function of a problem's number in the batch and its verified rows of C.
    """
    dtype, batch, model = DTYPES[problem.dtype], problem.batch, RoundingModel.of(problem, sums)

    def bounds(number: int, verified: HostArray) -> HostArray:
        if not problem.result.is_float:
            return np.zeros_like(verified)
        largest = np.abs(widen(as_stack(a, batch)[number], dtype)).max(initial=0)
        columns = np.abs(widen(as_stack(b, batch)[number], dtype))
        added = 0.0
        if problem.beta != 0:
            before = widen(as_stack(c0, batch)[number], problem.result)
            added = abs(problem.beta) * float(np.abs(before).max(initial=0))
        if generated:
            size = np.hypot(abs(problem.alpha) * largest * np.sqrt(np.square(columns).sum(axis=0)), added)
            return 2 * model.random(size, verified)
        size = abs(problem.alpha) * largest * columns.sum(axis=0) + added
        return np.broadcast_to(2 * model.worst(size), verified.shape)

    return bounds


def largest(dtype: DType) -> float:
    """The largest number of a type."""
    return float(_limits(dtype).max) if dtype.is_float else float(dtype.largest)


def first_not_finite(c: HostArray, dtype: DType) -> int | None:
    """The first row of C that is not finite, or None."""
    for part in blocks(*c.shape):
        is_finite = np.isfinite(decode(c[part], dtype)).all(axis=1)
        if not is_finite.all():
            return int(part.start + np.argmin(is_finite))
    return None


def _limits(dtype: DType) -> Any:
    kind: Any = dtype.numpy if dtype.numpy.kind == "f" else np.float32
    return np.finfo(kind)


def merge_checks(checks: Sequence[Check]) -> Check:
    """The largest of each figure and every reason once."""
    figures: dict[str, float] = {}
    for check in checks:
        for name, value in check.figures.items():
            figures[name] = max(figures.get(name, 0.0), value)
    reasons = tuple(dict.fromkeys(reason for check in checks for reason in check.reasons))
    return Check("wrong" if reasons else "ok", figures, reasons)
