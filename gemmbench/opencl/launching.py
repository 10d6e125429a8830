"""The launches that memory probes are timed by: passes through a set, and loops of so many trips."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any, Protocol

import pyopencl as cl

from gemmbench.facts.records import Parameters
from gemmbench.opencl.runtime import Runtime
from gemmbench.opencl.timing import Enqueue, elapsed
from gemmbench.rules.executor import NotMeasuredError

_LAUNCH_S = 0.01  # a launch of a loop that is sampled lasts about this
_RACE_S = 0.003  # and one in the race
_FIRST_TRIPS = 16
_MOST_TRIPS = 1 << 28
_PARTS_IN_RACE = 4


@dataclass(frozen=True)
class Load:
    """A launch, prepared, and the bytes that it moves."""

    enqueue: Enqueue
    bytes: int


class Contender(Protocol):
    """One way to run a probe: a kernel and how it is launched."""

    @property
    def choice(self) -> Parameters:
        """What tells it from the other ways, for the row."""

    def quick(self) -> Load:
        """Enough to rank it by."""

    def full(self) -> Load:
        """What is sampled."""

    def halves(self) -> tuple[Load, Load]:
        """The same work in two launches of half of it."""

    def wrong(self) -> str:
        """How the result of `full` differs from what the host expects, or ""."""


@dataclass(frozen=True)
class Entered:
    """The contenders of a race, and what is to be said about them all."""

    contenders: Sequence[Contender]
    build_s: float
    failure: str = ""  # of the last way that the device's compiler refused
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Launcher:
    """A kernel with its geometry."""

    queue: Any
    kernel: Any
    items: int
    group: int

    def enqueue(self, arguments: Sequence[Any], items: int = 0) -> Any:
        """One launch, perhaps of another number of work-items; its event."""
        self.kernel.set_args(*arguments)
        return cl.enqueue_nd_range_kernel(self.queue, self.kernel, (items or self.items,), (self.group,))


class Builder:
    """Builds the ways of a race; those that a device refuses are left out.

    Attributes:
        seconds: what building took.
        failure: why the last one was refused.
    """

    def __init__(self, runtime: Runtime, file: str) -> None:
        self._runtime, self._file = runtime, file
        self.seconds = 0.0
        self.failure = ""

    def launcher(self, kernel: str, options: tuple[str, ...], items: int, group: int) -> Launcher | None:
        """A kernel compiled so; None if it is refused, or needs too many registers for such a group."""
        try:
            built = self._runtime.build(self._file, options)
            self.seconds += built.seconds
            made = self._runtime.kernel(built, kernel, (group,))
        except NotMeasuredError as error:
            self.failure = error.reason
            return None
        return Launcher(self._runtime.queue, made, items, group)


@dataclass(frozen=True)
class Pass:
    """A kernel that goes once through a set; or through a part of it, and next time through the next."""

    launcher: Launcher
    choice: Parameters
    arguments: Callable[[int, int], Sequence[Any]]  # of the kernel, from first unit and number of units
    units: int  # vectors or texels in the set
    part: int  # of them in a launch
    unit_bytes: int  # moved for each of them
    check: Callable[[Pass], str]
    flat: bool = False  # whether there are as many work-items as there is work: fewer for a part

    def load(self, first: int, count: int) -> Load:
        """A stretch of the set."""
        items = self.launcher.items
        if self.flat:
            group = self.launcher.group
            items = max(group, items * count // self.units // group * group)
        return Load(
            lambda: self.launcher.enqueue(self.arguments(first, count), items), count * self.unit_bytes
        )

    def _in_turn(self, count: int) -> Load:
        """Stretches of the set, one after the other: what a cache has kept of one is gone in a round."""
        stretches = cycle([self.load(number * count, count) for number in range(self.units // count)])
        return Load(lambda: next(stretches).enqueue(), count * self.unit_bytes)

    def quick(self) -> Load:
        """A quarter of a part."""
        return self._in_turn(max(1, self.part // _PARTS_IN_RACE))

    def full(self) -> Load:
        """A part, or the whole set."""
        return self._in_turn(self.part)

    def halves(self) -> tuple[Load, Load]:
        """Two halves of a part, the second where the first ends."""
        half = self._in_turn(max(1, self.part // 2))
        return half, half

    def wrong(self) -> str:
        """See `Contender`."""
        return self.check(self)


class Loop:
    """A kernel that runs so many trips of a loop."""

    def __init__(
        self,
        launcher: Launcher,
        choice: Parameters,
        arguments: Callable[[int], Sequence[Any]],
        trip_bytes: int,
        check: Callable[[Loop, int], str],
        least_trips: int = 2,
    ) -> None:
        """A loop.

        Args:
            launcher: the kernel with its geometry.
            choice: for the row.
            arguments: of the kernel, from the number of trips.
            trip_bytes: moved in a trip, over all work-items.
            check: how the result of so many trips differs from what the host expects, or "".
            least_trips: that touch all that the loop is about.
        """
        self.launcher, self.choice = launcher, choice
        self._arguments, self._trip_bytes, self._check = arguments, trip_bytes, check
        self._least_trips = least_trips
        self._trip_s = 0.0

    def load(self, trips: int) -> Load:
        """So many trips."""
        return Load(lambda: self.launcher.enqueue(self._arguments(trips)), trips * self._trip_bytes)

    def quick(self) -> Load:
        """A few milliseconds of trips."""
        return self.load(self.trips(_RACE_S))

    def full(self) -> Load:
        """Trips for a launch that is long beside its ends."""
        return self.load(self.full_trips)

    def halves(self) -> tuple[Load, Load]:
        """Half the trips, twice."""
        half = self.load(self.full_trips // 2)
        return half, half

    def wrong(self) -> str:
        """See `Contender`."""
        return self._check(self, self.full_trips)

    @property
    def full_trips(self) -> int:
        """Trips of `full`: an even number, which has a half."""
        return self.trips(_LAUNCH_S)

    def trips(self, wanted_s: float) -> int:
        """An even number of trips that takes about so long."""
        if not self._trip_s:
            self._trip_s = self._time_of_a_trip()
        wanted = min(wanted_s / self._trip_s, _MOST_TRIPS)
        return 2 * math.ceil(max(wanted, self._least_trips) / 2)

    def _time_of_a_trip(self) -> float:
        """From a launch long enough to tell."""
        trips = _FIRST_TRIPS
        elapsed(self.launcher.queue, self.load(2).enqueue)  # the first launch may compile
        while True:
            spent = elapsed(self.launcher.queue, self.load(trips).enqueue)
            if spent.event >= _RACE_S / 4 or spent.wall > _RACE_S or trips >= _MOST_TRIPS:
                return spent.event / trips
            trips = min(_MOST_TRIPS, trips * max(2, min(16, int(_RACE_S / spent.event))))
