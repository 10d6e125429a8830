"""The child process with a machine that does what the test says: what is asked, answered, lost and found."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmbench import __version__
from gemmbench.measure import child as child_module
from gemmbench.measure import machine
from gemmbench.measure.child import (
    BUILD_OPTIONS,
    POCL_CACHE,
    Pipe,
    Worker,
    WorkerError,
    decode_message,
    encode_message,
    matching_device,
    name_maker,
    protocol_of,
)
from gemmbench.model import instrument
from gemmbench.model.case import Case, Operands, Policy, checkout_of
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.model.instrument import (
    PROTOCOL,
    Batch,
    Built,
    Handle,
    LostError,
    NotMeasuredError,
    Opened,
    Prepared,
    Verified,
    When,
)
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check
from gemmbench.opencl import drivers
from tests import fake_runs, forked
from tests.in_process import result_of

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="processes are stopped on Linux alone")
POLICY = Policy(budget_s=0.1, batch_s=0.001, min_batches=3)
_FLIGHT_S = 0.5


AFFINITY = "RT Warning: SYCL_CPU_CU_AFFINITY: Value is ignored since SYCL_CPU_PLACES is not set."


class Machine:
    """Cases are named after what they do: its own process id is in every batch."""

    problems: tuple[tuple[str, str], ...] = ()

    def devices(self) -> tuple[DeviceFacts, ...]:
        print("the driver prints to stdout", flush=True)
        time.sleep(60 if os.environ.get(drivers.SKIP) == "hangs" else 0)
        return (fake_runs.CPU,)

    def host(self) -> HostFacts:
        return fake_runs.HOST

    def executor(self, case: Case, device: DeviceFacts | None) -> Machine:
        return self

    def build(self, case: Case) -> Built:
        return Built(source=case.variant)

    def prepare(self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None) -> Bench:
        if case.variant == "refused":
            raise NotMeasuredError("unsupported", "not here")
        return Bench(case, like)


class Bench:
    def __init__(self, case: Case, like: object) -> None:
        self.variant, self.like = case.variant, like
        self.prepared = Prepared(("device",), ahead=("device",))
        self.batches = 0
        if case.variant == "spins":
            threading.Thread(target=spin, daemon=True).start()

    def verify(self, when: When) -> Verified:
        return Verified(Check("ok", {"shares": float(isinstance(self.like, Bench))}))

    def start(self, clock: str, count: int, work: int) -> object:
        if self.variant == "dies":
            os.write(2, f"{AFFINITY}\nthe last\n{AFFINITY}\nwords".encode())
            os.kill(os.getpid(), signal.SIGSEGV)
        if self.variant == "hangs":
            time.sleep(60)
        if self.variant == "fails":
            raise OSError(5, "input/output error")
        if self.variant in ("flies", "spins"):
            return Flight(time.perf_counter(), count)
        return self._batch(count, work)

    def _batch(self, count: int, work: int) -> Batch:
        begin = time.perf_counter()
        self.batches += 1
        seconds = {"pid": float(os.getpid()), "work": float(work), "batches": float(self.batches)}
        time.sleep(_FLIGHT_S if self.variant == "long" else 0.0)
        return Batch(seconds, begin, time.perf_counter(), count)

    def release(self) -> None:
        """Nothing to do."""


class Flight:
    """A batch on a device with a queue: it has ended half a second after those before it."""

    _free = 0.0

    def __init__(self, begin: float, count: int) -> None:
        self.begin, self.count = begin, count
        self.end = Flight._free = max(begin, Flight._free) + _FLIGHT_S

    def done(self) -> bool:
        return time.perf_counter() >= self.end

    def finish(self) -> Batch:
        time.sleep(max(0.0, self.end - time.perf_counter()))
        return Batch({"queued": self.begin}, self.begin, self.end, self.count)


def spin() -> None:
    """Look for work as a BLAS does."""
    while True:
        pass


def make() -> Machine:
    return Machine()


@pytest.fixture(autouse=True)
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gemmbench.measure.child.subprocess", forked.STARTS)


@pytest.fixture
def child() -> Iterator[Worker]:
    with Worker(make) as child:
        yield child


def case(variant: str = "plain") -> Case:
    return Case("gemm", 0, variant, "float", {"A": 1, "B": 0.5}, Gemm(8, 8, 8, label="x"))


def prepared(child: Worker, variant: str = "plain", like: int | None = None) -> Handle:
    return child.prepare(case(variant), fake_runs.CPU, POLICY, like)


def on_host(child: Worker, variant: str = "plain") -> Handle:
    return child.prepare(case(variant), None, POLICY)


def pid(handle: Handle) -> int:
    return int(handle.batch("device", 1).seconds["pid"])


@pytest.mark.parametrize(("dtype", "load"), [("float", ""), ("half", "plain half")])
def test_a_handle_names_its_load_unless_it_is_of_float(child: Worker, dtype: str, load: str) -> None:
    assert child.prepare(replace(case(), dtype=dtype), fake_runs.CPU, POLICY).load == load


def test_it_says_what_it_is_and_what_a_driver_prints_is_no_answer(child: Worker) -> None:
    opened = child.opened()
    assert opened.devices == (fake_runs.CPU,)
    assert (opened.protocol, opened.gemmbench) == (PROTOCOL, __version__)
    assert child.last_words() == "the driver prints to stdout"


def test_every_verb(child: Worker) -> None:
    assert child.build(case(), fake_runs.CPU).source == "plain"
    first = prepared(child)
    second = prepared(child, like=first.number)
    assert [handle.verify("before").check.figures["shares"] for handle in (first, second)] == [0.0, 1.0]
    begin = time.perf_counter()
    batch = second.batch("device", 3, work=2)
    assert (batch.count, batch.seconds["work"]) == (3, 2.0)
    assert begin <= batch.begin <= batch.end <= time.perf_counter()
    first.release()
    assert pid(second) == pid(prepared(child))


def test_other_versions_are_asked_for_the_machine_by_this_name() -> None:
    """``check --against CHECKOUT`` starts that checkout's instrument: the name is part of the protocol."""
    assert name_maker(machine.default) == "gemmbench.measure.machine:default"


def test_the_next_batch_is_queued_before_the_last_is_read(child: Worker) -> None:
    handle = prepared(child, "flies")
    handle.start("device", 1)
    handle.start("device", 1)
    first = handle.finish()
    handle.start("device", 1)
    second, third = handle.finish(), handle.finish()
    assert second.seconds["queued"] < first.end
    assert third.seconds["queued"] < second.end
    assert (second.begin, third.begin) == (first.end, second.end)  # each began when the last had ended


def test_a_refusal_leaves_the_process_and_another_error_does_not(child: Worker) -> None:
    handle = prepared(child)
    before = pid(handle)
    with pytest.raises(NotMeasuredError, match="not here"):
        prepared(child, "refused")
    assert pid(handle) == before
    with pytest.raises(NotMeasuredError, match=r"OSError: .*input/output error") as caught:
        prepared(child, "fails").batch("device", 1)
    assert (caught.value.status, caught.value.restart) == ("failed", True)
    assert pid(handle) != before


def test_a_death_is_charged_to_the_handle_that_was_called_and_the_other_is_prepared_again(
    child: Worker,
) -> None:
    first, other = prepared(child), prepared(child, "dies")
    before = pid(first)
    first.start("device", 1)
    other.start("device", 1)
    first.finish()
    with pytest.raises(LostError, match=r"killed by SIGSEGV: the last words$") as caught:
        other.finish()
    assert (caught.value.status, caught.value.handle) == ("crashed", other.number)
    assert pid(first) != before


def test_who_shares_operands_is_prepared_again_with_them(child: Worker) -> None:
    first = prepared(child)
    second = prepared(child, like=first.number)
    child.stop()
    assert second.verify("before").check.figures["shares"] == 1.0
    first.release()
    child.stop()
    assert second.verify("before").check.figures["shares"] == 0.0  # what they were is gone


def test_a_released_handle_reads_nothing(child: Worker, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window that failed was read on, every 10 ms, beside the rows that followed."""
    handle, closed = prepared(child), list[int]()
    handle.watch.begin()
    monkeypatch.setattr(handle.watch, "close", lambda: closed.append(1))
    handle.release()
    assert closed == [1]


@on_linux
def test_fake_machines_are_forks(child: Worker) -> None:
    """A new interpreter each time costs half of the tests' time."""
    child.opened()
    assert isinstance(child._process, forked.Forked)


def kill(worker: Worker) -> None:
    """Kill a worker's process from outside, and wait until it is gone."""
    os.kill(worker._process.pid, signal.SIGKILL)
    worker._process.wait()


def test_one_that_died_while_idle_is_nobodys_fault(child: Worker) -> None:
    handle = prepared(child)
    before = pid(handle)
    kill(child)
    assert pid(handle) != before


def test_the_time_limit_is_of_all_requests_together(child: Worker) -> None:
    handle, limit_s, spent_s = prepared(child, "flies"), 100.0, 0.0
    child.limit(limit_s)
    for turn in (1, 2):
        begin = time.monotonic()
        handle.batch("device", 1)
        left_s = child.left_s
        spent_s += time.monotonic() - begin
        assert turn * _FLIGHT_S <= limit_s - left_s <= spent_s
        time.sleep(_FLIGHT_S)  # what the parent does meanwhile is not its fault
    child.limit(_FLIGHT_S / 2)
    with pytest.raises(LostError, match=r"stopped after 0 s \(--time-limit 0.25\)") as caught:
        handle.batch("device", 1)
    assert caught.value.status == "timed-out"


def test_who_stops_in_the_middle_does_not_read_an_answer_to_something_else(child: Worker) -> None:
    handle = prepared(child, "flies")
    handle.start("device", 1)
    handle.start("device", 1)
    assert handle.verify("before").check.verdict == "ok"


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_one_that_waits_uses_no_processor(child: Worker) -> None:
    handle = prepared(child)
    process = pid(handle)

    def spent_s() -> float:
        fields = Path(f"/proc/{process}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    before = spent_s()
    time.sleep(1.0)
    assert spent_s() - before <= 0.01


def test_a_whole_run_is_a_row_whatever_happens() -> None:
    with Worker(make) as worker:
        for variant, status, limit_s in (
            ("dies", "crashed", 120.0),
            ("hangs", "timed-out", 3.0),
            ("fails", "failed", 120.0),
        ):
            steps = worker.run(case(variant), fake_runs.CPU, Policy(budget_s=0.1, time_limit_s=limit_s))
            row = result_of(steps)
            assert row.status == status, row.reason


def test_names_that_are_no_text_cross_the_pipe() -> None:
    path = os.fsdecode(b"caf\xe9 \xff.npy")
    request = instrument.Prepare(0, Case("gemm", 0, "x", "float", {}, operands=Operands(path)), None, POLICY)
    assert decode_message(encode_message(request)) == request


def test_anybody_can_speak_it(tmp_path: Path) -> None:
    """Another language than Python, say, in a folder with modules of its own."""
    (tmp_path / "msgspec.py").write_text("raise SystemExit('the wrong one')")
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path)), "PYTHONSAFEPATH": "1"}
    ours, theirs = multiprocessing.Pipe()
    handle = theirs.fileno()
    command = [sys.executable, "-m", "gemmbench.measure.instrument", str(handle), name_maker(make)]
    with subprocess.Popen(command, cwd=tmp_path, env=environment, pass_fds=(handle,)):
        theirs.close()
        for request, kind in ((b'["Open", {}]', "Opened"), (b'["Release", {"handle": 7}]', "Released")):
            ours.send_bytes(request)
            assert json.loads(ours.recv_bytes())[0] == kind
        ours.close()


def test_nothing_is_imported_from_the_working_directory(
    child: Worker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PYTHONSAFEPATH sees to it from Python 3.11 on only."""
    monkeypatch.setattr("gemmbench.measure.child.subprocess", subprocess)  # a new interpreter
    for name in ("random", "runpy", "msgspec"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('the wrong one')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PYTHONSAFEPATH", raising=False)
    assert child.opened().devices == (fake_runs.CPU,)


def test_build_options_of_the_environment_do_not_reach_the_child(monkeypatch: pytest.MonkeyPatch) -> None:
    """With -cl-opt-disable kernels were 60 times slower, and nothing said why."""
    monkeypatch.setenv(BUILD_OPTIONS, "-cl-opt-disable")
    monkeypatch.setenv("GEMMBENCH_OTHER", "kept")
    seen: dict[str, str] = {}

    def popen(*_: object, env: dict[str, str], **__: object) -> None:
        seen.update(env)
        raise FileNotFoundError

    monkeypatch.setattr("gemmbench.measure.child.subprocess", subprocess)
    monkeypatch.setattr(subprocess, "Popen", popen)
    with Worker(make) as worker, pytest.raises(FileNotFoundError):
        worker.opened()
    assert seen["GEMMBENCH_OTHER"] == "kept"
    assert BUILD_OPTIONS not in seen


@pytest.mark.parametrize("chosen", ["", "folder", "missing"])
def test_what_pocl_leaves_behind_is_deleted_with_the_process(
    chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """PoCL kept each program that a killed process had built, though its compile cache was off."""
    usual, users = tmp_path / "usual", tmp_path / chosen
    (tmp_path / "folder").mkdir()
    usual.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(usual))
    monkeypatch.setenv(POCL_CACHE, str(users) if chosen else "")
    seen: list[Path] = []

    def popen(*_: object, env: dict[str, str], **__: object) -> None:
        seen.append(Path(env[POCL_CACHE]))
        if chosen != "missing":
            (seen[0] / "uncached").mkdir()
            (seen[0] / "uncached" / "program.bc").write_bytes(b"0")
        raise FileNotFoundError

    monkeypatch.setattr("gemmbench.measure.child.subprocess", subprocess)
    monkeypatch.setattr(subprocess, "Popen", popen)
    with Worker(make) as worker, pytest.raises(FileNotFoundError):
        worker.opened()
    (folder,) = seen
    assert not folder.exists()
    if chosen == "missing":
        assert folder == users  # PoCL makes it
    else:
        assert folder.parent == (users if chosen else usual)


# --- the host's BLAS has a process of its own ---------------------------------------------------------------


def states(process: int) -> set[str]:
    """Of the threads of a process."""
    tasks = Path(f"/proc/{process}/task").iterdir()
    return {(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks}


@on_linux
def test_no_thread_of_the_other_process_runs_while_one_measures(child: Worker) -> None:
    """OpenBLAS's threads spun on after a call: a kernel that alternated with it had half its rate."""
    handles = prepared(child, "spins"), on_host(child, "spins")
    workers: list[Any] = [handle.instrument for handle in handles]
    processes = [worker._process.pid for worker in workers]
    assert len(set(processes)) == 2
    for turn in (0, 1, 0):
        handles[turn].start("device", 1)
        while not workers[turn]._pipe.wait(0.05):
            assert states(processes[1 - turn]) == {"T"}
            assert "T" not in states(processes[turn])
        assert handles[turn].finish().count == 1


@pytest.mark.parametrize("variant", ["plain", "long"])
def test_a_process_that_was_stopped_works_before_it_is_timed(child: Worker, variant: str) -> None:
    device, host = prepared(child, variant), on_host(child)
    turns = (device, device, host, device, device)
    first, second, _, later, last = (int(handle.batch("device", 1).seconds["batches"]) for handle in turns)
    assert (second, last) == (first + 1, later + 1)
    if variant == "long":  # a problem of half a second is not run twice
        assert later == second + 1
    else:
        assert later > second + 2


def test_batches_that_nobody_came_for_end_before_the_process_is_stopped(child: Worker) -> None:
    device, host = prepared(child, "flies"), on_host(child)
    device.start("device", 1)
    assert pid(host) > 0
    assert not child._batches


@pytest.mark.parametrize("dying", [0, 1])
def test_a_stopped_process_can_be_killed_and_is_replaced(child: Worker, dying: int) -> None:
    handles = prepared(child), on_host(child)
    before = [pid(handle) for handle in handles]
    pid(handles[1 - dying])
    kill(child._host if dying else child)
    assert pid(handles[1 - dying]) == before[1 - dying]
    assert pid(handles[dying]) != before[dying]
    child.stop()
    assert pid(handles[1 - dying]) != before[1 - dying]


@pytest.mark.parametrize("on", [fake_runs.CPU, None])
def test_one_that_outlasts_its_time_leaves_the_other_process(child: Worker, on: DeviceFacts | None) -> None:
    other = on_host(child) if on else prepared(child)
    before = pid(other)
    hangs = child.prepare(case("hangs"), on, POLICY)
    child.limit(0.5)
    with pytest.raises(LostError, match="--time-limit") as caught:
        hangs.batch("device", 1)
    assert caught.value.handle == hangs.number != other.number
    child.limit(100)
    assert pid(other) == before


PARENT = """
import os, signal
from tests.unit import test_child
from gemmbench.measure.child import Worker
child = Worker(test_child.make)
handles = test_child.prepared(child), test_child.on_host(child)
print(*map(test_child.pid, handles), flush=True)
{end}
"""


@on_linux
@pytest.mark.parametrize("end", ["child.close()", "os.kill(os.getpid(), signal.SIGKILL)"])
def test_a_stopped_process_ends_with_its_parent(end: str) -> None:
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = [sys.executable, "-c", PARENT.format(end=end)]
    done = subprocess.run(parent, env=environment, stdout=subprocess.PIPE, check=False)
    processes = [int(word) for word in done.stdout.split()]
    assert len(processes) == 2
    until = time.monotonic() + 60
    for process in processes:
        while Path(f"/proc/{process}").exists() and states(process) != {"Z"}:
            assert time.monotonic() < until, states(process)
            time.sleep(0.01)


def test_the_host_is_described_by_its_own_process(child: Worker) -> None:
    devices, host = child.devices()
    assert (devices, host) == ((fake_runs.CPU,), fake_runs.HOST)
    assert child._host.last_words() == ""  # it has not listed the devices


def test_devices_are_listed_again_without_a_driver_that_hangs(monkeypatch: pytest.MonkeyPatch) -> None:
    def skip_failing(limit_s: float) -> tuple[drivers.Problem, ...]:
        os.environ[drivers.SKIP] = "libhangs.so"
        return (("it hangs", "leave it out"),)

    monkeypatch.setenv(drivers.SKIP, "hangs")
    monkeypatch.setattr(drivers, "skip_failing", skip_failing)
    monkeypatch.setattr(child_module, "LIST_LIMIT_S", 0.5)
    with Worker(make) as worker:
        assert worker.devices()[0] == (fake_runs.CPU,)
        assert worker.problems == (("it hangs", "leave it out"),)


def test_opening_a_device_has_a_limit_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had what was left of the 10 s for the list, and a healthy GPU seemed broken."""
    with Worker(make) as worker:
        worker.limit(0.0)
        assert worker.open(fake_runs.CPU) is None
        worker.stop()
        monkeypatch.setattr(child_module, "_START_LIMIT_S", 0.0)
        problem = worker.open(fake_runs.CPU)
        sentence = f"device 0 ({fake_runs.CPU.title}) cannot be used: opening it took more than 0 s"
        assert problem == (sentence, "")


# --- another checkout ---------------------------------------------------------------------------------------


def checkout(folder: Path, instrument: str) -> Path:
    package = folder / "gemmbench"
    (package / "measure").mkdir(parents=True)
    (package / "__init__.py").touch()
    if instrument:
        (package / "measure" / "__init__.py").touch()
        (package / "measure" / "instrument.py").write_text(instrument)
    return folder


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b'["Opened", {"colour": "blue"}]', "failed: not of protocol 2 of the instrument: "),
        (b"hello", "failed: not of protocol 2 of the instrument: "),
        (
            encode_message(Opened((fake_runs.CPU,), fake_runs.HOST, PROTOCOL + 1, "9.9")).strip(),
            "gemmbench 9.9 speaks protocol 3 of the instrument, this one 2",
        ),
    ],
)
def test_another_checkout_answers_and_is_refused_by_its_protocol(
    answer: bytes, reason: str, tmp_path: Path
) -> None:
    source = (
        "import sys\nfrom multiprocessing.connection import Connection\npipe = Connection(int(sys.argv[1]))\n"
        f"pipe.recv_bytes()\npipe.send_bytes({answer!r})"
    )
    with Worker(make, checkout(tmp_path, source)) as worker, pytest.raises(WorkerError, match=reason):
        worker.devices()


@pytest.mark.parametrize(("stated", "protocol"), [("PROTOCOL = 1\n", 1), ("", 0), (None, 0)])
def test_the_protocol_of_a_checkout_is_known_from_its_source(
    stated: str | None, protocol: int, tmp_path: Path
) -> None:
    (tmp_path / "gemmbench/model").mkdir(parents=True)
    if stated is not None:
        (tmp_path / "gemmbench/model/instrument.py").write_text(stated)
    assert protocol_of(tmp_path) == protocol
    assert protocol_of(Path(__file__).parents[2]) == PROTOCOL


def test_a_checkout_without_an_instrument_is_one_sentence(tmp_path: Path) -> None:
    with Worker(make, checkout(tmp_path, "")) as worker, pytest.raises(WorkerError) as caught:
        worker.devices()
    assert "No module named gemmbench.measure.instrument" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_another_version_is_another_process_and_a_folder_of_kernels_is_not(tmp_path: Path) -> None:
    (tmp_path / "gemmbench").mkdir()
    kernels = Case("gemm", 0, "naive", "float", {}, Gemm(8, 8, 8), kernels=str(tmp_path / "kernels"))
    with Worker(Machine) as child:
        assert child.for_old(kernels, fake_runs.CPU) == (child, kernels, fake_runs.CPU)
    assert checkout_of(str(tmp_path)) == str(tmp_path)
    assert checkout_of("driver:libOpenCL.so") == ""


def test_the_device_of_another_version() -> None:
    """A checkout's has the same name; a driver's is the one of the library that was named."""
    pocl = replace(fake_runs.POCL, origin="from OCL_ICD_VENDORS")
    assert matching_device("/before", fake_runs.CPU, [fake_runs.POCL, fake_runs.CPU]) == fake_runs.CPU
    assert matching_device("driver:libpocl.so", fake_runs.CPU, [fake_runs.CPU, pocl]) == pocl
    for former in ("/before", "driver:libpocl.so"):
        with pytest.raises(NotMeasuredError, match=f"{former} does not have the device "):
            matching_device(former, fake_runs.CPU, [fake_runs.GPU])


@pytest.mark.skipif(sys.platform == "win32", reason="signals are otherwise there")
def test_ctrl_c_ends_a_wait_though_another_thread_is_handed_it() -> None:
    ignored = signal.signal(signal.SIGINT, signal.default_int_handler)  # as a job in the background has it
    ours, theirs = multiprocessing.Pipe()
    pipe = Pipe(ours)
    threading.Timer(0.2, lambda: signal.pthread_kill(threading.get_ident(), signal.SIGINT)).start()
    begin = time.monotonic()
    with pytest.raises(KeyboardInterrupt):
        pipe.wait(20)
    assert time.monotonic() - begin < 10
    theirs.close()
    assert pipe.ended(10)
    pipe.close()
    signal.signal(signal.SIGINT, ignored)
