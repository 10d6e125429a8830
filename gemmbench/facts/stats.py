"""Statistics of samples: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

CONFIDENCE = 0.95
_RESAMPLES = 999
_CLEAR = 1.5  # groups this many of their spreads apart differ: noise alone does so in one row of fifty
_SEED = 20261121  # the same samples give the same interval, in every table and on every machine


@dataclass(frozen=True)
class Summary:
    """What is shown of one list of samples, in the samples' own unit."""

    n: int
    median: float
    low: float  # lower end of the 95 % confidence interval of the median
    high: float  # upper end
    minimum: float

    @property
    def noise(self) -> float:
        """Half the confidence interval's width as a fraction of the median; infinite if it is not known."""
        if self.n < 3 or self.median <= 0:
            return math.inf
        return (self.high - self.low) / 2 / self.median


def summarize(samples: Sequence[float]) -> Summary:
    """Median, minimum and the bootstrap interval of the median (scipy's percentile method).

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
        from scipy.stats import bootstrap  # half a second to import, so only when needed

        interval = bootstrap(
            (values,),
            np.median,
            confidence_level=CONFIDENCE,
            n_resamples=_RESAMPLES,
            method="percentile",
            random_state=_SEED,
        ).confidence_interval
        low, high = float(interval.low), float(interval.high)
    return Summary(values.size, float(np.median(values)), low, high, float(values.min()))


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
