"""How a tuner is getting on: tried, failed, best so far, time left. On stderr, and only for people."""

from __future__ import annotations

import time
from collections.abc import Callable
from types import TracebackType

import rich.progress
from rich.console import Console
from rich.text import Text

from gemmbench.facts import units
from gemmbench.facts.events import Staged, Started
from gemmbench.facts.text import clean, listed
from gemmbench.facts.tuning import Attempt, Event, Retimed, Retiming, Searching, Tried
from gemmbench.render.progress import line


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
