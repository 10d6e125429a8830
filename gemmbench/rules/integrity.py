"""When a probe's figure is believed: the evidence of a row, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmbench.facts.dtypes import DTYPES, DType
from gemmbench.facts.formats import decode
from gemmbench.facts.records import Check
from gemmbench.facts.units import GIGA, number
from gemmbench.facts.units import rate as shown_rate
from gemmbench.rules.ceilings import Unit, impossible_ratio
from gemmbench.rules.reference import Array

EVENT_RANGE = (0.5, 1.05)  # of the wall clock, over launches of milliseconds

FOLDED = 2.5  # deeper unrolling saves less than this: a loop's own instructions are a few beside a trip's

SLOWED = 0.8  # of the race's rate: two virtual processors on one core have half

_SLACK = 24.0


@dataclass(frozen=True)
class Subject:
    """What evidence is about: how far doubling may be off, and how the reasons call things."""

    tolerance: float  # of the doubling test
    work: str
    instead: str = ""  # what is done where the event clock is not believed


ARITHMETIC = Subject(0.05, "trips", ", which is used instead")
# More than for arithmetic: memory and the last cache are shared with neighbours.
MEMORY = Subject(0.1, "work")


@dataclass(frozen=True)
class Evidence:
    """What was measured about a figure beside its rate."""

    unit: Unit
    rate: float  # operations or bytes per second; 0 for a latency
    doubling: float  # time of twice the work over time of the work
    unrolling: float | None  # rate with deep over rate with shallow unrolling, if both were raced
    event_over_wall: float  # event time over wall time of the same launches
    wrong_result: str  # how the kernel's result differs from the host's, "" if it does not
    ceiling: float | None  # operations or bytes per second that cannot be exceeded, if known
    known: Mapping[Unit, float]  # believed rates of other units
    raced: float = 0.0  # per second, that the same kernel reached in the race before
    subject: Subject = ARITHMETIC


def judge(evidence: Evidence) -> Check:
    """`ok`, or `suspect` with every reason. NaN is suspect."""
    reasons: list[str] = []
    subject = evidence.subject
    if evidence.wrong_result:
        reasons.append(evidence.wrong_result)
    if not abs(evidence.doubling / 2 - 1) <= subject.tolerance:
        reasons.append(
            f"doubling the {subject.work} multiplies the time by {evidence.doubling:.2f}, not by 2"
        )
    if evidence.unrolling is not None and not evidence.unrolling <= FOLDED:
        reasons.append(
            f"unrolling makes steps {evidence.unrolling:.1f} times as fast: a compiler folds several into one"
        )
    if not events_agree(evidence.event_over_wall):
        reasons.append(
            f"the event clock says {evidence.event_over_wall:.2g} times the wall clock{subject.instead}"
        )
    if evidence.ceiling is not None and not evidence.rate <= evidence.ceiling:
        most = _shown(evidence, evidence.ceiling)
        reasons.append(f"the rate is above {most}, which no device with these units can reach")
    if not evidence.rate >= SLOWED * evidence.raced:
        raced = _shown(evidence, evidence.raced)
        reasons.append(f"the race before it saw {raced}: the machine has become slower since")
    ratio = impossible_ratio(evidence.unit, evidence.rate, evidence.known)
    if ratio:
        reasons.append(ratio)
    figures = {"doubling": evidence.doubling, "event_over_wall": evidence.event_over_wall}
    if evidence.unrolling is not None:
        figures["unrolling"] = evidence.unrolling
    return Check("suspect" if reasons else "ok", figures, tuple(reasons))


def _shown(evidence: Evidence, rate: float) -> str:
    if evidence.subject is MEMORY:
        return f"{number(rate / GIGA)} GB/s"
    return shown_rate(rate, not DTYPES[evidence.unit[1]].is_float)


def events_agree(event_over_wall: float) -> bool:
    """Whether the device's event clock can be believed."""
    low, high = EVENT_RANGE
    return low <= event_over_wall <= high


def compare_results(got: Array, expected: Array, dtype: DType, slack: float = _SLACK) -> str:
    """How stored results differ from the host's, in words; "" if they agree. NaN differs.

    Args:
        got: as the device stored them.
        expected: the host's; floating point in double precision.
        dtype: what they are stored in. Integers must be equal.
        slack: by how many of the type's eps a result may be off, for each unit of the largest.
    """
    values = decode(got, dtype)
    allowed = slack * dtype.eps * (1 + np.abs(expected).max(initial=0)) if dtype.is_float else 0
    with np.errstate(invalid="ignore"):
        right = np.abs(values - expected) <= allowed if dtype.is_float else values == expected
    if right.all():
        return ""
    wrong, first = int((~right).sum()), np.unravel_index(int(np.argmin(right)), right.shape)
    where = ", ".join(map(str, first))
    return (
        f"{wrong} of {got.size} stored results differ from the host's; "
        f"number {where} is {float(values[first]):.6g}, not {float(expected[first]):.6g}"
    )
