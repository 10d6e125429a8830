"""What a check tells: a finding, or why it could not look."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

NEAR = 0.98  # of what it could be: closer is the same
UNKNOWN = "not known"
NO_RATE = "no rate"


@dataclass(frozen=True)
class Finding:
    """What keeps the machine, or a device, from its ceiling."""

    tells: str  # one sentence
    cost: str  # what it costs, or "not known"
    seen: tuple[str, ...]  # how it was seen: files and counters with their values
    command: str  # to type; "" where nothing on this machine helps
    remark: str = ""  # beside the command: that it needs a restart, who has to type it
    source: str = ""  # of the cost, if it is not derived from what was seen
    check: str = ""  # the check's name
    device: int | None = None  # its index in `gemmbench devices`; None for the host


@dataclass(frozen=True)
class NotSeen:
    """A check that could not look."""

    check: str
    reason: str
    device: int | None = None


def counted(count: int, what: str) -> str:
    """``1 core``, ``2 cores``."""
    return f"{count} {what}{'s' if count != 1 else ''}"


def ranges(values: Sequence[int]) -> str:
    """``0-3,8``: a list of processors or nodes as Linux writes it."""
    parts: list[list[int]] = []
    for value in sorted(values):
        if parts and parts[-1][-1] == value - 1:
            parts[-1].append(value)
        else:
            parts.append([value])
    return ",".join(str(part[0]) if len(part) == 1 else f"{part[0]}-{part[-1]}" for part in parts)
