"""How runs are compared: thresholds, and what may differ."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gemmbench.model.row import Row
from gemmbench.stats.intervals import CONFIDENCE, Measure
from gemmbench.stats.rates import in_turn, measure

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


# --- Thresholds for each row --------------------------------------------------------------------------------

DEFAULT = 0.05
_PERCENT = re.compile(r"\s*([0-9.]+)\s*%\s*")


class ThresholdError(Exception):
    """A threshold that cannot be taken; the message is for the user."""


@dataclass(frozen=True)
class Thresholds:
    """The threshold of every row, as a fraction: 0.05 is 5 %."""

    default: float = DEFAULT
    by_name: Mapping[str, float] = field(default_factory=dict)  # of single kernels and libraries

    def of(self, row: Row) -> float:
        return self.by_name.get(row.variant, self.default)


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


@dataclass(frozen=True)
class Rules:
    """How runs are compared."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    confidence: float = CONFIDENCE
    scope: str | None = None  # None: the finest that was measured
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
