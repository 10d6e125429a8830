"""Tables with headings and notes. A table that is too wide for the terminal is split into several."""

from __future__ import annotations

import math
import re
import sys
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from typing import Any, TextIO, TypeVar, cast

from rich.cells import cell_len
from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.table import Table
from rich.text import Text

from gemmbench.model import units
from gemmbench.model.device import HOST, driver_name
from gemmbench.model.run_file import Run, device_name
from gemmbench.model.units import clean, count_noun
from gemmbench.stats import rates

_Line = TypeVar("_Line")


@dataclass(frozen=True)
class Cell:
    """One entry of a table. The best of a row or column is bold and has a star."""

    text: str
    best: bool = False
    style: str = ""

    def rich(self) -> Text:
        return Text(self.plain, style="bold green" if self.best else self.style)

    @property
    def plain(self) -> str:
        return ("*" if self.best else "") + self.text


NOTHING = Cell("-", style="dim")
Shown = Cell | str | None  # a cell, a plain text, or None for ``-``
Columns = Mapping[str, Callable[[_Line], Shown]]  # functions of a line by heading


@dataclass(frozen=True)
class Note:
    """A remark below a table: ``wrong: naive at 2048: ...``."""

    label: str
    text: str
    style: str = ""
    is_whole: bool = False  # never wrapped, so that it can be copied

    @property
    def line(self) -> str:
        return f"{self.label}: {self.text}" if self.label else self.text


@dataclass(frozen=True)
class Sheet:
    """A table with numbers aligned right, except in the first and the `left` columns."""

    heading: tuple[str, ...] = ()  # parts of the first line, joined by commas
    caption: str = ""  # what the numbers are
    keys: tuple[str, ...] = ("",)  # headings of the columns that say which row this is
    blocks: tuple[tuple[str, ...], ...] = ()  # column headings that belong together
    rows: tuple[tuple[Cell, ...], ...] = ()
    notes: tuple[Note, ...] = ()
    left: frozenset[str] = frozenset()

    @property
    def columns(self) -> tuple[str, ...]:
        return (*self.keys, *(name for block in self.blocks for name in block))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        width = options.max_width
        if self.heading:
            yield hanging(console, ", ".join(self.heading), width, "bold")
        if self.caption:
            yield Text(self.caption, style="dim")
        if self.rows:
            if self.heading or self.caption:
                yield Text("")
            yield from _separated(self._tables(width))
            if self.notes:
                yield Text("")
        for note in self.notes:
            room = len(note.line) + 2 if note.is_whole else width
            yield hanging(console, note.line, max(width, room), note.style)

    def _tables(self, width: int) -> Iterator[RenderableType]:
        """Yield tables that fit the width, further ones with as few key columns as tell rows apart."""
        texts = ((name, *(row[at].plain for row in self.rows)) for at, name in enumerate(self.columns))
        widths = [max(map(cell_len, "\n".join(column).split("\n"))) for column in texts]
        widths[0] = min(widths[0], max(12, width // 2))
        counts = range(1, len(self.keys) + 1)
        starts = {c: {tuple(cell.text for cell in row[:c]) for row in self.rows} for c in counts}
        count = next((c for c in counts if len(starts[c]) == len(self.rows)), len(self.keys))
        parts = _split_columns(widths, list(map(len, self.blocks)), (len(self.keys), count), width)
        for number, block in enumerate(parts):
            keys = range(count if number else len(self.keys))
            gap = 2 if sum(widths[column] + 2 for column in (*keys, *block)) - 2 <= width else 1
            table = Table(box=None, padding=(0, gap, 0, 0), pad_edge=False, header_style="dim")
            for column in (*keys, *block):
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
                table.add_row(*(row[column].rich() for column in (*keys, *block)))
            yield table


def table(
    lines: Iterable[_Line], keys: Columns[_Line], *blocks: Columns[_Line], heading: Sequence[str] = (),
    caption: str = "", notes: Iterable[Note] = (), left: Iterable[str] = (),
) -> Sheet:  # fmt: skip
    """A table with a row for each line. `keys` identify the line. Blocks without columns are omitted."""
    blocks = tuple(filter(None, blocks))
    functions = [function for columns in (keys, *blocks) for function in columns.values()]
    rows = tuple(tuple(_cell(function(line)) for function in functions) for line in lines)
    names = tuple(map(tuple, blocks))
    return Sheet(tuple(heading), caption, tuple(keys), names, rows, tuple(notes), frozenset(left))


def table_of(lines: Sequence[Mapping[str, Cell]], caption: str = "", left: Iterable[str] = ()) -> Sheet:
    """A table of lines that have their cells by heading. The first column identifies them."""
    first, *others = lines[0]
    rows = tuple(tuple(line.values()) for line in lines)
    return Sheet((), caption, (first,), (tuple(others),), rows, left=frozenset(left))


def format_known(value: float | None, text: Callable[[float], str]) -> str | None:
    """The text of a value, or None if it is unknown."""
    return None if value is None else text(value)


def drop_empty(lines: Sequence[_Line], columns: Columns[_Line]) -> Columns[_Line]:
    """The columns that are not empty in all of these lines."""
    empty = None, "", NOTHING
    return {name: cell for name, cell in columns.items() if any(cell(line) not in empty for line in lines)}


def _cell(shown: Shown) -> Cell:
    return Cell(shown) if isinstance(shown, str) else shown or NOTHING


class _Trimmed:
    """A text file that removes blanks from the ends of lines, because rich pads tables."""

    def __init__(self, file: TextIO) -> None:
        self._file = file

    def write(self, text: str) -> int:
        return self._file.write(re.sub(r" +(?=\n)", "", text))

    def __getattr__(self, name: str) -> Any:
        return getattr(self._file, name)


class _Console(Console):
    def print(self, *objects: Any, **options: Any) -> None:
        """Print without cutting lines that are wider than the terminal."""
        super().print(*objects, **{"crop": False, **options})

    def on_broken_pipe(self) -> None:
        """Let the caller handle it. Rich would end the process with status 1."""
        raise BrokenPipeError


def stdout(plain: bool = False) -> Console:
    """Return a console that prints to stdout without interpreting markup. Files and pipes have no colours."""
    file = cast(TextIO, _Trimmed(sys.stdout)) if sys.stdout else None  # None: closed
    terminal = not plain and sys.stdout is not None and sys.stdout.isatty()
    return _Console(file=file, force_terminal=terminal, highlight=False, markup=False, emoji=False)


def stack(sheets: Iterable[RenderableType]) -> RenderableType:
    """Tables below each other, separated by empty lines."""
    return Group(*_separated(sheets))


def hanging(console: Console, text: str, width: int, style: str = "") -> Text:
    """Wrap text at spaces; longer words stay whole, and further lines have an indent."""
    lines = Text(text, style=style, overflow="ignore").wrap(console, max(8, width - 2))
    for line in lines:
        line.rstrip()
    return Text("\n  ", overflow="ignore", no_wrap=True).join(lines)


def _separated(items: Iterable[RenderableType]) -> list[RenderableType]:
    return [part for item in items for part in (Text(""), item)][1:]


def _split_columns(
    widths: Sequence[int], blocks: Sequence[int], keys: tuple[int, int], width: int
) -> list[list[int]]:
    """Divide columns among tables that fit a width; `keys` are the key columns of first and further ones."""
    tables: list[list[int]] = [[]]
    used, start = (sum(widths[:count]) + count - 1 for count in keys)
    column = keys[0]
    for length in blocks:
        whole = sum(widths[column : column + length]) + length
        together = used + whole > width and start + whole <= width
        for at in range(column, column + length):
            if tables[-1] and (used + widths[at] + 1 > width or (together and at == column)):
                tables.append([])
                used = start
            tables[-1].append(at)
            used += widths[at] + 1
        column += length
    return tables


_VERSION = re.compile(r"(\d+\.\d+)[-+.\w]*")  # of a driver; a heading shows its first two numbers


def heading(run: Run, device: int, dtype: str | None = None) -> tuple[str, ...]:
    """Device, driver and compute units, or the host's processor and BLAS; with a type also its peaks."""
    if device == HOST:
        return (run.header.host.label, "host", clean(run.header.host.blas))
    facts = run.header.devices[device]
    driver = driver_name(facts).removeprefix(f"{facts.label.split()[0]} ")
    driver = _VERSION.sub(r"\1", driver)
    pieces = (device_name(run, device), driver, count_noun(facts.compute_units, "compute unit"))
    if dtype is None:
        return pieces
    unit = "matrix unit" if facts.type == "cpu" else "tensor core"
    peaks = (
        f"{dtype} {f'{unit} peak' if matrix else 'peak'} {'~' * rates.is_uncertain(top.run, top.row)}"
        f"{units.rate_text(top.rate, rates.is_integer(dtype))}"
        for matrix in rates.units_used(run, device, dtype)
        if (top := rates.peak(run, device, dtype, matrix))
    )
    return (*pieces, *peaks)


@dataclass(frozen=True)
class Entry:
    """The description of a kernel or a probe."""

    name: str
    family: str
    idea: str
    facts: Sequence[tuple[str, str]] = ()  # label and text; with label "" the text continues the one above
    pictures: Sequence[str] = ()  # the opening comments of its kernels


def catalogue(entries: Sequence[Entry], families: Mapping[str, str]) -> list[RenderableType]:
    """List the entries by family, one line each. `families` maps each family to its heading, in order."""
    parts: list[RenderableType] = []
    width = max((len(entry.name) for entry in entries), default=0) + 2
    for family, head in families.items():
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, min_width=width)
        grid.add_column(overflow="fold")
        for entry in entries:
            if entry.family == family:
                grid.add_row(Text(f"  {entry.name}", style="bold"), Text(entry.idea))
        parts += [*([Text("")] if parts else []), Text(head, style="dim"), grid]
    return parts


def entry_page(entry: Entry) -> RenderableType:
    """Describe one entry: its idea, a table of facts, and the opening comments of its kernels."""
    card = Table.grid(padding=(0, 2, 0, 0))
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    for word, text in entry.facts:
        card.add_row(word, Text(text))
    pictures = (Text(textwrap.indent(each, "  "), no_wrap=True, overflow="ignore") for each in entry.pictures)
    head = Text(entry.name, style="bold")
    head.append(f"  {entry.family}", style="dim")
    return Group(head, Text(entry.idea), Text(""), *_separated([card, *pictures]))


def finite(value: object) -> object:
    """A copy of a value for JSON at any depth: None for NaN and infinity, lists for tuples."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def html(sheets: Iterable[Sheet]) -> str:
    """Tables as HTML without styles, for notebooks."""
    return "\n".join(map(_sheet_html, sheets))


def _sheet_html(sheet: Sheet) -> str:
    def cell(name: str, cell: Cell, tag: str = "td") -> str:
        side = "left" if name in (sheet.columns[0], *sheet.left) else "right"
        text = escape(cell.plain)
        return f'<{tag} style="text-align:{side}">{f"<b>{text}</b>" if cell.best else text}</{tag}>'

    lines = [f"<p><b>{escape(', '.join(sheet.heading))}</b></p>"] if sheet.heading else []
    lines += [f"<p>{escape(sheet.caption)}</p>"] if sheet.caption else []
    if sheet.rows:
        lines += ["<table>", f"<tr>{''.join(cell(each, Cell(each), 'th') for each in sheet.columns)}</tr>"]
        lines += [f"<tr>{''.join(map(cell, sheet.columns, row))}</tr>" for row in sheet.rows]
        lines += ["</table>"]
    if sheet.notes:
        lines += ["<ul>", *(f"<li>{escape(note.line)}</li>" for note in sheet.notes), "</ul>"]
    return "\n".join(lines)


def markdown(sheets: Iterable[Sheet]) -> str:
    """Tables in GitHub's markdown."""
    return "\n".join(map(_sheet_markdown, sheets))


def _sheet_markdown(sheet: Sheet) -> str:
    lines = []
    if sheet.heading:
        lines += [f"**{_escaped(', '.join(sheet.heading))}**", ""]
    if sheet.caption:
        lines += [_escaped(sheet.caption.replace("; * ", "; bold: ")), ""]
    if sheet.rows:
        left = (sheet.columns[0], *sheet.left)
        table = [map(_escaped, sheet.columns), (":--" if name in left else "--:" for name in sheet.columns)]
        table += [
            (f"**{_escaped(cell.text)}**" if cell.best else _escaped(cell.text) for cell in row)
            for row in sheet.rows
        ]
        lines += [*(f"| {' | '.join(cells)} |" for cells in table), ""]
    if sheet.notes:
        lines += [*(f"- {_escaped(note.line)}" for note in sheet.notes), ""]
    return "\n".join(lines)


def _escaped(text: str) -> str:
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\|`*_[]~$#" else letter for letter in text)
