"""Which table a run gets, in the terminal and as markdown, and the table of conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from statistics import median

from rich.console import RenderableType
from rich.text import Text

from gemmbench.gemm import shape_tables, sweep_table
from gemmbench.model import units
from gemmbench.model.device import HOST, Readings
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import clean, counted
from gemmbench.probes import peak_table
from gemmbench.report import notes
from gemmbench.report.progress import row_label
from gemmbench.report.table import Cell, Note, Sheet, heading, markdown, stack
from gemmbench.stats import rates
from gemmbench.stats.panels import sweep_axis
from gemmbench.tune import result as tuning

View = Callable[[Run, str, Sequence[str]], list[Sheet]]  # from a run, a scope and the ladder's order

AXES: Mapping[str, str] = {"square": "m", "sweep-k": "k"}
"""The dimension that varies, by the view of a sweep."""


def _by_rows(run: Run, scope: str, order: Sequence[str]) -> list[Sheet]:
    """The tables of rows whose view is unknown: a sweep if they are one, otherwise a line for each."""
    axis = sweep_axis(run.rows)
    return sweep_table.sheets(run, axis, scope, order) if axis else sweep_table.row_sheets(run, order)


VIEWS: Mapping[str, View] = {
    **dict.fromkeys(
        AXES, lambda run, scope, order: sweep_table.sheets(run, AXES[run.header.view], scope, order)
    ),
    "workloads": shape_tables.workloads_sheets,
    "gemm": sweep_table.problem_sheets,
    "tune": lambda run, scope, order: tuning.sheets(run),
}
"""The tables of GEMM rows by the header's view; other views have those that suit the rows."""


def show(run: Run, order: Sequence[str] = (), verbose: bool = False) -> RenderableType:
    """The tables that suit a run's rows.

    Args:
        run: rows of any kind.
        order: variants in the order of the ladder.
        verbose: also a line for each GEMM row with every scope, peaks, conditions, and how every race went.
    """
    tables = sheets(run, order, verbose)
    if verbose and run.header.view == "gemm":
        tables += sweep_table.pages(run)
    return stack(tables) if tables else Text("No rows: the run ended before its first result.")


def sheets(run: Run, order: Sequence[str] = (), verbose: bool = False) -> list[Sheet]:
    """Return the tables of a run.

    Peaks appear if `verbose` or if there are no GEMM tables. `verbose` or the scope all adds a line for each
    row; `verbose` also adds conditions.
    """
    scope = _scope(run)
    view = VIEWS.get(run.header.view, _by_rows)
    tables = view(run, scope, order) if scope != "all" else []
    rows = sweep_table.row_sheets(run, order) if verbose or scope == "all" else []
    tables = _closed(run, tables, verbose) + [sheet for sheet in rows if sheet not in tables]
    if verbose or not tables:
        tables += [*peak_table.sheets(run, verbose), *peak_table.memory_sheets(run, verbose)]
    return tables + (conditions(run) if verbose else [])


def _closed(run: Run, tables: Sequence[Sheet], verbose: bool) -> list[Sheet]:
    """Add a note to the last table: how many more kernels exist, what ~ means if it appears, and -v.

    Tuning tables stay unchanged.
    """
    if not tables or is_tuning(run):
        return [*tables]
    more = run.header.more_kernels
    entries = (cell.text for sheet in tables for row in sheet.rows for cell in row)
    texts = (
        f"{counted(more, 'more kernel')}: --kernel all." if more else "",
        f"{notes.UNCERTAIN} {notes.meaning(run)}" if any(notes.UNCERTAIN in text for text in entries) else "",
        "" if verbose else "Details: -v",
    )
    line = " ".join(filter(None, texts))
    last = replace(tables[-1], notes=(*tables[-1].notes, *([Note("", line, "dim")] if line else [])))
    return [*tables[:-1], last]


def _scope(run: Run) -> str:
    return "all" if run.header.scope == "all" else rates.view_scope(run)


def to_markdown(run: Run, order: Sequence[str] = ()) -> str:
    """GitHub tables: the same as in the terminal, the best in bold."""
    return markdown(sheets(run, order)) or "No rows.\n"


# --- what a device and its host did while each row was measured ---

_DEVICE = ("clock MHz", "of", "power W", "C", "limits")
_HOST = ("other cores", "steal")


def conditions(run: Run) -> list[Sheet]:
    """A table for each device, a line for each clock of each row; none where nothing was read."""
    devices = sorted({row.device for row in run.rows}, key=lambda device: (device == HOST, device))
    return [sheet for device in devices if (sheet := _conditions(run, device))]


def _conditions(run: Run, device: int) -> Sheet | None:
    """Build the conditions table of a device, with a line for each clock of each row.

    Return None if nothing was read. Device columns appear only if clock or power was read.
    """
    lines = [
        (row, clock, window)
        for row in run.rows
        if row.device == device and row.conditions
        for clock, window in row.conditions.windows.items()
    ]
    if not lines:
        return None
    speaks = any(window.clock_mhz or window.power_w for _, _, window in lines)
    return Sheet(
        heading=heading(run, device),
        caption="conditions: medians of the batches, the highest temperature",
        keys=("", "timed"),
        blocks=(("warmed", "control"), *((_DEVICE,) if speaks else ()), _HOST),
        rows=tuple(
            (
                Cell(notes.marked(run, row, row_label(row))),
                Cell(clean(clock)),
                *_state(row),
                *(_device(row, window) if speaks else ()),
                *_host(window),
            )
            for row, clock, window in lines
        ),
        left=frozenset({"timed", "limits"}),
    )


def _state(row: Row) -> tuple[Cell, ...]:
    """Format a row's warm-up time and its control bursts; - if there are none."""
    assert row.conditions is not None
    warm_s = row.conditions.warm_s
    bursts = row.conditions.control_s
    return (Cell(units.seconds(warm_s) if warm_s else "-"), Cell(" ".join(map(units.seconds, bursts)) or "-"))


def _device(row: Row, window: Readings) -> tuple[Cell, ...]:
    """Format clock, maximum clock, power, highest temperature and limits in a window."""
    assert row.conditions is not None
    return (
        _number(window.clock_mhz),
        _number([row.conditions.max_mhz if window.clock_mhz else None]),
        _number(window.power_w),
        _number(window.celsius, max),
        _limits(window.limits),
    )


def _host(window: Readings) -> tuple[Cell, ...]:
    return _number([window.other_cores]), _number([window.steal_cores])


def _limits(texts: Iterable[str]) -> Cell:
    names = dict.fromkeys(name for text in texts for name in text.split())
    return Cell(clean(", ".join(names)) or "-")


def _number(values: Sequence[float | None], middle: Callable[[Iterable[float]], float] = median) -> Cell:
    there = [value for value in values if value is not None]
    return Cell(units.number(middle(there))) if there else Cell("-")
