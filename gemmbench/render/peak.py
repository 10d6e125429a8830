"""The tables of ``peak``: a table for each family of probes, as clpeak's users know them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from rich.console import RenderableType

from gemmbench.facts import derive, theory, units
from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.records import Row, Run
from gemmbench.facts.series import HOST
from gemmbench.render import peak_memory, probe_grid
from gemmbench.render.probe_grid import Grid
from gemmbench.render.sheet import Note, Sheet, stack

_PLAIN = "flops"  # the probe that needs no name beside its data type's
_VECTOR_CHOICES = ("chains", "form", "unroll", "local")
_MATRIX_CHOICES = ("chains", "unroll", "groups")


def peak(run: Run, verbose: bool = False) -> RenderableType:
    """The tables of each device: arithmetic, matrix units, memory, transfers, latency.

    Args:
        run: the run.
        verbose: also how every race went, form by form.
    """
    return stack([*sheets(run, verbose), *other_sheets(run, verbose)])


def sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """Tables of each device with peak rows: the best batch of each type and width, and the winner."""
    rows = [row for row in run.rows if row.kind == "peak"]
    found = []
    for device in sorted({row.device for row in rows}):
        mine = [row for row in rows if row.device == device]
        vectors = [row for row in mine if "width" in row.parameters]
        matrices = [row for row in mine if "width" not in row.parameters]
        if vectors:
            found.append(_vectors(run, device, vectors, verbose))
        if matrices:
            found.append(_matrices(run, device, matrices, verbose))
    return found


def other_sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """Bandwidth, transfer and latency."""
    return peak_memory.sheets(run, verbose)


def _vectors(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    """Types down, vector widths across."""
    divisor, letter = _scale(rows)
    ceilings = [
        top for row in rows if derive.rate(row, "kernel") and (top := _ceiling(run, device, row)) is not None
    ]

    def reached(row: Row) -> tuple[str, ...]:
        top, found = _ceiling(run, device, row), derive.rate(row, "kernel")
        if top is None or found is None:
            return "-", "-"
        return units.number(top.flops_per_second / divisor), units.percent(found.best / top.flops_per_second)

    def label(row: Row) -> str:
        return _name(row) if DTYPES[row.dtype].is_float else f"{_name(row)}, {letter}IOPS"

    grid = Grid(
        caption=f"{letter}FLOPS of the best batch by vector width; * the best, whose median follows",
        key="type",
        name=_name,
        column=lambda row: str(row.parameters.get("width", 1)),
        where=lambda row: f"{_name(row)}, width {row.parameters.get('width', 1)}",
        rate=lambda row: derive.rate(row, "kernel"),
        shown=lambda rate: units.number(rate / divisor),
        choices=_VECTOR_CHOICES,
        label=label,
        extra=("ceiling", "reached") if ceilings else (),
        more=reached if ceilings else lambda _: (),
    )
    found = probe_grid.sheet(run, device, rows, grid, verbose)
    derived = dict.fromkeys(f"derived, not measured: {one.source}" for one in ceilings)
    return replace(found, notes=(*found.notes, *(Note("ceiling", text, "dim") for text in derived)))


def _matrices(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    """Matrix instructions down, what they are fed with across."""
    divisor, letter = _scale(rows)

    def name(row: Row) -> str:
        into = row.parameters.get("accumulator")
        return f"{row.variant} {row.dtype}{f' > {into}' if into else ''}"

    grid = Grid(
        caption=f"{letter}FLOPS of matrix units by operands; * the best, whose median follows",
        key="operands > sum",
        name=name,
        column=lambda row: str(row.parameters.get("operands", "-")),
        where=lambda row: f"{name(row)} {row.parameters.get('operands', '')}".strip(),
        rate=lambda row: derive.rate(row, "kernel"),
        shown=lambda rate: units.number(rate / divisor),
        choices=_MATRIX_CHOICES,
        label=lambda row: name(row) if DTYPES[row.dtype].is_float else f"{name(row)}, {letter}IOPS",
        extra=("shape",),
        more=lambda row: (str(row.parameters.get("shape", "-")),),
    )
    return probe_grid.sheet(run, device, rows, grid, verbose)


def _name(row: Row) -> str:
    return row.dtype if row.variant == _PLAIN else f"{row.variant} {row.dtype}"


def _scale(rows: Sequence[Row]) -> tuple[float, str]:
    """GFLOPS, or TFLOPS from 10 of them on."""
    sound = [row for row in rows if row.check.verdict == "ok"]
    rates = [found.best for row in sound if (found := derive.rate(row, "kernel"))]
    return units.scale(max(rates, default=0.0))


def _ceiling(run: Run, device: int, row: Row) -> theory.Ceiling | None:
    if device == HOST:
        return None
    return theory.ceiling(run.header.devices[device], row.variant, row.dtype)
