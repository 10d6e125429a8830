"""Energy counters and the window over which they are read, on a clock and a machine that obey."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pynvml
import pytest

from gemmbench.gemm import measure as measure_module
from gemmbench.gemm import numpy_blas
from gemmbench.measure import sensors
from gemmbench.measure.sensors import (
    CounterError,
    NvidiaBoard,
    Rapl,
    measure_energy,
    measure_joules,
    open_counter,
)
from gemmbench.model.case import Case, Policy
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Energy
from tests import fake_nvml, in_process
from tests import fake_runs as fake
from tests.fake_nvml import Board
from tests.in_process import result_of

IDLE_W, BUSY_W = 31.0, 412.0


class Machine:
    """A device that draws one power at rest and another at work, and a counter that moves in steps."""

    name = "FAKE"
    scope = "board"

    def __init__(self, one_s: float, step_s: float, gap_s: float = 20e-6) -> None:
        self.one_s, self.step_s, self.gap_s = one_s, step_s, gap_s
        self.now = 1000.03
        self.first_problem_s: float | None = None
        self._drawn = self._shown = 5e6

    def _pass(self, seconds: float, watts: float) -> None:
        moved = math.floor((self.now + seconds) / self.step_s) * self.step_s
        if moved > self.now:
            self._shown = self._drawn + watts * (moved - self.now)
        self.now += seconds
        self._drawn += watts * seconds

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self._pass(seconds, IDLE_W)

    def run(self, count: int) -> None:
        if self.first_problem_s is None:
            self.first_problem_s = self.now
        self._pass(self.gap_s, IDLE_W)
        self._pass(count * self.one_s, BUSY_W)

    def joules(self) -> float:
        self._pass(1e-4, IDLE_W)  # asking takes a while
        return self._shown

    def measure(self) -> Energy:
        return measure_joules(self, self.run, self.clock, self.sleep)


@pytest.mark.parametrize("step_s", [0.001, 0.019, 0.097])
@pytest.mark.parametrize("one_s", [1e-5, 1e-4, 3e-3, 0.03, 0.16, 0.7, 2.6])
def test_joules_and_the_idle_draw_are_those_of_the_machine(one_s: float, step_s: float) -> None:
    found = Machine(one_s, step_s).measure()
    assert found.joules == pytest.approx(BUSY_W * one_s, rel=0.02)
    assert found.idle_w == pytest.approx(IDLE_W, rel=0.02)
    assert found.window_s is not None
    assert found.window_s >= 1.0
    assert found.problems * one_s == pytest.approx(found.window_s, rel=0.02)
    assert (found.scope, found.counter, found.why) == ("board", "FAKE", "")


def test_the_idle_draw_is_read_before_anything_runs() -> None:
    machine = Machine(1e-3, 0.02)
    begin = machine.now
    machine.measure()
    assert machine.first_problem_s is not None
    assert machine.first_problem_s - begin > 0.5


def test_a_coarse_counter_gets_a_longer_window_than_a_fine_one() -> None:
    coarse, fine = Machine(0.16, 0.097).measure().window_s, Machine(0.16, 0.001).measure().window_s
    assert coarse is not None
    assert fine is not None
    assert coarse >= 5.0 > fine


def test_a_counter_that_stands_still_is_no_counter() -> None:
    machine = Machine(1e-3, 1e9)
    with pytest.raises(CounterError, match="FAKE's counter stands still"):
        machine.measure()
    assert machine.now < 1005


def test_a_counter_that_runs_backwards_is_refused() -> None:
    machine = Machine(1e-3, 0.01)
    forwards = machine.joules
    machine.joules = lambda: -forwards()  # type: ignore[method-assign]  # this one alone
    with pytest.raises(CounterError, match="ran backwards"):
        machine.measure()


# --- RAPL ---------------------------------------------------------------------------------------------------


def zone(root: Path, name: str, called: str, microjoules: int, most: int = 262_143_328_850) -> Path:
    folder = root / name
    folder.mkdir(parents=True)
    (folder / "name").write_text(f"{called}\n")
    (folder / "energy_uj").write_text(f"{microjoules}\n")
    (folder / "max_energy_range_uj").write_text(f"{most}\n")
    return folder


def draw(folder: Path, microjoules: int) -> None:
    (folder / "energy_uj").write_text(f"{microjoules}\n")


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    """Two packages with their subzones, the whole machine, and a second door to the first package."""
    root = tmp_path / "powercap"
    (root / "intel-rapl").mkdir(parents=True)  # the control type itself
    for number in (0, 1):
        zone(root, f"intel-rapl:{number}", f"package-{number}", 1_000_000 * (number + 1))
        zone(root, f"intel-rapl:{number}:0", "core", 700_000)
        zone(root, f"intel-rapl:{number}:1", f"package-{number}-die-1", 200_000)  # whatever it is called
    zone(root, "intel-rapl:2", "psys", 9_000_000)
    zone(root, "intel-rapl-mmio:0", "package-0", 1_000_000)
    return root


def test_packages_are_summed_and_nothing_is_counted_twice(tree: Path) -> None:
    counter = Rapl(tree)
    assert counter.joules() == 0
    for folder in tree.iterdir():
        if (folder / "energy_uj").exists():
            draw(folder, int((folder / "energy_uj").read_text()) + 3_000_000)
    assert counter.joules() == pytest.approx(6.0)


def test_a_counter_that_wraps_around_goes_on(tmp_path: Path) -> None:
    folder = zone(tmp_path, "intel-rapl:0", "package-0", 9_500_000, most=10_000_000)
    counter = Rapl(tmp_path)
    readings = []
    for microjoules in (9_900_000, 300_000, 9_000_000, 100_000):
        draw(folder, microjoules)
        readings.append(counter.joules())
    assert readings == pytest.approx([0.4, 0.8, 9.5, 10.6])


@pytest.mark.parametrize("name", ["", "intel-rapl:0"])
def test_no_tree_or_an_empty_one_says_so(tmp_path: Path, name: str) -> None:
    root = tmp_path / "powercap"
    if name:  # as containers mask it: a link into a folder that is not there
        root.mkdir()
        (root / name).symlink_to(tmp_path / "devices" / name)
    with pytest.raises(CounterError) as caught:
        Rapl(root)
    hint = "(Linux only; virtual machines and containers hide it)"
    assert str(caught.value) == f"{root} lists no processor package {hint}"


def test_a_counter_for_root_only_says_how_to_open_it(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plain = Path.read_text

    def read_text(path: Path, **how: Any) -> str:
        if path.name == "energy_uj":
            raise PermissionError(13, "Permission denied", str(path))
        return plain(path, **how)

    monkeypatch.setattr(Path, "read_text", read_text)
    found = measure_energy(lambda count: None, None, tree)
    assert found.joules is None
    assert found.why == (
        f"not measured: {tree}/intel-rapl:0/energy_uj is for root only; until the next start, "
        f"sudo chmod a+r {tree}/intel-rapl:*/energy_uj opens it"
    )


def test_a_package_that_vanishes_ends_the_measurement(tree: Path) -> None:
    counter = Rapl(tree)
    (tree / "intel-rapl:1" / "energy_uj").unlink()
    with pytest.raises(CounterError, match=r"intel-rapl:1/energy_uj: no such file or directory"):
        counter.joules()


def test_a_counter_that_is_no_number_is_refused(tree: Path) -> None:
    (tree / "intel-rapl:0" / "energy_uj").write_text("much\n")
    with pytest.raises(CounterError, match="energy_uj holds no number"):
        Rapl(tree)


# --- NVML ---------------------------------------------------------------------------------------------------


H200 = ("0000:17:00.0", "NVIDIA H200", 4_000_000)
OTHER = ("0000:65:00.0", "NVIDIA H200", 7_000_000)
SMALL = ("0000:05:00.0", "NVIDIA T4", 1_000)


@pytest.mark.parametrize(
    ("pci", "boards", "joules"),
    [
        (OTHER[0], (H200, OTHER), 7000.0),
        (H200[0], (H200, OTHER), 4000.0),
        ("", (SMALL, H200), 4000.0),
        ("0001:99:00.0", (SMALL, H200), 4000.0),  # the place that OpenCL gives is unknown to NVML
    ],
)
def test_a_board_is_found_by_its_slot_or_else_by_its_name(
    pci: str, boards: tuple[tuple[str, str, int]], joules: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml.install(monkeypatch, *boards)
    assert NvidiaBoard(replace(fake.GPU, pci=pci)).joules() == pytest.approx(joules)


TWO = "NVML lists 2 boards called NVIDIA H200"
MISSING = pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)


@pytest.mark.parametrize(
    ("boards", "answers", "why"),
    [
        ((), {"init": MISSING}, "NVML says: nvml shared library not found"),
        (((*H200[:2], None),), {}, "NVML says: not supported"),
        ((SMALL,), {}, "NVML lists 0 boards called NVIDIA H200"),
        ((H200, OTHER), {}, f"{TWO}, and OpenCL does not say which one this is"),
    ],
)
def test_why_a_board_has_no_joules(
    boards: tuple[Board, ...], answers: dict[str, Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_nvml.install(monkeypatch, *boards, **answers)
    with pytest.raises(CounterError):
        open_counter(fake.GPU)  # at once, not after a rest
    assert measure_energy(lambda count: None, fake.GPU) == Energy(None, f"not measured: {why}")


@pytest.mark.parametrize(
    "function", ["nvmlInit", "nvmlDeviceGetCount", "nvmlDeviceGetName", "nvmlDeviceGetTotalEnergyConsumption"]
)
@pytest.mark.parametrize(
    "error",
    [UnicodeDecodeError("utf-8", b"\xae", 0, 1, "invalid start byte"), AttributeError("no such function")],
    ids=["name-in-latin-1", "old-binding"],
)
def test_an_error_of_the_binding_is_a_reason_too(
    function: str, error: Exception, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise error

    fake_nvml.install(monkeypatch, H200)
    monkeypatch.setattr(pynvml, function, fail)
    energy = measure_energy(lambda count: None, replace(fake.GPU, pci=""))
    assert energy == Energy(None, f"not measured: NVML failed: {type(error).__name__}: {error}")


def test_each_kind_of_device_has_its_counter(tree: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvml.install(monkeypatch, H200)
    assert isinstance(open_counter(fake.CPU, tree), Rapl)
    assert isinstance(open_counter(None, tree), Rapl)
    assert isinstance(open_counter(fake.GPU, tree), NvidiaBoard)
    other = replace(fake.GPU, platform="Intel(R) OpenCL Graphics", vendor="Intel", name="Intel(R) Arc")
    with pytest.raises(CounterError, match=r"no energy counter is known for Intel\(R\) Arc"):
        open_counter(other, tree)


# --- where it is asked for ----------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [True, False])
def test_the_hosts_blas_is_measured_when_asked(wanted: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    stages: list[str] = []

    def fake_measure(run: sensors.RunBatch, device: object) -> Energy:
        run(2)
        assert device is None
        return Energy(0.25, "", "package", "RAPL")

    monkeypatch.setattr(measure_module, "measure_energy", fake_measure)
    case = Case("gemm", -1, "numpy", "float", {}, Gemm(8, 8, 8))
    policy = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0, energy=wanted)
    instrument = in_process.InProcess(numpy_blas.NumpyExecutor())
    row = result_of(measure_module.measure_gemm(instrument, case, None, policy), stages)
    assert row.status == "ok"
    assert row.energy.joules == (0.25 if wanted else None)
    assert ("measuring energy" in stages) == wanted
