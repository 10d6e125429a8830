"""What a tuner's rows say: attempts in the order of the search, and the winner against the shipped preset.

A tuner's file is a saved run. A row's phase says what it is for: `TRIAL` in the search, `FINALIST` of the few
that were timed again, `round_phase` of the winner in turn with the preset.
The first attempt of a search is always the shipped preset.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from gemmbench.model import units
from gemmbench.model.row import FAILED, Parameters, Problem, Row, Status
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines
from gemmbench.report.notes import WORDS
from gemmbench.report.table import Cell, Note, Sheet, heading
from gemmbench.stats import intervals
from gemmbench.stats import rates as derive
from gemmbench.stats.intervals import Interval

SCOPE = "device"  # that decides: packing and padding count
TRIAL = "trial"
FINALIST = "finalist"

_NO_USE: tuple[Status, ...] = ("unsupported", "failed", "wrong")  # a shipped preset that anything beats


def round_phase(number: int) -> str:
    """The phase of the rows of one round, from 1."""
    return f"round {number}"


@dataclass(frozen=True, eq=False)
class Attempt:
    """One configuration of the search."""

    parameters: Parameters
    rows: tuple[Row, ...]  # one for each size, up to the first that failed

    @property
    def trouble(self) -> Row | None:
        """The row that kept it from being ranked."""
        return next((row for row in self.rows if row.status != "ok"), None)

    @property
    def rate(self) -> float | None:
        """Its geometric mean over the sizes in flop/s; None if it failed at one."""
        return mean_rate(self.rows)


@dataclass(frozen=True)
class FinalComparison:
    """The winner beside the shipped preset at one problem."""

    problem: Problem
    searched: bool  # one of the problems of the search
    speedup: Interval | None  # how many times as fast as the shipped preset
    reason: str = ""  # why there is none


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a tuner's run."""

    attempts: tuple[Attempt, ...]
    winner: Parameters | None  # of the finalists; None if there were none, or the shipped preset won
    finished: bool  # the finals were held to their end
    overall: Interval | None  # the same, at the problems of the search together
    comparisons: tuple[FinalComparison, ...]
    fault: Row | None = None  # of the winner, when it took turns with the shipped preset

    @property
    def default(self) -> Attempt | None:
        return self.attempts[0] if self.attempts else None

    @property
    def ranked(self) -> tuple[Attempt, ...]:
        """The attempts that have a rate, the fastest first."""
        rated = [attempt for attempt in self.attempts if attempt.rate is not None]
        return tuple(sorted(rated, key=lambda attempt: -(attempt.rate or 0)))

    @property
    def failed(self) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.rate is None)

    @property
    def is_kept(self) -> bool:
        """Whether the winner replaces the preset: it is faster with confidence, or the preset fails.

        One that was merely not timed may still be the fastest.
        """
        if self.winner is None or not self.finished or self.fault is not None:
            return False
        trouble = self.default.trouble if self.default else None
        fails = trouble is not None and trouble.status in _NO_USE
        return fails or (self.overall is not None and self.overall.is_above(1))


def result(run: Run) -> Result:
    """Read attempts, winner and comparisons from a tuner's rows. Only the last finals count.

    The winner has the best mean rate among the finalists. It is None if the shipped preset has.
    """
    tried = _by_parameters(row for row in run.rows if row.phase == TRIAL)
    finals = _last_finals(run.rows)
    rounds = [row for row in finals if row.phase != FINALIST]
    searched = tuple(dict.fromkeys(row.problem for row in tried[0].rows if row.problem)) if tried else ()
    heat = [each for each in _by_parameters(row for row in finals if row.phase == FINALIST) if each.rate]
    best = max(heat, key=lambda each: each.rate or 0, default=None)
    if best is None or best.parameters == tried[0].parameters:
        return Result(tried, None, bool(finals), None, ())
    speedups: dict[Problem, Interval | None] = {}
    comparisons = []
    for problem, rows in by_key((row.problem, row) for row in rounds if row.problem).items():
        speedup = speedups[problem] = _speedup(rows)
        bad = next((row for row in rows if row.status != "ok"), None)
        # The notes of a row that could not be timed in turn with the other side say why.
        why = f"{bad.status}: {bad.reason}" if bad else "" if speedup else "; ".join(rows[0].notes)
        comparisons.append(FinalComparison(problem, problem in searched, speedup, why))
    together = [speedup for problem in searched if (speedup := speedups.get(problem))]
    overall = _overall(together) if together else None
    finished = bool(rounds) or tried[0].rate is None
    fault = next((row for row in rounds if row.status in FAILED), None)
    return Result(tried, best.parameters, finished, overall, tuple(comparisons), fault)


def mean_rate(rows: Sequence[Row]) -> float | None:
    """The geometric mean of rates in flop/s; None if a row has none, or there are no rows."""
    rates = [derive.flops_of(row) / took if (took := median_s(row)) else 0.0 for row in rows]
    if not all(rates) or not rates:
        return None
    return math.exp(sum(map(math.log, rates)) / len(rates))


def median_s(row: Row) -> float | None:
    """What ranks a row; None if it has no time. Its interval would take longer than a short look."""
    if row.status != "ok" or SCOPE not in row.samples:
        return None
    return statistics.median(row.samples[SCOPE].seconds)


def _speedup(rounds: Sequence[Row]) -> Interval | None:
    """The speed of the winner over that of the shipped preset, with its interval; None without pairs."""
    own, shipped = derive.interleaved_seconds(rounds, SCOPE)
    return intervals.interleaved_ratio(shipped, own) if own else None


def _overall(speedups: Sequence[Interval]) -> Interval:
    """The geometric mean over problems; the ends are those of the intervals' ends, which is cautious."""
    ends = ((each.median, each.low, each.high) for each in speedups)
    return Interval(*map(statistics.geometric_mean, zip(*ends, strict=True)))


def _by_parameters(rows: Iterable[Row]) -> tuple[Attempt, ...]:
    grouped: dict[tuple[tuple[str, object], ...], dict[Problem | None, Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(sorted(row.parameters.items())), {})[row.problem] = row
    groups = [tuple(group.values()) for group in grouped.values()]
    return tuple(Attempt(group[0].parameters, group) for group in groups)


def _last_finals(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows of finals from the last block of finalists on, without those of the search."""
    starts = [
        index
        for index, row in enumerate(rows)
        if row.phase == FINALIST and (index == 0 or rows[index - 1].phase != FINALIST)
    ]
    return tuple(row for row in rows[starts[-1] :] if row.phase != TRIAL) if starts else ()


# --- As tables: the best configurations, the winner compared with the shipped preset ------------------------

TOP = 10
_SHIPPED = "shipped"
_FAULTS: Mapping[Status, str] = {
    "wrong": "gives wrong answers",
    "unsupported": "does not run",
    "skipped": "was not timed",
    "failed": "fails",
    "crashed": "crashed",
    "timed-out": "was stopped",
}


def sheets(run: Run, top: int = TOP) -> list[Sheet]:
    """The best configurations of a tuner's run, the finals if there were any, and the result."""
    if not run.rows:
        return []
    outcome = result(run)
    first = run.rows[0]
    tables = [_ranking(run, first, outcome, top)]
    if outcome.comparisons:
        tables.append(_finals(outcome))
    notes = [*_failures(outcome), Note("", _verdict(outcome), "bold"), *_losses(outcome)]
    if outcome.is_kept and outcome.winner is not None:
        family = run.header.devices[first.device].family
        key = family if first.dtype == "float" else f"{family}:{first.dtype}"
        line = own_preset(key, outcome.winner) if first.own else preset_line(key, outcome.winner)
        notes.append(Note("as a preset", line))
    tables.append(Sheet(notes=tuple(notes)))
    return tables


def preset_line(key: str, parameters: Mapping[str, int | float | str]) -> str:
    """A line for the ``presets`` of a variant's entry in the registry."""
    inside = ", ".join(f'"{clean(name)}": {clean(str(value))}' for name, value in parameters.items())
    return f'"{clean(key)}": {{{inside}}},'


def own_preset(key: str, parameters: Mapping[str, int | float | str]) -> str:
    """A line for ``[presets]`` of the description of a user's own kernel."""
    inside = ", ".join(f"{clean(name)} = {clean(str(value))}" for name, value in parameters.items())
    return f'"{clean(key)}" = {{ {inside} }}'


def _ranking(run: Run, first: Row, outcome: Result, top: int) -> Sheet:
    shipped = outcome.default
    base = shipped.rate if shipped else None
    shown = list(outcome.ranked[:top])
    if shipped in outcome.ranked and shipped not in shown and shipped is not None:
        shown.append(shipped)
    names = tuple(dict.fromkeys(name for attempt in outcome.attempts for name in attempt.parameters))
    sizes = dict.fromkeys(row.problem for attempt in outcome.attempts for row in attempt.rows if row.problem)
    ranks = {id(attempt): rank for rank, attempt in enumerate(outcome.ranked, 1)}
    rows = tuple(
        (
            Cell(_SHIPPED if attempt is shipped else str(ranks[id(attempt)])),
            Cell(units.gflops(attempt.rate or 0), best=ranks[id(attempt)] == 1),
            Cell(units.number((attempt.rate or 0) / base) if base else "-"),
            *(_parameter(attempt, name) for name in names),
        )
        for attempt in shown
    )
    at = ", ".join(problem.shape for problem in sizes)
    mean = ", geometric mean" if len(sizes) > 1 else ""
    return Sheet(
        heading=heading(run, first.device),
        caption=f"{clean(first.variant)}, {first.dtype} GEMM, {at}, GFLOPS on the device{mean}",
        keys=("",),
        blocks=(("GFLOPS", f"x {_SHIPPED}"), names),
        rows=rows,
    )


def _parameter(attempt: Attempt, name: str) -> Cell:
    """A parameter's value, or what the kernel chose itself; ``own`` if that differs by problem."""
    values = {row.parameters.get(name, row.choice.get(name, "-")) for row in attempt.rows}
    return Cell(clean(str(values.pop())) if len(values) == 1 else "own")


def _failures(outcome: Result) -> list[Note]:
    """How many configurations failed, and how; the rows of ``show -v`` have the reasons."""
    if not outcome.failed:
        return []
    counts = Counter(WORDS[row.status] for attempt in outcome.failed if (row := attempt.trouble))
    how = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    return [
        Note("", f"{len(outcome.failed)} of {len(outcome.attempts)} configurations failed: {how}.", "dim")
    ]


def _finals(outcome: Result) -> Sheet:
    return Sheet(
        caption="Best configuration compared with the shipped preset, alternating",
        keys=("m x n x k",),
        blocks=(("speed", "95 % interval", "result"),),
        rows=tuple(map(_final, outcome.comparisons)),
        left=frozenset({"result"}),
    )


def _final(comparison: FinalComparison) -> tuple[Cell, ...]:
    size = Cell(comparison.problem.shape + ("" if comparison.searched else " (not searched)"))
    if comparison.speedup is None:
        return size, Cell("-"), Cell("-"), Cell(clean_lines(comparison.reason) or "not timed", style="dim")
    word, style = "unclear", ""
    if comparison.speedup.is_above(1):
        word, style = "faster", "green"
    elif comparison.speedup.is_below(1):
        word, style = "slower", "red"
    interval = Cell(_interval(comparison.speedup))
    return size, Cell(f"{units.ratio(comparison.speedup.median)} x"), interval, Cell(word, style=style)


def _interval(speedup: Interval) -> str:
    return f"{units.ratio(speedup.low)} to {units.ratio(speedup.high)}"


def _verdict(outcome: Result) -> str:
    if not outcome.ranked:
        return "No configuration could be measured."
    if outcome.ranked == (outcome.default,):
        return "The shipped preset stays: nothing else was measured. A longer --budget tries more."
    if not outcome.finished:
        return "Nothing is saved: the best few have not been compared with the shipped preset yet."
    if outcome.winner is None:
        return "The shipped preset stays: no other configuration was faster when timed again."
    if outcome.fault is not None:
        at = f" at {outcome.fault.problem.shape}" if outcome.fault.problem else ""
        what = f"{_FAULTS[outcome.fault.status]}{at}"
        return f"The shipped preset stays: the best found {what}: {clean_lines(outcome.fault.reason)}"
    trouble = outcome.default.trouble if outcome.default else None
    if trouble is not None and outcome.is_kept:
        return f"The winner is saved: the shipped preset {_FAULTS[trouble.status]} on this device."
    if trouble is not None:
        why = f"it {_FAULTS[trouble.status]}: {clean_lines(trouble.reason)}"
        return f"The shipped preset stays: it cannot be compared, because {why}"
    if outcome.overall is None:
        return "The shipped preset stays: it and the best found gave no pair of times."
    how = f"{units.ratio(outcome.overall.median)} times as fast ({_interval(outcome.overall)})"
    if outcome.is_kept:
        return f"The winner is saved: {how} as the shipped preset."
    what = "slower" if outcome.overall.is_below(1) else "not clearly faster"
    return f"The shipped preset stays: the best found is {how}, which is {what}."


def _losses(outcome: Result) -> list[Note]:
    lost = [each for each in outcome.comparisons if each.speedup and each.speedup.is_below(1)]
    if not lost or not outcome.is_kept:
        return []
    ratios = ((each.problem.shape, each.speedup.median) for each in lost if each.speedup)
    where = ", ".join(f"{shape} ({units.ratio(ratio)})" for shape, ratio in ratios)
    return [Note("", f"Slower at {where}. `gemmbench tune --forget` restores the shipped preset.", "yellow")]
