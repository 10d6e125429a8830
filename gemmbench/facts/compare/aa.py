"""A/A: the same cases several times on one machine, and the threshold that its noise lets a gate carry.

A threshold is carried if a row that is as fast as before is not called slower, and one that is slower by
twice the threshold is, 95 times in 100: between the two lie the noise of both sides and the interval's
confidence.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemmbench.facts.compare import gate
from gemmbench.facts.compare.basis import Basis, Rules
from gemmbench.facts.compare.comparison import title
from gemmbench.facts.compare.noise import Noise, Spread
from gemmbench.facts.compare.verdict import Limits, judge
from gemmbench.facts.records import Row, RowKey, Run
from gemmbench.facts.stats import student

POWER = 0.95  # how often a slowdown of twice the threshold is to be found
SHARE = 0.95  # of the rows that a machine's threshold is to serve
_FINEST, _COARSEST = 1e-4, 0.9


@dataclass(frozen=True)
class Carried:
    """What one row's noise allows."""

    spread: Spread
    compare: float | None  # the threshold that one new run carries, as a fraction; None: none below 90 %
    check: float | None  # and as many as check measures of a suspicious row


@dataclass(frozen=True)
class Tolerance:
    """One row of an A/A measurement."""

    key: RowKey
    row: Row
    device: str  # for people
    runs: int
    plain: Carried
    ratio: Carried | None  # in ratio mode; None without a reference


@dataclass(frozen=True)
class Alarms:
    """Each repetition held against the others: every `slower` is a false alarm."""

    verdicts: int
    slower: int
    inconclusive: int


@dataclass(frozen=True, eq=False)
class Floor:
    """What an A/A measurement says of a machine."""

    runs: tuple[Run, ...]
    rules: Rules
    rows: tuple[Tolerance, ...]
    alarms: Alarms
    ratio_alarms: Alarms | None


def floor(runs: Sequence[Run], rules: Rules) -> Floor:
    """The noise floor of every row that was measured at least twice, plain and as a ratio.

    Args:
        runs: of one machine and version; a row's repetitions stand in one run or several.
        rules: threshold, confidence, scope; the references of ratio mode.
    """
    plain = Basis(tuple(runs), replace(rules, ratio=()))
    plain_noise = plain.noise()
    ratio = Basis(tuple(runs), rules) if rules.ratio else None
    ratio_noise = ratio.noise() if ratio else None
    found = []
    for key, row in plain.rows.items():
        count = len(plain.base_figures(key))
        if count < 2:
            continue
        has_ratio = ratio is not None and ratio_noise is not None and key in ratio.references
        found.append(
            Tolerance(
                key,
                row,
                title(plain.bases[0], replace(row, device=key[1])),
                count,
                _carried(plain_noise, key, count, rules),
                _carried(ratio_noise, key, count, rules) if has_ratio and ratio_noise else None,
            )
        )
    alarms = _alarms(plain, plain_noise)
    ratio_alarms = _alarms(ratio, ratio_noise) if ratio and ratio_noise else None
    return Floor(tuple(runs), rules, tuple(found), alarms, ratio_alarms)


def serves(values: Sequence[float | None]) -> float | None:
    """The threshold that serves 95 % of the rows; None if there is none, or there are no rows."""
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return None
    found = ordered[math.ceil(SHARE * len(ordered)) - 1]
    return found if math.isfinite(found) else None


def carries(spread: Spread, base: int, new: int, confidence: float) -> float | None:
    """The smallest threshold at which twice as much is found in 95 of 100 trials; None: none below 90 %.

    Args:
        spread: the noise of one run.
        base: runs of the base.
        new: new runs.
        confidence: of the interval.
    """
    both = spread.deviation * math.sqrt(1 / base + 1 / new)
    needed = (student(confidence, spread.freedom) + student(2 * POWER - 1, spread.freedom)) * both

    def short(threshold: float) -> float:
        return math.log((1 + 2 * threshold) / (1 + threshold)) - needed

    if short(_COARSEST) < 0:
        return None
    if short(_FINEST) > 0:
        return _FINEST
    from scipy.optimize import brentq

    return float(brentq(short, _FINEST, _COARSEST))


def _carried(noise: Noise, key: RowKey, count: int, rules: Rules) -> Carried:
    spread = noise.of(key)
    sure = max(gate.CONFIDENCE, rules.confidence)
    return Carried(
        spread, carries(spread, count, 1, rules.confidence), carries(spread, count, gate.MOST_ROUNDS, sure)
    )


def _alarms(basis: Basis, noise: Noise) -> Alarms:
    verdicts = []
    for key, row in basis.rows.items():
        figures = basis.base_figures(key)
        limits: Limits = basis.rules.limits(row)
        for place, one in enumerate(figures):
            others = figures[:place] + figures[place + 1 :]
            if others:
                verdicts.append(judge(others, [one], noise.of(key), limits).verdict)
    return Alarms(len(verdicts), verdicts.count("slower"), verdicts.count("inconclusive"))
