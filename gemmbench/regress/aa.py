"""An A/A measurement: the same cases several times on one machine, and the threshold that its noise allows.

A machine carries a threshold if a row that is as fast as before is not called slower, and one that is slower
by twice the threshold is, 95 times in 100. Between the two lie the noise of both sides and the interval's
confidence.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row, RowKey
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key
from gemmbench.options.rules import MOST_ROUNDS, Rules
from gemmbench.regress import verdict as floors
from gemmbench.regress.baseline import Basis
from gemmbench.regress.compare import row_sheet, title, where
from gemmbench.regress.verdict import Noise, conclude
from gemmbench.report.table import Cell, Note, Sheet, finite

SHARE = 0.95  # of the rows that a machine's threshold is to serve
_FINEST, _COARSEST = 1e-4, 0.9


@dataclass(frozen=True)
class Tolerance:
    """One row of an A/A measurement, and what its noise allows."""

    key: RowKey
    row: Row
    device: str  # for people
    runs: int
    deviation: float  # from run to run
    compare: float | None  # the threshold that one new run carries, as a fraction; None: none below 90 %
    check: float | None  # and as many as check measures of a suspicious row


@dataclass(frozen=True)
class Alarms:
    """Each repetition held against the others: every `slower` is a false alarm."""

    verdicts: int
    slower: int
    inconclusive: int


@dataclass(frozen=True, eq=False)
class Floor:
    """What an A/A measurement says of a machine."""

    runs: tuple[Run, ...]
    rules: Rules
    rows: tuple[Tolerance, ...]
    alarms: Alarms

    @property
    def compare(self) -> float | None:
        """The threshold that serves 95 % of the rows with one new run."""
        return serves([row.compare for row in self.rows])

    @property
    def check(self) -> float | None:
        """And with as many as check measures of a suspicious row."""
        return serves([row.check for row in self.rows])


def floor(runs: Sequence[Run], rules: Rules) -> Floor:
    """The noise floor of every row that was measured at least twice.

    The runs are of one machine and version; a row's repetitions stand in one run or several.
    """
    basis = Basis(tuple(runs), rules)
    noise = basis.noise()
    rows = []
    for key, row in basis.rows.items():
        count = len(basis.base_figures(key))
        if count > 1:
            device = title(basis.bases[0], replace(row, device=key[1]))
            spread = noise.of(key)
            compare, check = (
                carries(floors.unseen(count, new, spread, rules.confidence, noise, key))
                for new in (1, MOST_ROUNDS)
            )
            rows.append(Tolerance(key, row, device, count, spread.deviation, compare, check))
    return Floor(tuple(runs), rules, tuple(rows), _alarms(basis, noise))


def serves(values: Sequence[float | None]) -> float | None:
    """The threshold that serves 95 % of the rows; None if there is none, or there are no rows."""
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return None
    threshold = ordered[math.ceil(SHARE * len(ordered)) - 1]
    return threshold if math.isfinite(threshold) else None


def carries(needed: float) -> float | None:
    """The smallest threshold at which twice as much is found in 95 of 100 trials; None: none below 90 %.

    A row is found so often if it lies `needed` beyond the threshold: see `verdict.unseen`.
    """

    def short(threshold: float) -> float:
        return math.log((1 + 2 * threshold) / (1 + threshold)) - needed

    if short(_COARSEST) < 0:
        return None
    if short(_FINEST) > 0:
        return _FINEST
    from scipy.optimize import brentq

    return float(brentq(short, _FINEST, _COARSEST))


def _alarms(basis: Basis, noise: Noise) -> Alarms:
    verdicts = []
    for key, row in basis.rows.items():
        figures = basis.base_figures(key)
        limits = basis.rules.limits(row)
        for index, figure in enumerate(figures):
            others = figures[:index] + figures[index + 1 :]
            if others:
                verdicts.append(conclude(others, [figure], noise.of(key), limits, noise, key).verdict)
    return Alarms(len(verdicts), verdicts.count("slower"), verdicts.count("inconclusive"))


# --- as a table and as JSON ---------------------------------------------------------------------------------


def sheets(floor: Floor) -> list[Sheet]:
    """By device the noise from run to run and the least thresholds of compare and check; what suits all."""
    groups = by_key((row.key[1], row) for row in floor.rows)
    devices = sorted(groups, key=lambda device: (device == HOST, device))
    return [*(_sheet(floor, groups[device]) for device in devices), Sheet(notes=tuple(_notes(floor)))]


def _sheet(floor: Floor, rows: Sequence[Tolerance]) -> Sheet:
    def cells(row: Tolerance) -> tuple[Cell, ...]:
        thresholds = (
            Cell("none", style="yellow") if value is None else Cell(units.percent(value))
            for value in (row.compare, row.check)
        )
        return (Cell(units.percent(row.deviation)), *thresholds)

    return row_sheet(
        rows[0].device,
        "noise from run to run, and the smallest threshold that it lets compare and check carry",
        (("noise", "compare", "check"),),
        [(row.row.variant, where(row.row), row.row.dtype, cells(row)) for row in rows],
        len({row.row.dtype for row in floor.rows}) > 1,
    )


def _notes(floor: Floor) -> list[Note]:
    if not floor.rows:
        return [Note("", "No row was measured twice, so that nothing is known of the noise.", "bold")]
    runs = max(row.runs for row in floor.rows)
    limit, alarms = units.percent(floor.rules.thresholds.default), floor.alarms

    def threshold(value: float | None) -> str:
        return "no threshold below 90 %" if value is None else f"a threshold of {units.percent(value)}"

    carry = f"95 % of the rows carry {threshold(floor.compare)} in compare, {threshold(floor.check)} in check"
    counts = f"{alarms.slower} of {alarms.verdicts} verdicts slower, {alarms.inconclusive} inconclusive"
    return [
        Note("thresholds", f"with these {runs} runs as base, {carry}", "bold"),
        Note("false alarms", f"each run against the others, at {limit}: {counts}"),
    ]


def to_json(floor: Floor) -> str:
    """One object: the thresholds that suit the machine, and its rows in ``rows``."""
    rows = [
        {
            "kind": row.row.kind,
            "variant": row.row.variant,
            "dtype": row.row.dtype,
            "device": row.device,
            "where": where(row.row),
            "runs": row.runs,
            "noise": row.deviation,
            "compare": row.compare,
            "check": row.check,
        }
        for row in floor.rows
    ]
    whole = {
        "compare": floor.compare,
        "check": floor.check,
        "verdicts": floor.alarms.verdicts,
        "false_slower": floor.alarms.slower,
        "rows": rows,
    }
    return json.dumps(finite(whole), allow_nan=False, indent=1) + "\n"
