"""A kernel's opening comment, with its drawing, made to fit a terminal narrower than its source file."""

from __future__ import annotations

import textwrap
from itertools import groupby

from rich.console import Console, ConsoleOptions, RenderResult
from rich.text import Text

_GUTTER = 2  # spaces that stand between a drawing and the words beside it, in every line


class Picture:
    """Drawings stay as they are, prose is filled again, words beside a drawing move below it."""

    def __init__(self, comment: str, indent: int = 2) -> None:
        self._comment = comment
        self._indent = indent

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """As wide as the terminal allows."""
        text = textwrap.indent(fitted(self._comment, options.max_width - self._indent), " " * self._indent)
        yield Text(text, overflow="fold")


def fitted(comment: str, width: int) -> str:
    """The comment in so many columns; what cannot be parted from its drawing stays wider."""
    blocks = groupby(comment.strip("\n").splitlines(), key=lambda line: bool(line.strip()))
    return "\n\n".join(_block(list(lines), width) for filled, lines in blocks if filled)


def _block(lines: list[str], width: int) -> str:
    if max(map(len, lines)) <= width:
        return "\n".join(lines)
    if not any("  " in line.strip() for line in lines):
        return _filled(" ".join(line.strip() for line in lines), width)
    gutters = [column for column in range(_GUTTER, width + _GUTTER) if _is_gutter(lines, column)]
    if len(lines) == 1 or not gutters:
        return "\n".join(_hanging(line, width) for line in lines)
    column = gutters[-1]
    drawing = [line[:column].rstrip() for line in lines]
    words = textwrap.dedent("\n".join(line[column:].rstrip() for line in lines)).strip("\n")
    beside = [line for line in words.splitlines() if line]
    return "\n".join(line for line in drawing if line) + "\n\n" + _block(beside, width)


def _hanging(line: str, width: int) -> str:
    """A line of a list or a formula over several, the others further in than the first."""
    if len(line) <= width:
        return line
    indent = " " * (len(line) - len(line.lstrip()))
    return _filled(line.strip(), width, indent, indent + "    ")


def _filled(text: str, width: int, first: str = "", further: str = "") -> str:
    return textwrap.fill(
        text,
        width,
        initial_indent=first,
        subsequent_indent=further,
        break_long_words=False,
        break_on_hyphens=False,
    )


def _is_gutter(lines: list[str], column: int) -> bool:
    """Whether every line is blank just before a column, some have words before that, and some after."""
    blank = all(not line[column - _GUTTER : column].strip() for line in lines)
    before = any(line[:column].strip() for line in lines)
    after = any(line[column : column + 1].strip() for line in lines)
    return blank and before and after
