"""Results compared on the device, and launches in other ways than pyopencl has."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
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


def erase(queue: Any, buffer: Any) -> None:
    """Enqueue setting every bit of a buffer."""
    pattern = np.uint32(0xFFFFFFFF) if buffer.size % 4 == 0 else np.uint8(0xFF)
    cl.enqueue_fill_buffer(queue, buffer, pattern, 0, buffer.size)


_Handle, _Count, _Status = ctypes.c_void_p, ctypes.c_uint, ctypes.c_int


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


def _check(name: str, status: int) -> None:
    if status:
        raise NotMeasuredError("failed", f"{name} answers with status {status}")
