"""Every figure of every row: the verbose table."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from gemmbench.facts import derive, units
from gemmbench.facts.records import SCOPES, Row, Run
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean, listed
from gemmbench.render import energy, notes
from gemmbench.render.heading import heading
from gemmbench.render.notes import STYLES, WORDS
from gemmbench.render.sheet import Cell, Note, Sheet, stack
from gemmbench.rules.variants import AUTO


def detail(run: Run, order: Sequence[str] = (), dtype: str | None = None) -> RenderableType:
    """A line for each GEMM row: three scopes in GFLOPS, fraction of peak, noise, status; parameters below."""
    return stack(sheets(run, order, dtype))


def sheets(run: Run, order: Sequence[str] = (), dtype: str | None = None) -> list[Sheet]:
    """One line for each GEMM row, in tables by device and data type; the host's rows with each device."""
    rows = [row for row in run.rows if row.kind == "gemm" and dtype in (None, row.dtype)]
    rank = {name: place for place, name in enumerate(order)}
    found = []
    for device in sorted({row.device for row in rows if row.device != HOST}) or [HOST]:
        for name in dict.fromkeys(row.dtype for row in rows):
            mine = [row for row in rows if row.dtype == name and row.device in (device, HOST)]
            if mine:
                mine.sort(key=lambda row: (row.device == HOST, rank.get(row.variant, len(rank))))
                found.append(_sheet(run, device, name, mine))
    return found


def shape(row: Row) -> str:
    """A row's problem, shortly: ``512`` for a square, else ``1024x1024x64``; alpha and beta if odd."""
    problem = row.problem
    if problem is None:
        return "-"
    text = problem.size
    if (problem.alpha, problem.beta) != (1.0, 0.0):
        text += f" a={problem.alpha:g} b={problem.beta:g}"
    return text


def _sheet(run: Run, device: int, dtype: str, rows: Sequence[Row]) -> Sheet:
    best = {
        (row.problem, scope): max(
            (
                found.median
                for other in rows
                if other.problem == row.problem and (found := derive.rate(other, scope))
            ),
            default=None,
        )
        for row in rows
        for scope in SCOPES
    }

    def figure(row: Row, scope: str) -> Cell:
        found = derive.rate(row, scope)
        if found is None:
            return Cell("-" if row.status == "ok" else "", style="dim")
        return Cell(units.gflops(found.median), found.median == best[row.problem, scope])

    has_energy = energy.measured(rows)

    def line(row: Row) -> tuple[Cell, ...]:
        fraction, spread = derive.peak_fraction(run, row), derive.noise(row)
        return (
            Cell(clean(row.variant)),
            Cell(f"{clean(row.label or row.phase)} {shape(row)}".strip()),
            *(figure(row, scope) for scope in SCOPES),
            Cell(units.percent(fraction) if fraction is not None else "-"),
            Cell(
                units.percent(spread) if spread is not None else "-",
                style="yellow" if row.samples and derive.is_noisy(row) else "",
            ),
            *(energy.cells(row) if has_energy else ()),
            Cell(WORDS[row.status], style=STYLES[row.status]),
        )

    return Sheet(
        heading=heading(run, device, dtype),
        caption=f"{dtype} {derive.unit(dtype)} by scope; * best of its problem",
        keys=("", "size"),
        blocks=(SCOPES, ("of peak", "noise", *(energy.COLUMNS if has_energy else ()), "status")),
        rows=tuple(map(line, rows)),
        left=frozenset({"status"}),
        notes=(
            *(
                Note(f"{clean(row.variant)} at {shape(row)}", f"took {notes.taken(row)}", "dim")
                for row in rows
                if row.variant == AUTO and row.choice
            ),
            *_parameters(rows),
            *notes.troubles(rows, shape),
            *notes.noisy(run, rows, shape),
            *energy.remarks(run, rows, shape),
            *notes.remarks(rows, shape),
            *notes.warnings([run.header.devices[device] if device != HOST else None]),
        ),
    )


def _parameters(rows: Sequence[Row]) -> list[Note]:
    """What each variant ran with, once if it is the same for all its rows."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        text = listed({**row.parameters, **notes.settled(row)})
        if text:
            groups.setdefault((row.variant, text), []).append(row)
    several = {variant for variant, _ in groups if sum(variant == other for other, _ in groups) > 1}
    return [
        Note(notes.places(mine, shape) if variant in several else clean(variant), text, "dim")
        for (variant, text), mine in groups.items()
    ]
