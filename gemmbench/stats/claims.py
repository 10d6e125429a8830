"""What may be said of rates: which row is faster, and which is the fastest. The one place that decides it.

A claim needs intervals that exclude the opposite, and a winner that is not marked ``~``.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import geometric_mean
from typing import TypeVar

from gemmbench.model import units
from gemmbench.model.instrument import LEAST_SAMPLES
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.stats import rates
from gemmbench.stats.intervals import Interval

_T = TypeVar("_T")


@dataclass(frozen=True)
class Claim(Interval):
    """The rates between which a true rate lies, in flop/s, and whether it is stated without ``~``."""

    is_certain: bool

    def is_above_all(self, others: Iterable[Interval]) -> bool:
        return self.is_certain and all(self.low > other.high for other in others)


def evidence(run: Run, row: Row | None, scope: str) -> Claim | None:
    """What is known of a row's rate in a scope, or the next wider one; None without a rate.

    The control bursts widen the interval. With fewer than three samples it has no ends.
    """
    rate = rates.shown_rate(row, scope) if row else None
    if row is None or rate is None:
        return None
    samples = rates.shown_samples(row, scope)
    if len(row.samples[samples].seconds) < LEAST_SAMPLES:
        return Claim(rate.median, 0.0, math.inf, is_certain=False)
    wide = rates.widen_interval(run, row, rate, samples)
    return Claim(rate.median, wide.low, wide.high, not rates.is_uncertain(run, row, samples))


def claim_if_compared(run: Run, device: int, row: Row | None, scope: str) -> Claim | None:
    """What is known of a row's rate, if it is compared with those of a device (`rates.is_compared`)."""
    return evidence(run, row, scope) if row and rates.is_compared(run, device, row, scope) else None


def mean(known: Iterable[Claim]) -> Claim:
    """What is known of the geometric mean of rates, with the means of the ends."""
    every = tuple(known)
    median, low, high = (
        geometric_mean([getattr(each, end) for each in every])
        if all(getattr(each, end) for each in every)
        else 0.0
        for end in ("median", "low", "high")
    )
    return Claim(median, low, high, all(each.is_certain for each in every))


def all_calls(row: Row, rate: Claim) -> Claim:
    """The seconds of all calls that a program makes of a row's problem, at this rate."""
    flops, is_verified = (row.calls or 1) * rates.flops_of(row), row.check.verdict == "ok"
    high = flops / rate.low if rate.low else math.inf
    return Claim(flops / rate.median, flops / rate.high, high, rate.is_certain and is_verified)


def total(seconds: Iterable[Claim | None]) -> Claim | None:
    """A sum of seconds, whose interval is the sum of the ends; None without any, or if one is unknown."""
    every = tuple(seconds)
    if not all(every) or not every:
        return None
    median, low, high = (sum(getattr(each, end) for each in every) for end in ("median", "low", "high"))
    return Claim(median, low, high, all(each.is_certain for each in every if each))


Best = dict[tuple[str, Problem], tuple[Row, Claim]]  # a row and its rate, by data type and problem


def best_of_shapes(rows: Iterable[Row], run: Run, device: int, scope: str) -> Best:
    """The row with the highest median on a device for each data type and problem."""
    best: Best = {}
    for row in rows:
        rate = claim_if_compared(run, device, row, scope) if row.problem else None
        if row.problem and rate:
            key = row.dtype, row.problem
            if key not in best or rate.median > best[key][1].median:
                best[key] = row, rate
    return best


def faster_device(names: tuple[str, str], old: Best, new: Best) -> str:
    """Which device takes less time for all counted calls together, as a sentence; or ""."""
    pairs = [(old[key], new[key]) for key in old if key in new]
    times = [[all_calls(*each) for each in pair] for pair in pairs if pair[0][0].calls == pair[1][0].calls]
    sure = [pair for pair in times if all(each.is_certain for each in pair)]
    sums = [total(side) for side in zip(*sure, strict=True)]
    if not sums or not any(row.calls for row, _ in (*old.values(), *new.values())):
        return ""
    of = f"{len(sure)} of {units.count_noun(len(old.keys() | new.keys()), 'shape')}"
    known = ((each, name) for each, name in zip(sums, names, strict=True) if each)
    (fast, first), (slow, last) = sorted(known, key=lambda pair: pair[0].median)
    ratio = slow.over(fast)
    if not ratio.is_above(1):
        return f"{first} or {last} runs the program faster: cannot tell from {of}."
    by = f"{units.number(ratio.median)} times as fast as {last}"
    spent = f"{units.seconds(fast.median)}, not {units.seconds(slow.median)}"
    return f"{first} runs the program {by}: {spent} for all calls, with the best of each of {of}."


def contenders(known: Mapping[_T, Claim]) -> list[_T]:
    """Those that no other is known to exceed, highest median first."""
    highest_low = max((each.low for each in known.values()), default=0.0)
    left = [key for key, each in known.items() if each.high >= highest_low]
    return sorted(left, key=lambda key: -known[key].median)


def fastest(known: Mapping[_T, Claim]) -> _T | None:
    """The one that is known to exceed all others; None if there is none, or nothing to compare."""
    left = contenders(known)
    return left[0] if len(left) == 1 < len(known) and known[left[0]].is_certain else None
