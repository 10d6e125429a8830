"""When the figure of a memory probe is believed: the evidence of a row, and the verdict on it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from gemmbench.facts.records import Check, DeviceFacts
from gemmbench.facts.units import GIGA, number
from gemmbench.rules.integrity import EVENT_RANGE

DOUBLING_TOLERANCE = 0.1  # more than for arithmetic: memory and the last cache are shared with neighbours

_FASTEST_CLOCK_HZ = 7e9  # no processor sold runs faster: a bound, not an estimate
_CORE_BYTES_PER_CYCLE = 3 * 64  # two 512-bit loads and a store
_COPY_MARGIN = 2.0  # a store may read the line first, unless the driver knows a copy when it sees one


@dataclass(frozen=True)
class Evidence:
    """What was measured beside a figure."""

    doubling: float  # time of twice the work over time of the work
    event_over_wall: float  # event time over wall time of the same launches
    wrong: str = ""  # how the result differs from the host's, "" if it does not
    probe: str = ""
    rate: float = 0.0  # bytes per second; 0 for a latency
    ceiling: float | None = None  # bytes per second that cannot be exceeded, if known
    known: Mapping[str, float] = field(default_factory=dict)  # believed rates of other probes


def judge(evidence: Evidence) -> Check:
    """`ok`, or `suspect` with every reason. NaN is suspect."""
    reasons: list[str] = []
    if evidence.wrong:
        reasons.append(evidence.wrong)
    if not abs(evidence.doubling / 2 - 1) <= DOUBLING_TOLERANCE:
        reasons.append(f"doubling the work multiplies the time by {evidence.doubling:.2f}, not by 2")
    low, high = EVENT_RANGE
    if not low <= evidence.event_over_wall <= high:
        reasons.append(f"the event clock says {evidence.event_over_wall:.2g} times the wall clock")
    if evidence.ceiling is not None and not evidence.rate <= evidence.ceiling:
        most = number(evidence.ceiling / GIGA)
        reasons.append(f"the rate is above {most} GB/s, which no device with these units can reach")
    reasons += _impossible(evidence)
    figures = {"doubling": evidence.doubling, "event_over_wall": evidence.event_over_wall}
    return Check("suspect" if reasons else "ok", figures, tuple(reasons))


def core_ceiling(device: DeviceFacts) -> float | None:
    """Bytes per second that the cores of a CPU cannot exceed; None for other devices."""
    if device.type != "cpu" or device.compute_units < 1:
        return None
    return device.compute_units * _CORE_BYTES_PER_CYCLE * _FASTEST_CLOCK_HZ


def _impossible(evidence: Evidence) -> list[str]:
    """Copying and the triad can move no more than reading and writing do together, nearly."""
    known = evidence.known
    if evidence.probe not in ("global-copy", "global-triad") or not {"global-read", "global-write"} <= set(
        known
    ):
        return []
    most = known["global-read"] + known["global-write"]
    if evidence.rate <= _COPY_MARGIN * most:
        return []
    return [
        f"{evidence.rate / most:.1f} times what reading and writing move together, where "
        f"{_COPY_MARGIN:g} is the most possible"
    ]
