"""Rows over many saved runs: table, markdown, CSV, JSON."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Sequence

from rich.console import RenderableType

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.units import clean, listed
from gemmbench.regress.compare_table import STYLES, change, where
from gemmbench.regress.gate import Alarms, Carried, Floor, Tolerance, serves
from gemmbench.regress.history import History, Shift, Track
from gemmbench.report.table import Cell, Note, Sheet, finite, sheet_markdown, stack

CSV_FIELDS: tuple[str, ...] = (
    "kind", "variant", "device", "dtype", "label", "m", "n", "k", "parameters",
    "started_utc", "file", "cost", "unit", "segment", "source",
)  # fmt: skip
_MANY = 40  # rows; beyond it the steady ones are counted
_MOST_SHIFTS = 3  # told of one row: the last


def table(found: History, every: bool = False) -> RenderableType:
    """A line for each row, in tables by device; with `every` also the steady ones, where there are many."""
    return stack(sheets(found, every))


def to_markdown(found: History, every: bool = False) -> str:
    """The same for a job's summary."""
    return "\n".join(map(sheet_markdown, sheets(found, every)))


def sheets(found: History, every: bool = False) -> list[Sheet]:
    """One table for each device, the conclusion below the last."""
    hidden = not every and len(found.tracks) > _MANY
    groups: dict[tuple[bool, str], list[Track]] = {}
    for track in found.tracks:
        if not (hidden and track.is_steady):
            groups.setdefault((track.key[1] == HOST, track.device), []).append(track)
    tables = [_sheet(found, groups[place]) for place in sorted(groups, key=lambda place: place[0])]
    steady = sum(track.is_steady for track in found.tracks)
    unseen = f"{steady} steady rows are not shown; -v shows them"
    return [
        *tables,
        Sheet(
            notes=(
                *([Note("", unseen, "dim")] if hidden and steady else []),
                Note(
                    "noise floor",
                    f"{units.percent(found.noise.typical)} from run to run for a typical row "
                    f"({found.noise.source})",
                    "dim",
                ),
                Note("", _conclusion(found), "bold"),
            )
        ),
    ]


def _sheet(found: History, tracks: Sequence[Track]) -> Sheet:
    typed = len({track.row.dtype for track in found.tracks}) > 1

    def cells(track: Track) -> tuple[Cell, ...]:
        last = track.last
        style = STYLES[last.verdict] if last else ""
        return (
            Cell(clean(track.row.variant)),
            Cell(where(track.row)),
            *([Cell(track.row.dtype)] if typed else []),
            Cell(change(last.ratio) if last else "", style=style),
            Cell(last.verdict if last else "new", style=style),
            Cell(_shifts(found, track.shifts, track)),
            Cell(str(len(track.points))),
            Cell(_cost(track, 0)),
            Cell(_cost(track, -1)),
        )

    return Sheet(
        heading=tuple(map(clean, tracks[0].device.split(" | ", 1))),
        caption="last: since the last change, or of the last run; change of the time, + is slower",
        keys=("", "size", *(["type"] if typed else [])),
        blocks=(("last", "verdict"), ("changes",), ("runs", "from", "to")),
        rows=tuple(map(cells, tracks)),
        left=frozenset({"verdict", "changes"}),
    )


def _cost(track: Track, place: int) -> str:
    value = track.cost(track.points[place])
    return f"x {units.number(value)}" if track.is_ratio else units.seconds(value)


def _shifts(found: History, shifts: Sequence[Shift], track: Track) -> str:
    """``11-03 +10.2 %, 11-07 -3.0 %``; the earlier ones of many are counted."""
    told = [f"{_day(found, track, shift)} {change(shift.ratio)}" for shift in shifts[-_MOST_SHIFTS:]]
    more = len(shifts) - len(told)
    return ", ".join([*([f"({more} more)"] if more else []), *told])


def _day(found: History, track: Track, shift: Shift) -> str:
    """The day of the first run after a change; with its time where runs of one day are compared."""
    time = found.times[track.points[shift.place].run]
    days = {each.date() for each in found.times}
    if len(days) < len(found.times) / 2:
        return time.strftime("%m-%d %H:%M")
    return time.strftime("%m-%d" if len({each.year for each in found.times}) == 1 else "%Y-%m-%d")


def _conclusion(found: History) -> str:
    changed = sum(bool(track.shifts) for track in found.tracks)
    slower = sum(track.last is not None and track.last.verdict == "slower" for track in found.tracks)
    first, last = (time.strftime("%Y-%m-%d") for time in (found.times[0], found.times[-1]))
    return (
        f"{len(found.tracks)} rows over {len(found.runs)} runs, {first} to {last}: {changed} changed their "
        f"speed, {slower} slower at last; threshold {units.percent(found.rules.thresholds.default)}."
    )


def to_csv(found: History) -> str:
    """A line for each row and run; ``cost`` in seconds, or as a ratio to the reference."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for track in found.tracks:
        for segment, points in enumerate(track.segments):
            for point in points:
                writer.writerow(
                    {
                        **_named(track),
                        "parameters": listed(point.row.case_parameters),
                        "started_utc": found.times[point.run].isoformat(),
                        "file": clean(found.runs[point.run].path),
                        "cost": track.cost(point),
                        "unit": "ratio" if track.is_ratio else "s",
                        "segment": segment,
                        "source": point.row.source,
                    }
                )
    return text.getvalue()


def to_json(found: History) -> str:
    """One object: the runs, and for each row its points, changes and the last verdict."""
    whole = {
        "runs": [
            {"file": run.path, "started_utc": time.isoformat()}
            for run, time in zip(found.runs, found.times, strict=True)
        ],
        "rows": [_track(found, track) for track in found.tracks],
    }
    return json.dumps(finite(whole), allow_nan=False, indent=1) + "\n"


def _track(found: History, track: Track) -> dict[str, object]:
    last = track.last
    return {
        **_named(track),
        "parameters": track.row.case_parameters,
        "unit": "ratio" if track.is_ratio else "s",
        "points": [{"run": point.run, "cost": track.cost(point)} for point in track.points],
        "changes": [
            {
                "run": track.points[shift.place].run,
                "started_utc": found.times[track.points[shift.place].run].isoformat(),
                "ratio": shift.ratio,
            }
            for shift in track.shifts
        ],
        "last": {"verdict": last.verdict, "ratio": last.ratio, "low": last.low, "high": last.high}
        if last
        else None,
    }


def _named(track: Track) -> dict[str, object]:
    row, problem = track.row, track.row.problem
    return {
        "kind": row.kind,
        "variant": clean(row.variant),
        "device": clean(track.device),
        "dtype": row.dtype,
        "label": clean(row.label),
        "m": problem.m if problem else None,
        "n": problem.n if problem else None,
        "k": problem.k if problem else None,
    }


# --- An A/A measurement: the noise of every row, and the threshold that the machine carries -----------------


_NONE = "none"


def aa_table(found: Floor) -> RenderableType:
    """A table for each device, then what the machine carries."""
    return stack(aa_sheets(found))


def aa_to_markdown(found: Floor) -> str:
    """The same for a job's summary."""
    return "\n".join(map(sheet_markdown, aa_sheets(found)))


def aa_sheets(found: Floor) -> list[Sheet]:
    """Noise from run to run, and the thresholds that compare and check carry with this run as a base."""
    groups: dict[int, list[Tolerance]] = {}
    for row in found.rows:
        groups.setdefault(row.key[1], []).append(row)
    places = sorted(groups, key=lambda place: (place == HOST, place))
    return [*(_aa_sheet(found, groups[place]) for place in places), Sheet(notes=tuple(_notes(found)))]


def _aa_sheet(found: Floor, rows: Sequence[Tolerance]) -> Sheet:
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


def aa_to_json(found: Floor) -> str:
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
