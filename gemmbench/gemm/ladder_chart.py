"""Bars for each kernel: the ladder, data types, real shapes, the host scope, work-groups."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes

from gemmbench.charts import pane
from gemmbench.charts.marks import Bar, BarPart, Group, bars_height, draw_bars, looks
from gemmbench.gemm.sweep_table import SCOPE_WORDS
from gemmbench.ladder.variant import LIBRARIES, OWN
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.dtypes import DTYPES, GEMM_DTYPES
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.report.progress import sample
from gemmbench.stats import rates as derive
from gemmbench.stats.panels import Setting, Standing, common_problem, settings, standings, sweep_axis


def _pane(
    title: str, below: str, entries: Sequence[Bar | Group], unit: str, keys: Sequence[tuple[str, str]] = ()
) -> pane.Pane:
    """A pane of bars with its title, and what the colours mean."""

    def paint(axes: Axes) -> None:
        draw_bars(axes, entries, unit)
        pane.titles(axes, title, below, keys)

    return pane.Pane(bars_height(entries) + (0.2 if below else 0) + (0.2 if keys else 0), paint)


def _flops(largest: float, dtypes: Sequence[str], scope: str) -> tuple[float, str]:
    divisor, letter = units.scale(largest)
    unit = "IOPS" if all(map(derive.is_integer, dtypes)) else "FLOPS"
    mixed = f" ({letter}IOPS of integers)" if unit == "FLOPS" and any(map(derive.is_integer, dtypes)) else ""
    return divisor, f"{letter}{unit}{mixed} {SCOPE_WORDS[scope]}"


def _ranked(run: Run, setting: Setting, problem: Problem | None) -> dict[str, Standing]:
    """Those that take part in the comparison, by name, the fastest first."""
    ranked = [each for each in standings(run, setting, problem).values() if each.rank] if problem else []
    return {each.row.title: each for each in sorted(ranked, key=lambda each: each.rank or 0)}


_FAMILIES = {LIBRARIES: pane.DARK, OWN: pane.OWN_COLOUR}  # other kernels are blue


def ladder(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """A pane for each run, device and type: the kernels at one problem, the fastest first."""
    drawn = []
    for subject in pane.subjects(runs):
        run, setting = subject.run, Setting(subject.device, subject.dtype)
        problem = common_problem(run, setting)
        ranked = _ranked(run, setting, problem)
        if problem is None or sum(each.row.device != HOST for each in ranked.values()) < 2:
            continue
        scope, peak = derive.view_scope(run), derive.peak(run, subject.device, subject.dtype, others=runs)
        top = max(each.rate.median for each in ranked.values() if each.rate)
        divisor, unit = _flops(top, [subject.dtype], scope)
        entries = []
        if peak:
            part = BarPart(peak.rate / divisor, pane.PALE, "peak")
            entries.append(Bar((part,), units.number(peak.rate / divisor), "measured peak"))
        for name, each in ranked.items():
            assert each.rate is not None  # it has a rank
            fraction = derive.peak_fraction(run, each.row, scope, runs)
            family = families.get(each.row.variant, "")
            colour = _FAMILIES.get(family, pane.COLOURS[0])
            value = each.rate.median / divisor
            text = units.number(value) + (f"   {units.percent(fraction)}" if fraction is not None else "")
            part = BarPart(value, colour, name)
            said = sample(run, each.row, scope)
            entries.append(Bar((part,), text, clean(name), each.rank == 1, said))
        below = f"{problem.title}; per cent of the measured peak" if peak else problem.title
        used = {families.get(each.row.variant) for each in ranked.values()}
        keys = [(family, colour) for family, colour in _FAMILIES.items() if family in used]
        drawn.append(_pane(f"{subject.dtype} GEMM, {subject.where}", below, entries, unit, keys))
    return drawn


def colour_of(dtype: str) -> str:
    """The colour of a data type, the same in every chart."""
    index = list(dict.fromkeys((*GEMM_DTYPES, *DTYPES))).index(dtype)
    return pane.COLOURS[index % len(pane.COLOURS)]


def precision(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """A pane for each run and device with two data types or more at the same problem."""
    drawn = []
    for subject in pane.subjects(runs, typed=False):
        run, device, scope = subject.run, subject.device, derive.view_scope(subject.run)
        own = [setting for setting in settings(run) if setting.device == device]
        problem = common_problem(run, *own)
        ranked = {each.dtype: _ranked(run, each, problem) for each in own}
        ranked = {dtype: kernels for dtype, kernels in ranked.items() if kernels}
        if problem is None or len(ranked) < 2:
            continue
        # The narrowest first.
        dtypes = sorted(ranked, key=lambda name: (DTYPES[name].itemsize, list(DTYPES).index(name)))
        peaks = {d: top.rate for d in dtypes if (top := derive.peak(run, device, d, others=runs))}
        best: dict[str, float] = {}
        variants: dict[str, str] = {}
        for kernels in ranked.values():
            for name, each in kernels.items():
                best[name] = max(best.get(name, 0.0), each.rate.median if each.rate else 0.0)
                variants[name] = each.row.variant
        divisor, unit = _flops(max(best.values()), dtypes, scope)
        chosen = looks(best, variants, families)
        entries = []
        if peaks and max(best.values()) > pane.NEAR * max(peaks.values()):
            entries.append(Group("measured peak", tuple(_typed(d, peaks[d] / divisor) for d in peaks)))
        for name in sorted(chosen, key=lambda name: -best[name]):
            group = [
                _typed(d, kernel.rate.median / divisor, kernel.rank == 1, sample(run, kernel.row, scope))
                for d in dtypes
                if (kernel := ranked[d].get(name)) and kernel.rate
            ]
            entries.append(Group(clean(name), tuple(group)))
        below = f"{problem.title}; the best of each type in bold"
        keys = [(dtype, colour_of(dtype)) for dtype in dtypes]
        drawn.append(_pane(f"GEMM by data type, {subject.where}", below, entries, unit, keys))
    return drawn


def _typed(dtype: str, value: float, is_best: bool = False, said: str = "") -> Bar:
    return Bar((BarPart(value, colour_of(dtype), dtype),), units.number(value), "", is_best, said)


# --- Real shapes: bars for the fastest variants, shape by shape ---------------------------------------------

_MOST_BARS = 60  # in a pane
_MOST_VARIANTS = 5


def workloads(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """A pane for each run, device and type whose problems are no sweep: the kernels that win most shapes."""
    drawn = []
    for subject in pane.subjects(runs):
        gemms = [row for row in subject.run.rows if row.kind == "gemm"]
        if not sweep_axis(gemms) and len({row.problem for row in gemms}) > 1:
            drawn += _workloads(subject)
    return drawn


def _workloads(subject: pane.PaneSubject) -> list[pane.Pane]:
    """A group of bars for each shape, in the scope that the kernels are ranked in."""
    run, scope = subject.run, derive.view_scope(subject.run)
    shapes: dict[tuple[str, Problem | None], dict[str, tuple[float, Row]]] = {}
    for row in sorted(subject.rows, key=lambda row: derive.median_rate(row, scope) or 0.0):
        rates = shapes.setdefault((row.label, row.problem), {})
        if rate := derive.compared_rate(run, subject.device, row, scope):
            rates[row.title] = (rate, row)
    in_order = dict.fromkeys(
        (row.label, row.problem) for row in subject.rows if shapes[row.label, row.problem]
    )
    best = {shape: max(rate for rate, _ in shapes[shape].values()) for shape in in_order}
    if not best:
        return []
    score: dict[str, float] = {}  # shapes won; of equals the kernel that is closer to the best on the others
    for shape, top in best.items():
        for title, (rate, _) in shapes[shape].items():
            score[title] = score.get(title, 0.0) + (rate == top) + rate / top / (len(best) + 1)
    shown = sorted(score, key=lambda title: -score[title])[
        : max(2, min(_MOST_VARIANTS, _MOST_BARS // len(best)))
    ]
    colours = dict(zip(shown, pane.COLOURS, strict=False))
    divisor, unit = _flops(max(best.values()), [subject.dtype], scope)

    def bar(shape: tuple[str, Problem | None], title: str) -> Bar:
        rate, row = shapes[shape][title]
        part = BarPart(rate / divisor, colours[title], title)
        return Bar((part,), units.number(part.length), "", rate == best[shape], sample(run, row, scope))

    entries = []
    for shape in best:
        label, problem = shape
        name = "\n".join(filter(None, (clean(label), problem.shape if problem else "")))
        entries.append(Group(name, tuple(bar(shape, title) for title in shown if title in shapes[shape])))
    keys = [(clean(title), colours[title]) for title in shown]
    below = (
        f"The {len(shown)} of {len(score)} kernels that are fastest most often."
        if len(score) > len(shown)
        else ""
    )
    return [_pane(f"{subject.dtype} GEMM, {subject.where}", below, entries, unit, keys)]


# --- Where the time of the host scope goes: a bar for each kernel, or for each size -------------------------

_PART_NAMES = {"passes": "kernels", "kernel": "kernels", "waiting": "wait"}
_PART_COLOURS = {
    "map": pane.COLOURS[4], "fill": pane.DARK, "upload": pane.COLOURS[0], "enqueue": pane.COLOURS[7],
    "kernels": pane.COLOURS[2], "wait": pane.GREY, "download": pane.COLOURS[1],
}  # fmt: skip
_NAMED_PART = 0.07  # of the whole: narrower parts have no room for their figure
_DRAWN = 0.2  # per cent: less cannot be seen


def host_parts(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """A pane for each run, device and type whose host scope was timed by part.

    Of one problem every kernel has a bar; of several, the fastest in the host scope at each. A map cycle has
    a bar of its own below.
    """
    drawn = []
    for subject in pane.subjects(runs):
        timed = (row for row in subject.rows if (split := derive.split(row.parts)) and split.whole_s)
        rows_of = by_key((row.problem, row) for row in timed if row.problem)
        if not rows_of:
            continue
        several = len(rows_of) > 1
        rows = sorted(next(iter(rows_of.values())), key=lambda row: -(derive.median_rate(row, "host") or 0.0))
        if several:
            rows = [
                max(same, key=lambda row: derive.median_rate(row, "host") or 0) for same in rows_of.values()
            ]
        entries = [
            _parts_bar(clean(f"{row.title}{at}{name}"), split)
            for row in rows
            for at in [f", {clean(row.label) or row.problem.size}" if several and row.problem else ""]
            for name, parts in (("", row.parts), (", map cycle", row.cycle))
            if (split := derive.split(parts))
        ]
        used = {part.name for bar in entries for part in bar.parts if part.length >= _DRAWN}
        below = "the fastest kernel of each size" if several else next(iter(rows_of)).title
        keys = [(name, colour) for name, colour in _PART_COLOURS.items() if name in used]
        title = f"{subject.dtype} GEMM with transfers, {subject.where}"
        drawn.append(_pane(title, below, entries, "% of the time for one problem", keys))
    return drawn


def _parts_bar(name: str, split: derive.Split) -> Bar:
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


# --- what kernels take: work-groups and registers ---


def resource_panes(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """A pane for each device and type: work-groups as launched, and the largest that each kernel allows."""
    drawn = []
    for subject in pane.subjects(runs, lambda row: row.kind == "gemm" and bool(row.resources)):
        entries = {}
        # The largest problem counts.
        for row in sorted(subject.rows, key=lambda row: row.problem.flops if row.problem else 0):
            entries[row.title] = _group_bar(row)
        title = f"Work-groups, {subject.dtype} GEMM, {subject.where}"
        keys = [("as launched", pane.COLOURS[0]), ("the largest that the kernel allows", pane.GREY)]
        if any(bar.parts[0].colour == pane.COLOURS[1] for bar in entries.values()):
            keys.append(("larger than allowed", pane.COLOURS[1]))
        drawn.append(_pane(title, "", tuple(entries.values()), "work-items", keys))
    return drawn


def _group_bar(row: Row) -> Bar:
    kernel = next((each for each in row.resources if each.role == "multiply"), row.resources[-1])
    colour = pane.COLOURS[1] if kernel.most < kernel.group else pane.COLOURS[0]
    rest = BarPart(max(0, kernel.most - kernel.group), pane.PALE, "largest")
    text = f"{kernel.group} of {kernel.most}" + (
        f", {kernel.registers} registers" if kernel.registers else ""
    )
    return Bar((BarPart(kernel.group, colour, "group"), rest), text, clean(row.title), said=text)
