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
from collections.abc import Callable, Mapping

from gemmbench.facts.records import Policy, Scope
from gemmbench.facts.stats import summarize

Batch = Callable[[int], Mapping[str, float]]
"""Runs so many problems; seconds for one problem by scope, the scope that decides first."""

Clock = Callable[[], float]

_AGREEING = 3
_LEAST = 3  # samples that a row must have, however short its budget
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
    end = clock() + budget_s
    if one_s is None:
        begin = clock()
        run(1)
        one_s = clock() - begin
    size = batch_size(one_s, policy)
    if settle:
        _settle(run, size, min(policy.settle_s, budget_s / 3), policy, clock, one_s)

    samples: dict[str, list[float]] = {}
    taken, look = 0, policy.min_batches
    stop = "budget"
    begin = clock()
    while True:
        for scope, seconds in run(size).items():
            samples.setdefault(scope, []).append(seconds)
        taken += 1
        now = clock()
        if taken >= look:
            if summarize(next(iter(samples.values()))).noise <= policy.precision:
                stop = "stable"
                break
            look = max(taken + 1, math.ceil(taken * _GROWTH))
        if taken >= _LEAST and now + (now - begin) / taken > end:
            break
    return {scope: Scope(tuple(values), size, stop) for scope, values in samples.items()}


def batch_size(one_s: float, policy: Policy) -> int:
    """How many problems of ``one_s`` seconds fill a batch: ``batch_s`` at least, ``max_batch_s`` at most."""
    if one_s <= 0:
        return _MOST_IN_BATCH
    wanted = math.ceil(policy.batch_s / one_s)
    allowed = max(1, math.floor(policy.max_batch_s / one_s))
    return max(1, min(wanted, allowed, _MOST_IN_BATCH))


def least_s(one_s: float) -> float:
    """The least that a row costs whose problem takes ``one_s`` seconds: verified once, then three of each."""
    return (1 + 2 * _LEAST) * one_s


def _settle(run: Batch, size: int, limit_s: float, policy: Policy, clock: Clock, one_s: float) -> None:
    end = clock() + limit_s
    last: list[float] = []
    while clock() + size * one_s < end:
        last = [*last[1 - _AGREEING :], next(iter(run(size).values()))]
        if len(last) == _AGREEING and max(last) <= min(last) * (1 + policy.precision):
            return
