"""Runs the ladder's variants: verify, then sample the kernel, device and host scopes."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.energy import measure_energy
from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Check, Policy, Row
from gemmbench.opencl import resources
from gemmbench.opencl.gemm_bench import Bench, Prepared
from gemmbench.opencl.memory import choose
from gemmbench.opencl.runtime import Built, Runtime, errors
from gemmbench.rules import reference
from gemmbench.rules.executor import Tell, too_slow
from gemmbench.rules.measure import least_s, sample
from gemmbench.rules.plan import Case
from gemmbench.rules.reference import Array
from gemmbench.rules.variants import BY_NAME, Layout, Variant, round_up

_DEVICE_SHARE = 0.6  # of the budget; the rest is the host scope's
_SMALL = 256  # the first trial's edge when a case's cost is predicted
_TRIAL_SHARE = 0.15  # of the budget that one trial may take


class GemmExecutor:
    """Runs gemm cases on one OpenCL device. Exact tests are done once for each variant and data type."""

    def __init__(self, runtime: Runtime) -> None:
        self.runtime = runtime
        self._exact: dict[tuple[str, str, tuple[tuple[str, object], ...]], str] = {}

    def run(self, case: Case, policy: Policy, tell: Tell) -> Row:
        """See `rules.executor.Executor`."""
        assert case.problem is not None
        variant, problem = BY_NAME[case.variant], case.problem
        parameters = {name: int(value) for name, value in case.parameters.items()}

        tell("building")
        programs = self._programs(variant, problem.dtype, parameters)
        row = self._built_row(case, variant, parameters, programs)

        tell("verifying")
        bind = partial(self.bind, variant, parameters, programs)
        exact = self._exact_error(case, variant, bind)
        if exact:
            check = Check("wrong", {}, (exact,))
            return replace(row, status="wrong", reason=exact, check=check)
        if problem.flops:
            self._refuse_if_too_slow(problem, policy, bind)
        mode = choose(policy.memory, self.runtime.facts)
        bench = Bench(self.runtime, variant, case, mode, policy, bind)
        with errors():
            row = replace(row, check=bench.verify(), memory=mode, launches=bench.launches())
        if row.check.verdict == "wrong":
            return replace(row, status="wrong", reason="; ".join(row.check.reasons))
        if not problem.flops:
            return replace(row, notes=("nothing to time: the product has no terms",))

        with errors():
            tell("timing device")
            samples = sample(bench.device_batch, policy, policy.budget_s * _DEVICE_SHARE)
            tell("timing host")
            samples |= sample(
                bench.host_batch,
                policy,
                policy.budget_s * (1 - _DEVICE_SHARE),
                settle=False,
            )
        samples, notes = bench.trust_events(samples)
        if policy.cold and bench.sets > 1:
            notes = (*notes, f"cold: rotates among {bench.sets} operand sets")
        if policy.energy:
            tell("measuring energy")
            with errors():
                row = replace(row, energy=measure_energy(bench.device_batch, self.runtime.facts))
        return replace(row, samples=samples, notes=notes)

    def inspect(self, case: Case) -> Row:
        """A row with what the case's kernels take as built; nothing is run.

        Raises:
            NotMeasuredError: they do not compile.
        """
        variant = BY_NAME[case.variant]
        parameters = {name: int(value) for name, value in case.parameters.items()}
        programs = self._programs(variant, case.dtype, parameters)
        return self._built_row(case, variant, parameters, programs)

    def _programs(self, variant: Variant, dtype: str, parameters: Mapping[str, int]) -> dict[str, Built]:
        options = variant.options(dtype, parameters)
        return {file: self.runtime.build(file, options) for file in variant.files}

    def _built_row(
        self, case: Case, variant: Variant, parameters: Mapping[str, int], programs: Mapping[str, Built]
    ) -> Row:
        assert case.problem is not None
        return replace(
            case.row("ok"),
            build_s=sum(built.seconds for built in programs.values()),
            choice=dict(variant.chosen(case.problem, self.runtime.facts, parameters)),
            resources=resources.of_variant(self.runtime, variant, parameters, programs, case.problem),
        )

    def bind(
        self,
        variant: Variant,
        parameters: Mapping[str, int],
        programs: Mapping[str, Built],
        problem: Gemm,
        layout: Layout,
        buffers: Mapping[str, Any],
    ) -> list[Prepared]:
        """Kernels with their arguments set, in launch order; passes with nothing to do are left out.

        Images that ``buffers`` holds under their name are taken as filled.
        """
        full = {**parameters, **variant.chosen(problem, self.runtime.facts, parameters)}
        values = variant.values(problem, full, layout)
        dtype = DTYPES[problem.dtype]
        scalar = np.float64 if dtype.scalar == "double" else np.float32
        held = {
            name: self.runtime.buffer(size)
            for name, size in variant.temporary_bytes(problem, full, layout).items()
        }
        held |= {
            name: self.runtime.image(*spec.shape(problem), dtype.numpy)
            for name, spec in variant.images.items()
        }
        held |= buffers
        known: dict[str, Any] = {name: np.int32(value) for name, value in values.items()}
        known |= {"alpha": scalar(problem.alpha), "beta": scalar(problem.beta)}
        known |= held

        prepared = []
        for step in variant.steps(values):
            items, group = step.items(values), step.group(values)
            if 0 in items or (step.role == "image" and buffers.keys() & variant.images.keys()):
                continue
            kernel = self.runtime.kernel(programs[step.file], step.kernel, group)
            with errors():
                kernel.set_args(*(known[name] for name in step.arguments))
            rounded = tuple(round_up(*pair) for pair in zip(items, group, strict=True))
            prepared.append(Prepared(step.role, step.kernel, kernel, rounded, group, held))
        return prepared

    def _exact_error(self, case: Case, variant: Variant, bind: Callable[..., list[Prepared]]) -> str:
        """What is wrong on shapes around the tile, with guard cells and NaN where nothing may be read."""
        key = (case.variant, case.dtype, tuple(sorted(case.parameters.items())))
        if key not in self._exact:
            edge = variant.edge({name: int(value) for name, value in case.parameters.items()})
            problem = reference.edge_problem(case.dtype, edge)
            errors_found = (
                self.exact_run(problem, bind),
                self.exact_run(replace(problem, alpha=1.0, beta=0.0), bind),
            )
            self._exact[key] = next((error for error in errors_found if error), "")
        return self._exact[key]

    def exact_run(self, problem: Gemm, bind: Callable[..., list[Prepared]]) -> str:
        """Run one exact problem in padded, guarded buffers; what is wrong, or ""."""
        layout = Layout(problem.k + 3, problem.n + 5, problem.n + 7)
        a, b, c = reference.integer_operands(problem)
        dtype = DTYPES[problem.dtype].numpy
        before = c if problem.beta != 0 else np.full_like(c, np.nan)
        host = {
            "A": _embed(a, layout.lda, np.nan),
            "B": _embed(b, layout.ldb, np.nan),
            "C": _embed(before, layout.ldc, reference.GUARD, extra=64),
        }
        with errors():
            queue = self.runtime.queue
            buffers = {name: self.runtime.buffer(values.nbytes) for name, values in host.items()}
            for name, values in host.items():
                if values.size:
                    cl.enqueue_copy(queue, buffers[name], values)
            for launch in bind(problem, layout, buffers):
                launch.enqueue(queue)
            result = np.empty(host["C"].shape, dtype)
            if result.size:
                cl.enqueue_copy(queue, result, buffers["C"])
            queue.finish()
        inside = result[: problem.m * layout.ldc].reshape(problem.m, layout.ldc)
        guard = np.concatenate([inside[:, problem.n :].ravel(), result[problem.m * layout.ldc :]])
        if not (guard == dtype.type(reference.GUARD)).all():
            return "cells outside C were written on the exact test"
        expected = reference.exact_product(problem, a, b, c)
        return reference.compare_exactly(expected, inside[:, : problem.n])

    def _refuse_if_too_slow(self, problem: Gemm, policy: Policy, bind: Callable[..., list[Prepared]]) -> None:
        """Predict the case's cost from growing trials.

        Raises:
            NotMeasuredError: skipped, with the time it would take.
        """
        edge = _SMALL
        while True:
            trial = replace(problem, m=min(problem.m, edge), n=min(problem.n, edge), k=min(problem.k, edge))
            if trial.flops * 2 >= problem.flops:
                return  # the trial would be the case itself
            took = self._trial(trial, bind)
            predicted = least_s(took * problem.flops / trial.flops)
            if predicted <= policy.budget_s:
                return
            if took * 8 > policy.budget_s * _TRIAL_SHARE:
                raise too_slow(predicted, policy)
            edge *= 2

    def _trial(self, problem: Gemm, bind: Callable[..., list[Prepared]]) -> float:
        """Seconds of one run of a smaller problem, the first and slow one not counted."""
        with errors():
            layout = Layout.tight(problem)
            a, b, _ = reference.random_operands(problem)
            buffers = {"A": self.runtime.buffer(a.nbytes), "B": self.runtime.buffer(b.nbytes)}
            buffers["C"] = self.runtime.buffer(problem.m * problem.n * a.itemsize)
            queue = self.runtime.queue
            cl.enqueue_copy(queue, buffers["A"], a)
            cl.enqueue_copy(queue, buffers["B"], b)
            launches = bind(replace(problem, beta=0.0), layout, buffers)
            took = 0.0
            for _ in range(2):
                begin = time.perf_counter()
                for launch in launches:
                    launch.enqueue(queue)
                queue.finish()
                took = time.perf_counter() - begin
        return took


def _embed(matrix: Array, ld: int, fill: float, extra: int = 0) -> Array:
    """A matrix in rows of ``ld`` elements, the rest filled, and ``extra`` more elements behind it; flat."""
    rows, columns = matrix.shape
    flat = np.full(rows * ld + extra, fill, matrix.dtype)
    flat[: rows * ld].reshape(rows, ld)[:, :columns] = matrix
    return flat
