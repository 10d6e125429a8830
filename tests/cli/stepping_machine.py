"""The fake machine, sampling beside others as the real one does: batches that last, a window for each scope.

- ``GEMMBENCH_FAKE_WINDOWS``: a folder that gets a file for each device, a line for each batch: the window's
  number, when the batch began and ended by the clock that all processes share;
- ``GEMMBENCH_FAKE_STEPS``: ``DEVICE WINDOW FAULT`` with semicolons, where a device goes wrong in its tenth
  batch of a window of a case that runs beside others: ``1 0 sigsegv``.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from gemmbench.facts.records import DeviceFacts, Policy, Row
from gemmbench.rules import measure
from gemmbench.rules.executor import Tell
from gemmbench.rules.plan import Case
from tests.cli.fake_machine import FakeMachine

_SLOWEST_S = 0.004  # a batch of device 0; that of device 1 lasts half, and so on
_FAULTY_BATCH = 10


class SteppingMachine(FakeMachine):
    def run(self, case: Case, device: DeviceFacts | None, policy: Policy, tell: Tell) -> Row:
        row = super().run(case, device, policy, tell)
        if device is None or case.kind != "gemm" or isinstance(measure._PACE.get(), measure._Alone):
            return row  # alone nothing has to last
        samples = {}
        for number, scope in enumerate(row.samples):
            batch = _Batch(case.device, number, scope)
            quick = replace(policy, batch_s=0.0, settle_s=0.0, precision=0.0)
            samples |= measure.sample(batch.run, quick, 0.2 / (1 + case.device), one_s=1.0)
        return replace(row, samples=samples)


class _Batch:
    def __init__(self, device: int, window: int, scope: str) -> None:
        self._device, self._window, self._scope = device, window, scope
        self._count = 0

    def run(self, _: int) -> Mapping[str, float]:
        self._count += 1
        if self._count == _FAULTY_BATCH:
            for rule in filter(None, os.environ.get("GEMMBENCH_FAKE_STEPS", "").split(";")):
                device, window, fault = rule.split()
                if (int(device), int(window)) == (self._device, self._window):
                    FakeMachine()._fail(fault)
        begin = time.monotonic()
        time.sleep(_SLOWEST_S / (1 + self._device))
        end = time.monotonic()
        if folder := os.environ.get("GEMMBENCH_FAKE_WINDOWS"):
            with (Path(folder) / str(self._device)).open("a") as file:
                print(self._window, begin, end, file=file)
        return {self._scope: end - begin}


def make() -> SteppingMachine:
    return SteppingMachine()
