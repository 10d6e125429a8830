"""Launches recorded once and enqueued as a whole: ``cl_khr_command_buffer``, for which pyopencl has nothing.

The functions are the driver's, by the names and types of the extension's specification (OpenCL Extension
Specification, cl_khr_command_buffer, provisional 0.9). Handles are the numbers that OpenCL gave them.
"""

from __future__ import annotations

import ctypes
import weakref
from collections.abc import Iterable, Sequence
from typing import Any

import pyopencl as cl

from gemmbench.model.instrument import NotMeasuredError
from gemmbench.opencl.runtime import Runtime

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
