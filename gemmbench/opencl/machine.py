"""The real machine: every OpenCL device of this process, the host's BLAS, and other libraries."""

from __future__ import annotations

import os

from gemmbench.facts.records import DeviceFacts, HostFacts, Policy, Row
from gemmbench.opencl import drivers
from gemmbench.rules.executor import Executor, Tell
from gemmbench.rules.plan import Case
from gemmbench.rules.variants import BASELINE, BY_NAME, CLBLAST, CUBLAS

# Build times are a result, so that no cache may answer for the compiler. Read when libraries are loaded.
_NO_CACHES = {"PYOPENCL_NO_CACHE": "1", "POCL_KERNEL_CACHE": "0", "CUDA_CACHE_DISABLE": "1"}


class OpenCLMachine:
    """Registers drivers, opens devices when they are first used, and hands cases to executors.

    pyopencl is imported only after the drivers are registered, which is why imports stand in methods.
    """

    def __init__(self) -> None:
        self._registered = drivers.register()
        self._executors: dict[tuple[int, str], Executor] = {}

    def devices(self) -> tuple[DeviceFacts, ...]:
        """See `worker.Machine`."""
        from gemmbench.opencl import discovery

        return discovery.devices(self._registered)

    def host(self) -> HostFacts:
        """See `worker.Machine`."""
        from gemmbench.baselines.numpy_blas import host_facts

        return host_facts()

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy, tell: Tell) -> Row:
        """See `worker.Machine`."""
        return self._executor(case, device).run(case, policy, tell)

    def inspect(self, case: Case, device: DeviceFacts) -> Row:
        """See `worker.Machine`."""
        from gemmbench.opencl.gemm import GemmExecutor

        executor = self._executor(case, device)
        assert isinstance(executor, GemmExecutor)
        return executor.inspect(case)

    def _executor(self, case: Case, device: DeviceFacts | None) -> Executor:
        kind = BY_NAME[case.variant].executor if case.kind == "gemm" else case.kind
        key = (device.index if device else -1, kind)
        if key not in self._executors:
            self._executors[key] = self._make(kind, device)
        return self._executors[key]

    def _make(self, kind: str, device: DeviceFacts | None) -> Executor:
        if kind == BASELINE:
            from gemmbench.baselines.numpy_blas import NumpyExecutor

            return NumpyExecutor()
        assert device is not None
        from gemmbench.opencl.runtime import Runtime

        if kind == CUBLAS:
            from gemmbench.baselines.cublas_gemm import CublasExecutor

            return CublasExecutor(device)
        runtime = Runtime(device)
        if kind == CLBLAST:
            from gemmbench.opencl.clblast import ClblastExecutor

            return ClblastExecutor(runtime)
        if kind == "peak":
            from gemmbench.opencl.peak import PeakExecutor

            return PeakExecutor(runtime)
        if kind == "bandwidth":
            from gemmbench.opencl.bandwidth import BandwidthExecutor

            return BandwidthExecutor(runtime)
        if kind == "latency":
            from gemmbench.opencl.latency_probes import LatencyExecutor

            return LatencyExecutor(runtime)
        if kind == "transfer":
            from gemmbench.opencl.transfer_probes import TransferExecutor

            return TransferExecutor(runtime)
        from gemmbench.opencl.gemm import GemmExecutor

        return GemmExecutor(runtime)


def default() -> OpenCLMachine:
    """What the child process makes."""
    os.environ.update(_NO_CACHES)
    return OpenCLMachine()


def caching(folder: str) -> OpenCLMachine:
    """What a tuner's children make: what one has compiled the others need not, and build times are no result.

    Args:
        folder: of the drivers' caches, the same for all of them.
    """
    os.environ.update(_NO_CACHES)
    os.environ.update({"CUDA_CACHE_DISABLE": "0", "CUDA_CACHE_PATH": folder})
    os.environ.update({"POCL_KERNEL_CACHE": "1", "POCL_CACHE_DIR": folder})
    return OpenCLMachine()
