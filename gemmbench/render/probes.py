"""``peak --describe``: every microbenchmark in a line, or one of them explained."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from gemmbench.render.picture import Picture


@dataclass(frozen=True)
class ProbeEntry:
    """What is told of a probe."""

    name: str
    family: str
    idea: str
    facts: Mapping[str, str] = field(default_factory=dict)  # what is measured, raced, counted
    pictures: Sequence[str] = ()  # opening comments of its kernels


def probes(entries: Sequence[ProbeEntry], families: Mapping[str, str]) -> RenderableType:
    """Every probe with its idea, by family.

    Args:
        entries: in the order of the tables.
        families: the idea of each.
    """
    parts: list[RenderableType] = []
    width = max((len(entry.name) for entry in entries), default=0) + 2
    for family, idea in families.items():
        if parts:
            parts.append(Text(""))
        grid = Table.grid(padding=(0, 2, 0, 0))
        grid.add_column(no_wrap=True, min_width=width)
        grid.add_column(overflow="fold")
        for entry in entries:
            if entry.family == family:
                grid.add_row(Text(f"  {entry.name}", style="bold"), Text(entry.idea))
        parts += [Text(f"{family}: {idea}", style="dim"), grid]
    return Group(*parts)


def described(entries: Sequence[ProbeEntry]) -> RenderableType:
    """Some probes: idea, what is measured and raced, and the opening pictures of their kernels."""
    parts: list[RenderableType] = []
    for entry in entries:
        parts += [Text("")] * bool(parts) + [_page(entry)]
    return Group(*parts)


def _page(entry: ProbeEntry) -> RenderableType:
    card = Table.grid(padding=(0, 2, 0, 0))
    card.add_column(style="dim", no_wrap=True)
    card.add_column(overflow="fold")
    for name, text in entry.facts.items():
        card.add_row(name, Text(text))
    head = Text(entry.name, style="bold")
    head.append(f"  {entry.family}", style="dim")
    parts: list[RenderableType] = [head, Text(entry.idea), Text(""), card]
    for picture in entry.pictures:
        parts += [Text(""), Picture(picture)]
    return Group(*parts)
