"""The host's BLAS, through numpy or scipy: the host side of the break-even size.

numpy has no alpha and beta: it would read and write C three times more. With them, scipy calls the BLAS.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np

from gemmbench.gemm.answers import Answers, forget_operands
from gemmbench.gemm.operands import Matrices, load_operands, rotating_sets
from gemmbench.gemm.verify import stack
from gemmbench.measure import machine
from gemmbench.measure.blas import UNKNOWN
from gemmbench.model import instrument
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import Batch
from gemmbench.model.problem import Gemm
from gemmbench.model.row import BLAS, Check, Work

_MOST_BYTES = 4 << 30  # of all operand sets
_GAPS = "numpy applies alpha and beta after the product, since scipy does not support gaps between rows"
_WARM = "cold: its operands stay in the cache, since the size of the host's caches is not known"


class NumpyExecutor:
    """Runs gemm cases with numpy or scipy, in the host scope only. `pin` pins the threads of loaded BLAS."""

    def __init__(self, pin: Callable[[], object] = lambda: None) -> None:
        self._pin = pin

    def build(self, case: Case) -> instrument.Built:
        return instrument.Built()

    def prepare(
        self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None
    ) -> NumpyBench:
        """A bench of the case, or of `problem` with generated operands. Then pins all BLAS threads."""
        if problem:
            case = replace(case, problem=problem, operands=Operands())
        bench = NumpyBench(case, policy)
        self._pin()
        return bench


class NumpyBench:
    """One problem on the host by numpy or scipy: a `measure.instrument.Bench`."""

    scopes = distinct = ("host",)
    is_long = erases = False
    sets = 1

    def __init__(self, case: Case, policy: Policy) -> None:
        """Load the operands, copy them for every operand set, and decide between numpy and scipy.

        scipy multiplies if alpha is not 1 or beta is not 0, unless rows have gaps. There is one set, or
        enough to fill the caches twice if `policy.cold`.
        """
        self._problem = problem = case.gemm
        self._values = load_operands(case, policy.seed)
        self._answers = Answers(case, self._values)
        self._stored = values = self._values.stored(problem)
        cache, sets = 0, 1
        if policy.cold:
            from gemmbench.opencl import discovery  # loads the OpenCL library, but no driver

            cache = discovery.last_level_cache_bytes(cores=machine.all_cores() or None)
            sets = rotating_sets(problem, cache, _MOST_BYTES)
        before = values.c if problem.beta == 0 else values.c.copy()  # if beta is 0, nobody reads it
        first = values.a, values.b, before, values.c.copy()  # A, B, C before, the result
        self._sets = [first, *(tuple(matrix.copy() for matrix in first) for _ in range(1, sets))]
        self._next = 0
        self._last: HostArray | None = None  # C of the last batch, unless `answer` was called since
        notes: tuple[str, ...] = (_WARM,) if policy.cold and not cache else ()
        is_scaled = problem.flops > 0 and (problem.alpha != 1 or problem.beta != 0)
        widths = tuple(matrix.shape[1] for matrix in (values.a, values.b, values.c))
        self._by_scipy = is_scaled and widths == problem.tight
        if is_scaled and not self._by_scipy:
            notes += (_GAPS,)
        built = instrument.Built(choice={BLAS: scipy_title()}) if self._by_scipy else instrument.Built()
        unit = Work(flops=problem.flops)
        self.prepared = instrument.Prepared(("host",), sets=sets, notes=notes, built=built, unit=unit)

    def verify(self, when: instrument.When) -> instrument.Verified:
        if when == "exact":
            return instrument.Verified(Check("ok"))
        return self._answers.verified(self, when)

    def put(self, values: Matrices, index: int = 0) -> None:
        self._sets[0] = (values.a, values.b, *self._sets[0][2:])

    def answer(self, scope: str, index: int, c: HostArray, problem: Gemm | None = None) -> HostArray:
        """Fill C, run the problem, or another, once on the first operand set, and return C."""
        self._last = None
        *_, before, out = self._sets[0]
        out[...] = c
        if self._problem.beta != 0:
            before[...] = c
        for call in self._calls(problem or self._problem, *self._sets[0]):
            call()
        if self._problem.beta != 0:
            before[...] = self._stored.c
        return np.asarray(out)

    def left(self) -> HostArray | None:
        """C of the last problem of a batch; None if `answer` was called since."""
        return self._last

    def _inside(
        self, a: HostArray, b: HostArray, c: HostArray, out: HostArray
    ) -> tuple[HostArray, HostArray, HostArray, HostArray]:
        """Views of op(A), op(B), C and the result without gaps between rows; for a batch of three axes."""
        wide_a, wide_b, n = self._problem.tight
        views = a[:, :wide_a], b[:, :wide_b], c[:, :n], out[:, :n]
        batch = self._problem.batch
        a, b, c, out = (stack(matrix, batch) for matrix in views) if batch > 1 else views
        a = a.swapaxes(-1, -2) if self._problem.trans_a else a
        return a, b.swapaxes(-1, -2) if self._problem.trans_b else b, c, out

    def start(self, clock: str, count: int, work: int = 1) -> Batch:
        """Run `count` problems, rotating among operand sets; a batch with the mean seconds under `clock`.

        If scipy adds to C, the last problem's C is restored before it, outside the measured time.
        """
        sets = [self._calls(self._problem, *matrices) for matrices in self._sets]
        order = [sets[(self._next + number) % len(sets)] for number in range(count)]
        self._next += count
        self._last = self._sets[(self._next - 1) % len(sets)][-1]
        first, last = [call for calls in order[:-1] for call in calls], order[-1]
        begin = time.perf_counter()
        for call in first:
            call()
        paused = time.perf_counter()
        if self._by_scipy and self._problem.beta != 0:  # the last C is the one that was verified
            np.copyto(self._last, self._stored.c)
        resumed = time.perf_counter()
        for call in last:
            call()
        end = time.perf_counter()
        seconds = end - resumed + paused - begin
        return Batch({clock: seconds / count}, end - seconds, end, count)

    def _calls(
        self, problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray
    ) -> list[Callable[[], object]]:
        """The calls that compute a problem: one of numpy, or one of scipy for each problem of the batch.

        They write `out`. scipy adds to it in place if beta is not 0, so it must hold C before.
        """
        a, b, c, out = self._inside(a, b, c, out)
        if problem.alpha == 1 and problem.beta == 0:
            return [partial(np.matmul, a, b, out=out)]
        if not self._by_scipy:
            return [partial(gemm, problem, a, b, c, out)]
        if problem.batch == 1:
            a, b, out = a[None], b[None], out[None]
        return [scipy_gemm(problem, *matrices) for matrices in zip(a, b, out, strict=True)]

    def release(self) -> None:
        """Drop the cached operands, which no other kernel of this process uses; the rest goes with it."""
        forget_operands()


def gemm(problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray) -> None:
    """out = alpha op(A) op(B) + beta C by numpy; C is not read if beta is 0."""
    np.matmul(a, b, out=out)
    if problem.alpha != 1:
        out *= out.dtype.type(problem.alpha)
    if problem.beta != 0:
        out += out.dtype.type(problem.beta) * c


def scipy_gemm(problem: Gemm, a: HostArray, b: HostArray, c: HostArray) -> Callable[[], object]:
    """A call that computes C = alpha A B + beta C in place, by scipy. `a` and `b` are op(A) and op(B).

    The BLAS stores columns, so it computes the transpose of C from views: op(B)^T op(A)^T.
    """
    from scipy.linalg import blas

    return partial(
        blas.dgemm if c.dtype == np.float64 else blas.sgemm,
        *(problem.alpha, b if problem.trans_b else b.T, a if problem.trans_a else a.T),
        *(problem.beta, c.T, problem.trans_b, problem.trans_a),
        overwrite_c=1,
    )


def scipy_title() -> str:
    """scipy with its BLAS: ``scipy (OpenBLAS 0.3.30, 2 threads)``."""
    import scipy.linalg.blas

    pool = machine.pool_of(scipy)
    title = machine.pool_title({**pool, "architecture": ""}) if pool else UNKNOWN
    return f"scipy ({title.replace('openblas', 'OpenBLAS')})"
