"""The tables of ``square`` and ``sweep-k``: sizes across, variants down, then the conclusion."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import RenderableType

from gemmbench.facts import derive, units
from gemmbench.facts.records import Run
from gemmbench.facts.series import HOST, Panel, Series, panels
from gemmbench.facts.text import clean
from gemmbench.render import energy, notes
from gemmbench.render.detail import detail
from gemmbench.render.heading import heading
from gemmbench.render.notes import STYLES, WORDS, Where
from gemmbench.render.sheet import Cell, Note, Sheet, stack
from gemmbench.rules.variants import AUTO, BASELINE

__all__ = ["detail", "sheets", "sweep"]


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
        for sheet in (_sheet(run, panel, scope), energy.sheet(run, panel, _place(panel)))
        if sheet
    ]


def _sheet(run: Run, panel: Panel, scope: str) -> Sheet:
    sizes = panel.sizes
    place = _place(panel)
    best = {
        size: max((found.median for one in panel.series if (found := _rate(one, size, scope))), default=None)
        for size in sizes
    }

    rows = tuple(
        (
            Cell(clean(one.label)),
            *(_cell(one, size, scope, best[size]) for size in sizes),
            Cell(_of_peak(run, one, scope)),
            Cell(_host_over_device(one)),
        )
        for one in panel.series
    )
    baseline = any(one.is_host for one in panel.series) and panel.device != HOST and scope != "host"
    blas = f"{clean(run.header.host.blas)}, host scope"
    measured = any(value is not None for value in best.values())
    return Sheet(
        heading=heading(run, panel.device, panel.dtype),
        caption=f"{panel.dtype} {derive.unit(panel.dtype)}, {scope} scope, over {panel.shape}; "
        "* best of its column",
        blocks=(tuple(str(size) for size in sizes), ("of peak", "host/device")),
        rows=rows,
        notes=(
            *([Note(BASELINE, blas, "dim")] if baseline else []),
            *notes.troubles(panel.rows, place),
            *notes.noisy(run, panel.rows, place),
            *([] if energy.measured(panel.rows) else energy.remarks(run, panel.rows, place)),
            *notes.choices(panel.rows, place),
            *notes.remarks(panel.rows, place),
            *notes.warnings([run.header.devices[panel.device] if panel.device != HOST else None]),
            *(_conclusion(panel) if measured else []),
        ),
    )


def _place(panel: Panel) -> Where:
    """A row's place in the tables of a panel: its size."""
    return lambda row: str(getattr(row.problem, panel.axis))


def _rate(one: Series, size: int, scope: str) -> derive.Rate | None:
    return derive.shown_rate(one.rows[size], scope) if size in one.rows else None


def _cell(one: Series, size: int, scope: str, best: float | None) -> Cell:
    if size not in one.rows:
        return Cell("")
    row = one.rows[size]
    if row.status != "ok":
        return Cell(WORDS[row.status], style=STYLES[row.status])
    found = _rate(one, size, scope)
    if found is None:
        return Cell("-")
    return Cell(units.gflops(found.median), found.median == best, "yellow" if derive.is_noisy(row) else "")


def _of_peak(run: Run, one: Series, scope: str) -> str:
    """The fraction at the variant's best size."""
    fractions = [derive.peak_fraction(run, row, scope) for row in one.rows.values()]
    return units.percent(max((value for value in fractions if value is not None), default=float("nan")))


def _host_over_device(one: Series) -> str:
    """What is left of the device's rate, transfers counted, at the largest size that has both."""
    for row in reversed(one.rows.values()):
        host, device = derive.rate(row, "host"), derive.rate(row, "device")
        if host and device:
            return units.number(host.median / device.median)
    return "-"


def _conclusion(panel: Panel) -> list[Note]:
    """From which size the device beats the host's BLAS: the earliest variant, and the fastest if another."""
    host = next((one for one in panel.series if one.is_host and one.variant == BASELINE), None)
    mine = [one for one in panel.series if not one.is_host and one.variant != AUTO]
    if not mine or not panel.sizes:
        return []
    if host is None:
        return [Note("Break-even", f"not known: {BASELINE} was not measured beside the device", "dim")]
    found = {
        one: even
        for one in mine
        if (even := derive.break_even(one.rows.values(), host.rows.values(), panel.axis)) is not None
    }
    if not found:
        return []
    earliest = min(found, key=lambda one: (found[one].size or float("inf"), -_lead(one, host)))
    fastest = max(found, key=lambda one: _lead(one, host))
    sentences = [_sentence(found[earliest], earliest, host, panel)]
    if fastest is not earliest and found[fastest].size is not None:
        sentences.append(_sentence(found[fastest], fastest, host, panel))
    return [Note("Break-even", "; ".join(sentences) + ".", "bold")]


def _lead(one: Series, host: Series) -> float:
    """How many times the host's BLAS a series reaches in the host scope, at the largest size of both."""
    for size in sorted(one.rows.keys() & host.rows.keys(), reverse=True):
        mine, theirs = derive.rate(one.rows[size], "host"), derive.rate(host.rows[size], "host")
        if mine and theirs:
            return mine.median / theirs.median
    return 0.0


def _sentence(even: derive.BreakEven, one: Series, host: Series, panel: Panel) -> str:
    """What a break-even says, in words."""
    label, axis = clean(one.label), panel.axis
    if even.size is None:
        chance = f" (within the noise perhaps from {axis} = {round(even.low)})" if even.low else ""
        reached = units.percent(_lead(one, host))
        shared = max(one.rows.keys() & host.rows.keys())
        return (
            f"none up to {axis} = {shared}; transfers counted, the closest is {label}, "
            f"at {reached} of {BASELINE}{chance}"
        )
    if even.from_start:
        sure = "" if even.high is not None and even.high <= even.size else ", though within the noise"
        return f"{label} beats {BASELINE} from the smallest size on ({axis} = {round(even.size)}){sure}"
    low = round(even.low) if even.low is not None else None
    high = round(even.high) if even.high is not None else None
    interval = f"{low} to {high}" if high is not None else f"{low} or more, the noise leaves it open"
    return f"from {axis} = {round(even.size)} ({interval}) {label} beats {BASELINE}, transfers counted"
