"""Whether what a bench computes is right, before the first timed batch and after the last.

The same for every executor: OpenCL kernels, numpy and the libraries.

docs/verification.md says what is compared before and after, and why. A user's ``--out`` is written when all
that has passed.
"""

from __future__ import annotations

import secrets
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from typing import Protocol

import numpy as np

from gemmbench.gemm.operands import Matrices, guarded, save_result
from gemmbench.gemm.reference import BatchReference, Reference, merged
from gemmbench.gemm.verify import GUARD, poison, random_operands
from gemmbench.model import units
from gemmbench.model.case import Case, Policy
from gemmbench.model.dtypes import DTYPES, HostArray, decode, encode
from gemmbench.model.instrument import NotMeasuredError, Verified, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import SHOWN, Check, Elements

_TIMES = 3.0  # where C or operands of a few MiB have left the caches, right kernels took 2.1 times as long
_MORE_S, _LOOKS, _PAIRS, _ROUNDS, _TRIES = 20e-6, 5, 20, 4, 5
_REST_S = 0.1  # threads of the host's BLAS spin for so long, on the device's cores
_TINY = 1e-3  # alpha below which products may be lost
_BLIND = "no result can be verified with these operands: their products are lost below the range of {}"
_MOST_SCALAR, _MOST_DIGITS = 4, 12  # alpha and beta, and digits, of operands that are scaled
_MOST_NEW_BYTES = 1 << 28  # of operands that are drawn anew for every try


@dataclass(frozen=True)
class Paces:
    """How long a problem lasts, by the clock of the batches.

    Attributes:
        batch_s: the shortest of the batches; 0 if none was timed by this clock.
        on_new: runs one whose C is filled anew, and erased is what its launches keep beside; seconds.
        on_result: runs a batch, from the C that batches found, or all of them; seconds of a problem.
        answered_s: of the first problem on a C and operands that are new, by that clock.
        looked: seconds of a batch's last problem, on a C that was erased, and of the others' mean; by batch.
    """

    batch_s: float
    on_new: Callable[[], float]
    on_result: Callable[[bool], float]
    answered_s: float = inf
    looked: Sequence[tuple[float, float]] = ()


def skipping(paces: Paces) -> str:
    """Whether a kernel does less where C holds the answer already: a sentence, or "".

    A busy machine delays this problem or that, so the fastest of twenty is held against the fastest batch and
    the median of batches in turn with them. If those are slow, too, all batches run again between further
    problems, since a kernel may count its launches: the slowest median counts.
    """
    fastest, usual = paces.answered_s, paces.batch_s

    def too_long() -> bool:
        return fastest > _TIMES * usual + _MORE_S

    times = "takes {} on a new C and {} where C holds the result: it does not do its work every time"
    if len(paces.looked) >= _LOOKS:
        all_last, others = zip(*paces.looked, strict=True)
        last_s, others_s = min(all_last), float(np.median(others))
        if last_s > _TIMES * others_s + _MORE_S:
            return times.format(units.seconds(last_s), units.seconds(others_s))
    batches: list[float] = []
    if not too_long():
        return ""
    for _ in range(_PAIRS):
        fastest = min(fastest, paces.on_new())
        if not too_long():
            return ""
        if not batches:
            time.sleep(_REST_S)
        batches.append(paces.on_result(False))
    usual = float(np.median(batches))
    if not too_long():
        usual = 0.0
        for _ in range(_ROUNDS):
            usual = max(usual, paces.on_result(True))
            fastest = min(fastest, *(paces.on_new() for _ in range(_TRIES)))
            if not too_long():
                return ""
    return times.format(units.seconds(fastest), units.seconds(usual))


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

    def answer(self, scope: str, index: int, c: HostArray) -> HostArray:
        """Run the timed launches once on an operand set whose C was filled; C afterwards: m x ldc, both."""

    def left(self) -> HostArray | None:
        """C as the last batch left it; None if it was filled since, or where every problem added to C."""

    def paces(self, index: int, new: HostArray) -> Paces | None:
        """How long problems last, asked for behind two answers; None where no clock tells of one.

        Args:
            index: the operand set of those whose C is filled anew.
            new: C before them, m x ldc.
        """


class Answers:
    """What the answers of one bench are held against.

    `sums` is the data type that sums are kept in, if it is not C's.
    """

    def __init__(self, case: Case, values: Matrices, policy: Policy, sums: str) -> None:
        self._case, self._problem, self._values = case, case.gemm, values
        self._budget_s, self._sums = policy.budget_s, sums
        self._result: HostArray | None = None  # that was right, with the case's own C
        self._others = _others if self._problem.operand_bytes <= _MOST_NEW_BYTES else _others.__wrapped__

    @property
    def before(self) -> HostArray:
        """C before a problem, m x ldc: poisoned where it must not be read."""
        return self._unwritten(self._values)

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

    def _unwritten(self, values: Matrices) -> HostArray:
        return guarded(self._problem, unwritten(self._problem, values))

    def _inside(self, c: HostArray) -> HostArray:
        """C without what stands between its rows."""
        return c[:, : self._problem.n]

    def check(self, bench: Answering, when: When) -> Check:
        """What is wrong, and how close every figure came to its bound."""
        return self._before(bench) if when == "before" else self._after(bench)

    def verified(self, bench: Answering, when: When) -> Verified:
        """A check, and the numbers of a small problem."""
        check = self.check(bench, when)
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
        return _named(self._judged(self._values, left), "in a batch: ")

    def _before(self, bench: Answering) -> Check:
        checks = []
        if not self._values.generated:
            other = self._others(self._problem)
            bench.put(other.stored(self._problem))
            result = bench.answer(bench.scopes[0], 0, self._unwritten(other))
            bench.put(self._values.stored(self._problem))
            checks.append(_named(self._judged(other, result), "on generated operands: "))
        for scope in bench.distinct:
            result = bench.answer(scope, 0, self.before)
            self._result = self._inside(result)
            checks.append(self._judged(self._values, result))
        return merged(checks)

    def _after(self, bench: Answering) -> Check:
        left = bench.left()
        checks = [] if left is None else [_named(self._judged(self._values, left), "after the last batch: ")]
        rng, (device, *others) = np.random.default_rng(), bench.scopes
        scopes, index = (device, str(rng.choice(others or [device]))), int(rng.integers(bench.sets))
        _seen[self._problem, self._case.variant] += 1  # what a kernel saw, it may remember
        other = self._others(self._problem, _seen[self._problem, self._case.variant])
        try:
            for number, scope in enumerate(scopes):  # one that works every other time is wrong in one of them
                c0 = self._unlike(rng)
                if number and self._problem.beta != 0:  # beside which no product is too small to be seen
                    c0 = np.zeros_like(c0)
                index = (index + 1) % bench.sets
                scale = self._put(bench, index, other, rng)
                filled = c0 if scale == 1 else c0 * c0.dtype.type(scale**2)
                result = np.array(bench.answer(scope, index, guarded(self._problem, filled)))
                if scale != 1:
                    self._inside(result)[...] *= result.dtype.type(scale**-2)
                what = "with another C and other operands after the last batch: "
                checks.append(_named(self._judged(other, result, c0, drawn=True), what))
            check = merged(checks)
            known = self._result is not None and self._result.size
            if check.verdict == "ok" and known and (self._problem.beta == 0 or self._problem.result.is_float):
                if bench.sets > 1:  # batches run on all of them
                    bench.put(self._values.stored(self._problem), (index - 1) % bench.sets)
                check = self._paced(bench, index, c0, check, rng)
        finally:
            for each in {index, (index - 1) % bench.sets}:
                bench.put(self._values.stored(self._problem), each)
        if check.verdict == "ok" and self._case.operands.out and self._result is not None:
            save_result(self._case.operands.out, self._result)
        return check

    def _paced(
        self, bench: Answering, index: int, c0: HostArray, check: Check, rng: np.random.Generator
    ) -> Check:
        paces = bench.paces(index, guarded(self._problem, c0))
        if paces is None:
            return check

        def on_new() -> float:
            if self._problem.operand_bytes <= _MOST_NEW_BYTES:
                self._put(bench, index, _others.__wrapped__(self._problem), rng)
            return paces.on_new()

        def on_result(whole: bool) -> float:
            bench.put(self._values.stored(self._problem), index)
            return paces.on_result(whole)

        skips = skipping(replace(paces, on_new=on_new, on_result=on_result))
        return Check("wrong", check.figures, (skips,)) if skips else check

    def _put(self, bench: Answering, index: int, other: Matrices, rng: np.random.Generator) -> float:
        """Put operands into a set, times a power of 2, which is returned: larger than those drawn."""
        problem, values = self._problem, self._values
        kinds, most = values.a.dtype.kind + values.c.dtype.kind, max(abs(problem.alpha), abs(problem.beta))
        may_scale = values.generated and kinds == "ff" and most <= _MOST_SCALAR
        digits = int(rng.integers(2, 3 if values.a.itemsize == 2 else _MOST_DIGITS)) if may_scale else 0
        scale = other.a.dtype.type(2**digits)
        scaled = replace(other, a=other.a * scale, b=other.b * scale) if digits else other
        bench.put(scaled.stored(problem), index)
        return float(scale)

    def _judged(
        self, values: Matrices, result: HostArray, c0: HostArray | None = None, drawn: bool = False
    ) -> Check:
        """Whether C is right, and what stands between its rows untouched.

        The same C as last time, of whatever kernel, is not compared again.
        """
        between, result = result[:, self._problem.n :], self._inside(result)
        if not (between == between.dtype.type(GUARD)).all():
            return Check("wrong", {}, ("cells between the rows of C were written",))
        c0 = values.c if c0 is None or self._problem.beta == 0 else c0
        key = self._sums, 0 if drawn else self._budget_s
        seen_c0, c, check = values.checked.get(key, (None, c0, Check()))
        if seen_c0 is c0 and np.array_equal(c, result):
            return check
        reference = _reference(self._problem, values, key[1])
        check = reference.check(result, c0, self._sums)
        may_be_lost = not values.generated or abs(self._problem.alpha) < _TINY
        if check.verdict == "ok" and may_be_lost and reference.is_blind:
            raise NotMeasuredError("failed", _BLIND.format(self._problem.result.name))
        values.checked[key] = c0, result, check
        return check

    def _unlike(self, rng: np.random.Generator) -> HostArray:
        """Finite random numbers of an answer's size: the right answer's own, moved, with other signs."""
        (m, n), result, right = self._values.c.shape, self._problem.result, self._result
        if right is None or not any(map(np.any, right)):
            return encode(rng.integers(-99, 99, (m, n)), result)
        moved = np.roll(right, (int(rng.integers(m)), int(rng.integers(n))), (0, 1))
        bits = moved.view(f"u{moved.itemsize}")
        sign = 1 << (8 * moved.itemsize - 1) if result.is_float else np.iinfo(bits.dtype).max
        for shape in ((m, 1), (1, n)):
            bits ^= rng.integers(2, size=shape, dtype=bits.dtype) * bits.dtype.type(sign)
        return moved


@lru_cache(maxsize=2)  # variants take turns on one problem
def _others(problem: Gemm, number: int = 0) -> Matrices:
    """Operands that no kernel can know: others in every process; those of a number were drawn once."""
    return Matrices(
        *random_operands(problem, secrets.randbits(32), draws_c=problem.beta != 0), generated=True
    )


_seen: Counter[tuple[Gemm, str]] = Counter()  # operands, by their problem and the kernel


def unwritten(problem: Gemm, values: Matrices) -> HostArray:
    """C before a problem: poisoned where it must not be read."""
    return values.c if problem.beta != 0 else np.full_like(values.c, poison(problem.result))


def _reference(problem: Gemm, values: Matrices, budget_s: float) -> Reference | BatchReference:
    """The reference of some operands, which all kernels share, made for no less than a budget."""
    made = next((made for s, made in values.references.items() if made.is_whole or s >= budget_s), None)
    if made is None:
        kind = Reference if problem.batch == 1 else BatchReference
        made = values.references[budget_s] = kind(problem, values.a, values.b, values.generated, budget_s)
    return made


def _named(check: Check, prefix: str) -> Check:
    first, *others = check.reasons or ("",)
    return replace(check, reasons=(prefix + first, *others)) if first else check
