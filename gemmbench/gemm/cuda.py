"""One NVIDIA GPU through CUDA's driver interface: memory, a stream, stopwatches, graphs."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import cycle
from typing import Any

import numpy as np

from gemmbench.gemm.opencl import opened
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import NotMeasuredError

_FILES = ("libcuda.so.1", "nvcuda.dll")
_ADVICE = "install NVIDIA's driver with CUDA (libcuda1 on Debian)"
_LEAST_BYTES = 16  # CUDA has no empty memory
_NAME_BYTES = 256
_OUT_OF_MEMORY = 2
_NOT_READY = 600
_CAPTURE_OF_THIS_THREAD = 1


@dataclass(frozen=True)
class Stopwatch:
    """Two events in a stream."""

    begin: ctypes.c_void_p
    end: ctypes.c_void_p


class Cuda:
    """The GPU that OpenCL describes by these facts, as this process's current CUDA device.

    Raises `NotMeasuredError` (unsupported) if there is no CUDA, or it does not show this GPU.
    """

    def __init__(self, facts: DeviceFacts) -> None:
        """Start CUDA on the GPU, with one stream and two stopwatches."""
        self._library = opened("CUDA", _FILES, _ADVICE)
        self._call("cuInit", 0)
        device = self._find(facts)
        context = ctypes.c_void_p()
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._call("cuCtxSetCurrent", context)
        self.stream = ctypes.c_void_p()
        self._call("cuStreamCreate", ctypes.byref(self.stream), 0)
        # Two: while one batch runs, the next is put behind it.
        self._watches = cycle([self._stopwatch() for _ in range(2)])

    @contextmanager
    def memory(self, nbytes: int) -> Iterator[int]:
        """The address of so many bytes on the device, freed at the end.

        `NotMeasuredError` if out of memory.
        """
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, _LEAST_BYTES)))
        try:
            yield address.value
        finally:
            self._library.cuMemFree_v2(address)

    @contextmanager
    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[HostArray]:
        """An uninitialised array in page-locked host memory, freed at the end."""
        nbytes = max(int(np.prod(shape)) * dtype.itemsize, _LEAST_BYTES)
        address = ctypes.c_void_p()
        self._call("cuMemHostAlloc", ctypes.byref(address), ctypes.c_size_t(nbytes), 0)
        try:
            raw = (ctypes.c_uint8 * nbytes).from_address(address.value or 0)
            yield np.frombuffer(memoryview(raw), dtype, int(np.prod(shape))).reshape(shape)
        finally:
            self._library.cuMemFreeHost(address)

    def to_device(self, address: int, values: HostArray) -> None:
        """Enqueue a copy of a contiguous array to the device."""
        if values.size:
            pointer, length = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
            self._call("cuMemcpyHtoDAsync_v2", ctypes.c_uint64(address), pointer, length, self.stream)

    def to_host(self, values: HostArray, address: int) -> None:
        """Copy from the device into a contiguous array; returns when the values are there."""
        if values.size:
            pointer, length = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
            self._call("cuMemcpyDtoHAsync_v2", pointer, ctypes.c_uint64(address), length, self.stream)
        self.finish()

    def finish(self) -> None:
        """Wait for all enqueued work. `NotMeasuredError` if some failed: CUDA is then beyond use."""
        self._call("cuStreamSynchronize", self.stream)

    def start(self) -> Stopwatch:
        """A stopwatch that starts when the device gets there.

        The previous one may still run: two alternate.
        """
        watch = next(self._watches)
        self._call("cuEventRecord", watch.begin, self.stream)
        return watch

    def stop(self, watch: Stopwatch) -> None:
        self._call("cuEventRecord", watch.end, self.stream)

    def graph(self, enqueue: Callable[[], None]) -> ctypes.c_void_p:
        """What a function enqueues, captured as a CUDA graph: nothing runs before `replay`.

        Raises the function's errors, and `NotMeasuredError` if the driver cannot capture it.
        """
        captured, graph = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", self.stream, _CAPTURE_OF_THIS_THREAD)
        try:
            try:
                enqueue()
            except BaseException:
                self._library.cuStreamEndCapture(self.stream, ctypes.byref(captured))
                raise
            self._call("cuStreamEndCapture", self.stream, ctypes.byref(captured))
            self._call("cuGraphInstantiateWithFlags", ctypes.byref(graph), captured, ctypes.c_uint64(0))
        finally:
            if captured:
                self._library.cuGraphDestroy(captured)
        return graph

    def replay(self, graph: ctypes.c_void_p) -> None:
        self._call("cuGraphLaunch", graph, self.stream)

    def forget(self, graph: ctypes.c_void_p) -> None:
        self._library.cuGraphExecDestroy(graph)

    def reached(self, watch: Stopwatch) -> bool:
        """Whether the device has stopped the stopwatch, or failed."""
        return int(self._library.cuEventQuery(watch.end)) != _NOT_READY

    def seconds(self, watch: Stopwatch) -> float:
        """Wait until a stopwatch is stopped; its seconds. `NotMeasuredError` if enqueued work failed."""
        self._call("cuEventSynchronize", watch.end)
        milliseconds = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(milliseconds), watch.begin, watch.end)
        return milliseconds.value * 1e-3

    def _stopwatch(self) -> Stopwatch:
        watch = Stopwatch(ctypes.c_void_p(), ctypes.c_void_p())
        for event in (watch.begin, watch.end):
            self._call("cuEventCreate", ctypes.byref(event), 0)
        return watch

    def _find(self, facts: DeviceFacts) -> ctypes.c_int:
        """The GPU in the device's PCI slot, or the only one of its name.

        `NotMeasuredError` if there is none.
        """
        device = ctypes.c_int()
        if facts.pci:
            if self._library.cuDeviceGetByPCIBusId(ctypes.byref(device), facts.pci.encode()):
                raise NotMeasuredError("unsupported", f"CUDA does not show the GPU at {facts.pci}")
            return device
        count = ctypes.c_int()
        self._call("cuDeviceGetCount", ctypes.byref(count))
        named = [index for index in range(count.value) if self._name(index) == facts.name]
        if len(named) != 1:
            raise NotMeasuredError("unsupported", f"CUDA shows {len(named)} GPUs called {facts.name}")
        self._call("cuDeviceGet", ctypes.byref(device), named[0])
        return device

    def _name(self, index: int) -> str:
        device, name = ctypes.c_int(), ctypes.create_string_buffer(_NAME_BYTES)
        self._call("cuDeviceGet", ctypes.byref(device), index)
        self._call("cuDeviceGetName", name, _NAME_BYTES, device)
        return name.value.decode(errors="replace")

    def _call(self, function: str, *arguments: Any) -> None:
        """Call the driver. Errors become `NotMeasuredError`; all but a lack of memory need a new process."""
        status = getattr(self._library, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            words = (text.value or b"no such error").decode(errors="replace")
            if function == "cuInit":
                raise NotMeasuredError("unsupported", f"CUDA does not start: {words}")
            what = "the device ran out of memory" if status == _OUT_OF_MEMORY else f"{function} failed"
            raise NotMeasuredError("failed", f"{what}: CUDA says {words}", restart=status != _OUT_OF_MEMORY)
