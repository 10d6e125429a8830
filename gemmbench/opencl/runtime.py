"""What runs on an OpenCL device: contexts, queues, programs, memory, resources; errors as row statuses."""

from __future__ import annotations

import ctypes
import math
import mmap
import re
import time
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.ladder.variant import PIXEL, Pass, Values, Variant
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import PAGE, HostArray, allocate_page_aligned, by_parts
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.kernel_files import shown_name, text
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Resources, Status
from gemmbench.model.units import ceil_div
from gemmbench.opencl.discovery import c_function, handle
from gemmbench.opencl.drivers import no_context, sentence

STANDARD = "-cl-std=CL1.2"  # the least that the kernels need, and the most that Oclgrind takes

_FIRST_STANDARD = ("-cl-std=CL1.1", "-Dstatic=", "-Dinline=")  # which has no ``static`` functions

_LOG_LINES = 12
_MOST_PROGRAMS = 256  # more than all kernels have in one data type; a tuner builds thousands
_FILLED_AT_ONCE = 1 << 30  # bytes
_CHAIN = 50  # launches that are timed together, to know what one costs
_CHAINS = 5
_CYCLES = 4  # of a dependent multiply-add

_UNNAMED = "UNNAMED"  # a code that OpenCL does not name
_OUTSIDE_BUFFERS = -9999  # NVIDIA's code after a kernel accessed memory outside its buffers
# After these the context may be beyond use, and further calls may hang.
_FATAL = ("OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "DEVICE_NOT_AVAILABLE", "INVALID_COMMAND_QUEUE", _UNNAMED)
_MEMORY = ("MEM_OBJECT_ALLOCATION_FAILURE", "OUT_OF_RESOURCES", "OUT_OF_HOST_MEMORY", "INVALID_BUFFER_SIZE")


@dataclass(frozen=True)
class BuiltProgram:
    """A program for one device."""

    program: Any
    seconds: float  # what building it took
    log: str


class Runtime:
    """One device of this process: its context, its queues and the programs built for it.

    `queue` times events if the driver can (`has_clock`). `origin_ns` is the device's clock at the start.
    """

    def __init__(self, facts: DeviceFacts) -> None:
        self.facts = facts
        with errors():
            try:
                self.device = handle(facts)
            except LookupError as error:
                raise NotMeasuredError("failed", str(error), restart=True) from None
            try:
                self.context = cl.Context([self.device])
            except cl.Error as error:
                why = sentence(no_context(facts.library, error))
                raise NotMeasuredError("failed", why, restart=True) from None
            self.plain_queue = cl.CommandQueue(self.context, self.device)
            self.queue, self.origin_ns = _timing_queue(self.context, self.device, self.plain_queue)
        self.has_clock = self.origin_ns > 0
        self._cached_build = lru_cache(_MOST_PROGRAMS)(self._build)

    def build(self, file: str, options: tuple[str, ...], root: str = "", target: str = "") -> BuiltProgram:
        """The program of one ``.cl`` file (of `root`) with options, built or from the cache of the last 256.

        With a `target`, it is built again from PTX. Raises `NotMeasuredError` with the driver's log.
        """
        return self._cached_build(file, options, root, target)

    def _build(self, file: str, options: tuple[str, ...], root: str, target: str) -> BuiltProgram:
        if target:
            return rebuild_from_ptx(self, file, self.build(file, options, root), target)
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
        return BuiltProgram(program, time.perf_counter() - begin, log.strip())

    def _options(self, options: tuple[str, ...]) -> list[str]:
        """The options with gemmbench's OpenCL C version and NVIDIA's verbose log."""
        names_standard = any(option.startswith("-cl-std=") for option in options)
        verbose = ["-cl-nv-verbose"] if "cl_nv_compiler_options" in self.facts.extensions else []
        if self.facts.device_version.startswith("OpenCL 1.1"):  # Mesa's Clover, which takes no more
            return [*_FIRST_STANDARD, *options]
        return [*([] if names_standard else [STANDARD]), *options, *verbose]

    def kernel(self, built: BuiltProgram, name: str, group: Sequence[int]) -> Any:
        """A new kernel object with its own arguments. `NotMeasuredError` if the group is too large."""
        return self.shaped(built, name, lambda _: group)[0]

    def shaped(
        self, built: BuiltProgram, name: str, shape: Callable[[int], Sequence[int]]
    ) -> tuple[Any, tuple[int, ...]]:
        """As `kernel`, with the work-group that `shape` returns for the most work-items."""
        with errors():
            kernel = cl.Kernel(built.program, name)
            most, required = self.group_limit(kernel)
        group = tuple(shape(most))
        wanted, is_compiled_for = math.prod(group), required == (*group, 1, 1)[:3]
        if any(required) and not is_compiled_for:
            sides = " x ".join(map(str, required[: max(2, len(group))]))
            reason = f"{name} requires work-groups of {sides}, work_group says {' x '.join(map(str, group))}"
            raise NotMeasuredError("failed", reason)
        if wanted > most and not is_compiled_for:  # else it takes it, whatever the driver says of others
            reason = f"{name} supports work-groups of up to {most} work-items, not {wanted}"
            raise NotMeasuredError("unsupported", reason)
        return kernel, group

    def group_limit(self, kernel: Any) -> tuple[int, tuple[int, ...]]:
        """The most work-items of a compiled kernel, and the group that it was compiled for, or 0s."""
        info = cl.kernel_work_group_info
        most = int(kernel.get_work_group_info(info.WORK_GROUP_SIZE, self.device))
        required = tuple(kernel.get_work_group_info(info.COMPILE_WORK_GROUP_SIZE, self.device))
        is_unknown = self.facts.family == "gpu-nvidia" and not any(required)
        return max(most, self.facts.max_work_group_size) if is_unknown else most, required

    def fitted(
        self, built: BuiltProgram, step: Pass, values: Values, fixed: bool = False
    ) -> tuple[Any, tuple[int, ...]]:
        """The kernel of a pass, and its work-group, made smaller if necessary (`Pass.group_within`)."""
        sides = self.facts.max_work_item_sizes
        return self.shaped(built, step.kernel, lambda most: step.group_within(values, most, sides, fixed))

    @cached_property
    def launch_s(self) -> float:
        """Wall seconds of an empty kernel on every unit: median of five chains of 50 launches."""
        items = (4 * max(1, self.facts.compute_units),)
        kernel = self.kernel(self.build("memory/empty.cl", ()), "empty", (1,))
        chains = []
        with errors():
            for _ in range(_CHAINS + 1):
                begin = time.perf_counter()
                for _ in range(_CHAIN):
                    cl.enqueue_nd_range_kernel(self.queue, kernel, items, (1,))
                self.queue.finish()
                chains.append(time.perf_counter() - begin)
        return sorted(chains[1:])[_CHAINS // 2] / _CHAIN

    def wait(self, seconds: float) -> Any:
        """Enqueue keeping one unit of an NVIDIA GPU busy for about ``seconds``; return the event."""
        kernel = self.kernel(self.build("memory/wait.cl", ()), "wait", (1,))
        with errors():
            kernel.set_args(np.int32(seconds * self.facts.clock_mhz * 1e6 / _CYCLES), self._waited)
            event = cl.enqueue_nd_range_kernel(self.queue, kernel, (1,), (1,))
            self.queue.flush()
        return event

    @contextmanager
    def held(self) -> Iterator[None]:
        """On a CPU, hold what is enqueued until the block ends: enqueuing takes a core."""
        if self.facts.type != "cpu":
            yield
            return
        start = cl.UserEvent(self.context)
        cl.enqueue_barrier(self.queue, wait_for=[start])
        try:
            yield
        finally:
            start.set_status(cl.command_execution_status.COMPLETE)

    @cached_property
    def _waited(self) -> Any:
        return self.filled(np.ones(1, np.float32))

    @cached_property
    def silent(self) -> Any:
        """OpenCL's function to enqueue a kernel without an event, whose time stamps cost 3 us on an H100."""
        return c_function("clEnqueueNDRangeKernel") if self.facts.family == "gpu-nvidia" else None

    def enqueue_silently(self, kernel: Any, items: tuple[int, ...], group: tuple[int, ...]) -> None:
        sides = [(ctypes.c_size_t * len(items))(*each) for each in (items, group)]
        handles = [ctypes.c_void_p(each.int_ptr) for each in (self.queue, kernel)]
        if status := self.silent(*handles, len(items), None, *sides, 0, None, None):
            raise NotMeasuredError("failed", f"the driver refused a launch: status {status}", restart=True)

    def buffer(self, nbytes: int, flags: int = 0) -> Any:
        """A device buffer; an empty one is a few bytes, since OpenCL has none."""
        with errors():
            return cl.Buffer(self.context, flags or cl.mem_flags.READ_WRITE, max(nbytes, 16))

    def fill(self, buffer: Any, pattern: Any, nbytes: int) -> None:
        """Enqueue filling a buffer, in parts: NVIDIA's driver hangs at 2^31 words."""
        for start in range(0, nbytes, _FILLED_AT_ONCE):
            length = min(_FILLED_AT_ONCE, nbytes - start)
            cl.enqueue_fill_buffer(self.queue, buffer, pattern, start, length)

    def room(self, nbytes: int) -> Any:
        """A buffer for temporaries. On a CPU one of 4 MiB or more asks for huge pages."""
        buffer = self.buffer(nbytes)
        if self.facts.type == "cpu" and nbytes >= _WORTH_HUGE_PAGES:
            flags, shape = cl.map_flags.WRITE_INVALIDATE_REGION, (nbytes,)
            with errors():
                host, _ = cl.enqueue_map_buffer(
                    self.queue, buffer, flags, 0, shape, np.uint8, is_blocking=True
                )
                ask_for_huge_pages(host.ctypes.data, nbytes)
                host.base.release(self.queue)
        return buffer

    def filled(self, values: HostArray) -> Any:
        buffer = self.buffer(values.nbytes)
        if values.size:
            with errors():
                cl.enqueue_copy(self.queue, buffer, np.ascontiguousarray(values))
        return buffer

    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> HostArray:
        """A host array in memory of the driver, page-locked where that exists; it stays mapped."""
        flags, both = cl.mem_flags, cl.map_flags.READ | cl.map_flags.WRITE
        staging = self.buffer(math.prod(shape) * dtype.itemsize, flags.READ_WRITE | flags.ALLOC_HOST_PTR)
        with errors():
            view, _ = cl.enqueue_map_buffer(self.queue, staging, both, 0, shape, dtype, is_blocking=True)
        return np.asarray(view)

    def image(self, width: int, height: int, dtype: np.dtype[Any], flags: int = 0) -> Any:
        """An RGBA image of ``width`` x ``height`` pixels, half or float; flags 0 mean read and write."""
        kind = cl.channel_type.HALF_FLOAT if dtype.itemsize == 2 else cl.channel_type.FLOAT
        form = cl.ImageFormat(cl.channel_order.RGBA, kind)
        flags = flags or cl.mem_flags.READ_WRITE
        with errors():
            return cl.create_image(self.context, flags, form, shape=(width, height))


def _timing_queue(context: Any, device: Any, plain_queue: Any) -> tuple[Any, int]:
    """A queue that times events, and the time of one in ns. If refused: plain queue, 0."""
    try:
        queue = cl.CommandQueue(context, device, properties=cl.command_queue_properties.PROFILING_ENABLE)
        buffer = cl.Buffer(context, cl.mem_flags.READ_WRITE, 16)
        event = cl.enqueue_fill_buffer(queue, buffer, np.uint32(0), 0, 16)
        event.wait()
        return queue, int(event.profile.end)
    except cl.Error:
        return plain_queue, 0


def build_failure(file: str, message: str) -> str:
    """The reason in a row of a failed build: the file, and up to 12 lines of the log, errors first."""
    lines = [line.rstrip() for line in message.splitlines() if line.strip()]
    # A driver repeats the line of an #error below its text.
    telling = [line for line in lines if "error" in line.lower() and "#error" not in line] or lines
    shown, rest = telling[:_LOG_LINES], len(telling) - _LOG_LINES
    if rest > 0:
        shown.append(f"... and {rest} more lines")
    return f"{shown_name(file)} does not compile: " + "\n".join(shown)


@contextmanager
def errors() -> Iterator[None]:
    """Raise the driver's errors, and a lack of memory, as `NotMeasuredError` with status ``failed``.

    A launch that needs too many resources is ``unsupported``. `restart` asks for a new process.
    """
    try:
        yield
    except cl.Error as error:
        name = _code(error)
        status: Status = "failed"
        what = "the device ran out of memory" if name in _MEMORY else "the driver reported an error"
        if name == _UNNAMED and error.code != _OUTSIDE_BUFFERS:
            what = f"the driver reported an unknown error ({error.code})"
        elif name == _UNNAMED:
            what = "a kernel accessed memory outside its buffers; this process cannot use the device again"
        elif name == "OUT_OF_RESOURCES" and "clEnqueueNDRangeKernel" in str(error):
            status = "unsupported"
            what = "the device has too few registers or too little local memory for such a work-group"
        elif name == "OUT_OF_RESOURCES":
            what = (
                "the device ran out of memory or registers, was reset, or a kernel accessed memory outside "
                "its buffers"
            )
        raise NotMeasuredError(status, f"{what}: {error}", restart=name in _FATAL + _MEMORY) from None
    except MemoryError as error:
        raise NotMeasuredError("failed", f"out of memory: {error}", restart=True) from None


def _code(error: Any) -> str:
    """The name of an error's code; `_UNNAMED` for an unknown one, "" for pyopencl's own."""
    try:
        return str(cl.status_code.to_string(error.code))
    except ValueError:
        return _UNNAMED
    except AttributeError:
        return ""


_WORTH_HUGE_PAGES = 4 << 20  # bytes: from there on numpy asks for them
SVM = ("svm", "svm-fine")
MAPPED = ("mapped", *SVM)
"""The modes in which host and device share one allocation: see `model.case.MEMORY_MODES`."""


def choose_memory(mode: str, device: DeviceFacts) -> str:
    """The memory mode; ``auto`` is mapped if the device shares the host's memory, else staged."""
    return mode if mode != "auto" else "mapped" if device.unified_memory else "staged"


def ask_for_huge_pages(address: int, nbytes: int) -> None:
    """Ask the system to back 4 MiB or more with huge pages, as numpy does: small ones stop prefetching."""
    advice, begin = getattr(mmap, "MADV_HUGEPAGE", None), ceil_div(address, PAGE) * PAGE
    if advice is not None and nbytes >= _WORTH_HUGE_PAGES:
        length = (address + nbytes) // PAGE * PAGE - begin
        ctypes.CDLL(None).madvise(ctypes.c_void_p(begin), ctypes.c_size_t(length), advice)


def _map_flags(discard: bool) -> int:
    flags = cl.map_flags
    return int(flags.WRITE_INVALIDATE_REGION if discard else flags.READ | flags.WRITE)


Shape = tuple[int, int]  # rows and columns


class Operand:
    """One matrix that is in host memory between problems and in `buffer` during one.

    An image is RGBA with a row of the matrix in each row of pixels; the last pixel is zero-padded.
    """

    behind = 0  # bytes of the buffer behind the matrix, where no kernel may write

    buffer: Any
    _host: Any  # the host's values: flat, of an image by rows of whole pixels; None while the device has them

    def __init__(self, runtime: Runtime, shape: Shape, dtype: np.dtype[Any], image: bool) -> None:
        rows, columns = shape
        self._queue, self._shape, self._dtype, self._image = runtime.queue, shape, dtype, image
        self._pixels: tuple[int, int] = max(1, ceil_div(columns, PIXEL)), max(1, rows)  # width and height
        self._held = (self._pixels[1], self._pixels[0] * PIXEL) if image else (rows * columns,)

    def _allocated(self, runtime: Runtime, behind: int, flags: int = 0) -> Any:
        if self._image:
            return runtime.image(*self._pixels, self._dtype, flags)
        nbytes = math.prod(self._held) * self._dtype.itemsize
        self.behind = max(0, min(behind, runtime.facts.largest_buffer_bytes - nbytes))
        return runtime.buffer(nbytes + self.behind, flags)

    def fill(self, values: HostArray) -> None:
        """Take the memory back and put values into it (not timed)."""
        self.reclaim(self._queue)
        if self._image:
            rows, columns = self._shape
            self._host[:rows, :columns] = values[:, :columns]
            self._host[:rows, columns:] = self._host[rows:] = 0
        else:
            self._host[...] = values.reshape(-1)

    def to_device(self, queue: Any) -> Any:
        """Enqueue the values' transfer. Returns its event; None if there is nothing to do."""
        raise NotImplementedError

    def hand_over(self, queue: Any) -> Any:
        """Give the memory to the device without copying. Returns the event, if any."""

    def keep_on_device(self, queue: Any) -> None:
        """Make the device's values current, if the host's changed (not timed)."""
        raise NotImplementedError

    def to_host(self, queue: Any, discard: bool = False) -> None:
        """Bring the device's values to the host and wait. `discard` may lose them on the way."""
        raise NotImplementedError

    def reclaim(self, queue: Any) -> None:
        """Return the memory to the host without copying (not timed)."""

    def read(self) -> HostArray:
        """A flat view of the values in host memory, until the device gets the memory."""
        self.reclaim(self._queue)
        return np.asarray(self._host[: self._shape[0], : self._shape[1]] if self._image else self._host)


class Mapped(Operand):
    """One allocation that host and device use alternately."""

    def __init__(
        self, runtime: Runtime, shape: Shape, dtype: np.dtype[Any], image: bool, behind: int
    ) -> None:
        super().__init__(runtime, shape, dtype, image)
        flags = cl.mem_flags.READ_WRITE | cl.mem_flags.ALLOC_HOST_PTR
        self.buffer = self._allocated(runtime, behind, flags)
        self._pitch = self._held[-1] * dtype.itemsize  # bytes from row to row of an image; what the map says
        self._host = None
        self._advised = False

    def to_device(self, queue: Any) -> Any:
        host, self._host = self._host, None
        return host.base.release(queue) if host is not None and host.size else None

    hand_over = to_device
    keep_on_device = to_device

    def to_host(self, queue: Any, discard: bool = False) -> None:
        """Map for the host and wait. An image is mapped again if its rows are padded."""
        flags = _map_flags(discard)
        if self._host is None and not math.prod(self._held):
            queue.finish()
            self._host = np.empty(0, self._dtype)
        elif self._host is None and not self._image:
            self._host, _ = cl.enqueue_map_buffer(
                queue, self.buffer, flags, 0, self._held, self._dtype, is_blocking=True
            )
            if not self._advised:
                ask_for_huge_pages(self._host.ctypes.data, self._host.nbytes)
                self._advised = True
        while self._host is None:
            strides = (self._pitch, self._dtype.itemsize)
            view, _, pitch, _ = cl.enqueue_map_image(
                queue, self.buffer, flags, (0, 0), self._pixels, self._held, self._dtype, strides=strides,
                is_blocking=True,
            )  # fmt: skip
            if pitch == self._pitch:
                self._host = view
            else:  # the driver pads rows: look again, at that distance
                view.base.release(queue)
                self._pitch = pitch

    reclaim = to_host


class Copied(Operand):
    """A device buffer or image and a host array, pinned or pageable."""

    def __init__(
        self, runtime: Runtime, shape: Shape, dtype: np.dtype[Any], image: bool, behind: int, pinned: bool
    ) -> None:
        super().__init__(runtime, shape, dtype, image)
        count = math.prod(self._held)
        self.buffer = self._allocated(runtime, behind)
        host = runtime.pinned((count,), dtype) if pinned and count else allocate_page_aligned(count, dtype)
        self._host = host.reshape(self._held)
        self._area = {"origin": (0, 0), "region": self._pixels} if image else {}
        self._changed = True  # in host memory since the last copy to the device

    def fill(self, values: HostArray) -> None:
        if self._image:
            super().fill(values)
        else:
            flat = values.reshape(self._host.shape)
            by_parts(lambda at: np.copyto(self._host[at], flat[at]), flat.size)
        self._changed = True

    def to_device(self, queue: Any) -> Any:
        self._changed = False
        if not self._host.size:
            return None
        return cl.enqueue_copy(queue, self.buffer, self._host, is_blocking=False, **self._area)

    def keep_on_device(self, queue: Any) -> None:
        if self._changed:
            self.to_device(queue)

    def to_host(self, queue: Any, discard: bool = False) -> None:
        if self._host.size:
            cl.enqueue_copy(queue, self._host, self.buffer, is_blocking=True, **self._area)
        else:
            queue.finish()


class SharedMemory(Operand):
    """Shared virtual memory: one address for host and device."""

    def __init__(self, runtime: Runtime, shape: Shape, dtype: np.dtype[Any], image: bool, fine: bool) -> None:
        """Allocate the memory. Raises `NotMeasuredError` if the device lacks it, or for an image."""
        super().__init__(runtime, shape, dtype, image)
        if lack := _lacks_svm(runtime.device, fine):
            raise NotMeasuredError("unsupported", lack)
        if image:
            raise NotMeasuredError("unsupported", "an image cannot lie in shared virtual memory")
        self._count, kinds = math.prod(self._held), cl.svm_mem_flags
        flags = kinds.READ_WRITE | (kinds.SVM_FINE_GRAIN_BUFFER if fine else 0)
        # An alignment of 0 is that of the largest type: all that a device has to take.
        shared = cl.svm_empty(runtime.context, flags, (max(self._count, 16),), dtype, alignment=0)
        self.buffer, self._shared, self._fine = shared.base, shared, fine
        self._host = shared[: self._count] if fine else None
        self._mapped: Any = None

    def to_device(self, queue: Any) -> Any:
        if self._fine or self._mapped is None:
            return None
        mapped, self._mapped, self._host = self._mapped, None, None
        return mapped.release(queue)

    hand_over = to_device
    keep_on_device = to_device

    def to_host(self, queue: Any, discard: bool = False) -> None:
        if self._fine:
            queue.finish()
        elif self._mapped is None:
            flags = _map_flags(discard)
            self._mapped = cl.SVM(self._shared).map(queue, flags=flags, is_blocking=True)
            self._host = self._shared[: self._count]

    reclaim = to_host


def _lacks_svm(device: Any, fine: bool) -> str:
    """Why a device lacks shared virtual memory (with `fine`, fine-grained); or ""."""
    kinds = cl.device_svm_capabilities
    try:
        has = device.svm_capabilities
    except cl.Error:  # OpenCL 1.2
        has = 0
    if not has & (kinds.COARSE_GRAIN_BUFFER | kinds.FINE_GRAIN_BUFFER):
        return "the device has no shared virtual memory: --memory mapped is what it may have instead"
    if fine and not has & kinds.FINE_GRAIN_BUFFER:
        return "the device has no fine-grained shared virtual memory: use --memory svm"
    return ""


def operand(
    runtime: Runtime, mode: str, shape: Shape, dtype: np.dtype[Any], image: bool = False, behind: int = 0
) -> Operand:
    """Memory for a matrix, as a buffer or an image. `mode` is ``mapped``, ``svm``, ``svm-fine`` or a copy.

    Copies are ``staged`` through page-locked host memory, or else pageable. `behind` asks for bytes for
    guards. Raises `NotMeasuredError` if it cannot be had.
    """
    with errors():
        if mode == "mapped":
            return Mapped(runtime, shape, dtype, image, behind)
        if mode in SVM:
            return SharedMemory(runtime, shape, dtype, image, fine=mode == "svm-fine")
        return Copied(runtime, shape, dtype, image, behind, pinned=mode == "staged")


def resources_of(
    runtime: Runtime, variant: Variant, parameters: Values, programs: Mapping[str, BuiltProgram],
    problem: Gemm, fixed: bool = False,
) -> tuple[Resources, ...]:  # fmt: skip
    """Registers, memory and work-group of each kernel that a problem needs, in launch order.

    `programs` is by file. `fixed` is as for `Runtime.fitted`. Raises `NotMeasuredError`.
    """
    values = variant.values(problem, {**parameters, **variant.chosen(problem, runtime.facts, parameters)})
    return tuple(
        _resources(runtime, step, values, programs[step.file], fixed)
        for step in variant.steps(values)
        if not step.once
    )


def _resources(runtime: Runtime, step: Pass, values: Values, built: BuiltProgram, fixed: bool) -> Resources:
    info, device = cl.kernel_work_group_info, runtime.device
    with errors():
        kernel = cl.Kernel(built.program, step.kernel)

        def ask(what: Any) -> int:
            return int(kernel.get_work_group_info(what, device))

        (most, _), local = runtime.group_limit(kernel), ask(info.LOCAL_MEM_SIZE)
        multiple, private = ask(info.PREFERRED_WORK_GROUP_SIZE_MULTIPLE), ask(info.PRIVATE_MEM_SIZE)
    registers, spills = registers_and_spills(built.log, step.kernel)
    group = math.prod(step.group_within(values, most, runtime.facts.max_work_item_sizes, fixed))
    return Resources(
        kernel=step.kernel,
        role=step.role,
        group=group,
        most=max(most, group),  # some drivers report their default for a kernel compiled for a larger group
        multiple=multiple,
        private_bytes=private,
        local_bytes=local,
        registers=registers,
        spill_bytes=spills,
    )


def registers_and_spills(log: str, kernel: str) -> tuple[int | None, int | None]:
    """Registers and spilled bytes of a kernel from NVIDIA's log; None if it does not say."""
    for part in log.split("Compiling entry function '")[1:]:
        if part.startswith(f"{kernel}'"):
            used = re.search(r"Used (\d+) registers", part)
            spilled = re.search(r"(\d+) bytes spill stores", part)
            return (int(used[1]) if used else None), (int(spilled[1]) if spilled else None)
    return None, None


# --- NVIDIA's binary route: instructions that the driver refuses in OpenCL C --------------------------------
#
# The driver compiles OpenCL C for the plain target of the device, ``sm_90``, which has no ``wgmma``. But a
# program's binary is PTX text, and it is compiled again when a program is made from it. So a kernel states
# such instructions in ``asm volatile`` as comments; the first compilation passes them on, operands filled in:
#
#     asm volatile("//@sm_90a wgmma.fence.sync.aligned;" ::: "memory");

_TARGET = re.compile(r"^\s*\.target\s+(sm_\d+)\w*", re.MULTILINE)


def enable_marked(text: str, target: str) -> str:
    """PTX text for a target such as ``sm_90a``, with the instructions marked ``//@TARGET`` enabled.

    Raises `NotMeasuredError` if the text is for another architecture, or is no PTX.
    """
    match = _TARGET.search(text)
    if match is None:
        raise NotMeasuredError("failed", "the driver's program binary is not PTX text")
    if match[1] != target.rstrip("af"):
        raise NotMeasuredError("unsupported", f"the driver compiles for {match[1]}, not for {target}")
    text = text[: match.start(1)] + target + text[match.end() :]
    return re.sub(rf"//@{re.escape(target)}[^\S\n]", "", text)


def rebuild_from_ptx(runtime: Runtime, file: str, built: BuiltProgram, target: str) -> BuiltProgram:
    """A program built again from its own PTX, with what is marked for a target enabled. `NotMeasuredError`.

    `file` is for messages. The program's seconds are of both builds.
    """
    begin = time.perf_counter()
    with errors():
        (binary,) = built.program.get_info(cl.program_info.BINARIES)
        text = enable_marked(bytes(binary).decode("latin-1").rstrip("\0"), target)
        program = cl.Program(runtime.context, [runtime.device], [text.encode()])
        try:
            program.build(["-cl-nv-verbose"])  # registers and spills
        except cl.Error as error:
            reason = build_failure(f"{file} as PTX for {target}", str(error))
            raise NotMeasuredError("failed", reason) from None
        log = program.get_build_info(runtime.device, cl.program_build_info.LOG) or ""
    return BuiltProgram(program, built.seconds + time.perf_counter() - begin, log.strip())
