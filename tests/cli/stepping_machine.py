"""The fake machine, taken apart as the real one is: batches that last, one window for each scope.

- ``GEMMBENCH_FAKE_WINDOWS``: a folder that gets a file for each device, a line for each batch: the window's
  number, when the batch began and ended by the clock that all processes share;
- ``GEMMBENCH_FAKE_STEPS``: ``DEVICE WINDOW FAULT`` with semicolons, where a device goes wrong in its tenth
  batch of a window of a case that runs beside others: ``1 0 sigsegv``.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from pathlib import Path
from typing import Any

from gemmbench.model.case import Case, Policy
from gemmbench.model.instrument import Batch, Built, Prepared, Verified, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from tests.cli.fake_machine import FakeMachine

_SLOWEST_S = 0.004  # a batch of device 0; that of device 1 lasts half, and so on
_FAULTY_BATCH = 10
RECORDED = ("peak", "bandwidth", "transfer", "latency")  # what comes as whole rows


class SteppingMachine(FakeMachine):
    def __init__(self) -> None:
        super().__init__()
        self._prepared: Counter[object] = Counter()

    def prepare(self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None) -> Any:
        if case.kind != "gemm":
            return super().prepare(case, policy)
        self._prepared[case.key] += 1
        row = super().run(case, None, policy)
        return _Bench(case.device, row, beside=self._prepared[case.key] > 1)  # alone comes first


class _Bench:
    def __init__(self, device: int, row: Row, beside: bool) -> None:
        self._device, self._row, self._beside = device, row, beside
        self._clocks = tuple(row.samples)
        self._counts: Counter[str] = Counter()
        self.prepared = Prepared(self._clocks, built=Built())

    def verify(self, when: When) -> Verified:
        return Verified(self._row.check)

    def start(self, clock: str, count: int, work: int = 1) -> Batch:
        self._counts[clock] += 1
        window = self._clocks.index(clock)
        if self._beside and self._counts[clock] == _FAULTY_BATCH:
            for rule in filter(None, os.environ.get("GEMMBENCH_FAKE_STEPS", "").split(";")):
                device, faulty, fault = rule.split()
                if (int(device), int(faulty)) == (self._device, window):
                    FakeMachine()._fail(fault)
        begin = time.monotonic()
        if self._device < 0:  # the host's BLAS takes what the fake machine says
            return Batch({clock: self._row.samples[clock].seconds[0]}, begin, begin, count)
        time.sleep(_SLOWEST_S / (1 + self._device))
        end = time.monotonic()
        if self._beside and (folder := os.environ.get("GEMMBENCH_FAKE_WINDOWS")):
            with (Path(folder) / str(self._device)).open("a") as file:
                print(window, begin, end, file=file)
        return Batch({clock: end - begin}, begin, end, count)

    def release(self) -> None:
        """Nothing to do."""


def make() -> SteppingMachine:
    return SteppingMachine()
