"""When a probe's figure is believed: the evidence of a row, and the verdict on it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from gemmbench.model.dtypes import DTYPES, DType, ReferenceArray, decode
from gemmbench.model.row import Check, Verdict
from gemmbench.model.units import GIGA, number
from gemmbench.model.units import rate as shown_rate
from gemmbench.stats.ceilings import Ceiling, judged

EVENT_RANGE = (0.5, 1.05)  # of the wall clock, over launches of milliseconds

ALIKE = 0.005  # measuring.md: a rate this near that of a loop without the conversion is a suspicion

SLOWED = 0.8  # of the race's rate: two virtual processors on one core have half

_SLACK = 24.0


@dataclass(frozen=True)
class Subject:
    """What evidence is about: how far doubling may be off, and how the reasons call things."""

    tolerance: float  # of the doubling test
    work: str
    instead: str = ""  # what is done where the event clock is not believed
    # Times as fast as with shallow unrolling that a step can be: a loop's own instructions are a few beside a
    # trip's. Honest rows of saved runs lie between 0.51 and 1.08, of matrix units within 0.01 of 1, and a
    # folded fp8 product at 1.375.
    unrolling: float = 1.15


ARITHMETIC = Subject(0.05, "trips", ", which is used instead")
MATRIX = replace(ARITHMETIC, unrolling=1.03)
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
    ceiling: Ceiling | None  # that cannot be exceeded, if known
    known: Mapping[Unit, float]  # believed rates of other units
    raced: float = 0.0  # per second, that the same kernel reached in the race before
    subject: Subject = ARITHMETIC
    in_program: str = ""  # the conversions that its name promises, as counted in the program; "" if not known


def judge(evidence: Evidence) -> Check:
    """`ok`, `suspect` with every reason, or `wrong`: above its ceiling. NaN is never ok."""
    reasons: list[str] = []
    subject = evidence.subject
    if evidence.wrong_result:
        reasons.append(evidence.wrong_result)
    if not abs(evidence.doubling / 2 - 1) <= subject.tolerance:
        reasons.append(
            f"doubling the {subject.work} multiplies the time by {evidence.doubling:.2f}, not by 2"
        )
    if evidence.unrolling is not None and not evidence.unrolling <= subject.unrolling:
        reasons.append(
            f"unrolling makes steps {evidence.unrolling:.2f} times as fast, where {subject.unrolling:g} is "
            "the most: a compiler folds several into one"
        )
    if not events_agree(evidence.event_over_wall):
        reasons.append(
            f"the event clock says {evidence.event_over_wall:.2g} times the wall clock{subject.instead}"
        )
    too_fast, _ = beside_ceiling(evidence)
    if too_fast:
        reasons.append(too_fast)
    if not evidence.rate >= SLOWED * evidence.raced:
        raced = _shown(evidence, evidence.raced)
        reasons.append(f"the race before it saw {raced}: the machine has become slower since")
    ratio = impossible_ratio(evidence.unit, evidence.rate, evidence.known)
    if ratio:
        reasons.append(ratio)
    if not evidence.in_program and (alike := _alike(evidence)):
        reasons.append(alike)
    figures = {"doubling": evidence.doubling, "event_over_wall": evidence.event_over_wall}
    if evidence.unrolling is not None:
        figures["unrolling"] = evidence.unrolling
    verdict: Verdict = "wrong" if too_fast else "suspect" if reasons else "ok"
    return Check(verdict, figures, tuple(reasons))


def beside_ceiling(evidence: Evidence) -> tuple[str, str]:
    """Why its rate is wrong, and what is to be said of it beside its ceiling: see `ceilings.judged`."""
    return judged(evidence.rate, evidence.ceiling, partial(_shown, evidence))


def _alike(evidence: Evidence) -> str:
    """Why a rate is too near another's for a loop that does more, or ""."""
    promised = _PLAIN_OF.get(evidence.unit[:2])
    plain = evidence.known.get((*promised, evidence.unit[2]), math.nan) if promised else math.nan
    if promised is None or not abs(evidence.rate / plain - 1) <= ALIKE:
        return ""
    return (
        f"as fast as {_name(promised)} within {ALIKE:.1%}: the conversion that the name promises "
        "may be left out"
    ).replace("%", " %")


def _shown(evidence: Evidence, rate: float) -> str:
    if evidence.subject is MEMORY:
        return f"{number(rate / GIGA)} GB/s"
    return shown_rate(rate, not DTYPES[evidence.unit[1]].is_float)


def events_agree(event_over_wall: float) -> bool:
    """Whether the device's event clock can be believed."""
    low, high = EVENT_RANGE
    return low <= event_over_wall <= high


def compare_results(
    got: ReferenceArray, expected: ReferenceArray, dtype: DType, slack: float = _SLACK
) -> str:
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


# --- What no device can do: rates that are wrong whatever else speaks for them ------------------------------


Kind = tuple[str, str]
"""A probe and a data type."""

Unit = tuple[str, str, int]
"""A probe, a data type and a vector width (0 where there is none): what a rate is known of."""

# No device runs the first faster than this multiple of the second.
RATIO_CEILINGS: tuple[tuple[Kind, Kind, float], ...] = (
    (("flops", "double"), ("flops", "float"), 1.1),
    (("flops", "half"), ("flops", "float"), 4.5),
    (("flops", "bfloat16"), ("flops", "float"), 4.5),
    (("flops", "long"), ("flops", "float"), 1.1),
    (("flops", "int"), ("flops", "float"), 2.2),
    (("flops", "short"), ("flops", "float"), 4.5),
    (("flops", "char"), ("flops", "float"), 9.0),
    (("mixed", "half"), ("flops", "float"), 4.5),
    (("mad24", "int"), ("flops", "float"), 2.2),
    (("dot8", "char"), ("flops", "float"), 9.0),
    # Matrix units: today's best are at 30 times float in half precision, and twice that in a byte.
    (("mma", "half"), ("flops", "float"), 64.0),
    (("mma", "bfloat16"), ("flops", "float"), 64.0),
    (("mma", "tf32"), ("flops", "float"), 32.0),
    (("mma", "fp8"), ("flops", "float"), 128.0),
    (("mma", "char"), ("flops", "float"), 128.0),
    (("mma", "double"), ("flops", "double"), 4.5),
    (("wgmma", "half"), ("flops", "float"), 64.0),
    (("wgmma", "bfloat16"), ("flops", "float"), 64.0),
    (("wgmma", "tf32"), ("flops", "float"), 32.0),
    (("wgmma", "fp8"), ("flops", "float"), 128.0),
    (("wgmma", "char"), ("flops", "float"), 128.0),
)

_PLAIN_OF: Mapping[Kind, Kind] = {("mixed", "half"): ("flops", "float")}
"""What a probe would be without the conversions in its loop."""

_LOWER_MARGIN = 1.25  # the two were not measured at the same moment

_COPY_MARGIN = 2.0  # a store may read the line first, unless the driver knows a copy when it sees one


def impossible_ratio(unit: Unit, rate: float, known: Mapping[Unit, float]) -> str:
    """Why a rate cannot be true beside other units' rates, in operations or bytes per second, or "".

    A rate can be too high beside the best of another type; or so low beside another at the same width that
    its loop must do more than was counted. Copying and the triad can move no more than reading and writing
    do together, nearly.
    """
    if unit[0] in ("global-copy", "global-triad"):
        most = sum(_best(known, (probe, unit[1])) for probe in ("global-read", "global-write"))
        if not rate <= _COPY_MARGIN * most:
            return (
                f"{rate / most:.1f} times what reading and writing move together, where {_most(_COPY_MARGIN)}"
            )
    for faster, slower, limit in RATIO_CEILINGS:
        if faster == unit[:2]:
            best = _best(known, slower)
            if rate > limit * best:
                return f"{rate / best:.1f} times the rate of {_name(slower)}, where {_most(limit)}"
        elif slower == unit[:2]:
            other = known.get((*faster, unit[2]), 0.0)
            if other > limit * _LOWER_MARGIN * rate:
                return (
                    f"{_name(faster)} ran {other / rate:.1f} times as fast, where {_most(limit)}: this loop "
                    "does more than is counted, or something else was running"
                )
    return ""


def _best(known: Mapping[Unit, float], kind: Kind) -> float:
    """The best rate of any width."""
    return max((rate for unit, rate in known.items() if unit[:2] == kind), default=math.inf)


def _most(limit: float) -> str:
    return f"{limit:g} is the most possible"


def _name(kind: Kind) -> str:
    probe, dtype = kind
    return dtype if probe == "flops" else f"{probe} {dtype}"
