"""From which size on offloading pays: the device, transfers included, against the host's BLAS."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from gemmbench.facts import derive
from gemmbench.facts.series import Panel, Series


@dataclass(frozen=True)
class BreakEven:
    """The smallest size from which a kernel, transfers included, beats the host's BLAS."""

    kernel: Series
    size: float | None  # None: not in range
    low: float | None  # the interval that the samples' confidence intervals allow; None: open on that side
    high: float | None
    from_start: bool  # it wins from the smallest size measured
    lead: float  # how many times the host BLAS's rate it reaches at `largest`
    largest: int  # the largest size that both were measured at


def break_evens(panel: Panel) -> tuple[BreakEven, ...]:
    """The break-even of each kernel of a panel, the earliest first: the first is the panel's.

    Only the ladder's own kernels count: no library, and not `auto`, which is the host's BLAS itself where
    that is faster. Of two that begin at one size the one with the greater lead comes first; kernels that
    never pass the host's BLAS come last.

    Returns:
        None at all where no kernel and the host's BLAS share a size.
    """
    host = baseline(panel)
    if host is None:
        return ()
    found = [even for one in panel.series if one.is_kernel and (even := _break_even(one, host))]
    return tuple(sorted(found, key=lambda even: (even.size or math.inf, -even.lead)))


def baseline(panel: Panel) -> Series | None:
    """The host's own BLAS; None if it was not measured beside the device."""
    return next((each for each in panel.series if each.is_host), None)


def crossing(leads: Sequence[tuple[float, float]]) -> float | None:
    """The size from which a lead is positive and stays so, interpolated in the logarithm of the size.

    Args:
        leads: size and lead, by size; a lead is the logarithm of a ratio of times.

    Returns:
        The smallest size where the lead is positive throughout; None if it is not at the largest.
    """
    if not leads or leads[-1][1] <= 0:
        return None
    last = max((index for index, (_, lead) in enumerate(leads) if lead <= 0), default=None)
    if last is None:
        return float(leads[0][0])
    (smaller, behind), (larger, ahead) = leads[last], leads[last + 1]
    left, right = math.log(smaller), math.log(larger)
    return math.exp(left + (right - left) * -behind / (ahead - behind))


def _break_even(kernel: Series, host: Series) -> BreakEven | None:
    """Where a kernel's host-scope time falls below the host BLAS's, and stays there.

    The interval comes from the ends of the two 95 % confidence intervals taken against and for the device.
    """
    times = {
        size: (device_s, host_s)
        for size in sorted(kernel.rows.keys() & host.rows.keys())
        if size > 0 and kernel.rows[size].status == host.rows[size].status == "ok"
        if (device_s := derive.summary(kernel.rows[size], "host"))
        and (host_s := derive.summary(host.rows[size], "host"))
    }
    if not times:
        return None

    def at(device_end: str, host_end: str) -> float | None:
        return crossing(
            [
                (size, math.log(getattr(host_s, host_end) / getattr(device_s, device_end)))
                for size, (device_s, host_s) in times.items()
            ]
        )

    size, largest = at("median", "median"), max(times)
    device_s, host_s = times[largest]
    return BreakEven(
        kernel,
        size,
        at("low", "high"),
        at("high", "low"),
        size == min(times),
        host_s.median / device_s.median,
        largest,
    )
