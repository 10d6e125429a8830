"""The stopping rule, and the two ways of asking for batches: alone and in turn.

1. Settle: run until the trend of rate and clock is below the noise, or the settling time is over. Where power
   limits, it is never over earlier. Or (`--state burst`) rest until the clock is at its maximum, for each
   tenth of a second that is sampled.
2. Batch so that a batch lasts at least ``batch_s`` (the clock's tick and the enqueueing vanish in it) and no
   more than ``max_batch_s``.
3. Sample until the 95 % confidence interval of the median is within the precision, or the budget is spent.
4. Keep every sample, but begin anew where the last third lies more than the precision from the first: the
   device had not settled.
"""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import cycle, repeat
from typing import Literal

from msgspec import UNSET, UnsetType

from gemmbench.model.case import Policy
from gemmbench.model.device import POWER, Conditions, Reading
from gemmbench.model.instrument import (
    LEAST_RUNS,
    LEAST_SAMPLES,
    Batch,
    Handle,
    Watch,
)
from gemmbench.model.row import Scope
from gemmbench.model.units import percent
from gemmbench.model.units import seconds as in_seconds
from gemmbench.stats.intervals import drift, moved, ratio_in_turn, summarize

Clock = Callable[[], float]
Sleep = Callable[[float], None]

_AGREEING = 3
_MOST_IN_BATCH = 1000
_LOOK = 0.1  # of a budget, which a first problem must not take to be looked at again
_GROWTH = 1.25  # the interval is looked at again when there are this many times more samples
_FELL = 0.02  # a rate or clock that falls so far is limited, whatever the driver reports
# Single batches lie 3 to 7 % apart where power limits: only a median over seconds repeats. An H200's clock
# goes up and down once a second under its limit: thirds of three seconds are alike, thirds of two are not.
_LIMITED_SAMPLES_S = 3.0
# An H200 holds the average of its power over about a second against its limit: after a rest its clock may
# fall only 1.3 s later, and a row that is sampled before lies 15 % above the next. How much power there will
# be shows early, by how fast the average climbs: it is read every 0.1 s, and late.
_POWER_S = 1.5
_NEAR_LIMIT = 0.6  # of the power that there may be: worth waiting for, as the first readings say too little
_AT_LIMIT = 0.95  # as good as limited
_STEP_S = 0.1  # between readings that differ
# Under a limit of power each kernel has a clock of its own, which an H200 reaches 0.05 to 0.1 s after another
# ran: in shorter turns both would have the clock of the two.
_TURN_S, _FOLLOWS_S = 0.45, 0.2
_LEAST_TURNS = 10
_BURST_S = 0.1
_LEAST_REST_S, _BLIND_REST_S, _MOST_REST_S, _REST_LOOK_S = 0.25, 1.0, 2.0, 0.02
_JUMPED, _MOSTLY, _AT_MOST, _LEAST_JUDGED, _TINY_S = 0.7, 0.5, 1.1, 10, 1e-12
_LONG_S = 0.1  # beside a batch of this length what the parent takes to ask for the next is nothing


@dataclass(frozen=True)
class Sampled:
    """The batches of one window, oldest first."""

    batches: tuple[Batch, ...]
    size: int  # problems in each
    stop: str  # why sampling ended: "stable", "budget"
    conditions: Conditions | None = None
    is_limited: bool = False  # power limited the device
    note: str = ""  # for the row

    @property
    def scopes(self) -> dict[str, Scope]:
        """The samples of each scope, in seconds for one problem."""
        names = self.batches[0].seconds if self.batches else {}
        middle: Literal["mean"] | UnsetType = "mean" if self.is_limited else UNSET
        return {
            name: Scope(tuple(batch.seconds[name] for batch in self.batches), self.size, self.stop, middle)
            for name in names
        }


@dataclass(frozen=True)
class Window:
    """One clock's share of a row."""

    clock: str
    budget_s: float
    settle: bool


# --- the rule -----------------------------------------------------------------------------------------------


def batch_size(one_s: float, policy: Policy) -> int:
    """How many problems of ``one_s`` seconds fill a batch: ``batch_s`` at least, ``max_batch_s`` at most."""
    if one_s <= 0:
        return _MOST_IN_BATCH
    wanted = math.ceil(policy.batch_s / one_s)
    allowed = max(1, math.floor(policy.max_batch_s / one_s))
    return max(1, min(wanted, allowed, _MOST_IN_BATCH))


class Rule:
    """When there are samples enough.

    Args:
        policy: precision and least number of batches.
        begin: when the first batch may begin.
        end: when the budget is spent.
    """

    def __init__(self, policy: Policy, begin: float, end: float) -> None:
        self._policy, self._begin, self._end = policy, begin, end
        self._samples: list[float] = []
        self._look = policy.min_batches
        self.stop = ""

    def add(self, seconds: float, now: float) -> None:
        """One more sample, of the scope that decides."""
        self._samples.append(seconds)
        count = len(self._samples)
        if self.stop:
            return
        if count >= self._look:
            if summarize(self._samples).noise <= self._policy.precision:
                self.stop = "stable"
            self._look = max(count + 1, math.ceil(count * _GROWTH))
        if not self.stop and count >= LEAST_SAMPLES and now + (now - self._begin) / count > self._end:
            self.stop = "budget"


class Settling:
    """Whether the trend of rate and clock is below the noise, or the time for that is over.

    A limit of power shows only after so long a load (`Watch.load_s`). Where it does, by the limits that the
    device reports, or by a rate that falls if it reports nothing, it is warmed for all of the settling time,
    whatever the budget.

    Args:
        policy: precision, and how long settling may take.
        batch_s: about how long a batch takes.
        begin: when the first batch begins.
        budget_s: of the window.
        watch: what reads the device.
    """

    def __init__(self, policy: Policy, batch_s: float, begin: float, budget_s: float, watch: Watch) -> None:
        self._policy, self._batch_s, self._watch = policy, batch_s, watch
        self._end = begin + min(policy.settle_s, budget_s / 3)
        self._load_end = begin + min(policy.settle_s, watch.load_s)
        self._limited_end = begin + policy.settle_s
        self._begin, self._power_end = begin, begin + min(policy.settle_s, max(watch.load_s, _POWER_S))
        self._powers: list[tuple[float, float]] = []  # when, and how much
        self._is_near_limit = False
        self._clocks: list[float] = []
        self.batches: list[Batch] = []
        self.is_limited = False

    def over(self, now: float) -> bool:
        """Whether the next batch is a sample."""
        ends = now + self._batch_s
        if self.is_limited:
            return ends >= self._limited_end
        if now < (self._power_end if self._is_near_limit else self._load_end):
            return False
        return self._agree(3) or ends >= self._end

    def add(self, batch: Batch) -> None:
        """One more batch, which is no sample."""
        self.batches.append(batch)
        reading = self._watch.reading()
        if reading and reading.clock_mhz:
            self._clocks.append(reading.clock_mhz)
        if reading:
            is_slower = POWER in reading.limits
        else:  # have batches become slower, by more than their spread
            is_slower = drift([each.finest_s for each in self.batches]) > _FELL
        self.is_limited |= bool(self._watch.load_s) and (is_slower or self._reaches_limit(reading, batch.end))

    def _reaches_limit(self, reading: Reading | None, now: float) -> bool:
        """Whether the power is at its limit, or will be; the reading is an average over about a second."""
        if reading is None or reading.power_w is None or reading.limit_w is None or not self._watch.load_s:
            return False
        self._powers.append((now, reading.power_w))
        former = [(then, watts) for then, watts in self._powers if now - then >= _STEP_S]
        climbs = [(reading.power_w - watts) / (now - then) for then, watts in former[:1] + former[-1:]]
        # What the second before had leaves the average meanwhile.
        expected_w = self._powers[0][1] + max(climbs, default=0.0)
        self._is_near_limit |= max(expected_w, reading.power_w) > _NEAR_LIMIT * reading.limit_w
        return now - self._begin >= 1.0 and reading.power_w > _AT_LIMIT * reading.limit_w

    @property
    def samples(self) -> list[Batch]:
        """Those that are samples after all, since neither rate nor clock moved under the load."""
        kept = self.batches[_AGREEING:]
        seconds, clocks = [batch.finest_s for batch in kept], self._clocks[_AGREEING:]
        is_flat = self._agree(len(kept))
        if not is_flat and len(kept) >= _LEAST_JUDGED:  # those of short kernels scatter
            is_flat = self._are_alike(clocks) and abs(moved(seconds)) <= self._policy.precision
        return kept if self._watch.load_s and not self.is_limited and is_flat else []

    def _agree(self, count: int) -> bool:
        """Whether so many of the latest batches, and the clock in them, agree within the precision."""
        latest = [batch.finest_s for batch in self.batches[-count:]]
        clocks = self._clocks[-count:]
        return len(latest) == count >= _AGREEING and self._are_alike(latest) and self._are_alike(clocks)

    def _are_alike(self, values: Sequence[float]) -> bool:
        """Whether they agree within the precision, if there are any."""
        return not values or max(values) <= min(values) * (1 + self._policy.precision)


def _ratio(first: Batch, second: Batch) -> float:
    """Of the seconds of two batches, in the finest scope that both have: a library tells no kernel's time."""
    scope = next(name for name in first.seconds if name in second.seconds)
    return first.seconds[scope] / second.seconds[scope]


# --- the ways of asking -------------------------------------------------------------------------------------


class Stream:
    """Batches of one size, one after another; where that helps, one is asked for before the last is read.

    Where the host takes as long for the launches as the device for the work, the device waits for them, and
    a batch that is asked for ahead would have the launches of the next in its wall time.

    Args:
        order: the handles whose batches come next, without an end.
        clock: that batches are timed by.
        size: problems in a batch.
        batch_s: about how long one takes.
        before: a batch of before, by which is known what the launches take.
    """

    def __init__(
        self, order: Iterator[Handle], clock: str, size: int, batch_s: float, before: Batch | None = None
    ) -> None:
        self._order, self._clock, self.size, self.batch_s = order, clock, size, batch_s
        self._asked: deque[Handle] = deque()
        self._is_launch_bound = before is not None and _is_launch_bound(before)
        self._end = -math.inf  # of the batch before

    def ask(self) -> None:
        """Ask for batches until there are enough in flight."""
        while not self._asked or (len(self._asked) < 2 and self._is_ahead(self._asked[-1])):
            handle = next(self._order)
            handle.start(self._clock, self.size)
            self._asked.append(handle)

    def next(self) -> Batch:
        self.ask()
        return self._finished()

    def rest(self) -> tuple[Batch, ...]:
        """Those in flight, and no more."""
        return tuple(self._finished() for _ in range(len(self._asked)))

    def _finished(self) -> Batch:
        """The oldest batch in flight, which began when the one before it had ended."""
        batch = self._asked.popleft().finish()
        begin = max(batch.begin, self._end)
        batch = replace(batch, begin=begin, ahead_s=begin - batch.begin)
        self._end, self._is_launch_bound = batch.end, _is_launch_bound(batch)
        return batch

    def _is_ahead(self, handle: Handle) -> bool:
        is_short = self.batch_s < _LONG_S
        return is_short and not self._is_launch_bound and self._clock in handle.prepared.ahead


def _is_launch_bound(batch: Batch) -> bool:
    """Whether its launches took the host most of the batch."""
    return (batch.launch_s or 0.0) > _MOSTLY * (batch.end - batch.begin)


def stream(handle: Handle, clock: str, size: int, batch_s: float, before: Batch | None = None) -> Stream:
    """The batches of one handle."""
    return Stream(repeat(handle), clock, size, batch_s, before)


def alone(
    handle: Handle,
    clock: str,
    policy: Policy,
    budget_s: float,
    settle: bool = True,
    one_s: float | None = None,
    now: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Sampled:
    """Sample a handle, in the policy's state, until its first scope is stable or the budget is spent.

    Args:
        handle: what is sampled.
        clock: that its batches are timed by.
        policy: state, batch lengths, precision, least number of batches.
        budget_s: seconds for everything that happens here, unless power limits.
        settle: whether to settle first.
        one_s: how long one problem takes, if known; otherwise one is run to find out.
        now: seconds; replaced in tests.
        sleep: waits so many seconds; replaced in tests.
    """
    begin = now()
    probe = _looked_at(handle, clock, policy, budget_s) if one_s is None else None
    one_s = probe.wall_s if probe else one_s or 0.0
    size = batch_size(one_s, policy)
    source = stream(handle, clock, size, size * one_s, probe)
    handle.watch.begin()
    if policy.state == "burst":
        sampled = _bursts(source, handle.watch, policy, begin + budget_s, now, sleep)
    else:
        # A problem that fills a batch alone was timed already, and a slow row has no second one to spare.
        timed = [probe] if probe and size == probe.count == 1 else []
        sampled = _settled(source, handle.watch, policy, begin, budget_s, settle, now, timed)
    sampled = without_jumps(_watched(sampled, handle, clock, policy))
    warm_s = round(max(0.0, sampled.batches[0].begin - begin), 3)
    return replace(sampled, conditions=sampled.conditions and replace(sampled.conditions, warm_s=warm_s))


def without_jumps(sampled: Sampled) -> Sampled:
    """The batches; those during which the device's clock jumped are timed by the wall clock.

    Such a batch seems faster than all others although the wall clock saw it last as long: a third of its
    time is missing at least, by the share of the wall time that is the device's in the others. Where launches
    take more than the device, nobody can tell.
    """
    batches = sampled.batches
    if len(batches) < _LEAST_JUDGED:
        return sampled
    seconds = [batch.finest_s for batch in batches]
    shares = [each / max(batch.wall_s, _TINY_S) for each, batch in zip(seconds, batches, strict=True)]
    usual = statistics.median(shares)
    least = min(each for each, share in zip(seconds, shares, strict=True) if share >= _JUMPED * usual)
    pairs = zip(seconds, shares, strict=True)
    jumped = [share < _JUMPED * usual and each < _JUMPED * least for each, share in pairs]
    if not _MOSTLY <= usual <= _AT_MOST or not any(jumped):
        return sampled
    kept = tuple(
        replace(batch, seconds=dict.fromkeys(batch.seconds, batch.wall_s)) if jump else batch
        for batch, jump in zip(batches, jumped, strict=True)
    )
    note = f"the device's clock jumped in {sum(jumped)} of {len(batches)} batches, timed by the wall clock"
    return replace(sampled, batches=kept, note="; ".join(filter(None, [sampled.note, note])))


def _looked_at(handle: Handle, clock: str, policy: Policy, budget_s: float) -> Batch:
    """A first batch, by which the size of the others is chosen.

    A device that wakes up takes long for its first problem, and a single launch is waited for longer than a
    short kernel runs: what takes little of the budget, and no more than a batch may, is looked at again, in
    batches of the size it seems to need.
    """
    size, probe = 1, handle.batch(clock, 1)
    if probe.wall_s > min(_LOOK * budget_s, policy.max_batch_s):
        return probe
    probe = handle.batch(clock, size)
    while (wanted := batch_size(probe.wall_s, policy)) > 2 * size:
        size, probe = wanted, handle.batch(clock, wanted)
    return probe


def _settled(
    source: Stream,
    watch: Watch,
    policy: Policy,
    begin: float,
    budget_s: float,
    settle: bool,
    now: Clock,
    timed: Sequence[Batch] = (),
) -> Sampled:
    settling = Settling(policy, source.batch_s, now(), budget_s, watch)
    while settle and not settling.over(now()):
        settling.add(source.next())
    is_limited, end = settling.is_limited, begin + budget_s
    span_s = min(_LIMITED_SAMPLES_S, policy.settle_s)
    least_end = now() + span_s if is_limited else begin
    most_end = max(end, max(now(), least_end) + policy.settle_s if watch.load_s else end)
    batches = settling.samples or ([] if settling.batches else list(timed))
    rule = _ruled(policy, batches, now(), max(end, least_end))
    while True:
        # Where power limits, whole spans are sampled, and no part of one to be stable or to fill the budget.
        while now() < least_end or not (rule.stop or (is_limited and len(batches) >= policy.min_batches)):
            batches.append(source.next())
            rule.add(batches[-1].finest_s, now())
        if is_limited and not rule.stop and span_s and now() + span_s <= end:
            least_end = now() + span_s
            continue
        if settle and policy.settle_s and not is_limited and _meets_limit(source, watch, policy, now):
            is_limited, batches, least_end = True, [], now() + span_s
            most_end, rule = least_end + policy.settle_s, _ruled(policy, [], now(), least_end)
            continue
        # Single batches lie several per cent apart where power limits: their spread excuses nothing.
        seconds = [batch.finest_s for batch in batches]
        change = moved(seconds, by_mean=True) if is_limited else drift(seconds)
        if abs(change) <= policy.precision or now() + source.batch_s > most_end or not policy.settle_s:
            break
        # It had not settled: what came first was on the way.
        kept = batches[len(batches) // 3 :]
        least_end = min(most_end, now() + kept[0].begin - batches[0].begin) if is_limited else least_end
        batches, rule = kept, _ruled(policy, kept, now(), most_end)
    batches += source.rest()
    over_s = now() - begin - budget_s
    note = ""
    if is_limited and over_s > source.batch_s:
        first = batches[0].begin
        warmed, sampled = (in_seconds(round(s, 1)) for s in (first - begin, now() - first))
        note = f"power limits the device: warmed for {warmed} and sampled for {sampled}, beyond the budget"
    if is_limited and abs(change) > policy.precision:
        slower = f"{percent(abs(change))} {'slower' if change > 0 else 'faster'}"
        note = "; ".join(filter(None, [note, f"the last third of its samples is {slower} than the first"]))
    return Sampled(tuple(batches), source.size, rule.stop or "budget", is_limited=is_limited, note=note)


def _meets_limit(source: Stream, watch: Watch, policy: Policy, now: Clock) -> bool:
    """Whether a limit of power came after all, so that what was sampled is of before; if so it is warmed."""
    reading = watch.reading() if watch.load_s else None
    if reading is None or POWER not in reading.limits:
        return False
    end = now() + policy.settle_s
    while now() < end:
        source.next()
    return True


def _ruled(policy: Policy, batches: Sequence[Batch], now: float, end: float) -> Rule:
    """The rule, as it stands after some batches."""
    rule = Rule(policy, batches[0].begin if batches else now, end)
    for batch in batches:
        rule.add(batch.finest_s, batch.end)
    return rule


def _bursts(source: Stream, watch: Watch, policy: Policy, end: float, now: Clock, sleep: Sleep) -> Sampled:
    rule = Rule(policy, now(), end)
    batches: list[Batch] = []
    while not rule.stop:
        for batch in _burst(source, watch, now, sleep):
            batches.append(batch)
            rule.add(batch.finest_s, now())
    return Sampled(tuple(batches), source.size, rule.stop)


def _burst(source: Stream, watch: Watch, now: Clock, sleep: Sleep) -> list[Batch]:
    """Rest, and run the first tenth of a second of a load.

    A burst ends earlier where the device reports a limit, or its own counters show a clock that fell: an
    H200 reports the limit a second later. The batch that ended then does not count. A device that reports a
    limit from the first batch on has that batch: it does not cool in the time there is.
    """
    rest(watch, now, sleep)
    burst: list[Batch] = []
    while not burst or now() - burst[0].begin < _BURST_S:
        batch = source.next()
        if burst and (_fell(batch, burst, watch) or ((reading := watch.reading()) and reading.limits)):
            source.rest()  # it ran in a state that is no burst's any more, at its end if not from its begin
            return burst
        burst.append(batch)
    return [*burst, *(batch for batch in source.rest() if not _fell(batch, burst, watch))]


def _fell(batch: Batch, burst: Sequence[Batch], watch: Watch) -> bool:
    """Whether its clock, by a GPU's own counters, lies below a burst's so far; a CPU's is of moments."""
    top_mhz = max(each.mhz or 0.0 for each in burst)
    return bool(watch.load_s) and (batch.mhz or math.inf) < (1 - _FELL) * top_mhz


def rest(watch: Watch, now: Clock, sleep: Sleep, least_s: float = _LEAST_REST_S) -> None:
    """Wait until the clock is at its maximum and no limit is reported, as far as the device says."""
    end = now() + _MOST_REST_S
    sleep(_rest_s(watch, least_s))
    while (reading := watch.reading()) and not reading.is_cool and now() < end:
        sleep(_REST_LOOK_S)


def _rest_s(watch: Watch, least_s: float = _LEAST_REST_S) -> float:
    """How long a rest is at least: longer where the device does not say when it has cooled."""
    is_blind = watch.load_s > 0 and watch.reading() is None
    return max(least_s, _BLIND_REST_S) if is_blind else least_s


class Metered:
    """Runs batches of a handle back to back while somebody reads a meter: a context manager."""

    def __init__(self, handle: Handle, clock: str) -> None:
        self._handle, self._clock = handle, clock
        self._stream = stream(handle, clock, 0, math.inf)

    def __call__(self, count: int) -> None:
        if count != self._stream.size:
            self._stream.rest()
            self._stream = stream(self._handle, self._clock, count, math.inf)
        self._stream.batch_s = self._stream.next().wall_s * count

    def __enter__(self) -> Metered:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is None:
            self._stream.rest()


@dataclass(frozen=True)
class Pairs:
    """Batches of two handles, taken in pairs: the second's first in the first pair, then by turns."""

    first: Sampled
    second: Sampled

    @property
    def ratio(self) -> float:
        """Seconds of the first over those of the second: the geometric mean of the two orders' medians."""
        sides = ([batch.finest_s for batch in side.batches] for side in (self.first, self.second))
        return math.exp(ratio_in_turn(*sides).value)


def in_turn(
    first: Handle,
    second: Handle,
    clock: str,
    policy: Policy,
    budget_s: float,
    now: Clock = time.monotonic,
    sleep: Sleep = time.sleep,
) -> Pairs:
    """Sample two handles, batch by batch in turn, until the ratio of their finest common scope is stable.

    Each pair is taken in the other order than the pair before, so that what changes the machine's speed for
    longer than a batch changes both. Where power limits, a turn is long enough for the clock to follow, and
    its batches after that count as one. In the state burst a turn is a burst, after a rest. Which of them was
    prepared first, and so has its memory before the other's, is the caller's to draw by chance. Nothing is
    asked ahead of two processes: they would overlap.

    Args:
        first: one of them.
        second: the other.
        clock: that batches are timed by.
        policy: for a batch, and for how many pairs at least.
        budget_s: seconds for both together.
        now: seconds; replaced in tests.
        sleep: waits so many seconds; replaced in tests.
    """
    begin, is_burst = now(), policy.state == "burst"
    first.watch.begin()
    one_s = sum(_looked_at(each, clock, policy, budget_s / 2).wall_s for each in (first, second))
    size = batch_size(one_s, policy)
    shared = first.instrument is second.instrument
    order = Stream(cycle((second, first, first, second)), clock, size, size * one_s if shared else math.inf)
    settling = Settling(policy, size * one_s, now(), budget_s, first.watch)
    # Both are warmed; a processor needs no warmth.
    while first.watch.load_s and not is_burst and not settling.over(now()):
        for batch in [order.next() for _ in range(4)][1:3]:
            settling.add(batch)
    is_limited = settling.is_limited and clock != "host"

    def turn(side: Handle) -> Batch:
        source = stream(side, clock, size, size * one_s / 2)
        return _mean(_burst(source, side.watch, now, sleep) if is_burst else _turn(source, now))

    while True:
        rule = Rule(policy, now(), max(begin + budget_s, now() + budget_s / 3))
        if is_limited:
            order.rest()
            size = max(size, batch_size(one_s / 2, replace(policy, batch_s=_LONG_S / 2)))
        if is_limited or is_burst:
            turn_s = _rest_s(first.watch) + 2 * _BURST_S if is_burst else _TURN_S + 2 * _LONG_S
            end = now() + max(budget_s, 2 * _LEAST_TURNS * turn_s)
            rule = Rule(replace(policy, min_batches=_LEAST_TURNS), now(), end)
        batches: tuple[list[Batch], list[Batch]] = ([], [])
        while not rule.stop:
            second_leads = len(batches[0]) % 2 == 0
            if is_limited or is_burst:
                pair = tuple(map(turn, (second, first) if second_leads else (first, second)))
            else:
                pair = order.next(), order.next()
            for values, batch in zip(batches, pair[::-1] if second_leads else pair, strict=True):
                values.append(batch)
            rule.add(_ratio(batches[0][-1], batches[1][-1]), now())
        if clock == "host" or is_limited or is_burst or not _meets_limit(order, first.watch, policy, now):
            break
        is_limited = True
    order.rest()
    sampled = [Sampled(tuple(values), size, rule.stop, is_limited=is_limited) for values in batches]
    return Pairs(_watched(sampled[0], first, clock, policy), sampled[1])


def _turn(source: Stream, now: Clock) -> list[Batch]:
    """A handle's batches in its turn, once the clock has followed its power."""
    begin = now()
    batches = [source.next()]
    while now() < begin + _TURN_S:
        batches.append(source.next())
    batches += source.rest()
    return [batch for batch in batches if batch.begin >= begin + _FOLLOWS_S] or batches[-1:]


def _mean(batches: Sequence[Batch]) -> Batch:
    """Batches of one size that followed each other, as one."""
    means = {name: statistics.fmean(batch.seconds[name] for batch in batches) for name in batches[0].seconds}
    clocks = [batch.mhz for batch in batches if batch.mhz]
    launches = [batch.launch_s for batch in batches if batch.launch_s is not None]
    spans = [batch.device for batch in batches if batch.device]
    return Batch(
        means,
        batches[0].begin,
        batches[-1].end,
        sum(batch.count for batch in batches),
        mhz=statistics.fmean(clocks) if clocks else None,
        device=(spans[0][0], spans[-1][1]) if spans else None,
        launch_s=sum(launches) if launches else None,
        ahead_s=sum(batch.ahead_s for batch in batches),
    )


def _watched(sampled: Sampled, handle: Handle, clock: str, policy: Policy) -> Sampled:
    """The same, with what was read while its batches ran."""
    conditions = handle.watch.end(clock, sampled.batches) or Conditions()
    return replace(sampled, conditions=replace(conditions, state=policy.state))


def least_s(one_s: float) -> float:
    """The least that a row costs whose problem takes ``one_s`` seconds: verified once, then three of each."""
    return LEAST_RUNS * one_s
