"""Which table a run gets, in the terminal and as markdown."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gemmbench.gemm import shape_tables, sweep_table
from gemmbench.gemm.sweep_table import gemm
from gemmbench.model.run_file import Run
from gemmbench.probes import peak_table
from gemmbench.report import conditions
from gemmbench.report.table import Sheet, markdown, stack
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
    "tune": lambda run, scope, order: tuning.sheets(run),
}
"""The tables of GEMM rows by the header's view; other views have those that suit the rows."""


def show(run: Run, order: Sequence[str] = (), verbose: bool = False, own: bool = False) -> RenderableType:
    """The tables that suit a run's rows; one problem gets its pages.

    Args:
        run: rows of any kind.
        order: variants in the order of the ladder.
        verbose: a line for each GEMM row, with every scope, and how every race went.
        own: only what the command was for: no tables of peaks that were measured beside GEMMs.
    """
    problems = {row.problem for row in run.rows if row.kind == "gemm"}
    if run.header.view == "gemm" and (own or len(problems) == 1):
        rest = [*([] if own else _peaks(run, verbose)), *_below(run, verbose)]
        return Group(gemm(run, verbose), *([Text(""), stack(rest)] if rest else []))
    tables = sheets(run, order, verbose, own)
    return stack(tables) if tables else Text("No rows: the run ended before its first result.")


def sheets(run: Run, order: Sequence[str] = (), verbose: bool = False, own: bool = False) -> list[Sheet]:
    """Each command's own table (every row with every scope, if verbose), then the microbenchmarks.

    Last come, if verbose, the conditions. Arguments as of `show`.
    """
    scope = _scope(run)
    view = VIEWS.get(run.header.view, _by_rows)
    tables = sweep_table.row_sheets(run, order) if verbose or scope == "all" else view(run, scope, order)
    tables += shape_tables.net_sheets(run)
    if not (own and run.header.view in VIEWS):
        tables += _peaks(run, verbose)
    return [*tables, *_below(run, verbose)]


def _peaks(run: Run, verbose: bool) -> list[Sheet]:
    return [*peak_table.sheets(run, verbose), *peak_table.memory_sheets(run, verbose)]


def _below(run: Run, verbose: bool) -> list[Sheet]:
    """Strict against fast math and, if verbose, under which conditions rows were measured."""
    return sweep_table.math_sheets(run, _scope(run)) + (conditions.sheets(run) if verbose else [])


def _scope(run: Run) -> str:
    return "all" if run.header.scope == "all" else rates.view_scope(run)


def to_markdown(run: Run, order: Sequence[str] = ()) -> str:
    """GitHub tables: the same as in the terminal, the best in bold."""
    return markdown(sheets(run, order)) or "No rows.\n"
