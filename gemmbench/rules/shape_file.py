"""A user's shapes: a CSV file with the columns m, n, k and perhaps name."""

from __future__ import annotations

import csv
from collections.abc import Iterator
from pathlib import Path

from gemmbench.facts.text import reason_of, spelt_out
from gemmbench.rules.workloads import Shape

REQUIRED = ("m", "n", "k")
KNOWN = (*REQUIRED, "name")
LONGEST = 2**31 - 1  # kernels count in 32-bit integers
_LONGEST_NAME = 40  # letters


class ShapeFileError(ValueError):
    """A file of shapes that cannot be used; the message names file, line and field."""


def read_shapes(path: Path) -> tuple[Shape, ...]:
    """The shapes of a file, in its order; one without a name is called after its line: ``shapes.csv:2``.

    Raises:
        ShapeFileError: it cannot be read, a column is missing or not known, a length is not a whole number
            from 1 to 2^31 - 1.
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:  # -sig: spreadsheets write a mark before it
            return tuple(_shapes(path, csv.reader(file, strict=True, skipinitialspace=True)))
    except OSError as error:
        raise ShapeFileError(f"{path}: {reason_of(error)}") from None
    except UnicodeDecodeError:
        raise ShapeFileError(f"{path}: not text in UTF-8, which a CSV file of shapes is") from None


def _shapes(path: Path, reader: Iterator[list[str]]) -> Iterator[Shape]:
    lines = _lines(path, reader)
    first = next(lines, None)
    if first is None:
        raise ShapeFileError(f"{path}: line 1: the file is empty; its first line names the columns: m,n,k")
    columns = _columns(path, *first)
    found = 0
    for number, values in lines:
        if len(values) != len(columns):
            missing = columns[len(values) :]
            what = f"{', '.join(missing)}: missing" if missing else f"{len(values)} values"
            raise ShapeFileError(f"{path}: line {number}: {what}; the header has {len(columns)} columns")
        fields = dict(zip(columns, values, strict=True))
        m, n, k = (_length(f"{path}: line {number}: {name}", fields[name]) for name in REQUIRED)
        name = " ".join(fields.get("name", "").split())
        if len(name) > _LONGEST_NAME:
            raise ShapeFileError(f"{path}: line {number}: name: more than {_LONGEST_NAME} letters")
        yield Shape(name or f"{spelt_out(path.name)}:{number}", m, n, k)
        found += 1
    if not found:
        raise ShapeFileError(f"{path}: line {first[0] + 1}: no shape follows the header")


def _lines(path: Path, reader: Iterator[list[str]]) -> Iterator[tuple[int, list[str]]]:
    """Line numbers and stripped values of the lines that are not blank."""
    number = 0
    while True:
        number += 1
        try:
            values = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ShapeFileError(f"{path}: line {number}: {error}") from None
        stripped = [value.strip() for value in values]
        if any(stripped):
            yield number, stripped


def _columns(path: Path, number: int, header: list[str]) -> list[str]:
    """The names of the columns, each once.

    Raises:
        ShapeFileError: one is missing, twice there, or not known: a length it might scale would be ignored.
    """
    columns = [name.lower() for name in header]
    missing = [name for name in REQUIRED if name not in columns]
    if missing:
        found = ",".join(header)[:_LONGEST_NAME]
        raise ShapeFileError(f"{path}: line {number}: {', '.join(missing)}: no such column in {found!r}")
    for place, name in enumerate(columns):
        if name not in KNOWN:
            raise ShapeFileError(
                f"{path}: line {number}: column {header[place]!r} is not one of {', '.join(KNOWN)}"
            )
        if name in columns[:place]:
            raise ShapeFileError(f"{path}: line {number}: {name}: there are two such columns")
    return columns


def _length(where: str, text: str) -> int:
    digits = text.removeprefix("-")
    if not (digits.isascii() and digits.isdecimal()):
        raise ShapeFileError(f"{where}: {text[:_LONGEST_NAME]!r} is not a whole number")
    if text.startswith("-") or not digits.strip("0"):
        raise ShapeFileError(f"{where}: {text[:_LONGEST_NAME]} is not 1 or more")
    if len(digits.lstrip("0")) > len(str(LONGEST)) or int(digits) > LONGEST:
        shown = text if len(text) <= _LONGEST_NAME else f"a number of {len(text)} digits"
        raise ShapeFileError(f"{where}: {shown} is above {LONGEST}, the most a kernel counts to")
    return int(digits)
