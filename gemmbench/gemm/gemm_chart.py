"""The charts of GEMM rows: lines over size, the roofline, and bars for each kernel."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Literal

from matplotlib.axes import Axes

from gemmbench.charts import marks, pane
from gemmbench.charts.marks import Bar, BarGroup, BarPart, Line, Look, Point, bar, bar_pane
from gemmbench.gemm.sweep_table import SCOPE_WORDS, fastest_rows
from gemmbench.ladder.variant import LIBRARIES, OWN
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES, GEMM_DTYPES
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run, device_name
from gemmbench.model.units import by_key, clean
from gemmbench.report import notes
from gemmbench.report.progress import sample
from gemmbench.stats import panels
from gemmbench.stats import rates as derive
from gemmbench.stats.intervals import Interval
from gemmbench.stats.panels import Curve, Panel, Setting, Standing

_Values = Callable[[Row, str], Interval | None]  # of a row in a scope
_PEAK = Look(pane.GREY, (0, (8, 2, 1.5, 2)))


@dataclass(frozen=True, eq=False)
class Sweep:
    """One pane: a device and a data type, of one or more runs."""

    where: str
    parts: tuple[tuple[Run, Panel], ...]
    families: pane.Families

    @cached_property
    def panel(self) -> Panel:
        return self.parts[0][1]

    @cached_property
    def title(self) -> str:
        return f"{self.panel.dtype} GEMM, {self.where}"

    @cached_property
    def sizes(self) -> list[int]:
        return sorted({size for _, panel in self.parts for size in panel.sizes if size > 0})

    @cached_property
    def rows(self) -> list[Row]:
        return [row for _, panel in self.parts for row in panel.rows]

    @cached_property
    def scope(self) -> str:
        return derive.view_scope(*(run for run, _ in self.parts))

    @cached_property
    def looks(self) -> dict[str, Look]:
        """The looks of the best lines, by label, that all runs have; others are grey."""
        labels = [{curve.label for curve in panel.series} for _, panel in self.parts]
        common = set[str].intersection(*labels) or set[str].union(*labels)
        every = [curve for _, panel in self.parts for curve in panel.series if curve.label in common]
        best = {curve.label: top for curve in every if (top := _best(curve, self.scope))}
        variants = {curve.label: curve.variant for curve in every}
        return marks.looks(best, variants, self.families, max(2, marks.MOST_LINES // len(self.parts)))

    def look(self, part: int, label: str) -> Look:
        return replace(self.looks[label], is_hollow=part > 0) if label in self.looks else Look()

    def name(self, part: int, curve: Curve) -> str:
        if curve.label not in self.looks:
            return ""
        host = " (host)" if curve.is_host and self.scope != "host" else ""
        run = f" ({pane.stem(self.parts[part][0])})" if len(self.parts) > 1 else ""
        return clean(curve.label) + host + run

    @property
    def below(self) -> str:
        others = {curve.label for _, panel in self.parts for curve in panel.series} - self.looks.keys()
        return f"Grey: {units.count_noun(len(others), 'other kernel')}." if others else ""

    def rate_unit(self, largest: float) -> tuple[float, str]:
        return _flops(largest, [self.panel.dtype], self.scope)

    def having(self, values: _Values) -> Sweep:

        def shown(curve: Curve) -> bool:
            return any(values(row, self.scope) for row in curve.rows.values())

        return self.with_series(lambda _, panel: tuple(filter(shown, panel.series)))

    def with_series(self, chosen: Callable[[Run, Panel], tuple[Curve, ...]]) -> Sweep:
        parts = ((run, replace(panel, series=chosen(run, panel))) for run, panel in self.parts)
        return replace(self, parts=tuple(parts))


def _best(curve: Curve, scope: str) -> float:
    """A line's highest median rate in flop/s, in the scope or the kernel scope."""
    rates = [derive.median_rate(row, each) for row in curve.rows.values() for each in (scope, "kernel")]
    return derive.best_of(rates[::2]) or derive.best_of(rates) or 0.0


def _sweeps(runs: Sequence[Run], families: pane.Families) -> list[Sweep]:
    """The sweeps of runs: panels of one device, type and shape share a chart."""
    keyed = [
        ((device_name(run, panel.device), panel.dtype, panel.shape), (run, panel))
        for run in runs
        if (axis := panels.sweep_axis(run.rows))
        for panel in panels.panels(run, axis, tuple(families))
        if any(row.status == "ok" and row.samples for row in panel.rows)
    ]
    return [Sweep(where, tuple(parts), families) for (where, *_), parts in by_key(keyed).items()]


def _drawn(
    run: Run, curve: Curve, values: _Values, scope: str, at: Mapping[int, float], divisor: float = 1.0
) -> list[Point]:
    """A line's points at the sizes in `at`; NaN where a row has no value."""
    points = []
    for size, row in curve.rows.items():
        if size in at:
            value = values(row, scope)
            value = derive.widen_interval(run, row, value, scope) if value else None
            middle, low, high = (value.median, value.low, value.high) if value else (math.nan,) * 3
            said = sample(run, row, scope)
            points.append(Point(at[size], middle / divisor, low / divisor, high / divisor, said))
    return points


def _over_size(
    runs: Sequence[Run], families: pane.Families, values: _Values,
    unit: Callable[[Sweep, float], tuple[float, str]], text: Callable[[float], str] = units.number,
    scale: Literal["zero", "log", ""] = "log",
    more: Callable[[Sweep, Sequence[Run]], list[Line]] = lambda *_: [],
) -> Iterator[pane.Pane]:  # fmt: skip
    """Yield a pane for each device, data type and shape with a line of values for each kernel.

    `unit` gets the largest value, and returns divisor and axis label. `more` adds horizontal lines.
    """

    def paint(axes: Axes, sweep: Sweep) -> None:
        measured = [value.median for row in sweep.rows if (value := values(row, sweep.scope))]
        divisor, name = unit(sweep, max(measured))
        at = marks.size_axis(axes, sweep.sizes)
        drawn = [
            Line(
                curve.label,
                _drawn(run, curve, values, sweep.scope, at, divisor),
                sweep.look(part, curve.label),
                sweep.name(part, curve),
            )
            for part, (run, panel) in enumerate(sweep.parts)
            for curve in panel.series
        ]
        for line in more(sweep, runs):  # from end to end
            ends = [Point(axes.get_xlim()[n], line.points[n].y / divisor) for n in (0, 1)]
            drawn.append(replace(line, points=ends))
        marks.draw_lines(axes, drawn)
        if scale == "log":
            axes.set_yscale("log")
            pane.log_ticks(axes.yaxis, text)
        else:
            pane.tick_texts(axes.yaxis, text)
        if scale == "zero":
            axes.set_ylim(0, None)
        axes.set_xlabel(sweep.panel.shape)
        axes.set_ylabel(name)
        pane.titles(axes, sweep.title, f"{sweep.below} {marks.intervals_note(drawn)}".strip())
        marks.name_ends(axes, drawn)

    for sweep in (sweep.having(values) for sweep in _sweeps(runs, families)):
        if sweep.rows:
            yield pane.Pane(marks.LINES_HEIGHT, partial(paint, sweep=sweep))


def throughput(runs: Sequence[Run], families: pane.Families) -> Iterator[pane.Pane]:
    """Rates over size, with libraries and the measured peak."""
    return _over_size(runs, families, derive.shown_rate, Sweep.rate_unit, scale="zero", more=_peaks)


def _peaks(sweep: Sweep, runs: Sequence[Run]) -> list[Line]:
    drawn = {}
    for run, panel in sweep.parts:
        peak = derive.peak(run, panel.device, panel.dtype, others=runs)
        if peak and max(_best(curve, sweep.scope) for curve in panel.series) > pane.NEAR_PEAK * peak.rate:
            name = f"peak {units.rate_text(peak.rate, derive.is_integer(panel.dtype))}"
            drawn[name] = Line("peak", [Point(0, peak.rate)] * 2, _PEAK, name)
    return list(drawn.values())


def time_panes(runs: Sequence[Run], families: pane.Families) -> Iterator[pane.Pane]:
    """Median seconds for one problem over size."""

    def values(row: Row, scope: str) -> Interval | None:
        return derive.summary(row, derive.shown_samples(row, scope)) if row.status == "ok" else None

    def unit(sweep: Sweep, _: float) -> tuple[float, str]:
        return 1.0, f"time for one problem {SCOPE_WORDS[sweep.scope]}"

    return _over_size(runs, families, values, unit, units.seconds)


def energy(runs: Sequence[Run], families: pane.Families) -> Iterator[pane.Pane]:
    """Joules for one problem over size."""

    def values(row: Row, _: str) -> Interval | None:
        joules = row.energy.joules if row.status == "ok" else None
        return Interval(joules, math.nan, math.nan) if joules else None

    def unit(sweep: Sweep, _: float) -> tuple[float, str]:
        sources = dict.fromkeys(clean(row.energy.scope) for row in sweep.rows if row.energy.scope)
        return 1.0, f"energy for one problem, {' or '.join(sources) or 'machine'}"

    return _over_size(runs, families, values, unit, units.joules)


def why_no_energy(runs: Sequence[Run]) -> str:
    """Why no row has joules, each reason once; or ""."""
    rows = [row for run in runs for row in run.rows if row.kind == "gemm" and derive.asked_for_energy(row)]
    if any(row.energy.joules is not None for row in rows):
        return ""
    return "; ".join(dict.fromkeys(clean(row.energy.why) for row in rows))


def versus_panes(runs: Sequence[Run], families: pane.Families) -> Iterator[pane.Pane]:
    """Rates over those of ``--versus``'s kernel, over size, with a line at 1."""

    def unit(sweep: Sweep, _: float) -> tuple[float, str]:
        names = dict.fromkeys(clean(name) for row in sweep.rows if (name := derive.partner(row)))
        return 1.0, f"times the rate of {', '.join(names)}, {SCOPE_WORDS[sweep.scope]}"

    equal = Line("1", [Point(0, 1.0)] * 2, Look(pane.GREY))
    return _over_size(runs, families, derive.versus, unit, "{:.4g}".format, "", lambda *_: [equal])


def host_device(runs: Sequence[Run], families: pane.Families) -> Iterator[pane.Pane]:
    """Rates with and without transfers of the best kernels and the host's BLAS, over size."""
    for each in _sweeps(runs, families):
        sweep = each.with_series(partial(_contenders, families=families))
        if any(not curve.is_host for _, panel in sweep.parts for curve in panel.series):
            yield pane.Pane(marks.LINES_HEIGHT, partial(_host_device, sweep=sweep))


def _host_device(axes: Axes, sweep: Sweep) -> None:
    """Rates with and without transfers over the size, with the break-even points."""
    at, drawn = marks.size_axis(axes, sweep.sizes), list[Line]()
    for part, (run, panel) in enumerate(sweep.parts):
        for curve in panel.series:
            look = sweep.look(part, curve.label)
            dotted = replace(look, dashes=(0, (1, 1.4)), is_hollow=True)
            for scope, style in {"host": look, **({} if curve.is_host else {"device": dotted})}.items():
                points = _drawn(run, curve, derive.shown_rate, scope, at, units.GIGA)
                name = sweep.name(part, curve).replace(" (host)", "")
                name += "" if curve.is_host else f", {SCOPE_WORDS[scope]}"
                drawn.append(Line(curve.label, points, style, name))
    marks.draw_lines(axes, drawn)
    axes.set_yscale("log")
    _mark_break_even(axes, sweep, at)
    pane.log_ticks(axes.yaxis, units.number)
    axes.set_xlabel(sweep.panel.shape)
    axes.set_ylabel(derive.unit(sweep.panel.dtype))
    pane.titles(axes, f"{sweep.title}, with and without transfers", marks.intervals_note(drawn))
    marks.name_ends(axes, drawn)


def _contenders(run: Run, panel: Panel, families: pane.Families) -> tuple[Curve, ...]:
    kernels = [line for line in panel.series if not line.is_host and families.get(line.variant) != LIBRARIES]
    ranked = sorted(kernels, key=lambda curve: _best(curve, "host"), reverse=True)
    fastest = [curve for curve in ranked if _best(curve, "host")][:2]
    earliest = (even.kernel for even in panels.break_evens(run, panel)[:1] if even.size is not None)
    return tuple(dict.fromkeys((*fastest, *earliest, *(line for line in panel.series if line.is_host))))


def _mark_break_even(axes: Axes, sweep: Sweep, at: Mapping[int, float]) -> None:
    even, host = (
        next(iter(panels.break_evens(sweep.parts[0][0], sweep.panel)), None),
        panels.baseline(sweep.panel),
    )
    has_categories = any(size != at[size] for size in at)
    if even is None or even.size is None or host is None or has_categories or len(sweep.parts) > 1:
        return
    axes.axvline(even.size, color=pane.BLACK, linewidth=1.0, linestyle=":", label="break-even")
    start, end = even.low or even.size, even.high or sweep.sizes[-1]
    axes.axvspan(start, end, color=pane.BLACK, alpha=0.1, linewidth=0)
    every = "at every size" + " that both ran" * (len(even.sizes) < len(sweep.sizes))
    where = every if even.from_start else f"from {sweep.panel.axis} = {round(even.size)}"
    text = f"{clean(even.kernel.label)} with transfers beats {clean(host.label)} {where}"
    low, high = axes.get_ylim()
    axes.set_ylim(low, high * (high / low) ** 0.08)  # room for the words, above all lines
    is_left = even.size < (sweep.sizes[0] * sweep.sizes[-1]) ** 0.5
    offset, side = (4, "left") if is_left else (-4, "right")
    pane.annotate(
        axes, text, (even.size, 1), (offset, -2), pane.BELOW, ha=side, va="top", fontsize=8, bbox=pane.OPAQUE
    )


def roofline(runs: Sequence[Run], families: pane.Families) -> Iterator[pane.Pane]:
    """Rates over flop per byte, below peak and bandwidth."""
    for subject in pane.subjects(runs):
        run, device = subject.run, subject.device
        # On a CPU the host's BLAS is under the same roofs.
        under = (device, HOST) if run.header.devices[device].type == "cpu" else (device,)
        rows = [row for row in subject.rows if row.device in under and derive.intensity(row) > 0]
        peak = derive.peak(run, device, subject.dtype, others=runs)
        if peak and any(derive.shown_rate(row, "kernel") for row in rows):
            bandwidths = (
                top[0]
                for other in (run, *runs)
                for index in range(len(other.header.devices))
                if device_name(other, index) == device_name(run, device)
                and (top := derive.best_bandwidth(other, index))
            )
            painted = partial(_paint_roofs, subject=subject, rows=rows, families=families, peak=peak.rate)
            yield pane.Pane(marks.LINES_HEIGHT, partial(painted, bandwidth=next(bandwidths, None)))


def _paint_roofs(
    axes: Axes, subject: pane.PaneSubject, rows: Sequence[Row], families: pane.Families, peak: float,
    bandwidth: float | None,
) -> None:  # fmt: skip
    """Draw roofs (`peak` in flop/s, `bandwidth` in bytes/s) and a point for each row."""
    shapes = {row.problem: row for row in sorted(rows, key=derive.intensity)}
    numbers: dict[object, int] = {problem: number for number, problem in enumerate(shapes)}
    at = {number: derive.intensity(row) for number, row in enumerate(shapes.values())}
    curves = panels.to_curves(rows, lambda row: numbers[row.problem], tuple(families))
    panel = Panel(subject.device, subject.dtype, "m", curves)
    sweep = Sweep(subject.where, ((subject.run, panel),), families)
    divisor, unit = sweep.rate_unit(peak)
    joined = panels.sweep_axis(shapes.values()) is not None  # otherwise problems do not follow each other
    drawn = []
    for curve in curves:
        look, name = sweep.look(0, curve.label), sweep.name(0, curve).replace(" (host)", "")
        look = look if joined else replace(look, marker=look.marker or "x", dashes="")
        points = [
            point._replace(low=math.nan, high=math.nan)
            for point in _drawn(subject.run, curve, derive.shown_rate, sweep.scope, at, divisor)
        ]
        drawn.append(Line(curve.label, points, look, name))
    axes.set_xscale("log")
    axes.set_yscale("log")
    marks.draw_lines(axes, drawn)
    top, (bottom, highest) = peak / divisor, axes.dataLim.intervaly
    ridge = peak / bandwidth if bandwidth else None  # from which intensity on memory is no limit
    axes.set_ylim(min(bottom, top) / 1.6, max(top, highest) * 2)
    axes.set_xlim(min(at[0], ridge / 8 if ridge else at[0]) / 1.5, max(at[len(at) - 1], ridge or 0) * 1.5)
    left, right = axes.get_xlim()
    roof = [Point(ridge or left, top), Point(right, top)]
    drawn.append(
        Line("peak", roof, Look(pane.GREY), f"peak {units.rate_text(peak, derive.is_integer(subject.dtype))}")
    )
    marks.draw_lines(axes, drawn[-1:])
    if ridge and bandwidth:
        slope = [Point(left, top * left / ridge), Point(ridge, top)]
        marks.draw_lines(axes, [Line("memory", slope, Look(pane.GREY))])
        words = f"memory {units.number(bandwidth / units.GIGA)} GB/s"
        pane.annotate(
            axes, words, (ridge, top), (-2, 4), ha="right", va="bottom", fontsize=8, color=pane.DARK
        )
    pane.log_ticks(axes.xaxis, units.number, math.inf)
    pane.log_ticks(axes.yaxis, units.number)
    axes.set_xlabel("flop per byte, with A, B and C moved once")
    axes.set_ylabel(unit)
    pane.titles(axes, f"{sweep.title}, roofline", sweep.below)
    marks.name_ends(axes, drawn)


def _flops(largest: float, dtypes: Sequence[str], scope: str) -> tuple[float, str]:
    divisor, letter = units.scale(largest)
    unit = "IOPS" if all(map(derive.is_integer, dtypes)) else "FLOPS"
    mixed = f" ({letter}IOPS of integers)" if unit == "FLOPS" and any(map(derive.is_integer, dtypes)) else ""
    return divisor, f"{letter}{unit}{mixed} {SCOPE_WORDS[scope]}"


def _ranked(run: Run, setting: Setting, problem: Problem | None) -> dict[str, Standing]:
    ranked = (
        [each for each in panels.standings(run, setting, problem).values() if each.rank] if problem else []
    )
    return {each.row.title: each for each in sorted(ranked, key=lambda each: each.rank or 0)}


_FAMILIES = {LIBRARIES: pane.DARK, OWN: pane.OWN_COLOUR}  # other kernels are blue


def ladder_panes(runs: Sequence[Run], families: pane.Families) -> Iterator[pane.Pane]:
    """The measured peak, kernels and libraries at one problem, the fastest first."""
    for subject in pane.subjects(runs):
        run, setting = subject.run, Setting(subject.device, subject.dtype)
        problem = panels.common_problem(run, setting)
        ranked = _ranked(run, setting, problem)
        if problem is None or sum(each.row.device != HOST for each in ranked.values()) < 2:
            continue
        scope, peak = derive.view_scope(run), derive.peak(run, subject.device, subject.dtype, others=runs)
        top = max(each.rate.median for each in ranked.values() if each.rate)
        divisor, unit = _flops(top, [subject.dtype], scope)
        entries = []
        if peak:
            value = peak.rate / divisor
            entries.append(bar(value, pane.PALE, "peak", units.number(value), "measured peak"))
        for name, each in ranked.items():
            assert each.rate is not None  # it has a rank
            fraction = derive.peak_fraction(run, each.row, scope, runs)
            colour = _FAMILIES.get(families.get(each.row.variant, ""), pane.COLOURS[0])
            value = each.rate.median / divisor
            text = notes.mark_uncertain(run, each.row, units.number(value), scope)
            text += f"   {units.percent(fraction)}" if fraction is not None else ""
            wide = derive.widen_interval(run, each.row, each.rate, derive.shown_samples(each.row, scope))
            ends = wide.low / divisor, wide.high / divisor
            said = sample(run, each.row, scope)
            entries.append(bar(value, colour, name, text, clean(name), each.is_fastest, said, ends))
        of_peak = "; per cent of the measured peak" if peak else ""
        below = f"{problem.title}{of_peak}; black lines: 95 % intervals"
        used = {families.get(each.row.variant) for each in ranked.values()}
        keys = [(family, colour) for family, colour in _FAMILIES.items() if family in used]
        yield bar_pane(f"{subject.dtype} GEMM, {subject.where}", below, entries, unit, keys)


def colour_of(dtype: str) -> str:
    """The colour of a data type, the same in every chart."""
    index = list(dict.fromkeys((*GEMM_DTYPES, *DTYPES))).index(dtype)
    return pane.COLOURS[index % len(pane.COLOURS)]


def precision(runs: Sequence[Run], families: pane.Families) -> Iterator[pane.Pane]:
    """The fastest kernels at one problem in several data types."""
    for subject in pane.subjects(runs, typed=False):
        run, device, scope = subject.run, subject.device, derive.view_scope(subject.run)
        own = [setting for setting in panels.settings(run) if setting.device == device]
        problem = panels.common_problem(run, *own)
        ranked = {each.dtype: kernels for each in own if (kernels := _ranked(run, each, problem))}
        if problem is None or len(ranked) < 2:
            continue
        # The narrowest first.
        dtypes = sorted(ranked, key=lambda name: (DTYPES[name].itemsize, list(DTYPES).index(name)))
        peaks = {d: top.rate for d in dtypes if (top := derive.peak(run, device, d, others=runs))}
        by_title = by_key(pair for kernels in ranked.values() for pair in kernels.items())
        best = {name: max(each.rate.median for each in same if each.rate) for name, same in by_title.items()}
        variants = {name: same[0].row.variant for name, same in by_title.items()}
        divisor, unit = _flops(max(best.values()), dtypes, scope)
        chosen = marks.looks(best, variants, families)
        entries = []
        if peaks and max(best.values()) > pane.NEAR_PEAK * max(peaks.values()):
            entries.append(BarGroup("measured peak", tuple(_typed(d, peaks[d] / divisor) for d in peaks)))
        for name in sorted(chosen, key=lambda name: -best[name]):
            group = [
                _typed(d, kernel.rate.median / divisor, kernel.is_fastest, sample(run, kernel.row, scope))
                for d in dtypes
                if (kernel := ranked[d].get(name)) and kernel.rate
            ]
            entries.append(BarGroup(clean(name), tuple(group)))
        below = f"{problem.title}; the fastest of each type in bold"
        keys = [(dtype, colour_of(dtype)) for dtype in dtypes]
        yield bar_pane(f"GEMM by data type, {subject.where}", below, entries, unit, keys)


def _typed(dtype: str, value: float, is_best: bool = False, said: str = "") -> Bar:
    return bar(value, colour_of(dtype), dtype, units.number(value), "", is_best, said)


_MOST_BARS = 60  # in a pane
_MOST_VARIANTS = 5


def workloads_panes(runs: Sequence[Run], _: pane.Families) -> Iterator[pane.Pane]:
    """Bars by shape, of runs with several problems that are no sweep."""
    for subject in pane.subjects(runs):
        gemms = [row for row in subject.run.rows if row.kind == "gemm"]
        if not panels.sweep_axis(gemms) and len({row.problem for row in gemms}) > 1:
            yield from _workloads(subject)


def _workloads(subject: pane.PaneSubject) -> Iterator[pane.Pane]:
    """A group of bars for each shape: the two to five kernels that win most often."""
    run, scope = subject.run, derive.view_scope(subject.run)
    shapes: dict[tuple[str, Problem | None], dict[str, tuple[float, Row]]]
    shapes = {(row.label, row.problem): {} for row in subject.rows}
    for row in sorted(subject.rows, key=lambda row: derive.median_rate(row, scope) or 0.0):
        if rate := derive.compared_rate(run, subject.device, row, scope):
            shapes[row.label, row.problem][row.title] = (rate, row)
    best = {shape: max(rate for rate, _ in rated.values()) for shape, rated in shapes.items() if rated}
    if not best:
        return
    score: dict[str, float] = {}  # shapes won; of equals the kernel that is closer to the best on the others
    for shape, top in best.items():
        for title, (rate, _) in shapes[shape].items():
            score[title] = score.get(title, 0.0) + (rate == top) + rate / top / (len(best) + 1)
    most = max(2, min(_MOST_VARIANTS, _MOST_BARS // len(best)))
    shown = sorted(score, key=lambda title: -score[title])[:most]
    colours = dict(zip(shown, pane.COLOURS, strict=False))
    fastest = fastest_rows(run, subject.device, subject.rows, scope)
    divisor, unit = _flops(max(best.values()), [subject.dtype], scope)

    def kernel_bar(title: str, rate: float, row: Row) -> Bar:
        text = notes.mark_uncertain(run, row, units.number(rate / divisor), scope)
        return bar(rate / divisor, colours[title], title, text, "", row in fastest, sample(run, row, scope))

    entries = []
    for label, problem in best:
        name = "\n".join(filter(None, (clean(label), problem.shape if problem else "")))
        rated = shapes[label, problem]
        entries.append(
            BarGroup(name, tuple(kernel_bar(title, *rated[title]) for title in shown if title in rated))
        )
    keys = [(clean(title), colours[title]) for title in shown]
    below = f"The {len(shown)} of {len(score)} kernels that are fastest most often."
    below = below if len(score) > len(shown) else ""
    yield bar_pane(f"{subject.dtype} GEMM, {subject.where}", below, entries, unit, keys)


_PART_NAMES = {"passes": "kernels", "kernel": "kernels", "waiting": "wait"}
_PART_COLOURS = {
    "map": pane.COLOURS[4], "fill": pane.DARK, "upload": pane.COLOURS[0], "enqueue": pane.COLOURS[7],
    "kernels": pane.COLOURS[2], "wait": pane.GREY, "download": pane.COLOURS[1],
}  # fmt: skip
_NAMED_PART = 0.07  # of the whole: narrower parts have no room for their figure
_DRAWN = 0.2  # per cent: less cannot be seen


def host_parts(runs: Sequence[Run], _: pane.Families) -> Iterator[pane.Pane]:
    """The parts of the host scope, of kernels at one problem or the best at several."""
    for subject in pane.subjects(runs):
        timed = (row for row in subject.rows if (split := derive.split_parts(row.parts)) and split.whole_s)
        rows_of = by_key((row.problem, row) for row in timed if row.problem)
        if not rows_of:
            continue
        several = len(rows_of) > 1
        for same in rows_of.values():
            same.sort(key=lambda row: -(derive.median_rate(row, "host") or 0.0))
        rows = [same[0] for same in rows_of.values()] if several else next(iter(rows_of.values()))
        entries = [
            _parts_bar(clean(f"{row.title}{at}{name}"), split)
            for row in rows
            for at in [f", {clean(row.label) or row.problem.size}" if several and row.problem else ""]
            for name, parts in (("", row.parts), (", map cycle", row.cycle))
            if (split := derive.split_parts(parts))
        ]
        used = {part.name for bar in entries for part in bar.parts if part.length >= _DRAWN}
        below = "the fastest kernel of each size" if several else next(iter(rows_of)).title
        keys = [(name, colour) for name, colour in _PART_COLOURS.items() if name in used]
        title = f"{subject.dtype} GEMM with transfers, {subject.where}"
        yield bar_pane(title, below, entries, "% of the time for one problem", keys)


def _parts_bar(name: str, split: derive.Split) -> Bar:
    """A bar of 100 %: which parts of a host problem take how much of its time."""
    shares: dict[str, float] = {}
    for part in split.seconds:
        shown = _PART_NAMES.get(part, part)
        shares[shown] = shares.get(shown, 0.0) + split.share(part)
    parts = tuple(
        BarPart(100 * share, _PART_COLOURS[part], part, f"{share:.0%}"[:-1] if share >= _NAMED_PART else "")
        for part, share in shares.items()
    )
    whole = units.seconds(split.whole_s) if split.whole_s is not None else ""
    said = ", ".join(f"{part.name} {part.length:.1f} %" for part in parts)
    return Bar(parts, whole, name, said=f"{name}: {said}")


def resource_panes(runs: Sequence[Run], _: pane.Families) -> Iterator[pane.Pane]:
    """Each kernel's work-group at its largest problem, and its limit."""
    for subject in pane.subjects(runs, lambda row: row.kind == "gemm" and bool(row.resources)):
        ascending = sorted(subject.rows, key=lambda row: row.problem.flops if row.problem else 0)
        entries = {row.title: _group_bar(row) for row in ascending}  # the largest problem counts
        title = f"Work-groups, {subject.dtype} GEMM, {subject.where}"
        keys = [("as launched", pane.COLOURS[0]), ("the largest that the kernel allows", pane.GREY)]
        if any(bar.parts[0].colour == pane.COLOURS[1] for bar in entries.values()):
            keys.append(("larger than allowed", pane.COLOURS[1]))
        yield bar_pane(title, "", tuple(entries.values()), "work-items", keys)


def _group_bar(row: Row) -> Bar:
    kernel = next((each for each in row.resources if each.role == "multiply"), row.resources[-1])
    colour = pane.COLOURS[1] if kernel.most < kernel.group else pane.COLOURS[0]
    rest = BarPart(max(0, kernel.most - kernel.group), pane.PALE, "largest")
    registers = f", {kernel.registers} registers" if kernel.registers else ""
    text = f"{kernel.group} of {kernel.most}{registers}"
    return Bar((BarPart(kernel.group, colour, "group"), rest), text, clean(row.title), said=text)
