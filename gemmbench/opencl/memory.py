"""How operands get to the device and back: mapped, staged through pinned memory, or pageable."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import pyopencl as cl

from gemmbench.facts.records import DeviceFacts
from gemmbench.opencl.runtime import Runtime, errors
from gemmbench.rules.reference import Array
from gemmbench.rules.variants.model import PIXEL

_PAGE = 4096


def choose(mode: str, device: DeviceFacts) -> str:
    """The mode for ``auto``: mapped where the device shares the host's memory, else staged."""
    if mode != "auto":
        return mode
    return "mapped" if device.unified_memory else "staged"


class Operand(Protocol):
    """One matrix that lives in host memory between problems and in `buffer` during one."""

    buffer: Any

    def fill(self, values: Array) -> None:
        """Put values into host memory (not timed)."""

    def to_device(self, queue: Any) -> None:
        """Enqueue what makes the host's values the device's."""

    def lend(self, queue: Any) -> None:
        """Give the memory to the device, which does not want the values."""

    def keep_on_device(self, queue: Any) -> None:
        """Have the values on the device, without copying them twice (not timed)."""

    def to_host(self, queue: Any) -> None:
        """Bring the device's values to the host; returns when they are there."""

    def reclaim(self, queue: Any) -> None:
        """Give the memory back to the host without wanting its values (not timed)."""

    def read(self) -> Array:
        """The values in host memory, flat."""


class Mapped:
    """One allocation that host and device take in turns."""

    def __init__(self, runtime: Runtime, count: int, dtype: np.dtype[Any]) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self.buffer = runtime.buffer(count * dtype.itemsize, flags)
        self._queue, self._count, self._dtype = runtime.queue, count, dtype
        self._view: Any = None

    def fill(self, values: Array) -> None:
        """See `Operand`."""
        self.reclaim(self._queue)
        self._view[...] = values.reshape(-1)

    def to_device(self, queue: Any) -> None:
        """See `Operand`."""
        if self._view is not None:
            if self._count:
                self._view.base.release(queue)
            self._view = None

    lend = to_device
    keep_on_device = to_device

    def to_host(self, queue: Any) -> None:
        """See `Operand`."""
        if self._view is not None:
            return
        if self._count == 0:
            queue.finish()
            self._view = np.empty(0, self._dtype)
            return
        flags = cl.map_flags.READ | cl.map_flags.WRITE
        self._view, _ = cl.enqueue_map_buffer(
            queue, self.buffer, flags, 0, (self._count,), self._dtype, is_blocking=True
        )

    reclaim = to_host

    def read(self) -> Array:
        """See `Operand`."""
        self.to_host(self._queue)
        return np.array(self._view)


class Copied:
    """A device buffer and a host array, pinned or pageable."""

    def __init__(self, runtime: Runtime, count: int, dtype: np.dtype[Any], pinned: bool) -> None:
        nbytes = count * dtype.itemsize
        self.buffer = runtime.buffer(nbytes)
        self._pinned: Any = None
        if pinned and count:
            flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
            self._pinned = runtime.buffer(nbytes, flags)
            both = cl.map_flags.READ | cl.map_flags.WRITE
            with errors():
                self.host, _ = cl.enqueue_map_buffer(
                    runtime.queue, self._pinned, both, 0, (count,), dtype, is_blocking=True
                )
        else:
            self.host = page_aligned(count, dtype)
        self._changed = True  # in host memory since the last copy to the device

    def fill(self, values: Array) -> None:
        """See `Operand`."""
        self.host[...] = values.reshape(-1)
        self._changed = True

    def to_device(self, queue: Any) -> None:
        """See `Operand`."""
        if self.host.size:
            cl.enqueue_copy(queue, self.buffer, self.host, is_blocking=False)
        self._changed = False

    def lend(self, queue: Any) -> None:
        """See `Operand`."""

    def keep_on_device(self, queue: Any) -> None:
        """See `Operand`."""
        if self._changed:
            self.to_device(queue)

    def to_host(self, queue: Any) -> None:
        """See `Operand`."""
        if self.host.size:
            cl.enqueue_copy(queue, self.host, self.buffer, is_blocking=True)
        else:
            queue.finish()

    def reclaim(self, queue: Any) -> None:
        """See `Operand`."""

    def read(self) -> Array:
        """See `Operand`."""
        return np.array(self.host)


class MappedImage:
    """An RGBA image that host and device take in turns: a row of the matrix in each row of pixels."""

    def __init__(self, runtime: Runtime, shape: tuple[int, int], dtype: np.dtype[Any]) -> None:
        self._size = (max(1, -(-shape[1] // PIXEL)), max(1, shape[0]))  # in pixels
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self.buffer = runtime.image(*self._size, dtype, flags)
        self._queue, self._shape, self._dtype = runtime.queue, shape, dtype
        self._pitch = self._size[0] * PIXEL * dtype.itemsize  # bytes from row to row; what the map says
        self._view: Any = None

    def fill(self, values: Array) -> None:
        """See `Operand`."""
        self.reclaim(self._queue)
        self._view[...] = 0
        self._view[: values.shape[0], : values.shape[1]] = values

    def to_device(self, queue: Any) -> None:
        """See `Operand`."""
        if self._view is not None:
            self._view.base.release(queue)
            self._view = None

    lend = to_device
    keep_on_device = to_device

    def to_host(self, queue: Any) -> None:
        """See `Operand`."""
        while self._view is None:
            view, pitch = self._map(queue)
            if pitch == self._pitch:
                self._view = view
            else:  # the driver pads rows: look again, at that distance
                view.base.release(queue)
                self._pitch = pitch

    def _map(self, queue: Any) -> tuple[Any, int]:
        width, height = self._size
        view, _, pitch, _ = cl.enqueue_map_image(
            queue,
            self.buffer,
            cl.map_flags.READ | cl.map_flags.WRITE,
            (0, 0),
            (width, height),
            (height, width * PIXEL),
            self._dtype,
            strides=(self._pitch, self._dtype.itemsize),
            is_blocking=True,
        )
        return view, pitch

    reclaim = to_host

    def read(self) -> Array:
        """See `Operand`."""
        self.to_host(self._queue)
        return np.array(self._view[: self._shape[0], : self._shape[1]])


class CopiedImage:
    """An RGBA image and a host array whose rows are whole pixels, pinned or pageable."""

    def __init__(self, runtime: Runtime, shape: tuple[int, int], dtype: np.dtype[Any], pinned: bool) -> None:
        width, height = max(1, -(-shape[1] // PIXEL)), max(1, shape[0])
        self.buffer = runtime.image(width, height, dtype)
        self._shape, self._region = shape, (width, height)
        self._staging = Copied(runtime, height * width * PIXEL, dtype, pinned)
        self._changed = True

    def fill(self, values: Array) -> None:
        """See `Operand`."""
        width, height = self._region
        rows = np.zeros((height, width * PIXEL), values.dtype)
        rows[: values.shape[0], : values.shape[1]] = values
        self._staging.fill(rows)
        self._changed = True

    def to_device(self, queue: Any) -> None:
        """See `Operand`."""
        cl.enqueue_copy(
            queue, self.buffer, self._staging.host, origin=(0, 0), region=self._region, is_blocking=False
        )
        self._changed = False

    def lend(self, queue: Any) -> None:
        """See `Operand`."""

    def keep_on_device(self, queue: Any) -> None:
        """See `Operand`."""
        if self._changed:
            self.to_device(queue)

    def to_host(self, queue: Any) -> None:
        """See `Operand`."""
        cl.enqueue_copy(queue, self._staging.host, self.buffer, origin=(0, 0), region=self._region)

    def reclaim(self, queue: Any) -> None:
        """See `Operand`."""

    def read(self) -> Array:
        """See `Operand`."""
        width, height = self._region
        return np.array(self._staging.host.reshape(height, width * PIXEL)[: self._shape[0], : self._shape[1]])


def operand(
    runtime: Runtime, mode: str, shape: tuple[int, ...], dtype: np.dtype[Any], image: bool = False
) -> Operand:
    """Memory for a matrix of this shape in one of `facts.records.MEMORY_MODES`, as a buffer or an image."""
    rows, columns = shape
    with errors():
        if mode == "mapped":
            if image:
                return MappedImage(runtime, (rows, columns), dtype)
            return Mapped(runtime, rows * columns, dtype)
        pinned = mode == "staged"
        if image:
            return CopiedImage(runtime, (rows, columns), dtype, pinned)
        return Copied(runtime, rows * columns, dtype, pinned)


def page_aligned(count: int, dtype: np.dtype[Any]) -> Array:
    """An uninitialised host array that starts on a page."""
    raw = np.empty(count * dtype.itemsize + _PAGE, np.uint8)
    start = -raw.ctypes.data % _PAGE
    return raw[start : start + count * dtype.itemsize].view(dtype)
