"""A fake machine's child process without an interpreter's start, which takes longer than most tests.

A server imports the instrument and the fake machines once, before any test has changed anything; every
child is a fork of it, with the descriptors, the environment and the folder that it would have had. Real
machines, other checkouts and systems other than Linux get the process that they ask for.

The server's fork waits for the child, tells its process id and then its status through a pipe, and ends.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import IO, Any

from gemmbench.measure.child import INSTRUMENT

MACHINES = (
    "tests.cli.fake_machine",
    "tests.cli.slow_machine",
    "tests.faults.machine",
    "tests.unit.test_child",
)
_LONGEST = 1 << 17  # of a request, in bytes


class Forked:
    """What `subprocess.Popen` is to `measure.child.Worker`."""

    def __init__(self, handle: int, words: Sequence[str], stdout: IO[bytes], env: Mapping[str, str]) -> None:
        self.returncode: int | None = None
        self._asking = threading.Lock()
        self._status, status = os.pipe()
        request = json.dumps({"words": words, "env": dict(env), "folder": str(Path.cwd())}).encode()
        socket.send_fds(_server(), [request], [handle, stdout.fileno(), status])
        os.close(status)
        (self.pid,) = struct.unpack("i", os.read(self._status, 4))

    def poll(self) -> int | None:
        """Its exit status, as that of `subprocess.Popen`, if it has ended."""
        if self._asking.acquire(blocking=False):
            try:
                if self.returncode is None and select.select([self._status], [], [], 0)[0]:
                    self._read()
            finally:
                self._asking.release()
        return self.returncode

    def wait(self) -> int:
        with self._asking:  # threads may wait for one child
            if self.returncode is None:
                self._read()
        assert self.returncode is not None
        return self.returncode

    def _read(self) -> None:
        (status,) = struct.unpack("i", os.read(self._status, 4))
        self.returncode = os.waitstatus_to_exitcode(status)
        os.close(self._status)

    def kill(self) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGKILL)


def started(words: Sequence[str], **how: Any) -> Any:
    """A fork of the server for a fake machine's child, else a process like any other."""
    folders = how["env"]["PYTHONPATH"].split(os.pathsep)
    is_fake = words[1:3] == ["-c", INSTRUMENT] and words[4].partition(":")[0] in MACHINES
    if is_fake and folders == [*filter(None, sys.path)] and sys.platform == "linux":
        return Forked(int(words[3]), words[4:], how["stdout"], how["env"])
    return subprocess.Popen(words, **how)


STARTS = SimpleNamespace(**{**vars(subprocess), "Popen": started})
"""The module `subprocess` for `measure.child`."""

_servers: list[tuple[socket.socket, subprocess.Popen[bytes]]] = []


def _server() -> socket.socket:
    """The server's end of the line; it ends when this process does."""
    if not _servers:
        here, there = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with there:
            words = [sys.executable, "-m", __name__, str(there.fileno())]
            path = os.pathsep.join(filter(None, sys.path))
            environment = {**os.environ, "PYTHONPATH": path}
            fds = [there.fileno()]
            process = subprocess.Popen(words, pass_fds=fds, env=environment, stdin=subprocess.DEVNULL)
        _servers.append((here, process))
    return _servers[0][0]


def _serve(number: int) -> None:
    for name in ("gemmbench.measure.instrument", *MACHINES):
        import_module(name)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for the forks that wait
    with socket.socket(fileno=number) as line:
        while True:
            text, handed, _, _ = socket.recv_fds(line, _LONGEST, 4)
            if not text:
                return
            if os.fork() == 0:
                line.close()
                os._exit(_wait_for_child(json.loads(text), handed))
            for each in handed:
                os.close(each)


def _wait_for_child(request: dict[str, Any], handed: list[int]) -> int:
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    handle, output, status = handed
    child = os.fork()
    if child == 0:
        os.close(status)
        os._exit(_run(request, handle, output))
    os.close(handle)
    os.close(output)
    os.write(status, struct.pack("i", child))
    with contextlib.suppress(BrokenPipeError):  # the test has ended
        os.write(status, struct.pack("i", os.waitpid(child, 0)[1]))
    return 0


def _run(request: dict[str, Any], handle: int, output: int) -> int:
    from gemmbench.measure import instrument

    os.setsid()
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["folder"])
    try:
        instrument.serve_parent(str(handle), *request["words"])
    except BaseException:
        traceback.print_exc()
    return 1


if __name__ == "__main__":
    _serve(int(sys.argv[1]))
