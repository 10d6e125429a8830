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
    "kind", "variant", "device", "dtype", "label", "m", "n", "k", "trans_a", "trans_b", "parameters",
    "started_utc", "file", "cost", "unit", "segment", "source",
)  # fmt: skip
_MANY = 40  # rows; beyond it the steady ones are counted
_MOST_SHIFTS = 3  # told of one row: the last


def table(history: History, every: bool = False) -> RenderableType:
    """A line for each row, in tables by device; with `every` also the steady ones, where there are many."""
    return stack(sheets(history, every))


def to_markdown(history: History, every: bool = False) -> str:
    """The same for a job's summary."""
    return "\n".join(map(sheet_markdown, sheets(history, every)))


def sheets(history: History, every: bool = False) -> list[Sheet]:
    """One table for each device, the conclusion below the last."""
    hidden = not every and len(history.tracks) > _MANY
    groups: dict[tuple[bool, str], list[Track]] = {}
    for track in history.tracks:
        if not (hidden and track.is_steady):
            groups.setdefault((track.key[1] == HOST, track.device), []).append(track)
    tables = [_sheet(history, groups[group]) for group in sorted(groups, key=lambda group: group[0])]
    steady = sum(track.is_steady for track in history.tracks)
    unseen = f"{steady} steady rows are not shown; -v shows them"
    return [
        *tables,
        Sheet(
            notes=(
                *([Note("", unseen, "dim")] if hidden and steady else []),
                Note(
                    "noise floor",
                    f"{units.percent(history.noise.typical)} from run to run for a typical row "
                    f"({history.noise.source})",
                    "dim",
                ),
                Note("", conclusion(history), "bold"),
            )
        ),
    ]


def _sheet(history: History, tracks: Sequence[Track]) -> Sheet:
    typed = len({track.row.dtype for track in history.tracks}) > 1

    def cells(track: Track) -> tuple[Cell, ...]:
        last = track.last
        style = STYLES[last.verdict] if last else ""
        return (
            Cell(clean(track.row.variant)),
            Cell(where(track.row)),
            *([Cell(track.row.dtype)] if typed else []),
            Cell(change(last.ratio) if last else "", style=style),
            Cell(last.verdict if last else "new", style=style),
            Cell(_shifts(history, track.shifts, track)),
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


def _cost(track: Track, index: int) -> str:
    value = track.cost(track.points[index])
    return f"x {units.number(value)}" if track.is_ratio else units.seconds(value)


def _shifts(history: History, shifts: Sequence[Shift], track: Track) -> str:
    """``11-03 +10.2 %, 11-07 -3.0 %``; the earlier ones of many are counted."""
    texts = [f"{_day(history, track, shift)} {change(shift.ratio)}" for shift in shifts[-_MOST_SHIFTS:]]
    more = len(shifts) - len(texts)
    return ", ".join([*([f"({more} more)"] if more else []), *texts])


def _day(history: History, track: Track, shift: Shift) -> str:
    """The day of the first run after a change; with its time where runs of one day are compared."""
    time = history.times[track.points[shift.index].run]
    days = {each.date() for each in history.times}
    if len(days) < len(history.times) / 2:
        return time.strftime("%m-%d %H:%M")
    return time.strftime("%m-%d" if len({each.year for each in history.times}) == 1 else "%Y-%m-%d")


def conclusion(history: History) -> str:
    """How many rows changed their speed, over how many runs and days."""
    changed = sum(bool(track.shifts) for track in history.tracks)
    slower = sum(track.last is not None and track.last.verdict == "slower" for track in history.tracks)
    first, last = (time.strftime("%Y-%m-%d") for time in (history.times[0], history.times[-1]))
    return (
        f"{len(history.tracks)} rows over {len(history.runs)} runs, {first} to {last}: "
        f"{changed} changed their speed, {slower} slower at last; "
        f"threshold {units.percent(history.rules.thresholds.default)}."
    )


def to_csv(history: History) -> str:
    """A line for each row and run; ``cost`` in seconds, or as a ratio to the reference."""
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_FIELDS, lineterminator="\n")
    writer.writeheader()
    for track in history.tracks:
        for segment, points in enumerate(track.segments):
            for point in points:
                writer.writerow(
                    {
                        **_row_fields(track),
                        "parameters": listed(point.row.case_parameters),
                        "started_utc": history.times[point.run].isoformat(),
                        "file": clean(history.runs[point.run].path),
                        "cost": track.cost(point),
                        "unit": "ratio" if track.is_ratio else "s",
                        "segment": segment,
                        "source": point.row.source,
                    }
                )
    return text.getvalue()


def to_json(history: History) -> str:
    """One object: the runs, and for each row its points, changes and the last verdict."""
    whole = {
        "runs": [
            {"file": run.path, "started_utc": time.isoformat()}
            for run, time in zip(history.runs, history.times, strict=True)
        ],
        "rows": [_track(history, track) for track in history.tracks],
    }
    return json.dumps(finite(whole), allow_nan=False, indent=1) + "\n"


def _track(history: History, track: Track) -> dict[str, object]:
    last = track.last
    return {
        **_row_fields(track),
        "parameters": track.row.case_parameters,
        "unit": "ratio" if track.is_ratio else "s",
        "points": [{"run": point.run, "cost": track.cost(point)} for point in track.points],
        "changes": [
            {
                "run": track.points[shift.index].run,
                "started_utc": history.times[track.points[shift.index].run].isoformat(),
                "ratio": shift.ratio,
            }
            for shift in track.shifts
        ],
        "last": {"verdict": last.verdict, "ratio": last.ratio, "low": last.low, "high": last.high}
        if last
        else None,
    }


def _row_fields(track: Track) -> dict[str, object]:
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
        "trans_a": bool(problem.trans_a) if problem else None,
        "trans_b": bool(problem.trans_b) if problem else None,
    }


# --- An A/A measurement: the noise of every row, and the threshold that the machine carries -----------------


_NONE = "none"


def aa_table(floor: Floor) -> RenderableType:
    """A table for each device, then the thresholds that suit the machine."""
    return stack(aa_sheets(floor))


def aa_to_markdown(floor: Floor) -> str:
    """The same for a job's summary."""
    return "\n".join(map(sheet_markdown, aa_sheets(floor)))


def aa_sheets(floor: Floor) -> list[Sheet]:
    """Noise from run to run, and the least thresholds that it allows in compare and check."""
    groups: dict[int, list[Tolerance]] = {}
    for row in floor.rows:
        groups.setdefault(row.key[1], []).append(row)
    devices = sorted(groups, key=lambda device: (device == HOST, device))
    return [*(_aa_sheet(floor, groups[device]) for device in devices), Sheet(notes=tuple(_notes(floor)))]


def _aa_sheet(floor: Floor, rows: Sequence[Tolerance]) -> Sheet:
    typed = len({row.row.dtype for row in floor.rows}) > 1
    ratio = bool(floor.rules.ratio)

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


def _notes(floor: Floor) -> list[Note]:
    modes: list[tuple[str, list[Carried], Alarms | None]] = [
        ("plain", [row.plain for row in floor.rows], floor.alarms),
        ("ratio", [row.ratio for row in floor.rows if row.ratio], floor.ratio_alarms),
    ]
    runs = max((row.runs for row in floor.rows), default=0)
    notes = []
    for name, carried, alarms in modes:
        if not carried or alarms is None:
            continue
        compare = _threshold_text(serves([each.compare for each in carried]))
        check = _threshold_text(serves([each.check for each in carried]))
        text = (
            f"with these {runs} runs as base, 95 % of the rows carry {compare} in compare, {check} in check"
        )
        notes.append(Note(name, text, "bold"))
        limit = units.percent(floor.rules.thresholds.default)
        text = (
            f"each run against the others, at {limit}: {alarms.slower} of {alarms.verdicts} verdicts slower, "
            f"{alarms.inconclusive} inconclusive"
        )
        notes.append(Note(f"{name}, false alarms", text))
    return notes or [Note("", "No row was measured twice, so that nothing is known of the noise.", "bold")]


def _threshold_text(value: float | None) -> str:
    return "no threshold below 90 %" if value is None else f"a threshold of {units.percent(value)}"


def aa_to_json(floor: Floor) -> str:
    """One object: the thresholds that suit the machine, and its rows in ``rows``."""

    def carried(tolerance: Carried | None) -> dict[str, object] | None:
        if tolerance is None:
            return None
        return {"noise": tolerance.spread.deviation, "compare": tolerance.compare, "check": tolerance.check}

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
    ratio = [row.ratio for row in floor.rows if row.ratio]
    whole = {
        "plain": {
            "compare": serves([row.plain.compare for row in floor.rows]),
            "check": serves([row.plain.check for row in floor.rows]),
            "verdicts": floor.alarms.verdicts,
            "false_slower": floor.alarms.slower,
        },
        "ratio": {
            "compare": serves([each.compare for each in ratio]),
            "check": serves([each.check for each in ratio]),
            "verdicts": floor.ratio_alarms.verdicts,
            "false_slower": floor.ratio_alarms.slower,
        }
        if floor.ratio_alarms
        else None,
        "rows": rows,
    }
    return json.dumps(finite(whole), allow_nan=False, indent=1) + "\n"
