"""What one row says of its speed in one run: a logarithm, and how far its own samples make it uncertain."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from gemmbench.facts import derive
from gemmbench.facts.records import Row

_RESAMPLES = 999
_SEED = 20261121  # the same samples give the same verdict on every machine
_MOST_CORRELATED = 0.9  # an estimate from ten samples says no more than this
_LEAST_SAMPLES = 3  # with fewer there is no telling how uncertain their median is


@dataclass(frozen=True)
class Measure:
    """One row in one run."""

    value: float  # natural logarithm of the seconds for one unit of work, or of the ratio of two such
    error: float  # standard error of the value as its own samples tell it; infinite if they are too few
    freedom: float  # degrees of freedom of the error

    def over(self, other: Measure) -> Measure:
        """The ratio of this to another figure of the same run."""
        return Measure(
            self.value - other.value, math.hypot(self.error, other.error), min(self.freedom, other.freedom)
        )


EXACT = Measure(0.0, 0.0, math.inf)
"""What a ratio to a former self is held against: 1, which no noise has."""


def measure(row: Row, scope: str | None = None) -> Measure | None:
    """The median cost of a row, in seconds for one unit of its work.

    The unit is a flop where the row counts flops, a byte where it counts bytes, else one launch or load:
    the races of a microbenchmark may settle on another length of loop each time.

    Args:
        row: the row.
        scope: ``kernel``, ``device`` or ``host``; None for the finest that was measured. Where it was not
            measured, as for the host's own BLAS, the finest.

    Returns:
        None unless the row is ok and has samples.
    """
    chosen = _scope(row, scope)
    if chosen is None:
        return None
    centre, error, freedom = _centre(row.samples[chosen].seconds)
    return Measure(centre - math.log(work(row)), error, freedom)


def in_turn(row: Row, scope: str | None = None) -> Measure | None:
    """How much longer a row took than its former self: the median of the ratios of neighbouring batches.

    What changes the speed of the machine for longer than two batches is in both, and not in their ratio. What
    came second in one pair came first in the next: pairs of either order have a median of their own, and the
    figure is the mean of the two. Arguments as of `measure`.

    Returns:
        None unless the row is ok and its samples were taken in turn with its former self's.
    """
    chosen = _scope(row, scope)
    if chosen is None or row.former is None or chosen not in row.former.samples:
        return None
    pairs = zip(row.samples[chosen].seconds, row.former.samples[chosen].seconds, strict=True)
    ratios = tuple(now / before for now, before in pairs)
    orders = (ratios[::2], ratios[1::2]) if len(ratios) >= 2 * _LEAST_SAMPLES else (ratios,)
    return mean([Measure(*_centre(one)) for one in orders])


def former(row: Row, scope: str | None = None) -> float:
    """Seconds that a row's former self took for one problem; arguments as of `measure`.

    Raises:
        ValueError: it has none.
    """
    chosen = _scope(row, scope)
    if chosen is None or row.former is None or chosen not in row.former.samples:
        raise ValueError(f"{row.variant} was not measured in turn with a former self")
    return math.exp(_centre(row.former.samples[chosen].seconds)[0])


def _scope(row: Row, scope: str | None) -> str | None:
    """The scope that counts of a row; None unless it is ok and has samples."""
    if row.status != "ok":
        return None
    return scope if scope in row.samples and row.samples[scope].seconds else derive.finest_scope(row)


def work(row: Row) -> int:
    """Units of work in one sample of a row: flops, else bytes, else 1."""
    return derive.flops_of(row) or (row.work.bytes if row.work else 0) or 1


def mean(measures: Sequence[Measure]) -> Measure:
    """The mean of figures taken beside each other, as of the two controls around a row."""
    count = len(measures)
    return Measure(
        sum(one.value for one in measures) / count,
        math.sqrt(sum(one.error**2 for one in measures)) / count,
        sum(one.freedom for one in measures),
    )


@lru_cache(maxsize=65536)
def _centre(seconds: tuple[float, ...]) -> tuple[float, float, float]:
    """Median of the logarithms, its standard error, and the error's degrees of freedom.

    The error is scipy's bootstrap of the median, which asks nothing of the samples' distribution; a rank
    test would give a verdict, but no error to add to the noise from run to run. The bootstrap draws as if
    batches were independent. They are not: a batch resembles the one before it. So that the error is widened
    by what their correlation leaves of their number, n (1 - r) / (1 + r).
    """
    logs = np.log(np.asarray(seconds, dtype=float))
    centre = float(np.median(logs))
    if logs.size < _LEAST_SAMPLES:
        return centre, math.inf, 1.0
    kept = (1 - (correlation := _correlation(logs))) / (1 + correlation)
    freedom = max(2.0, logs.size * kept - 1)
    if not np.ptp(logs):
        return centre, 0.0, freedom
    from scipy.stats import bootstrap  # half a second to import, so only when needed

    drawn = bootstrap((logs,), np.median, n_resamples=_RESAMPLES, method="percentile", random_state=_SEED)
    return centre, float(drawn.standard_error) / math.sqrt(kept), freedom


def _correlation(logs: np.ndarray) -> float:
    """Of each sample with the one before it; 0 where it is negative, which narrows nothing."""
    around = logs - logs.mean()
    total = float(around @ around)
    if total == 0:
        return 0.0
    # 1 / n: independent samples have a correlation of -1 / n, since their own mean is taken off
    return min(max(float(around[1:] @ around[:-1]) / total + 1 / logs.size, 0.0), _MOST_CORRELATED)
