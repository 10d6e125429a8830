"""An instrument's own process: ``python -m gemmbench.measure.instrument HANDLE MAKER``."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import sys
import time
import traceback
from collections.abc import Callable
from dataclasses import replace
from pkgutil import resolve_name
from typing import Any, Protocol

from gemmbench import __version__
from gemmbench.measure.child import Pipe, connect
from gemmbench.model import instrument as wire
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.model.instrument import Batch, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.units import GIGA
from gemmbench.opencl import drivers

_AWAY = (
    4  # this part of a burst is thrown away first: cold code and sleeping threads slow what follows a batch
)
_LOOK_S = 1e-4  # between two looks at a batch that runs while no request is there


class Running(Protocol):
    """A batch in the device's queue."""

    def done(self) -> bool: ...

    def finish(self) -> Batch: ...


class Bench(Protocol):
    """A case that is ready to run."""

    @property
    def prepared(self) -> wire.Prepared: ...

    def verify(self, when: wire.When) -> wire.Verified: ...

    def start(self, clock: str, count: int, work: int) -> Batch | Running:
        """Run a batch; or only enqueue it if the clock is one of `Prepared.ahead`."""

    def release(self) -> None:
        """Free what does not go with the last reference."""


class Executor(Protocol):
    """Runs cases of one kind on one device, or on the host."""

    def build(self, case: Case) -> wire.Built: ...

    def prepare(self, case: Case, policy: Policy, like: Any, problem: Gemm | None) -> Bench: ...


class Machine(Protocol):
    """All devices of this process. Every method may raise `NotMeasuredError`."""

    problems: tuple[tuple[str, str], ...]  # see `wire.Opened`, known after the devices

    def devices(self) -> tuple[DeviceFacts, ...]: ...

    def host(self) -> HostFacts: ...

    def executor(self, case: Case, device: DeviceFacts | None) -> Executor: ...


_ANY_CASE = Case("peak", 0, "", "float", {})  # whose executor opens a device


class Server:
    """Answers requests with a machine, which is made when it is first needed."""

    def __init__(self, make: Callable[[], Machine]) -> None:
        self._make = make
        self._made: Machine | None = None
        self._prepared: dict[int, tuple[Bench, Executor]] = {}  # by handle; cuBLAS has its own queue
        self._queue: Executor | None = None  # whose queue the last batch went into
        self._free_since = 0.0  # when the last batch ended

    def answer(self, request: wire.Request) -> wire.Answer | Running:
        return self._guarded(lambda: self._answer(request))

    def is_behind(self, request: wire.Request) -> bool:
        """Whether a request is for a batch that can follow the running one."""
        if not isinstance(request, wire.AskBatch) or request.handle not in self._prepared:
            return False
        bench, executor = self._prepared[request.handle]
        return executor is self._queue and request.clock in bench.prepared.ahead

    def finish(self, running: Running) -> wire.Answer:
        done = self._guarded(lambda: self._stamped(running.finish()))
        assert isinstance(done, Batch | wire.Refusal)
        return done

    def _answer(self, request: wire.Request) -> wire.Answer | Running:
        self._made = machine = self._made or self._make()
        if isinstance(request, wire.Open):
            devices: tuple[DeviceFacts, ...] = ()
            host = machine.host() if request.host else None
            if request.device:
                machine.executor(_ANY_CASE, request.device)
            elif host is None:
                devices = machine.devices()
            return wire.Opened(devices, host, wire.PROTOCOL, __version__, machine.problems)
        if isinstance(request, wire.Build):
            return machine.executor(request.case, request.device).build(request.case)
        if isinstance(request, wire.Prepare):
            case = request.case
            like = None if request.like is None else self._prepared[request.like][0]
            executor = machine.executor(case, request.device)
            bench = executor.prepare(case, request.policy, like, request.problem)
            self._prepared[request.handle] = bench, executor
            return bench.prepared
        if isinstance(request, wire.Release):
            if released := self._prepared.pop(request.handle, None):
                released[0].release()
            return wire.Released()
        bench, executor = self._prepared[request.handle]
        if isinstance(request, wire.Verify):
            return bench.verify(request.when)
        if isinstance(request, wire.AskSeries):
            return self._series(bench, request)
        started = bench.start(request.clock, request.count, request.work)
        if not isinstance(started, Batch):
            self._queue = executor
            return started
        return self._stamped(started)

    def _series(self, bench: Bench, request: wire.AskSeries) -> wire.Series:
        """Batches with a control burst before and after each."""

        def run(of: Bench, clock: str, count: int, work: int) -> Batch:
            started = of.start(clock, count, work)
            return started if isinstance(started, Batch) else started.finish()

        control = request.control
        kernel = self._prepared[control.handle][0]

        def burst() -> float:
            run(kernel, control.clock, max(1, control.count // _AWAY), 1)
            batch = run(kernel, control.clock, control.count, 1)
            return _short(batch.finest_s * batch.count / control.operations * GIGA)

        batches: list[Batch] = []
        end = time.perf_counter() + request.seconds
        before = burst()
        while not batches or time.perf_counter() < end:
            waits = _waits()
            batch = run(bench, request.clock, request.count, request.work)
            waited = _longest(waits, _waits())
            after = burst()
            waited_s = _short(waited) if waits else None
            batches.append(replace(batch, bursts_s=(before, after), waited_s=waited_s))
            before = after
        return wire.Series(tuple(batches))

    def _stamped(self, batch: Batch) -> Batch:
        """The batch, beginning no earlier than the previous one's end."""
        begin, self._free_since = max(batch.begin, self._free_since), batch.end
        return batch if begin == batch.begin else replace(batch, begin=begin)

    def _guarded(self, do: Callable[[], wire.Answer | Running]) -> wire.Answer | Running:
        try:
            return do()
        except NotMeasuredError as error:
            return wire.Refusal(error.status, error.reason, error.restart, error.needs_s)
        except MemoryError as error:
            return wire.Refusal("failed", f"the host ran out of memory {error}".strip(), restart=True)
        except Exception as error:
            return wire.Refusal("failed", f"{type(error).__name__}: {error}".removesuffix(": "), restart=True)


def _waits(tasks: str = "/proc/self/task") -> dict[str, int]:
    """How long each thread has waited for a core, in ns; or {}."""
    waits = {}
    with contextlib.suppress(OSError):
        for task in os.listdir(tasks):  # noqa: PTH208  pathlib takes 0.4 ms, in which threads fall asleep
            file = os.open(f"{tasks}/{task}/schedstat", os.O_RDONLY)
            waits[task] = int(os.read(file, 100).split()[1])
            os.close(file)
    return waits


def _longest(before: dict[str, int], after: dict[str, int]) -> float:
    return max((after[task] - before[task] for task in after if task in before), default=0) / 1e9


def _short(seconds: float) -> float:
    return float(f"{seconds:.4g}")


def serve(pipe: Pipe, make: Callable[[], Machine]) -> None:
    """Answer requests until the pipe closes."""
    server = Server(make)
    running: Running | None = None

    def finish() -> None:
        nonlocal running
        if running:
            pipe.send(server.finish(running))
            running = None

    with contextlib.suppress(EOFError, OSError):
        while True:
            while running and not running.done() and not pipe.wait(_LOOK_S):
                pass
            if not pipe.wait():
                finish()
            request = pipe.receive()
            if not server.is_behind(request):
                finish()
            answer = server.answer(request)
            finish()
            if isinstance(answer, wire.Answer):
                pipe.send(answer)
            else:
                running = answer


def _die_with_parent() -> None:
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def serve_parent(handle: str, maker: str) -> None:
    """Serve the other end of a pipe, and exit without cleanup: drivers may hang."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's business
    _die_with_parent()
    drivers.ask_for_tiles()
    pipe = connect(int(handle))

    def make() -> Machine:
        machine: Machine = resolve_name(maker)()
        return machine

    try:
        serve(pipe, make)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)  # a driver that hangs while it unloads must not keep the parent


if __name__ == "__main__":
    serve_parent(*sys.argv[1:])
