"""Every figure of every row: the verbose table."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Iterable, Sequence

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gemmbench.ladder import AUTO
from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import PAGEABLE, PARTS, SCOPES, Check, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, clean_lines, listed
from gemmbench.report import notes
from gemmbench.report.notes import STYLES, WORDS, Where, places, shape
from gemmbench.report.table import Cell, Note, Sheet, heading, stack
from gemmbench.stats import rates
from gemmbench.stats.panels import Panel, Series


def detail(run: Run, order: Sequence[str] = (), dtype: str | None = None) -> RenderableType:
    """A line for each GEMM row: three scopes in GFLOPS, fraction of peak, noise, status; parameters below."""
    return stack(sheets(run, order, dtype))


def sheets(run: Run, order: Sequence[str] = (), dtype: str | None = None) -> list[Sheet]:
    """One line for each GEMM row, in tables by device and data type; the host's rows with each device."""
    rows = [row for row in run.rows if row.kind == "gemm" and dtype in (None, row.dtype)]
    rank = {name: position for position, name in enumerate(order)}
    tables = []
    for device in sorted({row.device for row in rows if row.device != HOST}) or [HOST]:
        for name in dict.fromkeys(row.dtype for row in rows):
            own_rows = [row for row in rows if row.dtype == name and row.device in (device, HOST)]
            if own_rows:
                own_rows.sort(key=lambda row: (row.device == HOST, rank.get(row.variant, len(rank))))
                tables.append(_sheet(run, device, name, own_rows))
    return tables


def _sheet(run: Run, device: int, dtype: str, rows: Sequence[Row]) -> Sheet:
    best = {
        (row.problem, scope): max(
            (
                reached.median
                for other in rows
                if other.problem == row.problem and (reached := rates.rate(other, scope))
            ),
            default=None,
        )
        for row in rows
        for scope in SCOPES
    }

    def figure(row: Row, scope: str) -> Cell:
        reached = rates.rate(row, scope)
        if reached is None:
            return Cell("-" if row.status == "ok" else "", style="dim")
        figure = notes.marked(run, row, units.gflops(reached.median))
        return Cell(figure, reached.median == best[row.problem, scope])

    has_energy, versus = any_joules(rows), [name for name in [versus_name(rows)] if name]

    def line(row: Row) -> tuple[Cell, ...]:
        fraction = rates.peak_fraction(run, row)
        return (
            Cell(clean(row.variant)),
            Cell(f"{clean(row.label or row.phase)} {shape(row)}".strip()),
            *(figure(row, scope) for scope in SCOPES),
            Cell(units.percent(fraction) if fraction is not None else "-"),
            notes.noise_cell(row),
            *([versus_cell(row, "kernel")] if versus else []),
            *(cells(row) if has_energy else ()),
            Cell(WORDS[row.status], style=STYLES[row.status]),
        )

    return Sheet(
        heading=heading(run, device, dtype),
        caption=f"{dtype} {rates.unit(dtype)} by scope; * best of its problem",
        keys=("", "size"),
        blocks=(SCOPES, ("of peak", "noise", *versus, *(COLUMNS if has_energy else ()), "status")),
        rows=tuple(map(line, rows)),
        left=frozenset({"status"}),
        notes=(
            *(
                Note(f"{clean(row.variant)} at {shape(row)}", f"took {notes.selected(row)}", "dim")
                for row in rows
                if row.variant == AUTO and row.choice
            ),
            *_parameters(rows),
            *notes.troubles(rows, shape),
            *notes.noisy(run, rows, shape),
            *remarks(run, rows, shape),
            *notes.remarks(rows, shape),
            *notes.warnings([run.header.devices[device] if device != HOST else None]),
        ),
    )


def versus_name(rows: Iterable[Row]) -> str:
    """The kernel that rows were timed in turn with, as a heading: ``x tiled``; "" if they were not."""
    return next((f"x {clean(row.former.variant)}" for row in rows if row.former and row.former.variant), "")


def versus_cell(row: Row | None, scope: str) -> Cell:
    """A row's rate over that of the other kernel, and its interval: ``1.07 [1.05, 1.09]``."""
    against = rates.versus(row, scope) if row else None
    if against is None:
        return Cell("")
    figure = units.number(against.median)
    if math.isnan(against.low):
        return Cell(f"{figure} few", style="yellow")
    return Cell(f"{figure} [{units.number(against.low)}, {units.number(against.high)}]")


def _parameters(rows: Sequence[Row]) -> list[Note]:
    """What each variant ran with, once if it is the same for all its rows."""
    groups: dict[tuple[str, str], list[Row]] = {}
    for row in rows:
        text = listed({**row.parameters, **notes.settled(row)})
        if text:
            groups.setdefault((row.variant, text), []).append(row)
    several = {variant for variant, _ in groups if sum(variant == other for other, _ in groups) > 1}
    return [
        Note(notes.places(alike, shape) if variant in several else clean(variant), text, "dim")
        for (variant, text), alike in groups.items()
    ]


# --- ``gemm``: everything that was measured of one problem --------------------------------------------------


def gemm(run: Run) -> RenderableType:
    """Single problems, a page for each variant: scopes, launches, verification, parameters."""
    pages: list[RenderableType] = []
    above: tuple[object, ...] = ()
    gemms = [row for row in run.rows if row.kind == "gemm" and row.problem]
    # By device and type, which is what a heading is of.
    unsuited = {
        subject: notes.unsuited(run, [row for row in gemms if (row.device, row.dtype) == subject])
        for subject in dict.fromkeys((row.device, row.dtype) for row in gemms)
    }
    for row in gemms:
        if row.variant in unsuited[row.device, row.dtype]:
            continue
        if pages:
            pages.append(Text(""))
        subject = (row.device, row.dtype, row.problem)
        if subject != above:
            above = subject
            problem = row.problem
            assert problem is not None
            dimensions = f"m = {problem.m}, n = {problem.n}, k = {problem.k}"
            about = f"C = {problem.alpha:g} A B + {problem.beta:g} C, {row.dtype}, {dimensions}"
            pages += [Sheet(heading=heading(run, row.device, row.dtype), caption=about), Text("")]
        pages.append(_page(run, row))
    remarks = [
        *notes.not_for({name: what for each in unsuited.values() for name, what in each.items()}),
        *notes.warnings(run.header.devices),
    ]
    if remarks:
        pages += [Text(""), Sheet(notes=tuple(remarks))]
    return Group(*pages)


def _page(run: Run, row: Row) -> RenderableType:
    reached = rates.shown_rate(row, "kernel")
    figure = units.rate(reached.median, rates.is_integer(row.dtype)) if reached else WORDS[row.status]
    parts: list[RenderableType] = []
    if row.samples:
        parts += [_scopes(run, row), Text("")]
    if row.parts:
        parts += [_parts(row), Text("")]
    if row.launches:
        parts += [_launches(row), Text("")]
    parts.append(Sheet(notes=tuple(_facts(run, row))))
    title = Text(f"{clean(row.variant)}: {figure}", style="bold")
    return Group(
        title,
        *(part if isinstance(part, Text) else Padding(part, (0, 0, 0, 2), expand=False) for part in parts),
    )


def _scopes(run: Run, row: Row) -> Sheet:
    lines = []
    for scope in (*SCOPES, PAGEABLE):
        times = rates.summary(row, scope)
        if times is None:
            continue
        reached, fraction = rates.rate(row, scope), rates.peak_fraction(run, row, scope)
        interval = f"{units.seconds(times.low)} to {units.seconds(times.high)}"
        lines.append(
            (
                Cell("host, pageable" if scope == PAGEABLE else scope),
                Cell(units.gflops(reached.median) if reached else "-"),
                Cell(units.percent(fraction) if reached and fraction is not None else "-"),
                Cell(units.seconds(times.median)),
                Cell(notes.FEW if times.is_few else interval),
                Cell(units.seconds(times.minimum)),
                Cell(str(times.n)),
                Cell(clean(row.samples[scope].stop)),
            )
        )
    return Sheet(
        keys=("scope",),
        blocks=((rates.unit(row.dtype), "of peak", "median"), ("95 % interval", "best", "n", "stop")),
        rows=tuple(lines),
        left=frozenset({"stop"}),
    )


def _parts(row: Row) -> Sheet:
    """The host scope's parts: medians of problems where the host waited for the device after each part."""
    medians = {name: statistics.median(row.parts[name]) for name in PARTS}
    whole = sum(medians.values())
    return Sheet(
        keys=("host scope, waiting after each part",),
        blocks=(("time", "share"),),
        rows=tuple(
            (Cell(name), Cell(units.seconds(seconds)), Cell(units.percent(seconds / whole if whole else 0.0)))
            for name, seconds in medians.items()
        ),
    )


def _launches(row: Row) -> Sheet:
    return Sheet(
        keys=("launch",),
        blocks=(("queued", "submitted", "running"),),
        rows=tuple(
            (
                Cell(clean(launch.name)),
                *(
                    Cell(units.seconds(value))
                    for value in (launch.queued_s, launch.submitted_s, launch.running_s)
                ),
            )
            for launch in row.launches
        ),
    )


def _verified(title: str, check: Check) -> Note:
    """A check: its verdict, its figures as fractions of their bounds, and what is wrong."""
    figures = ", ".join(f"{clean(name)} {units.number(value)}" for name, value in check.figures.items())
    reasons = "; ".join(map(clean, check.reasons))
    verdict = check.verdict if check.verdict != "none" else "not done"
    style = {"ok": "green", "wrong": "bold red", "suspect": "yellow"}.get(check.verdict, "dim")
    return Note(title, ": ".join(filter(None, (verdict, figures, reasons))), style)


def _facts(run: Run, row: Row) -> list[Note]:
    facts = []
    if row.status != "ok":
        facts.append(Note(WORDS[row.status], clean_lines(row.reason), STYLES[row.status]))
    facts.append(_verified("verified", row.check))
    if row.check_after:
        facts.append(_verified("and after", row.check_after))
    if row.variant == AUTO and row.choice:
        facts.append(Note("took", notes.selected(row)))
    chosen = {**row.parameters, **notes.settled(row)}
    if chosen:
        facts.append(Note("parameters", listed(chosen)))
    if row.memory:
        facts.append(Note("memory", clean(row.memory)))
    if row.build_s is not None:
        facts.append(Note("build", units.seconds(row.build_s)))
    if against := rates.versus(row):
        said = f"{versus_cell(row, 'kernel').text}, {against.scope} scope, batch by batch in turn"
        facts.append(Note(versus_name([row]), said))
    facts += line(run, row, shape)
    facts += notes.noisy(run, [row], shape)
    facts += [Note("note", clean_lines(text), "dim") for text in row.notes]
    return facts


# --- Energy in tables and below them: joules, GFLOP/J and watts, what drew them, or why they are not known.


COLUMNS = ("energy", "GFLOP/J")

_LARGEST = (
    "At the largest size: energy of one problem (every pass, no transfers), power over its window, idle "
    "draw before it."
)


def any_joules(rows: Iterable[Row]) -> bool:
    """Whether any of them has its joules."""
    return any(row.energy.joules is not None for row in rows)


def cells(row: Row) -> tuple[Cell, Cell]:
    """A row's entries in `COLUMNS`."""
    joules, efficiency = row.energy.joules, rates.gflop_per_joule(row)
    empty = "-" if row.status == "ok" else ""
    return (
        Cell(units.joules(joules) if joules is not None else empty),
        Cell(units.number(efficiency) if efficiency is not None else empty),
    )


def energy_sheet(run: Run, panel: Panel, where: Where) -> Sheet | None:
    """GFLOP/J by size, joules and watts at the largest beside them; None if no energy was measured."""
    if not any_joules(panel.rows):
        return None
    efficiencies = {
        (series, size): efficiency
        for series in panel.series
        for size, row in series.rows.items()
        if (efficiency := rates.gflop_per_joule(row)) is not None
    }

    def cell(series: Series, size: int) -> Cell:
        if (series, size) not in efficiencies:
            return Cell("-" if size in series.rows else "")
        best = max(value for (_, other), value in efficiencies.items() if other == size)
        return Cell(units.number(efficiencies[series, size]), efficiencies[series, size] == best)

    return Sheet(
        caption=f"{panel.dtype} GFLOP/J over {panel.shape}; * best of its column",
        blocks=(tuple(map(str, panel.sizes)), ("energy", "power", "idle")),
        rows=tuple(
            (Cell(clean(series.label)), *(cell(series, size) for size in panel.sizes), *_draw(series))
            for series in panel.series
        ),
        notes=(
            Note("", _LARGEST, "dim"),
            *remarks(run, panel.rows, where),
        ),
    )


def _draw(series: Series) -> tuple[Cell, Cell, Cell]:
    """Joules of a problem, watts and idle watts, at the largest size that has them."""
    row = next((row for row in reversed(series.rows.values()) if row.energy.joules is not None), None)
    if row is None:
        return Cell("-"), Cell("-"), Cell("-")
    return cells(row)[0], Cell(_watts(rates.watts(row))), Cell(_watts(row.energy.idle_w))


def _watts(power: float | None) -> str:
    return units.watts(power) if power is not None else "-"


def line(run: Run, row: Row, where: Where) -> list[Note]:
    """All about one row's energy in a line; why it has none, if it was asked for."""
    energy, efficiency, power = row.energy, rates.gflop_per_joule(row), rates.watts(row)
    if energy.joules is None:
        return remarks(run, [row], where)
    parts = [f"{units.joules(energy.joules)} for each problem"]
    if efficiency is not None:
        parts.append(f"{units.number(efficiency)} GFLOP/J")
    if power is not None and energy.window_s is not None:
        parts.append(f"{units.watts(power)} over {units.seconds(energy.window_s)}")
    if energy.idle_w is not None:
        parts.append(f"{units.watts(energy.idle_w)} idle before")
    return [Note("energy", f"{', '.join(parts)}; {_source(row)}")]


def remarks(run: Run, rows: Iterable[Row], where: Where) -> list[Note]:
    """The source of the energy figures, or why there are none, equal ones together; empty if not asked."""
    if not run.header.policy.energy:
        return []
    groups: dict[str, list[Row]] = {}
    for row in rows:
        if row.samples and row.status == "ok":
            groups.setdefault(_source(row), []).append(row)
    if len(groups) == 1:
        return [Note("energy", source, "dim") for source in groups]
    names = Counter(name for alike in groups.values() for name in {row.variant for row in alike})

    def labels(alike: list[Row]) -> str:
        if any(names[row.variant] > 1 for row in alike):
            return places(alike, where)
        return ", ".join(dict.fromkeys(clean(row.variant) for row in alike))

    return [Note("energy", f"{labels(alike)}: {source}", "dim") for source, alike in groups.items()]


def _source(row: Row) -> str:
    """What drew a row's joules, by which counter, or why they are not known."""
    energy = row.energy
    if energy.joules is None:
        return clean(energy.why)
    counter = f" ({energy.counter})" if energy.counter else ""
    return clean(f"{energy.scope}{counter}, idle draw included")
