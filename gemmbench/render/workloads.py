"""The table of ``workloads``: a line for each shape with its best kernel, then what holds for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import geometric_mean

from rich.console import RenderableType

from gemmbench.facts import derive, units
from gemmbench.facts.records import FAILED, Problem, Row, Run
from gemmbench.facts.series import HOST
from gemmbench.facts.text import clean
from gemmbench.render import energy, notes
from gemmbench.render.heading import heading
from gemmbench.render.notes import WORDS
from gemmbench.render.sheet import Cell, Note, Sheet, stack
from gemmbench.rules.variants import AUTO, BASELINE

_COLUMNS = (("m", "n", "k"), ("best", "kernel", "host"), ("of peak", BASELINE, "ratio"))
_FORMATS = (units.gflops, units.gflops, units.percent, units.gflops, units.number)  # kernel to ratio
_NO_ENERGY = (Cell(""), Cell(""))
_NAME = 16  # letters of a name in a line, so that a line fits 80 columns


def workloads(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> RenderableType:
    """A table for each device and type; scope, which chooses the best kernel, is not ``all``."""
    return stack(sheets(run, scope, order))


def sheets(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> list[Sheet]:
    """A line for each shape in the order of the run: best kernel, its GFLOPS in two scopes, numpy's."""
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem]
    found = []
    for device in sorted({row.device for row in rows if row.device != HOST}) or [HOST]:
        for dtype in dict.fromkeys(row.dtype for row in rows):
            mine = [row for row in rows if row.dtype == dtype and row.device in (device, HOST)]
            if mine:
                found.append(_sheet(run, device, dtype, mine, scope, order))
    return found


@dataclass(frozen=True)
class _Line:
    """What is shown of one shape."""

    name: str
    problem: Problem
    rows: tuple[Row, ...]  # of every kernel on the device, or of the host alone
    best: Row | None
    host: Row | None  # numpy's

    @property
    def ratio(self) -> float | None:
        """How many times numpy's rate the device reaches, transfers counted."""
        mine, theirs = _rate(self.best, "host"), _rate(self.host, "host")
        return mine / theirs if mine and theirs else None

    def figures(self, run: Run) -> tuple[float | None, ...]:
        """One for each of `_FORMATS`; rates are flop/s."""
        return (
            _rate(self.best, "kernel"),
            _rate(self.best, "host"),
            derive.peak_fraction(run, self.best) if self.best else None,
            _rate(self.host, "host"),
            self.ratio,
        )


def _rate(row: Row | None, scope: str) -> float | None:
    found = derive.shown_rate(row, scope) if row else None
    return found.median if found else None


def _lines(device: int, rows: Sequence[Row], scope: str, order: Sequence[str]) -> list[_Line]:
    rank = {name: place for place, name in enumerate(order)}
    found = []
    for problem in dict.fromkeys(row.problem for row in rows):
        assert problem is not None
        same = sorted(
            (row for row in rows if row.problem == problem),
            key=lambda row: rank.get(row.variant, len(rank)),
        )
        mine = [row for row in same if row.device == device]
        mine = [row for row in mine if row.variant != AUTO] or mine  # its figures are another's
        rated = [(rate.median, row) for row in mine if (rate := derive.shown_rate(row, scope))]
        best = max(rated, key=lambda pair: pair[0], default=(0.0, None))[1]
        host = next((row for row in same if row.device == HOST and row.variant == BASELINE), None)
        found.append(_Line(clean(same[0].label), problem, tuple(mine), best, host))
    return found


def _sheet(run: Run, device: int, dtype: str, rows: Sequence[Row], scope: str, order: Sequence[str]) -> Sheet:
    lines = _lines(device, rows, scope, order)
    figures = [line.figures(run) for line in lines]
    joules = energy.measured(rows)
    body = [
        (
            Cell(_broken(line.name) or "-"),
            *(Cell(str(length)) for length in (line.problem.m, line.problem.n, line.problem.k)),
            Cell(clean(line.best.variant) if line.best else _why(line)),
            *_cells(found),
            *((energy.cells(line.best) if line.best else _NO_ENERGY) if joules else ()),
        )
        for line, found in zip(lines, figures, strict=True)
    ]
    if len(lines) > 1:
        means = [_mean(column) for column in zip(*figures, strict=True)]
        empty = [Cell("")] * 4
        body.append((Cell("geometric mean"), *empty, *_cells(means), *(_NO_ENERGY if joules else ())))
    hosts = [line.host for line in lines]
    shown = [row for line in lines for row in (line.best, line.host) if row]
    return Sheet(
        heading=heading(run, device, dtype),
        caption=f"{dtype} {derive.unit(dtype)}, each shape's best kernel by {scope} scope; "
        f"ratio: host over {BASELINE}",
        blocks=(*_COLUMNS, energy.COLUMNS) if joules else _COLUMNS,
        rows=tuple(body),
        left=frozenset({"best"}),
        notes=(
            *([Note(BASELINE, clean(run.header.host.blas), "dim")] if any(hosts) else []),
            *notes.troubles([row for row in rows if row.status in FAILED], _place, "shape"),
            *_missing(rows),
            *notes.noisy(run, shown, _place),
            *energy.remarks(run, shown, _place),
            *notes.choices(rows, _place, "shape"),
            *notes.remarks(shown, _place, "shape"),
            *notes.warnings([run.header.devices[device] if device != HOST else None]),
            *_conclusion(lines, scope),
        ),
    )


def _cells(figures: Iterable[float | None]) -> tuple[Cell, ...]:
    return tuple(
        Cell(form(figure)) if figure is not None else Cell("-", style="dim")
        for form, figure in zip(_FORMATS, figures, strict=True)
    )


def _mean(values: Iterable[float | None]) -> float | None:
    """The geometric mean of what is known; None if nothing is."""
    known = [value for value in values if value]
    return geometric_mean(known) if known else None


def _broken(name: str) -> str:
    """A long name over several lines, broken where shapes of several names are joined, or at a space."""
    lines = [""]
    for word in name.split():
        if lines[-1] and len(lines[-1]) + 1 + len(word) > _NAME:
            lines.append("")
        lines[-1] = f"{lines[-1]} {word}".strip()
    return "\n".join(lines)


def _why(line: _Line) -> str:
    """In place of the best kernel, where there is none: the status that all rows share."""
    statuses = {row.status for row in line.rows}
    return WORDS[statuses.pop()] if len(statuses) == 1 else "-"


def _missing(rows: Sequence[Row]) -> list[Note]:
    """How many rows were not worth running; with one best kernel for a line, their reasons would be noise."""
    advice = "-v says why"
    return [
        Note(WORDS[status], f"{count} of {len(rows)} rows; {advice}", "dim")
        for status in ("skipped", "unsupported")
        if (count := sum(row.status == status for row in rows))
    ]


def _conclusion(lines: Sequence[_Line], scope: str) -> list[Note]:
    """The kernel to take if it may be only one, and where offloading pays."""
    found = []
    measured = [line for line in lines if line.best]
    rates: dict[str, list[float]] = {}
    for line in measured:
        for row in line.rows:
            if rate := derive.shown_rate(row, scope):
                rates.setdefault(row.variant, []).append(rate.median)
    everywhere = {name: geometric_mean(known) for name, known in rates.items() if len(known) == len(measured)}
    if len(measured) > 1 and len(rates) > 1 and everywhere:
        name = max(everywhere, key=lambda name: everywhere[name])
        figure = f"{units.rate(everywhere[name])} geometric mean over {len(measured)} shapes"
        found.append(Note("One kernel for all", f"{clean(name)}, {figure}.", "bold"))
    ratios = [line.ratio for line in lines if line.ratio is not None]
    if ratios:
        wins = sum(ratio > 1 for ratio in ratios)
        sentence = f"the device beats {BASELINE} on {wins} of {len(ratios)} shapes, transfers counted."
        found.append(Note("Offloading", sentence, "bold"))
    return found


def _place(row: Row) -> str:
    assert row.problem is not None
    return clean(row.label) or row.problem.shape
