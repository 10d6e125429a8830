"""The tables of ``peak``: arithmetic, tensor cores, memory, transfers and latencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.row import FAILED, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines
from gemmbench.report import notes
from gemmbench.report.notes import STYLES, WORDS
from gemmbench.report.table import Cell, Note, Sheet, heading
from gemmbench.stats import ceilings as theory
from gemmbench.stats import intervals, rates
from gemmbench.stats.rates import Rate

PLAIN = "flops"  # the probe whose rows are named by the data type alone
_MOST_REMARKS = 3  # below a table, unless -v was given
_AGAIN = "close other programs and run again; -v has the reasons"
_LACKING = ("unsupported", "skipped")
_DOUBTFUL = "?"  # in place of a rate that failed a check
_MEMORY = ("bandwidth", "transfer", "latency")
_EVIDENCE = {"doubling": "doubling", "event_over_wall": "event/wall", "unrolling": "unrolling"}
_SHARES = (("p10", 0.1), ("median", 0.5), ("p90", 0.9), ("p99", 0.99))


@dataclass(frozen=True)
class Grid:
    """Rates of one family of probes: a line for each probe or type, a column for each width or operand."""

    title: str  # with the unit of every rate
    line: Callable[[Row], str]
    column: Callable[[Row], str]
    rate: Callable[[Row], Rate | None]
    divisor: float
    # Further columns by their headings, from the row that is the best of its line; left out where empty.
    more: Mapping[str, Callable[[Row], str]] = field(default_factory=dict)


def sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """Tables of each device: arithmetic, units for short types, and with `verbose` a line for every row."""
    rows = by_key((row.device, row) for row in run.rows if row.kind == "peak")
    return [sheet for device in sorted(rows) for sheet in _peaks(run, device, rows[device], verbose)]


def _peaks(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Iterator[Sheet]:
    """Yield a device's tables of verified rates: arithmetic by vector width, then tensor cores by operands.

    All share a unit that suits the largest rate. Only the first has a heading, and the last has the notes. If
    verbose, a table of every ok row follows.
    """
    believed = [rate.best for row in rows if (rate := _if_verified(row, _rate(row)))]
    divisor, letter = units.scale(max(believed, default=0.0))
    floats = [row for row in rows if (row.variant, row.dtype) == (PLAIN, "float")]

    def line(row: Row) -> str:
        into = row.parameters.get("accumulator")
        name = row.dtype if row.variant == PLAIN else f"{row.variant} {row.dtype}"
        return f"{name}{f' > {into}' if into else ''}{'' if _is_float(row) else f' ({letter}IOPS)'}"

    def emulated(row: Row) -> str:
        """``emulated`` if a CPU is slower with a short type than with float: it converts at each step."""
        top = _rate(row)
        best = max((rate.best for each in floats if (rate := _if_verified(each, _rate(each)))), default=0.0)
        is_short = (
            row.variant == PLAIN and _is_float(row) and DTYPES[row.dtype].itemsize < DTYPES["float"].itemsize
        )
        return "emulated" if top and on_cpu and is_short and top.best < best else ""

    def joules(row: Row) -> str:
        value = rates.gflop_per_joule(row)
        return "" if value is None else units.number(value)

    on_cpu = device != HOST and run.header.devices[device].type == "cpu"
    families: dict[tuple[str, Callable[[Row], str]], list[Row]] = {
        ("Arithmetic", _width): [row for row in rows if "width" in row.parameters],
        ("Units for short types" if on_cpu else "Tensor cores", _operands): [
            row for row in rows if "width" not in row.parameters
        ],
    }
    more = {"GFLOP/J": joules, "": emulated}
    made = [
        _grid(run, device, members, Grid(f"{name}, {letter}FLOPS", line, column, _rate, divisor, more))
        for (name, column), members in families.items()
        if members
    ]
    made = [made[0], *(replace(sheet, heading=()) for sheet in made[1:])]
    yield from made[:-1]
    yield replace(made[-1], notes=(*_summary(run, rows, verbose), *_remarks(run, device, rows, verbose)))
    if verbose:
        yield _details(run, device, rows, divisor)


def _rate(row: Row) -> Rate | None:
    return rates.rate(row, "kernel")


def _is_float(row: Row) -> bool:
    return DTYPES[row.dtype].is_float


def _width(row: Row) -> str:
    return str(row.parameters.get("width", 1))


def _operands(row: Row) -> str:
    return str(row.parameters.get("operands", "-"))


def _summary(run: Run, rows: Sequence[Row], verbose: bool) -> list[Note]:
    """One note: how many rows are verified, which types are not supported or skipped, and further options.

    These are --all if a run of ``peak`` has no memory rows, and -v unless verbose.
    """
    measured = [row for row in rows if row.status not in _LACKING]
    verified = sum(_is_verified(row) for row in measured)
    text = f"{verified} of {len(measured)} verified."
    present = {row.dtype for row in measured}
    lacking = dict.fromkeys(row.dtype for row in rows if row.status in _LACKING and row.dtype not in present)
    if lacking:
        text += f" Not supported: {', '.join(lacking)}."
    is_quick = run.header.view == "peak" and "--all" not in run.header.command
    if is_quick and not any(row.kind in _MEMORY for row in run.rows):
        text += " Memory, transfers, latency: --all."
    return [Note("", text if verbose else f"{text} Details: -v")]


def _details(run: Run, device: int, rows: Sequence[Row], divisor: float) -> Sheet:
    """A table with a line for every ok row: best and median, noise, the fastest variant, and the checks.

    `rows` are those of a `device` in `run`. The checks are figures such as the time of twice the work over
    that of the work. Rates are divided by `divisor`. The share of the theoretical peak,
    and the age of cached rows, appear if some row has them.
    """
    measured = [row for row in rows if row.status == "ok"]
    used = {name for row in measured for name in row.choice}
    choices = {"form": "variant", "chains": "chains", "unroll": "unroll", "groups": "groups"}
    choices = {name: word for name, word in choices.items() if name in used}
    tops = {row.key: top for row in measured if (top := _theoretical(run, device, row))}
    is_kept = any(row.measured_utc for row in measured)

    def line(row: Row) -> tuple[Cell, ...]:
        """A row's name, best, median, noise, share of peak and age if shown, what won, evidence, verdict."""
        rate, top = _rate(row), tops.get(row.key)
        figures = row.check.figures
        age = rates.age_when_cached(run, row)
        return (
            Cell(_row_name(row)),
            Cell(units.number(rate.best / divisor) if rate else "-"),
            Cell(units.number(rate.median / divisor) if rate else "-"),
            notes.noise(row),
            *([Cell(units.percent(rate.best / top.per_second) if rate and top else "-")] if tops else []),
            *([Cell("this run" if age is None else f"{units.age(age)} earlier")] if is_kept else []),
            *(Cell(clean(str(row.choice.get(name, "-")))) for name in choices),
            *(Cell(units.number(figures[name]) if name in figures else "-") for name in _EVIDENCE),
            Cell("yes" if _is_verified(row) else "no", style="" if _is_verified(row) else "yellow"),
        )

    further = (*(["of theoretical"] if tops else []), *(["measured"] if is_kept else []))
    return Sheet(
        caption="rates of the best and the median batch, the fastest variant, and checks",
        keys=("",),
        blocks=(
            ("best", "median", "noise", *further),
            tuple(choices.values()),
            (*_EVIDENCE.values(), "verified"),
        ),
        rows=tuple(map(line, measured)),
        notes=tuple(Note("theoretical", text) for text in dict.fromkeys(top.source for top in tops.values())),
        left=frozenset({"variant", "verified"}),
    )


def _theoretical(run: Run, device: int, row: Row) -> theory.Ceiling | None:
    if device == HOST or row.variant != PLAIN:
        return None
    return theory.ceiling(run.header.devices[device], row.dtype, max_mhz=row.max_mhz)


def _is_verified(row: Row) -> bool:
    """Whether a row is ok and its evidence holds. Launches of an empty kernel have nothing to verify."""
    is_launch = row.kind == "latency" and not is_sized(row)
    return row.status == "ok" and (row.check.verdict == "ok" or is_launch)


def _if_verified(row: Row, rate: Rate | None) -> Rate | None:
    return rate if _is_verified(row) else None


def _grid(run: Run, device: int, rows: Sequence[Row], grid: Grid) -> Sheet:
    """A table of verified rates by line and column, with the best of each line, as `grid` defines them.

    A row that is not verified is ``?``. Lines in which no row ran are omitted. So are further columns, right
    of the best, that have no text. Columns are sorted if all are numbers.
    """
    lines = by_key((grid.line(row), row) for row in rows)
    lines = {name: each for name, each in lines.items() if any(row.status not in _LACKING for row in each)}
    columns = list(dict.fromkeys(grid.column(row) for each in lines.values() for row in each))
    if all(name.isdecimal() for name in columns):
        columns.sort(key=int)

    def cells(name: str, members: Sequence[Row]) -> tuple[Cell, ...]:
        at = {grid.column(row): row for row in members}
        rated = [(rate.best, row) for row in members if (rate := _if_verified(row, grid.rate(row)))]
        best, winner = max(rated, key=lambda pair: pair[0], default=(0.0, None))
        top = _marked_cell(run, winner, units.number(best / grid.divisor)) if winner else Cell("-")
        more = (Cell(text(winner) if winner else "") for text in grid.more.values())
        return (Cell(clean(name)), *(cell(at.get(column)) for column in columns), top, *more)

    def cell(row: Row | None) -> Cell:
        rate = _if_verified(row, grid.rate(row)) if row else None
        return _marked_cell(run, row, units.number(rate.best / grid.divisor) if rate else "-")

    filled = [cells(name, members) for name, members in lines.items()]
    names = (grid.title, *columns, "best", *grid.more)
    empty = {at for at in range(len(columns) + 2, len(names)) if not any(line[at].text for line in filled)}
    shown = [at for at in range(len(names)) if at not in empty]
    return Sheet(
        heading=heading(run, device),
        keys=(grid.title,),
        blocks=(tuple(names[at] for at in shown[1:]),) if filled else (),
        rows=tuple(tuple(line[at] for at in shown) for line in filled),
    )


def _marked_cell(run: Run, row: Row | None, text: str) -> Cell:
    """A figure with its mark, ``?`` if it is not verified, or ``-`` if it was not measured.

    A failure is a word. Without a row the cell is empty.
    """
    if row is None:
        return Cell("")
    if row.status in FAILED:
        return Cell(WORDS[row.status], style=STYLES[row.status])
    if not _is_verified(row):
        return Cell(_DOUBTFUL, style="yellow") if row.status == "ok" else Cell("-", style="dim")
    return Cell(notes.marked(run, row, text))


def _remarks(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> tuple[Note, ...]:
    """Notes on rows that are not ok or not verified, on uncertainty, drivers and energy, wrong results first.

    Unless verbose, unsupported and skipped rows are omitted if others ran, and there are at most three notes.
    The last then counts the rest. If verbose, the notes of rows follow.
    """
    measured = [row for row in rows if row.status not in _LACKING]
    remarks = [
        Note(WORDS[status], f"{notes.places(alike, _row_name)}: {reason}", STYLES[status])
        for (status, reason), alike in by_key(
            ((row.status, clean_lines(row.reason) or "no reason given"), row)
            for row in (rows if verbose or not measured else measured)
            if row.status != "ok"
        ).items()
    ]
    remarks.sort(key=lambda note: note.label != WORDS["wrong"])
    doubtful = [row for row in measured if row.status == "ok" and not _is_verified(row)]
    doubts = by_key(
        ("; ".join(map(clean, row.check.reasons)) if verbose else _AGAIN, row) for row in doubtful
    )
    remarks += [
        Note(
            _DOUBTFUL,
            f"not verified, so it does not count: {notes.places(alike, _row_name)}: {reason}",
            "yellow",
        )
        for reason, alike in doubts.items()
    ]
    remarks += [
        *notes.uncertain(run, measured, _row_name),
        *notes.warnings(run, device),
        *_energy_notes(rows),
    ]
    if verbose:
        return (*remarks, *notes.row_notes(rows, _row_name))
    if len(remarks) > _MOST_REMARKS:
        rest = len(remarks) - _MOST_REMARKS + 1
        remarks = [*remarks[: _MOST_REMARKS - 1], Note("", f"{rest} more remarks: -v", "dim")]
    return tuple(remarks)


def _energy_notes(rows: Sequence[Row]) -> list[Note]:
    """A note for each reason why requested joules are missing. It names the rows unless all have it."""
    groups = by_key(
        (clean(row.energy.why), row) for row in rows if rates.asked_for_energy(row) and row.energy.why
    )
    every_row = len(groups) == 1 and not any(row.energy.joules for row in rows)
    return [
        Note("energy", why if every_row else f"{notes.places(alike, _row_name)}: {why}", "dim")
        for why, alike in groups.items()
    ]


def _row_name(row: Row) -> str:
    """``float, width 4``, ``global-read, width 4``, ``mma half float zeros``, ``working-set of 4 KiB``."""
    if is_sized(row):
        # No break: a note that speaks of several sizes parts them at the last space.
        return f"{clean(row.variant)} of {units.size(int(row.parameters['bytes']))}"
    name = row.dtype if row.variant == PLAIN else row.variant
    if row.kind == "peak" and row.variant != PLAIN:
        name = f"{row.variant} {row.dtype}"
    width, others = row.parameters.get("width"), [row.parameters.get(n) for n in ("accumulator", "operands")]
    there = [str(other) for other in others if other is not None]
    return clean(f"{name}, width {width}" if width is not None else " ".join([name, *there]))


def is_sized(row: Row) -> bool:
    """Whether a row is of a set or transfer of one size."""
    return "bytes" in row.parameters


def memory_sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """Each device's tables, with notes: bandwidth by width, caches by size, transfers by size, launches."""
    rows = by_key((row.device, row) for row in run.rows if row.kind in _MEMORY)
    groups: tuple[tuple[Callable[[Row], bool], Callable[..., Sheet]], ...] = (
        (lambda row: row.kind == "bandwidth" and not is_sized(row), _bandwidth),
        (lambda row: row.kind != "transfer" and is_sized(row), _caches),
        (lambda row: row.kind == "transfer", _transfers),
        (lambda row: row.kind == "latency" and not is_sized(row), _launches),
    )
    return [
        replace(table(run, device, chosen), notes=_remarks(run, device, chosen, verbose))
        for device in sorted(rows)
        for belongs, table in groups
        if (chosen := list(filter(belongs, rows[device])))
    ]


def _bandwidth(run: Run, device: int, rows: Sequence[Row]) -> Sheet:
    """A table of verified memory bandwidth by probe and vector width. It marks emulated local memory."""
    believed = [rate.best for row in rows if (rate := _if_verified(row, rates.byte_rate(row)))]
    divisor, letter = units.scale(max(believed, default=0.0))
    emulated = device != HOST and run.header.devices[device].local_mem_emulated

    def name(row: Row) -> str:
        return row.variant + (" (emulated)" if emulated and row.variant.startswith("local-") else "")

    return _grid(run, device, rows, Grid(f"Memory, {letter}B/s", name, _width, rates.byte_rate, divisor))


def _caches(run: Run, device: int, rows: Sequence[Row]) -> Sheet:
    """A table with a line for each set size: GB/s of reading it, and ns of a dependent load if measured.

    Latency has percentiles 10, 50, 90 and 99. A row that is not verified is ``?``.
    """
    by_size: dict[tuple[str, int], Row] = {(row.kind, int(row.parameters["bytes"])): row for row in rows}
    headings = {"bandwidth": ("GB/s",), "latency": tuple(f"ns, {name}" for name, _ in _SHARES)}
    present = [kind for kind in headings if any(key[0] == kind for key in by_size)]

    def read(row: Row | None) -> tuple[Cell, ...]:
        rate = rates.byte_rate(row) if row else None
        return (_marked_cell(run, row, units.gflops(rate.best) if rate else "-"),)

    def chased(row: Row | None) -> tuple[Cell, ...]:
        if row is None or not _is_verified(row):
            return _marked_cell(run, row, "-"), *(Cell("") for _ in _SHARES[1:])
        shares = (intervals.quantile(rates.finest_seconds(row), share) for _, share in _SHARES)
        return tuple(_marked_cell(run, row, units.number(value / 1e-9)) for value in shares)

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
    )


def _transfers(run: Run, device: int, rows: Sequence[Row]) -> Sheet:
    """A table of GB/s by size and direction, best batch; ``zero-copy`` if mapping moves nothing.

    The best of a column is marked, and a row that is not verified is ``?``.
    """
    names = list(dict.fromkeys(row.variant for row in rows))
    by_size = {(row.variant, int(row.parameters["bytes"])): row for row in rows}
    best: dict[str, float] = {}
    for row in rows:
        if rate := _if_verified(row, rates.byte_rate(row)):
            best[row.variant] = max(rate.best, best.get(row.variant, 0.0))

    def cell(name: str, size: int) -> Cell:
        row = by_size.get((name, size))
        rate = _if_verified(row, rates.byte_rate(row)) if row else None
        if row is None or rate is None:
            moves_nothing = row is not None and _is_verified(row)
            return Cell("zero-copy", style="dim") if moves_nothing else _marked_cell(run, row, "-")
        return replace(_marked_cell(run, row, units.gflops(rate.best)), best=rate.best == best[name])

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
    )


def _launches(run: Run, device: int, rows: Sequence[Row]) -> Sheet:
    """A line for each launch probe: the smallest time, percentiles, and the number of samples."""

    def line(row: Row) -> tuple[Cell, ...]:
        name = Cell(clean(row.variant))
        if row.status != "ok":
            return (name, _marked_cell(run, row, "-"), *[Cell("")] * (len(_SHARES) + 1))
        samples = rates.finest_seconds(row)
        shares = [intervals.quantile(samples, share) for _, share in _SHARES]
        times = (Cell(units.seconds(value)) for value in (min(samples), *shares))
        return (name, *times, Cell(str(len(samples))))

    return Sheet(
        heading=heading(run, device),
        caption="Latency of an empty kernel's launch, as this program sees it",
        keys=("launch",),
        blocks=(("minimum", *(name for name, _ in _SHARES)), ("samples",)),
        rows=tuple(map(line, rows)),
    )
