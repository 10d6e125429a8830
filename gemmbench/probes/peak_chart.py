"""Probes as charts: the peak by type and width; memory, transfers and latencies over size."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import partial

from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.charts.marks import (
    LINES_HEIGHT,
    Bar,
    BarPart,
    Line,
    Look,
    Point,
    bars_height,
    draw_bars,
    draw_lines,
    name_ends,
    size_axis,
)
from gemmbench.model import units
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.probes.peak_table import PLAIN, is_sized
from gemmbench.report.progress import sample
from gemmbench.stats import rates as derive
from gemmbench.stats.intervals import Summary

_TRANSFERS = "Transfers"


def peak(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """Panes of each run and device: bars of verified peaks by width, and by instruction; zeros omitted."""
    drawn = []
    for subject in pane.subjects(runs, lambda row: row.kind == "peak", typed=False):
        rated = [
            (row, rate.best)
            for row in sorted(subject.rows, key=lambda row: derive.is_integer(row.dtype))
            if row.check.verdict == "ok" and row.parameters.get("operands") != "zeros"
            if (rate := derive.rate(row, "kernel"))
        ]
        for is_matrix, title in ((False, "Measured peak"), (True, "Matrix instruction peak")):
            if shown := [(row, rate) for row, rate in rated if ("width" not in row.parameters) == is_matrix]:
                paint = partial(_peaks, run=subject.run, rated=shown, title=f"{title}, {subject.where}")
                drawn.append(pane.Pane(bars_height(_peak_bars(subject.run, shown)[0]), paint))
    return drawn


def _peaks(axes: Axes, run: Run, rated: Sequence[tuple[Row, float]], title: str) -> None:
    entries, letter = _peak_bars(run, rated)
    integers = any(derive.is_integer(row.dtype) for row, _ in rated)
    draw_bars(axes, entries, f"{letter}FLOPS" + (f", {letter}IOPS for integers" if integers else ""))
    pane.titles(axes, title)


def _peak_bars(run: Run, rated: Sequence[tuple[Row, float]]) -> tuple[list[Bar], str]:
    """A bar for each row, and the unit's letter. The best of each type and probe is bold and darker."""
    divisor, letter = units.scale(max(rate for _, rate in rated))
    entries = []
    for same in by_key(((row.dtype, row.variant), (row, rate)) for row, rate in rated).values():
        best = max(rate for _, rate in same)
        for row, rate in sorted(same, key=lambda pair: int(pair[0].parameters.get("width", 0))):
            colour = pane.COLOURS[0] if rate == best else pane.COLOURS[5]
            part = BarPart(rate / divisor, colour, _peak_name(row))
            text = units.number(rate / divisor)
            entries.append(Bar((part,), text, _peak_name(row), rate == best, sample(run, row)))
    return entries, letter


def _peak_name(row: Row) -> str:
    """The name of a bar: ``float x 4``, ``half + float, wgmma m64n256k16``. A width of 1 is omitted."""
    values = {name: clean(str(value)) for name, value in row.parameters.items() if name != "operands"}
    name = row.dtype + "".join(f" + {values.pop(each)}" for each in ("accumulator",) if each in values)
    if (width := values.pop("width", "1")) != "1":
        name += f" x {width}"
    rest = " ".join(filter(None, ("" if row.variant == PLAIN else clean(row.variant), *values.values())))
    return f"{name}, {rest}" if rest else name


def memory(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """Panes of bandwidth (GB/s) and latency (ns) by working set, transfers (GB/s) by size, launches."""
    over_size = (
        ("Bandwidth", "working-set", "GB/s", _gbps),
        ("Latency", "pointer-chase", "ns for one load", _nanoseconds),
        (_TRANSFERS, "transfer", "GB/s between host and device", _gbps),
    )
    drawn = []
    for title, name, unit, figure in over_size:

        def wanted(row: Row, name: str = name) -> bool:
            return is_sized(row) and name in (row.variant, row.kind)

        for subject in pane.subjects(runs, wanted, typed=False):
            if any(figure(row) for row in subject.rows):
                paint = partial(_over_bytes, subject=subject, title=title, unit=unit, figure=figure)
                drawn.append(pane.Pane(LINES_HEIGHT, paint))
    for subject in pane.subjects(runs, lambda row: row.kind == "latency" and not is_sized(row), typed=False):
        entries = []
        for row in subject.rows:
            if times := _time(row):
                part = BarPart(times.median / 1e-6, pane.COLOURS[0], row.variant)
                text, name = units.seconds(times.median), clean(row.variant)
                entries.append(Bar((part,), text, name, said=sample(subject.run, row)))
        if entries:
            painted = partial(_launches, entries=entries, where=subject.where)
            drawn.append(pane.Pane(bars_height(entries), painted))
    return drawn


def _over_bytes(
    axes: Axes, subject: pane.PaneSubject, title: str, unit: str, figure: Callable[[Row], float | None]
) -> None:
    by_probe = by_key((row.variant, row) for row in sorted(subject.rows, key=_bytes))
    measured = {name: rows for name, rows in by_probe.items() if any(map(figure, rows))}
    at = size_axis(
        axes,
        sorted({_bytes(row) for rows in measured.values() for row in rows}),
        lambda size: pane.short(units.size(size)),
        0.13,
    )
    drawn = []
    for number, (name, rows) in enumerate(measured.items()):
        points = [
            Point(at[_bytes(row)], figure(row) or math.nan, said=sample(subject.run, row)) for row in rows
        ]
        look = Look(pane.COLOURS[number % len(pane.COLOURS)], marker="o")
        drawn.append(Line(name, points, look, clean(name)))
    draw_lines(axes, drawn)
    axes.set_yscale("log")
    pane.log_ticks(axes.yaxis, units.number)
    cache = subject.run.header.devices[subject.device].last_level_cache_bytes
    low, high = axes.get_xlim()
    if low < cache < high and title != _TRANSFERS:
        axes.axvline(cache, color=pane.GREY, linewidth=0.9, linestyle=":", label="cache")
        text = f"{pane.short(units.size(cache))} cache"
        pane.say(axes, text, (cache, 1), (0, 3), pane.BELOW, ha="center", fontsize=8, color=pane.GREY)
    axes.set_xlabel("transfer" if title == _TRANSFERS else "working set")
    axes.set_ylabel(unit)
    pane.titles(axes, f"{title}, {subject.where}", " " if low < cache < high else "")
    if len(drawn) > 1:
        name_ends(axes, drawn)


def _bytes(row: Row) -> int:
    return int(row.parameters["bytes"])


def _gbps(row: Row) -> float | None:
    rate = derive.byte_rate(row) if row.check.verdict != "suspect" else None
    return rate.best / units.GIGA if rate else None


def _nanoseconds(row: Row) -> float | None:
    times = _time(row)
    return times.median / 1e-9 if times and row.check.verdict != "suspect" else None


def _time(row: Row) -> Summary | None:
    scope = derive.finest_scope(row)
    return derive.summary(row, scope) if scope and row.status == "ok" else None


def _launches(axes: Axes, entries: Sequence[Bar], where: str) -> None:
    draw_bars(axes, entries, "us for one launch")
    pane.titles(axes, f"An empty kernel, {where}")
