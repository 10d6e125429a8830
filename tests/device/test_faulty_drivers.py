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
    """Shows the loader these drivers, in this order, and a driver of this machine behind them."""

    def shown(*libraries: Path) -> Path:
        good = all_devices()[0].library
        for number, library in enumerate((*libraries, good)):
            (tmp_path / f"{number}.icd").write_text(f"{library}\n")
        monkeypatch.setenv("OCL_ICD_VENDORS", str(tmp_path))
        monkeypatch.setenv(drivers.SKIP, "")
        return tmp_path

    return shown


def test_drivers_that_crash_or_hang_are_named_and_left_out(
    build: Build, vendors: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(child, "LIST_LIMIT_S", 3.0)
    faults = {"abort()": "crashes with SIGABRT", "exit(3)": "ends the process with status 3"}
    faults |= {
        "exit(0)": "ends the process with status 0",
        "sleep(1000)": "has not listed its devices after 3 s",
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
