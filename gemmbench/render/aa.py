"""An A/A measurement: the noise of every row, and the threshold that the machine carries."""

from __future__ import annotations

import json
from collections.abc import Sequence

from rich.console import RenderableType

from gemmbench.facts import units
from gemmbench.facts.compare.aa import Alarms, Carried, Floor, Tolerance, serves
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean
from gemmbench.render.compare import where
from gemmbench.render.export import finite, sheet_markdown
from gemmbench.render.sheet import Cell, Note, Sheet, stack

_NONE = "none"


def table(found: Floor) -> RenderableType:
    """A table for each device, then what the machine carries."""
    return stack(sheets(found))


def to_markdown(found: Floor) -> str:
    """The same for a job's summary."""
    return "\n".join(map(sheet_markdown, sheets(found)))


def sheets(found: Floor) -> list[Sheet]:
    """Noise from run to run, and the thresholds that compare and check carry with this run as a base."""
    groups: dict[int, list[Tolerance]] = {}
    for row in found.rows:
        groups.setdefault(row.key[1], []).append(row)
    places = sorted(groups, key=lambda place: (place == HOST, place))
    return [*(_sheet(found, groups[place]) for place in places), Sheet(notes=tuple(_notes(found)))]


def _sheet(found: Floor, rows: Sequence[Tolerance]) -> Sheet:
    typed = len({row.row.dtype for row in found.rows}) > 1
    ratio = bool(found.rules.ratio)

    def cells(row: Tolerance) -> tuple[Cell, ...]:
        return (
            Cell(clean(row.row.variant)),
            Cell(where(row.row)),
            *([Cell(row.row.dtype)] if typed else []),
            *_carried(row.plain),
            *(_carried(row.ratio) if ratio else ()),
        )

    blocks: tuple[tuple[str, ...], ...] = (("noise", "compare", "check"),)
    if ratio:
        blocks = (*blocks, ("ratio noise", "ratio compare", "ratio check"))
    return Sheet(
        heading=tuple(map(clean, rows[0].device.split(" | ", 1))),
        caption="noise from run to run, and the smallest threshold that it lets compare and check carry",
        keys=("", "size", *(["type"] if typed else [])),
        blocks=blocks,
        rows=tuple(map(cells, rows)),
    )


def _carried(carried: Carried | None) -> tuple[Cell, ...]:
    if carried is None:
        return (Cell("-"), Cell("-"), Cell("-"))
    return (Cell(units.percent(carried.spread.deviation)), *map(_threshold, (carried.compare, carried.check)))


def _threshold(value: float | None) -> Cell:
    return Cell(_NONE, style="yellow") if value is None else Cell(units.percent(value))


def _notes(found: Floor) -> list[Note]:
    modes: list[tuple[str, list[Carried], Alarms | None]] = [
        ("plain", [row.plain for row in found.rows], found.alarms),
        ("ratio", [row.ratio for row in found.rows if row.ratio], found.ratio_alarms),
    ]
    runs = max((row.runs for row in found.rows), default=0)
    notes = []
    for name, carried, alarms in modes:
        if not carried or alarms is None:
            continue
        compare = _words(serves([one.compare for one in carried]))
        check = _words(serves([one.check for one in carried]))
        text = (
            f"with these {runs} runs as base, 95 % of the rows carry {compare} in compare, {check} in check"
        )
        notes.append(Note(name, text, "bold"))
        limit = units.percent(found.rules.thresholds.default)
        text = (
            f"each run against the others, at {limit}: {alarms.slower} of {alarms.verdicts} verdicts slower, "
            f"{alarms.inconclusive} inconclusive"
        )
        notes.append(Note(f"{name}, false alarms", text))
    return notes or [Note("", "No row was measured twice, so that nothing is known of the noise.", "bold")]


def _words(value: float | None) -> str:
    return "no threshold below 90 %" if value is None else f"a threshold of {units.percent(value)}"


def to_json(found: Floor) -> str:
    """One object: what the machine carries, and its rows in ``rows``."""

    def carried(one: Carried | None) -> dict[str, object] | None:
        if one is None:
            return None
        return {"noise": one.spread.deviation, "compare": one.compare, "check": one.check}

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
        for row in found.rows
    ]
    ratio = [row.ratio for row in found.rows if row.ratio]
    whole = {
        "plain": {
            "compare": serves([row.plain.compare for row in found.rows]),
            "check": serves([row.plain.check for row in found.rows]),
            "verdicts": found.alarms.verdicts,
            "false_slower": found.alarms.slower,
        },
        "ratio": {
            "compare": serves([one.compare for one in ratio]),
            "check": serves([one.check for one in ratio]),
            "verdicts": found.ratio_alarms.verdicts,
            "false_slower": found.ratio_alarms.slower,
        }
        if found.ratio_alarms
        else None,
        "rows": rows,
    }
    return json.dumps(finite(whole), allow_nan=False, indent=1) + "\n"
