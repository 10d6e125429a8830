"""The gate on this machine, with a kernel that really does more work."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from gemmbench import __version__
from gemmbench.ladder import BY_NAME
from gemmbench.measure import machine
from gemmbench.measure.child import Worker
from gemmbench.model import kernel_files
from gemmbench.model.case import Case, Plan, Policy
from gemmbench.model.problem import Gemm
from gemmbench.model.run_file import SCHEMA_VERSION, Header, Run
from gemmbench.regress import check as checking
from gemmbench.regress.baseline import Basis
from gemmbench.regress.compare import Comparison
from gemmbench.suite.plan import gemm_plan, select
from tools import planted_machine
from tools.gate_simulation import Setting, Tally, result_of


@dataclass(frozen=True)
class Live:
    """What is measured, and how long."""

    device: str  # as --device
    sizes: tuple[int, ...]
    budget_s: float
    bases: int  # repetitions of a base
    patience_s: float  # of a check's second looks
    reference: str  # of ratio mode
    kernels: tuple[str, ...] = (planted_machine.VARIANT, "cpu-packed", "numpy")
    base_budget_s: float = 0.0  # of a base; 0: as of the checks


@dataclass(frozen=True)
class Bench:
    """Cases and header of this machine."""

    live: Live
    header: Header
    plan: Plan

    def planted(self, before: Run, number: int) -> Case:
        """The case to be made slower in a trial: those of the base's sizes in turn."""
        fits = [
            step
            for step in self.plan
            if isinstance(step, Case) and step.variant == planted_machine.VARIANT
            if any(row.key == step.key and row.status == "ok" for row in before.rows)
        ]
        return fits[number % len(fits)]


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
    kernels = dict.fromkeys((planted_machine.VARIANT, *live.kernels))
    chosen = [BY_NAME[name] for name in kernels]
    plan = gemm_plan(devices, chosen, [Gemm(size, size, size) for size in live.sizes])
    header = Header(SCHEMA_VERSION, __version__, ("gate_proof.py",), "", devices, host, policy)
    return Bench(live, header, plan)


def base(bench: Bench) -> Run:
    """Measure a base: every case several times, each in a process of its own."""
    with Worker(machine.default) as worker:
        nothing = Basis((Run(bench.header, ()),), Setting(0.05).rules)  # it compares nothing yet
        policy = replace(bench.header.policy, budget_s=bench.live.base_budget_s or bench.live.budget_s)
        job = checking.Job(nothing, bench.plan, bench.header, policy, worker)
        result_of(checking.repeat(job, bench.live.bases))
        return replace(job.run, header=bench.header)


def check(bench: Bench, before: Run, setting: Setting, slow: float, planted: Case) -> Comparison:
    """One job of ``gemmbench check``: of all cases, or those of one problem, one kernel with more work."""
    basis = Basis((before,), setting.rules)
    plan: Plan = bench.plan
    if slow:
        plan = tuple(step for step in plan if isinstance(step, Case) and step.problem == planted.problem)
    if setting.in_turn:
        wanted = [planted] if slow else plan
        plan = tuple(
            replace(step, former=str(kernel_files.folder()))
            for step in wanted
            if isinstance(step, Case) and step.source
        )
    with _maker(slow) as make, Worker(make) as worker:
        job = checking.Job(basis, plan, bench.header, bench.header.policy, worker)
        job.patience = checking.Patience(bench.live.patience_s)
        return result_of(checking.check(job))


def trial(
    bench: Bench, before: Run, setting: Setting, slow: float, tally: Tally, number: int = 0
) -> float | None:
    """One job, counted; how much longer the planted row took by its own figures, None without one."""
    case = bench.planted(before, number)
    made = check(bench, before, setting, slow, case)
    planted = case.key if slow else None
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
