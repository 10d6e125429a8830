"""The noise floor: how far a row's figure lies from run to run on a machine where nothing has changed.

The samples of a run cannot show it, as where a buffer came to lie, which core a thread woke up on and what
clock the processor had are drawn once for a run: only repetitions do. Where there are none, recordings of
unchanged machines tell of that kind of device (``noise.json``, by tools/recorded_noise.py).
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path
from statistics import fmean, harmonic_mean, median
from typing import Any, Literal

import msgspec
import numpy as np

from gemmbench.options.rules import Limits
from gemmbench.stats.intervals import CONFIDENCE, EXACT, Measure, student

JOB = 0.02  # of the jobs in which nothing changed may fail
POWER = 0.95  # how often what is called the resolution is found
FEW = 3  # base runs: fewer do not show how noisy this very row is, and measuring again cannot make up for it
IN_TURN_CONFIDENCE = 0.99  # of a verdict `slower` of a ratio taken in turn
ASSUMED = 0.01  # where not even a recording tells: a quiet GPU has less, a shared CPU more
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
OUTLYING = 3.0  # robust standard deviations: a round beyond counts as if it lay there; a node is named
_ELSEWHERE = 1.1  # a recording's margin, widened so far, does for the other CPU's recording, too
_OF_MEDIAN = 1.4  # the variance of the median of 3 to 10 normal figures over that of their mean: 1.2 to 1.5
_TICK = 1e-5  # no clock tells less than this apart, as a fraction
_QUARTILE = 0.6744897501960817  # of the standard normal distribution: its median absolute deviation


# --- What recordings of unchanged machines show -------------------------------------------------------------


@dataclass(frozen=True)
class Reach:
    """How far unchanged rows of a recording lie apart: so many new runs against so many base runs."""

    base: int
    new: int
    apart: tuple[float, ...]  # quantiles, at `Recordings.levels`, of the logarithm of new over base
    scaled: tuple[float, ...]  # of the same over its standard error by the rows' own repetitions
    least: tuple[float, ...]  # of the least new run's over base


@dataclass(frozen=True)
class Recordings:
    """``noise.json``: what tests/data/aa shows."""

    sources: dict[str, str]  # the recordings, and the hash of each
    levels: tuple[float, ...]  # of the quantiles
    kinds: dict[str, dict[str, tuple[Reach, ...]]]  # by `DeviceFacts.family` and by what is timed

    def of(self, family: str, what: str) -> Recorded:
        """Those of a family of devices; of every one of its type where there is none.

        What is timed: ``kernels`` or ``libraries``.
        """
        kind = "cpu-" if family.startswith("cpu-") else "gpu-"
        names = [family] if family in self.kinds else [name for name in self.kinds if name.startswith(kind)]
        return Recorded(", ".join(names), self.levels, tuple(self.kinds[name][what] for name in names))


@lru_cache(maxsize=1)
def recordings() -> Recordings:
    """The shipped ones."""
    return msgspec.json.decode(Path(__file__).with_name("noise.json").read_bytes(), type=Recordings)


@dataclass(frozen=True)
class Recorded:
    """How far unchanged rows of one kind of device lie apart; of several recordings the furthest counts."""

    name: str  # the recordings' families, for people
    levels: tuple[float, ...]
    reaches: tuple[tuple[Reach, ...], ...]  # of each recording

    def apart(self, level: float, base: int, new: int, name: str = "apart") -> float:
        """A quantile, of those of `Reach`: of tabulated numbers of runs the largest that are no more."""
        values = []
        for reaches in self.reaches:
            fits = [each for each in reaches if each.base <= base and each.new <= new]
            most = max(fits, key=lambda each: (each.base, each.new))
            values.append(float(np.interp(level, self.levels, getattr(most, name))))
        return max(values, key=abs)

    @property
    def deviation(self) -> float:
        """A typical row's from run to run, such that a normal distribution has the same 95 % interval."""
        return self.apart(0.975, 1, 1) / (student(CONFIDENCE, math.inf) * math.sqrt(2))


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
    recorded: Mapping[Hashable, Recorded] = field(default_factory=dict)  # what recordings show, by row

    def cautious(self) -> Noise:
        """The same for a gate that measures again: worth little where no row was ever repeated.

        A scatter or an assumption does not tell a noisy row from a quiet one; the row's own figures soon do.
        """
        return self if self.rows else replace(self, worth=min(self.worth, _FEW_ROWS_WORTH))

    def beyond(self, errors: Sequence[float]) -> Noise:
        """The same without what its figures' standard errors make of it, but `LEAST_IN_TURN` at least."""
        rest = self.typical**2 - float(np.median(errors)) ** 2
        return replace(self, typical=max(math.sqrt(max(rest, 0.0)), LEAST_IN_TURN))

    def of(self, key: Hashable, also: Iterable[Sequence[float]] = ()) -> Spread:
        """The floor of one row; `also` are more repetitions of it, a group for each machine and version."""
        squares, freedom = self.rows.get(key, (0.0, 0.0))
        for group in also:
            more, count = _squares(group)
            squares, freedom = squares + more, freedom + count
        total = self.worth + freedom
        return Spread(math.sqrt((self.worth * self.typical**2 + squares) / total), total)

    def is_of_recordings(self, key: Hashable) -> bool:
        """Whether recordings alone tell how noisy a row is: it was not repeated often enough."""
        return key in self.recorded and self.rows.get(key, (0.0, 0.0))[1] < FEW - 1

    def margin(self, key: Hashable, base: int, new: int, spread: Spread) -> float:
        """How far beyond the threshold an unchanged row may lie, so that one job in fifty fails at most.

        A job has as many chances of a false alarm as rows: each has its share of the 2 % (Sidak). What the
        row's repetitions tell counts as far as the recordings bear it out.
        """
        level = (1 - JOB) ** (1 / max(len(self.recorded), 1))
        own = student(2 * level - 1, spread.freedom) * spread.deviation * math.sqrt(1 / base + 1 / new)
        if (recorded := self.recorded.get(key)) is None:
            return own
        if self.is_of_recordings(key):
            return recorded.apart(level, base, new, "least") * (_ELSEWHERE if new >= FEW else 1.0)
        scaled = (
            recorded.apart(level, max(base, FEW), new, "scaled")
            * spread.deviation
            * math.sqrt(1 / base + 1 / new)
        )
        return max(own, min(recorded.apart(level, base, new), scaled))

    def apart(self, key: Hashable, base: Sequence[Measure], new: Sequence[Measure]) -> float:
        """What `margin` is of: the logarithm of new over base; of recordings, of the least of the new runs.

        Other programs make a run slower, never faster.
        """
        figure = min(each.value for each in new) if self.is_of_recordings(key) else centre(new)
        return figure - centre(base)

    def hidden(self, key: Hashable, base: int, new: int, spread: Spread) -> float:
        """How far below its true ratio a row's figure lies no more than once in twenty; as of `margin`."""
        if self.is_of_recordings(key):
            return -self.recorded[key].apart(1 - POWER, base, new, "least")
        return student(2 * POWER - 1, spread.freedom) * spread.deviation * math.sqrt(1 / base + 1 / new)


Groups = Mapping[Any, Sequence[Sequence[float]]]
"""By row: values of its repetitions, each group from one machine and one version."""


def assumed(deviation: float = ASSUMED) -> Noise:
    """What is taken for granted where nothing was measured."""
    return Noise(deviation, _ASSUMED_WORTH, "assumed")


def measured(groups: Groups, source: str) -> Noise | None:
    """The floor that repetitions show; None if no row has any.

    The typical variance, and what it is worth, come from the rows' variances: where they differ no more than
    samples of one variance would, a typical row tells much of every other.
    """
    rows = {}
    for key, several in groups.items():
        squared = [_squares(group) for group in several]
        if freedom := sum(count for _, count in squared):
            rows[key] = (sum(squares for squares, _ in squared), float(freedom))
    if not rows:
        return None
    squares, freedoms = np.array(list(rows.values())).T
    variances = np.maximum(squares / freedoms, _TICK**2)
    if len(rows) < _FEW_ROWS:
        return Noise(math.sqrt(float(np.average(variances, weights=freedoms))), _FEW_ROWS_WORTH, source, rows)
    from scipy.special import digamma, polygamma

    logs = np.log(variances) - digamma(freedoms / 2) + np.log(freedoms / 2)
    worth = _worth(float(np.var(logs, ddof=1) - np.mean(polygamma(1, freedoms / 2))))
    typical = math.exp((float(np.mean(logs)) + float(digamma(worth / 2)) - math.log(worth / 2)) / 2)
    return Noise(typical, worth, source, rows)


def scattered(ratios: Sequence[float]) -> Noise | None:
    """The floor that the rows of two runs show by how far their ratios scatter; None for fewer than twelve.

    A ratio is a logarithm, in units of what one run's noise would make it scatter by. Rows that have changed
    moved to one side, so that both are read apart, without the outermost tenth; the narrower one counts.
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


# --- One row's verdict, from the confidence interval of a ratio and a threshold. Pure numbers ---------------

Verdict = Literal[
    "slower", "broken", "changed", "inconclusive", "missing", "incomparable", "new", "same", "faster"
]
VERDICTS: dict[Verdict, str] = {
    "slower": "the whole interval is past the threshold",
    "broken": "it was ok in the base, and now there is no right result",
    "changed": "its kernels take other resources than in the base, with --fail-on resources",
    "inconclusive": "the interval reaches past a threshold, but not wholly",
    "missing": "it was ok in the base and was not measured now",
    "incomparable": "something other than the code differs",
    "new": "the base has no rate of it",
    "same": "the whole interval is within the threshold on either side",
    "faster": "the whole interval is past the threshold, on the good side",
}
"""Every verdict, the gravest first."""

LOST: tuple[Verdict, ...] = ("missing", "incomparable")
FAILING: tuple[Verdict, ...] = ("slower", "broken", "changed")


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
    """Whether new runs of a row are slower than base runs of it: a figure for each, one or more a side.

    Each run counts as one figure, however many samples it has: they share whatever the run drew. Its variance
    is the noise floor's, or its own samples' where that is larger. The interval is Student's for the
    difference of two means of logarithms, with the fewer degrees of freedom of what it is made from.
    `EXACT` alone is the base of figures that are ratios to it.
    """
    sides = (new,) if is_exact(base) else (base, new)
    difference = centre(new) - centre(base)
    if is_exact(base):  # the floor of ratios has no figure's own error in it
        variance = _of_middle([math.hypot(spread.deviation, figure.error) for figure in new])
    else:
        variance = sum(
            max(spread.deviation, figure.error) ** 2 / len(side) ** 2 for side in sides for figure in side
        )
    own = [figure.freedom for side in sides for figure in side if figure.error > spread.deviation]
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
        reason = _doubt(difference, half, floor, past) if may_be_slower else "the same or faster, not slower"
    return Judgement(verdict, _exp(difference), _exp(low), _exp(high), _exp(floor) - 1, may_be_slower, reason)


def _of_middle(errors: Sequence[float]) -> float:
    """The variance of the `centre` of figures with such standard errors."""
    if len(errors) < FEW or math.isinf(min(errors)):
        return fmean(error**2 for error in errors) / len(errors)
    return _OF_MEDIAN * harmonic_mean(errors) ** 2 / len(errors)


def centre(figures: Sequence[Measure]) -> float:
    """The middle of figures: of three and more the median, which a disturbed run does not move."""
    return median(figure.value for figure in figures)


def conclude(
    base: Sequence[Measure],
    new: Sequence[Measure],
    spread: Spread,
    limits: Limits,
    noise: Noise,
    key: Hashable,
) -> Judgement:
    """`judge`, but `slower`, which fails a job, only beyond what unchanged rows of such a job do.

    Arguments as of `judge`; `noise` is the floor of all rows, `key` the row's.
    """
    usual = judge(base, new, spread, limits)
    if is_exact(base) and usual.verdict == "slower":
        sure = judge(
            base, new, spread, replace(limits, confidence=max(limits.confidence, IN_TURN_CONFIDENCE))
        )
        doubt = "slower, but not surely enough to fail for"
        return sure if sure.verdict == "slower" else replace(sure, reason=doubt)
    if is_exact(base):
        return usual
    margin = noise.margin(key, len(base), len(new), spread)
    low = noise.apart(key, base, new) - margin
    if low > limits.high and len(new) >= FEW and noise.is_of_recordings(key):
        return replace(usual, verdict="slower", low=max(usual.low, _exp(low)), reason="")
    if usual.verdict != "slower" or low > limits.high:
        return usual
    reason = f"slower, but among such rows one that is unchanged may seem so by {_percent(margin)}"
    return replace(usual, verdict="inconclusive", reason=reason)


def robust_deviation(values: Sequence[float]) -> float:
    """The standard deviation by the median absolute deviation, as of a normal distribution."""
    return float(np.median(np.abs(np.asarray(values) - np.median(values))) / _QUARTILE)


def resolution(
    base: Sequence[Measure],
    new: Sequence[Measure],
    spread: Spread,
    limits: Limits,
    noise: Noise,
    key: Hashable,
    rounds: int = 0,
) -> float:
    """The smallest slowdown that a job like this one finds with a probability of 95 %, as a fraction.

    Arguments as of `conclude`; in `rounds` the row would have been measured again, had it been suspicious.
    """
    count = max(len(new), rounds)
    if is_exact(base):
        error = sum(each.error for each in new) / len(new)
        deviation = math.sqrt(_of_middle([math.hypot(spread.deviation, error)] * count))
        both = student(IN_TURN_CONFIDENCE, spread.freedom) + student(2 * POWER - 1, spread.freedom)
        return math.expm1(min(limits.high + both * deviation, 700.0))
    apart = unseen(len(base), count, spread, limits.confidence, noise, key)
    return math.expm1(min(limits.high + apart, 700.0))


def unseen(base: int, new: int, spread: Spread, confidence: float, noise: Noise, key: Hashable) -> float:
    """How far beyond the threshold a row must lie to be called `slower` 19 times in 20; a logarithm.

    `base` and `new` are numbers of figures, `confidence` is of the interval.
    """
    half = student(confidence, spread.freedom) * spread.deviation * math.sqrt(1 / base + 1 / new)
    if new >= FEW and noise.is_of_recordings(key):
        half = 0.0  # see `conclude`
    return max(noise.margin(key, base, new, spread), half) + noise.hidden(key, base, new, spread)


def is_exact(base: Sequence[Measure]) -> bool:
    """Whether new figures are held against something that has no noise."""
    return list(base) == [EXACT]


def _doubt(difference: float, half: float, floor: float, past: float) -> str:
    if math.isinf(half):
        return "too few samples to tell how certain they are"
    if floor > past:
        return "the noise from run to run is wider than the threshold"
    if half > past:
        return "its own samples are noisier than the threshold"
    return f"too close to the {'upper' if difference > 0 else 'lower'} threshold to tell"


def _percent(value: float) -> str:
    """A logarithm as a change: ``4.2 %``; from twice on ``x 2.4``."""
    ratio = _exp(value)
    return f"{(ratio - 1) * 100:.2g} %" if ratio < 2 else f"x {float(f'{ratio:.2g}'):g}"


def _exp(value: float) -> float:
    return math.exp(min(value, 700.0))
