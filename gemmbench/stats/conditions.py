"""What the conditions of a row say about its device and its host."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from gemmbench.model.device import HOST, POWER
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import number


def is_on_cpu(run: Run, row: Row) -> bool:
    """Whether a row ran on the host's processor."""
    return row.device == HOST or row.ran_on == "host" or run.header.devices[row.device].type == "cpu"


def known(values: Sequence[float | None]) -> list[float]:
    """The values that are known."""
    return [value for value in values if value is not None]


def in_short(row: Row) -> dict[str, float | int | str | None]:
    """A row's conditions in a value each, over all its windows; None where not known."""
    windows = tuple(row.conditions.windows.values()) if row.conditions else ()
    clocks = [clock for window in windows for clock in known(window.clock_mhz)]
    limits = dict.fromkeys(name for window in windows for text in window.limits for name in text.split())
    return {
        "clock_mhz": median(clocks) if clocks else None,
        "limits": " ".join(limits),
        "other_cores": max(known([window.other_cores for window in windows]), default=None),
        "steal_cores": max(known([window.steal_cores for window in windows]), default=None),
    }


def limited(run: Run, device: int, dtype: str | None = None) -> str:
    """How power limited a device in the GEMMs of a type: ``1,440 of 1,980 MHz``; "" where it did not.

    The clock is the median of the batches in which power limited it.
    """
    clocks: list[float] = []
    most = 0.0
    for row in run.rows:
        if row.device != device or dtype not in (None, row.dtype) or row.conditions is None:
            continue
        most = max(most, row.conditions.max_mhz or 0.0)
        for window in row.conditions.windows.values():
            clocks += [
                clock
                for clock, limits in zip(window.clock_mhz, window.limits, strict=False)
                if clock is not None and POWER in limits.split()
            ]
    return f"{number(median(clocks))} of {number(most)} MHz" if clocks and most else ""
