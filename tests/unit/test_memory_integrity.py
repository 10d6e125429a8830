"""The figure of a memory probe is believed only on evidence; each fault is named."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from gemmbench.probes.race import MEMORY, Evidence, judge
from gemmbench.stats.ceilings import Ceiling

GOOD = Evidence(
    unit=("global-copy", "float", 4),
    rate=2e10,
    doubling=2.03,
    unrolling=None,
    event_over_wall=0.99,
    wrong_result="",
    ceiling=Ceiling(1e12, "cores"),
    known={("global-read", "float", 4): 1.5e10, ("global-write", "float", 16): 1e10},
    subject=MEMORY,
)


def test_good_evidence_is_ok() -> None:
    assert judge(GOOD).verdict == "ok"
    assert judge(replace(GOOD, ceiling=None, known={})).verdict == "ok"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"doubling": 1.0}, "doubling the work multiplies the time by 1.00, not by 2"),
        ({"doubling": math.nan}, "nan"),
        ({"event_over_wall": 0.01}, "the event clock says 0.01 times the wall clock"),
        ({"event_over_wall": 1.3}, "the event clock says 1.3"),
        ({"event_over_wall": math.nan}, "nan"),
        ({"wrong_result": "the sum is another"}, "the sum is another"),
        ({"rate": 6e10}, "2.4 times what reading and writing move together, where 2 is the most possible"),
    ],
)
def test_each_fault_is_suspect_and_says_why(fault: dict[str, object], reason: str) -> None:
    check = judge(replace(GOOD, **fault))  # type: ignore[arg-type]
    assert check.verdict == "suspect"
    assert any(reason in text for text in check.reasons)


@pytest.mark.parametrize("rate", [2e12, math.nan])
def test_more_bytes_than_cores_can_load_are_wrong(rate: float) -> None:
    check = judge(replace(GOOD, rate=rate, known={}))
    assert check.verdict == "wrong"
    assert "above the ceiling of 1,000 GB/s, which nothing can reach: cores" in check.reasons[0]


def test_reading_alone_has_no_such_bound() -> None:
    assert judge(replace(GOOD, unit=("global-read", "float", 4), rate=6e10)).verdict == "ok"
