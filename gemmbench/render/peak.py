"""The table of ``peak``: types down, vector widths across, as clpeak's users know it; then the winners."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from rich.console import RenderableType

from gemmbench.facts import derive, units
from gemmbench.facts.dtypes import DTYPES
from gemmbench.facts.records import Row, Run
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean, clean_lines
from gemmbench.render import notes
from gemmbench.render.heading import heading
from gemmbench.render.notes import STYLES, WORDS
from gemmbench.render.sheet import Cell, Note, Sheet, stack

_RACE = "raced "  # how a note on the candidates of a race begins
_CHOICES = ("chains", "form", "unroll", "local")


def peak(run: Run, verbose: bool = False) -> RenderableType:
    """The peak table of each device, then its bandwidth, transfer and latency rows if there are any.

    Args:
        run: the run.
        verbose: also how every race went, form by form.
    """
    return stack([*sheets(run, verbose), *other_sheets(run)])


def sheets(run: Run, verbose: bool = False) -> list[Sheet]:
    """One table for each device with peak rows: the best batch of each type and width, and the winner."""
    rows = [row for row in run.rows if row.kind == "peak"]
    return [
        _sheet(run, device, [row for row in rows if row.device == device], verbose)
        for device in sorted({row.device for row in rows})
    ]


def other_sheets(run: Run) -> list[Sheet]:
    """Bandwidth, transfer and latency rows, a line each."""
    rows = [row for row in run.rows if row.kind not in ("gemm", "peak")]
    return [
        _others(run, device, [row for row in rows if row.device == device])
        for device in sorted({row.device for row in rows})
    ]


def _sheet(run: Run, device: int, rows: Sequence[Row], verbose: bool) -> Sheet:
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        groups.setdefault((row.dtype, row.variant), []).append(row)
    probes = {dtype: [probe for other, probe in groups if other == dtype] for dtype, _ in groups}
    names = {key: key[0] if len(probes[key[0]]) == 1 else " ".join(key) for key in groups}
    widths = sorted({_width(row) for row in rows})
    lines, below = [], []
    for key, mine in groups.items():
        name = clean(names[key])
        reasons = {row.reason for row in mine}
        if all(row.status != "ok" for row in mine) and len(reasons) == 1:
            word, why = WORDS[mine[0].status], clean_lines(reasons.pop()) or "no reason given"
            below.append(Note(word, f"{name}: {why}", STYLES[mine[0].status]))
            continue
        lines.append(_line(name if DTYPES[key[0]].is_float else f"{name}, GIOPS", mine, widths))
        for row in mine:
            place = f"{name}, width {_width(row)}"
            if row.status != "ok":
                why = clean_lines(row.reason) or "no reason given"
                below.append(Note(WORDS[row.status], f"{place}: {why}", STYLES[row.status]))
            elif row.check.verdict != "ok":
                why = "; ".join(map(clean, row.check.reasons)) or "its integrity was not checked"
                below.append(Note("suspect", f"{place}: {why}", "yellow"))

    def where(row: Row) -> str:
        return f"{row.dtype}, width {_width(row)}"

    used = {key for row in rows for key in row.choice}
    choices = tuple(name for name in _CHOICES if name in used)
    return Sheet(
        heading=heading(run, device),
        caption="GFLOPS of the best batch by vector width; * the best, whose median follows",
        keys=("type",),
        blocks=(tuple(map(str, widths)), ("median", "noise"), (*choices, "integrity")),
        rows=tuple((*line, *_winner(winner, choices)) for line, winner in lines),
        left=frozenset({"form", "integrity"}),
        notes=(
            *below,
            *notes.noisy(run, rows, where),
            *notes.remarks(rows if verbose else map(_without_races, rows), where),
            *notes.warnings([run.header.devices[device] if device != HOST else None]),
        ),
    )


def _without_races(row: Row) -> Row:
    return replace(row, notes=tuple(note for note in row.notes if not note.startswith(_RACE)))


def _width(row: Row) -> int:
    width = row.parameters.get("width", 1)
    return width if isinstance(width, int) else 1


def _line(name: str, rows: Sequence[Row], widths: Iterable[int]) -> tuple[tuple[Cell, ...], Row | None]:
    """A type's cells, and the row that won: a suspect figure never does while there is another."""
    rates = [(row, found.best) for row in rows if (found := derive.rate(row, "kernel")) is not None]
    sound = [(row, best) for row, best in rates if row.check.verdict == "ok"]
    winner = max(sound or rates, key=lambda pair: pair[1], default=(None, 0.0))[0]

    def cell(width: int) -> Cell:
        mine = [(row, best) for row, best in rates if _width(row) == width]
        if not mine:
            row = next((row for row in rows if _width(row) == width), None)
            return Cell("") if row is None else Cell(_word(row), style=STYLES[row.status])
        row, best = max(mine, key=lambda pair: pair[1])
        suspect = row.check.verdict != "ok"
        text = units.gflops(best)
        return Cell(
            f"?{text}" if suspect else text, row is winner and not suspect, "yellow" if suspect else ""
        )

    return (Cell(name), *map(cell, widths)), winner


def _word(row: Row) -> str:
    return "-" if row.status == "ok" else WORDS[row.status]


def _winner(row: Row | None, choices: Sequence[str]) -> tuple[Cell, ...]:
    if row is None:
        return tuple(Cell("-") for _ in range(3 + len(choices)))
    found, spread = derive.rate(row, "kernel"), derive.noise(row)
    verdict = "ok" if row.check.verdict == "ok" else "suspect"
    return (
        Cell(units.gflops(found.median) if found else "-"),
        Cell(
            units.percent(spread) if spread is not None else "-",
            style="yellow" if derive.is_noisy(row) else "",
        ),
        *(Cell(clean(str(row.choice.get(name, "-")))) for name in choices),
        Cell(verdict, style="green" if verdict == "ok" else "yellow"),
    )


def _others(run: Run, device: int, rows: Sequence[Row]) -> Sheet:
    def line(row: Row) -> tuple[Cell, ...]:
        known = derive.derived(run, row)
        gbps, latency, spread = known["gbps"], known["latency_s"], derive.noise(row)
        figure = WORDS[row.status]
        if isinstance(gbps, float):
            figure = f"{units.number(gbps)} GB/s"
        elif isinstance(latency, float):
            figure = units.seconds(latency)
        width = row.parameters.get("width")
        return (
            Cell(clean(f"{row.kind} {row.variant} {row.dtype}{width if width not in (None, 1) else ''}")),
            Cell(figure, style=STYLES[row.status]),
            Cell(units.percent(spread) if spread is not None else "-"),
        )

    def where(row: Row) -> str:
        return f"{row.kind} {row.variant} {row.dtype}"

    return Sheet(
        heading=heading(run, device),
        keys=("probe",),
        blocks=(("figure", "noise"),),
        rows=tuple(map(line, rows)),
        notes=(*notes.troubles(rows, where), *notes.noisy(run, rows, where), *notes.remarks(rows, where)),
    )
