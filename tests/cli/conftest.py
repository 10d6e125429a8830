"""The command line with a fake machine in its child process."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from gemmbench import api, cli  # noqa: F401  before a test patches what the API imports
from gemmbench.measure import child
from tests import forked
from tests.cli import fake_machine, recorded

ROOT = Path(__file__).parents[2]
Call = Callable[..., Result]
Start = Callable[..., "subprocess.Popen[str]"]

_DRIVER = """
from gemmbench.__main__ import main
import importlib, os
from gemmbench.measure import machine
from tests.cli import recorded
name = "tests.cli." + os.environ.get("GEMMBENCH_FAKE_MACHINE", "fake_machine")
machine.default = importlib.import_module(name).make
recorded.install()
main()
"""


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path_factory.mktemp("cache")))  # no peaks of other runs
    monkeypatch.setattr("gemmbench.measure.machine.default", fake_machine.make)
    monkeypatch.setattr(child, "CONDUCTORS", dict(recorded.CONDUCTORS))
    monkeypatch.setattr(child, "subprocess", forked.STARTS)
    fakes = (f"FAKE_{name}" for name in ("DEVICES", "FAULTS", "GAINS", "LOG"))
    ours = (f"GEMMBENCH_{name}" for name in ("DEVICE", *fakes))
    for name in (*ours, "GITHUB_ACTIONS", "NO_COLOR", "FORCE_COLOR", "LINES"):
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


class Page:
    """A golden file of several sections: what commands printed, with their exit status."""

    _LONG = re.compile(r"-?\d+\.\d{11,}(?:e[-+]?\d+)?")  # a float in all its digits

    def __init__(self, call: Call) -> None:
        self._call = call
        self.sections: list[str] = []

    def call(self, *words: str) -> Result:
        """Run ``gemmbench WORDS`` and write down what it prints; stderr with exclamation marks."""
        result = self._call(*words)
        errors = "".join(f"! {line}\n" for line in result.stderr.splitlines())
        self.write(f"$ {' '.join(words)}", f"exit {result.exit_code}\n{errors}{result.stdout}")
        return result

    def write(self, title: str, text: str) -> None:
        """Write down a section, with ten digits of each float: the others depend on the processor."""
        text = text.replace(f"{Path.cwd()}{os.sep}", "")
        text = self._LONG.sub(lambda match: f"{float(match[0]):.10g}", text)
        self.sections.append(f"{title}\n{text.rstrip()}\n")


@pytest.fixture
def page(call: Call, golden: Callable[[str, str], None]) -> Iterator[Callable[[str], Page]]:
    """Open a golden file by its name; it is compared when the test has ended."""
    pages: dict[str, Page] = {}

    def opened(name: str) -> Page:
        return pages.setdefault(name, Page(call))

    yield opened
    for name, page in pages.items():
        golden(f"{name}.txt", "\n".join(page.sections))


@pytest.fixture
def saved_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Work in a folder that has nothing but links to the saved runs."""
    (tmp_path / "work" / "tests").mkdir(parents=True)
    for name in ("plots", "tests/data"):
        (tmp_path / "work" / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path / "work")


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
