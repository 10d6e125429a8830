"""OpenCL drivers that crash, hang or cannot be loaded: named, left out, and the others work."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from gemmbench.measure import child, machine
from gemmbench.measure.child import Worker
from gemmbench.opencl import drivers

FAULTS = {
    "abort": ("abort();", "ends the process that loads it (SIGABRT)"),
    "segfault": ("raise(SIGSEGV);", "ends the process that loads it (SIGSEGV)"),
    "exit": ("exit(3);", "ends the process that loads it (status 3)"),
    "hang": ("sleep(1000);", "does not answer within 1 s"),
}


def library(folder: Path, statement: str) -> Path:
    """A shared library whose constructor runs a statement of C."""
    if shutil.which("gcc") is None:
        if "GEMMBENCH_REQUIRE_DRIVERS" in os.environ:
            pytest.fail("gcc is missing: apt-get install gcc libc6-dev")
        pytest.skip("needs gcc")
    source = folder / "bad.c"
    source.write_text(
        "#include <signal.h>\n#include <stdlib.h>\n#include <unistd.h>\n"
        f"__attribute__((constructor)) static void start(void) {{ {statement} }}\n"
    )
    made = folder / "libbad.so"
    subprocess.run(["gcc", "-shared", "-fPIC", "-o", made, source], check=True)
    return made


@pytest.fixture
def vendors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder in place of /etc/OpenCL/vendors. pip's driver is found beside it."""
    folder = tmp_path / "vendors"
    folder.mkdir()
    monkeypatch.setenv("OCL_ICD_VENDORS", str(folder))
    monkeypatch.delenv(drivers.SKIP, raising=False)
    return folder


needs_pip_driver = pytest.mark.skipif(
    not drivers._python_drivers([])[0], reason="pip brings no driver for this processor"
)


@needs_pip_driver
@pytest.mark.parametrize("fault", FAULTS)
def test_a_driver_that_ends_or_blocks_its_process_is_left_out(
    fault: str, vendors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    statement, reason = FAULTS[fault]
    bad = library(vendors.parent, statement)
    (vendors / "bad.icd").write_text(f"{bad}\n")
    monkeypatch.setattr(child, "_LIST_LIMIT_S", 5.0)
    monkeypatch.setattr(drivers, "_LOAD_LIMIT_S", 1.0)
    with Worker(machine.default) as worker:
        devices, _ = worker.devices()
    assert devices
    (warning,) = [text for text in devices[0].warnings if str(bad) in text]
    icd = vendors / "bad.icd"
    assert warning == (
        f"OpenCL driver {bad} ({icd}) {reason} and is left out; {drivers.SKIP}={bad} does so at once"
    )


@needs_pip_driver
def test_a_driver_that_the_user_leaves_out_is_never_loaded(
    vendors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bad = library(vendors.parent, "abort();")
    (vendors / "bad.icd").write_text(f"{bad}\n")
    monkeypatch.setenv(drivers.SKIP, str(bad))
    with Worker(machine.default) as worker:
        devices, _ = worker.devices()
    assert devices
    assert not any(str(bad) in text for text in devices[0].warnings)


@needs_pip_driver
def test_a_file_that_names_a_missing_library_is_reported_with_the_linkers_reason(vendors: Path) -> None:
    (vendors / "gone.icd").write_text("/nowhere/libgone.so\n")
    (problem,) = drivers.problems()
    assert str(problem).startswith(f"OpenCL driver /nowhere/libgone.so ({vendors / 'gone.icd'}) cannot be ")
    assert "No such file" in problem.reason
    command = [sys.executable, "-m", "gemmbench", "devices"]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    assert "libgone.so" in listed.stdout
    found = subprocess.run([*command[:-1], "doctor"], capture_output=True, text=True, check=True)
    assert "libgone.so" in found.stdout


@needs_pip_driver
def test_libraries_of_ocl_icd_filenames_are_shown_to_the_loader(
    vendors: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """oneAPI's setvars.sh sets the variable, and ocl-icd does not read it."""
    monkeypatch.setenv("OCL_ICD_FILENAMES", "/nowhere/libgone.so")
    try:
        registered = drivers.register.__wrapped__()
        assert drivers.Driver("/nowhere/libgone.so", "from OCL_ICD_FILENAMES") in registered.drivers
        folder = Path(registered.environment["OCL_ICD_VENDORS"])
        assert "/nowhere/libgone.so" in " ".join(path.read_text() for path in folder.glob("*.icd"))
    finally:
        drivers.release()
    (problem,) = drivers.problems()
    assert "(from OCL_ICD_FILENAMES) cannot be loaded" in str(problem)


def test_rusticl_without_its_variable_says_so(vendors: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("RUSTICL_ENABLE", raising=False)
    plain = library(vendors.parent, "")
    rusticl = plain.rename(plain.with_name("libRusticlOpenCL.so"))
    (vendors / "rusticl.icd").write_text(f"{rusticl}\n")
    (problem,) = drivers.problems()
    assert "shows no device without RUSTICL_ENABLE" in str(problem)
    monkeypatch.setenv("RUSTICL_ENABLE", "llvmpipe")
    assert drivers.problems() == []
