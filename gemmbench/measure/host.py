"""The real machine: every OpenCL device of this process, the host and its BLAS, and other libraries."""

from __future__ import annotations

import ctypes
import os
import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import numpy as np
import threadpoolctl

from gemmbench.ladder import BASELINE, CBLAS, CLBLAST, CUBLAS, variant_of
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.opencl import drivers

_LOOK_S = 0.2


Pool = dict[str, Any]  # what threadpoolctl says of a library: its file, its version, its threads


def blas_pools() -> list[Pool]:
    """Every BLAS that this process has loaded."""
    return [pool for pool in threadpoolctl.threadpool_info() if pool.get("user_api") == "blas"]


def numpy_pool() -> Pool | None:
    """The BLAS that numpy uses; None if threadpoolctl does not know it."""
    own = str(Path(np.__file__).parent)  # a wheel's libraries are in numpy.libs beside it

    def order(pool: Pool) -> tuple[bool, bool]:  # scipy brings one of its own, which numpy does not use
        file = str(pool.get("filepath"))
        return not file.startswith(own), "scipy" in file

    return min(blas_pools(), key=order, default=None)


def blas_threads(count: int) -> Callable[[], AbstractContextManager[Any]]:
    """What is entered so that every BLAS that is loaded now takes so many threads."""
    return partial(threadpoolctl.ThreadpoolController().limit, limits=count, user_api="blas")


def pool_title(pool: Pool) -> str:
    """A library with its threads: ``openblas 0.3.30, 2 threads, SkylakeX``."""
    threads = pool.get("num_threads")
    parts = [f"{pool.get('internal_api')} {pool.get('version') or ''}".strip()]
    parts.append(f"{threads} thread{'s' if threads != 1 else ''}")
    return ", ".join([*parts, *([str(pool["architecture"])] if pool.get("architecture") else [])])


def blas_name() -> str:
    """Which BLAS numpy uses and with how many threads."""
    pool = numpy_pool()
    return pool_title(pool) if pool else "unknown BLAS"


def host_facts() -> HostFacts:
    """What the saved file says about the machine."""
    return HostFacts(
        cpu=_cpu_name(),
        cores=cores(),
        memory_bytes=_memory_bytes(),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        python=platform.python_version(),
        numpy=np.__version__,
        blas=blas_name(),
        busy=_busy_cores(),
    )


def last_level_cache_bytes(root: str = "/sys/devices/system/cpu") -> int | None:
    """All last-level caches of the host together; None where the system does not tell."""
    caches: dict[tuple[int, str], int] = {}
    for folder in Path(root).glob("cpu[0-9]*/cache/index*"):
        try:
            level, cores, size = (
                (folder / name).read_text(encoding="ascii").strip()
                for name in ("level", "shared_cpu_list", "size")
            )
            caches[int(level), cores] = int(size.removesuffix("K")) << 10
        except (OSError, ValueError):
            continue
    last = max((level for level, _ in caches), default=0)
    return sum(size for (level, _), size in caches.items() if level == last) or None


def _busy_cores() -> float:
    """How many cores other programs keep busy, over a fifth of a second; 0 where the system does not tell.

    A threaded BLAS waits for its slowest thread, so that one busy core can cost it a hundredfold.
    """

    def busy_ticks() -> int:
        fields = Path("/proc/stat").read_text(encoding="utf-8").split("\n", 1)[0].split()[1:]
        user, nice, system, _idle, _wait, irq, softirq, steal = map(int, fields[:8])
        return user + nice + system + irq + softirq + steal

    try:
        before = busy_ticks()
        time.sleep(_LOOK_S)
        ticks = busy_ticks() - before
    except (OSError, ValueError, IndexError):
        return 0.0
    return round(ticks / os.sysconf("SC_CLK_TCK") / _LOOK_S, 2)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


def _memory_bytes() -> int:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, ValueError, OSError):
        return 0


class _SymbolFile(ctypes.Structure):
    """What ``dladdr`` tells of an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def file_of(function: Any) -> Path | None:
    """The file that a library's function is in, links followed; None if the system does not tell."""
    symbol = _SymbolFile()
    try:
        known = ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(symbol))
    except (OSError, AttributeError, TypeError):  # Windows has no dladdr, and no library without a name
        return None
    return Path(symbol.file.decode(errors="replace")).resolve() if known and symbol.file else None


# Build times are a result, so that no cache may answer for the compiler. Read when libraries are loaded.
_NO_CACHES = {"PYOPENCL_NO_CACHE": "1", "POCL_KERNEL_CACHE": "0", "CUDA_CACHE_DISABLE": "1"}

_PROBES = "gemmbench.probes.opencl:ProbeExecutor"
EXECUTORS = {
    "opencl": "gemmbench.gemm.opencl:GemmExecutor",
    CLBLAST: "gemmbench.gemm.clblast:ClblastExecutor",
    CUBLAS: "gemmbench.gemm.cublas:CublasExecutor",
    BASELINE: "gemmbench.gemm.numpy_blas:NumpyExecutor",
    "lowering": "gemmbench.gemm.opencl:LoweringExecutor",
    CBLAS: "gemmbench.gemm.numpy_blas:CblasExecutor",
    "peak": _PROBES,
    "bandwidth": _PROBES,
    "latency": _PROBES,
    "transfer": _PROBES,
}
"""Module and class by kind, imported when first asked for."""


class OpenCLMachine:
    """Registers drivers, opens devices when they are first used, and hands cases to executors.

    pyopencl is imported only after the drivers are registered, which is why imports stand in methods.
    """

    def __init__(self) -> None:
        self._registered = drivers.register()
        self._executors: dict[tuple[int, str], Any] = {}

    def devices(self) -> tuple[DeviceFacts, ...]:
        from gemmbench.opencl import discovery

        return discovery.devices(self._registered)

    def host(self) -> HostFacts:
        from gemmbench.measure.host import host_facts

        return host_facts()

    def executor(self, case: Case, device: DeviceFacts | None) -> Any:
        kind = variant_of(case).executor if case.kind == "gemm" else case.kind
        key = (device.index if device else -1, kind)
        if key not in self._executors:
            self._executors[key] = self._make(kind, device)
        return self._executors[key]

    def _make(self, kind: str, device: DeviceFacts | None) -> object:
        module, _, name = EXECUTORS[kind].partition(":")
        make = getattr(import_module(module), name)
        if kind in (BASELINE, CBLAS):
            return make()
        assert device is not None
        if kind == CUBLAS:
            return make(device)
        from gemmbench.opencl.runtime import Runtime

        return make(Runtime(device))


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
