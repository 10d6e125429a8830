"""What is running, how many cases are left, and for how long: on stderr, for people; a row in a sentence."""

from __future__ import annotations

from typing import Any

import rich.progress
from rich.console import Console
from rich.text import Text

from gemmbench.model import units
from gemmbench.model.case import Event, Finished, Planned, Staged, Started
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, listed
from gemmbench.report.notes import WORDS
from gemmbench.stats import rates


class Progress:
    """How a session is getting on: cases done, time left, the case in flight.

    Nothing at all where stderr is not an interactive terminal. From `verbose` 1 on, a line for everything
    that is finished, terminal or not.
    """

    def __init__(self, console: Console, quiet: bool, verbose: int) -> None:
        self._console = console
        self._lines = verbose > 0 and not quiet
        self._label = ""
        self._task: rich.progress.TaskID | None = None
        self._bar: rich.progress.Progress | None = None
        if console.is_terminal and console.is_interactive and not quiet:
            self._bar = rich.progress.Progress(
                rich.progress.SpinnerColumn(),
                rich.progress.MofNCompleteColumn(),
                rich.progress.BarColumn(bar_width=16),
                rich.progress.TimeRemainingColumn(compact=True),
                rich.progress.TextColumn("{task.description}", markup=False),
                console=console,
                transient=True,
            )

    def handle(self, event: Event) -> None:
        if isinstance(event, Planned):
            self._start(event.cases)
        elif isinstance(event, Started):
            self._label = clean(event.label)
            self._update(description=self._label)
        elif isinstance(event, Staged):
            self._update(description=f"{self._label}: {clean(event.stage)}")
        elif isinstance(event, Finished):
            if event.is_planned and not event.resumed:
                self._update(advance=1)
            if self._lines:
                self._console.print(Text(line(event.row)), soft_wrap=True)

    def _start(self, total: float) -> None:
        """Another task, in the place of the one before."""
        if self._bar:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task("", total=total)

    def _update(self, advance: float = 0, **fields: Any) -> None:
        if self._bar and self._task is not None:
            self._bar.update(self._task, advance=advance, **fields)

    def __enter__(self) -> Progress:
        if self._bar:
            self._bar.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar:
            self._bar.stop()


def line(row: Row) -> str:
    """A finished row in one line: ``register float 512x512x512: 38.2 GFLOPS, noise 0.4 %``."""
    label = row_label(row)
    if row.phase:  # a tuner's rows differ in their parameters
        label = f"{label} {row.phase} ({listed(row.parameters)})"
    if row.status != "ok":
        return f"{label}: {row.status}: {clean(row.reason)}"
    reached, moved = rates.shown_rate(row, "kernel"), rates.byte_rate(row)
    if moved is not None:
        figure = f"{units.gflops(moved.best)} GB/s"
    elif reached is None:
        times = rates.summary(row, rates.finest_scope(row) or "")
        figure = units.seconds(times.median) if times else "ok"
    else:
        best_or_median = reached.best if row.kind == "peak" else reached.median
        figure = units.rate(best_or_median, rates.is_integer(row.dtype))
    spread = rates.noise(row)
    return f"{label}: {figure}" + ("" if spread is None else f", noise {units.percent(spread)}")


def row_label(row: Row) -> str:
    """What a row is about: ``register float 512x512x512``, ``flops half width 4``."""
    where = row.dtype
    if row.problem:
        where += f" {row.problem.shape}"
    elif "width" in row.parameters:
        where += f" width {row.parameters['width']}"
    elif "bytes" in row.parameters:
        where = f"of {units.size(int(row.parameters['bytes']))}"
    elif row.kind == "latency":
        return clean(row.variant)
    return f"{clean(row.title)} {where}"


def sample(run: Run, row: Row, scope: str = "kernel") -> str:
    """A result for the pointer on a chart: ``tiled float 8x8x8: 12.3 GFLOPS, 83.3 ns (82.9 ns to 84.0 ns)``.

    A GEMM's rate is in the scope, or in the next wider one that the row has.
    """
    label = " ".join(filter(None, (clean(row.label), row_label(row))))
    if row.status != "ok":
        return f"{label}: {WORDS[row.status]}, {clean(row.reason) or 'no reason given'}"
    shown = rates.shown_samples(row, scope) if row.kind == "gemm" else rates.finest_scope(row) or ""
    times = rates.summary(row, shown)
    parts = [*_rate(row, shown)]
    if times is not None:
        between = f"{units.seconds(times.low)} to {units.seconds(times.high)}"
        parts.append(f"{units.seconds(times.median)} ({between})")
    fraction = rates.peak_fraction(run, row, scope) if row.kind == "gemm" else None
    parts += [f"{units.percent(fraction)} of peak"] if fraction is not None else []
    parts += [] if row.check.verdict in ("ok", "none") else [row.check.verdict]
    parts += ["uncertain"] if rates.is_uncertain(run, row) else []
    return f"{label}: {', '.join(parts)}"


def _rate(row: Row, scope: str) -> list[str]:
    if row.kind == "gemm":
        reached = rates.rate(row, scope)
        return [units.rate(reached.median, rates.is_integer(row.dtype))] if reached else []
    if row.kind == "peak":
        best = rates.rate(row, scope)
        return [f"best {units.rate(best.best, rates.is_integer(row.dtype))}"] if best else []
    moved = rates.byte_rate(row)
    return [f"best {units.number(moved.best / units.GIGA)} GB/s"] if moved else []
