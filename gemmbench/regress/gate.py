"""Suspicious rows measured again until each verdict is settled: the decisions, without the measuring.

A first measurement only says which rows to look at again; it was chosen for being slow, and does not count.
What counts is measured afresh, each time in a process of its own, between two measurements of a control: a
row that should be as fast as it was, and that says whether the machine itself is. A row that is measured in
turn with its own previous version needs no control.

`settle` is a coroutine: it yields what it wants measured and is sent the figure. It knows neither clock nor
device, so that a simulation drives it as well as a machine.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import median, pvariance
from typing import Literal

from gemmbench.model.row import Row, RowKey
from gemmbench.model.run_file import Run
from gemmbench.options.rules import LEAST_ROUNDS, MOST_ROUNDS, Limits, Rules
from gemmbench.regress import verdict as floors
from gemmbench.regress.baseline import Basis
from gemmbench.regress.compare import title
from gemmbench.regress.verdict import Judgement, Noise, Spread, centre, conclude, is_exact, judge
from gemmbench.stats.intervals import Measure, mean

FAILED: Literal["failed"] = "failed"
Answer = Measure | Literal["failed"] | None
"""What became of a measurement: a figure, none because the row is wrong or crashed, or none this time."""


@dataclass(frozen=True)
class Suspect:
    """A row to be measured again."""

    key: RowKey
    base: tuple[Measure, ...]  # in ratio mode, ratios to the control
    limits: Limits
    control: RowKey | None  # what stands beside it: in ratio mode its reference; None if there is nothing
    control_base: tuple[Measure, ...] = ()  # in plain mode, the control's figures in the same bases
    ratio: bool = False


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
    machine: Judgement | None = None  # of the control, in plain mode
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
            beside = mean(around)
            trial.new.append(figure.over(beside) if trial.suspect.ratio else figure)
            trial.beside.append(beside)
        elif figure is not None and control is None:
            trial.new.append(figure)


def _figure(answer: Answer) -> Measure | None:
    return answer if isinstance(answer, Measure) else None


def decide(
    suspect: Suspect, new: Sequence[Measure], beside: Sequence[Measure], noise: Noise
) -> Settled | None:
    """The verdict after so many rounds; None before the first.

    In plain mode a verdict stands if the control may be as fast as it was, or if the row's ratio to the
    control says the same; otherwise the machine itself has changed, and the verdict is inconclusive.
    """
    if not new:
        return None
    spread = noise.of(suspect.key, [_without_outliers(new, without_errors=is_exact(suspect.base))])
    plain = conclude(suspect.base, new, spread, suspect.limits, noise, suspect.key)
    is_final = _is_settled(plain) and (plain.verdict != "slower" or _is_clear(suspect, new, spread, noise))
    if suspect.ratio or not suspect.control_base or not beside:
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


# --- A/A: the same cases several times on one machine, and the threshold that its noise lets a gate carry.
#
# A threshold is carried if a row that is as fast as before is not called slower, and one that is slower by
# twice the threshold is, 95 times in 100: between the two lie the noise of both sides and the interval's
# confidence.


SHARE = 0.95  # of the rows that a machine's threshold is to serve
_FINEST, _COARSEST = 1e-4, 0.9


@dataclass(frozen=True)
class Carried:
    """What one row's noise allows."""

    spread: Spread
    compare: float | None  # the threshold that one new run carries, as a fraction; None: none below 90 %
    check: float | None  # and as many as check measures of a suspicious row


@dataclass(frozen=True)
class Tolerance:
    """One row of an A/A measurement."""

    key: RowKey
    row: Row
    device: str  # for people
    runs: int
    plain: Carried
    ratio: Carried | None  # in ratio mode; None without a reference


@dataclass(frozen=True)
class Alarms:
    """Each repetition held against the others: every `slower` is a false alarm."""

    verdicts: int
    slower: int
    inconclusive: int


@dataclass(frozen=True, eq=False)
class Floor:
    """What an A/A measurement says of a machine."""

    runs: tuple[Run, ...]
    rules: Rules
    rows: tuple[Tolerance, ...]
    alarms: Alarms
    ratio_alarms: Alarms | None


def floor(runs: Sequence[Run], rules: Rules) -> Floor:
    """The noise floor of every row that was measured at least twice, plain and as a ratio.

    The runs are of one machine and version; a row's repetitions stand in one run or several.
    """
    plain, ratio = Basis(tuple(runs), replace(rules, ratio=())), Basis(tuple(runs), rules)
    noise = plain.noise()
    ratio_noise = ratio.noise() if rules.ratio else noise
    tolerances = []
    for key, row in plain.rows.items():
        count = len(plain.base_figures(key))
        if count > 1:
            device = title(plain.bases[0], replace(row, device=key[1]))
            own = _carried(noise, key, count, rules)
            beside = _carried(ratio_noise, key, count, rules) if key in ratio.references else None
            tolerances.append(Tolerance(key, row, device, count, own, beside))
    ratio_alarms = _alarms(ratio, ratio_noise) if rules.ratio else None
    return Floor(tuple(runs), rules, tuple(tolerances), _alarms(plain, noise), ratio_alarms)


def serves(values: Sequence[float | None]) -> float | None:
    """The threshold that serves 95 % of the rows; None if there is none, or there are no rows."""
    ordered = sorted(math.inf if value is None else value for value in values)
    if not ordered:
        return None
    threshold = ordered[math.ceil(SHARE * len(ordered)) - 1]
    return threshold if math.isfinite(threshold) else None


def carries(needed: float) -> float | None:
    """The smallest threshold at which twice as much is found in 95 of 100 trials; None: none below 90 %.

    A row is found so often if it lies `needed` beyond the threshold: see `verdict.unseen`.
    """

    def short(threshold: float) -> float:
        return math.log((1 + 2 * threshold) / (1 + threshold)) - needed

    if short(_COARSEST) < 0:
        return None
    if short(_FINEST) > 0:
        return _FINEST
    from scipy.optimize import brentq

    return float(brentq(short, _FINEST, _COARSEST))


def _carried(noise: Noise, key: RowKey, count: int, rules: Rules) -> Carried:
    spread = noise.of(key)
    needed = [floors.unseen(count, new, spread, rules.confidence, noise, key) for new in (1, MOST_ROUNDS)]
    return Carried(spread, *map(carries, needed))


def _alarms(basis: Basis, noise: Noise) -> Alarms:
    verdicts = []
    for key, row in basis.rows.items():
        figures = basis.base_figures(key)
        limits = basis.rules.limits(row)
        for index, figure in enumerate(figures):
            others = figures[:index] + figures[index + 1 :]
            if others:
                verdicts.append(conclude(others, [figure], noise.of(key), limits, noise, key).verdict)
    return Alarms(len(verdicts), verdicts.count("slower"), verdicts.count("inconclusive"))
