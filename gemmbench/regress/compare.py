"""Runs against runs: a line with a verdict for each row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from gemmbench.model.device import HOST
from gemmbench.model.instrument import LEAST_RUNS, is_too_slow
from gemmbench.model.row import FAILED, Row, RowKey
from gemmbench.model.run_file import Run
from gemmbench.model.units import listed
from gemmbench.regress.baseline import Basis, Repetition, Rules
from gemmbench.regress.verdict import FAILING, LOST, Judgement, Noise, Verdict, centre, conclude, resolution
from gemmbench.stats.conditions import state
from gemmbench.stats.intervals import Measure
from gemmbench.stats.rates import former, work

_NO_RATE = "without a rate on either side"
_KEPT = "kept from an earlier run, not measured in the new one"
_NO_REFERENCE = "without a reference to be a ratio to"
_NO_KERNEL = "without a kernel that another folder could have"


@dataclass(frozen=True)
class Line:
    """One row of a comparison."""

    key: RowKey
    row: Row  # the new one; the base's where there is none
    device: str  # for people
    verdict: Verdict
    reason: str = ""
    threshold: float = 0.0
    judgement: Judgement | None = None  # None where there was nothing to compare
    base_s: float | None = None  # seconds for one problem, or the ratio; middle of the runs
    new_s: float | None = None
    runs: tuple[int, int] = (0, 0)  # of base and new that went into it
    reference: Row | None = None  # in ratio mode, what it is a ratio to
    resolution: float | None = None  # the smallest slowdown that is found 95 times in 100; 0.1 is 10 %
    resources: str = ""  # what has changed of them; they have no noise
    too_slow: bool = False  # it was skipped, since it would have taken more than its budget

    @property
    def fails(self) -> bool:
        """Whether it is a regression."""
        return self.verdict in FAILING

    @property
    def lost(self) -> bool:
        """Whether the base has a figure that nothing was held against."""
        return self.verdict in LOST

    @property
    def open(self) -> bool:
        """Whether it may yet be one: an inconclusive row whose interval reaches past the threshold."""
        return self.verdict == "inconclusive" and (self.judgement is None or self.judgement.may_be_slower)


@dataclass(frozen=True)
class Resolution:
    """The smallest slowdown that a job would have found with a probability of 95 %, as a fraction."""

    typical: float  # the middle row's
    worst: float
    row: Line  # the worst
    is_coarse: bool  # in the middle row not even twice the threshold is found: a pass says little


@dataclass(frozen=True, eq=False)
class Comparison:
    """What came out."""

    bases: tuple[Run, ...]
    news: tuple[Run, ...]
    rules: Rules
    noise: Noise
    lines: tuple[Line, ...]
    left_out: Mapping[str, int]  # rows without a line, by why
    remarks: tuple[str, ...] = ()

    @property
    def counts(self) -> Counter[Verdict]:
        """Lines by verdict."""
        return Counter(line.verdict for line in self.lines)

    @property
    def compared(self) -> int:
        """Lines that are a statement about the new runs' speed, or its loss.

        None if there are only the host's, beside a device's that could not be compared: a host's BLAS that is
        as fast as ever says nothing of any kernel.
        """
        stated = [line for line in self.lines if line.judgement is not None or line.verdict == "broken"]
        hosts = all(line.key[1] == HOST for line in stated)
        return 0 if hosts and any(line.lost and line.key[1] != HOST for line in self.lines) else len(stated)

    @property
    def resolution(self) -> Resolution | None:
        """What slowdown the job would have found; None where nothing was judged."""
        values = sorted(
            (line.resolution, line.threshold, number)
            for number, line in enumerate(self.lines)
            if line.resolution is not None
        )
        if not values:
            return None
        typical, worst = values[(len(values) - 1) // 2], values[-1]
        coarse = sorted(least / (2 * threshold) for least, threshold, _ in values)[(len(values) - 1) // 2] > 1
        return Resolution(typical[0], worst[0], self.lines[worst[2]], coarse)

    @property
    def lost(self) -> int:
        """Lines that the base has a figure of, and that were not compared."""
        return sum(line.lost for line in self.lines)


def compare(
    bases: Sequence[Run], news: Sequence[Run], rules: Rules | None = None, noises: Sequence[Run] = ()
) -> Comparison:
    """Every row of the bases and of the new runs, paired by key, with a verdict.

    Args:
        bases: one or more; the repetitions of a row, over all of them, are pooled.
        news: one or more.
        rules: thresholds, confidence, scope, ratio mode.
        noises: A/A measurements of the same machine; they add to the noise floor only.
    """
    rules = rules or Rules()
    basis = Basis(tuple(bases), rules, tuple(noises))
    again = basis.repeated(news)
    noise = basis.noise(again)
    left_out: Counter[str] = Counter()
    lines = []
    for key in dict.fromkeys([*basis.rows, *(key for each in again for key in each.rows)]):
        line = _line(basis, noise, key, [each for each in again if key in each.rows])
        if isinstance(line, Line):
            lines.append(_with_resources(basis, line, again))
        else:
            left_out[line] += 1
    unused = rules.thresholds.unused(line.row for line in lines)
    remarks = [f"threshold row {number} is for none of these rows" for number in unused]
    remarks += [f"{run.path} adds nothing to the noise floor: {why}" for run, why in basis.unused_noises()]
    remarks += _new_presets(basis, lines)
    remarks += _of_states([*basis.bases, *news])
    return Comparison(basis.bases, tuple(news), rules, noise, tuple(lines), dict(left_out), tuple(remarks))


def _new_presets(basis: Basis, lines: Sequence[Line]) -> Iterator[str]:
    """Which kernels' presets are others than in the base: both sides run with their own."""
    yield from dict.fromkeys(
        f"preset of {line.row.variant}: {listed(line.row.parameters)}, not {listed(before.parameters)}"
        for line in lines
        if (before := basis.rows.get(line.key)) is not None and before.kind == "gemm"
        if before.parameters != line.row.parameters
    )


def _of_states(runs: Sequence[Run]) -> Iterator[str]:
    """Runs that do not say their rows' state, beside others that do."""
    known = [any(state(row) for row in run.rows) for run in runs]
    for run, is_known in zip(runs, known, strict=True):
        if any(known) and not is_known:
            yield f"{run.path} does not say in which state (--state) its rows were measured"


def _line(basis: Basis, noise: Noise, key: RowKey, news: Sequence[Repetition]) -> Line | str:
    """One row's line, or why it has none."""
    olds = [each for each in basis.repetitions if key in each.rows]
    statuses = {each.rows[key].status for each in olds}
    was_ok = "ok" in statuses
    latest = news[0] if news else olds[0]
    line = Line(key, latest.rows[key], title(latest.run, latest.rows[key]), "missing")
    failed = next((each.rows[key] for each in news if each.rows[key].status in FAILED), None)
    if failed and (was_ok or (failed.status == "wrong" and "wrong" not in statuses)):
        return replace(line, row=failed, verdict="broken", reason=outcome(failed))
    if was_ok and basis.rules.ratio and key not in basis.references:
        return _NO_REFERENCE
    if was_ok and not basis.rows[key].samples:  # a product without terms
        return _NO_RATE
    if was_ok and basis.rules.in_turn and not basis.rules.has_former(basis.rows[key]):
        return _NO_KERNEL
    if not news:
        return line if was_ok else _NO_RATE
    right = [each for each in news if each.rows[key].status == "ok"]
    if not right:
        return _unmeasured(basis, line, news[0]) if was_ok else _NO_RATE
    if all(each.rows[key].measured_utc for each in right):
        return _KEPT
    line = replace(line, row=right[0].rows[key], device=title(right[0].run, right[0].rows[key]))
    if not was_ok:
        before = f"in the base it was {outcome(olds[0].rows[key])}" if olds else ""
        return replace(line, verdict="new", reason=before)
    return _compared(basis, noise, line, right)


def _with_resources(basis: Basis, line: Line, news: Sequence[Repetition]) -> Line:
    """A line that says what its kernels take now and did not before, whatever their speed."""
    alike = basis.rules.across | {"source", "sampling", "memory"}
    now = next((each for each in news if _is_ok(each, line.key)), None)
    olds = [each for each in basis.repetitions if _is_ok(each, line.key)]
    if now is None or not olds:
        return line
    row, before = now.rows[line.key], olds[0].rows[line.key]
    if basis.rules.in_turn:
        if row.former is None:
            return line
        before = replace(before, resources=row.former.resources, launches=row.former.launches)
    elif all(basis.difference(each, now, line.key, alike) for each in olds):
        return line
    changes = "; ".join(changed_resources(before, row))
    if changes and "resources" in basis.rules.fail_on and line.verdict not in FAILING:
        return replace(line, resources=changes, verdict="changed", reason=changes)
    return replace(line, resources=changes)


def _is_ok(repetition: Repetition, key: RowKey) -> bool:
    """Whether a repetition has a result of a row."""
    return key in repetition.rows and repetition.rows[key].status == "ok"


_RESOURCES = {
    "registers": "registers",
    "spill_bytes": "bytes spilled",
    "private_bytes": "bytes of private memory",
    "local_bytes": "bytes of local memory",
}


def changed_resources(before: Row, now: Row) -> Iterator[str]:
    """What the driver tells of a row's kernels and launches, where both rows know it and it differs."""
    for name, old, new in (
        ("launches", before.launches, now.launches),
        ("kernels", before.resources, now.resources),
    ):
        if old and new and len(old) != len(new):
            yield f"{len(new)} {name}, not {len(old)}"
    if len(before.resources) != len(now.resources):
        return
    for was, is_now in zip(before.resources, now.resources, strict=True):
        for name, unit in _RESOURCES.items():
            old, new = getattr(was, name), getattr(is_now, name)
            if None not in (old, new) and old != new:
                yield f"{is_now.kernel}: {new} {unit}, not {old}"


def _unmeasured(basis: Basis, line: Line, now: Repetition) -> Line:
    """The line of a row that was ok in the base, and in the new run was not measured.

    A row is skipped if its least number of runs would exceed its budget: a lower bound of one run's time.
    """
    line = replace(line, reason=outcome(line.row))
    before = [cost.value for cost in basis.base_costs(line.key, now)]
    if not is_too_slow(line.row) or not before:
        return line
    one_s = math.exp(sum(before) / len(before)) * work(basis.rows[line.key])
    longer = now.run.header.policy.budget_s / LEAST_RUNS / one_s
    if longer < 1:
        return line
    sure = longer > 1 + basis.rules.limits(line.row).threshold and not basis.rules.relative
    return replace(line, verdict="broken" if sure else "inconclusive", too_slow=True)


def _compared(basis: Basis, noise: Noise, line: Line, right: Sequence[Repetition]) -> Line | str:
    """The line of a row that is ok on both sides."""
    key = line.key
    olds = [each for each in basis.repetitions if key in each.rows and each.rows[key].status == "ok"]
    reasons = {each: [basis.difference(old, each, key) for old in olds] for each in right}
    fit = next((each for each in right if not all(reasons[each])), None)
    if fit is None:
        return replace(line, verdict="incomparable", reason=reasons[right[0]][-1])
    right = [each for each in right if not basis.difference(fit, each, key)]
    line = replace(line, row=fit.rows[key], device=title(fit.run, fit.rows[key]))
    base = basis.base_figures(key, fit)
    new = [figure for each in right if (figure := basis.figure(each.rows, key)) is not None]
    if not base or not new:  # only where ratios are compared: the row itself is ok on both sides
        of_ratio = key in basis.references
        why = "not measured in turn with its former self"
        reason = _without_reference(basis, key, right if base else olds) if of_ratio else why
        return replace(line, verdict="missing", reason=reason)
    doubts = [
        f"{whose} integrity is suspect: {'; '.join(row.check.reasons) or 'no reason given'}"
        for whose, row in _grounds(basis, key, (*olds, *right))
        if row.check.verdict == "suspect"
    ]
    if doubts:
        return replace(line, verdict="inconclusive", reason=doubts[0])
    return judged(basis, noise, line, base, new)


def _grounds(basis: Basis, key: RowKey, sides: Iterable[Repetition]) -> Iterator[tuple[str, Row]]:
    """The rows that a verdict rests on: the row's, and those that it is a ratio to; and whose they are."""
    reference = basis.references.get(key)
    for each in sides:
        yield "its", each.rows[key]
        if reference is not None and reference in each.rows:
            yield f"its reference {each.rows[reference].variant}'s", each.rows[reference]


def _without_reference(basis: Basis, key: RowKey, side: Sequence[Repetition]) -> str:
    """Why rows are no ratio to their reference."""
    reference = basis.references[key]
    kept = any(each.rows[reference].measured_utc for each in side if reference in each.rows)
    why = "was kept from an earlier run: --remeasure measures it in each" if kept else "has no rate"
    return f"its reference {basis.rows[reference].variant} {why}"


def judged(
    basis: Basis,
    noise: Noise,
    line: Line,
    base: Sequence[Measure],
    new: Sequence[Measure],
    confidence: float = 0,
) -> Line:
    """A line with the verdict that its figures give, at the rules' confidence or another."""
    limits = basis.rules.limits(line.row)
    if confidence:
        limits = replace(limits, confidence=confidence)
    spread = noise.of(line.key)
    judgement = conclude(base, new, spread, limits, noise, line.key)
    reference = basis.references.get(line.key)
    units: float = 1 if reference else work(line.row)
    if basis.rules.in_turn:
        units = former(line.row, basis.rules.scope)
    return replace(
        line,
        verdict=judgement.verdict,
        reason=judgement.reason,
        threshold=limits.threshold,
        judgement=judgement,
        base_s=_middle(base) * units,
        new_s=_middle(new) * units,
        runs=(len(base), len(new)),
        resolution=resolution(base, new, spread, limits, noise, line.key, basis.rules.rounds),
        reference=basis.rows[reference] if reference else None,
    )


def title(run: Run, row: Row) -> str:
    """The device of a row; processor and BLAS of the host."""
    device = run.device(row)
    return device.title if device else f"{run.header.host.cpu} | {run.header.host.blas}"


def outcome(row: Row) -> str:
    """A row's status and reason."""
    return f"{row.status}: {row.reason}".removesuffix(": ")


def _middle(figures: Sequence[Measure]) -> float:
    return math.exp(centre(figures))
