"""Contexts, queues, programs: what every executor on an OpenCL device needs, and errors as row statuses."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import pyopencl as cl

from gemmbench.ladder.variant import PIXEL
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.kernel_files import text
from gemmbench.opencl.discovery import handle

STANDARD = "-cl-std=CL1.2"  # the least that the kernels need, and the most that Oclgrind takes

_LOG_LINES = 12

# After these the context may be beyond use, and further calls may hang.
_FATAL = ("OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "DEVICE_NOT_AVAILABLE", "INVALID_COMMAND_QUEUE")
_MEMORY = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")


@dataclass(frozen=True)
class Built:
    """A program for one device."""

    program: Any
    seconds: float  # what building it took
    log: str


class Runtime:
    """One device of this process: its context, its queues and the programs built for it.

    Raises:
        NotMeasuredError: the device cannot be opened.
    """

    def __init__(self, facts: DeviceFacts) -> None:
        self.facts = facts
        with errors():
            try:
                self.device = handle(facts)
            except LookupError as error:
                raise NotMeasuredError("failed", str(error), restart=True) from None
            self.context = cl.Context([self.device])
            profiling = cl.command_queue_properties.PROFILING_ENABLE
            self.queue = cl.CommandQueue(self.context, self.device, properties=profiling)
            self.plain_queue = cl.CommandQueue(self.context, self.device)
        self._programs: dict[tuple[str, tuple[str, ...], str], Built] = {}

    def build(self, file: str, options: tuple[str, ...], root: str = "") -> Built:
        """The program of one ``.cl`` file under one -D list, built once.

        Args:
            file: named relative to the kernels folder.
            options: that it is built with.
            root: another kernels folder than gemmbench's own.

        Raises:
            NotMeasuredError: it does not compile; the reason holds the driver's log, shortened.
        """
        key = (file, options, root)
        if key not in self._programs:
            begin = time.perf_counter()
            with warnings.catch_warnings(), errors():
                warnings.simplefilter("ignore", cl.CompilerWarning)
                program = cl.Program(self.context, text(file, root))
                try:
                    program.build(self._options(options), devices=[self.device])
                except cl.RuntimeError as error:
                    if error.code != cl.status_code.BUILD_PROGRAM_FAILURE:
                        raise
                    raise NotMeasuredError("failed", build_failure(file, str(error))) from None
                log = program.get_build_info(self.device, cl.program_build_info.LOG) or ""
            self._programs[key] = Built(program, time.perf_counter() - begin, log.strip())
        return self._programs[key]

    def _options(self, options: tuple[str, ...]) -> list[str]:
        """With the OpenCL C that the kernels are written in unless they name another, and a telling log."""
        own = any(option.startswith("-cl-std=") for option in options)
        verbose = ["-cl-nv-verbose"] if "cl_nv_compiler_options" in self.facts.extensions else []
        return [*([] if own else [STANDARD]), *options, *verbose]

    def kernel(self, built: Built, name: str, group: Sequence[int]) -> Any:
        """A kernel of its own (arguments are kept in it), checked to take work-groups of this size.

        Raises:
            NotMeasuredError: the compiled kernel needs more registers than such a group can have.
        """
        info = cl.kernel_work_group_info
        with errors():
            kernel = cl.Kernel(built.program, name)
            most = kernel.get_work_group_info(info.WORK_GROUP_SIZE, self.device)
            required = tuple(kernel.get_work_group_info(info.COMPILE_WORK_GROUP_SIZE, self.device))
        if required == (*group, 1, 1)[:3]:
            return kernel  # compiled for this very group, whatever the driver says for others
        wanted = math.prod(group)
        if wanted > most:
            raise NotMeasuredError(
                "unsupported", f"{name} takes work-groups of {most} as compiled here, not of {wanted}"
            )
        return kernel

    def buffer(self, nbytes: int, flags: int = 0) -> Any:
        """A device buffer; an empty one is a few bytes, since OpenCL has none."""
        with errors():
            return cl.Buffer(self.context, flags or cl.mem_flags.READ_WRITE, max(nbytes, 16))

    def filled(self, values: ReferenceArray) -> Any:
        """A device buffer that holds a host array's values."""
        buffer = self.buffer(values.nbytes)
        if values.size:
            with errors():
                cl.enqueue_copy(self.queue, buffer, np.ascontiguousarray(values))
        return buffer

    def image(self, width: int, height: int, dtype: np.dtype[Any], flags: int = 0) -> Any:
        """A two-dimensional RGBA image of ``width`` x ``height`` pixels, half or float by ``dtype``."""
        kind = cl.channel_type.HALF_FLOAT if dtype.itemsize == 2 else cl.channel_type.FLOAT
        form = cl.ImageFormat(cl.channel_order.RGBA, kind)
        with errors():
            return cl.create_image(
                self.context, flags or cl.mem_flags.READ_WRITE, form, shape=(width, height)
            )


def build_failure(file: str, message: str) -> str:
    """A build error for a row: what failed and the first lines of the driver's log."""
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    telling = [line for line in lines if "error" in line.lower()] or lines
    shown = telling[:_LOG_LINES]
    if len(telling) > len(shown):
        shown.append(f"... and {len(telling) - len(shown)} more lines")
    return f"{file} does not compile: " + "\n".join(shown)


@contextmanager
def errors() -> Iterator[None]:
    """Turn what the driver raises into a row's status."""
    try:
        yield
    except cl.Error as error:
        name = _code(error)
        what = "the device ran out of memory" if name in _MEMORY else "the driver reported an error"
        raise NotMeasuredError("failed", f"{what}: {error}", restart=name in _FATAL + _MEMORY) from None
    except MemoryError as error:
        raise NotMeasuredError("failed", f"out of memory: {error}", restart=True) from None


def _code(error: Any) -> str:
    try:
        return str(cl.status_code.to_string(error.code))
    except (AttributeError, ValueError):
        return ""


# --- How operands get to the device and back: mapped, staged through pinned memory, or pageable -------------


_PAGE = 4096


def choose(mode: str, device: DeviceFacts) -> str:
    """The mode for ``auto``: mapped where the device shares the host's memory, else staged."""
    if mode != "auto":
        return mode
    return "mapped" if device.unified_memory else "staged"


class Operand(Protocol):
    """One matrix that lives in host memory between problems and in `buffer` during one."""

    buffer: Any

    def fill(self, values: ReferenceArray) -> None:
        """Put values into host memory (not timed)."""

    def to_device(self, queue: Any) -> None:
        """Enqueue what makes the host's values the device's."""

    def lend(self, queue: Any) -> None:
        """Give the memory to the device without copying the values."""

    def keep_on_device(self, queue: Any) -> None:
        """Have the values on the device, without copying them twice (not timed)."""

    def to_host(self, queue: Any) -> None:
        """Bring the device's values to the host; returns when they are there."""

    def reclaim(self, queue: Any) -> None:
        """Give the memory back to the host without copying the values (not timed)."""

    def pageable(self) -> Operand:
        """The same memory of the device with an ordinary array of the host's, which holds the same values."""

    def read(self) -> ReferenceArray:
        """The values in host memory, flat."""


class Mapped:
    """One allocation that host and device take in turns."""

    def __init__(self, runtime: Runtime, count: int, dtype: np.dtype[Any]) -> None:
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self.buffer = runtime.buffer(count * dtype.itemsize, flags)
        self._queue, self._count, self._dtype = runtime.queue, count, dtype
        self._view: Any = None

    def fill(self, values: ReferenceArray) -> None:
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

    def pageable(self) -> Mapped:
        """See `Operand`: there is but one memory."""
        return self

    def read(self) -> ReferenceArray:
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

    def fill(self, values: ReferenceArray) -> None:
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

    def pageable(self) -> Copied:
        """See `Operand`."""
        other = copy(self)
        other.host = page_aligned(self.host.size, self.host.dtype)
        other.host[...] = self.host
        return other

    def read(self) -> ReferenceArray:
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

    def fill(self, values: ReferenceArray) -> None:
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

    def pageable(self) -> MappedImage:
        """See `Operand`: there is but one memory."""
        return self

    def read(self) -> ReferenceArray:
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

    def fill(self, values: ReferenceArray) -> None:
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

    def pageable(self) -> CopiedImage:
        """See `Operand`."""
        other = copy(self)
        other._staging = self._staging.pageable()
        return other

    def read(self) -> ReferenceArray:
        """See `Operand`."""
        width, height = self._region
        return np.array(self._staging.host.reshape(height, width * PIXEL)[: self._shape[0], : self._shape[1]])


def operand(
    runtime: Runtime, mode: str, shape: tuple[int, ...], dtype: np.dtype[Any], image: bool = False
) -> Operand:
    """Memory for a matrix of this shape in one of `model.case.MEMORY_MODES`, as a buffer or an image."""
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


def page_aligned(count: int, dtype: np.dtype[Any]) -> ReferenceArray:
    """An uninitialised host array that starts on a page."""
    raw = np.empty(count * dtype.itemsize + _PAGE, np.uint8)
    start = -raw.ctypes.data % _PAGE
    return raw[start : start + count * dtype.itemsize].view(dtype)
