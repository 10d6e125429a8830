"""An instrument whose candidates take scripted seconds for a trip of their loop."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from itertools import repeat

from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch, Built, Handle, NotMeasuredError, Prepared
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Parameters, Work
from tests.fake_instrument import FakeInstrument


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
