"""Batches in other ways: every result compared with the first, and launches recorded once."""

from __future__ import annotations

import ctypes
import time
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import Batch, NotMeasuredError, WrongResult
from gemmbench.opencl.runtime import Runtime, errors

# --- Batches of which every result is compared with the first, on the device: see `CHECKED` ----------------


_FILE = "check/compare.cl"
_GROUPS_PER_UNIT = 8
_GROUP = 256  # on a GPU
_WORDS = {4: "uint", 2: "ushort", 1: "uchar"}
_COUNTERS = 4
_CLEAR = np.array((0, 0, (1 << 32) - 1, 0), np.uint32)  # no word, no bit, none the first


class Comparer:
    """Compares buffers of one size with a reference."""

    def __init__(self, runtime: Runtime, first: Any, nbytes: int) -> None:
        self._queue, self._first = runtime.queue, first
        self._width = next(width for width in _WORDS if nbytes % width == 0)
        self._words = nbytes // self._width
        self._group = 1 if runtime.facts.type == "cpu" else min(_GROUP, runtime.facts.max_work_group_size)
        built = runtime.build(_FILE, (f"-DWORD={_WORDS[self._width]}",))
        self._kernel = runtime.kernel(built, "compare", (self._group,))
        self._items = max(1, runtime.facts.compute_units) * _GROUPS_PER_UNIT * self._group
        # Two: while one batch is read, the next is in the queue.
        self._counters = cycle([_Counters(runtime) for _ in range(2)])

    def batch(
        self,
        count: int,
        scope: str,
        erase: Callable[[int], Sequence[Any]],
        launch: Callable[[int], tuple[Sequence[Any], Any]],
    ) -> Checked:
        """Put problems into the queue, before each its result erased, and behind it compared.

        Args:
            count: of problems.
            scope: of their seconds.
            erase: enqueues what overwrites the result of a number; its events.
            launch: enqueues the problem of a number; its events, None for steps without, and its result.
        """
        counters = next(self._counters)
        counters.clear(count)
        begin = time.monotonic()
        events: list[Sequence[Any]] = []
        checks: list[Any] = []
        for number in range(count):
            checks += erase(number)
            steps, result = launch(number)
            events.append(steps)
            self._kernel.set_args(
                result, self._first, counters.buffer, np.uint32(_COUNTERS * number), np.uint32(self._words)
            )
            checks.append(
                cl.enqueue_nd_range_kernel(self._queue, self._kernel, (self._items,), (self._group,))
            )
        last = counters.read(count)
        self._queue.flush()
        return Checked(events, checks, last, counters.host[:count], self._width, scope, begin)


class _Counters:
    """Four numbers for each problem of a batch, on the device and on the host: words, bits, the first, 0."""

    def __init__(self, runtime: Runtime) -> None:
        self._runtime, self._room = runtime, 0
        self.buffer: Any = None
        self.host: HostArray = np.empty((0, _COUNTERS), np.uint32)

    def clear(self, count: int) -> None:
        if count > self._room:
            self._room = count
            self.buffer = self._runtime.buffer(count * _CLEAR.nbytes)
            self.host = self._runtime.pinned((count, _COUNTERS), np.dtype(np.uint32))
        cl.enqueue_fill_buffer(self._runtime.queue, self.buffer, _CLEAR, 0, count * _CLEAR.nbytes)

    def read(self, count: int) -> Any:
        return cl.enqueue_copy(self._runtime.queue, self.host[:count], self.buffer, is_blocking=False)


@dataclass(frozen=True)
class Checked:
    """A batch in the queue: a `measure.instrument.Running`."""

    events: Sequence[Sequence[Any]]  # of each problem
    checks: Sequence[Any]  # of erasing and comparing
    last: Any
    counted: HostArray
    width: int
    scope: str
    begin: float

    def done(self) -> bool:
        with errors():
            return int(self.last.command_execution_status) <= int(cl.command_execution_status.COMPLETE)

    def finish(self) -> Batch:
        """Wait for it: seconds of a problem and of its comparison, and the results that differ."""
        with errors():
            self.last.wait()
            end = time.monotonic()
            check_s = sum(map(_seconds, self.checks))
            count = len(self.events)
            if all(event is not None for steps in self.events for event in steps):
                spent_s = sum(_seconds(event) for steps in self.events for event in steps)
            else:
                spent_s = end - self.begin - check_s
        seconds = {self.scope: max(spent_s, 1e-9) / count, "check": check_s / count}
        return Batch(seconds, self.begin, end, count, wrong=wrong_results(self.counted, self.width))


def wrong_results(counted: HostArray, width: int) -> tuple[WrongResult, ...]:
    """The results that differ, from a row for each: words (of so many bytes), bits, the first word."""
    return tuple(
        WrongResult(number, int(bits), int(words), int(first) * width)
        for number, (words, bits, first, *_) in enumerate(counted)
        if words
    )


def erased(queue: Any, buffer: Any) -> Any:
    """Enqueue setting every bit of a buffer; the event."""
    pattern = np.uint32(0xFFFFFFFF) if buffer.size % 4 == 0 else np.uint8(0xFF)
    return cl.enqueue_fill_buffer(queue, buffer, pattern, 0, buffer.size)


def _seconds(event: Any) -> float:
    return float(event.profile.end - event.profile.start) * 1e-9


# --- Launches recorded once and enqueued as a whole, for which pyopencl has nothing -------------------------
# ``cl_khr_command_buffer``. The functions are the driver's, by the names and types of the extension's
# specification (OpenCL Extension Specification, provisional 0.9). Handles are the numbers that OpenCL gave.

EXTENSION = "cl_khr_command_buffer"

_Handle, _Count, _Status = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int
_SIGNATURES: dict[str, tuple[Any, ...]] = {  # what is returned, then what is taken
    "clCreateCommandBufferKHR": (_Handle, _Count, _Handle, _Handle, _Handle),
    "clCommandNDRangeKernelKHR": (
        *(_Status, _Handle, _Handle, _Handle, _Handle, _Count, _Handle, _Handle, _Handle),
        *(_Count, _Handle, _Handle, _Handle),
    ),
    "clFinalizeCommandBufferKHR": (_Status, _Handle),
    "clEnqueueCommandBufferKHR": (_Status, _Count, _Handle, _Handle, _Count, _Handle, _Handle),
    "clReleaseCommandBufferKHR": (_Status, _Handle),
}


class Replay:
    """A command buffer of launches on the queue of a runtime, which run in their order.

    Kernels keep the arguments that they have while they are recorded.

    Args:
        runtime: of the device.
        launches: kernels with their arguments set, their work-items and their work-groups.

    Raises:
        NotMeasuredError: unsupported: the driver has no command buffers; failed: it refused.
    """

    def __init__(
        self, runtime: Runtime, launches: Iterable[tuple[Any, Sequence[int], Sequence[int]]]
    ) -> None:
        if EXTENSION not in runtime.facts.extensions:
            raise NotMeasuredError("unsupported", f"the device does not list {EXTENSION}")
        self._functions = _functions(runtime.device.platform)
        status, queues = _Status(), (_Handle * 1)(runtime.queue.int_ptr)
        buffer = self._functions["clCreateCommandBufferKHR"](1, queues, None, ctypes.byref(status))
        _check("clCreateCommandBufferKHR", status.value)
        self._buffer = _Handle(buffer)
        weakref.finalize(self, self._functions["clReleaseCommandBufferKHR"], self._buffer)
        self._kept = []
        for kernel, items, group in launches:
            self._kept.append(kernel)
            sides = ctypes.c_size_t * len(items)
            self._call(
                *("clCommandNDRangeKernelKHR", self._buffer, None, None, _Handle(kernel.int_ptr), len(items)),
                *(None, sides(*items), sides(*group), 0, None, None, None),
            )
        self._call("clFinalizeCommandBufferKHR", self._buffer)

    def enqueue(self) -> None:
        """Put all of it into the queue; returns before it has run.

        Without an event: on PoCL 3.1 and Intel 2026.2 its stamps are 0.1 us apart, whatever was recorded.
        """
        self._call("clEnqueueCommandBufferKHR", 0, None, self._buffer, 0, None, None)

    def _call(self, name: str, *arguments: Any) -> None:
        _check(name, self._functions[name](*arguments))


def silently(queue: Any) -> Callable[[Any, Sequence[int], Sequence[int]], None]:
    """Launches a kernel in so many work-items and groups without an event, for which pyopencl has nothing."""
    enqueue = ctypes.CDLL(cl._cl.__file__).clEnqueueNDRangeKernel
    enqueue.restype = _Status
    enqueue.argtypes = (_Handle, _Handle, _Count, *([_Handle] * 3), _Count, _Handle, _Handle)

    def launch(kernel: Any, items: Sequence[int], group: Sequence[int]) -> None:
        sides = ctypes.c_size_t * len(items)
        handles = queue.int_ptr, kernel.int_ptr
        status = enqueue(*handles, len(items), None, sides(*items), sides(*group), 0, None, None)
        _check("clEnqueueNDRangeKernel", status)

    return launch


def _functions(platform: Any) -> dict[str, Any]:
    """The functions of the extension: the loader that pyopencl has loaded asks the platform for them."""
    try:
        find = ctypes.CDLL(cl._cl.__file__).clGetExtensionFunctionAddressForPlatform
    except (AttributeError, OSError) as error:
        raise NotMeasuredError("unsupported", f"the OpenCL loader cannot be asked: {error}") from None
    find.restype, find.argtypes = _Handle, (_Handle, ctypes.c_char_p)
    functions = {}
    for name, types in _SIGNATURES.items():
        address = find(platform.int_ptr, name.encode())
        if not address:
            raise NotMeasuredError("unsupported", f"the driver lists {EXTENSION}, and has no {name}")
        functions[name] = ctypes.CFUNCTYPE(*types)(address)
    return functions


def _check(name: str, status: int) -> None:
    if status:
        raise NotMeasuredError("failed", f"{name} answers with status {status}")
