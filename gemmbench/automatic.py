"""Runs the cases of `auto`: chooses as `rules.choosing` says, tries what was never measured, runs the choice.

A choice is made when its turn comes, not when the run is planned, so that the rows before it count.
"""

from __future__ import annotations

from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace

from gemmbench.facts.events import Staged
from gemmbench.facts.records import DeviceFacts, Policy, Row, Status
from gemmbench.facts.series import HOST
from gemmbench.measure.child import Worker
from gemmbench.rules import choosing
from gemmbench.rules.choosing import Choice, Point
from gemmbench.rules.plan import Case, FindTuned, Operands, gemm_plan, saved_problem
from gemmbench.rules.variants import BY_NAME

_TRIAL_SHARE = 0.2  # of the budget for a variant that is tried
_LEAST_TRIAL_S = 0.3


class Automatic:
    """The memory and the hands of `auto` through one run.

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

    def saw(self, row: Row, case: Case | None = None) -> None:
        """A row is done, by whomever.

        Args:
            row: it.
            case: what was measured; None if an earlier run has. The user's own matrices (all zeros, denormal
                numbers) may take another time than generated ones: they are no lesson.
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
            self.saw((yield from worker.run(trial, _home(trial, device), _shortly(policy))), trial)
        chosen = self._chosen(case, device, able, tried if len(tried) == len(able) else ())
        if chosen is None:
            return case.row("unsupported", "no variant that could be chosen runs here")
        inner, reason = chosen
        row = yield from worker.run(inner, _home(inner, device), policy)
        self.saw(row, inner)
        return named(case, inner, reason, row)

    def taken(self, case: Case, device: DeviceFacts, row: Row) -> Case | None:
        """The case that a row of `auto` has run; None if it was not the device's to run."""
        variant = str(row.choice.get("kernel", ""))
        if variant not in BY_NAME:
            return None
        parameters = {name: row.choice[name] for name in BY_NAME[variant].parameters if name in row.choice}
        inner = self._planned(case, device, Choice(variant, parameters, ""))
        return inner if inner and inner.device != HOST else None

    def _points(self, case: Case, device: DeviceFacts) -> tuple[Point, ...]:
        """What is known of a data type: of earlier runs what has the parameters of today's presets."""
        mine = [point for point in self._known.get(case.device, ()) if point.dtype == case.dtype]
        presets = {name: self._presets(name, device, case.dtype) for name in {one.variant for one in mine}}
        known = (point for point in mine if point.parameters in presets[point.variant])
        return (*known, *choosing.points(self.rows, case.device))

    def _presets(self, variant: str, device: DeviceFacts, dtype: str) -> list[Mapping[str, int]]:
        """The shipped parameters of a variant, and those that the tuner kept."""
        entry = BY_NAME[variant]
        kept = self._tuned(device, entry, dtype)
        shipped = entry.preset(device.family, dtype=dtype, vector_bits=device.vector_bits)
        return [shipped, kept.parameters] if kept else [shipped]

    def _without_figure(self, case: Case, but: Status = "ok") -> set[str]:
        """The variants that this run could not measure on a case's problem, and had better not try again."""
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


def named(case: Case, inner: Case, reason: str, row: Row) -> Row:
    """The row of what `auto` has chosen as its own.

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
