"""When a peak figure is believed: the evidence of a row, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from gemmbench.facts.dtypes import DType
from gemmbench.facts.records import Check
from gemmbench.facts.units import rate as shown_rate
from gemmbench.rules.probes import impossible_ratio
from gemmbench.rules.reference import Array

DOUBLING_TOLERANCE = 0.05
EVENT_RANGE = (0.5, 1.05)  # of the wall clock, over launches of milliseconds


@dataclass(frozen=True)
class Evidence:
    """What was measured about a peak beside its rate."""

    dtype: str
    rate: float  # operations per second
    doubling: float  # time of twice the trips over time of the trips
    event_over_wall: float  # event time over wall time of the same launches
    wrong_sum: str  # how the kernel's result differs from the host's, "" if it does not
    ceiling: float | None  # operations per second that cannot be exceeded, if known
    known: Mapping[str, float]  # believed rates of other types


def judge(evidence: Evidence) -> Check:
    """`ok`, or `suspect` with every reason. NaN is suspect."""
    reasons: list[str] = []
    if evidence.wrong_sum:
        reasons.append(evidence.wrong_sum)
    if not abs(evidence.doubling / 2 - 1) <= DOUBLING_TOLERANCE:
        reasons.append(f"doubling the trips multiplies the time by {evidence.doubling:.2f}, not by 2")
    low, high = EVENT_RANGE
    if not low <= evidence.event_over_wall <= high:
        reasons.append(f"the event clock says {evidence.event_over_wall:.2g} times the wall clock")
    if evidence.ceiling is not None and not evidence.rate <= evidence.ceiling:
        integer = evidence.dtype == "int"
        most = shown_rate(evidence.ceiling, integer)
        reasons.append(f"the rate is above {most}, which no device with these units can reach")
    ratio = impossible_ratio(evidence.dtype, evidence.rate, evidence.known)
    if ratio:
        reasons.append(ratio)
    figures = {"doubling": evidence.doubling, "event_over_wall": evidence.event_over_wall}
    return Check("suspect" if reasons else "ok", figures, tuple(reasons))


def expected_sums(
    dtype: DType,
    form: str,
    seeds: Array,
    coefficients: Array,
    items: int,
    width: int,
    chains: int,
    steps: int,
) -> Array:
    """What ``flops.cl`` stores for each work-item, computed on the host.

    Floating point in double precision, integers modulo 2^32.

    Args:
        dtype: the probe's type.
        form: name of the recurrence.
        seeds: start values.
        coefficients: ``width`` multipliers, then ``width`` addends.
        items: work-items.
        width: lanes.
        chains: recurrences.
        steps: of every chain.
    """
    kind = np.float64 if dtype.is_float else np.uint32
    vectors = seeds.size // width
    index = (np.arange(items)[:, None] * chains + np.arange(chains)) % vectors
    unique = vectors if vectors < items else items  # seeds repeat, so few items have sums of their own
    x = seeds.reshape(vectors, width)[index[:unique]].astype(kind)
    a = coefficients[:width].astype(kind)
    b = coefficients[width:].astype(kind)
    with np.errstate(over="ignore"):
        for _ in range(steps):
            if form == "x*x+c":
                x = x * x + b
            elif form == "x*y+c":
                for chain in range(chains):
                    x[:, chain] = x[:, chain] * x[:, (chain + 1) % chains] + b
            else:
                x = x * a + b
        sums = x.sum(axis=(1, 2), dtype=kind)
    if not dtype.is_float:
        sums = sums.view(np.int32)
    return np.resize(sums, items)


def compare_sums(got: Array, expected: Array, dtype: DType) -> str:
    """How the stored sums differ from the host's, in words; "" if they agree. NaN differs."""
    if dtype.is_float:
        tolerance = 64 * dtype.eps * (1 + np.abs(expected).max(initial=0.0))
        right = np.abs(got.astype(np.float64) - expected) <= tolerance
    else:
        right = got == expected
    if right.all():
        return ""
    wrong = int((~right).sum())
    first = int(np.argmin(right))
    return (
        f"{wrong} of {got.size} stored sums differ from the host's; "
        f"work-item {first} has {float(got[first]):.6g}, not {float(expected[first]):.6g}"
    )
