"""Live rows judged again: a row's later looks are other processes' figures of the same kernel and size.

So every unchanged row that was recorded is a trial of any slowdown at any threshold, by the shipped code: a
slowdown is added to the logarithms of one row's figures. The looks that a row had in its own job are left
out, since rows were looked at again for being slow.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import numpy as np

from gemmbench.ladder import BY_NAME
from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Partner, Row, Scope
from gemmbench.model.run_file import Header, Run, load
from gemmbench.regress import check
from gemmbench.regress.baseline import Basis, Rules
from gemmbench.regress.gate import MOST_ROUNDS
from gemmbench.regress.verdict import Thresholds
from gemmbench.stats.intervals import Measure
from gemmbench.suite.plan import gemm_plan
from tools.gate_live import POLICY, Judged, Name, name_of
from tools.gate_simulation import result_of

Figure = tuple[float, float, float]  # as of `Judged.figures`
_A_RUN = Path(__file__).resolve().parents[1] / "tests" / "data" / "aa" / "cpu-intel.jsonl"  # for its header
_SCOPE = {"kernel": Scope((1e-3,), 1, "stable")}


class _Figured(Rules):
    """Rules that take a row's figure from its notes."""

    def measured(self, row: Row) -> Measure | None:
        """See `Rules`."""
        return Measure(*map(float, row.notes)) if row.notes else None


@dataclass
class _Replay:
    """In the place of the worker: each look at a row is its next figure."""

    figures: dict[Name, list[Figure]]
    turns: dict[Name, int] = field(default_factory=lambda: defaultdict(int))

    def stop(self) -> None:
        """See `measure.child.Worker`."""

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Any, None, Row]:
        """See `measure.child.Worker`."""
        yield from ()
        name = name_of(case)
        turn, figures = self.turns[name], self.figures[name]
        self.turns[name] += 1
        return _row(case, figures[min(turn, len(figures) - 1)])


def _row(case: Case, figure: Figure) -> Row:
    partner = Partner(case.source, _SCOPE)
    return replace(case.row("ok"), samples=_SCOPE, former=partner, notes=tuple(map(str, figure)))


@dataclass(frozen=True)
class Recorded:
    """The unchanged jobs of one machine, by name the first figure of each row."""

    jobs: dict[str, dict[Name, Figure]]
    where: str

    @classmethod
    def of(cls, lines: Sequence[Judged]) -> Recorded:
        """From the lines of shards."""
        jobs: dict[str, dict[Name, Figure]] = defaultdict(dict)
        for line in lines:
            if not line.planted and line.figures:
                jobs[line.job][line.variant, line.size] = line.figures[0]
        return cls(dict(jobs), lines[0].where if lines else "")

    def judged(
        self, threshold: float, slow: float, seed: int = 1, planted: Sequence[str] = ()
    ) -> list[Judged]:
        """Every job at a threshold: as it is, or once with each of its rows slower.

        Args:
            threshold: of the gate.
            slow: 0.05: 5 % is added to the figures of one row; 0: to none.
            seed: of which other jobs' figures are later looks, and in which order.
            planted: variants that are made slower; none: all.
        """
        draw = np.random.default_rng([seed, round(slow * 1e4), round(threshold * 1e4)])
        lines = []
        for job, firsts in self.jobs.items():
            plan = _plan(tuple(firsts))
            slowed = [name for name in firsts if not planted or name[0] in planted] if slow else [None]
            for name in slowed:
                figures = {each: self._looks(job, each, draw) for each in firsts}
                if name is not None:
                    figures[name] = [(value + np.log1p(slow), *rest) for value, *rest in figures[name]]
                lines += self._lines(job, plan, figures, threshold, name, slow)
        return lines

    def _looks(self, job: str, name: Name, draw: np.random.Generator) -> list[Figure]:
        others = [figures[name] for other, figures in self.jobs.items() if other != job and name in figures]
        return [
            self.jobs[job][name],
            *(others[place] for place in draw.permutation(len(others))[:MOST_ROUNDS]),
        ]

    def _lines(
        self,
        job: str,
        plan: tuple[Case, ...],
        figures: dict[Name, list[Figure]],
        threshold: float,
        planted: Name | None,
        slow: float,
    ) -> list[Judged]:
        rules = _Figured(Thresholds(threshold), in_turn=True, rounds=MOST_ROUNDS)
        replay = _Replay(figures)
        before = Run(_header(), tuple(_row(case, figures[name_of(case)][0]) for case in plan))
        basis = Basis((before,), rules)
        made = result_of(check.check(check.Job(basis, plan, before.header, POLICY, cast(Worker, replay))))
        lines = []
        for line in made.lines:
            name = name_of(line.row)
            if planted in (None, name):
                looks = replay.turns[name]
                kept = tuple(figures[name][:looks])
                lines.append(
                    Judged(
                        self.where,
                        job,
                        threshold,
                        *name,
                        slow,
                        line.verdict,
                        line.open,
                        line.reason,
                        looks,
                        kept,
                    )
                )
        return lines


def _header() -> Header:
    return load(_A_RUN).header


def _plan(names: Sequence[Name]) -> tuple[Case, ...]:
    devices = _header().devices
    steps = [
        step
        for variant, size in names
        for step in gemm_plan(devices, [BY_NAME[variant]], [Gemm(size, size, size)])
    ]
    return tuple(replace(step, former="/") for step in steps if isinstance(step, Case))
