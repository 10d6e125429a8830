"""What ``--device`` means."""

from dataclasses import replace
from typing import Any

import pytest

from gemmbench import UsageError
from gemmbench.model.device import DeviceFacts
from gemmbench.suite.selection import opened_devices, select
from tests.fake_runs import CPU, HOST


def device(index: int, platform: str, name: str, kind: str, **changes: Any) -> DeviceFacts:
    facts = replace(CPU, index=index, platform_index=index, device_index=0, platform=platform, name=name)
    return replace(facts, type=kind, origin="system", warnings=(), **changes)


POCL = {"vendor": "The pocl project", "version": "OpenCL 3.0 PoCL 3.1+debian Linux", "driver": "3.1+debian"}
NVIDIA = {"vendor": "NVIDIA Corporation", "version": "OpenCL 3.0 CUDA 13.0", "driver": "580.95"}
XEON = "Intel(R) Xeon(R) Processor @ 2.80GHz"

WHEEL = device(0, "Portable Computing Language", f"pthread-{XEON}", "cpu", **{**POCL, "driver": "3.0-rc2"})
DEBIAN = device(1, "Portable Computing Language", f"pthread-skylake-avx512-{XEON}", "cpu", **POCL)
INTEL = device(2, "Intel(R) OpenCL", XEON, "cpu")
H200 = replace(device(3, "NVIDIA CUDA", "NVIDIA H200", "gpu", **NVIDIA), platform_index=3, device_index=0)
H100 = replace(device(4, "NVIDIA CUDA", "NVIDIA H100", "gpu", **NVIDIA), platform_index=3, device_index=1)
EVERY = (replace(WHEEL, warnings=("compiles for SSE",)), DEBIAN, INTEL, H200, H100)


def chosen(selector: str, devices: tuple[DeviceFacts, ...] = EVERY) -> list[int]:
    return [found.index for found in select(devices, selector)]


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ("0", [0]),
        ("4", [4]),
        (" 2 ", [2]),
        ("3:1", [4]),
        ("all", [0, 1, 2, 3, 4]),
        ("ALL", [0, 1, 2, 3, 4]),
        ("pocl", [1]),  # the best of two: without a warning
        ("PoCL", [1]),
        ("3.0-rc2", [0]),
        ("debian", [1]),
        ("intel", [2]),  # PoCL's device name has Intel's processor in it
        ("Intel OpenCL", [2]),  # (R) is not typed
        ("xeon", [2]),
        ("skylake", [1]),
        ("h100", [4]),
        ("nvidia", [3]),
        ("pocl,intel", [1, 2]),
        ("intel, pocl", [2, 1]),  # in the order asked for
        ("h200,3,3:0", [3]),  # none twice
        ("2,all", [2, 0, 1, 3, 4]),
        ("", [3]),
    ],
)
def test_selectors(selector: str, expected: list[int]) -> None:
    assert chosen(selector) == expected


@pytest.mark.parametrize(
    ("devices", "expected"),
    [
        ((WHEEL, H200, INTEL), 3),  # a GPU before any CPU
        ((WHEEL, DEBIAN, INTEL), 2),  # Intel before PoCL
        ((EVERY[0], DEBIAN), 1),  # without a warning first
        ((replace(INTEL, warnings=("old",)), DEBIAN), 1),
        ((WHEEL, DEBIAN), 0),  # else the loader's order
        ((device(0, "Oclgrind", "Oclgrind Simulator", "gpu"), DEBIAN), 1),  # a simulator's times mean nothing
        ((device(0, "Intel(R) FPGA Emulation", "Emulation Device", "accelerator"), INTEL), 2),
        ((DEBIAN, device(7, "Vendor", "DSP", "accelerator")), 7),
        ((device(5, "Vendor", "Custom", "custom"), DEBIAN), 1),
    ],
)
def test_default(devices: tuple[DeviceFacts, ...], expected: int) -> None:
    assert chosen("", devices) == [expected]


@pytest.mark.parametrize("selector", ["9", "0:7", "8:0", "radeon", "pocl,radeon", ",", "pocl,", "-1"])
def test_unknown_devices_are_one_sentence(selector: str) -> None:
    with pytest.raises(UsageError) as caught:
        select(EVERY, selector)
    message = str(caught.value)
    assert "\n" not in message
    assert all(found.title in message for found in EVERY)  # says what there is


def test_no_devices() -> None:
    with pytest.raises(UsageError, match="no OpenCL device"):
        select((), "all")


@pytest.mark.parametrize(
    ("broken", "selector", "expected"),
    [
        ([], "", [3]),
        ([3], "", [4]),
        ([3, 4], "", [2]),
        ([2], "cpu", [1]),
        ([2, 3], "all", [0, 1, 4]),
        ([3], "gpu,cpu", [4, 2]),
        ([3], "h200", "device 3 (NVIDIA H200 | NVIDIA CUDA 580.95) cannot be used: it fails. Mend it"),
        ([2], "intel,pocl", "device 2 (Intel(R) Xeon(R) Processor @ 2.80GHz | Intel OpenCL 2026.22"),
        ([2], "cpu,2", "device 2 (Intel"),
        ([0, 1, 2, 3, 4], "", "device 3 (NVIDIA H200"),
        ([0, 1, 2, 3, 4], "all", "device 0 (pthread-Intel"),
    ],
)
def test_a_device_that_does_not_open_is_used_for_nothing(
    broken: list[int], selector: str, expected: list[int] | str
) -> None:
    class Stub:
        failing: tuple[tuple[str, str], ...] = ()

        def devices(self) -> object:
            return EVERY, HOST

        def open(self, device: DeviceFacts) -> tuple[str, str] | None:
            sentence = f"device {device.index} ({device.title}) cannot be used: it fails"
            return (sentence, "Mend it") if device.index in broken else None

    worker: Any = Stub()
    if isinstance(expected, list):
        devices, _ = opened_devices(worker, selector)
        assert [device.index for device in devices] == expected
        assert bool(worker.failing) == bool(broken)
    else:
        with pytest.raises(UsageError) as caught:
            opened_devices(worker, selector)
        assert str(caught.value).startswith(expected)
