"""Discovery on the real machine, each in a process of its own: the loader reads its environment once."""

import ctypes
import importlib.metadata
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from gemmbench.model.dtypes import DTYPES

# As the loader has it, so that an environment that hides the system's drivers hides them here.
VENDORS = Path(os.environ.get("OCL_ICD_VENDORS") or "/etc/OpenCL/vendors")

pytestmark = pytest.mark.installed

# Drivers that must be there, such as "intel,pocl": what a CI job sets, so that none goes missing unnoticed.
REQUIRED = tuple(filter(None, os.environ.get("GEMMBENCH_REQUIRE_DRIVERS", "").split(",")))

PROBE = """
import dataclasses, json, os, warnings
warnings.simplefilter("ignore")
from gemmbench.opencl import drivers
before = dict(os.environ)
registered = drivers.register()
folder = os.environ["OCL_ICD_VENDORS"] if os.environ != before else ""
assert not folder or os.path.isdir(folder)
from gemmbench.opencl import discovery
devices = discovery.list_devices(registered)
before.pop("PYOPENCL_HOME", None), os.environ.pop("PYOPENCL_HOME", None)  # pyopencl's own
assert dict(os.environ) == before
for device in devices:
    handle = discovery.handle(device)
    assert (handle.name.strip(), handle.driver_version.strip()) == (device.name, device.driver)
    listed = "cl_khr_device_uuid" in device.extensions
    chip = discovery._chip(handle) if listed else ""
    assert len(chip) == 8 * listed and int(chip or "0", 16) >= 0
    assert device.chip == ("" if device.type == "cpu" else chip)
    # as if the loader's order had changed
    moved = dataclasses.replace(device, platform_index=99 - device.platform_index)
    assert discovery.handle(moved) == handle
    try:
        discovery.handle(dataclasses.replace(device, driver="another"))
    except LookupError as error:
        assert "another" in str(error)
    else:
        raise AssertionError("a device that is gone was found")
found = list(map(dataclasses.asdict, devices))
print("ANSWER", json.dumps({"devices": found, "folder": folder, "warnings": registered.warnings}))
"""


def discover(**environment: str) -> dict[str, Any]:
    """Devices, the private folder and the warnings that a fresh process finds."""
    done = subprocess.run(
        [sys.executable, "-c", PROBE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    answer = next(line for line in done.stdout.splitlines() if line.startswith("ANSWER "))
    return dict(json.loads(answer.removeprefix("ANSWER ")))


@pytest.fixture(scope="module")
def found() -> dict[str, Any]:
    answer = discover()
    assert answer["devices"], "these tests need an OpenCL device: make setup installs one"
    return answer


def is_pocl(device: Mapping[str, Any]) -> bool:
    return "pocl" in device["version"].lower()


def is_intel(device: Mapping[str, Any]) -> bool:
    return "Intel" in device["platform"] and device["type"] == "cpu"


def intel_installed() -> bool:
    try:
        importlib.metadata.version("intel-opencl-rt")
    except importlib.metadata.PackageNotFoundError:
        return False
    return True


def system_libraries() -> list[str]:
    """Libraries of the system's .icd files that this machine can load."""
    lines = (icd.read_text().split("\n")[0].strip() for icd in VENDORS.glob("*.icd"))
    return [line for line in lines if line and loads(line)]


def loads(library: str) -> bool:
    code = f"import ctypes; ctypes.CDLL({library!r})"  # a driver is loaded for good, so elsewhere
    return subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0


def need(driver: str, there: bool) -> None:
    """Skip a test whose driver is not installed, unless it is required here."""
    if not there:
        assert driver not in REQUIRED, f"{driver} is required here and not installed"
        pytest.skip(f"{driver} is not installed")


def test_the_fields_make_sense(found: dict[str, Any]) -> None:
    for index, device in enumerate(found["devices"]):
        assert device["index"] == index
        assert device["name"]
        assert device["platform"]
        assert device["driver"]
        assert device["origin"]
        assert device["type"] in ("cpu", "gpu", "accelerator", "custom")
        assert device["compute_units"] >= 1
        assert device["global_mem_bytes"] >= device["max_alloc_bytes"] > 0
        assert device["local_mem_bytes"] > 0
        assert device["max_work_group_size"] >= 1
        assert len(device["max_work_item_sizes"]) >= 3
        assert {"float", "int"} <= set(device["dtypes"]) <= DTYPES.keys()
        assert {"float", "double", "half", "int"} <= device["vector_widths"].keys() <= DTYPES.keys()
        has_half = "cl_khr_fp16" in device["extensions"] or device["compute_capability"] >= [5, 3]
        assert ("half" in device["dtypes"]) == has_half
        if device["type"] == "cpu":
            assert device["local_mem_emulated"]
            assert device["unified_memory"]


@pytest.mark.parametrize(
    ("variable", "concerns"),
    [
        ("DPCPP_CPU_NUM_CUS", is_intel),
        ("SYCL_CPU_NUM_CUS", is_intel),
        ("CL_CONFIG_CPU_TBB_NUM_WORKERS", is_intel),
        ("POCL_MAX_PTHREAD_COUNT", is_pocl),
    ],
)
def test_a_cpu_has_as_many_units_as_its_driver_has_threads(
    variable: str, concerns: Callable[[Mapping[str, Any]], bool], found: dict[str, Any]
) -> None:
    """Intel's runtime reports all units though a variable limits its threads."""
    for before, now in zip(found["devices"], discover(**{variable: "1"})["devices"], strict=True):
        assert now["compute_units"] == (1 if concerns(before) else before["compute_units"])


@pytest.mark.skipif(not hasattr(os, "sched_setaffinity"), reason="this system has no affinity")
def test_a_cpu_has_no_more_units_than_cores_that_this_process_may_use() -> None:
    """PoCL counts all cores."""
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(before)})
    try:
        devices = discover()["devices"]
    finally:
        os.sched_setaffinity(0, before)
    assert {device["compute_units"] for device in devices if device["type"] == "cpu"} == {1}


def test_every_platform_has_its_library(found: dict[str, Any]) -> None:
    for device in found["devices"]:
        assert device["library"]
        if is_pocl(device):
            assert "pocl" in Path(device["library"]).name
        if is_intel(device):
            assert "intelocl" in Path(device["library"]).name


def test_none_is_listed_twice(found: dict[str, Any]) -> None:
    places = [(device["platform_index"], device["device_index"]) for device in found["devices"]]
    assert len(set(places)) == len(places)
    # A name that occurs again within one library would be the same hardware; a second GPU has its own place.
    cpus = [device for device in found["devices"] if device["type"] == "cpu"]
    names = [(device["library"], device["name"]) for device in cpus]
    assert len(set(names)) == len(names)
    builds = [(device["platform"], device["version"], device["driver"], device["name"]) for device in cpus]
    assert len(set(builds)) == len(builds)


def test_intels_runtime_comes_from_this_environment(found: dict[str, Any]) -> None:
    need("intel", intel_installed())
    (intel,) = (device for device in found["devices"] if is_intel(device))
    version = importlib.metadata.version("intel-opencl-rt")
    assert intel["origin"] == f"from this environment: intel-opencl-rt {version}"


def test_the_systems_drivers_stay_visible(found: dict[str, Any]) -> None:
    libraries = system_libraries()
    need("pocl", any("pocl" in library for library in libraries))
    shown = {Path(device["library"]).name for device in found["devices"] if device["origin"] == "system"}
    for library in libraries:
        if "pocl" in library:
            assert any(name.startswith(Path(library).name) for name in shown)


def test_intel_and_pocl_in_one_process(found: dict[str, Any]) -> None:
    need("intel", intel_installed())
    need("pocl", any("pocl" in library for library in system_libraries()))
    assert sum(map(is_intel, found["devices"])) == 1
    system = [device for device in found["devices"] if is_pocl(device) and device["origin"] == "system"]
    assert len(system) == 1
    assert found["folder"]


def test_a_broken_entry_costs_nothing_else(found: dict[str, Any], tmp_path: Path) -> None:
    for icd in VENDORS.glob("*.icd"):
        (tmp_path / icd.name).write_text(icd.read_text())
    (tmp_path / "broken.icd").write_text("/nowhere/libnothing.so\n")
    (tmp_path / "empty.icd").write_text("")
    again = discover(OCL_ICD_VENDORS=str(tmp_path))
    names = sorted(device["library"] for device in again["devices"])  # the loader's order is the folder's
    assert names == sorted(device["library"] for device in found["devices"])


def test_an_empty_folder_of_the_users_still_shows_pips_driver(tmp_path: Path) -> None:
    need("intel", intel_installed())
    devices = discover(OCL_ICD_VENDORS=str(tmp_path))["devices"]
    assert sum(map(is_intel, devices)) == 1
    assert not any(device["origin"] == "system" for device in devices)


def test_no_home_and_a_read_only_working_folder(found: dict[str, Any]) -> None:
    again = discover(HOME="/nonexistent", XDG_CACHE_HOME="/nonexistent")
    assert len(again["devices"]) == len(found["devices"])


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the library's name is Linux's")
def test_khronos_loaders_and_debians_take_the_same_folder(found: dict[str, Any]) -> None:
    """What a library that links the system's loader (such as CLBlast) sees in the same process."""
    need("intel", intel_installed())
    try:
        ctypes.CDLL("libOpenCL.so.1")
    except OSError:
        need("system loader", False)
    code = """
import ctypes
from gemmbench.opencl import drivers
drivers.register()
count = ctypes.c_uint()
ctypes.CDLL("libOpenCL.so.1").clGetPlatformIDs(0, None, ctypes.byref(count))
print(count.value)
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    outside = {d["library"] for d in found["devices"] if "pyopencl/.libs" in d["library"]}
    assert int(done.stdout.split()[-1]) == len({d["library"] for d in found["devices"]} - outside)
