"""The result of a tuning: attempts in the order of the search, and the winner against the shipped preset.

A tuner's file is a saved run. A row's phase is `TRIAL` in the search, `FINALIST` for the few that were timed
again, and `round_phase` where the winner alternated with the preset.
The first attempt of a search is always the shipped preset.
"""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from gemmbench.model import units
from gemmbench.model.row import FAILED, Parameters, Problem, Row, Status
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines, count_noun
from gemmbench.report.notes import WORDS
from gemmbench.report.table import NOTHING, Cell, Note, Sheet, heading, table
from gemmbench.stats import intervals
from gemmbench.stats import rates as derive
from gemmbench.stats.intervals import Interval
from gemmbench.tune.space import FINALISTS, ROUNDS

SCOPE = "device"  # the scope that decides, so packing and padding count
TRIAL = "trial"
FINALIST = "finalist"

_NO_USE: tuple[Status, ...] = ("unsupported", "failed", "wrong")  # of a shipped preset that is replaced


def round_phase(number: int) -> str:
    """The phase of the rows of one round, from 1."""
    return f"round {number}"


@dataclass(frozen=True, eq=False)
class Attempt:
    """One configuration of the search."""

    parameters: Parameters
    rows: tuple[Row, ...]  # one for each size, up to the first that failed or that an interrupt prevented
    sizes: int = 1

    @property
    def trouble(self) -> Row | None:
        return next((row for row in self.rows if row.status != "ok"), None)

    @property
    def rate(self) -> float | None:
        """The geometric mean of the rates at all sizes in flop/s; None if a size has no rate."""
        rates = [derive.flops_of(row) / seconds if (seconds := median_s(row)) else 0.0 for row in self.rows]
        return statistics.geometric_mean(rates) if len(rates) >= self.sizes and all(rates) else None


@dataclass(frozen=True)
class FinalComparison:
    """The winner compared with the shipped preset at one problem."""

    problem: Problem
    searched: bool  # whether the search used this problem
    speedup: Interval | None  # how many times as fast as the shipped preset
    reason: str = ""  # why there is none


@dataclass(frozen=True, eq=False)
class Result:
    """The result of a tuner's run."""

    attempts: tuple[Attempt, ...]
    winner: Parameters | None  # of the finalists; None if there were none, or the shipped preset won
    finished: bool  # whether the finals ended
    overall: Interval | None  # speedup over the shipped preset at all problems of the search
    comparisons: tuple[FinalComparison, ...]
    fault: Row | None = None  # a failed row of the winner, alternating with the shipped preset
    again: tuple[Attempt, ...] = ()  # those of the best few that have a rate again, the fastest first

    def __repr__(self) -> str:
        return f"<Result: {count_noun(len(self.attempts), 'configuration')}, winner {self.winner}>"

    @property
    def default(self) -> Attempt | None:
        return self.attempts[0] if self.attempts else None

    @property
    def ranked(self) -> tuple[Attempt, ...]:
        return _ranked(self.attempts)

    @property
    def failed(self) -> tuple[Attempt, ...]:
        return tuple(attempt for attempt in self.attempts if attempt.rate is None)

    @property
    def is_kept(self) -> bool:
        """Whether the winner replaces the shipped preset: it is clearly faster, or that cannot run."""
        if self.winner is None or not self.finished or self.fault is not None:
            return False
        trouble = self.default.trouble if self.default else None
        fails = trouble is not None and trouble.status in _NO_USE
        return fails or (self.overall is not None and self.overall.is_above(1))


def result(run: Run) -> Result:
    """Read attempts, winner and speedups from a tuner's rows. Only the last finals count."""
    tried = _by_parameters(row for row in run.rows if row.phase == TRIAL)
    finals = _last_finals(run.rows)
    rounds = [row for row in finals if row.phase != FINALIST]
    searched = tuple(dict.fromkeys(row.problem for row in tried[0].rows if row.problem)) if tried else ()
    again = _ranked(_by_parameters(row for row in finals if row.phase == FINALIST))
    if not again or again[0].parameters == tried[0].parameters:
        return Result(tried, None, bool(finals), None, (), again=again)
    speedups: dict[Problem, Interval | None] = {}
    comparisons = []
    speedup: Interval | None
    for problem, rows in by_key((row.problem, row) for row in rounds if row.problem).items():
        times, shipped = derive.interleaved_seconds(rows, SCOPE)
        speedup = speedups[problem] = intervals.interleaved_ratio(shipped, times) if times else None
        bad = next((row for row in rows if row.status != "ok"), None)
        # The notes of a row that could not be interleaved contain the reason.
        why = f"{bad.status}: {bad.reason}" if bad else "" if speedup else "; ".join(rows[0].notes)
        comparisons.append(FinalComparison(problem, problem in searched, speedup, why))
    together = [speedup for problem in searched if (speedup := speedups.get(problem))]
    # Geometric means of medians and of ends. Those of the ends are cautious.
    sides = zip(*((each.median, each.low, each.high) for each in together), strict=True)
    overall: Interval | None = Interval(*map(statistics.geometric_mean, sides)) if together else None
    counts = Counter(row.phase for row in finals)
    finished = counts[round_phase(ROUNDS)] == counts[round_phase(ROUNDS - 1)] > 0
    if tried[0].rate is None:  # without rounds
        entrants = min(FINALISTS, sum(each.rate is not None for each in tried))
        finished = counts[FINALIST] == entrants * len(searched)
    fault = next((row for row in rounds if row.status in FAILED), None)
    return Result(tried, again[0].parameters, finished, overall, tuple(comparisons), fault, again)


def _ranked(attempts: Iterable[Attempt]) -> tuple[Attempt, ...]:
    return tuple(sorted((each for each in attempts if each.rate), key=lambda each: -(each.rate or 0)))


def median_s(row: Row) -> float | None:
    """The median seconds of a row in the device scope; None without a time."""
    if row.status != "ok" or SCOPE not in row.samples:
        return None
    return statistics.median(row.samples[SCOPE].counted)


def _by_parameters(rows: Iterable[Row]) -> tuple[Attempt, ...]:
    grouped: dict[tuple[tuple[str, object], ...], dict[Problem | None, Row]] = {}
    for row in rows:
        grouped.setdefault(tuple(sorted(row.parameters.items())), {})[row.problem] = row
    groups = [tuple(group.values()) for group in grouped.values()]
    sizes = len({row.problem for group in groups for row in group})
    return tuple(Attempt(group[0].parameters, group, sizes) for group in groups)


def _last_finals(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows from the last sequence of finalists on, without rows of the search."""
    starts = [
        index
        for index, row in enumerate(rows)
        if row.phase == FINALIST and (index == 0 or rows[index - 1].phase != FINALIST)
    ]
    return tuple(row for row in rows[starts[-1] :] if row.phase != TRIAL) if starts else ()


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


def tuning_sheets(run: Run, top: int = TOP) -> list[Sheet]:
    """The tables of a tuner's run: the best `top` configurations, the finals if any, the result."""
    if not run.rows:
        return []
    outcome = result(run)
    first = run.rows[0]
    tables = [_ranking_sheet(run, first, outcome, top)]
    if outcome.comparisons:
        tables.append(_finals_sheet(outcome))
    notes = [
        *_failure_notes(outcome),
        *_reversal(outcome),
        Note("", _verdict_sentence(outcome), "bold"),
        *_losses(outcome),
    ]
    if outcome.is_kept and outcome.winner is not None:
        family = run.header.devices[first.device].family
        key = family if first.dtype == "float" else f"{family}:{first.dtype}"
        notes.append(Note("as a preset", preset_line(key, outcome.winner), is_whole=True))
    tables.append(Sheet(notes=tuple(notes)))
    return tables


def preset_line(key: str, parameters: Parameters) -> str:
    """A line for the table ``[presets]`` in a kernel's description."""
    inside = ", ".join(f"{clean(name)} = {clean(str(value))}" for name, value in parameters.items())
    return f'"{clean(key)}" = {{ {inside} }}'


def _ranking_sheet(run: Run, first: Row, outcome: Result, top: int) -> Sheet:
    """The table of the best configurations and the shipped preset."""
    shipped = outcome.default
    base = shipped.rate if shipped else None
    shown = list(outcome.ranked[:top])
    if shipped in outcome.ranked and shipped not in shown and shipped is not None:
        shown.append(shipped)
    names = tuple(dict.fromkeys(name for attempt in outcome.attempts for name in attempt.parameters))
    sizes = dict.fromkeys(row.problem for attempt in outcome.attempts for row in attempt.rows if row.problem)
    ranks = {id(attempt): rank for rank, attempt in enumerate(outcome.ranked, 1)}
    best = (outcome.again or outcome.ranked)[0].parameters if outcome.ranked else {}
    again = [(each.parameters, each.rate or 0) for each in outcome.again]

    def second(attempt: Attempt) -> Cell:
        rate = next((rate for parameters, rate in again if parameters == attempt.parameters), None)
        return Cell(units.gflops(rate), best=attempt.parameters == best) if rate else NOTHING

    at = ", ".join(problem.shape for problem in sizes)
    mean, unit = ", geometric mean" if len(sizes) > 1 else "", derive.unit(first.dtype)
    return table(
        shown,
        {"": lambda attempt: _SHIPPED if attempt is shipped else str(ranks[id(attempt)])},
        {
            unit: lambda attempt: Cell(
                units.gflops(attempt.rate or 0), not again and attempt.parameters == best
            ),
            f"x {_SHIPPED}": lambda attempt: units.number((attempt.rate or 0) / base) if base else "-",
            **({"again": second} if again else {}),
        },
        {name: partial(_parameter, name=name) for name in names},
        heading=heading(run, first.device),
        caption=f"{clean(first.variant)}, {first.dtype} GEMM, {at}, {unit} on the device{mean}",
    )


def _parameter(attempt: Attempt, name: str) -> Cell:
    """The value of a parameter; ``own`` if the kernel's choice depends on the problem."""
    values = {row.parameters.get(name, row.choice.get(name, "-")) for row in attempt.rows}
    return Cell(clean(str(values.pop())) if len(values) == 1 else "own")


def _failure_notes(outcome: Result) -> list[Note]:
    if not outcome.failed:
        return []
    counts = Counter(WORDS[row.status] for attempt in outcome.failed if (row := attempt.trouble))
    how = ", ".join(f"{count} {word}" for word, count in counts.most_common())
    return [
        Note("", f"{len(outcome.failed)} of {len(outcome.attempts)} configurations failed: {how}.", "dim")
    ]


def _finals_sheet(outcome: Result) -> Sheet:
    return table(
        outcome.comparisons,
        {"m x n x k": lambda each: each.problem.shape + ("" if each.searched else " (not searched)")},
        {
            "speed": lambda each: f"{units.number(each.speedup.median)} x" if each.speedup else "-",
            "95 % interval": lambda each: _interval(each.speedup) if each.speedup else "-",
            "result": _result_cell,
        },
        caption="Best configuration compared with the shipped preset, alternating",
        left=["result"],
    )


def _result_cell(comparison: FinalComparison) -> Cell:
    if comparison.speedup is None:
        return Cell(clean_lines(comparison.reason) or "not timed", style="dim")
    if comparison.speedup.is_above(1):
        return Cell("faster", style="green")
    return Cell("slower", style="red") if comparison.speedup.is_below(1) else Cell("unclear")


def _interval(speedup: Interval) -> str:
    return f"{units.number(speedup.low)} to {units.number(speedup.high)}"


def _reversal(outcome: Result) -> list[Note]:
    """A note if another configuration was the fastest when the best few were timed again."""
    if not outcome.again or outcome.again[0].parameters == outcome.ranked[0].parameters:
        return []
    numbers = {
        id(attempt): "the shipped preset" if attempt is outcome.default else f"number {rank}"
        for rank, attempt in enumerate(outcome.ranked, 1)
    }
    fastest = next(each for each in outcome.ranked if each.parameters == outcome.again[0].parameters)
    names = numbers[id(fastest)], numbers[id(outcome.ranked[0])]
    return [Note("", f"Measured again, {names[0]} was faster than {names[1]}, the best of the search.")]


def _verdict_sentence(outcome: Result) -> str:
    """A sentence: what stays or is saved, and why."""
    if not outcome.ranked:
        return "No configuration could be measured."
    if outcome.ranked == (outcome.default,):
        return "The shipped preset stays: nothing else was measured. A longer --budget tries more."
    if not outcome.finished:
        return "Nothing is saved: the best few have not been compared with the shipped preset yet."
    if outcome.winner is None:
        return "The shipped preset stays: no other configuration was faster when measured again."
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
    how = f"{units.number(outcome.overall.median)} times as fast ({_interval(outcome.overall)})"
    if outcome.is_kept:
        return f"The winner is saved: {how} as the shipped preset."
    what = "slower" if outcome.overall.is_below(1) else "not clearly faster"
    return f"The shipped preset stays: the best found is {how}, which is {what}."


def _losses(outcome: Result) -> list[Note]:
    lost = [each for each in outcome.comparisons if each.speedup and each.speedup.is_below(1)]
    if not lost or not outcome.is_kept:
        return []
    ratios = ((each.problem.shape, each.speedup.median) for each in lost if each.speedup)
    where = ", ".join(f"{shape} ({units.number(ratio)})" for shape, ratio in ratios)
    return [Note("", f"Slower at {where}. `gemmbench tune --forget` restores the shipped preset.", "yellow")]
