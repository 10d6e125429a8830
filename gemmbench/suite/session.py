"""Runs the cases of `auto`: chooses as `suite.choosing` says, tries what was never measured, runs the choice.

A choice is made when its turn comes, not when the run is planned, so that the rows before it count.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import replace

from gemmbench.ladder import BY_NAME
from gemmbench.ladder.libraries import AUTO
from gemmbench.measure.child import Worker
from gemmbench.model.case import (
    Case,
    Event,
    Finished,
    Operands,
    Plan,
    Planned,
    Policy,
    Skip,
    Staged,
    Started,
    saved_problem,
)
from gemmbench.model.device import HOST, DeviceFacts
from gemmbench.model.row import Row, Status
from gemmbench.model.run_file import RunFile, RunFileError
from gemmbench.suite import choosing
from gemmbench.suite.choosing import Choice, Point
from gemmbench.suite.plan import FindTuned, gemm_plan

_TRIAL_SHARE = 0.2  # of the budget for a variant that is tried
_LEAST_TRIAL_S = 0.3


class Automatic:
    """Chooses and runs the variants of `auto`, and remembers their rows, through one run.

    Attributes:
        rows: what choices may rest on: what this run has measured, trials included, and what it resumed.
        lessons: those of them that tell later runs something, too.
    """

    def __init__(
        self, known: Mapping[int, Sequence[Point]] | None = None, tuned: FindTuned = lambda *_: None
    ) -> None:
        """Start a run.

        Args:
            known: what earlier runs have measured, by the position of the device.
            tuned: the tuner's presets.
        """
        self._known = dict(known or {})
        self._tuned = tuned
        self.rows: list[Row] = []
        self.lessons: list[Row] = []

    def record(self, row: Row, case: Case | None = None) -> None:
        """Record a finished row, whoever measured it.

        Args:
            row: the finished row.
            case: what was measured; None if an earlier run measured it. Rows of the user's own matrices (all
                zeros, denormal numbers) are no lesson: their time may differ from that of generated ones.
        """
        self.rows.append(row)
        if case and not case.operands.given:
            self.lessons.append(row)

    def measure(
        self, case: Case, device: DeviceFacts, policy: Policy, worker: Worker
    ) -> Generator[Staged, None, Row]:
        """Choose and run; the row is the case's own, and says in `choice` what ran and why."""
        assert case.problem is not None
        able = self._able(case, device)
        tried = choosing.untried(case.problem, self._points(case, device), tuple(able))
        tried = tuple(name for name in tried if name not in self._without_figure(case))
        for variant in tried if case.problem.flops else ():
            yield Staged(f"trying {variant}")
            trial = replace(able[variant], operands=Operands())
            self.record((yield from worker.run(trial, _home(trial, device), _shortly(policy))), trial)
        chosen = self._chosen(case, device, able, tried if len(tried) == len(able) else ())
        if chosen is None:
            return case.row("unsupported", "no variant that could be chosen runs here")
        inner, reason = chosen
        row = yield from worker.run(inner, _home(inner, device), policy)
        self.record(row, inner)
        return auto_row(case, inner, reason, row)

    def ran(self, case: Case, device: DeviceFacts, row: Row) -> Case | None:
        """The case that `auto` ran for a row; None if the device did not run it."""
        variant = str(row.choice.get("kernel", ""))
        if variant not in BY_NAME:
            return None
        parameters = {name: row.choice[name] for name in BY_NAME[variant].parameters if name in row.choice}
        inner = self._planned(case, device, Choice(variant, parameters, ""))
        return inner if inner and inner.device != HOST else None

    def _points(self, case: Case, device: DeviceFacts) -> tuple[Point, ...]:
        """Points of the case's type. Those of earlier runs count only with the parameters of a preset."""
        earlier = [point for point in self._known.get(case.device, ()) if point.dtype == case.dtype]
        presets = {
            name: self._presets(name, device, case.dtype) for name in {point.variant for point in earlier}
        }
        known = (point for point in earlier if point.parameters in presets[point.variant])
        return (*known, *choosing.points(self.rows, case.device))

    def _presets(self, variant: str, device: DeviceFacts, dtype: str) -> list[Mapping[str, int]]:
        """The shipped parameters of a variant, and those that the tuner kept."""
        entry = BY_NAME[variant]
        kept = self._tuned(device, entry, dtype)
        shipped = entry.preset(device.family, dtype=dtype, vector_bits=device.vector_bits)
        return [shipped, kept.parameters] if kept else [shipped]

    def _without_figure(self, case: Case, but: Status = "ok") -> set[str]:
        """The variants that this run could not measure on a case's problem; they are not tried again."""
        assert case.problem is not None
        problem = saved_problem(case.problem)
        return {
            row.variant
            for row in self.rows
            if (row.kind, row.problem, row.dtype) == ("gemm", problem, case.dtype)
            if row.device in (case.device, HOST) and row.status not in ("ok", but)
        }

    def _able(self, case: Case, device: DeviceFacts) -> dict[str, Case]:
        """The likely variants that can run the problem, with their presets."""
        assert case.problem is not None
        planned = {
            name: self._planned(case, device, Choice(name, None, ""))
            for name in choosing.likely(device, case.problem)
        }
        return {name: step for name, step in planned.items() if step}

    def _chosen(
        self, case: Case, device: DeviceFacts, able: Mapping[str, Case], tried: Sequence[str]
    ) -> tuple[Case, str] | None:
        """The best choice that the device can run on this problem, and its reason."""
        assert case.problem is not None
        bad = self._without_figure(case, but="skipped")  # with more time it may do
        for choice in choosing.ranked(case.problem, self._points(case, device), tried):
            if choice.variant not in bad and (inner := self._planned(case, device, choice)):
                return inner, choice.reason
        fallback = choosing.by_default(device, case.problem, [name for name in able if name not in bad])
        return (able[fallback.variant], fallback.reason) if fallback else None

    def _planned(self, case: Case, device: DeviceFacts, choice: Choice) -> Case | None:
        """The case of a choice, None if the device cannot run it."""
        assert case.problem is not None
        overrides = {name: int(value) for name, value in (choice.parameters or {}).items()}
        variant = BY_NAME[choice.variant]
        kept = self._tuned(device, variant, case.dtype)
        if kept and overrides == kept.parameters:
            overrides = {}  # so that the row says where they come from
        (step,) = gemm_plan([device], [variant], [case.problem], overrides, case.operands, self._tuned)
        if not isinstance(step, Case):
            return None
        return step if step.device == HOST else replace(step, device=case.device)


def auto_row(case: Case, inner: Case, reason: str, row: Row) -> Row:
    """The chosen variant's row, rewritten as the row of `auto`.

    Args:
        case: of `auto`.
        inner: what it chose.
        reason: why.
        row: of what it chose.
    """
    return replace(
        row,
        device=case.device,
        variant=case.variant,
        parameters=case.parameters,
        source=case.source,
        reason=f"{inner.variant}: {row.reason}" if row.reason else "",
        choice={"kernel": inner.variant, "why": reason, **inner.parameters, **row.choice},
    )


def _home(case: Case, device: DeviceFacts) -> DeviceFacts | None:
    return None if case.device == HOST else device


def _shortly(policy: Policy) -> Policy:
    """A policy for a look: the budget of a row that is measured for its own sake is too much for each."""
    budget_s = max(_LEAST_TRIAL_S, _TRIAL_SHARE * policy.budget_s)
    return replace(policy, budget_s=budget_s, settle_s=min(policy.settle_s, budget_s / 3), energy=False)


# --- run(plan) -> events: cases go to the child process, rows to the file, events to the caller -------------


_OVERHEAD_S = 0.5  # building and verifying, for the first estimate of the time left
_ENERGY_S = 2.5  # resting, warming up and the window


def run(
    plan: Plan,
    devices: Sequence[DeviceFacts],
    policy: Policy,
    worker: Worker,
    file: RunFile | None = None,
    automatic: Automatic | None = None,
) -> Generator[Event, None, None]:
    """Run a plan, case by case.

    Rows are appended to the file, and flushed, before they are yielded; rows that the file already holds
    (``--resume``) are yielded again and not measured again. `auto` chooses by what it knew before and by the
    rows so far.

    Raises:
        RunFileError: a row cannot be written; the rows before it are safe. Or those that the file held are
            of other kernels.
    """
    steps = Steps(devices, policy, file, automatic)
    steps.check(plan)
    yield steps.planned(sum(isinstance(step, Case) and step.key not in steps.done for step in plan))
    for step in plan:
        yield from steps.take(step, worker)


class Steps:
    """Takes the steps of a plan one by one.

    Attributes:
        done: the rows that the file held from the start, by key.
    """

    def __init__(
        self,
        devices: Sequence[DeviceFacts],
        policy: Policy,
        file: RunFile | None = None,
        automatic: Automatic | None = None,
    ) -> None:
        self.devices, self.policy = devices, policy
        self.automatic = automatic or Automatic()
        self.done = {row.key: row for row in file.done} if file else {}
        self._file = file
        self._number = 0

    def check(self, plan: Iterable[Case | Skip]) -> None:
        """Check that the rows in the file are of the same kernels as the plan.

        Raises:
            RunFileError: a row is of other kernel sources than today's.
        """
        for step in plan:
            row = step.row if isinstance(step, Skip) else step.row("ok")
            done = self.done.get(row.key)
            if self._file and done and done.source not in ("", row.source):
                raise RunFileError(
                    f"cannot resume {self._file.path}: its rows of {done.variant} are of other kernel "
                    "sources than today's; --force drops them, or give --save another file"
                )

    def planned(self, cases: int) -> Planned:
        """The event before the first case: how many there are to measure."""
        each_s = self.policy.budget_s + _OVERHEAD_S + (_ENERGY_S if self.policy.energy else 0.0)
        return Planned(cases, cases * each_s)

    def started(self, label: str) -> Started:
        """The event before a case is measured."""
        self._number += 1
        return Started(self._number, label)

    def finished(self, row: Row) -> Finished:
        """Write a row to the file, and return the event that says so.

        Raises:
            RunFileError: it cannot be written.
        """
        if self._file:
            self._file.append(row)
        return Finished(row)

    def take(self, step: Case | Skip, worker: Worker) -> Generator[Event, None, Row]:
        """Measure a case, unless the file holds its row. The row is yielded as finished, and returned."""
        done = self.done.get(step.row.key if isinstance(step, Skip) else step.key)
        if done is not None:
            self.automatic.record(done)
            yield Finished(done, resumed=True)
            return done
        if isinstance(step, Skip):
            row = step.row
        else:
            yield self.started(step.label)
            device = self.devices[step.device] if step.device >= 0 else None
            if device and step.variant == AUTO:
                row = yield from self.automatic.measure(step, device, self.policy, worker)
            else:
                row = yield from worker.run(step, device, self.policy)
                self.automatic.record(row, step)
        yield self.finished(row)
        return row
