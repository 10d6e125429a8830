"""How runs are compared: thresholds, and what may differ."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from gemmbench.model.row import Row

Kind = Literal["device", "driver", "source", "sampling", "memory"]
_DRIVER = "measure the baseline with this driver and as many BLAS threads (OPENBLAS_NUM_THREADS)"
DIFFERENCES: dict[Kind, str] = {
    "device": "measure the baseline on this device",
    "driver": _DRIVER,
    "source": "check --against interleaves two versions of a kernel",
    "sampling": "give both runs the same --cold",
    "memory": "give both runs the same --memory",
}
"""Differences that make two rows not comparable unless `--across` allows them, and what to do about each."""


# --- Thresholds ---------------------------------------------------------------------------------------------

DEFAULT = 0.1
_PERCENT = re.compile(r"\s*([0-9.]+)\s*%\s*")


class ThresholdError(Exception):
    """A threshold that cannot be taken; the message is for the user."""


@dataclass(frozen=True)
class Thresholds:
    """How much longer a row may take, as a fraction: 0.1 is 10 %."""

    default: float | None = None  # None: the user gave none
    by_name: Mapping[str, float] = field(default_factory=dict)  # of single kernels and libraries

    def given(self, row: Row) -> float | None:
        """The threshold that the user gave for a row. Rows above it fail."""
        return self.by_name.get(row.variant, self.default)

    def of(self, row: Row) -> float:
        """The threshold of a row."""
        given = self.given(row)
        return DEFAULT if given is None else given


def parse(text: float | str) -> float:
    """Convert `5 %`, `0.05` or a number to a fraction.

    Raise `ThresholdError` unless it is above 0 and below 100 % (below 10,000 % with a percent sign).
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
    scope: str | None = None  # None: the finest that was measured
    across: frozenset[str] = frozenset()  # of DIFFERENCES
    interleaved: bool = False  # the new run's rows alternated with the baseline's kernels
    fail_on: frozenset[str] = frozenset()  # "resources": other registers, spills or local memory fail
    old_kernels: frozenset[str] = frozenset()  # the variants with an old version; empty: every kernel

    def has_old_kernel(self, row: Row) -> bool:
        """Whether a row's kernel can have an old version."""
        is_kernel = row.kind == "gemm" and bool(row.source and row.samples)
        return is_kernel and (not self.old_kernels or row.variant in self.old_kernels)
