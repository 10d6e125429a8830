"""What a device and its host do while a row is measured: read by a thread of the parent, window by window.

A device's readings (NVML: clock, power, temperature, limits) carry the time of `perf_counter` and are
assigned to batches by their begin and end. psutil reports how busy the usable cores were, how much of
that was this process and its children, and how often the measuring process was preempted.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import fmean, median
from typing import Any, Protocol

import psutil
import pynvml

from gemmbench.measure.energy import CounterError, board_of, is_nvidia
from gemmbench.model.device import (
    HARDWARE,
    POWER,
    THERMAL,
    Conditions,
    DeviceFacts,
    Reading,
    Readings,
    broad_type,
    usable_cores,
)
from gemmbench.model.instrument import Batch, Watch

_WARM_S = {"cpu": 0.05, "gpu": 0.1}
_DROP = 0.02  # of the clock, which shows a limit before the driver reports it
_POLL_S = 0.01
_STALE_S = 0.1  # a reading this old says nothing of a batch
_AT = attrgetter("at_s")

_LIMITS: tuple[tuple[int, str], ...] = (  # nvmlClocksEventReason...
    (0x04, POWER),  # SwPowerCap
    (0x20 | 0x40, THERMAL),  # SwThermalSlowdown, HwThermalSlowdown
    (0x08 | 0x80, HARDWARE),  # HwSlowdown, HwPowerBrakeSlowdown
)
_BUSY = ("user", "nice", "system", "irq", "softirq")  # of psutil's times; a system has some of them


class Gauge(Protocol):
    """Reads a device's clock, power, temperature and limits."""

    def read(self, now: float) -> Reading:
        """What it says at this moment; what it cannot say is None."""


class NvmlGauge:
    """The gauge of an NVIDIA board.

    Raises:
        CounterError: there is no board that can be read.
    """

    def __init__(self, device: DeviceFacts) -> None:
        self._board = board_of(device)
        self._max_mhz = self._number(pynvml.nvmlDeviceGetMaxClockInfo, pynvml.NVML_CLOCK_SM)
        limit_mw = self._number(pynvml.nvmlDeviceGetEnforcedPowerLimit)
        self._limit_w = limit_mw * 1e-3 if limit_mw else None

    def read(self, now: float) -> Reading:
        """See `Gauge`; takes about 0.35 ms."""
        milliwatts = self._number(pynvml.nvmlDeviceGetPowerUsage)
        reasons = self._number(pynvml.nvmlDeviceGetCurrentClocksEventReasons)
        if reasons is None:  # drivers before 535
            reasons = self._number(pynvml.nvmlDeviceGetCurrentClocksThrottleReasons)
        return Reading(
            now,
            self._number(pynvml.nvmlDeviceGetClockInfo, pynvml.NVML_CLOCK_SM),
            self._max_mhz,
            None if milliwatts is None else milliwatts * 1e-3,
            self._number(pynvml.nvmlDeviceGetTemperature, pynvml.NVML_TEMPERATURE_GPU),
            tuple(name for bits, name in _LIMITS if int(reasons or 0) & bits),
            self._limit_w,
        )

    def _number(self, function: Callable[..., Any], *arguments: object) -> float | None:
        with suppress(pynvml.NVMLError):
            return float(function(self._board, *arguments))
        return None


# --- the host -----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Usage:
    """What the system had counted at one moment, in seconds since some time before."""

    at_s: float
    cores: int
    busy_s: float
    idle_s: float
    own_s: float  # of this process and its children
    steal_s: float

    def since(self, before: Usage) -> tuple[float | None, float | None]:
        """Cores that others used, and cores that were stolen, since another moment."""
        seconds = self.at_s - before.at_s
        if seconds <= 0 or self.busy_s + self.idle_s <= before.busy_s + before.idle_s:
            return None, None
        others_s = (self.busy_s - before.busy_s) - (self.own_s - before.own_s)
        return (
            round(max(0.0, others_s / seconds), 3),
            round(max(0.0, (self.steal_s - before.steal_s) / seconds), 3),
        )


def usage(
    now: float,
    own: int,
    cores: Collection[int] | None = None,
    system: Any = None,
) -> Usage | None:
    """What has been counted so far; None where the system does not tell.

    Args:
        now: the time.
        own: this process; its children and theirs count as its own.
        cores: the numbers of those that this process may use; None for all.
        system: a replacement for psutil.
    """
    system = system or psutil
    try:
        times = [
            each
            for number, each in enumerate(system.cpu_times(percpu=True))
            if cores is None or number in cores
        ]
        return Usage(
            now,
            len(times),
            busy_s=sum(getattr(each, field, 0.0) for each in times for field in _BUSY),
            idle_s=sum(getattr(each, field, 0.0) for each in times for field in ("idle", "iowait")),
            own_s=sum(map(_process_s, family(own, system))),
            steal_s=sum(getattr(each, "steal", 0.0) for each in times),
        )
    except (psutil.Error, OSError):
        return None


def family(own: int, system: Any = None) -> list[psutil.Process]:
    """A process and its descendants."""
    process = (system or psutil).Process(own)
    return [process, *process.children(recursive=True)]


def processes(system: Any = None) -> dict[int, tuple[str, float]]:
    """Every process by its number: its name and the seconds it has used so far."""
    listed = (system or psutil).process_iter(["name", "cpu_times"])
    return {
        each.pid: (each.info["name"] or "", times.user + times.system)
        for each in listed
        if (times := each.info["cpu_times"]) is not None
    }


def _process_s(process: psutil.Process) -> float:
    """Seconds of a process and of its children that are gone and were waited for; 0 if it is gone."""
    with suppress(psutil.NoSuchProcess):
        times = process.cpu_times()
        return float(times.user + times.system + times.children_user + times.children_system)
    return 0.0


# --- the watch ----------------------------------------------------------------------------------------------


class Monitor(Watch):
    """Reads a device and its host while windows are open.

    Args:
        device: None for the host's own BLAS.
        gauge: of the device; None to look for one.
        look: what the host has counted so far.
        now: seconds; replaced in tests.
    """

    def __init__(
        self,
        device: DeviceFacts | None,
        gauge: Gauge | None = None,
        look: Callable[[float], Usage | None] | None = None,
        now: Callable[[], float] = time.perf_counter,
    ) -> None:
        self._now = now
        self._gauge = gauge or _gauge_of(device)
        self._look = look or (lambda moment: usage(moment, os.getpid(), usable_cores()))
        self.warm_s = _WARM_S["cpu" if device is None else broad_type(device)]
        timers = [time.get_clock_info("perf_counter").resolution]
        self.tick_s = max(timers + ([device.timer_resolution_ns * 1e-9] if device else []))
        self._before: Usage | None = None
        self._readings: list[Reading] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self.close()  # a window that failed has not ended
        self._before = self._look(self._now())
        self._readings = []
        if self._gauge:
            self._readings.append(self._gauge.read(self._now()))
            self._over.clear()
            self._thread = threading.Thread(target=self._poll, daemon=True)
            self._thread.start()

    def end(self, clock: str, batches: Sequence[Batch]) -> Conditions | None:
        self.close()
        after = self._look(self._now())
        others = after.since(self._before) if after and self._before else (None, None)
        if not self._readings and others[0] is None:
            return None
        other_cores, steal_cores = others
        readings = replace(
            assigned(self._readings, batches),
            window_s=round(after.at_s - self._before.at_s, 4) if after and self._before else 0.0,
            other_cores=other_cores,
            steal_cores=steal_cores,
        )
        return Conditions(
            # Between transfers a device rests, and its clock changes.
            power_limited=clock != "host" and _is_limited(self._readings, batches),
            max_mhz=next((reading.max_mhz for reading in self._readings), None),
            cores=after.cores if after else 0,
            windows={clock: readings},
        )

    def _poll(self) -> None:
        assert self._gauge is not None
        while not self._over.wait(_POLL_S):
            self._readings.append(self._gauge.read(self._now()))

    def close(self) -> None:
        """Read nothing any more, also if a window has not ended."""
        thread, self._thread = self._thread, None
        if thread is not None:
            self._over.set()
            thread.join()


def _gauge_of(device: DeviceFacts | None) -> Gauge | None:
    if device is not None and device.type != "cpu" and is_nvidia(device):
        with suppress(CounterError):
            return NvmlGauge(device)
    return None


def _is_limited(readings: Sequence[Reading], batches: Sequence[Batch]) -> bool:
    """Whether a limit was reported, or the clock dropped, while the batches ran."""
    during = [reading for reading in readings if batches and reading.at_s >= batches[0].begin]
    if any(name in reading.limits for reading in during for name in (POWER, THERMAL)):
        return True
    clocks = [reading.clock_mhz for reading in during if reading.clock_mhz]
    highest = max((reading.clock_mhz or 0.0 for reading in readings), default=0.0)
    return bool(clocks) and min(clocks) < (1 - _DROP) * highest


def assigned(readings: Sequence[Reading], batches: Sequence[Batch]) -> Readings:
    """What the device said, batch by batch: while it ran, or just before; nothing without a reading."""
    if not readings:
        return Readings()
    during = [_during(readings, batch) for batch in batches]
    return Readings(
        begin_s=tuple(round(batch.begin, 4) for batch in batches),
        clock_mhz=_column(during, lambda reading: reading.clock_mhz, median),
        power_w=_column(during, lambda reading: reading.power_w, fmean),
        celsius=_column(during, lambda reading: reading.celsius, max),
        limits=tuple(
            " ".join(dict.fromkeys(name for reading in part for name in reading.limits)) for part in during
        ),
    )


def _during(readings: Sequence[Reading], batch: Batch) -> Sequence[Reading]:
    """The readings of a batch, or the last one before it; readings are in order of time."""
    begin = bisect_left(readings, batch.begin, key=_AT)
    end = bisect_right(readings, batch.end, begin, key=_AT)
    if begin == end and begin and readings[begin - 1].at_s >= batch.begin - _STALE_S:
        begin -= 1
    return readings[begin:end]


def _column(
    during: Iterable[Sequence[Reading]],
    value: Callable[[Reading], float | None],
    middle: Callable[[list[float]], float],
) -> tuple[float | None, ...]:
    """One value for each batch; none at all where nothing was ever read."""
    known = [[figure for reading in part if (figure := value(reading)) is not None] for part in during]
    return tuple(round(middle(part), 1) if part else None for part in known) if any(known) else ()
