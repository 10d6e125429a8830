"""The race between candidates, with scripted times and no device."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace

import pytest

from gemmbench.model.case import Case, Policy
from gemmbench.model.instrument import Bursts, ControlBurst, Handle, LostError, NotMeasuredError
from gemmbench.model.row import Parameters, Work
from gemmbench.probes import race as race_module
from gemmbench.probes.race import Race, doubling, trips_for, with_sampled_work
from tests.fake_instrument import FakeProbes, refusal
from tests.unit.test_plan import DEVICE

CASE = Case("peak", 0, "flops", "float", {})
POLICY = Policy()


def scripted(trip_s: float, form: str = "fma", unroll: int = 4) -> Parameters:
    return {"form": form, "unroll": unroll, "chains": 2, "seconds": trip_s}


def instrument(event_share: float = 1.0, build_s: float = 0.1) -> FakeProbes:
    return FakeProbes(
        trip_s=lambda candidate: float(candidate["seconds"]),
        unit=lambda candidate: Work(flops=100 * int(candidate["unroll"])),
        event_share=event_share,
        build_s=build_s,
    )


def race(fake: FakeProbes | None = None, hopeless: float = math.inf) -> Race:
    return Race(fake or instrument(), CASE, DEVICE, POLICY, hopeless)


def handle(trip_s: float, event_share: float = 1.0) -> Handle:
    case = Case("peak", 0, "flops", "float", scripted(trip_s))
    return instrument(event_share).prepare(case, DEVICE, POLICY)


def test_a_launch_is_made_as_long_as_wanted() -> None:
    assert trips_for(handle(1e-6), 0.01) == 10_000
    assert trips_for(handle(1.0), 0.01) == 1
    assert trips_for(handle(1e-6, event_share=1 / 70), 0.01) == 10_000  # by the wall clock then
    assert trips_for(handle(1e-18), 0.01) == 1 << 29  # twice as many still fit an int


def test_a_launch_has_the_work_that_a_probe_needs() -> None:
    fake = instrument()
    fake.trips = (50_000, 1 << 29)
    case = Case("bandwidth", 0, "working-set", "float", scripted(1e-6))
    assert trips_for(fake.prepare(case, DEVICE, POLICY), 0.01) == 50_000
    fake.trips = (4, 4)
    assert trips_for(fake.prepare(case, DEVICE, POLICY), 0.01) == 4


def test_visits_between_control_bursts_have_the_same_work() -> None:
    """The machine's speed differs from visit to visit."""
    bursts = Bursts(ControlBurst(1, "device", 1, 1))
    works = {with_sampled_work(replace(handle(trip_s), bursts=bursts)).work for trip_s in (0.8e-6, 1e-6)}
    assert works == {4096}
    assert {with_sampled_work(handle(trip_s)).work for trip_s in (0.8e-6, 1e-6)} == {12_500, 10_000}


def test_the_fastest_wins_by_its_operations() -> None:
    with race() as found:
        assert found.enter([scripted(1e-6), scripted(3e-6, unroll=16)])
        assert not found.enter([])
        assert [entry.choice["unroll"] for entry in found.ranked()] == [16, 4]
        assert found.best_rate == pytest.approx(1600 / 3e-6)


def test_unrolling_compares_the_same_candidate_at_another_depth() -> None:
    fake = instrument()
    fake.trip_s = lambda candidate: 5e-6 if candidate["form"] == "mad" else 1e-6
    with race(fake) as found:
        found.enter([scripted(0), scripted(0, unroll=16), scripted(0, "mad")])
        best, *_, worst = found.ranked()
        assert best.choice["unroll"] == 16
        # sixteen steps in the time of four: folded
        assert found.unrolling(best.handle, 1.15) == pytest.approx(4.0)
        assert worst.choice["form"] == "mad"
        assert found.unrolling(worst.handle, 1.15) is None


def test_the_best_rate_of_each_form_and_number_of_chains_is_shown() -> None:
    with race() as found:
        found.enter([scripted(1e-6), scripted(2e-6, "mad")])
        forms, chains = found.summary(form="variants", chains="chains")
    assert forms == "tried variants (G/s): fma 0.400, mad 0.200"
    assert chains == "tried chains (G/s): 2: 0.400"


def test_what_a_compiler_refuses_is_left_out() -> None:
    fake = instrument()
    fake.trip_s = lambda candidate: refusal("no fma") if candidate["form"] == "fma" else 1e-6
    with race(fake) as found:
        assert not found.enter([scripted(1e-6)])
        assert found.enter([scripted(1e-6), scripted(1e-6, "mad"), scripted(1e-6, "fma")])
        assert [entry.choice["form"] for entry in found.entries] == ["mad"]
        assert found.failure == "no fma"
        assert found.build_s == 0.1


@pytest.mark.parametrize(
    "error", [LostError("crashed", "gone"), NotMeasuredError("failed", "no memory", restart=True)]
)
def test_an_instrument_that_is_gone_ends_the_race(error: Exception) -> None:
    fake = instrument()
    fake.trip_s = lambda _: error
    with race(fake) as found, pytest.raises(type(error)):
        found.enter([scripted(1e-6)])


def test_candidates_share_operands_and_all_but_the_one_that_is_kept_are_given_back() -> None:
    fake = instrument()
    with race(fake) as found:
        found.enter([scripted(1e-6), scripted(2e-6), scripted(3e-6, unroll=16)])
        found.survivor = found.entries[1].handle
    assert [entry[3] for entry in fake.log if entry[0] == "prepare"] == [None, 0, 0]
    assert fake.released == {0, 2}
    assert found.build_s == pytest.approx(0.2)  # two of them are of one program


def test_a_hopeless_candidate_is_run_but_once_more() -> None:
    fake = instrument()
    with race(fake, hopeless=3.0) as found:
        fake.trips = (4, 4)
        found.enter([scripted(1e-6), scripted(4e-6), scripted(2e-6)])
        runs = [entry[1] for entry in fake.log if entry[0] == "batch"]
    assert [runs.count(number) for number in range(3)] == [3, 1, 3]


def test_the_final_is_run_with_the_work_that_is_sampled() -> None:
    fake = instrument()
    fake.trips = (4, 4)
    with race(fake) as found:
        found.enter([scripted(seconds * 1e-6) for seconds in (5, 2, 3, 4)])
        winner = found.final(3)
        assert winner.number == 1
        assert winner.work == 4
        work = [(entry[1], entry[4]) for entry in fake.log if entry[0] == "batch"]
        assert work.count((1, 1)) == work.count((1, 4)) == 3
        assert work.count((0, 4)) == 0  # it did not reach the final
        winner.batch("device", 1, work=2)
    assert [entry[4] for entry in fake.log if entry[0] == "batch"][-1] == 8


def test_the_note_has_each_choice_that_differed() -> None:
    with race() as found:
        found.enter([scripted(1e-6), scripted(1e-6)])
        assert found.note() == "tried (GB/s): one variant only"
        found.enter([scripted(2e-6, "mad")])
        expected = "tried (GB/s): form fma: 0.400, mad: 0.200; seconds 1e-06: 0.400, 2e-06: 0.200"
        assert found.note() == expected


@pytest.mark.parametrize(("budget_s", "runs"), [(0.005, 4), (0.05, 12), (0.3, 24), (10.0, 24)])
def test_a_smaller_budget_doubts_a_doubling_for_less_time(
    budget_s: float, runs: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pair of launches takes 30 ms. Six budgets, of at most 24 pairs."""
    fake = instrument()
    folded = fake.prepare(Case("peak", 0, "flops", "float", scripted(1e-6)), DEVICE, POLICY)
    fake.ignored_past = 15_000
    monkeypatch.setattr(race_module, "time", SimpleNamespace(perf_counter=fake.clock))
    assert doubling(folded, 10_000, 0.05, budget_s) == pytest.approx(1.5)
    assert sum(entry[0] == "batch" for entry in fake.log) == 2 * runs


def test_twice_the_work_differs_from_work_that_is_not_done() -> None:
    assert doubling(handle(1e-6), 10_000, 0.05, 1.0) == pytest.approx(2.0)
    fake = instrument()
    folded = fake.prepare(Case("peak", 0, "flops", "float", scripted(1e-6)), DEVICE, POLICY)
    fake.ignored_past = 10_000
    assert doubling(folded, 10_000, 0.05, 1.0) == pytest.approx(1.0)
    assert doubling(folded, 1000, 0.05, 1.0, launches=2) == pytest.approx(2.0)
