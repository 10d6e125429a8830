"""A tuner from its first look at the shipped preset to the finals, row by row onto the disk."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmbench.facts import tuning as facts
from gemmbench.facts import units
from gemmbench.facts.events import Started
from gemmbench.facts.problem import Gemm
from gemmbench.facts.records import DeviceFacts, Parameters, Policy, Row, RunFileError
from gemmbench.facts.tuning import Attempt, Retimed, Retiming, Searching, Tell, Tried
from gemmbench.measure.child import Worker
from gemmbench.rules import tuning as rules
from gemmbench.rules.plan import Case, Skip
from gemmbench.rules.variants import Variant
from gemmbench.tuning.cache import Cache
from gemmbench.tuning.search import Hooks, search

Measure = Callable[[Case, Policy], Row]
Ahead = Callable[[Sequence[Case]], None]  # told what will probably be measured next


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
    """A worker as what measures; its stages are told."""

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
    """Search, then time the best few again; all that comes of it is in the cache.

    Args:
        task: what to tune.
        measure: verifies and measures a case; has a row to return whatever happens.
        cache: where rows go; those of the search that it holds are not measured again.
        tell: told what happens.
        ahead: told what will probably be measured next.
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
        found = facts.result(self._cache.run())
        if not found.ranked:
            return
        shipped = found.attempts[0]
        top = [one for one in found.ranked if one is not shipped][: rules.FINALISTS]
        if not top:
            return
        expected_s = facts.median_s((shipped if shipped.rate else top[0]).rows[0]) or 0.0
        overhead_s = sum(self._took) / len(self._took) / len(task.problems) if self._took else 0.0
        plan = rules.finals(task.budget_s, task.time_limit_s, task.problems, expected_s, overhead_s)
        self._tell(Retiming((len(top) + 1) * len(task.problems)))
        entrants = [one.parameters for one in ([shipped, *top] if shipped.rate else top)]
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
        steps = (self._case(self._task.problems[0], one) for one in configurations)
        self._ahead([step for step in steps if isinstance(step, Case)])


def _without_advice(row: Row, default_s: float | None) -> Row:
    """A skipped row's advice is for the --budget of other commands."""
    if row.needs_s is None:
        return row
    why = "far slower than the shipped preset" if default_s else "longer than a look at this --budget"
    return replace(row, reason=f"would take about {units.seconds(row.needs_s)}: {why}, so not timed")
