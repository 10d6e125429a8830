"""Thresholds: which row has which, and one sentence for each thing that is wrong with one."""

from __future__ import annotations

import pytest

from gemmbench import UsageError
from gemmbench.model.row import Problem
from gemmbench.options.names import threshold_of
from gemmbench.options.rules import ThresholdError, Thresholds, parse
from tests import fake_runs as fake

SIZE = Problem(64, 64, 64)


def test_the_default_and_single_kernels() -> None:
    thresholds = threshold_of("4 %, tiled=20%,naive = 0.1")
    rates = {name: thresholds.of(fake.gemm_row(name, SIZE, 1.0)) for name in ("tiled", "naive", "register")}
    assert rates == pytest.approx({"tiled": 0.2, "naive": 0.1, "register": 0.04})
    assert threshold_of(None) == Thresholds()
    assert threshold_of("tiled=20%").default == Thresholds().default


@pytest.mark.parametrize(
    ("text", "value"), [("5 %", 0.05), ("5%", 0.05), (" 2.5 % ", 0.025), ("0.05", 0.05), ("400 %", 4)]
)
def test_parse(text: str, value: float) -> None:
    assert parse(text) == pytest.approx(value)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("a lot", "--threshold: 'a lot' is not a threshold; write '5 %' or 0.05"),
        ("5", "--threshold: a threshold is above 0 and below 100 %, not 5; for 5 % write '5 %'"),
        ("0", "--threshold: a threshold is above 0 and below 100 %, not 0"),
        ("nan", "--threshold: a threshold is above 0 and below 100 %, not nan"),
        ("10000 %", "--threshold: a threshold is above 0 and below 10,000 %, not 10000 %"),
        ("5 %,", "--threshold: '' is not a threshold; write '5 %' or 0.05"),
        ("tiled=", "--threshold: '' is not a threshold; write '5 %' or 0.05"),
    ],
)
def test_what_is_no_threshold_is_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(UsageError) as caught:
        threshold_of(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("text", ["5 percent", "inf", "%", "1e999", "1", "-5 %", "5.5.5 %", "0 %"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(ThresholdError):
        parse(text)
