"""Statistics of samples, and the intervals that every figure comes with: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
RESAMPLES = 999
SEED = 20261121  # the same samples give the same interval, in every table and on every machine
LEAST_SAMPLES = 3  # with fewer there is no telling how uncertain their median is
_MOST_CORRELATED = 0.9  # an estimate from ten samples says no more than this
_CLEAR = 1.5  # groups this many of their spreads apart differ: noise alone does so in one row of fifty


@dataclass(frozen=True)
class Interval:
    """A figure with the ends of its 95 % confidence interval; a ratio of speeds is above 1 where faster."""

    median: float
    low: float
    high: float

    def is_above(self, value: float) -> bool:
        """Whether the whole interval is."""
        return self.low > value

    def is_below(self, value: float) -> bool:
        """Whether the whole interval is."""
        return self.high < value


@dataclass(frozen=True)
class Summary(Interval):
    """What is shown of one list of samples, in the samples' own unit."""

    n: int
    minimum: float

    @property
    def noise(self) -> float:
        """Half the confidence interval's width as a fraction of the median; infinite if it is not known."""
        if self.n < 3 or self.median <= 0:
            return math.inf
        return (self.high - self.low) / 2 / self.median


def summarize(samples: Sequence[float]) -> Summary:
    """Median, minimum and the bootstrap interval of the median.

    With fewer than three samples there is no interval: its ends are the extremes and `noise` is infinite.

    Raises:
        ValueError: there are no samples, or one is not a positive finite number.
    """
    return _summarize(tuple(samples))


@lru_cache(maxsize=4096)
def _summarize(samples: tuple[float, ...]) -> Summary:
    values = np.asarray(samples, dtype=float)
    if values.size == 0:
        raise ValueError("no samples")
    if not (np.isfinite(values) & (values > 0)).all():
        raise ValueError("a sample is not a positive finite number")
    low, high = float(values.min()), float(values.max())
    if values.size >= 3 and low < high:
        _, low, high, _ = resampled(values)
    return Summary(float(np.median(values)), low, high, values.size, float(values.min()))


class Resampled(NamedTuple):
    """Medians of samples drawn anew from the same ones, and what they say of the samples' own median."""

    medians: npt.NDArray[np.float64]
    low: float  # ends of its 95 % confidence interval, by the percentile method
    high: float
    error: float  # its standard error


def resampled(
    values: npt.NDArray[np.float64], random: int | np.random.Generator = SEED, times: int = RESAMPLES
) -> Resampled:
    """The bootstrap of the median (scipy's).

    Args:
        values: two or more.
        random: a seed, or a generator that goes on from one call to the next.
        times: how often samples are drawn anew.
    """
    from scipy.stats import bootstrap  # half a second to import, so only when needed

    drawn = bootstrap(
        (values,),
        np.median,
        confidence_level=CONFIDENCE,
        n_resamples=times,
        method="percentile",
        random_state=random,
    )
    interval = drawn.confidence_interval
    return Resampled(
        drawn.bootstrap_distribution, float(interval.low), float(interval.high), float(drawn.standard_error)
    )


@dataclass(frozen=True)
class Measure:
    """A figure as a logarithm, and how uncertain it is: what may be added, and held against a noise floor."""

    value: float  # natural logarithm of the seconds for one unit of work, or of the ratio of two such
    error: float  # standard error of the value as its own samples tell it; infinite if they are too few
    freedom: float  # degrees of freedom of the error

    def over(self, other: Measure) -> Measure:
        """The ratio of this to another figure of the same run."""
        return Measure(
            self.value - other.value, math.hypot(self.error, other.error), min(self.freedom, other.freedom)
        )

    def interval(self) -> Interval:
        """The figure itself, no longer its logarithm."""
        half = student(CONFIDENCE, self.freedom) * self.error
        high = self.value + half
        low = math.exp(self.value - half)
        return Interval(math.exp(self.value), low, math.exp(high) if high < 700 else math.inf)


EXACT = Measure(0.0, 0.0, math.inf)
"""What a ratio to a former self is held against: 1, which no noise has."""


@lru_cache(maxsize=65536)
def log_median(samples: tuple[float, ...]) -> Measure:
    """The median of the samples' logarithms.

    The error is the bootstrap's of the median, which asks nothing of the samples' distribution; a rank
    test would give a verdict, but no error to add to the noise from run to run. The bootstrap draws as if
    batches were independent. They are not: a batch resembles the one before it. So that the error is widened
    by what their correlation leaves of their number, n (1 - r) / (1 + r).
    """
    logs = np.log(np.asarray(samples, dtype=float))
    centre = float(np.median(logs))
    if logs.size < LEAST_SAMPLES:
        return Measure(centre, math.inf, 1.0)
    kept = (1 - (correlation := _correlation(logs))) / (1 + correlation)
    freedom = max(2.0, logs.size * kept - 1)
    if not np.ptp(logs):
        return Measure(centre, 0.0, freedom)
    return Measure(centre, resampled(logs).error / math.sqrt(kept), freedom)


def ratio_in_turn(first: Sequence[float], second: Sequence[float]) -> Measure:
    """Batches over those that were taken in turn with them: the mean of the two orders' medians.

    The order alternates from pair to pair, so that what comes second in a pair is no change; and a speed
    change of the machine that lasts longer than two batches is in both, so that the ratio is free of it.

    Args:
        first: seconds, pair by pair.
        second: of the other in each pair.
    """
    ratios = tuple(batch / other for batch, other in zip(first, second, strict=True))
    orders = (ratios[::2], ratios[1::2]) if len(ratios) >= 2 * LEAST_SAMPLES else (ratios,)
    return mean([log_median(order) for order in orders])


def _correlation(logs: np.ndarray) -> float:
    """Of each sample with the one before it; 0 where it is negative, which narrows nothing."""
    around = logs - logs.mean()
    total = float(around @ around)
    if total == 0:
        return 0.0
    # 1 / n: independent samples have a correlation of -1 / n, since their own mean is taken off
    return min(max(float(around[1:] @ around[:-1]) / total + 1 / logs.size, 0.0), _MOST_CORRELATED)


def mean(measures: Sequence[Measure]) -> Measure:
    """The mean of figures taken beside each other, as of the two controls around a row."""
    count = len(measures)
    return Measure(
        sum(measure.value for measure in measures) / count,
        math.sqrt(sum(measure.error**2 for measure in measures)) / count,
        sum(measure.freedom for measure in measures),
    )


@lru_cache(maxsize=4096)
def student(confidence: float, freedom: float) -> float:
    """Student's two-sided quantile."""
    from scipy.stats import t

    return float(t.ppf((1 + confidence) / 2, freedom))


def quantile(samples: Sequence[float], share: float) -> float:
    """The value that a share of the samples does not exceed, in their own unit."""
    return float(np.quantile(np.asarray(samples, dtype=float), share))


def drift(samples: Sequence[float]) -> float:
    """How much slower the last third of the samples is than the first, as a fraction (negative: faster).

    0 where the spread within the two thirds explains their difference, or there are fewer than nine samples.
    """
    third = len(samples) // 3
    if third < 3:
        return 0.0
    first, last = samples[:third], samples[-third:]
    before, after = float(np.median(first)), float(np.median(last))
    return after / before - 1 if abs(after - before) > _CLEAR * (_spread(first) + _spread(last)) else 0.0


def two_humped(samples: Sequence[float]) -> bool:
    """Whether the samples fall into two clusters: a gap inside that dwarfs the spread on either side.

    The gap must be wider than 3 % of the median and clearly wider than the spread of both sides together,
    and leave at least a fifth of the samples, and three, on each side.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    edge = max(3, ordered.size // 5)
    if ordered.size < 3 * edge:
        return False
    gaps = np.diff(ordered)
    inner = gaps[edge - 1 : ordered.size - edge]
    cut = edge + int(np.argmax(inner))
    spread = _spread(ordered[:cut]) + _spread(ordered[cut:])
    return bool(inner.max() > max(0.03 * float(np.median(ordered)), _CLEAR * spread))


def _spread(samples: npt.ArrayLike) -> float:
    """From the first quartile to the third."""
    return float(np.subtract(*np.percentile(np.asarray(samples), (75, 25))))
