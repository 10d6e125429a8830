"""The machine around the devices, as saved runs describe it."""

from __future__ import annotations

import ctypes
import os
import platform
import re
import threading
import time
from contextlib import suppress
from functools import cache
from itertools import cycle
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import psutil
import threadpoolctl

from gemmbench.measure.conditions import usage
from gemmbench.model.device import HostFacts, usable_cores

_LOOK_S = 0.2


Pool = dict[str, Any]  # what threadpoolctl says of a library: its file, its version, its threads


def blas_pools() -> list[Pool]:
    """Every BLAS that this process has loaded."""
    return [pool for pool in threadpoolctl.threadpool_info() if pool.get("user_api") == "blas"]


def numpy_pool() -> Pool | None:
    """The BLAS that numpy uses; None if threadpoolctl does not know it."""
    return pool_of(np)


def pool_of(package: ModuleType) -> Pool | None:
    """The BLAS that numpy or scipy uses, once it is loaded: each may bring one of its own."""
    own = str(Path(str(package.__file__)).resolve().parent)  # a wheel's libraries are in numpy.libs beside it

    def order(pool: Pool) -> tuple[bool, bool]:
        file = str(pool.get("filepath"))
        return not file.startswith(own), ".libs" in file

    return min(blas_pools(), key=order, default=None)


@cache
def all_cores() -> tuple[int, ...]:
    """The cores that this process may use; to be asked before the caller is pinned to one of them."""
    return tuple(sorted(usable_cores() or ()))


def pin_blas_threads() -> None:
    """Pin the caller and each thread of its BLAS to a core of its own, for the process of the host's BLAS.

    Linux may wake a thread on its caller's core and leave it there. Each then waits for the other until a
    tick ends its turn: a product of 512 x 512 takes 24 ms, not 2. Nothing is pinned if the BLAS has another
    number of threads, as a user's variable may ask for, or if the system refuses, as a container may.
    """
    caller, *cores = all_cores() or (0,)
    python = {thread.native_id for thread in threading.enumerate()}
    threads = sorted({thread.id for thread in psutil.Process().threads()} - python)
    if not hasattr(os, "sched_setaffinity") or len(threads) % max(1, len(cores)):
        return
    with suppress(OSError):
        for thread, core in zip(threads, cycle(cores)):  # those of scipy's BLAS follow those of numpy's
            os.sched_setaffinity(thread, {core})
        os.sched_setaffinity(threading.get_native_id(), {caller})


def limit_blas_threads() -> None:
    """Give numpy's BLAS one thread, for a CPU device's process: others would spin after a verification."""
    threadpoolctl.threadpool_limits(1, "blas")


def pool_title(pool: Pool) -> str:
    """A library with its threads and kernels: ``openblas 0.3.30, 2 threads, SkylakeX``."""
    threads, kernels = pool.get("num_threads"), str(pool.get("architecture") or "")
    parts = [f"{pool.get('internal_api')} {pool.get('version') or ''}".strip()]
    parts.append(f"{threads} thread{'s' if threads != 1 else ''}")
    return ", ".join([*parts, *([kernels] if kernels else [])])


def host_facts() -> HostFacts:
    """What the saved file says about the machine."""
    pool = numpy_pool()
    return HostFacts(
        cpu=_cpu_name(),
        cores=cores(),
        memory_bytes=psutil.virtual_memory().total,
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        python=platform.python_version(),
        numpy=np.__version__,
        blas=pool_title(pool) if pool else "unknown BLAS",
        busy=_busy_cores(),
        environment={
            name: value
            for name, value in sorted(os.environ.items())
            if _VARIABLES.match(name) and not (name in _OURS and value == _OURS[name])
        },
    )


_VARIABLES = re.compile("(PYOPENCL|POCL|CUDA|OCL|OMP|OPENBLAS|MKL|RUSTICL|CL_CONFIG)_")
_OURS = {"OPENBLAS_THREAD_TIMEOUT": "24", "POCL_AFFINITY": "1"}  # `for_threads` sets these


def free_memory_bytes(root: Path = Path("/")) -> int:
    """Bytes of host memory that this process can still get, by the system and by its control groups."""
    free = int(psutil.virtual_memory().available)
    for limit, used, stat in _limited_groups(root):
        with suppress(OSError, ValueError):
            limit_bytes, used_bytes = int(limit.read_text()), int(used.read_text())
            counts = dict(line.split() for line in stat.read_text().splitlines())
            free = min(free, max(0, limit_bytes - used_bytes + int(counts.get("inactive_file", 0))))
    return free


@cache
def _limited_groups(root: Path) -> tuple[tuple[Path, Path, Path], ...]:
    """The files with limit, usage and statistics of each control group that limits this process's memory.

    Groups without a limit are left out, because a plan asks for the free memory once per case.
    """
    groups: list[tuple[Path, Path, Path]] = []
    with suppress(OSError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if controllers and "memory" not in controllers.split(","):
                continue
            base = root / "sys/fs/cgroup" / ("memory" if controllers else "")
            limit, used = ("limit_in_bytes", "usage_in_bytes") if controllers else ("max", "current")
            group = base / path.strip("/")
            for folder in (group, *(each for each in group.parents if each.is_relative_to(base))):
                files = folder / f"memory.{limit}", folder / f"memory.{used}", folder / "memory.stat"
                with suppress(OSError, ValueError):  # "max" is no number
                    int(files[0].read_text())
                    groups.append(files)
    return tuple(groups)


def _busy_cores() -> float:
    """Cores that others use of those that this process may use, over a fifth of a second; 0 where unknown.

    A threaded BLAS waits for its slowest thread, so that one busy core can cost it a hundredfold.
    """
    looks = []
    for pause_s in (0.0, _LOOK_S):
        try:
            time.sleep(pause_s)
        except OSError:  # under a library that shifts the clock
            return 0.0
        looks.append(usage(time.perf_counter(), os.getpid(), usable_cores()))
    before, after = looks
    others, stolen = after.since(before) if before and after else (None, None)
    return round((others or 0.0) + (stolen or 0.0), 2)


def cores() -> int:
    """Cores that this process may use."""
    return len(usable_cores() or ()) or os.cpu_count() or 1


def _cpu_name() -> str:
    try:
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            if line.startswith("model name"):
                return " ".join(line.split(":", 1)[1].split())
    except OSError:
        pass
    return platform.processor() or platform.machine()


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
