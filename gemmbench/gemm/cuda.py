"""One NVIDIA GPU through CUDA's driver interface: memory, a stream, stopwatches, counters, graphs."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from gemmbench.gemm.opencl import opened
from gemmbench.model import kernel_files
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.opencl.runtime import (
    FIELDS,
    GROUPS_PER_UNIT,
    IN_FLIGHT,
    LAUNCHES,
    Built,
    Counters,
    Runtime,
    Span,
    errors,
    ptx,
)

if TYPE_CHECKING:
    from gemmbench.gemm.opencl_bench import Prepared

_FILES = ("libcuda.so.1", "nvcuda.dll")
_ADVICE = "install NVIDIA's driver with CUDA (libcuda1 on Debian)"
_LEAST_BYTES = 16  # CUDA has no empty memory
_NAME_BYTES = 256
_OUT_OF_MEMORY = 2
_NOT_READY = 600
_CAPTURE_OF_THIS_THREAD = 1
_MOST_LOCAL = 8  # CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES


@dataclass(frozen=True)
class Stopwatch:
    """Two events in a stream."""

    begin: ctypes.c_void_p
    end: ctypes.c_void_p


class Cuda:
    """The GPU that OpenCL calls by these facts, as the current CUDA device of this process.

    Raises:
        NotMeasuredError: unsupported: there is no CUDA here, or it does not show this GPU.
    """

    def __init__(self, facts: DeviceFacts) -> None:
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
        """The address of so many bytes on the device.

        Raises:
            NotMeasuredError: failed: there is not that much left.
        """
        address = ctypes.c_uint64()
        self._call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, _LEAST_BYTES)))
        try:
            yield address.value
        finally:
            self._library.cuMemFree_v2(address)

    @contextmanager
    def pinned(self, shape: tuple[int, ...], dtype: np.dtype[Any]) -> Iterator[HostArray]:
        """An uninitialised array in host memory that the device reads and writes by itself."""
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
        """Wait for all that was enqueued.

        Raises:
            NotMeasuredError: failed: some of it did; the process is of no use for CUDA any more.
        """
        self._call("cuStreamSynchronize", self.stream)

    def start(self) -> Stopwatch:
        """A stopwatch that starts when the device gets there; the one before it may still be running."""
        watch = next(self._watches)
        self._call("cuEventRecord", watch.begin, self.stream)
        return watch

    def stop(self, watch: Stopwatch) -> None:
        """Stop it when the device gets there."""
        self._call("cuEventRecord", watch.end, self.stream)

    def graph(self, enqueue: Callable[[], None]) -> ctypes.c_void_p:
        """What a function puts into the stream, as a CUDA graph: nothing runs before `replay`.

        Raises:
            NotMeasuredError: as the function does; failed: the driver cannot capture it.
        """
        captured, graph = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuStreamBeginCapture_v2", self.stream, _CAPTURE_OF_THIS_THREAD)
        try:
            enqueue()
        except NotMeasuredError:
            self._library.cuStreamEndCapture(self.stream, ctypes.byref(captured))
            raise
        self._call("cuStreamEndCapture", self.stream, ctypes.byref(captured))
        self._call("cuGraphInstantiateWithFlags", ctypes.byref(graph), captured, ctypes.c_uint64(0))
        self._call("cuGraphDestroy", captured)
        return graph

    def replay(self, graph: ctypes.c_void_p) -> None:
        """Put a graph's work into the stream; returns before it has run."""
        self._call("cuGraphLaunch", graph, self.stream)

    def forget(self, graph: ctypes.c_void_p) -> None:
        self._library.cuGraphExecDestroy(graph)

    def more_watches(self, count: int) -> list[Stopwatch]:
        """So many stopwatches, others at each call."""
        return [self._stopwatch() for _ in range(count)]

    @contextmanager
    def timed(self, watch: Stopwatch) -> Iterator[None]:
        """A stopwatch around what is put into the stream."""
        self._call("cuEventRecord", watch.begin, self.stream)
        yield
        self._call("cuEventRecord", watch.end, self.stream)

    def fetch(self, values: HostArray, address: int) -> None:
        """Enqueue a copy from the device into pinned memory."""
        pointer, length = ctypes.c_void_p(values.ctypes.data), ctypes.c_size_t(values.nbytes)
        self._call("cuMemcpyDtoHAsync_v2", pointer, ctypes.c_uint64(address), length, self.stream)

    def function(self, ptx: str, name: str, local: int = 0) -> ctypes.c_void_p:
        """A kernel of a program in PTX, which the driver assembles; it stays loaded.

        `local`: the most bytes of local memory that launches will ask for.
        """
        module, function = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(ptx.encode()))
        self._call("cuModuleGetFunction", ctypes.byref(function), module, ctypes.c_char_p(name.encode()))
        if local:
            self._call("cuFuncSetAttribute", function, _MOST_LOCAL, local)
        return function

    def launch(self, function: ctypes.c_void_p, blocks: int, block: int, *values: int) -> None:
        """Enqueue a kernel whose parameters are all of 64 bits."""
        sizes = (ctypes.c_uint(length) for length in (blocks, 1, 1, block, 1, 1, 0))
        self.launch_with(function, sizes, _arguments(*values))

    def launch_with(self, function: ctypes.c_void_p, sizes: Iterable[ctypes.c_uint], arguments: Any) -> None:
        """Enqueue a kernel: three sides of the grid, three of a block, bytes of local memory; parameters."""
        self._call("cuLaunchKernel", function, *sizes, self.stream, arguments, None)

    def reached(self, watch: Stopwatch) -> bool:
        """Whether the device has stopped it, or failed."""
        return int(self._library.cuEventQuery(watch.end)) != _NOT_READY

    def seconds(self, watch: Stopwatch) -> float:
        """Wait until it is stopped; the device's seconds on it.

        Raises:
            NotMeasuredError: failed: some of what was enqueued did.
        """
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
        """The GPU in the device's PCI slot; where that is not known, the only one of its name."""
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
        status = getattr(self._library, function)(*arguments)
        if status:
            text = ctypes.c_char_p()
            self._library.cuGetErrorString(status, ctypes.byref(text))
            words = (text.value or b"no such error").decode(errors="replace")
            if function == "cuInit":
                raise NotMeasuredError("unsupported", f"CUDA does not start: {words}")
            what = "the device ran out of memory" if status == _OUT_OF_MEMORY else f"{function} failed"
            raise NotMeasuredError("failed", f"{what}: CUDA says {words}", restart=status != _OUT_OF_MEMORY)


def _arguments(*values: int) -> Any:
    """Kernel parameters of 64 bits each, as ``cuLaunchKernel`` takes them; they keep their values alive."""
    held = [ctypes.c_uint64(value) for value in values]
    pointers = (ctypes.c_void_p * len(held))(*(ctypes.addressof(each) for each in held))
    pointers.held = held  # type: ignore[attr-defined]  # as long as the array
    return pointers


# --- The average clock of a CUDA library's batch by the GPU's own counters: see `opencl.runtime` -----------


_CLOCK_FILE = "check/clock.ptx"


class CudaCounters(Counters):
    """The counters of a GPU.

    Args:
        cuda: of the GPU.
        facts: its number of units.
        stack: gives the memory back.

    Raises:
        NotMeasuredError: the driver does not take the kernel.
    """

    def __init__(self, cuda: Cuda, facts: DeviceFacts, stack: ExitStack) -> None:
        self._cuda, self._groups = cuda, GROUPS_PER_UNIT * max(1, facts.compute_units)
        self._function = cuda.function(kernel_files.raw(_CLOCK_FILE), "stamps")
        shape, word = (LAUNCHES, self._groups, FIELDS), np.dtype(np.uint64)
        size = LAUNCHES * self._groups * FIELDS * word.itemsize
        self._slots = cycle(
            [
                (stack.enter_context(cuda.memory(size)), stack.enter_context(cuda.pinned(shape, word)), watch)
                for watch in cuda.more_watches(IN_FLIGHT)
            ]
        )
        self._try()

    def _note(self, buffer: int, start: int) -> None:
        self._cuda.launch(self._function, self._groups, 1, buffer, start)

    def _read(self, span: Span) -> Callable[[], object]:
        with self._cuda.timed(span.watch):
            self._cuda.fetch(span.host, span.buffer)
        return partial(self._cuda.seconds, span.watch)


# --- The launches of an OpenCL kernel replayed as a CUDA graph, which NVIDIA's OpenCL has nothing for -------
# NVIDIA's driver gives a program back as PTX, and assembles the same text for CUDA, too: so a kernel can be
# launched as a library's are, from a graph, in the library's own context. What its event counts beside it,
# and what the queue puts between two launches, is then gone on both sides.


_STATIC_BYTES = 48 << 10  # of local memory that CUDA takes as a kernel's own; more must be asked for
_GROUPS = re.compile(r"%envreg([678])\b")  # how many groups a launch has in OpenCL, along x, y and z
_OFFSETS = re.compile(r"%envreg[0-5]\b")  # of its groups and work-items, of which there are none
_TARGET = re.compile(r"(\.target\s+sm_\w+)\s*,\s*texmode_independent")
_ENTRY = re.compile(r"^\s*\.entry\s+(\w+)", re.MULTILINE)
_LOCAL = re.compile(r"^[ \t]*\.shared\s+\.align\s+(\d+)\s+\.b8\s+([\w$]+)\[(\d+)\];.*\n", re.MULTILINE)
_HEADER = re.compile(r"^\.address_size.*\n", re.MULTILINE)


def for_cuda(ptx: str) -> tuple[str, dict[str, int]]:
    """A program's PTX as CUDA takes it, and the bytes of local memory that launches of a kernel must ask for.

    Where a kernel's arrays are more than CUDA takes, the largest becomes one that each launch gives memory.
    """
    groups = _GROUPS.sub(lambda match: "%nctaid." + "xyz"[int(match[1]) - 6], ptx)
    text = _TARGET.sub(r"\1", _OFFSETS.sub("0", groups))
    entries = [*_ENTRY.finditer(text)]
    asked, outside, inside = dict[str, int](), "", text[: entries[0].start()] if entries else text
    for entry, following in zip(entries, [*entries[1:], None], strict=True):
        body = text[entry.start() : following.start() if following else None]
        arrays = [(int(size), align, name) for align, name, size in _LOCAL.findall(body)]
        if sum(size for size, *_ in arrays) > _STATIC_BYTES:
            size, align, name = max(arrays)
            asked[entry[1]] = size
            outside += f".extern .shared .align {align} .b8 {name}[];\n"
            body = re.sub(rf"(?m)^[ \t]*\.shared[^;\n]*{re.escape(name)}\[.*\n", "", body)
        inside += body.replace(".entry", ".visible .entry", 1)
    return _HEADER.sub(lambda header: header[0] + outside, inside, count=1), asked


@dataclass(frozen=True)
class _Launch:
    """One launch with its arguments, which it keeps alive."""

    function: ctypes.c_void_p
    sizes: tuple[ctypes.c_uint, ...]  # groups, work-items of a group, bytes of local memory
    arguments: Any
    held: Sequence[Any]


class CudaReplay:
    """The launches of each operand set, in CUDA's memory.

    Args:
        runtime: of the device.
        plans: the launches of each operand set.

    Raises:
        NotMeasuredError: unsupported: this device has no CUDA, or a launch is no kernel of a program in PTX;
            failed: CUDA refuses.
    """

    def __init__(self, runtime: Runtime, plans: Sequence[Sequence[Any]]) -> None:
        self._runtime, self._cuda, self._stack = runtime, Cuda(runtime.facts), ExitStack()
        self._addresses: dict[int, int] = {}  # by the buffers' OpenCL handles
        self._functions: dict[tuple[int, str], tuple[ctypes.c_void_p, int]] = {}
        self._graphs: dict[tuple[int, int], ctypes.c_void_p] = {}  # by the first set and the problems
        once = {id(made): made for plan in plans for step in plan for made in _of(step).once}
        self._enqueue([self._launch(made) for made in once.values()])
        self._plans = [[self._launch(_of(step)) for step in plan] for plan in plans]
        self._cuda.finish()

    def fill(self, buffer: Any, values: HostArray) -> None:
        """What a buffer of the launches is to hold."""
        self._cuda.to_device(self._addresses[buffer.int_ptr], np.ascontiguousarray(values))
        self._cuda.finish()

    def left(self, buffer: Any, like: HostArray) -> HostArray:
        """What a buffer holds now, in the shape and type of another array."""
        read = np.empty_like(like)
        self._cuda.to_host(read, self._addresses[buffer.int_ptr])
        return read

    def graph(self, first: int, count: int) -> ctypes.c_void_p:
        """So many problems, the first on a given operand set; made once."""
        if (first, count) not in self._graphs:
            plans = [self._plans[(first + number) % len(self._plans)] for number in range(count)]
            launches = [launch for plan in plans for launch in plan]
            self._graphs[first, count] = self._cuda.graph(partial(self._enqueue, launches))
        return self._graphs[first, count]

    def seconds(self, graph: ctypes.c_void_p) -> float:
        """Replay it; the device's seconds."""
        watch = self._cuda.start()
        self._cuda.replay(graph)
        self._cuda.stop(watch)
        return self._cuda.seconds(watch)

    def release(self) -> None:
        for graph in self._graphs.values():
            self._cuda.forget(graph)
        self._graphs.clear()
        self._stack.close()

    def _enqueue(self, launches: Sequence[_Launch]) -> None:
        for each in launches:
            self._cuda.launch_with(each.function, each.sizes, each.arguments)

    def _launch(self, step: Prepared) -> _Launch:
        function, local = self._function(step.kernel, step.name)
        groups = (items // side for items, side in zip(step.items, step.group, strict=True))
        sizes = [(*side, 1, 1)[:3] for side in (tuple(groups), step.group)]
        held = [self._argument(value) for value in step.arguments]
        pointers = (ctypes.c_void_p * len(held))(*map(ctypes.addressof, held))
        return _Launch(function, tuple(map(ctypes.c_uint, (*sizes[0], *sizes[1], local))), pointers, held)

    def _argument(self, value: Any) -> Any:
        if isinstance(value, np.generic):
            return (ctypes.c_ubyte * value.nbytes).from_buffer_copy(value.tobytes())
        if not isinstance(value, cl.Buffer):
            raise NotMeasuredError("unsupported", "CUDA replays kernels of numbers and buffers alone")
        if value.int_ptr not in self._addresses:
            content = np.empty(value.size, np.uint8)
            with errors():
                cl.enqueue_copy(self._runtime.queue, content, value)
                self._runtime.queue.finish()
            address = self._stack.enter_context(self._cuda.memory(value.size))
            self._cuda.to_device(address, content)
            self._cuda.finish()
            self._addresses[value.int_ptr] = address
        return ctypes.c_uint64(self._addresses[value.int_ptr])

    def _function(self, kernel: Any, name: str) -> tuple[ctypes.c_void_p, int]:
        with errors():
            program = kernel.get_info(cl.kernel_info.PROGRAM)
        if (program.int_ptr, name) not in self._functions:
            text, asked = for_cuda(ptx(Built(program, 0.0, "")))
            if f".entry {name}(" not in text:
                raise NotMeasuredError("unsupported", "the driver gives no PTX of the kernel")
            local = asked.get(name, 0)
            try:
                self._functions[program.int_ptr, name] = self._cuda.function(text, name, local), local
            except NotMeasuredError as error:
                reason = f"CUDA does not take the kernel: {error.reason}"
                raise NotMeasuredError("unsupported", reason) from None
        return self._functions[program.int_ptr, name]


def _of(step: Any) -> Prepared:
    """A launch of a kernel.

    Raises:
        NotMeasuredError: unsupported: a library's launch cannot be replayed.
    """
    if not hasattr(step, "arguments"):
        raise NotMeasuredError("unsupported", "a library's launches cannot be recorded")
    prepared: Prepared = step
    return prepared
