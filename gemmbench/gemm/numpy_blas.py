"""numpy's BLAS: the host side of the break-even size."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from gemmbench.gemm.answers import Answers
from gemmbench.gemm.operands import Matrices, load_operands, rotating_sets
from gemmbench.measure.host import last_level_cache_bytes
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.instrument import Batch, Built, Prepared, Verified, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check

_MOST_BYTES = 4 << 30  # of all operand sets
_WARM = "cold: its operands stay in the cache, since the size of the host's caches is not known"


class NumpyExecutor:
    """Runs gemm cases with numpy.matmul. There is no device, so only the host scope is measured."""

    def build(self, case: Case) -> Built:
        return Built()

    def prepare(
        self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None
    ) -> NumpyBench:
        return NumpyBench(replace(case, problem=problem, operands=Operands()) if problem else case, policy)


class NumpyBench:
    """One problem on the host: a `measure.instrument.Bench`."""

    scopes = distinct = ("host",)
    sets = 1

    def __init__(self, case: Case, policy: Policy) -> None:
        assert case.problem is not None
        self._problem = case.problem
        self._values = load_operands(case, policy.seed)
        self._answers = Answers(case, self._values, policy, "")
        self._stored = values = self._values.stored(case.problem)
        self._a, self._b = values.a, values.b
        self._c = values.c.copy()
        self._out = values.c.copy()
        cache = last_level_cache_bytes() if policy.cold else 0
        sets = rotating_sets(self._problem, cache or 0, _MOST_BYTES) if policy.cold else 1
        self._others = [
            (values.a.copy(), values.b.copy(), self._c.copy(), self._out.copy()) for _ in range(1, sets)
        ]
        self._next, self._last = 0, self._out
        notes = (_WARM,) if policy.cold and not cache else ()
        self.prepared = Prepared(("host",), sets=sets, notes=notes)
        self._has_run = False

    def verify(self, when: When) -> Verified:
        """See `measure.instrument.Bench`; the library is not tested on problems of ours."""
        if when == "exact":
            return Verified(Check("ok"))
        return self._answers.verified(self, when)

    # --- answers: see `gemm.answers.Answering` ---

    def put(self, values: Matrices) -> None:
        """Replace A and B."""
        self._a, self._b = values.a, values.b

    def answer(self, scope: str, index: int, c: ReferenceArray) -> ReferenceArray:
        """Multiply once; C."""
        self._has_run = False
        self._out[...] = c
        self._c[...] = c
        gemm(self._problem, *self._inside(self._a, self._b, self._c, self._out))
        self._c[...] = self._stored.c
        return np.array(self._out)

    def left(self) -> ReferenceArray | None:
        """C as the last batch left it."""
        return np.array(self._last) if self._has_run else None

    def _inside(
        self, a: ReferenceArray, b: ReferenceArray, c: ReferenceArray, out: ReferenceArray
    ) -> tuple[ReferenceArray, ReferenceArray, ReferenceArray, ReferenceArray]:
        """Views of the matrices without what stands between their rows."""
        n, k = self._problem.n, self._problem.k
        return a[:, :k], b[:, :n], c[:, :n], out[:, :n]

    # --- batches ---

    def start(self, clock: str, count: int, work: int = 1) -> Batch:
        stored = [(self._a, self._b, self._c, self._out), *self._others]
        sets = [self._inside(*matrices) for matrices in stored]
        begin = time.monotonic()
        for _ in range(count):
            a, b, c, out = sets[self._next % len(sets)]
            self._next += 1
            gemm(self._problem, a, b, c, out)
        end = time.monotonic()
        self._last = stored[(self._next - 1) % len(sets)][-1]
        self._has_run = True
        return Batch({"host": (end - begin) / count}, begin, end, count)

    def release(self) -> None:
        """Nothing to do: arrays go with the last reference."""


def gemm(problem: Gemm, a: ReferenceArray, b: ReferenceArray, c: ReferenceArray, out: ReferenceArray) -> None:
    """out = alpha A B + beta C; c is not read if beta is 0."""
    np.matmul(a, b, out=out)
    if problem.alpha != 1:
        out *= out.dtype.type(problem.alpha)
    if problem.beta != 0:
        out += out.dtype.type(problem.beta) * c
