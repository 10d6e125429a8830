"""Statistics of samples, and the intervals that every figure comes with: pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
RESAMPLES = 999
SEED = 20261121  # the same samples give the same interval, in every table and on every machine
LEAST_SAMPLES = 3  # with fewer there is no telling how uncertain their median is
LEAST_EFFECTIVE = 8.0  # independent samples that a row's are worth; with fewer its interval is not shown
_MOST_CORRELATED = 0.9  # of an error that is added to others: from ten samples says no more than this
_ALIKE = 0.99  # the strongest correlation that is reckoned with

# Standard errors that are added to the correlation of neighbouring samples: before a row has an interval, and
# for the interval's width. Without them those rows would have intervals whose estimate is too low by chance.
# Chosen by simulation: `python -m tools.interval_coverage`. From few samples more are added before a row has
# an interval: a row stops early that looks good by chance, and at a correlation of 0.9 one in forty does.
_DOUBT, _MORE_DOUBT = 1.5, 1.0
_FEW_FROM, _FEW_TO = 20, 60  # samples, between which the second falls to 0
_CAUTION = 3.0
_SPANS = 3  # that the samples of a mean are cut into
# Standard deviation of such means from process to process: an H200's power limit allows a hotter chip less,
# and its neighbours heat it (docs/conditions.md has what was measured).
_FROM_RUN_TO_RUN = 0.003
_CLEAR = 1.5  # groups this many of their spreads apart differ: noise alone does so in one row of fifty


@dataclass(frozen=True)
class Interval:
    """A figure with the ends of its 95 % confidence interval; a ratio of speeds is above 1 where faster.

    The ends are NaN where the samples are too few to tell: such a figure is neither above nor below anything.
    """

    median: float
    low: float
    high: float

    @property
    def is_few(self) -> bool:
        return math.isnan(self.low)

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
        if self.is_few or self.median <= 0:
            return math.inf
        return (self.high - self.low) / 2 / self.median


def summarize(samples: Sequence[float], by_mean: bool = False) -> Summary:
    """Median, minimum and the interval of the median, of samples that stand in the order of time.

    The interval is that of the sign test (Hahn and Meeker, Statistical Intervals, 5.2): it reaches from one
    of the ordered samples to another, the further apart the fewer of them are independent. Those are
    n (1 - r) / (1 + r) of n samples (Bayley and Hammersley 1946), where r is the correlation of neighbours;
    it is taken higher than estimated. Under `LEAST_EFFECTIVE` of them there is no interval. Samples that are
    all equal, since the clock tells no difference, count as independent.

    What changes from one run to the next is not in it, except where the mean stands for the samples, as
    `Scope.middle` wants: that interval has the error of `mean_of_spans` in it, and what such rows differ by
    from process to process. Raises `ValueError` if there are no samples, or one is not a positive finite
    number.
    """
    return _summarize(tuple(samples), by_mean)


@lru_cache(maxsize=65536)
def _summarize(samples: tuple[float, ...], by_mean: bool) -> Summary:
    values = np.asarray(samples, dtype=float)
    if values.size == 0:
        raise ValueError("no samples")
    ordered = sorted(samples)
    if not all(map(math.isfinite, ordered)) or not ordered[0] > 0:
        raise ValueError("a sample is not a positive finite number")
    if by_mean:
        known = mean_of_spans(samples)
        middle, own = known.value, student(CONFIDENCE, known.freedom) * known.error
        half = math.hypot(own, student(CONFIDENCE, math.inf) * _FROM_RUN_TO_RUN * middle)
        wide = 1 + half / middle if math.isfinite(half) else math.nan
        return Summary(middle, middle / wide, middle * wide, values.size, float(ordered[0]))
    low, high = _median_interval(values, ordered)
    return Summary(statistics.median(ordered), low, high, values.size, float(ordered[0]))


def _median_interval(values: npt.NDArray[np.float64], ordered: Sequence[float]) -> tuple[float, float]:
    """Ends of the median's interval, of values in time and in order; NaN if the samples are too few."""
    if values.size < LEAST_EFFECTIVE:
        return math.nan, math.nan
    if ordered[0] == ordered[-1]:
        return float(ordered[0]), float(ordered[0])
    related = correlation(values)
    if _effective(values.size, related, _doubt(values.size)) < LEAST_EFFECTIVE:
        return math.nan, math.nan
    count = max(2.0, _effective(values.size, related, _CAUTION))
    reach = min(0.5, student(CONFIDENCE, count - 1) / 2 / math.sqrt(count))
    low, high = (_between(ordered, values.size * share + 0.5 - 1) for share in (0.5 - reach, 0.5 + reach))
    return low, high


def _between(ordered: Sequence[float], position: float) -> float:
    """The value at a position between two ordered samples, the first at 0; beyond the ends it is theirs.

    Of n samples the quantile q is at (n - 1) q, or at n q - 1/2 (Hazen 1914). It is numpy's to the last bit,
    which takes twenty times as long for a row's few samples.
    """
    index = math.floor(position)
    if index < 0 or index >= len(ordered) - 1:
        return float(ordered[0 if index < 0 else -1])
    low, high, part = ordered[index], ordered[index + 1], position - index
    return float(low + (high - low) * part if part < 0.5 else high - (high - low) * (1 - part))


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


def mean_of_spans(samples: Sequence[float]) -> Measure:
    """The mean of samples, oldest first, no logarithm, by the method of batch means (Conway 1963).

    Neighbours are alike, and a clock that is regulated goes up and down: spans that are longer than both are
    independent, so that their means tell the error of the mean of all. Of fewer samples than two for each
    span the error is not known.
    """
    values = np.asarray(samples, dtype=float)
    spans = [float(span.mean()) for span in np.array_split(values, _SPANS) if span.size]
    known = values.size >= 2 * _SPANS
    error = statistics.stdev(spans) / math.sqrt(_SPANS) if known else math.inf
    return Measure(float(values.mean()), error, _SPANS - 1)


EXACT = Measure(0.0, 0.0, math.inf)
"""What a ratio to a former self is held against: 1, which no noise has."""


def log_mean(samples: Sequence[float]) -> Measure:
    """The logarithm of the samples' mean."""
    known = mean_of_spans(samples)
    return Measure(math.log(known.value), known.error / known.value, known.freedom)


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


def drift(samples: Sequence[float]) -> float:
    """How much slower the last third of the samples is than the first, as a fraction (negative: faster).

    0 where the spread within the two thirds explains their difference, or there are fewer than nine samples.
    """
    third = len(samples) // 3
    if third < 3:
        return 0.0
    first, last = sorted(samples[:third]), sorted(samples[-third:])
    before, after = statistics.median(first), statistics.median(last)
    return after / before - 1 if abs(after - before) > _CLEAR * (_spread(first) + _spread(last)) else 0.0


def moved(samples: Sequence[float], by_mean: bool = False) -> float:
    """How much slower the last third of the samples is than the first, whatever the spread.

    By the thirds' medians, or their means; 0 where there are fewer than nine samples.
    """
    third, middle = len(samples) // 3, statistics.fmean if by_mean else statistics.median
    return middle(samples[-third:]) / middle(samples[:third]) - 1 if third >= 3 else 0.0


def two_humped(samples: Sequence[float]) -> bool:
    """Whether the samples fall into two clusters: a gap inside that dwarfs the spread on either side.

    The gap must be wider than 3 % of the median and clearly wider than the spread of both sides together,
    and leave at least a fifth of the samples, and three, on each side.
    """
    ordered = sorted(samples)
    edge = max(3, len(ordered) // 5)
    if len(ordered) < 3 * edge:
        return False
    inner = [high - low for low, high in pairwise(ordered[edge - 1 : len(ordered) - edge + 1])]
    widest = max(inner)
    if widest <= 0.03 * statistics.median(ordered):
        return False
    cut = edge + inner.index(widest)
    return widest > _CLEAR * (_spread(ordered[:cut]) + _spread(ordered[cut:]))


def _spread(ordered: Sequence[float]) -> float:
    last = len(ordered) - 1
    return _between(ordered, 0.75 * last) - _between(ordered, 0.25 * last)
