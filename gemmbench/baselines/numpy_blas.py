"""numpy's BLAS: the host side of the break-even size."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import threadpoolctl

from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Check, HostFacts, Policy
from gemmbench.model.instrument import Batch, Built, Prepared, Verified, When
from gemmbench.rules import reference
from gemmbench.rules.operands import load_operands, save_result
from gemmbench.rules.plan import Case, Operands
from gemmbench.rules.reference import Array

_LOOK_S = 0.2


class NumpyExecutor:
    """Runs gemm cases with numpy.matmul. There is no device, so only the host scope is measured."""

    def build(self, case: Case) -> Built:
        """See `measure.instrument.Executor`."""
        return Built()

    def prepare(
        self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None
    ) -> NumpyBench:
        """See `measure.instrument.Executor`."""
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
        found = reference.residual(
            self._problem, values.a, values.b, values.c, self._out, zero_mean=values.generated
        )
        check = reference.judge(found, "")
        if check.verdict == "ok" and self._case.operands.out:
            save_result(self._case.operands.out, self._out)
        return Verified(check)

    def start(self, clock: str, count: int, work: int = 1) -> Batch:
        """See `measure.instrument.Bench`."""
        begin = time.monotonic()
        for _ in range(count):
            gemm(self._problem, self._values.a, self._values.b, self._c, self._out)
        end = time.monotonic()
        return Batch({"host": (end - begin) / count}, begin, end, count)

    def release(self) -> None:
        """Nothing to do: arrays go with the last reference."""


def gemm(problem: Gemm, a: Array, b: Array, c: Array, out: Array) -> None:
    """out = alpha A B + beta C; c is not read if beta is 0."""
    np.matmul(a, b, out=out)
    if problem.alpha != 1:
        out *= out.dtype.type(problem.alpha)
    if problem.beta != 0:
        out += out.dtype.type(problem.beta) * c


def blas_name() -> str:
    """Which BLAS numpy uses and with how many threads: ``openblas 0.3.30, 2 threads, SkylakeX``."""
    pools = [pool for pool in threadpoolctl.threadpool_info() if pool.get("user_api") == "blas"]
    # scipy brings an OpenBLAS of its own, which numpy does not use.
    for pool in sorted(pools, key=lambda pool: "scipy" in str(pool.get("filepath"))):
        parts = [f"{pool.get('internal_api')} {pool.get('version') or ''}".strip()]
        threads = pool.get("num_threads")
        parts.append(f"{threads} thread{'s' if threads != 1 else ''}")
        if pool.get("architecture"):
            parts.append(str(pool["architecture"]))
        return ", ".join(parts)
    return "unknown BLAS"


def host_facts() -> HostFacts:
    """What the saved file says about the machine."""
    return HostFacts(
        cpu=_cpu_name(),
        cores=_cores(),
        memory_bytes=_memory_bytes(),
        system=f"{platform.system()} {platform.release().split('-')[0]}",
        python=platform.python_version(),
        numpy=np.__version__,
        blas=blas_name(),
        busy=_busy_cores(),
    )


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


def _cores() -> int:
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
