"""cuBLAS's C interface: one GEMM put into a CUDA stream, in every type that it multiplies."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gemmbench.baselines.shared_library import opened
from gemmbench.facts.problem import Gemm
from gemmbench.rules.executor import NotMeasuredError
from gemmbench.rules.variants import Layout

_FILES = ("libcublas.so.13", "libcublas.so.12", "cublas64_13.dll", "cublas64_12.dll")
_ADVICE = 'pip install "gemmbench[cublas]", or install the CUDA toolkit'

_NOT_TRANSPOSED = 0
_ANY_ALGORITHM = -1
_VERSION_PARTS = (0, 1, 2)  # major, minor, patch

_LACKING = (8, 15)  # the statuses that say that it cannot, not that it failed


@dataclass(frozen=True)
class _Form:
    """How cuBLAS is told of a data type: numbers of ``cudaDataType`` and ``cublasComputeType_t``."""

    operands: int
    result: int
    compute: int
    scalar: Any  # ctypes type of alpha and beta
    step: int = 1  # k and the length of rows must be multiples of it


_FORMS: Mapping[str, _Form] = {
    #              A, B   C  compute
    "float": _Form(0, 0, 68, ctypes.c_float),  # in full: tf32 only where it is asked for
    "double": _Form(1, 1, 70, ctypes.c_double),
    "half": _Form(2, 2, 68, ctypes.c_float),
    "bfloat16": _Form(14, 0, 68, ctypes.c_float),
    "tf32": _Form(0, 0, 77, ctypes.c_float),
    "char": _Form(3, 10, 72, ctypes.c_int32, step=4),  # not transposed: its dp4a path, no tensor cores
}


def step(dtype: str) -> int:
    """What n, k and leading dimensions must be multiples of."""
    return _FORMS[dtype].step


class Cublas:
    """The library, putting its work into one stream of the current CUDA device.

    Raises:
        NotMeasuredError: unsupported: it is not installed, or not for this GPU.
    """

    def __init__(self, stream: ctypes.c_void_p) -> None:
        self._library = opened("cuBLAS", _candidates(), _ADVICE)
        self._library.cublasGetStatusString.restype = ctypes.c_char_p
        self._handle = ctypes.c_void_p()
        self._call("cublasCreate_v2", ctypes.byref(self._handle))
        self._call("cublasSetStream_v2", self._handle, stream)
        self.title = f"cuBLAS {'.'.join(str(self._property(part)) for part in _VERSION_PARTS)}"

    def enqueue(self, problem: Gemm, layout: Layout, a: int, b: int, c: int) -> None:
        """Put C = alpha A B + beta C, row-major, into the stream; returns before it has run.

        cuBLAS knows columns only. A row-major matrix read by columns is its transpose, and the transpose of
        A B is that of B times that of A: so B goes first, and n before m.

        Args:
            problem: any.
            layout: leading dimensions.
            a: the device address of A.
            b: of B.
            c: of C.

        Raises:
            NotMeasuredError: unsupported: not this type or shape on this GPU; failed: with its status.
        """
        if not problem.m or not problem.n:
            return
        form = _FORMS[problem.dtype]
        # Where only k is not, it does not refuse: cuBLAS 13.1 reads past the ends of rows, and answers wrong.
        if any(length % form.step for length in (problem.n, problem.k, layout.lda, layout.ldb)):
            raise NotMeasuredError(
                "unsupported",
                f"cuBLAS takes {problem.dtype} only with n and k that are multiples of {form.step}",
            )
        self._call(
            "cublasGemmEx",
            self._handle,
            *(_NOT_TRANSPOSED, _NOT_TRANSPOSED),
            *(problem.n, problem.m, problem.k),
            ctypes.byref(form.scalar(_scalar(form, problem.alpha))),
            *(ctypes.c_void_p(b), form.operands, max(1, layout.ldb)),
            *(ctypes.c_void_p(a), form.operands, max(1, layout.lda)),
            ctypes.byref(form.scalar(_scalar(form, problem.beta))),
            *(ctypes.c_void_p(c), form.result, max(1, layout.ldc)),
            *(form.compute, _ANY_ALGORITHM),
        )

    def _property(self, part: int) -> int:
        value = ctypes.c_int()
        self._call("cublasGetProperty", part, ctypes.byref(value))
        return value.value

    def _call(self, function: str, *arguments: Any) -> None:
        status = getattr(self._library, function)(*arguments)
        if status:
            words = (self._library.cublasGetStatusString(status) or b"?").decode(errors="replace")
            if status in _LACKING:
                raise NotMeasuredError("unsupported", f"cuBLAS does not do this here: {words} ({function})")
            raise NotMeasuredError("failed", f"{function} failed: cuBLAS says {words}", restart=True)


def _scalar(form: _Form, value: float) -> int | float:
    return int(value) if form.scalar is ctypes.c_int32 else value


def _candidates() -> list[str]:
    """NVIDIA's packages for pip first, whose version suits what else they brought, then the system's."""
    found = [str(path) for path in _packaged()]
    found += _FILES
    named = ctypes.util.find_library("cublas")
    return [*found, *([named] if named else []), *(str(path) for path in _toolkit())]


def _packaged() -> Iterator[Path]:
    """Of CUDA 12's packages it is in ``nvidia/cublas/lib``, of CUDA 13's in ``nvidia/cu13/lib``."""
    spec = importlib.util.find_spec("nvidia")  # a folder without a module: nothing is imported
    for folder in spec.submodule_search_locations or () if spec else ():
        for file in _FILES:
            yield from sorted(Path(folder).glob(f"*/*/{file}"))
            yield from sorted(Path(folder).glob(f"*/*/*/{file}"))


def _toolkit() -> Iterator[Path]:
    """Where the CUDA toolkit puts it."""
    for root in filter(None, (os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda")):
        for file in _FILES:
            yield from (path for part in ("lib64", "lib", "bin") if (path := Path(root, part, file)).exists())
