"""The best OpenCL device, or with the marker ``every_driver`` each of them; finding none is a failure."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.opencl_bench import Bind
from gemmbench.gemm.verify import ExactTest
from gemmbench.measure.child import BUILD_OPTIONS
from gemmbench.measure.machine import OpenCLMachine, set_compile_caches
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.opencl import drivers
from gemmbench.opencl import runtime as runtime_module
from gemmbench.opencl.runtime import Runtime
from gemmbench.suite.selection import select

_KERNELS = Path(__file__).parents[2] / "build" / "test-kernels"  # `make clean` removes it
_EXECUTORS: dict[int, GemmExecutor] = {}
_UNOPTIMIZED: dict[int, GemmExecutor] = {}


@cache
def machine() -> OpenCLMachine:
    """With the drivers' caches on: build times are not what these tests look at."""
    _KERNELS.mkdir(parents=True, exist_ok=True)
    drivers.ask_for_tiles()
    set_compile_caches(str(_KERNELS))
    return OpenCLMachine()


@cache
def all_devices() -> tuple[DeviceFacts, ...]:
    return machine().devices()


def executor(device: DeviceFacts) -> GemmExecutor:
    """The one of this process, which builds each program once; not for tests that change a kernel's text."""
    if device.index not in _EXECUTORS:
        _EXECUTORS[device.index] = GemmExecutor(Runtime(device))
    return _EXECUTORS[device.index]


def exact_error(made: GemmExecutor, problem: Gemm, bind: Bind) -> str:
    """What is wrong with one exact problem in guarded buffers with ragged rows, or ""."""
    test = ExactTest.of(problem)
    return test.error(made._result(test, bind))


def runtime(device: DeviceFacts) -> Runtime:
    """That executor's."""
    return executor(device).runtime


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """A test with ``device`` runs on the best device; with the marker ``every_driver`` on every device.

    Without a device it runs and fails. Its name has the driver, as another driver may change the index.
    """
    if "device" in metafunc.fixturenames:
        devices = all_devices()
        if devices and not metafunc.definition.get_closest_marker("every_driver"):
            devices = select(devices, "")
        ids = [f"{device.platform.split()[0]}-{device.driver}" for device in devices]
        metafunc.parametrize("device", devices or [None], ids=ids or ["none"], scope="session")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests of one kernel come behind each other: a process of xdist builds each of its kernels once."""
    of = Path(__file__).parent
    places = [place for place, item in enumerate(items) if item.path.parent == of]

    def kernel(item: pytest.Item) -> str:
        given = getattr(item, "callspec", None)
        return str(given.params.get("name", "")) if given else ""

    for place, item in zip(places, sorted((items[place] for place in places), key=kernel), strict=True):
        items[place] = item


@pytest.fixture(autouse=True)
def _there_is_a_device(request: pytest.FixtureRequest) -> None:
    if "device" in request.fixturenames:
        assert request.getfixturevalue("device") is not None, "no OpenCL device was found"


Plant = Callable[..., None]


@pytest.fixture
def plant(monkeypatch: pytest.MonkeyPatch) -> Plant:
    """Replace pieces of the kernels' text. Each must occur in one of the files."""

    def plant(*pieces: tuple[str, str], files: Sequence[str] = ("gemm/01_naive.cl",)) -> None:
        text: Any = kernel_files.text
        assert all(any(old in text(file) for file in files) for old, _ in pieces), pieces

        def planted(*of: str) -> str:
            source: str = text(*of)
            for old, new in pieces:
                source = source.replace(old, new)
            return source

        monkeypatch.setattr(runtime_module, "text", planted)

    return plant


@pytest.fixture
def unoptimized(monkeypatch: pytest.MonkeyPatch) -> None:
    """On a machine with CPUs alone, compile without optimization, in a fifth of the time.

    For tests of kernels that `test_gemm.py` compiles as users do.
    """
    if all(device.type == "cpu" for device in all_devices()):
        monkeypatch.setenv(BUILD_OPTIONS, "-cl-opt-disable")
        monkeypatch.setitem(globals(), "_EXECUTORS", _UNOPTIMIZED)
