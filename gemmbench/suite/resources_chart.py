"""Work-items in flight against the registers of each: what a core allows, and where kernels stand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

from matplotlib.axes import Axes
from matplotlib.ticker import NullLocator

from gemmbench.charts import pane
from gemmbench.ladder import architectures
from gemmbench.ladder.architectures import Architecture
from gemmbench.model.device import DeviceFacts
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean

_HEIGHT, _LINE = 4.2, 0.13  # inches
_FITS, _TIGHT = pane.COLOURS[0], pane.COLOURS[1]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


@dataclass(frozen=True)
class Mark:
    """Where one kernel stands."""

    name: str
    group: int  # work-items in a work-group
    most: int | None  # in the largest that it can have
    registers: int | None  # 32-bit registers of a work-item
    bound: str = ""  # "at least": these are what it is written for; "at most": what its largest group allows


def panes(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """A pane for each device and data type whose rows tell what their kernels take."""
    result = []
    for run in runs:
        rows = [row for row in run.rows if row.kind == "gemm" and row.device >= 0 and row.resources]
        for device, dtype in dict.fromkeys((row.device, row.dtype) for row in rows):
            own_rows = [row for row in rows if (row.device, row.dtype) == (device, dtype)]
            own_rows.sort(key=lambda row: row.problem.flops if row.problem else 0)  # the largest counts
            order = dict.fromkeys(row.title for row in rows)
            marks = {row.title: _mark(row) for row in own_rows}
            title = pane.own_title(run, device, runs)
            chosen = [marks[name] for name in order if name in marks]
            result.append(constraint(run.header.devices[device], title, dtype, chosen))
    return result


def _mark(row: Row) -> Mark:
    kernel = next((each for each in row.resources if each.role == "multiply"), row.resources[-1])
    return Mark(row.title, kernel.group, kernel.most, kernel.registers)


def constraint(device: DeviceFacts, title: str, dtype: str, marks: Sequence[Mark]) -> pane.Pane:
    """The register constraint of a device with kernels on it; groups alone where nobody tells registers.

    Where a driver tells a kernel's largest group alone, and that is one of the steps, as on Mali, it stands
    at the most registers that the step allows.
    """
    known = architectures.of(device)
    if known and not any(mark.registers for mark in marks):
        by_items = {items: most for most, items in known.steps}
        marks = [replace(mark, registers=by_items.get(mark.most or 0), bound="at most") for mark in marks]
    if known and any(mark.registers for mark in marks):
        steps = _by_step(known, marks)
        words = [[_words(mark, items) for mark in alike] for items, alike in steps.items()]
        height = _HEIGHT + _LINE * sum(1 + len(", ".join(names)) // 90 for names in words)
        paint = partial(_paint_steps, title=title, dtype=dtype, known=known, marks=marks)
        return pane.Pane(height, paint)
    height = 1.5 + pane.ROW * len(marks)
    return pane.Pane(height, partial(_paint_groups, title=title, dtype=dtype, marks=marks))


def _paint_steps(axes: Axes, title: str, dtype: str, known: Architecture, marks: Sequence[Mark]) -> None:
    """The steps of the register file, and a letter for the kernels at each number of registers."""
    left, lines = 1, []
    for most, items in known.steps:
        axes.plot([left, most], [items, items], color=pane.DARK, linewidth=1.6)
        left = most
    for (most, items), (_, after) in zip(known.steps, known.steps[1:], strict=False):
        axes.plot([most, most], [items, after], color=pane.PALE, linewidth=1, linestyle=(0, (2, 2)))
    least = known.steps[-1][1]
    for letter, (items, alike) in zip(_LETTERS, _by_step(known, marks).items(), strict=False):
        for mark in alike:
            tight = items < mark.group
            at = (mark.registers or 1, max(items, least / 2))
            axes.plot(*at, "o" if items else "x", color=_TIGHT if tight else _FITS, clip_on=False, zorder=3)
            pane.mark(axes, *at, f"{_words(mark, items)}: {items} work-items in flight")
        pane.say(axes, letter, at, (0, 6), ha="center", fontsize=8.5, fontweight="bold", color=pane.BLACK)
        flight = f"{items} in flight" if items else "more than there are"
        lines.append(f"{letter}: {flight}: {', '.join(_words(mark, items) for mark in alike)}")
    axes.set_xscale("log", base=2)
    axes.set_yscale("log", base=2)
    used = [mark.registers for mark in marks if mark.registers]
    axes.set_xlim(min(*used, known.steps[0][0]) / 1.5, max(*used, known.most_registers) * 1.3)
    axes.set_ylim(least / 2.4, known.resident * 1.7)
    for axis in (axes.xaxis, axes.yaxis):
        pane.tick_texts(axis, lambda value: f"{value:.0f}")
        axis.set_minor_locator(NullLocator())
    bound = next((f", {mark.bound}" for mark in marks if mark.bound), "")
    axes.set_xlabel(f"32-bit registers of a work-item{bound}")
    axes.set_ylabel("work-items in flight on a core")
    keys = [("o a group fits", _FITS), ("o its group does not fit", _TIGHT)]
    pane.titles(
        axes, title,
        f"{dtype}, {known.name}: {known.formula}; registers x work-items <= {known.product:,}", keys,
    )  # fmt: skip
    pane.footnote(axes, [*lines, f"Source of the steps: {known.source}."], most=24)


def _by_step(known: Architecture, marks: Sequence[Mark]) -> dict[int, list[Mark]]:
    """Kernels by the work-items in flight that their registers leave, fewest registers first."""
    steps: dict[int, list[Mark]] = {}
    for mark in sorted(marks, key=lambda mark: mark.registers or 0):
        if mark.registers:
            steps.setdefault(known.in_flight(mark.registers), []).append(mark)
    return steps


def _words(mark: Mark, items: int) -> str:
    group = "" if mark.group <= items else f", group of {mark.group}"
    return f"{clean(mark.name)} ({mark.registers}{group})"


def _paint_groups(axes: Axes, title: str, dtype: str, marks: Sequence[Mark]) -> None:
    """A line for each kernel: its group, and the largest that the built kernel can have."""
    for y, mark in enumerate(marks):
        tight = mark.most is not None and mark.most < mark.group
        if mark.most:
            axes.plot([mark.group, mark.most], [y, y], color=pane.PALE, linewidth=3, zorder=1)
            axes.plot(mark.most, y, "|", color=pane.DARK, markersize=9, markeredgewidth=2)
        axes.plot(mark.group, y, "o", color=_TIGHT if tight else _FITS)
        pane.mark(
            axes, mark.group, y, f"{clean(mark.name)}: groups of {mark.group}, of {mark.most or '?'} at most"
        )
    axes.set_ylim(len(marks) - 0.4, -0.6)
    pane.name_rows(axes, {y: clean(mark.name) for y, mark in enumerate(marks)}, {})
    low, high = min(mark.group for mark in marks), max(mark.most or mark.group for mark in marks)
    pane.log_across(axes, low, high, "work-items of a group", lambda value: f"{value:.0f}")
    below = f"{dtype}: its driver tells the largest group of a kernel as built, and no registers"
    if any(mark.registers for mark in marks):
        below = f"{dtype}: the largest group of a kernel as built; how registers are handed out is not known"
    pane.titles(axes, title, below, [("o as launched", _FITS), ("| the largest", pane.DARK)])
