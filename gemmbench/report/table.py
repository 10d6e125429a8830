"""A table that breaks into several when the terminal is narrow, with its heading and what is said below."""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TextIO, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import ceil_div, clean, counted
from gemmbench.stats import rates
from gemmbench.stats.conditions import limited

_NO_BREAK = "\u00a0"
_STAND_IN = "\ue000"  # of a no-break space while lines are broken: rich breaks them there, too


@dataclass(frozen=True)
class Cell:
    """One entry; the best of its column or row is bold, and starred so that it shows without colour."""

    text: str
    best: bool = False
    style: str = ""

    def rich(self) -> Text:
        return Text(self.plain, style="bold green" if self.best else self.style)

    @property
    def plain(self) -> str:
        return ("*" if self.best else "") + self.text


@dataclass(frozen=True)
class Note:
    """A remark below a table: ``skip: naive at 2048: ...``."""

    label: str
    text: str
    style: str = ""

    @property
    def line(self) -> str:
        return f"{self.label}: {self.text}" if self.label else self.text


@dataclass(frozen=True)
class Sheet:
    """A table: numbers to the right, except in the first and the `left` columns.

    Where the blocks of columns do not fit side by side they go below each other, the key columns repeated.
    """

    heading: tuple[str, ...] = ()  # pieces of the first line, never broken inside if they fit
    caption: str = ""  # what the numbers are
    keys: tuple[str, ...] = ("",)  # headings of the columns that say which row this is
    blocks: tuple[tuple[str, ...], ...] = ()  # column headings that belong together
    rows: tuple[tuple[Cell, ...], ...] = ()
    notes: tuple[Note, ...] = ()
    left: frozenset[str] = field(default=frozenset())

    @property
    def columns(self) -> tuple[str, ...]:
        """Every column's heading, the key's first."""
        return (*self.keys, *(name for block in self.blocks for name in block))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if self.heading:
            yield Text("\n".join(_packed(self.heading, width)), style="bold")
        if self.caption:
            yield Text(self.caption, style="dim")
        if self.rows:
            if self.heading or self.caption:
                yield Text("")
            yield from _separated(self._tables(width))
            if self.notes:
                yield Text("")
        for note in self.notes:
            yield hanging(console, note.line, width, note.style)

    def _tables(self, width: int) -> Iterator[RenderableType]:
        texts = ((name, *(row[at].plain for row in self.rows)) for at, name in enumerate(self.columns))
        widths = [max(map(cell_len, "\n".join(column).split("\n"))) for column in texts]
        widths[0] = min(widths[0], max(12, width // 2))
        keys = range(len(self.keys))
        for chunk in _chunks(self.blocks, widths, len(keys), width):
            gap = 2 if sum(widths[column] + 2 for column in (*keys, *chunk)) - 2 <= width else 1
            table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
            for column in (*keys, *chunk):
                name = self.columns[column]
                to_left = column == 0 or name in self.left
                table.add_column(
                    Text(name),
                    justify="left" if to_left else "right",
                    no_wrap=column > 0,
                    overflow="fold",
                    width=widths[0] if column == 0 else None,
                )
            for row in self.rows:
                table.add_row(*(row[column].rich() for column in (*keys, *chunk)))
            yield table


class _Trimmed:
    """A text file whose lines do not end with blanks: tables are padded to their width."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Console(Console):
    def on_broken_pipe(self) -> None:
        """Leave it to the caller: rich would end the process with exit status 1, a wrong result's."""
        raise BrokenPipeError


def stdout() -> Console:
    """Where tables go: nothing in them is taken for markup or highlighted."""
    file = cast(TextIO, _Trimmed(sys.stdout)) if sys.stdout else None  # None: closed
    return _Console(file=file, highlight=False, markup=False, emoji=False, soft_wrap=False)


def stack(sheets: Iterable[RenderableType]) -> RenderableType:
    """Tables below each other, an empty line between."""
    return Group(*_separated(sheets))


def unbroken(text: str) -> str:
    """Words of a note that stay on one line, if they fit it."""
    return text.replace(" ", _NO_BREAK)


def hanging(console: Console, text: str, width: int, style: str = "") -> Text:
    """Text wrapped to a width, all but its first line indented by two."""
    whole = Text(text.replace(_NO_BREAK, _STAND_IN), style=style, overflow="fold")
    lines = whole.wrap(console, max(8, width - 2))
    for line in lines:
        line.rstrip()
        line.plain = line.plain.replace(_STAND_IN, " ")
    return Text("\n  ").join(lines)


def _separated(items: Iterable[RenderableType]) -> list[RenderableType]:
    return [part for item in items for part in (Text(""), item)][1:]


def _packed(pieces: Sequence[str], width: int) -> list[str]:
    """Pieces joined by bars, as many on a line as fit."""
    lines: list[str] = []
    for piece in pieces:
        if lines and cell_len(lines[-1]) + 3 + cell_len(piece) <= width:
            lines[-1] += f" | {piece}"
        else:
            lines.append(piece)
    return lines


def _chunks(blocks: Sequence[Sequence[str]], widths: Sequence[int], keys: int, width: int) -> list[list[int]]:
    """Column numbers of each table, so that each fits the width beside its key columns."""
    room = width - sum(widths[:keys]) - (keys - 1)

    def fits(columns: Sequence[int]) -> bool:
        return sum(widths[column] + 1 for column in columns) <= room

    chunks: list[list[int]] = [[]]
    start = keys
    for block in blocks:
        columns = list(range(start, start + len(block)))
        start += len(block)
        if fits(chunks[-1] + columns):
            chunks[-1] += columns
        else:
            chunks = [chunk for chunk in chunks if chunk] + _split(columns, fits)
    return chunks


def _split(columns: list[int], fits: Callable[[list[int]], bool]) -> list[list[int]]:
    """As few parts as possible, of about the same length; a part always has a column."""
    for count in range(1, len(columns)):
        length = ceil_div(len(columns), count)
        parts = [columns[first : first + length] for first in range(0, len(columns), length)]
        if all(fits(part) for part in parts):
            return parts
    return [[column] for column in columns]


# --- The first line of a table: whose figures these are -----------------------------------------------------

POWER_LIMITED = "power-limited"


def heading(run: Run, device: int, dtype: str | None = None) -> tuple[str, ...]:
    """Device, driver, units, and for one data type the peaks that fractions refer to."""
    if device == HOST:
        return (clean(run.header.host.cpu), f"host, {clean(run.header.host.blas)}")
    facts = run.header.devices[device]
    pieces = (*map(clean, facts.title.split(" | ", 1)), counted(facts.compute_units, "unit"))
    if dtype is None:
        return pieces
    peaks = (_peak(run, device, dtype, matrix) for matrix in rates.units_used(run, device, dtype))
    return (*pieces, *_state(run, device, dtype), *peaks)


def _state(run: Run, device: int, dtype: str) -> tuple[str, ...]:
    clock = limited(run, device, dtype)
    return (f"{POWER_LIMITED}: {clock}",) if clock else ()


def _peak(run: Run, device: int, dtype: str, matrix: bool) -> str:
    name = f"{dtype} peak of the matrix units" if matrix else f"{dtype} peak"
    integer = rates.is_integer(dtype)
    top = rates.peak(run, device, dtype, matrix)
    if top is None:
        return f"{name} not measured"
    return f"{name} {units.rate(top.rate, integer)} ({measured(run, top.row)})"


def measured(run: Run, row: Row) -> str:
    """When a row was measured: in ``this run``, or earlier."""
    elapsed_s = rates.kept_for(run, row)
    return "this run" if elapsed_s is None else f"measured {units.age(elapsed_s)} earlier"


# --- A registry's entries: each in a line, or one explained -------------------------------------------------

NOTHING = Cell("-", style="dim")


@dataclass(frozen=True)
class Entry:
    """What is told of a kernel or a probe."""

    name: str
    family: str
    idea: str
    needs: str = ""  # extensions, images, local memory; "" for nothing special
    facts: Sequence[tuple[str, str]] = ()  # word and text; "" goes on with the word above
    pictures: Sequence[str] = ()  # the opening comments of its kernels


def catalogue(entries: Sequence[Entry], families: Mapping[str, str]) -> list[RenderableType]:
    """Every entry in a line, in the order given, by family; `families` are the headings."""
    parts: list[RenderableType] = []
    width = max((len(entry.name) for entry in entries), default=0) + 2
    for family, head in families.items():
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, min_width=width)
        grid.add_column(overflow="fold")
        for entry in entries:
            if entry.family == family:
                idea = Text(entry.idea)
                if entry.needs:
                    idea.append(f" (needs {entry.needs})", style="dim")
                grid.add_row(Text(f"  {entry.name}", style="bold"), idea)
        parts += [*([Text("")] if parts else []), Text(head, style="dim"), grid]
    return parts


def entry_page(entry: Entry) -> RenderableType:
    """One entry: idea, facts, and its kernels' pictures."""
    card = Table.grid(padding=(0, 2, 0, 0))
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    for word, text in entry.facts:
        card.add_row(word, Text(text))
    head = Text(entry.name, style="bold")
    head.append(f"  {entry.family}", style="dim")
    return Group(head, Text(entry.idea), Text(""), *_separated([card, *map(_picture, entry.pictures)]))


def _picture(comment: str) -> Text:
    """A kernel's opening comment, which a narrower terminal folds."""
    return Text(textwrap.indent(comment.strip("\n"), "  "), overflow="fold")


def finite(value: object) -> object:
    """The same with null for what JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def markdown(sheets: Iterable[Sheet]) -> str:
    """Tables as GitHub's markdown."""
    return "\n".join(map(_sheet_markdown, sheets))


def _sheet_markdown(sheet: Sheet) -> str:
    lines = []
    if sheet.heading:
        lines += [f"**{_escaped(' | '.join(sheet.heading))}**", ""]
    if sheet.caption:
        lines += [_escaped(sheet.caption.replace("; * ", "; bold: ")), ""]
    if sheet.rows:
        marks = [
            ":--" if not column or name in sheet.left else "--:" for column, name in enumerate(sheet.columns)
        ]
        lines += [_line([_escaped(name) for name in sheet.columns]), _line(marks)]
        lines += [*(_line([_cell(cell) for cell in row]) for row in sheet.rows), ""]
    if sheet.notes:
        lines += [*(f"- {_escaped(note.line)}" for note in sheet.notes), ""]
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    return f"**{text}**" if cell.best else text


def _escaped(text: str) -> str:
    """Text that GitHub shows as it is: no table cells, emphasis, code, links or HTML of its own."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\|`*_[]~$#" else letter for letter in text)
