"""The interval of the median, and of a ratio of batches that alternate."""

from __future__ import annotations

import math

import numpy as np
import pytest

from gemmbench.model.instrument import LEAST_SAMPLES
from gemmbench.stats.intervals import Interval, interleaved_ratio, summarize


@pytest.mark.parametrize("count", [20, 60, 150])
@pytest.mark.parametrize("correlation", [0.0, 0.5, 0.8])
def test_the_interval_holds_the_true_median(correlation: float, count: int) -> None:
    """Also where each sample resembles the one before it; of 20 at 0.8, the full range holds it in 96 %."""
    rng, trials = np.random.default_rng(1), 1000
    noise = rng.normal(size=(trials, count))
    noise[:, 1:] *= math.sqrt(1 - correlation**2)
    for place in range(1, count):
        noise[:, place] += correlation * noise[:, place - 1]
    found = [summarize(row.tolist()) for row in np.exp(0.05 * noise)]
    held = sum(each.low <= 1.0 <= each.high for each in found)
    sampling_error = math.sqrt(0.93 * 0.07 / trials)
    assert held / trials >= 0.93 - 2 * sampling_error
    if correlation == 0:  # and it is no wider than it must be
        assert held < trials
        assert np.mean([each.noise for each in found]) < 0.05 * 4 / math.sqrt(count)


@pytest.mark.parametrize("count", [1, 2, 3, 5])
def test_below_six_samples_the_interval_is_their_full_range(count: int) -> None:
    samples = [3.0, 1.0, 5.0, 2.0, 4.0][:count]
    found = summarize(samples)
    assert (found.low, found.high, found.n) == (min(samples), max(samples), count)
    assert math.isinf(found.noise) == (count < LEAST_SAMPLES)


def test_the_ends_are_order_statistics() -> None:
    """The second and the last but one of nine samples hold the median in 96 %."""
    for count, rank in ((8, 0), (9, 1), (16, 3)):
        found = summarize([float(number) for number in range(1, count + 1)])
        assert (found.low, found.high) == (1 + rank, count - rank)
        assert (found.median, found.minimum) == ((count + 1) / 2, 1)


def test_thousands_of_samples_have_an_interval() -> None:
    found = summarize(np.random.default_rng(1).permutation(np.arange(1.0, 3000)).tolist())
    assert found.low == pytest.approx(1500 - 0.98 * math.sqrt(3000), abs=9)


@pytest.mark.parametrize("count", [3, 10, 30])
def test_samples_that_are_equal_have_no_noise(count: int) -> None:
    assert summarize([0.25] * count).noise == 0


@pytest.mark.parametrize("count", [1, 4, 40])
def test_no_interval_is_narrower_than_the_timers_resolution(count: int) -> None:
    found = summarize([1.0] * count, resolution=0.1)
    assert (found.low, found.high) == pytest.approx((0.95, 1.05))
    wide = [1.0, 2.0] * count
    assert summarize(wide, resolution=0.1) == summarize(wide)


@pytest.mark.parametrize("samples", [(), (1.0, math.nan), (1.0, 0.0), (-1.0,), (math.inf,)])
def test_what_is_not_a_time_is_refused(samples: tuple[float, ...]) -> None:
    with pytest.raises(ValueError, match="sample"):
        summarize(samples)


# --- batches that alternate ---------------------------------------------------------------------------------


def alternating(ratio: float, pairs: int, order: float = 0.0, drift: float = 0.0) -> tuple[list[float], ...]:
    """Seconds of both sides; the later one of a pair takes longer, and so do the batches with time."""
    sides: tuple[list[float], ...] = ([], [])
    for pair in range(pairs):
        for place in range(2):
            side = (pair + place + 1) % 2  # the second side begins
            slower = (1 + order * place) * (1 + drift * (2 * pair + place) / (2 * pairs))
            sides[side].append((1.0 if side else ratio) * slower)
    return sides


@pytest.mark.parametrize("pairs", [6, 10, 60])
def test_a_ratio_is_free_of_the_order_and_of_drift(pairs: int) -> None:
    found = interleaved_ratio(*alternating(0.9, pairs, order=0.03, drift=0.3))
    assert found.median == pytest.approx(0.9, rel=1e-3)
    assert found.noise < 0.001
    assert found.n == pairs // 2


def test_one_pair_is_a_ratio_too() -> None:
    assert interleaved_ratio([3.0], [2.0]).median == 1.5


def test_sides_of_different_length_are_refused() -> None:
    with pytest.raises(ValueError, match="shorter"):
        interleaved_ratio([1.0, 1.0], [1.0])


@pytest.mark.parametrize(
    ("low", "high", "finding"),
    [
        (1.11, 1.3, "slower"),
        (0.5, 0.89, "faster"),
        (0.91, 1.09, "unchanged"),
        (0.9, 1.1, "unchanged"),
        (1.09, 1.3, "cannot tell"),
        (0.85, 0.95, "cannot tell"),
        (0.5, 2.0, "cannot tell"),
        (math.nan, math.nan, "cannot tell"),
    ],
)
def test_a_finding_holds_for_the_whole_interval(low: float, high: float, finding: str) -> None:
    assert Interval((low + high) / 2, low, high).finding(0.1) == finding


def test_without_a_threshold_a_finding_is_the_order_of_two_figures() -> None:
    slow, fast, wide = Interval(10, 9, 11), Interval(20, 18, 22), Interval(15, 10, 21)
    assert slow.over(fast) == Interval(0.5, 0.5 * 18 / 22, 0.5 * 22 / 18)
    found = [one.over(other).finding(0) for one, other in ((fast, slow), (slow, fast), (wide, slow))]
    assert found == ["slower", "faster", "cannot tell"]


@pytest.mark.parametrize("width", [0.01, 0.1, 0.3])
def test_a_change_above_the_smallest_slowdown_is_found(width: float) -> None:
    unchanged = Interval(1.0, 1 - width, 1 + width)
    least = 1 + unchanged.smallest_slowdown(0.05)
    for factor, finding in ((1.001 * least, "slower"), (0.999 * least, "cannot tell")):
        assert Interval(factor, factor * (1 - width), factor * (1 + width)).finding(0.05) == finding
