"""A peak, or the figure of a memory probe, is believed only on evidence; each fault is named."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmbench import api
from gemmbench.model import run_file
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.row import Row
from gemmbench.probes.race import (
    ARITHMETIC,
    MATRIX,
    MEMORY,
    FigureEvidence,
    compare_results,
    events_agree,
    judge_figure,
)
from gemmbench.stats import rates
from gemmbench.stats.ceilings import Ceiling

GALLERY = Path(__file__).parents[2] / "plots"

GOOD = FigureEvidence("double", 1e11, 2.01, 0.99, "", Ceiling(1e12, "units"), 1.1)
MOVED = FigureEvidence("float", 2e10, 2.03, 0.99, "", Ceiling(1e12, "cores"), subject=MEMORY)


def evidence_of(row: Row, rate: float) -> FigureEvidence:
    """What a saved row says of itself."""
    figures = row.check.figures
    return FigureEvidence(
        row.dtype,
        rate=rate,
        doubling=figures["doubling"],
        unrolling=figures.get("unrolling"),
        event_over_wall=figures["event_over_wall"],
        wrong_result="",
        ceiling=None,
        subject=MATRIX if row.ran_on == "matrix" else ARITHMETIC,
    )


def test_good_evidence_is_ok() -> None:
    assert judge_figure(GOOD).verdict == "ok"
    assert judge_figure(replace(GOOD, ceiling=None, unrolling=None)).verdict == "ok"
    assert judge_figure(MOVED).verdict == "ok"
    assert judge_figure(replace(MOVED, ceiling=None)).verdict == "ok"


@pytest.mark.parametrize(
    ("good", "fault", "reason"),
    [
        (GOOD, {"doubling": 1.0}, "doubling the loop count multiplies the time by 1.00"),
        (GOOD, {"doubling": 2.3}, "by 2.30, not by 2"),
        (GOOD, {"doubling": math.nan}, "nan"),
        (GOOD, {"unrolling": 3.9}, "1.15 is the most: the compiler optimised some away"),
        (GOOD, {"unrolling": 1.16}, "unrolling makes steps 1.16 times as fast, where 1.15 is the most"),
        (
            GOOD,
            {"unrolling": 1.04, "subject": MATRIX},
            "unrolling makes steps 1.04 times as fast, where 1.03 is the most",
        ),
        (GOOD, {"unrolling": math.nan}, "nan"),
        (GOOD, {"event_over_wall": 0.014}, "event clock says 0.014 times the wall clock, which is used"),
        (GOOD, {"event_over_wall": 1.4}, "event clock says 1.4"),
        (GOOD, {"event_over_wall": math.nan}, "nan"),
        (MOVED, {"doubling": 1.0}, "doubling the work multiplies the time by 1.00, not by 2"),
        (MOVED, {"doubling": math.nan}, "nan"),
        (MOVED, {"event_over_wall": 0.01}, "the event clock says 0.01 times the wall clock"),
        (MOVED, {"event_over_wall": 1.3}, "the event clock says 1.3"),
        (MOVED, {"event_over_wall": math.nan}, "nan"),
    ],
)
def test_each_fault_is_suspect_and_says_why(good: FigureEvidence, fault: dict[str, Any], reason: str) -> None:
    check = judge_figure(replace(good, **fault))
    assert check.verdict == "suspect"
    assert any(reason in text for text in check.reasons)


def test_results_that_differ_from_the_hosts_are_wrong() -> None:
    check = judge_figure(replace(GOOD, wrong_result="7 of 9 stored results differ"))
    assert (check.verdict, check.reasons) == ("wrong", ("7 of 9 stored results differ",))


@pytest.mark.parametrize("rate", [1.03e12, math.nan])
def test_a_rate_above_its_ceiling_is_wrong(rate: float) -> None:
    check = judge_figure(replace(GOOD, rate=rate))
    assert check.verdict == "wrong"
    assert "is above the theoretical peak of 1,000 GFLOPS: units" in check.reasons[0]


def test_up_to_two_percent_above_a_ceiling_is_allowed() -> None:
    """The integer peak of an H100 lay at 101.1 %."""
    assert judge_figure(replace(GOOD, rate=1.011e12)).verdict == "ok"


@pytest.mark.parametrize("name", ["h200-peak", "h200-square"])
def test_a_card_that_runs_above_the_clock_it_lists_is_not_wrong(name: str, tmp_path: Path) -> None:
    """GeForce cards run 5 to 18 % above the clock that OpenCL lists; NVML reports the maximum."""
    listed, lower = '"clock_mhz":1980', '"clock_mhz":1700'
    header, newline, rows = (GALLERY / f"{name}.jsonl").read_text(encoding="utf-8").partition("\n")
    assert listed in header
    path = tmp_path / "run.jsonl"
    path.write_text(header.replace(listed, lower) + newline + rows, encoding="utf-8")
    assert [row.reason for row in api.load(path).rows if row.status == "wrong"] == []


def test_saved_peaks_are_judged_by_todays_rule() -> None:
    """Attack 4: ptxas had made 32 counted fp8 instructions into 8 of half, and additions."""
    run = run_file.load(str(GALLERY / "h200-peak.jsonl"))
    assert {row.status for row in run.rows if (row.variant, row.dtype) == ("mma", "fp8")} == {"unsupported"}
    rows = [row for row in run.rows if row.kind == "peak" and row.status == "ok"]
    assert len(rows) > 60
    best = [(row, rate.best) for row in rows if (rate := rates.rate(row, "kernel"))]
    for row, fastest in best:
        assert row.check.verdict == "ok"  # as it was judged then
        assert judge_figure(evidence_of(row, fastest)).verdict == "ok"


def test_an_event_clock_is_believed_near_the_wall_clock() -> None:
    assert events_agree(0.98)
    assert not any(map(events_agree, (0.4, 1.2, math.nan)))


def test_results_that_differ_are_reported() -> None:
    expected = np.array([1.0, 2.0, 3.0])
    row = DTYPES["float"]
    assert compare_results(expected.astype(np.float32), expected, row) == ""
    assert "1 of 3" in compare_results(np.array([1, 2.1, 3], np.float32), expected, row)
    assert "1 of 3" in compare_results(np.array([1, np.nan, 3], np.float32), expected, row)
    assert "number 1 is 3, not 2" in compare_results(
        np.array([1, 3, 4], np.int32), np.array([1, 2, 3], np.int32), DTYPES["int"]
    )
    near = np.array([1, 2, 3 + 1e-6], np.float32)
    assert compare_results(near, expected, row) == ""
    assert "1 of 3" in compare_results(near, expected, row, slack=0)
    assert compare_results(np.array([0x3F80], np.uint16), np.array([1.0]), DTYPES["bfloat16"], slack=0) == ""
    tile = np.zeros((2, 2, 2))
    assert "number 1, 0, 1 is 5, not 0" in compare_results(
        np.array([0, 0, 0, 0, 0, 5, 0, 0], np.float32).reshape(2, 2, 2), tile, row
    )
