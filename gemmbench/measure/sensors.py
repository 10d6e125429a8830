"""What sensors say while a row is measured: joules for one problem, and the state of the device and its host.

Rest and read the idle draw, warm up, then run batches for a second at least. A counter moves in steps some
milliseconds apart, so a window begins and ends at a reading that has just moved, and a step is at most
``_PRECISION`` of it. Counters are of a whole board or package, with all else that runs there.
"""

from __future__ import annotations

import os
import threading
import time
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import cached_property
from math import inf
from operator import attrgetter
from pathlib import Path
from statistics import fmean, median
from typing import Any, Protocol

import pynvml

from gemmbench.measure.machine import Usage, usage
from gemmbench.model.device import (
    HARDWARE,
    INSTANT,
    MEAN,
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
from gemmbench.model.row import Energy
from gemmbench.model.units import reason_of

POWERCAP = Path("/sys/class/powercap")

RunBatch = Callable[[int], object]  # runs that many problems back to back
Clock = Callable[[], float]
Sleep = Callable[[float], None]

_REST_S = 0.3  # for clocks, and threads that spin after their work, to come down
_IDLE_S = 0.5
_POLL_S = 0.001
_WARM_S = 0.3
_WINDOW_S = 1.0
_PRECISION = 0.02
_BATCH_S = 0.01
_MOST_IN_BATCH = 1000
_STILL_S = 1.0  # a counter that has not moved by then is none: virtual machines show some that never do


class CounterError(Exception):
    """There is no counter, or it cannot be read; the message is for the user."""


class Counter(Protocol):
    """Energy drawn so far. `NvidiaBoard` and `Rapl` are the real ones."""

    name: str  # NVML, RAPL
    scope: str  # what draws it: board, package
    step_s: float  # its readings move at least this often

    def joules(self) -> float: ...


def measure_energy(run: RunBatch, device: DeviceFacts | None, powercap: Path = POWERCAP) -> Energy:
    """Joules for one problem on a device (None: the host), or why not."""
    try:
        return measure_joules(open_counter(device, powercap), run)
    except CounterError as error:
        return Energy(why=f"not measured: {error}")


def open_counter(device: DeviceFacts | None, powercap: Path = POWERCAP) -> Counter:
    """Counter of an NVIDIA board or of processors; else `CounterError`."""
    if device is None or device.type == "cpu":
        return Rapl(powercap)
    if is_nvidia(device):
        board = NvidiaBoard(device)
        board.joules()  # it may have no counter
        return board
    raise CounterError(f"no energy counter is known for {device.name}, only for NVIDIA boards and processors")


def is_nvidia(device: DeviceFacts) -> bool:
    """Whether NVML may know the device."""
    return "nvidia" in f"{device.vendor} {device.platform} {device.name}".lower()


def measure_joules(
    counter: Counter, run: RunBatch, clock: Clock = time.perf_counter, sleep: Sleep = time.sleep
) -> Energy:
    """Joules for one problem, and the idle power before it, which is not subtracted.

    `CounterError` if the counter stands still, runs backwards or cannot be read.
    """
    sleep(_REST_S)
    idle_s, idle_joules, _ = _between_moves(counter, lambda: sleep(_POLL_S), _IDLE_S, clock)
    batch, batch_s = _warm(run, clock)
    least_s = max(_WINDOW_S, min(batch_s, counter.step_s) / _PRECISION)
    window_s, joules, batches = _between_moves(counter, lambda: run(batch), least_s, clock)
    return Energy(
        joules=joules / (batches * batch),
        why="",
        scope=counter.scope,
        counter=counter.name,
        idle_w=idle_joules / idle_s,
        window_s=window_s,
        problems=batches * batch,
    )


def _between_moves(
    counter: Counter, step: Callable[[], object], least_s: float, clock: Clock
) -> tuple[float, float, int]:
    """Repeat a step between two movements of the counter: seconds, joules, steps."""
    begin, before, _ = _until_moved(counter, step, clock)
    steps = 0
    while clock() - begin < least_s:
        step()
        steps += 1
    end, after, more = _until_moved(counter, step, clock)
    if after <= before:
        raise CounterError(f"{counter.name}'s counter ran backwards")
    return end - begin, after - before, steps + more


def _until_moved(counter: Counter, step: Callable[[], object], clock: Clock) -> tuple[float, float, int]:
    """Repeat a step until the counter moves: time, joules, steps."""
    begin, before, steps = clock(), counter.joules(), 0
    while True:
        step()
        steps += 1
        joules, now = counter.joules(), clock()
        if joules != before:
            return now, joules, steps
        if now - begin > _STILL_S:
            raise CounterError(f"{counter.name}'s counter stands still")


def _warm(run: RunBatch, clock: Clock) -> tuple[int, float]:
    """Warm up; the batch size that lasts long enough to read a meter, and its seconds."""
    end, batch = clock() + _WARM_S, 1
    while True:
        begin = clock()
        run(batch)
        now = clock()
        if now - begin < _BATCH_S and batch < _MOST_IN_BATCH:
            batch = min(2 * batch, _MOST_IN_BATCH)
        elif now >= end:
            return batch, now - begin


@contextmanager
def nvml_errors() -> Iterator[None]:
    """Raise any error of NVML and of its binding as `CounterError`."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise CounterError(f"NVML says: {str(error).lower()}") from None
    except Exception as error:  # the binding may raise anything
        raise CounterError(f"NVML failed: {type(error).__name__}: {error}".removesuffix(": ")) from None


def board_of(device: DeviceFacts) -> Any:
    """NVML's handle of a device's board."""
    with nvml_errors():
        pynvml.nvmlInit()
        if device.pci:
            with suppress(Exception):
                return pynvml.nvmlDeviceGetHandleByPciBusId(device.pci)
        boards = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        named = [board for board in boards if pynvml.nvmlDeviceGetName(board) == device.name]
    if len(named) != 1:
        raise CounterError(
            f"NVML lists {len(named)} boards called {device.name}"
            + (", and OpenCL does not say which one this is" if named else "")
        )
    return named[0]


_LIMITS: tuple[tuple[int, str], ...] = (  # nvmlClocksEventReason...
    (0x04, POWER),  # SwPowerCap
    (0x20 | 0x40, THERMAL),  # SwThermalSlowdown, HwThermalSlowdown
    (0x08 | 0x80, HARDWARE),  # HwSlowdown, HwPowerBrakeSlowdown
)


class NvidiaBoard:
    """An NVIDIA board in NVML. `CounterError` if it is not found."""

    name = "NVML"
    scope = "board"
    step_s = 0.1  # 20 to 100 ms, by board

    def __init__(self, device: DeviceFacts) -> None:
        self._board = board_of(device)

    def joules(self) -> float:
        with nvml_errors():
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(self._board)) * 1e-3

    @cached_property
    def _max_mhz(self) -> float | None:
        return self._number("nvmlDeviceGetMaxClockInfo", pynvml.NVML_CLOCK_SM)

    def read(self, now: float) -> Reading:
        milliwatts, kind = self._number(_instant_milliwatts), INSTANT
        if milliwatts is None:
            milliwatts, kind = self._number("nvmlDeviceGetPowerUsage"), MEAN
        reasons = self._number("nvmlDeviceGetCurrentClocksEventReasons")
        if reasons is None:  # drivers before 535
            reasons = self._number("nvmlDeviceGetCurrentClocksThrottleReasons")
        return Reading(
            now,
            self._number("nvmlDeviceGetClockInfo", pynvml.NVML_CLOCK_SM),
            self._max_mhz,
            None if milliwatts is None else milliwatts * 1e-3,
            self._number("nvmlDeviceGetTemperature", pynvml.NVML_TEMPERATURE_GPU),
            tuple(name for bits, name in _LIMITS if int(reasons or 0) & bits),
            "" if milliwatts is None else kind,
        )

    def _number(self, function: str | Callable[..., Any], *arguments: object) -> float | None:
        with suppress(CounterError), nvml_errors():
            call = getattr(pynvml, function) if isinstance(function, str) else function
            return float(call(self._board, *arguments))
        return None


def _instant_milliwatts(board: Any) -> float:
    (field,) = pynvml.nvmlDeviceGetFieldValues(board, [pynvml.NVML_FI_DEV_POWER_INSTANT])
    if field.nvmlReturn != pynvml.NVML_SUCCESS:
        raise pynvml.NVMLError(field.nvmlReturn)
    return float(field.value.uiVal)


class Rapl:
    """The energy of every processor package, from Linux's powercap tree."""

    name = "RAPL"
    scope = "package"
    step_s = 0.001

    def __init__(self, powercap: Path = POWERCAP) -> None:
        zones = (zone for zone in sorted(powercap.glob("intel-rapl:*")) if zone.name.count(":") == 1)
        packages = [zone for zone in zones if zone.is_dir() and _text(zone / "name").startswith("package")]
        if not packages:
            raise CounterError(
                f"{powercap} lists no processor package (Linux only; virtual machines and containers hide it)"
            )
        self._wraps_at = {zone / "energy_uj": _microjoules(zone / "max_energy_range_uj") for zone in packages}
        self._last = {file: _microjoules(file) for file in self._wraps_at}
        self._total = 0

    def joules(self) -> float:
        for file, wraps_at in self._wraps_at.items():
            now = _microjoules(file)
            self._total += now - self._last[file] + (wraps_at if now < self._last[file] else 0)
            self._last[file] = now
        return self._total * 1e-6


def _microjoules(file: Path) -> int:
    text = _text(file)
    if not text.isdecimal():
        raise CounterError(f"{file} holds no number")
    return int(text)


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="ascii", errors="replace").strip()
    except PermissionError:
        zones = file.parent.parent / "intel-rapl:*"
        raise CounterError(
            f"{file} is for root only; until the next start, sudo chmod a+r {zones}/{file.name} opens it"
        ) from None
    except OSError as error:
        raise CounterError(f"{file}: {reason_of(error)}") from None


_WARM_UP_S = {"cpu": 0.02, "gpu": 0.1}
_LIMIT_S = 0.35  # after the load began: an H200's NVML reported limits after 0.11 to 0.29 s
_DROP = 0.02  # of the clock, which shows a limit before the driver reports it
_READ_EVERY_S = 0.01
_STALE_S = 0.1  # a reading this old says nothing of a batch
_AT = attrgetter("at_s")


class Monitor(Watch):
    """Reads a device (None: the host) and its host while a window is open."""

    def __init__(
        self, device: DeviceFacts | None, read: Callable[[float], Reading] | None = None,
        look: Callable[[float], Usage | None] | None = None,
    ) -> None:  # fmt: skip
        self._read = read
        if read is None and device is not None and device.type != "cpu" and is_nvidia(device):
            with suppress(CounterError):
                self._read = NvidiaBoard(device).read
        self._look = look or (lambda moment: usage(moment, os.getpid(), usable_cores()))
        self.warm_s = _WARM_UP_S["cpu" if device is None else broad_type(device)]
        self.limit_s = _LIMIT_S if self._read else 0.0
        timers = [time.get_clock_info("perf_counter").resolution]
        self.tick_s = max(timers + ([device.timer_resolution_ns * 1e-9] if device else []))
        self._before: Usage | None = None
        self._readings: list[Reading] = []
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def begin(self) -> None:
        self.close()  # a window that failed has not ended
        self._before = self._look(time.perf_counter())
        self._readings = []
        if self._read:
            self._readings.append(self._read(time.perf_counter()))
            self._over.clear()
            self._thread = threading.Thread(target=self._poll, daemon=True)
            self._thread.start()

    def end(self, clock: str, batches: Sequence[Batch]) -> Conditions | None:
        """Close the window: readings by batch, other programs, whether a limit counts."""
        self.close()
        after = self._look(time.perf_counter())
        other_cores, steal_cores = after.since(self._before) if after and self._before else (None, None)
        if not self._readings and other_cores is None:
            return None
        is_busy = clock != "host" or any(2 * each.seconds.get("device", 0) > each.wall_s for each in batches)
        readings = replace(
            readings_by_batch(self._readings, batches),
            window_s=round(after.at_s - self._before.at_s, 4) if after and self._before else 0.0,
            other_cores=other_cores,
            steal_cores=steal_cores,
        )
        return Conditions(
            power_limited=is_busy and _is_limited(self._readings, batches),
            max_mhz=next((reading.max_mhz for reading in self._readings), None),
            power=next((reading.power for reading in self._readings), ""),
            cores=after.cores if after else 0,
            windows={clock: readings},
        )

    def _poll(self) -> None:
        assert self._read is not None
        while not self._over.wait(_READ_EVERY_S):
            self._readings.append(self._read(time.perf_counter()))

    def close(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None:
            self._over.set()
            thread.join()


def _is_limited(readings: Sequence[Reading], batches: Sequence[Batch]) -> bool:
    """Whether a limit, or a clock over 2 % lower, was seen."""
    during = [reading for reading in readings if batches and reading.at_s >= batches[0].begin]
    limited = [reading for reading in during if POWER in reading.limits or THERMAL in reading.limits]
    if any((reading.clock_mhz or 0) < (1 - _DROP) * (reading.max_mhz or inf) for reading in limited):
        return True
    clocks = [reading.clock_mhz for reading in during if reading.clock_mhz]
    highest = max((reading.clock_mhz or 0.0 for reading in readings), default=0.0)
    return bool(clocks) and median(clocks) < (1 - _DROP) * highest


def readings_by_batch(readings: Sequence[Reading], batches: Sequence[Batch]) -> Readings:
    """The readings during each batch, or the last one before it if less than 0.1 s old.

    Clocks are medians, powers means, temperatures maxima.
    """
    if not readings:
        return Readings()
    during = [_readings_during(readings, batch) for batch in batches]
    return Readings(
        begin_s=tuple(round(batch.begin, 4) for batch in batches),
        clock_mhz=_value_by_batch(during, lambda reading: reading.clock_mhz, median),
        power_w=_value_by_batch(during, lambda reading: reading.power_w, fmean),
        celsius=_value_by_batch(during, lambda reading: reading.celsius, max),
        limits=tuple(
            " ".join(dict.fromkeys(name for reading in part for name in reading.limits)) for part in during
        ),
    )


def _readings_during(readings: Sequence[Reading], batch: Batch) -> Sequence[Reading]:
    begin = bisect_left(readings, batch.begin, key=_AT)
    end = bisect_right(readings, batch.end, begin, key=_AT)
    if begin == end and begin and readings[begin - 1].at_s >= batch.begin - _STALE_S:
        begin -= 1
    return readings[begin:end]


def _value_by_batch(
    during: Iterable[Sequence[Reading]],
    value: Callable[[Reading], float | None],
    middle: Callable[[list[float]], float],
) -> tuple[float | None, ...]:
    known = [[figure for reading in part if (figure := value(reading)) is not None] for part in during]
    return tuple(round(middle(part), 1) if part else None for part in known) if any(known) else ()
