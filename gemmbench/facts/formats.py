"""Numbers in the formats that numpy lacks: bfloat16, tf32 and fp8 (e4m3), encoded and decoded on the host."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from gemmbench.facts.dtypes import DType

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
    one = np.uint64(1)
    bits = np.ascontiguousarray(values, np.float64).view(np.uint64)
    odd = (bits >> dropped) & one
    up = (one << (dropped - one)) - one + odd
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
