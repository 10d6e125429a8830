"""Sampling: one handle alone, or two handles whose batches alternate.

1. Warm up with the row's own work, for 0.02 s on a CPU or in float on NVIDIA, else 0.1 s.
2. A batch lasts 5 ms or one problem, whichever is longer; 3 ms between control bursts on a CPU, where only
   quiet batches count (`model.quiet`).
3. Sample until the 95 % interval of the median is within the precision, or the budget is spent. Where the
   device reports limits, go on until one would be known.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import chain, cycle, repeat

from msgspec import UNSET

from gemmbench.model import quiet
from gemmbench.model.case import Policy
from gemmbench.model.device import Conditions
from gemmbench.model.instrument import LEAST_SAMPLES, Batch, Bursts, Handle
from gemmbench.model.row import Scope
from gemmbench.stats.intervals import Summary, interleaved_ratio, summarize

Clock = Callable[[], float]

_MOST_IN_BATCH = 1000
# Under a power limit, single batches differ by 3 to 7 %, and the median of many repeats. The clock of an H200
# drops 0.05 to 0.1 s after the load began. From then on, rates are within 1.4 % of those after a second.
_LIMITED_WARM_S, _LIMITED_SAMPLES_S, _LIMITED_BATCH_S = 2.0, 1.0, 0.05
_FLOAT_WARM_S = 0.02  # of a GPU that would report limits: float has none
# Under a power limit each kernel has its own clock, which an H200 reaches 0.05 to 0.1 s after another kernel
# ran. In shorter turns both kernels would share one clock.
_TURN_S, _FOLLOWS_S = 0.45, 0.2
_SAME_LOAD_S = 0.1  # at most between two loads of a kernel that count as a single one
_LEAST_TURNS = 10
_LAUNCH_BOUND = 0.5  # of a batch's wall time, spent on launches
_LONG_S = 0.1  # the request for the next batch is negligible compared with a batch this long
_SERIES_S = 0.05  # of batches between bursts, until the parent wakes up: it disturbs them


@dataclass(frozen=True)
class Sampled:
    """The batches of one clock, oldest first."""

    batches: tuple[Batch, ...]
    size: int  # problems in each
    stop: str  # why sampling ended: "stable", "budget", "disturbed"
    conditions: Conditions | None = None
    tick_s: float = 0.0  # resolution of the clock
    bursts: Bursts | None = None  # that ran between the batches

    @property
    def scopes(self) -> dict[str, Scope]:
        return {name: self.scope(name) for name in (self.batches[0].seconds if self.batches else {})}

    def scope(self, name: str, wall: bool = False) -> Scope:
        """The samples of one scope, with bursts and waits; `wall` takes the wall clock instead."""
        seconds = tuple(batch.wall_s if wall else batch.seconds[name] for batch in self.batches)
        scope = Scope(seconds, self.size, self.stop, self.tick_s / self.size)
        if self.bursts:
            waits = [batch.waited_s for batch in self.batches if batch.waited_s is not None]
            scope = replace(
                scope,
                bursts_s=tuple(chain.from_iterable(batch.bursts_s for batch in self.batches)),
                waited_s=tuple(waits) if len(waits) == len(seconds) else UNSET,
            )
            scope = self.bursts.settled(scope)
        return scope


def batch_size(one_s: float, policy: Policy) -> int:
    """How many problems of ``one_s`` seconds fill a batch, at most 1000."""
    return min(_MOST_IN_BATCH, math.ceil(policy.batch_s / max(one_s, policy.batch_s / _MOST_IN_BATCH)))


class Rule:
    """Decides when there are enough samples."""

    def __init__(
        self, policy: Policy, end: float, least: int = LEAST_SAMPLES,
        summary: Callable[[Sequence[float]], Summary] = summarize,
    ) -> None:  # fmt: skip
        self._policy, self._end, self.least, self._summary = policy, end, least, summary
        self._values: list[float] = []
        self.stop = ""

    def add(self, value: float, now: float, batch_s: float) -> None:
        """Add a sample taken at `now`, and set `stop` if it was the last. The next takes about ``batch_s``.

        `ValueError` if the sample is not a positive finite number.
        """
        if not 0 < value < math.inf:
            raise ValueError(f"a sample is not a positive finite number: {value}")
        self._values.append(value)
        count = len(self._values)
        if count >= self._policy.min_batches and self._summary(self._values).noise <= self._policy.precision:
            self.stop = "stable"
        elif count >= self.least and now + batch_s > self._end:
            self.stop = "budget"


class Stream:
    """Batches of one size. The next is requested ahead, unless launches are slow."""

    def __init__(
        self, order: Iterator[Handle], clock: str, size: int, batch_s: float, before: Batch | None = None
    ) -> None:
        self._order, self._clock, self.size, self.batch_s = order, clock, size, batch_s
        self._asked: deque[Handle] = deque()
        self._is_launch_bound = before is not None and _is_launch_bound(before)
        self._end = -math.inf  # of the batch before

    def resized(self, batch: Batch, policy: Policy) -> Stream:
        size = batch_size(batch.wall_s, policy)
        return Stream(self._order, self._clock, size, size * batch.wall_s, batch)

    def ask(self) -> None:
        """Request batches until one, or two if it can be ahead, are in flight."""
        can_be_ahead = self.batch_s < _LONG_S and not self._is_launch_bound
        while not self._asked or (
            can_be_ahead and len(self._asked) < 2 and self._clock in self._asked[-1].prepared.ahead
        ):
            handle = next(self._order)
            handle.start(self._clock, self.size)
            self._asked.append(handle)

    def next(self) -> Batch:
        self.ask()
        return self._finished()

    def rest(self) -> tuple[Batch, ...]:
        return tuple(self._finished() for _ in range(len(self._asked)))

    def _finished(self) -> Batch:
        batch = self._asked.popleft().finish()
        begin = max(batch.begin, self._end)
        batch = replace(batch, begin=begin, ahead_s=begin - batch.begin)
        self._end, self._is_launch_bound = batch.end, _is_launch_bound(batch)
        return batch


def _is_launch_bound(batch: Batch) -> bool:
    return (batch.launch_s or 0.0) > _LAUNCH_BOUND * (batch.end - batch.begin)


def _warmed_up(handle: Handle, clock: str, policy: Policy, warm_s: float, now: Clock) -> Stream:
    """Run the row's own work, and find the batch size that fits."""
    begin, size, batch = now(), 1, handle.batch(clock, 1)
    while (wanted := batch_size(batch.wall_s, policy)) > 2 * size or now() < begin + warm_s:
        size = wanted
        batch = handle.batch(clock, size)
    return Stream(repeat(handle), clock, size, math.inf).resized(batch, policy)


def alone(
    handle: Handle, clock: str, policy: Policy, budget_s: float, warm: bool = True, one_s: float = 0.0,
    now: Clock = time.perf_counter,
) -> Sampled:  # fmt: skip
    """Sample a prepared case until the interval of its finest time is narrow enough or ``budget_s`` is spent.

    With `warm` it warms up first, unless a long problem of ``one_s`` seconds ran just before. Under a power
    limit, it warms up for 2 s and samples again for 1 s.
    """
    begin, warm_s = now(), handle.watch.warm_s if warm else 0.0
    if handle.watch.limit_s and not handle.load:
        warm_s = min(warm_s, _FLOAT_WARM_S)
    if handle.bursts:
        return _between_bursts(handle, clock, policy, budget_s, warm_s, one_s, now)
    load, since, until = handle.watch.load
    if load != handle.load or begin > until + _SAME_LOAD_S:
        since = begin
    known_s = since + handle.watch.limit_s if warm and handle.load else begin
    handle.watch.begin()
    if one_s > max(warm_s, policy.batch_s):
        source = Stream(repeat(handle), clock, 1, one_s)
    else:
        source = _warmed_up(handle, clock, policy, warm_s, now)
    sampled = _sampled(source, policy, budget_s, now, max(0.0, known_s - now()))
    conditions = handle.watch.end(clock, sampled.batches) or Conditions()
    if warm and conditions.power_limited:
        handle.watch.begin()
        one_s = source.batch_s / source.size
        size = batch_size(one_s, replace(policy, batch_s=_LIMITED_BATCH_S))
        source = Stream(repeat(handle), clock, size, size * one_s)
        end = now() + _LIMITED_WARM_S
        while now() < end:
            source.next()
        sampled = _sampled(source, policy, budget_s, now, _LIMITED_SAMPLES_S)
        ended = handle.watch.end(clock, sampled.batches) or conditions
        conditions = replace(ended, power_limited=True)
    handle.watch.load = handle.load, since, now()
    warmed_s = round(max(0.0, sampled.batches[0].begin - begin), 3)
    return replace(sampled, conditions=replace(conditions, warm_s=warmed_s), tick_s=handle.watch.tick_s)


def _between_bursts(
    handle: Handle, clock: str, policy: Policy, budget_s: float, warm_s: float, one_s: float, now: Clock
) -> Sampled:  # fmt: skip
    """Sample between control bursts until enough batches are quiet, or time is up."""
    assert handle.bursts is not None
    begin, count = now(), 1
    handle.watch.begin()
    quickest_s = one_s
    if one_s <= quiet.BATCH_S:
        quickest_s = handle.batch(clock, 1).wall_s
        while now() < begin + warm_s or _power_of_two(quickest_s) > count:
            count = _power_of_two(quickest_s)
            quickest_s = min(quickest_s, handle.batch(clock, count).wall_s)
    sampled = Sampled((), _power_of_two(quickest_s), "", bursts=handle.bursts)
    started, patience_s = now(), policy.patience_s or 0.0
    while not sampled.stop:
        left_s = max(0.0, started + budget_s + patience_s - now())
        batches = (*sampled.batches, *handle.series(clock, sampled.size, min(_SERIES_S, left_s)))
        sampled = replace(sampled, batches=batches)
        scope = sampled.scope(next(iter(batches[0].seconds)))
        times = summarize(scope.counted)
        if len(batches) < LEAST_SAMPLES:
            continue
        if scope.is_complete and times.n >= policy.min_batches and times.noise <= policy.precision:
            sampled = replace(sampled, stop="stable")
        elif now() > started + budget_s + (0.0 if scope.is_complete else patience_s):
            sampled = replace(sampled, stop="budget" if scope.is_complete else "disturbed")
    conditions = handle.watch.end(clock, sampled.batches) or Conditions()
    conditions = replace(conditions, warm_s=round(max(0.0, started - begin), 3))
    return replace(sampled, conditions=conditions, tick_s=handle.watch.tick_s)


def _power_of_two(one_s: float) -> int:
    """How many problems last about 3 ms, in steps that visits share."""
    return 1 << max(0, min(10, round(math.log2(quiet.BATCH_S / one_s))))


def _sampled(source: Stream, policy: Policy, budget_s: float, now: Clock, least_s: float = 0.0) -> Sampled:
    """Sample until the rule stops, for `least_s` at least; after a slow first batch, begin again."""
    begin = now()
    rule = Rule(policy, begin + max(budget_s, least_s))
    batches: list[Batch] = []
    while not rule.stop or now() < begin + least_s:
        batches.append(source.next())
        if policy.min_batches * batches[-1].wall_s * source.size <= policy.budget_s:
            rule.least = policy.min_batches
        rule.add(batches[-1].finest_s, now(), source.batch_s)
        if len(batches) == 1 and batch_size(batches[0].wall_s, policy) > 2 * source.size:
            source.rest()  # it ran slowly before
            return _sampled(source.resized(batches[0], policy), policy, budget_s, now, least_s)
    return Sampled((*batches, *source.rest()), source.size, rule.stop)


class Metered(AbstractContextManager["Metered"]):
    """Runs batches of a handle back to back while somebody reads a meter."""

    def __init__(self, handle: Handle, clock: str) -> None:
        self._handle, self._clock = handle, clock
        self._stream = Stream(repeat(handle), clock, 0, math.inf)

    def __call__(self, count: int) -> None:
        if count != self._stream.size:
            self._stream.rest()
            self._stream = Stream(repeat(self._handle), self._clock, count, math.inf)
        self._stream.batch_s = self._stream.next().wall_s * count

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._stream.rest()


def in_turn(
    first: Handle, second: Handle, clock: str, policy: Policy, budget_s: float,
    now: Clock = time.perf_counter,
) -> tuple[Sampled, Sampled]:  # fmt: skip
    """Sample two handles, batch by batch alternating, until the ratio of their finest common scope is stable.

    Under a power limit, sample again in turns of 0.45 s: a turn counts as one batch from 0.2 s on, when the
    clock has followed. Preparation order decides memory placement: the caller should randomise it.
    """
    first.watch.begin()
    sources = [_warmed_up(each, clock, policy, each.watch.warm_s, now) for each in (first, second)]
    one_s = sum(source.batch_s / source.size for source in sources)
    size = batch_size(one_s, policy)
    shared = first.instrument is second.instrument
    order = Stream(cycle((second, first, first, second)), clock, size, size * one_s if shared else math.inf)
    sampled = _pairs(order.next, order.next, policy, size * one_s, now() + budget_s, now)
    order.rest()
    conditions = first.watch.end(clock, sampled[0].batches) or Conditions()
    if conditions.power_limited:
        size = max(size, batch_size(one_s / 2, replace(policy, batch_s=_LONG_S / 2)))
        streams = [Stream(repeat(each), clock, size, size * one_s / 2) for each in (first, second)]
        first.watch.begin()
        rule = replace(policy, min_batches=_LEAST_TURNS)
        end = now() + max(budget_s, 2 * _LEAST_TURNS * (_TURN_S + 2 * _LONG_S))
        turns = [lambda source=source: _turn(source, now) for source in streams]
        sampled = _pairs(turns[0], turns[1], rule, 2 * _TURN_S, end, now)
        ended = first.watch.end(clock, sampled[0].batches) or conditions
        conditions = replace(ended, power_limited=True)
    left, right = (replace(side, size=size, tick_s=first.watch.tick_s) for side in sampled)
    return replace(left, conditions=conditions), right


def _pairs(
    first: Callable[[], Batch], second: Callable[[], Batch], policy: Policy, pair_s: float, end: float,
    now: Clock,
) -> tuple[Sampled, Sampled]:  # fmt: skip
    """Batches of two sources in pairs, until the rule stops."""
    rule = Rule(policy, end, 2 * LEAST_SAMPLES, lambda ratios: interleaved_ratio(ratios, [1.0] * len(ratios)))
    batches: tuple[list[Batch], list[Batch]] = ([], [])
    while not rule.stop or len(batches[0]) % 2:
        sides = ((batches[1], second), (batches[0], first))
        for side, run in sides if len(batches[0]) % 2 == 0 else reversed(sides):
            side.append(run())
        left, right = batches[0][-1].seconds, batches[1][-1].seconds
        scope = next(name for name in left if name in right)
        rule.add(left[scope] / right[scope], now(), pair_s)
    return Sampled(tuple(batches[0]), 1, rule.stop), Sampled(tuple(batches[1]), 1, rule.stop)


def _turn(source: Stream, now: Clock) -> Batch:
    """The mean of a turn's batches, but for the first 0.2 s."""
    begin = now()
    batches = [source.next()]
    while now() < begin + _TURN_S:
        batches.append(source.next())
    batches += source.rest()
    return _mean([batch for batch in batches if batch.begin >= begin + _FOLLOWS_S] or batches[-1:])


def _mean(batches: Sequence[Batch]) -> Batch:
    means = {name: statistics.fmean(batch.seconds[name] for batch in batches) for name in batches[0].seconds}
    launches = [batch.launch_s for batch in batches if batch.launch_s is not None]
    spans = [batch.device for batch in batches if batch.device]
    return Batch(
        means,
        batches[0].begin,
        batches[-1].end,
        sum(batch.count for batch in batches),
        device=(spans[0][0], spans[-1][1]) if spans else None,
        launch_s=sum(launches) if launches else None,
        ahead_s=sum(batch.ahead_s for batch in batches),
    )
