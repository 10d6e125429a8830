"""Text that others wrote (drivers, operating systems, saved files), made safe for one's own pages."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping

_HIDDEN = {"Cc", "Cf", "Cs"}  # control, format (such as right-to-left override), lone surrogates


def clean(text: str) -> str:
    """One line: white space collapsed, control and invisible characters gone."""
    return " ".join(_visible(text).split())


def clean_lines(text: str, most: int = 6) -> str:
    """The same, line by line, for build logs: at most `most` lines, the rest counted."""
    lines = [line for line in (clean(line) for line in text.splitlines()) if line]
    if len(lines) > most:
        lines = [*lines[: most - 1], f"(and {len(lines) - most + 1} more lines)"]
    return "\n".join(lines)


def _visible(text: str) -> str:
    return "".join(map(_shown, text))


def _shown(letter: str) -> str:
    if letter.isspace():
        return letter
    category = unicodedata.category(letter)
    return "\N{REPLACEMENT CHARACTER}" if category == "Cs" else "" if category in _HIDDEN else letter


def spelt_out(text: str) -> str:
    """A file's name as text that can be stored: bytes that are not UTF-8 as ``\\udcff``."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def listed(parameters: Mapping[str, int | float | str]) -> str:
    """Parameters for people: ``TS=16, WPT=4``."""
    return ", ".join(f"{clean(name)}={clean(str(value))}" for name, value in parameters.items())


def reason_of(error: Exception) -> str:
    """What went wrong, to follow a colon; of an `OSError` the system's words, without number and path."""
    if isinstance(error, OSError):
        return (error.strerror or str(error)).lower()
    return str(error)[:1].lower() + str(error)[1:]
