"""gemmbench as a process that is killed, starved and interrupted, and its children."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Hashable, Iterator
from pathlib import Path
from typing import Any

import pytest

from gemmbench.model.run_file import load

ROOT = Path(__file__).parents[2]
LIMIT_S = 300  # a machine that is busy with other things is slow, not wrong

_DRIVER = """
from gemmbench import cli
from gemmbench.measure import machine
from tests.cli import recorded
from tests.faults import machine as faulty
faulty.prepare()
machine.default = faulty.{make}
if "{make}" == "make":
    recorded.install()
cli.main()
"""


def command(*words: str | bytes, real: bool = False) -> list[str | bytes]:
    """The command line of a gemmbench with the fake machine, or the real one."""
    return [sys.executable, "-c", _DRIVER.format(make="make_real" if real else "make"), *words]


def environment(**more: str | None) -> dict[str, str]:
    """This process's, with more of it, and without what is None."""
    found = {**os.environ, "PYTHONPATH": str(ROOT), **more}
    return {name: value for name, value in found.items() if value is not None}


def start(
    folder: Path,
    *words: str | bytes,
    real: bool = False,
    setup: Callable[[], object] | None = None,
    **more: Any,
) -> subprocess.Popen[str]:
    """Start a gemmbench in a session of its own.

    Args:
        folder: where it runs.
        words: its command line.
        real: on the machine's drivers.
        setup: is called in the new process.
        more: of its environment; None takes a variable away.
    """

    def prepare() -> None:
        # Whoever runs the tests in the background ignores Ctrl-C, and children inherit that.
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        if setup:
            setup()

    return subprocess.Popen(
        command(*words, real=real),
        cwd=folder,
        env=environment(**more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=prepare,
    )


def finish(process: subprocess.Popen[str]) -> tuple[int, str, str]:
    """Exit status, stdout and stderr."""
    try:
        out, err = process.communicate(timeout=LIMIT_S)
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        pytest.fail(f"it hangs: {process.communicate()}")
    return process.returncode, out, err


def wait_for(condition: Callable[[], Any], process: subprocess.Popen[str]) -> Any:
    """What the condition finds, once it finds something."""
    end = time.monotonic() + LIMIT_S
    while not (found := condition()):
        if process.poll() is not None or time.monotonic() > end:
            os.killpg(process.pid, signal.SIGKILL)
            pytest.fail(f"it did not get there: {process.communicate()}")
        time.sleep(0.002)
    return found


def _pids() -> Iterator[str]:
    return (path.name for path in Path("/proc").iterdir() if path.name.isdigit())


def _stat(pid: str) -> list[str]:
    """State, parent, group and session of a process; nothing if it is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[:4]
    except OSError:
        return []


def driver_child(parent: int) -> int:
    """The process that measures, of the devices or of the host's BLAS; 0 while there is none."""
    for pid in _pids():
        fields = _stat(pid)
        if fields and fields[0] not in "ZT" and int(fields[1]) == parent:
            try:
                words = Path(f"/proc/{pid}/cmdline").read_bytes()
            except OSError:
                continue
            if b"gemmbench.measure.instrument" in words:
                return int(pid)
    return 0


def orphans(session: int) -> list[str]:
    """What still runs of a session."""
    return [
        pid
        for pid in _pids()
        if (fields := _stat(pid)) and fields[0] not in "ZX" and int(fields[3]) == session
    ]


def assert_no_orphans(session: int) -> None:
    end = time.monotonic() + LIMIT_S
    while found := orphans(session):
        assert time.monotonic() < end, found
        time.sleep(0.01)


def assert_sentence(err: str, *parts: str) -> None:
    """One line of gemmbench's, with these words in it."""
    assert err.startswith("gemmbench: "), err
    assert err.count("\n") == 1, err
    for part in parts:
        assert part in err


def keys(path: Path) -> list[Hashable]:
    return [row.key for row in load(path).rows]


def limited(*limits: tuple[int, int]) -> Callable[[], None]:
    """What sets resource limits in a new process."""
    import resource

    def setup() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        for what, most in limits:
            resource.setrlimit(what, (most, most))

    return setup
