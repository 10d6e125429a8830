"""A saved run, as the command that made it would show it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gemmbench.facts.concurrent import alone
from gemmbench.facts.records import SCOPES, Run
from gemmbench.facts.series import sweep_axis
from gemmbench.render import concurrent, detail, peak, precision, sweep, tune, workloads
from gemmbench.render.gemm import gemm
from gemmbench.render.sheet import Sheet, stack

View = Callable[[Run, str, Sequence[str]], list[Sheet]]  # from a run, a scope and the ladder's order

AXES: Mapping[str, str] = {"square": "m", "sweep-k": "k"}
"""The dimension that varies, by the view of a sweep."""


def _swept(run: Run, scope: str, order: Sequence[str]) -> list[Sheet]:
    return sweep.sheets(run, AXES[run.header.view], scope, order)


def _by_rows(run: Run, scope: str, order: Sequence[str]) -> list[Sheet]:
    """What suits rows of which no view is known: a sweep if they are one, or else a line for each."""
    axis = sweep_axis(run.rows)
    return sweep.sheets(run, axis, scope, order) if axis else detail.sheets(run, order)


VIEWS: Mapping[str, View] = {
    **dict.fromkeys(AXES, _swept),
    "precision": precision.sheets,
    "workloads": workloads.sheets,
    "tune": lambda run, scope, order: tune.sheets(run),
}
"""The tables of GEMM rows by the header's view; other views have those that suit the rows."""


def show(run: Run, order: Sequence[str] = (), verbose: bool = False) -> RenderableType:
    """The tables that suit a run's rows; one problem gets its pages.

    Args:
        run: the run.
        order: variants in the order of the ladder.
        verbose: a line for each GEMM row, with every scope, and how every race went.
    """
    at_once, run = concurrent_sheets(run, order, verbose), alone(run)
    if run.header.view == "gemm" and len({row.problem for row in run.rows if row.kind == "gemm"}) == 1:
        rest = [*peak.sheets(run, verbose), *peak.other_sheets(run), *at_once]
        return Group(gemm(run), *([Text(""), stack(rest)] if rest else []))
    found = [*sheets(run, order, verbose), *at_once]
    return stack(found) if found else Text("No rows: the run ended before its first result.")


def sheets(run: Run, order: Sequence[str] = (), verbose: bool = False) -> list[Sheet]:
    """Each command's own table (every row with every scope, if verbose), then the microbenchmarks.

    Last come the tables of several devices at once.
    """
    at_once, run = concurrent_sheets(run, order, verbose), alone(run)
    scope = _scope(run)
    every = verbose or scope == "all"
    view = VIEWS.get(run.header.view, _by_rows)
    gemms = detail.sheets(run, order) if every else view(run, scope, order)
    return [*gemms, *peak.sheets(run, verbose), *peak.other_sheets(run), *at_once]


def concurrent_sheets(run: Run, order: Sequence[str] = (), verbose: bool = False) -> list[Sheet]:
    """The tables of several devices at once, in the scope that the run was made with; none of others."""
    return concurrent.sheets(run, _scope(run), order, verbose)


def _scope(run: Run) -> str:
    """The scope that the run's tables show."""
    return run.header.scope if run.header.scope in (*SCOPES, "all") else "kernel"
