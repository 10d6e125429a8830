"""A peak is believed only on evidence; each fault is named."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

from gemmbench.model.dtypes import DTYPES
from gemmbench.probes.integrity import (
    Evidence,
    ceiling,
    compare_results,
    events_agree,
    impossible_ratio,
    judge,
)
from tests.unit.test_plan import DEVICE

FLOAT = ("flops", "float", 4)
GOOD = Evidence(("flops", "double", 4), 1e11, 2.01, 1.1, 0.99, "", 1e12, {FLOAT: 2e11})


def test_good_evidence_is_ok() -> None:
    assert judge(GOOD).verdict == "ok"
    assert judge(replace(GOOD, raced=1.2e11)).verdict == "ok"  # the race takes the best of many
    assert judge(replace(GOOD, ceiling=None, unrolling=None, known={})).verdict == "ok"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"doubling": 1.0}, "doubling the trips multiplies the time by 1.00"),
        ({"doubling": 2.3}, "by 2.30, not by 2"),
        ({"doubling": math.nan}, "nan"),
        ({"unrolling": 3.9}, "unrolling makes steps 3.9 times as fast: a compiler folds several into one"),
        ({"unrolling": math.nan}, "nan"),
        ({"event_over_wall": 0.014}, "event clock says 0.014 times the wall clock, which is used instead"),
        ({"event_over_wall": 1.4}, "event clock says 1.4"),
        ({"event_over_wall": math.nan}, "nan"),
        ({"wrong_result": "7 of 9 stored results differ"}, "7 of 9 stored results differ"),
        ({"rate": 2e12}, "the rate is above 1,000 GFLOPS, which no device with these units can reach"),
        ({"rate": 2.5e11}, "1.2 times the rate of float, where 1.1 is the most possible"),
        ({"raced": 1.3e11}, "the race before it saw 130 GFLOPS: the machine has become slower since"),
        ({"raced": math.nan}, "the machine has become slower since"),
        ({"rate": math.nan}, "no device with these units can reach"),
    ],
)
def test_each_fault_is_suspect_and_says_why(fault: dict[str, object], reason: str) -> None:
    check = judge(replace(GOOD, **fault))  # type: ignore[arg-type]
    assert check.verdict == "suspect"
    assert any(reason in text for text in check.reasons)


def test_a_ratio_condemns_whichever_of_the_two_comes_second() -> None:
    known = {("flops", "float", 1): 1e11, ("flops", "float", 4): 3e11, ("flops", "double", 4): 1.5e11}
    assert impossible_ratio(("flops", "double", 1), 3.2e11, known) == ""  # beside the best of float
    assert "1.1 times the rate of float" in impossible_ratio(("flops", "double", 1), 3.4e11, known)
    slow = impossible_ratio(("flops", "float", 4), 1e11, known)
    assert "double ran 1.5 times as fast, where 1.1 is the most possible" in slow
    assert "does more than is counted" in slow
    assert impossible_ratio(("flops", "float", 4), 1.3e11, known) == ""  # not measured at the same moment
    assert impossible_ratio(("flops", "float", 2), 1e9, known) == ""  # no double of this width is known
    assert "64 is the most possible" in impossible_ratio(("mma", "half", 0), 3e13, known)
    assert impossible_ratio(("mma", "half", 0), 1e12, {}) == ""


def test_only_cpus_have_a_ceiling() -> None:
    top = ceiling(DEVICE, 4)
    assert top == 2 * 2 * 16 * 2 * 7e9
    assert ceiling(replace(DEVICE, type="gpu"), 4) is None


def test_an_event_clock_is_believed_near_the_wall_clock() -> None:
    assert events_agree(0.98)
    assert not any(map(events_agree, (0.4, 1.2, math.nan)))


def test_results_that_differ_are_told() -> None:
    expected = np.array([1.0, 2.0, 3.0])
    row = DTYPES["float"]
    assert compare_results(expected.astype(np.float32), expected, row) == ""
    assert "1 of 3" in compare_results(np.float32([1, 2.1, 3]), expected, row)
    assert "1 of 3" in compare_results(np.float32([1, np.nan, 3]), expected, row)
    assert "number 1 is 3, not 2" in compare_results(np.int32([1, 3, 4]), np.int32([1, 2, 3]), DTYPES["int"])
    near = np.float32([1, 2, 3 + 1e-6])
    assert compare_results(near, expected, row) == ""
    assert "1 of 3" in compare_results(near, expected, row, slack=0)
    assert compare_results(np.uint16([0x3F80]), np.array([1.0]), DTYPES["bfloat16"], slack=0) == ""
    tile = np.zeros((2, 2, 2))
    assert "number 1, 0, 1 is 5, not 0" in compare_results(
        np.float32([0, 0, 0, 0, 0, 5, 0, 0]).reshape(2, 2, 2), tile, row
    )
