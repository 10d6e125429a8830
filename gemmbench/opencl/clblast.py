"""CLBlast on an OpenCL device: verified and sampled like the ladder, its passes its own business."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from gemmbench.baselines.clblast import Clblast
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Policy
from gemmbench.opencl.gemm import GemmExecutor
from gemmbench.opencl.gemm_bench import Bench, WallBench
from gemmbench.opencl.runtime import Built, Runtime
from gemmbench.rules.executor import NotMeasuredError
from gemmbench.rules.plan import Case
from gemmbench.rules.variants import Layout, Variant

_CLOCK = "device scope, by the wall clock: its event may be the last pass's alone"


@dataclass(frozen=True)
class ClblastCall:
    """One call with its arguments: a `gemm_bench.Step`."""

    library: Clblast
    problem: Gemm
    layout: Layout
    buffers: Mapping[str, Any]
    role: str = "multiply"
    name: str = "CLBlast"

    def enqueue(self, queue: Any) -> None:
        """Put its kernels into a queue."""
        a, b, c = (self.buffers[name].int_ptr for name in ("A", "B", "C"))
        self.library.enqueue(self.problem, self.layout, a, b, c, queue.int_ptr)


class ClblastExecutor(GemmExecutor):
    """Runs gemm cases with CLBlast on one OpenCL device.

    Raises:
        NotMeasuredError: unsupported: the library is not installed.
    """

    bench = WallBench

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._library = Clblast()
        self.notes = (f"{self._library.title}, {_CLOCK}",)

    def prepare(
        self, case: Case, policy: Policy, like: Bench | None = None, problem: Gemm | None = None
    ) -> Bench:
        """See `measure.instrument.Executor`."""
        if case.problem is not None and not case.problem.flops:
            raise NotMeasuredError("unsupported", "CLBlast takes no matrix without elements")
        return super().prepare(case, policy, like, problem)

    def bind(
        self,
        variant: Variant,
        parameters: Mapping[str, int],
        programs: Mapping[str, Built],
        problem: Gemm,
        layout: Layout,
        buffers: Mapping[str, Any],
    ) -> list[ClblastCall]:
        """The one call; CLBlast compiles its kernels when it is first made."""
        return [ClblastCall(self._library, problem, layout, buffers)]
