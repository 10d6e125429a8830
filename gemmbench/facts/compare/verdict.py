"""One row's verdict, from the confidence interval of a ratio and a threshold. Pure numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from gemmbench.facts.compare.noise import Spread
from gemmbench.facts.stats import CONFIDENCE, EXACT, Measure, student

Verdict = Literal["slower", "broken", "inconclusive", "missing", "incomparable", "new", "same", "faster"]
VERDICTS: dict[Verdict, str] = {
    "slower": "the whole interval is past the threshold",
    "broken": "it was ok in the base, and now there is no right result",
    "inconclusive": "the interval reaches past a threshold, but not wholly",
    "missing": "it was ok in the base and was not measured now",
    "incomparable": "something other than the code differs",
    "new": "the base has no rate of it",
    "same": "the whole interval is within the threshold on either side",
    "faster": "the whole interval is past the threshold, on the good side",
}
"""Every verdict, the gravest first."""

LOST: tuple[Verdict, ...] = ("missing", "incomparable")
FAILING: tuple[Verdict, ...] = ("slower", "broken")


@dataclass(frozen=True)
class Limits:
    """What a ratio is held against."""

    threshold: float = 0.05  # 0.05: a row may take 5 % longer
    confidence: float = CONFIDENCE  # of the interval

    @property
    def high(self) -> float:
        """The logarithm of the ratio past which a row is slower; its negative: faster."""
        return math.log1p(self.threshold)


@dataclass(frozen=True)
class Judgement:
    """New over base: above 1 is slower."""

    verdict: Verdict
    ratio: float
    low: float  # ends of the confidence interval
    high: float
    floor: float  # half the width that the noise floor alone gives the interval, as a fraction
    may_be_slower: bool  # the interval does not exclude it
    reason: str = ""


def judge(base: Sequence[Measure], new: Sequence[Measure], spread: Spread, limits: Limits) -> Judgement:
    """Whether new runs of a row are slower than base runs of it.

    Each run counts as one figure, however many samples it has: they share whatever the run drew. Its variance
    is the noise floor's, or its own samples' where that is larger. The interval is Student's for the
    difference of two means of logarithms, with the fewer degrees of freedom of what it is made from.

    Args:
        base: a figure for each base run, one or more; `EXACT` alone where the new figures are ratios to it.
        new: a figure for each new run, one or more.
        spread: the noise floor of this row.
        limits: threshold and confidence.
    """
    sides = (new,) if is_exact(base) else (base, new)
    difference = sum(one.value for one in new) / len(new) - sum(one.value for one in base) / len(base)
    together = math.hypot if is_exact(base) else max  # the floor of ratios has no figure's own error in it
    variance = sum(
        together(spread.deviation, one.error) ** 2 / len(side) ** 2 for side in sides for one in side
    )
    own = [one.freedom for side in sides for one in side if one.error > spread.deviation]
    freedom = min([spread.freedom, *own])
    half = student(limits.confidence, freedom) * math.sqrt(variance)
    floor = student(limits.confidence, spread.freedom) * spread.deviation
    floor *= math.sqrt(sum(1 / len(side) for side in sides))
    low, high, past = difference - half, difference + half, limits.high
    may_be_slower = not high <= past
    verdict: Verdict = "inconclusive"
    reason = ""
    if low > past:
        verdict = "slower"
    elif high < -past:
        verdict = "faster"
    elif low >= -past and high <= past:
        verdict = "same"
    else:
        reason = _why(difference, half, floor, past) if may_be_slower else "the same or faster, not slower"
    return Judgement(verdict, _exp(difference), _exp(low), _exp(high), _exp(floor) - 1, may_be_slower, reason)


def is_exact(base: Sequence[Measure]) -> bool:
    """Whether new figures are held against something that has no noise."""
    return list(base) == [EXACT]


def _why(difference: float, half: float, floor: float, past: float) -> str:
    if math.isinf(half):
        return "too few samples to tell how certain they are"
    if floor > past:
        return "the noise from run to run is wider than the threshold"
    if half > past:
        return "its own samples are noisier than the threshold"
    return f"too close to the {'upper' if difference > 0 else 'lower'} threshold to tell"


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
