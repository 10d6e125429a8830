"""The tables of ``peak``: arithmetic, tensor cores, memory, transfers and latencies."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from types import MappingProxyType

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES
from gemmbench.model.row import FAILED, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines
from gemmbench.report import notes
from gemmbench.report.figures import figure_columns
from gemmbench.report.notes import STYLES, WORDS
from gemmbench.report.table import Cell, Columns, Note, Sheet, drop_empty, heading, table
from gemmbench.stats import ceilings as theory
from gemmbench.stats import intervals, rates
from gemmbench.stats.rates import Rate

FLOPS = "flops"  # the probe whose rows are named by the data type alone
_MOST_REMARKS = 3  # below a table, unless -v was given
_AGAIN = "close other programs and run again; -v has the reasons"
_LACKING = ("unsupported", "skipped")
_DOUBTFUL = "?"  # in place of a rate that failed a check
_MEMORY = ("bandwidth", "transfer", "latency")
_EVIDENCE = {"doubling": "doubling", "event_over_wall": "event/wall", "unrolling": "unrolling"}
_SHARES = {"p10": 0.1, "median": 0.5, "p90": 0.9, "p99": 0.99}


def peak_sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """Tables of each device: arithmetic, units for short types, and with `verbose` a line for every row."""
    rows = by_key((row.device, row) for row in run.rows if row.kind == "peak")
    return [sheet for device in sorted(rows) for sheet in _peak_sheets(run, device, rows[device], verbose)]


def _peak_sheets(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Iterator[Sheet]:
    """The tables of arithmetic: rates by type and width, and matrix units."""
    believed = [rate.best for row in rows if (rate := _if_verified(row, _rate(row)))]
    divisor, letter = units.scale(max(believed, default=0.0))
    floats = [row for row in rows if (row.variant, row.dtype) == (FLOPS, "float")]

    def line(row: Row) -> str:
        into = row.parameters.get("accumulator")
        name = row.dtype if row.variant == FLOPS else f"{row.variant} {row.dtype}"
        return f"{name}{f' > {into}' if into else ''}{'' if _is_float(row) else f' ({letter}IOPS)'}"

    def emulated(row: Row) -> str:
        """``emulated`` if a CPU is slower with a short type than with float: it converts at each step."""
        top = _rate(row)
        best = max((rate.best for each in floats if (rate := _if_verified(each, _rate(each)))), default=0.0)
        is_short = (
            row.variant == FLOPS and _is_float(row) and DTYPES[row.dtype].itemsize < DTYPES["float"].itemsize
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
    more: Columns[Row] = {"GFLOP/J": joules, "": emulated}
    made = [
        _grid(run, device, members, f"{name}, {letter}FLOPS", line, column, _rate, divisor, more)
        for (name, column), members in families.items()
        if members
    ]
    made = [made[0], *(replace(sheet, heading=()) for sheet in made[1:])]
    yield from made[:-1]
    yield replace(made[-1], notes=(*_summary(run, rows, verbose), *_remarks(run, device, rows, verbose)))
    if verbose:
        yield _details_sheet(run, device, rows, divisor)


def _rate(row: Row) -> Rate | None:
    return rates.rate(row, "kernel")


def _is_float(row: Row) -> bool:
    return DTYPES[row.dtype].is_float


def _width(row: Row) -> str:
    return str(row.parameters.get("width", 1))


def _operands(row: Row) -> str:
    return str(row.parameters.get("operands", "-"))


def _summary(run: Run, rows: Sequence[Row], verbose: bool) -> list[Note]:
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


def _details_sheet(run: Run, device: int, rows: Sequence[Row], divisor: float) -> Sheet:
    """Every arithmetic row with its variant, best and median rate, and evidence."""
    measured = [row for row in rows if row.status == "ok"]
    used = {name for row in measured for name in row.choice}
    choices = {"form": "variant", "chains": "chains", "unroll": "unroll", "groups": "groups"}
    tops = {row.key: top for row in measured if (top := _theoretical(run, device, row))}

    def rate(row: Row, which: str) -> str:
        reached = _rate(row)
        return units.number(getattr(reached, which) / divisor) if reached else "-"

    def of_theoretical(row: Row) -> str:
        reached, top = _rate(row), tops.get(row.key)
        return units.percent(reached.best / top.per_second) if reached and top else "-"

    def age(row: Row) -> str:
        age = rates.age_when_cached(run, row)
        return "this run" if age is None else f"{units.age(age)} earlier"

    def choice(row: Row, name: str) -> str:
        return clean(str(row.choice.get(name, "-")))

    def evidence(row: Row, name: str) -> str:
        return units.number(row.check.figures[name]) if name in row.check.figures else "-"

    return table(
        measured,
        {"": _row_name},
        {
            "best": partial(rate, which="best"),
            "median": partial(rate, which="median"),
            **figure_columns("noise"),
            **({"of theoretical": of_theoretical} if tops else {}),
            **({"measured": age} if any(row.measured_utc for row in measured) else {}),
        },
        {word: partial(choice, name=name) for name, word in choices.items() if name in used},
        {
            **{word: partial(evidence, name=name) for name, word in _EVIDENCE.items()},
            "verified": lambda row: "yes" if _is_verified(row) else Cell("no", style="yellow"),
        },
        caption="rates of the best and the median batch, the fastest variant, and checks",
        notes=[Note("theoretical", text) for text in dict.fromkeys(top.source for top in tops.values())],
        left=["variant", "verified"],
    )


def _theoretical(run: Run, device: int, row: Row) -> theory.Ceiling | None:
    if device == HOST or row.variant != FLOPS:
        return None
    return theory.ceiling(run.header.devices[device], row.dtype, max_mhz=row.max_mhz)


def _is_verified(row: Row) -> bool:
    """Whether a row is ok and its evidence holds. A launch has nothing to verify."""
    is_launch = row.kind == "latency" and not is_sized(row)
    return row.status == "ok" and (row.check.verdict == "ok" or is_launch)


def _if_verified(row: Row, rate: Rate | None) -> Rate | None:
    return rate if _is_verified(row) else None


def _grid(
    run: Run, device: int, rows: Sequence[Row], title: str, line: Callable[[Row], str],
    column: Callable[[Row], str], rate: Callable[[Row], Rate | None], divisor: float,
    more: Columns[Row] = MappingProxyType({}),
) -> Sheet:  # fmt: skip
    """A table of verified rates by line and column, and `more` columns of the best of each line."""
    lines = by_key((line(row), row) for row in rows)
    lines = {name: each for name, each in lines.items() if any(row.status not in _LACKING for row in each)}
    at = {(name, column(row)): row for name, each in lines.items() for row in each}
    names = list(dict.fromkeys(name for _, name in at))
    if all(name.isdecimal() for name in names):
        names.sort(key=int)

    def verified(row: Row | None) -> float:
        reached = _if_verified(row, rate(row)) if row else None
        return reached.best if reached else 0.0

    def cell(row: Row | None) -> Cell:
        return _marked_cell(run, row, units.number(verified(row) / divisor) if verified(row) else "-")

    winners = {name: top for name, each in lines.items() if verified(top := max(each, key=verified))}
    columns: Columns[str] = {
        **{name: partial(lambda line, column: cell(at.get((line, column))), column=name) for name in names},
        "best": lambda line: cell(winners[line]) if line in winners else "-",
    }
    further: Columns[str] = {
        name: partial(lambda line, text: text(winners[line]) if line in winners else "", text=text)
        for name, text in more.items()
    }
    columns = {**columns, **drop_empty([*lines], further)}
    return table(lines, {title: clean}, columns, heading=heading(run, device))


def _marked_cell(run: Run, row: Row | None, text: str) -> Cell:
    """A figure with its mark, ``?`` if it is not verified, ``-`` if not measured, or a failure."""
    if row is None:
        return Cell("")
    if row.status in FAILED:
        return Cell(WORDS[row.status], style=STYLES[row.status])
    if not _is_verified(row):
        return Cell(_DOUBTFUL, style="yellow") if row.status == "ok" else Cell("-", style="dim")
    return Cell(notes.mark_uncertain(run, row, text))


def _remarks(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> tuple[Note, ...]:
    """Why rows have no rate, and which are in doubt."""
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
    """Why rows that asked for energy have none, a note for each reason."""
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
    name = row.dtype if row.variant == FLOPS else row.variant
    if row.kind == "peak" and row.variant != FLOPS:
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
        (lambda row: row.kind == "bandwidth" and not is_sized(row), _bandwidth_sheet),
        (lambda row: row.kind != "transfer" and is_sized(row), _caches_sheet),
        (lambda row: row.kind == "transfer", _transfers_sheet),
        (lambda row: row.kind == "latency" and not is_sized(row), _launches_sheet),
    )
    return [
        replace(sheet(run, device, chosen), notes=_remarks(run, device, chosen, verbose))
        for device in sorted(rows)
        for belongs, sheet in groups
        if (chosen := list(filter(belongs, rows[device])))
    ]


def _bandwidth_sheet(run: Run, device: int, rows: Sequence[Row]) -> Sheet:
    believed = [rate.best for row in rows if (rate := _if_verified(row, rates.byte_rate(row)))]
    divisor, letter = units.scale(max(believed, default=0.0))
    emulated = device != HOST and run.header.devices[device].local_mem_emulated

    def name(row: Row) -> str:
        return row.variant + (" (emulated)" if emulated and row.variant.startswith("local-") else "")

    return _grid(run, device, rows, f"Memory, {letter}B/s", name, _width, rates.byte_rate, divisor)


def _caches_sheet(run: Run, device: int, rows: Sequence[Row]) -> Sheet:
    """Bandwidth and latency by working set."""
    by_size: dict[tuple[str, int], Row] = {(row.kind, int(row.parameters["bytes"])): row for row in rows}

    def read(size: int) -> Cell:
        row = by_size.get(("bandwidth", size))
        rate = rates.byte_rate(row) if row else None
        return _marked_cell(run, row, units.gflops(rate.best) if rate else "-")

    def chased(size: int, name: str) -> Cell:
        row = by_size.get(("latency", size))
        if row is None or not _is_verified(row):
            return _marked_cell(run, row, "-") if name == next(iter(_SHARES)) else Cell("")
        value = intervals.quantile(rates.finest_seconds(row), _SHARES[name])
        return _marked_cell(run, row, units.number(value / 1e-9))

    kinds = {kind for kind, _ in by_size}
    return table(
        sorted({size for _, size in by_size}),
        {"set": units.size},
        {"GB/s": read} if "bandwidth" in kinds else {},
        {f"ns, {name}": partial(chased, name=name) for name in _SHARES} if "latency" in kinds else {},
        heading=heading(run, device),
        caption="working-set: GB/s of all units reading a set of this size, best batch; "
        "pointer-chase: ns for each load that waits for the one before it",
    )


def _transfers_sheet(run: Run, device: int, rows: Sequence[Row]) -> Sheet:
    by_size = {(row.variant, int(row.parameters["bytes"])): row for row in rows}
    rated = ((row.variant, rate.best) for row in rows if (rate := _if_verified(row, rates.byte_rate(row))))
    best = {name: max(each) for name, each in by_key(rated).items()}

    def cell(size: int, name: str) -> Cell:
        row = by_size.get((name, size))
        rate = _if_verified(row, rates.byte_rate(row)) if row else None
        if row is None or rate is None:
            moves_nothing = row is not None and _is_verified(row)
            return Cell("zero-copy", style="dim") if moves_nothing else _marked_cell(run, row, "-")
        return replace(_marked_cell(run, row, units.gflops(rate.best)), best=rate.best == best[name])

    names = dict.fromkeys(row.variant for row in rows)
    return table(
        sorted({size for _, size in by_size}),
        {"size": units.size},
        *(
            {name: partial(cell, name=name) for name in names if name.startswith(direction)}
            for direction in ("upload", "download")
        ),
        heading=heading(run, device),
        caption="GB/s between host and device by size, best batch; * the best of its column",
    )


def _launches_sheet(run: Run, device: int, rows: Sequence[Row]) -> Sheet:
    def time(row: Row, share: float) -> str:
        return (
            units.seconds(intervals.quantile(rates.finest_seconds(row), share)) if row.status == "ok" else ""
        )

    def minimum(row: Row) -> Cell | str:
        return time(row, 0.0) or _marked_cell(run, row, "-")

    return table(
        rows,
        {"launch": lambda row: clean(row.variant)},
        {"minimum": minimum, **{name: partial(time, share=share) for name, share in _SHARES.items()}},
        {"samples": lambda row: str(len(rates.finest_seconds(row)) or "")},
        heading=heading(run, device),
        caption="Latency of an empty kernel's launch, as this program sees it",
    )
