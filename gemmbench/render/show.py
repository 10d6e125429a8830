"""A saved run, as the command that made it would show it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gemmbench.facts.concurrent import alone
from gemmbench.facts.records import SCOPES, Run
from gemmbench.facts.series import sweep_axis
from gemmbench.facts.tuning import is_tuning
from gemmbench.render import concurrent, detail, peak, precision, sweep, tune, workloads
from gemmbench.render.gemm import gemm
from gemmbench.render.sheet import Sheet, stack


def show(run: Run, order: Sequence[str] = (), verbose: bool = False) -> RenderableType:
    """The tables that suit a run's rows; one problem gets its pages.

    Args:
        run: the run.
        order: variants in the order of the ladder.
        verbose: a line for each GEMM row, with every scope, and how every race went.
    """
    at_once, run = concurrent_sheets(run, order, verbose), alone(run)
    if len({row.problem for row in run.rows if row.kind == "gemm"}) == 1 and _made_by(run, "gemm"):
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
    gemms = detail.sheets(run, order) if every else _gemm_sheets(run, scope, order)
    return [*gemms, *peak.sheets(run, verbose), *peak.other_sheets(run), *at_once]


def concurrent_sheets(run: Run, order: Sequence[str] = (), verbose: bool = False) -> list[Sheet]:
    """The tables of several devices at once, in the scope that the run was made with; none of others."""
    return concurrent.sheets(run, _scope(run), order, verbose)


def _gemm_sheets(run: Run, scope: str, order: Sequence[str]) -> list[Sheet]:
    if is_tuning(run):
        return tune.sheets(run)
    if _made_by(run, "workloads"):
        return workloads.sheets(run, scope, order)
    if _made_by(run, "precision"):
        return precision.sheets(run, scope, order)
    axis = sweep_axis(run.rows) or ("m" if _made_by(run, "square") else None)
    return sweep.sheets(run, axis, scope, order) if axis else detail.sheets(run, order)


def _scope(run: Run) -> str:
    """The ``--scope`` that the run was made with."""
    words = " ".join(run.header.command).replace("--scope=", "--scope ").split()
    places = [place for place, word in enumerate(words[:-1], 1) if word == "--scope"]
    scope = words[places[-1]] if places else "kernel"
    return scope if scope in (*SCOPES, "all") else "kernel"


def _made_by(run: Run, command: str) -> bool:
    return command in run.header.command[:2]
