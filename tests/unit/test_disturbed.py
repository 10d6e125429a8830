"""Disturbed rows are measured again at the end of the run, and marked if they stay so."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from gemmbench.ladder import LADDER
from gemmbench.model.case import Case, Finished, Policy, Staged
from gemmbench.model.device import Conditions, DeviceFacts, Readings
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row, current
from gemmbench.model.run_file import RunFile, load
from gemmbench.stats.conditions import disturbances
from gemmbench.suite import session
from tests import fake_runs as fake

BUSY = Conditions("settled", cores=2, windows={"host": Readings(window_s=1.0, other_cores=1.0)})
QUIET = Conditions("settled", cores=2, windows={"host": Readings(window_s=1.0, other_cores=0.05)})
ROW_S = 1.0


@dataclass
class Worker:
    """Answers with rows in scripted conditions, each of which takes a second."""

    conditions: dict[str, list[Conditions]]
    now: float = 0.0
    ran: list[str] = field(default_factory=list)

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        yield Staged("timing")
        self.now += ROW_S
        self.ran.append(case.variant)
        script = self.conditions.get(case.variant, [QUIET])
        conditions = script.pop(0) if len(script) > 1 else script[0]
        seconds = 0.008 if conditions == BUSY else 0.001
        return replace(
            case.row("ok"), samples={"host": fake.scope(seconds)}, conditions=conditions, build_s=seconds
        )


def plan(*variants: str) -> tuple[Case, ...]:
    return tuple(Case("gemm", 0, name, "float", {}, Gemm(256, 256, 256)) for name in variants)


def run(worker: Worker, *variants: str, file: RunFile | None = None) -> list[Finished]:
    steps: Any = session.run(plan(*variants), [fake.CPU], Policy(), worker, file, clock=lambda: worker.now)  # type: ignore[arg-type]
    return [event for event in steps if isinstance(event, Finished)]


KERNELS = LADDER[:20]


def test_a_disturbed_row_is_measured_again_at_the_end(tmp_path: Path) -> None:
    worker = Worker({"tiled": [BUSY, QUIET]})
    header = fake.header(["square"])
    with RunFile.create(tmp_path / "run.jsonl", header) as file:
        events = run(worker, *KERNELS, file=file)
    assert worker.ran == [*KERNELS, "tiled"]
    assert [event.row.supersedes for event in events] == [False] * len(KERNELS) + [True]
    rows = current(event.row for event in events)
    assert [row.variant for row in rows] == list(KERNELS)
    assert all(row.conditions == QUIET for row in rows)
    saved = load(tmp_path / "run.jsonl").rows
    assert [row.conditions for row in saved] == [row.conditions for row in rows]
    assert saved[1].samples["host"].seconds[0] == pytest.approx(0.001, rel=0.1)


def test_again_takes_a_tenth_of_the_run_at_most_and_ends_where_it_is_in_vain() -> None:
    worker = Worker({name: [BUSY] for name in KERNELS})
    run(worker, *KERNELS)
    assert worker.ran == [*KERNELS, KERNELS[0]]
    worker = Worker({name: [BUSY, QUIET] for name in KERNELS})
    run(worker, *KERNELS)
    assert worker.ran == [*KERNELS, *KERNELS[:2]]
    alone = Worker({"naive": [BUSY, QUIET]})
    run(alone, "naive")
    assert alone.ran == ["naive"]


def test_a_row_that_stays_disturbed_stays_and_is_marked() -> None:
    worker = Worker({"tiled": [BUSY, BUSY]})
    events = run(worker, *KERNELS)
    (row,) = [event.row for event in events if event.row.variant == "tiled"]
    assert disturbances(row.conditions, on_cpu=True) == ("other programs used 1.00 of 2 cores",)


def test_resumed_rows_are_measured_again_too(tmp_path: Path) -> None:
    header = fake.header(["square"])
    path = tmp_path / "run.jsonl"
    with RunFile.create(path, header) as file:
        run(Worker({"tiled": [BUSY]}), *KERNELS[:3], file=file)
    worker = Worker({})
    with RunFile.resume(path, header) as file:
        events = run(worker, *KERNELS, file=file)
    assert worker.ran == [*KERNELS[3:], "tiled"]
    assert [event.resumed for event in events] == [True] * 3 + [False] * (len(KERNELS) - 2)
    assert [row.variant for row in load(path).rows] == list(KERNELS)


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (Readings(window_s=1.0, other_cores=0.25), "other programs used 0.250 of 2 cores"),
        (Readings(window_s=1.0, other_cores=0.15), ""),
        (Readings(window_s=0.05, other_cores=0.6), ""),  # too short for ticks of a hundredth of a second
        (Readings(window_s=1.0, steal_cores=0.2), "the hypervisor gave others 0.200 of 2 cores"),
        (Readings(other_cores=None), ""),
    ],
)
def test_what_disturbs_a_processor(window: Readings, reason: str) -> None:
    conditions = Conditions(cores=2, windows={"device": window})
    assert disturbances(conditions, on_cpu=True) == ((reason,) if reason else ())
    assert disturbances(conditions, on_cpu=False) == ()
    beside = replace(conditions, windows={"host": window})
    assert disturbances(beside, on_cpu=False) == ((reason,) if reason else ())


def clocks(*values: float, limits: str = "") -> Readings:
    return Readings(clock_mhz=values, limits=(limits,) * len(values))


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (clocks(*[1980.0] * 20), ""),
        (clocks(*[1440.0, 1500.0] * 10, limits="power"), ""),  # a limit of power is a state, no disturbance
        (clocks(*[1440.0] * 20, limits="power thermal"), "the temperature limited the clock"),
        (clocks(*[1440.0] * 20, limits="hardware"), "the board limited the clock"),
        (clocks(*[1980.0] * 10, *[1900.0] * 10), "the clock went from 1,980 to 1,900 MHz"),
        (clocks(*[1980.0] * 10, *[1960.0] * 10), ""),
        (clocks(1980.0, 1440.0), ""),  # two readings are no halves
    ],
)
def test_what_disturbs_a_gpu(window: Readings, reason: str) -> None:
    conditions = Conditions(cores=16, windows={"device": window})
    assert disturbances(conditions, on_cpu=False) == ((reason,) if reason else ())


def test_a_clock_that_moves_between_transfers_or_in_a_burst_is_no_disturbance() -> None:
    """Every row of tensor cores on an NVIDIA H200 was called disturbed for its host scope's clock."""
    moving = clocks(*[1440.0] * 10, *[1965.0] * 10)
    for window in ("host", "pageable"):
        assert disturbances(Conditions(cores=16, windows={window: moving}), on_cpu=False) == ()
    burst = Conditions("burst", cores=16, windows={"device": moving})
    assert disturbances(burst, on_cpu=False) == ()
    assert disturbances(Conditions("settled", cores=16, windows={"device": moving}), on_cpu=False)
