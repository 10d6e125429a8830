"""A tuner's result: the best configurations, what failed, the winner beside the shipped preset."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from types import TracebackType

import rich.progress
from rich.console import Console
from rich.text import Text

from gemmbench.model import units
from gemmbench.model.events import Staged, Started
from gemmbench.model.row import Row, Status
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, clean_lines, listed
from gemmbench.report.notes import STYLES, WORDS
from gemmbench.report.progress import line
from gemmbench.report.table import Cell, Note, Sheet, heading
from gemmbench.stats.intervals import Interval
from gemmbench.tune.result import (
    Attempt,
    Comparison,
    Event,
    Result,
    Retimed,
    Retiming,
    Searching,
    Tried,
    result,
)

TOP = 10
_SHIPPED = "shipped"
_AGAIN = "when they took turns"
_FAULTS: Mapping[Status, str] = {
    "wrong": "gives wrong answers",
    "unsupported": "does not run",
    "skipped": "was not timed",
    "failed": "fails",
    "crashed": "crashed",
    "timed-out": "was stopped",
}
_REASONS = 6  # reasons shown for configurations without a rate


def sheets(run: Run, top: int = TOP) -> list[Sheet]:
    """The best configurations, and the finals if there were any.

    Args:
        run: a tuner's.
        top: how many configurations.
    """
    if not run.rows:
        return []
    outcome = result(run)
    first = run.rows[0]
    tables = [_ranking(run, first, outcome, top)]
    if outcome.comparisons:
        tables.append(_finals(outcome))
    verdict = [Note("", _verdict(outcome), "bold"), *_losses(outcome)]
    if outcome.is_kept and outcome.winner is not None:
        family = run.header.devices[first.device].family
        key = family if first.dtype == "float" else f"{family}:{first.dtype}"
        verdict.append(Note("as a preset", preset_line(key, outcome.winner)))
    tables.append(Sheet(notes=tuple(verdict)))
    return tables


def preset_line(key: str, parameters: Mapping[str, int | float | str]) -> str:
    """A line for the ``presets`` of a variant's entry in the registry."""
    inside = ", ".join(f'"{clean(name)}": {clean(str(value))}' for name, value in parameters.items())
    return f'"{clean(key)}": {{{inside}}},'


def _ranking(run: Run, first: Row, outcome: Result, top: int) -> Sheet:
    shipped = outcome.default
    base = shipped.rate if shipped else None
    shown = list(outcome.ranked[:top])
    if shipped in outcome.ranked and shipped not in shown and shipped is not None:
        shown.append(shipped)
    names = tuple(first.parameters)
    sizes = dict.fromkeys(row.problem for attempt in outcome.attempts for row in attempt.rows if row.problem)
    ranks = {id(attempt): rank for rank, attempt in enumerate(outcome.ranked, 1)}
    rows = tuple(
        (
            Cell(_SHIPPED if attempt is shipped else str(ranks[id(attempt)])),
            Cell(units.gflops(attempt.rate or 0), best=ranks[id(attempt)] == 1),
            Cell(units.number((attempt.rate or 0) / base) if base else "-"),
            *(Cell(clean(str(attempt.parameters.get(name, "-")))) for name in names),
        )
        for attempt in shown
    )
    at = ", ".join(problem.shape for problem in sizes)
    mean = " (geometric mean)" if len(sizes) > 1 else ""
    failed = f", {len(outcome.failed)} without a rate" if outcome.failed else ""
    return Sheet(
        heading=heading(run, first.device),
        caption=f"{clean(first.variant)} {first.dtype} at {at}: GFLOPS of the search's short looks, device "
        f"scope{mean}; {len(outcome.attempts)} configurations tried{failed}",
        keys=("",),
        blocks=(("GFLOPS", f"x {_SHIPPED}"), names),
        rows=rows,
        notes=tuple(_failures(outcome.failed)),
    )


def _failures(failed: Sequence[Attempt]) -> list[Note]:
    """Why configurations failed: a count and an example for each reason, the most frequent first."""
    groups: dict[tuple[Status, str], list[Row]] = {}
    for row in (row for attempt in failed if (row := attempt.trouble)):
        groups.setdefault((row.status, clean_lines(row.reason) or "no reason given"), []).append(row)
    ordered = sorted(groups, key=lambda group: -len(groups[group]))
    notes = []
    for status, reason in ordered[:_REASONS]:
        group = groups[status, reason]
        first = listed(group[0].parameters)
        which = first if len(group) == 1 else f"{len(group)} configurations ({first}, ...)"
        notes.append(Note(WORDS[status], f"{which}: {reason}", STYLES[status]))
    rest = sum(len(groups[group]) for group in ordered[_REASONS:])
    return (
        [*notes, Note("", f"... and {rest} more for other reasons (-v shows them)", "dim")] if rest else notes
    )


def _finals(outcome: Result) -> Sheet:
    rounds = "times as fast as the shipped preset, in turns"
    return Sheet(
        caption=f"The winner ({listed(outcome.winner or {})}): {rounds}",
        keys=("m x n x k",),
        blocks=(("times", "95 % interval", "verdict"),),
        rows=tuple(_final(each) for each in outcome.comparisons),
        notes=tuple(
            Note(each.problem.shape, each.reason, "dim") for each in outcome.comparisons if each.reason
        ),
    )


def _final(comparison: Comparison) -> tuple[Cell, ...]:
    size = Cell(comparison.problem.shape + ("" if comparison.searched else " (not searched)"))
    if comparison.speedup is None:
        return size, Cell("-"), Cell("-"), Cell("not timed", style="dim")
    style = "green" if comparison.speedup.is_above(1) else "red" if comparison.speedup.is_below(1) else ""
    return (
        size,
        Cell(units.ratio(comparison.speedup.median)),
        Cell(_interval(comparison.speedup)),
        Cell(_word(comparison.speedup), style=style),
    )


def _word(speedup: Interval) -> str:
    return "faster" if speedup.is_above(1) else "slower" if speedup.is_below(1) else "not beyond doubt"


def _interval(speedup: Interval) -> str:
    return f"{units.ratio(speedup.low)} to {units.ratio(speedup.high)}"


def _verdict(outcome: Result) -> str:
    """The answer in a sentence."""
    if not outcome.ranked:
        return "No configuration could be measured."
    if outcome.ranked == (outcome.default,):
        return "The shipped preset stays: nothing else was measured beside it. A longer --budget tries more."
    if not outcome.finished:
        return "The best few have not been timed against the shipped preset yet, so that nothing is kept."
    if outcome.winner is None:
        return "The shipped preset stays: none of the best few was faster when they were timed again."
    if outcome.fault is not None:
        at = f" at {outcome.fault.problem.shape}" if outcome.fault.problem else ""
        what = f"{_FAULTS[outcome.fault.status]}{at}, {_AGAIN}"
        return f"The shipped preset stays: the best found {what}: {clean_lines(outcome.fault.reason)}"
    trouble = outcome.default.trouble if outcome.default else None
    if trouble is not None and outcome.is_kept:
        return f"The winner is kept: the shipped preset {_FAULTS[trouble.status]} on this device."
    if trouble is not None:
        why = f"it {_FAULTS[trouble.status]}: {clean_lines(trouble.reason)}"
        return f"The shipped preset stays: nothing can be held against it, since {why}"
    if outcome.overall is None:
        return f"The shipped preset stays: it and the best found gave no pair of times {_AGAIN}."
    how = f"{units.ratio(outcome.overall.median)} times as fast ({_interval(outcome.overall)})"
    if outcome.is_kept:
        return f"The winner is kept: {how} as the shipped preset."
    what = "slower" if outcome.overall.is_below(1) else "not faster beyond doubt"
    return f"The shipped preset stays: the best found is {how}, which is {what}."


def _losses(outcome: Result) -> list[Note]:
    """The sizes at which the winner is slower."""
    lost = [each for each in outcome.comparisons if each.speedup and each.speedup.is_below(1)]
    if not lost or not outcome.is_kept:
        return []
    where = ", ".join(
        f"{each.problem.shape} ({units.ratio(each.speedup.median)})" for each in lost if each.speedup
    )
    return [Note("slower", f"at {where}; gemmbench tune --forget brings the shipped preset back", "yellow")]


# --- How a tuner is getting on: tried, failed, best so far, time left. On stderr, and only for people.


class TuneProgress:
    """A bar that follows a tuner's events; nothing at all where stderr is not a terminal.

    Args:
        console: rich's console on stderr.
        quiet: say nothing, whatever happens.
        verbose: from 1 on, a line for every configuration, terminal or not.
        clock: seconds, for the time left.
    """

    def __init__(
        self, console: Console, quiet: bool, verbose: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._console = console
        self._lines = verbose > 0 and not quiet
        self._clock = clock
        self._tried = self._failed = 0
        self._shipped: Attempt | None = None
        self._best: Attempt | None = None
        self._end = 0.0
        self._label = ""
        self._task: rich.progress.TaskID | None = None
        self._bar: rich.progress.Progress | None = None
        if console.is_terminal and not quiet:
            self._bar = rich.progress.Progress(
                rich.progress.SpinnerColumn(),
                rich.progress.BarColumn(bar_width=12),
                rich.progress.TextColumn("{task.description}", markup=False),
                console=console,
                transient=True,
            )

    def handle(self, event: Event) -> None:
        """Follow one event."""
        if isinstance(event, Searching):
            self._end = self._clock() + event.seconds
            self._restart(event.seconds)
        elif isinstance(event, Retiming):
            self._end = 0.0
            self._restart(event.cases)
        elif isinstance(event, Started):
            self._label = clean(event.label)
        elif isinstance(event, Tried):
            self._count(event.attempt)
            if self._lines and not event.recalled:
                self._console.print(Text(_line(event.attempt)), soft_wrap=True)
        elif isinstance(event, Retimed):
            if self._bar and self._task is not None:
                self._bar.advance(self._task)
            if self._lines:
                self._console.print(Text(f"{event.row.phase}: {line(event.row)}"), soft_wrap=True)
        if self._bar and self._task is not None:
            stage = f"{self._label}: {clean(event.stage)}" if isinstance(event, Staged) else self._label
            self._bar.update(self._task, description=f"{self.standing()} | {stage}")
            if self._end:
                total = self._bar.tasks[self._task].total or 0.0
                self._bar.update(self._task, completed=total - self._left_s())

    def standing(self) -> str:
        """How the search stands, in a few words."""
        words = [f"{self._tried} tried"]
        if self._failed:
            words.append(f"{self._failed} failed")
        if self._best and self._best.rate:
            gain = ""
            if self._shipped and self._shipped.rate:
                gain = f", {units.number(self._best.rate / self._shipped.rate)} x shipped"
            words.append(f"best {units.rate(self._best.rate)}{gain}")
        if self._end:
            minutes, seconds = divmod(round(self._left_s()), 60)
            words.append(f"{minutes}:{seconds:02d} left")
        return ", ".join(words)

    def _left_s(self) -> float:
        return max(0.0, self._end - self._clock())

    def _count(self, attempt: Attempt) -> None:
        self._tried += 1
        self._shipped = self._shipped or attempt
        if attempt.rate is None:
            self._failed += 1
        elif self._best is None or attempt.rate > (self._best.rate or 0):
            self._best = attempt

    def _restart(self, total: float) -> None:
        if self._bar:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task("", total=total)

    def __enter__(self) -> TuneProgress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar:
            self._bar.stop()


def _line(attempt: Attempt) -> str:
    """A configuration in one line: ``BM=64, BN=64: 38.2 GFLOPS``."""
    trouble = attempt.trouble
    what = f"{trouble.status}: {clean(trouble.reason)}" if trouble else units.rate(attempt.rate or 0)
    return f"{listed(attempt.parameters)}: {what}"
