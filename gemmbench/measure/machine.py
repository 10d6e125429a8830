"""The real machine: the OpenCL devices of this process with their libraries, or the host's BLAS.

Its name is part of the instrument's protocol: other versions of gemmbench are asked for `default` of it.
"""

from __future__ import annotations

import os
from dataclasses import replace
from importlib import import_module
from typing import Any

from gemmbench.ladder import BASELINE, CLBLAST, CUBLAS, variant_of
from gemmbench.measure.host import host_facts, limit_blas_threads, pin_blas_threads
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.opencl import drivers

# Build times are a result, so that no cache may answer for the compiler. Read when libraries are loaded.
_NO_CACHES = {"PYOPENCL_NO_CACHE": "1", "POCL_KERNEL_CACHE": "0", "CUDA_CACHE_DISABLE": "1"}

EXECUTORS = {
    "opencl": "gemmbench.gemm.opencl:GemmExecutor",
    CLBLAST: "gemmbench.gemm.opencl:ClblastExecutor",
    CUBLAS: "gemmbench.gemm.cublas:CublasExecutor",
    BASELINE: "gemmbench.gemm.numpy_blas:NumpyExecutor",
    **dict.fromkeys(("peak", "bandwidth", "latency", "transfer"), "gemmbench.probes.opencl:ProbeExecutor"),
}
"""Module and class by kind, imported when first asked for."""


class OpenCLMachine:
    """Registers drivers, opens devices when they are first used, and hands cases to executors.

    pyopencl is imported only after the drivers are registered, which is why imports stand in methods. The
    process of the host's BLAS does neither.
    """

    def __init__(self) -> None:
        self.problems: tuple[drivers.Problem, ...] = ()
        self._executors: dict[tuple[int, str], Any] = {}

    def devices(self) -> tuple[DeviceFacts, ...]:
        registered = drivers.register()
        from gemmbench.opencl import discovery

        listed = tuple(map(_with_libraries, discovery.devices(registered)))
        self.problems = drivers.problems(registered, {device.library for device in listed})
        return listed

    def host(self) -> HostFacts:
        return host_facts()

    def executor(self, case: Case, device: DeviceFacts | None) -> Any:
        kind = variant_of(case).executor if case.kind == "gemm" else case.kind
        key = (device.index if device else -1, kind)
        if key not in self._executors:
            self._executors[key] = self._make(kind, device)
        return self._executors[key]

    def _make(self, kind: str, device: DeviceFacts | None) -> object:
        make = _executor(kind)
        if device is None:
            return make(pin_blas_threads)
        drivers.register()
        if device.type == "cpu":
            limit_blas_threads()
        if kind == CUBLAS:
            return make(device)
        from gemmbench.opencl.runtime import Runtime

        return make(Runtime(device))


def _with_libraries(device: DeviceFacts) -> DeviceFacts:
    """A GPU with the BLAS libraries that are installed for it."""
    if device.type != "gpu":
        return device
    libraries = (name for name in (CUBLAS, CLBLAST) if _executor(name).is_installed(device))
    return replace(device, libraries=tuple(libraries))


def _executor(kind: str) -> Any:
    module, _, name = EXECUTORS[kind].partition(":")
    return getattr(import_module(module), name)


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
