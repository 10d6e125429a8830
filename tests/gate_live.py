"""The gate on this machine, with a kernel that really does more work."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gemmbench import __version__, checking
from gemmbench.facts.compare.basis import Basis
from gemmbench.facts.compare.comparison import Comparison
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import SCHEMA_VERSION, Header, Policy, RowKey, Run
from gemmbench.opencl import machine
from gemmbench.rules.plan import Case, Plan, gemm_plan
from gemmbench.rules.selection import select
from gemmbench.rules.variants import BY_NAME
from gemmbench.worker import Worker
from tests import planted_machine
from tests.gate_simulation import Setting, Tally, result_of

OTHERS = ("cpu-packed", "numpy")  # that are measured along


@dataclass(frozen=True)
class Live:
    """What is measured, and how long."""

    device: str  # as --device
    sizes: tuple[int, ...]
    budget_s: float
    bases: int  # repetitions of a base
    patience_s: float  # of a check's second looks
    reference: str  # of ratio mode


@dataclass(frozen=True)
class Bench:
    """Cases and header of this machine."""

    live: Live
    header: Header
    plan: Plan

    @property
    def largest(self) -> Plan:
        """The cases of the largest problem, whose loop is the longest."""
        edge = self.live.sizes[-1]
        return tuple(
            step for step in self.plan if isinstance(step, Case) and step.problem == Gemm(edge, edge, edge)
        )

    @property
    def planted(self) -> RowKey:
        """The row to be made slower."""
        (found,) = (
            case.key
            for case in self.largest
            if isinstance(case, Case) and case.variant == planted_machine.VARIANT
        )
        return found


def bench(live: Live) -> Bench:
    """Look at the machine.

    Raises:
        WorkerError: the devices could not be listed.
        SelectionError: there is no such device.
    """
    with Worker(machine.default) as worker:
        found, host = worker.devices()
    devices = select(found, live.device)[:1]
    policy = Policy(budget_s=live.budget_s, time_limit_s=60 + 20 * live.budget_s)
    kernels = dict.fromkeys((planted_machine.VARIANT, live.reference, *OTHERS))
    chosen = [BY_NAME[name] for name in kernels]
    plan = gemm_plan(devices, chosen, [Gemm(size, size, size) for size in live.sizes])
    header = Header(SCHEMA_VERSION, __version__, ("gate_proof.py",), "", devices, host, policy)
    return Bench(live, header, plan)


def base(bench: Bench) -> Run:
    """Measure a base: every case several times, each in a process of its own."""
    with Worker(machine.default) as worker:
        nothing = Basis((Run(bench.header, ()),), Setting(0.05).rules)  # it compares nothing yet
        job = checking.Job(nothing, bench.plan, bench.header, bench.header.policy, worker)
        result_of(checking.repeat(job, bench.live.bases))
        return replace(job.run, header=bench.header)


def check(bench: Bench, before: Run, setting: Setting, slow: float) -> Comparison:
    """One job of ``gemmbench check``: of all cases, or the largest with so much more work in one kernel."""
    basis = Basis((before,), setting.rules)
    plan = bench.largest if slow else bench.plan
    with _maker(slow) as make, Worker(make) as worker:
        job = checking.Job(basis, plan, bench.header, bench.header.policy, worker)
        job.patience = checking.Patience(bench.live.patience_s)
        return result_of(checking.check(job))


def trial(bench: Bench, before: Run, setting: Setting, slow: float, tally: Tally) -> float | None:
    """One job, counted; how much longer the planted row took by its own figures, None without one."""
    made = check(bench, before, setting, slow)
    planted = bench.planted if slow else None
    tally.add(made, planted)
    found = next((line.judgement for line in made.lines if line.key == planted), None)
    return found.ratio - 1 if found else None


@contextmanager
def _maker(slow: float) -> Iterator[Callable[[], machine.OpenCLMachine]]:
    """What the child process makes, with its kernels for as long."""
    if not slow:
        yield machine.default
        return
    with tempfile.TemporaryDirectory(prefix="gemmbench-planted-") as folder:
        kernels = Path(folder) / "kernels"
        planted_machine.plant(kernels, slow)
        yield partial(planted_machine.make, str(kernels))


def shares(total: int, parts: int) -> Sequence[int]:
    """A total in nearly equal whole parts."""
    return [total * (part + 1) // parts - total * part // parts for part in range(parts)]
