"""Times candidates of a probe against each other within a budget, and judges whether a figure is believed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial

import numpy as np

from gemmbench.measure.sampling import Clock, in_turn
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import DTYPES, DType, HostArray, decode
from gemmbench.model.instrument import Batch, Handle, Instrument, LostError, NotMeasuredError, Prepared
from gemmbench.model.row import Check, Parameters, Verdict
from gemmbench.model.units import GIGA, by_key, number
from gemmbench.model.units import rate as shown_rate
from gemmbench.probes.arithmetic import kernels_in
from gemmbench.stats.ceilings import Ceiling, why_above

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


def control_case(device: DeviceFacts) -> Case:
    """A multiply-add kernel that keeps all cores of a CPU busy, always with the same parameters.

    How long a fixed amount of its work takes shows whether other programs use the cores. Prepare it, choose
    the amount once by `trips_for`, and run it by `sized`.
    """
    loop: Parameters = {"form": "a*b+c", "chains": 4, "unroll": 16, "kernels": kernels_in([4])}
    return Case("peak", device.index, "flops", "float", {"width": 8, **loop})


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
        event, wall = batch.finest_s, batch.wall_s
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
        return self.handle.prepared.built.choice


@dataclass
class Race:
    """Candidates of a case and their rates: a context manager that holds their handles.

    Once its budget is spent, who has not entered stays out. A candidate that is `hopeless` times slower than
    the best is not run again. `failure` is why the last candidate that was refused was, `kept` a handle that
    outlives the race.
    """

    instrument: Instrument
    case: Case
    device: DeviceFacts
    policy: Policy
    budget_s: float = math.inf
    hopeless: float = math.inf
    now: Clock = time.monotonic
    entries: list[Entry] = field(default_factory=list)
    failure: str = ""
    kept: Handle | None = None
    _handles: list[Handle] = field(default_factory=list)
    _builds: dict[str, float] = field(default_factory=dict)  # seconds by source: several may share a program
    _cut_short: bool = False

    def __post_init__(self) -> None:
        self._end = self.now() + self.budget_s

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
        if self.entries and not late and self.now() > self._end:
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
        handles = [entry.handle for entry in self.ranked()[:count]]
        return max((sized(handle, trips_for(handle, LAUNCH_S)) for handle in handles), key=self._rate)

    def _prepared(self, candidate: Parameters) -> Handle | None:
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

    def _rate(self, handle: Sized) -> float:
        """Operations or bytes per second of the best of a few launches; of fewer where there is no hope."""
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
        return max(entry.rate for entry in self.entries)

    def ranked(self) -> list[Entry]:
        return sorted(self.entries, key=lambda entry: -entry.rate)

    def close_to_best(self, margin: float) -> list[Entry]:
        return [entry for entry in self.entries if entry.rate >= margin * self.best_rate]

    def unrolling(self, best: Entry, most: float = math.inf) -> float | None:
        """Its rate with the deepest unrolling over that with the shallowest; None if only one was raced.

        Where the race shows more than the most, perhaps since the machine's speed changed, they are measured
        in turn.
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
        pairs = in_turn(first, second, first.prepared.clocks[0], self.policy, _IN_TURN_S, self.now)
        return amount(first.prepared) * first.work / (amount(second.prepared) * second.work) / pairs.ratio

    @property
    def notes(self) -> tuple[str, ...]:
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
        lines = []
        for name in dict.fromkeys(name for entry in self.entries for name in entry.choice):
            if len(best := self._best_of(name)) > 1:
                lines.append(f"{name} {', '.join(f'{value}: {rate}' for value, rate in best.items())}")
        return f"raced (GB/s): {'; '.join(lines) or 'one way only'}"

    def _best_of(self, choice: str) -> dict[int | float | str, str]:
        rates = by_key((entry.choice[choice], entry.rate) for entry in self.entries)
        return {value: number(max(each) / GIGA) for value, each in rates.items()}


# --- twice the work -----------------------------------------------------------------------------------------


def doubling(
    handle: Handle,
    work: int,
    tolerance: float,
    launches: int = 1,
    seconds: Callable[[Batch], float] = lambda batch: batch.finest_s,
) -> float:
    """Time of twice the work over time of the work, from pairs of runs next to each other.

    A disturbance can only lengthen a run, so that the ratio of the two minima nears the truth with more
    runs, unless the whole machine changes its pace meanwhile: then the pairs' own ratios do, and their
    median. The better of the two counts, unless the runs are so short that chance would make it good. A loop
    that does less than it should fails both.

    `tolerance` is how far from 2 is near enough to stop early; of several launches of the single work the
    mean counts; `seconds` is the clock that is believed.
    """
    single: list[float] = []
    double: list[float] = []
    clock, end = handle.prepared.clocks[0], time.monotonic() + _MOST_DOUBLING_S
    while True:
        for _ in range(_DOUBLING_RUNS):
            single.append(seconds(handle.batch(clock, launches, work)))
            double.append(seconds(handle.batch(clock, 1, 2 * work)))
        least, pairs = min(double) / min(single), float(np.median(np.divide(double, single)))
        short = min(double) < _SHORT_S
        ratio = least if short else min(least, pairs, key=lambda value: abs(value - 2))
        right = abs(ratio / 2 - 1) <= tolerance
        if (right and not short) or len(single) >= _MOST_DOUBLING_RUNS or time.monotonic() > end:
            return ratio


# --- When a probe's figure is believed: the evidence of a row, and the verdict on it ------------------------

EVENT_RANGE = (0.5, 1.05)  # of the wall clock, over launches of milliseconds

ALIKE = 0.005  # measuring.md: a rate this near that of a loop without the conversion is a suspicion

SLOWED = 0.8  # of the race's rate: two virtual processors on one core have half

_SLACK = 24.0


@dataclass(frozen=True)
class Subject:
    """What evidence is about: how far doubling may be off, and how the reasons call things."""

    tolerance: float  # of the doubling test
    work: str
    instead: str = ""  # what is done where the event clock is not believed
    # Times as fast as with shallow unrolling that a step can be: a loop's own instructions are a few beside a
    # trip's. Honest rows of saved runs lie between 0.51 and 1.08, of matrix units within 0.01 of 1, and a
    # folded fp8 product at 1.375.
    unrolling: float = 1.15


ARITHMETIC = Subject(0.05, "trips", ", which is used instead")
MATRIX = replace(ARITHMETIC, unrolling=1.03)
# More than for arithmetic: memory and the last cache are shared with neighbours.
MEMORY = Subject(0.1, "work")


@dataclass(frozen=True)
class Evidence:
    """What was measured about a figure beside its rate."""

    unit: Unit
    rate: float  # operations or bytes per second; 0 for a latency
    doubling: float  # time of twice the work over time of the work
    unrolling: float | None  # rate with deep over rate with shallow unrolling, if both were raced
    event_over_wall: float  # event time over wall time of the same launches
    wrong_result: str  # how the kernel's result differs from the host's, "" if it does not
    ceiling: Ceiling | None  # that cannot be exceeded, if known
    known: Mapping[Unit, float]  # believed rates of other units
    raced: float = 0.0  # per second, that the same kernel reached in the race before
    subject: Subject = ARITHMETIC
    in_program: str = ""  # the conversions that its name promises, as counted in the program; "" if not known


def judge(evidence: Evidence) -> Check:
    """`ok`, `suspect` with every reason, or `wrong`: above its ceiling. NaN is never ok."""
    reasons = [evidence.wrong_result]
    subject = evidence.subject
    if not abs(evidence.doubling / 2 - 1) <= subject.tolerance:
        reasons.append(
            f"doubling the {subject.work} multiplies the time by {evidence.doubling:.2f}, not by 2"
        )
    if evidence.unrolling is not None and not evidence.unrolling <= subject.unrolling:
        reasons.append(
            f"unrolling makes steps {evidence.unrolling:.2f} times as fast, where {subject.unrolling:g} is "
            "the most: a compiler folds several into one"
        )
    if not events_agree(evidence.event_over_wall):
        reasons.append(
            f"the event clock says {evidence.event_over_wall:.2g} times the wall clock{subject.instead}"
        )
    too_fast = why_above(evidence.rate, evidence.ceiling, partial(_shown, evidence))
    reasons.append(too_fast)
    if not evidence.rate >= SLOWED * evidence.raced:
        raced = _shown(evidence, evidence.raced)
        reasons.append(f"the race before it saw {raced}: the machine has become slower since")
    reasons.append(impossible_ratio(evidence.unit, evidence.rate, evidence.known))
    reasons.append("" if evidence.in_program else _alike(evidence))
    reasons = [reason for reason in reasons if reason]
    figures = {"doubling": evidence.doubling, "event_over_wall": evidence.event_over_wall}
    if evidence.unrolling is not None:
        figures["unrolling"] = evidence.unrolling
    verdict: Verdict = "wrong" if too_fast else "suspect" if reasons else "ok"
    return Check(verdict, figures, tuple(reasons))


def _alike(evidence: Evidence) -> str:
    """Why a rate is too near another's for a loop that does more, or ""."""
    promised = _PLAIN_OF.get(evidence.unit[:2])
    plain = evidence.known.get((*promised, evidence.unit[2]), math.nan) if promised else math.nan
    if promised is None or not abs(evidence.rate / plain - 1) <= ALIKE:
        return ""
    near = f"{ALIKE:.1%}".replace("%", " %")
    return (
        f"as fast as {_name(promised)} within {near}: the conversion that the name promises may be left out"
    )


def _shown(evidence: Evidence, rate: float) -> str:
    if evidence.subject is MEMORY:
        return f"{number(rate / GIGA)} GB/s"
    return shown_rate(rate, not DTYPES[evidence.unit[1]].is_float)


def events_agree(event_over_wall: float) -> bool:
    """Whether the device's event clock can be believed."""
    low, high = EVENT_RANGE
    return low <= event_over_wall <= high


def compare_results(got: HostArray, expected: HostArray, dtype: DType, slack: float = _SLACK) -> str:
    """How stored results differ from the host's (in double precision); "" if they agree. NaN differs.

    Integers must be equal; others may be off by `slack` of the type's eps, for each unit of the largest.
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


# --- What no device can do: rates that are wrong whatever else speaks for them ------------------------------

Kind = tuple[str, str]
"""A probe and a data type."""

Unit = tuple[str, str, int]
"""A probe, a data type and a vector width (0 where there is none): what a rate is known of."""

# Matrix units: today's best are at 30 times float in half precision, and twice that in a byte.
_MATRIX = {"half": 64, "bfloat16": 64, "tf32": 32, "fp8": 128, "char": 128}

_TIMES_FLOAT: Mapping[str, Mapping[str, float]] = {
    "flops": {"double": 1.1, "half": 4.5, "bfloat16": 4.5, "long": 1.1, "int": 2.2, "short": 4.5, "char": 9},
    "mixed": {"half": 4.5},
    "mad24": {"int": 2.2},
    "dot8": {"char": 9},
    "mma": _MATRIX,
    "wgmma": _MATRIX,
}

# No device runs the first faster than this multiple of the second.
RATIO_CEILINGS: tuple[tuple[Kind, Kind, float], ...] = (
    *(
        ((probe, dtype), ("flops", "float"), limit)
        for probe, limits in _TIMES_FLOAT.items()
        for dtype, limit in limits.items()
    ),
    (("mma", "double"), ("flops", "double"), 4.5),
)

_PLAIN_OF: Mapping[Kind, Kind] = {("mixed", "half"): ("flops", "float")}
"""What a probe would be without the conversions in its loop."""

_LOWER_MARGIN = 1.25  # the two were not measured at the same moment

_COPY_MARGIN = 2.0  # a store may read the line first, unless the driver knows a copy when it sees one


def impossible_ratio(unit: Unit, rate: float, known: Mapping[Unit, float]) -> str:
    """Why a rate cannot be true beside other units' rates, in operations or bytes per second, or "".

    A rate can be too high beside the best of another type; or so low beside another at the same width that
    its loop must do more than was counted. Copying and the triad can move no more than reading and writing
    do together, nearly.
    """
    if unit[0] in ("global-copy", "global-triad"):
        most = sum(_best(known, (probe, unit[1])) for probe in ("global-read", "global-write"))
        if not rate <= _COPY_MARGIN * most:
            times = f"{rate / most:.1f} times what reading and writing move together"
            return f"{times}, where {_most(_COPY_MARGIN)}"
    for faster, slower, limit in RATIO_CEILINGS:
        if faster == unit[:2]:
            best = _best(known, slower)
            if rate > limit * best:
                return f"{rate / best:.1f} times the rate of {_name(slower)}, where {_most(limit)}"
        elif slower == unit[:2]:
            other = known.get((*faster, unit[2]), 0.0)
            if other > limit * _LOWER_MARGIN * rate:
                return (
                    f"{_name(faster)} ran {other / rate:.1f} times as fast, where {_most(limit)}: this loop "
                    "does more than is counted, or something else was running"
                )
    return ""


def _best(known: Mapping[Unit, float], kind: Kind) -> float:
    return max((rate for unit, rate in known.items() if unit[:2] == kind), default=math.inf)


def _most(limit: float) -> str:
    return f"{limit:g} is the most possible"


def _name(kind: Kind) -> str:
    probe, dtype = kind
    return dtype if probe == "flops" else f"{probe} {dtype}"
