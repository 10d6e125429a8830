"""The race between candidates, with scripted times and no device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from gemmbench.opencl.launching import Launcher
from gemmbench.opencl.racing import Contender, Race
from gemmbench.opencl.timing import Elapsed

LAUNCHER = Launcher(None, None, 1, 1)


@dataclass(frozen=True)
class Scripted(Contender):
    """One that takes so many seconds for a trip, and whose event clock shows a share of them."""

    trip_s: float = 1e-6
    event_share: float = 1.0

    def run(self, trips: int, count: int = 1) -> Elapsed:
        wall = trips * self.trip_s
        return Elapsed(wall * self.event_share, wall)


def scripted(trip_s: float, form: str = "fma", unroll: int = 4, event_share: float = 1.0) -> Scripted:
    choice = {"form": form, "unroll": unroll, "chains": 2}
    return Scripted(LAUNCHER, (), choice, 100 * unroll, unroll, trip_s, event_share)


def test_a_launch_is_made_as_long_as_wanted() -> None:
    assert scripted(1e-6).trips_for(0.01) == 10_000
    assert scripted(1.0).trips_for(0.01) == 1
    assert scripted(1e-6, event_share=1 / 70).trips_for(0.01) == 10_000  # by the wall clock then
    assert scripted(1e-18).trips_for(0.01) == 1 << 29  # twice as many still fit an int


def test_the_fastest_wins_by_its_operations() -> None:
    race = Race(1.0)
    assert race.enter(lambda: [scripted(1e-6), scripted(3e-6, unroll=16)])
    assert not race.enter(list)
    assert [contender.steps for contender in race.ranked()] == [16, 4]
    assert race.best_rate == 1600 / 3e-6
    assert len(race.close_to_best(0.97)) == 1
    assert len(race.close_to_best(0.7)) == 2


def test_a_spent_budget_keeps_the_rest_out_but_for_evidence() -> None:
    times: Iterator[float] = iter([0.0, 0.5, 2.0, 3.0])
    race = Race(1.0, clock=lambda: next(times))
    assert race.enter(lambda: [scripted(1e-6)])  # the first is timed whatever it costs
    assert race.enter(lambda: [scripted(2e-6, "mad")])
    assert not race.enter(lambda: [scripted(1e-9, "late")])
    assert race.enter(lambda: [scripted(4e-6, unroll=16)], late=True)
    assert {contender.choice["form"] for contender in race.ranked()} == {"fma", "mad"}
    forms, chains = race.summary(form="forms", chains="chains")
    (cut,) = race.notes
    assert forms == "raced forms (G/s): fma 0.400, mad 0.200"
    assert chains == "raced chains (G/s): 2: 0.400"
    assert "cut short" in cut


def test_unrolling_is_told_for_the_same_contender_at_another_depth() -> None:
    race = Race(1.0)
    race.enter(lambda: [scripted(1e-6), scripted(1e-6, unroll=16), scripted(5e-6, "mad")])
    best, *_, worst = race.ranked()
    assert best.steps == 16
    assert race.unrolling(best) == 4.0  # sixteen steps in the time of four: folded
    assert worst.choice["form"] == "mad"
    assert race.unrolling(worst) is None
