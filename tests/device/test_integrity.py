"""Faults planted in a compute probe: each gives a figure that is too good, and is suspect for its reason."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from gemmbench.model import kernel_files
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DType, HostArray
from gemmbench.model.instrument import Batch
from gemmbench.model.row import Row
from gemmbench.opencl.runtime import Runtime
from gemmbench.probes import measure, memory_opencl
from gemmbench.probes.arithmetic import RECURRENCES
from gemmbench.probes.measure import Known
from gemmbench.probes.memory_opencl import Enqueue, time_launches
from gemmbench.probes.opencl import ProbeExecutor
from gemmbench.stats.rates import rate
from gemmbench.suite.plan import peak_plan
from tests import in_process

POLICY = Policy(budget_s=1.0, batch_s=0.001, min_batches=3)
WIDTH = 16  # of every CPU driver's fast vectors

DOUBLING = r"doubling the loop count multiplies the time by [01]\.\d\d, not by 2"

Plant = Callable[[str, str], None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Replace a piece of the probe's text, which must be there."""
    pieces: list[tuple[str, str]] = []

    def text(file: str, root: str) -> str:
        source = kernel_files.text(file, root)
        for old, new in () if file.startswith("check/") else pieces:
            assert old in source, f"{old!r} is not in {file}"
            source = source.replace(old, new)
        return source

    monkeypatch.setattr("gemmbench.opencl.runtime.text", text)
    monkeypatch.setattr(measure, "CHAINS", (1, 8))  # what is raced takes most of a test's time
    monkeypatch.setattr(measure, "UNROLLS", (4,))
    return lambda old, new: pieces.append((old, new))


class Peaks:
    """A device's, and what its rows have shown."""

    def __init__(self, device: DeviceFacts) -> None:
        self.executor, self.known = ProbeExecutor(Runtime(device)), Known()


def run(peaks: Peaks, device: DeviceFacts, dtype: str, width: int = WIDTH) -> Row:
    (case,) = peak_plan([device], [dtype], [width], reach="plain")
    assert isinstance(case, Case)
    return in_process.measured(peaks.executor, case, POLICY, device, known=peaks.known)


def suspicion(
    device: DeviceFacts, dtype: str = "float", peaks: Peaks | None = None, width: int = WIDTH
) -> str:
    """Why the row is not believed."""
    row = run(peaks or Peaks(device), device, dtype, width)
    assert row.check.verdict in ("suspect", "wrong")  # wrong where it is above the device's ceiling, too
    return "; ".join(row.check.reasons)


def test_without_a_fault_nothing_is_suspected_of_the_results(device: DeviceFacts, plant: Plant) -> None:
    """Of the times little can be said here: other programs may be running."""
    row = run(Peaks(device), device, "float")
    assert not any("seed" in reason or "stored" in reason for reason in row.check.reasons)


def test_chains_merged_for_their_equal_seeds_are_detected(device: DeviceFacts, plant: Plant) -> None:
    """No compiler here merges them: the planted kernel does what one that merges would do."""
    plant("(item * CHAINS + c) % (SEEDS / WIDTH)", "item * CHAINS % (SEEDS / WIDTH)")
    plant("for (int c = 0; c < CHAINS; c++) {\n                STEP(c);", "{\n                STEP(0);")
    plant("TOTAL total", "for (int c = 1; c < CHAINS; c++) x[c] = x[0];\n    TOTAL total")
    plant("            #pragma unroll\n            {", "            {")
    assert "equal seeds, which let a compiler merge chains" in suspicion(device)


@pytest.mark.parametrize(
    ("width", "reason"),
    [
        (1, DOUBLING),  # the whole loop is folded
        (16, "optimised some away|above the theoretical peak"),  # of vectors, the steps of a trip
    ],
)
def test_a_recurrence_that_can_be_folded_is_betrayed_by_time_alone(
    device: DeviceFacts, width: int, reason: str, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    if device.type != "cpu":
        pytest.skip("whether this compiler folds is its own affair, and it may fold nothing")

    def add(x: HostArray, _: HostArray, b: HostArray, dtype: DType) -> HostArray:
        return np.asarray(x + b)

    plant("x[c] = x[c] * x[c] + b", "x[c] = x[c] + b")
    monkeypatch.setitem(RECURRENCES, "square", replace(RECURRENCES["square"], step=add))
    monkeypatch.setattr(measure, "UNROLLS", (4, 16))
    found = suspicion(device, "int", width=width)
    assert re.search(reason, found)
    assert "stored" not in found


def test_a_trip_count_that_is_ignored_shows_in_the_sums(device: DeviceFacts, plant: Plant) -> None:
    plant("trip < trips", "trip < 1")
    found = suspicion(device)
    assert "the sums are those of 1 trips, not 3: the trip count is ignored" in found
    assert re.search(DOUBLING, found)


def test_a_trip_count_that_is_ignored_past_the_check_shows_in_time(device: DeviceFacts, plant: Plant) -> None:
    plant("trip < trips", "trip < min(trips, 3)")
    found = suspicion(device)
    assert re.search(DOUBLING, found)
    assert "sums" not in found


def test_an_event_clock_that_shows_a_fraction_is_not_believed(
    device: DeviceFacts, plant: Plant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def hasty(queue: object, enqueue: Enqueue, *more: Any) -> Batch:
        batch = time_launches(queue, enqueue, *more)
        return replace(batch, seconds={"kernel": batch.seconds["kernel"] / 70})

    monkeypatch.setattr(memory_opencl, "time_launches", hasty)
    row = run(Peaks(device), device, "float")
    assert row.check.verdict == "suspect"
    (reason,) = [reason for reason in row.check.reasons if "clock" in reason]
    assert reason.endswith("times the wall clock, which is used instead")
    shown = rate(row, "kernel")
    ceiling = 1e12 * max(1, device.compute_units)  # seventy times a peak would be far above
    assert shown.best < ceiling
