"""The first line of a table: whose figures these are."""

from __future__ import annotations

from gemmbench.facts import derive, units
from gemmbench.facts.records import Run
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean


def heading(run: Run, device: int, dtype: str | None = None) -> tuple[str, ...]:
    """Device, driver, units, and for one data type the peak that fractions refer to."""
    if device == HOST:
        return (clean(run.header.host.cpu), f"host, {clean(run.header.host.blas)}")
    facts = run.header.devices[device]
    count = facts.compute_units
    pieces = (*map(clean, facts.title.split(" | ", 1)), f"{count} unit{'' if count == 1 else 's'}")
    if dtype is None:
        return pieces
    top = derive.peak(run, device, dtype)
    return (*pieces, f"{dtype} peak {units.rate(top)} (this run)" if top else f"{dtype} peak not measured")
