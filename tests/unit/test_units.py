from __future__ import annotations

import math

import pytest

from gemmbench.model import units


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0.000"),
        (0.1234, "0.123"),
        (0.00001, "1e-05"),
        (1.234, "1.23"),
        (9.996, "10.0"),
        (12.34, "12.3"),
        (99.96, "100"),
        (345.6, "346"),
        (1234.5, "1,234"),
        (math.nan, "-"),
        (math.inf, "-"),
    ],
)
def test_three_digits(value: float, text: str) -> None:
    assert units.number(value) == text


def test_each_quantity_has_its_unit() -> None:
    assert units.seconds(0.0123) == "12.3 ms"
    assert units.seconds(2.5) == "2.50 s"
    assert units.seconds(7.8e-6) == "7.80 us"
    assert units.seconds(3e-10) == "0.300 ns"
    assert units.size(1 << 20) == "1.00 MiB"
    assert units.size(17) == "17 B"
    assert units.rate_text(345e9) == "345 GFLOPS"
    assert units.rate_text(65.2e12) == "65.2 TFLOPS"
    assert units.rate_text(33e9, integer=True) == "33.0 GIOPS"
    assert units.percent(0.1234) == "12.3 %"
    assert units.gflops(41.7e9) == "41.7"
