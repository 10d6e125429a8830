"""The machine: the OpenCL devices of this process with their libraries, the host and its BLAS.

Its name is part of the instrument's protocol: other versions are asked for its `default`.
"""

from __future__ import annotations

import os
import platform
import re
import threading
import time
from collections.abc import Collection, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cache
from itertools import cycle
from pathlib import Path
from pkgutil import resolve_name
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
import psutil
import threadpoolctl

from gemmbench.ladder import BASELINE, CLBLAST, CUBLAS, MKL, variant_of
from gemmbench.measure import blas
from gemmbench.measure.blas import Pool
from gemmbench.model.case import Case
from gemmbench.model.device import DeviceFacts, HostFacts, usable_cores
from gemmbench.model.units import clean, count_noun
from gemmbench.opencl import drivers

# A variable of a tuner's children, which share compile caches in this folder: build times are no result.
BUILD_CACHE = "GEMMBENCH_BUILD_CACHE"
# What a measuring process gets, unless the user has set it.
PINNING = {"POCL_AFFINITY": "1", "DPCPP_CPU_CU_AFFINITY": "spread"}
THREADS = {"OPENBLAS_THREAD_TIMEOUT": "24", "KMP_BLOCKTIME": "5", **PINNING}
_BUSY = ("user", "nice", "system", "irq", "softirq")  # of psutil's times; a system has some of them

EXECUTORS = {  # module and class by kind, imported when first asked for
    "opencl": "gemmbench.gemm.opencl:GemmExecutor",
    CLBLAST: "gemmbench.gemm.opencl:ClblastExecutor",
    CUBLAS: "gemmbench.gemm.cublas:CublasExecutor",
    BASELINE: "gemmbench.gemm.numpy_blas:NumpyExecutor",
    MKL: "gemmbench.gemm.numpy_blas:MklExecutor",
    **dict.fromkeys(("peak", "bandwidth", "latency", "transfer"), "gemmbench.probes.opencl:ProbeExecutor"),
}


class OpenCLMachine:
    """Registers drivers, opens devices when they are first used, and creates executors."""

    def __init__(self) -> None:
        self.problems: tuple[drivers.Problem, ...] = ()
        self._executors: dict[tuple[int, str], Any] = {}
        self._runtimes: dict[int, Any] = {}  # by device, for all executors: a context of a GPU takes seconds

    def devices(self) -> tuple[DeviceFacts, ...]:
        registered = drivers.register()
        from gemmbench.opencl import discovery

        listed = tuple(map(_with_libraries, discovery.list_devices(registered)))
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
        """A new executor. A CPU device's process limits numpy's BLAS to one thread."""
        make = _executor(kind)
        if device is None:
            return make(pin_blas_threads)
        drivers.register()
        if device.type == "cpu":
            limit_blas_threads()
        if kind == CUBLAS:
            return make(device)
        from gemmbench.opencl.runtime import Runtime

        if device.index not in self._runtimes:
            self._runtimes[device.index] = Runtime(device)
        return make(self._runtimes[device.index])


def _with_libraries(device: DeviceFacts) -> DeviceFacts:
    names = (MKL, CUBLAS, CLBLAST) if device.type == "gpu" else (MKL,)
    libraries = (name for name in names if _executor(name).is_installed(device))
    return replace(device, libraries=tuple(libraries))


def _executor(kind: str) -> Any:
    return resolve_name(EXECUTORS[kind])


def default() -> OpenCLMachine:
    """What the child process makes."""
    set_compile_caches(os.environ.get(BUILD_CACHE, ""))
    return OpenCLMachine()


def set_compile_caches(folder: str) -> None:
    """Let drivers cache what they compile in a folder, or nowhere."""
    os.environ.update({"PYOPENCL_NO_CACHE": "1", "POCL_KERNEL_CACHE": "0", "CUDA_CACHE_DISABLE": "1"})
    if folder:  # read when libraries are loaded
        os.environ.update({"CUDA_CACHE_DISABLE": "0", "CUDA_CACHE_PATH": folder})
        os.environ.update({"POCL_KERNEL_CACHE": "1", "POCL_CACHE_DIR": folder})


_LOOK_S = 0.2


def blas_pools() -> list[Pool]:
    """Every BLAS that this process has loaded."""
    return [pool for pool in threadpoolctl.threadpool_info() if pool.get("user_api") == "blas"]


def pool_of(package: ModuleType = np) -> Pool | None:
    """The loaded BLAS that numpy or scipy most likely uses, or None."""
    folder = str(Path(str(package.__file__)).resolve().parent)  # a wheel's libraries are in numpy.libs

    def order(pool: Pool) -> tuple[bool, bool]:
        file = str(pool.get("filepath"))
        return not file.startswith(folder), ".libs" in file

    return min(blas_pools(), key=order, default=None) or blas.find_unlisted(package)


@cache
def all_cores() -> tuple[int, ...]:
    """The cores of this process, before the caller is pinned."""
    return tuple(sorted(usable_cores() or ()))


def pin_blas_threads() -> None:
    """Pin the caller and each BLAS thread to a core of its own, in the process of the host's BLAS.

    Linux may leave a thread on its caller's core: a product of 512 x 512 then takes 24 ms instead of 2.
    Nothing is pinned if the threads are no multiple of the other cores.
    """
    caller, *cores = all_cores() or (0,)
    python = {thread.native_id for thread in threading.enumerate()}
    threads = sorted({thread.id for thread in psutil.Process().threads()} - python)
    if not threads or not hasattr(os, "sched_setaffinity") or len(threads) % max(1, len(cores)):
        return
    with suppress(OSError):
        for thread, core in zip(threads, cycle(cores)):  # those of scipy's BLAS follow those of numpy's
            os.sched_setaffinity(thread, {core})
        os.sched_setaffinity(threading.get_native_id(), {caller})


def limit_blas_threads() -> None:
    """Limit numpy's BLAS to one thread: others would spin."""
    threadpoolctl.threadpool_limits(1, "blas")


def pool_title(pool: Pool) -> str:
    """``openblas 0.3.30, 2 threads, SkylakeX``"""
    library = f"{pool.get('internal_api')} {pool.get('version') or ''}".strip()
    threads = count_noun(pool["num_threads"], "thread") if pool.get("num_threads") else ""
    return ", ".join(filter(None, (library, threads, str(pool.get("architecture") or ""))))


def host_facts() -> HostFacts:
    """Describe this machine for a saved run. Takes 0.2 s."""
    pool, cpuinfo = pool_of(), ""
    with suppress(OSError):
        cpuinfo = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    trouble = blas.trouble(pool, cpuinfo, os.environ) if pool else None
    return HostFacts(
        cpu=_cpu_name(cpuinfo),
        cores=cores(),
        memory_bytes=psutil.virtual_memory().total,
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        python=platform.python_version(),
        numpy=np.__version__,
        blas=pool_title(pool) if pool else blas.UNKNOWN,
        warnings=(f"{trouble.problem} {trouble.advice}.",) if trouble else (),
        busy=_busy_cores(),
        environment={
            name: value
            for name, value in sorted(os.environ.items())
            if _VARIABLES.match(name) and THREADS.get(name) != value
        },
    )


_CPU_DRIVERS = "POCL|CL_CONFIG|DPCPP|SYCL"
_VARIABLES = re.compile(f"({_CPU_DRIVERS}|PYOPENCL|CUDA|OCL|OMP|OPENBLAS|BLIS|MKL|KMP|VECLIB|RUSTICL)_")
_OF_CPU_DRIVERS = re.compile(f"({_CPU_DRIVERS})_(.*(CPU|VECTOR|AFFINITY)|MAX_|WORK_GROUP_METHOD)")


def cpu_driver_variables() -> dict[str, str]:
    """The user's variables that change drivers of a CPU."""
    return {name: value for name, value in sorted(os.environ.items()) if _OF_CPU_DRIVERS.match(name)}


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Host memory that the system and all control groups still allow."""
    free = int(psutil.virtual_memory().available)
    for limit, used, stat in _limited_groups(root):
        with suppress(OSError, ValueError):
            limit_bytes, used_bytes = int(limit.read_text()), int(used.read_text())
            counts = dict(line.split() for line in stat.read_text().splitlines())
            free = min(free, max(0, limit_bytes - used_bytes + int(counts.get("inactive_file", 0))))
    return free


@cache
def _limited_groups(root: Path) -> tuple[tuple[Path, Path, Path], ...]:
    """Files (limit, usage, statistics) of control groups that limit this process's memory."""
    groups: list[tuple[Path, Path, Path]] = []
    with suppress(OSError):
        for group in control_groups(root, "memory"):
            names = ("max", "current") if group.version == 2 else ("limit_in_bytes", "usage_in_bytes")
            limit, used, stat = (group.folder / f"memory.{name}" for name in (*names, "stat"))
            with suppress(OSError, ValueError):  # "max" is no number
                int(limit.read_text())
                groups.append((limit, used, stat))
    return tuple(groups)


class ControlGroup(NamedTuple):
    """A control group of Linux."""

    folder: Path
    version: int
    is_root: bool  # of what is mounted here: a limit on it was set from outside, by a container's host


def control_groups(root: Path, controller: str) -> Iterator[ControlGroup]:
    """The mounted control groups (v1 and v2) of this process for a controller, innermost first.

    Raises `OSError` if /proc/self/cgroup cannot be read.
    """
    base = root / "sys/fs/cgroup"
    for line in (root / "proc/self/cgroup").read_text(encoding="utf-8", errors="replace").splitlines():
        names, _, path = line.partition(":")[2].partition(":")
        if names and controller not in names.split(","):
            continue
        mounts = (base / names, base / controller) if names else (base,)
        mount = next((each for each in mounts if each.is_dir()), None)
        if mount is not None:
            parts = [part for part in path.split("/") if part not in ("", "..")]
            for count in range(len(parts), -1, -1):
                yield ControlGroup(mount.joinpath(*parts[:count]), 1 if names else 2, count == 0)


def _busy_cores() -> float:
    """Cores that other programs and the hypervisor use; 0 if unknown."""
    before = usage(time.perf_counter(), os.getpid(), usable_cores())
    with suppress(OSError):  # under a library that shifts the clock
        time.sleep(_LOOK_S)
    after = usage(time.perf_counter(), os.getpid(), usable_cores())
    others, stolen = after.since(before) if before and after else (None, None)
    return round((others or 0.0) + (stolen or 0.0), 2)


def cores() -> int:
    """Cores that this process may use."""
    return len(usable_cores() or ()) or os.cpu_count() or 1


def _cpu_name(cpuinfo: str) -> str:
    named = (line.partition(":")[2] for line in cpuinfo.splitlines() if line.startswith("model name"))
    return next(filter(None, map(clean, named)), "") or platform.processor() or platform.machine()


@dataclass(frozen=True)
class Usage:
    """What the system had counted at one moment, in seconds from an arbitrary start."""

    at_s: float
    cores: int
    busy_s: float
    idle_s: float
    own_s: float  # of this process and its children
    steal_s: float

    def since(self, before: Usage) -> tuple[float | None, float | None]:
        seconds = self.at_s - before.at_s
        if seconds <= 0 or self.busy_s + self.idle_s <= before.busy_s + before.idle_s:
            return None, None
        others_s = (self.busy_s - before.busy_s) - (self.own_s - before.own_s)
        stolen_s = self.steal_s - before.steal_s
        return round(max(0.0, others_s / seconds), 3), round(max(0.0, stolen_s / seconds), 3)


def usage(now: float, pid: int, cores: Collection[int] | None = None, system: Any = None) -> Usage | None:
    """The CPU time that `cores` (None: all) have counted so far, or None."""
    system = system or psutil
    try:
        every = enumerate(system.cpu_times(percpu=True))
        times = [each for number, each in every if cores is None or number in cores]
        return Usage(
            now,
            len(times),
            busy_s=sum(getattr(each, field, 0.0) for each in times for field in _BUSY),
            idle_s=sum(getattr(each, field, 0.0) for each in times for field in ("idle", "iowait")),
            own_s=sum(map(_process_s, family(pid, system))),
            steal_s=sum(getattr(each, "steal", 0.0) for each in times),
        )
    except (psutil.Error, OSError):
        return None


def family(pid: int, system: Any = None) -> list[psutil.Process]:
    """A process and its descendants."""
    process = (system or psutil).Process(pid)
    return [process, *process.children(recursive=True)]


def processes(system: Any = None) -> dict[int, tuple[str, float]]:
    """The name and CPU seconds of every process, by its number."""
    listed = (system or psutil).process_iter(["name", "cpu_times"])
    return {
        each.pid: (each.info["name"] or "", times.user + times.system)
        for each in listed
        if (times := each.info["cpu_times"]) is not None
    }


def _process_s(process: psutil.Process) -> float:
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0
