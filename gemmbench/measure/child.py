"""The parent's side of an instrument: starts its processes, asks, and survives their death."""

from __future__ import annotations

import contextlib
import itertools
import json
import math
import os
import re
import select
import signal
import subprocess
import sys
import tempfile
import time
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from pkgutil import resolve_name
from typing import IO, Any, TypeVar, get_args

import msgspec

from gemmbench import UsageError
from gemmbench.measure import machine
from gemmbench.measure.machine import PINNING, THREADS
from gemmbench.measure.sensors import Monitor
from gemmbench.model import instrument as wire
from gemmbench.model.case import DRIVER, Case, Policy, Staged, checkout_of
from gemmbench.model.device import DeviceFacts, HostFacts, usable_cores
from gemmbench.model.instrument import Batch, Handle, Instrument, LostError, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.opencl import drivers

CONDUCTORS = {  # the parent's side of each kind of case, imported when first needed
    "gemm": "gemmbench.gemm.measure:measure_gemm",
    **dict.fromkeys(("peak", "bandwidth", "transfer", "latency"), "gemmbench.probes.measure:measure_probe"),
}
# pyopencl adds it to every build. With -cl-opt-disable kernels are 60 times slower, with the same hash.
BUILD_OPTIONS = "PYOPENCL_BUILD_OPTIONS"
INSTRUMENT = (  # with -m, modules in the working directory would be imported
    "import sys; sys.path[:] = filter(None, sys.path); "
    "import runpy; runpy.run_module('gemmbench.measure.instrument', run_name='__main__')"
)

_START_LIMIT_S = 120.0  # for the child to import the drivers and list the devices
LIST_LIMIT_S = 10.0  # after which the drivers are listed one by one
_END_LIMIT_S = 10.0  # for a killed child to be gone; one that hangs in the kernel stays behind
_WARM_S = 0.02  # of work after which a system has spread threads that slept over its cores
_WARM_ENOUGH_S = 0.4  # a problem as long as this is not run twice for that
_SPIN_S = 0.15  # how long threads of a BLAS or a driver wait for work in a loop
_STOP_LOOK_S, _STOP_LIMIT_S = 1e-4, 1.0  # for a process to be stopped; one that hangs in the kernel is not
_CAN_STOP = sys.platform == "linux"  # elsewhere a stopped process would outlive a parent that is killed
_DEAF_S = 1.0  # at most between two moments at which Ctrl-C is heard
_DRIVER_WORDS = 300  # of the driver's own output, kept with a crash
_IGNORED = "CPU_CU_AFFINITY: Value is ignored"  # Intel's runtime warns of it in every process

_T = TypeVar("_T")


def for_threads() -> dict[str, str]:
    """Environment variables for the threads of a measuring process; the user's values win.

    CPU drivers pin each thread if this process may use all cores: two on one core would halve the rate.
    """
    is_ours = len(usable_cores() or ()) == os.cpu_count()
    return {name: value for name, value in THREADS.items() if is_ours or name not in PINNING}


def _scratch_file() -> IO[bytes]:
    try:
        return tempfile.TemporaryFile()
    except OSError:
        return os.fdopen(os.memfd_create("gemmbench"), "w+b")


POCL_CACHE = "POCL_CACHE_DIR"


@contextlib.contextmanager
def _scratch_folder() -> Iterator[dict[str, str]]:
    """A variable that names a temporary folder for PoCL, or {}."""
    try:
        folder = tempfile.TemporaryDirectory(
            prefix="gemmbench-", dir=os.environ.get(POCL_CACHE) or None, ignore_cleanup_errors=True
        )
    except OSError:
        yield {}
        return
    with folder:
        yield {POCL_CACHE: folder.name}


class WorkerError(UsageError):
    """The child could not list the devices; the message is for the user."""


class Worker(contextlib.AbstractContextManager["Worker"]):
    """An instrument in a process of its own: see `model.instrument.Instrument`.

    A process that dies, hangs or refuses with `restart` is replaced at the next request. The host's BLAS has
    a second process. Threads of a BLAS, and of some drivers, spin for 30 to 130 ms after a call. So the
    processes of devices are stopped while the BLAS works, and the other way round.
    """

    failing: tuple[drivers.Problem, ...] = ()  # drivers that crash or hang, and devices that do not open
    problems: tuple[drivers.Problem, ...] = ()  # these, and other drivers that show no device

    def __init__(
        self, make: Callable[[], object] | None = None, checkout: Path | None = None,
        environment: Mapping[str, str] | None = None, root: Worker | None = None, is_host: bool = False,
    ) -> None:  # fmt: skip
        """Start no process yet. The child imports `make` (the default machine) by name, from `checkout`.

        `root` is the worker that this one joins, as its BLAS (`is_host`) or another version.
        """
        self.make = make or machine.default
        self._checkout, self._environment = checkout, environment or {}
        self._others: dict[str, tuple[Worker, tuple[DeviceFacts, ...]]] = {}  # by `Case.kernels`
        self._process: subprocess.Popen[bytes] | None = None
        self._pipe: Pipe | None = None
        self._output = _scratch_file()  # what drivers print; lives as long as this
        self._scratch = contextlib.ExitStack()  # of the process: what it leaves behind
        self._is_host = is_host
        self._is_active = False  # whether its process may run; a new one does until it is first used
        self._is_cold = False  # whether its process was stopped since its last batch
        self._family: list[Worker] = root._family if root else []  # the root, its BLAS and its other versions
        self._family.append(self)
        self._numbers: Iterator[int] = root._numbers if root else itertools.count()
        self._took_s: dict[int, float] = {}  # one problem of each handle, in its last batch
        self._asked: dict[int, wire.Prepare] = {}  # by handle, to prepare it again
        self._held: set[int] = set()  # the handles that the living process knows
        self._monitors: dict[int | None, Monitor] = {}  # by the index of a device; None: the host
        self.bursts: dict[int | None, wire.Bursts] = {}  # by the index of a device; None: the host
        self._batches: deque[int] = deque()  # the handles whose batches were asked for and not answered yet
        self._handle: int | None = None  # whose answer is waited for
        self._limit_s = self._left_s = _START_LIMIT_S
        self._since = 0.0  # when an answer was first waited for

    def limit(self, seconds: float) -> None:
        """Allow all further requests `seconds` together. Time between requests does not count."""
        for worker in self._group:
            worker._limit_s = worker._left_s = seconds

    @property
    def left_s(self) -> float:
        return self._left_s - (time.monotonic() - self._since)

    def build(self, case: Case, device: DeviceFacts) -> wire.Built:
        return self._call(wire.Build(case, device), wire.Built)

    def prepare(
        self, case: Case, device: DeviceFacts | None, policy: Policy, like: int | None = None,
        problem: Gemm | None = None,
    ) -> Handle:  # fmt: skip
        """Without a device, in the process of the host's BLAS."""
        if device is None and not self._is_host:
            return self._host.prepare(case, device, policy, like, problem)
        if like is not None:
            self._ensure_prepared(like)
        number = next(self._numbers)
        request = wire.Prepare(number, case, device, policy, like, problem)
        prepared = self._call(request, wire.Prepared)
        self._asked[number] = request
        self._held.add(number)
        key = device.index if device else None
        if key not in self._monitors:
            self._monitors[key] = Monitor(device)
        # Float is not limited, nor are probes of ordinary units.
        can_be_limited = case.dtype != "float" and (case.kind == "gemm" or case.ran_on == "matrix")
        load = f"{case.variant} {case.dtype}" if can_be_limited else ""
        # Another version's process has no control kernel.
        bursts = self._family[0].bursts.get(key) if self._is_host or self is self._family[0] else None
        return Handle(self, number, prepared, watch=self._monitors[key], load=load, bursts=bursts)

    @property
    def _group(self) -> Sequence[Worker]:
        return [*self._family] if self in self._family[:1] else [self]

    @property
    def _host(self) -> Worker:
        for worker in self._family:
            if worker._is_host:
                return worker
        host = Worker(self.make, root=self, is_host=True)
        host.limit(self._limit_s)
        return host

    def for_old(self, old: Case, device: DeviceFacts | None) -> tuple[Instrument, Case, DeviceFacts | None]:
        kernels = old.kernels
        if not kernels.startswith(DRIVER) and not checkout_of(kernels):
            return self, old, device
        if kernels not in self._others:
            self._others[kernels] = other_version(kernels, self)
        worker, devices = self._others[kernels]
        worker.limit(self._limit_s)
        assert device is not None  # kernels run on devices
        return worker, replace(old, kernels=""), matching_device(kernels, device, devices)

    def verify(self, handle: int, when: wire.When) -> wire.Verified:
        self._ensure_prepared(handle)
        return self._call(wire.Verify(handle, when), wire.Verified, handle)

    def start(self, handle: int, clock: str, count: int, work: int = 1) -> None:
        self._ensure_prepared(handle)
        request = wire.AskBatch(handle, clock, count, work)
        self._take_turn()
        if self._is_cold:
            self._warm(request)
        if not self._batches:
            self._since = time.monotonic()
        self._send(request)
        self._batches.append(handle)

    def _warm(self, request: wire.AskBatch) -> None:
        """Repeat a batch for 20 ms: threads of a stopped process wake up on one core."""
        self._is_cold, handle = False, request.handle
        warmed_s = 0.0 if self._took_s.get(handle, 0.0) < _WARM_ENOUGH_S else _WARM_S
        while warmed_s < _WARM_S:
            batch = self._call(request, Batch, handle)
            self._took_s[handle] = batch.wall_s
            warmed_s += max(batch.end - batch.begin, _WARM_S / 100)

    def finish(self) -> Batch:
        self._handle = handle = self._batches.popleft() if self._batches else None
        batch = self._expect(Batch)
        if handle is not None:
            self._took_s[handle] = batch.wall_s
        return batch

    def series(self, request: wire.AskSeries) -> wire.Series:
        self._ensure_prepared(request.control.handle)
        self._ensure_prepared(request.handle)
        self._take_turn()
        if self._is_cold:
            self._warm(wire.AskBatch(request.handle, request.clock, request.count, request.work))
        series = self._call(request, wire.Series, request.handle)
        self._took_s[request.handle] = series.batches[-1].wall_s
        return series

    def release(self, handle: int) -> None:
        """Drop unread batches, stop all sensors, and free a handle."""
        self._asked.pop(handle, None)
        self._took_s.pop(handle, None)
        for monitor in self._monitors.values():
            monitor.close()  # of a window that failed: it would read on, on a core that the next row needs
        self._drop_answers()
        if handle in self._held:
            self._held.discard(handle)
            with contextlib.suppress(NotMeasuredError):  # what was measured stands
                self._call(wire.Release(handle), wire.Released)

    def _ensure_prepared(self, handle: int) -> None:
        """Prepare a handle, and the one that it is like, if need be."""
        if self._process is not None and self._process.poll() is not None and not self._batches:
            self._end()
        if handle not in self._held:
            request = self._asked[handle]
            if request.like is not None and request.like in self._asked:
                self._ensure_prepared(request.like)
            else:
                request = replace(request, like=None)
            self._call(request, wire.Prepared)
            self._held.add(handle)

    def _call(self, request: wire.Request, kind: type[_T], handle: int | None = None) -> _T:
        self._drop_answers()
        self._take_turn()
        self._since = time.monotonic()
        self._send(request)
        self._handle = handle
        return self._expect(kind)

    def _drop_answers(self) -> None:
        while self._batches:
            with contextlib.suppress(NotMeasuredError):
                self.finish()

    def _send(self, request: wire.Request) -> None:
        """Send a request. A request that needs no handle starts the process again if it is gone."""
        needs_handle = isinstance(request, wire.AskBatch | wire.AskSeries | wire.Verify | wire.Release)
        pipe = self._pipe if needs_handle else self._start()
        if pipe is None:
            raise LostError("crashed", "the driver's process is gone")
        try:
            pipe.send(request)
        except OSError:
            if not needs_handle:
                self._end()
                with contextlib.suppress(OSError):
                    self._start().send(request)

    def _expect(self, kind: type[_T]) -> _T:
        answer = self._next_answer()
        if isinstance(answer, NotMeasuredError):
            answer.handle = self._handle
            raise answer
        assert isinstance(answer, kind), answer
        return answer

    def _next_answer(self) -> Any:
        """The next answer; `LostError` as a value if the process is gone or too slow."""
        pipe = self._pipe
        if pipe is None:  # it went with an earlier batch
            return LostError("crashed", "the driver's process is gone")
        has_answered = pipe.wait(self.left_s)
        self._since += pipe.stopped_s
        if not has_answered:
            self._end()
            limit_s = self._limit_s
            return LostError("timed-out", f"stopped after {limit_s:.0f} s (--time-limit {limit_s:g})")
        try:
            answer = pipe.receive()
        except EOFError:
            return LostError("crashed", self._crash_report())
        self._left_s, self._since = self.left_s, time.monotonic()
        if isinstance(answer, wire.Refusal):
            if answer.restart:  # an answer, but the driver is not to be trusted any more
                self._end()
            return NotMeasuredError(answer.status, answer.reason, answer.restart, answer.needs_s)
        return answer

    def _take_turn(self) -> None:
        for other in self._family:
            if other._is_host != self._is_host and other._is_active:
                other._pause()
        if not self._is_active and self._is_cold:
            self._signal("SIGCONT")
        self._is_active = True

    def _pause(self) -> None:
        """Stop the process until its next turn; outside Linux, sleep instead."""
        self._drop_answers()
        self._is_active, self._is_cold = False, True
        if not _CAN_STOP:
            time.sleep(_SPIN_S)
            return
        self._signal("SIGSTOP")
        end = time.monotonic() + _STOP_LIMIT_S
        while self._process and not is_stopped(self._process.pid) and time.monotonic() < end:
            select.select([], [], [], _STOP_LOOK_S)

    def _signal(self, name: str) -> None:
        if _CAN_STOP and self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, signal.Signals[name])

    def _start(self) -> Pipe:
        """The pipe to the process, which is started if it does not run."""
        if self._process is not None and self._process.poll() is None and self._pipe is not None:
            return self._pipe
        self._end()
        self._output.seek(0)
        self._output.truncate()
        parent_end, child_end = connection.Pipe()
        handle = child_end.fileno()
        inherited: dict[str, Any] = {"pass_fds": (handle,)}
        if sys.platform == "win32":
            os.set_handle_inheritable(handle, True)
            inherited = {"startupinfo": subprocess.STARTUPINFO(lpAttributeList={"handle_list": [handle]})}
        self._process = subprocess.Popen(
            [sys.executable, "-c", INSTRUMENT, str(handle), name_maker(self.make)],
            stdin=subprocess.DEVNULL,
            stdout=self._output,
            stderr=self._output,
            start_new_session=True,  # Ctrl-C in a terminal is for this process alone
            **inherited,
            env={
                **for_threads(),
                **{name: value for name, value in os.environ.items() if name != BUILD_OPTIONS},
                **({} if self._is_host else self._scratch.enter_context(_scratch_folder())),
                **self._environment,
                "PYTHONPATH": os.pathsep.join(filter(None, [str(self._checkout or ""), *sys.path])),
            },
        )
        child_end.close()
        self._pipe = Pipe(parent_end)
        return self._pipe

    def _crash_report(self) -> str:
        process = self._process
        assert process is not None
        code = process.wait()  # it has closed its end of the pipe already
        self._end()
        how = f"the driver's process ended with status {code}"
        if code < 0:
            name = drivers.signal_name(-code)
            how = f"the driver's process was killed by {name}"
            if name == "SIGKILL":
                how += " (often: the machine ran out of memory)"
        words = self.last_words()
        return f"{how}: {words}" if words else how

    def last_words(self) -> str:
        self._output.seek(0)
        lines = self._output.read().decode("utf-8", "replace").splitlines()
        return " ".join(" ".join(line for line in lines if _IGNORED not in line).split())[-_DRIVER_WORDS:]

    def stop(self) -> None:
        """End this process, and those that belong to it; the next request starts another."""
        for worker in self._group:
            worker._end()

    def _end(self) -> None:
        """Kill the process and forget what it holds."""
        self._held.clear()
        self._batches.clear()
        process, self._process = self._process, None
        pipe, self._pipe = self._pipe, None
        if process is not None:
            process.kill()
            if pipe is None or pipe.ended(_END_LIMIT_S):
                process.wait()
        if pipe is not None:
            pipe.close()
        self._scratch.close()

    def kill(self) -> None:
        """End the process from another thread."""
        if process := self._process:
            process.kill()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the process, its sensors and files for good, and its workers."""
        self.stop()
        for worker in self._group:
            for monitor in worker._monitors.values():
                monitor.close()
            worker._output.close()
            if worker in self._family:
                self._family.remove(worker)

    def devices(self) -> tuple[tuple[DeviceFacts, ...], HostFacts]:
        """List all OpenCL devices that neither crash nor hang, and describe the host; else `WorkerError`."""
        with contextlib.suppress(OSError):  # reported below
            self._host._start()  # which imports its modules while the devices are listed
        opened = self._listed()
        self.problems = (*self.failing, *opened.problems)
        host = self._host.opened().host
        assert host is not None
        return opened.devices, host

    def open(self, device: DeviceFacts) -> drivers.Problem | None:
        """Open a device in 120 s. Returns a problem if that fails."""
        self.limit(_START_LIMIT_S)
        try:
            self._call(wire.Open(device=device), wire.Opened)
        except NotMeasuredError as error:
            is_late = error.status == "timed-out"
            reason = f"opening it took more than {self._limit_s:.0f} s" if is_late else error.reason
            return f"device {device.index} ({device.title}) cannot be used: {reason}", ""
        return None

    def _listed(self) -> wire.Opened:
        """List the devices, without drivers that crash or hang."""
        try:
            return self.opened(LIST_LIMIT_S)
        except WorkerError as error:
            if not isinstance(error.__cause__, LostError):
                raise
            self.failing = drivers.skip_failing(LIST_LIMIT_S)
            if not self.failing and error.__cause__.status != "timed-out":
                raise
        return self.opened()

    def opened(self, limit_s: float = _START_LIMIT_S) -> wire.Opened:
        """The child's devices or the host's facts; else `WorkerError`."""
        what = "describing the host" if self._is_host else "listing the OpenCL devices"
        self.limit(limit_s)
        try:
            opened = self._call(wire.Open(self._is_host), wire.Opened)
        except NotMeasuredError as error:
            how = f"failed: {error.reason}"
            if error.status == "timed-out":
                how = f"took more than {limit_s:.0f} s"
            raise WorkerError(f"{what} {how}") from error
        except ValueError as error:
            raise WorkerError(f"{what} failed: {error}") from None
        if opened.protocol != wire.PROTOCOL:
            raise WorkerError(
                f"gemmbench {opened.gemmbench} speaks protocol {opened.protocol} of the instrument, "
                f"this one {wire.PROTOCOL}"
            )
        return opened

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        """Measure a case; every error becomes its row."""
        self.limit(policy.time_limit_s)
        try:
            row: Row = yield from resolve_name(CONDUCTORS[case.kind])(self, case, device, policy)
            return row
        except NotMeasuredError as error:
            return replace(case.row(error.status, error.reason), needs_s=error.needs_s)
        except Exception as error:
            self.stop()  # whatever it was, the next case gets a new process
            return case.row("failed", f"{type(error).__name__}: {error}".removesuffix(": "))

    def inspect(self, case: Case, device: DeviceFacts, policy: Policy) -> Row:
        self.limit(policy.time_limit_s)
        try:
            built = self.build(case, device)
        except NotMeasuredError as error:
            return case.row(error.status, error.reason)
        return replace(case.row("ok"), build_s=built.build_s, choice=built.choice, resources=built.resources)


def is_stopped(pid: int) -> bool:
    """Whether Linux reports every thread of a process as stopped."""
    tasks = Path(f"/proc/{pid}/task")
    try:
        states = {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks.iterdir()}
    except OSError:  # a thread has ended
        return not tasks.exists()
    return states <= set("TtXZ")


def other_version(kernels: str, root: Worker) -> tuple[Worker, tuple[DeviceFacts, ...]]:
    """A worker for another checkout or driver (``driver:LIBRARY``), and its devices.

    `NotMeasuredError` (unsupported) if it does not answer or speaks another protocol.
    """
    if kernels.startswith(DRIVER):
        name = "OCL_ICD_FILENAMES" if sys.platform == "win32" else "OCL_ICD_VENDORS"
        worker = Worker(root.make, environment={name: kernels.removeprefix(DRIVER)}, root=root)
    else:
        worker = Worker(root.make, Path(kernels), root=root)
    try:
        return worker, worker.opened().devices
    except WorkerError as error:
        worker.close()
        raise NotMeasuredError("unsupported", str(error)) from None


def protocol_of(checkout: Path) -> int:
    """The protocol of a checkout's instrument; 0 if it has none."""
    try:
        source = (checkout / "gemmbench/model/instrument.py").read_text(encoding="utf-8")
    except OSError:
        return 0
    stated = re.search(r"^PROTOCOL = (\d+)$", source, re.MULTILINE)
    return int(stated[1]) if stated else 0


def matching_device(kernels: str, device: DeviceFacts, devices: Sequence[DeviceFacts]) -> DeviceFacts:
    """The first of another version's `devices` that matches `device`; else `NotMeasuredError`."""
    for other in devices:
        if kernels.startswith(DRIVER):
            if other.type == device.type and "OCL_ICD" in other.origin:
                return other
        elif (other.platform, other.name) == (device.platform, device.name):
            return other
    raise NotMeasuredError("unsupported", f"{kernels} does not have the device {device.title}")


def name_maker(make: Callable[[], object]) -> str:
    """The name by which the child imports a function."""
    return f"{make.__module__}:{make.__qualname__}"


_KINDS: dict[str, type] = {kind.__name__: kind for kind in (*get_args(wire.Request), *get_args(wire.Answer))}


def encode_message(message: object) -> bytes:
    """A message as JSON."""
    value = (type(message).__name__, message)
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:  # a file's name may hold bytes that are no text
        return json.dumps(msgspec.to_builtins(value)).encode()


def decode_message(line: bytes) -> Any:
    """The message in a line of JSON; else `ValueError`."""
    try:
        try:
            kind, value = msgspec.json.decode(line, type=tuple[str, msgspec.Raw])
            return msgspec.json.decode(value, type=_KINDS[kind])
        except msgspec.DecodeError:
            kind, content = json.loads(line)
            return msgspec.convert(content, type=_KINDS[kind])
    except (msgspec.MsgspecError, LookupError, TypeError, ValueError) as error:
        raise ValueError(f"not of protocol {wire.PROTOCOL} of the instrument: {error}") from None


class Pipe:
    """Requests and answers over a connection."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self.stopped_s = 0.0  # how long this process was stopped during the last wait

    def send(self, message: object) -> None:
        self._connection.send_bytes(encode_message(message))

    def wait(self, seconds: float | None = 0.0) -> bool:
        """Whether a message comes or the other end closes within `seconds` of waiting (None: forever).

        It waits in slices, because Ctrl-C may go to another thread. Time in which this process was stopped,
        as by a closed laptop, does not count: `stopped_s`.
        """
        left_s, self.stopped_s = math.inf if seconds is None else seconds, 0.0
        while True:
            begin, slice_s = time.monotonic(), max(0.0, min(left_s, _DEAF_S))
            is_there = self._connection.poll(slice_s)
            spent_s = time.monotonic() - begin
            if spent_s > slice_s + _DEAF_S:
                self.stopped_s, spent_s = self.stopped_s + spent_s - slice_s, slice_s
            left_s -= spent_s
            if is_there or left_s <= 0:
                return is_there

    def receive(self) -> Any:
        """Wait for a message. `EOFError` if the pipe closes, `ValueError` for anything else."""
        self.wait(None)
        try:
            return decode_message(self._connection.recv_bytes())
        except OSError:  # the other end was killed
            raise EOFError from None

    def ended(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        with contextlib.suppress(EOFError, OSError):
            while self.wait(end - time.monotonic()):
                self._connection.recv_bytes()
            return False
        return True

    def close(self) -> None:
        self._connection.close()


def connect(handle: int) -> Pipe:
    """The child's end of the pipe, inherited."""
    if sys.platform == "win32":
        return Pipe(connection.PipeConnection(handle))
    return Pipe(Connection(handle))
