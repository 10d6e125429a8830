"""Probes as charts: the peak by type, width and instruction; caches and transfers over size; latencies."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.charts.lines import HEIGHT, name_end, size_axis, spread, thinned
from gemmbench.model import units
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, ceil_div, clean
from gemmbench.probes.peak_table import PLAIN, is_sized
from gemmbench.report.progress import sample
from gemmbench.stats import intervals
from gemmbench.stats import rates as derive

_WIDTH_COLOURS = ("#D6E6F2", "#A9CCE3", "#6BA6CD", "#2C7FB8", "#084A77")
_MOST_GROUPS = 4  # of bars in a pane
_BAR = 0.62  # of a line down the page


@dataclass(frozen=True, eq=False)
class Group:
    """One probe with one data type."""

    name: str
    integer: bool
    rows: tuple[Row, ...]

    @property
    def measured(self) -> bool:
        return any(derive.rate(row, "kernel") for row in self.rows)


def peak(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Panes for each run and device with a measured peak row: vector widths, then matrix instructions."""
    drawn = []
    for subject in pane.subjects(runs, lambda row: row.kind == "peak", typed=False):
        groups = _groups(subject.rows)
        about = f", {subject.run.header.devices[subject.device].compute_units} units"
        by_width = [group for group in groups if "width" in group.rows[0].parameters]
        for chunk in _chunks(by_width):
            if any(group.measured for group in chunk):
                painted = partial(_widths, run=subject.run, groups=chunk, title=subject.title, about=about)
                drawn.append(pane.Pane(HEIGHT, painted))
        others = [group for group in groups if group not in by_width]
        if any(group.measured for group in others):
            lines = sum(len(_pairs(group)) + 1 for group in others if group.measured)
            painted = partial(_instructions, run=subject.run, groups=others, title=subject.title, about=about)
            drawn.append(pane.Pane(1.6 + pane.ROW * lines, painted))
    return drawn


def _groups(rows: Sequence[Row]) -> list[Group]:
    """Floating-point types before integers; apart from that as they were measured."""
    ordered = sorted(rows, key=lambda row: derive.is_integer(row.dtype))
    return [
        Group(
            dtype if probe == PLAIN else f"{dtype} {clean(probe)}", derive.is_integer(dtype), tuple(members)
        )
        for (dtype, probe), members in by_key(((row.dtype, row.variant), row) for row in ordered).items()
    ]


def _chunks(groups: Sequence[Group]) -> list[list[Group]]:
    """Groups that fit a pane, integers in panes of their own if not all fit one."""
    if len(groups) <= _MOST_GROUPS:
        return [list(groups)]
    chunks = []
    for integer in (False, True):
        alike = [group for group in groups if group.integer == integer]
        count = ceil_div(len(alike), _MOST_GROUPS)
        chunks += [alike[len(alike) * n // count : len(alike) * (n + 1) // count] for n in range(count)]
    return chunks


def _scale(groups: Sequence[Group]) -> tuple[float, float, str]:
    """The best rate that is believed (or the best, if none is), what to divide by, and the unit's letter."""
    rated = [(row, f.best) for group in groups for row in group.rows if (f := derive.rate(row, "kernel"))]
    sure = [best for row, best in rated if row.check.verdict == "ok"] or [best for _, best in rated]
    return (max(sure), *units.scale(max(sure)))


def _best(group: Group) -> float | None:
    rates = [f.best for r in group.rows if r.check.verdict == "ok" and (f := derive.rate(r, "kernel"))]
    return max(rates, default=None)


# --- bars by vector width ---------------------------------------------------------------------------------


def _widths(axes: Axes, run: Run, groups: Sequence[Group], title: str, about: str) -> None:
    """Bars by width for each type, the best batch; a short line across each is its median."""
    largest, divisor, letter = _scale(groups)
    top = largest / divisor * 1.14  # a suspect bar may leave the picture
    ticks: dict[float, str] = {}
    style: dict[str, Any]
    start = 0.0
    for group in groups:
        group_rows = sorted(group.rows, key=_width)
        for n, row in enumerate(group_rows):
            ticks[start + n] = str(_width(row))
            rate = derive.rate(row, "kernel")
            if rate is not None:
                best = rate.best == _best(group)
                shade = n / max(1, len(group_rows) - 1)
                _bar(axes, start + n, row, rate, shade, best, top, divisor)
                pane.mark(axes, start + n, min(rate.best / divisor, top * 0.955), sample(run, row))
            elif group.measured:
                style = {"rotation": 90, "fontsize": 7.5, "color": pane.GREY}
                pane.say(axes, row.status, (start + n, 0), (0, 4), ha="center", va="bottom", **style)
        middle = start + (len(group_rows) - 1) / 2
        if not group.measured:
            why = f"{group_rows[0].status}: {clean(group_rows[0].reason)}"
            text = "\n".join(textwrap.wrap(why, 20)[:5])
            style = {"ha": "center", "va": "bottom", "fontsize": 8, "color": pane.GREY}
            pane.say(axes, text, (middle, 0.03), where=pane.BELOW, **style)
        name = f"{group.name} ({letter}IOPS)" if group.integer else group.name
        pane.say(axes, name, (middle, 0), (0, -17), pane.BELOW, ha="center", va="top", fontweight="bold")
        start += len(group_rows) + 1
    axes.set_xticks(list(ticks), list(ticks.values()))
    axes.tick_params(length=0)
    axes.grid(False, axis="x")
    axes.set_xlim(-0.8, start - 1.2)
    axes.set_ylim(0, top)
    pane.tick_texts(axes.yaxis, units.number)
    axes.set_ylabel(f"{letter}{'IOPS' if all(group.integer for group in groups) else 'FLOPS'}")
    axes.set_xlabel("vector width", labelpad=20)
    suspect = "; hatched: suspect" if _any_suspect(groups) else ""
    pane.titles(axes, title, f"measured peak{about}; best batch of each width, tick: its median{suspect}")


def _any_suspect(groups: Sequence[Group]) -> bool:
    return any(r.status == "ok" and r.check.verdict != "ok" for group in groups for r in group.rows)


def _bar(
    axes: Axes, x: float, row: Row, rate: derive.Rate, shade: float, best: bool, top: float, divisor: float
) -> None:
    suspect = row.check.verdict != "ok"
    colour = _WIDTH_COLOURS[round(shade * (len(_WIDTH_COLOURS) - 1))]
    height = rate.best / divisor
    filled: dict[str, Any] = {"color": "white" if suspect else colour, "edgecolor": "#333333"}
    filled["linewidth"] = 0.6
    axes.bar(x, height, 0.86, hatch="////" if suspect else None, label=f"{row.dtype} {_width(row)}", **filled)
    axes.hlines(rate.median / divisor, x - 0.43, x + 0.43, color=pane.BLACK, linewidth=0.8)
    text = ("?" if suspect else "") + units.number(height)
    behind = pane.OPAQUE if height > top else None
    style: dict[str, Any] = {"fontsize": 7.5, "fontweight": "bold" if best else "normal", "bbox": behind}
    pane.say(axes, text, (x, min(height, top * 0.955)), (0, 2), ha="center", va="bottom", **style)


def _width(row: Row) -> int:
    width = row.parameters.get("width", 1)
    return width if isinstance(width, int) else 1


# --- bars by matrix instruction ---------------------------------------------------------------------------


def _pairs(group: Group) -> dict[str, dict[str, Row]]:
    """Rows by instruction (``half + float m16n8k16``), then by the operands they are fed."""
    by_instruction: dict[str, dict[str, Row]] = {}
    for row in group.rows:
        rest = {name: clean(str(value)) for name, value in row.parameters.items()}
        operands, sums = rest.pop("operands", ""), rest.pop("accumulator", "")
        name = " ".join([row.dtype, *(["+", sums] if sums else []), *rest.values()])
        by_instruction.setdefault(name, {})[operands] = row
    return by_instruction


def _instructions(axes: Axes, run: Run, groups: Sequence[Group], title: str, about: str) -> None:
    """A line for each instruction: a bar for each kind of operands, the figures at the right."""
    drawn = [group for group in groups if group.measured]
    largest, divisor, letter = _scale(drawn)
    kinds = list(dict.fromkeys(name for group in drawn for pair in _pairs(group).values() for name in pair))
    names: dict[float, str] = {}
    heads: dict[str, float] = {}
    y = 0.0
    for probe in dict.fromkeys(row.variant for group in drawn for row in group.rows):
        heads[clean(probe)] = y
        y += 1
        for group in drawn:
            for name, pair in _pairs(group).items() if group.rows[0].variant == probe else ():
                names[y] = name
                _instruction(axes, y, [pair.get(kind) for kind in kinds], divisor, run)
                y += 1
    pane.name_rows(axes, names, heads)
    for column, kind in enumerate(kinds):
        pane.heading(axes, column, kind or f"{letter}FLOPS", pane.COLOURS[column % len(pane.COLOURS)])
    axes.set_ylim(y, -0.8)
    axes.set_xlim(0, largest / divisor * 1.05)
    pane.tick_texts(axes.xaxis, units.number)
    axes.grid(False, axis="y")
    axes.set_xlabel(f"{letter}FLOPS, {letter}IOPS for integers")
    below = f"measured peak of matrix instructions{about}; operands + sums, best batch"
    keys = [(name, pane.COLOURS[n % len(pane.COLOURS)]) for n, name in enumerate(kinds) if name]
    pane.titles(axes, title, below, keys)
    lacking = by_key((group.rows[0].status, group.name) for group in groups if not group.measured)
    hatched = ["Hatched: suspect."] if _any_suspect(drawn) else []
    unknown = [f"Not measured: {', '.join(names)} ({status})." for status, names in lacking.items()]
    # the names of instructions leave less room than other panes have
    pane.footnote(axes, [line for text in (*hatched, *unknown) for line in textwrap.wrap(text, 90)])


def _instruction(axes: Axes, y: float, rows: Sequence[Row | None], divisor: float, run: Run) -> None:
    height = _BAR / len(rows)
    for column, row in enumerate(rows):
        rate = derive.rate(row, "kernel") if row is not None else None
        if row is None or rate is None:
            pane.cell(axes, column, y, row.status if row is not None else "-", pane.GREY, small=True)
            continue
        length, middle = rate.best / divisor, y - _BAR / 2 + height * (column + 0.5)
        suspect, colour = row.check.verdict != "ok", pane.COLOURS[column % len(pane.COLOURS)]
        hatched: dict[str, Any] = {"color": "white", "edgecolor": "#333333", "hatch": "////"}
        filled: dict[str, Any] = {"color": colour, "edgecolor": "none"}
        label = f"{row.variant} {row.dtype}"
        axes.barh(middle, length, height, label=label, **(hatched if suspect else filled))
        pane.mark(axes, length, middle, sample(run, row))
        text = ("?" if suspect else "") + units.number(length)
        pane.cell(axes, column, y, text, pane.DARK)


# --- Memory over size: the staircase of the caches, transfers, latencies ------------------------------------

_MARKERS = ("o", "s", "^", "D", "v", "P")
_BAND = (0.1, 0.9)
_BAR_HEIGHT = 0.55
_LINE_HEIGHT = 0.5  # inches for each launch probe


@dataclass(frozen=True)
class Line:
    """One probe over sizes: a point for each size with its band, NaN where there is none."""

    name: str
    sizes: tuple[int, ...]
    values: tuple[float, ...]
    low: tuple[float, ...]
    high: tuple[float, ...]
    doubted: tuple[int, ...]  # places of figures that are suspect
    samples: tuple[str, ...]  # what is said of each point

    @property
    def end(self) -> int:
        """The index of its last point; -1 if it has none."""
        return max((index for index, value in enumerate(self.values) if np.isfinite(value)), default=-1)


def staircase(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """GB/s over the size of the working set: a pane for each run and device."""
    below = "every unit reading the same set again and again; best batch, band: the median's 95 % confidence"
    paint = partial(_by_set, figure=_gbps, unit="GB/s", below=below)
    return _panes(runs, lambda row: row.variant == "working-set" and is_sized(row), paint)


def transfer(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """GB/s over the size of a transfer, a line for each way."""
    return _panes(runs, lambda row: row.kind == "transfer", _transfer)


def latency(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Nanoseconds of a load over the size of its set, and the distribution of launches."""
    below = "loads that wait for one another, in random order; median, band: p10 to p90"
    paint = partial(_by_set, figure=_nanoseconds, unit="ns for each load", below=below)
    chases = _panes(runs, lambda row: row.variant == "pointer-chase" and is_sized(row), paint)
    return chases + _panes(
        runs,
        lambda row: row.kind == "latency" and not is_sized(row),
        _launches,
        lambda rows: 1.6 + _LINE_HEIGHT * len(rows),
    )


def _panes(
    runs: Sequence[Run],
    wanted: Callable[[Row], bool],
    paint: Callable[..., None],
    height: Callable[[Sequence[Row]], float] = lambda _: HEIGHT,
) -> list[pane.Pane]:
    drawn = []
    for subject in pane.subjects(runs, wanted, typed=False):
        if any(row.status == "ok" and row.samples for row in subject.rows):
            cache = subject.run.header.devices[subject.device].last_level_cache_bytes
            painted = partial(paint, run=subject.run, title=subject.title, rows=subject.rows, cache=cache)
            drawn.append(pane.Pane(height(subject.rows), painted))
    return drawn


Figure = Callable[[Row], tuple[float, float, float] | None]


def _line(run: Run, name: str, rows: Iterable[Row], figure: Figure) -> Line:
    """The line of one probe; rows without a figure are gaps."""
    by_size = sorted(rows, key=_bytes)
    points = np.array([figure(row) or (np.nan, np.nan, np.nan) for row in by_size])
    doubted = tuple(n for n, row in enumerate(by_size) if row.check.verdict == "suspect")
    middle, low, high = map(tuple, points.T)
    samples = tuple(sample(run, row) for row in by_size)
    return Line(name, tuple(map(_bytes, by_size)), middle, low, high, doubted, samples)


def _bytes(row: Row) -> int:
    return int(row.parameters["bytes"])


def _gbps(row: Row) -> tuple[float, float, float] | None:
    """Best, low and high."""
    rate = derive.byte_rate(row)
    if rate is None:
        return None
    return rate.best / units.GIGA, rate.low / units.GIGA, rate.high / units.GIGA


def _nanoseconds(row: Row) -> tuple[float, float, float] | None:
    """Median, and what the band spans."""
    samples = derive.finest_seconds(row)
    if not samples:
        return None
    low, high = (intervals.quantile(samples, share) / 1e-9 for share in _BAND)
    return intervals.quantile(samples, 0.5) / 1e-9, low, high


def _draw(axes: Axes, lines: Sequence[Line], ticks: Sequence[int]) -> None:
    """Lines with their bands, hollow points where a figure is not believed, names at the ends."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for index, line in enumerate(lines):
        colour = pane.COLOURS[index % len(pane.COLOURS)]
        axes.fill_between(line.sizes, line.low, line.high, color=colour, alpha=0.22, linewidth=0)
        marker = _MARKERS[index % len(_MARKERS)]
        axes.plot(line.sizes, line.values, color=colour, marker=marker, label=line.name)
        for x, y, said in zip(line.sizes, line.values, line.samples, strict=True):
            pane.mark(axes, x, y, said)
        doubted = ([each[n] for n in line.doubted] for each in (line.sizes, line.values))
        hollow: dict[str, Any] = {"markerfacecolor": "white", "markeredgecolor": colour}
        axes.plot(*doubted, linestyle="", marker=marker, label="_suspect", **hollow)
    axes.set_xlim(ticks[0] / 1.15, ticks[-1] * 1.15)
    size_axis(axes, thinned(ticks, room=0.075), lambda size: units.size(round(size)))
    pane.log_ticks(axes.yaxis, units.number)
    if len(lines) < 2:
        return
    low, high = (np.log10(limit) for limit in axes.get_ylim())
    heights = [float((np.log10(line.values[line.end]) - low) / (high - low)) for line in lines]
    for index, (line, height) in enumerate(zip(lines, spread(heights, 0.05, 0.0, 0.98), strict=True)):
        point = (line.sizes[line.end], line.values[line.end])
        colour = pane.COLOURS[index % len(pane.COLOURS)]
        name_end(axes, clean(line.name), point, (1.03, height), color=colour, fontsize=8.5)


def _below(axes: Axes, rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
    def size(row: Row) -> str:
        return pane.short(units.size(_bytes(row))) if is_sized(row) else row.variant

    gaps = by_key((f"{clean(row.variant)} ({row.status})", size(row)) for row in rows if row.status != "ok")
    texts = [f"{name} at {', '.join(dict.fromkeys(sizes))}" for name, sizes in gaps.items()]
    doubted = [size(row) for row in rows if row.status == "ok" and row.check.verdict == "suspect"]
    hollow = [f"Hollow: suspect, at {', '.join(dict.fromkeys(doubted))}."] if doubted else []
    pane.footnote(axes, [*notes, *hollow, *(["No point: " + "; ".join(texts)] if texts else [])])


def _by_set(
    axes: Axes, run: Run, title: str, rows: list[Row], cache: int, figure: Figure, unit: str, below: str
) -> None:
    """A line over the size of the working set, the last-level cache marked."""
    line = _line(run, rows[0].variant, rows, figure)
    _draw(axes, [line], line.sizes)
    left, right = axes.get_xlim()
    if left < cache < right:
        axes.axvline(cache, color=pane.GREY, linewidth=0.9, linestyle=":", label="cache")
        text = f"cache {pane.short(units.size(cache))}"
        # Above the staircase, which falls, and below the latency, which rises.
        at, offset, va = ((cache, 1), (-3, -3), "top") if unit == "GB/s" else ((cache, 0), (-3, 3), "bottom")
        style: dict[str, Any] = {"ha": "right", "va": va, "rotation": 90, "fontsize": 8, "color": pane.GREY}
        pane.say(axes, text, at, offset, pane.BELOW, **style)
    axes.set_xlabel("working set")
    axes.set_ylabel(unit)
    pane.titles(axes, title, below)
    _below(axes, rows)


def _transfer(axes: Axes, run: Run, title: str, rows: list[Row], cache: int) -> None:
    names = dict.fromkeys(row.variant for row in rows)
    lines = [_line(run, name, [row for row in rows if row.variant == name], _gbps) for name in names]
    lines = [line for line in lines if line.end >= 0]
    _draw(axes, lines, sorted({size for line in lines for size in line.sizes}))
    axes.set_xlabel("bytes")
    axes.set_ylabel("GB/s")
    below = "between host and device, wall clock; best batch, band: the median's 95 % confidence"
    pane.titles(axes, title, below)
    ok = {row.variant for row in rows if row.status == "ok"} - {line.name for line in lines}
    still = [clean(name) for name in names if name in ok]
    notes = [f"Zero-copy, so that nothing is transferred: {', '.join(still)}."] if still else []
    _below(axes, rows, notes)


# --- launches -----------------------------------------------------------------------------------------------


def _launches(axes: Axes, run: Run, title: str, rows: list[Row], cache: int) -> None:
    """A bar from p10 to p90 for each probe, its median, whiskers from the least to p99."""
    measured = [row for row in rows if derive.finest_seconds(row)]
    for index, row in enumerate(measured):
        seconds = derive.finest_seconds(row)
        low, middle, high, tail = (intervals.quantile(seconds, share) for share in (0.1, 0.5, 0.9, 0.99))
        axes.hlines(index, min(seconds), tail, color=pane.GREY, linewidth=1.0)
        bar: dict[str, Any] = {"color": pane.COLOURS[0], "alpha": 0.45, "label": row.variant}
        axes.barh(index, high - low, _BAR_HEIGHT, left=low, **bar)
        pane.mark(axes, middle, index, sample(run, row))
        axes.vlines(middle, index - _BAR_HEIGHT / 2, index + _BAR_HEIGHT / 2, color=pane.DARK, linewidth=1.6)
        style: dict[str, Any] = {"ha": "center", "va": "bottom", "fontsize": 8}
        pane.say(axes, units.seconds(middle), (middle, index - _BAR_HEIGHT / 2), (0, 1), **style)
    axes.set_xscale("log")
    axes.set_yticks(range(len(measured)), [clean(row.variant) for row in measured])
    axes.set_ylim(len(measured) - 0.4, -0.8)
    pane.log_ticks(axes.xaxis, units.seconds, math.inf)
    axes.tick_params(length=3, color=pane.DARK)
    axes.grid(False, axis="y")
    axes.set_xlabel("time of a launch")
    pane.titles(axes, title, "an empty kernel; bar: p10 to p90, tick: median, line: least to p99")
    _below(axes, rows)
