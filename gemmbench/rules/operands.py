"""The matrices of a case: generated, or the user's own .npy files."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from gemmbench.facts.dtypes import DTYPES, GEMM_DTYPES
from gemmbench.facts.problem import Gemm
from gemmbench.rules.plan import Case, Operands
from gemmbench.rules.reference import Array, random_operands


class OperandError(ValueError):
    """A matrix file that cannot be used; the message is for the user."""


@dataclass(frozen=True)
class Matrices:
    """A (m x k), B (k x n), C before (m x n), and whether A and B were generated with mean zero."""

    a: Array
    b: Array
    c: Array
    generated: bool


def load_operands(case: Case) -> Matrices:
    """The matrices of a case.

    Raises:
        OperandError: a file cannot be read or does not fit the problem.
    """
    assert case.problem is not None
    return _load(case.problem, case.operands)


@lru_cache(maxsize=1)  # variants take turns on one problem
def _load(problem: Gemm, files: Operands) -> Matrices:
    a, b, c = random_operands(problem)
    if files.a:
        a = read_matrix(files.a, (problem.m, problem.k), problem.dtype)
    if files.b:
        b = read_matrix(files.b, (problem.k, problem.n), problem.dtype)
    if files.c:
        c = read_matrix(files.c, (problem.m, problem.n), problem.dtype)
    return Matrices(a, b, c, generated=not (files.a or files.b or files.c))


def read_matrix(path: str, shape: tuple[int, int] | None = None, dtype: str | None = None) -> Array:
    """A matrix from a .npy file, in row-major order whatever the file's.

    Raises:
        OperandError: not a readable .npy, not of two dimensions, or not of this shape or type.
    """
    try:
        values: Any = np.load(path, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        why = error.strerror if isinstance(error, OSError) and error.strerror else "not a .npy file"
        raise OperandError(f"cannot read {path}: {why.lower()}") from None
    if not isinstance(values, np.ndarray) or values.ndim != 2:
        raise OperandError(f"{path} must hold one matrix of two dimensions")
    name = dtype_name(values)
    if name is None or (dtype is not None and name != dtype):
        wanted = dtype or ", ".join(GEMM_DTYPES)
        raise OperandError(f"{path} holds {values.dtype}, where {wanted} is wanted")
    if shape is not None and values.shape != shape:
        raise OperandError(
            f"{path} is {values.shape[0]} x {values.shape[1]}, where {shape[0]} x {shape[1]} is wanted"
        )
    return np.ascontiguousarray(values)


def dtype_name(values: Array) -> str | None:
    """gemmbench's name of an array's data type; None if it is not one that GEMM takes."""
    return next((name for name in GEMM_DTYPES if DTYPES[name].numpy == values.dtype), None)


def save_result(path: str, values: Array) -> None:
    """Write C as a .npy file.

    Raises:
        OperandError: it cannot be written.
    """
    try:
        with Path(path).open("wb") as file:
            np.save(file, values)
    except OSError as error:
        raise OperandError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None
