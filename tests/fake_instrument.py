"""An instrument without a device: a scripted clock, cases that take scripted seconds, faults on demand."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import repeat
from typing import Any

from gemmbench.measure.sampling import alone
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import Conditions, DeviceFacts, Readings
from gemmbench.model.instrument import (
    AskSeries,
    Batch,
    Built,
    Handle,
    Instrument,
    NotMeasuredError,
    Prepared,
    Series,
    Verified,
    Watch,
    When,
)
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Parameters, Scope, Work

Fault = Callable[[], None]


@dataclass
class FakeClock:
    """Seconds that pass when an instrument works; several instruments may share one."""

    now: float = 0.0

    def __call__(self) -> float:
        return self.now


@dataclass
class _Asked:
    handle: int
    clock: str
    count: int
    work: int
    begin: float


@dataclass(eq=False)
class FakeInstrument:
    """Prepares everything; a batch takes what its case's script says, in the clock's time.

    Attributes:
        seconds: of one problem, by variant and as many as there are batches.
        prepared: what `prepare` answers.
        verdicts: by `when`, of the checks that are not ok.
        faults: raise something in the batch of a number, counted from 0 over all handles.
        log: every request in its order.
    """

    clock: FakeClock = field(default_factory=FakeClock)
    seconds: dict[str, Iterable[float]] = field(default_factory=dict)
    prepared: Prepared = field(default_factory=lambda: Prepared(("device", "host")))
    verdicts: dict[str, Check] = field(default_factory=dict)
    faults: dict[int, Exception] = field(default_factory=dict)
    log: list[tuple[object, ...]] = field(default_factory=list)
    most_in_flight: int = 0
    other: Instrument | None = None  # that has the former version of its cases; None: itself
    watch: Watch = field(default_factory=Watch)
    burst_s: Iterator[float] = field(default_factory=lambda: repeat(1.0))
    wait_s: Iterator[float] = field(default_factory=lambda: repeat(0.0))

    def __post_init__(self) -> None:
        self._numbers = itertools.count()
        self._scripts: dict[int, Iterator[float]] = {}
        self._cases: dict[int, tuple[Case, Gemm | None]] = {}
        self._asked: deque[_Asked] = deque()
        self._free = self.clock.now  # when the device has done all that was asked for so far
        self._batches = 0

    def build(self, case: Case, device: DeviceFacts) -> Built:
        self.log.append(("build", case.variant))
        return self.prepared.built

    def prepare(
        self,
        case: Case,
        device: DeviceFacts | None,
        policy: Policy,
        like: int | None = None,
        problem: Gemm | None = None,
    ) -> Handle:
        number = next(self._numbers)
        self.log.append(("prepare", number, case.variant, like, problem))
        key = f"former {case.variant}" if case.kernels else case.variant
        self._scripts[number] = iter(self.seconds.get(key, repeat(0.001)))
        self._cases[number] = case, problem
        return Handle(self, number, self.prepared, watch=self.watch)

    def for_old(self, old: Case, device: DeviceFacts | None) -> tuple[Instrument, Case, DeviceFacts | None]:
        return self.other or self, old, device

    def verify(self, handle: int, when: When) -> Verified:
        self.log.append(("verify", handle, when))
        return Verified(self.verdicts.get(when, Check("ok")))

    def start(self, handle: int, clock: str, count: int, work: int = 1) -> None:
        self._asked.append(_Asked(handle, clock, count, work, self.clock.now))
        self.most_in_flight = max(self.most_in_flight, len(self._asked))

    def finish(self) -> Batch:
        asked = self._asked.popleft()
        self.log.append(("batch", asked.handle, asked.clock, asked.count, asked.work))
        number, self._batches = self._batches, self._batches + 1
        if number in self.faults:
            self._asked.clear()
            raise self.faults[number]
        begin = max(self._free, asked.begin)
        problem_s = next(self._scripts[asked.handle])
        self._free = begin + problem_s * asked.count * asked.work
        self.clock.now = max(self.clock.now, self._free)
        scopes = {"host": problem_s * asked.work}
        if asked.clock == "device":
            scopes = {"kernel": problem_s * asked.work, "device": problem_s * asked.work}
        return Batch(scopes, begin, self._free, asked.count)

    def series(self, request: AskSeries) -> Series:
        """Batches for the asked time, between the bursts of the script; the waits are scripted, too."""
        batches: list[Batch] = []
        end, before = self.clock.now + request.seconds, next(self.burst_s)
        while not batches or self.clock.now < end:
            self.start(request.handle, request.clock, request.count, request.work)
            batch, after = self.finish(), next(self.burst_s)
            batches.append(replace(batch, bursts_s=(before, after), waited_s=next(self.wait_s)))
            before = after
        return Series(tuple(batches))

    def release(self, handle: int) -> None:
        self.log.append(("release", handle))

    def ready(self, variant: str = "naive") -> Handle:
        """A handle of a variant."""
        return self.prepare(Case("gemm", 0, variant, "float", {}, Gemm(8, 8, 8)), None, Policy())


# --- probes ------------------------------------------------------------------------------------------------


@dataclass
class FakeProbes(FakeInstrument):
    """See `FakeInstrument`; a candidate is what its case's parameters say.

    Attributes:
        trip_s: seconds of a trip, by a candidate's parameters; an error: it is refused.
        unit: what a trip does, by a candidate's parameters.
        trips: the least and the most in a launch.
        build_s: that building a program takes.
        ignored_past: trips beyond these take no time.
        event_share: of the wall clock, that an event shows.
        released: handles that are gone.
    """

    trip_s: Callable[[Parameters], float | Exception] = lambda _: 1e-6
    unit: Callable[[Parameters], Work] = lambda _: Work(flops=100)
    trips: tuple[int, int] = (1, 1 << 29)
    clocks: tuple[str, ...] = ("device",)
    build_s: float = 0.1
    ignored_past: int = 1 << 40
    event_share: float = 1.0
    candidates: list[Parameters] = field(default_factory=list)
    released: set[int] = field(default_factory=set)
    __hash__ = object.__hash__  # what rows have shown is kept by instrument

    def prepare(
        self,
        case: Case,
        device: DeviceFacts | None,
        policy: Policy,
        like: int | None = None,
        problem: Gemm | None = None,
    ) -> Handle:
        """See `Instrument`: a candidate, or a refusal."""
        self.candidates.append(case.parameters)
        self.clock.now += self.build_s
        trip_s = self.trip_s(case.parameters)
        if isinstance(trip_s, Exception):
            raise trip_s
        handle = super().prepare(case, device, policy, like, problem)
        self._scripts[handle.number] = repeat(trip_s)
        source = str([case.parameters.get(name) for name in ("form", "unroll", "pattern")])
        choice = {name: value for name, value in case.parameters.items() if name not in ("kernels", "bytes")}
        built = Built(self.build_s, choice=choice, source=source)
        unit = self.unit(case.parameters)
        prepared = Prepared(self.clocks, built=built, unit=unit, trips=self.trips)
        return Handle(self, handle.number, prepared, watch=self.watch)

    def start(self, handle: int, clock: str, count: int, work: int = 1) -> None:
        """See `Instrument`."""
        super().start(handle, clock, count, min(work, self.ignored_past))

    def finish(self) -> Batch:
        """See `Instrument`."""
        batch = super().finish()
        if "host" in batch.seconds:
            return replace(batch, each={"host": (batch.wall_s,) * batch.count})
        return replace(batch, seconds={"kernel": batch.seconds["kernel"] * self.event_share})

    def release(self, handle: int) -> None:
        """See `Instrument`."""
        super().release(handle)
        self.released.add(handle)


def refusal(reason: str) -> NotMeasuredError:
    """What a compiler says."""
    return NotMeasuredError("failed", reason)


# --- a device that power slows down -------------------------------------------------------------------------

FULL_MHZ = 1980.0
LIMITED = 762 / 656  # times as long a problem takes where power limits (an H200 on dense half products)


@dataclass
class HotDevice:
    """Runs at full speed at first; some time later power limits it.

    Attributes:
        instrument: that runs on it.
        full_s: how long a load runs at full speed.
        limited_s: from when on it is limited.
    """

    instrument: FakeInstrument
    full_s: float = 0.05
    limited_s: float = 0.15

    def seconds(self, problem_s: float) -> Iterator[float]:
        """The script of a case whose problem takes so long on the cool device."""
        while True:
            yield problem_s * (1 + (LIMITED - 1) * self.limit)

    @property
    def limit(self) -> float:
        """How far power limits it: from 0 to 1."""
        return min(1.0, max(0.0, (self.instrument._free - self.full_s) / (self.limited_s - self.full_s)))


@dataclass
class HotWatch(Watch):
    """Watches a device that power slows down.

    Attributes:
        device: that is watched; None where its driver says nothing.
        warm_s: see `Watch`.
        reported_s: from when on the driver reports a limit.
    """

    device: HotDevice | None = None
    warm_s: float = 0.1
    reported_s: float = 0.0

    def end(self, clock: str, batches: Sequence[Batch]) -> Conditions | None:
        if self.device is None:
            return None
        begins = tuple(batch.begin for batch in batches)
        is_reported = self.device.instrument.clock() >= self.reported_s
        is_limited = clock != "host" and self.device.limit > 0 and is_reported
        return Conditions(power_limited=is_limited, max_mhz=FULL_MHZ, windows={clock: Readings(begins)})


@dataclass
class _Function:
    """An instrument that runs so many problems by calling a function."""

    run: Callable[[int], Mapping[str, float]]
    clock: Callable[[], float]
    _asked: deque[int] = field(default_factory=deque)

    def start(self, handle: int, clock: str, count: int, work: int = 1) -> None:
        self._asked.append(count)

    def finish(self) -> Batch:
        count, begin = self._asked.popleft(), self.clock()
        seconds = self.run(count)
        return Batch(seconds, begin, self.clock(), count)


def sample(
    run: Callable[[int], Mapping[str, float]],
    policy: Policy,
    budget_s: float,
    clock: Callable[[], float],
    one_s: float = 0.0,
    warm: bool = True,
) -> dict[str, Scope]:
    """The samples of a function that runs so many problems: seconds of one by scope."""
    instrument: Any = _Function(run, clock)
    handle = Handle(instrument, 0, Prepared(("device",)))
    return alone(handle, "device", policy, budget_s, warm, one_s, clock).scopes
