"""The launches of an OpenCL kernel replayed as a CUDA graph, which NVIDIA's OpenCL has nothing for.

NVIDIA's driver gives a program back as PTX, and assembles the same text for CUDA, too: so a kernel can be
launched as a library's are, from a graph, in the library's own context. What its event counts beside it, and
what the queue puts between two launches, is then gone on both sides.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyopencl as cl

from gemmbench.gemm.cuda import Cuda
from gemmbench.model.dtypes import ReferenceArray
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.opencl.runtime import Built, Runtime, errors, ptx

if TYPE_CHECKING:
    from gemmbench.gemm.opencl_bench import Prepared

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

    def fill(self, buffer: Any, values: ReferenceArray) -> None:
        """What a buffer of the launches is to hold."""
        self._cuda.to_device(self._addresses[buffer.int_ptr], np.ascontiguousarray(values))
        self._cuda.finish()

    def left(self, buffer: Any, like: ReferenceArray) -> ReferenceArray:
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
