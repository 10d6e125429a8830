"""bfloat16, tf32 and fp8 against their definitions."""

from __future__ import annotations

import numpy as np
import pytest

from gemmbench.model.dtypes import DTYPES, decode, encode


@pytest.mark.parametrize(
    ("dtype", "value", "stored"),
    [
        ("bfloat16", 1.0, 0x3F80),
        ("bfloat16", -2.5, 0xC020),
        ("bfloat16", 1 + 2**-8, 0x3F80),  # half way: to even
        ("bfloat16", 1 + 3 * 2**-8, 0x3F82),
        ("bfloat16", 1 + 2**-8 + 2**-30, 0x3F81),  # rounded once, not through float
        ("fp8", 1.0, 0x38),
        ("fp8", -448.0, 0xFE),
        ("fp8", 2.0**-9, 0x01),  # the smallest
        ("fp8", 0.0, 0x00),
        ("fp8", 17.0, 0x58),  # half way between 16 and 18: to even
        ("fp8", 19.0, 0x5A),
        ("e4m3-half", 17.0, 0x58),
        ("e5m2", 1.0, 0x3C),
        ("e5m2", -57344.0, 0xFB),  # the largest
        ("e5m2", 2.0**-16, 0x01),  # the smallest
        ("e5m2-bfloat16", 9.0, 0x48),  # half way between 8 and 10: to even
    ],
)
def test_values_are_stored_as_defined(dtype: str, value: float, stored: int) -> None:
    row = DTYPES[dtype]
    got = encode(np.array([value]), row)
    assert got.dtype == row.numpy
    assert got[0] == stored


def test_tf32_keeps_ten_bits_of_mantissa() -> None:
    row = DTYPES["tf32"]
    assert encode(np.array([1 + 2**-11, 1 + 3 * 2**-11, np.pi]), row).tolist() == [1.0, 1 + 2**-9, 3.140625]


def test_fp8_has_two_nans_and_no_infinity() -> None:
    values = decode(np.arange(256).astype(np.uint8), DTYPES["fp8"])
    assert np.flatnonzero(np.isnan(values)).tolist() == [0x7F, 0xFF]
    assert np.nanmax(values) == 448


@pytest.mark.parametrize("dtype", ["e4m3", "e5m2"])
def test_floats_are_rounded_as_doubles_are(dtype: str) -> None:
    """Ties, one unit of float beside them, subnormal and too large numbers."""
    row = DTYPES[dtype]
    stored = np.arange(128).astype(np.uint8)
    known = decode(stored, row)
    known = known[np.isfinite(known)].astype(np.float32)
    ties = (known[1:] + known[:-1]) / 2
    drawn = np.random.default_rng(4).standard_normal(5000).astype(np.float32)
    beside = (np.nextafter(ties, np.float32(to)) for to in (0, 1e9))
    for values in (known, ties, *beside, drawn):
        for signed in (values, -values, values * np.float32(2**-9)):
            assert (encode(signed, row) == encode(signed.astype(np.float64), row)).all()


def test_e5m2_is_the_upper_half_of_a_half() -> None:
    values = decode(np.arange(256).astype(np.uint8), DTYPES["e5m2"])
    assert np.flatnonzero(np.isnan(values[:128])).tolist() == [0x7D, 0x7E, 0x7F]
    assert values[0x7C] == np.inf
    assert np.array_equal(values[128:], -values[:128], equal_nan=True)


@pytest.mark.parametrize("dtype", DTYPES)
def test_what_is_decoded_encodes_to_itself(dtype: str) -> None:
    row = DTYPES[dtype]
    rng = np.random.default_rng(3)
    values = rng.uniform(-1, 1, 1000) if row.is_float else rng.integers(-128, 128, 1000)
    once = encode(values, row)
    assert (encode(decode(once, row), row) == once).all()
    if row.is_float:
        assert np.abs(decode(once, row) - values).max() <= row.eps / 2
