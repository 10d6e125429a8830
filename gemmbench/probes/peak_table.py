"""The tables of ``peak``: a table for each family of probes, as clpeak's users know them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines
from gemmbench.report import notes
from gemmbench.report.notes import STYLES, WORDS
from gemmbench.report.table import Cell, Note, Sheet, heading, unbroken
from gemmbench.stats import ceilings as theory
from gemmbench.stats import intervals, rates
from gemmbench.stats.rates import Rate


@dataclass(frozen=True)
class Grid:
    """How the probes of one family are laid out."""

    caption: str
    key: str  # heading of the first column
    name: Callable[[Row], str]  # of the line that a row belongs to
    column: Callable[[Row], str]  # and of the column
    where: Callable[[Row], str]  # both, for the notes
    rate: Callable[[Row], Rate | None]
    shown: Callable[[float], str]  # a rate, as a cell
    choices: tuple[str, ...] = ()  # of a race, that have columns
    label: Callable[[Row], str] | None = None  # the line's name as it stands in the table, if it is another
    extra: tuple[str, ...] = ()  # headings of further columns
    more: Callable[[Row], tuple[str, ...]] = lambda _: ()  # their cells, from the best row
    by_name: bool = False  # whether notes speak of lines, not of their cells, where there are many


def _grid_sheet(run: Run, device: int, rows: Sequence[Row], grid: Grid, verbose: bool) -> Sheet:
    """The best batch of every row, the best of each line with its median and what won its race.

    A line without a figure becomes a note if all its rows lack it for the same reason.
    """
    if any(row.energy.joules for row in rows):  # a column for what the best row does with a joule
        more = grid.more

        def with_energy(row: Row) -> tuple[str, ...]:
            efficiency = rates.gflop_per_joule(row)
            return *more(row), "-" if efficiency is None else units.number(efficiency)

        grid = replace(grid, extra=(*grid.extra, "GFLOP/J"), more=with_energy)
    lines = by_key((grid.name(row), row) for row in rows)
    present = {
        name: members
        for name, members in lines.items()
        if any(row.status == "ok" for row in members) or len({row.reason for row in members}) > 1
    }
    columns = list(dict.fromkeys(grid.column(row) for members in present.values() for row in members))
    if all(name.isdecimal() for name in columns):
        columns.sort(key=int)
    used = {key for row in rows for key in row.choice}
    choices = tuple(name for name in grid.choices if name in used)
    cells: list[tuple[Cell, ...]] = []
    below: list[Note] = []
    for name, members in present.items():
        label = grid.label(members[0]) if grid.label else name
        line, winner = _line(clean(label), members, columns, grid)
        cells.append((*line, *_winner(winner, choices, grid)))
        below += _doubts(members, grid.where)
    absent = {name: members[0] for name, members in lines.items() if name not in present}
    remarks = brief_notes if grid.by_name and not verbose else every
    reasons = by_key(((row.status, row.reason), clean(name)) for name, row in absent.items())
    for (status, reason), names in reasons.items():
        text = f"{', '.join(names)}: {clean_lines(reason) or 'no reason given'}"
        below.append(Note(WORDS[status], text, STYLES[status]))
    return Sheet(
        heading=heading(run, device),
        caption=grid.caption,
        keys=(grid.key,),
        blocks=(tuple(columns), ("median", "noise", *grid.extra), (*choices, "integrity")) if cells else (),
        rows=tuple(cells),
        left=frozenset({"form", "pattern", "integrity"}),
        notes=(
            *below,
            *_energy_notes(rows, grid.where),
            *kept(run, rows, grid.where),
            *remarks(run, _with_races(rows, verbose), grid.where),
            *notes.warnings(run, device),
        ),
    )


def _energy_notes(rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """Why rows have no joules, where they were asked for; rows of one reason together."""
    groups = by_key(
        (clean(row.energy.why), row) for row in rows if rates.asked_for_energy(row) and row.energy.why
    )
    every_row = len(groups) == 1 and not any(row.energy.joules for row in rows)
    return [
        Note("energy", why if every_row else f"{notes.places(alike, where)}: {why}", "dim")
        for why, alike in groups.items()
    ]


def every(run: Run, rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """What is uncertain, and the rows' own notes."""
    return [*notes.uncertain(run, rows), *notes.remarks(rows, where)]


def brief_notes(run: Run, rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """Notes on many rows, by probe."""
    remarks = notes.uncertain(run, rows)
    said = by_key((clean_lines(note), clean(row.variant)) for row in rows for note in row.notes)
    for note, names in said.items():
        remarks.append(Note("note", f"{', '.join(dict.fromkeys(names))}: {note}", "dim"))
    return remarks


def kept(run: Run, rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """Which rows are from an earlier run, and how old they are."""
    ages = by_key(
        (units.age(elapsed_s), row) for row in rows if (elapsed_s := rates.kept_for(run, row)) is not None
    )
    text = "earlier; --remeasure measures anew"
    return [
        Note("kept", f"{notes.places(members, where)}: measured {age} {text}", "dim")
        for age, members in ages.items()
    ]


def suspects(rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """Figures that are not believed, and why."""
    return [
        Note("suspect", f"{where(row)}: {'; '.join(map(clean, row.check.reasons))}", "yellow")
        for row in rows
        if row.status == "ok" and row.check.verdict == "suspect"
    ]


def _doubts(rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """Rows without a figure, or with one that is not believed."""
    doubts = []
    for row in rows:
        if row.status != "ok":
            reason = clean_lines(row.reason) or "no reason given"
            doubts.append(Note(WORDS[row.status], f"{where(row)}: {reason}", STYLES[row.status]))
        elif row.check.verdict not in ("ok", "suspect"):
            doubts.append(Note("suspect", f"{where(row)}: its integrity was not checked", "yellow"))
        else:
            doubts += suspects([row], where)
    return doubts


def _line(
    label: str, rows: Sequence[Row], columns: Sequence[str], grid: Grid
) -> tuple[tuple[Cell, ...], Row | None]:
    """A line's cells, and the row that won: a suspect figure never does while there is another."""
    rated = [(row, rate.best) for row in rows if (rate := grid.rate(row)) is not None]
    sound = [(row, best) for row, best in rated if row.check.verdict == "ok"]
    winner = max(sound or rated, key=lambda pair: pair[1], default=(None, 0.0))[0]

    def cell(column: str) -> Cell:
        in_column = [(row, best) for row, best in rated if grid.column(row) == column]
        if not in_column:
            return notes.figure(next((row for row in rows if grid.column(row) == column), None), None)
        row, best = max(in_column, key=lambda pair: pair[1])
        return _figure(row, grid.shown(best), row is winner)

    return (Cell(label), *map(cell, columns)), winner


def _winner(row: Row | None, choices: Sequence[str], grid: Grid) -> tuple[Cell, ...]:
    if row is None:
        return tuple(Cell("-") for _ in range(3 + len(grid.extra) + len(choices)))
    rate = grid.rate(row)
    verdict = "ok" if row.check.verdict == "ok" else "suspect"
    return (
        Cell(grid.shown(rate.median) if rate else "-"),
        notes.noise(row),
        *map(Cell, grid.more(row)),
        *(Cell(clean(str(row.choice.get(name, "-")))) for name in choices),
        Cell(verdict, style="green" if verdict == "ok" else "yellow"),
    )


# --- Peaks: types or matrix instructions down ---------------------------------------------------------------

PLAIN = "flops"  # the probe that needs no name beside its data type's
_VECTOR_CHOICES = ("chains", "form", "unroll", "local")
_MATRIX_CHOICES = ("chains", "unroll", "groups")


def sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """The tables of each device's arithmetic and matrix units; if verbose, how every race went."""
    rows = by_key(
        ((row.device, "width" not in row.parameters), row) for row in run.rows if row.kind == "peak"
    )
    return [
        (_matrices if is_matrix else _vectors)(run, device, rows[device, is_matrix], verbose)
        for device, is_matrix in sorted(rows)
    ]


def _vectors(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    divisor, letter = _scale(rows)
    measured = [row for row in rows if rates.rate(row, "kernel")]
    ceilings = [top for row in measured if (top := _ceiling(run, device, row))]

    def reached(row: Row) -> tuple[str, ...]:
        top, rate = _ceiling(run, device, row), rates.rate(row, "kernel")
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
        rate=lambda row: rates.rate(row, "kernel"),
        shown=lambda rate: units.number(rate / divisor),
        choices=_VECTOR_CHOICES,
        label=label,
        extra=("ceiling", "reached") if ceilings else (),
        more=reached if ceilings else lambda _: (),
    )
    table = _grid_sheet(run, device, rows, grid, verbose)
    derived = dict.fromkeys(f"derived, not measured: {top.source}" for top in ceilings)
    return replace(table, notes=(*table.notes, *(Note("ceiling", text, "dim") for text in derived)))


def _matrices(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
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
        rate=lambda row: rates.rate(row, "kernel"),
        shown=lambda rate: units.number(rate / divisor),
        choices=_MATRIX_CHOICES,
        label=lambda row: name(row) if DTYPES[row.dtype].is_float else f"{name(row)}, {letter}IOPS",
        extra=("shape",),
        more=lambda row: (str(row.parameters.get("shape", "-")),),
    )
    return _grid_sheet(run, device, rows, grid, verbose)


def _name(row: Row) -> str:
    return row.dtype if row.variant == PLAIN else f"{row.variant} {row.dtype}"


def _scale(rows: Sequence[Row]) -> tuple[float, str]:
    """GFLOPS, or TFLOPS from 10 of them on."""
    sound = [row for row in rows if row.check.verdict == "ok"]
    best = [rate.best for row in sound if (rate := rates.rate(row, "kernel"))]
    return units.scale(max(best, default=0.0))


def _ceiling(run: Run, device: int, row: Row) -> theory.Ceiling | None:
    if device == HOST or row.variant != PLAIN:
        return None
    return theory.ceiling(run.header.devices[device], row.dtype, max_mhz=row.max_mhz)


# --- The tables of memory, transfers and latencies ----------------------------------------------------------

_CHOICES = ("pattern", "unroll", "group", "items")
_SHARES = (("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("p99", 0.99))
_ZERO_COPY = "zero-copy"


def memory_sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """For each device: bandwidth by width, caches by size, transfers by size, launches."""
    rows = by_key((row.device, row) for row in run.rows if row.kind in ("bandwidth", "transfer", "latency"))
    groups: tuple[tuple[Callable[[Row], bool], Callable[..., Sheet]], ...] = (
        (lambda row: row.kind == "bandwidth" and not is_sized(row), _bandwidth),
        (lambda row: row.kind != "transfer" and is_sized(row), _caches),
        (lambda row: row.kind == "transfer", _transfers),
        (lambda row: row.kind == "latency" and not is_sized(row), _launches),
    )
    return [
        table(run, device, chosen, verbose)
        for device in sorted(rows)
        for belongs, table in groups
        if (chosen := list(filter(belongs, rows[device])))
    ]


def is_sized(row: Row) -> bool:
    """Whether a row is of a set or a transfer of one size."""
    return "bytes" in row.parameters


def _where(row: Row) -> str:
    if is_sized(row):
        # No break: a note that speaks of several sizes parts them at the last space.
        return f"{clean(row.variant)} of {unbroken(units.size(int(row.parameters['bytes'])))}"
    width = row.parameters.get("width")
    return clean(row.variant) if width is None else f"{clean(row.variant)}, width {width}"


def _bandwidth(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    best = [rate.best for row in rows if row.check.verdict == "ok" and (rate := rates.byte_rate(row))]
    divisor, letter = units.scale(max(best, default=0.0))
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
        rate=rates.byte_rate,
        shown=lambda rate: units.number(rate / divisor),
        choices=_CHOICES,
        by_name=True,
    )
    return _grid_sheet(run, device, rows, grid, verbose)


def _caches(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    """Sizes down; what a set of that size delivers, and how long a load takes that waits for another."""
    by_size: dict[tuple[str, int], Row] = {(row.kind, int(row.parameters["bytes"])): row for row in rows}
    headings = {"bandwidth": ("GB/s", "noise"), "latency": tuple(f"ns, {name}" for name, _ in _SHARES)}
    present = [kind for kind in headings if any(key[0] == kind for key in by_size)]

    def read(row: Row | None) -> tuple[Cell, ...]:
        rate = rates.byte_rate(row) if row else None
        if row is None or rate is None:
            return notes.figure(row, None), Cell("")
        return _figure(row, units.gflops(rate.best)), notes.noise(row)

    def chased(row: Row | None) -> tuple[Cell, ...]:
        if row is None or row.status != "ok":
            return notes.figure(row, None), *(Cell("") for _ in _SHARES[1:])
        shares = (intervals.quantile(rates.finest_seconds(row), share) for _, share in _SHARES)
        return tuple(_figure(row, units.number(value / 1e-9)) for value in shares)

    lines = {"bandwidth": read, "latency": chased}
    return Sheet(
        heading=heading(run, device),
        caption="working-set: GB/s of all units reading a set of this size, best batch; "
        "pointer-chase: ns for each load that waits for the one before it",
        keys=("set",),
        blocks=tuple(headings[kind] for kind in present),
        rows=tuple(
            (Cell(units.size(size)), *(c for kind in present for c in lines[kind](by_size.get((kind, size)))))
            for size in sorted({size for _, size in by_size})
        ),
        notes=_below(run, rows, verbose),
    )


def _transfers(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    names = list(dict.fromkeys(row.variant for row in rows))
    by_size = {(row.variant, int(row.parameters["bytes"])): row for row in rows}
    best: dict[str, float] = {}
    for row in rows:
        if row.check.verdict == "ok" and (rate := rates.byte_rate(row)):
            best[row.variant] = max(rate.best, best.get(row.variant, 0.0))

    def cell(name: str, size: int) -> Cell:
        row = by_size.get((name, size))
        rate = rates.byte_rate(row) if row else None
        if row is None or row.status != "ok":
            return notes.figure(row, None)
        if rate is None:
            return Cell(_ZERO_COPY, style="dim")
        return _figure(row, units.gflops(rate.best), rate.best == best.get(name))

    directions = [tuple(name for name in names if name.startswith(word)) for word in ("upload", "download")]
    return Sheet(
        heading=heading(run, device),
        caption="GB/s between host and device by size, best batch; * the best of its column",
        keys=("size",),
        blocks=tuple(block for block in directions if block),
        rows=tuple(
            (Cell(units.size(size)), *(cell(name, size) for block in directions for name in block))
            for size in sorted({size for _, size in by_size})
        ),
        notes=_below(run, rows, verbose),
    )


def _launches(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    """Probes down, the distribution across, so that noise is no news."""

    def line(row: Row) -> tuple[Cell, ...]:
        name = Cell(clean(row.variant))
        if row.status != "ok":
            return (name, notes.figure(row, None), *[Cell("")] * (len(_SHARES) + 1))
        samples = rates.finest_seconds(row)
        shares = [intervals.quantile(samples, share) for _, share in _SHARES]
        times = (Cell(units.seconds(value)) for value in (min(samples), *shares))
        return (name, *times, Cell(str(len(samples))))

    return Sheet(
        heading=heading(run, device),
        caption="Latency of an empty kernel's launch, as this program sees it",
        keys=("launch",),
        blocks=(("least", *(name for name, _ in _SHARES)), ("samples",)),
        rows=tuple(map(line, rows)),
        notes=tuple(notes.troubles(rows, _where)),
    )


def _figure(row: Row, text: str, best: bool = False) -> Cell:
    suspect = row.check.verdict != "ok"
    return Cell(f"?{text}" if suspect else text, best and not suspect, "yellow" if suspect else "")


def _below(run: Run, rows: Sequence[Row], verbose: bool) -> tuple[Note, ...]:
    remarks = (every if verbose else brief_notes)(run, _with_races(rows, verbose), _where)
    return (*notes.troubles(rows, _where), *suspects(rows, _where), *remarks)


def _with_races(rows: Sequence[Row], verbose: bool) -> Sequence[Row]:
    """Rows whose notes tell how their races went, too, if verbose."""
    return [replace(row, notes=row.remarks) for row in rows] if verbose else rows
