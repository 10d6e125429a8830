"""Every row over many saved runs, and where its speed changed.

Change points are found by binary segmentation: the split that sets the ranks on either side furthest apart
counts as a change if no more than one in twenty shuffled orders of the same figures (scipy's permutation
test) splits so clearly, and if the medians are a threshold apart; then each side is looked at in turn, and
halves of what shows no change as a whole. Ranks, since one run in a bad moment is no change; shuffling,
since it asks for no distribution. It takes eight runs at least; of fewer only the last one's verdict tells.
(The library for change points, ruptures, is not built for every Python that gemmbench runs on, and leaves
its penalty to be guessed, which is the significance here.)
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

import numpy as np
from rich.console import RenderableType

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row, RowKey, moment
from gemmbench.model.run_file import Run, RunFileError
from gemmbench.model.units import by_key, clean, listed
from gemmbench.regress import verdict as floors
from gemmbench.regress.baseline import Basis, Rules, repetitions
from gemmbench.regress.compare import title
from gemmbench.regress.compare_table import STYLES, change, where
from gemmbench.regress.gate import Alarms, Carried, Floor, Tolerance, serves
from gemmbench.regress.verdict import Judgement, Noise, judge
from gemmbench.report.table import Cell, Note, Sheet, finite, sheet_markdown, stack
from gemmbench.stats.intervals import Measure, mean
from gemmbench.stats.rates import problem_fields, work

SIGNIFICANCE = 0.05
LEAST = 3  # runs on either side of a change
LEAST_RUNS = 8  # with fewer, shuffling cannot tell a change from chance
_SHUFFLES = 999
_SEED = 20261121


@dataclass(frozen=True)
class Point:
    """A row in one run."""

    run: int  # position among the runs
    row: Row
    figure: Measure


@dataclass(frozen=True)
class Shift:
    """A change of speed."""

    index: int  # of the first point after it
    ratio: float  # time after over time before


@dataclass(frozen=True)
class Track:
    """One row over the runs."""

    key: RowKey
    device: str
    points: tuple[Point, ...]
    shifts: tuple[Shift, ...]
    last: Judgement | None  # the last segment over the one before it, or the last run over all others
    is_ratio: bool = False

    @property
    def row(self) -> Row:
        """As it was measured last."""
        return self.points[-1].row

    @property
    def segments(self) -> tuple[tuple[Point, ...], ...]:
        """Its points between changes."""
        edges = [0, *(shift.index for shift in self.shifts), len(self.points)]
        return tuple(self.points[a:b] for a, b in pairwise(edges))

    def cost(self, point: Point) -> float:
        """Seconds for one problem, or the ratio to the reference."""
        return math.exp(point.figure.value) * (1 if self.is_ratio else work(point.row))

    @property
    def is_steady(self) -> bool:
        """Whether there is nothing to tell of it."""
        return not self.shifts and (self.last is None or self.last.verdict == "same")


@dataclass(frozen=True, eq=False)
class History:
    """Every row's track."""

    runs: tuple[Run, ...]  # the earliest first
    times: tuple[datetime, ...]
    rules: Rules
    noise: Noise
    tracks: tuple[Track, ...]


def history(runs: Sequence[Run], rules: Rules | None = None) -> History:
    """Follow every row through saved runs, in the order of their starts.

    Runs may differ in version and kernel sources, whose effect is what a history is for; a row on another
    device is another row.

    Raises:
        RunFileError: a run does not say when it started.
    """
    rules = rules or Rules()
    timed = sorted(((_start(run), index, run) for index, run in enumerate(runs)), key=lambda entry: entry[:2])
    ordered = tuple(run for _, _, run in timed)
    basis = Basis(ordered, rules)
    series: dict[tuple[str, RowKey], list[Point]] = {}
    for number, run in enumerate(ordered):
        every = repetitions(run, basis.header, basis.pairs)
        for key in dict.fromkeys(key for each in every for key in each.rows):
            fresh = [each for each in every if key in each.rows and not each.rows[key].measured_utc]
            figures = [figure for each in fresh if (figure := basis.figure(each.rows, key)) is not None]
            if figures:
                row = fresh[0].rows[key]
                series.setdefault((_home(run, row), key), []).append(Point(number, row, mean(figures)))
    shifts = {
        track: find_shifts([point.figure.value for point in points], rules.limits(points[-1].row).high)
        for track, points in series.items()
    }
    noise = _noise(series, shifts)
    tracks = []
    for (home, key), points in series.items():
        device = title(ordered[points[-1].run], points[-1].row)
        followed = Track(key, device, tuple(points), shifts[home, key], None, key in basis.references)
        tracks.append(_judged(followed, noise, (home, key), rules))
    return History(ordered, tuple(time for time, _, _ in timed), rules, noise, tuple(tracks))


def find_shifts(values: Sequence[float], step: float) -> tuple[Shift, ...]:
    """Where a series of logarithms changes its level.

    Args:
        values: in the order of time.
        step: the least difference of medians that counts.
    """
    edges = _merged(values, _splits(np.asarray(values, dtype=float), 0, step), step)
    if not edges:
        return ()
    bounds = [0, *edges, len(values)]
    middles = [median(values[a:b]) for a, b in pairwise(bounds)]
    jumps = zip(edges, middles, middles[1:], strict=False)
    return tuple(Shift(index, math.exp(after - before)) for index, before, after in jumps)


def _merged(values: Sequence[float], edges: list[int], step: float) -> list[int]:
    """The changes, less those whose two sides differ by less than a step."""
    bounds = [0, *edges, len(values)]
    for number, edge in enumerate(edges, 1):
        before, after = median(values[bounds[number - 1] : edge]), median(values[edge : bounds[number + 1]])
        if abs(after - before) < step:
            return _merged(values, [other for other in edges if other != edge], step)
    return edges


def _splits(values: np.ndarray, start: int, step: float) -> list[int]:
    """Positions of changes within a stretch that begins at `start`."""
    for low, high, level in _windows(values.size):
        split = _change(values[low:high], step, level)
        if split is not None:
            at = low + split
            return [*_splits(values[:at], start, step), start + at, *_splits(values[at:], start + at, step)]
    return []


def _windows(count: int) -> list[tuple[int, int, float]]:
    """The whole stretch, then its halves and its middle, at a stricter level, since there are more of them.

    A level that was left and returned to hides from a split of the whole.
    """
    half = count // 2
    parts = [(low, low + half, SIGNIFICANCE / 4) for low in (0, (count - half) // 2, count - half)]
    return [(0, count, SIGNIFICANCE), *parts]


def _change(values: np.ndarray, step: float, level: float) -> int | None:
    """The position of the clearest change; None if it could be chance, or is smaller than a step."""
    if values.size < LEAST_RUNS:
        return None
    ranks = _ranks(values)
    split = LEAST + int(np.argmax(_apart(ranks)))
    far = abs(float(np.median(values[split:]) - np.median(values[:split])))
    # Shuffling costs a hundred times what looking costs, and most rows are steady.
    return split if far >= step and _chance(ranks) <= level else None


def _ranks(values: np.ndarray) -> np.ndarray:
    from scipy.stats import rankdata  # half a second to import, so only when needed

    ranks: np.ndarray = rankdata(values)
    return ranks


def _apart(ranks: np.ndarray) -> np.ndarray:
    """The distance of the mean ranks beside each split, scaled to equal variance; last axis: time."""
    count = ranks.shape[-1]
    splits = np.arange(LEAST, count - LEAST + 1)
    sums = np.cumsum(ranks, axis=-1)[..., splits - 1]
    total = ranks.sum(axis=-1, keepdims=True)
    difference = (total - sums) / (count - splits) - sums / splits
    distances: np.ndarray = np.abs(difference) * np.sqrt(splits * (count - splits) / count)
    return distances


def _chance(ranks: np.ndarray) -> float:
    """The share of random orders of the ranks that have as clear a split."""
    from scipy.stats import permutation_test

    def clearest(shuffled: np.ndarray, axis: int = -1) -> np.ndarray:
        furthest: np.ndarray = _apart(np.moveaxis(shuffled, axis, -1)).max(axis=-1)
        return furthest

    tested = permutation_test(
        (ranks,),
        clearest,
        permutation_type="pairings",
        n_resamples=_SHUFFLES,
        alternative="greater",
        vectorized=True,
        random_state=_SEED,
    )
    return float(tested.pvalue)


def _noise(
    series: dict[tuple[str, RowKey], list[Point]], shifts: dict[tuple[str, RowKey], tuple[Shift, ...]]
) -> Noise:
    """The floor from run to run, within segments."""
    groups = {}
    for track, points in series.items():
        edges = [0, *(shift.index for shift in shifts[track]), len(points)]
        values = [point.figure.value for point in points]
        if len(edges) == 2:
            edges.insert(1, len(points) - 1)  # the last run is what is judged
        groups[track] = [values[a:b] for a, b in pairwise(edges)]
    return floors.measured(groups, "measured, from run to run") or floors.assumed()


def _judged(track: Track, noise: Noise, name: tuple[str, RowKey], rules: Rules) -> Track:
    figures = [[point.figure for point in segment] for segment in track.segments]
    if len(figures) == 1:
        figures = [figures[0][:-1], figures[0][-1:]]
    if not figures[-2]:
        return track
    last = judge(figures[-2], figures[-1], noise.of(name), rules.limits(track.row))
    return Track(track.key, track.device, track.points, track.shifts, last, track.is_ratio)


def _home(run: Run, row: Row) -> str:
    """Where a row was measured, whatever the driver's version."""
    device = run.device(row)
    return f"{device.platform} {device.name}" if device else run.header.host.cpu


def _start(run: Run) -> datetime:
    try:
        return moment(run.header.started_utc)
    except ValueError:
        text = run.header.started_utc
        raise RunFileError(
            f"{run.path}: line 1: started_utc: {text!r} is no time as ISO 8601 writes it"
        ) from None


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
    groups = by_key(
        ((track.key[1] == HOST, track.device), track)
        for track in history.tracks
        if not (hidden and track.is_steady)
    )
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
    row = track.row
    return {
        "kind": row.kind,
        "variant": clean(row.variant),
        "device": clean(track.device),
        "dtype": row.dtype,
        "label": clean(row.label),
        **problem_fields(row.problem, "m", "n", "k", "trans_a", "trans_b"),
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
    groups = by_key((row.key[1], row) for row in floor.rows)
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
