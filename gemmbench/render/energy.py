"""Energy in tables and below them: joules, GFLOP/J and watts, what drew them, or why they are not known."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from gemmbench.facts import derive, units
from gemmbench.facts.records import Row, Run
from gemmbench.facts.series import Panel, Series
from gemmbench.facts.text import clean
from gemmbench.render.notes import Where, places
from gemmbench.render.sheet import Cell, Note, Sheet

COLUMNS = ("energy", "GFLOP/J")

_LARGEST = (
    "At the largest size: energy of one problem (every pass, no transfers), power over its window, idle "
    "draw before it."
)


def measured(rows: Iterable[Row]) -> bool:
    """Whether any of them has its joules."""
    return any(row.energy.joules is not None for row in rows)


def cells(row: Row) -> tuple[Cell, Cell]:
    """A row's entries in `COLUMNS`."""
    joules, efficiency = row.energy.joules, derive.gflop_per_joule(row)
    empty = "-" if row.status == "ok" else ""
    return (
        Cell(units.joules(joules) if joules is not None else empty),
        Cell(units.number(efficiency) if efficiency is not None else empty),
    )


def sheet(run: Run, panel: Panel, place: Where) -> Sheet | None:
    """GFLOP/J by size, joules and watts at the largest beside them; None if no energy was measured."""
    if not measured(panel.rows):
        return None
    found = {
        (one, size): efficiency
        for one in panel.series
        for size, row in one.rows.items()
        if (efficiency := derive.gflop_per_joule(row)) is not None
    }

    def cell(one: Series, size: int) -> Cell:
        if (one, size) not in found:
            return Cell("-" if size in one.rows else "")
        best = max(value for (_, other), value in found.items() if other == size)
        return Cell(units.number(found[one, size]), found[one, size] == best)

    return Sheet(
        caption=f"{panel.dtype} GFLOP/J over {panel.shape}; * best of its column",
        blocks=(tuple(map(str, panel.sizes)), ("energy", "power", "idle")),
        rows=tuple(
            (Cell(clean(one.label)), *(cell(one, size) for size in panel.sizes), *_draw(one))
            for one in panel.series
        ),
        notes=(
            Note("", _LARGEST, "dim"),
            *remarks(run, panel.rows, place),
        ),
    )


def _draw(one: Series) -> tuple[Cell, Cell, Cell]:
    """Joules of a problem, watts and idle watts, at the largest size that has them."""
    row = next((row for row in reversed(one.rows.values()) if row.energy.joules is not None), None)
    if row is None:
        return Cell("-"), Cell("-"), Cell("-")
    return cells(row)[0], Cell(_watts(derive.watts(row))), Cell(_watts(row.energy.idle_w))


def _watts(power: float | None) -> str:
    return units.watts(power) if power is not None else "-"


def line(run: Run, row: Row, place: Where) -> list[Note]:
    """All about one row's energy in a line; why it has none, if it was asked for."""
    energy, efficiency, power = row.energy, derive.gflop_per_joule(row), derive.watts(row)
    if energy.joules is None:
        return remarks(run, [row], place)
    parts = [f"{units.joules(energy.joules)} for each problem"]
    if efficiency is not None:
        parts.append(f"{units.number(efficiency)} GFLOP/J")
    if power is not None and energy.window_s is not None:
        parts.append(f"{units.watts(power)} over {units.seconds(energy.window_s)}")
    if energy.idle_w is not None:
        parts.append(f"{units.watts(energy.idle_w)} idle before")
    return [Note("energy", f"{', '.join(parts)}; {_source(row)}")]


def remarks(run: Run, rows: Iterable[Row], place: Where) -> list[Note]:
    """What drew the joules, or why there are none, rows alike together; nothing if not asked for."""
    if not run.header.policy.energy:
        return []
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.samples and row.status == "ok":
            groups.setdefault(_source(row), []).append(row)
    if len(groups) == 1:
        return [Note("energy", source, "dim") for source in groups]
    names = Counter(name for mine in groups.values() for name in {row.variant for row in mine})

    def who(mine: list[Row]) -> str:
        if any(names[row.variant] > 1 for row in mine):
            return places(mine, place)
        return ", ".join(dict.fromkeys(clean(row.variant) for row in mine))

    return [Note("energy", f"{who(mine)}: {source}", "dim") for source, mine in groups.items()]


def _source(row: Row) -> str:
    """What drew a row's joules, by which counter, or why they are not known."""
    energy = row.energy
    if energy.joules is None:
        return clean(energy.why)
    counter = f" ({energy.counter})" if energy.counter else ""
    return clean(f"{energy.scope}{counter}, idle draw included")
