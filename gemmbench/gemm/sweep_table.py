"""The tables of GEMM rows: sizes across, a line for each row, pages for one problem, energy."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise
from operator import attrgetter
from typing import Any, TypeVar

from gemmbench.gemm.workloads import nets
from gemmbench.ladder import BASELINE, conversion
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import CHAIN, GRAPH, SCOPES, Check, Elements, Launch, Row, make_title
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean, list_values
from gemmbench.report import notes
from gemmbench.report.figures import figure_columns
from gemmbench.report.notes import STYLES, WORDS, shape
from gemmbench.report.table import (
    NOTHING,
    Cell,
    Columns,
    Note,
    Sheet,
    drop_empty,
    format_known,
    heading,
    table,
)
from gemmbench.stats import claims, rates
from gemmbench.stats.panels import Curve, Panel, baseline, break_evens, panels, to_curves

_T = TypeVar("_T")


def sweep_sheets(run: Run, axis: str, scope: str = "kernel", order: Sequence[str] = ()) -> list[Sheet]:
    """The tables by device and data type: rates, ratios of ``--versus``, GFLOP/J."""
    tables: tuple[Callable[[Run, Panel, str], Sheet | None], ...] = (
        _panel_sheet,
        _versus_sheet,
        energy_sheet,
    )
    shown = (_shown(run, panel, scope) for panel in panels(run, axis, order))
    return [s for panel in shown for table in tables if (s := table(run, panel, scope))]


def _shown(run: Run, panel: Panel, scope: str) -> Panel:
    """The kernels that can run or were named, fastest first unless the ladder ran."""
    able = [series for series in panel.series if notes.is_shown(run, series.rows.values())]
    if all(series.is_host for series in able):
        able = list(panel.series)
    if not notes.is_ladder(run):
        able.sort(key=lambda series: -_fastest(series, scope))
    return replace(panel, series=tuple(able))


def _fastest(series: Curve, scope: str) -> float:
    return rates.best_of(rates.median_rate(row, scope) for row in series.rows.values()) or 0.0


def label(title: str, on_host: bool) -> str:
    """The name of a row of a table."""
    return f"{clean(title)} (host)" if on_host else clean(title)


def _by_size(
    panel: Panel, cell: Callable[[Row | None], Cell | str], more: Columns[Curve], **about: Any
) -> Sheet:
    """A table with a line for each curve and a column for each size."""

    def at(size: int) -> Callable[[Curve], Cell | str]:
        return lambda series: cell(series.rows.get(size))

    def name(series: Curve) -> str:
        return label(series.label, series.is_host and panel.device != HOST)

    axis = "" if panel.axis == "m" else panel.axis
    return table(panel.series, {axis: name}, {str(size): at(size) for size in panel.sizes}, more, **about)


SCOPE_WORDS = {"kernel": "in the kernel alone", "device": "on the device", "host": "with transfers"}


def _about(panel: Panel) -> str:
    """A caption: ``float GEMM, m = n = k``, or ``float GEMM, m = n = 1024, NT``."""
    problem = next((row.problem for row in panel.rows if row.problem), None)
    if panel.axis == "m" or problem is None:
        return f"{panel.dtype} GEMM, {panel.shape}"
    m, n = problem.m, problem.n
    lengths = f"m = n = {m}" if m == n else f"m = {m}, n = {n}"
    return f"{panel.dtype} GEMM, {lengths}{problem.form}"


def _panel_sheet(run: Run, panel: Panel, scope: str) -> Sheet:
    """The table of a panel: rates by kernel and size."""
    rows = panel.rows
    best = fastest_rows(run, panel.device, rows, scope)
    divisor, unit = rates.table_unit(panel.dtype, (rates.median_rate(row, scope) for row in rows))

    def cell(row: Row | None) -> Cell:
        return notes.rate_cell(run, row, scope, divisor, row in best)

    def of_peak(series: Curve) -> str | None:
        return peak_cell(run, tuple(series.rows.values()), scope)

    has_peak = any(rates.peak_fraction(run, row, scope) for row in rows)

    def where(row: Row) -> str:
        return str(getattr(row.problem, panel.axis))

    return _by_size(
        panel,
        cell,
        {"of peak": of_peak} if has_peak else {},
        heading=heading(run, panel.device, panel.dtype),
        caption=f"{_about(panel)}, {unit} {SCOPE_WORDS[scope]}",
        notes=(
            *_conclusion(run, panel, scope),
            *notes.remarks(run, panel.device, rows, where, "size", scope),
            *([] if any_joules(rows) else energy_notes(run, rows)),
        ),
    )


def fastest_rows(run: Run, device: int, rows: Iterable[Row], scope: str) -> list[Row]:
    """The row of each problem that is surely the fastest in a scope."""
    known = ((row, each) for row in rows if (each := claims.claim_if_compared(run, device, row, scope)))
    by_problem = by_key((row.problem, (number, row, each)) for number, (row, each) in enumerate(known))
    return [
        next(row for number, row, _ in same if number == best)
        for same in by_problem.values()
        if (best := claims.fastest({number: each for number, _, each in same})) is not None
    ]


def peak_cell(run: Run, rows: Sequence[Row], scope: str) -> str | None:
    """The largest share of the measured peak that rows reach, marked if uncertain."""
    shares = [(share, row) for row in rows if (share := rates.peak_fraction(run, row, scope))]
    if not shares:
        return None
    share, row = max(shares, key=lambda pair: pair[0])
    return f"{notes.TILDE if is_share_uncertain(run, row, scope) else ''}{units.share(share)}"


def is_share_uncertain(run: Run, row: Row, scope: str) -> bool:
    """Whether a row's rate in the scope is uncertain, or its peak."""
    top = rates.peak_of_row(run, row)
    has_doubt = top is not None and rates.is_uncertain(top.run, top.row)
    return has_doubt or rates.is_uncertain(run, row, rates.shown_samples(row, scope))


def _versus_sheet(_: Run, panel: Panel, scope: str) -> Sheet | None:
    shown = tuple(s for s in panel.series if any(rates.versus(row, scope) for row in s.rows.values()))
    caption = f"Times the rate of {partner_name(panel.rows)}, {SCOPE_WORDS[scope]}, batches interleaved"
    shown_panel = replace(panel, series=shown)
    return _by_size(shown_panel, partial(versus_cell, scope=scope), {}, caption=caption) if shown else None


@dataclass(frozen=True)
class _Point:
    """A rate in a sweep, with its series and size."""

    size: int
    series: Curve
    rate: claims.Claim


def _conclusion(run: Run, panel: Panel, scope: str, where: str = "") -> list[Note]:
    """What is fastest, and from which size kernels with transfers beat the host's BLAS."""
    points = [
        _Point(size, series, known)
        for size in panel.sizes
        for series in panel.series
        if (known := claims.claim_if_compared(run, panel.device, series.rows.get(size), scope))
    ]
    texts: list[str] = []
    fastest: Curve | None = None
    if len({point.series for point in points}) > 1:
        by_size = by_key((point.size, point) for point in points)
        best = {size: claims.fastest(dict(enumerate(p.rate for p in same))) for size, same in by_size.items()}
        winners = {size: None if at is None else by_size[size][at] for size, at in best.items()}
        fastest = _fastest_series(points)
        kernels = [point for point in points if point.series.is_kernel]
        if change := _change(winners):
            before, after = change
            names = clean(before.series.label), clean(after.series.label)
            until = f"{panel.axis} = {before.size}"
            texts.append(f"Fastest measured: {names[0]} up to {until}, {names[1]} from {after.size}.")
        elif fastest:
            texts.append(f"Fastest measured{where}: {_figure(panel, fastest, points)}.")
        else:
            texts.append(_say_undecided(points, where))
        if kernels and all(winner and not winner.series.is_kernel for winner in winners.values()):
            fastest = _fastest_series(kernels)
            texts += [f"Fastest kernel: {_figure(panel, fastest, points)}."] if fastest else []
    texts += _transfers(run, panel, fastest)
    return [Note("", text, "bold") for text in texts]


def _fastest_series(points: Sequence[_Point]) -> Curve | None:
    """The series with a rate that is surely above all others."""
    by_series = by_key((point.series, point.rate) for point in points)
    for candidate, own in by_series.items():
        others = [point.rate for point in points if point.series is not candidate]
        if any(rate.is_above_all(others) for rate in own):
            return candidate
    return None


def _change(winners: Mapping[int, _Point | None]) -> tuple[_Point, _Point] | None:
    """The last size of one winner and the first of another, if winners change once."""
    known = [winner for winner in winners.values() if winner]
    turns = [pair for pair in pairwise(known) if pair[0].series is not pair[1].series]
    sizes = list(winners)
    if len(turns) != 1:
        return None
    ((before, after),) = turns
    outside = [*sizes[: sizes.index(before.size)], *sizes[sizes.index(after.size) :]]
    return (before, after) if all(winners[size] for size in outside) else None


_FEW = 3  # names in a sentence


def _say_undecided(points: Sequence[_Point], where: str) -> str:
    """A sentence that names who may be the fastest, and why that is open."""
    best = {number: point.rate for number, point in enumerate(points)}
    left = claims.contenders(best)
    names = list(dict.fromkeys(clean(points[number].series.label) for number in left))
    if len(names) == 1:
        return f"{names[0]} may be the fastest{where}, but its rate is uncertain."
    few = any(math.isinf(best[number].high) for number in left)
    why = "too few samples, raise --budget" if few else "cannot tell at this noise"
    if len(names) > _FEW:
        return f"{names[0]}, {names[1]} or {len(names) - 2} others may be the fastest{where}: {why}."
    return f"{', '.join(names[:-1])} or {names[-1]} is the fastest{where}: {why}."


def _figure(panel: Panel, fastest: Curve, points: Sequence[_Point]) -> str:
    """``cpu-packed, 226 GFLOPS at 1024, 1.12 x numpy``, if they surely differ."""
    divisor, unit = rates.table_unit(panel.dtype, (point.rate.median for point in points))
    own = (point for point in points if point.series is fastest and point.rate.is_certain)
    best = max(own, key=lambda point: point.rate.median)
    text = f"{clean(best.series.label)}, {units.number(best.rate.median / divisor)} {unit}"
    text += f" at {best.size}" if len(panel.sizes) > 1 else ""
    others = [point for point in points if point.size == best.size and point.series is not best.series]
    rival = max(others, key=lambda point: (point.series.is_host, point.rate.median), default=None)
    if rival is None or not rival.rate.is_certain:
        return text
    if not (best.rate.is_above_all([rival.rate]) or rival.rate.is_above_all([best.rate])):
        return text
    ratio = best.rate.median / rival.rate.median
    return f"{text}, {units.number(ratio)} x {clean(rival.series.label)}"


def _transfers(run: Run, panel: Panel, fastest: Curve | None) -> list[str]:
    """From which size a kernel with transfers beats the host's BLAS."""
    host, evens = baseline(panel), break_evens(run, panel)
    if host is None or not evens:
        return []
    rival, axis = clean(host.label), panel.axis
    even = next((each for each in evens if each.kernel is fastest and each.size is not None), evens[0])
    if even.size is None:
        if not all(each.loses for each in evens):
            return []
        closest = max(evens, key=lambda each: each.lead)
        name = clean(closest.kernel.label)
        at = f" at {closest.sizes[-1]}" if len(panel.sizes) > 1 else ""
        return [f"With transfers, no kernel beats {rival}{at}: {name} reaches {units.share(closest.lead)}."]
    wins = f"With transfers, {clean(even.kernel.label)} beats {rival}"
    if not even.from_start:
        return [f"{wins} from {axis} = {round(even.size)}."]
    every = f" at every {axis}" if len(panel.sizes) > 1 else ""
    every += " that both ran" if len(even.sizes) < len(panel.sizes) else ""
    return [f"{wins}{every}."]


def row_sheets(run: Run, order: Sequence[str] = (), intervals: bool = True) -> list[Sheet]:
    """A line for each GEMM row, in tables by device and data type."""
    grouped = by_device([row for row in run.rows if row.kind == "gemm"], attrgetter("dtype"), order)
    return [_row_sheet(run, device, name, own_rows, intervals) for device, name, own_rows in grouped]


def by_device(
    rows: Sequence[Row], part: Callable[[Row], _T], order: Sequence[str] = ()
) -> Iterator[tuple[int, _T, list[Row]]]:
    """Yield device, part and rows for each device and each value of `part`; the host's rows last."""
    rank = {name: position for position, name in enumerate(order)}
    parts = dict.fromkeys(map(part, rows))
    for device in sorted({row.device for row in rows if row.device != HOST}) or [HOST]:
        for each in parts:
            own_rows = [row for row in rows if part(row) == each and row.device in (device, HOST)]
            if own_rows:
                own_rows.sort(key=lambda row: (row.device == HOST, rank.get(row.variant, len(rank))))
                yield device, each, own_rows


def _row_sheet(run: Run, device: int, dtype: str, rows: Sequence[Row], intervals: bool) -> Sheet:
    """A table with all rows of a device and type, and their rates in every scope."""
    compared = rates.view_scope(run)

    def rate_of(row: Row, scope: str) -> rates.Rate | None:
        """In the device scope, a chain of launches counts."""
        return rates.rate(row, rates.shown_samples(row, scope)) if scope in row.samples else None

    best = {s: fastest_rows(run, device, [row for row in rows if rate_of(row, s)], s) for s in SCOPES}

    def rate_cell(row: Row, scope: str) -> Cell:
        rate = rate_of(row, scope)
        if row.status != "ok" and scope == SCOPES[0]:
            return Cell(WORDS[row.status], style=STYLES[row.status])
        if rate is None:
            return Cell("-", style="dim")
        figure = notes.mark_uncertain(run, row, units.gflops(rate.median), scope)
        ends = f" {_ends(run, row, scope, rate, units.GIGA)}" if intervals else ""
        return Cell(f"{figure}{ends}", row in best[scope])

    def of_peak(row: Row) -> str | None:
        mark = notes.TILDE if is_share_uncertain(run, row, compared) else ""
        return format_known(rates.peak_fraction(run, row), lambda share: f"{mark}{units.percent(share)}")

    subjects: Columns[Row] = {
        "": lambda row: clean(row.title),
        "size": lambda row: f"{clean(row.label or row.phase)} {shape(row)}".strip(),
    }
    facts: Columns[Row] = {
        "of peak": of_peak,
        **figure_columns("helpers_share"),
        **versus_columns(rows, "kernel", interval=True),
        **drop_empty(rows, _ERRORS),
        **energy_columns(rows),
    }
    has_blas = any(BASELINE in (row.variant, rates.partner(row)) for row in rows) and device != HOST
    with_intervals = " with 95 % intervals" if intervals else ""
    return table(
        rows,
        subjects,
        {scope: partial(rate_cell, scope=scope) for scope in SCOPES},
        facts,
        heading=heading(run, device, dtype),
        caption=f"{dtype} {rates.unit(dtype)} by scope{with_intervals}; * fastest of its problem",
        notes=(
            *_parameters(rows),
            *([Note(BASELINE, clean(run.header.host.blas), "dim")] if has_blas else []),
            *notes.gaps(rows, "device"),
            *notes.failures_by_reason(rows, shape),
            *notes.doubts(rows, shape),
            *notes.uncertain(run, rows, shape, compared),
            *notes.faster_hosts(run, rows, shape),
            *energy_notes(run, rows),
            *notes.row_notes(rows, shape),
            *notes.warnings(run, device),
            *net_notes(run, device, dtype),
        ),
    )


_ERRORS: Columns[Row] = {
    **figure_columns("residual", "residual_ulp"),
    "operands": lambda row: conversion(row.variant, row.dtype),
}


def error_sheets(run: Run, order: Sequence[str] = ()) -> Iterator[Sheet]:
    """The row of each kernel with the largest error over its bound, by device and type."""
    checked = [row for row in run.rows if row.kind == "gemm" and rates.residual(row) is not None]
    for device, dtype, rows in by_device(checked, attrgetter("dtype"), order):
        kernels = by_key((row.title, row) for row in rows).values()
        worst = [max(alike, key=lambda row: rates.residual(row) or 0.0) for alike in kernels]
        yield table(
            worst,
            {"": lambda row: clean(row.title), "size": shape},
            drop_empty(rows, _ERRORS),
            heading=heading(run, device),
            caption=f"Largest error in {dtype}: residual over its bound, and in units of the last place of C",
        )


def net_notes(run: Run, device: int, dtype: str) -> list[Note]:
    """The share of the convolutions in AlexNet's products, if all were measured."""
    return [Note("", net.sentence, "bold") for net in nets(run) if (net.device, net.dtype) == (device, dtype)]


def partner_name(rows: Iterable[Row]) -> str:
    """The kernel of ``--versus``; "" without one."""
    return next((clean(name) for row in rows if (name := rates.partner(row))), "")


def versus_columns(rows: Iterable[Row], scope: str, interval: bool = False) -> Columns[Row | None]:
    """The column of ratios to the kernel of ``--versus``: ``x tiled``."""
    name = partner_name(rows)
    return {f"x {name}": partial(versus_cell, scope=scope, interval=interval)} if name else {}


def versus_cell(row: Row | None, scope: str, interval: bool = False) -> str:
    """``1.07``, or ``1.07 [1.05, 1.09]``: a row's rate over the other kernel's."""
    against = rates.versus(row, scope) if row else None
    if against is None:
        return "-"
    figure, low, high = map(units.number, (against.median, against.low, against.high))
    if interval:
        return f"{figure} [{low}, {high}]"
    unsure = against.high - against.low > 2 * rates.UNCERTAIN * against.median
    return f"{notes.TILDE if unsure else ''}{figure}"


def _parameters(rows: Sequence[Row]) -> list[Note]:
    """The parameters of each variant, in one note if all rows agree."""
    texts = (list_values({**row.kernel_parameters, **row.choice}) for row in rows)
    groups = by_key(((row.variant, text), row) for row, text in zip(rows, texts, strict=True) if text)
    several = {variant for variant, _ in groups if sum(variant == other for other, _ in groups) > 1}
    return [
        Note(notes.places(alike, shape) if variant in several else clean(variant), text, "dim")
        for (variant, text), alike in groups.items()
    ]


def _ends(run: Run, row: Row, scope: str, rate: rates.Rate, divisor: float) -> str:
    wide = rates.widen_interval(run, row, rate, rates.shown_samples(row, scope))
    return f"[{units.number(wide.low / divisor)}, {units.number(wide.high / divisor)}]"


def problem_sheets(run: Run, scope: str, order: Sequence[str] = ()) -> list[Sheet]:
    """The tables of ``gemm``: a line for each kernel, with rates in two scopes."""
    gemms = [row for row in run.rows if row.kind == "gemm" and row.problem]
    grouped = by_device(gemms, lambda row: (row.dtype, row.problem), order)
    return [_problem_sheet(run, device, rows, scope) for device, _, rows in grouped]


def _problem_sheet(run: Run, device: int, rows: Sequence[Row], scope: str) -> Sheet:
    problem, dtype = rows[0].problem, rows[0].dtype
    assert problem is not None
    able = [row for row in rows if notes.is_shown(run, [row])]
    able = able if any(row.device != HOST for row in able) else list(rows)
    if not notes.is_ladder(run):
        able.sort(key=lambda row: -(rates.median_rate(row, scope) or 0.0))
    scopes = tuple(dict.fromkeys((scope, "host")))
    divisor, unit = rates.table_unit(dtype, (rates.median_rate(row, s) for row in able for s in scopes))
    best = {s: fastest_rows(run, device, able, s) for s in scopes}
    where = f" {SCOPE_WORDS[scope]}" if len(scopes) > 1 else ""

    def rate_cell(row: Row, s: str) -> Cell:
        cell, rate = notes.rate_cell(run, row, s, divisor, row in best[s]), rates.shown_rate(row, s)
        return replace(cell, text=f"{cell.text} {_ends(run, row, s, rate, divisor)}") if rate else cell

    has_peak = any(rates.peak_fraction(run, row, scope) for row in able)
    return table(
        able,
        {"": lambda row: label(row.title, row.device == HOST != device)},
        {SCOPE_WORDS[s]: partial(rate_cell, s=s) for s in scopes},
        {"of peak": lambda row: peak_cell(run, [row], scope)} if has_peak else {},
        versus_columns(able, scope),
        energy_columns(able),
        heading=heading(run, device, dtype),
        caption=f"{dtype} GEMM, {problem.title}, {unit}",
        notes=(
            *_conclusion(run, Panel(device, dtype, "m", to_curves(able, lambda _: problem.m)), scope, where),
            *notes.remarks(run, device, able, shape, "problem", *scopes),
            *notes.faster_hosts(run, able, shape, "problem"),
            *([] if any_joules(able) else energy_notes(run, able)),
        ),
    )


def pages(run: Run) -> list[Sheet]:
    """Detailed tables of each row; of a parameter grid, only of the fastest."""
    scope = rates.view_scope(run)
    gemms = [row for row in run.rows if row.kind == "gemm" and row.problem]

    def subject(row: Row) -> tuple[object, ...]:
        kernel = make_title(row.variant, row.parameters) if row.grid else id(row)
        return row.device, row.dtype, row.problem, kernel

    grids = by_key((subject(row), row) for row in gemms).values()
    best = (max(alike, key=lambda row: rates.median_rate(row, scope) or 0) for alike in grids)
    return [sheet for row in best for sheet in _row_page(row, scope)]


def _row_page(row: Row, scope: str) -> Iterator[Sheet]:
    """Everything about one row: scopes, parts, launches, matrices."""
    rate = rates.median_rate(row, scope)
    shown = (
        f"{units.rate_text(rate or 0, rates.is_integer(row.dtype))} ({rates.shown_scope(row, scope)} scope)"
    )
    yield _scopes_sheet(
        row, f"{clean(row.title)} {row.dtype} {shape(row)}: {shown if rate else WORDS[row.status]}"
    )
    for what, seconds in (("host scope", row.parts), ("map cycle", row.cycle)):
        if split := rates.split_parts(seconds):
            yield _parts_sheet(what, split)
    if row.launches:
        yield _launches_sheet(row)
    for name, elements in (row.matrices or {}).items():
        yield _matrix(name, elements)


def _matrix(name: str, elements: Elements) -> Sheet:
    def column(at: int) -> Callable[[int], str]:
        return lambda index: _element(elements[index][at])

    columns = {str(at): column(at) for at in range(len(elements[0]))}
    first, last = dict([*columns.items()][:4]), dict([*columns.items()][4:])
    return table(range(len(elements)), {clean(name): str}, first, last)


def _element(value: float) -> str:
    return f"{value:.0f}" if value.is_integer() and abs(value) < _LONGEST else f"{value:.6g}"


_LONGEST = 1e9  # a whole number below it is shown whole
_CLOCKS = {
    "kernel": "kernel",
    "device": "device",
    CHAIN: "device, with gaps",
    GRAPH: "device, as a graph",
    "host": "host",
}


def _scopes_sheet(row: Row, title: str) -> Sheet:
    """The times of a row by scope, and how it was verified."""
    timed = {name: times for name in _CLOCKS if (times := rates.summary(row, name))}
    checks = {"verified": row.check, "and after": row.check_after}
    facts = [_verified(name, check) for name, check in checks.items() if check]
    facts += [Note("memory", clean(row.memory))] if row.memory else []
    facts += [Note("build", units.seconds(row.build_s))] if row.build_s is not None else []
    columns: Columns[str] = {
        "median": lambda name: units.seconds(timed[name].median),
        "95 % interval": lambda name: (
            f"{units.seconds(timed[name].low)} to {units.seconds(timed[name].high)}"
        ),
        "best": lambda name: units.seconds(timed[name].minimum),
        "n": lambda name: str(timed[name].n),
        "stop": lambda name: clean(row.samples[name].stop),
    }
    return table(timed, {"scope": _CLOCKS.__getitem__}, columns, heading=(title,), notes=facts, left=["stop"])


def _parts_sheet(title: str, split: rates.Split) -> Sheet:
    passes = "passes" if "kernel" in split.seconds else "passes and kernel"
    lines = [
        (passes if name == "passes" else name, s, split.share(name)) for name, s in split.seconds.items()
    ]
    lines += [("whole", split.whole_s, 1.0)] if split.whole_s is not None else []
    columns: Columns[tuple[str, float, float]] = {
        "time": lambda line: units.seconds(line[1]),
        "share": lambda line: units.percent(line[2]),
    }
    return table(lines, {f"{title} by part": lambda line: line[0]}, columns)


def _launches_sheet(row: Row) -> Sheet:
    timed = [launch.timed_s for launch in row.launches if launch.timed_s is not None]
    whole = sum(timed) if rates.helpers_share(row) is not None else 0.0
    stamps: Columns[Launch] = {
        "queued": lambda launch: units.seconds(launch.queued_s),
        "submitted": lambda launch: units.seconds(launch.submitted_s),
        "running": lambda launch: units.seconds(launch.running_s),
    }
    batches: Columns[Launch] = {
        "in batches": lambda launch: units.seconds(launch.timed_s or 0.0),
        "share": lambda launch: units.percent((launch.timed_s or 0.0) / whole),
    }
    return table(
        row.launches, {"launch": lambda launch: clean(launch.name)}, stamps, batches if whole else {}
    )


def _verified(title: str, check: Check) -> Note:
    figures = ", ".join(f"{clean(name)} {units.number(value)}" for name, value in check.figures.items())
    reasons = "; ".join(map(clean, check.reasons))
    verdict = check.verdict if check.verdict != "none" else "not done"
    style = {"ok": "green", "wrong": "bold red", "suspect": "yellow"}.get(check.verdict, "dim")
    return Note(title, ": ".join(filter(None, (verdict, figures, reasons))), style)


# --- Energy in tables and below them: joules, GFLOP/J and watts, what drew them, or why they are not known.


NOT_MEASURED = "not measured"  # in place of joules; a note says why


def any_joules(rows: Iterable[Row]) -> bool:
    """Whether any row has its joules."""
    return any(row.energy.joules is not None for row in rows)


def energy_columns(rows: Iterable[Row]) -> Columns[Row | None]:
    """The columns of joules and GFLOP/J, if a row has them."""
    if not any_joules(rows):
        return {}

    def efficiency(row: Row | None) -> Cell | str:
        return _if_known(row, rates.gflop_per_joule(row) if row else None, units.number)

    return {"energy": joules_cell, "GFLOP/J": efficiency}


def joules_cell(row: Row | None) -> Cell | str:
    """A row's joules; "not measured" if they were requested."""
    if row is not None and row.energy.joules is None and rates.asked_for_energy(row):
        return NOT_MEASURED
    return _if_known(row, row.energy.joules if row else None, units.joules)


def _if_known(row: Row | None, value: float | None, text: Callable[[float], str]) -> Cell | str:
    return text(value) if value is not None else NOTHING if row and row.status == "ok" else ""


def energy_sheet(run: Run, panel: Panel, _: str) -> Sheet | None:
    """GFLOP/J by size, with joules and power at the largest."""
    if not any_joules(panel.rows):
        return None

    def cell(row: Row | None) -> str:
        value = rates.gflop_per_joule(row) if row else None
        return "-" if value is None else units.number(value)

    def largest(series: Curve) -> Row:
        rows = reversed(series.rows.values())
        return min(rows, key=lambda row: (row.energy.joules is None, not rates.asked_for_energy(row)))

    columns: Columns[Curve] = {
        "energy": lambda series: joules_cell(largest(series)),
        "power": lambda series: format_known(rates.mean_watts(largest(series)), units.watts),
        "idle": lambda series: format_known(largest(series).energy.idle_w, units.watts),
    }
    caption = f"{panel.dtype} GFLOP/J; energy and power at the largest size, idle draw before it"
    return _by_size(panel, cell, columns, caption=caption)


def energy_notes(run: Run, rows: Iterable[Row]) -> list[Note]:
    """What the energy was read from, or why it is missing."""
    if not run.header.policy.energy:
        return []
    ran = ((_source(row), clean(row.variant)) for row in rows if row.samples and row.status == "ok")
    groups = {source: ", ".join(dict.fromkeys(names)) for source, names in by_key(ran).items()}
    alone = len(groups) == 1
    return [
        Note("energy", source if alone else f"{names}: {source}", "dim") for source, names in groups.items()
    ]


def _source(row: Row) -> str:
    energy = row.energy
    if energy.joules is None:
        return clean(energy.why)
    counter = f" ({energy.counter})" if energy.counter else ""
    return clean(f"{energy.scope}{counter}, idle draw included")
