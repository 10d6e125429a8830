"""The first line of a table: whose figures these are."""

from __future__ import annotations

from gemmbench.facts import derive, units
from gemmbench.facts.records import Row, Run
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
    top, row = derive.peak(run, device, dtype), derive.peak_row(run, device, dtype)
    if doubted := derive.outdone(run, device, dtype):
        claimed, reached, faster = doubted
        return (
            *pieces,
            f"{dtype} peak not known: {units.rate(claimed)} was measured, {clean(faster.variant)} reached "
            f"{units.rate(reached)}; --remeasure",
        )
    if top is None or row is None:
        return (*pieces, f"{dtype} peak not measured")
    return (*pieces, f"{dtype} peak {units.rate(top)} ({measured(run, row)})")


def measured(run: Run, row: Row) -> str:
    """When a row was measured: in ``this run``, or earlier."""
    elapsed_s = derive.kept_for(run, row)
    return "this run" if elapsed_s is None else f"measured {units.age(elapsed_s)} earlier"
