"""What a tuner's rows say: attempts in the order of the search, and the winner against the shipped preset.

A tuner's file is a saved run. A row's phase says what it is for: `TRIAL` in the search, `FINALIST` of the few
that were timed again, `round_phase` of the winner beside the preset.
The first attempt of a search is always the shipped preset.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from gemmbench.model.events import Staged, Started
from gemmbench.model.row import FAILED, Parameters, Problem, Row, Status
from gemmbench.model.run_file import Run
from gemmbench.stats import rates as derive
from gemmbench.stats.intervals import CONFIDENCE, SEED, Interval, resampled

SCOPE = "device"  # that decides: packing and padding count
TRIAL = "trial"
FINALIST = "finalist"

_NO_USE: tuple[Status, ...] = ("unsupported", "failed", "wrong")  # a shipped preset that anything beats
_RESAMPLES = 2000  # of rounds and samples: more than samples alone need


def round_phase(number: int) -> str:
    """The phase of the rows of one round, from 1."""
    return f"round {number}"


@dataclass(frozen=True, eq=False)
class Attempt:
    """One configuration of the search."""

    number: int  # from 1, in the order of trying
    parameters: Parameters
    rows: tuple[Row, ...]  # one for each size, up to the first that failed

    @property
    def trouble(self) -> Row | None:
        """The row that kept it from being ranked."""
        return next((row for row in self.rows if row.status != "ok"), None)

    @property
    def rate(self) -> float | None:
        """Its geometric mean over the sizes in flop/s; None if it failed at one."""
        return mean_rate(self.rows)


@dataclass(frozen=True)
class Comparison:
    """The winner beside the shipped preset at one problem."""

    problem: Problem
    searched: bool  # one of the problems of the search
    speedup: Interval | None  # how many times as fast as the shipped preset
    reason: str = ""  # why there is none


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a tuner's run."""

    attempts: tuple[Attempt, ...]
    winner: Parameters | None  # of the finalists; None if there were none, or the shipped preset won
    finished: bool  # the finals were held to their end
    overall: Interval | None  # the same, at the problems of the search together
    comparisons: tuple[Comparison, ...]
    fault: Row | None = None  # of the winner, when it took turns with the shipped preset

    @property
    def default(self) -> Attempt | None:
        return self.attempts[0] if self.attempts else None

    @property
    def ranked(self) -> tuple[Attempt, ...]:
        """The attempts that have a rate, the fastest first."""
        rated = [attempt for attempt in self.attempts if attempt.rate is not None]
        return tuple(sorted(rated, key=lambda attempt: -(attempt.rate or 0)))

    @property
    def failed(self) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.rate is None)

    @property
    def stands_alone(self) -> bool:
        """Whether the shipped preset fails here. One that was merely not timed may still be the fastest."""
        trouble = self.default.trouble if self.default else None
        return trouble is not None and trouble.status in _NO_USE

    @property
    def is_kept(self) -> bool:
        """Whether the winner replaces the preset: it is faster with confidence, or the preset fails."""
        if self.winner is None or not self.finished or self.fault is not None:
            return False
        return self.stands_alone or (self.overall is not None and self.overall.is_above(1))


@dataclass(frozen=True)
class Searching:
    """The search begins."""

    configurations: int  # in the space
    known: int  # measured by an earlier call
    seconds: float  # that it may take


@dataclass(frozen=True)
class Tried:
    """A configuration is through."""

    attempt: Attempt
    recalled: bool  # from the file


@dataclass(frozen=True)
class Retiming:
    """The finals begin."""

    cases: int


@dataclass(frozen=True)
class Retimed:
    """A row of the finals is on the disk."""

    row: Row


Event = Searching | Tried | Retiming | Retimed | Started | Staged
Tell = Callable[[Event], None]


def result(run: Run) -> Result:
    """What the rows of a tuner's file say; of several finals the last counts."""
    tried = attempts(run.rows)
    finals = _last_finals(run.rows)
    rounds = [row for row in finals if row.phase != FINALIST]
    searched = tuple(dict.fromkeys(row.problem for row in tried[0].rows if row.problem)) if tried else ()
    heat = [each for each in _by_parameters(row for row in finals if row.phase == FINALIST) if each.rate]
    best = max(heat, key=lambda each: each.rate or 0, default=None)
    if best is None or best.parameters == tried[0].parameters:
        return Result(tried, None, bool(finals), None, ())
    pairs = {
        problem: _pairs(rounds, tried[0].parameters, best.parameters, problem)
        for problem in dict.fromkeys(row.problem for row in rounds if row.problem)
    }
    comparisons = tuple(
        Comparison(problem, problem in searched, speedup(timed) if timed else None, _trouble(rounds, problem))
        for problem, timed in pairs.items()
    )
    together = [pair for problem in searched for pair in pairs.get(problem, ())]
    overall = speedup(together) if together else None
    finished = bool(rounds) or tried[0].rate is None
    own_rows = (row for row in rounds if row.parameters == best.parameters)
    fault = next((row for row in own_rows if row.status in FAILED), None)
    return Result(tried, best.parameters, finished, overall, comparisons, fault)


def attempts(rows: Iterable[Row]) -> tuple[Attempt, ...]:
    """The search's rows by configuration, in the order of trying."""
    return _by_parameters(row for row in rows if row.phase == TRIAL)


def mean_rate(rows: Sequence[Row]) -> float | None:
    """The geometric mean of rates in flop/s; None if a row has none, or there are no rows."""
    rates = [derive.flops_of(row) / took if (took := median_s(row)) else 0.0 for row in rows]
    if not all(rates) or not rates:
        return None
    return math.exp(sum(map(math.log, rates)) / len(rates))


def median_s(row: Row) -> float | None:
    """What ranks a row; None if it has no time. Its interval would take longer than a short look."""
    if row.status != "ok" or SCOPE not in row.samples:
        return None
    return float(np.median(row.samples[SCOPE].seconds))


Pair = tuple[Sequence[float], Sequence[float]]


def speedup(pairs: Sequence[Pair]) -> Interval:
    """The geometric mean of ratios of medians, with its bootstrap interval.

    Rounds are drawn anew as well as the samples within each, so that what changes from round to round (a
    clock, a neighbour) widens the interval as it should.

    Args:
        pairs: seconds of the slow and of the fast side, a pair for each round.

    Raises:
        ValueError: there are no pairs, or one has no samples.
    """
    if not pairs:
        raise ValueError("no rounds")
    random = np.random.default_rng(SEED)

    def medians(samples: Sequence[float]) -> npt.NDArray[np.float64]:
        values = np.asarray(samples, dtype=float)
        many = values.size > 1
        return resampled(values, random, _RESAMPLES).medians if many else values.repeat(_RESAMPLES)

    logs = np.stack([np.log(medians(slow) / medians(fast)) for slow, fast in pairs])
    chosen = random.integers(len(pairs), size=(len(pairs), _RESAMPLES))
    means = logs[chosen, np.arange(_RESAMPLES)].mean(axis=0)
    low, high = np.quantile(means, ((1 - CONFIDENCE) / 2, (1 + CONFIDENCE) / 2))
    middle = float(np.mean([np.log(np.median(slow) / np.median(fast)) for slow, fast in pairs]))
    return Interval(math.exp(middle), math.exp(low), math.exp(high))


def _by_parameters(rows: Iterable[Row]) -> tuple[Attempt, ...]:
    grouped: dict[tuple[tuple[str, object], ...], dict[Problem | None, Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(sorted(row.parameters.items())), {})[row.problem] = row
    groups = [tuple(group.values()) for group in grouped.values()]
    return tuple(Attempt(number, group[0].parameters, group) for number, group in enumerate(groups, 1))


def _last_finals(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows from the last heat on; finals of earlier calls do not count."""
    starts = [
        index
        for index, row in enumerate(rows)
        if row.phase == FINALIST and (index == 0 or rows[index - 1].phase != FINALIST)
    ]
    return tuple(row for row in rows[starts[-1] :] if row.phase != TRIAL) if starts else ()


def _pairs(rounds: Sequence[Row], slow: Parameters, fast: Parameters, problem: Problem) -> list[Pair]:
    """The samples of both sides, round by round; only rounds that both sides finished."""
    sides: dict[str, dict[bool, Sequence[float]]] = {}
    for row in rounds:
        if row.problem == problem and row.status == "ok" and row.parameters in (slow, fast):
            sides.setdefault(row.phase, {})[row.parameters == fast] = row.samples[SCOPE].seconds
    return [(side[False], side[True]) for side in sides.values() if len(side) == len((slow, fast))]


def _trouble(rounds: Sequence[Row], problem: Problem) -> str:
    """Why one side has no time at a problem, or ""."""
    row = next((row for row in rounds if row.problem == problem and row.status != "ok"), None)
    return f"{row.status}: {row.reason}" if row else ""
