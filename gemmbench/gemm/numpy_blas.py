"""The host's BLAS, through numpy or scipy, and MKL.

numpy has no alpha and beta: it would read and write C three times more. With them, scipy calls the BLAS.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from gemmbench.gemm.answers import Answers, forget_operands
from gemmbench.gemm.operands import Matrices, load_operands, rotating_sets
from gemmbench.gemm.verify import as_stack
from gemmbench.measure import machine
from gemmbench.measure.blas import UNKNOWN
from gemmbench.model import instrument
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.dtypes import HostArray, allocate_page_aligned
from gemmbench.model.instrument import Batch, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import BLAS, Check, Work
from gemmbench.model.units import count_noun

_MOST_BYTES = 4 << 30  # of all operand sets
_GAPS = "numpy applies alpha and beta after the product, since scipy does not support gaps between rows"
_WARM = "cold: its operands stay in the cache, since the size of the host's caches is not known"


class NumpyExecutor:
    """Runs gemm cases with numpy or scipy. `pin` pins the threads of loaded BLAS."""

    def __init__(self, pin: Callable[[], object] = lambda: None) -> None:
        self._pin = pin

    def build(self, case: Case) -> instrument.Built:
        return instrument.Built()

    def prepare(
        self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None
    ) -> NumpyBench:
        if problem:
            case = replace(case, problem=problem, operands=Operands())
        bench = self._bench(case, policy)
        self._pin()
        return bench

    def _bench(self, case: Case, policy: Policy) -> NumpyBench:
        return NumpyBench(case, policy)


class NumpyBench:
    """One problem on the host by numpy or scipy: a `measure.instrument.Bench`."""

    scopes = distinct = ("host",)
    is_long = erases = False
    sets = 1

    def __init__(self, case: Case, policy: Policy) -> None:
        self._problem = problem = case.gemm
        self._values = load_operands(case, policy.seed)
        self._answers = Answers(case, self._values)
        self._stored = values = self._values.stored(problem)
        cache, sets = 0, 1
        if policy.cold:
            from gemmbench.opencl import discovery  # loads the OpenCL library, but no driver

            cache = discovery.last_level_cache_bytes(cores=machine.all_cores() or None)
            sets = rotating_sets(problem, cache, _MOST_BYTES)
        c = values.c
        self._sets = [  # A, B, C before (nobody reads it if beta is 0), the result
            (_on_pages(values.a), _on_pages(values.b), _on_pages(c) if problem.beta else c, _on_pages(c))
            for _ in range(sets)
        ]
        self._next = 0
        self._last: HostArray | None = None  # C of the last batch, unless `answer` was called since
        notes: tuple[str, ...] = (_WARM,) if policy.cold and not cache else ()
        self._in_place, choice, further = self._library()
        notes += further
        built = instrument.Built(choice=choice)
        unit = Work(flops=problem.flops)
        self.prepared = instrument.Prepared(("host",), sets=sets, notes=notes, built=built, unit=unit)

    def _library(self) -> tuple[bool, dict[str, int | float | str], tuple[str, ...]]:
        """Whether it adds to C in place, what replaces numpy, and notes."""
        problem, values = self._problem, self._stored
        if not problem.flops or (problem.alpha == 1 and problem.beta == 0):
            return False, {}, ()
        if tuple(matrix.shape[1] for matrix in (values.a, values.b, values.c)) != problem.tight:
            return False, {}, (_GAPS,)
        return True, {BLAS: scipy_title()}, ()

    def verify(self, when: instrument.When) -> instrument.Verified:
        if when == "exact":
            return instrument.Verified(Check("ok"))
        return self._answers.verified(self, when)

    def put(self, values: Matrices, index: int = 0) -> None:
        self._sets[0] = (_on_pages(values.a), _on_pages(values.b), *self._sets[0][2:])

    def answer(self, scope: str, index: int, c: HostArray, problem: Gemm | None = None) -> HostArray:
        """As `Bench.answer`: there is one scope, and the first operand set is used."""
        self._last = None
        *_, before, out = self._sets[0]
        out[...] = c
        if self._problem.beta != 0:
            before[...] = c
        for call in self._calls(problem or self._problem, *self._sets[0]):
            call()
        if self._problem.beta != 0:
            before[...] = self._stored.c
        return np.asarray(out)

    def left(self) -> HostArray | None:
        return self._last

    def _inside(
        self, a: HostArray, b: HostArray, c: HostArray, out: HostArray
    ) -> tuple[HostArray, HostArray, HostArray, HostArray]:
        """op(A), op(B), C and the output without padding, as stacks if batched."""
        wide_a, wide_b, n = self._problem.tight
        views = a[:, :wide_a], b[:, :wide_b], c[:, :n], out[:, :n]
        batch = self._problem.batch
        a, b, c, out = (as_stack(matrix, batch) for matrix in views) if batch > 1 else views
        a = a.swapaxes(-1, -2) if self._problem.trans_a else a
        return a, b.swapaxes(-1, -2) if self._problem.trans_b else b, c, out

    def start(self, clock: str, count: int, work: int = 1) -> Batch:
        """Run `count` problems. If the library adds to C, the last C is restored, untimed."""
        sets = [self._calls(self._problem, *matrices) for matrices in self._sets]
        order = [sets[(self._next + number) % len(sets)] for number in range(count)]
        self._next += count
        self._last = self._sets[(self._next - 1) % len(sets)][-1]
        first, last = [call for calls in order[:-1] for call in calls], order[-1]
        begin = time.perf_counter()
        for call in first:
            call()
        paused = time.perf_counter()
        if self._in_place and self._problem.beta != 0:  # the last C is the one that was verified
            np.copyto(self._last, self._stored.c)
        resumed = time.perf_counter()
        for call in last:
            call()
        end = time.perf_counter()
        seconds = end - resumed + paused - begin
        return Batch({clock: seconds / count}, end - seconds, end, count)

    def _calls(
        self, problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray
    ) -> list[Callable[[], object]]:
        """The library's calls of a problem; several where it multiplies no batches."""
        a, b, c, out = self._inside(a, b, c, out)
        if problem.alpha == 1 and problem.beta == 0:
            return [partial(np.matmul, a, b, out=out)]
        if not self._in_place:
            return [partial(multiply_by_numpy, problem, a, b, c, out)]
        if problem.batch == 1:
            a, b, out = a[None], b[None], out[None]
        return [scipy_gemm(problem, *matrices) for matrices in zip(a, b, out, strict=True)]

    def release(self) -> None:
        """Drop the cached operands, which no other kernel of this process uses."""
        forget_operands()


def _on_pages(matrix: HostArray) -> HostArray:
    # Elsewhere two threads of OpenBLAS write to one cache line in each row of C, for up to 1.4 times as long.
    copy = allocate_page_aligned(matrix.size, matrix.dtype).reshape(matrix.shape)
    copy[...] = matrix
    return copy


def multiply_by_numpy(problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray) -> None:
    """out = alpha op(A) op(B) + beta C by numpy; C is not read if beta is 0."""
    np.matmul(a, b, out=out)
    if problem.alpha != 1:
        out *= out.dtype.type(problem.alpha)
    if problem.beta != 0:
        out += out.dtype.type(problem.beta) * c


def scipy_gemm(problem: Gemm, a: HostArray, b: HostArray, c: HostArray) -> Callable[[], object]:
    """A call of C = alpha A B + beta C in place, transposed: the BLAS stores columns."""
    from scipy.linalg import blas

    return partial(
        blas.dgemm if c.dtype == np.float64 else blas.sgemm,
        *(problem.alpha, b if problem.trans_b else b.T, a if problem.trans_a else a.T),
        *(problem.beta, c.T, problem.trans_b, problem.trans_a),
        overwrite_c=1,
    )


def scipy_title() -> str:
    """scipy with its BLAS: ``scipy (OpenBLAS 0.3.30, 2 threads)``."""
    import scipy.linalg.blas

    pool = machine.pool_of(scipy)
    title = machine.pool_title({**pool, "architecture": ""}) if pool else UNKNOWN
    return f"scipy ({title.replace('openblas', 'OpenBLAS')})"


# --- MKL, by its C interface. Its first product starts its threads.

_ROW_MAJOR, _PLAIN, _TRANSPOSED, _FIX_OFFSET = 101, 111, 112, 173  # of cblas.h
_OFFSET = 128  # that makes a char unsigned
_WANTS_UNSIGNED = "mkl: A + 128, since MKL wants an unsigned A, is made before the clock starts"
_SATURATES = (
    "MKL's products of char are exact only on CPUs with VNNI or AMX: elsewhere pairs saturate in 16 bits"
)


_ROUTINES: Mapping[str, tuple[str, Callable[[float], Any]]] = {  # and how alpha and beta are passed
    "float": ("cblas_sgemm", ctypes.c_float),
    "double": ("cblas_dgemm", ctypes.c_double),
    "half": ("cblas_hgemm", lambda value: ctypes.c_uint16(int(np.float16(value).view(np.uint16)))),
    "bfloat16": ("cblas_gemm_bf16bf16f32", ctypes.c_float),
    "char": ("cblas_gemm_s8u8s32", ctypes.c_float),
}


def mkl_file() -> str:
    """MKL's library in this Python environment, or the system's; "" without one."""
    folders = (Path(sys.prefix, "lib"), Path(sys.prefix, "Library", "bin"))
    files = sorted(str(file) for folder in folders for file in folder.glob("*mkl_rt.*"))
    return files[-1] if files else ctypes.util.find_library("mkl_rt") or ""


class Mkl:
    """MKL in this process, with its threads started; else `NotMeasuredError` (unsupported)."""

    def __init__(self) -> None:
        file = mkl_file()
        with suppress(AttributeError, OSError):  # MKL counts the cores of its caller, whom numpy's row pinned
            os.sched_setaffinity(threading.get_native_id(), machine.all_cores())
        try:
            if not file:
                raise NotMeasuredError("unsupported", 'MKL is not there: pip install "gemmbench[mkl]"')
            self._library = ctypes.CDLL(file)
        except OSError as error:
            raise NotMeasuredError("unsupported", f"MKL does not load: {error}") from None
        size = 256
        ones = np.ones((size, size), np.float32)
        self.call(Gemm(size, size, size), ones, ones, ones.copy())()
        threads, text = self._library.mkl_get_max_threads(), ctypes.create_string_buffer(size)
        self._library.mkl_get_version_string(text, size)
        version = re.search(r"Version (\S+?)(-|\s|$)", text.value.decode(errors="replace"))
        self.title = f"MKL {version[1] if version else ''}, {count_noun(threads, 'thread')}"

    def saturates(self) -> bool:
        """Whether pairs of its products of char overflow 16 bits on this CPU."""
        size, most = 64, 127
        matrix, c = np.full((size, size), most, np.int8), np.zeros((size, size), np.int32)
        self.call(Gemm(size, size, size, "char"), matrix, matrix, c)()
        return bool((c != size * most * most).any())

    def call(self, problem: Gemm, a: HostArray, b: HostArray, c: HostArray) -> Callable[[], object]:
        """A call of C = alpha op(A) op(B) + beta C in place. Of char, A + 128 is unsigned, with an offset."""
        name, scalar = _ROUTINES[problem.dtype]
        is_char = problem.dtype == "char"
        if is_char:
            a = a.view(np.uint8) ^ np.uint8(_OFFSET)

        def matrix(values: HostArray, *offset: int) -> tuple[Any, ...]:
            offsets = map(ctypes.c_int8, offset if is_char else ())
            return values.ctypes.data_as(ctypes.c_void_p), max(1, values.shape[1]), *offsets

        ops = (_TRANSPOSED if each else _PLAIN for each in (problem.trans_a, problem.trans_b))
        added = [np.zeros(1, np.int32).ctypes.data_as(ctypes.c_void_p)] if is_char else []
        return partial(
            getattr(self._library, name),
            *(_ROW_MAJOR, *ops, *([_FIX_OFFSET] if is_char else [])),
            *(problem.m, problem.n, problem.k, scalar(problem.alpha)),
            *(*matrix(a, -_OFFSET), *matrix(b, 0), scalar(problem.beta), *matrix(c)[:2], *added),
        )


class MklExecutor(NumpyExecutor):
    """Runs gemm cases with MKL; `NotMeasuredError` without it."""

    @staticmethod
    def is_installed(_: DeviceFacts) -> bool:
        return bool(mkl_file())

    def __init__(self, pin: Callable[[], object] = lambda: None) -> None:
        super().__init__(pin)
        self._mkl = Mkl()

    def _bench(self, case: Case, policy: Policy) -> NumpyBench:
        if case.dtype == "char" and self._mkl.saturates():
            raise NotMeasuredError("unsupported", _SATURATES)
        return MklBench(case, policy, self._mkl)


class MklBench(NumpyBench):
    """One problem on the host by MKL."""

    def __init__(self, case: Case, policy: Policy, mkl: Mkl) -> None:
        self._mkl = mkl
        super().__init__(case, policy)

    def _library(self) -> tuple[bool, dict[str, int | float | str], tuple[str, ...]]:
        notes = (self._mkl.title, *([_WANTS_UNSIGNED] if self._problem.dtype == "char" else []))
        return True, {}, notes

    def _calls(
        self, problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray
    ) -> list[Callable[[], object]]:
        stacks = (as_stack(matrix, problem.batch) for matrix in (a, b, out))
        return [self._mkl.call(problem, *matrices) for matrices in zip(*stacks, strict=True)]
