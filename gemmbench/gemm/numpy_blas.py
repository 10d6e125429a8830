"""The host's BLAS, through numpy: the host side of the break-even size."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from gemmbench.gemm.answers import Answers
from gemmbench.gemm.operands import Matrices, load_operands, rotating_sets
from gemmbench.gemm.verify import stack
from gemmbench.measure import host
from gemmbench.model import instrument
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import Batch
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check

_MOST_BYTES = 4 << 30  # of all operand sets
_WARM = "cold: its operands stay in the cache, since the size of the host's caches is not known"


class NumpyExecutor:
    """Runs gemm cases with numpy.matmul. There is no device, so only the host scope is measured."""

    def build(self, case: Case) -> instrument.Built:
        return instrument.Built()

    def prepare(
        self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None
    ) -> NumpyBench:
        if problem:
            case = replace(case, problem=problem, operands=Operands())
        return NumpyBench(case, policy)


class NumpyBench:
    """One problem on the host: a `measure.instrument.Bench`."""

    scopes = distinct = ("host",)
    sets = 1

    def __init__(self, case: Case, policy: Policy) -> None:
        self._problem = case.gemm
        self._values = load_operands(case, policy.seed)
        self._answers = Answers(case, self._values)
        self._stored = values = self._values.stored(case.gemm)
        self._a, self._b = values.a, values.b
        self._c = values.c.copy()
        self._out = values.c.copy()
        cache = _last_level_cache_bytes() if policy.cold else 0
        sets = rotating_sets(self._problem, cache, _MOST_BYTES) if policy.cold else 1
        self._others = [
            (values.a.copy(), values.b.copy(), self._c.copy(), self._out.copy()) for _ in range(1, sets)
        ]
        self._next, self._last = 0, self._out
        notes = (_WARM,) if policy.cold and not cache else ()
        self.prepared = instrument.Prepared(("host",), sets=sets, notes=notes)
        self._has_run = False

    def verify(self, when: instrument.When) -> instrument.Verified:
        """See `measure.instrument.Bench`; the library is not tested on problems of ours."""
        if when == "exact":
            return instrument.Verified(Check("ok"))
        return self._answers.verified(self, when)

    # --- answers: see `gemm.answers.Answering` ---

    def put(self, values: Matrices, index: int = 0) -> None:
        self._a, self._b = values.a, values.b

    def answer(self, scope: str, index: int, c: HostArray, problem: Gemm | None = None) -> HostArray:
        self._has_run = False
        self._out[...] = c
        self._c[...] = c
        gemm(problem or self._problem, *self._inside(self._a, self._b, self._c, self._out))
        self._c[...] = self._stored.c
        return np.array(self._out)

    def left(self) -> HostArray | None:
        return np.array(self._last) if self._has_run else None

    def _inside(
        self, a: HostArray, b: HostArray, c: HostArray, out: HostArray
    ) -> tuple[HostArray, HostArray, HostArray, HostArray]:
        """op(A), op(B), C and the result without what stands between rows: views, of a batch stacks."""
        wide_a, wide_b, n = self._problem.tight
        views = a[:, :wide_a], b[:, :wide_b], c[:, :n], out[:, :n]
        if self._problem.batch > 1:
            a, b, c, out = (stack(matrix, self._problem.batch) for matrix in views)
        else:
            a, b, c, out = views
        a, b = (
            a.swapaxes(-1, -2) if self._problem.trans_a else a,
            b.swapaxes(-1, -2) if self._problem.trans_b else b,
        )
        return a, b, c, out

    # --- batches ---

    def start(self, clock: str, count: int, work: int = 1) -> Batch:
        stored = [(self._a, self._b, self._c, self._out), *self._others]
        sets = [self._inside(*matrices) for matrices in stored]
        order = [sets[(self._next + number) % len(sets)] for number in range(count)]
        self._next += count
        problem = self._problem
        begin = time.perf_counter()
        for a, b, c, out in order:
            gemm(problem, a, b, c, out)
        end = time.perf_counter()
        self._last = stored[(self._next - 1) % len(sets)][-1]
        self._has_run = True
        return Batch({clock: (end - begin) / count}, begin, end, count)

    def release(self) -> None:
        """Nothing to do: arrays go with the last reference."""


def _last_level_cache_bytes() -> int:
    from gemmbench.opencl import discovery  # loads the OpenCL library, but no driver

    return discovery.last_level_cache_bytes(cores=host.all_cores() or None)


def gemm(problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray) -> None:
    """out = alpha op(A) op(B) + beta C; c is not read if beta is 0."""
    np.matmul(a, b, out=out)
    if problem.alpha != 1:
        out *= out.dtype.type(problem.alpha)
    if problem.beta != 0:
        out += out.dtype.type(problem.beta) * c
