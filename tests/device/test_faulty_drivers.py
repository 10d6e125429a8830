"""Drivers that go wrong: `driver.c`, built here, alone or in front of a driver of this machine."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner

import gemmbench as gb
from gemmbench import cli
from gemmbench.measure import child
from gemmbench.measure.child import Worker
from gemmbench.measure.machine import default
from gemmbench.opencl import drivers
from tests.device.conftest import all_devices

SOURCE = Path(__file__).with_name("driver.c")
REQUIRED = os.environ.get("GEMMBENCH_REQUIRE_LIBRARIES", "").split(",")

Build = Callable[..., Path]


@pytest.fixture(scope="session")
def build(tmp_path_factory: pytest.TempPathFactory) -> Build:
    """Builds the driver; `loaded` is what it does when it is loaded."""
    if shutil.which("gcc") is None:
        assert "gcc" not in REQUIRED, "gcc is required here and not installed"
        pytest.skip("gcc is not installed")
    folder = tmp_path_factory.mktemp("drivers")

    def built(name: str, loaded: str = "") -> Path:
        library = folder / f"lib{name}.so"
        if not library.exists():
            options = ["-shared", "-fPIC", "-Wall", "-Werror", *([f"-DLOADED={loaded}"] if loaded else [])]
            subprocess.run(["gcc", *options, "-o", str(library), str(SOURCE), "-ldl"], check=True)
        return library

    return built


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Shows the loader these drivers, in this order, and the first device's driver behind them."""

    def shown(*libraries: Path) -> Path:
        good, *others = dict.fromkeys(device.library for device in all_devices())
        for number, library in enumerate((*libraries, good)):
            (tmp_path / f"{number}.icd").write_text(f"{library}\n")
        monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
        monkeypatch.setenv(drivers.SKIP, os.pathsep.join(others))
        return tmp_path

    return shown


@pytest.fixture
def in_front(build: Build, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[[str], None]:
    """Shows the loader one driver: that of the last device of this machine, with the fault of this name."""

    def shown(fault: str) -> None:
        (tmp_path / "faulty.icd").write_text(str(build("faulty")))
        monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
        monkeypatch.setenv(drivers.SKIP, os.pathsep.join(device.library for device in all_devices()))
        monkeypatch.setenv("BEHIND", all_devices()[-1].library)
        monkeypatch.setenv(fault, "1")

    return shown


def test_drivers_that_crash_or_hang_are_named_and_left_out(
    build: Build, vendors: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "LIST_LIMIT_S", 2.0)
    faults = {"abort()": "crashes with SIGABRT", "exit(3)": "ends the process with status 3"}
    faults |= {
        "exit(0)": "ends the process with status 0",
        "sleep(1000)": "has not listed its devices after 2 s",
    }
    libraries = [build(f"fault{number}", fault) for number, fault in enumerate(faults)]
    folder = vendors(*libraries)
    with Worker(default) as worker:
        devices, _ = worker.devices()
        assert {device.name for device in devices} == {device.name for device in all_devices()[:1]}
        for number, (library, how) in enumerate(zip(libraries, faults.values(), strict=True)):
            problem, fix = worker.failing[number]
            assert problem.startswith(f"{folder / f'{number}.icd'}: {library} {how}")
            assert fix.startswith(f"{drivers.SKIP}={library}")
    with Worker(default) as worker:  # knows them from the start
        assert worker.devices()[0] == devices
        assert worker.failing == ()


def test_a_missing_library_is_named(vendors: Callable[..., Path]) -> None:
    folder = vendors(Path("/nowhere/libnothing.so"))
    text = f"{folder}/0.icd: /nowhere/libnothing.so cannot be loaded: cannot open shared object file"
    shown = CliRunner().invoke(cli.main, ["devices"], prog_name="gemmbench", env={"COLUMNS": "300"}).output
    assert text in shown
    assert text in " ".join(finding.problem for finding in gb.doctor())


def test_zeros_and_empty_lists_are_the_minimum_of_the_specification(in_front: Callable[[str], None]) -> None:
    in_front("ZEROS")
    (device,) = gb.devices()
    assert device.compute_units == (len(os.sched_getaffinity(0)) if device.type == "cpu" else 1)
    assert (device.max_work_group_size, device.max_work_item_sizes) == (1, (1, 1, 1))
    assert (device.global_mem_bytes, device.max_alloc_bytes) == (128 << 20, 128 << 20)
    assert (device.local_mem_bytes, device.image2d_max) == (
        32 << 10,
        (8192, 8192) if device.images else (0, 0),
    )
    kernels = "naive,mali-sgemm,tiled"
    run = gb.gemm(m=8, n=8, k=8, kernels=kernels, budget=0.02, baseline="none", peak=False, quiet=True)
    statuses = {row.variant: row.status for row in run.rows}
    assert statuses == {"naive": "ok", "mali-sgemm": "ok", "tiled": "unsupported"}
