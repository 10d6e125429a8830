"""``kernels``: the ladder, one of its rungs explained, and what a saved run says of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.facts import derive, standing, units
from gemmbench.facts.records import Run
from gemmbench.facts.series import HOST
from gemmbench.facts.standing import Setting, Standing
from gemmbench.facts.text import clean
from gemmbench.render.detail import shape
from gemmbench.render.heading import heading
from gemmbench.render.notes import STYLES, WORDS
from gemmbench.render.picture import Picture
from gemmbench.render.sheet import Cell, Note, Sheet
from gemmbench.rules.variants import FIRST_RUNG

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
        for place, width in enumerate(widths):
            grid.add_column(no_wrap=True, min_width=width, justify="right" if place else "left")
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
    cells = {variant: (_figure(place), _speed_up(place)) for variant, place in places.items()}
    return Sheet(heading=heading(run, setting.device, setting.dtype), caption=caption), cells


def _figure(place: Standing) -> Cell:
    if place.row.status != "ok":
        return Cell(WORDS[place.row.status], style=STYLES[place.row.status])
    return Cell(units.gflops(place.rate.median) if place.rate else "-", best=place.rank == 1)


def _speed_up(place: Standing) -> Cell:
    return Cell(f"x {units.number(place.speedup)}") if place.speedup else _NOTHING


def describe(entry: LadderEntry, picture: str, run: Run | None = None) -> RenderableType:
    """One variant: idea, source, needs, parameters, passes, its place in a run, and its kernel's picture."""
    card = Table.grid(padding=(0, 2, 0, 0))
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    card.add_row("source", Text(entry.source))
    card.add_row("needs", Text(entry.needs or "nothing special"))
    for family, text in entry.needs_of_presets.items():
        card.add_row("", Text(f"{family}: {text}"))
    for place, step in enumerate(entry.passes):
        card.add_row("" if place else "passes", Text(f"{place + 1}. {step}"))
    for place, (name, text) in enumerate(entry.parameters.items()):
        card.add_row("" if place else "parameters", Text(f"{name}: {text}"))
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
    found = []
    for setting in standing.settings(run):
        lines, scope = [], "kernel"
        for problem in standing.problems(run, setting):
            places = standing.standings(run, setting, problem, FIRST_RUNG)
            if variant in places:
                ranked = sum(place.rank is not None for place in places.values())
                lines.append(_place(run, places[variant], ranked))
                scope = "host" if places[variant].row.device == HOST else "kernel"
        if lines:
            found.append(_place_sheet(run, setting, scope, lines))
    return found or [Sheet(notes=(Note("", f"{clean(run.path)} has no row of {variant}."),))]


def _place(run: Run, place: Standing, ranked: int) -> tuple[Cell, ...]:
    fraction = derive.peak_fraction(run, place.row)
    return (
        Cell(shape(place.row)),
        Cell(f"{place.rank} of {ranked}" if place.rank else "-", best=place.rank == 1),
        replace(_figure(place), best=False),
        Cell(units.percent(fraction) if fraction is not None and place.rate else "-"),
        Cell(units.number(place.speedup) if place.speedup else "-"),
    )


def _place_sheet(run: Run, setting: Setting, scope: str, lines: Sequence[tuple[Cell, ...]]) -> Sheet:
    return Sheet(
        heading=heading(run, setting.device, setting.dtype),
        caption=f"{setting.dtype}, {scope} scope; rank among the kernels on the device",
        keys=("size",),
        blocks=(("rank", "GFLOPS", "of peak", f"x {FIRST_RUNG}"),),
        rows=tuple(lines),
    )
