"""A tuning: the search, the finals, the file that holds its rows, and the preset that it saves."""

from __future__ import annotations

import os
import statistics
import tempfile
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import partial
from pathlib import Path

from rich.console import RenderableType
from rich.text import Text

from gemmbench import NothingMeasured, UsageError
from gemmbench.ladder.variant import Variant, laid_out
from gemmbench.measure.child import Worker
from gemmbench.measure.machine import BUILD_CACHE
from gemmbench.model import units
from gemmbench.model.case import Case, Finished, Planned, Policy, Skip, Started, saved_problem
from gemmbench.model.device import DeviceFacts, HostFacts
from gemmbench.model.dtypes import GEMM_DTYPES
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Parameters, Problem, Row, RowKey, Status
from gemmbench.model.run_file import TUNE_VIEW, BusyError, Header, Run, RunFile, RunFileError
from gemmbench.model.units import clean
from gemmbench.report.table import stack, stdout
from gemmbench.suite.cached import Preset, TunedPresets, device_key, source, subfolder
from gemmbench.suite.job import WRONG, Job, Tell, header_of
from gemmbench.suite.options.comparing import TuneOptions
from gemmbench.suite.selection import opened_devices
from gemmbench.suite.session import Control, Listen, drive
from gemmbench.tune import result as facts
from gemmbench.tune import space as rules
from gemmbench.tune.result import TRIAL, Attempt
from gemmbench.tune.space import Hooks, search

Measure = Callable[[Case, Policy], Row]
Ahead = Callable[[Sequence[Case]], None]  # gets the cases that will probably be measured next
_TEMPORARY: tuple[Status, ...] = ("skipped", "crashed", "timed-out")  # may differ in another call
_END_LIMIT_S = 10.0  # for processes to end


@dataclass(frozen=True)
class Task:
    """What to tune, and for how long."""

    device: DeviceFacts
    variant: Variant
    problems: tuple[Gemm, ...]  # of the search, of one data type
    space: rules.Space
    seed: int
    budget_s: float
    time_limit_s: float  # of a row


class Tuning(Job):
    """`tune`: a search, the finals, and the preset that it saves. Rows of the cache are not repeated."""

    options: TuneOptions
    next_step = "; the same command continues"
    task: Task
    cache: Cache

    def prepare(self) -> None:
        options = self.options
        device, host = select_one(self.worker, options.device)
        problems, variant = options.problems(device), options.variant
        assert variant is not None  # only to forget presets there may be none
        try:
            space = rules.space(variant, device, problems)
        except rules.TuningError as error:
            raise UsageError(str(error)) from None
        self.task = Task(device, variant, problems, space, options.seed, options.budget, options.time_limit)
        self.header = _header(self.task, host)

    def describe_plan(self) -> None:
        """Print the search space: problems, parameter values, counts and the estimated time."""
        space, problems = self.task.space, self.task.problems
        shapes = ", ".join(problem.shape for problem in problems)
        lines = [clean(self.task.device.title)]
        lines += [f"{self.task.variant.name}, {problems[0].dtype} GEMM, {shapes}"]
        for parameter, values in space.values.items():
            marked = ", ".join(f"[{v}]" if v == space.default[parameter] else str(v) for v in values)
            chosen = "; the kernel chooses for each problem" if parameter in space.chosen else ""
            lines.append(f"  {parameter}: {marked}{chosen}")
        configurations = units.count_noun(len(space.configurations), "configuration")
        lines += [
            "[ ] is the shipped preset.",
            f"{space.combinations:,} combinations, {space.allowed:,} meet the constraints, "
            f"{len(space.configurations):,} fit the device.",
            f"At most {configurations} and {units.age(self.options.budget)}",
        ]
        for line in lines:
            stdout().print(Text(line))

    def open(self) -> None:
        """Open the file of earlier attempts: one for each device, kernel and set of problems."""
        task, path = self.task, self.options.cache
        if path is None:  # a file for each device, kernel as it is today, and set of problems
            shapes = "_".join(problem.shape for problem in task.problems)
            dtype, hashed = task.problems[0].dtype, source(task.variant)
            words = (device_key(task.device), task.variant.name, dtype, shapes, hashed)
            path = subfolder("tuning") / f"{'-'.join(words)}.jsonl"
        self.cache = Cache(path, self.header, self.options.force)
        self.file, self.rows = self.cache.file, self.cache.rows

    def measure(self, listen: Listen) -> None:
        """Search, and time the best configurations again."""
        with ExitStack() as held:
            worker, ahead = self._workers(held)
            measure = measure_with(worker, self.task.device, listen)
            Tuner(self.task, measure, self.cache, listen, ahead).run()

    def keep(self) -> list[str]:
        """Save the winner as every command's preset if it beat the shipped one."""
        best, store, task = facts.result(self.run), TunedPresets(), self.task
        device, variant, dtype = task.device, task.variant, task.problems[0].dtype
        if not best.is_kept or best.winner is None:
            earlier = store.find(device, laid_out(variant, task.problems[0]), dtype)
            return ["The earlier winner stays in use; --forget deletes it."] if earlier else []
        preset = Preset(
            variant.name,
            dtype,
            source(laid_out(variant, task.problems[0])),
            {name: int(value) for name, value in best.winner.items()},
            tuple(map(saved_problem, task.problems)),
            best.overall.median if best.overall else None,
            datetime.now(timezone.utc).isoformat(timespec="seconds"),
        )
        if not store.keep(device, preset):
            return [*store.notes]
        return [*store.notes, f"Saved in {store.path(device)}; every command uses it."]

    def rendered(self) -> RenderableType:
        return stack(facts.tuning_sheets(self.run, self.options.top))

    def status(self, tell: Tell) -> int:
        """1 if the shipped preset is wrong. Other wrong configurations are rows of the table."""
        first = facts.result(self.run).default
        if first and first.trouble and first.trouble.status == "wrong":
            return WRONG
        self.result()
        return 0

    def result(self) -> facts.Result:
        """The ranked results. Raise `NothingMeasured` if no configuration has a time."""
        best = facts.result(self.run)
        if not best.ranked:
            trouble = best.default.trouble if best.default else None
            reason = f": {trouble.status}: {clean(trouble.reason)}" if trouble else ""
            raise NothingMeasured(f"no configuration could be measured{reason}", self.run)
        return best

    def _workers(self, held: ExitStack) -> tuple[Worker, Ahead]:
        """The worker that measures, and a function that has `options.builders` others compile cases ahead."""
        count, device = self.options.builders, self.task.device
        if count is None:
            count = 0 if device.type == "cpu" else min(4, (os.cpu_count() or 1) // 2)
        if not count:
            return self.worker, lambda _: None
        folder = held.enter_context(tempfile.TemporaryDirectory(ignore_cleanup_errors=True))
        make = partial(Worker, environment={BUILD_CACHE: folder})
        self.worker.stop()
        policy = Policy(time_limit_s=self.task.time_limit_s)
        builders = held.enter_context(closing(Builders(make, count, device, policy)))
        return held.enter_context(make()), builders.want


def select_one(worker: Worker, selector: str) -> tuple[DeviceFacts, HostFacts]:
    """The device to tune, and the host. `UsageError` unless the selector matches one device."""
    chosen, host = opened_devices(worker, selector)
    if len(chosen) > 1:
        raise UsageError(f"tune takes one --device at a time, not {len(chosen)}")
    return chosen[0], host


def forget(worker: Worker, options: TuneOptions) -> Iterator[str]:
    """Delete the device's presets of --kernel and --dtype, and yield a line for each."""
    device, _ = select_one(worker, options.device)
    store, name = TunedPresets(), options.variant.name if options.variant else None
    gone = store.forget(device, name, GEMM_DTYPES if options.dtype is None else (options.only_dtype,))
    if store.notes:
        raise UsageError(store.notes[0])
    for preset in gone:
        yield f"Forgot {preset.variant} {preset.dtype}: {units.list_values(preset.parameters)}"
    if not gone:
        yield f"Nothing is saved for this in {store.path(device)}."


def _header(task: Task, host: HostFacts) -> Header:
    """The header of a tuner's file, which a later call with the same header can continue."""
    words = ["tune", "--kernel", task.variant.name, "--dtype", task.problems[0].dtype]
    for problem in task.problems:
        words += ["-m", str(problem.m), "-n", str(problem.n), "-k", str(problem.k)]
        words += ["--trans-a"] if problem.trans_a else []
        words += ["--trans-b"] if problem.trans_b else []
        words += ["--batch", str(problem.batch)] if problem.batch > 1 else []
    return replace(header_of([task.device], host, Policy(), (), TUNE_VIEW), command=tuple(words))


def measure_with(worker: Worker, device: DeviceFacts, listen: Listen = lambda _: None) -> Measure:
    """A function that measures a case with a worker, and passes events to `listen`."""
    control = Control((device,), worker, {})

    def measure(case: Case, policy: Policy) -> Row:
        control.prepare(case)
        return drive(worker.run(case, device, policy), listen)

    return measure


@dataclass
class Tuner:
    """A search, then the finals. The cache has the results."""

    task: Task
    measure: Measure  # verifies and measures a case; always returns a row
    cache: Cache
    listen: Listen
    ahead: Ahead = lambda _: None
    clock: Callable[[], float] = time.monotonic  # in seconds
    rates: list[float | None] = field(default_factory=list)  # of each attempt in this call; None: it failed
    default_s: dict[Gemm, float | None] = field(default_factory=dict)  # of the shipped preset
    search_end: float = 0.0  # on the clock
    attempts_s: list[float] = field(default_factory=list)  # duration of each attempt measured in this call
    announced: dict[tuple[int, ...], Case | Skip] = field(default_factory=dict)  # planned for other workers

    def run(self) -> None:
        self.search()
        self.finals()

    def search(self) -> None:
        """Measure the shipped preset, then others until 70 % of the budget is spent."""
        task = self.task
        sample_s, search_s = rules.shares_s(task.budget_s)
        begin = self.clock()
        self.search_end = begin + search_s
        self._check_source()
        self.listen(Planned(1))
        default = self._attempt(task.space.default)
        for problem, row in zip(task.problems, default.rows, strict=False):
            self.default_s[problem] = facts.median_s(row)

        def cost(parameters: dict[str, int]) -> float | None:
            attempt = default if parameters == task.space.default else self._attempt(parameters)
            return None if attempt.rate is None else 1 / attempt.rate

        hooks = Hooks(
            cost,
            sampled=lambda: self.clock() - begin > sample_s,
            over=lambda: self.clock() > self.search_end,
            ahead=self._announce,
        )
        search(task.space, task.seed, hooks)
        self.ahead(())

    def finals(self) -> None:
        """Time the best five and the shipped preset again. Then alternate winner and preset three times."""
        task = self.task
        outcome = facts.result(self.cache.run())
        if not outcome.ranked:
            return
        shipped = outcome.attempts[0]
        top = [attempt for attempt in outcome.ranked if attempt is not shipped][: rules.FINALISTS]
        if not top:
            return
        expected_s = facts.median_s((shipped if shipped.rate else top[0]).rows[0]) or 0.0
        # The median, because the shipped preset has a longer look than the others.
        overhead_s = statistics.median(self.attempts_s or [0.0]) / len(task.problems)
        left_s = max(self.search_end - self.clock(), 0.0) + rules.finals_s(task.budget_s)
        plan = rules.finals(left_s, task.time_limit_s, task.problems, expected_s, overhead_s)
        self.listen(Planned((len(top) + 1) * len(task.problems)))
        entrants = [attempt.parameters for attempt in ([shipped, *top] if shipped.rate else top)]
        for problem in task.problems:
            for parameters in entrants:
                self._retime(problem, parameters, facts.FINALIST, plan.policies[problem])
        winner = facts.result(self.cache.run()).winner
        if winner is None or not shipped.rate:
            return
        problems = (*task.problems, *plan.others)
        self.listen(Planned(rules.ROUNDS * len(problems)))
        for number in range(1, rules.ROUNDS + 1):
            for problem in problems:
                policy = plan.policies[problem]
                both = replace(policy, budget_s=2 * policy.budget_s, time_limit_s=2 * policy.time_limit_s)
                self._retime(problem, winner, facts.round_phase(number), both, shipped.parameters)
        for problem in plan.left_out:
            step = self._case(problem, winner, facts.round_phase(1))
            reason = "--budget left no time for it"
            self.cache.append(step.row if isinstance(step, Skip) else step.row("skipped", reason))

    def _check_source(self) -> None:
        """Raise `RunFileError` if earlier attempts had other kernel sources."""
        step = self._case(self.task.problems[0], self.task.space.default)
        source = step.row.source if isinstance(step, Skip) else step.source
        if any(row.source not in ("", source) for row in self.cache.rows[:1]):
            raise RunFileError(
                f"{self.cache.path}: its rows are of other kernel sources than today's; --force drops them, "
                "or give --cache another file"
            )

    def _attempt(self, parameters: Mapping[str, int]) -> Attempt:
        """Measure a configuration on each problem, up to a failure, and save the new rows."""
        rows: list[Row] = []
        begin, recalled = self.clock(), True
        for problem in self.task.problems:
            policy = rules.search_policy(
                self.task.budget_s, self.task.time_limit_s, self.default_s.get(problem)
            )
            step = self._case(problem, parameters)
            known = self.cache.find(step.row.key if isinstance(step, Skip) else step.key)
            if known is None:
                recalled = False
                known = self._run(step, policy)
                if known.needs_s is not None:  # the advice is for the --budget of other commands
                    far = "far slower than the shipped preset"
                    why = far if self.default_s.get(problem) else "longer than a look at this --budget"
                    reason = f"would take about {units.seconds(known.needs_s)}: {why}, so not timed"
                    known = replace(known, reason=reason)
                self.cache.append(known)
            rows.append(known)
            self.listen(Finished(known, recalled, is_planned=False))
            if known.status != "ok":
                break
        if not recalled:
            self.attempts_s.append(self.clock() - begin)
        attempt = Attempt(dict(parameters), tuple(rows))
        self.rates.append(attempt.rate)
        return attempt

    def _retime(
        self, problem: Gemm, chosen: Parameters, phase: str, policy: Policy, versus: Parameters | None = None
    ) -> None:
        """Time a configuration again, alternating with `versus` if given."""
        step = self._case(problem, chosen, phase)
        if versus is not None and isinstance(step, Case):
            other = self._case(problem, versus, phase)
            step = replace(step, partner=other) if isinstance(other, Case) else other
        row = self._run(step, policy)
        self.cache.append(row)
        self.listen(Finished(row))

    def _case(
        self, problem: Gemm, parameters: Mapping[str, int | float | str], phase: str = facts.TRIAL
    ) -> Case | Skip:
        chosen = self.task.space.asked({name: int(value) for name, value in parameters.items()})
        return rules.case(self.task.device, self.task.variant, problem, chosen, phase)

    def _run(self, step: Case | Skip, policy: Policy) -> Row:
        """Measure a case, unsaved. The shipped preset gets a second, patient attempt."""
        if isinstance(step, Skip):
            return step.row
        self.listen(Started(len(self.rates), f"{self._status()} | {units.list_values(step.parameters)}"))
        row = self.measure(step, policy)
        if row.status == "skipped" and step.parameters == self.task.space.asked(self.task.space.default):
            row = self.measure(step, rules.patient_policy(self.task.budget_s, self.task.time_limit_s))
        return row

    def _status(self) -> str:
        """``12 tried, 3 failed, best 25.7 GFLOPS, 1.30 x shipped, 95 s left``"""
        rates = [rate for rate in self.rates if rate]
        words = [f"{len(self.rates)} tried"]
        words += [f"{len(self.rates) - len(rates)} failed"] if len(rates) < len(self.rates) else []
        words += [f"best {units.rate_text(max(rates))}"] if rates else []
        shipped = self.rates[0] if self.rates else None
        words += [f"{units.number(max(rates) / shipped)} x shipped"] if shipped else []
        left_s = round(self.search_end - self.clock())
        words += [f"{left_s} s left"] if left_s > 0 else []
        return ", ".join(words)

    def _announce(self, configurations: Sequence[Mapping[str, int]]) -> None:
        """Have other workers compile the configurations that can run, at the first problem."""
        steps = []
        for configuration in configurations:
            key = tuple(configuration.values())
            if key not in self.announced:
                self.announced[key] = self._case(self.task.problems[0], configuration)
            steps.append(self.announced[key])
        self.ahead([step for step in steps if isinstance(step, Case)])


class Cache:
    """A tuner's file: rows in the order of measuring, locked until it is closed."""

    def __init__(self, path: Path, header: Header, fresh: bool = False) -> None:
        """Open the file and read its rows, or create it. A `fresh` one replaces what exists.

        Raises `RunFileError` if another tuner has it, or its header does not match.
        """
        self.path = path
        self._header = header
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            self.file = RunFile.create(path, header, force=True) if fresh else RunFile.resume(path, header)
        except BusyError:
            raise RunFileError(
                f"another tuner is at work on {path}; wait for it, or give --cache another file"
            ) from None
        except OSError as error:
            raise RunFileError(f"cannot write {path}: {units.reason_of(error)}") from None
        self.rows: list[Row] = []
        self._searched: dict[RowKey, Row] = {}
        self._timed: set[Problem | None] = set()  # where the shipped preset has a time
        for row in self.file.done:
            self._add(row)

    def find(self, key: RowKey) -> Row | None:
        """The saved row of a case of the search; None if it must be measured."""
        return self._searched.get(key)

    def append(self, row: Row) -> None:
        self.file.append(row)
        self._add(row)

    def _add(self, row: Row) -> None:
        """Add a row. `find` returns it from now on, if another call would give the same."""
        self.rows.append(row)
        if row.phase != TRIAL:
            return
        if row.parameters == self.rows[0].parameters:  # the first attempt is always the shipped preset
            if row.status == "ok":
                self._timed.add(row.problem)
            lasts = row.status not in _TEMPORARY
        else:
            lasts = row.status != "skipped" or row.problem in self._timed
        if lasts:
            self._searched[row.key] = row

    def run(self) -> Run:
        return Run(self._header, tuple(self.rows), str(self.path))

    def close(self) -> None:
        self.file.close()


class Builders:
    """Processes that compile cases into the driver's cache. Their failures have no effect."""

    def __init__(self, make: Callable[[], Worker], count: int, device: DeviceFacts, policy: Policy) -> None:
        """Start `count` workers, each with a thread that compiles the cases given to `want`."""
        self._device, self._policy = device, policy
        self._waiting: deque[Case] = deque()
        self._seen: set[str] = set()  # fingerprints of what was built
        self._changed = threading.Condition()
        self._closed = False
        self._workers = [make() for _ in range(count)]
        serves = (partial(self._serve, worker) for worker in self._workers)
        self.threads = [threading.Thread(target=serve, daemon=True) for serve in serves]
        for thread in self.threads:
            thread.start()

    def want(self, cases: Sequence[Case]) -> None:
        """Replace the queue by these cases, without those that were built before."""
        with self._changed:
            self._waiting = deque(case for case in cases if case.source not in self._seen)
            self._changed.notify_all()

    def close(self) -> None:
        """Kill the processes, repeatedly, until all threads have ended, for at most ten seconds."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
        end = time.monotonic() + _END_LIMIT_S
        for worker, thread in zip(self._workers, self.threads, strict=True):
            while thread.is_alive() and time.monotonic() < end:
                worker.kill()  # repeatedly, because it may be starting
                thread.join(0.1)

    def _serve(self, worker: Worker) -> None:
        with worker:
            while (case := self._next()) is not None:
                worker.inspect(case, self._device, self._policy)

    def _next(self) -> Case | None:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._waiting)
            if self._closed:
                return None
            case = self._waiting.popleft()
            self._seen.add(case.source)
            return case
