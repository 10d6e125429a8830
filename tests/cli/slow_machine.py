"""The fake machine with noise from run to run, and rows that have become slower.

- ``GEMMBENCH_FAKE_NOISE``: standard deviation of a row's time from run to run, such as 0.01;
- ``GEMMBENCH_FAKE_SLOW``: ``VARIANT SIZE FACTOR`` with semicolons: ``tiled 16 1.1``; ``* * 1.1`` for all;
  A former self (``check --against``) is never slower, but of the same moment's noise;
- ``GEMMBENCH_FAKE_COUNT``: a file that counts cases, so that every process draws noise of its own.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from pathlib import Path

from gemmbench.ladder import BY_NAME
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.row import Partner, Row, Scope
from tests import fake_runs
from tests.cli.fake_machine import FakeMachine


class SlowMachine(FakeMachine):
    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Row:
        row = super().run(case, device, policy)
        draw = random.Random(_count())
        moment = 1 + float(os.environ["GEMMBENCH_FAKE_NOISE"]) * draw.gauss(0, 1)
        factor = moment
        size = str(case.problem.m if case.problem else case.parameters.get("width", 0))
        for rule in filter(None, os.environ.get("GEMMBENCH_FAKE_SLOW", "").split(";")):
            variant, where, times = rule.split()
            if variant in (case.variant, "*") and where in (size, "*"):
                factor *= float(times)
        former = None
        if case.partner and case.partner.kernels:
            row = replace(row, samples=_repeated(row))
            was = BY_NAME[case.variant].fingerprint(case.dtype, case.numbers, case.partner.kernels)
            scale = moment * (1 + 0.002 * draw.gauss(0, 1))
            former = Partner(was, fake_runs.scaled(row, lambda: scale))
        return replace(row, samples=fake_runs.scaled(row, lambda: factor), former=former, source=case.source)


def _repeated(row: Row) -> dict[str, Scope]:
    """As many batches as interleaved rows have."""
    return {name: replace(scope, seconds=10 * scope.seconds) for name, scope in row.samples.items()}


def _count() -> int:
    path = Path(os.environ["GEMMBENCH_FAKE_COUNT"])
    number = int(path.read_text()) + 1 if path.exists() else 0
    path.write_text(str(number))
    with path.with_suffix(".pids").open("a") as pids:
        print(os.getpid(), file=pids)
    return number


def make() -> SlowMachine:
    return SlowMachine()
