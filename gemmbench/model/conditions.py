"""The state that a device was in while a row was measured, as the saved run keeps it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

State = Literal["", "settled", "burst"]
"""settled: warmed with the row's own work. burst: the first tenth of a second after a rest. "": not known."""

STATES: tuple[State, ...] = ("settled", "burst")

POWER, THERMAL, HARDWARE = "power", "thermal", "hardware"
"""What can limit a clock: the power cap, the temperature, a brake of the board's own."""


@dataclass(frozen=True)
class Reading:
    """What a device said at one moment; None where it does not say."""

    at_s: float  # of the machine's monotonic clock
    clock_mhz: float | None = None
    max_mhz: float | None = None  # that the clock can have
    power_w: float | None = None
    celsius: float | None = None
    limits: tuple[str, ...] = ()
    limit_w: float | None = None  # that the power may reach

    @property
    def is_cool(self) -> bool:
        """Whether nothing limits the clock, as far as the device says."""
        full = self.clock_mhz is None or self.max_mhz is None or self.clock_mhz >= 0.99 * self.max_mhz
        return full and not self.limits


@dataclass(frozen=True)
class Readings:
    """What was read while the batches of one window ran.

    Tuples have a value for each batch, in their order, or are empty: the device says nothing of it.
    """

    begin_s: tuple[float, ...] = ()  # of the batches, by the machine's monotonic clock
    clock_mhz: tuple[float | None, ...] = ()
    power_w: tuple[float | None, ...] = ()
    celsius: tuple[float | None, ...] = ()
    limits: tuple[str, ...] = ()  # "power thermal"; "" where nothing limited the clock
    window_s: float = 0.0  # from the first batch's begin to the last one's end
    other_cores: float | None = None  # that processes of others used; None where the system does not tell
    steal_cores: float | None = None  # that the hypervisor gave to others
    switches: int | None = None  # involuntary context switches of the measuring process
    counted_mhz: tuple[
        float | None, ...
    ] = ()  # the average clock of each batch, by the device's own counters


@dataclass(frozen=True)
class Conditions:
    """The state of the device and its host while a row was measured."""

    state: State = ""
    warm_s: float = 0.0  # that it was warmed with its own work before the samples, or rested
    max_mhz: float | None = None  # that the device's clock can have
    cores: int = 0  # of the host that this process may use; 0 where not known
    windows: dict[str, Readings] = field(default_factory=dict)  # by the clock that timed the batches


def joined(parts: Sequence[Conditions | None]) -> Conditions | None:
    """The conditions of a row, from those of its windows; None where nothing is known of any."""
    known = [part for part in parts if part is not None]
    if not known:
        return None
    windows: dict[str, Readings] = {}
    for part in known:
        for clock, readings in part.windows.items():
            windows[clock] = _followed(windows[clock], readings) if clock in windows else readings
    return replace(
        known[0],
        windows=windows,
    )


def _followed(first: Readings, second: Readings) -> Readings:
    """Two windows of one clock as one."""

    def mean(before: float | None, after: float | None) -> float | None:
        if before is None or after is None:
            return None
        window_s = first.window_s + second.window_s
        return (before * first.window_s + after * second.window_s) / window_s if window_s else before

    known = first.switches is not None and second.switches is not None
    return Readings(
        begin_s=first.begin_s + second.begin_s,
        clock_mhz=first.clock_mhz + second.clock_mhz,
        power_w=first.power_w + second.power_w,
        celsius=first.celsius + second.celsius,
        limits=first.limits + second.limits,
        window_s=first.window_s + second.window_s,
        other_cores=mean(first.other_cores, second.other_cores),
        steal_cores=mean(first.steal_cores, second.steal_cores),
        switches=(first.switches or 0) + (second.switches or 0) if known else None,
        counted_mhz=first.counted_mhz + second.counted_mhz,
    )
