"""Times candidates of a probe against each other within a budget, and judges whether a figure is believed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gemmbench.model import quiet
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, DType, HostArray, decode
from gemmbench.model.instrument import Batch, Handle, Instrument, LostError, NotMeasuredError, Prepared
from gemmbench.model.row import Check, Parameters
from gemmbench.model.units import GIGA, by_key, number, rate_text
from gemmbench.stats.ceilings import Ceiling, why_above

LAUNCH_S = 0.01  # one launch that is sampled lasts about this
_RACE_S = 0.004  # and one in the race
_RACE_RUNS = 3
_FIRST_TRIPS = 16

_RATIO_RUNS = 4
_MOST_RATIO_RUNS = 24
_MOST_RATIO_S, _MOST_RATIO_BUDGETS = 2.0, 6.0  # whichever is less
_SHORT_S = 2e-4  # of launches so short, only the minima of many are meaningful


def amount(prepared: Prepared) -> int:
    """Operations, or bytes, of a unit of work."""
    return prepared.unit.flops or prepared.unit.bytes


def trips_for(handle: Handle, wanted_s: float) -> int:
    """The units of work that last about ``wanted_s``, found with launches of growing length."""
    least, most = handle.prepared.trips
    if least == most:
        return most
    clock, trips = handle.prepared.clocks[0], _FIRST_TRIPS
    handle.batch(clock, 1)  # the first launch may compile
    while True:
        batch = handle.batch(clock, 1, trips)
        event, wall = batch.finest_s, batch.wall_s
        if event >= wanted_s / 8 or wall > wanted_s or trips >= most:
            spent = event if events_agree(event / wall) else wall
            return max(least, min(math.ceil(wanted_s / spent * trips), most))
        trips = min(most, trips * max(2, min(16, int(wanted_s / event / 2))))


def with_sampled_work(handle: Handle) -> Handle:
    """A handle with as much work as lasts about 10 ms, or 3 ms between control bursts."""
    if not handle.bursts:
        return replace(handle, work=trips_for(handle, LAUNCH_S))
    steps = round(math.log2(trips_for(handle, quiet.BATCH_S)))  # powers of two, which visits share
    least, most = handle.prepared.trips
    return replace(handle, work=max(least, min(1 << steps, most)))


@dataclass(frozen=True)
class RaceEntry:
    """A candidate that was timed."""

    rate: float  # operations or bytes per second
    handle: Handle

    @property
    def choice(self) -> Parameters:
        return self.handle.prepared.built.choice


@dataclass
class Race(AbstractContextManager["Race"]):
    """Candidates of a case and their rates: a context manager that holds their handles.

    A candidate `hopeless` times slower than the best is not run again. `failure` is why one was refused last.
    `survivor` is a handle that outlives the race.
    """

    instrument: Instrument
    case: Case
    device: DeviceFacts
    policy: Policy
    hopeless: float = math.inf
    entries: list[RaceEntry] = field(default_factory=list)
    failure: str = ""
    survivor: Handle | None = None
    _handles: list[Handle] = field(default_factory=list)
    _builds: dict[str, float] = field(default_factory=dict)  # seconds by source: several may share a program

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        for handle in self._handles:
            if self.survivor is None or handle.number != self.survivor.number:
                handle.__exit__(kind)

    def enter(self, candidates: Iterable[Parameters]) -> bool:
        """Prepare candidates and time launches of about 4 ms. Whether any is not refused."""
        handles = [handle for candidate in candidates if (handle := self._prepared(candidate))]
        for handle in handles:
            least, most = handle.prepared.trips
            work = max(1, most // 4) if least == most else trips_for(handle, _RACE_S)
            self.entries.append(RaceEntry(self._rate(replace(handle, work=work)), handle))
        return bool(handles)

    def final(self, count: int, failing: str = "") -> Handle:
        handles = [with_sampled_work(entry.handle) for entry in self.ranked(failing)[:count]]
        return max(handles, key=self._rate)

    def _prepared(self, candidate: Parameters) -> Handle | None:
        """A candidate's handle; None, with `failure` set, if it is refused."""
        case = replace(self.case, parameters={**self.case.parameters, **candidate})
        like = self._handles[0].number if self._handles else None
        try:
            handle = self.instrument.prepare(case, self.device, self.policy, like)
        except NotMeasuredError as error:
            if error.restart or isinstance(error, LostError):
                raise
            self.failure = error.reason
            return None
        self._handles.append(handle)
        self._builds[handle.prepared.built.source] = handle.prepared.built.build_s or 0.0
        return handle

    def _rate(self, handle: Handle) -> float:
        """The best rate of three launches; one if it is hopeless."""
        best, rate = max((entry.rate for entry in self.entries), default=0.0), 0.0
        clock = handle.prepared.clocks[0]
        for _ in range(_RACE_RUNS):
            rate = max(rate, amount(handle.prepared) * handle.work / handle.batch(clock, 1).finest_s)
            if rate * self.hopeless < best:
                break
        return rate

    @property
    def build_s(self) -> float:
        return sum(self._builds.values())

    @property
    def best_rate(self) -> float:
        return self.ranked()[0].rate

    def ranked(self, failing: str = "") -> list[RaceEntry]:
        """The candidates, fastest first. `NotMeasuredError` with `failing` and a reason if there is none."""
        if not self.entries:
            raise NotMeasuredError("failed", failing + self.failure)
        return sorted(self.entries, key=lambda entry: -entry.rate)

    def unrolling(self, best: Handle, most: float) -> float | None:
        """The rate per step with the deepest unrolling over the shallowest, of those like `best`; or None.

        If it exceeds `most`, both are timed again, alternating: the machine's speed may have changed.
        """
        choice = best.prepared.built.choice
        depths = {
            int(entry.choice["unroll"]): entry
            for entry in self.entries
            if {**entry.choice, "unroll": choice["unroll"]} == choice
        }
        if len(depths) < 2:
            return None
        deep, shallow = depths[max(depths)], depths[min(depths)]
        if deep.rate <= most * shallow.rate:
            return deep.rate / shallow.rate
        first, second = (with_sampled_work(each.handle) for each in (deep, shallow))
        clock = first.prepared.clocks[0]
        scale = amount(first.prepared) * first.work / (amount(second.prepared) * second.work)
        seconds = time_ratio(
            lambda: first.batch(clock, 1).finest_s,
            lambda: second.batch(clock, 1).finest_s,
            lambda ratio: max(0.0, ratio * scale - 1),
            most - 1,
            self.policy.budget_s,
        )
        return seconds * scale

    def summary(self, **words: str) -> tuple[str, ...]:
        """Lines such as ``tried chains (G/s): 4: 90, 8: 99``: the best rate of each value of some choices."""
        lines = []
        for choice, word in words.items():
            best = self._best_of(choice)
            named = any(isinstance(value, str) for value in best)
            order = best if named else sorted(best)
            shown = ", ".join(f"{value}{' ' if named else ': '}{best[value]}" for value in order)
            lines.append(f"tried {word} (G/s): {shown}")
        return tuple(lines)

    def note(self) -> str:
        lines = []
        for name in dict.fromkeys(name for entry in self.entries for name in entry.choice):
            if len(best := self._best_of(name)) > 1:
                lines.append(f"{name} {', '.join(f'{value}: {rate}' for value, rate in best.items())}")
        return f"tried (GB/s): {'; '.join(lines) or 'one variant only'}"

    def _best_of(self, choice: str) -> dict[int | float | str, str]:
        rates = by_key((entry.choice[choice], entry.rate) for entry in self.entries)
        return {value: number(max(each) / GIGA) for value, each in rates.items()}


def time_ratio(
    first: Callable[[], float], second: Callable[[], float], off: Callable[[float], float], tolerance: float,
    budget_s: float,
) -> float:  # fmt: skip
    """Seconds of the second over seconds of the first, from runs next to each other.

    The ratio of the minima or the median of the pairs' ratios counts, whichever is less `off`, until it is
    within `tolerance`. For runs below 0.2 ms the minima count.
    """
    firsts: list[float] = []
    seconds: list[float] = []
    end = time.perf_counter() + min(_MOST_RATIO_S, _MOST_RATIO_BUDGETS * budget_s)
    while True:
        for _ in range(_RATIO_RUNS):
            firsts.append(first())
            seconds.append(second())
        least, pairs = min(seconds) / min(firsts), float(np.median(np.divide(seconds, firsts)))
        short = min(seconds) < _SHORT_S
        ratio = least if short else min(least, pairs, key=off)
        right = off(ratio) <= tolerance
        if (right and not short) or len(firsts) >= _MOST_RATIO_RUNS or time.perf_counter() > end:
            return ratio


def doubling(
    handle: Handle, work: int, tolerance: float, budget_s: float, launches: int = 1,
    seconds: Callable[[Batch], float] = lambda batch: batch.finest_s,
) -> float:  # fmt: skip
    """The time of twice the work over that of the work: 2 unless a loop does less than it should."""
    clock = handle.prepared.clocks[0]
    return time_ratio(
        lambda: seconds(handle.batch(clock, launches, work)),
        lambda: seconds(handle.batch(clock, 1, 2 * work)),
        lambda ratio: abs(ratio / 2 - 1),
        tolerance,
        budget_s,
    )


EVENT_RANGE = (0.5, 1.05)  # of the wall clock, over launches of milliseconds

_SLACK = 24.0


@dataclass(frozen=True)
class EvidenceSubject:
    """What evidence is about: how far doubling may be off, and how the reasons call things."""

    tolerance: float  # of the doubling test
    work: str
    instead: str = ""  # what is done where the event clock is not believed
    # Times as fast as with shallow unrolling that a step can be. Honest rows of saved runs lie between 0.51
    # and 1.08, of matrix units within 0.01 of 1, and a folded fp8 product at 1.375.
    unrolling: float = 1.15


ARITHMETIC = EvidenceSubject(0.05, "loop count", ", which is used instead")
MATRIX = replace(ARITHMETIC, unrolling=1.03)
# More than for arithmetic: memory and the last cache are shared with neighbours.
MEMORY = EvidenceSubject(0.1, "work")


@dataclass(frozen=True)
class FigureEvidence:
    """What was measured about a figure, in addition to its rate."""

    dtype: str
    rate: float  # operations or bytes per second; 0 for a latency
    doubling: float  # time of twice the work over time of the work
    event_over_wall: float  # event time over wall time of the same launches
    wrong_result: str  # how the kernel's result differs from the host's, "" if it does not
    ceiling: Ceiling | None  # that cannot be exceeded, if known
    unrolling: float | None = None  # rate with deep over rate with shallow unrolling, if both were raced
    subject: EvidenceSubject = ARITHMETIC


def judge_figure(evidence: FigureEvidence) -> Check:
    """The verdict on a figure: `ok`, `suspect` with every reason, or `wrong`. NaN is never ok."""
    subject = evidence.subject
    too_fast = why_above(evidence.rate, evidence.ceiling, partial(_shown, evidence))
    reasons = [reason for reason in (evidence.wrong_result, too_fast) if reason]
    is_wrong = bool(reasons)
    if not abs(evidence.doubling / 2 - 1) <= subject.tolerance:
        reasons.append(
            f"doubling the {subject.work} multiplies the time by {evidence.doubling:.2f}, not by 2"
        )
    if evidence.unrolling is not None and not evidence.unrolling <= subject.unrolling:
        reasons.append(
            f"unrolling makes steps {evidence.unrolling:.2f} times as fast, where {subject.unrolling:g} is "
            "the most: the compiler optimised some away"
        )
    if not events_agree(evidence.event_over_wall):
        reasons.append(
            f"the event clock says {evidence.event_over_wall:.2g} times the wall clock{subject.instead}"
        )
    figures = {"doubling": evidence.doubling, "event_over_wall": evidence.event_over_wall}
    if evidence.unrolling is not None:
        figures["unrolling"] = evidence.unrolling
    return Check("wrong" if is_wrong else "suspect" if reasons else "ok", figures, tuple(reasons))


def _shown(evidence: FigureEvidence, rate: float) -> str:
    if evidence.subject is MEMORY:
        return f"{number(rate / GIGA)} GB/s"
    return rate_text(rate, not DTYPES[evidence.dtype].is_float)


def events_agree(event_over_wall: float) -> bool:
    """Whether event time over wall time is plausible."""
    low, high = EVENT_RANGE
    return low <= event_over_wall <= high


def compare_results(got: HostArray, expected: HostArray, dtype: DType, slack: float = _SLACK) -> str:
    """The first stored result that differs from the host's, and how many do; or "". NaN differs.

    Integers must be equal. Others may be off by `slack` times eps, relative to 1 plus the largest.
    """
    values = decode(got, dtype)
    allowed = slack * dtype.eps * (1 + np.abs(expected).max(initial=0)) if dtype.is_float else 0
    with np.errstate(invalid="ignore"):
        right = np.abs(values - expected) <= allowed if dtype.is_float else values == expected
    if right.all():
        return ""
    wrong, first = int((~right).sum()), np.unravel_index(int(np.argmin(right)), right.shape)
    where = ", ".join(map(str, first))
    return (
        f"{wrong} of {got.size} stored results differ from the host's; "
        f"number {where} is {float(values[first]):.6g}, not {float(expected[first]):.6g}"
    )
