"""Real faults, tried a few times in `make faults` and in full by `make soak`."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import call, machine  # noqa: F401  fixtures
from tests.faults import machine as fault_machine
from tests.faults import process
from tests.faults.ledger import Entry

Start = Callable[..., "subprocess.Popen[str]"]


@pytest.fixture(autouse=True)
def faulty(machine: None, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:  # noqa: F811
    """In-process calls have the same machine as processes, and this folder."""
    monkeypatch.setattr("gemmbench.measure.machine.default", fault_machine.make)
    monkeypatch.chdir(tmp_path)
    for name in ("GEMMBENCH_FAKE_PAUSE", "GEMMBENCH_FAKE_LOCALE", "GEMMBENCH_FAKE_NAME"):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def entry(request: pytest.FixtureRequest) -> Iterator[Entry]:
    """The line of the ledger that ``@pytest.mark.fault(KEY)`` names."""
    found = Entry(request.node.get_closest_marker("fault").args[0])
    yield found
    assert found.times or not request.node.stash.get(PASSED, False), "nothing was tried"


PASSED = pytest.StashKey[bool]()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.when == "call":
        item.stash[PASSED] = report.passed
    return report


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ``gemmbench WORDS`` in the test's folder; see `process.start`."""
    started: list[subprocess.Popen[str]] = []

    def begin(*words: str | bytes, **more: Any) -> subprocess.Popen[str]:
        found = process.start(tmp_path, *words, **more)
        started.append(found)
        return found

    yield begin
    for one in started:
        if one.poll() is None:
            os.killpg(one.pid, signal.SIGKILL)
        one.communicate()
