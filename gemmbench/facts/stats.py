"""Statistics of samples: pure functions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

CONFIDENCE = 0.95
_RESAMPLES = 999
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


def drift(samples: Sequence[float]) -> float:
    """How much slower the last third of the samples is than the first, as a fraction (negative: faster)."""
    third = len(samples) // 3
    if third < 3:
        return 0.0
    return float(np.median(samples[-third:]) / np.median(samples[:third]) - 1)


def two_humped(samples: Sequence[float]) -> bool:
    """Whether the samples fall into two clusters: a gap inside that dwarfs the spread on either side.

    The gap must be wider than 3 % of the median and than the spread (quartile to quartile) of both sides
    together, and leave at least a fifth of the samples on each side.
    """
    ordered = np.sort(np.asarray(samples, dtype=float))
    edge = max(2, ordered.size // 5)
    if ordered.size < 3 * edge:
        return False
    gaps = np.diff(ordered)
    inner = gaps[edge - 1 : ordered.size - edge]
    cut = edge + int(np.argmax(inner))
    left, right = ordered[:cut], ordered[cut:]
    spread = sum(float(np.subtract(*np.percentile(side, (75, 25)))) for side in (left, right))
    return bool(inner.max() > max(0.03 * float(np.median(ordered)), spread))
