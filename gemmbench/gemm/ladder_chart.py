"""Bars and dots for each kernel: the ladder, data types, real shapes, the host scope, work-groups."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.charts.lines import paled
from gemmbench.gemm.sweep_table import part_name
from gemmbench.gemm.workloads import sentences
from gemmbench.ladder import BASELINE
from gemmbench.ladder.variant import LIBRARIES, OWN
from gemmbench.model import units
from gemmbench.model.dtypes import DTYPES, GEMM_DTYPES
from gemmbench.model.row import PARTS, Problem, Resources, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.report.progress import sample
from gemmbench.stats import rates as derive
from gemmbench.stats.panels import Series, Setting, common_problem, series, settings, sweep_axis

_BAR = 0.62
_BEHIND = {"facecolor": "white", "edgecolor": "none", "pad": 1}  # words that lines would cross


@dataclass(frozen=True, eq=False)
class Rungs:
    """What one pane shows: every kernel of one device, and the host's BLAS, at one problem."""

    run: Run
    others: tuple[Run, ...]  # whose peaks count where the run has none
    device: int
    title: str
    dtypes: tuple[str, ...]
    problem: Problem
    rungs: tuple[pane.Rung, ...]
    peaks: dict[str, derive.Peak]  # by data type
    notes: tuple[str, ...]

    @cached_property
    def scope(self) -> str:
        """What the rungs are compared in."""
        return derive.view_scope(self.run)

    @cached_property
    def rates(self) -> dict[tuple[pane.Rung, str], float]:
        """What was measured, in flop/s."""
        rows = ((rung, dtype, row) for rung in self.rungs for dtype, row in rung.rows.items())
        return {(rung, d): rate for rung, d, row in rows if (rate := derive.median_rate(row, self.scope))}

    def best(self, dtype: str) -> float | None:
        """The best rate of those that are compared."""
        rows = (rung.rows.get(dtype) for rung in self.rungs)
        return derive.best_of(derive.compared_rate(self.run, self.device, row, self.scope) for row in rows)

    def pane(self, paint: Callable[..., None], margin: float) -> pane.Pane:
        """A line for each rung and family, and so many inches more."""
        shown = [rung for rung in self.rungs if not rung.is_host or len(self.dtypes) > 1]
        lines = len(shown) + len({rung.family for rung in shown})
        return pane.Pane(margin + pane.ROW * lines, partial(paint, chart=self))


def _rungs(
    subject: pane.Subject,
    runs: Sequence[Run],
    dtypes: tuple[str, ...],
    problem: Problem,
    families: pane.Families,
) -> Rungs:
    """Peaks are the run's own, else those that another of the runs has of the same device."""
    run, device = subject.run, subject.device
    rungs = pane.rungs(run, device, dtypes, problem, families)
    peaks = {dtype: top for dtype in dtypes if (top := derive.peak(run, device, dtype, others=runs))}
    said: list[str] = []
    if lacking := [dtype for dtype in dtypes if dtype not in peaks]:
        said.append(f"The run has no measured peak of {', '.join(lacking)}.")
    said += pane.about_peaks(run, peaks.values())
    if len(dtypes) == 1 and peaks and len(derive.units_used(run, device, dtypes[0])) > 1:
        said.append("Of peak: of the peak of the units that a kernel runs on; the highest is drawn.")
    about = run, tuple(runs), device, subject.title
    return Rungs(*about, dtypes, problem, tuple(rungs), peaks, tuple(said))


def ladder(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """A pane for each run, device and type with two rungs or more at the same problem."""
    panes = []
    for subject in pane.subjects(runs):
        if problem := common_problem(subject.run, Setting(subject.device, subject.dtype)):
            chart = _rungs(subject, runs, (subject.dtype,), problem, families)
            if sum(not rung.is_host for rung, _ in chart.rates) >= 2:
                panes.append(chart.pane(_paint_ladder, 1.9))
    return panes


def _paint_ladder(axes: Axes, chart: Rungs) -> None:
    """Bars over a logarithmic axis of speed-ups, and their figures at the right.

    Each step starts where the rung before ended; families start from the first rung. So does each library,
    and each of the user's own kernels, which have a colour of their own.
    """
    (dtype,) = chart.dtypes
    stands, heads = pane.places([rung for rung in chart.rungs if not rung.is_host])
    rates = {rung: rate for (rung, _), rate in chart.rates.items()}
    base = next(rung for rung in rates if not rung.is_host)
    host, peak, unit = (
        next((rung for rung in rates if rung.is_host), None),
        chart.peaks.get(dtype),
        rates[base],
    )
    top = max(*rates.values(), peak.rate if peak else 0.0)
    divisor, letter = units.scale(top)

    def figures(y: float, rate: float, fraction: Sequence[str], colour: str, bold: bool = False) -> None:
        for column, text in enumerate(
            (f"{units.number(rate / unit)}x", units.number(rate / divisor), *fraction)
        ):
            pane.cell(axes, column, y, text, colour, bold=bold)

    family, before = "", 1.0
    for position in stands:
        rung, row = position.rung, position.rung.rows[dtype]
        if rung.family != family or family in (LIBRARIES, OWN):
            family, before = rung.family, 1.0
        if rung not in rates:
            _no_bar(axes, position.y, row)
            continue
        after = rates[rung] / unit
        _step(axes, position.y, before, after, pane.OWN_COLOUR if family == OWN else "")
        pane.mark(axes, after, position.y, sample(chart.run, row, chart.scope))
        fraction = derive.peak_fraction(chart.run, row, chart.scope, chart.others)
        shown = ["-" if fraction is None else units.percent(fraction)] if peak else []
        figures(position.y, rates[rung], shown, pane.BLACK, rates[rung] == chart.best(dtype))
        before = after
    names, bottom = {position.y: position.rung.label for position in stands}, stands[-1].y
    if peak:
        bottom += 1.4
        names[bottom] = "measured peak"
        axes.barh(bottom, peak.rate / unit - 1, _BAR, 1, color=pane.GREY, label="peak")
        figures(bottom, peak.rate, (), pane.DARK)
    pane.name_rows(axes, names, heads)
    for column, text in enumerate(("speed-up", f"{letter}FLOPS", *(["of peak"] if peak else []))):
        pane.heading(axes, column, text)
    axes.axvline(1, color=pane.DARK, linewidth=0.8)
    name = base.label + ("" if base is chart.rungs[0] else ", the first that was measured")
    lowest = min(rates.values()) / unit
    pane.log_across(axes, lowest, top / unit, f"speed-up over {name}", lambda value: f"{value:,g}x")
    axes.set_ylim(bottom + 1.9, -0.8)
    if host:
        _host_line(axes, rates[host] / unit, f"{host.label}, host: {units.rate(rates[host])}")
    below = (
        f"{dtype}, {chart.scope} scope, {chart.problem.title}; in full colour the step from the rung above"
    )
    keys = [("faster than the rung above", pane.UP), ("slower", pane.DOWN)]
    if any(rung.family == OWN for rung in chart.rungs):
        keys.append((OWN, pane.OWN_COLOUR))
    pane.titles(axes, chart.title, below, tuple(keys))
    pane.footnote(axes, chart.notes)


def _step(axes: Axes, y: float, before: float, after: float, own: str = "") -> None:
    """All of the speed-up pale, the step from the rung before in full colour, by default its direction's."""
    colour = own or (pane.UP if after >= before else pane.DOWN)
    axes.barh(y, after - 1, _BAR, 1, color=paled(colour, 0.75), zorder=2)
    axes.barh(y, after - before, _BAR, before, color=colour, zorder=3, label="step")
    axes.vlines(after, y - _BAR / 2, y + _BAR / 2, color=pane.BLACK, linewidth=1.2, zorder=4)


def _no_bar(axes: Axes, y: float, row: Row) -> None:
    """Why there is none, at the start."""
    text = f"{row.status}: {clean(row.reason)}" if row.reason else row.status
    text = text if len(text) <= 62 else text[:58] + " ..."
    style: dict[str, Any] = {"va": "center_baseline", "fontsize": 7.5, "bbox": _BEHIND, "zorder": 6}
    pane.say(axes, text, (1, y), (4, 0), color=pane.GREY, **style)


def _host_line(axes: Axes, x: float, words: str) -> None:
    """The host's BLAS, named at the bottom on the side that has room."""
    axes.axvline(x, color=pane.BLACK, linewidth=1.3, linestyle=(0, (5, 2.5)), zorder=5, label=BASELINE)
    low, high = axes.get_xlim()
    left = x < (low * high) ** 0.5
    side = "left" if left else "right"
    style: dict[str, Any] = {"ha": side, "va": "bottom", "fontsize": 8, "bbox": pane.OPAQUE, "zorder": 6}
    pane.say(axes, words, (x, 0), (4 if left else -4, 3), pane.BELOW, **style)


# --- Every variant in each data type, beside each type's measured peak --------------------------------------


_SIGNS = {
    "o": "\N{BLACK CIRCLE}",
    "s": "\N{BLACK SQUARE}",
    "^": "\N{BLACK UP-POINTING TRIANGLE}",
    "D": "\N{BLACK DIAMOND}",
    "v": "\N{BLACK DOWN-POINTING TRIANGLE}",
    "P": "\N{HEAVY GREEK CROSS}",
}
_MARKERS = tuple(_SIGNS)
_FEW, _LIFT = 4, 12  # keys that are no longer than the picture; points


def look(dtype: str) -> tuple[str, str]:
    """Colour and marker of a data type, the same in every chart."""
    index = list(dict.fromkeys((*GEMM_DTYPES, *DTYPES))).index(dtype)  # of the first, no two are alike
    again = index // len(pane.COLOURS)  # how many types had the colour before
    return pane.COLOURS[index % len(pane.COLOURS)], _MARKERS[(index + again) % len(_MARKERS)]


def precision(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """A pane for each run and device with two data types or more at the same problem."""
    panes = []
    for subject in pane.subjects(runs, typed=False):
        run, device = subject.run, subject.device
        problem = common_problem(run, *(setting for setting in settings(run) if setting.device == device))
        rows = [row for row in subject.rows if row.problem == problem and row.device == device]
        if problem and len({row.dtype for row in rows if derive.rate(row, "kernel")}) >= 2:
            asked = {row.dtype for row in rows}
            # The narrowest first.
            dtypes = sorted(asked, key=lambda name: (DTYPES[name].itemsize, list(DTYPES).index(name)))
            panes.append(_rungs(subject, runs, tuple(dtypes), problem, families).pane(_paint_types, 1.8))
    return panes


def _paint_types(axes: Axes, chart: Rungs) -> None:
    """A dot for each type over a logarithmic axis, a thin line between them, the figures at the right."""
    stands, heads = pane.places(chart.rungs)
    everything = [*chart.rates.values(), *(peak.rate for peak in chart.peaks.values())]
    divisor, letter = units.scale(max(chart.rates.values()))
    for position in stands:
        rung, y = position.rung, position.y
        if scaled := [rate / divisor for (each, _), rate in chart.rates.items() if each is rung]:
            axes.hlines(y, min(scaled), max(scaled), color=pane.PALE, linewidth=1.5, zorder=2)
        for column, dtype in enumerate(chart.dtypes):
            rate = chart.rates.get((rung, dtype))
            if rate:
                colour, marker = look(dtype)
                axes.plot(
                    [rate / divisor], [y], marker, color=colour, markersize=6, markeredgecolor="white",
                    markeredgewidth=0.6, zorder=3, label=f"{rung.label} {dtype}",
                )  # fmt: skip
                pane.mark(axes, rate / divisor, y, sample(chart.run, rung.rows[dtype], chart.scope))
                is_best = rate == chart.best(dtype)
                pane.cell(axes, column, y, units.number(rate / divisor), pane.DARK, bold=is_best)
            elif dtype in rung.rows:
                status = rung.rows[dtype].status
                pane.cell(axes, column, y, "-" if status == "ok" else status, pane.GREY, small=True)
    names, bottom = {position.y: position.rung.label for position in stands}, stands[-1].y + 1.2
    for dtype, peak in chart.peaks.items():
        colour, _ = look(dtype)
        style: dict[str, Any] = {"color": colour, "linewidth": 1.3, "linestyle": (0, (8, 2, 1.5, 2))}
        axes.axvline(peak.rate / divisor, zorder=1, label=f"{dtype} peak", **style)
        names[bottom] = "measured peak"
        pane.cell(axes, chart.dtypes.index(dtype), bottom, units.number(peak.rate / divisor), colour)
    for column, dtype in enumerate(chart.dtypes):
        pane.heading(axes, column, dtype, look(dtype)[0])
    pane.name_rows(axes, names, heads)
    low, high = min(everything) / divisor, max(everything) / divisor
    pane.log_across(axes, low, high, f"{letter}FLOPS", units.number)
    axes.set_ylim(bottom + 0.8, -0.8)
    below = (
        f"{chart.scope} scope, {chart.problem.title}, {letter}FLOPS; dash-dotted: each type's measured peak"
    )
    keys = tuple((f"{_SIGNS[look(dtype)[1]]} {dtype}", look(dtype)[0]) for dtype in chart.dtypes)
    lift = _LIFT if len(keys) > _FEW else 0  # not into the columns' heads
    pane.titles(axes, chart.title, below, keys, lift)
    pane.footnote(axes, chart.notes)


# --- Real shapes: bars for the fastest variants, shape by shape ---------------------------------------------


_SHAPE_BAR = 0.135  # inches down the page
_MOST_BARS = 84  # in a pane
_MOST_VARIANTS = len(pane.COLOURS)  # beside the host's


@dataclass(frozen=True, eq=False)
class Shapes:
    """What one pane shows: the fastest variants of a device and type, and the host's BLAS, at every shape."""

    subject: pane.Subject
    scope: str
    shapes: tuple[Row, ...]  # a row of each
    shown: tuple[Series, ...]  # rows by the shape's number
    measured: tuple[Series, ...]  # shown or not
    notes: tuple[str, ...]


def workloads(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """A pane for each run, device and type whose problems are no sweep."""
    panes = []
    for subject in pane.subjects(runs):
        gemms = [row for row in subject.run.rows if row.kind == "gemm"]
        if sweep_axis(gemms) or len({row.problem for row in gemms}) < 2:
            continue
        if any(derive.shown_rate(row, "kernel") for row in subject.rows):
            chart = _shapes(subject, families)
            height = 1.6 + _SHAPE_BAR * len(chart.shapes) * (len(chart.shown) + 1)
            panes.append(pane.Pane(height, partial(_paint_shapes, chart=chart)))
    return panes


def _shapes(subject: pane.Subject, families: pane.Families) -> Shapes:
    """Every shape in the order of the run; the variants that win most of them."""
    shapes: dict[tuple[str, Problem | None], Row] = {}
    for row in subject.rows:
        shapes.setdefault((row.label, row.problem), row)
    numbers = {shape: number for number, shape in enumerate(shapes)}
    lines = series(subject.rows, lambda row: numbers[row.label, row.problem], tuple(families))
    has_host = any(line.is_host for line in lines)
    room = max(2, min(_MOST_VARIANTS, _MOST_BARS // len(shapes) - has_host - 1))
    scope = derive.view_scope(subject.run)
    measured = tuple(line for line in lines if any(_rate(line, number, scope) for number in line.rows))
    devices = [line for line in measured if not line.is_host]
    best = sorted(devices, key=lambda line: (not _is_own(line), _standing(line, lines, scope)))[:room]
    shown = tuple(line for line in measured if line in best or line.is_host)
    said = sentences(subject.run, subject.device, subject.dtype)
    for text, known, drawn in (
        ("Not drawn, slower on most shapes", measured, shown),
        ("No figure for any shape", lines, measured),
    ):
        if left_out := [clean(line.label) for line in known if line not in drawn]:
            said.append(f"{text}: {', '.join(left_out)}.")
    return Shapes(subject, scope, tuple(shapes.values()), shown, measured, tuple(said))


def _rate(line: Series, number: int, scope: str) -> float:
    """A rate in flop/s; 0 if there is none."""
    return derive.median_rate(line.rows.get(number), scope) or 0.0


def _is_own(line: Series) -> bool:
    """Whether its rows are of a kernel of the user's own, which is always shown."""
    return any(row.own for row in line.rows.values())


def _standing(line: Series, lines: Sequence[Series], scope: str) -> tuple[int, float]:
    """Sorts the variants: most shapes won first, then the smallest distance from the best, summed."""
    wins, lost = 0, 0.0
    for number in line.rows:
        best = max(_rate(other, number, scope) for other in lines if not other.is_host)
        wins += best > 0 and _rate(line, number, scope) == best
        lost += 1 - _rate(line, number, scope) / best if best else 0.0
    return -wins, lost


def _paint_shapes(axes: Axes, chart: Shapes) -> None:
    """Bars from zero, their figures at the ends, the best of each shape in bold."""
    count, run, scope = len(chart.shown), chart.subject.run, chart.scope
    device = [line for line in chart.shown if not line.is_host]
    device.sort(key=_is_own)  # the others keep their colours beside them
    colours = {line: pane.DARK if line.is_host else pane.COLOURS[device.index(line)] for line in chart.shown}
    colours |= {line: pane.OWN_COLOUR for line in device if _is_own(line)}
    top = max(_rate(line, n, scope) for line in chart.shown for n in line.rows)
    divisor, letter = units.scale(top)
    for n in range(len(chart.shapes)):
        best = derive.best_of(
            derive.compared_rate(run, chart.subject.device, line.rows.get(n), scope)
            for line in chart.measured
        )
        for y, line in enumerate(chart.shown, n * (count + 1)):
            rate, row = _rate(line, n, scope), line.rows.get(n)
            axes.barh(y, rate / divisor, 0.86, color=colours[line], label=clean(line.label))
            if row is None:
                continue
            style: dict[str, Any] = {"fontweight": "bold"} if rate and rate == best else {}
            text, colour = (units.number(rate / divisor), pane.DARK) if rate else (row.status, pane.GREY)
            at = (rate / divisor, y)
            pane.say(axes, text, at, (3, 0), va="center_baseline", fontsize=6.5, color=colour, **style)
            pane.mark(axes, *at, sample(run, row, scope))
    middles = [n * (count + 1) + (count - 1) / 2 for n in range(len(chart.shapes))]
    axes.set_yticks(middles, [_name(row) for row in chart.shapes], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(len(chart.shapes) * (count + 1) - 0.5, -1)
    axes.set_xlim(0, top / divisor * 1.1)
    pane.tick_texts(axes.xaxis, units.number)
    axes.set_xlabel(f"{letter}FLOPS")
    axes.grid(False, axis="y")
    keys = tuple(
        (clean(line.label) + (", host" if line.is_host else ""), colours[line]) for line in chart.shown
    )
    below = f"{chart.subject.dtype}, {scope} scope; the fastest of each shape in bold"
    pane.titles(axes, chart.subject.title, below, keys)
    pane.footnote(axes, chart.notes)


def _name(row: Row) -> str:
    """A shape for people: its label above m x n x k."""
    assert row.problem is not None  # a gemm row has one
    return f"{clean(row.label)}\n{row.problem.shape}" if row.label else row.problem.shape


# --- Where the time of the host scope goes: a stacked bar for each kernel, or for each size -----------------


_NAMED_PART = 0.07  # of the whole: narrower parts have no room for their figure
_PART_COLOURS = dict(zip(PARTS, (
    pane.COLOURS[5], pane.DARK, pane.COLOURS[0], pane.COLOURS[4], pane.COLOURS[3], pane.COLOURS[2], pane.GREY,
    pane.COLOURS[1],
), strict=True))  # fmt: skip


def host_parts(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """A pane for each run, device and type whose host scope was timed by part.

    Of one problem every kernel has a bar; of several, the fastest in the host scope at each. A map cycle has
    a bar of its own below.
    """
    panes = []
    for subject in pane.subjects(runs):
        timed = (row for row in subject.rows if (split := derive.split(row.parts)) and split.whole_s)
        rows_of = by_key((row.problem, row) for row in timed if row.problem)
        several, rows = len(rows_of) > 1, [row for rows in rows_of.values() for row in rows]
        if several:
            rows = [
                max(rows, key=lambda row: derive.median_rate(row, "host") or 0) for rows in rows_of.values()
            ]
        bars: dict[int, tuple[str, derive.Split]] = {}
        for row in rows:
            at = f" {row.label or row.problem.size}" if several and row.problem else ""
            for name, parts in ((f"{row.title}{at}", row.parts), ("map cycle", row.cycle)):
                if split := derive.split(parts):
                    bars[len(bars)] = clean(name), split
        if bars:
            head = f"{subject.dtype}, host scope" + ("" if several else f", {next(iter(rows_of)).title}")
            paint = partial(_paint_parts, title=subject.title, head=head, bars=bars)
            panes.append(pane.Pane(1.6 + 1.4 * pane.ROW * len(bars), paint))
    return panes


def _paint_parts(axes: Axes, title: str, head: str, bars: dict[int, tuple[str, derive.Split]]) -> None:
    """Parts in their order as fractions of the whole, which stands at the right."""
    for y, (_, split) in bars.items():
        left = 0.0
        for name in split.seconds:
            share = 100 * split.share(name)
            axes.barh(y, share, _BAR, left, color=_PART_COLOURS[name], label=name)
            said = f"{part_name(split, name)}: {units.seconds(split.seconds[name])}, {share:.1f} %"
            pane.mark(axes, left + share / 2, y, said)
            if share >= 100 * _NAMED_PART:
                style: dict[str, Any] = {"ha": "center", "va": "center_baseline", "fontsize": 7.5}
                colour = pane.BLACK if name == "map" else "white"
                pane.say(axes, f"{share:.0f} %", (left + share / 2, y), color=colour, **style)
            left += share
        pane.cell(axes, 0, y, units.seconds(split.whole_s) if split.whole_s is not None else "-", pane.DARK)
    pane.heading(axes, 0, "whole")
    pane.name_rows(axes, {y: name for y, (name, _) in bars.items()}, {})
    axes.set_ylim(len(bars) - 0.4, -0.7)
    axes.set_xlim(0, max(100.0, *(100 * sum(map(split.share, split.seconds)) for _, split in bars.values())))
    axes.grid(False, axis="y")
    axes.set_xlabel("% of the whole")
    used = dict.fromkeys(name for name in PARTS for _, split in bars.values() if name in split.seconds)
    spoken = {name: next(part_name(s, name) for _, s in bars.values() if name in s.seconds) for name in used}
    keys = tuple((spoken[name], _PART_COLOURS[name]) for name in used)
    pane.titles(axes, title, f"{head}; of the problem that took the median time", keys)
    pane.footnote(axes, [f"{name}: {split.doubt}." for name, split in bars.values() if split.doubt])


# --- what kernels take: work-groups and registers ---

_FITS, _TIGHT = pane.COLOURS[0], pane.COLOURS[1]


def resource_panes(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """A pane for each device and data type whose rows have the resources of their kernels."""
    result = []
    for subject in pane.subjects(runs, lambda row: row.kind == "gemm" and bool(row.resources)):
        kernels = {row.title: row.resources[-1] for row in subject.rows}
        # The largest problem counts.
        for row in sorted(subject.rows, key=lambda row: row.problem.flops if row.problem else 0):
            multiply = (each for each in row.resources if each.role == "multiply")
            kernels[row.title] = next(multiply, row.resources[-1])
        paint = partial(_paint_groups, title=subject.title, dtype=subject.dtype, kernels=kernels)
        result.append(pane.Pane(1.5 + pane.ROW * len(kernels), paint))
    return result


def _paint_groups(axes: Axes, title: str, dtype: str, kernels: Mapping[str, Resources]) -> None:
    """A line for each kernel: its work-group, and the largest that the built kernel can have."""
    names: dict[float, str] = {}
    for y, (name, kernel) in enumerate(kernels.items()):
        tight = kernel.most < kernel.group
        axes.plot([kernel.group, kernel.most], [y, y], color=pane.PALE, linewidth=3, zorder=1)
        axes.plot(kernel.most, y, "|", color=pane.DARK, markersize=9, markeredgewidth=2)
        axes.plot(kernel.group, y, "o", color=_TIGHT if tight else _FITS)
        names[y] = clean(name) + (f" ({kernel.registers})" if kernel.registers else "")
        said = f"{clean(name)}: work-groups of {kernel.group}, of {kernel.most} at most"
        pane.mark(axes, kernel.group, y, said)
    axes.set_ylim(len(kernels) - 0.4, -0.6)
    pane.name_rows(axes, names, {})
    low, high = min(each.group for each in kernels.values()), max(each.most for each in kernels.values())
    pane.log_across(axes, low, high, "work-items of a group", lambda value: f"{value:.0f}")
    below = f"{dtype}: the largest work-group of a kernel as built"
    below += "; in brackets its registers" if any(each.registers for each in kernels.values()) else ""
    pane.titles(axes, title, below, [("o as launched", _FITS), ("| the largest", pane.DARK)])
