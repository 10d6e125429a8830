"""Contexts, queues, programs: what every executor on an OpenCL device needs, and errors as row statuses."""

from __future__ import annotations

import math
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyopencl as cl

from gemmbench.facts.kernel_files import text
from gemmbench.facts.records import DeviceFacts
from gemmbench.opencl.discovery import handle
from gemmbench.rules.executor import NotMeasuredError
from gemmbench.rules.reference import Array

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

    def filled(self, values: Array) -> Any:
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
