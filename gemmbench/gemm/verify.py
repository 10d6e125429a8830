"""Operands, and exact cases: small problems of integers whose answer is known to the last bit.

The cause of a wrong answer is looked for by experiment: on an easy problem (whole tiles, alpha = 1, beta = 0,
a C of zeros, rows without gaps), made harder in one thing at a time. If that is wrong, too, its answer is
held against those of common mistakes: a transposed operand, products that are missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import repeat
from typing import Any

import numpy as np

from gemmbench.ladder.variant import Layout, round_up
from gemmbench.model.dtypes import DTYPES, DType, HostArray, decode, encode
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm

GUARD = 37.0  # what the cells around C hold; exact in every data type
_BLOCK = 1024  # rows converted to double at a time
_CHAR = 128  # integers lie from -128 to 127


def random_operands(
    problem: Gemm, seed: int = 1, draws_c: bool = True
) -> tuple[HostArray, HostArray, HostArray]:
    """op(A) (m x k), op(B) (k x n) and C (m x n) of every problem, one below the other, uniform in [-1, 1).

    Never zeros, which some devices run faster.

    They are as a device stores them: bfloat16 as its bits. tf32 is stored as float with all of float's
    digits, as a user's matrices are, so that a device has to drop some. Integers are uniform over all that a
    char holds.
    The same problem gives the same operands, however they are stored. A C that is not drawn is zeros.
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

    return _each_operand(problem, draw, draws_c)


def _each_operand(
    problem: Gemm, draw: Callable[[int, int, DType], HostArray], draws_c: bool = True
) -> tuple[HostArray, HostArray, HostArray]:
    """op(A), op(B) and C, or zeros, by a function of rows, columns and data type."""
    m, n, k, dtype = problem.m, problem.n, problem.k, DTYPES[problem.dtype]
    a, b = draw(m, k, dtype), draw(k, n, dtype)
    if draws_c:
        return a, b, draw(m, n, problem.result)
    return a, b, np.zeros((m * problem.batch, n), problem.result.numpy)


def integer_operands(problem: Gemm) -> tuple[HostArray, HostArray, HostArray]:
    """Like `random_operands` with integers from -2 to 2: every partial sum is exact, whatever the order.

    Of an integer type, all that a char holds.

    Raises:
        ValueError: k is so large that a sum could leave the integers that C's type holds exactly.
    """
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

    return _each_operand(problem, draw)


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


def _stored(values: HostArray, dtype: DType) -> HostArray:
    """Values as a device stores them, a block of rows at a time; those that are so already, untouched."""
    if values.dtype == dtype.numpy:
        return values
    stored = np.empty(values.shape, dtype.numpy)
    for start in range(0, len(values), _BLOCK):
        stored[start : start + _BLOCK] = encode(values[start : start + _BLOCK], dtype)
    return stored


def exact_product(problem: Gemm, a: HostArray, b: HostArray, c: HostArray) -> HostArray:
    """alpha A B + beta C in double precision; with beta = 0, C is not read."""
    stacks = (stack(_numbers(matrix, DTYPES[problem.dtype]), problem.batch) for matrix in (a, b))
    product = problem.alpha * np.matmul(*stacks).reshape(c.shape)
    if problem.beta != 0:
        product += problem.beta * _numbers(c, problem.result)
    return np.asarray(product)


def stack(matrix: HostArray, batch: int) -> HostArray:
    """The matrices of a batch that stand one below the other, as a stack: batch x rows x columns."""
    return matrix.reshape(batch, len(matrix) // batch, matrix.shape[1])


def transposed(matrix: HostArray, batch: int = 1) -> HostArray:
    """The transpose of every matrix of a batch, one below the other."""
    turned = stack(matrix, batch).transpose(0, 2, 1)
    return np.asarray(turned.reshape(-1, turned.shape[2]) if batch > 1 else turned[0])


def edge_problem(dtype: str, edge: int, ops: str = "NN") -> Gemm:
    """A shape no dimension of which is a multiple of a tile, with alpha and beta that must both be applied.

    k stays small enough for sums that are exact in every data type. `edge` is the longest side of a tile,
    `ops` as `Gemm.ops`.
    """
    trans_a, trans_b = (each == "T" for each in ops)
    k = min(edge + 1, 201)
    return Gemm(2 * edge + 3, edge + 5, k, dtype, 2.0, -1.0, trans_a=trans_a, trans_b=trans_b)


def compare_exactly(expected: HostArray, got: HostArray, tile: tuple[int, int] | None = None) -> str:
    """Where an exact answer differs, in words; "" if it does not. NaN differs.

    Both are m x n; `tile` is the rows and columns of C that a work-group computes, where that is known.
    """
    wrong = ~(got.astype(np.float64) == expected)
    if not wrong.any():
        return ""
    i, j = map(int, np.argwhere(wrong)[0])
    share = f"{int(wrong.sum())} of {wrong.size} elements"
    first = f"C[{i}][{j}] is {float(got[i, j]):g}, not {expected[i, j]:g}"
    return f"{share} differ on the exact test; {first}{_tile(tile, i, j)}"


def _tile(tile: tuple[int, int] | None, i: int, j: int) -> str:
    """The tile of an element of C, for a sentence; "" where tiles are not known."""
    if tile is None:
        return ""
    rows, columns = (
        f"{at - at % side} to {at - at % side + side - 1}" for at, side in zip((i, j), tile, strict=True)
    )
    return f", in the tile of rows {rows} and columns {columns}"


def _numbers(stored: HostArray, dtype: DType) -> HostArray:
    """What a device stores as numbers, in double precision."""
    return np.asarray(decode(stored, dtype), np.float64)


# --- The exact test: rows longer than the problem's, guard cells around C, NaN wherever nothing may be
# read.


_BEHIND = 64  # guard cells behind C
BATCH = 3  # problems of the exact test of a batch


@dataclass(frozen=True)
class ExactTest:
    """One problem whose answer is known to the last bit, laid out in memory."""

    problem: Gemm
    layout: Layout
    host: dict[str, HostArray]  # A, B and C before, flat
    expected: HostArray  # m x n of every problem, one below the other, in double precision
    a: HostArray  # op(A), m x k, likewise
    b: HostArray  # op(B), k x n, likewise

    @classmethod
    def of(
        cls, problem: Gemm, layout: Layout | None = None, room: int = 0, before: float | None = None
    ) -> ExactTest:
        """The test of a problem.

        Args:
            problem: small enough for exact sums.
            layout: leading dimensions beyond the tight ones; None for odd ones.
            room: rows behind A, B and C that belong to nobody, beside the guard cells.
            before: what C holds where beta is 0; None for what must not be read.
        """
        lda, ldb, ldc = problem.tight
        layout = layout or Layout(lda + 3, ldb + 5, ldc + 7)
        a, b, c = integer_operands(problem)
        dtype, result = DTYPES[problem.dtype], problem.result
        unread, guard = poison(dtype), c.dtype.type(GUARD)
        unwritten = poison(result) if before is None else c.dtype.type(before)
        stored_a = transposed(a, problem.batch) if problem.trans_a else a
        stored_b = transposed(b, problem.batch) if problem.trans_b else b
        stored_c = c if problem.beta != 0 else np.full_like(c, unwritten)
        host = {
            "A": _embed(stored_a, layout.lda, unread, room * layout.lda),
            "B": _embed(stored_b, layout.ldb, unread, room * layout.ldb),
            "C": _embed(stored_c, layout.ldc, guard, _BEHIND + room * layout.ldc),
        }
        expected = exact_product(problem, a, b, c)
        if result.name == "bfloat16":  # the sum is exact, and rounded once
            expected = decode(encode(expected, result), result)
        return cls(problem, layout, host, expected, _numbers(a, dtype), _numbers(b, dtype))

    @property
    def described(self) -> str:
        """Its shape, scalars and rows, for a sentence."""
        problem, layout = self.problem, self.layout
        ops = f"{problem.ops}, " if problem.ops != "NN" else ""
        return (
            f"{ops}m {problem.m}, n {problem.n}, k {problem.k}, alpha {problem.alpha:g}, "
            f"beta {problem.beta:g}, lda {layout.lda}, ldb {layout.ldb}, ldc {layout.ldc}"
            f"{f', batch {problem.batch}' if problem.batch > 1 else ''}"
        )

    def error(self, result: HostArray, tile: tuple[int, int] | None = None) -> str:
        """What is wrong with C as it came back, flat; or ""; `tile` as of `compare_exactly`."""
        m, n, ldc = self.problem.m * self.problem.batch, self.problem.n, self.layout.ldc
        inside = result[: m * ldc].reshape(m, ldc)
        guard = np.concatenate([inside[:, n:].ravel(), result[m * ldc :]])
        if (guard == result.dtype.type(GUARD)).all():
            batch, got = self.problem.batch, decode(inside[:, :n], self.problem.result)
            each = map(compare_exactly, stack(self.expected, batch), stack(got, batch), repeat(tile))
            number, wrong = next(((i, text) for i, text in enumerate(each) if text), (0, ""))
            wrong = f"in problem {number} of a batch, {wrong}" if wrong and batch > 1 else wrong
            return f"{wrong} ({self.described})" if wrong else ""
        return f"cells outside C were written on the exact test; {self._outside(result)} ({self.described})"

    def _outside(self, result: HostArray) -> str:
        """The first cell outside C that was written."""
        m, n, ldc = self.problem.m * self.problem.batch, self.problem.n, self.layout.ldc
        written = result != result.dtype.type(GUARD)
        written[: m * ldc].reshape(m, ldc)[:, :n] = False
        at = int(np.argmax(written))
        where = f"C[{at // ldc}][{at % ldc}]" if ldc else "C[0][0]"
        return f"the first is {where}, {float(result[at]):g}, where C has {m} rows of {n}"


def widened(matrix: HostArray, ld: int, fill: Any) -> HostArray:
    """A matrix in rows of ``ld`` elements, the rest filled: rows x ld; itself where its rows are as long."""
    if matrix.shape[1] == ld:
        return np.ascontiguousarray(matrix)
    return _embed(matrix, ld, fill).reshape(len(matrix), ld)


def _embed(matrix: HostArray, ld: int, fill: Any, extra: int = 0) -> HostArray:
    """A matrix in rows of ``ld`` elements, the rest filled, and ``extra`` more elements behind it; flat."""
    rows, columns = matrix.shape
    flat = np.full(rows * ld + extra, fill, matrix.dtype)
    flat[: rows * ld].reshape(rows, ld)[:, :columns] = matrix
    return flat


_GAPS = {"lda": 3, "ldb": 5, "ldc": 7}  # between the rows, beyond k, n and n
_REPEATS = 2  # runs beside the first, to see whether answers differ
_MOST_EASY = 512  # edge of the easy problem
_DEPTH = 64  # of which most depths of tiles are parts

Run = Callable[[ExactTest], HostArray]


@dataclass(frozen=True)
class Kernel:
    """A kernel to be tested.

    Attributes:
        run: runs a test's problem on its operands; C afterwards, flat, with what stands behind it.
        without: of alpha, beta, lda, ldb, ldc, what it does not take.
        edge: the longest side of its tiles.
        tile: rows and columns of C that a work-group computes; None where its groups are no such tiles.
        source: its text.
        room: elements behind A, B and C that a missing guard may reach, in rows of each.
        ops: how A and B are stored, as `Gemm.ops`.
        batch: problems in a launch.
    """

    run: Run
    edge: int
    without: tuple[str, ...] = ()
    tile: tuple[int, int] | None = None
    source: str = ""
    room: int = 0
    ops: str = "NN"
    batch: int = 1

    def problem(self, dtype: str) -> Gemm:
        """The odd problem that it is tested on, with the scalars that it takes."""
        odd = edge_problem(dtype, self.edge, self.ops)
        return replace(
            odd,
            alpha=1.0 if "alpha" in self.without else odd.alpha,
            beta=0.0 if "beta" in self.without else odd.beta,
            batch=self.batch,
        )

    def test(
        self, problem: Gemm, gaps: Mapping[str, int] = _GAPS, unwritten: float | None = None
    ) -> ExactTest:
        """The exact test of a problem, with gaps between the rows where the kernel takes a leading dimension.

        Args:
            problem: small enough for exact sums.
            gaps: by leading dimension, in elements.
            unwritten: what C holds where beta is 0; None for NaN.
        """
        wide = {name: 0 if name in self.without else gap for name, gap in gaps.items()}
        names = ("lda", "ldb", "ldc")
        layout = Layout(*(ld + wide.get(name, 0) for name, ld in zip(names, problem.tight, strict=True)))
        return ExactTest.of(problem, layout, self.room, unwritten)

    def error(self, test: ExactTest) -> str:
        """What is wrong on a test, or ""."""
        return test.error(self.run(test), self.tile)


def tested(kernel: Kernel, dtype: str) -> str:
    """What is wrong with a kernel on its two exact tests, with the cause that it looks like; or ""."""
    problem = kernel.problem(dtype)
    for each in dict.fromkeys((problem, replace(problem, alpha=1.0, beta=0.0))):
        test = kernel.test(each)
        result = kernel.run(test)
        if error := test.error(result, kernel.tile):
            try:
                causes = list(dict.fromkeys(_causes(kernel, test, result)))
            except ValueError:  # a data type whose sums are not exact for so long
                return error
            except Exception as failure:  # the verdict stands, whatever becomes of the search for its cause
                restart = failure.restart if isinstance(failure, NotMeasuredError) else True
                raise NotMeasuredError("wrong", error, restart) from None
            return " ".join((f"{error}.", *causes)) if causes else error
    return ""


def _causes(kernel: Kernel, test: ExactTest, result: HostArray) -> Iterator[str]:
    """Sentences about what the kernel may do wrong; none where nothing fits."""
    if test.problem.batch > 1:
        test = kernel.test(replace(test.problem, batch=1))
        result = kernel.run(test)
        if not test.error(result, kernel.tile):
            yield "It is right on one problem: does it step from each problem of a batch to the next?"
            return
    edge = math.lcm(*(kernel.tile or ()), kernel.edge, _DEPTH)
    if edge > _MOST_EASY:
        edge = round_up(kernel.edge, _DEPTH)
    easy = replace(test.problem, m=edge, n=edge, k=min(edge, 2 * _DEPTH), alpha=1.0, beta=0.0)
    if kernel.error(kernel.test(easy, {}, 0.0)):
        yield from (_differing(kernel, test, result) or _of_easy(kernel, replace(easy, k=edge)))
    elif harder := list(_of_harder(kernel, easy)):
        yield from harder
    else:
        yield from _differing(kernel, test, result)


def _differing(kernel: Kernel, test: ExactTest, result: HostArray) -> tuple[str, ...]:
    """Whether the answer is another each time."""
    for _ in range(_REPEATS):
        if not np.array_equal(kernel.run(test), result, equal_nan=result.dtype.kind == "f"):
            return (
                "The answer differs from run to run: is a barrier missing, or do two work-items write one "
                "element?",
            )
    return ()


def _of_harder(kernel: Kernel, easy: Gemm) -> Iterator[str]:
    """What a kernel that is right on an easy problem fails on."""
    edge = easy.m
    if kernel.error(kernel.test(easy, {})):
        yield "C is read although beta is 0: it may hold NaN then, and must not be read."
    for name, (length, inside) in {
        "lda": ("m" if easy.trans_a else "k", "A"),
        "ldb": ("k" if easy.trans_b else "n", "B"),
        "ldc": ("n", "C"),
    }.items():
        if name not in kernel.without and kernel.error(kernel.test(easy, {name: _GAPS[name]}, 0.0)):
            yield f"{name} is larger than {length} here: does the kernel step through {inside} with it?"
    for name, scaled, what in (
        ("alpha", replace(easy, alpha=2.0), "alpha is 2: is the product multiplied by it?"),
        ("beta", replace(easy, beta=-1.0), "beta is -1: is C as it was, multiplied by it, added?"),
    ):
        if name not in kernel.without and kernel.error(kernel.test(scaled, {}, 0.0)):
            yield what
    for name, longer in (
        ("m", replace(easy, m=edge + 1)),
        ("n", replace(easy, n=edge + 1)),
        ("k", replace(easy, k=easy.k + 1)),
    ):
        if kernel.error(kernel.test(longer, {}, 0.0)):
            yield _of_edge(kernel, longer, name)


def _of_easy(kernel: Kernel, easy: Gemm) -> Iterator[str]:
    """What the answer to a square problem of whole tiles looks like."""
    test = kernel.test(easy, {}, 0.0)
    got = kernel.run(test)[: easy.m * easy.n].reshape(easy.m, easy.n).astype(np.float64)
    a, b = test.a, test.b
    answers = {
        "A is read transposed": a.T @ b,
        "B is read transposed": a @ b.T,
        "A and B are read transposed": a.T @ b.T,
        "C is written transposed": (a @ b).T,
        'the operands are taken column by column (order = "column-major" in the description says so)': b @ a,
    }
    if (tile := math.gcd(*(kernel.tile or (1,)), easy.m)) > 1:
        answers["each tile of A is read transposed"] = _turned(a, tile) @ b
        answers["each tile of B is read transposed"] = a @ _turned(b, tile)
    for what, answer in answers.items():
        if np.array_equal(got, answer):
            yield f"It looks as if {what}."
            return
    if (got == 0).all():
        yield "Nothing was written: does the launch cover C, and is C the argument that it writes?"
        return
    for what, lines, right in (("row", got, a @ b), ("column", got.T, (a @ b).T)):
        empty = ~lines.any(axis=1)
        if empty.any() and np.array_equal(lines[~empty], right[~empty]):
            first = f"{what.capitalize()} {empty.argmax()} of {len(lines)}"
            yield f"{first} is not written: does a guard leave out a {what} within C?"
            return
    if missing := _products(a, b, got):
        yield missing
        return
    if barriers := _barriers(kernel.source):
        yield barriers


def _turned(matrix: HostArray, edge: int) -> HostArray:
    """A matrix of whole square tiles with each tile transposed."""
    rows, columns = matrix.shape
    tiles: HostArray = matrix.reshape(rows // edge, edge, columns // edge, edge).transpose(0, 3, 2, 1)
    return tiles.reshape(rows, columns)


def _barriers(source: str) -> str:
    if not re.search(r"\b(__local|local)\b", source):
        return ""
    count = len(re.findall(r"\b(barrier|work_group_barrier)\s*\(", source))
    what = "no barrier" if not count else "one barrier" if count == 1 else f"{count} barriers"
    return (
        f"It shares local memory and has {what}: there must be one between writing a tile and reading it, "
        f"and one before it is written again.{' If so, an index is wrong.' if count > 1 else ''}"
    )


def _of_edge(kernel: Kernel, harder: Gemm, name: str) -> str:
    """A length that is no multiple of a tile, and what goes wrong with it."""
    length = getattr(harder, name)
    if name != "k":
        what = "rows past m" if name == "m" else "columns past n"
        return (
            f"It is wrong where {name} is no multiple of the tile ({length}): is a guard missing for {what}?"
        )
    test = kernel.test(harder, {}, 0.0)
    got = kernel.run(test)[: harder.m * harder.n].reshape(harder.m, harder.n).astype(np.float64)
    missing = _products(test.a, test.b, got)
    return missing or f"It is wrong where k is no multiple of the tile ({length}): is something read past k?"


def _products(a: HostArray, b: HostArray, got: HostArray) -> str:
    """Whether sums end early: over how many of the products they go."""
    k = a.shape[1]
    differing = np.argwhere(got != a @ b)
    if not differing.size:  # a fault behind C, or one that comes and goes
        return ""
    i, j = differing[0]
    sums = np.concatenate([[0.0], np.cumsum(a[i] * b[:, j])])
    for count in np.flatnonzero(sums == got[i, j])[::-1]:
        if count < k and np.array_equal(got, a[:, :count] @ b[:count]):
            return f"Only the first {count} of {k} products are summed: is the last step along k missing?"
    return ""
