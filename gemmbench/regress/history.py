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

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from statistics import median

import numpy as np

from gemmbench.model.row import Row, RowKey, moment
from gemmbench.model.run_file import Run, RunFileError
from gemmbench.regress import verdict as floors
from gemmbench.regress.baseline import Basis, Rules, repetitions
from gemmbench.regress.compare import title
from gemmbench.regress.verdict import Judgement, Noise, judge
from gemmbench.stats.intervals import Measure, mean
from gemmbench.stats.rates import work

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
