"""Results compared on the device, and launches in other ways than pyopencl has."""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.opencl.runtime import Runtime, errors

_FILE = "check/compare.cl"
_GROUPS_PER_UNIT = 8
_GROUP = 256  # on a GPU
_WORDS = {4: "uint", 2: "ushort", 1: "uchar"}


class Comparer:
    """Compares buffers of one size with a reference, on the device."""

    def __init__(self, runtime: Runtime, first: Any, nbytes: int) -> None:
        self._queue, self._first = runtime.queue, first
        width = next(width for width in _WORDS if nbytes % width == 0)
        self._words = np.uint32(nbytes // width)
        self._group = 1 if runtime.facts.type == "cpu" else min(_GROUP, runtime.facts.max_work_group_size)
        built = runtime.build(_FILE, (f"-DWORD={_WORDS[width]}",))
        self._kernel = runtime.kernel(built, "compare", (self._group,))
        self._items = max(1, runtime.facts.compute_units) * _GROUPS_PER_UNIT * self._group
        # Two: while one comparison is read, the next is in the queue.
        count = np.dtype(np.uint32)
        self._counts = cycle([(runtime.buffer(4), runtime.pinned((1,), count)) for _ in range(2)])

    def compare(self, result: Any) -> Comparison:
        """Put a comparison into the queue."""
        on_device, on_host = next(self._counts)
        cl.enqueue_fill_buffer(self._queue, on_device, np.uint32(0), 0, on_device.size)
        self._kernel.set_args(result, self._first, on_device, self._words)
        cl.enqueue_nd_range_kernel(self._queue, self._kernel, (self._items,), (self._group,))
        return Comparison(cl.enqueue_copy(self._queue, on_host, on_device, is_blocking=False), on_host)


@dataclass(frozen=True)
class Comparison:
    """A comparison in the queue."""

    read: Any
    words: HostArray

    def differs(self) -> bool:
        """Wait for it; whether any bit differs."""
        with errors():
            self.read.wait()
        return bool(self.words[0])


def erased(queue: Any, buffer: Any) -> Any:
    """Enqueue setting every bit of a buffer; the event."""
    pattern = np.uint32(0xFFFFFFFF) if buffer.size % 4 == 0 else np.uint8(0xFF)
    return cl.enqueue_fill_buffer(queue, buffer, pattern, 0, buffer.size)


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
