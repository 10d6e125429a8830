"""What no device can do: rates that are wrong whatever else speaks for them."""

from __future__ import annotations

import math
from collections.abc import Mapping

from gemmbench.facts.records import DeviceFacts

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

_LOWER_MARGIN = 1.25  # the two were not measured at the same moment

_FASTEST_CLOCK_HZ = 7e9  # no processor sold runs faster: a bound, not an estimate
_VECTOR_BITS = 512
_FMA_PORTS = 2
_CORE_BYTES_PER_CYCLE = 3 * 64  # two 512-bit loads and a store
_COPY_MARGIN = 2.0  # a store may read the line first, unless the driver knows a copy when it sees one


def ceiling(device: DeviceFacts, dtype_bytes: int) -> float | None:
    """A rate in operations per second that the device cannot exceed; None where none is known.

    For CPUs: two 512-bit multiply-adds a cycle on every unit, at a clock beyond any sold. The clock that the
    driver reports is advisory and is not used.
    """
    if device.type != "cpu" or device.compute_units < 1:
        return None
    lanes = _VECTOR_BITS // 8 // dtype_bytes
    return device.compute_units * _FMA_PORTS * lanes * 2 * _FASTEST_CLOCK_HZ


def core_ceiling(device: DeviceFacts) -> float | None:
    """Bytes per second that the cores of a CPU cannot exceed; None for other devices."""
    if device.type != "cpu" or device.compute_units < 1:
        return None
    return device.compute_units * _CORE_BYTES_PER_CYCLE * _FASTEST_CLOCK_HZ


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
