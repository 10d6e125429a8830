"""The sampling loop and its stopping rule. Knows a function that runs a batch; prints nothing.

1. Settle: run until three consecutive batches agree within 1 %, or the settling time is over.
2. Batch so that a batch lasts at least ``batch_s`` (the clock's tick and the enqueueing vanish in it) and no
   more than ``max_batch_s``.
3. Sample until the 95 % confidence interval of the median is within the precision, or the budget is spent.
4. Keep every sample.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, Protocol

from gemmbench.facts.records import Policy, Scope
from gemmbench.facts.skips import LEAST_RUNS, LEAST_SAMPLES
from gemmbench.facts.stats import summarize

Batch = Callable[[int], Mapping[str, float]]
"""Runs so many problems; seconds for one problem by scope, the scope that decides first."""

Clock = Callable[[], float]

Turn = Literal["more", "early", "past", "enough", "late", "anew"]
"""What follows a batch.

more: another. early: another, and those so far do not count. past: another, and from this one on they do not
count. enough: nothing. late: nothing, and the batch does not count. anew: all again, settling too.
"""


class Pace(Protocol):
    """Keeps the sampling of one device in step with that of others."""

    def begin(self) -> None:
        """Called when the first batch could start; returns when every device could."""

    def turn(self, enough: bool) -> Turn:
        """Called after every batch; `enough`: for this device there could be an end."""


class _Alone:
    """Nobody to keep step with."""

    def begin(self) -> None:
        """Nothing to wait for."""

    def turn(self, enough: bool) -> Turn:
        """No more than is wanted here."""
        return "enough" if enough else "more"


_ALONE = _Alone()
# Not an argument, which every executor would hand on: none of them samples otherwise beside other devices.
_PACE: ContextVar[Pace] = ContextVar("pace", default=_ALONE)


@contextmanager
def paced(pace: Pace) -> Iterator[None]:
    """All sampling within keeps this pace."""
    token = _PACE.set(pace)
    try:
        yield
    finally:
        _PACE.reset(token)


_AGREEING = 3
_MOST_IN_BATCH = 1000
_GROWTH = 1.25  # the interval is looked at again when there are this many times more samples


def sample(
    run: Batch,
    policy: Policy,
    budget_s: float,
    clock: Clock = time.monotonic,
    one_s: float | None = None,
    settle: bool = True,
) -> dict[str, Scope]:
    """Sample a batch function until its first scope is stable or the budget is spent.

    Beside other devices (`paced`), sampling and settling start when all of them are ready, and go on until
    all of them have enough, so that every sample was taken while all were busy.

    Args:
        run: the batch function.
        policy: batch lengths, precision, least number of batches.
        budget_s: seconds for everything that happens here.
        clock: seconds; replaced in tests.
        one_s: how long one problem takes, if known; otherwise one is run to find out.
        settle: whether to settle first.

    Returns:
        The samples of each scope, in seconds for one problem.
    """
    pace = _PACE.get()
    begin = clock()
    if one_s is None:
        run(1)
        one_s = clock() - begin
    size = batch_size(one_s, policy)
    left_s = budget_s - (clock() - begin)
    pace.begin()
    while True:
        end = clock() + left_s
        if settle:
            _settle(run, size, min(policy.settle_s, budget_s / 3), policy, clock, one_s)
        found = _taken(run, size, policy, end, clock, pace)
        if found is not None:
            return found


def _taken(
    run: Batch, size: int, policy: Policy, end: float, clock: Clock, pace: Pace
) -> dict[str, Scope] | None:
    """The samples of each scope; None if they do not count and others are wanted."""
    samples: dict[str, list[float]] = {}
    taken, look = 0, policy.min_batches
    stop = ""
    counted: int | None = None  # of them, once others have had enough
    begin = clock()
    while True:
        for scope, seconds in run(size).items():
            samples.setdefault(scope, []).append(seconds)
        taken += 1
        now = clock()
        if not stop and taken >= look:
            if summarize(next(iter(samples.values()))).noise <= policy.precision:
                stop = "stable"
            look = max(taken + 1, math.ceil(taken * _GROWTH))
        if not stop and taken >= LEAST_SAMPLES and now + (now - begin) / taken > end:
            stop = "budget"
        turn = pace.turn(bool(stop))
        if turn == "anew":
            return None
        if turn == "early":
            samples.clear()
            taken, look, stop, begin = 0, policy.min_batches, "", now
            continue
        if turn in ("past", "late") and counted is None:
            counted = taken - 1
        if turn in ("enough", "late"):
            return {scope: Scope(tuple(values[:counted]), size, stop) for scope, values in samples.items()}


def batch_size(one_s: float, policy: Policy) -> int:
    """How many problems of ``one_s`` seconds fill a batch: ``batch_s`` at least, ``max_batch_s`` at most."""
    if one_s <= 0:
        return _MOST_IN_BATCH
    wanted = math.ceil(policy.batch_s / one_s)
    allowed = max(1, math.floor(policy.max_batch_s / one_s))
    return max(1, min(wanted, allowed, _MOST_IN_BATCH))


def least_s(one_s: float) -> float:
    """The least that a row costs whose problem takes ``one_s`` seconds: verified once, then three of each."""
    return LEAST_RUNS * one_s


def _settle(run: Batch, size: int, limit_s: float, policy: Policy, clock: Clock, one_s: float) -> None:
    end = clock() + limit_s
    last: list[float] = []
    while clock() + size * one_s < end:
        last = [*last[1 - _AGREEING :], next(iter(run(size).values()))]
        if len(last) == _AGREEING and max(last) <= min(last) * (1 + policy.precision):
            return
