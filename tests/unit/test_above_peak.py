"""A GEMM above the measured peak: the peak is measured again, in turn with it, and never dropped."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import dataclass, field, replace
from typing import Any, cast

import pytest

from gemmbench.measure.sampling import in_turn
from gemmbench.model.case import Case, Finished, Policy, Skip, Staged
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Parameters, Row, Scope, Work
from gemmbench.suite import session
from tests import fake_runs as fake
from tests.fake_probes import FakeProbes, refusal

POLICY = Policy(budget_s=1.0, settle_s=0.0, batch_s=0.01, min_batches=3)
PROBLEM = Gemm(512, 512, 512)
CASE = Case("gemm", 0, "tiled", "float", {"TS": 32}, PROBLEM)
TRIP = 1000  # flops
PEAK = replace(
    fake.peak_row(4, 345.0),
    choice={"form": "a*b+c", "chains": 8, "unroll": 16, "trips": 7},
    measured_utc="2026-11-20T00:00:00+00:00",
)


@dataclass
class Child(FakeProbes):
    """Runs a GEMM that reaches `gemm` GFLOPS, and the peak's winner that reaches `peak` now."""

    gemm: float = 400.0
    peak: float = 344.0
    first: float = 400.0  # what the GEMM's own row shows
    asked: list[Parameters] = field(default_factory=list)
    __hash__ = object.__hash__

    def __post_init__(self) -> None:
        super().__post_init__()
        self.unit = lambda _: Work(flops=TRIP)
        self.trip_s = lambda candidate: (
            TRIP / self.peak / 1e9 if "unroll" in candidate else PROBLEM.flops / self.gemm / 1e9
        )

    def limit(self, seconds: float) -> None:
        assert seconds == POLICY.time_limit_s

    def run(self, case: Case, device: DeviceFacts, policy: Policy) -> Generator[Staged, None, Row]:
        yield Staged("timing")
        seconds = PROBLEM.flops / self.first / 1e9
        scope = Scope((seconds,) * 10, 1, "stable")
        return replace(case.row("ok"), samples={"kernel": scope}, check=Check("ok"))


@pytest.fixture(autouse=True)
def _clock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        session,
        "in_turn",
        lambda first, *rest: cast(Any, in_turn)(first, *rest, now=first.instrument.clock),
    )


def rows_of(child: Child, *steps: Case | Skip) -> list[Row]:
    plan = (Skip(PEAK), *(steps or (CASE,)))
    events = session.run(plan, [fake.CPU], POLICY, child)  # type: ignore[arg-type]
    return [event.row for event in events if isinstance(event, Finished)]


def test_a_row_below_the_peak_is_left_alone() -> None:
    child = Child(first=340.0)
    assert len(rows_of(child)) == 2
    assert child.log == []


def test_a_row_that_stays_above_the_peak_is_suspect_and_the_peak_stays() -> None:
    child = Child()
    peak, row = rows_of(child)
    assert peak == PEAK
    assert (row.status, row.check.verdict) == ("ok", "suspect")
    assert row.check.reasons == (
        "400 GFLOPS is above the measured peak of 345 GFLOPS; in turn with it the peak was 344 GFLOPS and "
        "this row 400 GFLOPS",
    )
    winner = child.candidates[1]
    assert winner == {"width": 4, "form": "a*b+c", "chains": 8, "unroll": 16, "kernels": 1 << 8}
    assert child.released == {0, 1}
    order = [entry[1] for entry in child.log if entry[0] == "batch"][-8:]
    assert set(zip(order[::2], order[1::2], strict=True)) == {(0, 1), (1, 0)}


def test_a_peak_that_was_measured_while_the_machine_was_slow_rises() -> None:
    _, peak, row = rows_of(Child(peak=420.0))
    assert peak.supersedes
    assert peak.key == PEAK.key
    assert peak.measured_utc == ""
    assert peak.work is not None
    assert peak.work.flops / min(peak.samples["kernel"].seconds) == pytest.approx(420e9)
    assert peak.notes[-1] == "measured again, in turn with tiled float 512x512x512, which was above it"
    assert (row.check.verdict, row.notes) == ("ok", ())


def test_a_row_that_is_not_above_it_in_turn_has_a_note() -> None:
    _, row = rows_of(Child(gemm=340.0))
    assert row.check.verdict == "ok"
    assert "in turn with it the peak was 344 GFLOPS and this row 340 GFLOPS" in row.notes[0]


def test_a_peak_that_cannot_be_measured_again_leaves_the_row_suspect() -> None:
    child = Child()
    honest = child.trip_s
    child.trip_s = lambda entry: refusal("no registers") if "unroll" in entry else honest(entry)
    _, row = rows_of(child)
    assert row.check.verdict == "suspect"
    assert row.check.reasons[0].endswith("which could not be measured again: no registers")


def test_the_peak_is_measured_again_three_times_at_most() -> None:
    child = Child()
    cases = [replace(CASE, parameters={"TS": size}) for size in (4, 8, 16, 32, 64)]
    rows = rows_of(child, *cases)[1:]
    assert [row.check.verdict for row in rows] == ["suspect"] * 5
    assert len([entry for entry in child.candidates if "unroll" in entry]) == 3
    assert "measured again with others" in rows[-1].check.reasons[0]
