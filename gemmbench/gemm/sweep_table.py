"""The tables of ``square`` and ``sweep-k``: sizes across, variants down, then the conclusion."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.gemm import problem_table
from gemmbench.gemm.problem_table import detail
from gemmbench.ladder import BASELINE, FIRST_RUNG
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import PAGEABLE
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.report import notes
from gemmbench.report.notes import STYLES, WORDS, Where, shape
from gemmbench.report.table import Cell, Note, Picture, Sheet, heading, stack, unbroken
from gemmbench.stats import panels as standing
from gemmbench.stats import rates
from gemmbench.stats.panels import BreakEven, Panel, Series, Setting, Standing, baseline, break_evens, panels


def sweep(
    run: Run, axis: str, scope: str = "kernel", order: Sequence[str] = (), dtype: str | None = None
) -> RenderableType:
    """Sizes across, variants down, a table for each device and type.

    Args:
        run: the run.
        axis: ``m`` for square problems, ``k`` where only k varies.
        scope: ``kernel``, ``device``, ``host``, or ``all`` for a line per row with every scope.
        order: variants in the order of the ladder; others follow.
        dtype: only this type.
    """
    return detail(run, order, dtype) if scope == "all" else stack(sheets(run, axis, scope, order, dtype))


def sheets(
    run: Run, axis: str, scope: str = "kernel", order: Sequence[str] = (), dtype: str | None = None
) -> list[Sheet]:
    """One table of GFLOPS for each device and data type, and one of GFLOP/J; scope is not ``all``."""
    return [
        sheet
        for panel in panels(run, axis, order, dtype)
        for sheet in (
            _sheet(run, panel, scope),
            _versus_sheet(panel, scope),
            problem_table.energy_sheet(run, panel, _place(panel)),
        )
        if sheet
    ]


def _sheet(run: Run, panel: Panel, scope: str) -> Sheet:
    unsuited = notes.unsuited(run, panel.rows)
    panel = replace(panel, series=tuple(each for each in panel.series if each.variant not in unsuited))
    versus = problem_table.versus_name(panel.rows)
    sizes = panel.sizes
    where = _place(panel)
    best = {
        size: max(
            (reached.median for series in panel.series if (reached := _rate(series, size, scope))),
            default=None,
        )
        for size in sizes
    }

    rows = tuple(
        (
            Cell(clean(series.label)),
            *(_cell(run, series, size, scope, best[size]) for size in sizes),
            Cell(_of_peak(run, series, scope)),
            Cell(_host_over_device(series)),
            *([_largest_versus(series, scope)] if versus else []),
        )
        for series in panel.series
    )
    baseline = any(series.is_host for series in panel.series) and panel.device != HOST and scope != "host"
    blas = f"{clean(run.header.host.blas)}, host scope"
    measured = any(value is not None for value in best.values())
    return Sheet(
        heading=heading(run, panel.device, panel.dtype),
        caption=f"{panel.dtype} {rates.unit(panel.dtype)}, {scope} scope, over {panel.shape}; "
        "* best of its column",
        blocks=(
            tuple(str(size) for size in sizes),
            ("of peak", "host/device"),
            *([(versus,)] if versus else []),
        ),
        rows=rows,
        notes=(
            *([Note(BASELINE, blas, "dim")] if baseline else []),
            *notes.not_for(unsuited),
            *notes.troubles(panel.rows, where),
            *notes.noisy(run, panel.rows, where),
            *([] if problem_table.any_joules(panel.rows) else problem_table.remarks(run, panel.rows, where)),
            *notes.choices(panel.rows, where),
            *notes.remarks(panel.rows, where),
            *notes.warnings([run.header.devices[panel.device] if panel.device != HOST else None]),
            *(_conclusion(panel) if measured else []),
        ),
    )


def _versus_sheet(panel: Panel, scope: str) -> Sheet | None:
    """How many times as fast as the kernel of ``--versus``, by size; None without one."""
    name = problem_table.versus_name(panel.rows)
    shown = [each for each in panel.series if any(rates.versus(row, scope) for row in each.rows.values())]
    if not shown:
        return None
    return Sheet(
        caption=f"{name}: times its rate over {panel.shape}, {scope} scope if both have it; "
        "batches in turn, 95 % interval",
        blocks=(tuple(map(str, panel.sizes)),),
        rows=tuple(
            (
                Cell(clean(each.label)),
                *(problem_table.versus_cell(each.rows.get(size), scope) for size in panel.sizes),
            )
            for each in shown
        ),
    )


def _place(panel: Panel) -> Where:
    """A row's place in the tables of a panel: its size."""
    return lambda row: str(getattr(row.problem, panel.axis))


def _rate(series: Series, size: int, scope: str) -> rates.Rate | None:
    return rates.shown_rate(series.rows[size], scope) if size in series.rows else None


def _cell(run: Run, series: Series, size: int, scope: str, best: float | None) -> Cell:
    if size not in series.rows:
        return Cell("")
    row = series.rows[size]
    if row.status != "ok":
        return Cell(WORDS[row.status], style=STYLES[row.status])
    reached = _rate(series, size, scope)
    if reached is None:
        return Cell("-")
    figure = notes.marked(run, row, units.gflops(reached.median))
    return Cell(figure, reached.median == best, "yellow" if rates.is_noisy(row) else "")


def _of_peak(run: Run, series: Series, scope: str) -> str:
    """The fraction at the variant's best size."""
    fractions = [rates.peak_fraction(run, row, scope) for row in series.rows.values()]
    return units.percent(max((value for value in fractions if value is not None), default=float("nan")))


def _host_over_device(series: Series) -> str:
    """What is left of the device's rate, transfers counted, at the largest size that has both."""
    for row in reversed(series.rows.values()):
        host, device = rates.rate(row, "host"), rates.rate(row, "device")
        if host and device:
            return units.number(host.median / device.median)
    return "-"


def _largest_versus(series: Series, scope: str) -> Cell:
    """The ratio to the kernel of ``--versus`` at the largest size that has one."""
    rows = (row for row in reversed(series.rows.values()) if rates.versus(row, scope))
    return problem_table.versus_cell(next(rows, None), scope)


def _conclusion(panel: Panel) -> list[Note]:
    """From which size a kernel beats the host's BLAS: the earliest, and the fastest if that is another."""
    if not panel.sizes or not any(series.is_kernel for series in panel.series):
        return []
    if baseline(panel) is None:
        return [Note("Break-even", f"not known: {BASELINE} was not measured beside the device", "dim")]
    evens = break_evens(panel)
    if not evens:
        return []
    earliest, fastest = evens[0], max(evens, key=lambda even: even.lead)
    if earliest.size is None:
        return [Note("Break-even", f"{_none(evens, panel.axis)}.", "bold")]
    sentences = [_sentence(earliest, panel.axis)]
    if fastest is not earliest and fastest.size is not None:
        sentences.append(_sentence(fastest, panel.axis))
    ordinary = next(iter(break_evens(panel, PAGEABLE)), None)
    if ordinary is not None:
        text = _sentence(ordinary, panel.axis) if ordinary.size else _none((ordinary,), panel.axis)
        sentences.append(f"with arrays in ordinary (pageable) memory: {text}")
    return [Note("Break-even", "; ".join(sentences) + ".", "bold")]


def _none(evens: Sequence[BreakEven], axis: str) -> str:
    """That no kernel passes the host's BLAS, and how close the closest comes."""
    closest, largest = evens[0], max(even.largest for even in evens)
    chance = f" (within the noise perhaps from {axis} = {round(closest.low)})" if closest.low else ""
    return (
        f"none up to {axis} = {largest}; transfers counted, the closest is {clean(closest.kernel.label)}, "
        f"at {units.percent(closest.lead)} of {BASELINE}{chance}"
    )


def _sentence(even: BreakEven, axis: str) -> str:
    """From which size a kernel beats the host's BLAS; the break-even has a size."""
    label, size = clean(even.kernel.label), round(even.size or 0)
    if even.from_start:
        sure = "" if even.high == even.size else ", though within the noise"
        sure = f" ({notes.FEW}: no interval)" if even.is_few else sure
        return f"{label} beats {BASELINE} from the smallest size on ({axis} = {size}){sure}"
    low = round(even.low) if even.low is not None else None
    interval = f"{low} to {round(even.high)}" if even.high else f"{low} or more, the noise leaves it open"
    interval = f"{notes.FEW}: no interval" if even.is_few else interval
    start = unbroken(f"from {axis} = {size}")
    return f"{start} ({interval}) {label} beats {BASELINE}, transfers counted"


# --- ``kernels``: the ladder, one of its rungs explained, and what a saved run says of them -----------------


_NOTHING = Cell("-", style="dim")


@dataclass(frozen=True)
class LadderEntry:
    """What is told of a variant."""

    name: str
    idea: str
    source: str  # where the algorithm comes from
    family: str
    needs: str = ""  # extensions, images, local memory; "" for nothing special
    parameters: Mapping[str, str] = field(default_factory=dict)  # name -> idea, values, presets
    passes: tuple[str, ...] = ()
    needs_of_presets: Mapping[str, str] = field(default_factory=dict)  # where they differ


def ladder(entries: Sequence[LadderEntry], run: Run | None = None) -> RenderableType:
    """Every variant in the order given, by family: its idea and what it needs.

    With a run also what each reached there, in its first device and type, at the largest size that most have:
    GFLOPS, and how many times naive's.
    """
    parts: list[RenderableType] = []
    figures: dict[str, tuple[Cell, Cell]] = {}
    if run:
        measured, figures = _measured(run)
        parts += [measured, Text("")]
    widths = [max((len(entry.name) for entry in entries), default=0) + 2]
    widths += [max(len(cell.plain) for cell in column) for column in zip(*figures.values(), strict=True)]
    for family in dict.fromkeys(entry.family for entry in entries):
        if parts and not isinstance(parts[-1], Text):
            parts.append(Text(""))
        grid = Table.grid(padding=(0, 2, 0, 0))
        for index, width in enumerate(widths):
            grid.add_column(no_wrap=True, min_width=width, justify="right" if index else "left")
        grid.add_column(overflow="fold")
        for entry in entries:
            if entry.family == family:
                cells = figures.get(entry.name, (_NOTHING, _NOTHING)) if figures else ()
                grid.add_row(Text(f"  {entry.name}", style="bold"), *(c.rich() for c in cells), _idea(entry))
        parts += [Text(family, style="dim"), grid]
    return Group(*parts)


def _idea(entry: LadderEntry) -> Text:
    idea = Text(entry.idea)
    if entry.needs:
        idea.append(f" (needs {entry.needs})", style="dim")
    return idea


def _measured(run: Run) -> tuple[Sheet, dict[str, tuple[Cell, Cell]]]:
    """Whose figures the ladder shows, and the figure of each variant."""
    where = next(
        (
            (setting, problem)
            for setting in standing.settings(run)
            if (problem := standing.common_problem(run, setting))
        ),
        None,
    )
    if where is None:
        return Sheet(caption=f"{clean(run.path)} has no measured GEMM row"), {}
    setting, problem = where
    places = standing.standings(run, setting, problem, FIRST_RUNG)
    caption = f"GFLOPS ({setting.dtype}, kernel scope, {problem.title}; * the best) and times {FIRST_RUNG}'s"
    cells = {variant: (_figure(result), _speed_up(result)) for variant, result in places.items()}
    return Sheet(heading=heading(run, setting.device, setting.dtype), caption=caption), cells


def _figure(result: Standing) -> Cell:
    if result.row.status != "ok":
        return Cell(WORDS[result.row.status], style=STYLES[result.row.status])
    return Cell(units.gflops(result.rate.median) if result.rate else "-", best=result.rank == 1)


def _speed_up(result: Standing) -> Cell:
    return Cell(f"x {units.number(result.speedup)}") if result.speedup else _NOTHING


def describe(entry: LadderEntry, picture: str, run: Run | None = None) -> RenderableType:
    """One variant: idea, source, needs, parameters, passes, its place in a run, and its kernel's picture."""
    card = Table.grid(padding=(0, 2, 0, 0))
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    card.add_row("source", Text(entry.source))
    card.add_row("needs", Text(entry.needs or "nothing special"))
    for family, text in entry.needs_of_presets.items():
        card.add_row("", Text(f"{family}: {text}"))
    for index, step in enumerate(entry.passes):
        card.add_row("" if index else "passes", Text(f"{index + 1}. {step}"))
    for index, (name, text) in enumerate(entry.parameters.items()):
        card.add_row("" if index else "parameters", Text(f"{name}: {text}"))
    head = Text(entry.name, style="bold")
    head.append(f"  {entry.family}", style="dim")
    parts: list[RenderableType] = [head, Text(entry.idea), Text(""), card]
    for sheet in _places(entry.name, run) if run else []:
        parts += [Text(""), sheet]
    if picture:
        parts += [Text(""), Picture(picture)]
    return Group(*parts)


def _places(variant: str, run: Run) -> list[Sheet]:
    """A variant's place among the others at every size, a table for each device and type that it ran with."""
    tables = []
    for setting in standing.settings(run):
        lines, scope = [], "kernel"
        for problem in standing.problems(run, setting):
            places = standing.standings(run, setting, problem, FIRST_RUNG)
            if variant in places:
                ranked = sum(result.rank is not None for result in places.values())
                lines.append(_ladder_place(run, places[variant], ranked))
                scope = "host" if places[variant].row.device == HOST else "kernel"
        if lines:
            tables.append(_place_sheet(run, setting, scope, lines))
    return tables or [Sheet(notes=(Note("", f"{clean(run.path)} has no row of {variant}."),))]


def _ladder_place(run: Run, result: Standing, ranked: int) -> tuple[Cell, ...]:
    fraction = rates.peak_fraction(run, result.row)
    return (
        Cell(shape(result.row)),
        Cell(f"{result.rank} of {ranked}" if result.rank else "-", best=result.rank == 1),
        replace(_figure(result), best=False),
        Cell(units.percent(fraction) if fraction is not None and result.rate else "-"),
        Cell(units.number(result.speedup) if result.speedup else "-"),
    )


def _place_sheet(run: Run, setting: Setting, scope: str, lines: Sequence[tuple[Cell, ...]]) -> Sheet:
    return Sheet(
        heading=heading(run, setting.device, setting.dtype),
        caption=f"{setting.dtype}, {scope} scope; rank among the kernels on the device",
        keys=("size",),
        blocks=(("rank", "GFLOPS", "of peak", f"x {FIRST_RUNG}"),),
        rows=tuple(lines),
    )
