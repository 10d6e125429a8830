"""Which table a run gets, in the terminal and as markdown, and the table of conditions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from statistics import fmean, median

from rich.console import RenderableType
from rich.text import Text

from gemmbench.gemm import shape_tables, sweep_table
from gemmbench.model import quiet, units
from gemmbench.model.device import HOST, MEAN, POWER, Conditions, Readings
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run, is_tuning
from gemmbench.model.units import clean, count_noun
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


def axis_of(run: Run) -> str | None:
    """The dimension that a sweep varies: ``m`` (with n and k) or ``k``; None if the run is not a sweep."""
    return AXES.get(run.header.view) or sweep_axis(run.rows)


def _by_rows(run: Run, scope: str, order: Sequence[str]) -> list[Sheet]:
    """The tables of rows: a problem measured once by each kernel, a sweep, or a line for each row."""
    gemms = [row for row in run.rows if row.kind == "gemm"]
    axis = axis_of(run)
    if len({row.problem for row in gemms}) == 1:
        if len({row.key for row in gemms}) == len(gemms):
            return sweep_table.problem_sheets(run, scope, order)
        axis = None
    return sweep_table.sweep_sheets(run, axis, scope, order) if axis else sweep_table.row_sheets(run, order)


VIEWS: Mapping[str, View] = {
    **dict.fromkeys(AXES, _by_rows),
    "workloads": shape_tables.workloads_sheets,
    "gemm": sweep_table.problem_sheets,
    "tune": lambda run, scope, order: tuning.tuning_sheets(run),
}
"""The tables of GEMM rows by the header's view. Other views use `_by_rows`."""


def show(run: Run, order: Sequence[str] = (), verbose: bool = False) -> RenderableType:
    """The tables of a run for the terminal. For the view gemm, `verbose` adds details of each row."""
    tables = run_sheets(run, order, verbose)
    if verbose and run.header.view == "gemm":
        tables += sweep_table.pages(run)
    return stack(tables) if tables else Text("No rows: the run ended before its first result.")


def run_sheets(run: Run, order: Sequence[str] = (), verbose: bool = False) -> list[Sheet]:
    """The tables of a run. `order` holds variants in the order of the ladder.

    Peaks appear if `verbose` or without GEMM tables; a line for each row if `verbose` or in the scope all.
    """
    scope = "all" if run.header.scope == "all" else rates.view_scope(run)
    view = VIEWS.get(run.header.view, _by_rows)
    tables = view(run, scope, order) if scope != "all" else []
    rows = sweep_table.row_sheets(run, order) if verbose or scope == "all" else []
    tables = _with_remark(run, tables, verbose) + [sheet for sheet in rows if sheet not in tables]
    if verbose or not tables:
        tables += [*peak_table.peak_sheets(run, verbose), *peak_table.memory_sheets(run, verbose)]
    return tables + (conditions(run) if verbose else [])


def _with_remark(run: Run, tables: Sequence[Sheet], verbose: bool) -> list[Sheet]:
    """Add to the last table how many more kernels exist, and "Details: -v"."""
    if not tables or is_tuning(run):
        return [*tables]
    more = run.header.more_kernels
    texts = (
        f"{count_noun(more, 'more kernel')}: --kernel all." if more else "",
        "" if verbose else "Details: -v",
    )
    line = " ".join(filter(None, texts))
    last = replace(tables[-1], notes=(*tables[-1].notes, *([Note("", line, "dim")] if line else [])))
    return [*tables[:-1], last]


def format_markdown(run: Run, order: Sequence[str] = ()) -> str:
    """The tables of a run in GitHub's markdown, with the best in bold, and the errors of its kernels."""
    return markdown([*run_sheets(run, order), *sweep_table.error_sheets(run, order)]) or "No rows.\n"


_DEVICE = ("clock MHz", "max MHz", "power W", "temp C", "limits")
_HOST = ("other cores", "steal")


def conditions(run: Run) -> list[Sheet]:
    """The conditions table of each device, the host last. Devices without readings have none."""
    devices = sorted({row.device for row in run.rows}, key=lambda device: (device == HOST, device))
    return [sheet for device in devices if (sheet := _conditions(run, device))]


def _conditions(run: Run, device: int) -> Sheet | None:
    """A line for each row and clock that timed it; None without readings."""
    lines = [
        (row, row.conditions, clock, window)
        for row in run.rows
        if row.device == device and row.conditions
        for clock, window in row.conditions.windows.items()
    ]
    if not lines:
        return None
    has_readings = any(window.clock_mhz or window.power_w for *_, window in lines)
    has_means = any(state.power == MEAN for _, state, *_ in lines)

    def cells(row: Row, state: Conditions, clock: str, window: Readings) -> Iterator[str]:
        yield notes.mark_uncertain(run, row, row_label(row))
        yield clean(clock)
        yield units.seconds(state.warm_s) if state.warm_s else "-"
        samples = row.samples.get("kernel" if clock == "device" and "kernel" in row.samples else clock)
        yield units.percent(fmean(quiet.flags(samples))) if samples and samples.bursts_s else "-"
        if has_readings:
            yield _number(window.clock_mhz)
            yield _number([state.max_mhz] if window.clock_mhz else [])
            yield _number(window.power_w)
            yield _number(window.celsius, max)
            limits = dict.fromkeys(name for text in window.limits for name in text.split())
            is_limited = state.power_limited and clock != "host"
            others = [name for name in limits if not is_limited or name != POWER]
            yield clean(", ".join([*["power-limited"] * is_limited, *others])) or "-"
        yield _number([window.other_cores])
        yield _number([window.steal_cores])

    return Sheet(
        heading=heading(run, device),
        caption="conditions: medians of the batches, the highest temperature"
        + (", the mean power of the last second" if has_means else ""),
        keys=("", "scope"),
        blocks=(("warm-up", "quiet"), *((_DEVICE,) if has_readings else ()), _HOST),
        rows=tuple(tuple(map(Cell, cells(*line))) for line in lines),
        left=frozenset({"scope", "limits"}),
    )


def _number(values: Sequence[float | None], middle: Callable[[Iterable[float]], float] = median) -> str:
    """The median of the known values, or what else `middle` computes; ``-`` without any."""
    known = [value for value in values if value is not None]
    return units.number(middle(known)) if known else "-"
