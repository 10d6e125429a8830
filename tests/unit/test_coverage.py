"""Intervals hold the true median as often as they say, though neighbouring batches are alike."""

from __future__ import annotations

import math
import time

import numpy as np
import pytest

from gemmbench.stats import intervals
from tools.interval_coverage import autoregressive, simulate

_ROWS = 150
_TRUE = 0.93  # of the intervals that are drawn


@pytest.mark.parametrize("correlation", [0.0, 0.3, 0.5, 0.7, 0.9])
@pytest.mark.parametrize("spread", [0.003, 0.02])
def test_intervals_that_are_drawn_hold_the_true_median(correlation: float, spread: float) -> None:
    """A plain bootstrap held it in 76 % at 0.3 and in a quarter at 0.9."""
    seen = simulate(correlation, spread, 150, _ROWS)
    allowed = 2 * math.sqrt(_TRUE * (1 - _TRUE) * seen.drawn)  # by chance
    assert seen.held >= _TRUE * seen.drawn - allowed


def test_four_of_five_rows_have_an_interval_where_the_correlation_is_a_half() -> None:
    for limit in (100, 150):
        assert simulate(0.5, 0.01, limit, _ROWS).share >= 0.8


def test_a_row_that_looks_good_by_chance_in_few_batches_has_no_interval() -> None:
    """Of these 500 rows of 60 batches 18 had an interval, of which 15 held the true median."""
    seen = simulate(0.9, 0.01, 60, 500, seed=7)
    assert seen.drawn >= 5
    assert seen.held >= _TRUE * seen.drawn


def test_few_rows_have_an_interval_where_hardly_any_batch_tells_anything_new() -> None:
    assert simulate(0.9, 0.01, 60, _ROWS).share <= 0.1


@pytest.mark.parametrize("samples", [(1.0, 1.01, 1.02), (1.0,) * 7, (1.0, 1.01) * 4])
def test_too_few_samples_have_no_interval(samples: tuple[float, ...]) -> None:
    summary = intervals.summarize(samples)
    assert summary.is_few
    assert summary.noise == math.inf
    assert not summary.is_above(0.1)
    assert not summary.is_below(10.0)


def test_the_estimate_of_the_correlation_is_not_too_low() -> None:
    """From 20 samples the plain estimate of 0.5 is 0.34 on average."""
    series = autoregressive(0.5, 2000, 20, np.random.default_rng(1))
    assert np.mean([intervals.correlation(values) for values in series]) == pytest.approx(0.5, abs=0.07)


def test_an_outlier_does_not_hide_that_neighbours_are_alike() -> None:
    series = autoregressive(0.8, 50, 100, np.random.default_rng(2))
    series[:, 50] += 100
    assert np.mean([intervals.correlation(values) for values in series]) > 0.7


def test_a_look_costs_less_than_a_millisecond() -> None:
    looks = np.random.default_rng(3).lognormal(0, 0.01, (200, 150))
    intervals.summarize(looks[0])
    begin = time.process_time()
    for samples in looks[1:]:
        intervals.summarize(samples)
    assert (time.process_time() - begin) / 199 < 2e-3  # on a busy machine
