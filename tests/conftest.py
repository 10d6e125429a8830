"""Golden files, and a second run that leaves out what the first has passed.

Golden files are text that a person can read and a test compares; ``pytest --update-golden`` writes them.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from pathlib import Path

import psutil
import pytest

# Before numpy is loaded: several tests run at a time, and OpenBLAS's threads spin while they wait for a core.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from gemmbench.measure import child
from tests.fake_proc import FakeProc

GOLDEN = Path(__file__).parent / "golden"


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write tests/golden anew")
    parser.addoption(
        "--unless-passed",
        metavar="FILE",
        help="leave out what FILE lists as passed (not tests marked 'installed'); then list what passed",
    )


def pytest_configure(config: pytest.Config) -> None:
    if path := config.getoption("--unless-passed"):
        config.pluginmanager.register(Passed(config.invocation_params.dir / path))


class Passed:
    """The tests that have passed so far, in a file: a run on a machine with more drivers adds the others."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._ids = set(path.read_text(encoding="utf-8").splitlines()) if path.exists() else set()

    def pytest_collection_modifyitems(self, config: pytest.Config, items: list[pytest.Item]) -> None:
        done = [
            item for item in items if item.nodeid in self._ids and not item.get_closest_marker("installed")
        ]
        config.hook.pytest_deselected(items=done)
        items[:] = [item for item in items if item not in set(done)]

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self._ids.add(report.nodeid)
        elif report.failed:  # after it had passed: what it leaves behind
            self._ids.discard(report.nodeid)

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        if not hasattr(session.config, "workerinput"):  # xdist's workers report to this process
            self._path.write_text("".join(f"{name}\n" for name in sorted(self._ids)), encoding="utf-8")


@pytest.fixture(autouse=True)
def quiet_host(monkeypatch: pytest.MonkeyPatch) -> None:
    """What other programs do on this machine disturbs no test."""
    monkeypatch.setattr(psutil, "cpu_times", FakeProc(is_blind=True).cpu_times)


@pytest.fixture(autouse=True)
def no_disk(monkeypatch: pytest.MonkeyPatch) -> None:
    """What this process saves in a test need not outlive the machine: a saved row waits for no disk."""
    monkeypatch.setattr(os, "fsync", lambda _: None)


@pytest.fixture
def skips(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Once a machine hangs and all others wait for it, its time limit is over: limits need not be short.

    A short limit is exceeded by others, too, where the machine is busy.
    """
    pid = tmp_path / "hangs"
    monkeypatch.setenv("GEMMBENCH_FAKE_PID", str(pid))
    children: set[child.Worker] = set()
    limit, wait = child.Worker.limit, child.Pipe.wait

    def limited(self: child.Worker, seconds: float) -> None:
        children.add(self)
        limit(self, seconds)

    def hangs() -> bool:
        workers = [worker for each in children for worker in each._family]
        at_work = {worker._process.pid for worker in workers if worker._process and worker._is_active}
        return pid.exists() and at_work == {int(pid.read_text() or 0)}

    def waited(self: child.Pipe, seconds: float | None = 0.0) -> bool:
        left_s = math.inf if seconds is None else seconds
        while not (is_there := wait(self, min(left_s, 0.1))) and left_s > 0 and not hangs():
            left_s -= 0.1
        return is_there

    monkeypatch.setattr(child.Worker, "limit", limited)
    monkeypatch.setattr(child.Pipe, "wait", waited)


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare a text with ``tests/golden/NAME``; spaces at line ends do not count."""

    def check(name: str, text: str) -> None:
        text = "\n".join(line.rstrip() for line in text.splitlines()).rstrip() + "\n"
        path = GOLDEN / name
        if request.config.getoption("--update-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no {path}; pytest --update-golden writes it"
        assert text == path.read_text(encoding="utf-8"), f"{path} differs; look, then --update-golden"

    return check
