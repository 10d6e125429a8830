"""Replay recorded runs of unchanged machines (tests/data/aa) through the shipped comparison.

tests/unit/test_replay.py counts how many unchanged jobs fail, and how many slower ones are found. Jobs of
`compare` and `check` use neighbouring runs. Interleaved rows are drawn: see `Interleaved`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

import numpy as np

from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Partner, Row, RowKey, Scope
from gemmbench.model.run_file import Run, load
from gemmbench.regress import check
from gemmbench.regress.compare import BaselineSet, Comparison, compare, match_key, replicates_in
from gemmbench.suite.options.comparing import PATIENCE_S, CheckOptions, Rules
from tests.compare_runs import slowed
from tests.in_process import NoControl

DATA = Path(__file__).resolve().parents[1] / "tests" / "data" / "aa"
LIBRARIES = ("numpy", "cublas")
SEED = 20261121
LOOK_S = 4.0  # for one measurement of a row, with its builds


@dataclass(frozen=True, eq=False)
class Recording:
    """Runs of the same cases on one machine, in the order in which they were measured."""

    name: str
    runs: tuple[Run, ...]

    @cached_property
    def keys(self) -> list[RowKey]:
        """Of the kernels, without libraries."""
        run = self.runs[0]
        return [
            match_key(row, row.device)
            for row in run.rows
            if row.device != HOST and row.variant not in LIBRARIES
        ]


def recorded(path: Path) -> Recording:
    """Read a recording: one run file with every case several times."""
    run = load(path)
    replicates = replicates_in(run, run.header)
    return Recording(path.stem, tuple(replace(run, rows=tuple(each.rows.values())) for each in replicates))


def compare_jobs(recording: Recording, factor: float = 1.0) -> Iterator[Comparison]:
    """Each run compared with the run before it, all of its rows made slower."""
    for old, new in zip(recording.runs, recording.runs[1:], strict=False):
        yield compare([old], [slowed(new, factor)])


def check_jobs(
    recording: Recording, bases: int, rules: Rules | None = None, factor: float = 1.0
) -> Iterator[Comparison]:
    """A check from each run on: `bases` neighbouring runs as baselines, the next ones as its measurements.

    With a factor, one kernel of each job is made slower.
    """
    count = len(recording.runs)
    for start in range(count):
        order = [recording.runs[(start + step) % count] for step in range(count)]
        planted = recording.keys[start % len(recording.keys)] if factor != 1 else None
        news = [slowed(run, factor, planted) if planted else run for run in order[bases:]]
        yield _checked(order[:bases], news, rules or Rules())


def _checked(bases: Sequence[Run], news: Sequence[Run], rules: Rules) -> Comparison:
    worker = Replay([{match_key(row, row.device): row for row in run.rows} for run in news])
    return check_with(worker, bases, rules)


def check_with(
    worker: object,
    bases: Sequence[Run],
    rules: Rules,
    rows: Sequence[Row] = (),
    patience_s: float = PATIENCE_S,
    clock: Callable[[], float] | None = None,
) -> Comparison:
    """What a check says if this worker measures the rows, which are the first base's if none is given."""
    job = check.CheckJob(CheckOptions(), bases)
    job.baseline, job.worker = BaselineSet(tuple(bases), rules), cast(Worker, worker)
    job.header, job.plan = bases[0].header, tuple(map(_case, rows or bases[0].rows))
    job.patience_s, job.clock = patience_s, clock or (lambda: LOOK_S * len(job.rows))
    steps = check.check_rows(job)
    while True:
        try:
            next(steps)
        except StopIteration as ended:
            return cast(Comparison, ended.value)


def _case(row: Row) -> Case:
    problem = row.problem
    assert problem is not None  # in every row of a recording
    gemm = Gemm(problem.m, problem.n, problem.k, row.dtype, problem.alpha, problem.beta)
    case = Case(row.kind, row.device, row.variant, row.dtype, row.parameters, gemm, row.source)
    return replace(case, given=row.given)


class Quiet(NoControl):
    """What every worker here has: no control bursts, no limit."""

    turn = 0

    def stop(self) -> None:
        """Start the next process."""
        self.turn += 1


@dataclass
class Replay(Quiet):
    """A worker whose measurements were recorded. Each new process measures the next run."""

    runs: Sequence[Mapping[RowKey, Row]]

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Any, None, Row]:
        """See `measure.child.Worker`."""
        yield from ()
        return self.runs[self.turn % len(self.runs)][match_key(case, case.device)]


@dataclass
class Interleaved(Quiet):
    """A worker that interleaves each kernel with its old version on a noisy machine.

    Both batches of a pair share the speed of the machine, which drifts. Each has noise of its own, and one
    in twenty is disturbed. What the process draws for a row (addresses, cores) differs between the versions.
    """

    rows: Mapping[RowKey, Row]
    factor: float  # how much longer the new version takes
    spread: float  # standard deviation of a batch, as a fraction
    pairs: int = 40
    process: float = 0.005  # standard deviation from process to process
    draw: np.random.Generator = field(default_factory=lambda: np.random.default_rng(SEED))

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Any, None, Row]:
        """See `measure.child.Worker`."""
        yield from ()
        row = self.rows[match_key(case, case.device)]
        speed = np.exp(np.cumsum(self.draw.normal(0, 0.01, self.pairs)))
        second_in_pair = 1.01  # a batch after another finds the caches in another state
        sides = []
        for factor, order in ((self.factor * np.exp(self.draw.normal(0, self.process)), 0), (1.0, 1)):
            own = np.exp(self.draw.normal(0, self.spread, self.pairs))
            own[self.draw.random(self.pairs) < 0.05] *= 1.3
            place = np.where(np.arange(self.pairs) % 2 == order, 1.0, second_in_pair)
            sides.append(Scope(tuple((1e-3 * factor * speed * own * place).tolist()), 1, "budget"))
        return replace(row, samples={"kernel": sides[0]}, former=Partner("before", {"kernel": sides[1]}))


def interleaved(
    recording: Recording, factor: float, spread: float, threshold: float, jobs: int, pairs: int = 40
) -> Counter[str]:
    """The verdicts of the kernels of a recording, each timed with a version of itself in so many jobs."""
    base = recording.runs[0]
    base = replace(base, rows=tuple(row for row in base.rows if match_key(row, row.device) in recording.keys))
    rows = {match_key(row, row.device): row for row in base.rows}
    worker = Interleaved(rows, factor, spread, pairs)
    rules = Rules(threshold, interleaved=True)
    counts: Counter[str] = Counter()
    for _ in range(jobs):
        counts += check_with(worker, [base], rules).counts
    return counts
