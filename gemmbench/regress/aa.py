"""An A/A measurement: how far the times of unchanged rows differ from run to run."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import permutations

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, counted
from gemmbench.options.rules import Rules
from gemmbench.regress.baseline import BaselineSet, cost
from gemmbench.regress.compare import ratio, title
from gemmbench.regress.results import name, where
from gemmbench.report.table import Cell, Note, Sheet

_SHARE = 0.95  # of the rows, for the conclusion


@dataclass(frozen=True)
class AARow:
    """One row of an A/A measurement."""

    row: Row  # its device is a position in the first run
    device: str  # for people
    runs: int
    min_threshold: float  # the smallest at which no run is slower than another, as a fraction


@dataclass(frozen=True)
class AAReport:
    """How far the rows of an A/A measurement differ from run to run."""

    rows: tuple[AARow, ...]

    @property
    def min_threshold(self) -> float | None:
        """The smallest threshold that suits 95 % of the rows; None without rows."""
        ordered = sorted(row.min_threshold for row in self.rows)
        return ordered[math.ceil(_SHARE * len(ordered)) - 1] if ordered else None


def report(runs: Sequence[Run], rules: Rules) -> AAReport:
    """The differences of every row that was measured at least twice, in one run or several."""
    baseline = BaselineSet(tuple(runs), rules)
    rows = []
    for key, first in baseline.rows.items():
        row = replace(first, device=key[1])
        costs = [cost(each.rows[key], rules.scope) for each in baseline.with_result(key)]
        known = [each for each in costs if each is not None]
        if len(known) > 1:
            largest = max(ratio(old, new).low for old, new in permutations(known, 2))
            rows.append(AARow(row, title(baseline.runs[0], row), len(known), max(largest - 1, 0.0)))
    return AAReport(tuple(rows))


def sheets(report: AAReport) -> list[Sheet]:
    """The smallest threshold of each row, a table for each device, and what suits most rows."""
    groups = by_key((row.row.device, row) for row in report.rows)
    typed = len({row.row.dtype for row in report.rows}) > 1

    def cells(row: AARow) -> tuple[Cell, ...]:
        return Cell(name(row.row, typed)), Cell(str(row.runs)), Cell(units.percent(row.min_threshold))

    tables = [
        Sheet(
            heading=tuple(map(clean, groups[device][0].device.split(" | ", 1))),
            caption="how much slower an unchanged run was than another, by medians and by minima",
            blocks=(("runs", "difference"),),
            rows=tuple(map(cells, groups[device])),
        )
        for device in sorted(groups, key=lambda device: (device == HOST, device))
    ]
    said = "No row was measured twice: run-to-run variation is unknown."
    if report.min_threshold is not None:
        rows = f"{units.percent(_SHARE)} of {counted(len(report.rows), 'row')}"
        said = f"{rows} differ by at most {units.percent(report.min_threshold)} from run to run."
    return [*tables, Sheet(notes=(Note("", said, "bold"),))]


def to_json(report: AAReport) -> str:
    """One object: the threshold that suits the machine, and its ``rows``."""
    rows = [
        {
            **{field: getattr(each.row, field) for field in ("kind", "variant", "dtype")},
            "device": each.device,
            "where": where(each.row),
            "runs": each.runs,
            "min_threshold": each.min_threshold,
        }
        for each in report.rows
    ]
    return json.dumps({"min_threshold": report.min_threshold, "rows": rows}, indent=1) + "\n"
