"""The matrices of a case: generated, or the user's own .npy files."""

from __future__ import annotations

import math
import time
import tokenize
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import lru_cache
from pathlib import Path

import numpy as np

from gemmbench import UsageError
from gemmbench.gemm.verify import GUARD, DrawnRows, poison, random_operands, transpose_each, with_row_length
from gemmbench.ladder.variant import Layout
from gemmbench.model.case import Case, Operands, Policy
from gemmbench.model.device import DeviceFacts, last_level_cache
from gemmbench.model.dtypes import DTYPES, PLAIN_DTYPES, DType, HostArray, by_parts
from gemmbench.model.instrument import Batch, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import CYCLE, WHOLE
from gemmbench.model.units import ceil_div, count_noun, reason_of


class OperandError(UsageError, ValueError):
    """A matrix file that cannot be used; the message is for the user."""


class Laps:
    """Splits the wall time of one problem. `wait` waits for the device."""

    def __init__(self, wait: Callable[[], object]) -> None:
        self._wait = wait
        self._parts: dict[str, float] = {}
        self._begin = self._last = time.perf_counter()

    def lap(self, part: str, wait: bool = False) -> None:
        if wait:
            self._wait()
        now = time.perf_counter()
        self._parts[part], self._last = now - self._last, now

    def launched(self, busy: Callable[[], dict[str, float]] | None) -> None:
        """End the enqueueing, wait for the device, and split the time between both.

        `busy` returns the device's seconds for upload, passes and kernel; without it, the wait counts as
        passes. The wait beyond is ``waiting``. Where both worked, ``upload`` and ``enqueue`` are shortened.
        """
        self.lap("enqueue")
        self.lap("passes", wait=True)
        if not busy:
            return
        seconds = busy()
        left = self._parts.pop("passes") - sum(seconds.values())
        for part, most in (("upload", seconds["upload"]), ("enqueue", math.inf), ("upload", math.inf)):
            meanwhile = min(self._parts[part], most, max(0.0, -left))
            self._parts[part] -= meanwhile
            left += meanwhile
        seconds["upload"] += self._parts["upload"]
        self._parts |= seconds | {"waiting": max(0.0, left)}

    def end(self) -> dict[str, float]:
        self.lap("download")
        return {WHOLE: time.perf_counter() - self._begin} | self._parts


def same_bits(values: HostArray, others: HostArray) -> bool:
    """Whether two contiguous arrays hold the same bits, NaN included."""
    left, right = (each.reshape(-1).view(f"u{values.itemsize}") for each in (values, others))
    return left.size == right.size and all(by_parts(lambda at: (left[at] == right[at]).all(), left.size))


SPLIT = ("parts", CYCLE)  # the clocks that split a problem
MOST_SETS = 64  # of operands
_LARGE_BYTES = 1 << 28

LONG_S = 0.005  # from here on a problem in the host scope is split, too: that costs it less than 0.2 %


def host_batch(run: Callable[[], dict[str, float]], clock: str, count: int) -> Batch:
    """A batch in the host scope. If `run` splits a problem, the clock "host" gets the finer scopes, too."""
    begin = time.perf_counter()
    runs = [run() for _ in range(count)]
    each = {name: tuple(seconds[name] for seconds in runs) for name in runs[0]}
    end, mean = time.perf_counter(), {name: sum(values) / count for name, values in each.items()}
    if clock in SPLIT:
        return Batch({clock: mean[WHOLE]}, begin, end, count, each)
    seconds, launch_s = {clock: mean[WHOLE]}, None
    if clock == "host" and "kernel" in mean:
        device_s = mean["passes"] + mean["kernel"]
        seconds = {"kernel": mean["kernel"], "device": device_s, **seconds}
        launch_s = end - begin - count * (device_s + mean["waiting"])  # all else that the host did
    elif clock == "host" and "passes" in mean:  # by the wall clock
        seconds = {"device": mean["enqueue"] + mean["passes"], **seconds}
    return Batch(seconds, begin, end, count, each if len(each) > 1 else {}, launch_s=launch_s)


@dataclass(frozen=True)
class Matrices:
    """op(A) (m x k), op(B) (k x n) and C before (m x n) of every problem, one below the other."""

    a: HostArray
    b: HostArray
    c: HostArray
    generated: bool  # gemmbench's own, uniform ones
    rows: list[DrawnRows] = field(default_factory=list, compare=False)  # of the reference, once it is made

    def stored(self, problem: Gemm) -> Matrices:
        """A, B and C as the problem stores them, with poison and guards in gaps."""
        layout, unread = Layout.of(problem), poison(DTYPES[problem.dtype])
        a = transpose_each(self.a, problem.batch) if problem.trans_a else self.a
        b = transpose_each(self.b, problem.batch) if problem.trans_b else self.b
        a, b = with_row_length(a, layout.lda, unread), with_row_length(b, layout.ldb, unread)
        return replace(self, a=a, b=b, c=add_guards(problem, self.c))


def add_guards(problem: Gemm, c: HostArray) -> HostArray:
    """C (m x n of every problem) in rows of ldc elements, with guards in the gaps."""
    return with_row_length(c, Layout.of(problem).ldc, c.dtype.type(GUARD))


def unwritten(problem: Gemm, c: HostArray) -> HostArray:
    """C before a problem: poisoned if it must not be read."""
    return c if problem.beta != 0 else _poisoned(c.shape, problem.result)


@lru_cache(maxsize=1)  # every kernel of a problem; nobody writes to it
def _poisoned(shape: tuple[int, ...], dtype: DType) -> HostArray:
    return np.full(shape, poison(dtype), dtype.numpy)


@dataclass(frozen=True)
class MatrixHeader:
    """What the first bytes of a .npy file say."""

    rows: int
    columns: int
    dtype: str  # gemmbench's name


def load_operands(case: Case, seed: int = 1) -> Matrices:
    """op(A), op(B) and C of a case: the user's files, others random. They are cached: do not change them.

    `NotMeasuredError` if a file cannot be read, does not fit the problem, or holds NaN or infinity.
    """
    load = _load_large if case.gemm.operand_bytes > _LARGE_BYTES else _load
    try:
        return load(case.gemm, case.operands, seed)
    except OperandError as error:
        raise NotMeasuredError("failed", str(error)) from None


@lru_cache(maxsize=4)  # variants take turns on one problem, and on the smaller ones of their trials
def _load(problem: Gemm, files: Operands, seed: int) -> Matrices:
    a, b, c = random_operands(problem, seed)
    if files.a:
        a = read_matrix(files.a, MatrixHeader(*problem.stored_a, problem.dtype))
        a = a.T if problem.trans_a else a
    if files.b:
        b = read_matrix(files.b, MatrixHeader(*problem.stored_b, problem.dtype))
        b = b.T if problem.trans_b else b
    if files.c:
        c = read_matrix(files.c, MatrixHeader(problem.m, problem.n, problem.dtype))
    elif problem.beta == 0:  # so nobody reads it
        c = unwritten(problem, c)
    return Matrices(a, b, c, not files.given)


_load_large = lru_cache(maxsize=1)(_load.__wrapped__)


def clear_caches() -> None:
    """Drop the cached operands."""
    for cached in (_load, _load_large, _poisoned):
        cached.cache_clear()


def read_header(path: str) -> MatrixHeader:
    """Shape and type of the matrix in a .npy file; `OperandError` if it is none."""
    try:
        values = np.load(path, mmap_mode="r", allow_pickle=False)
    except OSError as error:
        raise OperandError(f"cannot read {path}: {reason_of(error).lower()}") from None
    except (ValueError, EOFError, OverflowError, SyntaxError, tokenize.TokenError):
        raise OperandError(f"cannot read {path}: not a .npy file of numbers, or cut short") from None
    if not isinstance(values, np.ndarray):
        values.close()
        raise OperandError(f"{path} is an archive of arrays (.npz); save the one you mean with numpy.save")
    if values.ndim != 2:
        raise OperandError(f"{path} has {count_noun(values.ndim, 'dimension')}, where a matrix has 2")
    names = {DTYPES[name].numpy: name for name in PLAIN_DTYPES}
    native = values.dtype.newbyteorder("=")
    if native not in names:
        *others, last = map(str, names)
        wanted = f"{', '.join(others)} or {last} is wanted (numpy's astype converts)"
        raise OperandError(f"{path} holds {native}, where {wanted}")
    rows, columns = values.shape
    return MatrixHeader(rows, columns, names[native])


def read_matrix(path: str, wanted: MatrixHeader) -> HostArray:
    """A matrix from a .npy file, row-major; `OperandError` if it is not as `wanted`."""
    if read_header(path) != wanted:
        raise OperandError(
            f"{path} changed while it was in use: {wanted.rows} x {wanted.columns} {wanted.dtype} is wanted"
        )
    try:
        values: HostArray = np.load(path, allow_pickle=False)
    except (OSError, ValueError) as error:
        raise OperandError(f"cannot read {path}: {reason_of(error).lower()}") from None
    values = np.ascontiguousarray(values, DTYPES[wanted.dtype].numpy)
    if not np.isfinite(values).all():
        row, column = np.argwhere(~np.isfinite(values))[0]
        raise OperandError(
            f"{path} holds {values[row, column]} at [{row}, {column}], with which no result can be verified"
        )
    return values


def save_result(path: str, values: HostArray) -> None:
    """Write C as a .npy file. `NotMeasuredError` if that fails."""
    try:
        with Path(path).open("wb") as file:
            np.save(file, values)
    except OSError as error:
        raise NotMeasuredError("failed", f"cannot write {path}: {reason_of(error).lower()}") from None


def operand_sets(problem: Gemm, device: DeviceFacts, policy: Policy) -> int:
    """How many operand sets a GEMM rotates among: 1, unless cold."""
    if not policy.cold or not problem.operand_bytes:
        return 1
    return rotating_sets(problem, last_level_cache(device), device.global_mem_bytes // 2)


def rotating_sets(problem: Gemm, cache_bytes: int, most_bytes: int) -> int:
    """How many operand sets fill twice a cache: 1 to 64, within ``most_bytes``."""
    size = max(1, problem.operand_bytes)
    return max(1, min(ceil_div(2 * cache_bytes, size), MOST_SETS, most_bytes // size))
