"""When a row is warm, how long a batch is and when there are enough: on a scripted instrument and clock."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace

import numpy as np
import pytest

from gemmbench.measure.sampling import Sampled, alone, batch_size
from gemmbench.model.case import Policy
from gemmbench.stats.intervals import summarize
from tests.fake_instrument import LIMITED, FakeInstrument, HotDevice, HotWatch

POLICY = Policy(batch_s=0.01)
NOISY = (1.0, 1.5)  # times as long as it should take: these are never stable


def sampled(
    seconds: float | Iterable[float],
    budget_s: float = POLICY.budget_s,
    warm_s: float = 0.05,
    clock: str = "device",
    warm: bool = True,
    one_s: float = 0.0,
) -> tuple[int, Sampled]:
    """How many batches ran altogether, and the samples."""
    script = seconds if isinstance(seconds, Iterable) else itertools.repeat(seconds)
    fake = FakeInstrument(seconds={"naive": script}, watch=HotWatch(warm_s=warm_s))
    found = alone(fake.ready(), clock, POLICY, budget_s, warm, one_s, fake.clock)
    return sum(entry[0] == "batch" for entry in fake.log), found


def warm_s(found: Sampled) -> float:
    return found.conditions.warm_s


# --- warm-up ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted_s", [0.05, 0.1])
def test_a_row_is_warmed_up_with_its_own_work(wanted_s: float) -> None:
    _, found = sampled(0.002, warm_s=wanted_s)
    assert wanted_s <= found.batches[0].begin <= wanted_s + 2 * POLICY.batch_s
    assert warm_s(found) == pytest.approx(found.batches[0].begin)


def test_a_warm_up_is_at_least_one_problem() -> None:
    count, found = sampled(0.2)
    assert count - len(found.batches) == 1
    assert warm_s(found) == 0.2


@pytest.mark.parametrize(("one_s", "is_warm"), [(0.2, True), (0.08, False), (0.0, False)])
def test_a_long_problem_that_just_ran_is_warm_up_enough(one_s: float, is_warm: bool) -> None:
    count, found = sampled(one_s or 0.2, warm_s=0.1, one_s=one_s)
    assert (count == len(found.batches)) == is_warm
    assert (warm_s(found) == 0) == is_warm


def test_the_second_scope_of_a_row_is_not_warmed_up() -> None:
    count, found = sampled(0.012, warm=False)
    assert count == len(found.batches) + 1  # one shows how long a problem takes
    count, found = sampled(0.012, warm=False, one_s=0.012)
    assert count == len(found.batches)


# --- batches ------------------------------------------------------------------------------------------------


def test_a_batch_is_ten_milliseconds_or_one_problem() -> None:
    assert batch_size(0.0001, POLICY) == 100
    assert batch_size(0.006, POLICY) == 2
    assert batch_size(0.15, POLICY) == 1
    assert batch_size(1e-9, POLICY) == batch_size(0.0, POLICY) == 1000


@pytest.mark.parametrize("first_s", [1e-4, 0.02])
def test_batches_are_long_whatever_the_first_problem_took(first_s: float) -> None:
    _, found = sampled(itertools.chain([first_s], itertools.repeat(1e-4)))
    assert found.size == pytest.approx(100, abs=1)


def test_all_scopes_of_a_batch_are_kept() -> None:
    _, found = sampled(0.001)
    for name in ("kernel", "device"):
        scope = found.scopes[name]
        assert (scope.seconds, scope.batch, scope.stop) == ((0.001,) * 10, 10, "stable")
    assert list(sampled(0.001, clock="host")[1].scopes) == ["host"]


def test_a_scope_knows_the_resolution_of_its_timer() -> None:
    fake = FakeInstrument()
    fake.watch.tick_s = 1e-6
    found = alone(fake.ready(), "device", POLICY, 0.3, now=fake.clock)
    assert found.scopes["kernel"].tick_s == pytest.approx(1e-6 / found.size)


# --- when there are enough ----------------------------------------------------------------------------------


def test_steady_samples_stop_at_ten() -> None:
    _, found = sampled(0.001, budget_s=10)
    assert (found.stop, len(found.batches)) == ("stable", 10)


def test_sampling_stops_as_soon_as_the_median_is_known_within_one_percent() -> None:
    noise = np.random.default_rng(1).normal(1, 0.02, 1000)
    _, found = sampled(iter((0.002 * noise).tolist()), budget_s=10)
    seconds = found.scopes["kernel"].seconds
    assert found.stop == "stable"
    assert len(seconds) > 11
    assert summarize(seconds).noise <= POLICY.precision < summarize(seconds[:-1]).noise


def test_noisy_samples_use_the_budget() -> None:
    _, found = sampled((0.01 * each for each in itertools.cycle(NOISY)), budget_s=1.0)
    assert found.stop == "budget"
    assert found.batches[-1].end - found.batches[0].begin == pytest.approx(1.0, abs=0.02)


@pytest.mark.parametrize(("seconds", "batches"), [(0.002, 10), (0.019, 10), (0.05, 3), (1.5, 3)])
def test_there_are_ten_batches_if_the_fastest_fit_in_the_rows_budget_and_never_fewer_than_three(
    seconds: float, batches: int
) -> None:
    """The row's budget is 0.2 s; of it, this scope has 0.02 s left."""
    _, found = sampled((seconds * each for each in itertools.cycle(NOISY)), budget_s=0.02)
    assert (found.stop, len(found.batches)) == ("budget", batches)


def test_a_sample_that_is_not_a_time_is_refused() -> None:
    with pytest.raises(ValueError, match="positive finite"):
        sampled(math.nan, one_s=0.2)


# --- a power limit ------------------------------------------------------------------------------------------


def hot(clock: str = "device", warm: bool = True, limited_s: float = 0.15) -> Sampled:
    fake = FakeInstrument()
    device = HotDevice(fake, limited_s / 3, limited_s)
    fake.watch = HotWatch(device)
    fake.seconds["naive"] = device.seconds(0.002)
    return alone(fake.ready(), clock, POLICY, POLICY.budget_s, warm, now=fake.clock)


def test_a_row_that_power_limits_is_warmed_up_and_sampled_again() -> None:
    found = hot()
    assert found.conditions.power_limited
    assert set(found.scopes["kernel"].seconds) == {0.002 * LIMITED}
    assert 2.1 < warm_s(found) < 2.4
    assert 1.0 <= found.batches[-1].end - found.batches[0].begin < 1.1


@pytest.mark.parametrize(
    ("load", "last", "is_limited"),
    [
        ("naive half", ("", 0.0, 0.0), True),  # it is sampled for 0.1 s more, until NVML has reported
        ("", ("", 0.0, 0.0), False),  # float, which no device limits
        ("naive half", ("naive half", -0.3, -0.05), False),  # the limit would have been known before
        ("naive half", ("naive half", -0.3, -0.15), True),  # but the device rested since
        ("naive half", ("tiled half", -0.3, -0.05), True),  # it was another kernel's
    ],
)
def test_a_row_is_sampled_until_a_limit_would_be_known(
    load: str, last: tuple[str, float, float], is_limited: bool
) -> None:
    """On an H200, NVML reports the limit up to 0.19 s after the load began: rows of 0.15 s ended before."""
    fake = FakeInstrument()
    fake.watch = HotWatch(HotDevice(fake, 0.01, 0.05), warm_s=0.05, reported_s=0.19)
    fake.watch.limit_s, fake.watch.load = 0.2, last
    result = alone(replace(fake.ready(), load=load), "device", POLICY, POLICY.budget_s, now=fake.clock)
    assert result.conditions.power_limited == is_limited
    assert fake.watch.load[0] == load


def test_a_row_is_sampled_once_where_nothing_limits_it() -> None:
    for found in (hot(limited_s=9), hot("host")):  # between transfers a device rests
        assert not found.conditions.power_limited
        assert warm_s(found) < 0.2


def test_the_second_scope_of_a_limited_row_is_sampled_as_it_is() -> None:
    found = hot(warm=False)
    assert found.conditions.power_limited
    assert warm_s(found) < 0.1
