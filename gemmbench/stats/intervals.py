"""Statistics of samples, and the intervals that every figure comes with: pure functions."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal

import numpy as np

from gemmbench.model.instrument import LEAST_SAMPLES  # with fewer the uncertainty of the median is unknown

_ALIKE = 0.99  # the largest autocorrelation that is used
_CORRELATED_FROM = 20  # samples, from which their correlation can be estimated

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

        Slower if the whole interval is above 1 + threshold, faster if below 1 - threshold, unchanged if
        between. Otherwise, and if the ends are unknown (NaN), it cannot be told.
        """
        if self.is_above(1 + threshold):
            return "slower"
        if self.is_below(1 - threshold):
            return "faster"
        is_within = self.low >= 1 - threshold and self.high <= 1 + threshold
        return "unchanged" if is_within else "cannot tell"

    def smallest_slowdown(self, threshold: float) -> float:
        """The smallest slowdown, as a fraction, that an interval this wide could show. NaN if unknown."""
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

    The ends are order statistics (Hahn and Meeker, Statistical Intervals, 5.2), or the full range below six
    samples. From 20 samples on, n is replaced by n (1 - r) / (1 + r), where r is the lag-1 autocorrelation of
    the ranks (Bayley and Hammersley, 1946). The interval is at least as wide as the timer's `resolution`.
    Raises `ValueError` if there are no samples, or one is not a positive finite number.
    """
    return _summarize(tuple(samples), resolution)


@lru_cache(maxsize=65536)
def _summarize(samples: tuple[float, ...], resolution: float) -> Summary:
    """Median and its interval by ranks, wider for correlated samples."""
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

    The order within pairs alternates, so each sample is the geometric mean of two successive pairs. An odd
    last pair is dropped unless it is the only one. `ValueError` if lists are empty or differ in length.
    """
    ratios = [own / other for own, other in zip(first, second, strict=True)]
    pairs = [math.sqrt(a * b) for a, b in zip(ratios[::2], ratios[1::2], strict=False)]
    return summarize(pairs or ratios)


def quantile(samples: Sequence[float], share: float) -> float:
    """The value that a share of the samples does not exceed, in their own unit."""
    return float(np.quantile(np.asarray(samples, dtype=float), share))
