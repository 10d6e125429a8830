"""``kernels --resources``: what each kernel takes as built for the device, and how many work-items fit."""

from __future__ import annotations

from collections.abc import Sequence

from gemmbench.facts import units
from gemmbench.facts.records import Resources, Row, Run
from gemmbench.facts.text import clean
from gemmbench.render import notes
from gemmbench.render.heading import heading
from gemmbench.render.sheet import Cell, Note, Sheet

_LEGEND = (
    Note(
        "group", "work-items in a work-group as launched, of the most that the built kernel can have", "dim"
    ),
    Note("multiple", "work-group sizes should be a multiple of it", "dim"),
    Note("private", "memory of each work-item; local: of each work-group", "dim"),
)


def sheets(run: Run) -> list[Sheet]:
    """A table for each device and data type: a line for each kernel of each variant.

    Args:
        run: rows as built, without samples.
    """
    found = []
    for device in dict.fromkeys(row.device for row in run.rows):
        for dtype in dict.fromkeys(row.dtype for row in run.rows):
            rows = [row for row in run.rows if (row.device, row.dtype) == (device, dtype)]
            if rows:
                found.append(_sheet(run, device, dtype, rows))
    return found


def _sheet(run: Run, device: int, dtype: str, rows: Sequence[Row]) -> Sheet:
    every = [kernel for row in rows for kernel in row.resources]
    told = any(kernel.registers is not None for kernel in every)
    fits = any(kernel.fit is not None for kernel in every)
    lines = []
    for row in rows:
        for place, kernel in enumerate(row.resources):
            lines.append(
                (
                    Cell("" if place else clean(row.variant)),
                    Cell(clean(kernel.kernel), style="" if kernel.role == "multiply" else "dim"),
                    *_cells(kernel, told, fits),
                )
            )
    columns = [("group", "most", "multiple"), ("private", "local")]
    if told:
        columns.append(("registers", "spills"))
    if fits:
        columns.append(("fit", "limit"))
    advice = [] if told else [Note("registers", "this driver does not tell registers and spills", "dim")]
    fit = [Note("fit", "work-items that a compute unit holds at once, and what keeps it from more", "dim")]
    return Sheet(
        heading=heading(run, device),
        caption=f"{dtype}: kernels as built, with the parameters preset for this device",
        keys=("", "kernel"),
        blocks=tuple(columns),
        rows=tuple(lines),
        left=frozenset({"kernel", "limit"}),
        notes=(
            *_LEGEND,
            *(fit if fits else []),
            *advice,
            *notes.troubles(rows, lambda row: row.dtype),
        ),
    )


def _cells(kernel: Resources, told: bool, fits: bool) -> tuple[Cell, ...]:
    def text(value: int | None) -> str:
        return "-" if value is None else str(value)

    cells = [Cell(str(kernel.group)), Cell(str(kernel.most)), Cell(str(kernel.multiple))]
    cells += [Cell(units.size(kernel.private_bytes)), Cell(units.size(kernel.local_bytes))]
    if told:
        spilled = units.size(kernel.spill_bytes) if kernel.spill_bytes is not None else "-"
        cells += [Cell(text(kernel.registers)), Cell(spilled, style="yellow" if kernel.spill_bytes else "")]
    if fits:
        cells += [Cell(text(kernel.fit)), Cell(clean(kernel.limit) or "-")]
    return tuple(cells)
