"""The host's BLAS, numpy's or a second one: the host side of the break-even size."""

from __future__ import annotations

import ctypes
import ctypes.util
import importlib.util
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from gemmbench.gemm.answers import Answers
from gemmbench.gemm.operands import Matrices, load_operands, rotating_sets
from gemmbench.gemm.verify import stack
from gemmbench.ladder.variant import Layout
from gemmbench.measure import host
from gemmbench.model import instrument
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.dtypes import HostArray
from gemmbench.model.instrument import Batch, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import THREADS, Check, titled
from gemmbench.opencl import discovery

_MOST_BYTES = 4 << 30  # of all operand sets
_WARM = "cold: its operands stay in the cache, since the size of the host's caches is not known"


Threads = Callable[[], AbstractContextManager[object]]


class NumpyExecutor:
    """Runs gemm cases with numpy.matmul. There is no device, so only the host scope is measured."""

    def build(self, case: Case) -> instrument.Built:
        return instrument.Built()

    def prepare(
        self, case: Case, policy: Policy, like: object = None, problem: Gemm | None = None
    ) -> NumpyBench:
        if problem:
            case = replace(case, problem=problem, operands=Operands())
        return NumpyBench(case, policy, self.multiply, self._threads(case), self.build(case))

    def multiply(self, problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray) -> None:
        """out = alpha op(A) op(B) + beta C; c is not read if beta is 0."""
        gemm(problem, a, b, c, out)

    def pool(self) -> host.Pool | None:
        """What threadpoolctl says of the library; None if it does not know it."""
        return host.numpy_pool()

    def is_apart(self) -> bool:
        """Whether its threads have cores of their own; the caller's is the one that is left."""
        return host.numpy_is_apart()

    def _threads(self, case: Case) -> Threads:
        """What is entered while a case multiplies, so that its library has the threads that it asks for.

        Raises:
            NotMeasuredError: unsupported: they cannot be set.
        """
        wanted = case.parameters.get(THREADS)
        cores = host.all_cores()[:1] if self.is_apart() else host.all_cores()
        if wanted is None:
            return partial(host.on_cores, cores)
        limit = host.blas_threads(int(wanted))

        @contextmanager
        def threads() -> Iterator[None]:
            with host.on_cores(cores), limit():
                yield

        with threads():
            pool = self.pool()
        if pool is None or pool["num_threads"] != wanted:
            most = f", it takes {pool['num_threads']}" if pool else ""
            count = titled("", {THREADS: wanted})
            raise NotMeasuredError("unsupported", f"its BLAS cannot be set to {count}{most}")
        return threads


class NumpyBench:
    """One problem on the host: a `measure.instrument.Bench`; `threads` is entered while it multiplies."""

    scopes = distinct = ("host",)
    sets = 1

    def __init__(
        self,
        case: Case,
        policy: Policy,
        multiply: Callable[[Gemm, HostArray, HostArray, HostArray, HostArray], None],
        threads: Threads,
        built: instrument.Built,
    ) -> None:
        self._multiply, self._threads = multiply, threads
        self._problem = case.gemm
        self._values = load_operands(case, policy.seed)
        self._answers = Answers(case, self._values, policy, "")
        self._stored = values = self._values.stored(case.gemm)
        self._a, self._b = values.a, values.b
        self._c = values.c.copy()
        self._out = values.c.copy()
        cache = discovery.last_level_cache_bytes() if policy.cold else 0
        sets = rotating_sets(self._problem, cache, _MOST_BYTES) if policy.cold else 1
        self._others = [
            (values.a.copy(), values.b.copy(), self._c.copy(), self._out.copy()) for _ in range(1, sets)
        ]
        self._next, self._last = 0, self._out
        notes = (_WARM,) if policy.cold and not cache else ()
        self.prepared = instrument.Prepared(("host",), built=built, sets=sets, notes=notes)
        self._has_run = False

    def verify(self, when: instrument.When) -> instrument.Verified:
        """See `measure.instrument.Bench`; the library is not tested on problems of ours."""
        if when == "exact":
            return instrument.Verified(Check("ok"))
        return self._answers.verified(self, when)

    # --- answers: see `gemm.answers.Answering` ---

    def put(self, values: Matrices, index: int = 0) -> None:
        self._a, self._b = values.a, values.b

    def answer(self, scope: str, index: int, c: HostArray) -> HostArray:
        self._has_run = False
        self._out[...] = c
        self._c[...] = c
        with self._threads():
            self._multiply(self._problem, *self._inside(self._a, self._b, self._c, self._out))
        self._c[...] = self._stored.c
        return np.array(self._out)

    def left(self) -> HostArray | None:
        return np.array(self._last) if self._has_run else None

    def paces(self, index: int, new: HostArray) -> None:
        """The wall clock of a busy host does not tell."""

    def _inside(
        self, a: HostArray, b: HostArray, c: HostArray, out: HostArray
    ) -> tuple[HostArray, HostArray, HostArray, HostArray]:
        """op(A), op(B), C and the result without what stands between rows: views, of a batch stacks."""
        wide_a, wide_b, n = self._problem.tight
        views = a[:, :wide_a], b[:, :wide_b], c[:, :n], out[:, :n]
        if self._problem.batch > 1:
            a, b, c, out = (stack(matrix, self._problem.batch) for matrix in views)
        else:
            a, b, c, out = views
        a, b = (
            a.swapaxes(-1, -2) if self._problem.trans_a else a,
            b.swapaxes(-1, -2) if self._problem.trans_b else b,
        )
        return a, b, c, out

    # --- batches ---

    def start(self, clock: str, count: int, work: int = 1) -> Batch:
        stored = [(self._a, self._b, self._c, self._out), *self._others]
        sets = [self._inside(*matrices) for matrices in stored]
        order = [sets[(self._next + number) % len(sets)] for number in range(count)]
        self._next += count
        multiply, problem = self._multiply, self._problem  # small products take no longer than finding these
        with self._threads():
            begin = time.monotonic()
            for a, b, c, out in order:
                multiply(problem, a, b, c, out)
            end = time.monotonic()
        self._last = stored[(self._next - 1) % len(sets)][-1]
        self._has_run = True
        return Batch({clock: (end - begin) / count}, begin, end, count)

    def release(self) -> None:
        """Nothing to do: arrays go with the last reference."""


def gemm(problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray) -> None:
    """out = alpha op(A) op(B) + beta C; c is not read if beta is 0."""
    np.matmul(a, b, out=out)
    if problem.alpha != 1:
        out *= out.dtype.type(problem.alpha)
    if problem.beta != 0:
        out += out.dtype.type(problem.beta) * c


# --- A second BLAS of the host, through its C interface -----------------------------------------------------


_NAMES = ("mkl_rt", "blis", "openblas", "blas")
_ROW_MAJOR = 101
_NOT_TRANSPOSED, _TRANSPOSED = 111, 112
_FUNCTIONS = {"float": ("cblas_sgemm", ctypes.c_float), "double": ("cblas_dgemm", ctypes.c_double)}
_PREFIXES = ("", "scipy_")  # of functions: scipy's own OpenBLAS has one


@cache
def second_blas() -> str:
    """A BLAS other than numpy's: MKL, BLIS, the system's OpenBLAS, scipy's; its file, "" if there is none."""
    own = str(Path((host.numpy_pool() or {}).get("filepath", "")).resolve())
    for file in _candidates():
        try:
            library = ctypes.CDLL(file)
        except OSError:
            continue
        if (function := _function(library, "cblas_sgemm")) and str(host.file_of(function)) != own:
            return file
    return ""


def _candidates() -> Iterator[str]:
    yield from filter(None, map(ctypes.util.find_library, _NAMES))
    scipy = importlib.util.find_spec("scipy")
    for folder in (scipy.submodule_search_locations or ()) if scipy else ():
        for libraries in (Path(folder).parent / "scipy.libs", Path(folder) / ".dylibs"):
            yield from map(str, sorted(libraries.glob("*openblas*")))


def _function(library: ctypes.CDLL, name: str) -> Any:
    """A function of a BLAS; None if it lacks that."""
    return next((call for prefix in _PREFIXES if (call := getattr(library, prefix + name, None))), None)


class CblasExecutor(NumpyExecutor):
    """Runs gemm cases with the second BLAS.

    Raises:
        NotMeasuredError: unsupported: there is none.
    """

    def __init__(self) -> None:
        before = host.other_threads()
        with host.on_cores(host.all_cores()):  # threads begin where their caller may be
            file = second_blas()
        self._is_apart = host.keep_apart(host.other_threads() - before)
        if not file:
            raise NotMeasuredError(
                "unsupported", "the host has no second BLAS: install libopenblas0, libblis4 or mkl"
            )
        self._library = ctypes.CDLL(file)
        self._file = host.file_of(_function(self._library, "cblas_sgemm")) or Path(file)
        self._pool = self.pool()

    def build(self, case: Case) -> instrument.Built:
        title = self._file.name
        if self._pool:
            threads = case.parameters.get(THREADS, self._pool["num_threads"])
            title = f"{host.pool_title({**self._pool, 'num_threads': threads})}, {title}"
        return instrument.Built(choice={"library": title})

    def pool(self) -> host.Pool | None:
        pools = (pool for pool in host.blas_pools() if Path(pool["filepath"]).resolve() == self._file)
        return next(pools, None)

    def is_apart(self) -> bool:
        return self._is_apart

    def multiply(self, problem: Gemm, a: HostArray, b: HostArray, c: HostArray, out: HostArray) -> None:
        name, scalar = _FUNCTIONS[problem.dtype]
        if problem.beta != 0:
            out[...] = c
        if not problem.m or not problem.n:
            return
        if problem.batch > 1:  # the interface has no batches: a call for each
            single = replace(problem, batch=1)
            for each in zip(a, b, c, out, strict=True):
                self.multiply(single, *each)
            return

        layout = Layout.of(problem)

        def matrix(values: HostArray, ld: int) -> tuple[ctypes.c_void_p, int]:
            return ctypes.c_void_p(values.ctypes.data), max(1, ld)

        ops = (_TRANSPOSED if each == "T" else _NOT_TRANSPOSED for each in problem.ops)
        operands = scalar(problem.alpha), *matrix(a, layout.lda), *matrix(b, layout.ldb)
        result = scalar(problem.beta), *matrix(out, layout.ldc)
        lengths = problem.m, problem.n, problem.k
        _function(self._library, name)(_ROW_MAJOR, *ops, *lengths, *operands, *result)
