"""The table of ``workloads``: a line for each shape with its best kernel, then the conclusions."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from operator import attrgetter
from statistics import geometric_mean
from typing import Any

from gemmbench.gemm import sweep_table
from gemmbench.ladder import BASELINE, BASELINES
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import FAILED, Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.report import notes
from gemmbench.report.notes import WORDS
from gemmbench.report.table import Columns, Note, Sheet, Shown, format_known, heading, table
from gemmbench.stats import claims, rates

_NAME = 16  # letters of a name in a line, so that a line fits 80 columns


def workloads_sheets(run: Run, scope: str = "kernel", order: Sequence[str] = ()) -> list[Sheet]:
    """The tables of shapes by device and data type, or of a program's calls."""
    rows = [row for row in run.rows if row.kind == "gemm" and row.problem]
    if any(row.calls for row in rows):
        is_asked = "--dtype" in run.header.command  # which measures every shape in every type
        parts = sweep_table.by_device(rows, lambda row: row.dtype if is_asked else None, order)
        return [_program_sheet(run, *part, scope) for part in parts]
    sheets = []
    for device, dtype, own_rows in sweep_table.by_device(rows, attrgetter("dtype")):
        lines = _shape_lines(run, device, own_rows, scope, order)
        sheets += [_workloads_sheet(run, device, dtype, own_rows, lines, scope), *_versus_sheet(lines, scope)]
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
        own, host_rate = rates.median_rate(self.best, "host"), rates.median_rate(self.host, "host")
        return own / host_rate if own and host_rate and self.best is not self.host else None

    def pays(self, run: Run) -> bool | None:
        """Whether a kernel with transfers surely beats numpy (True), or none does (False)."""
        host = claims.evidence(run, self.host, "host") if self.best is not self.host else None
        own = [known for row in self.rows if (known := claims.evidence(run, row, "host"))]
        if host is None or not own:
            return None
        if any(rate.is_above_all([host]) for rate in own):
            return True
        return False if host.is_above_all(own) else None


_Known = tuple[float | None, bool]  # a value, and whether it is uncertain


def _rated(run: Run, row: Row | None, scope: str) -> _Known:
    is_unsure = row is not None and rates.is_uncertain(run, row, rates.shown_samples(row, scope))
    return rates.median_rate(row, scope), is_unsure


def _share(run: Run, row: Row | None, scope: str) -> _Known:
    if row is None:
        return None, False
    return rates.peak_fraction(run, row, scope), sweep_table.is_share_uncertain(run, row, scope)


def _on_best(line: _ShapeLine | None, cell: Callable[[Row | None], Shown]) -> Shown:
    return cell(line.best if line else None)


def _name(name: str, problem: Problem, scalars: bool = False) -> str:
    name += problem.apart()
    if scalars:
        name += f" alpha={problem.alpha:g}" if problem.alpha != 1 else ""
        name += f" beta={problem.beta:g}" if problem.beta else ""
    return textwrap.fill(name, _NAME, break_long_words=False, break_on_hyphens=False) or "-"


def _length(line: _ShapeLine | _CallsLine | None, axis: str) -> str:
    return str(getattr(line.problem, axis)) if line and line.problem else ""


_LENGTHS: Columns[Any] = {axis: partial(_length, axis=axis) for axis in "mnk"}


def _shape_lines(
    run: Run, device: int, rows: Sequence[Row], scope: str, order: Sequence[str]
) -> list[_ShapeLine]:
    """A line for each problem: the device's rows, the fastest of them, the host's row."""
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
    """The table of workloads: the best kernel of each shape, next to the host's library."""
    inner = scope if scope != "host" else "device"  # next to the host scope
    library = _library(lines)
    rated = [row for line in lines for row in (line.best, line.host) if row]
    shown = ((line.best, inner) for line in lines), ((row, "host") for row in rated)
    divisor, unit = rates.table_unit(dtype, (rates.median_rate(*each) for each in chain(*shown)))

    def rate_text(rate: float) -> str:
        return units.number(rate / divisor)

    figures: dict[str, tuple[Callable[[_ShapeLine], _Known], Callable[[float], str]]] = {
        inner: (lambda line: _rated(run, line.best, inner), rate_text),
        "transfers": (lambda line: _rated(run, line.best, "host"), rate_text),
        "of peak": (lambda line: _share(run, line.best, inner), units.share),
        library: (lambda line: _rated(run, line.host, "host"), rate_text),
        f"x {library}": (
            lambda line: (line.ratio, any(_rated(run, row, "host")[1] for row in (line.best, line.host))),
            units.number,
        ),
    }

    def cell(line: _ShapeLine | None, name: str) -> str | None:
        figure, text = figures[name]
        values, doubts = zip(*map(figure, [line] if line else lines), strict=True)
        mark = notes.TILDE if any(doubts) else ""
        return format_known(values[0] if line else _mean(values), lambda value: f"{mark}{text(value)}")

    columns = {
        name: partial(cell, name=name)
        for name, (figure, _) in figures.items()
        if any(figure(line)[0] for line in lines)
    }
    scalars = {line.problem.scalars for line in lines}
    several = len(scalars) > 1
    failed = [*rated, *(row for row in rows if row.status in (*FAILED, "skipped"))]
    kind = f"{dtype} GEMM{'' if several else scalars.pop()}"
    energy = sweep_table.energy_columns(rows)

    return table(
        [*lines, None] if len(lines) > 1 else lines,
        {"": lambda line: _name(line.name, line.problem, several) if line else "geometric mean"},
        {**_LENGTHS, "best": lambda line: _best_kernel(run, line, inner) if line else ""},
        columns,
        _versus_columns(rows, lines, scope, columns, inner),
        {name: partial(_on_best, cell=cell) for name, cell in energy.items()},
        heading=heading(run, device, dtype),
        caption=f"{kind}, {unit} {sweep_table.SCOPE_WORDS[inner]} and with transfers",
        left=["best"],
        notes=(
            *_workloads_conclusion(run, lines, scope, lambda value: f"{rate_text(value)} {unit}"),
            *sweep_table.net_notes(run, device, dtype),
            *notes.remarks(run, device, failed, _place, "shape", *dict.fromkeys((inner, "host"))),
            *([] if energy else sweep_table.energy_notes(run, failed)),
        ),
    )


_MOST_LINES = 15  # shapes of a program; the others are summed in one line


@dataclass(frozen=True)
class _CallsLine:
    """All calls that a program makes of one shape, or of several."""

    name: str
    problem: Problem | None
    dtype: str
    calls: int
    flops: int
    library: claims.Claim | None  # seconds
    best: claims.Claim | None
    kernel: str = ""  # that `best` is of
    is_faster: bool = True  # it is known to be faster than the library
    is_fastest: bool = True  # it is known to be faster than all others


def _program_sheet(run: Run, device: int, dtype: str | None, rows: Sequence[Row], scope: str) -> Sheet:
    """The calls of a program, the longest first, and their sum."""
    rated = [row for row in rows if rates.compared_rate(run, device, row, scope)]
    name = next((each for each in reversed(BASELINES) if any(row.variant == each for row in rated)), "")
    library = next((clean(row.title) for row in rated if row.variant == name), "")
    by_shape = by_key(((row.dtype, row.problem), row) for row in rows).values()
    lines = [_calls_line(run, device, alike, name, scope) for alike in by_shape]
    lines.sort(key=lambda line: -getattr(line.library or line.best, "median", 0.0))
    left_out, count = run.header.left_out, len(lines) if len(lines) == _MOST_LINES + 1 else _MOST_LINES
    flops = sum(line.flops for line in lines) + (left_out.flops if left_out else 0)
    shown = [*lines[:count], *([_rest(lines[count:], name)] if lines[count:] else [])]

    def seconds(time: claims.Claim | None) -> str | None:
        return _mark(time) + units.seconds(time.median) if time else None

    def ratio(line: _CallsLine) -> str | None:
        if not line.library or not line.best:
            return None
        return _mark(line.library, line.best) + units.number(line.library.median / line.best.median)

    seen = [row for row in rows if row.variant == name or row.status in (*FAILED, "skipped")]
    seen += [row for row, _ in claims.best_of_shapes(rows, run, device, scope).values()]
    what = f"{dtype or ''} GEMMs of a program, time of all calls".strip()
    return table(
        shown,
        {"": lambda line: line.name},
        {
            **_LENGTHS,
            **({"type": lambda line: line.dtype} if dtype is None else {}),
            "calls": lambda line: f"{line.calls:,}",
            "of flops": lambda line: format_known(flops and line.flops / flops, units.share),
        },
        {
            **({library: lambda line: seconds(line.library)} if library else {}),
            "best": lambda line: line.kernel,
            "time": lambda line: seconds(line.best),
            **({f"x {library}": ratio} if library else {}),
        },
        heading=heading(run, device, dtype),
        caption=f"{what} {sweep_table.SCOPE_WORDS[scope]}",
        left=["type", "best"],
        notes=(
            *_program_conclusion(lines, library),
            *([Note("", left_out.sentence, "yellow")] if left_out else []),
            *notes.remarks(run, device, seen, _place, "shape", scope),
        ),
    )


def _mark(*seconds: claims.Claim) -> str:
    return "" if all(each.is_certain for each in seconds) else notes.TILDE


def _calls_line(run: Run, device: int, rows: Sequence[Row], library: str, scope: str) -> _CallsLine:
    """What all calls of a logged shape take: with the library, and with the best kernel."""
    row, problem = rows[0], rows[0].problem
    assert problem is not None
    rated = [(each, rate) for each in rows if (rate := claims.claim_if_compared(run, device, each, scope))]
    shape = _name(clean(row.label), problem, True), problem, row.dtype
    counts = row.calls or 1, (row.calls or 1) * problem.flops
    if not rated:
        return _CallsLine(*shape, *counts, None, None, "-")
    best, rate = max(rated, key=lambda pair: pair[1].median)
    called = [(each, known) for each, known in rated if each.variant == library]
    best_s = claims.all_calls(best, rate)
    return _CallsLine(
        *shape,
        *counts,
        claims.all_calls(*called[0]) if called else None,
        best_s,
        f"{_mark(best_s)}{clean(best.title)}",
        best_s.is_certain and rate.is_above_all(known for _, known in called),
        len(rated) < 2 or rate.is_above_all(known for each, known in rated if each is not best),
    )


def _rest(lines: Sequence[_CallsLine], library: str) -> _CallsLine:
    timed = [line for line in lines if line.best and (line.library or not library)]
    seconds = claims.total(line.library for line in timed), claims.total(line.best for line in timed)
    counts = sum(line.calls for line in lines), sum(line.flops for line in lines)
    return _CallsLine(f"{len(lines)} more shapes", None, "", *counts, *seconds)


def _program_conclusion(lines: Sequence[_CallsLine], library: str) -> list[Note]:
    """The time of all calls with the library, and with the best."""
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
    if all(are_fastest):
        return []
    count = len(are_fastest)
    many = f"{are_fastest.count(False)} of {count} shapes" if count > 1 else "this shape"
    return [Note("", f"best is the highest median. It may not be the fastest on {many}.", "dim")]


def _versus_columns(
    rows: Sequence[Row], lines: Sequence[_ShapeLine], scope: str, others: Collection[str], inner: str
) -> Columns[_ShapeLine | None]:
    """A column: the best kernel's rate over the partner's."""
    name = f"x {sweep_table.partner_name(rows)}"

    def ratio(line: _ShapeLine) -> float | None:
        against = rates.versus(line.best, scope) if line.best else None
        return against.median if against else None

    def cell(line: _ShapeLine | None) -> str | None:
        if line:
            return sweep_table.versus_cell(line.best, scope)
        return format_known(_mean(map(ratio, lines)), units.number)

    return {f"{name}, {inner}" if name in others else name: cell} if name != "x " else {}


def _versus_sheet(lines: Sequence[_ShapeLine], scope: str) -> list[Sheet]:
    """Ratios to --versus, a column for each kernel; none if a single one was compared."""
    rows = [row for line in lines for row in line.rows if rates.versus(row, scope)]
    titles = list(dict.fromkeys(row.title for row in rows))

    def ratio(line: _ShapeLine, title: str) -> str:
        row = next((row for row in reversed(line.rows) if row.title == title), None)
        return sweep_table.versus_cell(row, scope)

    caption = f"{sweep_table.partner_name(rows)}, {sweep_table.SCOPE_WORDS[scope]}, batches interleaved"
    sheet = table(
        lines,
        {"": lambda line: _name(line.name, line.problem)},
        _LENGTHS,
        {clean(title): partial(ratio, title=title) for title in titles},
        caption=f"Times the rate of {caption}",
    )
    return [sheet] if len(titles) > 1 else []


def _mean(values: Iterable[float | None]) -> float | None:
    """Their geometric mean; None unless every shape has a value."""
    known = list(values)
    return geometric_mean([value for value in known if value]) if known and all(known) else None


def _best_kernel(run: Run, line: _ShapeLine, scope: str) -> str:
    if line.best:
        return notes.mark_uncertain(run, line.best, clean(line.best.title), scope)
    statuses = {row.status for row in line.rows}
    status = statuses.pop() if len(statuses) == 1 else "ok"
    return WORDS[status] if status in FAILED else "-"


def _library(lines: Sequence[_ShapeLine]) -> str:
    return next((line.host.variant for line in lines if line.host), BASELINE)


def _workloads_conclusion(
    run: Run, lines: Sequence[_ShapeLine], scope: str, rate_text: Callable[[float], str]
) -> list[Note]:
    """The best single kernel, and on how many shapes offloading pays."""
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
