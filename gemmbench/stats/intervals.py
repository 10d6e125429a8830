"""Statistics of samples, and the intervals that every figure comes with: pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
RESAMPLES = 999
SEED = 20261121  # the same samples give the same interval, in every table and on every machine
LEAST_SAMPLES = 3  # with fewer the uncertainty of the median is unknown
LEAST_EFFECTIVE = 8.0  # independent samples that a row's are worth; with fewer its interval is not shown
_MOST_CORRELATED = 0.9  # of an error that is added to others: from ten samples says no more than this
_ALIKE = 0.99  # the strongest correlation that is reckoned with

# Standard errors that are added to the correlation of neighbouring samples: before a row has an interval, and
# for the interval's width. Without them those rows would have intervals whose estimate is too low by chance.
# Chosen by simulation. From few samples more are added before a row has
# an interval: a row stops early that looks good by chance, and at a correlation of 0.9 one in forty does.
_DOUBT, _MORE_DOUBT = 1.5, 1.0
_FEW_FROM, _FEW_TO = 20, 60  # samples, between which the second falls to 0
_CAUTION = 3.0
_SPANS = 3  # that the samples of a mean are cut into
# Standard deviation of such means from process to process: an H200's power limit allows a hotter chip less,
# and its neighbours heat it.
_FROM_RUN_TO_RUN = 0.003
_CORRELATED_FROM = 20  # samples, from which their correlation can be estimated
_CLEAR = 1.5  # groups this many of their spreads apart differ: noise alone does so in one row of fifty


@dataclass(frozen=True)
class Interval:
    """A figure with the ends of its 95 % confidence interval; a ratio of speeds is above 1 where faster."""

    median: float
    low: float
    high: float

    def is_above(self, value: float) -> bool:
        """Whether the whole interval is above a value."""
        return self.low > value

    def is_below(self, value: float) -> bool:
        """Whether the whole interval is below a value."""
        return self.high < value


@dataclass(frozen=True)
class Summary(Interval):
    """Statistics of one list of samples, in the samples' own unit."""

    n: int
    minimum: float

    @property
    def noise(self) -> float:
        """Half the width of the interval as a fraction of the median; infinite below three samples."""
        return (self.high - self.low) / 2 / self.median if self.n >= LEAST_SAMPLES else math.inf


def summarize(samples: Sequence[float], resolution: float = 0.0) -> Summary:
    """Median, minimum and the 95 % interval of the median, of samples in the order of time.

    The ends of the interval are order statistics (Hahn and Meeker, Statistical Intervals, 5.2). Below six
    samples it is their full range. From 20 samples on, n is replaced by the effective sample size
    n (1 - r) / (1 + r), where r is the lag-1 autocorrelation of the ranks (Bayley and Hammersley, 1946).

    Args:
        samples: positive finite numbers.
        resolution: of the timer, in the samples' unit; the interval is never narrower.

    Raises:
        ValueError: there are no samples, or one is not a positive finite number.
    """
    return _summarize(tuple(samples), resolution)


@lru_cache(maxsize=65536)
def _summarize(samples: tuple[float, ...], resolution: float) -> Summary:
    ordered = sorted(samples)
    if not ordered:
        raise ValueError("no samples")
    if not all(map(math.isfinite, ordered)) or not ordered[0] > 0:
        raise ValueError("a sample is not a positive finite number")
    count, middle = len(ordered), statistics.median(ordered)
    effective = count * _independent_share(samples) if count >= _CORRELATED_FROM else count
    # The effective samples' rank, scaled to the ranks of all samples.
    rank = (
        math.floor(_low_rank(math.floor(effective)) / math.floor(effective) * count) if effective >= 1 else 0
    )
    low = min(ordered[rank], middle - resolution / 2)
    high = max(ordered[count - 1 - rank], middle + resolution / 2)
    return Summary(middle, low, high, count, ordered[0])


@lru_cache(maxsize=1024)
def _low_rank(count: int) -> int:
    """The largest index k, from 0, such that samples k and count - 1 - k enclose the median with 95 %."""
    rank, below = -1, 0
    while True:
        below += math.comb(count, rank + 1)
        if 2 * below > (1 - CONFIDENCE) * 2**count:
            return max(rank, 0)
        rank += 1


def _independent_share(samples: Sequence[float]) -> float:
    """(1 - r) / (1 + r), where r is the lag-1 autocorrelation of the samples' ranks, at least 0."""
    _, inverse, counts = np.unique(samples, return_inverse=True, return_counts=True)
    around = (np.cumsum(counts) - counts / 2)[inverse] - len(samples) / 2
    total = float(around @ around)
    related = float(around[1:] @ around[:-1]) / total if total else 0.0
    related += (1 + 4 * related) / len(samples)  # its bias (Marriott and Pope, 1954)
    related = min(max(related, 0.0), _ALIKE)
    return (1 - related) / (1 + related)


def interleaved_ratio(first: Sequence[float], second: Sequence[float]) -> Summary:
    """Seconds of batches over those that alternate with them, as a ratio with its 95 % interval.

    The order within a pair alternates from pair to pair. Each sample is the geometric mean of two
    neighbouring pairs, so that the effect of the order cancels.

    Args:
        first: seconds of the batches of one side, in the order of time.
        second: seconds of the other side, as many.
    """
    ratios = [own / other for own, other in zip(first, second, strict=True)]
    pairs = [math.sqrt(a * b) for a, b in zip(ratios[::2], ratios[1::2], strict=False)]
    return summarize(pairs or ratios)


def _doubt(count: int) -> float:
    """Standard errors that the correlation of so many samples is taken higher than estimated."""
    return _DOUBT + _MORE_DOUBT * max(0, _FEW_TO - count) / (_FEW_TO - _FEW_FROM)


def _effective(count: int, related: float, doubt: float) -> float:
    """How many independent samples correlated ones are worth; so many standard errors are added as doubt."""
    error = math.sqrt((1 - related**2) / count)
    taken_as = min(related + doubt * error, _ALIKE)
    return count * (1 - taken_as) / (1 + taken_as)


def correlation(values: npt.NDArray[np.float64]) -> float:
    """Of each sample with the one before it, corrected for its bias; 0 where it is negative. Of two or more.

    It is that of the samples' ranks, so that an outlier does not hide it, as a normal process would have it:
    2 sin(pi r / 6) (Kruskal 1958). Of n samples whose own mean is taken off it is too low by (1 + 4 r) / n
    (Marriott and Pope 1954, Kendall 1954).
    """
    if len(set(values.tolist())) < values.size:
        _, kinds, counts = np.unique(values, return_inverse=True, return_counts=True)
        around = (np.cumsum(counts) - counts / 2)[kinds] - values.size / 2
    else:
        around = np.empty(values.size)
        around[values.argsort()] = _ranks_around_middle(values.size)
    total = float(around @ around)
    if total == 0:
        return 0.0
    plain = 2 * math.sin(math.pi / 6 * float(around[1:] @ around[:-1]) / total)
    return min(max(plain + (1 + 4 * plain) / values.size, 0.0), _ALIKE)


@lru_cache(maxsize=256)
def _ranks_around_middle(count: int) -> npt.NDArray[np.float64]:
    """The ranks of so many different values in order, less their mean."""
    return np.arange(0.5, count) - count / 2


class Resampled(NamedTuple):
    """Medians of samples drawn anew from the same ones, and what they say of the samples' own median."""

    medians: npt.NDArray[np.float64]
    low: float  # ends of its 95 % confidence interval, by the percentile method
    high: float
    error: float  # its standard error


def resampled(
    values: npt.NDArray[np.float64], random: int | np.random.Generator = SEED, times: int = RESAMPLES
) -> Resampled:
    """The bootstrap of the median (scipy's), of two values or more; a generator goes on from call to call."""
    from scipy.stats import bootstrap  # half a second to import, so only when needed

    how: dict[str, Any] = {"confidence_level": CONFIDENCE, "method": "percentile", "random_state": random}
    drawn = bootstrap((values,), np.median, n_resamples=times, **how)
    low, high = map(float, drawn.confidence_interval)
    return Resampled(drawn.bootstrap_distribution, low, high, float(drawn.standard_error))


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
    centre = statistics.median(logs.tolist())
    if logs.size < LEAST_SAMPLES:
        return Measure(centre, math.inf, 1.0)
    related = min(correlation(logs), _MOST_CORRELATED)
    kept = (1 - related) / (1 + related)
    freedom = max(2.0, logs.size * kept - 1)
    if not np.ptp(logs):
        return Measure(centre, 0.0, freedom)
    return Measure(centre, resampled(logs).error / math.sqrt(kept), freedom)


def ratio_in_turn(first: Sequence[float], second: Sequence[float]) -> Measure:
    """Seconds of batches over those taken in turn with them, pair by pair: the mean of both orders' medians.

    The order alternates from pair to pair, so that what comes second in a pair is no change; and a speed
    change of the machine that lasts longer than two batches is in both, so that the ratio is free of it.
    """
    ratios = tuple(batch / other for batch, other in zip(first, second, strict=True))
    orders = (ratios[::2], ratios[1::2]) if len(ratios) >= 2 * LEAST_SAMPLES else (ratios,)
    return mean([log_median(order) for order in orders])


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
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2))


def quantile(samples: Sequence[float], share: float) -> float:
    """The value that a share of the samples does not exceed, in their own unit."""
    return float(np.quantile(np.asarray(samples, dtype=float), share))
