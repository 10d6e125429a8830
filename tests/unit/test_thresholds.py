"""Thresholds: which row has which, and one sentence for each thing that is wrong with one."""

from __future__ import annotations

import pytest

from gemmbench import UsageError
from gemmbench.model.row import Problem
from gemmbench.suite.options.comparing import Rules, parse_thresholds
from tests import fake_runs as fake

SIZE = Problem(64, 64, 64)


def test_the_default_and_single_kernels() -> None:
    rules = Rules(*parse_thresholds("4 %, tiled=20%,naive = 0.1"))
    rows = {name: fake.gemm_row(name, SIZE, 1.0) for name in ("tiled", "naive", "register")}
    rates = {name: rules.threshold(row) for name, row in rows.items()}
    assert rates == pytest.approx({"tiled": 0.2, "naive": 0.1, "register": 0.04})
    assert parse_thresholds(None) == (None, {})
    assert parse_thresholds("tiled=20%")[0] is None


@pytest.mark.parametrize(
    ("text", "value"), [("5 %", 0.05), ("5%", 0.05), (" 2.5 % ", 0.025), ("0.05", 0.05), ("400 %", 4)]
)
def test_parse(text: str, value: float) -> None:
    assert parse_thresholds(text)[0] == pytest.approx(value)


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
        parse_thresholds(text)
    assert str(caught.value) == sentence


@pytest.mark.parametrize("text", ["5 percent", "inf", "%", "1e999", "1", "-5 %", "5.5.5 %", "0 %"])
def test_parse_refuses(text: str) -> None:
    with pytest.raises(UsageError, match="--threshold: "):
        parse_thresholds(text)
