"""Thresholds for each row, from a small TOML file."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from gemmbench.facts.records import Row
from gemmbench.facts.text import reason_of

DEFAULT = 0.05
_RANGE = re.compile(r"\s*(\d*)\s*(\.\.)?\s*(\d*)\s*")
_PERCENT = re.compile(r"\s*([0-9.]+)\s*%\s*")


class ThresholdError(Exception):
    """A threshold, or a file of them, that cannot be taken; the message is for the user."""


@dataclass(frozen=True)
class Rule:
    """A threshold and the rows that it is for: all that match every pattern."""

    threshold: float
    kind: str = "*"
    variant: str = "*"
    dtype: str = "*"
    label: str = "*"
    sizes: tuple[float, float] = (0.0, math.inf)  # of the cube root of m n k

    def fits(self, row: Row) -> bool:
        """Whether it is for a row."""
        texts = ((row.kind, self.kind), (row.variant, self.variant), (row.dtype, self.dtype))
        if not all(fnmatchcase(text, pattern) for text, pattern in (*texts, (row.label, self.label))):
            return False
        low, high = self.sizes
        if row.problem is None:
            return (low, high) == (0.0, math.inf)
        product = row.problem.m * row.problem.n * row.problem.k
        return low**3 <= product <= high**3


@dataclass(frozen=True)
class Thresholds:
    """The threshold of every row: the first rule that fits it, else the default."""

    default: float = DEFAULT
    rules: tuple[Rule, ...] = ()

    def of(self, row: Row) -> float:
        """As a fraction: 0.05 is 5 %."""
        return next((rule.threshold for rule in self.rules if rule.fits(row)), self.default)

    def unused(self, rows: Iterable[Row]) -> tuple[int, ...]:
        """Numbers, from 1, of the rules that are the first to fit no row: most likely misspelt."""
        rows = tuple(rows)
        first = {next((n for n, rule in enumerate(self.rules, 1) if rule.fits(row)), 0) for row in rows}
        return tuple(number for number in range(1, len(self.rules) + 1) if number not in first)


class _Entry(msgspec.Struct, forbid_unknown_fields=True):
    threshold: float | str
    kind: str = "*"
    variant: str = "*"
    dtype: str = "*"
    label: str = "*"
    size: int | str = ".."


class _File(msgspec.Struct, forbid_unknown_fields=True):
    default: float | str | None = None
    row: list[_Entry] = []


def parse(text: float | str) -> float:
    """A threshold as a fraction, from ``5 %``, ``0.05`` or the number itself.

    Raises:
        ThresholdError: it is none, not above 0, 1 and more without a percent sign (most likely a percentage
            that lacks it), or 10,000 % and more.
    """
    percent = _PERCENT.fullmatch(text) if isinstance(text, str) else None
    try:
        value = float(percent[1]) / 100 if percent else float(text)
    except ValueError:
        raise ThresholdError(f"{text!r} is not a threshold; write '5 %' or 0.05") from None
    if not 0 < value < (100 if percent else 1):
        shown = text if isinstance(text, str) else f"{text:g}"
        hint = f"; for {value:g} % write '{value:g} %'" if value >= 1 and not percent else ""
        most = "10,000 %" if percent else "100 %"
        raise ThresholdError(f"a threshold is above 0 and below {most}, not {shown}{hint}")
    return value


def load(path: Path, default: float | None = None) -> Thresholds:
    """Read a file of thresholds.

    Args:
        path: the file.
        default: goes before the file's own.

    Raises:
        ThresholdError: it cannot be read, is no TOML, or a value cannot be taken; the message names file and
            line or key.
    """
    try:
        found = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ThresholdError(f"{path}: {reason_of(error)}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ThresholdError(f"{path}: {_placed(str(error))}") from None
    own = _value(path, "default", found.default) if found.default is not None else DEFAULT
    rules = tuple(_rule(path, number, entry) for number, entry in enumerate(found.row, 1))
    return Thresholds(own if default is None else default, rules)


def _rule(path: Path, number: int, entry: _Entry) -> Rule:
    threshold = _value(path, f"row {number}: threshold", entry.threshold)
    try:
        sizes = _sizes(str(entry.size))
    except ThresholdError as error:
        raise ThresholdError(f"{path}: row {number}: size: {error}") from None
    return Rule(threshold, entry.kind, entry.variant, entry.dtype, entry.label, sizes)


def _value(path: Path, where: str, text: float | str) -> float:
    try:
        return parse(text)
    except ThresholdError as error:
        raise ThresholdError(f"{path}: {where}: {error}") from None


def _sizes(text: str) -> tuple[float, float]:
    """``64``, ``..64``, ``64..``, ``64..256``: both ends belong to it."""
    match = _RANGE.fullmatch(text)
    if not match or not (match[1] or match[2]) or (match[3] and not match[2]):
        raise ThresholdError(f"{text!r} is not a size or a range; write 64, '..64', '64..' or '64..256'")
    low = float(match[1] or 0)
    high = float(match[3] or math.inf) if match[2] else low
    if low > high:
        raise ThresholdError(f"the range {text} is empty")
    return low, high


def _placed(text: str) -> str:
    """msgspec's sentence with the place before it: ``row 2: variant: Expected `str`, got `int```."""
    sentence, found, place = text.rpartition(" - at `$")
    if not found:
        return text
    place = re.sub(r"\.row\[(\d+)\]", lambda match: f"row {int(match[1]) + 1}: ", place.rstrip("`"))
    place = place.replace(".", "").strip(": ")
    return f"{place}: {sentence}" if place else sentence
