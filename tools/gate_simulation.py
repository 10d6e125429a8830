"""The gate held against recorded noise: ``gemmbench check`` as it is, with a replay as its machine.

A recording is an A/A measurement: one machine, the same cases many times, nothing changed. A trial takes some
of its runs as the base and replays the others to `checking.check`, run by run; within a run each measurement
draws its batches anew, in blocks, so that neighbours stay neighbours. A planted slowdown multiplies the
samples of one row. Everything that decides is the shipped code.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypeVar, cast

import numpy as np

from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.instrument import Handle, NotMeasuredError
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row, RowKey, Scope
from gemmbench.model.run_file import Run, load
from gemmbench.options.rules import MOST_ROUNDS, Rules, Thresholds
from gemmbench.regress import check
from gemmbench.regress.baseline import Basis, pairing, repetitions
from gemmbench.regress.compare import Comparison, compare

SEED = 20261121
LIBRARIES = ("numpy", "cublas")  # never made slower
Command = Literal["compare", "check"]
REDRAWN = 6  # sets of batches for each recorded row: more would only cost time
MOST_BASES = 5

_T = TypeVar("_T")


@dataclass(frozen=True, eq=False)
class Recording:
    """Runs of the same cases on one machine, in the order in which they were made."""

    name: str
    run: Run

    @cached_property
    def rows(self) -> dict[RowKey, tuple[Row, ...]]:
        """By case, its row of every run."""
        every = repetitions(self.run, self.run.header)
        return {key: tuple(each.rows[key] for each in every) for key in every[0].rows}

    @property
    def runs(self) -> int:
        """How many there are."""
        return len(next(iter(self.rows.values())))

    @property
    def bases(self) -> int:
        """Runs of a trial's base: at most half of what there is, since the new run takes the others."""
        return min(MOST_BASES, self.runs // 2)

    @cached_property
    def redrawn(self) -> dict[tuple[RowKey, int, int], Row]:
        """By case, run and number: the row with batches drawn anew from its own."""
        draw = np.random.default_rng(1)
        return {
            (key, place, number): _resampled(row, draw)
            for key, rows in self.rows.items()
            for place, row in enumerate(rows)
            for number in range(REDRAWN)
        }

    def plan(self, keys: Iterable[RowKey]) -> tuple[Case, ...]:
        """The cases of some rows."""
        return tuple(_case(self.rows[key][0]) for key in keys)


def recorded(path: Path) -> Recording:
    """Read a recording; its name is the file's."""
    return Recording(path.stem, load(path))


def _case(row: Row) -> Case:
    assert row.problem is not None  # of every gemm row that was loaded
    problem = row.problem
    gemm = Gemm(problem.m, problem.n, problem.k, row.dtype, problem.alpha, problem.beta)
    case = Case(row.kind, row.device, row.variant, row.dtype, row.parameters, gemm, row.source)
    return replace(case, given=row.given)


def _resampled(row: Row, draw: np.random.Generator) -> Row:
    """Moving blocks, as long as the root of the number of batches: what they share with a neighbour stays."""
    return _with_samples(row, lambda seconds: tuple(seconds[_blocks(len(seconds), draw)].tolist()))


def _blocks(count: int, draw: np.random.Generator) -> np.ndarray:
    length = max(1, round(count**0.5))
    starts = draw.integers(0, count - length + 1, size=-(-count // length))
    return cast(np.ndarray, (starts[:, None] + np.arange(length)).ravel()[:count])


def _with_samples(row: Row, change: Any) -> Row:
    samples: dict[str, Scope] = {
        name: replace(scope, seconds=change(np.array(scope.seconds))) for name, scope in row.samples.items()
    }
    return replace(row, samples=samples)


def _slowed(row: Row, factor: float) -> Row:
    return _with_samples(row, lambda seconds: tuple((seconds * factor).tolist()))


@dataclass
class Replay:
    """In the place of the worker: what it measures was recorded. A new process is the next recorded run."""

    recording: Recording
    places: Sequence[int]  # of the recorded runs, in the order of their turns; then again from the first
    draw: np.random.Generator
    slow: Mapping[RowKey, float] = field(default_factory=dict)  # 1.05: takes 5 % longer
    redraws: bool = True  # or a run measured twice gives the recorded batches again
    turn: int = 0

    def stop(self) -> None:
        """See `measure.child.Worker`."""
        self.turn += 1

    def limit(self, seconds: float) -> None:
        """See `measure.child.Worker`."""

    def prepare(self, *_: object) -> Handle:
        """There are no control bursts."""
        raise NotMeasuredError("unsupported", "nothing runs")

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Any, None, Row]:
        """See `measure.child.Worker`."""
        yield from ()
        return self.measured(pairing(case, case.device))

    def measured(self, key: RowKey) -> Row:
        """A row of the current run."""
        place = self.places[self.turn % len(self.places)]
        row = self.recording.rows[key][place]
        if self.redraws:
            row = self.recording.redrawn[key, place, int(self.draw.integers(REDRAWN))]
        factor = self.slow.get(key, 1.0)
        return row if factor == 1 else _slowed(row, factor)


@dataclass(frozen=True)
class Setting:
    """How the gate is set."""

    threshold: float
    in_turn: bool = False  # as --against

    @property
    def rules(self) -> Rules:
        """For a comparison."""
        return Rules(Thresholds(self.threshold), in_turn=self.in_turn, rounds=MOST_ROUNDS)


@dataclass
class Tally:
    """What became of rows, trial after trial."""

    trials: int = 0
    planted: Counter[str] = field(default_factory=Counter)  # verdicts of the row that was made slower
    others: Counter[str] = field(default_factory=Counter)  # of those that were not

    def add(self, made: Comparison, planted: RowKey | None) -> None:
        """One more trial."""
        self.trials += 1
        for line in made.lines:
            if line.key == planted:
                self.planted[line.verdict] += 1
            elif line.judgement is not None:
                self.others[line.verdict] += 1


def plantable(recording: Recording) -> list[RowKey]:
    """The rows that may be made slower: a device's own kernels."""
    return [key for key in recording.rows if key[1] != HOST and key[2] not in LIBRARIES]


def simulate(
    recording: Recording,
    setting: Setting,
    slow: float,
    trials: int,
    seed: int,
) -> Tally:
    """So many jobs of ``gemmbench check``, each with one row made slower.

    Args:
        recording: the noise.
        setting: of the gate.
        slow: 0.05: the row takes 5 % longer; 0: nothing is planted.
        trials: jobs.
        seed: of all that is drawn.
    """
    draw = np.random.default_rng([seed, round(slow * 1e4), round(setting.threshold * 1e4)])
    tally = Tally()
    candidates = plantable(recording)
    for number in range(trials):
        planted = candidates[(number + seed) % len(candidates)] if slow else None
        tally.add(_job(recording, setting, {planted: 1 + slow} if planted else {}, draw), planted)
    return tally


def unchanged(
    recording: Recording,
    setting: Setting,
    bases: int,
    command: Command,
    most: int | None = None,
    slow: float = 0.0,
) -> tuple[int, int]:
    """How many jobs fail (exit status 1), of how many: each run in turn begins the base, and the new runs.

    Args:
        recording: the noise.
        setting: of the gate.
        bases: runs of the base, neighbours.
        command: ``compare`` or ``check``, whose second looks are replayed; the recorded runs as they are.
        most: so many jobs of them, evenly spread; None: all.
        slow: 1.0: one row, in each job another, takes twice as long; a job then counts if that row is found.
    """
    pairs = [(base, new) for base in range(recording.runs) for new in range(recording.runs - bases)]
    chosen = [pairs[number * len(pairs) // most] for number in range(most)] if most else pairs
    draw = np.random.default_rng(SEED)
    candidates = plantable(recording)
    failed = 0
    for number, (start, first) in enumerate(chosen):
        planted = candidates[number % len(candidates)] if slow else None
        factors = {planted: 1 + slow} if planted else {}
        if command == "compare":
            made = compared(recording, setting, factors, start, first, bases)
        else:
            made = _job(recording, setting, factors, draw, start, first, bases, redraws=False)
        failed += any(line.fails and planted in (None, line.key) for line in made.lines)
    return failed, len(chosen)


def compared(
    recording: Recording,
    setting: Setting,
    slow: Mapping[RowKey, float],
    start: int,
    first: int,
    bases: int,
) -> Comparison:
    """One recorded run held against others, all of them as they are but for what is planted."""
    order = [(start + step) % recording.runs for step in range(recording.runs)]

    def run(index: int, factors: Mapping[RowKey, float]) -> Run:
        rows = [
            _slowed(rows[index], factors[key]) if key in factors else rows[index]
            for key, rows in recording.rows.items()
        ]
        return replace(recording.run, rows=tuple(rows))

    before = [run(index, {}) for index in order[:bases]]
    return compare(before, [run(order[bases + first], slow)], replace(setting.rules, rounds=0))


def _job(
    recording: Recording,
    setting: Setting,
    slow: Mapping[RowKey, float],
    draw: np.random.Generator,
    start: int | None = None,
    first: int | None = None,
    count: int | None = None,
    redraws: bool = True,
) -> Comparison:
    """Neighbouring runs are the base; those after them, which it knows nothing of, are replayed as new."""
    count = recording.bases if count is None else count
    start = int(draw.integers(recording.runs)) if start is None else start
    order = [(start + step) % recording.runs for step in range(recording.runs)]
    base, rest = order[:count], order[count:]
    first = int(draw.integers(len(rest))) if first is None else first
    before = Replay(recording, base, draw, {}, redraws)
    bases = []
    for _ in base:
        bases.append(replace(recording.run, rows=tuple(before.measured(key) for key in recording.rows)))
        before.stop()
    basis = Basis(tuple(bases), setting.rules)
    after = Replay(recording, rest[first:] + rest[:first], draw, slow, redraws)
    header = recording.run.header
    plan = recording.plan(recording.rows)
    job = check.Job(basis, plan, header, header.policy, cast(Worker, after), clock=lambda: 0.0)
    return result_of(check.check(job))


def result_of(steps: Generator[Any, None, _T]) -> _T:
    """Let a generator run to its end; what it returns."""
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return cast(_T, ended.value)
