"""Runs against runs: a line with a verdict for each row."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property

from gemmbench.facts import derive
from gemmbench.facts.compare import noise as floors
from gemmbench.facts.compare.measures import Measure, measure, work
from gemmbench.facts.compare.noise import Noise
from gemmbench.facts.compare.pairing import Repetition, difference, repetitions
from gemmbench.facts.compare.thresholds import Thresholds
from gemmbench.facts.compare.verdict import CONFIDENCE, FAILING, Judgement, Limits, Verdict, judge
from gemmbench.facts.records import Header, Row, RowKey, Run, Status
from gemmbench.facts.series import HOST

PEAK = "peak"  # as a reference: the best measured peak of the row's data type
_FAILED: tuple[Status, ...] = ("wrong", "crashed", "failed", "timed-out")
_NO_RATE = "without a rate on either side"
_KEPT = "kept from an earlier run, not measured in the new one"
_NO_REFERENCE = "without a reference to be a ratio to"


@dataclass(frozen=True)
class Rules:
    """How runs are compared."""

    thresholds: Thresholds = field(default_factory=Thresholds)
    confidence: float = CONFIDENCE
    scope: str | None = None  # None: the finest that was measured
    ratio: tuple[str, ...] = ()  # variants, or PEAK: each row is taken as a ratio to the first that it has
    across: frozenset[str] = frozenset()  # of pairing.DIFFERENCES

    def limits(self, row: Row) -> Limits:
        """What a row is held against."""
        return Limits(self.thresholds.of(row), self.confidence)


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

    @property
    def fails(self) -> bool:
        """Whether it is a regression."""
        return self.verdict in FAILING

    @property
    def open(self) -> bool:
        """Whether it may yet be one: an inconclusive row whose interval reaches past the threshold."""
        return self.verdict == "inconclusive" and (self.judgement is None or self.judgement.may_be_slower)


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
        """Lines that are a statement about the new runs' speed, or its loss."""
        return sum(line.judgement is not None or line.verdict == "broken" for line in self.lines)


@dataclass(frozen=True, eq=False)
class Basis:
    """Base runs, ready to be compared with."""

    bases: tuple[Run, ...]
    rules: Rules
    noises: tuple[Run, ...] = ()

    @property
    def header(self) -> Header:
        """The first base's, whose devices keys refer to."""
        return self.bases[0].header

    @cached_property
    def repetitions(self) -> tuple[Repetition, ...]:
        """Of all bases; a row that several have kept from one earlier run is none the second time."""
        kept: set[tuple[RowKey, str]] = set()
        found = []
        for each in (each for run in self.bases for each in repetitions(run, self.header)):
            rows = {key: row for key, row in each.rows.items() if (key, row.measured_utc) not in kept}
            kept |= {(key, row.measured_utc) for key, row in rows.items() if row.measured_utc}
            found.append(Repetition(each.run, rows))
        return tuple(found)

    @cached_property
    def rows(self) -> dict[RowKey, Row]:
        """Each key's first row that is ok, or its first."""
        found: dict[RowKey, Row] = {}
        for each in self.repetitions:
            for key, row in each.rows.items():
                if key not in found or (row.status == "ok" and found[key].status != "ok"):
                    found[key] = row
        return found

    @cached_property
    def references(self) -> dict[RowKey, RowKey]:
        """In ratio mode what each row is a ratio to; rows that have nothing, or are it themselves, lack."""
        found = {key: self._reference(key) for key in self.rows}
        return {key: reference for key, reference in found.items() if reference is not None}

    def _reference(self, key: RowKey) -> RowKey | None:
        if self.rows[key].kind not in ("gemm", "peak"):
            return None
        for name in self.rules.ratio:
            found = self._peak(key) if name == PEAK else self._variant(key, name)
            if found is not None:
                return found if found != key else None
        return None

    def _variant(self, key: RowKey, name: str) -> RowKey | None:
        """A variant's row of the same problem and type; of its largest problem for a microbenchmark."""
        _, device, _, dtype, _, problem = key
        fits = [
            other
            for other, row in self.rows.items()
            if (row.kind, row.variant, row.dtype, row.status) == ("gemm", name, dtype, "ok")
            if other[1] in (device, HOST) and problem in (None, row.problem)
        ]
        return max(fits, key=lambda other: derive.flops_of(self.rows[other]), default=None)

    def _peak(self, key: RowKey) -> RowKey | None:
        """The fastest believed peak of the same device and type; of any device for the host's own BLAS."""
        _, device, _, dtype, _, _ = key
        rates = {
            other: found.best
            for other, row in self.rows.items()
            if (row.kind, row.variant, row.dtype) == ("peak", "flops", dtype) and row.check.verdict == "ok"
            if device in (other[1], HOST)
            if (found := derive.rate(row, "kernel")) is not None
        }
        return max(rates, key=lambda other: rates[other], default=None)

    def figure(self, rows: Mapping[RowKey, Row], key: RowKey) -> Measure | None:
        """A row's figure in one repetition: its cost, or its ratio; None where one of its rows is not ok."""
        mine = measure(rows[key], self.rules.scope) if key in rows else None
        if not self.rules.ratio or mine is None:
            return mine
        reference = self.references.get(key)
        other = measure(rows[reference], self.rules.scope) if reference and reference in rows else None
        return mine.over(other) if other else None

    def base_figures(self, key: RowKey, against: tuple[Run, Row] | None = None) -> list[Measure]:
        """A row's figures in the bases, or only in those that may be compared with a new row."""
        return [
            found
            for each in self.repetitions
            if key in each.rows
            if against is None or not difference((each.run, each.rows[key]), against, self.rules.across)
            if (found := self.figure(each.rows, key)) is not None
        ]

    def groups(self, news: Sequence[Repetition] = ()) -> dict[RowKey, list[list[float]]]:
        """Values of what was measured several times, by row: the bases', the noise runs', the new runs'."""
        sides: list[Sequence[Repetition]] = [self.repetitions, news]
        sides += [repetitions(run, self.header) for run in self.noises]
        found: dict[RowKey, list[list[float]]] = {}
        for key in self.rows:
            for side in sides:
                values = [one.value for each in side if (one := self.figure(each.rows, key)) is not None]
                found.setdefault(key, []).append(values)
        return found

    def noise(self, news: Sequence[Repetition] = ()) -> Noise:
        """The floor: what repetitions show, and how rows scatter where that is more."""
        groups = self.groups(news)
        most = max((len(group) for several in groups.values() for group in several), default=0)
        measured = floors.measured(groups, f"measured, {most} runs")
        scattered = floors.scattered(
            [value for key in self.rows if (value := self._scaled(key, news)) is not None]
        )
        if measured and scattered and scattered.typical > measured.typical:
            return replace(measured, typical=scattered.typical, source=scattered.source)
        return measured or scattered or floors.assumed()

    def _scaled(self, key: RowKey, news: Sequence[Repetition]) -> float | None:
        """A row's ratio in units of what one run's noise would make it scatter by; None if there is none."""
        base = self.base_figures(key)
        new = [found for each in news if (found := self.figure(each.rows, key)) is not None]
        if not base or not new:
            return None
        apart = sum(one.value for one in new) / len(new) - sum(one.value for one in base) / len(base)
        return apart / math.sqrt(1 / len(base) + 1 / len(new))


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
    again = [each for run in news for each in repetitions(run, basis.header)]
    noise = basis.noise(again)
    left_out: Counter[str] = Counter()
    lines = []
    for key in dict.fromkeys([*basis.rows, *(key for each in again for key in each.rows)]):
        line = _line(basis, noise, key, [each for each in again if key in each.rows])
        if isinstance(line, Line):
            lines.append(line)
        else:
            left_out[line] += 1
    unused = rules.thresholds.unused(line.row for line in lines)
    remarks = [f"threshold row {number} is for none of these rows" for number in unused]
    return Comparison(basis.bases, tuple(news), rules, noise, tuple(lines), dict(left_out), tuple(remarks))


def _line(basis: Basis, noise: Noise, key: RowKey, news: Sequence[Repetition]) -> Line | str:
    """One row's line, or why it has none."""
    olds = [each for each in basis.repetitions if key in each.rows]
    statuses = {each.rows[key].status for each in olds}
    was_ok = "ok" in statuses
    place = news[0] if news else olds[0]
    mine = Line(key, place.rows[key], title(place.run, place.rows[key]), "missing")
    failed = next((each.rows[key] for each in news if each.rows[key].status in _FAILED), None)
    if failed and (was_ok or (failed.status == "wrong" and "wrong" not in statuses)):
        return replace(mine, row=failed, verdict="broken", reason=told(failed))
    if was_ok and basis.rules.ratio and key not in basis.references:
        return _NO_REFERENCE
    if not news:
        return mine if was_ok else _NO_RATE
    right = [each for each in news if each.rows[key].status == "ok"]
    if not right:
        return replace(mine, reason=told(mine.row)) if was_ok else _NO_RATE
    if all(each.rows[key].measured_utc for each in right):
        return _KEPT
    mine = replace(mine, row=right[0].rows[key], device=title(right[0].run, right[0].rows[key]))
    if not was_ok:
        before = f"in the base it was {told(olds[0].rows[key])}" if olds else ""
        return replace(mine, verdict="new", reason=before)
    return _compared(basis, noise, mine, right)


def _compared(basis: Basis, noise: Noise, mine: Line, right: Sequence[Repetition]) -> Line | str:
    """The line of a row that is ok on both sides."""
    key, rules = mine.key, basis.rules
    olds = [each for each in basis.repetitions if key in each.rows and each.rows[key].status == "ok"]
    now = (right[0].run, mine.row)
    reasons = [difference((each.run, each.rows[key]), now, rules.across) for each in olds]
    if all(reasons):
        return replace(mine, verdict="incomparable", reason=reasons[-1])
    base = basis.base_figures(key, now)
    new = [found for each in right if (found := basis.figure(each.rows, key)) is not None]
    if not base or not new:  # only in ratio mode: the row itself is ok on both sides
        reference = basis.rows[basis.references[key]]
        return replace(mine, verdict="missing", reason=f"its reference {reference.variant} has no rate")
    doubted = next(
        (row for each in (*olds, *right) if (row := each.rows[key]).check.verdict == "suspect"), None
    )
    if doubted:
        reason = f"its integrity is suspect: {'; '.join(doubted.check.reasons) or 'no reason given'}"
        return replace(mine, verdict="inconclusive", reason=reason)
    return judged(basis, noise, mine, base, new)


def judged(
    basis: Basis,
    noise: Noise,
    mine: Line,
    base: Sequence[Measure],
    new: Sequence[Measure],
    confidence: float = 0,
) -> Line:
    """A line with the verdict that its figures give.

    Args:
        basis: the bases and the rules.
        noise: the floor.
        mine: the line so far.
        base: the row's figures in the bases.
        new: and now.
        confidence: other than the rules'.
    """
    limits = basis.rules.limits(mine.row)
    if confidence:
        limits = replace(limits, confidence=confidence)
    found = judge(base, new, noise.of(mine.key), limits)
    reference = basis.references.get(mine.key)
    units = 1 if reference else work(mine.row)
    return replace(
        mine,
        verdict=found.verdict,
        reason=found.reason,
        threshold=limits.threshold,
        judgement=found,
        base_s=_middle(base) * units,
        new_s=_middle(new) * units,
        runs=(len(base), len(new)),
        reference=basis.rows[reference] if reference else None,
    )


def title(run: Run, row: Row) -> str:
    """The device of a row; processor and BLAS of the host."""
    device = run.device(row)
    return device.title if device else f"{run.header.host.cpu} | {run.header.host.blas}"


def told(row: Row) -> str:
    """A row's status and reason."""
    return f"{row.status}: {row.reason}".removesuffix(": ")


def _middle(figures: Sequence[Measure]) -> float:
    return math.exp(sum(one.value for one in figures) / len(figures))
