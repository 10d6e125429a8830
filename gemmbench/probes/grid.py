"""A table of probes: one down the page each, its variations across, then the best of them and its race."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row, Status
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, clean_lines
from gemmbench.report import notes
from gemmbench.report.notes import STYLES, WORDS
from gemmbench.report.table import Cell, Note, Picture, Sheet, heading
from gemmbench.stats import rates as derive
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


def sheet(run: Run, device: int, rows: Sequence[Row], grid: Grid, verbose: bool) -> Sheet:
    """The best batch of every row, the best of each line with its median and what won its race.

    A line without a figure becomes a note if all its rows lack it for the same reason.
    """
    lines: dict[str, list[Row]] = {}
    for row in rows:
        lines.setdefault(grid.name(row), []).append(row)
    present = {name: members for name, members in lines.items() if not _absent(members)}
    columns = list(dict.fromkeys(grid.column(row) for members in present.values() for row in members))
    if all(name.isdecimal() for name in columns):
        columns.sort(key=int)
    cells: list[tuple[Cell, ...]] = []
    winners: list[Row | None] = []
    below: list[Note] = []
    for name, members in present.items():
        label = grid.label(members[0]) if grid.label else name
        line, winner = _line(clean(label), members, columns, grid)
        cells.append(line)
        winners.append(winner)
        below += _doubts(members, grid.where)
    below += _absences({name: members[0] for name, members in lines.items() if name not in present})
    remarks = brief if grid.by_name and not verbose else every
    used = {key for row in rows for key in row.choice}
    choices = tuple(name for name in grid.choices if name in used)
    return Sheet(
        heading=heading(run, device),
        caption=grid.caption,
        keys=(grid.key,),
        blocks=(tuple(columns), ("median", "noise", *grid.extra), (*choices, "integrity")) if cells else (),
        rows=tuple(
            (*line, *_winner(winner, choices, grid)) for line, winner in zip(cells, winners, strict=True)
        ),
        left=frozenset({"form", "pattern", "integrity"}),
        notes=(
            *below,
            *kept(run, rows, grid.where),
            *remarks(run, [with_race(row) for row in rows] if verbose else rows, grid.where),
            *notes.warnings([run.header.devices[device] if device != HOST else None]),
        ),
    )


def _absent(rows: Sequence[Row]) -> bool:
    """Whether a line has no figure, for one reason."""
    return all(row.status != "ok" for row in rows) and len({row.reason for row in rows}) == 1


def _absences(lines: Mapping[str, Row]) -> list[Note]:
    """Lines that have no figure, those of one reason together."""
    groups: dict[tuple[Status, str], list[str]] = {}
    for name, row in lines.items():
        groups.setdefault((row.status, row.reason), []).append(clean(name))
    return [
        Note(WORDS[status], f"{', '.join(names)}: {clean_lines(reason) or 'no reason given'}", STYLES[status])
        for (status, reason), names in groups.items()
    ]


def every(run: Run, rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """What is noisy, and what the rows say themselves."""
    return [*notes.noisy(run, rows, where), *bursts(rows, where), *notes.remarks(rows, where)]


def brief(run: Run, rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """Notes on many rows, in a few words: how many are noisy, and remarks by probe."""
    advice = f"{notes.budget_advice(run)}; -v names them"
    noisy, few = sum(map(derive.is_noisy, rows)), sum(map(derive.is_few, rows))
    counts = (
        (f"noisy (> {units.percent(derive.NOISY)})", noisy, ""),
        (notes.FEW, few, f"{notes.FEW_REASON}: "),
    )
    remarks = [
        Note(label, f"{count} of {len(rows)} rows; {reason}{advice}", "yellow")
        for label, count, reason in counts
        if count
    ]
    remarks += [*notes.disturbances(run, rows, where), *bursts(rows, where)]
    said: dict[str, dict[str, None]] = {}
    for row in rows:
        for note in row.notes:
            said.setdefault(clean_lines(note), {})[clean(row.variant)] = None
    return [*remarks, *(Note("note", f"{', '.join(names)}: {note}", "dim") for note, names in said.items())]


def bursts(rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """How much more a device does before power limits it."""
    gains = [
        f"{where(row)}: in a burst {units.percent(gain)} more"
        for row in rows
        if (gain := derive.burst_gain(row)) is not None and gain > derive.FAR_STATES
    ]
    return [Note("power-limited", "; ".join(gains), "dim")] if gains else []


def kept(run: Run, rows: Sequence[Row], where: notes.Where) -> list[Note]:
    """Which rows are from an earlier run, and how old they are."""
    ages: dict[str, list[Row]] = {}
    for row in rows:
        elapsed_s = derive.kept_for(run, row)
        if elapsed_s is not None:
            ages.setdefault(units.age(elapsed_s), []).append(row)
    return [
        Note(
            "kept",
            f"{notes.places(members, where)}: measured {age} earlier; --remeasure measures anew",
            "dim",
        )
        for age, members in ages.items()
    ]


def with_race(row: Row) -> Row:
    """A row whose notes tell how its race went, too."""
    return replace(row, notes=row.remarks)


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
    rates = [(row, rate.best) for row in rows if (rate := grid.rate(row)) is not None]
    sound = [(row, best) for row, best in rates if row.check.verdict == "ok"]
    winner = max(sound or rates, key=lambda pair: pair[1], default=(None, 0.0))[0]

    def cell(column: str) -> Cell:
        column_rates = [(row, best) for row, best in rates if grid.column(row) == column]
        if not column_rates:
            row = next((row for row in rows if grid.column(row) == column), None)
            return Cell("") if row is None else Cell(_word(row), style=STYLES[row.status])
        row, best = max(column_rates, key=lambda pair: pair[1])
        suspect = row.check.verdict != "ok"
        text = grid.shown(best)
        return Cell(
            f"?{text}" if suspect else text, row is winner and not suspect, "yellow" if suspect else ""
        )

    return (Cell(label), *map(cell, columns)), winner


def _word(row: Row) -> str:
    return "-" if row.status == "ok" else WORDS[row.status]


def _winner(row: Row | None, choices: Sequence[str], grid: Grid) -> tuple[Cell, ...]:
    if row is None:
        return tuple(Cell("-") for _ in range(3 + len(grid.extra) + len(choices)))
    rate = grid.rate(row)
    verdict = "ok" if row.check.verdict == "ok" else "suspect"
    return (
        Cell(grid.shown(rate.median) if rate else "-"),
        notes.noise_cell(row),
        *map(Cell, grid.more(row)),
        *(Cell(clean(str(row.choice.get(name, "-")))) for name in choices),
        Cell(verdict, style="green" if verdict == "ok" else "yellow"),
    )


# --- ``peak --describe``: every microbenchmark in a line, or one of them explained --------------------------


@dataclass(frozen=True)
class ProbeEntry:
    """The facts and pictures of a probe."""

    name: str
    family: str
    idea: str
    facts: Mapping[str, str] = field(default_factory=dict)  # what is measured, raced, counted
    pictures: Sequence[str] = ()  # opening comments of its kernels


def probes(entries: Sequence[ProbeEntry], families: Mapping[str, str]) -> RenderableType:
    """Every probe with its idea, by family.

    Args:
        entries: in the order of the tables.
        families: the idea of each.
    """
    parts: list[RenderableType] = []
    width = max((len(entry.name) for entry in entries), default=0) + 2
    for family, idea in families.items():
        if parts:
            parts.append(Text(""))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, min_width=width)
        grid.add_column(overflow="fold")
        for entry in entries:
            if entry.family == family:
                grid.add_row(Text(f"  {entry.name}", style="bold"), Text(entry.idea))
        parts += [Text(f"{family}: {idea}", style="dim"), grid]
    return Group(*parts)


def described(entries: Sequence[ProbeEntry]) -> RenderableType:
    """Some probes: idea, what is measured and raced, and the opening pictures of their kernels."""
    parts: list[RenderableType] = []
    for entry in entries:
        parts += [Text("")] * bool(parts) + [_page(entry)]
    return Group(*parts)


def _page(entry: ProbeEntry) -> RenderableType:
    card = Table.grid(padding=(0, 2, 0, 0))
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    for name, text in entry.facts.items():
        card.add_row(name, Text(text))
    head = Text(entry.name, style="bold")
    head.append(f"  {entry.family}", style="dim")
    parts: list[RenderableType] = [head, Text(entry.idea), Text(""), card]
    for picture in entry.pictures:
        parts += [Text(""), Picture(picture)]
    return Group(*parts)
