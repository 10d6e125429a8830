"""The tables of ``peak``: a table for each family of probes, as clpeak's users know them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from rich.console import RenderableType

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.probes import grid as probe_grid
from gemmbench.probes.grid import Grid
from gemmbench.report import notes
from gemmbench.report.notes import STYLES, WORDS
from gemmbench.report.table import Cell, Note, Sheet, heading, stack, unbroken
from gemmbench.stats import ceilings as theory
from gemmbench.stats import intervals
from gemmbench.stats import rates as derive

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
    tables = []
    for device in sorted({row.device for row in rows}):
        device_rows = [row for row in rows if row.device == device]
        vectors = [row for row in device_rows if "width" in row.parameters]
        matrices = [row for row in device_rows if "width" not in row.parameters]
        if vectors:
            tables.append(_vectors(run, device, vectors, verbose))
        if matrices:
            tables.append(_matrices(run, device, matrices, verbose))
    return tables


def other_sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """Bandwidth, transfer and latency."""
    return peak_memory_sheets(run, verbose)


def _vectors(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    """Types down, vector widths across."""
    divisor, letter = _scale(rows)
    ceilings = [
        top for row in rows if derive.rate(row, "kernel") and (top := _ceiling(run, device, row)) is not None
    ]

    def reached(row: Row) -> tuple[str, ...]:
        top, rate = _ceiling(run, device, row), derive.rate(row, "kernel")
        if top is None or rate is None:
            return "-", "-"
        return units.number(top.per_second / divisor), units.percent(rate.best / top.per_second)

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
    table = probe_grid.sheet(run, device, rows, grid, verbose)
    derived = dict.fromkeys(f"derived, not measured: {top.source}" for top in ceilings)
    return replace(table, notes=(*table.notes, *(Note("ceiling", text, "dim") for text in derived)))


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
    rates = [rate.best for row in sound if (rate := derive.rate(row, "kernel"))]
    return units.scale(max(rates, default=0.0))


def _ceiling(run: Run, device: int, row: Row) -> theory.Ceiling | None:
    if device == HOST or row.variant != _PLAIN:
        return None
    return theory.ceiling(run.header.devices[device], row.dtype)


# --- The tables of memory, transfers and latencies ----------------------------------------------------------


_CHOICES = ("pattern", "unroll", "group", "items")
_SHARES = (("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("p99", 0.99))
_ZERO_COPY = "zero-copy"


def peak_memory_sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """For each device: bandwidth by width, caches by size, transfers by size, launches."""
    rows = [row for row in run.rows if row.kind in ("bandwidth", "transfer", "latency")]
    tables = []
    for device in sorted({row.device for row in rows}):
        device_rows = [row for row in rows if row.device == device]
        groups: tuple[tuple[Callable[[Row], bool], Callable[..., Sheet]], ...] = (
            (lambda row: row.kind == "bandwidth" and not _sized(row), _bandwidth),
            (lambda row: row.kind != "transfer" and _sized(row), _caches),
            (lambda row: row.kind == "transfer", _transfers),
            (lambda row: row.kind == "latency" and not _sized(row), _launches),
        )
        for belongs, table in groups:
            chosen = [row for row in device_rows if belongs(row)]
            if chosen:
                tables.append(table(run, device, chosen, verbose))
    return tables


def _sized(row: Row) -> bool:
    """Whether the row is one of a series over sizes."""
    return "bytes" in row.parameters


def _size(row: Row) -> str:
    return units.size(int(row.parameters["bytes"]))


def _where(row: Row) -> str:
    if _sized(row):
        # No break: a note that speaks of several sizes parts them at the last space.
        size = unbroken(_size(row))
        return f"{clean(row.variant)} of {size}"
    width = row.parameters.get("width")
    return clean(row.variant) if width is None else f"{clean(row.variant)}, width {width}"


def _bandwidth(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    """Probes down, vector widths across."""
    rates = [rate.best for row in rows if row.check.verdict == "ok" and (rate := derive.byte_rate(row))]
    divisor, letter = units.scale(max(rates, default=0.0))
    emulated = device != HOST and run.header.devices[device].local_mem_emulated

    def name(row: Row) -> str:
        word = " (emulated)" if emulated and row.variant.startswith("local-") else ""
        return row.variant + word

    grid = Grid(
        caption=f"{letter}B/s of the best batch by vector width of float; * the best, whose median follows",
        key="memory",
        name=name,
        column=lambda row: str(row.parameters.get("width", 1)),
        where=_where,
        rate=derive.byte_rate,
        shown=lambda rate: units.number(rate / divisor),
        choices=_CHOICES,
        by_name=True,
    )
    return probe_grid.sheet(run, device, rows, grid, verbose)


def _caches(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    """Sizes down; what a set of that size delivers, and how long a load takes that waits for another."""
    by_key: dict[tuple[str, int], Row] = {(row.kind, int(row.parameters["bytes"])): row for row in rows}
    headings = (("GB/s", "noise"), tuple(f"ns, {name}" for name, _ in _SHARES))
    present = tuple(kind for kind in ("bandwidth", "latency") if any(key[0] == kind for key in by_key))

    def read(row: Row | None) -> tuple[Cell, ...]:
        rate = derive.byte_rate(row) if row else None
        if row is None or rate is None:
            return _gap(row), Cell("")
        return _figure(row, units.gflops(rate.best)), notes.noise_cell(row)

    def chased(row: Row | None) -> tuple[Cell, ...]:
        if row is None or row.status != "ok":
            return _gap(row), *(Cell("") for _ in _SHARES[1:])
        shares = (intervals.quantile(derive.finest_seconds(row), share) for _, share in _SHARES)
        return tuple(_figure(row, units.nanoseconds(value)) for value in shares)

    lines = {"bandwidth": read, "latency": chased}
    return Sheet(
        heading=heading(run, device),
        caption="working-set: GB/s of all units reading a set of this size, best batch; "
        "pointer-chase: ns for each load that waits for the one before it",
        keys=("set",),
        blocks=tuple(headings[("bandwidth", "latency").index(kind)] for kind in present),
        rows=tuple(
            (
                Cell(units.size(size)),
                *(cell for kind in present for cell in lines[kind](by_key.get((kind, size)))),
            )
            for size in sorted({size for _, size in by_key})
        ),
        notes=_below(run, rows, verbose),
    )


def _transfers(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    """Sizes down, ways across."""
    names = list(dict.fromkeys(row.variant for row in rows))
    by_key = {(row.variant, int(row.parameters["bytes"])): row for row in rows}
    best = {
        name: max(
            (
                rate.best
                for row in rows
                if row.variant == name and row.check.verdict == "ok" and (rate := derive.byte_rate(row))
            ),
            default=None,
        )
        for name in names
    }

    def cell(name: str, size: int) -> Cell:
        row = by_key.get((name, size))
        rate = derive.byte_rate(row) if row else None
        if row is None or row.status != "ok":
            return _gap(row)
        if rate is None:
            return Cell(_ZERO_COPY, style="dim")
        return _figure(row, units.gflops(rate.best), rate.best == best[name])

    directions = [tuple(name for name in names if name.startswith(word)) for word in ("upload", "download")]
    return Sheet(
        heading=heading(run, device),
        caption="GB/s between host and device by size, best batch; * the best of its column",
        keys=("size",),
        blocks=tuple(block for block in directions if block),
        rows=tuple(
            (Cell(units.size(size)), *(cell(name, size) for block in directions for name in block))
            for size in sorted({size for _, size in by_key})
        ),
        notes=_below(run, rows, verbose),
    )


def _launches(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    """Probes down, the distribution across, so that noise is no news."""

    def line(row: Row) -> tuple[Cell, ...]:
        if row.status != "ok":
            return Cell(clean(row.variant)), _gap(row), *(Cell("") for _ in range(len(_SHARES) + 1))
        samples = derive.finest_seconds(row)
        shares = [intervals.quantile(samples, share) for _, share in _SHARES]
        return (
            Cell(clean(row.variant)),
            *(Cell(units.seconds(value)) for value in (min(samples), *shares)),
            Cell(str(len(samples))),
        )

    return Sheet(
        heading=heading(run, device),
        caption="Latency of an empty kernel's launch, as this program sees it",
        keys=("launch",),
        blocks=(("least", *(name for name, _ in _SHARES)), ("samples",)),
        rows=tuple(map(line, rows)),
        notes=tuple(notes.troubles(rows, _where)),
    )


def _gap(row: Row | None) -> Cell:
    return Cell("") if row is None else Cell(WORDS[row.status], style=STYLES[row.status])


def _figure(row: Row, text: str, best: bool = False) -> Cell:
    suspect = row.check.verdict == "suspect"
    return Cell(f"?{text}" if suspect else text, best and not suspect, "yellow" if suspect else "")


def _below(run: Run, rows: Sequence[Row], verbose: bool) -> tuple[Note, ...]:
    """What could not be measured, what is not believed, what is noisy, remarks."""
    remarks = probe_grid.every if verbose else probe_grid.brief
    shown = [probe_grid.with_race(row) for row in rows] if verbose else rows
    return (
        *notes.troubles(rows, _where),
        *probe_grid.suspects(rows, _where),
        *remarks(run, shown, _where),
    )
