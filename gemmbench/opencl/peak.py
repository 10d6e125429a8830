"""Brings the probes to a device: one executor for all kinds, which prepares the candidates of their races."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Policy
from gemmbench.opencl.cache_probes import LocalMemory, WorkingSet
from gemmbench.opencl.chains import Chains
from gemmbench.opencl.latency_probes import Chase, Launches
from gemmbench.opencl.launching import MemoryRow, Operands
from gemmbench.opencl.matrix_units import Tiles
from gemmbench.opencl.memory_probes import GlobalMemory, Image
from gemmbench.opencl.runtime import Runtime, errors
from gemmbench.opencl.transfer_probes import Copies, Maps
from gemmbench.rules.memory import BY_NAME
from gemmbench.rules.memory_data import RepeatedTable
from gemmbench.rules.plan import Case
from gemmbench.rules.probes import PROBES, ChainProbe, MatrixProbe

_MEMORY: Mapping[str, Callable[[MemoryRow], Operands]] = {
    "global": GlobalMemory,
    "image": Image,
    "working-set": WorkingSet,
    "local": LocalMemory,
    "chase": Chase,
    "launch": Launches,
    "copy": Copies,
    "map": Maps,
}
"""By bench."""


class ProbeExecutor:
    """Prepares the probes' cases on one OpenCL device: see `measure.instrument.Executor`."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._table = RepeatedTable()

    def prepare(self, case: Case, policy: Policy, like: Any, problem: Gemm | None = None) -> Any:
        """A candidate: its parameters are the row's and those that tell it from the others."""
        with errors():
            operands: Operands = like.operands if like else self._operands(case)
            return operands.bench(case.parameters)

    def _operands(self, case: Case) -> Operands:
        if case.kind != "peak":
            probe = BY_NAME[case.variant]
            return _MEMORY[probe.bench](MemoryRow(self._runtime, probe, case.parameters, self._table))
        arithmetic = PROBES[case.variant]
        if isinstance(arithmetic, ChainProbe):
            return Chains(self._runtime, arithmetic, case.dtype, int(case.parameters["width"]))
        assert isinstance(arithmetic, MatrixProbe), f"{arithmetic.name} has no kernel"
        return Tiles(self._runtime, arithmetic, case.dtype, case.parameters)
