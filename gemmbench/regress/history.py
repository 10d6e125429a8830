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
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from statistics import median
from typing import Any

import numpy as np

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row, RowKey, moment
from gemmbench.model.run_file import Run, RunFileError
from gemmbench.model.units import by_key, clean, listed
from gemmbench.regress import verdict as floors
from gemmbench.regress.baseline import Basis, Rules
from gemmbench.regress.compare import STYLES, change, row_sheet, title, where
from gemmbench.regress.gate import Alarms, Carried, Floor, Tolerance, serves
from gemmbench.regress.verdict import OUTLYING, Judgement, Noise, Spread, judge, robust_deviation
from gemmbench.report.table import Cell, Note, Sheet, finite, stack, stdout
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
        return self.points[-1].row

    @property
    def segments(self) -> tuple[tuple[Point, ...], ...]:
        """Its points between changes."""
        edges = [0, *(shift.index for shift in self.shifts), len(self.points)]
        return tuple(self.points[a:b] for a, b in pairwise(edges))

    @property
    def sides(self) -> tuple[tuple[Point, ...], ...]:
        """Its segments, of which the last is judged; without a change the last run alone is."""
        return self.segments if self.shifts else (self.points[:-1], self.points[-1:])

    def cost(self, point: Point) -> float:
        """Seconds for one problem, or the ratio to the reference."""
        return math.exp(point.figure.value) * (1 if self.is_ratio else work(point.row))

    @property
    def is_steady(self) -> bool:
        return not self.shifts and (self.last is None or self.last.verdict == "same")


@dataclass(frozen=True, eq=False)
class History:
    """Every row's track over many runs."""

    runs: tuple[Run, ...]  # the earliest first
    times: tuple[datetime, ...]
    rules: Rules
    noise: Noise
    tracks: tuple[Track, ...]

    def show(self, verbose: bool = False) -> None:
        """Print the table of ``gemmbench history``."""
        stdout().print(stack(sheets(self, verbose)))


def history(runs: Sequence[Run], rules: Rules | None = None) -> History:
    """Follow every row through saved runs, in the order of their starts; `RunFileError` if one has none.

    Runs may differ in version and kernel sources, whose effect is what a history is for; a row on another
    device is another row.
    """
    rules = rules or Rules()
    timed = sorted(((_start(run), index, run) for index, run in enumerate(runs)), key=lambda entry: entry[:2])
    ordered = tuple(run for _, _, run in timed)
    basis = Basis(ordered, rules)
    series: dict[tuple[str, RowKey], list[Point]] = {}
    for number, run in enumerate(ordered):
        every = [each for each in basis.repetitions if each.run is run]
        for key in dict.fromkeys(key for each in every for key in each.rows):
            fresh = [each for each in every if key in each.rows and not each.rows[key].measured_utc]
            figures = [figure for each in fresh if (figure := basis.figure(each.rows, key)) is not None]
            if figures:
                row = fresh[0].rows[key]
                series.setdefault((_home(run, row), key), []).append(Point(number, row, mean(figures)))
    tracks = {}
    for (home, key), points in series.items():
        last = points[-1]
        shifts = find_shifts([point.figure.value for point in points], rules.limits(last.row).high)
        device = title(ordered[last.run], last.row)
        tracks[home, key] = Track(key, device, tuple(points), shifts, None, key in basis.references)
    sides = {name: [[each.figure.value for each in side] for side in t.sides] for name, t in tracks.items()}
    noise = floors.measured(sides, "measured, from run to run") or floors.assumed()
    judged = tuple(_judged(track, noise.of(name), rules) for name, track in tracks.items())
    return History(ordered, tuple(time for time, _, _ in timed), rules, noise, judged)


def find_shifts(values: Sequence[float], step: float) -> tuple[Shift, ...]:
    """Where logarithms in the order of time change their level: their medians differ by a step at least."""
    edges = _merged(values, _splits(np.asarray(values, dtype=float), 0, step), step)
    if not edges:
        return ()
    middles = [median(values[a:b]) for a, b in pairwise([0, *edges, len(values)])]
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
    from scipy.stats import rankdata  # half a second to import, so only when needed

    ranks: np.ndarray = rankdata(values)
    split = LEAST + int(np.argmax(_apart(ranks)))
    far = abs(float(np.median(values[split:]) - np.median(values[:split])))
    # Shuffling costs a hundred times what looking costs, and most rows are steady.
    return split if far >= step and _chance(ranks) <= level else None


def _apart(ranks: np.ndarray) -> np.ndarray:
    """The distance of the mean ranks beside each split, scaled to equal variance; last axis: time."""
    count = ranks.shape[-1]
    splits = np.arange(LEAST, count - LEAST + 1)
    sums = np.cumsum(ranks, axis=-1)[..., splits - 1]
    total = ranks.sum(axis=-1, keepdims=True)
    difference = (total - sums) / (count - splits) - sums / splits
    return np.asarray(np.abs(difference) * np.sqrt(splits * (count - splits) / count))


def _chance(ranks: np.ndarray) -> float:
    """The share of random orders of the ranks that have as clear a split."""
    from scipy.stats import permutation_test

    def clearest(shuffled: np.ndarray, axis: int = -1) -> np.ndarray:
        return np.asarray(_apart(np.moveaxis(shuffled, axis, -1)).max(axis=-1))

    how: dict[str, Any] = {"permutation_type": "pairings", "alternative": "greater", "vectorized": True}
    tested = permutation_test((ranks,), clearest, n_resamples=_SHUFFLES, random_state=_SEED, **how)
    return float(tested.pvalue)


def _judged(track: Track, spread: Spread, rules: Rules) -> Track:
    *_, before, last = [[point.figure for point in side] for side in track.sides]
    return replace(track, last=judge(before, last, spread, rules.limits(track.row))) if before else track


def _home(run: Run, row: Row) -> str:
    """Where a row was measured, whatever the driver's version."""
    device = run.device(row)
    return f"{device.platform} {device.name}" if device else run.header.host.cpu


def _start(run: Run) -> datetime:
    try:
        return moment(run.header.started_utc)
    except ValueError:
        text = f"{run.header.started_utc!r} is no time as ISO 8601 writes it"
        raise RunFileError(f"{run.path}: line 1: started_utc: {text}") from None


CSV_FIELDS: tuple[str, ...] = (
    "kind", "variant", "device", "dtype", "label", "m", "n", "k", "trans_a", "trans_b", "parameters",
    "started_utc", "file", "cost", "unit", "segment", "source",
)  # fmt: skip
_MANY = 40  # rows; beyond it the steady ones are counted
_MOST_SHIFTS = 3  # told of one row: the last


def sheets(history: History, every: bool = False) -> list[Sheet]:
    """One table for each device, the conclusion below the last; with `every` also many steady rows."""
    hidden = not every and len(history.tracks) > _MANY
    groups = by_key(
        ((track.key[1] == HOST, track.device), track)
        for track in history.tracks
        if not (hidden and track.is_steady)
    )
    tables = [_sheet(history, groups[group]) for group in sorted(groups, key=lambda group: group[0])]
    notes, noise = [], history.noise
    if hidden and (steady := sum(track.is_steady for track in history.tracks)):
        notes.append(Note("", f"{steady} steady rows are not shown; -v shows them", "dim"))
    floor = f"{units.percent(noise.typical)} from run to run for a typical row ({noise.source})"
    notes += [Note("noise floor", floor, "dim"), *_chips(history), Note("", conclusion(history), "bold")]
    return [*tables, Sheet(notes=tuple(notes))]


def _sheet(history: History, tracks: Sequence[Track]) -> Sheet:
    def cells(track: Track) -> tuple[Cell, ...]:
        last = track.last
        style = STYLES[last.verdict] if last else ""
        return (
            Cell(change(last.ratio) if last else "", style=style),
            Cell(last.verdict if last else "new", style=style),
            Cell(_shifts(history, track)),
            Cell(str(len(track.points))),
            Cell(_cost(track, 0)),
            Cell(_cost(track, -1)),
        )

    return row_sheet(
        tracks[0].device,
        "last: since the last change, or of the last run; change of the time, + is slower",
        (("last", "verdict"), ("changes",), ("runs", "from", "to")),
        [(track.row.variant, where(track.row), track.row.dtype, cells(track)) for track in tracks],
        len({track.row.dtype for track in history.tracks}) > 1,
    )


def _cost(track: Track, index: int) -> str:
    value = track.cost(track.points[index])
    return f"x {units.number(value)}" if track.is_ratio else units.seconds(value)


def _shifts(history: History, track: Track) -> str:
    """``11-03 +10.2 %, 11-07 -3.0 %``; the earlier ones of many are counted."""
    form = "%m-%d" if len({each.year for each in history.times}) == 1 else "%Y-%m-%d"
    if len({each.date() for each in history.times}) < len(history.times) / 2:  # runs of one day are compared
        form = "%m-%d %H:%M"
    texts = []
    for shift in track.shifts[-_MOST_SHIFTS:]:
        first = history.times[track.points[shift.index].run]  # the run after it
        chips = {_chip(history, point) for point in track.points[shift.index - 1 : shift.index + 1]} - {""}
        other = ", another chip" if len(chips) > 1 else ""
        texts.append(f"{first.strftime(form)} {change(shift.ratio)}{other}")
    more = len(track.shifts) - len(texts)
    return ", ".join([*([f"({more} more)"] if more else []), *texts])


def _chip(history: History, point: Point) -> str:
    """Which of its model a row's GPU was; "" if that is not known."""
    device = history.runs[point.run].device(point.row)
    return device.chip if device else ""


def _chips(history: History) -> Iterator[Note]:
    """That runs are of several chips of one model."""
    chips = by_key((t.device, _chip(history, point)) for t in history.tracks for point in t.points)
    for device, each in chips.items():
        if len(known := sorted({*each} - {""})) > 1:
            text = f"{device}: these runs are of {len(known)} chips of this model ({', '.join(known)})"
            yield Note("note", f"{text}, which may themselves be faster or slower", "yellow")


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
                        "parameters": listed(point.row.parameters),
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
        "parameters": track.row.parameters,
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
        "last": {name: getattr(last, name) for name in ("verdict", "ratio", "low", "high")} if last else None,
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


def aa_sheets(floor: Floor) -> list[Sheet]:
    """By device the noise from run to run and the least thresholds of compare and check; what suits all."""
    groups = by_key((row.key[1], row) for row in floor.rows)
    devices = sorted(groups, key=lambda device: (device == HOST, device))
    return [*(_aa_sheet(floor, groups[device]) for device in devices), Sheet(notes=tuple(_notes(floor)))]


def _aa_sheet(floor: Floor, rows: Sequence[Tolerance]) -> Sheet:
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


def aa_to_json(floor: Floor) -> str:
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


# --- Nodes of a fleet that ran the same cases: which of them are not like the others ------------------------

LEAST_NODES = 4  # of fewer the middle is too easily one of the odd

WHAT = {
    "gemm": "GEMMs", "peak": "arithmetic peaks", "bandwidth": "memory bandwidth", "transfer": "transfers",
    "latency": "latencies",
}  # fmt: skip


@dataclass(frozen=True)
class Standing:
    """One node in one sort of rows."""

    ratio: float  # its time over that of the middle node, the middle of its rows; above 1 is slower
    rows: int
    beyond: int  # rows that are outliers among the same row of the other nodes
    is_outlier: bool


@dataclass(frozen=True, eq=False)
class Node:
    """One machine of the fleet."""

    name: str
    run: Run
    standings: dict[str, Standing]  # by sort of rows: those of a kind, the host's apart
    differences: tuple[str, ...]  # what it is, and what most of the others are

    @property
    def outlying(self) -> dict[str, Standing]:
        """The sorts in which it is an outlier."""
        return {what: each for what, each in self.standings.items() if each.is_outlier}


@dataclass(frozen=True, eq=False)
class Fleet:
    """Every node beside the others."""

    nodes: tuple[Node, ...]
    threshold: float  # how far an outlier lies off at least; 0.05 is 5 %

    @property
    def middle(self) -> Node:
        def apart(node: Node) -> float:
            return max((abs(math.log(each.ratio)) for each in node.standings.values()), default=math.inf)

        return min(self.nodes, key=apart)


def fleet(runs: Sequence[Run], names: Sequence[str], rules: Rules | None = None) -> Fleet:
    """Hold every node against the middle one, row by row; rows are paired by their cases, as in a comparison.

    A node is an outlier in a sort of rows (GEMMs, transfers, ...) if the median of its rows lies more than
    `OUTLYING` robust standard deviations (by the median absolute deviation over the nodes) from the middle,
    and more than the threshold.
    """
    rules = rules or Rules()
    figures = _log_costs(Basis(tuple(runs), rules))
    apart: dict[str, list[list[float]]] = {}  # by sort of rows, then node
    beyond: dict[str, Counter[int]] = {}
    limit = math.log1p(rules.thresholds.default)
    for key, values in figures.items():
        if len(values) < LEAST_NODES:
            continue
        what = WHAT[key[0]] + (" on the host" if key[1] == HOST else "")
        middle = median(values.values())
        far = max(limit, OUTLYING * robust_deviation([*values.values()]))
        for node, value in values.items():
            apart.setdefault(what, [[] for _ in runs])[node].append(value - middle)
            beyond.setdefault(what, Counter())[node] += abs(value - middle) > far
    standings: list[dict[str, Standing]] = [{} for _ in runs]
    for what, by_node in apart.items():
        middles = {node: median(values) for node, values in enumerate(by_node) if values}
        centre, spread = median(middles.values()), robust_deviation([*middles.values()])
        for node, value in middles.items():
            is_outlier = abs(value - centre) > max(limit, OUTLYING * spread)
            rows = len(by_node[node])
            standings[node][what] = Standing(math.exp(value - centre), rows, beyond[what][node], is_outlier)
    nodes = zip(names, runs, standings, _differences(runs), strict=True)
    return Fleet(tuple(Node(*each) for each in nodes), rules.thresholds.default)


def _log_costs(basis: Basis) -> dict[RowKey, dict[int, float]]:
    """The logarithm of each row's cost by node."""
    figures: dict[RowKey, dict[int, float]] = {}
    for number, run in enumerate(basis.bases):
        for each in basis.repeated([run])[:1]:
            for key, row in each.rows.items():
                if not row.measured_utc and (figure := basis.figure(each.rows, key)) is not None:
                    figures.setdefault(key, {})[number] = figure.value
    return figures


def _differences(runs: Sequence[Run]) -> list[tuple[str, ...]]:
    """What each node has that most others have not; nothing where there is no majority."""
    texts: list[list[str]] = [[] for _ in runs]
    facts = [_facts(run) for run in runs]
    for name in facts[0]:
        values = [each.get(name, "none") for each in facts]
        usual, count = Counter(values).most_common(1)[0]
        for text, value in zip(texts, values, strict=True):
            if count * 2 > len(runs) and value != usual:
                text.append(f"{name} {value}, not {usual}")
    return [tuple(each) for each in texts]


def _facts(run: Run) -> dict[str, str]:
    host = run.header.host
    facts = {
        "gemmbench": run.header.gemmbench,
        "processor": host.cpu,
        "cores": str(host.cores),
        "system": host.system,
        "Python": host.python,
        "NumPy": host.numpy,
        "BLAS": host.blas,
    }
    for device in run.header.devices:
        facts[f"driver of {device.name}"] = device.driver
        facts[f"units of {device.name}"] = str(device.compute_units)
    return {name: clean(value) for name, value in facts.items()}


# --- what is said of a fleet --------------------------------------------------------------------------------


def conclusions(made: Fleet) -> list[Note]:
    """The outliers by name, how far off each is, and what is different about it."""
    count, limit = len(made.nodes), units.percent(made.threshold)
    if count < LEAST_NODES:
        return [Note("Fleet", f"{count} nodes; outliers are named from {LEAST_NODES} on.", "bold")]
    odd = [node for node in made.nodes if node.outlying]
    if not odd:
        text = f"no outliers among {count} nodes: all within {limit} or 3 robust deviations of the middle."
        return [Note("Fleet", text, "bold")]
    rule = f"beyond {limit} and {OUTLYING:g} robust deviations of the middle"
    head = f"{len(odd)} of {count} nodes {'is an outlier' if len(odd) == 1 else 'are outliers'}, {rule}."
    return [Note("Fleet", head, "bold"), *(Note(clean(node.name), _about(node), "bold red") for node in odd)]


def _about(node: Node) -> str:
    parts = [
        f"{what}: {change(each.ratio)} of time against the middle node ({each.beyond} of {each.rows} rows)"
        for what, each in node.outlying.items()
    ]
    return "; ".join([*parts, *node.differences]) + "."


def sheet(made: Fleet) -> Sheet:
    """A line for each node: its time against the middle node's, by sort of rows."""
    sorts = list(dict.fromkeys(what for node in made.nodes for what in node.standings))

    def cell(node: Node, what: str) -> Cell:
        each = node.standings.get(what)
        return Cell(change(each.ratio), style="bold red" if each.is_outlier else "") if each else Cell("-")

    return Sheet(
        caption="change of the time against the middle node, the median of its rows; + is slower",
        keys=("node",),
        blocks=(tuple(sorts), ("rows beyond", "of", "verdict", "differs in")),
        rows=tuple(
            (
                Cell(clean(node.name)),
                *(cell(node, what) for what in sorts),
                Cell(str(sum(each.beyond for each in node.standings.values()))),
                Cell(str(sum(each.rows for each in node.standings.values()))),
                Cell("outlier", style="bold red") if node.outlying else Cell("alike"),
                Cell("; ".join(node.differences) or "-"),
            )
            for node in made.nodes
        ),
        notes=tuple(conclusions(made)),
        left=frozenset({"verdict", "differs in"}),
    )
