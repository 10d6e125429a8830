"""Suspicious rows measured again until each verdict is settled: the decisions, without the measuring.

A first measurement only says which rows to look at again; it was chosen for being slow, and does not count.
What counts is measured afresh, each time in a process of its own, between two measurements of a control: a
row that should be as fast as it was, and that says whether the machine itself is. A row that is measured in
turn with its own previous version needs no control.

`settle` is a coroutine: it yields what it wants measured and is sent the figure. It knows neither clock nor
device, so that a simulation drives it as well as a machine.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median, pvariance
from typing import Literal

from gemmbench.model.row import RowKey
from gemmbench.options.rules import LEAST_ROUNDS, MOST_ROUNDS, Limits
from gemmbench.regress import verdict as floors
from gemmbench.regress.verdict import Judgement, Noise, Spread, centre, conclude, is_exact, judge
from gemmbench.stats.intervals import Measure, mean

FAILED: Literal["failed"] = "failed"
Answer = Measure | Literal["failed"] | None
"""What became of a measurement: a figure, none because the row is wrong or crashed, or none this time."""


@dataclass(frozen=True)
class Suspect:
    """A row to be measured again."""

    key: RowKey
    base: tuple[Measure, ...]
    limits: Limits
    control: RowKey | None  # what is measured with it; None if there is nothing
    control_base: tuple[Measure, ...] = ()  # the control's figures in the same bases


@dataclass(frozen=True)
class Wanted:
    """What is to be measured next."""

    key: RowKey
    fresh: bool  # in a new process, as a round begins


@dataclass(frozen=True)
class Settled:
    """What became of a suspect."""

    suspect: Suspect
    judgement: Judgement | None  # None if it could not be measured again
    new: tuple[Measure, ...]  # what was measured afresh
    machine: Judgement | None = None  # of the control
    failed: bool = False  # a measurement of the row itself gave no figure
    final: bool = False  # measuring again would say no more


@dataclass
class _Trial:
    suspect: Suspect
    new: list[Measure] = field(default_factory=list)
    beside: list[Measure] = field(default_factory=list)
    failed: bool = False
    settled: Settled | None = None


Steps = Generator[Wanted, Answer, tuple[Settled, ...]]


def settle(
    suspects: Sequence[Suspect],
    noise: Noise,
    spent: Callable[[], bool] = lambda: False,
    most_rounds: int = MOST_ROUNDS,
) -> Steps:
    """Measure suspects again, round by round, each between two measurements of its control.

    It yields what it wants measured, and takes its figure, or why there is none: see `Answer`. `spent` says
    whether the time is over, and is asked before each row; after `most_rounds` what is open remains so.
    Returns what became of each suspect, in their order.
    """
    trials = [_Trial(suspect) for suspect in suspects]
    noise = noise.cautious()
    for _ in range(most_rounds):
        pending = [trial for trial in trials if trial.settled is None and not trial.failed]
        if not pending or spent():
            break
        yield from _round(pending, spent)
        for trial in pending:
            if len(trial.new) >= LEAST_ROUNDS:
                settled = decide(trial.suspect, trial.new, trial.beside, noise)
                if settled is not None and settled.final:
                    trial.settled = settled
    return tuple(_ended(trial, noise) for trial in trials)


def _round(pending: Iterable[_Trial], spent: Callable[[], bool]) -> Generator[Wanted, Answer, None]:
    """Control, row, control, row, control: neighbours share a control."""
    fresh = True
    before: tuple[RowKey | None, Measure | None] = (None, None)
    for trial in pending:
        if spent():
            return
        control = trial.suspect.control
        if control is not None and control != before[0]:
            before = (control, _figure((yield Wanted(control, fresh))))
            fresh = False
        answer = yield Wanted(trial.suspect.key, fresh)
        fresh = False
        after = _figure((yield Wanted(control, fresh))) if control is not None else None
        around = [measure for measure in (before[1], after) if measure is not None]
        before = (control, after)
        if answer == FAILED:
            trial.failed = True
            continue
        figure = _figure(answer)
        if figure is not None and around:
            trial.new.append(figure)
            trial.beside.append(mean(around))
        elif figure is not None and control is None:
            trial.new.append(figure)


def _figure(answer: Answer) -> Measure | None:
    return answer if isinstance(answer, Measure) else None


def decide(
    suspect: Suspect, new: Sequence[Measure], beside: Sequence[Measure], noise: Noise
) -> Settled | None:
    """The verdict after so many rounds; None before the first.

    A verdict stands if the control may be as fast as it was, or if the row's ratio to the
    control says the same; otherwise the machine itself has changed, and the verdict is inconclusive.
    """
    if not new:
        return None
    spread = noise.of(suspect.key, [_without_outliers(new, without_errors=is_exact(suspect.base))])
    plain = conclude(suspect.base, new, spread, suspect.limits, noise, suspect.key)
    is_final = _is_settled(plain) and (plain.verdict != "slower" or _is_clear(suspect, new, spread, noise))
    if not suspect.control_base or not beside:
        return Settled(suspect, plain, tuple(new), final=is_final)
    floor = noise.of(suspect.control, [_without_outliers(beside)])
    machine = judge(suspect.control_base, beside, floor, suspect.limits)
    if not machine.low <= 1 <= machine.high:
        ratios = [figure.over(other) for figure, other in zip(new, beside, strict=True)]
        before = [figure.over(mean(suspect.control_base)) for figure in suspect.base]
        both = Spread((spread.deviation**2 + floor.deviation**2) ** 0.5, min(spread.freedom, floor.freedom))
        beside_it = conclude(before, ratios, both, suspect.limits, noise, suspect.key)
        if beside_it.verdict != plain.verdict:
            reason = f"the machine itself runs at {1 / machine.ratio:.2f} of its speed in the base"
            final = machine.verdict != "inconclusive" and is_final and _is_settled(beside_it)
            doubtful = replace(plain, verdict="inconclusive", reason=reason)
            return Settled(suspect, doubtful, tuple(new), machine, final=final)
    return Settled(suspect, plain, tuple(new), machine, final=is_final)


def _is_clear(suspect: Suspect, new: Sequence[Measure], spread: Spread, noise: Noise) -> bool:
    """Whether a slower row lies so far out that it need not be measured as often as may be.

    A machine is disturbed for minutes: the first rounds may all be slow together, and each look at them is
    another chance of a false alarm. Twice the margin beyond the threshold it is clear at once.
    """
    if is_exact(suspect.base):
        return True
    margin = noise.margin(suspect.key, len(suspect.base), len(new), spread)
    return noise.apart(suspect.key, suspect.base, new) > suspect.limits.high + 2 * margin


def _without_outliers(figures: Sequence[Measure], without_errors: bool = False) -> list[float]:
    """Values of which those far out are drawn in: one disturbed round says little of the others' noise.

    If `without_errors`, they scatter only by what the figures' own errors do not explain.
    """
    middle = centre(figures)
    apart = [figure.value - middle for figure in figures]
    most = floors.OUTLYING * floors.robust_deviation(apart)
    apart = [min(max(value, -most), most) for value in apart]
    if without_errors and (scatter := pvariance(apart)):
        rest = max(0.0, 1 - median(figure.error**2 for figure in figures) / scatter) ** 0.5
        apart = [rest * value for value in apart]
    return [middle + value for value in apart]


def controls(
    candidates: Mapping[RowKey, tuple[str, Measure]],
    outside: Collection[RowKey],
    suspect: RowKey | None = None,
) -> list[RowKey]:
    """Rows that can be a control, the best first; candidates have verdict and figure of a first measurement.

    Those from outside, that no change to a kernel reaches, such as the host's BLAS, go first, whatever became
    of them: they tell of the machine. Then rows that have not changed at first sight, the quietest first;
    then those of which that is not certain. A row that is slower is none: two that regressed would excuse
    each other. Only of a suspect from outside may it be one: that regresses with the machine alone.
    """
    order = {"same": 1, "inconclusive": 2}
    rank = {key: 0 if key in outside else order.get(verdict, 3) for key, (verdict, _) in candidates.items()}
    fit = [key for key in candidates if key != suspect and (rank[key] < 3 or suspect in outside)]
    return sorted(fit, key=lambda key: (rank[key], candidates[key][0] != "same", candidates[key][1].error))


def _is_settled(judgement: Judgement) -> bool:
    """Slower, or not slower."""
    return judgement.verdict != "inconclusive" or not judgement.may_be_slower


def _ended(trial: _Trial, noise: Noise) -> Settled:
    if trial.failed:
        return Settled(trial.suspect, None, tuple(trial.new), failed=True)
    if trial.settled is not None:
        return trial.settled
    last = decide(trial.suspect, trial.new, trial.beside, noise)
    if last is None or last.judgement is None or len(trial.new) >= LEAST_ROUNDS:
        return last or Settled(trial.suspect, None, ())
    reason = f"measured again only {len(trial.new)} of the {LEAST_ROUNDS} times that a verdict takes"
    return replace(last, judgement=replace(last.judgement, verdict="inconclusive", reason=reason))
