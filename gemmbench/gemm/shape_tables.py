"""The table of ``workloads``: a line for each shape with its best kernel, then the conclusions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from statistics import geometric_mean

from gemmbench.gemm import sweep_table
from gemmbench.ladder import BASELINE, BASELINES
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import FAILED, Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.report import notes
from gemmbench.report.notes import WORDS
from gemmbench.report.table import NOTHING, Cell, Note, Sheet, heading
from gemmbench.stats import claims, rates

_NAME = 16  # letters of a name in a line, so that a line fits 80 columns


def workloads_sheets(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> list[Sheet]:
    """The tables of shapes for each device and data type.

    Each has a line for every shape, in the order of the run, with its best kernel in `scope`. If several
    kernels were interleaved with that of ``--versus``, a table of ratios follows, in the `order` of variants.
    If a program's calls were counted, there is a table of them instead.
    """
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem]
    if any(row.calls for row in rows):
        is_asked = "--dtype" in run.header.command  # which measures every shape in every type
        parts = sweep_table.by_device(rows, lambda row: row.dtype if is_asked else None, order)
        return [_program_sheet(run, *part, scope) for part in parts]
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
    host: Row | None  # of the host's library: numpy's, or else MKL's

    @property
    def ratio(self) -> float | None:
        """The best kernel's rate with transfers over numpy's; None if unknown, or if numpy ran alone."""
        own, host_rate = rates.median_rate(self.best, "host"), rates.median_rate(self.host, "host")
        return own / host_rate if own and host_rate and self.best is not self.host else None

    def pays(self, run: Run) -> bool | None:
        """Whether some kernel with transfers is known to be faster than numpy, or all are known to be slower.

        None if neither is known.
        """
        host = claims.evidence(run, self.host, "host") if self.best is not self.host else None
        own = [known for row in self.rows if (known := claims.evidence(run, row, "host"))]
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


def _shape_cells(name: str, problem: Problem, scalars: bool = False) -> tuple[Cell, ...]:
    """The cells of name, m, n and k; the name with alpha and beta if `scalars`."""
    name += problem.apart()
    if scalars:
        name += f" alpha={problem.alpha:g}" if problem.alpha != 1 else ""
        name += f" beta={problem.beta:g}" if problem.beta else ""
    name = textwrap.fill(name, _NAME, break_long_words=False, break_on_hyphens=False)
    return (Cell(name or "-"), *map(Cell, map(str, (problem.m, problem.n, problem.k))))


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
        hosts = [row for row in same if row.device == HOST]
        host = next((row for row in hosts if row.status == "ok"), next(iter(hosts), None))
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

    library = _library(lines)
    forms = {inner: rate_text, "transfers": rate_text, "of peak": units.share, library: rate_text}
    forms[f"x {library}"] = units.number
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
    scalars = {line.problem.scalars for line in lines}
    names = [
        (*_shape_cells(line.name, line.problem, len(scalars) > 1), _best_kernel(run, line, inner))
        for line in lines
    ]
    names.append((Cell("geometric mean"), *[Cell("")] * 4))
    parts = (columns, versus, energy)
    by_column = (*zip(*names, strict=True), *(cells for part in parts for cells in part.values()))
    body = list(zip(*by_column, strict=True))
    rated = [row for line in lines for row in (line.best, line.host) if row]
    shown = [*rated, *(row for row in rows if row.status in (*FAILED, "skipped"))]
    kind = f"{dtype} GEMM{scalars.pop() if len(scalars) == 1 else ''}"
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


_MOST_LINES = 15  # shapes of a program; the others are summed in one line


@dataclass(frozen=True)
class _CallsLine:
    """All calls that a program makes of one shape, or of several."""

    shape: tuple[Cell, ...]  # name, m, n, k, data type
    calls: int
    flops: int
    library: claims.Evidence | None  # seconds
    best: claims.Evidence | None
    kernel: str = ""  # that `best` is of
    is_faster: bool = True  # it is known to be faster than the library
    is_fastest: bool = True  # it is known to be faster than all others


def _program_sheet(run: Run, device: int, dtype: str | None, rows: Sequence[Row], scope: str) -> Sheet:
    """The calls of a program, the longest first, and their sum; `dtype` is None for several types."""
    rated = [row for row in rows if rates.compared_rate(run, device, row, scope)]
    name = next((each for each in reversed(BASELINES) if any(row.variant == each for row in rated)), "")
    library = next((clean(row.title) for row in rated if row.variant == name), "")
    by_shape = by_key(((row.dtype, row.problem), row) for row in rows).values()
    lines = [_calls_line(run, device, alike, name, scope) for alike in by_shape]
    lines.sort(key=lambda line: -getattr(line.library or line.best, "median", 0.0))
    left_out, count = run.header.left_out, len(lines) if len(lines) == _MOST_LINES + 1 else _MOST_LINES
    flops = sum(line.flops for line in lines) + (left_out.flops if left_out else 0)
    shown = [*lines[:count], *([_rest(lines[count:], name)] if lines[count:] else [])]

    def seconds(time: claims.Evidence | None) -> Cell:
        return Cell(_mark(time) + units.seconds(time.median)) if time else NOTHING

    def cells(line: _CallsLine) -> Iterator[Cell]:
        """The cells of a line: shape, calls, share, the library's time, best kernel, its time, ratio."""
        yield from line.shape if dtype is None else line.shape[:-1]
        yield from (Cell(f"{line.calls:,}"), sweep_table.known(flops and line.flops / flops, units.share))
        if library:
            yield seconds(line.library)
        yield from (Cell(line.kernel), seconds(line.best))
        if line.library and line.best:
            ratio = units.number(line.library.median / line.best.median)
            yield Cell(_mark(line.library, line.best) + ratio)
        elif library:
            yield NOTHING

    seen = [row for row in rows if row.variant == name or row.status in (*FAILED, "skipped")]
    seen += [row for row, _ in claims.best_of_shapes(rows, run, device, scope).values()]
    columns = ("m", "n", "k", *(["type"] if dtype is None else []), "calls", "of flops")
    figures = (library, "best", "time", f"x {library}") if library else ("best", "time")
    what = f"{dtype or ''} GEMMs of a program, time of all calls".strip()
    return Sheet(
        heading=heading(run, device, dtype),
        caption=f"{what} {sweep_table.SCOPE_WORDS[scope]}",
        blocks=(columns, figures),
        rows=tuple(tuple(cells(line)) for line in shown),
        left=frozenset({"type", "best"}),
        notes=(
            *_program_conclusion(lines, library),
            *([Note("", left_out.sentence, "yellow")] if left_out else []),
            *notes.remarks(run, device, seen, _place, "shape", scope),
        ),
    )


def _mark(*seconds: claims.Evidence) -> str:
    return "" if all(each.is_certain for each in seconds) else notes.UNCERTAIN


def _calls_line(run: Run, device: int, rows: Sequence[Row], library: str, scope: str) -> _CallsLine:
    """All calls of the shape that the rows are of, with the library and with the fastest of all rows."""
    row, problem = rows[0], rows[0].problem
    assert problem is not None
    rated = [(each, rate) for each in rows if (rate := claims.compared(run, device, each, scope))]
    cells = _shape_cells(clean(row.label), problem, True)
    counts = row.calls or 1, (row.calls or 1) * problem.flops
    if not rated:
        return _CallsLine((*cells, Cell(row.dtype)), *counts, None, None, "-")
    best, rate = max(rated, key=lambda pair: pair[1].median)
    called = [(each, known) for each, known in rated if each.variant == library]
    best_s = claims.all_calls(best, rate)
    return _CallsLine(
        (*cells, Cell(row.dtype)),
        *counts,
        claims.all_calls(*called[0]) if called else None,
        best_s,
        f"{_mark(best_s)}{clean(best.title)}",
        best_s.is_certain and rate.is_above_all(known for _, known in called),
        len(rated) < 2 or rate.is_above_all(known for each, known in rated if each is not best),
    )


def _rest(lines: Sequence[_CallsLine], library: str) -> _CallsLine:
    """The sum of several lines. Its times are of those that have all times."""
    timed = [line for line in lines if line.best and (line.library or not library)]
    seconds = claims.total(line.library for line in timed), claims.total(line.best for line in timed)
    cells = (Cell(f"{len(lines)} more shapes"), *[Cell("")] * 4)
    return _CallsLine(cells, sum(line.calls for line in lines), sum(line.flops for line in lines), *seconds)


def _program_conclusion(lines: Sequence[_CallsLine], library: str) -> list[Note]:
    """The time of all calls of certain shapes with the library, and with the best if known to be faster."""
    sure = [line for line in lines if (time := line.library if library else line.best) and time.is_certain]
    best_s = claims.total(line.best if line.is_faster else line.library for line in sure)
    called_s = claims.total(line.library for line in sure)
    if not any(line.best for line in lines):
        return []
    if best_s is None:
        return [Note("", "No shape has a certain time, so the calls are not summed.", "dim")]
    called = f"As called with {library} {units.seconds(called_s.median)}, best" if called_s else "Best"
    text = f"{called} of each {units.seconds(best_s.median)}."
    if len(sure) < len(lines):
        text = f"Certain are {len(sure)} of {len(lines)} shapes. {text[:-1]} for these."
    return [Note("", text, "bold"), *_undecided([line.is_fastest for line in lines])]


def _undecided(are_fastest: Sequence[bool]) -> list[Note]:
    """A note on the shapes whose best row is not known to be the fastest, if there are any."""
    if all(are_fastest):
        return []
    count = len(are_fastest)
    many = f"{are_fastest.count(False)} of {count} shapes" if count > 1 else "this shape"
    return [Note("", f"best is the highest median. It may not be the fastest on {many}.", "dim")]


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
        ratios = (sweep_table.versus_cell(by_title.get(title), scope) for title in titles)
        body.append((*_shape_cells(line.name, line.problem), *ratios))
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


def _library(lines: Sequence[_ShapeLine]) -> str:
    """The host's library, for a heading."""
    return next((line.host.variant for line in lines if line.host), BASELINE)


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
        if (rate := claims.evidence(run, row, scope))
    )
    means = {name: claims.mean(all_) for name, all_ in known.items() if len(all_) == len(measured)}
    name = claims.fastest(means)
    if len(measured) > 1 and name:
        figure = f"geometric mean {rate_text(means[name].median)} over {len(measured)} shapes"
        conclusions.append(Note("", f"Best single kernel: {clean(name)}, {figure}.", "bold"))
    conclusions += _undecided([line.is_fastest for line in measured])
    compared = [line for line in lines if line.ratio is not None]
    pays = [line.pays(run) for line in compared]
    if compared:
        unknown = f", {pays.count(None)} unclear" if None in pays else ""
        sentence = (
            f"With transfers, the device beats {_library(lines)} on {pays.count(True)} of {len(pays)} shapes"
        )
        conclusions.append(Note("", f"{sentence}{unknown}.", "bold"))
    return conclusions


def _place(row: Row) -> str:
    assert row.problem is not None
    return clean(row.label) or row.problem.shape
