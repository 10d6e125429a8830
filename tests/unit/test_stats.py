from __future__ import annotations

import math

import numpy as np
import pytest

from gemmbench.stats import intervals
from tools.interval_coverage import autoregressive


def test_the_interval_holds_the_median_and_narrows_with_more_samples() -> None:
    rng = np.random.default_rng(1)
    few = intervals.summarize(tuple(rng.normal(1, 0.05, 40)))
    many = intervals.summarize(tuple(rng.normal(1, 0.05, 300)))
    for found in (few, many):
        assert found.low <= found.median <= found.high
        assert found.minimum <= found.low
    assert many.noise < few.noise


def test_ninety_five_of_a_hundred_intervals_hold_the_true_median() -> None:
    rng = np.random.default_rng(2)
    held = 0
    for _ in range(100):
        found = intervals.summarize(tuple(rng.lognormal(0, 0.1, 60)))
        held += found.low <= 1.0 <= found.high
    assert held >= 93


@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.9])
def test_the_intervals_of_means_hold_the_true_mean(correlation: float) -> None:
    """Of a row that power limits: some hundred batches, each like the one before it."""
    rng = np.random.default_rng(7)
    noise = autoregressive(correlation, 600, 300, rng)
    found = [intervals.mean_of_spans(1 + 0.01 * row) for row in noise]
    reaches = [intervals.student(intervals.CONFIDENCE, each.freedom) * each.error for each in found]
    held = [abs(each.value - 1) <= reach for each, reach in zip(found, reaches, strict=True)]
    assert sum(held) >= 0.93 * len(held)
    assert max(reaches) < 0.03


def test_a_mean_does_not_jump_from_one_step_of_a_clock_to_the_next() -> None:
    """Clocks of two levels 1 % apart, for 49 % of the time or for 51 %: the medians lie 1 % apart."""
    rows = [np.tile(np.where(np.arange(100) < share, 1.0, 1.01), 4).tolist() for share in (49, 51)]
    slow, fast = (intervals.summarize(row).median for row in rows)
    assert slow / fast == pytest.approx(1.01)
    slow, fast = (intervals.summarize(row, by_mean=True).median for row in rows)
    assert slow / fast == pytest.approx(1.0, abs=2.1e-4)
    assert intervals.summarize(rows[0], by_mean=True).noise < 0.01


def test_the_mean_of_few_samples_has_no_interval() -> None:
    assert intervals.summarize((1.0, 1.01, 1.0, 1.01, 1.0), by_mean=True).is_few
    assert not intervals.summarize((1.0, 1.01) * 3, by_mean=True).is_few


def test_the_same_samples_give_the_same_interval() -> None:
    samples = tuple(np.random.default_rng(3).uniform(1, 2, 40))
    assert intervals.summarize(samples) == intervals.summarize(list(samples))


def test_two_samples_have_no_noise_figure() -> None:
    assert intervals.summarize((1.0, 1.0)).noise == math.inf


@pytest.mark.parametrize("samples", [(), (1.0, math.nan), (1.0, 0.0), (-1.0,), (math.inf,)])
def test_what_is_not_a_time_is_refused(samples: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match=r"sample"):
        intervals.summarize(samples)


def test_drift_and_humps_are_seen() -> None:
    rng = np.random.default_rng(4)
    steady = rng.normal(1, 0.005, 60)
    assert intervals.drift(list(steady)) == 0
    assert intervals.drift(list(steady * np.linspace(1, 1.3, 60))) == pytest.approx(0.2, abs=0.05)
    assert intervals.drift(list(steady * np.linspace(1.3, 1, 60))) == pytest.approx(-0.16, abs=0.05)
    assert intervals.drift((1.0, 1.0, 1.5, 1.5)) == 0  # too few to tell
    assert not intervals.two_humped(list(steady))
    assert intervals.two_humped(list(np.where(np.arange(60) % 2, steady, steady * 1.2)))
    assert not intervals.two_humped((1.0, 2.0, 3.0))
    assert intervals.two_humped((1.0, 1.0, 1.0, 1.1, 1.1, 1.1, 1.0, 1.1, 1.1))


@pytest.mark.parametrize("count", [9, 12, 20, 60])
def test_noise_alone_is_seldom_taken_for_a_trend_or_for_two_humps(count: int) -> None:
    rng = np.random.default_rng(5)
    runs = [rng.normal(1, 0.05, count) for _ in range(300)]
    assert sum(intervals.drift(list(run)) != 0 for run in runs) <= 0.1 * len(runs)
    assert sum(intervals.two_humped(list(run)) for run in runs) <= 0.1 * len(runs)


def test_quantiles_are_numpys_to_the_last_bit() -> None:
    rng = np.random.default_rng(4)
    for size in range(1, 200):
        samples = np.round(rng.lognormal(size=size), size % 3 + 1) * 1e-6
        ordered, share = sorted(samples.tolist()), float(rng.choice([0.0, 0.5, 1.0, rng.random()]))
        linear, hazen = (size - 1) * share, size * share + 0.5 - 1
        assert intervals._between(ordered, linear) == np.quantile(samples, share)
        assert intervals._between(ordered, hazen) == np.quantile(samples, share, method="hazen")
