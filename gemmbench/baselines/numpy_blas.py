"""numpy's BLAS: the host side of the break-even size."""

from __future__ import annotations

import os
import platform
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import threadpoolctl

from gemmbench.energy import measure_energy
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import HostFacts, Policy, Row
from gemmbench.rules import reference
from gemmbench.rules.executor import Tell, too_slow
from gemmbench.rules.measure import least_s, sample
from gemmbench.rules.operands import load_operands, save_result
from gemmbench.rules.plan import Case
from gemmbench.rules.reference import Array

_LOOK_S = 0.2
_TRIAL = 512  # edge of the trial that a large case's cost is predicted from


class NumpyExecutor:
    """Runs gemm cases with numpy.matmul. There is no device, so only the host scope is measured."""

    def run(self, case: Case, policy: Policy, tell: Tell) -> Row:
        """See `rules.executor.Executor`."""
        assert case.problem is not None
        problem = case.problem
        tell("verifying")
        self._refuse_if_too_slow(problem, policy)
        values = load_operands(case)
        c = values.c.copy()
        out = np.empty_like(c)

        def batch(count: int) -> Mapping[str, float]:
            begin = time.perf_counter()
            for _ in range(count):
                gemm(problem, values.a, values.b, c, out)
            return {"host": (time.perf_counter() - begin) / count}

        gemm(problem, values.a, values.b, c, out)
        found = reference.residual(problem, values.a, values.b, c, out, zero_mean=values.generated)
        row = replace(case.row("ok"), check=reference.judge(found, ""))
        if row.check.verdict == "wrong":
            return replace(row, status="wrong", reason="; ".join(row.check.reasons))
        if case.operands.out:
            save_result(case.operands.out, out)
        if not problem.flops:
            return replace(row, notes=("nothing to time: the product has no terms",))
        tell("timing host")
        row = replace(row, samples=sample(batch, policy, policy.budget_s))
        if policy.energy:
            tell("measuring energy")
            row = replace(row, energy=measure_energy(batch, None))
        return row

    def _refuse_if_too_slow(self, problem: Gemm, policy: Policy) -> None:
        trial = replace(problem, m=min(problem.m, _TRIAL), n=min(problem.n, _TRIAL), k=min(problem.k, _TRIAL))
        if not problem.flops or trial.flops * 8 > problem.flops:
            return
        a, b, c = reference.random_operands(trial)
        out = np.empty_like(c)
        gemm(trial, a, b, c, out)
        begin = time.perf_counter()
        gemm(trial, a, b, c, out)
        predicted = least_s((time.perf_counter() - begin) * problem.flops / trial.flops)
        if predicted > policy.budget_s:
            raise too_slow(predicted, policy)


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
