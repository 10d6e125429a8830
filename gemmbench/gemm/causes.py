"""The exact tests of a kernel, and what a wrong one looks like: the cause is looked for by experiment.

A kernel that is wrong on an odd shape with gaps between its rows is run again on an easy problem: whole
tiles, alpha = 1, beta = 0, a C of zeros, rows without gaps. If that is right, it is made harder in one thing
at a time; what it fails on names the cause. If it is wrong, its answer is held against those of common
mistakes: a transposed operand, products that are missing.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

import numpy as np

from gemmbench.gemm.verify import ExactTest, edge_problem
from gemmbench.ladder.variant import Layout, round_up
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm

_GAPS = {"lda": 3, "ldb": 5, "ldc": 7}  # between the rows, beyond k, n and n
_REPEATS = 2  # runs beside the first, to see whether answers differ
_MOST_EASY = 512  # edge of the easy problem
_DEPTH = 64  # of which most depths of tiles are parts

Run = Callable[[ExactTest], ReferenceArray]


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


def _causes(kernel: Kernel, test: ExactTest, result: ReferenceArray) -> Iterator[str]:
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


def _differing(kernel: Kernel, test: ExactTest, result: ReferenceArray) -> tuple[str, ...]:
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
    for what, answer in answers.items():
        if np.array_equal(got, answer):
            yield f"It looks as if {what}."
            return
    if (got == 0).all():
        yield "Nothing was written: does the launch cover C, and is C the argument that it writes?"
        return
    if missing := _products(a, b, got):
        yield missing
        return
    if barriers := _barriers(kernel.source):
        yield barriers


def _barriers(source: str) -> str:
    """What to look at in a kernel that shares local memory."""
    if not re.search(r"\b(__local|local)\b", source):
        return ""
    count = len(re.findall(r"\b(barrier|work_group_barrier)\s*\(", source))
    what = "no barrier" if not count else "one barrier" if count == 1 else f"{count} barriers"
    return (
        f"It shares local memory and has {what}: there must be one between writing a tile and reading it, "
        "and one before it is written again."
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


def _products(a: ReferenceArray, b: ReferenceArray, got: ReferenceArray) -> str:
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
