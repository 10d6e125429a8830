"""``gemm``: everything that was measured of one problem."""

from __future__ import annotations

from rich.console import Group, RenderableType
from rich.padding import Padding
from rich.text import Text

from gemmbench.facts import derive, units
from gemmbench.facts.records import SCOPES, Row, Run
from gemmbench.facts.text import clean, clean_lines, listed
from gemmbench.render import energy, notes
from gemmbench.render.detail import shape
from gemmbench.render.heading import heading
from gemmbench.render.notes import STYLES, WORDS
from gemmbench.render.sheet import Cell, Note, Sheet
from gemmbench.rules.variants import AUTO


def gemm(run: Run) -> RenderableType:
    """Single problems, a page for each variant: scopes, launches, verification, parameters."""
    pages: list[RenderableType] = []
    above: tuple[object, ...] = ()
    for row in run.rows:
        if row.kind != "gemm" or row.problem is None:
            continue
        if pages:
            pages.append(Text(""))
        subject = (row.device, row.dtype, row.problem)
        if subject != above:
            above = subject
            problem = row.problem
            dimensions = f"m = {problem.m}, n = {problem.n}, k = {problem.k}"
            about = f"C = {problem.alpha:g} A B + {problem.beta:g} C, {row.dtype}, {dimensions}"
            pages += [Sheet(heading=heading(run, row.device, row.dtype), caption=about), Text("")]
        pages.append(_page(run, row))
    remarks = notes.warnings(run.header.devices)
    if remarks:
        pages += [Text(""), Sheet(notes=tuple(remarks))]
    return Group(*pages)


def _page(run: Run, row: Row) -> RenderableType:
    found = derive.shown_rate(row, "kernel")
    figure = units.rate(found.median, derive.is_integer(row.dtype)) if found else WORDS[row.status]
    parts: list[RenderableType] = []
    if row.samples:
        parts += [_scopes(run, row), Text("")]
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
    for scope in SCOPES:
        times = derive.summary(row, scope)
        if times is None:
            continue
        found, fraction = derive.rate(row, scope), derive.peak_fraction(run, row, scope)
        lines.append(
            (
                Cell(scope),
                Cell(units.gflops(found.median) if found else "-"),
                Cell(units.percent(fraction) if found and fraction is not None else "-"),
                Cell(units.seconds(times.median)),
                Cell(f"{units.seconds(times.low)} to {units.seconds(times.high)}"),
                Cell(units.seconds(times.minimum)),
                Cell(str(times.n)),
                Cell(clean(row.samples[scope].stop)),
            )
        )
    return Sheet(
        keys=("scope",),
        blocks=((derive.unit(row.dtype), "of peak", "median"), ("95 % interval", "best", "n", "stop")),
        rows=tuple(lines),
        left=frozenset({"stop"}),
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


def _facts(run: Run, row: Row) -> list[Note]:
    found = []
    if row.status != "ok":
        found.append(Note(WORDS[row.status], clean_lines(row.reason), STYLES[row.status]))
    figures = ", ".join(f"{clean(name)} {units.number(value)}" for name, value in row.check.figures.items())
    reasons = "; ".join(map(clean, row.check.reasons))
    verdict = row.check.verdict if row.check.verdict != "none" else "not done"
    style = {"ok": "green", "wrong": "bold red", "suspect": "yellow"}.get(row.check.verdict, "dim")
    found.append(Note("verified", ": ".join(filter(None, (verdict, figures, reasons))), style))
    if row.variant == AUTO and row.choice:
        found.append(Note("took", notes.taken(row)))
    chosen = {**row.parameters, **notes.settled(row)}
    if chosen:
        found.append(Note("parameters", listed(chosen)))
    if row.memory:
        found.append(Note("memory", clean(row.memory)))
    if row.build_s is not None:
        found.append(Note("build", units.seconds(row.build_s)))
    found += energy.line(run, row, shape)
    found += notes.noisy(run, [row], shape)
    found += [Note("note", clean_lines(text), "dim") for text in row.notes]
    return found
