"""CLBlast's C interface: one GEMM put into an OpenCL queue. Handles are the numbers that OpenCL gave them."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from gemmbench.baselines.shared_library import file_of, opened
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import Status
from gemmbench.rules.executor import NotMeasuredError
from gemmbench.rules.variants import Layout

_FILES = ("libclblast.so.1", "libclblast.dylib", "clblast.dll")
_ADVICE = "install CLBlast (libclblast1 on Debian and Ubuntu)"

_ROW_MAJOR = 101
_NOT_TRANSPOSED = 111

# Its own refusals, as its header names them. The other statuses are OpenCL's, or say that a call is wrong.
_REFUSALS: dict[int, tuple[Status, str]] = {
    -2046: ("unsupported", "its kernel needs more local memory than the device has"),
    -2045: ("unsupported", "the device has no half precision"),
    -2044: ("unsupported", "the device has no double precision"),
    -11: ("failed", "its kernel does not compile"),
    -4: ("failed", "the device has no memory left for its temporary buffer"),
}


def _half(value: float) -> int:
    return int(np.float16(value).view(np.uint16))


# By data type: the function, how alpha and beta are passed, and how they are made.
_FUNCTIONS: Mapping[str, tuple[str, Any, Callable[[float], float]]] = {
    "float": ("CLBlastSgemm", ctypes.c_float, float),
    "double": ("CLBlastDgemm", ctypes.c_double, float),
    "half": ("CLBlastHgemm", ctypes.c_uint16, _half),
}


class Clblast:
    """The library of this process.

    Raises:
        NotMeasuredError: unsupported: it is not installed.
    """

    def __init__(self) -> None:
        self._library = opened("CLBlast", _candidates(), _ADVICE)
        self.title = _title(self._library)

    def enqueue(self, problem: Gemm, layout: Layout, a: int, b: int, c: int, queue: int) -> None:
        """Put C = alpha A B + beta C, row-major, into a queue; returns before it has run.

        Args:
            problem: none of its lengths is 0: CLBlast refuses such.
            layout: leading dimensions.
            a: the ``cl_mem`` of A.
            b: of B.
            c: of C.
            queue: the ``cl_command_queue``.

        Raises:
            NotMeasuredError: it refused; with its status.
        """
        name, scalar, made = _FUNCTIONS[problem.dtype]
        memory, length = ctypes.c_void_p, ctypes.c_size_t
        status = getattr(self._library, name)(
            *(_ROW_MAJOR, _NOT_TRANSPOSED, _NOT_TRANSPOSED),
            *map(length, (problem.m, problem.n, problem.k)),
            scalar(made(problem.alpha)),
            *(memory(a), length(0), length(layout.lda)),
            *(memory(b), length(0), length(layout.ldb)),
            scalar(made(problem.beta)),
            *(memory(c), length(0), length(layout.ldc)),
            ctypes.byref(memory(queue)),
            None,  # no event: it would be the last pass's alone
        )
        if status:
            outcome, why = _REFUSALS.get(status, ("failed", "see clblast_c.h"))
            raise NotMeasuredError(outcome, f"CLBlast answers with status {status}: {why}")


def _candidates() -> list[str]:
    found = ctypes.util.find_library("clblast")
    return [*_FILES, *([found] if found else [])]


def _title(library: ctypes.CDLL) -> str:
    """``CLBlast 1.5.3``: it does not tell its version, but its file's name does; else the file's name."""
    file = file_of(library.CLBlastSgemm)
    if file is None:
        return "CLBlast"
    version = re.search(r"\d+(\.\d+)+", file.name)
    return f"CLBlast {version[0]}" if version else f"CLBlast ({file.name})"
