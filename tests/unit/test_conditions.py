"""What is read of a device and its host while a row is measured: against a fake NVML and a fake psutil."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import psutil
import pynvml
import pytest

from gemmbench.measure import machine, sensors
from gemmbench.measure.machine import Usage, usage
from gemmbench.measure.sensors import Monitor, NvidiaBoard, readings_by_batch
from gemmbench.model.device import Conditions, Reading, Readings, joined_conditions
from gemmbench.model.instrument import Batch
from tests import fake_nvml
from tests import fake_runs as fake
from tests.fake_proc import OWN, FakeProc


@pytest.fixture
def proc() -> FakeProc:
    return FakeProc()


def look(proc: FakeProc, cores: tuple[int, ...] | None = None) -> Usage:
    counted = usage(proc.now, OWN, cores, proc)
    assert counted is not None
    return counted


# --- the host -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("own", [0.0, 1.0, 2.0])
@pytest.mark.parametrize("other", [0.0, 0.5, 1.0])
def test_what_others_use_is_what_is_busy_without_our_own(own: float, other: float, proc: FakeProc) -> None:
    before = look(proc)
    proc.run(2.0, own=own, other=other)
    other_cores, steal = look(proc).since(before)
    assert other_cores == pytest.approx(other, abs=0.02)
    assert steal == 0.0


def test_steal_is_counted(proc: FakeProc) -> None:
    before = look(proc)
    proc.run(2.0, own=1.5, steal=0.25)
    other_cores, steal = look(proc).since(before)
    assert other_cores == pytest.approx(0.0, abs=0.02)
    assert steal == pytest.approx(0.25, abs=0.02)


def test_only_the_cores_that_we_may_use_count(proc: FakeProc) -> None:
    assert (look(proc).cores, look(proc, cores=(1,)).cores) == (2, 1)


@pytest.mark.parametrize(("used", "busy"), [({0}, 1.0), ({1}, 0.0), ({0, 1}, 1.0)])
def test_a_host_is_busy_where_this_process_may_run(
    used: set[int], busy: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    times = [SimpleNamespace(user=0.0, idle=0.0) for _ in range(2)]

    def passing(_: float) -> None:
        cores = ((1.0, 0.0), (0.0, 1.0))  # the other core is idle
        times[:] = [SimpleNamespace(user=user, idle=idle) for user, idle in cores]

    monkeypatch.setattr(psutil, "cpu_times", lambda percpu: list(times))
    monkeypatch.setattr(machine, "family", lambda pid, system: [])
    monkeypatch.setattr(machine, "usable_cores", lambda: used)
    monkeypatch.setattr(
        machine, "time", SimpleNamespace(sleep=passing, perf_counter=iter((0.0, 1.0)).__next__)
    )
    assert machine._busy_cores() == pytest.approx(busy)


def test_a_system_that_does_not_tell_is_not_guessed(proc: FakeProc) -> None:
    assert usage(0.0, OWN, None, replace(proc, is_blind=True)) is None
    none = look(proc, cores=())
    assert none.since(replace(none, at_s=-1.0))[0] is None


def test_counters_that_stand_still_say_nothing(proc: FakeProc) -> None:
    before = look(proc)
    assert replace(before, at_s=1.0).since(before) == (None, None)


def test_this_process_is_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # the real psutil
    monitor = Monitor(None)
    monitor.begin()
    begin, end = time.process_time(), time.perf_counter() + 0.3
    while time.perf_counter() < end:
        pass
    own_cores = (time.process_time() - begin) / 0.3
    read = monitor.end("host", ())
    assert read.cores >= 1
    other_cores = read.windows["host"].other_cores
    assert other_cores is not None
    assert other_cores <= read.cores - 0.7 * own_cores  # its own time is not another's


# --- NVML ---------------------------------------------------------------------------------------------------


def at_sm(clock: int) -> Callable[[int, int], int]:
    """The clock of the SMs, which is the second kind."""
    return lambda _, kind: {1: clock}[kind]


HOT: dict[str, Any] = {
    "MaxClockInfo": at_sm(1980),
    "ClockInfo": at_sm(1440),
    "PowerUsage": 692_000,
    "Temperature": 54,
    "CurrentClocksThrottleReasons": 0x4,
    "CurrentClocksEventReasons": pynvml.NVMLError(pynvml.NVML_ERROR_FUNCTION_NOT_FOUND),  # an older driver
}


def gauge(monkeypatch: pytest.MonkeyPatch, **state: Any) -> NvidiaBoard:
    fake_nvml.install(monkeypatch, ("", fake.GPU.name, None), **state)
    return NvidiaBoard(fake.GPU)


def test_a_board_says_its_clock_power_temperature_and_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    read = gauge(monkeypatch, **HOT).read(5.0)
    assert read == Reading(5.0, 1440.0, 1980.0, 692.0, 54.0, ("power",), "mean")


@pytest.mark.parametrize(("status", "power"), [(0, (655.0, "instant")), (3, (692.0, "mean"))])
def test_power_is_that_of_the_moment_where_the_board_reports_it(
    status: int, power: tuple[float, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other value is the mean of the last second: a row of 0.1 s at 690 W had 125 to 165 W."""
    board = gauge(monkeypatch, **HOT)

    def fields(_: int, numbers: list[int]) -> list[SimpleNamespace]:
        assert numbers == [186]
        return [SimpleNamespace(nvmlReturn=status, value=SimpleNamespace(uiVal=655_000))]

    monkeypatch.setattr(pynvml, "nvmlDeviceGetFieldValues", fields)
    read = board.read(5.0)
    assert (read.power_w, read.power) == power
    conditions = Monitor(fake.GPU, board.read, lambda now: None)
    conditions.begin()
    assert (conditions.end("device", [batch(0.0, 1.0)]) or Conditions()).power == power[1]


@pytest.mark.parametrize(
    ("reasons", "limits"),
    [
        (0x0, ()),
        (0x1, ()),  # idle
        (0x2, ()),  # a clock that somebody has set
        (0x20, ("thermal",)),
        (0x40 | 0x8, ("thermal", "hardware")),
        (0x80, ("hardware",)),
        (0x4 | 0x20, ("power", "thermal")),
    ],
)
def test_reasons_are_limits_or_not(
    reasons: int, limits: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert gauge(monkeypatch, **{**HOT, "CurrentClocksThrottleReasons": reasons}).read(0.0).limits == limits


def test_what_a_board_does_not_support_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    assert gauge(monkeypatch, ClockInfo=at_sm(1980)).read(0.0) == Reading(0.0, 1980.0, None, None, None, ())
    assert gauge(monkeypatch).read(0.0) == Reading(0.0)


def test_a_reading_that_the_binding_lacks_is_not_known(monkeypatch: pytest.MonkeyPatch) -> None:
    board = gauge(monkeypatch, **HOT)
    monkeypatch.delattr(pynvml, "nvmlDeviceGetCurrentClocksEventReasons")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", lambda *_: b"54 degrees")
    assert board.read(5.0) == Reading(5.0, 1440.0, 1980.0, 692.0, None, ("power",), "mean")


def test_without_nvml_a_gpu_is_watched_blindly(monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.install(monkeypatch, init=pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND))
    monitor = Monitor(fake.GPU, look=lambda now: None)
    monitor.begin()
    assert monitor.end("device", ()) is None


def test_a_cpus_rows_are_warmed_up_for_half_the_time_of_a_gpus() -> None:
    warm_s = [Monitor(device).warm_s for device in (None, fake.CPU, fake.GPU)]
    assert warm_s == [0.02, 0.02, 0.1]


def test_only_a_device_that_reports_limits_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    board = gauge(monkeypatch, **HOT)
    assert (Monitor(fake.CPU).limit_s, Monitor(fake.GPU, board.read).limit_s) == (0.0, 0.35)


def test_the_coarser_of_two_timers_counts() -> None:
    own_s = time.get_clock_info("perf_counter").resolution
    assert Monitor(None).tick_s == Monitor(replace(fake.CPU, timer_resolution_ns=0)).tick_s == own_s
    assert Monitor(replace(fake.GPU, timer_resolution_ns=1000)).tick_s == pytest.approx(max(own_s, 1e-6))


# --- readings and batches -----------------------------------------------------------------------------------


def batch(begin: float, end: float) -> Batch:
    return Batch({"kernel": 0.001}, begin, end)


def test_readings_go_to_the_batches_during_which_they_were_taken() -> None:
    readings = [
        Reading(0.9, 1980.0, 1980.0, 100.0, 40.0),
        Reading(1.1, 1900.0, 1980.0, 300.0, 41.0),
        Reading(1.2, 1800.0, 1980.0, 500.0, 43.0, ("power",)),
        Reading(2.1, 1400.0, 1980.0, 690.0, 50.0, ("power", "thermal")),
    ]
    read = readings_by_batch(readings, [batch(1.0, 1.3), batch(1.3, 1.35), batch(2.0, 2.2), batch(9.0, 9.1)])
    assert read == Readings(
        begin_s=(1.0, 1.3, 2.0, 9.0),
        clock_mhz=(1850.0, 1800.0, 1400.0, None),  # the second is shorter than a poll: what was read before
        power_w=(400.0, 500.0, 690.0, None),
        celsius=(43.0, 43.0, 50.0, None),
        limits=("power", "power", "power thermal", ""),
    )


def test_each_batch_looks_at_few_of_the_readings() -> None:
    looks = 0

    class Counted(Reading):
        def __getattribute__(self, name: str) -> object:
            nonlocal looks
            looks += name == "at_s"
            return super().__getattribute__(name)

    count = 1000
    batches = [batch(number - 0.3, number + 0.3) for number in range(count)]
    read = readings_by_batch(
        [Counted(float(number), clock_mhz=1000.0 + number) for number in range(count)], batches
    )
    assert read.clock_mhz == tuple(1000.0 + number for number in range(count))
    assert looks < 50 * count


def test_a_device_that_says_nothing_leaves_no_columns() -> None:
    assert readings_by_batch([], [batch(1.0, 2.0)]) == Readings()
    assert readings_by_batch([Reading(1.5)], [batch(1.0, 2.0)]) == Readings(begin_s=(1.0,), limits=("",))


def test_a_monitor_polls_while_a_window_is_open(monkeypatch: pytest.MonkeyPatch, proc: FakeProc) -> None:
    board = gauge(monkeypatch, **HOT)
    monitor = Monitor(fake.GPU, board.read, lambda now: replace(look(proc), at_s=now))
    begin = time.perf_counter()
    monitor.begin()
    time.sleep(0.1)
    proc.run(0.1, own=1.0, other=1.0)
    read = monitor.end("device", [batch(begin, time.perf_counter())])
    assert (read.max_mhz, read.cores, read.power_limited) == (1980.0, 2, True)
    window = read.windows["device"]
    assert (window.clock_mhz, window.power_w, window.limits) == ((1440.0,), (692.0,), ("power",))
    assert window.other_cores == pytest.approx(0.1 / window.window_s, rel=0.1)
    # typeshed hides a thread's target, and sensors does not export its modules.
    assert not [thread for thread in sensors.threading.enumerate() if thread._target == monitor._poll]  # type: ignore[attr-defined]


class Script:
    """Readings one after another, a second apart by its own clock; the last one is repeated."""

    def __init__(self, *readings: Reading) -> None:
        self._readings = [replace(reading, at_s=float(place)) for place, reading in enumerate(readings)]
        self._next = 0
        self.over = threading.Event()

    def read(self, now: float) -> Reading:
        reading = self._readings[min(self._next, len(self._readings) - 1)]
        self._next += 1
        if self._next >= len(self._readings):
            self.over.set()
        return reading


FULL, FREE = Reading(0, 1980.0, 1980.0), Reading(0)
LOW = replace(FULL, clock_mhz=1930.0, limits=("power",))  # 2.5 % below


@pytest.mark.parametrize(
    ("readings", "clock", "is_limited"),
    [
        ((FULL, FULL, LOW), "device", True),
        ((LOW, LOW, LOW), "device", True),  # from the start
        ((FULL, FULL, replace(LOW, limits=("thermal",))), "device", True),
        ((FULL, FULL, replace(LOW, limits=("hardware",))), "device", False),
        ((FREE, FREE, replace(FREE, limits=("power",))), "device", True),  # no clock
        # Of the row before, as NVML reports it for half a second, when the clock is high again.
        ((FULL, *[replace(FULL, clock_mhz=1965.0, limits=("power",))] * 2), "device", False),
        ((FULL, *[replace(FULL, clock_mhz=1930.0)] * 2), "device", True),  # 2.5 % less
        ((FULL, *[replace(FULL, clock_mhz=1950.0)] * 2), "device", False),  # 1.5 %
        ((FULL, FULL, replace(FULL, clock_mhz=1930.0)), "device", False),  # once
        ((FULL, FULL, replace(FULL, clock_mhz=1440.0, limits=("power",))), "host", False),
        # Before the batches began: what an idle device's clock was, and what limited the row before.
        ((replace(FULL, clock_mhz=345.0), FULL, FULL), "device", False),
        ((replace(FULL, limits=("power",)), FULL, FULL), "device", False),
        ((FREE, FREE, FREE), "device", False),
    ],
)
def test_a_row_is_power_limited_if_a_limit_lowers_its_clock_or_its_clock_drops(
    readings: tuple[Reading, ...], clock: str, is_limited: bool
) -> None:
    script = Script(*readings)
    monitor = Monitor(fake.GPU, script.read, lambda now: None)
    monitor.begin()
    assert script.over.wait(10)
    read = monitor.end(clock, [batch(0.5, 1.0), batch(1.0, 3.0)])
    assert read.power_limited == is_limited


@pytest.mark.parametrize(("device_s", "is_limited"), [(0.4, False), (0.6, True)])
def test_a_limit_counts_by_the_hosts_clock_if_the_device_works_most_of_the_time(
    device_s: float, is_limited: bool
) -> None:
    script = Script(LOW)
    monitor = Monitor(fake.GPU, script.read, lambda now: None)
    monitor.begin()
    read = monitor.end("host", [Batch({"device": device_s, "host": 1.0}, 0.0, 1.0)])
    assert read.power_limited == is_limited


def test_the_windows_of_a_row_are_joined() -> None:
    first = Conditions(
        3.0, max_mhz=1980.0, cores=2, windows={"device": Readings((1.0,), (1440.0,), window_s=1.0)}
    )
    host = Conditions(windows={"host": Readings(other_cores=0.5)}, power_limited=True)
    read = joined_conditions([first, None, host])
    assert (read.warm_s, read.power_limited, read.max_mhz, read.cores) == (3.0, True, 1980.0, 2)
    assert read.windows == {**first.windows, **host.windows}
    assert joined_conditions([None, None]) is None
