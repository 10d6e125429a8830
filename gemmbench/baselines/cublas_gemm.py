"""cuBLAS on an NVIDIA GPU that OpenCL shows too: verified and sampled like the ladder."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gemmbench.baselines.cublas import Cublas, step
from gemmbench.baselines.cuda import Cuda, Stopwatch
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Check, DeviceFacts, Policy
from gemmbench.model.instrument import Batch, Built, Prepared, Verified, When
from gemmbench.opencl.memory import page_aligned
from gemmbench.rules import reference
from gemmbench.rules.exact import ExactTest
from gemmbench.rules.memory import operand_sets
from gemmbench.rules.operands import load_operands, save_result
from gemmbench.rules.plan import Case, Operands
from gemmbench.rules.reference import Array
from gemmbench.rules.variants import BY_NAME, Layout, round_up

_CLOCK = "device scope, by CUDA's events around each batch"
_TICK_S = 5e-7  # of CUDA's events


class CublasExecutor:
    """One GPU and the library on it.

    Raises:
        NotMeasuredError: unsupported: there is no CUDA, no cuBLAS, or not this GPU.
    """

    def __init__(self, facts: DeviceFacts) -> None:
        self._facts = facts
        self._cuda = Cuda(facts)
        self._library = Cublas(self._cuda.stream)
        self._exact: dict[str, str] = {}  # by data type

    def build(self, case: Case) -> Built:
        """See `measure.instrument.Executor`."""
        return Built()

    def prepare(
        self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None
    ) -> CublasBench:
        """See `measure.instrument.Executor`."""
        if problem:
            case = replace(case, problem=replace(problem, beta=0.0), operands=Operands())
        exact_error = partial(self._exact_error, case)
        return CublasBench(self._cuda, self._library, case, policy, self._facts, exact_error)

    def _exact_error(self, case: Case) -> str:
        """See `opencl.gemm.GemmExecutor`."""
        if case.dtype not in self._exact:
            odd = reference.edge_problem(case.dtype, BY_NAME[case.variant].edge({}))
            m, n, k = (round_up(length, step(case.dtype)) for length in (odd.m, odd.n, odd.k))
            tests = (replace(odd, m=m, n=n, k=k), replace(odd, m=m, n=n, k=k, alpha=1.0, beta=0.0))
            self._exact[case.dtype] = next((error for test in tests if (error := self.exact_run(test))), "")
        return self._exact[case.dtype]

    def exact_run(self, problem: Gemm) -> str:
        """Run one exact problem in padded, guarded memory; what is wrong, or ""."""
        lengths = (problem.k + 3, problem.n + 5, problem.n + 7)
        test = ExactTest.of(problem, Layout(*(round_up(n, step(problem.dtype)) for n in lengths)))
        result = np.empty_like(test.host["C"])
        with ExitStack() as stack:
            device = {
                name: stack.enter_context(self._cuda.memory(values.nbytes))
                for name, values in test.host.items()
            }
            for name, values in test.host.items():
                self._cuda.to_device(device[name], values)
            self._library.enqueue(problem, test.layout, device["A"], device["B"], device["C"])
            self._cuda.to_host(result, device["C"])
        return test.error(result)


@dataclass(frozen=True)
class _Set:
    """One set of operands."""

    host: dict[str, Array]  # m x k, k x n, m x n
    device: dict[str, int]  # addresses


@dataclass(frozen=True)
class _Queued:
    """A batch in the stream: a `measure.instrument.Running`."""

    cuda: Cuda
    watch: Stopwatch
    count: int
    begin: float

    def done(self) -> bool:
        """See `measure.instrument.Running`."""
        return self.cuda.reached(self.watch)

    def finish(self) -> Batch:
        """See `measure.instrument.Running`: CUDA's events stand around the whole batch."""
        took = self.cuda.seconds(self.watch)
        seconds = {"device": max(took, _TICK_S) / self.count}
        return Batch(seconds, self.begin, time.monotonic(), self.count)


class CublasBench:
    """One problem on the GPU: a `measure.instrument.Bench`.

    Raises:
        NotMeasuredError: failed: there is not that much memory left.
    """

    def __init__(
        self,
        cuda: Cuda,
        library: Cublas,
        case: Case,
        policy: Policy,
        facts: DeviceFacts,
        exact_error: Callable[[], str],
    ) -> None:
        assert case.problem is not None
        self._cuda, self._library, self._case, self._problem = cuda, library, case, case.problem
        self._exact_error = exact_error
        self._values = load_operands(case)
        self._sets = operand_sets(case.problem, facts, policy)
        self._pinned = policy.memory != "pageable"
        self._next = 0
        with ExitStack() as stack:  # closes what there is, should the memory not suffice
            self._operands = [self._made(stack) for _ in range(self._sets)]
            self._cuda.finish()
            self._stack = stack.pop_all()
        memory = "staged" if self._pinned else "pageable"
        notes = (f"{library.title}, {_CLOCK}",)
        self.prepared = Prepared(("device", "host"), ("device",), Built(), memory, self._sets, notes)

    def release(self) -> None:
        """Give the memory back."""
        self._operands.clear()
        self._stack.close()

    def _made(self, stack: ExitStack) -> _Set:
        values = {"A": self._values.a, "B": self._values.b, "C": self._c_before()}
        made = _Set({}, {})
        for name, matrix in values.items():
            if self._pinned:
                host = stack.enter_context(self._cuda.pinned(matrix.shape, matrix.dtype))
            else:
                host = page_aligned(matrix.size, matrix.dtype).reshape(matrix.shape)
            host[...] = matrix
            made.host[name] = host
            made.device[name] = stack.enter_context(self._cuda.memory(matrix.nbytes))
            self._cuda.to_device(made.device[name], host)
        return made

    def _c_before(self) -> Array:
        """C as the problem has it; poisoned where it must not be read."""
        c = self._values.c
        return c if self._problem.beta != 0 else np.full_like(c, reference.poison(self._problem.result))

    def verify(self, when: When) -> Verified:
        """See `measure.instrument.Bench`; there are no launches: CUDA has no such stamps."""
        if when == "exact":
            wrong = self._exact_error()
            return Verified(Check("wrong", {}, (wrong,)) if wrong else Check("ok"))
        self._host_run(self._operands[0])
        values, result = self._values, np.array(self._operands[0].host["C"])
        sums = BY_NAME[self._case.variant].sums.get(self._problem.dtype, "")
        found = reference.residual(
            self._problem, values.a, values.b, values.c, result, sums, zero_mean=values.generated
        )
        check = reference.judge(found, "")
        if check.verdict == "ok" and self._case.operands.out:
            save_result(self._case.operands.out, result)
        self._restore_c(self._operands[0])
        return Verified(check)

    def start(self, clock: str, count: int, work: int = 1) -> Batch | _Queued:
        """See `measure.instrument.Bench`: no kernel scope, since the library's kernels are its own."""
        begin = time.monotonic()
        if clock == "host":
            return self._host_batch(count, begin)
        watch = self._cuda.start()
        for number in range(count):
            self._enqueue(self._operands[(self._next + number) % self._sets])
        self._cuda.stop(watch)
        self._next += count
        return _Queued(self._cuda, watch, count, begin)

    def _host_batch(self, count: int, begin: float) -> Batch:
        total = 0.0
        for _ in range(count):
            one = self._operands[self._next % self._sets]
            self._next += 1
            total += self._host_run(one)
            self._restore_c(one)
        return Batch({"host": total / count}, begin, time.monotonic(), count)

    def _enqueue(self, one: _Set) -> None:
        a, b, c = (one.device[name] for name in ("A", "B", "C"))
        self._library.enqueue(self._problem, Layout.tight(self._problem), a, b, c)

    def _host_run(self, one: _Set) -> float:
        """From operands in host memory to C in host memory; wall seconds."""
        self._cuda.finish()
        begin = time.perf_counter()
        for name in ("A", "B", "C") if self._problem.beta != 0 else ("A", "B"):
            self._cuda.to_device(one.device[name], one.host[name])
        self._enqueue(one)
        self._cuda.to_host(one.host["C"], one.device["C"])
        return time.perf_counter() - begin

    def _restore_c(self, one: _Set) -> None:
        """Put C back as it was before, where the next problem reads it."""
        if self._problem.beta != 0:
            one.host["C"][...] = self._values.c
