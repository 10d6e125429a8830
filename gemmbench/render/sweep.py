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
from gemmbench.render.sheet import Cell, Note, Sheet, stack, unbroken
from gemmbench.rules.variants import BASELINE
from gemmbench.stats.break_even import BreakEven, baseline, break_evens

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
    """From which size a kernel beats the host's BLAS: the earliest, and the fastest if that is another."""
    if not panel.sizes or not any(one.is_kernel for one in panel.series):
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
        return f"{label} beats {BASELINE} from the smallest size on ({axis} = {size}){sure}"
    low = round(even.low) if even.low is not None else None
    interval = f"{low} to {round(even.high)}" if even.high else f"{low} or more, the noise leaves it open"
    start = unbroken(f"from {axis} = {size}")
    return f"{start} ({interval}) {label} beats {BASELINE}, transfers counted"
