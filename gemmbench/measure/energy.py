"""Joules for one problem: energy counters, and the window over which one is read.

1. Rest, then read the idle draw: half a second at least, with nothing running.
2. Warm up: batches that grow until one lasts ``_BATCH_S``, and on until clocks have answered.
3. The window: batches back to back for a second at least, longer where the counter's steps are coarse.

A counter moves in steps some milliseconds apart. So a window begins and ends at a reading that has just
moved: what is left uncertain is a batch or a step, whichever is shorter, and the window lasts long enough for
that to be ``_PRECISION`` of it. Counters are of a whole board or package: whatever else runs there is in the
joules.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import pynvml

from gemmbench.model.device import DeviceFacts
from gemmbench.model.row import Energy
from gemmbench.model.units import reason_of

POWERCAP = Path("/sys/class/powercap")

Batch = Callable[[int], object]
"""Runs so many problems back to back."""

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
    """Energy drawn so far. `Nvml` and `Rapl` are the real ones."""

    name: str  # NVML, RAPL
    scope: str  # what draws it: board, package
    step_s: float  # its readings move at least this often

    def joules(self) -> float:
        """Energy since a moment that stays the same.

        Raises:
            CounterError: it cannot be read any more.
        """


def measure_energy(run: Batch, device: DeviceFacts | None, powercap: Path = POWERCAP) -> Energy:
    """Joules for one problem on a device (None: the host), or why they were not measured. Takes seconds."""
    try:
        return measure(open_counter(device, powercap), run)
    except CounterError as error:
        return Energy(why=f"not measured: {error}")


def open_counter(device: DeviceFacts | None, powercap: Path = POWERCAP) -> Counter:
    """The counter of a device's board, or of the processor if the device is one (or None: the host).

    Raises:
        CounterError: there is none that can be read.
    """
    if device is None or device.type == "cpu":
        return Rapl(powercap)
    if is_nvidia(device):
        return Nvml(device)
    raise CounterError(f"no energy counter is known for {device.name}, only for NVIDIA boards and processors")


def is_nvidia(device: DeviceFacts) -> bool:
    """Whether NVML may know the device."""
    return "nvidia" in f"{device.vendor} {device.platform} {device.name}".lower()


def measure(
    counter: Counter, run: Batch, clock: Clock = time.perf_counter, sleep: Sleep = time.sleep
) -> Energy:
    """Joules for one problem, the idle draw before it beside them.

    Args:
        counter: what is read.
        run: the batch function.
        clock: seconds; replaced in tests.
        sleep: waits so many seconds; replaced in tests.

    Raises:
        CounterError: the counter stands still, runs backwards or cannot be read any more.
    """
    sleep(_REST_S)
    idle = _span(counter, lambda: sleep(_POLL_S), _IDLE_S, clock)
    batch, batch_s = _warm(run, clock)
    least_s = max(_WINDOW_S, min(batch_s, counter.step_s) / _PRECISION)
    busy = _span(counter, lambda: run(batch), least_s, clock)
    problems = busy.steps * batch
    return Energy(
        joules=busy.joules / problems,
        why="",
        scope=counter.scope,
        counter=counter.name,
        idle_w=idle.joules / idle.seconds,
        window_s=busy.seconds,
        problems=problems,
    )


@dataclass(frozen=True)
class _Span:
    seconds: float
    joules: float
    steps: int


def _span(counter: Counter, step: Callable[[], object], least_s: float, clock: Clock) -> _Span:
    """Repeat a step without a pause, for at least so long, from one movement of the counter to another."""
    begin, before, _ = _movement(counter, step, clock)
    steps = 0
    while clock() - begin < least_s:
        step()
        steps += 1
    end, after, more = _movement(counter, step, clock)
    if after <= before:
        raise CounterError(f"{counter.name}'s counter ran backwards")
    return _Span(end - begin, after - before, steps + more)


def _movement(counter: Counter, step: Callable[[], object], clock: Clock) -> tuple[float, float, int]:
    """Repeat a step until the counter moves; when it had, what it read, and the steps that took."""
    begin, before, steps = clock(), counter.joules(), 0
    while True:
        step()
        steps += 1
        joules, now = counter.joules(), clock()
        if joules != before:
            return now, joules, steps
        if now - begin > _STILL_S:
            raise CounterError(f"{counter.name}'s counter stands still")


def _warm(run: Batch, clock: Clock) -> tuple[int, float]:
    """Bring the device up to speed; problems in a batch, and the seconds that it takes."""
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
def answering() -> Iterator[None]:
    """Raise NVML's errors as `CounterError`."""
    try:
        yield
    except pynvml.NVMLError as error:
        raise CounterError(f"NVML says: {str(error).lower()}") from None


def board_of(device: DeviceFacts) -> Any:
    """NVML's handle of the board in a device's PCI slot; if that is not known, of the only one of its name.

    Raises:
        CounterError: the board, or NVIDIA's driver, is not found.
    """
    with answering():
        pynvml.nvmlInit()
        if device.pci:
            with suppress(pynvml.NVMLError):
                return pynvml.nvmlDeviceGetHandleByPciBusId(device.pci)
        boards = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        named = [board for board in boards if pynvml.nvmlDeviceGetName(board) == device.name]
    if len(named) != 1:
        raise CounterError(
            f"NVML lists {len(named)} boards called {device.name}"
            + (", and OpenCL does not say which one this is" if named else "")
        )
    return named[0]


class Nvml:
    """The total energy of an NVIDIA board.

    Raises:
        CounterError: the board has no counter or is not found: see `board_of`.
    """

    name = "NVML"
    scope = "board"
    step_s = 0.1  # 20 to 100 ms, by board

    def __init__(self, device: DeviceFacts) -> None:
        self._board = board_of(device)
        self.joules()

    def joules(self) -> float:
        with answering():
            return int(pynvml.nvmlDeviceGetTotalEnergyConsumption(self._board)) * 1e-3


class Rapl:
    """The energy of every processor package, from Linux's powercap tree (Intel's and AMD's).

    Only top-level zones called package count: their subzones (core, uncore, dram) are in them or beside
    them, and ``psys`` is the whole machine.

    Raises:
        CounterError: there is no such tree, or it may not be read.
    """

    name = "RAPL"
    scope = "package"
    step_s = 0.001

    def __init__(self, powercap: Path = POWERCAP) -> None:
        zones = (zone for zone in sorted(powercap.glob("intel-rapl:*")) if zone.name.count(":") == 1)
        self._packages = [
            _RaplPackage(zone)
            for zone in zones
            if zone.is_dir() and _text(zone / "name").startswith("package")
        ]
        if not self._packages:
            raise CounterError(
                f"{powercap} lists no processor package (Linux only; virtual machines and containers hide it)"
            )

    def joules(self) -> float:
        return sum(package.joules() for package in self._packages)


class _RaplPackage:
    """One package's counter, carried on where it wraps around."""

    def __init__(self, zone: Path) -> None:
        self._file = zone / "energy_uj"
        self._range = _microjoules(zone / "max_energy_range_uj")
        self._last = _microjoules(self._file)
        self._total = 0

    def joules(self) -> float:
        now = _microjoules(self._file)
        self._total += now - self._last + (self._range if now < self._last else 0)
        self._last = now
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
