"""A progress bar on stderr, and one-line texts about rows."""

from __future__ import annotations

from typing import Any

import rich.progress
from rich.cells import cell_len
from rich.console import Console
from rich.table import Column
from rich.text import Text

from gemmbench.model import units
from gemmbench.model.case import Event, Finished, Planned, Staged, Started
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, list_values
from gemmbench.report.notes import WORDS
from gemmbench.stats import rates

_BAR, _WIDE = 16, 60  # columns: of the bar, and of a terminal that has room for it
_COLUMNS = len("⠋ 1000/1000 10:00:00 ")  # of the others, at most


class Progress:
    """A bar, and above it a line for each measured rate, on an interactive terminal.

    With `verbose` there is a longer line for each finished row instead, on any stderr.
    """

    def __init__(self, console: Console, quiet: bool, verbose: int) -> None:
        self._console = console
        self._lines = verbose > 0 and not quiet
        self._label = ""
        self._task: rich.progress.TaskID | None = None
        self._bar: rich.progress.Progress | None = None
        if console.is_terminal and console.is_interactive and not quiet:
            self._bar = rich.progress.Progress(
                rich.progress.SpinnerColumn(table_column=Column(no_wrap=True)),
                rich.progress.MofNCompleteColumn(table_column=Column(no_wrap=True)),
                *([rich.progress.BarColumn(_BAR)] if console.width >= _WIDE else []),
                rich.progress.TimeRemainingColumn(compact=True, table_column=Column(no_wrap=True)),
                rich.progress.TextColumn("{task.description}", markup=False),
                console=console,
                transient=True,
            )

    def handle(self, event: Event) -> None:
        """Show an event of a session. `Planned` restarts the bar with another number of cases."""
        if isinstance(event, Planned) and self._bar:
            if self._task is not None:
                self._bar.remove_task(self._task)
            self._task = self._bar.add_task("", total=event.cases)
        elif isinstance(event, Started):
            self._label = clean(event.label)
            self._update(description=self._fitted(self._label))
        elif isinstance(event, Staged):
            self._update(description=self._fitted(f"{self._label}: {clean(event.stage)}"))
        elif isinstance(event, Finished):
            row, is_new = event.row, event.is_planned and not event.resumed
            if is_new:
                self._update(advance=1)
            if self._lines:
                text, console = line(row), self._console
                text = units.wrap(text, console.width) if console.is_terminal else text
                console.print(Text(text), soft_wrap=True)
            elif self._bar and is_new and row.status == "ok" and row.samples and not row.phase:
                self._console.print(Text(brief_line(row)), soft_wrap=True)

    def _fitted(self, text: str) -> str:
        """Cut a text to the room next to the other columns: stage and remarks first, then words."""
        room = self._console.width - _COLUMNS - (_BAR + 1 if self._console.width >= _WIDE else 0)
        for end in (": ", " "):
            while cell_len(text) > room and end in text:
                text = text.rpartition(end)[0]
        return text if cell_len(text) <= room else ""

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
        label = f"{label} {row.phase} ({list_values(row.parameters)})"
    if row.status != "ok":
        return f"{label}: {row.status}: {clean(row.reason)}"
    noise = rates.noise(row)
    return f"{label}: {_figure(row)}" + ("" if noise is None else f", noise {units.percent(noise)}")


def brief_line(row: Row) -> str:
    """A measured row in few words: ``naive 64: 9.97 GFLOPS``, ``flops int width 4: ~88.0 GIOPS, suspect``."""
    label = row_label(row)
    if row.problem:
        dtype = "" if row.dtype == "float" else row.dtype
        label = " ".join(filter(None, (clean(row.title), dtype, clean(row.label), row.problem.size)))
    noise, verdict = rates.noise(row), row.check.verdict
    mark = "~" if noise is None or noise > rates.UNCERTAIN else ""
    return f"{label}: {mark}{_figure(row)}" + ("" if verdict in ("ok", "none") else f", {verdict}")


def _figure(row: Row) -> str:
    """A row's rate with its unit, else its median time, else ``ok``."""
    times = rates.summary(row, rates.finest_scope(row) or "")
    rate = _rate(row, rates.shown_samples(row, "kernel"))
    return rate or (units.seconds(times.median) if times else "ok")


def row_label(row: Row) -> str:
    """A row's kernel or probe, type and size: ``register float 512x512x512``, ``flops half width 4``."""
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
    """A row's result for a point in a chart: ``tiled float 8x8x8: 12.3 GFLOPS, 83 ns``, or why it failed."""
    label = " ".join(filter(None, (clean(row.label), row_label(row))))
    if row.status != "ok":
        return f"{label}: {WORDS[row.status]}, {clean(row.reason) or 'no reason given'}"
    shown = rates.shown_samples(row, scope) if row.kind == "gemm" else rates.finest_scope(row) or ""
    times = rates.summary(row, shown)
    figure = _rate(row, shown)
    parts = [figure if row.kind == "gemm" else f"best {figure}"] if figure else []
    if times is not None:
        parts.append(units.seconds(times.median))
    fraction = rates.peak_fraction(run, row, scope) if row.kind == "gemm" else None
    parts += [f"{units.percent(fraction)} of peak"] if fraction is not None else []
    parts += [] if row.check.verdict in ("ok", "none") else [row.check.verdict]
    parts += ["uncertain"] if rates.is_uncertain(run, row) else []
    return f"{label}: {', '.join(parts)}"


def _rate(row: Row, scope: str) -> str:
    """A row's rate with its unit, or "": the median of a GEMM, the best batch of a probe."""
    if (moved := rates.byte_rate(row)) is not None:
        return f"{units.gflops(moved.best)} GB/s"
    if (reached := rates.rate(row, scope)) is None:
        return ""
    return units.rate_text(
        reached.median if row.kind == "gemm" else reached.best, rates.is_integer(row.dtype)
    )
