"""Runs executors in a child process, so that a driver's crash, hang or hunger costs one row.

The parent sends a `Case` and waits; the child answers with stages and at last a `Row`. The child imports
pyopencl, the parent never does. A child that dies or outlasts its time is replaced before the next case.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Generator, Iterator
from dataclasses import dataclass, replace
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import TYPE_CHECKING, Any, Protocol

from gemmbench.facts.events import Staged
from gemmbench.facts.records import DeviceFacts, HostFacts, Policy, Row
from gemmbench.rules.executor import NotMeasuredError, Tell
from gemmbench.rules.measure import Turn, paced
from gemmbench.rules.plan import Case

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

_START_LIMIT_S = 120.0  # for the child to import the drivers and list the devices
_DRIVER_WORDS = 300  # of the driver's own output, kept with a crash


class Machine(Protocol):
    """What the child does: list devices, run cases. `opencl.machine.OpenCLMachine` is the real one."""

    def devices(self) -> tuple[DeviceFacts, ...]:
        """Every device, in the order of ``--device``."""

    def host(self) -> HostFacts:
        """The machine around them."""

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy, tell: Tell) -> Row:
        """Verify and measure one case.

        Raises:
            NotMeasuredError: there is no rate, and why.
        """

    def inspect(self, case: Case, device: DeviceFacts) -> Row:
        """Build a case's kernels and say what they take; run nothing.

        Raises:
            NotMeasuredError: they cannot be built, and why.
        """


MakeMachine = Callable[[], Machine]


class WorkerError(Exception):
    """The child could not list the devices; the message is for the user."""


class Worker:
    """A child process that runs cases one by one."""

    def __init__(self, make: MakeMachine) -> None:
        self._make = make
        self._context = multiprocessing.get_context("spawn")
        self._of_former = False  # whether the case that runs is at the kernel of another folder
        self._process: SpawnProcess | None = None
        self._pipe: Connection | None = None
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  what drivers print; lives as long as the worker

    def devices(self) -> tuple[tuple[DeviceFacts, ...], HostFacts]:
        """Every device and the host.

        Raises:
            WorkerError: the child died or hung while listing them.
        """
        answer = _last(self._wait(self._ask(("devices",)), _START_LIMIT_S))
        if answer is None:
            raise WorkerError(f"listing the OpenCL devices took more than {_START_LIMIT_S:.0f} s")
        if isinstance(answer, str):
            raise WorkerError(f"listing the OpenCL devices failed: {answer}")
        if isinstance(answer, _Failure):
            raise WorkerError(f"listing the OpenCL devices failed: {answer.reason}")
        devices, host = answer
        return devices, host

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        """Run one case, yielding its stages; whatever happens to the child, there is a row to return."""
        return (yield from self._row(("run", case, device, policy), case, policy))

    def inspect(self, case: Case, device: DeviceFacts, policy: Policy) -> Row:
        """Build one case's kernels; whatever happens to the child, there is a row to return."""
        row: Row = _last(self._row(("inspect", case, device, policy), case, policy))
        return row

    def begin(self, case: Case, device: DeviceFacts, policy: Policy) -> Connection:
        """Start a case that keeps step with others (see `concurrent`), which speaks by the connection."""
        return self._ask(("beside", case, device, policy))

    def order(self, what: str, detail: str = "") -> None:
        """Tell a child that keeps step what is next: see `concurrent`."""
        if self._pipe is not None:
            with contextlib.suppress(OSError):  # whoever listens to it hears that it died
                self._pipe.send(("order", what, detail))

    def receive(self) -> tuple[str, Any]:
        """What the child says next: of which sort, and what; ``died`` if it will say nothing any more."""
        assert self._pipe is not None
        try:
            kind, value = self._pipe.recv()
        except (EOFError, OSError):
            return "died", self._obituary()
        if kind == "broken":  # an answer, but the driver is not to be trusted any more
            self.stop()
            return "row", value
        return kind, value

    def _row(self, request: tuple[Any, ...], case: Case, policy: Policy) -> Generator[Staged, None, Row]:
        pipe = self._ask(request)
        begin = time.monotonic()
        answer = yield from self._wait(pipe, policy.time_limit_s)
        if isinstance(answer, Row):
            return answer
        if answer is None:
            row = timed_out(case, time.monotonic() - begin, policy)
        else:
            row = case.row("crashed", str(answer))
        if self._of_former:
            return case.row("unsupported", f"its kernel in the other folder: {row.status}: {row.reason}")
        return row

    def _ask(self, request: tuple[Any, ...]) -> Connection:
        """Send a request to a living child: one that died while idle is replaced: no fault of this case.

        Of another that dies before it has read the request there is an obituary instead of an answer.
        """
        pipe = self._start()
        try:
            pipe.send(request)
        except OSError:
            self.stop()
            pipe = self._start()
            with contextlib.suppress(OSError):
                pipe.send(request)
        return pipe

    def _wait(self, pipe: Connection, limit_s: float) -> Generator[Staged, None, Any]:
        """The answer; None if time ran out, a sentence if the child died."""
        end = time.monotonic() + limit_s
        self._of_former = False
        while True:
            left = end - time.monotonic()
            try:
                silent = left <= 0 or not pipe.poll(left)
            except (EOFError, OSError):
                return self._obituary()
            if silent:
                self.stop()
                return None
            kind, value = self.receive()
            if kind != "stage":
                return value
            self._of_former = value.of_former
            yield value

    def _start(self) -> Connection:
        if self._process is not None and self._process.is_alive() and self._pipe is not None:
            return self._pipe
        self.stop()
        ours, theirs = self._context.Pipe()
        self._output.seek(0)
        self._output.truncate()
        process = self._context.Process(
            target=_child, args=(theirs, self._make, _Output(self._output.fileno())), daemon=True
        )
        with _without_interrupts():
            process.start()
        theirs.close()
        self._process, self._pipe = process, ours
        return ours

    def _obituary(self) -> str:
        """How the child died, with the last words of its driver."""
        process = self._process
        assert process is not None
        process.join(5)
        code = process.exitcode
        self.stop()
        if code is not None and code < 0:
            try:
                name = signal.Signals(-code).name
            except ValueError:
                name = str(-code)
            how = f"the driver's process was killed by {name}"
            if name == "SIGKILL":
                how += " (often: the machine ran out of memory)"
        else:
            how = f"the driver's process ended with status {code}"
        words = self.last_words()
        return f"{how}: {words}" if words else how

    def last_words(self) -> str:
        """The end of what the child's libraries printed."""
        self._output.seek(0)
        text = self._output.read().decode("utf-8", "replace")
        return " ".join(text.split())[-_DRIVER_WORDS:]

    def stop(self) -> None:
        """End the child, at once; the next case starts another."""
        if self._pipe is not None:
            self._pipe.close()
            self._pipe = None
        if self._process is not None:
            if self._process.is_alive():
                self._process.kill()
            self._process.join(10)
            self._process = None

    def kill(self) -> None:
        """End the child from another thread: the one that waits for its answer sees it die and tidies up."""
        process = self._process
        if process is not None:
            process.kill()

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        self._output.close()


def _last(steps: Generator[Staged, None, Any]) -> Any:
    """What a generator returns, its steps not being of interest."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value


def timed_out(case: Case, took_s: float, policy: Policy) -> Row:
    """The row of a case that outlasted its time."""
    return case.row("timed-out", f"stopped after {took_s:.0f} s (--time-limit {policy.time_limit_s:g})")


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {error}".removesuffix(": ")


@dataclass(frozen=True)
class _Failure:
    """Why the devices could not be listed, where the child lived to say it."""

    reason: str


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Ctrl-C waits: a child that is born meanwhile inherits that, until it ignores Ctrl-C for itself.

    So does SIGTERM, but in this process alone.
    """
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    # Started with the first child, the tracker would let interrupts through before that child is born.
    resource_tracker.ensure_running()
    # The mask is for the child, which inherits it; here another thread may still be handed the signal.
    held: list[int] = []
    handlers = {}
    if threading.current_thread() is threading.main_thread():
        handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
        if handlers[signal.SIGTERM] == signal.SIG_DFL:  # it ends this process, whatever that is at
            del handlers[signal.SIGTERM]
    for number in handlers:
        signal.signal(number, lambda number, _: held.append(number))
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)
        for number, handler in handlers.items():
            signal.signal(number, handler)
    if held:
        raise KeyboardInterrupt


class _Output:
    """A file descriptor that survives into a spawned child where the system can pass one."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor

    def __getstate__(self) -> dict[str, object]:
        if sys.platform == "win32":
            return {"handle": None}
        from multiprocessing.reduction import DupFd

        return {"handle": DupFd(self.descriptor)}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.descriptor = state["handle"].detach() if state["handle"] is not None else -1


def _die_with_parent() -> None:
    """Where Linux offers it: a parent that is killed takes a child along that hangs in a kernel."""
    if sys.platform == "linux":
        import ctypes

        pr_set_pdeathsig = 1
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


class _InStep:
    """A child's side of keeping step with others, each with a parent's `Worker` of its own."""

    def __init__(self, pipe: Connection) -> None:
        self._pipe = pipe
        self._counts = False  # whether batches do: all others are known to be busy
        self._past = False  # whether they no longer do, and run on only to keep the others company
        self._said = ""
        self._starts = 0  # of windows begun anew, so that what was said before counts for nothing

    def begin(self) -> None:
        """See `rules.measure.Pace`."""
        self._counts, self._past, self._said = False, False, ""
        self._pipe.send(("ready", None))
        self._ordered()

    def turn(self, enough: bool) -> Turn:
        """See `rules.measure.Pace`."""
        if not self._counts:
            self._say("begun")
        elif enough and not self._past:
            self._say("sampled")
        order = self._ordered() if self._pipe.poll() else ""
        if order == "anew":
            self._counts, self._past, self._said = False, False, ""
            self._starts += 1
            return "anew"
        if order == "stop":
            return "late"
        if self._past or order == "past":
            self._past = True
            self._say("past")
            return "past"
        counted = self._counts
        self._counts = counted or order == "count"
        return "more" if counted else "early"

    def _say(self, what: str) -> None:
        """Tell the parent, once."""
        if self._said != what:
            self._said = what
            self._pipe.send((what, self._starts))

    def _ordered(self) -> str:
        _, order, detail = self._pipe.recv()
        if order == "nobody":
            raise NotMeasuredError("skipped", detail)
        return str(order)


def _child(pipe: Connection, make: MakeMachine, output: _Output) -> None:
    """The child's life: answer requests until the pipe closes."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _die_with_parent()
    if output.descriptor >= 0:
        # Drivers print to stdout and stderr as they please; the tables on stdout are the user's.
        os.dup2(output.descriptor, 1)
        os.dup2(output.descriptor, 2)

    def tell(stage: str, *, of_former: bool = False) -> None:
        pipe.send(("stage", Staged(stage, of_former)))

    machine: Machine | None = None
    with contextlib.suppress(EOFError, ConnectionError):
        while True:
            request = pipe.recv()
            if request[0] == "order":  # it crossed the row of a case that had failed by then
                continue
            if request[0] == "devices":
                try:
                    machine = machine or make()
                    pipe.send(("devices", (machine.devices(), machine.host())))
                except Exception as error:
                    pipe.send(("devices", _Failure(_words(error))))
                continue
            verb, case, device, policy = request
            kind, row = "row", None
            try:
                machine = machine or make()
                if verb == "inspect":
                    row = machine.inspect(case, device)
                elif verb == "beside":
                    with paced(_InStep(pipe)):
                        row = machine.run(case, device, policy, tell)
                else:
                    row = machine.run(case, device, policy, tell)
            except NotMeasuredError as error:
                row = replace(case.row(error.status, error.reason), needs_s=error.needs_s)
                kind = "broken" if error.restart else "row"
            except MemoryError as error:
                row, kind = case.row("failed", f"the host ran out of memory {error}".strip()), "broken"
            except Exception as error:
                row, kind = case.row("failed", _words(error)), "broken"
            pipe.send((kind, row))
