"""The gate on this machine, ``check --against`` a checkout: nothing changed, and more work planted.

Each job's rows are measured in turn with those of another checkout, in two processes. What was measured once
is judged at several thresholds: a `Recorder` gives it again, and measures only what a stricter verdict wants
more of. Jobs of several processes, each on cores of its own, are put together afterwards.
"""

from __future__ import annotations

import contextlib
import math
import os
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import msgspec

from gemmbench import __version__
from gemmbench.ladder import BY_NAME
from gemmbench.measure import machine
from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.model.run_file import SCHEMA_VERSION, Header, Run
from gemmbench.regress import check as checking
from gemmbench.regress.baseline import Basis, Rules
from gemmbench.regress.compare import Comparison
from gemmbench.regress.gate import MOST_ROUNDS
from gemmbench.regress.verdict import Thresholds
from gemmbench.stats.rates import in_turn
from gemmbench.suite.plan import gemm_plan, select
from tools import planted_machine
from tools.gate_simulation import result_of

ROOT = Path(__file__).resolve().parents[1]
POLICY = Policy(state="settled", time_limit_s=240.0)  # as `check --against` samples by default
_NOTHING = "kernels-0"
_TRIAL = 0.5  # of a loop, to see how much of a kernel's time it is
_LOOKS = 1, 3, 3, 3, 3  # at each kernel, of its first trial and of the next
_CLOSE = 0.1  # to what is wanted, of it: no further trial
PLANTED = {0.1: 0.05, 0.05: 0.025, 0.02: 0.01}  # by slowdown, the threshold that it is to be found at


@dataclass(frozen=True)
class Live:
    """What is measured."""

    device: str  # as --device
    kernels: tuple[str, ...]
    sizes: tuple[int, ...]
    policy: Policy = POLICY


class Judged(msgspec.Struct, frozen=True):
    """What became of a row in a job: a line of a shard's file."""

    where: str  # the device's family
    job: str  # of all rows that were judged together
    threshold: float
    variant: str
    size: int
    planted: float  # 0.05: this row's kernel does 5 % more
    verdict: str
    may_be_slower: bool
    reason: str
    looks: int  # at this row, the first included
    figures: tuple[tuple[float, float, float], ...]  # of each look: logarithm of the ratio, error, freedom


Name = tuple[str, int]
"""Of a row: its variant and size."""


def name_of(row: Row | Case) -> Name:
    """Of a row, or of the case that it is made from."""
    return row.variant, row.problem.m if row.problem else 0


@dataclass
class Recorder:
    """In the place of the worker: gives again what was measured, and measures what is wanted beyond it."""

    worker: Worker
    rows: dict[Name, list[Row]] = field(default_factory=dict)
    only: frozenset[Name] | None = None  # that are measured; None: all
    turns: Counter[Name] = field(default_factory=Counter)
    is_fresh: bool = False

    def again(self) -> Recorder:
        """The same from its first row on, as for another threshold."""
        self.turns.clear()
        return self

    def stop(self) -> None:
        """See `measure.child.Worker`: before the next measurement, if there is any."""
        self.is_fresh = True

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Any, None, Row]:
        """See `measure.child.Worker`."""
        name = name_of(case)
        rows, turn = self.rows.setdefault(name, []), self.turns[name]
        self.turns[name] += 1
        if turn >= len(rows):
            if self.only is not None and name not in self.only:
                return case.row("skipped", "not recorded so often")
            if self.is_fresh:
                self.worker.stop()
            self.is_fresh = False
            begin = time.monotonic()
            rows.append((yield from self.worker.run(case, device, policy)))
            took_s = time.monotonic() - begin
            print(f"{took_s:5.1f} s  {case.label} {rows[-1].status}", file=sys.stderr, flush=True)
        return rows[turn]


@dataclass(frozen=True)
class Bench:
    """Cases and header of this machine, and a second checkout."""

    live: Live
    header: Header
    plan: tuple[Case, ...]
    checkout: Path  # another path to this one's files, but for its kernels

    @property
    def where(self) -> str:
        """The kind of device."""
        return self.header.devices[0].family

    def planted(self, slow: float, size: int) -> Path:
        """Kernels that take so much longer at one size, by trials: a loop is not all of its time."""
        kernels = self.checkout.parent / f"kernels-{slow}-{size}"
        if not kernels.exists():
            shares = dict.fromkeys(planted_machine.PLANTS, _TRIAL)
            closest: dict[str, tuple[float, float]] = {}  # how far off it was, and the share
            for looks in _LOOKS:
                took = self._tried(shares, size, looks)
                print(f"planted at {size}: {took}", file=sys.stderr, flush=True)
                for name, each in took.items():
                    off = abs(each / slow - 1), shares[name]
                    closest[name] = min(off, closest.get(name, off))
                    shares[name] *= 1 if off[0] < _CLOSE else slow / each
                if all(off < _CLOSE for off, _ in closest.values()):
                    break
            shares = {name: share for name, (_, share) in closest.items()}
            planted_machine.plant(kernels, shares)
        return kernels

    def _tried(self, shares: Mapping[str, float], size: int, looks: int) -> dict[str, float]:
        """By variant, how much longer it takes with such shares more of its loop; half of them at least.

        Each look is a process's own, as in a job.
        """
        kernels = Path(tempfile.mkdtemp(dir=self.checkout.parent)) / "kernels"
        planted_machine.plant(kernels, shares)
        steps = [step for step in self.plan if step.variant in shares and name_of(step)[1] == size]
        values: dict[str, list[float]] = {
            step.variant: [math.log1p(shares[step.variant] / 2)] for step in steps
        }
        with _worker(self, kernels) as worker:
            for _ in range(looks):
                worker.stop()
                for step in steps:
                    figure = in_turn(result_of(worker.run(step, self.header.devices[0], self.live.policy)))
                    if figure:
                        values[step.variant].append(figure.value)
        return {
            name: math.expm1(max(values[name][0], median(values[name][1:] or values[name])))
            for name in values
        }

    def job(self, plan: Sequence[Case], recorder: Recorder, rules: Rules, before: Run) -> checking.Job:
        """A job of ``check --against``."""
        basis = Basis((before,), rules)
        policy = self.live.policy
        return checking.Job(basis, tuple(plan), self.header, policy, recorder)  # type: ignore[arg-type]  # for a Worker

    def first(self, recorder: Recorder) -> Run:
        """Every row once: of this checkout at any time, and so a base."""
        job = self.job(self.plan, recorder, Rules(), Run(self.header, ()))
        result_of(checking.once(job))
        return job.run

    def judged(self, recorder: Recorder, before: Run, threshold: float) -> Comparison:
        """One job, its rows as they were recorded."""
        rules = Rules(Thresholds(threshold), in_turn=True, rounds=MOST_ROUNDS, across=frozenset({"source"}))
        return result_of(checking.check(self.job(self.plan, recorder.again(), rules, before)))


def _worker(bench: Bench, kernels: Path) -> Worker:
    """Two processes: one with other kernels, and one with the same texts, in which nothing is planted."""
    folder = bench.checkout.parent
    sides = kernels, folder / _NOTHING, bench.checkout, folder / "cache"
    return Worker(partial(planted_machine.make, *map(str, sides)))


@contextlib.contextmanager
def bench(live: Live, folder: Path) -> Iterator[Bench]:
    """Look at the machine, and lay out the second checkout in a folder.

    Raises:
        WorkerError: the devices could not be listed.
        SelectionError: there is no such device.
    """
    with Worker(machine.default) as worker:
        found, host = worker.devices()
    devices = select(found, live.device)[:1]
    checkout = folder / "checkout"
    checkout.mkdir()
    for name in ("gemmbench", "kernels"):
        (checkout / name).symlink_to(ROOT / name)
    planted_machine.plant(folder / _NOTHING, dict.fromkeys(planted_machine.PLANTS, planted_machine.NOTHING))
    chosen = [BY_NAME[name] for name in live.kernels]
    plan = gemm_plan(devices, chosen, [Gemm(size, size, size) for size in live.sizes])
    cases = tuple(replace(step, former=str(checkout)) for step in plan if isinstance(step, Case))
    header = Header(SCHEMA_VERSION, __version__, ("gate_proof.py",), "", devices, host, live.policy)
    yield Bench(live, header, cases, checkout)


def unchanged(
    bench: Bench, name: str, thresholds: Sequence[float]
) -> Generator[Judged, None, tuple[Recorder, Run]]:
    """A job in which nothing has changed, judged at several thresholds; returns what it measured."""
    with Worker(partial(machine.caching, str(bench.checkout.parent / "cache"))) as worker:
        recorder = Recorder(worker)
        before = bench.first(recorder)
        for threshold in thresholds:
            made = bench.judged(recorder, before, threshold)
            yield from _lines(bench, name, made, recorder, threshold, {})
    return recorder, before


def planted(bench: Bench, name: str, slow: float, size: int, recorded: Recorder, before: Run) -> list[Judged]:
    """A job in which the kernels of `planted_machine.PLANTS` do more work at one size.

    Beside them are the rows of an unchanged job as they were recorded. They are measured in turn with the
    same text that has no turn more.
    """
    chosen = {
        name_of(step): slow
        for step in bench.plan
        if step.variant in planted_machine.PLANTS and name_of(step)[1] == size
    }
    with _worker(bench, bench.planted(slow, size)) as worker:
        rows = {key: list(rows) for key, rows in recorded.rows.items() if key not in chosen}
        recorder = Recorder(worker, rows, frozenset(chosen), is_fresh=True)
        threshold = PLANTED[slow]
        made = bench.judged(recorder, before, threshold)
        lines = _lines(bench, name, made, recorder, threshold, chosen)
    return [line for line in lines if line.planted]


def _lines(
    bench: Bench,
    name: str,
    made: Comparison,
    recorder: Recorder,
    threshold: float,
    planted: dict[Name, float],
) -> Iterator[Judged]:
    for line in made.lines:
        row = name_of(line.row)
        rows = recorder.rows[row][: recorder.turns[row]]
        figures = [figure for row in rows if (figure := in_turn(row)) is not None]
        yield Judged(
            bench.where,
            name,
            threshold,
            *row,
            planted.get(row, 0.0),
            line.verdict,
            line.open,
            line.reason,
            len(rows),
            tuple((round(one.value, 6), round(one.error, 6), round(one.freedom, 1)) for one in figures),
        )


def jobs(
    bench: Bench,
    seconds: float,
    number: int,
    thresholds: Sequence[float],
    slows: Sequence[float],
    most: int,
) -> Iterator[Judged]:
    """Unchanged jobs, each followed by planted ones beside its rows, until the time is over.

    Args:
        bench: what is measured.
        seconds: none begins later.
        number: of this shard; which size is planted first.
        thresholds: of the unchanged rows.
        slows: of `PLANTED`; none: unchanged jobs alone.
        most: planted jobs for each unchanged one.
    """
    end = time.monotonic() + seconds
    trials = [(slow, size) for size in bench.live.sizes for slow in slows]
    turn, count = number, 0
    while time.monotonic() < end:
        name = f"{os.uname().nodename}-{number}-{count}"
        recorded, before = yield from unchanged(bench, name, thresholds)
        for _ in range(most if trials else 0):
            if time.monotonic() > end:
                break
            slow, size = trials[turn % len(trials)]
            yield from planted(bench, f"{name}-{turn}", slow, size, recorded, before)
            turn += 1
        count += 1
