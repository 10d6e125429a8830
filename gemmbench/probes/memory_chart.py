"""Memory over size: the staircase of the caches, transfers, and latencies."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullLocator

from gemmbench.charts.lines import HEIGHT, log_ticks, spread, thinned
from gemmbench.charts.pane import COLOURS, DARK, GREY, Families, Pane, footnote, own_title, short, titles
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import intervals, rates

_MARKERS = ("o", "s", "^", "D", "v", "P")
_BAND = (0.1, 0.9)
_NOTHING = (np.nan, np.nan, np.nan)
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

    @property
    def end(self) -> int:
        """The index of its last point; -1 if it has none."""
        return max((index for index, value in enumerate(self.values) if np.isfinite(value)), default=-1)


def staircase(runs: Sequence[Run], families: Families) -> list[Pane]:
    """GB/s over the size of the working set: a pane for each run and device."""
    return _panes(runs, lambda row: row.variant == "working-set" and _is_sized(row), _staircase)


def transfer(runs: Sequence[Run], families: Families) -> list[Pane]:
    """GB/s over the size of a transfer, a line for each way."""
    return _panes(runs, lambda row: row.kind == "transfer", _transfer)


def latency(runs: Sequence[Run], families: Families) -> list[Pane]:
    """Nanoseconds of a load over the size of its set, and the distribution of launches."""
    chases = _panes(runs, lambda row: row.variant == "pointer-chase" and _is_sized(row), _chase)
    return chases + _panes(runs, _is_launch, _launches, lambda rows: 1.6 + _LINE_HEIGHT * len(rows))


def _is_launch(row: Row) -> bool:
    return row.kind == "latency" and not _is_sized(row)


def _is_sized(row: Row) -> bool:
    return "bytes" in row.parameters


def _panes(
    runs: Sequence[Run],
    wanted: Callable[[Row], bool],
    paint: Callable[..., None],
    height: Callable[[Sequence[Row]], float] = lambda _: HEIGHT,
) -> list[Pane]:
    """A pane for each run and device with a measured row that is wanted."""
    drawn = []
    beside = [run for run in runs if any(wanted(row) for row in run.rows)]
    for run in beside:
        rows = [row for row in run.rows if wanted(row)]
        for device in dict.fromkeys(row.device for row in rows):
            device_rows = [row for row in rows if row.device == device]
            if any(row.status == "ok" and row.samples for row in device_rows):
                title = own_title(run, device, beside)
                facts = run.header.devices[device] if device != HOST else None
                cache = facts.last_level_cache_bytes if facts else 0
                drawn.append(
                    Pane(height(device_rows), partial(paint, title=title, rows=device_rows, cache=cache))
                )
    return drawn


# --- lines over size ----------------------------------------------------------------------------------------


def _line(name: str, rows: Iterable[Row], figure: Callable[[Row], tuple[float, float, float] | None]) -> Line:
    """The line of one probe; rows without a figure are gaps."""
    placed = sorted(((int(row.parameters["bytes"]), row) for row in rows), key=lambda pair: pair[0])
    points = [figure(row) or _NOTHING for _, row in placed]
    return Line(
        name,
        tuple(size for size, _ in placed),
        tuple(value for value, _, _ in points),
        tuple(low for _, low, _ in points),
        tuple(high for _, _, high in points),
        tuple(index for index, (_, row) in enumerate(placed) if row.check.verdict == "suspect"),
    )


def _gbps(row: Row) -> tuple[float, float, float] | None:
    """Best, low and high."""
    rate = rates.byte_rate(row)
    if rate is None:
        return None
    return rate.best / units.GIGA, rate.low / units.GIGA, rate.high / units.GIGA


def _nanoseconds(row: Row) -> tuple[float, float, float] | None:
    """Median, and what the band spans."""
    samples = rates.finest_seconds(row)
    if not samples:
        return None
    low, high = (intervals.quantile(samples, share) / 1e-9 for share in _BAND)
    return intervals.quantile(samples, 0.5) / 1e-9, low, high


def _draw(axes: Axes, lines: Sequence[Line], ticks: Sequence[int]) -> None:
    """Lines with their bands, hollow points where a figure is not believed, names at the ends."""
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    for index, line in enumerate(lines):
        colour = COLOURS[index % len(COLOURS)]
        axes.fill_between(line.sizes, line.low, line.high, color=colour, alpha=0.22, linewidth=0)
        marker = _MARKERS[index % len(_MARKERS)]
        axes.plot(line.sizes, line.values, color=colour, marker=marker, label=line.name)
        axes.plot(
            [line.sizes[n] for n in line.doubted],
            [line.values[n] for n in line.doubted],
            linestyle="",
            marker=marker,
            markerfacecolor="white",
            markeredgecolor=colour,
            label="_suspect",
        )
    axes.set_xlim(ticks[0] / 1.15, ticks[-1] * 1.15)
    axes.xaxis.set_major_locator(FixedLocator(thinned(ticks, room=0.075)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.size(round(value)))))
    axes.xaxis.set_minor_locator(NullLocator())
    log_ticks(axes, units.number)
    axes.tick_params(length=3, color=DARK)
    if len(lines) > 1:
        _name_ends(axes, lines)


def _name_ends(axes: Axes, lines: Sequence[Line]) -> None:
    """Each line's name in the right margin."""
    low, high = (np.log10(limit) for limit in axes.get_ylim())
    heights = [float((np.log10(line.values[line.end]) - low) / (high - low)) for line in lines]
    for index, (line, height) in enumerate(zip(lines, spread(heights, 0.05, 0.0, 0.98), strict=True)):
        axes.annotate(
            clean(line.name),
            (line.sizes[line.end], line.values[line.end]),
            xytext=(1.03, height),
            textcoords="axes fraction",
            color=COLOURS[index % len(COLOURS)],
            fontsize=8.5,
            va="center",
            annotation_clip=False,
        )


def _below(axes: Axes, rows: Sequence[Row], notes: Sequence[str] = ()) -> None:
    """What has no point, and what is not believed."""
    gaps: dict[str, dict[str, None]] = {}
    for row in rows:
        if row.status != "ok":
            gaps.setdefault(f"{clean(row.variant)} ({row.status})", {})[_size(row)] = None
    texts = [f"{name} at {', '.join(sizes)}" for name, sizes in gaps.items()]
    doubted = [_size(row) for row in rows if row.status == "ok" and row.check.verdict == "suspect"]
    hollow = [f"Hollow: suspect, at {', '.join(dict.fromkeys(doubted))}."] if doubted else []
    footnote(axes, [*notes, *hollow, *(["No point: " + "; ".join(texts)] if texts else [])])


def _size(row: Row) -> str:
    return short(units.size(int(row.parameters["bytes"]))) if _is_sized(row) else row.variant


def _mark_cache(axes: Axes, cache: int, top: bool) -> None:
    """Where the last-level cache ends, if it is known; the words above or below the line."""
    left, right = axes.get_xlim()
    if left < cache < right:
        axes.axvline(cache, color=GREY, linewidth=0.9, linestyle=":", label="cache")
        axes.annotate(
            f"cache {short(units.size(cache))}",
            (cache, 1 if top else 0),
            xycoords=("data", "axes fraction"),
            xytext=(-3, -3 if top else 3),
            textcoords="offset points",
            ha="right",
            va="top" if top else "bottom",
            rotation=90,
            fontsize=8,
            color=GREY,
        )


def _staircase(axes: Axes, title: str, rows: list[Row], cache: int) -> None:
    line = _line("working-set", rows, _gbps)
    _draw(axes, [line], line.sizes)
    _mark_cache(axes, cache, top=True)
    axes.set_xlabel("working set")
    axes.set_ylabel("GB/s")
    below = "every unit reading the same set again and again; best batch, band: the median's 95 % confidence"
    titles(axes, title, below)
    _below(axes, rows)


def _chase(axes: Axes, title: str, rows: list[Row], cache: int) -> None:
    line = _line("pointer-chase", rows, _nanoseconds)
    _draw(axes, [line], line.sizes)
    _mark_cache(axes, cache, top=False)
    axes.set_xlabel("working set")
    axes.set_ylabel("ns for each load")
    titles(axes, title, "loads that wait for one another, in random order; median, band: p10 to p90")
    _below(axes, rows)


def _transfer(axes: Axes, title: str, rows: list[Row], cache: int) -> None:
    names = dict.fromkeys(row.variant for row in rows)
    lines = [_line(name, [row for row in rows if row.variant == name], _gbps) for name in names]
    lines = [line for line in lines if line.end >= 0]
    _draw(axes, lines, sorted({size for line in lines for size in line.sizes}))
    axes.set_xlabel("bytes")
    axes.set_ylabel("GB/s")
    titles(axes, title, "between host and device, wall clock; best batch, band: the median's 95 % confidence")
    still = [
        clean(name)
        for name in names
        if name not in {line.name for line in lines}
        and any(row.status == "ok" for row in rows if row.variant == name)
    ]
    notes = [f"Zero-copy, so that nothing is transferred: {', '.join(still)}."] if still else []
    _below(axes, rows, notes)


# --- launches -----------------------------------------------------------------------------------------------


def _launches(axes: Axes, title: str, rows: list[Row], cache: int) -> None:
    """A bar from p10 to p90 for each probe, its median, whiskers from the least to p99."""
    measured = [row for row in rows if rates.finest_seconds(row)]
    for index, row in enumerate(measured):
        seconds = rates.finest_seconds(row)
        low, middle, high, tail = (intervals.quantile(seconds, share) for share in (0.1, 0.5, 0.9, 0.99))
        axes.hlines(index, min(seconds), tail, color=GREY, linewidth=1.0)
        axes.barh(index, high - low, _BAR_HEIGHT, left=low, color=COLOURS[0], alpha=0.45, label=row.variant)
        axes.vlines(middle, index - _BAR_HEIGHT / 2, index + _BAR_HEIGHT / 2, color=DARK, linewidth=1.6)
        axes.annotate(
            units.seconds(middle),
            (middle, index - _BAR_HEIGHT / 2),
            xytext=(0, 1),
            textcoords="offset points",
            ha="center",
            va="bottom",
            fontsize=8,
        )
    axes.set_xscale("log")
    axes.set_yticks(range(len(measured)), [clean(row.variant) for row in measured])
    axes.set_ylim(len(measured) - 0.4, -0.8)
    axes.xaxis.set_major_locator(LogLocator(10, subs=(1.0, 2.0, 5.0), numticks=99))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: short(units.seconds(value))))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(length=3, color=DARK)
    axes.grid(False, axis="y")
    axes.set_xlabel("time of a launch")
    titles(axes, title, "an empty kernel; bar: p10 to p90, tick: median, line: least to p99")
    _below(axes, rows)
