"""A table that breaks into several when the terminal is narrow, with its heading and what is said below."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

_NO_BREAK = "\u00a0"
_STAND_IN = "\ue000"  # of a no-break space while lines are broken: rich breaks them there, too


@dataclass(frozen=True)
class Cell:
    """One entry; the best of its column or row is bold, and starred so that it shows without colour."""

    text: str
    best: bool = False
    style: str = ""

    def rich(self) -> Text:
        """For the terminal."""
        return Text(self.plain, style="bold green" if self.best else self.style)

    @property
    def plain(self) -> str:
        """Without colour."""
        return ("*" if self.best else "") + self.text


@dataclass(frozen=True)
class Note:
    """A remark below a table: ``skip: naive at 2048: ...``."""

    label: str
    text: str
    style: str = ""


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
        """The heading, the tables that fit the width, the notes."""
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
            yield hanging(
                console, f"{note.label}: {note.text}" if note.label else note.text, width, note.style
            )

    def _tables(self, width: int) -> Iterator[RenderableType]:
        widths = [
            max(map(_longest_line, (name, *(row[place].plain for row in self.rows))))
            for place, name in enumerate(self.columns)
        ]
        widths[0] = min(widths[0], max(12, width // 2))
        keys = range(len(self.keys))
        for chunk in _chunks(self.blocks, widths, len(keys), width):
            gap = 2 if sum(widths[place] + 2 for place in (*keys, *chunk)) - 2 <= width else 1
            table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
            for place in (*keys, *chunk):
                name = self.columns[place]
                to_left = place == 0 or name in self.left
                table.add_column(
                    Text(name),
                    justify="left" if to_left else "right",
                    no_wrap=place > 0,
                    overflow="fold",
                    width=widths[0] if place == 0 else None,
                )
            for row in self.rows:
                table.add_row(*(row[place].rich() for place in (*keys, *chunk)))
            yield table


def stack(sheets: Iterable[Sheet]) -> RenderableType:
    """Sheets below each other, an empty line between."""
    return Group(*_separated(iter(sheets)))


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


def _longest_line(text: str) -> int:
    return max(map(cell_len, text.split("\n")))


def _separated(items: Iterator[RenderableType]) -> Iterator[RenderableType]:
    for place, item in enumerate(items):
        if place:
            yield Text("")
        yield item


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
    places: list[list[int]] = []
    start = keys
    for block in blocks:
        places.append(list(range(start, start + len(block))))
        start += len(block)

    def needs(columns: Sequence[int]) -> int:
        return sum(widths[place] + 1 for place in columns)

    chunks: list[list[int]] = [[]]
    for block_places in places:
        if needs(chunks[-1] + block_places) <= room:
            chunks[-1] += block_places
            continue
        parts = _split(block_places, lambda part: needs(part) <= room)
        chunks = [chunk for chunk in chunks if chunk] + parts
    return chunks


def _split(columns: list[int], fits: Callable[[list[int]], bool]) -> list[list[int]]:
    """As few parts as possible, of about the same length; a part always has a column."""
    for count in range(1, len(columns)):
        length = -(-len(columns) // count)
        parts = [columns[first : first + length] for first in range(0, len(columns), length)]
        if all(fits(part) for part in parts):
            return parts
    return [[column] for column in columns]
