"""The figure of a memory probe is believed only on evidence; each fault is named."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import pytest

from gemmbench.probes.race import MEMORY, FigureEvidence, judge_figure
from gemmbench.stats.ceilings import Ceiling

GOOD = FigureEvidence(
    dtype="float",
    rate=2e10,
    doubling=2.03,
    event_over_wall=0.99,
    wrong_result="",
    ceiling=Ceiling(1e12, "cores"),
    subject=MEMORY,
)


def test_good_evidence_is_ok() -> None:
    assert judge_figure(GOOD).verdict == "ok"
    assert judge_figure(replace(GOOD, ceiling=None)).verdict == "ok"


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        ({"doubling": 1.0}, "doubling the work multiplies the time by 1.00, not by 2"),
        ({"doubling": math.nan}, "nan"),
        ({"event_over_wall": 0.01}, "the event clock says 0.01 times the wall clock"),
        ({"event_over_wall": 1.3}, "the event clock says 1.3"),
        ({"event_over_wall": math.nan}, "nan"),
    ],
)
def test_each_fault_is_suspect_and_says_why(fault: dict[str, Any], reason: str) -> None:
    check = judge_figure(replace(GOOD, **fault))
    assert check.verdict == "suspect"
    assert any(reason in text for text in check.reasons)
