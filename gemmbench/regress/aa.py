"""The tables of an A/A measurement: the noise of every row, and the threshold that the machine carries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.units import by_key
from gemmbench.regress.compare import row_sheet, where
from gemmbench.regress.gate import Alarms, Carried, Floor, Tolerance, serves
from gemmbench.report.table import Cell, Note, Sheet, finite


def sheets(floor: Floor) -> list[Sheet]:
    """By device the noise from run to run and the least thresholds of compare and check; what suits all."""
    groups = by_key((row.key[1], row) for row in floor.rows)
    devices = sorted(groups, key=lambda device: (device == HOST, device))
    return [*(_sheet(floor, groups[device]) for device in devices), Sheet(notes=tuple(_notes(floor)))]


def _sheet(floor: Floor, rows: Sequence[Tolerance]) -> Sheet:
    ratio = bool(floor.rules.ratio)

    def cells(row: Tolerance) -> tuple[Cell, ...]:
        return (*_carried(row.plain), *(_carried(row.ratio) if ratio else ()))

    blocks = (("noise", "compare", "check"), ("ratio noise", "ratio compare", "ratio check"))
    return row_sheet(
        rows[0].device,
        "noise from run to run, and the smallest threshold that it lets compare and check carry",
        blocks if ratio else blocks[:1],
        [(row.row.variant, where(row.row), row.row.dtype, cells(row)) for row in rows],
        len({row.row.dtype for row in floor.rows}) > 1,
    )


def _carried(carried: Carried | None) -> tuple[Cell, ...]:
    if carried is None:
        return (Cell("-"), Cell("-"), Cell("-"))
    thresholds = (
        Cell("none", style="yellow") if value is None else Cell(units.percent(value))
        for value in (carried.compare, carried.check)
    )
    return (Cell(units.percent(carried.spread.deviation)), *thresholds)


def _modes(floor: Floor) -> Iterator[tuple[str, list[Carried], Alarms | None]]:
    """What rows were held against: their times, and their ratios."""
    yield "plain", [row.plain for row in floor.rows], floor.alarms
    yield "ratio", [row.ratio for row in floor.rows if row.ratio], floor.ratio_alarms


def _notes(floor: Floor) -> list[Note]:
    runs = max((row.runs for row in floor.rows), default=0)
    limit = units.percent(floor.rules.thresholds.default)

    def threshold(values: list[float | None]) -> str:
        value = serves(values)
        return "no threshold below 90 %" if value is None else f"a threshold of {units.percent(value)}"

    notes = []
    for name, carried, alarms in _modes(floor):
        if not carried or alarms is None:
            continue
        compare = threshold([each.compare for each in carried])
        check = threshold([each.check for each in carried])
        carry = f"95 % of the rows carry {compare} in compare, {check} in check"
        notes.append(Note(name, f"with these {runs} runs as base, {carry}", "bold"))
        counts = f"{alarms.slower} of {alarms.verdicts} verdicts slower, {alarms.inconclusive} inconclusive"
        notes.append(Note(f"{name}, false alarms", f"each run against the others, at {limit}: {counts}"))
    return notes or [Note("", "No row was measured twice, so that nothing is known of the noise.", "bold")]


def to_json(floor: Floor) -> str:
    """One object: the thresholds that suit the machine, and its rows in ``rows``."""

    def carried(tolerance: Carried | None) -> dict[str, object] | None:
        if tolerance is None:
            return None
        return {"noise": tolerance.spread.deviation, "compare": tolerance.compare, "check": tolerance.check}

    def served(rows: list[Carried], alarms: Alarms | None) -> dict[str, object] | None:
        if alarms is None:
            return None
        return {
            "compare": serves([each.compare for each in rows]),
            "check": serves([each.check for each in rows]),
            "verdicts": alarms.verdicts,
            "false_slower": alarms.slower,
        }

    rows = [
        {
            "kind": row.row.kind,
            "variant": row.row.variant,
            "dtype": row.row.dtype,
            "device": row.device,
            "where": where(row.row),
            "runs": row.runs,
            "plain": carried(row.plain),
            "ratio": carried(row.ratio),
        }
        for row in floor.rows
    ]
    whole = {**{name: served(tolerances, alarms) for name, tolerances, alarms in _modes(floor)}, "rows": rows}
    return json.dumps(finite(whole), allow_nan=False, indent=1) + "\n"
