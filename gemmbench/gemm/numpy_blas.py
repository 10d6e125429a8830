"""numpy's BLAS: the host side of the break-even size."""

from __future__ import annotations

import time
from dataclasses import replace

import numpy as np

from gemmbench.gemm import verify as reference
from gemmbench.gemm.operands import load_operands, save_result
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.instrument import Batch, Built, Prepared, Verified, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check


class NumpyExecutor:
    """Runs gemm cases with numpy.matmul. There is no device, so only the host scope is measured."""

    def build(self, case: Case) -> Built:
        return Built()

    def prepare(
        self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None
    ) -> NumpyBench:
        return NumpyBench(replace(case, problem=problem, operands=Operands()) if problem else case)


class NumpyBench:
    """One problem on the host: a `measure.instrument.Bench`."""

    prepared = Prepared(("host",))

    def __init__(self, case: Case) -> None:
        assert case.problem is not None
        self._case, self._problem = case, case.problem
        self._values = load_operands(case)
        self._c = self._values.c.copy()
        self._out = np.empty_like(self._c)

    def verify(self, when: When) -> Verified:
        """See `measure.instrument.Bench`; the library is not tested on problems of ours."""
        if when == "exact":
            return Verified(Check("ok"))
        values = self._values
        gemm(self._problem, values.a, values.b, self._c, self._out)
        residual = reference.residual(
            self._problem, values.a, values.b, values.c, self._out, zero_mean=values.generated
        )
        check = reference.judge(residual, "")
        if check.verdict == "ok" and self._case.operands.out:
            save_result(self._case.operands.out, self._out)
        return Verified(check)

    def start(self, clock: str, count: int, work: int = 1) -> Batch:
        begin = time.monotonic()
        for _ in range(count):
            gemm(self._problem, self._values.a, self._values.b, self._c, self._out)
        end = time.monotonic()
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
