"""Probes as charts: the peak by type and width; memory, transfers and latencies over size."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from matplotlib.axes import Axes

from gemmbench.charts import marks, pane
from gemmbench.model import units
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.probes.peak_table import FLOPS, is_sized
from gemmbench.report.progress import sample
from gemmbench.stats import rates
from gemmbench.stats.intervals import Summary

_TRANSFERS = "Transfers"


def peak_panes(runs: Sequence[Run], _: pane.Families) -> Iterator[pane.Pane]:
    """Panes of each run and device: bars of verified peaks by width, and by instruction; zeros omitted."""
    for subject in pane.subjects(runs, lambda row: row.kind == "peak", typed=False):
        rated = [
            (row, rate.best)
            for row in sorted(subject.rows, key=lambda row: rates.is_integer(row.dtype))
            if row.check.verdict == "ok" and row.parameters.get("operands") != "zeros"
            if (rate := rates.rate(row, "kernel"))
        ]
        for is_matrix, title in ((False, "Measured peak"), (True, "Matrix instruction peak")):
            shown = [(row, rate) for row, rate in rated if ("width" not in row.parameters) == is_matrix]
            if shown:
                divisor, letter = units.scale(max(rate for _, rate in shown))
                integers = any(rates.is_integer(row.dtype) for row, _ in shown)
                unit = f"{letter}FLOPS" + (f", {letter}IOPS for integers" if integers else "")
                bars = _peak_bars(subject.run, shown, divisor)
                yield marks.bar_pane(f"{title}, {subject.where}", "", bars, unit)


def _peak_bars(run: Run, rated: Sequence[tuple[Row, float]], divisor: float) -> list[marks.Bar]:
    """A bar for each row. The best of each type and probe is bold and darker."""
    bars = []
    for same in by_key(((row.dtype, row.variant), (row, rate)) for row, rate in rated).values():
        best = max(rate for _, rate in same)
        for row, rate in sorted(same, key=lambda pair: int(pair[0].parameters.get("width", 0))):
            colour, name = pane.COLOURS[0 if rate == best else 5], _peak_name(row)
            text, said = units.number(rate / divisor), sample(run, row)
            bars.append(marks.bar(rate / divisor, colour, name, text, name, rate == best, said))
    return bars


def _peak_name(row: Row) -> str:
    """The name of a bar: ``float x 4``, ``half + float, wgmma m64n256k16``. A width of 1 is omitted."""
    values = {name: clean(str(value)) for name, value in row.parameters.items() if name != "operands"}
    name = row.dtype + "".join(f" + {values.pop(each)}" for each in ("accumulator",) if each in values)
    if (width := values.pop("width", "1")) != "1":
        name += f" x {width}"
    rest = " ".join(filter(None, ("" if row.variant == FLOPS else clean(row.variant), *values.values())))
    return f"{name}, {rest}" if rest else name


def memory(runs: Sequence[Run], _: pane.Families) -> Iterator[pane.Pane]:
    """Panes of bandwidth (GB/s) and latency (ns) by working set, transfers (GB/s) by size, launches."""
    over_size = (
        ("Bandwidth", "working-set", "GB/s", _gbps),
        ("Latency", "pointer-chase", "ns for one load", _nanoseconds),
        (_TRANSFERS, "transfer", "GB/s between host and device", _gbps),
    )
    for title, name, unit, figure in over_size:

        def wanted(row: Row, name: str = name) -> bool:
            return is_sized(row) and name in (row.variant, row.kind)

        for subject in pane.subjects(runs, wanted, typed=False):
            if any(figure(row) for row in subject.rows):
                paint = partial(_over_bytes, subject=subject, title=title, unit=unit, figure=figure)
                yield pane.Pane(marks.LINES_HEIGHT, paint)
    for subject in pane.subjects(runs, lambda row: row.kind == "latency" and not is_sized(row), typed=False):
        bars = []
        for row in subject.rows:
            if times := _time(row):
                length, text, said = (
                    times.median / 1e-6,
                    units.seconds(times.median),
                    sample(subject.run, row),
                )
                name = clean(row.variant)
                bars.append(marks.bar(length, pane.COLOURS[0], row.variant, text, name, said=said))
        if bars:
            yield marks.bar_pane(f"An empty kernel, {subject.where}", "", bars, "us for one launch")


def _over_bytes(
    axes: Axes, subject: pane.PaneSubject, title: str, unit: str, figure: Callable[[Row], float | None]
) -> None:
    """Draw a figure of each probe over its bytes."""
    by_probe = by_key((row.variant, row) for row in sorted(subject.rows, key=_bytes))
    measured = {name: rows for name, rows in by_probe.items() if any(map(figure, rows))}
    at = marks.size_axis(
        axes,
        sorted({_bytes(row) for rows in measured.values() for row in rows}),
        lambda size: pane.short(units.size(size)),
        0.13,
    )
    drawn = []
    for number, (name, rows) in enumerate(measured.items()):
        points = [
            marks.Point(at[_bytes(row)], figure(row) or math.nan, said=sample(subject.run, row))
            for row in rows
        ]
        look = marks.Look(pane.COLOURS[number % len(pane.COLOURS)], marker="o")
        drawn.append(marks.Line(name, points, look, clean(name)))
    marks.draw_lines(axes, drawn)
    axes.set_yscale("log")
    pane.log_ticks(axes.yaxis, units.number)
    cache = subject.run.header.devices[subject.device].last_level_cache_bytes
    low, high = axes.get_xlim()
    if low < cache < high and title != _TRANSFERS:
        axes.axvline(cache, color=pane.GREY, linewidth=0.9, linestyle=":", label="cache")
        text = f"{pane.short(units.size(cache))} cache"
        pane.annotate(axes, text, (cache, 1), (0, 3), pane.BELOW, ha="center", fontsize=8, color=pane.GREY)
    axes.set_xlabel("transfer" if title == _TRANSFERS else "working set")
    axes.set_ylabel(unit)
    pane.titles(axes, f"{title}, {subject.where}", " " if low < cache < high else "")
    if len(drawn) > 1:
        marks.name_ends(axes, drawn)


def _bytes(row: Row) -> int:
    return int(row.parameters["bytes"])


def _gbps(row: Row) -> float | None:
    rate = rates.byte_rate(row) if row.check.verdict != "suspect" else None
    return rate.best / units.GIGA if rate else None


def _nanoseconds(row: Row) -> float | None:
    times = _time(row)
    return times.median / 1e-9 if times and row.check.verdict != "suspect" else None


def _time(row: Row) -> Summary | None:
    scope = rates.finest_scope(row)
    return rates.summary(row, scope) if scope and row.status == "ok" else None
