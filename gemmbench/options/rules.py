"""How runs are compared: thresholds, by row if there is a file of them, and what may differ."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal

import msgspec

from gemmbench.model.row import Row
from gemmbench.model.units import reason_of
from gemmbench.stats.intervals import CONFIDENCE, Measure
from gemmbench.stats.rates import in_turn, measure

PEAK = "peak"  # as a reference: the best measured peak of the row's data type
LEAST_ROUNDS = 3  # before anything is settled: fewer say too little of the noise from run to run
MOST_ROUNDS = 10

Kind = Literal["device", "driver", "source", "sampling", "memory"]
_DRIVER = "measure the baseline run with this driver and as many BLAS threads (OPENBLAS_NUM_THREADS)"
DIFFERENCES: dict[Kind, tuple[str, str]] = {
    "device": ("other device", "measure the baseline run on this device"),
    "driver": ("other driver", _DRIVER),
    "source": ("other kernel source", "check --against times both versions of a kernel in turn"),
    "sampling": ("other sampling", "give both runs the same --state and --cold"),
    "memory": ("operands reached the device in another way", "give both runs the same --memory"),
}
"""What makes two rows incomparable, unless a comparison is told to go across it, and what to do about it."""


@dataclass(frozen=True)
class Limits:
    """What a ratio is held against."""

    threshold: float = 0.05  # 0.05: a row may take 5 % longer
    confidence: float = CONFIDENCE  # of the interval

    @property
    def high(self) -> float:
        """The logarithm of the ratio past which a row is slower; its negative: faster."""
        return math.log1p(self.threshold)


# --- Thresholds for each row, from a small TOML file ---

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
    sizes: tuple[float, float] = (0.0, math.inf)  # of the cube root of m n k of all problems

    def fits(self, row: Row) -> bool:
        names = ("kind", "variant", "dtype", "label")
        if not all(fnmatchcase(getattr(row, name), getattr(self, name)) for name in names):
            return False
        low, high = self.sizes
        if row.problem is None:
            return (low, high) == (0.0, math.inf)
        product = row.problem.flops / 2
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
    """Read a file of thresholds; `default` goes before the file's own.

    Raises:
        ThresholdError: it cannot be read, is no TOML, or a value cannot be taken; the message names file and
            line or key.
    """
    try:
        file = msgspec.toml.decode(path.read_bytes(), type=_File)
    except OSError as error:
        raise ThresholdError(f"{path}: {reason_of(error)}") from None
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise ThresholdError(f"{path}: {_placed(str(error))}") from None
    where = "default"
    try:
        own = parse(file.default) if file.default is not None else DEFAULT
        rules = []
        for number, entry in enumerate(file.row, 1):
            where = f"row {number}: threshold"
            threshold = parse(entry.threshold)
            where = f"row {number}: size"
            sizes = _sizes(str(entry.size))
            rules.append(Rule(threshold, entry.kind, entry.variant, entry.dtype, entry.label, sizes))
    except ThresholdError as error:
        raise ThresholdError(f"{path}: {where}: {error}") from None
    return Thresholds(own if default is None else default, tuple(rules))


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
    sentence, separator, position = text.rpartition(" - at `$")
    if not separator:
        return text
    position = re.sub(r"\.row\[(\d+)\]", lambda match: f"row {int(match[1]) + 1}: ", position.rstrip("`"))
    position = position.replace(".", "").strip(": ")
    return f"{position}: {sentence}" if position else sentence


@dataclass(frozen=True)
class Rules:
    """How runs are compared."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    confidence: float = CONFIDENCE
    scope: str | None = None  # None: the finest that was measured
    ratio: tuple[str, ...] = ()  # variants, or PEAK: each row is taken as a ratio to the first that it has
    across: frozenset[str] = frozenset()  # of DIFFERENCES
    in_turn: bool = False  # the new run's rows were measured in turn with the base's kernels
    fail_on: frozenset[str] = frozenset()  # "resources": other registers, spills, memory or launches fail
    rounds: int = 0  # how often a suspicious row is measured again
    former: frozenset[str] = frozenset()  # the variants that have a former version; empty: every kernel

    def has_former(self, row: Row) -> bool:
        """Whether there could be a former version of a row's kernel: a GEMM's own, known beforehand."""
        own = row.kind == "gemm" and bool(row.source and row.samples)
        return own and (not self.former or row.variant in self.former)

    def measured(self, row: Row) -> Measure | None:
        """What a row says by itself: its cost, or the ratio to its former self."""
        return in_turn(row, self.scope) if self.in_turn else measure(row, self.scope)

    def limits(self, row: Row) -> Limits:
        return Limits(self.thresholds.of(row), self.confidence)
