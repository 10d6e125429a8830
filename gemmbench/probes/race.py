"""Times candidates of a probe against each other, within a budget."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from gemmbench.measure.sampling import Clock, in_turn
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch, Handle, Instrument, LostError, NotMeasuredError, Prepared
from gemmbench.model.row import Parameters, Row
from gemmbench.model.units import GIGA, number
from gemmbench.probes.arithmetic import kernels_in
from gemmbench.probes.integrity import events_agree

LAUNCH_S = 0.01  # one launch that is sampled lasts about this
_RACE_S = 0.004  # and one in the race
_RACE_RUNS = 3
_FIRST_TRIPS = 16
_IN_TURN_S = 1.0  # for two depths of unrolling whose rates are suspicious

_DOUBLING_RUNS = 4
_MOST_DOUBLING_RUNS = 24
_MOST_DOUBLING_S = 2.0
_SHORT_S = 2e-4  # of launches so short, only the minima of many tell anything


# --- what is raced ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sized(Handle):
    """A handle whose problems have so much work."""

    work: int = 1

    def start(self, clock: str, count: int, work: int = 1) -> None:
        super().start(clock, count, work * self.work)


def sized(handle: Handle, work: int) -> Sized:
    """A handle whose problems have so much work."""
    return Sized(handle.instrument, handle.number, handle.prepared, work, watch=handle.watch)


def winner(row: Row) -> Parameters:
    """The parameters of the candidate that won the race of an arithmetic probe's saved row."""
    chosen: Parameters = {
        name: row.choice[name] for name in ("form", "chains", "unroll", "groups") if name in row.choice
    }
    kernels: Parameters = {} if "groups" in chosen else {"kernels": kernels_in([int(chosen["chains"])])}
    return {**row.parameters, **chosen, **kernels}


def event_s(batch: Batch) -> float:
    """Seconds of one problem by the finest clock."""
    return next(iter(batch.seconds.values()))


def amount(prepared: Prepared) -> int:
    """Operations, or bytes, in a unit of work."""
    return prepared.unit.flops or prepared.unit.bytes


def trips_for(handle: Handle, wanted_s: float) -> int:
    """How much work lasts so long, by a launch long enough to tell; for some probes there is no choice."""
    least, most = handle.prepared.trips
    if least == most:
        return most
    clock, trips = handle.prepared.clocks[0], _FIRST_TRIPS
    handle.batch(clock, 1)  # the first launch may compile
    while True:
        batch = handle.batch(clock, 1, trips)
        event, wall = event_s(batch), batch.wall_s
        if event >= wanted_s / 8 or wall > wanted_s or trips >= most:
            spent = event if events_agree(event / wall) else wall
            return max(least, min(math.ceil(wanted_s / spent * trips), most))
        trips = min(most, trips * max(2, min(16, int(wanted_s / event / 2))))


# --- the race -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Entry:
    """A candidate that was timed."""

    rate: float  # operations or bytes per second
    handle: Handle

    @property
    def choice(self) -> Parameters:
        """What tells it from the others, for the row."""
        return self.handle.prepared.built.choice


class Race:
    """Candidates of a case and their rates: a context manager that holds their handles.

    Once its budget is spent, who has not entered stays out.

    Args:
        instrument: prepares and times the candidates.
        case: its parameters are each candidate's, too.
        device: that it runs on.
        policy: of the run.
        budget_s: seconds for the race.
        hopeless: a candidate this many times slower than the best is not run again.
        now: seconds; replaced in tests.

    Attributes:
        entries: all that was timed.
        failure: why the last candidate that was refused was.
        kept: a handle that outlives the race.
    """

    def __init__(
        self,
        instrument: Instrument,
        case: Case,
        device: DeviceFacts,
        policy: Policy,
        budget_s: float = math.inf,
        hopeless: float = math.inf,
        now: Clock = time.monotonic,
    ) -> None:
        self._instrument, self._case, self._device, self._policy = instrument, case, device, policy
        self._hopeless, self._now = hopeless, now
        self._end = now() + budget_s
        self._handles: list[Handle] = []
        self._builds: dict[str, float] = {}  # seconds by source: candidates may share a program
        self._cut_short = False
        self.entries: list[Entry] = []
        self.failure = ""
        self.kept: Handle | None = None

    def __enter__(self) -> Race:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for handle in self._handles:
            if self.kept is None or handle.number != self.kept.number:
                handle.__exit__(kind)

    def enter(self, candidates: Iterable[Parameters], late: bool = False) -> bool:
        """Prepare candidates and time each for a few launches; whether there was any.

        Building takes most of the time, so that nothing is built any more when the budget is spent, unless
        what comes late is needed as evidence. A candidate that is refused is left out.
        """
        if self.entries and not late and self._now() > self._end:
            self._cut_short = True
            return False
        handles = [handle for candidate in candidates if (handle := self._prepared(candidate))]
        for handle in handles:
            least, most = handle.prepared.trips
            work = max(1, most // 4) if least == most else trips_for(handle, _RACE_S)
            self.entries.append(Entry(self._rate(sized(handle, work)), handle))
        return bool(handles)

    def final(self, count: int) -> Sized:
        """The fastest of the first few with the work that is sampled."""
        finalists = [
            sized(entry.handle, trips_for(entry.handle, LAUNCH_S)) for entry in self.ranked()[:count]
        ]
        return max(finalists, key=self._rate)

    def _prepared(self, candidate: Parameters) -> Handle | None:
        case = replace(self._case, parameters={**self._case.parameters, **candidate})
        like = self._handles[0].number if self._handles else None
        try:
            handle = self._instrument.prepare(case, self._device, self._policy, like)
        except NotMeasuredError as error:
            if error.restart or isinstance(error, LostError):
                raise
            self.failure = error.reason
            return None
        self._handles.append(handle)
        self._builds[handle.prepared.built.source] = handle.prepared.built.build_s or 0.0
        return handle

    def _rate(self, handle: Sized) -> float:
        """Operations or bytes per second of the best of a few launches; of fewer where there is no hope."""
        best, rate = max((entry.rate for entry in self.entries), default=0.0), 0.0
        clock = handle.prepared.clocks[0]
        for _ in range(_RACE_RUNS):
            rate = max(rate, amount(handle.prepared) * handle.work / event_s(handle.batch(clock, 1)))
            if rate * self._hopeless < best:
                break
        return rate

    @property
    def build_s(self) -> float:
        """Seconds spent building programs."""
        return sum(self._builds.values())

    @property
    def best_rate(self) -> float:
        """The best rate of all candidates."""
        return max(entry.rate for entry in self.entries)

    def ranked(self) -> list[Entry]:
        """All so far, the fastest first."""
        return sorted(self.entries, key=lambda entry: -entry.rate)

    def close_to_best(self, margin: float) -> list[Entry]:
        """Those within a margin of the best rate."""
        return [entry for entry in self.entries if entry.rate >= margin * self.best_rate]

    def unrolling(self, best: Entry, most: float = math.inf) -> float | None:
        """Its rate with the deepest unrolling over that with the shallowest; None if only one was raced.

        Args:
            best: of the entries.
            most: where the race shows more, perhaps since the machine's speed changed, they are measured in
                turn.
        """
        depths = {
            int(entry.choice["unroll"]): entry
            for entry in self.entries
            if {**entry.choice, "unroll": best.choice["unroll"]} == best.choice
        }
        if len(depths) < 2:
            return None
        deep, shallow = depths[max(depths)], depths[min(depths)]
        if deep.rate <= most * shallow.rate:
            return deep.rate / shallow.rate
        first, second = (sized(each.handle, trips_for(each.handle, LAUNCH_S)) for each in (deep, shallow))
        pairs = in_turn(first, second, first.prepared.clocks[0], self._policy, _IN_TURN_S, self._now)
        return amount(first.prepared) * first.work / (amount(second.prepared) * second.work) / pairs.ratio

    @property
    def notes(self) -> tuple[str, ...]:
        """What is to be said of the race as a whole."""
        return ("the race was cut short by its budget: a larger --budget tries more",) * self._cut_short

    def summary(self, **words: str) -> tuple[str, ...]:
        """What the race has shown: the best rate of each value of some choices, in the words for them."""
        lines = []
        for choice, word in words.items():
            best = self._best_of(choice)
            named = any(isinstance(value, str) for value in best)
            order = best if named else sorted(best)
            shown = ", ".join(f"{value}{' ' if named else ': '}{best[value]}" for value in order)
            lines.append(f"raced {word} (G/s): {shown}")
        return tuple(lines)

    def note(self) -> str:
        """The best rate of each value of each choice that differed."""
        names = dict.fromkeys(name for entry in self.entries for name in entry.choice)
        lines = [
            f"{name} {', '.join(f'{value}: {rate}' for value, rate in best.items())}"
            for name in names
            if len(best := self._best_of(name)) > 1
        ]
        return f"raced (GB/s): {'; '.join(lines) or 'one way only'}"

    def _best_of(self, choice: str) -> dict[int | float | str, str]:
        """The best rate of each value of a choice, to be shown."""
        best: dict[int | float | str, float] = {}
        for entry in self.entries:
            value = entry.choice[choice]
            best[value] = max(entry.rate, best.get(value, 0.0))
        return {value: number(rate / GIGA) for value, rate in best.items()}


# --- twice the work -----------------------------------------------------------------------------------------


def doubling(
    handle: Handle,
    work: int,
    tolerance: float,
    launches: int = 1,
    seconds: Callable[[Batch], float] = event_s,
    now: Clock = time.monotonic,
) -> float:
    """Time of twice the work over time of the work, from pairs of runs next to each other.

    A disturbance can only lengthen a run, so that the ratio of the two minima nears the truth with more
    runs, unless the whole machine changes its pace meanwhile: then the pairs' own ratios do, and their
    median. The better of the two counts, unless the runs are so short that chance would make it good. A loop
    that does less than it should fails both.

    Args:
        handle: what is run.
        work: that is doubled.
        tolerance: how far from 2 is near enough to stop early.
        launches: of the single work, whose mean counts.
        seconds: of a problem, by the clock that is believed.
        now: seconds; replaced in tests.
    """
    single: list[float] = []
    double: list[float] = []
    clock, end = handle.prepared.clocks[0], now() + _MOST_DOUBLING_S
    while True:
        for _ in range(_DOUBLING_RUNS):
            single.append(seconds(handle.batch(clock, launches, work)))
            double.append(seconds(handle.batch(clock, 1, 2 * work)))
        least, pairs = min(double) / min(single), float(np.median(np.divide(double, single)))
        short = min(double) < _SHORT_S
        ratio = least if short else min(least, pairs, key=lambda value: abs(value - 2))
        right = abs(ratio / 2 - 1) <= tolerance
        if (right and not short) or len(single) >= _MOST_DOUBLING_RUNS or now() > end:
            return ratio
