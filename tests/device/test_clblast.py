"""CLBlast on every device: exact on edges, with guard cells; what it refuses; where it is not installed."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from gemmbench.gemm import opencl, opencl_bench
from gemmbench.gemm.opencl import Clblast, ClblastCall, ClblastExecutor
from gemmbench.gemm.verify import edge_problem
from gemmbench.ladder import BY_NAME
from gemmbench.ladder.variant import Layout
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.opencl.runtime import Runtime
from tests import in_process
from tests.device.conftest import exact_error
from tests.in_process import plan_case

QUICK = Policy(budget_s=60.0, batch_s=0.001, min_batches=3, precision=10.0)
CLBLAST = BY_NAME["clblast"]

# Libraries that must be there, such as "clblast": what a CI job sets, so that none goes missing unnoticed.
REQUIRED = os.environ.get("GEMMBENCH_REQUIRE_LIBRARIES", "").split(",")

#        m    n    k
EDGES = [(1, 1, 1), (1, 130, 3), (130, 1, 3), (3, 2, 130), (7, 13, 31), (63, 65, 64), (257, 64, 33)]
SCALARS = [(1.0, 0.0), (2.0, -1.0), (0.0, 0.0), (0.0, 1.0), (-1.0, 0.5)]

_EXECUTORS: dict[int, ClblastExecutor] = {}


@pytest.fixture(autouse=True)
def _there_is_a_library(request: pytest.FixtureRequest) -> None:
    if "device" not in request.fixturenames:
        return
    try:
        Clblast()
    except NotMeasuredError as error:
        if "clblast" in REQUIRED:
            raise
        pytest.skip(error.reason)


def executor(device: DeviceFacts) -> ClblastExecutor:
    """One for all tests: its exact test, and CLBlast itself, compile every kernel once for each context."""
    if device.index not in _EXECUTORS:
        _EXECUTORS[device.index] = ClblastExecutor(Runtime(device))
    return _EXECUTORS[device.index]


def planned(device: DeviceFacts, problem: Gemm, operands: Operands | None = None) -> Case:
    return plan_case(device, CLBLAST, problem, operands=operands, may_skip=True)


def measured(
    device: DeviceFacts, problem: Gemm, policy: Policy = QUICK, operands: Operands | None = None
) -> Row:
    made = executor(device)
    return in_process.measured(made, planned(device, problem, operands), policy)


@pytest.mark.parametrize("dtype", CLBLAST.needs.dtypes)
def test_exact_on_every_edge(device: DeviceFacts, dtype: str) -> None:
    """With guard cells, lda > k, ldb > n, ldc > n, and NaN in C where beta is 0."""
    planned(device, Gemm(8, 8, 8, dtype))
    made = executor(device)
    bind = partial(made.bind, CLBLAST, {}, {})
    for m, n, k in EDGES:
        for alpha, beta in SCALARS if (m, n, k) == (7, 13, 31) else SCALARS[:2]:
            problem = Gemm(m, n, k, dtype, alpha, beta)
            assert exact_error(made, problem, bind) == "", problem
    for trans_a, trans_b in [(False, True), (True, False), (True, True)]:
        problem = Gemm(63, 65, 64, dtype, 2.0, -1.0, trans_a=trans_a, trans_b=trans_b)
        assert exact_error(made, problem, bind) == "", problem


@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_exact_with_its_kernels_for_large_problems(device: DeviceFacts, ops: str) -> None:
    """At the size of the exact test that each run begins with."""
    made = executor(device)
    problem = edge_problem("float", CLBLAST.launches.edge({}), ops)
    assert exact_error(made, problem, partial(made.bind, CLBLAST, {}, {})) == ""


@pytest.mark.parametrize("memory", ["mapped", "staged", "pageable"])
@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_row_is_verified_and_has_a_device_and_a_host_scope(
    device: DeviceFacts, memory: str, beta: float
) -> None:
    row = measured(device, Gemm(65, 33, 70, beta=beta), replace(QUICK, memory=memory))
    assert (row.status, row.memory, row.check.verdict) == ("ok", memory, "ok")
    assert set(row.samples) == {"device", "host"}
    assert (row.launches, row.build_s, row.resources, row.source) == ((), None, (), "")
    assert re.match(r"CLBlast( \d+\.\d+\.\d+| \(.*\))?, device scope, by the wall clock: ", row.notes[0])


class Watched:
    """A queue that says what became of it."""

    def __init__(self, queue: Any) -> None:
        self._queue = queue
        self.log: list[str] = []

    @property
    def int_ptr(self) -> int:
        self.log.append("call")
        return int(self._queue.int_ptr)

    def finish(self) -> None:
        self.log.append("finish")
        self._queue.finish()


def test_the_clock_stops_when_all_calls_have_run(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, case = executor(device), planned(device, Gemm(15, 15, 15))
    bench = made.prepare(case, replace(QUICK, memory="pageable"))
    bench.start("device", 1)  # operands have reached the device
    queue = Watched(made.runtime.queue)
    monkeypatch.setattr(made.runtime, "queue", queue)
    batch = bench.start("device", 3)
    assert batch.seconds["device"] > 0
    assert queue.log == ["finish", "call", "call", "call", "finish"]  # the clock begins after the first


@pytest.mark.parametrize("beta", [0.0, 0.5])
def test_a_call_that_does_nothing_in_a_batch_is_wrong(
    device: DeviceFacts, beta: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = executor(device).prepare(planned(device, Gemm(33, 20, 44, beta=beta)), QUICK)
    assert bench.verify("before").check.verdict == "ok"
    bench.start("device", 2)
    assert bench.verify("after").check.verdict == "ok"
    with monkeypatch.context() as patch:
        patch.setattr(ClblastCall, "enqueue", lambda *_: None)
        assert getattr(bench.start("device", 3), "count", 0) == 2  # that were timed
    bench.start("device", 1)
    assert bench.verify("after").check.reasons[0].startswith("in a batch: ")


def test_a_long_problem_has_both_scopes_in_one_batch(
    device: DeviceFacts, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = executor(device).prepare(planned(device, Gemm(60, 60, 60)), QUICK)
    assert bench.verify("before").check.verdict == "ok"
    monkeypatch.setattr(opencl_bench, "LONG_S", 0.0)
    batch = bench.start("host", 2)
    assert list(batch.seconds) == ["device", "host"]
    assert 0 < batch.seconds["device"] < batch.seconds["host"]


@pytest.mark.parametrize("shape", [(0, 5, 5), (5, 0, 5), (5, 5, 0)])
def test_it_takes_no_empty_matrix(device: DeviceFacts, shape: tuple[int, int, int]) -> None:
    with pytest.raises(NotMeasuredError) as caught:
        measured(device, Gemm(*shape, beta=1.0))
    assert (caught.value.status, caught.value.reason) == (
        "unsupported",
        "CLBlast does not support empty matrices",
    )


def test_a_call_that_it_refuses_says_its_status(device: DeviceFacts) -> None:
    """Columns shorter than the matrix is high, of the operand that it calls B: its own check."""
    made, problem = executor(device), Gemm(8, 8, 8)
    buffers = {name: made.runtime.buffer(1024) for name in ("A", "B", "C")}
    (call,) = made.bind(CLBLAST, {}, {}, problem, Layout(4, 8, 8), buffers)
    with pytest.raises(
        NotMeasuredError, match=r"CLBlast answers with status -1015: see clblast_c\.h"
    ) as caught:
        call.enqueue(made.runtime.queue)
    assert caught.value.status == "failed"


# --- without the library ---------------------------------------------------------------------------------


def prepared(library: Clblast, problem: Gemm) -> ClblastCall:
    """A call on buffers and a queue that are numbers alone."""
    buffers = {name: SimpleNamespace(int_ptr=number) for number, name in enumerate("ABC", 1)}
    return library.call(problem, Layout.tight(problem), buffers, [SimpleNamespace(int_ptr=4)])


class Refusing:
    """A library whose every function answers with one status."""

    def __init__(self, status: int) -> None:
        self._status = status

    def __getattr__(self, name: str) -> object:
        if not name.startswith("CLBlast"):
            raise AttributeError(name)
        return ctypes.CFUNCTYPE(ctypes.c_int)(lambda: self._status)


@pytest.fixture
def nothing_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(opencl, "_FILES", ())
    monkeypatch.setattr("ctypes.util.find_library", lambda _: None)


def test_where_it_is_not_installed_the_reason_says_what_to_install(nothing_installed: None) -> None:
    with pytest.raises(NotMeasuredError) as caught:
        Clblast()
    assert (caught.value.status, caught.value.reason) == (
        "unsupported",
        "CLBlast is not there: install CLBlast (libclblast1 on Debian and Ubuntu)",
    )


@pytest.mark.parametrize(
    ("status", "outcome", "reason"),
    [
        (-2045, "unsupported", "CLBlast answers with status -2045: the device has no half precision"),
        (-11, "failed", "CLBlast answers with status -11: its kernel does not compile"),
        (-36, "failed", "CLBlast answers with status -36: see clblast_c.h"),
    ],
)
def test_what_a_status_becomes(
    monkeypatch: pytest.MonkeyPatch, status: int, outcome: str, reason: str
) -> None:
    monkeypatch.setattr(opencl, "load_library", lambda *_: Refusing(status))
    with pytest.raises(NotMeasuredError) as caught:
        prepared(Clblast(), Gemm(2, 2, 2)).enqueue(SimpleNamespace(int_ptr=4))
    assert (caught.value.status, caught.value.reason) == (outcome, reason)


@pytest.mark.parametrize("batch", [1, 3])
def test_what_a_call_needs_is_made_before_the_clock_starts(
    batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looking the function up and making its arguments took Python 13.7 us, the time of a small problem."""
    library, received = Refusing(0), []

    def function(*arguments: object) -> int:
        received.append(arguments)
        return 0

    monkeypatch.setattr(Refusing, "__getattr__", lambda *_: function)
    monkeypatch.setattr(opencl, "load_library", lambda *_: library)
    monkeypatch.setattr(opencl, "_title", lambda _: "CLBlast")
    call = prepared(Clblast(), Gemm(2, 2, 2, batch=batch))
    received.clear()  # questions about temporary buffers

    def forbidden(*_: object) -> object:
        raise AssertionError("made while the clock runs")

    monkeypatch.setattr(Refusing, "__getattr__", forbidden)
    monkeypatch.setattr(Layout, "of", forbidden)
    for name in ("byref", "c_void_p", "c_size_t", "c_float", "c_double", "c_uint16"):
        monkeypatch.setattr(ctypes, name, forbidden)
    for _ in range(2):
        call.enqueue(SimpleNamespace(int_ptr=4))
    assert len(received) == 2
    assert all(first is second for first, second in zip(*received, strict=True))


class Recording:
    """A library that records each product, and needs `bytes_of` an order for its temporary buffer."""

    def __init__(self, bytes_of: Mapping[int, int], lacks: str = "") -> None:
        self._bytes_of, self._lacks = bytes_of, lacks
        self.calls = list[tuple[str, tuple[Any, ...]]]()

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("CLBlast") or name == self._lacks:
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            plain = tuple(getattr(argument, "value", argument) for argument in arguments)
            if name.endswith("TempBufferSize"):
                arguments[-1]._obj.value = self._bytes_of[plain[0]]
            else:
                self.calls.append((name, plain))
            return 0

        return call


ROW_MAJOR, COLUMN_MAJOR, NO, YES = 101, 102, 111, 112
TN = Gemm(5, 6, 7, alpha=2.0, beta=0.5, trans_a=True)  # A is 7 x 5, B is 7 x 6


@pytest.mark.parametrize(
    ("bytes_of", "lacks", "expected"),
    [
        ({ROW_MAJOR: 8, COLUMN_MAJOR: 4}, "", COLUMN_MAJOR),
        ({ROW_MAJOR: 0, COLUMN_MAJOR: 0}, "", COLUMN_MAJOR),
        ({ROW_MAJOR: 4, COLUMN_MAJOR: 8}, "", ROW_MAJOR),
        ({ROW_MAJOR: 4, COLUMN_MAJOR: 8}, "CLBlastSGemmTempBufferSize", COLUMN_MAJOR),
    ],
)
def test_the_call_is_in_the_order_that_copies_less(
    monkeypatch: pytest.MonkeyPatch, bytes_of: dict[int, int], lacks: str, expected: int
) -> None:
    """Column-major, the operands and m and n change places: C^T = op(B)^T op(A)^T."""
    library = Recording(bytes_of, lacks)
    monkeypatch.setattr(opencl, "load_library", lambda *_: library)
    monkeypatch.setattr(opencl, "_title", lambda _: "CLBlast")
    prepared(Clblast(), TN).enqueue(SimpleNamespace(int_ptr=4))
    ((name, arguments),) = library.calls
    a, b, c = (1, 0, 5), (2, 0, 6), (3, 0, 6)  # buffer, offset, leading dimension
    sides = {
        ROW_MAJOR: (ROW_MAJOR, YES, NO, 5, 6, 7, 2.0, *a, *b, 0.5, *c),
        COLUMN_MAJOR: (COLUMN_MAJOR, NO, YES, 6, 5, 7, 2.0, *b, *a, 0.5, *c),
    }
    assert (name, arguments[:-2]) == ("CLBlastSgemm", sides[expected])


def test_strides_of_a_batch_follow_their_matrices(monkeypatch: pytest.MonkeyPatch) -> None:
    library = Recording({ROW_MAJOR: 8, COLUMN_MAJOR: 4})
    monkeypatch.setattr(opencl, "load_library", lambda *_: library)
    monkeypatch.setattr(opencl, "_title", lambda _: "CLBlast")
    prepared(Clblast(), replace(TN, batch=3)).enqueue(SimpleNamespace(int_ptr=4))
    ((name, arguments),) = library.calls
    assert name == "CLBlastSgemmStridedBatched"
    b, a, c = (2, 0, 6, 42), (1, 0, 5, 35), (3, 0, 6, 30)
    assert arguments[:-2] == (COLUMN_MAJOR, NO, YES, 6, 5, 7, 2.0, *b, *a, 0.5, *c, 3)


@pytest.mark.parametrize("ops", ["NN", "NT", "TN", "TT"])
def test_no_order_of_a_large_product_copies_less_than_the_one_called(device: DeviceFacts, ops: str) -> None:
    made = executor(device)
    edge = 1536  # above the limit of the single kernel
    problem = Gemm(edge, 2 * edge, edge, trans_a=ops[0] == "T", trans_b=ops[1] == "T")
    buffers = {name: made.runtime.buffer(8 * edge * edge) for name in "ABC"}
    (call,) = made.bind(CLBLAST, {}, {}, problem, Layout.tight(problem), buffers)
    order, op_a, op_b, m, n, k = call.arguments[:6]
    lds = [call.arguments[index] for index in (9, 12, 16)]
    queue = ctypes.byref(ctypes.c_void_p(made.runtime.queue.int_ptr))
    size, zero = ctypes.c_size_t(), ctypes.c_size_t(0)
    bytes_of = {}
    for each, sides in {
        order: (op_a, op_b, m, n, k, zero, lds[0], zero, lds[1]),
        ROW_MAJOR + COLUMN_MAJOR - order: (op_b, op_a, n, m, k, zero, lds[1], zero, lds[0]),
    }.items():
        ask = made._library._library.CLBlastSGemmTempBufferSize
        assert ask(each, *sides, zero, lds[2], queue, ctypes.byref(size)) == 0
        bytes_of[each] = size.value
    assert min(bytes_of.values()) == bytes_of[order]
    assert len(set(bytes_of.values())) == 2


@pytest.mark.parametrize(
    ("file", "title"),
    [
        ("libclblast.so.1.5.3", "CLBlast 1.5.3"),
        ("libclblast.1.6.3.dylib", "CLBlast 1.6.3"),
        ("clblast.dll", "CLBlast (clblast.dll)"),
        (None, "CLBlast"),
    ],
)
def test_its_version_is_its_files(monkeypatch: pytest.MonkeyPatch, file: str | None, title: str) -> None:
    monkeypatch.setattr(opencl, "load_library", lambda *_: Refusing(0))
    monkeypatch.setattr(opencl, "file_of", lambda _: Path(file) if file else None)
    assert Clblast().title == title
