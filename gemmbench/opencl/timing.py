"""Event and wall clock of the same launches, and whether twice the work takes twice the time."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from gemmbench.facts.records import Policy, Scope
from gemmbench.measure.sampling import sample
from gemmbench.rules.memory_integrity import DOUBLING_TOLERANCE

Enqueue = Callable[[], Any]  # puts one launch into the queue; its event
Seconds = Callable[[], float]

_SHORTEST_S = 1e-9  # an event of no length is shorter than its clock's tick
_RUNS = 4
_MOST_RUNS = 24
_MOST_S = 2.0
_SHORT_S = 2e-4  # of launches so short, only the minima of many tell anything
_BATCH_S = 0.02  # several launches in a batch: threads that sleep between launches may wake on one core


@dataclass(frozen=True)
class Elapsed:
    """Seconds of one launch by both clocks."""

    event: float
    wall: float


def elapsed(queue: Any, enqueue: Enqueue, count: int = 1) -> Elapsed:
    """Launch so many times back to back and wait; the mean of one launch."""
    begin = time.perf_counter()
    events = [enqueue() for _ in range(count)]
    queue.finish()
    wall = (time.perf_counter() - begin) / count
    spent = sum(event.profile.end - event.profile.start for event in events) * 1e-9 / count
    return Elapsed(max(spent, _SHORTEST_S), wall)


def doubling(once: Seconds, twice: Seconds) -> float:
    """Time of twice the work over time of the work, from pairs of runs next to each other.

    A disturbance can only lengthen a run, so that the ratio of the two minima nears the truth with more
    runs, unless the whole machine changes its pace meanwhile: then the pairs' own ratios do, and their
    median. The better of the two counts, unless the runs are so short that chance would make it good. A loop
    that does less than it should fails both.
    """
    single: list[float] = []
    double: list[float] = []
    end = time.perf_counter() + _MOST_S
    while True:
        for _ in range(_RUNS):
            single.append(once())
            double.append(twice())
        least, pairs = min(double) / min(single), float(np.median(np.divide(double, single)))
        short = min(double) < _SHORT_S
        ratio = least if short else min(least, pairs, key=lambda found: abs(found - 2))
        right = abs(ratio / 2 - 1) <= DOUBLING_TOLERANCE
        if (right and not short) or len(single) >= _MOST_RUNS or time.perf_counter() > end:
            return ratio


@dataclass(frozen=True)
class Sampled:
    """The event clock's samples of a launch, and what they are beside the wall clock's."""

    scope: Scope
    event_over_wall: float


def sampled(queue: Any, enqueue: Enqueue, policy: Policy, budget_s: float) -> Sampled:
    """Sample a launch by the rules of `measure.sampling`, both clocks side by side."""

    def batch(count: int) -> Mapping[str, float]:
        spent = elapsed(queue, enqueue, count)
        return {"kernel": spent.event, "device": spent.wall}

    scopes = sample(batch, replace(policy, batch_s=_BATCH_S), budget_s)
    event, wall = (float(np.median(scopes[name].seconds)) for name in ("kernel", "device"))
    return Sampled(scopes["kernel"], event / wall)
