"""CLBlast's C interface: one GEMM put into an OpenCL queue. Handles are the numbers that OpenCL gave them."""

from __future__ import annotations

import ctypes
import ctypes.util
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from gemmbench.gemm.opencl import GemmExecutor
from gemmbench.gemm.opencl_bench import Bench, WallBench
from gemmbench.ladder.variant import Layout, Variant
from gemmbench.measure.host import file_of
from gemmbench.model.case import Case, Policy
from gemmbench.model.instrument import NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Status
from gemmbench.opencl.runtime import SVM, Built, Runtime

_FILES = ("libclblast.so.1", "libclblast.dylib", "clblast.dll")
_ADVICE = "install CLBlast (libclblast1 on Debian and Ubuntu)"

_ROW_MAJOR = 101
_NOT_TRANSPOSED, _TRANSPOSED = 111, 112

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


# By data type: the function (and of a batch), how alpha and beta are passed, and how they are made.
_FUNCTIONS: Mapping[str, tuple[str, Any, Callable[[float], float]]] = {
    "float": ("CLBlastSgemm", ctypes.c_float, float),
    "double": ("CLBlastDgemm", ctypes.c_double, float),
    "half": ("CLBlastHgemm", ctypes.c_uint16, _half),
}
_OF_BATCH = "StridedBatched"


class Clblast:
    """The library of this process.

    Raises:
        NotMeasuredError: unsupported: it is not installed.
    """

    def __init__(self) -> None:
        self._library = opened("CLBlast", _candidates(), _ADVICE)
        self.title = _title(self._library)

    def enqueue(self, problem: Gemm, layout: Layout, a: int, b: int, c: int, queue: int) -> None:
        """Put C = alpha op(A) op(B) + beta C, row-major, into a queue; returns before it has run.

        Args:
            problem: none of its lengths is 0: CLBlast refuses such. A batch is one call, too.
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
        several = problem.batch > 1

        def matrix(rows: int, address: int, ld: int) -> tuple[Any, ...]:
            apart = (length(rows * ld),) if several else ()
            return memory(address), length(0), length(ld), *apart

        status = getattr(self._library, f"{name}{_OF_BATCH}" if several else name)(
            _ROW_MAJOR,
            _TRANSPOSED if problem.trans_a else _NOT_TRANSPOSED,
            _TRANSPOSED if problem.trans_b else _NOT_TRANSPOSED,
            *map(length, (problem.m, problem.n, problem.k)),
            scalar(made(problem.alpha)),
            *matrix(problem.stored_a[0], a, layout.lda),
            *matrix(problem.stored_b[0], b, layout.ldb),
            scalar(made(problem.beta)),
            *matrix(problem.m, c, layout.ldc),
            *((length(problem.batch),) if several else ()),
            ctypes.byref(memory(queue)),
            None,  # no event: it would be the last pass's alone
        )
        if status:
            outcome, why = _REFUSALS.get(status, ("failed", "see clblast_c.h"))
            raise NotMeasuredError(outcome, f"CLBlast answers with status {status}: {why}")


def _candidates() -> list[str]:
    installed = ctypes.util.find_library("clblast")
    return [*_FILES, *([installed] if installed else [])]


def _title(library: ctypes.CDLL) -> str:
    """``CLBlast 1.5.3``: it does not tell its version, but its file's name does; else the file's name."""
    file = file_of(library.CLBlastSgemm)
    if file is None:
        return "CLBlast"
    version = re.search(r"\d+(\.\d+)+", file.name)
    return f"CLBlast {version[0]}" if version else f"CLBlast ({file.name})"


# --- CLBlast on an OpenCL device: verified and sampled like the ladder, its passes its own business ---------


_CLOCK = "device scope, by the wall clock: its event may be the last pass's alone"


@dataclass(frozen=True)
class ClblastCall:
    """One call with its arguments: a `gemm_bench.Step`."""

    library: Clblast
    problem: Gemm
    layout: Layout
    buffers: Mapping[str, Any]
    role: str = "multiply"
    name: str = "CLBlast"

    def enqueue(self, queue: Any) -> None:
        """Put its kernels into a queue."""
        a, b, c = (self.buffers[name].int_ptr for name in ("A", "B", "C"))
        self.library.enqueue(self.problem, self.layout, a, b, c, queue.int_ptr)


class ClblastExecutor(GemmExecutor):
    """Runs gemm cases with CLBlast on one OpenCL device.

    Raises:
        NotMeasuredError: unsupported: the library is not installed.
    """

    bench = WallBench

    def __init__(self, runtime: Runtime) -> None:
        super().__init__(runtime)
        self._library = Clblast()
        self.notes = (f"{self._library.title}, {_CLOCK}",)

    def prepare(
        self, case: Case, policy: Policy, like: Bench | None = None, problem: Gemm | None = None
    ) -> Bench:
        if case.problem is not None and not case.problem.flops:
            raise NotMeasuredError("unsupported", "CLBlast takes no matrix without elements")
        if policy.memory in SVM:
            raise NotMeasuredError("unsupported", "CLBlast takes buffers, and no shared virtual memory")
        return super().prepare(case, policy, like, problem)

    def bind(
        self,
        variant: Variant,
        parameters: Mapping[str, int],
        programs: Mapping[str, Built],
        problem: Gemm,
        layout: Layout,
        buffers: Mapping[str, Any],
        fixed: bool = False,
    ) -> list[ClblastCall]:
        """The one call; CLBlast compiles its kernels when it is first made."""
        return [ClblastCall(self._library, problem, layout, buffers)]


def opened(what: str, candidates: Iterable[str], advice: str) -> ctypes.CDLL:
    """The first library that loads.

    Candidates are paths, or names that the system's loader looks for; `advice` says what to install.

    Raises:
        NotMeasuredError: unsupported: none is there, or one is and does not load.
    """
    broken = ""
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            if Path(candidate).is_file():  # it is there, and lacks something
                broken = f" ({error})"
    raise NotMeasuredError("unsupported", f"{what} is not there{broken}: {advice}")
