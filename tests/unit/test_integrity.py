"""A peak is believed only on evidence; each fault is named."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gemmbench.facts.dtypes import DTYPES
from gemmbench.rules.integrity import Evidence, compare_sums, expected_sums, judge
from gemmbench.rules.probes import ceiling
from tests.unit.test_plan import DEVICE

GOOD = Evidence("double", 1e11, 2.01, 0.99, "", 1e12, {"float": 2e11})


def test_good_evidence_is_ok() -> None:
    assert judge(GOOD).verdict == "ok"
    assert judge(replace(GOOD, ceiling=None, known={})).verdict == "ok"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"doubling": 1.0}, "doubling the trips multiplies the time by 1.00"),
        ({"doubling": 2.3}, "by 2.30, not by 2"),
        ({"doubling": math.nan}, "nan"),
        ({"event_over_wall": 0.014}, "event clock says 0.014 times the wall clock"),
        ({"event_over_wall": 1.4}, "event clock says 1.4"),
        ({"event_over_wall": math.nan}, "nan"),
        ({"wrong_sum": "7 of 9 stored sums differ"}, "7 of 9 stored sums differ"),
        ({"rate": 2e12}, "no device with these units can reach"),
        ({"rate": 2.5e11}, "1.2 times the rate of float, where 1.1 is the most possible"),
        ({"rate": math.nan}, "no device with these units can reach"),
    ],
)
def test_each_fault_is_suspect_and_says_why(fault: dict[str, object], reason: str) -> None:
    check = judge(replace(GOOD, **fault))  # type: ignore[arg-type]
    assert check.verdict == "suspect"
    assert any(reason in text for text in check.reasons)


def test_only_cpus_have_a_ceiling() -> None:
    top = ceiling(DEVICE, 4)
    assert top == 2 * 2 * 16 * 2 * 7e9
    assert ceiling(replace(DEVICE, type="gpu"), 4) is None


@pytest.mark.parametrize(("dtype", "form"), [("float", "a*b+c"), ("int", "x*x+c"), ("int", "x*y+c")])
def test_expected_sums_follow_the_recurrence(dtype: str, form: str) -> None:
    row = DTYPES[dtype]
    seeds = np.arange(1, 9).astype(row.numpy)
    coefficients = np.array([3, 5, 7, 11]).astype(row.numpy)  # two lanes: a = 3, 5; b = 7, 11
    got = expected_sums(row, form, seeds, coefficients, items=5, width=2, chains=2, steps=1)
    second = [3, 4]  # lanes of the first work-item's second chain; its first chain is 1, 2
    if form == "a*b+c":
        after = [[1 * 3 + 7, 2 * 5 + 11], [3 * 3 + 7, 4 * 5 + 11]]
    elif form == "x*x+c":
        after = [[1 + 7, 4 + 11], [9 + 7, 16 + 11]]
    else:
        after = [[1 * 3 + 7, 2 * 4 + 11]]
        after.append([second[0] * after[0][0] + 7, second[1] * after[0][1] + 11])
    assert got[0] == sum(map(sum, after))
    assert got[4] == got[0]  # seeds repeat after eight elements


def test_sums_that_differ_are_told() -> None:
    expected = np.array([1.0, 2.0, 3.0])
    assert compare_sums(expected.astype(np.float32), expected, DTYPES["float"]) == ""
    assert "1 of 3" in compare_sums(np.float32([1, 2.1, 3]), expected, DTYPES["float"])
    assert "1 of 3" in compare_sums(np.float32([1, np.nan, 3]), expected, DTYPES["float"])
    assert "2 of 3" in compare_sums(np.int32([1, 3, 4]), np.int32([1, 2, 3]), DTYPES["int"])
