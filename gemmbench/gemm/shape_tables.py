"""The table of ``workloads``: a line for each shape with its best kernel, then the conclusions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Sequence
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
from gemmbench.stats import intervals, rates

_NAME = 16  # letters of a name in a line, so that a line fits 80 columns


def workloads_sheets(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> list[Sheet]:
    """The tables of shapes for each device and data type.

    Each has a line for every shape, in the order of the run, with its best kernel in `scope`. If several
    kernels were interleaved with that of ``--versus``, a table of ratios follows, in the `order` of variants.
    """
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem]
    sheets = []
    for device, dtype, own_rows in sweep_table.by_device(rows, attrgetter("dtype")):
        lines = _lines(run, device, own_rows, scope, order)
        sheets.append(_workloads_sheet(run, device, dtype, own_rows, lines, scope))
        sheets += _versus_sheet(lines, scope)
    return sheets


@dataclass(frozen=True)
class _ShapeLine:
    """What is shown for one shape."""

    name: str
    problem: Problem
    rows: tuple[Row, ...]  # of every kernel on the device, or of the host alone
    best: Row | None  # with the highest rate
    is_fastest: bool  # `best` is known to be faster than the others
    host: Row | None  # numpy's

    @property
    def ratio(self) -> float | None:
        """The best kernel's rate with transfers over numpy's; None if unknown, or if numpy ran alone."""
        own, host_rate = rates.median_rate(self.best, "host"), rates.median_rate(self.host, "host")
        return own / host_rate if own and host_rate and self.best is not self.host else None

    def pays(self, run: Run) -> bool | None:
        """Whether some kernel with transfers is known to be faster than numpy, or all are known to be slower.

        None if neither is known.
        """
        host = rates.evidence(run, self.host, "host") if self.best is not self.host else None
        own = [known for row in self.rows if (known := rates.evidence(run, row, "host"))]
        if host is None or not own:
            return None
        if any(rate.is_above_all([host]) for rate in own):
            return True
        return False if host.is_above_all(own) else None

    def figures(self, run: Run, scope: str) -> tuple[float | None, ...]:
        """The best kernel's rates in `scope` and with transfers, its share of peak, numpy's rate, ratio."""
        return (
            rates.median_rate(self.best, scope),
            rates.median_rate(self.best, "host"),
            rates.peak_fraction(run, self.best, scope) if self.best else None,
            rates.median_rate(self.host, "host"),
            self.ratio,
        )

    def doubts(self, run: Run, scope: str) -> tuple[bool, ...]:
        """Whether each of `figures` is uncertain."""

        def unsure(row: Row | None, each: str) -> bool:
            return row is not None and rates.is_uncertain(run, row, rates.shown_samples(row, each))

        own, with_transfers, host = (
            unsure(self.best, scope),
            unsure(self.best, "host"),
            unsure(self.host, "host"),
        )
        of_peak = self.best is not None and sweep_table.is_share_uncertain(run, self.best, scope)
        return own, with_transfers, of_peak, host, with_transfers or host

    @property
    def cells(self) -> tuple[Cell, ...]:
        lengths = (self.problem.m, self.problem.n, self.problem.k)
        name = f"{self.name}{self.problem.apart()}"
        name = textwrap.fill(name, _NAME, break_long_words=False, break_on_hyphens=False)
        return (Cell(name or "-"), *map(Cell, map(str, lengths)))


def _lines(run: Run, device: int, rows: Sequence[Row], scope: str, order: Sequence[str]) -> list[_ShapeLine]:
    """A line for each shape: its rows on the device, the fastest row in the scope, and numpy's row."""
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
        is_fastest = best in sweep_table.fastest_rows(run, device, own_rows, scope) or len(rated) < 2
        lines.append(_ShapeLine(clean(same[0].label), problem, tuple(own_rows), best, is_fastest, host))
    return lines


def _workloads_sheet(
    run: Run, device: int, dtype: str, rows: Sequence[Row], lines: Sequence[_ShapeLine], scope: str
) -> Sheet:
    """The table of one device and data type: a line for each shape, their geometric means, conclusions.

    Lines have the best kernel's rates in the scope (not "host") and with transfers, and numpy's. Share of
    peak, ratios to ``--versus`` and energy follow if known. A single shape has no means, nor has a column
    that lacks one.
    """
    inner = scope if scope != "host" else "device"  # next to the host scope
    figures = [line.figures(run, inner) for line in lines]
    divisor, unit = rates.table_unit(dtype, (each[at] for each in figures for at in (0, 1, 3)))

    def rate_text(rate: float) -> str:
        return units.number(rate / divisor)

    forms = {inner: rate_text, "transfers": rate_text, "of peak": units.share, BASELINE: rate_text}
    forms[f"x {BASELINE}"] = units.number
    doubts = zip(*(line.doubts(run, inner) for line in lines), strict=True)
    columns = {
        name: [
            NOTHING if value is None else Cell(f"{notes.UNCERTAIN if unsure else ''}{form(value)}")
            for value, unsure in zip((*values, _mean(values)), (*unsures, any(unsures)), strict=True)
        ]
        for (name, form), values, unsures in zip(
            forms.items(), zip(*figures, strict=True), doubts, strict=True
        )
        if any(values)
    }
    best = [line.best for line in lines]
    versus = _versus_column(rows, best, scope)
    versus = {f"{name}, {inner}" if name in columns else name: cells for name, cells in versus.items()}
    energy = {
        name: [cell(row) for row in (*best, None)] for name, cell in sweep_table.energy_columns(rows).items()
    }
    names = [(*line.cells, _best_kernel(run, line, inner)) for line in lines]
    names.append((Cell("geometric mean"), *[Cell("")] * 4))
    parts = (columns, versus, energy)
    by_column = (*zip(*names, strict=True), *(cells for part in parts for cells in part.values()))
    body = list(zip(*by_column, strict=True))
    rated = [row for line in lines for row in (line.best, line.host) if row]
    shown = [*rated, *(row for row in rows if row.status in (*FAILED, "skipped"))]
    kind = f"{dtype} GEMM{lines[0].problem.scalars}"
    return Sheet(
        heading=heading(run, device, dtype),
        caption=f"{kind}, {unit} {sweep_table.SCOPE_WORDS[inner]} and with transfers",
        blocks=(("m", "n", "k", "best"), *(tuple(part) for part in parts if part)),
        rows=tuple(body if len(lines) > 1 else body[:1]),
        left=frozenset({"best"}),
        notes=(
            *_workloads_conclusion(run, lines, scope, lambda value: f"{rate_text(value)} {unit}"),
            *sweep_table.net_notes(run, device, dtype),
            *notes.remarks(run, device, shown, _place, "shape", *dict.fromkeys((inner, "host"))),
            *([] if energy else sweep_table.energy_notes(run, shown)),
        ),
    )


def _versus_column(rows: Sequence[Row], best: Sequence[Row | None], scope: str) -> dict[str, list[Cell]]:
    """The ratios of the best kernels to that of ``--versus`` and their geometric mean; none without one."""
    name = sweep_table.partner_name(rows)
    ratios = [rates.versus(row, scope) if row else None for row in best]
    mean = sweep_table.known(_mean(ratio.median if ratio else None for ratio in ratios), units.number)
    return {f"x {name}": [*(sweep_table.versus_cell(row, scope) for row in best), mean]} if name else {}


def _versus_sheet(lines: Sequence[_ShapeLine], scope: str) -> list[Sheet]:
    """A table of each kernel's ratio to that of ``--versus`` by shape; none for fewer than two kernels."""
    rows = [row for line in lines for row in line.rows if rates.versus(row, scope)]
    titles = list(dict.fromkeys(row.title for row in rows))
    if len(titles) < 2:
        return []
    body = []
    for line in lines:
        by_title = {row.title: row for row in line.rows}
        body.append((*line.cells, *(sweep_table.versus_cell(by_title.get(title), scope) for title in titles)))
    words = f"{sweep_table.SCOPE_WORDS[scope]}, batches interleaved"
    return [
        Sheet(
            caption=f"Times the rate of {sweep_table.partner_name(rows)}, {words}",
            blocks=(("m", "n", "k"), tuple(map(clean, titles))),
            rows=tuple(body),
        )
    ]


def _mean(values: Iterable[float | None]) -> float | None:
    """Their geometric mean; None unless every shape has one, so that the means of a table compare."""
    known = list(values)
    return geometric_mean([value for value in known if value]) if known and all(known) else None


def _best_kernel(run: Run, line: _ShapeLine, scope: str) -> Cell:
    """The kernel with the highest rate. Without one, the status if all rows failed alike, else ``-``."""
    if line.best:
        title, samples = clean(line.best.title), rates.shown_samples(line.best, scope)
        return Cell(notes.marked(run, line.best, title, samples))
    statuses = {row.status for row in line.rows}
    status = statuses.pop() if len(statuses) == 1 else "ok"
    return Cell(WORDS[status] if status in FAILED else "-")


def _workloads_conclusion(
    run: Run, lines: Sequence[_ShapeLine], scope: str, rate_text: Callable[[float], str]
) -> list[Note]:
    """The kernel with the best geometric mean over all shapes, and on how many shapes offloading pays.

    The first needs several shapes and kernels with rates on all, and a mean above all others. The second
    needs numpy's rates.
    """
    conclusions = []
    measured = [line for line in lines if line.best]
    known = by_key(
        (row.title, rate)
        for line in measured
        for row in line.rows
        if (rate := rates.evidence(run, row, scope))
    )
    means = {name: intervals.mean(all_) for name, all_ in known.items() if len(all_) == len(measured)}
    name = intervals.fastest(means)
    if len(measured) > 1 and name:
        figure = f"geometric mean {rate_text(means[name].median)} over {len(measured)} shapes"
        conclusions.append(Note("", f"Best single kernel: {clean(name)}, {figure}.", "bold"))
    if undecided := sum(not line.is_fastest for line in measured):
        many = f"{undecided} of {len(measured)} shapes" if len(measured) > 1 else "this shape"
        text = f"best is the highest median. It may not be the fastest on {many}."
        conclusions.append(Note("", text, "dim"))
    compared = [line for line in lines if line.ratio is not None]
    pays = [line.pays(run) for line in compared]
    if compared:
        unknown = f", {pays.count(None)} unclear" if None in pays else ""
        sentence = f"With transfers, the device beats {BASELINE} on {pays.count(True)} of {len(pays)} shapes"
        conclusions.append(Note("", f"{sentence}{unknown}.", "bold"))
    return conclusions


def _place(row: Row) -> str:
    assert row.problem is not None
    return clean(row.label) or row.problem.shape
