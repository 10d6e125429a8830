"""Right kernels without a device: products summed in a type's own rounding, in every order."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from gemmbench.gemm import verify
from gemmbench.gemm.verify import DrawnRows
from gemmbench.model.dtypes import DTYPES, PLAIN_DTYPES, decode, encode
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check

Array = npt.NDArray[Any]

SUMS = {  # by data type: what a right kernel may keep its sums in
    "float": ("float",),
    "double": ("double",),
    "half": ("half", "float"),
    "bfloat16": ("float",),
    "tf32": ("float",),
    "char": ("int",),
    "e4m3": ("float", "fp22"),
    "e4m3-half": ("fp22",),
    "e5m2-bfloat16": ("float", "fp22"),
}


def numbers(stored: Array, dtype: str) -> Array:
    """What a multiplier sees, in double precision: tf32 is cut short."""
    row = DTYPES[dtype]
    if row.dropped:
        stored = (stored.view(np.uint32) & 0xFFFFE000).view(np.float32)
    return np.asarray(decode(stored, row), np.float64)


def _sequential(a: Array, b: Array, kind: Any) -> Array:
    total = np.zeros((a.shape[0], b.shape[1]), kind)
    a, b = a.astype(kind), b.astype(kind)
    for p in range(a.shape[1]):
        total = total + a[:, p : p + 1] * b[p : p + 1, :]
    return total


def _fused(a: Array, b: Array, kind: Any) -> Array:
    """Every product is added before it is rounded."""
    total = np.zeros((a.shape[0], b.shape[1]))
    for p in range(a.shape[1]):
        total = (total + np.multiply.outer(a[:, p], b[p])).astype(kind).astype(np.float64)
    return total.astype(kind)


def _tree(a: Array, b: Array, kind: Any) -> Array:
    if a.shape[1] <= 1:
        return _sequential(a, b, kind)
    half = a.shape[1] // 2
    return np.asarray(_tree(a[:, :half], b[:half], kind) + _tree(a[:, half:], b[half:], kind))


def _lanes(a: Array, b: Array, kind: Any, lanes: int = 8) -> Array:
    """Eight sums side by side, added at the end."""
    parts = [_fused(a[:, lane::lanes], b[lane::lanes], kind) for lane in range(lanes)]
    return np.asarray(sum(parts[1:], parts[0]))


def _split(a: Array, b: Array, kind: Any, depth: int = 64) -> Array:
    """Blocks of k, each summed for itself and then added up."""
    total = np.zeros((a.shape[0], b.shape[1]), kind)
    for start in range(0, a.shape[1], depth):
        total = total + _sequential(a[:, start : start + depth], b[start : start + depth], kind)
    return total


def _blocked(a: Array, b: Array, kind: Any, depth: int = 64) -> Array:
    """Blocks of k that are exact before they are rounded and added: fast, for large problems."""
    total = np.zeros((a.shape[0], b.shape[1]), kind)
    for start in range(0, a.shape[1], depth):
        total = total + (a[:, start : start + depth] @ b[start : start + depth]).astype(kind)
    return total


def _matrix_unit(a: Array, b: Array, kind: Any, depth: int = 16) -> Array:
    """Sixteen products at a time, the sum in float cut short instead of rounded."""
    if kind is not np.float32:
        return _blocked(a, b, kind, depth)
    total = np.zeros((a.shape[0], b.shape[1]), kind)
    for start in range(0, a.shape[1], depth):
        exact = total + a[:, start : start + depth] @ b[start : start + depth]
        total = exact.astype(kind)
        total = np.where(np.abs(total) > np.abs(exact), np.nextafter(total, kind(0)), total)
    return total


def _fp8_unit(a: Array, b: Array, _: Any, depth: int = 32) -> Array:
    """Hopper's tensor cores: 32 products and the sum so far, each cut short at the 14th bit of the largest.

    So is what they make, which is stored as a float.
    """
    bits = DTYPES["fp22"].eps
    total = np.zeros((a.shape[0], b.shape[1]))
    for start in range(0, a.shape[1], depth):
        terms = a[:, start : start + depth, None] * b[start : start + depth]
        terms = np.concatenate([total[:, None], terms], axis=1)
        digit = np.exp2(np.frexp(np.abs(terms).max(axis=1))[1] - 1.0) * bits
        total = np.trunc(terms / digit[:, None]).sum(axis=1) * digit
        digit = np.exp2(np.frexp(total)[1] - 1.0) * bits
        total = np.trunc(total / digit) * digit
    return total.astype(np.float32)


ORDERS: dict[str, Callable[[Array, Array, Any], Array]] = {
    "sequential": _sequential,
    "fused": _fused,
    "tree": _tree,
    "lanes": _lanes,
    "split": _split,
    "blocked": _blocked,
    "matrix unit": _matrix_unit,
}


def product(problem: Gemm, a: Array, b: Array, c0: Array, sums: str, order: str) -> Array:
    """C as a right kernel makes it.

    Args:
        problem: the problem.
        a: m x k, as stored.
        b: k x n.
        c0: m x n, C before.
        sums: the type that sums are kept in.
        order: one of `ORDERS`.
    """
    kind = DTYPES[sums].numpy.type
    with np.errstate(all="ignore"):
        add = _fp8_unit if sums == "fp22" else ORDERS[order]
        total = add(numbers(a, problem.dtype), numbers(b, problem.dtype), kind)
        answer = kind(problem.alpha) * total
        if problem.beta:
            answer = answer + kind(problem.beta) * decode(c0, problem.result).astype(kind)
        return encode(answer, problem.result)


def drawn(rng: np.random.Generator, kind: str, rows: int, columns: int, dtype: str) -> Array:
    """A matrix as a user may have it, stored as a device stores it."""
    shape = rows, columns
    values: Array = rng.standard_normal(shape)
    if kind == "one sign":
        values = rng.random(shape)
    elif kind == "mean":
        values = values + 3 * rng.standard_normal()
    elif kind == "magnitudes":
        values *= 10.0 ** rng.integers(-2, 2, (rows, 1)) * 10.0 ** rng.integers(-1, 2, columns)
    elif kind == "zeros":
        values *= rng.random(shape) < 0.1
        values[rng.integers(rows)] = 0
        values[:, rng.integers(columns)] = 0
    elif kind == "constant":
        values = np.full(shape, 0.1 * rng.integers(1, 9))
    elif kind == "small integers":
        values = rng.integers(-1, 2, shape).astype(float)
    elif kind == "equal rows":
        values[:] = values[0]
    elif kind == "halves of opposite sign":
        values = np.abs(values)
        values[:, columns // 2 :] *= -1
    elif kind == "alternating":
        values = np.abs(values)
        values[:, ::2] *= -1
    elif kind == "one large":
        values = np.full(shape, 0.01)
        values[:, 0] = 30
    elif kind == "rank 1":
        values = np.multiply.outer(values[:, 0], values[0])
    elif kind == "identity":
        values = np.eye(rows, columns)
    return encode(values, DTYPES[dtype])


KINDS = (
    *("normal", "one sign", "mean", "magnitudes", "zeros", "constant", "small integers", "equal rows"),
    *("halves of opposite sign", "alternating", "one large", "rank 1", "identity"),
)

DEPTHS = (1, 2, 5, 17, 64, 100, 256, 700, 1024, 2048)
_SCALARS = ((1.0, 0.0), (1.0, 0.0), (1.5, 0.0), (-0.5, 0.25), (1.0, 1.0))


@dataclass(frozen=True)
class RightCase:
    """A problem, and what a right kernel makes of it."""

    problem: Gemm
    operands: str  # generated, or what a user may have: one of `KINDS`
    sums: str
    order: str
    a: Array
    b: Array
    c0: Array
    c: Array


def right_cases(
    rng: np.random.Generator, count: int, depths: tuple[int, ...] = DEPTHS
) -> Iterator[RightCase]:
    """Drawn cases of every type, order and kind of operands, without sums that leave the type's range."""
    while count:
        dtype = str(rng.choice(list(SUMS)))
        sums, order = str(rng.choice(SUMS[dtype])), str(rng.choice(list(ORDERS)))
        m, n, k = int(rng.integers(1, 80)), int(rng.integers(1, 80)), int(rng.choice(depths))
        alpha, beta = _SCALARS[rng.integers(len(_SCALARS))]
        if dtype == "char":
            alpha, beta = int(2 * alpha), int(4 * beta)
        problem = Gemm(m, n, k, dtype, alpha, beta)
        a, b, c0 = verify.random_operands(problem, int(rng.integers(1 << 30)))
        kind = "generated"
        if dtype in PLAIN_DTYPES and rng.random() < 0.6:
            kind = str(rng.choice(KINDS))
            a = drawn(rng, kind, m, k, dtype)
            other = kind if rng.random() < 0.6 else str(rng.choice(KINDS))
            b = np.ascontiguousarray(drawn(rng, other, n, k, dtype).T)
        c = product(problem, a, b, c0, sums, order)
        if np.isfinite(c.astype(float)).all():
            count -= 1
            yield RightCase(problem, kind, sums, order, a, b, c0, c)


def judged(case: RightCase) -> Check:
    """What drawn rows of the reference say of a case."""
    made = DrawnRows(case.problem, case.a, case.b, case.operands == "generated")
    return made.check(case.c, case.c0, case.sums)
