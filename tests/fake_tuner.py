"""A tuner's run that never ran, and a machine for it whose clock is a number."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Case, Policy, Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Partner, Row, Status
from gemmbench.model.run_file import Run
from gemmbench.tune import space as rules
from gemmbench.tune.result import FINALIST, TRIAL, round_phase
from tests import fake_runs as fake

SIZE = 512
GFLOPS = 20.0
WORDS = ("tune", "--kernel", "register", "--dtype", "float", "-m", "512", "-n", "512", "-k", "512")
PROBLEM = Gemm(SIZE, SIZE, SIZE)
REGISTER = BY_NAME["register"]
NEEDS_S = 9.0
LEAST_S = 0.1  # that the machine takes for a case, building included


def speed(parameters: Mapping[str, object]) -> float:
    """GFLOPS of a configuration of `register`: best at BM = 64, BN = 128, BK = 32, TM = TN = 8."""
    best = {"BM": 64, "BN": 128, "BK": 32, "TM": 8, "TN": 8}
    off = sum(abs(math.log2(int(str(parameters[name])) / value)) for name, value in best.items())
    return GFLOPS * 2 / (1 + 0.25 * off)


class Machine:
    """Measures cases by a formula.

    Attributes:
        now: seconds on its clock.
        measured: the cases that it was given.
        trouble: the status and reason of cases that a function picks; those skipped need `NEEDS_S`.
    """

    def __init__(self, device: DeviceFacts = fake.CPU, gflops: Callable[[Case], float] | None = None) -> None:
        self.now = 0.0
        self.measured: list[Case] = []
        self.policies: list[Policy] = []
        self.trouble: Callable[[Case], tuple[Status, str] | None] = lambda _: None
        self._gflops = gflops or (lambda case: speed(case.parameters))

    def clock(self) -> float:
        return self.now

    def measure(self, case: Case, policy: Policy) -> Row:
        assert case.problem is not None
        self.now += LEAST_S + min(policy.budget_s, policy.time_limit_s)
        self.measured.append(case)
        self.policies.append(policy)
        found = self.trouble(case)
        if found:
            row = case.row(*found)
            return replace(row, needs_s=NEEDS_S if row.status == "skipped" else None)
        plain = case.row("ok")
        assert plain.problem is not None
        row = fake.gemm_row(case.variant, plain.problem, self._gflops(case), parameters=case.parameters)
        row = replace(row, phase=plain.phase, source=plain.source, dtype=case.dtype)
        if not case.versus:
            return row
        if found := self.trouble(case.versus):
            return replace(row, notes=(f"not interleaved with {case.versus.title}: {': '.join(found)}",))
        other = fake.gemm_row(case.variant, plain.problem, self._gflops(case.versus))
        partner = Partner(case.versus.source, other.samples, case.variant, case.versus.parameters)
        return replace(row, former=partner)


def row(
    parameters: Mapping[str, int],
    gflops: float,
    size: int = SIZE,
    phase: str = TRIAL,
    versus: tuple[Mapping[str, int], float] | None = None,
) -> Row:
    """One row of a tuner's file; `versus` is kernel it was interleaved with, and its GFLOPS."""
    step = rules.case(fake.CPU, REGISTER, Gemm(size, size, size), parameters, phase)
    assert isinstance(step, Case)
    problem = step.row("ok").problem
    assert problem is not None
    made = fake.gemm_row("register", problem, gflops, parameters=dict(parameters))
    made = replace(made, phase=phase, source=step.source)
    if versus is None:
        return made
    other = fake.gemm_row("register", problem, versus[1])
    return replace(made, former=Partner(step.source, other.samples, "register", dict(versus[0])))


def bad(parameters: Mapping[str, int], status: Status, reason: str) -> Row:
    """A row of the search without a rate."""
    step = rules.case(fake.CPU, REGISTER, PROBLEM, parameters, TRIAL)
    assert not isinstance(step, Skip)
    return step.row(status, reason)


def fake_search() -> list[Row]:
    """The shipped preset at 20 GFLOPS, some that are slower, three that failed, a best at 26."""
    space = rules.space(REGISTER, fake.CPU, [PROBLEM])
    others = [one for one in space.configurations if one != space.default]
    rows = [row(space.default, 20.0)]
    for number, parameters in enumerate(others[:40]):
        rows.append(row(parameters, 26.0 - 0.4 * abs(number - 30)))
    rows[5] = bad(others[4], "crashed", "the driver's process was killed by SIGSEGV")
    rows[9] = bad(others[8], "wrong", "residual 3.1 times the bound")
    rows[12] = bad(others[11], "timed-out", "stopped after 30 s (--time-limit 30)")
    return rows


def fake_tune(gain: float = 1.3, elsewhere: float = 0.9) -> Run:
    """A finished run: so much faster than the shipped preset, and so much at another size."""
    rows = fake_search()
    shipped = {name: int(value) for name, value in rows[0].parameters.items()}
    winner = {name: int(value) for name, value in rows[31].parameters.items()}
    others = [{name: int(value) for name, value in rows[n].parameters.items()} for n in (30, 32, 29, 33)]
    rows += [
        row(shipped, 20.0, phase=FINALIST),
        row(winner, 20.0 * max(gain, 1.01), phase=FINALIST),
        *(row(other, 19.0, phase=FINALIST) for other in others),
    ]
    for number in (1, 2, 3):
        phase = round_phase(number)
        mood = 1 + 0.02 * number
        for size, factor in ((SIZE, gain), (SIZE // 4, elsewhere), (SIZE - 1, 1.0)):
            rows.append(row(winner, 20.0 * mood * factor, size, phase, (shipped, 20.0 * mood)))
    return Run(fake.header(WORDS), tuple(rows), "register.jsonl")


def without_a_preset(status: Status) -> Run:
    """A search whose shipped preset has no rate, up to the end of its finals."""
    run = fake_tune()
    shipped = bad(
        {name: int(str(value)) for name, value in run.rows[0].parameters.items()}, status, "no room"
    )
    others = [row for row in run.rows[1:] if row.phase in (TRIAL, FINALIST)]
    return replace(run, rows=(shipped, *(row for row in others if row.parameters != shipped.parameters)))
