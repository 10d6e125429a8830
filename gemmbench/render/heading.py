"""The first line of a table: whose figures these are."""

from __future__ import annotations

from gemmbench.facts import derive, units
from gemmbench.facts.records import Row, Run
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean


def heading(run: Run, device: int, dtype: str | None = None) -> tuple[str, ...]:
    """Device, driver, units, and for one data type the peaks that fractions refer to."""
    if device == HOST:
        return (clean(run.header.host.cpu), f"host, {clean(run.header.host.blas)}")
    facts = run.header.devices[device]
    count = facts.compute_units
    pieces = (*map(clean, facts.title.split(" | ", 1)), f"{count} unit{'' if count == 1 else 's'}")
    if dtype is None:
        return pieces
    return (*pieces, *(_peak(run, device, dtype, matrix) for matrix in derive.units_used(run, device, dtype)))


def _peak(run: Run, device: int, dtype: str, matrix: bool) -> str:
    """The peak of one kind of units, and when it was measured."""
    name = f"{dtype} peak of the matrix units" if matrix else f"{dtype} peak"
    integer = derive.is_integer(dtype)
    if doubted := derive.outdone(run, device, dtype, matrix):
        claimed, reached, faster = doubted
        return (
            f"{name} not known: {units.rate(claimed, integer)} was measured, {clean(faster.variant)} reached "
            f"{units.rate(reached, integer)}; --remeasure"
        )
    top = derive.peak(run, device, dtype, matrix)
    if top is None:
        return f"{name} not measured"
    return f"{name} {units.rate(top.rate, integer)} ({measured(run, top.row)})"


def measured(run: Run, row: Row) -> str:
    """When a row was measured: in ``this run``, or earlier."""
    elapsed_s = derive.kept_for(run, row)
    return "this run" if elapsed_s is None else f"measured {units.age(elapsed_s)} earlier"
