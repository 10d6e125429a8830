"""The noise floor: how far a row's figure lies from run to run on a machine where nothing has changed.

The samples of a run cannot show it. Where a buffer came to lie, which core a thread woke up on, what clock
the processor had: all of them are drawn once for a run, so that a run's interval of +-0.5 % stands beside
another's, 4 % away. Only repetitions show it: an A/A measurement, or several bases.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

ASSUMED = 0.01  # of a machine that nobody has measured; a quiet GPU has less, a shared CPU more
# Of ratios taken in turn: where a process puts code and buffers stays in them. Measured with unchanged
# kernels (18 rows, 6 processes, 2 cores with AVX-512): 0.2 to 0.7 % from process to process, no more than
# their errors.
LEAST_IN_TURN = 0.005
_ASSUMED_WORTH = 30.0
_FEW_ROWS = 5  # below this, how much rows differ in their noise is not estimated
_FEW_ROWS_WORTH = 4.0
_LEAST_SCATTER_ROWS = 12
_SIDE = 1.0282  # between the two quantiles of a side, in standard deviations of a normal distribution
_NARROWER = 1.5  # the narrower of two sides is too narrow by this over the root of the number of rows
_LEAST, _MOST_WORTH = 2.0, 30.0
_TICK = 1e-5  # no clock tells less than this apart, as a fraction


@dataclass(frozen=True)
class Spread:
    """How far one row's figure lies from run to run."""

    deviation: float  # standard deviation of the logarithm: 0.01 is 1 %
    freedom: float  # degrees of freedom that it is known with


@dataclass(frozen=True)
class Noise:
    """The floor of every row.

    A row's own repetitions are few, so its variance is moderated: drawn towards that of the typical row, as
    if that were `worth` so many degrees of freedom of the row's own (Smyth's empirical Bayes).
    """

    typical: float  # standard deviation of a typical row
    worth: float
    source: str  # for people: where it is from
    rows: Mapping[Hashable, tuple[float, float]] = field(default_factory=dict)  # sum of squares, freedom

    def cautious(self) -> Noise:
        """The same for a gate that measures again: worth little where no row was ever repeated.

        A scatter or an assumption does not tell a noisy row from a quiet one; the row's own figures soon do.
        """
        return self if self.rows else replace(self, worth=min(self.worth, _FEW_ROWS_WORTH))

    def beyond(self, errors: Sequence[float]) -> Noise:
        """The same without what the figures' own errors make of it, but not less than `LEAST_IN_TURN`.

        Args:
            errors: standard errors of the figures that it is from.
        """
        rest = self.typical**2 - float(np.median(errors)) ** 2
        return replace(self, typical=max(math.sqrt(max(rest, 0.0)), LEAST_IN_TURN))

    def of(self, key: Hashable, also: Iterable[Sequence[float]] = ()) -> Spread:
        """The floor of one row.

        Args:
            key: the row's.
            also: values of further repetitions of it, those of one machine and version together.
        """
        squares, freedom = self.rows.get(key, (0.0, 0.0))
        for group in also:
            more, count = _squares(group)
            squares, freedom = squares + more, freedom + count
        total = self.worth + freedom
        return Spread(math.sqrt((self.worth * self.typical**2 + squares) / total), total)


Groups = Mapping[Any, Sequence[Sequence[float]]]
"""By row: values of its repetitions, each group from one machine and one version."""


def assumed(deviation: float = ASSUMED) -> Noise:
    """What is taken for granted where nothing was measured."""
    return Noise(deviation, _ASSUMED_WORTH, "assumed")


def measured(groups: Groups, source: str) -> Noise | None:
    """The floor that repetitions show; None if no row has any.

    The typical variance, and what it is worth, come from the rows' variances: where they differ no more than
    samples of one variance would, a typical row tells much of every other; where small problems are ten times
    as noisy as large ones, little.
    """
    rows = {}
    for key, several in groups.items():
        found = [_squares(group) for group in several]
        if freedom := sum(count for _, count in found):
            rows[key] = (sum(squares for squares, _ in found), float(freedom))
    if not rows:
        return None
    squares, freedoms = np.array(list(rows.values())).T
    variances = np.maximum(squares / freedoms, _TICK**2)
    if len(rows) < _FEW_ROWS:
        return Noise(math.sqrt(float(np.average(variances, weights=freedoms))), _FEW_ROWS_WORTH, source, rows)
    from scipy.special import digamma, polygamma

    logs = np.log(variances) - digamma(freedoms / 2) + np.log(freedoms / 2)
    excess = float(np.var(logs, ddof=1) - np.mean(polygamma(1, freedoms / 2)))
    worth = _worth(excess)
    typical = math.exp((float(np.mean(logs)) + float(digamma(worth / 2)) - math.log(worth / 2)) / 2)
    return Noise(typical, worth, source, rows)


def scattered(ratios: Sequence[float]) -> Noise | None:
    """The floor that the rows of two runs show by how far their ratios scatter; None for fewer than twelve.

    Most rows of a comparison have not changed. Those that have moved to one side, so that both sides are read
    apart, without the outermost tenth, and the narrower one counts.

    Args:
        ratios: a logarithm for each row, in units of what one run's noise would make it scatter by.
    """
    if len(ratios) < _LEAST_SCATTER_ROWS:
        return None
    low, inner_low, inner_high, high = np.quantile(np.asarray(ratios), (0.1, 0.4, 0.6, 0.9))
    deviation = float(min(inner_low - low, high - inner_high)) / _SIDE
    deviation *= 1 + _NARROWER / math.sqrt(len(ratios))
    worth = min(max(len(ratios) / 4, _FEW_ROWS_WORTH), _MOST_WORTH)
    return Noise(max(deviation, _TICK), worth, f"from how {len(ratios)} rows scatter")


def _worth(excess: float) -> float:
    """Degrees of freedom whose logarithmic variance scatters by `excess` (the inverse of trigamma)."""
    from scipy.optimize import brentq
    from scipy.special import polygamma

    def beyond(half: float) -> float:
        return float(polygamma(1, half)) - excess

    least, most = _LEAST / 2, _MOST_WORTH / 2
    if beyond(most) >= 0:
        return _MOST_WORTH
    return _LEAST if beyond(least) <= 0 else 2 * float(brentq(beyond, least, most))


def _squares(values: Sequence[float]) -> tuple[float, int]:
    """Sum of squares around the mean, and its degrees of freedom."""
    if len(values) < 2:
        return 0.0, 0
    around = np.asarray(values) - np.mean(values)
    return float(around @ around), len(values) - 1
