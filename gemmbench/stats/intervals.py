"""Statistics of samples, the intervals that every figure comes with, and which figures may be called highest.

A claim needs intervals that exclude the opposite, and a winner that is not marked ``~``.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from statistics import geometric_mean
from typing import Literal, TypeVar

import numpy as np

from gemmbench.model.instrument import LEAST_SAMPLES  # with fewer the uncertainty of the median is unknown

_ALIKE = 0.99  # the largest autocorrelation that is used
_CORRELATED_FROM = 20  # samples, from which their correlation can be estimated

_T = TypeVar("_T")
Finding = Literal["slower", "faster", "unchanged", "cannot tell"]


@dataclass(frozen=True)
class Interval:
    """A figure with the ends of its 95 % confidence interval; a ratio of speeds is above 1 where faster."""

    median: float
    low: float
    high: float

    def is_above(self, value: float) -> bool:
        return self.low > value

    def is_below(self, value: float) -> bool:
        return self.high < value

    def over(self, other: Interval) -> Interval:
        """The ratio to a figure that was measured separately: as wide as both intervals allow."""
        return Interval(self.median / other.median, self.low / other.high, self.high / other.low)

    def finding(self, threshold: float) -> Finding:
        """What a ratio of times, new over old, shows: the only rule by which anything is slower or faster.

        The threshold is a fraction, such as 0.1. A row is slower if its whole interval is above
        1 + threshold, faster if it is below 1 - threshold, and unchanged if it lies between them. Otherwise,
        and if the ends are unknown (NaN), it cannot be told. A rate r is compared with a rate s by
        `s.over(r).finding(...)`, the ratio of their times.
        """
        if self.is_above(1 + threshold):
            return "slower"
        if self.is_below(1 - threshold):
            return "faster"
        is_within = self.low >= 1 - threshold and self.high <= 1 + threshold
        return "unchanged" if is_within else "cannot tell"

    def smallest_slowdown(self, threshold: float) -> float:
        """The smallest change, as a fraction, that an interval of this relative width shows to be slower.

        NaN if the ends are unknown.
        """
        return (1 + threshold) * self.median / self.low - 1


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
    """Median, minimum and the 95 % interval of the median of samples, which are in the order of time.

    The ends of the interval are order statistics (Hahn and Meeker, Statistical Intervals, 5.2). Below six
    samples it is their full range. From 20 samples on, n is replaced by the effective sample size n (1 - r) /
    (1 + r), where r is the lag-1 autocorrelation of the ranks (Bayley and Hammersley, 1946). The interval is
    at least as wide as `resolution`, the timer's, in the samples' unit.

    Raises `ValueError` if there are no samples, or one is not a positive finite number.
    """
    return _summarize(tuple(samples), resolution)


@lru_cache(maxsize=65536)
def _summarize(samples: tuple[float, ...], resolution: float) -> Summary:
    """`summarize`, cached: median, minimum and 95 % interval of the median, at least `resolution` wide.

    From 20 samples on, correlation widens it. `ValueError` if empty, or a sample is not positive and finite.
    """
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
    """The largest k for which samples k and count - 1 - k enclose the median with 95 %; 0 if none does."""
    rank, below = -1, 0
    while True:
        below += math.comb(count, rank + 1)
        if 40 * below > 2**count:  # 2 below > 5 %, in integers of any size
            return max(rank, 0)
        rank += 1


def _independent_share(samples: Sequence[float]) -> float:
    """(1 - r) / (1 + r), where r, from 0 to 0.99, is the bias-corrected lag-1 autocorrelation of ranks."""
    _, inverse, counts = np.unique(samples, return_inverse=True, return_counts=True)
    around = (np.cumsum(counts) - counts / 2)[inverse] - len(samples) / 2
    total = float(around @ around)
    related = float(around[1:] @ around[:-1]) / total if total else 0.0
    related += (1 + 4 * related) / len(samples)  # its bias (Marriott and Pope, 1954)
    related = min(max(related, 0.0), _ALIKE)
    return (1 - related) / (1 + related)


def interleaved_ratio(first: Sequence[float], second: Sequence[float]) -> Summary:
    """The ratio of first to second seconds of interleaved batches, with its 95 % interval.

    The order within a pair alternates from pair to pair. So each sample is the geometric mean of two
    successive pairs. An odd last pair is dropped, but an only one counts. Both sides are in the order of
    time. `ValueError` if they are empty or differ in length.
    """
    ratios = [own / other for own, other in zip(first, second, strict=True)]
    pairs = [math.sqrt(a * b) for a, b in zip(ratios[::2], ratios[1::2], strict=False)]
    return summarize(pairs or ratios)


def quantile(samples: Sequence[float], share: float) -> float:
    """The value that a share of the samples does not exceed, in their own unit."""
    return float(np.quantile(np.asarray(samples, dtype=float), share))


@dataclass(frozen=True)
class Evidence(Interval):
    """The rates between which a true rate lies, in flop/s, and whether it may be stated without ``~``."""

    is_certain: bool

    def is_above_all(self, others: Iterable[Interval]) -> bool:
        """Whether it is known to be higher than each of the others."""
        return self.is_certain and all(self.low > other.high for other in others)


def mean(known: Iterable[Evidence]) -> Evidence:
    """What is known of the geometric mean of rates. Its interval is that of the ends, so it is wide."""
    every = tuple(known)
    median, low, high = (
        geometric_mean([getattr(each, end) for each in every])
        if all(getattr(each, end) for each in every)
        else 0.0
        for end in ("median", "low", "high")
    )
    return Evidence(median, low, high, all(each.is_certain for each in every))


def contenders(known: Mapping[_T, Evidence]) -> list[_T]:
    """Those that no other is known to exceed, by their medians, highest first.

    A single one is the fastest, if it `is_certain`.
    """
    highest_low = max((each.low for each in known.values()), default=0.0)
    left = [key for key, each in known.items() if each.high >= highest_low]
    return sorted(left, key=lambda key: -known[key].median)


def fastest(known: Mapping[_T, Evidence]) -> _T | None:
    """The one that is known to exceed all others; None if there is none, or nothing to compare it with."""
    left = contenders(known)
    return left[0] if len(left) == 1 < len(known) and known[left[0]].is_certain else None
