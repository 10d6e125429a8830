"""The command line with a fake machine in its child process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gemmbench import api, cli
from gemmbench.measure import child
from tests import forked
from tests.cli import fake_machine, recorded

ROOT = Path(__file__).parents[2]
Call = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]

_DRIVER = """
from gemmbench.__main__ import main
import importlib, os
from gemmbench import api
from tests.cli import recorded
machine = importlib.import_module("tests.cli." + os.environ.get("GEMMBENCH_FAKE_MACHINE", "fake_machine"))
api.make_machine = machine.make
recorded.install(getattr(machine, "RECORDED", recorded.KINDS))
main()
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))  # no peaks of other runs
    monkeypatch.setattr(api, "make_machine", fake_machine.make)
    monkeypatch.setattr(child, "CONDUCTORS", dict(recorded.CONDUCTORS))
    monkeypatch.setattr(child, "subprocess", forked.STARTS)
    for name in (
        "GEMMBENCH_DEVICE",
        "GEMMBENCH_FAKE_DEVICES",
        "GEMMBENCH_FAKE_FAULTS",
        "GEMMBENCH_FAKE_GAINS",
        "GEMMBENCH_FAKE_LOG",
        "FORCE_COLOR",
        "LINES",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("COLUMNS", "80")


@pytest.fixture
def call() -> Call:
    """Run ``gemmbench WORDS``; what it says and its exit status."""

    def call(*words: str) -> Result:
        result = CliRunner().invoke(cli.main, list(words), prog_name="gemmbench")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return result

    return call


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start ``gemmbench WORDS`` as a process of its own, which can be killed and interrupted."""

    started: list[subprocess.Popen[str]] = []

    def start(*words: str, **environment: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", _DRIVER, *words],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
            # Whoever runs the tests in the background ignores Ctrl-C, and children inherit that.
            preexec_fn=partial(signal.signal, signal.SIGINT, signal.SIG_DFL),
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.wait()
        for pipe in (process.stdout, process.stderr):
            if pipe:
                pipe.close()
