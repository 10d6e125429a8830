"""A saved run, as the command that made it would show it."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Group, RenderableType
from rich.text import Text

from gemmbench.facts.records import Run
from gemmbench.facts.series import sweep_axis
from gemmbench.render import detail, peak, sweep
from gemmbench.render.gemm import gemm
from gemmbench.render.sheet import Sheet, stack


def show(run: Run, order: Sequence[str] = (), verbose: bool = False) -> RenderableType:
    """The tables that suit a run's rows; one problem gets its pages.

    Args:
        run: the run.
        order: variants in the order of the ladder.
        verbose: a line for each GEMM row, with every scope, and how every race went.
    """
    if len({row.problem for row in run.rows if row.kind == "gemm"}) == 1 and _made_by(run, "gemm"):
        rest = [*peak.sheets(run, verbose), *peak.other_sheets(run)]
        return Group(gemm(run), *([Text(""), stack(rest)] if rest else []))
    found = sheets(run, order, verbose)
    return stack(found) if found else Text("No rows: the run ended before its first result.")


def sheets(run: Run, order: Sequence[str] = (), verbose: bool = False) -> list[Sheet]:
    """Sweeps as sweeps, other shapes (or everything, if verbose) line by line, then the microbenchmarks."""
    axis = sweep_axis(run.rows) or ("m" if _made_by(run, "square") else None)
    gemms = sweep.sheets(run, axis, order=order) if axis and not verbose else detail.sheets(run, order)
    return [*gemms, *peak.sheets(run, verbose), *peak.other_sheets(run)]


def _made_by(run: Run, command: str) -> bool:
    return command in run.header.command[:2]
