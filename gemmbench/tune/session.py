"""A tuner from its first look at the shipped preset to the finals, row by row onto the disk."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from types import TracebackType

from gemmbench.ladder.variant import Variant
from gemmbench.measure.child import Worker
from gemmbench.model import units
from gemmbench.model.case import Case, Policy, Skip, Started
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Parameters, Problem, Row, RowKey, Status
from gemmbench.model.run_file import BusyError, Header, Run, RunFile, RunFileError
from gemmbench.model.units import reason_of
from gemmbench.tune import result as facts
from gemmbench.tune import space as rules
from gemmbench.tune.result import TRIAL, Attempt, Retimed, Retiming, Searching, Tell, Tried
from gemmbench.tune.search import Hooks, search

Measure = Callable[[Case, Policy], Row]
Ahead = Callable[[Sequence[Case]], None]  # gets what will probably be measured next


@dataclass(frozen=True)
class Task:
    """What to tune, and how long."""

    device: DeviceFacts
    variant: Variant
    problems: tuple[Gemm, ...]  # of the search, of one data type
    space: rules.Space
    strategy: str
    seed: int
    budget_s: float
    time_limit_s: float  # of a row


def measured_by(worker: Worker, device: DeviceFacts, tell: Tell = lambda _: None) -> Measure:
    """A function that measures with a worker, and reports its stages."""

    def measure(case: Case, policy: Policy) -> Row:
        steps = worker.run(case, device, policy)
        while True:
            try:
                tell(next(steps))
            except StopIteration as end:
                row: Row = end.value
                return row

    return measure


def tune(
    task: Task,
    measure: Measure,
    cache: Cache,
    tell: Tell,
    ahead: Ahead = lambda _: None,
    clock: Callable[[], float] = time.monotonic,
) -> None:
    """Search, then time the best few again; the results are in the cache.

    Args:
        task: what to tune.
        measure: verifies and measures a case; has a row to return whatever happens.
        cache: where rows go; those of the search that it holds are not measured again.
        tell: gets each event.
        ahead: gets what will probably be measured next.
        clock: seconds; replaced in tests.

    Raises:
        RunFileError: a row cannot be written; the rows before it are safe.
    """
    session = _Session(task, measure, cache, tell, ahead, clock)
    session.search()
    session.finals()


class _Session:
    def __init__(
        self,
        task: Task,
        measure: Measure,
        cache: Cache,
        tell: Tell,
        ahead: Ahead,
        clock: Callable[[], float],
    ) -> None:
        self._task, self._measure, self._cache, self._tell = task, measure, cache, tell
        self._ahead, self._clock = ahead, clock
        self._default_s: dict[Gemm, float | None] = dict.fromkeys(task.problems)
        self._tried = 0
        self._took: list[float] = []  # seconds of each attempt that was measured in this call

    def search(self) -> None:
        """The shipped preset, then whatever the strategy asks for until its share of the budget is spent."""
        task = self._task
        sample_s, search_s = rules.shares_s(task.budget_s)
        begin = self._clock()
        self._check_source()
        self._tell(Searching(len(task.space.configurations), self._cache.recalled, search_s))
        default = self._attempt(task.space.default)
        for problem, row in zip(task.problems, default.rows, strict=False):
            self._default_s[problem] = facts.median_s(row)

        def cost(parameters: dict[str, int]) -> float | None:
            attempt = default if parameters == task.space.default else self._attempt(parameters)
            return None if attempt.rate is None else 1 / attempt.rate

        hooks = Hooks(
            cost,
            sampled=lambda: self._clock() - begin > sample_s,
            over=lambda: self._clock() - begin > search_s,
            ahead=self._announce,
        )
        search(task.space, task.strategy, task.seed, hooks)
        self._ahead(())

    def finals(self) -> None:
        """The best few beside the shipped preset, then the winner and it in turns, on other sizes too."""
        task = self._task
        outcome = facts.result(self._cache.run())
        if not outcome.ranked:
            return
        shipped = outcome.attempts[0]
        top = [attempt for attempt in outcome.ranked if attempt is not shipped][: rules.FINALISTS]
        if not top:
            return
        expected_s = facts.median_s((shipped if shipped.rate else top[0]).rows[0]) or 0.0
        overhead_s = sum(self._took) / len(self._took) / len(task.problems) if self._took else 0.0
        plan = rules.finals(task.budget_s, task.time_limit_s, task.problems, expected_s, overhead_s)
        self._tell(Retiming((len(top) + 1) * len(task.problems)))
        entrants = [attempt.parameters for attempt in ([shipped, *top] if shipped.rate else top)]
        for problem in task.problems:
            for parameters in entrants:
                self._retime(problem, parameters, facts.FINALIST, plan.policy)
        winner = facts.result(self._cache.run()).winner
        if winner is None or not shipped.rate:
            return
        problems = (*task.problems, *plan.others)
        self._tell(Retiming(2 * rules.ROUNDS * len(problems)))
        for number in range(1, rules.ROUNDS + 1):
            sides = [shipped.parameters, winner]
            for problem in problems:
                for parameters in sides if number % 2 else sides[::-1]:
                    self._retime(problem, parameters, facts.round_phase(number), plan.policy)
        for problem in plan.left_out:
            step = self._case(problem, winner, facts.round_phase(1))
            left_out = (
                step.row if isinstance(step, Skip) else step.row("skipped", "--budget left no time for it")
            )
            self._cache.append(left_out)

    def _check_source(self) -> None:
        """The first row is always the shipped preset's.

        Raises:
            RunFileError: the file's rows are of other kernels.
        """
        step = self._case(self._task.problems[0], self._task.space.default)
        source = step.row.source if isinstance(step, Skip) else step.source
        if any(row.source not in ("", source) for row in self._cache.rows[:1]):
            raise RunFileError(
                f"{self._cache.path}: its rows are of other kernel sources than today's; --force drops them, "
                "or give --cache another file"
            )

    def _attempt(self, parameters: Mapping[str, int]) -> Attempt:
        """One configuration on every problem, up to the first that it fails on."""
        self._tried += 1
        rows: list[Row] = []
        begin, recalled = self._clock(), True
        for problem in self._task.problems:
            policy = rules.look(self._task.budget_s, self._task.time_limit_s, self._default_s[problem])
            step = self._case(problem, parameters)
            known = self._cache.find(step.row.key if isinstance(step, Skip) else step.key)
            if known is None:
                recalled = False
                known = _without_advice(self._run(step, policy), self._default_s[problem])
                self._cache.append(known)
            rows.append(known)
            if known.status != "ok":
                break
        if not recalled:
            self._took.append(self._clock() - begin)
        attempt = Attempt(self._tried, dict(parameters), tuple(rows))
        self._tell(Tried(attempt, recalled))
        return attempt

    def _retime(self, problem: Gemm, parameters: Parameters, phase: str, policy: Policy) -> None:
        row = self._run(self._case(problem, parameters, phase), policy)
        self._cache.append(row)
        self._tell(Retimed(row))

    def _case(
        self, problem: Gemm, parameters: Mapping[str, int | float | str], phase: str = facts.TRIAL
    ) -> Case | Skip:
        chosen = {name: int(value) for name, value in parameters.items()}
        return rules.case(self._task.device, self._task.variant, problem, chosen, phase)

    def _run(self, step: Case | Skip, policy: Policy) -> Row:
        if isinstance(step, Skip):
            return step.row
        self._tell(Started(self._tried, step.label))
        row = self._measure(step, policy)
        if row.status == "skipped" and step.parameters == self._task.space.default:
            row = self._measure(step, rules.patient(self._task.budget_s, self._task.time_limit_s))
        return row

    def _announce(self, configurations: Sequence[Mapping[str, int]]) -> None:
        steps = (self._case(self._task.problems[0], configuration) for configuration in configurations)
        self._ahead([step for step in steps if isinstance(step, Case)])


def _without_advice(row: Row, default_s: float | None) -> Row:
    """A skipped row's advice is for the --budget of other commands."""
    if row.needs_s is None:
        return row
    why = "far slower than the shipped preset" if default_s else "longer than a look at this --budget"
    return replace(row, reason=f"would take about {units.seconds(row.needs_s)}: {why}, so not timed")


# --- The rows of a tuner on disk: a saved run that one tuner at a time goes on with -------------------------


_PASSING: tuple[Status, ...] = ("skipped", "crashed", "timed-out")  # what may be otherwise in another call


class Cache:
    """A tuner's file, locked against other tuners until it is closed or its process is gone.

    Attributes:
        path: of the file.
        rows: all that it holds, in the order of measuring.

    Raises:
        RunFileError: another tuner has it, it is of another kernel, device or problem, or cannot be written.
    """

    def __init__(self, path: Path, header: Header, fresh: bool = False) -> None:
        self.path = path
        self._header = header
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self._file = RunFile.create(path, header, force=True) if fresh else RunFile.resume(path, header)
        except BusyError:
            raise RunFileError(
                f"another tuner is at work on {path}; wait for it, or give --cache another file"
            ) from None
        except OSError as error:
            raise RunFileError(f"cannot write {path}: {reason_of(error)}") from None
        self.rows: list[Row] = []
        self._searched: dict[RowKey, Row] = {}
        self._timed: set[Problem | None] = set()  # where the shipped preset has a time
        for row in self._file.done:
            self._know(row)
        self.recalled = len(self._searched)

    def find(self, key: RowKey) -> Row | None:
        """The search's row of a case; None if it is to be measured."""
        return self._searched.get(key)

    def append(self, row: Row) -> None:
        """Add a row, and put it on the disk."""
        self._file.append(row)
        self._know(row)

    def _know(self, row: Row) -> None:
        """Take a row in, and remember it if another call would find the same.

        What was skipped is far slower than the shipped preset where that has a time; elsewhere it wants a
        larger budget. The shipped preset, which all is held against, is worth another try.
        """
        self.rows.append(row)
        if row.phase != TRIAL:
            return
        if row.parameters == self.rows[0].parameters:  # the first attempt is always the shipped preset
            if row.status == "ok":
                self._timed.add(row.problem)
            lasts = row.status not in _PASSING
        else:
            lasts = row.status != "skipped" or row.problem in self._timed
        if lasts:
            self._searched[row.key] = row

    def run(self) -> Run:
        """What there is so far."""
        return Run(self._header, tuple(self.rows), str(self.path))

    def close(self) -> None:
        """Close the file, and let other tuners have it."""
        self._file.close()

    def __enter__(self) -> Cache:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


# --- Children that compile ahead: when a configuration's turn comes, the driver has it in its cache ---------
# Compiling is most of what a configuration costs on a GPU, and the host's other cores are idle meanwhile.


_PATIENCE_S = 10.0  # for children to end


class Builders:
    """A few children that build cases; whatever happens to them, the case is measured all the same.

    Attributes:
        threads: one for each child.
    """

    def __init__(self, make: Callable[[], Worker], count: int, device: DeviceFacts, policy: Policy) -> None:
        self._device, self._policy = device, policy
        self._waiting: deque[Case] = deque()
        self._seen: set[str] = set()  # fingerprints of what was built
        self._news = threading.Condition()
        self._closed = False
        self._workers = [make() for _ in range(count)]
        self.threads = [
            threading.Thread(target=self._serve, args=(worker,), daemon=True) for worker in self._workers
        ]
        for thread in self.threads:
            thread.start()

    def want(self, cases: Sequence[Case]) -> None:
        """Build these, in this order, instead of what still waits."""
        with self._news:
            self._waiting = deque(case for case in cases if case.source not in self._seen)
            self._news.notify_all()

    def close(self) -> None:
        """End the children, at once."""
        with self._news:
            self._closed = True
            self._news.notify_all()
        end = time.monotonic() + _PATIENCE_S
        for worker, thread in zip(self._workers, self.threads, strict=True):
            while thread.is_alive() and time.monotonic() < end:
                worker.kill()  # again, should it have been about to start
                thread.join(0.1)

    def _serve(self, worker: Worker) -> None:
        with worker:
            while (case := self._next()) is not None:
                worker.inspect(case, self._device, self._policy)

    def _next(self) -> Case | None:
        with self._news:
            self._news.wait_for(lambda: self._closed or self._waiting)
            if self._closed:
                return None
            case = self._waiting.popleft()
            self._seen.add(case.source)
            return case

    def __enter__(self) -> Builders:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
