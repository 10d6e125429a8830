"""The table of ``workloads``: a line for each shape with its best kernel, then what holds for all of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import geometric_mean

from gemmbench.gemm import sweep_table
from gemmbench.ladder import BASELINE
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import FAILED, Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.report import notes
from gemmbench.report.notes import WORDS
from gemmbench.report.table import NOTHING, Cell, Note, Sheet, heading
from gemmbench.stats import rates

_FORMATS = (units.gflops, units.gflops, units.percent, units.gflops, units.number)  # device's scope to ratio
_NAME = 16  # letters of a name in a line, so that a line fits 80 columns


def workloads_sheets(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> list[Sheet]:
    """A line for each shape in the order of the run: best kernel, its GFLOPS in two scopes, numpy's."""
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem]
    return [
        _workloads_sheet(run, device, dtype, own_rows, scope, order)
        for device, dtype, own_rows in sweep_table.by_device(rows, attrgetter("dtype"))
    ]


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
        device_rate, host_rate = rates.median_rate(self.best, "host"), rates.median_rate(self.host, "host")
        return device_rate / host_rate if device_rate and host_rate else None

    def figures(self, run: Run, scope: str) -> tuple[float | None, ...]:
        """One for each of `_FORMATS`, the first in the scope; rates are flop/s."""
        return (
            rates.median_rate(self.best, scope),
            rates.median_rate(self.best, "host"),
            rates.peak_fraction(run, self.best, scope) if self.best else None,
            rates.median_rate(self.host, "host"),
            self.ratio,
        )


def _lines(run: Run, device: int, rows: Sequence[Row], scope: str, order: Sequence[str]) -> list[_Line]:
    rank = {name: position for position, name in enumerate(order)}
    lines = []
    in_order = sorted(rows, key=lambda row: rank.get(row.variant, len(rank)))
    by_problem = by_key((row.problem, row) for row in in_order)
    for problem in dict.fromkeys(row.problem for row in rows if row.problem):
        same = by_problem[problem]
        own_rows = [row for row in same if row.device == device]
        rated = [(rate, row) for row in own_rows if (rate := rates.compared_rate(run, device, row, scope))]
        best = max(rated, key=lambda pair: pair[0], default=(0.0, None))[1]
        host = next((row for row in same if row.device == HOST and row.variant == BASELINE), None)
        lines.append(_Line(clean(same[0].label), problem, tuple(own_rows), best, host))
    return lines


def _workloads_sheet(
    run: Run, device: int, dtype: str, rows: Sequence[Row], scope: str, order: Sequence[str]
) -> Sheet:
    lines = _lines(run, device, rows, scope, order)
    inner = scope if scope != "host" else "device"  # beside the host scope
    figures = [line.figures(run, inner) for line in lines]
    joules = sweep_table.any_joules(rows)
    versus = sweep_table.versus_name(rows)
    body = [
        (
            Cell(_broken(f"{line.name}{line.problem.apart()}") or "-"),
            *(Cell(str(length)) for length in (line.problem.m, line.problem.n, line.problem.k)),
            Cell(notes.marked(run, line.best, clean(line.best.title)) if line.best else _why(line)),
            *_cells(line_figures),
            *([sweep_table.versus_cell(line.best, scope)] if versus else []),
            *(sweep_table.cells(line.best) if joules else ()),
        )
        for line, line_figures in zip(lines, figures, strict=True)
    ]
    if len(lines) > 1:
        means = [_mean(column) for column in zip(*figures, strict=True)]
        empty = [Cell("")] * 4
        times = _mean(
            ratio.median for line in lines if line.best and (ratio := rates.versus(line.best, scope))
        )
        beside = [Cell(units.number(times) if times else "")] if versus else []
        rest = sweep_table.cells(None) if joules else ()
        body.append((Cell("geometric mean"), *empty, *_cells(means), *beside, *rest))
    columns = (("m", "n", "k"), ("best", inner, "host"), ("of peak", BASELINE, "ratio"))
    shown = [row for line in lines for row in (line.best, line.host) if row]
    blas = [Note(BASELINE, clean(run.header.host.blas), "dim")]
    return Sheet(
        heading=heading(run, device, dtype),
        caption=f"{dtype} {rates.unit(dtype)}, each shape's best kernel by {scope} scope; "
        f"ratio: host over {BASELINE}",
        blocks=(*columns, *([(versus,)] if versus else []), *([sweep_table.COLUMNS] if joules else [])),
        rows=tuple(body),
        left=frozenset({"best"}),
        notes=(
            *(blas if any(line.host for line in lines) else notes.numpy_in_turn(run, shown)),
            *notes.troubles([row for row in rows if row.status in FAILED], _place, "shape"),
            *_missing(rows),
            *notes.uncertain(run, shown),
            *sweep_table.remarks(run, shown),
            *notes.remarks(shown, _place, "shape"),
            *notes.warnings(run, device),
            *notes.combinations(rows, scope, _place, "shape"),
            *_workloads_conclusion(lines, scope),
            *sweep_table.net_notes(run, device, dtype),
        ),
    )


def _cells(figures: Iterable[float | None]) -> tuple[Cell, ...]:
    return tuple(
        Cell(form(figure)) if figure is not None else NOTHING
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
    """How many rows did not run. Their reasons are left to -v: a line shows its best kernel only."""
    return [
        Note(WORDS[status], f"{count} of {len(rows)} rows; -v says why", "dim")
        for status in ("skipped", "unsupported")
        if (count := sum(row.status == status for row in rows))
    ]


def _workloads_conclusion(lines: Sequence[_Line], scope: str) -> list[Note]:
    """The kernel to take if it may be only one, and where offloading pays."""
    conclusions = []
    measured = [line for line in lines if line.best]
    reached = by_key(
        (row.title, rate) for line in measured for row in line.rows if (rate := rates.median_rate(row, scope))
    )
    everywhere = {name: geometric_mean(all_) for name, all_ in reached.items() if len(all_) == len(measured)}
    if len(measured) > 1 and len(reached) > 1 and everywhere:
        name = max(everywhere, key=lambda name: everywhere[name])
        figure = f"{units.rate(everywhere[name])} geometric mean over {len(measured)} shapes"
        conclusions.append(Note("One kernel for all", f"{clean(name)}, {figure}.", "bold"))
    ratios = [line.ratio for line in lines if line.ratio is not None]
    if ratios:
        wins = sum(ratio > 1 for ratio in ratios)
        sentence = f"the device beats {BASELINE} on {wins} of {len(ratios)} shapes, transfers counted."
        conclusions.append(Note("Offloading", sentence, "bold"))
    return conclusions


def _place(row: Row) -> str:
    assert row.problem is not None
    return clean(row.label) or row.problem.shape
