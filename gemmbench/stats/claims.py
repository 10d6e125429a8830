"""What may be said of rates: which row is faster, and which is the fastest. The one place that decides it.

A claim needs intervals that exclude the opposite, and a winner that is not marked ``~``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import geometric_mean
from typing import TypeVar

from gemmbench.model.instrument import LEAST_SAMPLES
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.stats import rates
from gemmbench.stats.intervals import Interval

_T = TypeVar("_T")


@dataclass(frozen=True)
class Evidence(Interval):
    """The rates between which a true rate lies, in flop/s, and whether it may be stated without ``~``."""

    is_certain: bool

    def is_above_all(self, others: Iterable[Interval]) -> bool:
        """Whether it is known to be higher than each of the others."""
        return self.is_certain and all(self.low > other.high for other in others)


def evidence(run: Run, row: Row | None, scope: str) -> Evidence | None:
    """What is known of a row's rate in a scope, or the next wider one; None without a rate.

    The interval of the median grows by the loss of the row's control bursts, because the true rate may be
    higher by that. With fewer than three samples it has no ends.
    """
    rate = rates.shown_rate(row, scope) if row else None
    if row is None or rate is None:
        return None
    samples = rates.shown_samples(row, scope)
    if len(row.samples[samples].seconds) < LEAST_SAMPLES:
        return Evidence(rate.median, 0.0, math.inf, is_certain=False)
    wide = rates.widened(run, row, rate, samples)
    return Evidence(rate.median, wide.low, wide.high, not rates.is_uncertain(run, row, samples))


def compared(run: Run, device: int, row: Row | None, scope: str) -> Evidence | None:
    """What is known of a row's rate, if it is compared with those of a device (`rates.is_compared`)."""
    return evidence(run, row, scope) if row and rates.is_compared(run, device, row, scope) else None


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
