"""The table of ``precision``: data types across, variants down, then what each type buys."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from statistics import geometric_mean

from gemmbench.gemm import sweep_table, workloads
from gemmbench.ladder import BASELINE
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import FAILED, Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, clean_lines
from gemmbench.report import notes
from gemmbench.report.notes import WORDS
from gemmbench.report.table import NOTHING, POWER_LIMITED, Cell, Note, Sheet, heading
from gemmbench.stats import rates
from gemmbench.stats.conditions import limited

_type = attrgetter("dtype")
_JOULES = Note("energy", "-v has the joules of every row", "dim")
REFERENCE = "float"  # what the other types are held against


def sheets(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> list[Sheet]:
    """One table for each device and problem: GFLOPS and fraction of peak by type, speed-ups over float."""
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem]
    dtypes = tuple(dict.fromkeys(row.dtype for row in rows))
    return [
        _sheet(run, _Grid(device, problem, dtypes, scope, tuple(own_rows)))
        for device, problem, own_rows in sweep_table.by_device(rows, attrgetter("problem"), order)
    ]


@dataclass(frozen=True)
class _Grid:
    """What one table shows."""

    device: int
    problem: Problem
    dtypes: tuple[str, ...]
    scope: str
    rows: tuple[Row, ...]  # in the order of the table

    @property
    def titles(self) -> list[str]:
        return list(dict.fromkeys(row.title for row in self.rows))

    def row(self, title: str, dtype: str) -> Row | None:
        """The fastest, should there be several."""
        candidates = [row for row in self.rows if (row.title, row.dtype) == (title, dtype)]
        return max(candidates, key=lambda row: self.rate(row) or 0.0, default=None)

    def rate(self, row: Row | None) -> float | None:
        """The median in flop/s."""
        return rates.median_rate(row, self.scope)

    def best(self, run: Run, dtype: str) -> Row | None:
        """The fastest of a type, of those that are compared."""
        rated = {
            rate: row
            for row in reversed(self.rows)
            if row.dtype == dtype and (rate := rates.compared_rate(run, self.device, row, self.scope))
        }
        return rated[max(rated)] if rated else None

    def lacking(self) -> dict[str, str]:
        """The types that nothing on the device supports, and why."""
        unsupported = {}
        for dtype in self.dtypes:
            reasons = {
                row.reason if row.status == "unsupported" else ""
                for row in self.rows
                if row.dtype == dtype and row.device == self.device
            }
            if len(reasons) == 1 and (reason := reasons.pop()):
                unsupported[dtype] = reason
        return unsupported


def _sheet(run: Run, grid: _Grid) -> Sheet:
    others = [name for name in grid.dtypes if name != REFERENCE and REFERENCE in grid.dtypes]
    lacking = grid.lacking()
    versus = sweep_table.versus_name(grid.rows)
    unsuited = notes.unsuited(run, grid.rows)
    grid = replace(grid, rows=tuple(row for row in grid.rows if row.variant not in unsuited))
    reported = [row for row in grid.rows if row.dtype not in lacking or row.status != "unsupported"]
    over = f"; /{REFERENCE}: times the rate of {REFERENCE}" if others else ""
    return Sheet(
        heading=_heading(run, grid),
        caption=f"GFLOPS, {grid.scope} scope, {grid.problem.title}; * best of its type{over}",
        blocks=(
            grid.dtypes,
            # h for half, so that three types fit 80 columns
            tuple(f"{name[0]}/{REFERENCE}" for name in others),
            tuple(f"{name} %" for name in grid.dtypes),
            tuple(f"{name[0]} {versus}" for name in grid.dtypes if versus),
        ),
        rows=tuple(_line(run, grid, title, others) for title in grid.titles),
        notes=(
            Note("%", "of the type's own peak, in the heading", "dim"),
            *notes.scopes(run, grid.device, grid.rows, grid.scope),
            *(Note(WORDS["unsupported"], f"{n}: {clean_lines(why)}", "dim") for n, why in lacking.items()),
            *notes.not_for(unsuited),
            *notes.troubles(reported, _type, "type"),
            *notes.noisy(run, grid.rows, _type),
            *([_JOULES] if sweep_table.any_joules(grid.rows) else []),
            *sweep_table.remarks(run, grid.rows, _type),
            *notes.remarks(grid.rows, _type, "type"),
            *notes.warnings(run, grid.device),
            *notes.combinations(grid.rows, grid.scope, _type, "type"),
            *_conclusion(run, grid),
        ),
    )


def _heading(run: Run, grid: _Grid) -> tuple[str, ...]:
    """The device, and the peak of every type."""
    first, *_ = (heading(run, grid.device, dtype) for dtype in grid.dtypes)
    if grid.device == HOST:
        return first
    limits = {dtype: clock for dtype in grid.dtypes if (clock := limited(run, grid.device, dtype))}
    return (
        *(piece for piece in first[:-1] if not piece.startswith(POWER_LIMITED)),
        *(f"{dtype} {POWER_LIMITED}: {clock}" for dtype, clock in limits.items()),
        *(heading(run, grid.device, dtype)[-1] for dtype in grid.dtypes),
    )


def _line(run: Run, grid: _Grid, title: str, others: Sequence[str]) -> tuple[Cell, ...]:
    rows = {dtype: grid.row(title, dtype) for dtype in grid.dtypes}
    in_turn = rows.values() if sweep_table.versus_name(grid.rows) else ()
    return (
        Cell(clean(title)),
        *(_figure(run, grid, row) for row in rows.values()),
        *(_over(grid.rate(rows[dtype]), grid.rate(rows[REFERENCE])) for dtype in others),
        *(_of_peak(run, grid, row) for row in rows.values()),
        *(sweep_table.versus_cell(row, grid.scope) for row in in_turn),
    )


def _figure(run: Run, grid: _Grid, row: Row | None) -> Cell:
    is_best = row is not None and row is grid.best(run, row.dtype)
    return notes.figure(row, grid.rate(row), is_best, run)


def _over(rate: float | None, reference: float | None) -> Cell:
    return Cell(units.number(rate / reference) if rate and reference else "-")


def _of_peak(run: Run, grid: _Grid, row: Row | None) -> Cell:
    fraction = rates.peak_fraction(run, row, grid.scope) if row and grid.rate(row) else None
    return Cell(units.percent(fraction).removesuffix(" %") if fraction is not None else "-")


def _conclusion(run: Run, grid: _Grid) -> list[Note]:
    """The device's fastest of each type, and what the type buys."""
    device = replace(grid, rows=tuple(row for row in grid.rows if row.device == grid.device))
    best = {dtype: row for dtype in grid.dtypes if (row := device.best(run, dtype))}
    reference = grid.rate(best.get(REFERENCE))

    def text(dtype: str, row: Row) -> str:
        rate = grid.rate(row) or 0.0
        over = f", {units.number(rate / reference)} times {REFERENCE}" if reference else ""
        return f"{dtype} {clean(row.title)} {units.rate(rate)}{over if dtype != REFERENCE else ''}"

    sentence = "; ".join(text(dtype, row) for dtype, row in best.items())
    return [Note("Fastest", f"{sentence}.", "bold")] if best else []


# --- The table of ``workloads``: a line for each shape with its best kernel, then what holds for all of
# them.


_FORMATS = (units.gflops, units.gflops, units.percent, units.gflops, units.number)  # device's scope to ratio
_NO_ENERGY = (Cell(""), Cell(""))
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
            *((sweep_table.cells(line.best) if line.best else _NO_ENERGY) if joules else ()),
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
        rest = _NO_ENERGY if joules else ()
        body.append((Cell("geometric mean"), *empty, *_cells(means), *beside, *rest))
    columns = (("m", "n", "k"), ("best", inner, "host"), ("of peak", BASELINE, "ratio"))
    shown = [row for line in lines for row in (line.best, line.host) if row]
    return Sheet(
        heading=heading(run, device, dtype),
        caption=f"{dtype} {rates.unit(dtype)}, each shape's best kernel by {scope} scope; "
        f"ratio: host over {BASELINE}",
        blocks=(*columns, *([(versus,)] if versus else []), *([sweep_table.COLUMNS] if joules else [])),
        rows=tuple(body),
        left=frozenset({"best"}),
        notes=(
            *(
                [Note(BASELINE, clean(run.header.host.blas), "dim")]
                if any(line.host for line in lines)
                else notes.numpy_in_turn(run, shown)
            ),
            *notes.troubles([row for row in rows if row.status in FAILED], _place, "shape"),
            *notes.not_for(unsuited := notes.unsuited(run, rows)),
            *_missing([row for row in rows if row.variant not in unsuited]),
            *notes.noisy(run, shown, _place),
            *sweep_table.remarks(run, shown, _place),
            *notes.remarks(shown, _place, "shape"),
            *notes.warnings(run, device),
            *notes.combinations(rows, scope, _place, "shape"),
            *_workloads_conclusion(lines, scope),
        ),
    )


def net_sheets(run: Run) -> list[Sheet]:
    """AlexNet layer by layer and as a whole, for each device and type that ran all of it."""
    return [_net_sheet(run, net) for net in workloads.nets(run)]


_NET = (
    "Lowering (im2col) is excluded. A layer of two towers runs twice. Pooling, normalisation and activations "
    "are not run."
)


def _net_sheet(run: Run, net: workloads.Net) -> Sheet:
    def times(product_s: float | None) -> tuple[Cell, Cell]:
        if product_s is None:
            return NOTHING, NOTHING
        share = NOTHING if net.missing else Cell(units.percent(product_s / net.whole_s))
        return Cell(units.seconds(product_s)), share

    body = [
        (
            Cell(layer.name),
            Cell(str(layer.runs)),
            *times(layer.product_s),
            Cell(notes.marked(run, layer.product, clean(layer.product.title)) if layer.product else "-"),
        )
        for layer in net.layers
    ]
    if not net.missing:
        body += [
            (Cell("convolutions"), Cell(""), *times(net.convolutions_s), Cell("")),
            (Cell("dense layers"), Cell(""), *times(net.whole_s - net.convolutions_s), Cell("")),
            (Cell("net"), Cell(""), *times(net.whole_s), Cell("")),
        ]
    return Sheet(
        heading=heading(run, net.device, net.dtype),
        caption=f"AlexNet, {net.dtype}, device scope: each layer's fastest product, lowering excluded",
        keys=("layer",),
        blocks=(("runs", "time", "share", "best"),),
        rows=tuple(body),
        left=frozenset({"best"}),
        notes=(Note("", _NET, "dim"), Note("AlexNet", f"{net.sentence}.", "bold")),
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
    advice = "-v says why"
    return [
        Note(WORDS[status], f"{count} of {len(rows)} rows; {advice}", "dim")
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
