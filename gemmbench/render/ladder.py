"""``kernels``: the ladder, and one of its rungs explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text


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


def ladder(entries: Sequence[LadderEntry]) -> RenderableType:
    """Every variant in the order given, with the idea it adds and what it needs, by family."""
    width = max((len(entry.name) for entry in entries), default=0)
    parts: list[RenderableType] = []
    for family in dict.fromkeys(entry.family for entry in entries):
        if parts:
            parts.append(Text(""))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(style="bold", no_wrap=True, min_width=width)
        grid.add_column(overflow="fold")
        for entry in entries:
            if entry.family == family:
                idea = Text(entry.idea)
                if entry.needs:
                    idea.append(f" (needs {entry.needs})", style="dim")
                grid.add_row(Text(f"  {entry.name}"), idea)
        parts += [Text(family, style="dim"), grid]
    return Group(*parts)


def describe(entry: LadderEntry, picture: str) -> RenderableType:
    """One variant: idea, source, needs, parameters, passes, and the opening picture of its kernel."""
    card = Table.grid(padding=(0, 2, 0, 0))
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    card.add_row("source", Text(entry.source))
    card.add_row("needs", Text(entry.needs or "nothing special"))
    for place, step in enumerate(entry.passes):
        card.add_row("" if place else "passes", Text(f"{place + 1}. {step}"))
    for place, (name, text) in enumerate(entry.parameters.items()):
        card.add_row("" if place else "parameters", Text(f"{name}: {text}"))
    head = Text(entry.name, style="bold")
    head.append(f"  {entry.family}", style="dim")
    parts: list[RenderableType] = [head, Text(entry.idea), Text(""), card]
    if picture:
        drawing = Text(picture.strip("\n"), no_wrap=True, overflow="ignore")
        parts += [Text(""), Padding(drawing, (0, 0, 0, 2), expand=False)]
    return Group(*parts)
