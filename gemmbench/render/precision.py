"""The table of ``precision``: data types across, variants down, then what each type buys."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rich.console import RenderableType

from gemmbench.facts import derive, units
from gemmbench.facts.records import Problem, Row, Run
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean, clean_lines
from gemmbench.render import energy, notes
from gemmbench.render.heading import heading
from gemmbench.render.notes import STYLES, WORDS
from gemmbench.render.sheet import Cell, Note, Sheet, stack
from gemmbench.rules.variants import BASELINE

REFERENCE = "float"  # what the other types are held against


def precision(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> RenderableType:
    """Data types across, variants down, a table for each device and size; scope is not ``all``."""
    return stack(sheets(run, scope, order))


def sheets(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> list[Sheet]:
    """One table for each device and problem: GFLOPS and fraction of peak by type, speed-ups over float."""
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem]
    devices = sorted({row.device for row in rows if row.device != HOST}) or [HOST]
    problems = dict.fromkeys(row.problem for row in rows if row.problem)
    dtypes = tuple(dict.fromkeys(row.dtype for row in rows))
    rank = {name: place for place, name in enumerate(order)}
    found = []
    for device in devices:
        for problem in problems:
            mine = [row for row in rows if row.problem == problem and row.device in (device, HOST)]
            mine.sort(key=lambda row: (row.device == HOST, rank.get(row.variant, len(rank))))
            if mine:
                found.append(_sheet(run, _Grid(device, problem, dtypes, scope, tuple(mine))))
    return found


@dataclass(frozen=True)
class _Grid:
    """What one table shows."""

    device: int
    problem: Problem
    dtypes: tuple[str, ...]
    scope: str
    rows: tuple[Row, ...]  # in the order of the table

    @property
    def variants(self) -> list[str]:
        return list(dict.fromkeys(row.variant for row in self.rows))

    def row(self, variant: str, dtype: str) -> Row | None:
        """The fastest, should there be several."""
        mine = [row for row in self.rows if (row.variant, row.dtype) == (variant, dtype)]
        return max(mine, key=lambda row: self.rate(row) or 0.0, default=None)

    def rate(self, row: Row | None) -> float | None:
        """The median in flop/s."""
        found = derive.shown_rate(row, self.scope) if row else None
        return found.median if found else None

    def best(self, dtype: str) -> Row | None:
        """The fastest of a type."""
        mine = [row for row in self.rows if row.dtype == dtype and self.rate(row)]
        return max(mine, key=lambda row: self.rate(row) or 0.0, default=None)

    def lacking(self) -> dict[str, str]:
        """The types that nothing on the device supports, and why."""
        found = {}
        for dtype in self.dtypes:
            reasons = {
                row.reason if row.status == "unsupported" else ""
                for row in self.rows
                if row.dtype == dtype and row.device == self.device
            }
            if len(reasons) == 1 and (reason := reasons.pop()):
                found[dtype] = reason
        return found


def _sheet(run: Run, grid: _Grid) -> Sheet:
    others = [name for name in grid.dtypes if name != REFERENCE and REFERENCE in grid.dtypes]
    lacking = grid.lacking()
    told = [row for row in grid.rows if row.dtype not in lacking or row.status != "unsupported"]
    baseline = any(row.device == HOST for row in grid.rows) and grid.device != HOST and grid.scope != "host"
    blas = f"{clean(run.header.host.blas)}, host scope"
    over = f"; /{REFERENCE}: times the rate of {REFERENCE}" if others else ""
    return Sheet(
        heading=_heading(run, grid),
        caption=f"GFLOPS, {grid.scope} scope, {grid.problem.title}; * best of its type{over}",
        blocks=(
            grid.dtypes,
            tuple(f"{_short(name)}/{REFERENCE}" for name in others),
            tuple(f"{name} %" for name in grid.dtypes),
        ),
        rows=tuple(_line(run, grid, variant, others) for variant in grid.variants),
        notes=(
            Note("%", "of the type's own peak, measured in this run", "dim"),
            *([Note(BASELINE, blas, "dim")] if baseline else []),
            *(Note(WORDS["unsupported"], f"{n}: {clean_lines(why)}", "dim") for n, why in lacking.items()),
            *notes.troubles(told, _type, "type"),
            *notes.noisy(run, grid.rows, _type),
            *(
                [Note("energy", "-v has the joules of every row", "dim")]
                if energy.measured(grid.rows)
                else []
            ),
            *notes.choices(grid.rows, _type, "type"),
            *notes.remarks(grid.rows, _type, "type"),
            *notes.warnings([run.header.devices[grid.device] if grid.device != HOST else None]),
            *_conclusion(grid),
        ),
    )


def _heading(run: Run, grid: _Grid) -> tuple[str, ...]:
    """The device, and the peak of every type."""
    first, *_ = (heading(run, grid.device, dtype) for dtype in grid.dtypes)
    if grid.device == HOST:
        return first
    return (*first[:-1], *(heading(run, grid.device, dtype)[-1] for dtype in grid.dtypes))


def _line(run: Run, grid: _Grid, variant: str, others: Sequence[str]) -> tuple[Cell, ...]:
    rows = {dtype: grid.row(variant, dtype) for dtype in grid.dtypes}
    return (
        Cell(clean(variant)),
        *(_figure(grid, row) for row in rows.values()),
        *(_over(grid.rate(rows[dtype]), grid.rate(rows[REFERENCE])) for dtype in others),
        *(_of_peak(run, grid, row) for row in rows.values()),
    )


def _figure(grid: _Grid, row: Row | None) -> Cell:
    if row is None:
        return Cell("")
    if row.status != "ok":
        return Cell(WORDS[row.status], style=STYLES[row.status])
    rate = grid.rate(row)
    if rate is None:
        return Cell("-")
    return Cell(units.gflops(rate), row is grid.best(row.dtype), "yellow" if derive.is_noisy(row) else "")


def _over(rate: float | None, reference: float | None) -> Cell:
    return Cell(units.number(rate / reference) if rate and reference else "-")


def _of_peak(run: Run, grid: _Grid, row: Row | None) -> Cell:
    fraction = derive.peak_fraction(run, row, grid.scope) if row and grid.rate(row) else None
    return Cell(units.percent(fraction).removesuffix(" %") if fraction is not None else "-")


def _conclusion(grid: _Grid) -> list[Note]:
    """The device's fastest of each type, and what the type buys."""
    device = replace(grid, rows=tuple(row for row in grid.rows if row.device == grid.device))
    best = {dtype: row for dtype in grid.dtypes if (row := device.best(dtype))}
    reference = grid.rate(best.get(REFERENCE))

    def words(dtype: str, row: Row) -> str:
        rate = grid.rate(row) or 0.0
        over = f", {units.number(rate / reference)} times {REFERENCE}" if reference else ""
        return f"{dtype} {clean(row.variant)} {units.rate(rate)}{over if dtype != REFERENCE else ''}"

    sentence = "; ".join(words(dtype, row) for dtype, row in best.items())
    return [Note("Fastest", f"{sentence}.", "bold")] if best else []


def _short(dtype: str) -> str:
    """For a heading: ``h`` for half, so that three types fit 80 columns."""
    return dtype[0]


def _type(row: Row) -> str:
    return row.dtype
