"""The data types: one row each."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True)
class DType:
    """A data type as the command line, numpy and OpenCL C know it."""

    name: str  # of A and B on the command line and in saved files; also OpenCL C's name, where it has one
    numpy: np.dtype[np.generic]  # what a value is stored in
    result: str  # the type of C: matrix units keep sums, and give them back, in a wider one
    scalar: str  # how alpha and beta reach a kernel: half is not allowed as a kernel argument
    eps: float  # distance from 1 to the next value; 0 for integers, which are exact
    extension: str  # the OpenCL extension that a device must list, or ""
    blas: bool  # whether numpy hands a product of this type to its BLAS

    @property
    def itemsize(self) -> int:
        """Bytes of one value."""
        return int(self.numpy.itemsize)

    @property
    def is_float(self) -> bool:
        """Whether values have a fraction."""
        return self.eps > 0

    @property
    def dropped(self) -> float:
        """How much of a stored value a multiplier may drop, relative to it: tf32 is a float cut short."""
        cut_short = self.numpy == np.float32 and self.eps > np.finfo(np.float32).eps
        return self.eps if cut_short else 0.0

    @property
    def largest(self) -> int:
        """The largest signed integer of as many bytes."""
        return int(2 ** (8 * self.itemsize - 1)) - 1


def _row(
    name: str,
    numpy: type[np.generic],
    result: str,
    scalar: str,
    mantissa: int,
    extension: str,
    blas: bool,
) -> DType:
    eps = 2.0**-mantissa if mantissa else 0.0
    return DType(name, np.dtype(numpy), result, scalar, eps, extension, blas)


DTYPES: dict[str, DType] = {
    row.name: row
    for row in (
        #    name      stored in   C's type  scalar  mantissa  extension  BLAS; no mantissa: an integer
        _row("float", np.float32, "float", "float", 23, "", True),
        _row("double", np.float64, "double", "double", 52, "cl_khr_fp64", True),
        _row("half", np.float16, "half", "float", 10, "cl_khr_fp16", False),
        _row("bfloat16", np.uint16, "float", "float", 7, "cl_intel_bfloat16", False),
        _row("tf32", np.float32, "float", "float", 10, "", False),  # matrix units only
        _row("fp8", np.uint8, "float", "float", 3, "", False),  # e4m3; matrix units only
        _row("long", np.int64, "long", "long", 0, "", False),
        _row("int", np.int32, "int", "int", 0, "", False),
        _row("short", np.int16, "int", "int", 0, "", False),
        _row("char", np.int8, "int", "int", 0, "", False),
    )
}

PLAIN_DTYPES: tuple[str, ...] = ("float", "double", "half")
"""What a kernel multiplies unless it says otherwise: types of OpenCL C, C's type being that of A and B."""
GEMM_DTYPES: tuple[str, ...] = (*PLAIN_DTYPES, "bfloat16", "tf32", "char")
"""Every type that some kernel multiplies."""
DEVICE_DTYPES: tuple[str, ...] = ("float", "double", "half", "int")
"""What `DeviceFacts.dtypes` tells of. Every device has the other integers; the rest are matters of probes."""


# --- Numbers in the formats that numpy lacks: bfloat16, tf32 and fp8 (e4m3), encoded and decoded on the
# host.


Array = npt.NDArray[Any]

_MANTISSA = {"bfloat16": 7, "tf32": 10}  # bits of each; a double's has 52


def encode(values: Array, dtype: DType) -> Array:
    """Values as a device stores them, rounded to the nearest of the type, ties to even.

    Args:
        values: finite numbers within the type's range, of any shape.
        dtype: the type; for integers the values must be whole.
    """
    if dtype.name == "bfloat16":
        return (_rounded(values, dtype).view(np.uint32) >> 16).astype(np.uint16)
    if dtype.name == "tf32":
        return _rounded(values, dtype)
    if dtype.name == "fp8":
        return _nearest_fp8(values)
    return values.astype(dtype.numpy)


def decode(stored: Array, dtype: DType) -> Array:
    """The values that a device sees in what it stores, in double precision (integers: as they are)."""
    if dtype.name == "bfloat16":
        return (stored.astype(np.uint32) << 16).view(np.float32).astype(np.float64)
    if dtype.name == "fp8":
        values: Array = _FP8[stored]
        return values
    return stored.astype(np.float64) if dtype.is_float else stored


def _rounded(values: Array, dtype: DType) -> Array:
    """Floats whose mantissa is as short as the type's: one rounding, from double precision."""
    dropped = np.uint64(52 - _MANTISSA[dtype.name])
    unit = np.uint64(1)
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    odd = (bits >> dropped) & unit
    up = (unit << (dropped - unit)) - unit + odd
    rounded: Array = (((bits + up) >> dropped) << dropped).view(np.float64).astype(np.float32)
    return rounded


def _fp8_table() -> Array:
    """The value of each of the 256 bytes: sign, 4 bits of exponent (bias 7), 3 of mantissa; two are NaN."""
    byte = np.arange(256)
    sign = np.where(byte < 128, 1.0, -1.0)
    exponent, mantissa = (byte >> 3) & 15, byte & 7
    normal = (8 + mantissa) * 2.0 ** (exponent - 10)
    value = sign * np.where(exponent == 0, mantissa * 2.0**-9, normal)
    value[[127, 255]] = np.nan
    return value


_FP8 = _fp8_table()
_FP8_POSITIVE = _FP8[:127]


def _nearest_fp8(values: Array) -> Array:
    above = np.searchsorted(_FP8_POSITIVE, np.abs(values)).clip(1, _FP8_POSITIVE.size - 1)
    below = above - 1
    low, high = np.abs(values) - _FP8_POSITIVE[below], _FP8_POSITIVE[above] - np.abs(values)
    upper = (high < low) | ((high == low) & (above % 2 == 0))
    byte = np.where(upper, above, below)
    return np.where(np.signbit(values), byte + 128, byte).astype(np.uint8)


ReferenceArray = npt.NDArray[Any]
