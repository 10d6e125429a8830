"""Every OpenCL device found; finding none is a failure."""

from __future__ import annotations

from functools import cache

import pytest

from gemmbench.facts.records import DeviceFacts
from gemmbench.opencl.machine import OpenCLMachine, default


@cache
def machine() -> OpenCLMachine:
    return default()


@cache
def all_devices() -> tuple[DeviceFacts, ...]:
    return machine().devices()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test that takes ``device`` runs on every device there is; without one it runs, and fails."""
    if "device" in metafunc.fixturenames:
        devices = all_devices()
        ids = [f"{device.index}-{device.platform.split()[0]}-{device.driver}" for device in devices]
        metafunc.parametrize("device", devices or [None], ids=ids or ["none"], scope="session")


@pytest.fixture(autouse=True)
def _there_is_a_device(request: pytest.FixtureRequest) -> None:
    if "device" in request.fixturenames:
        assert request.getfixturevalue("device") is not None, "no OpenCL device was found"
