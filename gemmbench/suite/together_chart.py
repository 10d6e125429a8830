"""Several devices at once: what they reach together beside the sum of each alone, and what each loses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, NullLocator

from gemmbench.charts import pane
from gemmbench.charts.lines import HEIGHT
from gemmbench.model import units
from gemmbench.model.device import driver_name
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats.rates import view_scope
from gemmbench.suite import together_table
from gemmbench.suite.together_table import Joint, Part

# Markers and what they are called.
_SHAPES = {
    "o": "circle", "s": "square", "^": "triangle", "D": "diamond", "v": "tip down", "P": "plus", "X": "cross",
    "*": "star",
}  # fmt: skip
_MARKERS = tuple(_SHAPES)
_MOST = 4  # kernels or probes in a pane: the fastest of all devices
_APART = 0.11  # of points at one size
_WIDEST = 30.0  # an interval that spans more, either side, tells nothing and is not drawn
_LINEAR = 4.0  # times between the ends of an axis that is not logarithmic
_ROOM = 12  # letters of a size that need no slant


@dataclass(frozen=True)
class _Picture:
    """What the two panes of one kind, data type and scope have in common."""

    run: Run
    title: str
    what: str  # "float, kernel scope"
    unit: str  # of rates
    scope: str
    sizes: tuple[str, ...]  # across
    joints: dict[str, dict[str, Joint]]  # by variant, then size
    left_out: int  # further variants
    gaps: tuple[str, ...]  # what has no figure, and why

    @property
    def colours(self) -> dict[str, str]:
        """Line colours by variant."""
        return dict(zip(self.joints, pane.COLOURS, strict=False))

    @property
    def devices(self) -> tuple[int, ...]:
        """Every device that ran a case, in order."""
        return together_table.devices_of(
            [joint for by_size in self.joints.values() for joint in by_size.values()]
        )


def panes(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Two panes for each run, kind, data type and scope: the aggregate rate, and the slowdowns."""
    drawn = []
    for run in runs:
        groups: dict[tuple[str, str], list[Joint]] = {}
        for joint in together_table.joints_of(run):
            groups.setdefault((joint.row.kind, joint.row.dtype), []).append(joint)
        for (kind, _), joints in groups.items():
            if not any(joint.figured for joint in joints):
                continue
            for scope in dict.fromkeys((view_scope(run), "host")) if kind == "gemm" else ("kernel",):
                picture = _picture(run, joints, scope, len(runs) > 1)
                drawn.append(pane.Pane(HEIGHT, partial(_aggregate, picture=picture)))
                drawn.append(pane.Pane(HEIGHT, partial(_slowdowns, picture=picture)))
    return drawn


def _picture(run: Run, every_joint: Sequence[Joint], scope: str, beside: bool) -> _Picture:
    joints = [joint for joint in every_joint if joint.figured]

    def best(variant: str) -> float:
        return max(joint.aggregate("kernel") or 0.0 for joint in joints if joint.row.variant == variant)

    every = dict.fromkeys(joint.row.variant for joint in joints)
    chosen = sorted(every, key=best, reverse=True)[:_MOST]
    row = joints[0].row
    is_gemm = row.kind == "gemm"
    shown = {
        variant: {_size(joint.row): joint for joint in joints if joint.row.variant == variant}
        for variant in every
        if variant in chosen
    }
    sizes = tuple(dict.fromkeys(_size(joint.row) for joint in joints if joint.row.variant in shown))
    title = _title(run, together_table.devices_of(joints))
    return _Picture(
        run=run,
        title=title + (f" | {pane.stem(run)}" if beside else ""),
        what=f"{row.dtype}, {scope} scope" if is_gemm else row.kind,
        unit="GFLOPS" if is_gemm else "GB/s",
        scope=scope,
        sizes=sizes,
        joints=shown,
        left_out=len(every) - len(shown),
        gaps=tuple(gap for joint in every_joint if (gap := _gap(joint))),
    )


def _gap(joint: Joint) -> str:
    """Which devices have no figure at once, and why: ``tiled 512 (1 crashed)``."""
    bad = [f"{part.device} {part.together.status}" for part in joint.parts if part.together.status != "ok"]
    return f"{clean(joint.row.variant)} {_size(joint.row)} ({', '.join(bad)})" if bad else ""


def _title(run: Run, positions: Sequence[int]) -> str:
    """``2 devices at once | 0, 1: NVIDIA H200``; drivers where they are all that differs."""
    devices = run.header.devices
    divided = {position for group in together_table.shared(devices, positions) for position in group}
    named: dict[str, list[int]] = {}
    for position in positions:
        name = driver_name(devices[position]) if position in divided else devices[position].name
        named.setdefault(clean(name), []).append(position)
    listing = "; ".join(f"{', '.join(map(str, numbers))}: {name}" for name, numbers in named.items())
    return f"{len(positions)} devices at once | {listing}"


def _size(row: Row) -> str:
    """A row's size, as a tick label."""
    if row.problem is None:
        if "bytes" in row.parameters:
            return pane.short(units.size(int(row.parameters["bytes"])))
        return f"width {row.parameters['width']}" if "width" in row.parameters else ""
    return clean(row.label) or row.problem.size


def _aggregate(axes: Axes, picture: _Picture) -> None:
    """Solid: all at once; dashed: the sum of each alone."""
    for number, (variant, by_size) in enumerate(picture.joints.items()):
        colour, marker = picture.colours[variant], _MARKERS[number]
        for label, style, filled in ((variant, "-", True), (f"{variant}, alone", (0, (4, 2)), False)):
            joints = (by_size.get(size) for size in picture.sizes)
            sum_of = Joint.aggregate if filled else Joint.sum_alone
            sums = (sum_of(joint, picture.scope) if joint else None for joint in joints)
            values = [value / units.GIGA if value else np.nan for value in sums]
            drawn: dict[str, Any] = {
                "linestyle": style,
                "marker": marker,
                "markerfacecolor": colour if filled else "white",
            }
            axes.plot(range(len(values)), values, color=colour, label=label, **drawn)
    axes.set_yscale("log")
    _widened(axes)
    pane.log_ticks(axes.yaxis, units.number)
    _across(axes, picture)
    axes.set_ylabel(picture.unit)
    below = f"{picture.what}: all devices at once (solid), the sum of each alone (dashed, hollow); medians"
    pane.titles(
        axes, picture.title, below, [(clean(name), colour) for name, colour in picture.colours.items()]
    )
    more = [f"Not drawn: {picture.left_out} further ones, that reach less."] if picture.left_out else []
    gaps = [f"Not in the sums: {'; '.join(picture.gaps)}."] if picture.gaps else []
    pane.footnote(axes, [*more, *gaps])


def _slowdowns(axes: Axes, picture: _Picture) -> None:
    """Time at once over time alone, of each device: a marker each, with its interval."""
    count = len(picture.devices) * len(picture.joints)
    number = 0
    wide = False
    for variant, by_size in picture.joints.items():
        for rank, device in enumerate(picture.devices):
            shift = (number - (count - 1) / 2) * min(_APART, 0.8 / count)
            number += 1
            marker = _MARKERS[rank % len(_MARKERS)]
            for index, size in enumerate(picture.sizes):
                part = _part(by_size.get(size), device)
                slowdown = part.slowdown(picture.scope) if part else None
                if slowdown is None:
                    continue
                if slowdown.high / slowdown.low < _WIDEST**2:
                    axes.vlines(index + shift, slowdown.low, slowdown.high, color=picture.colours[variant])
                else:
                    wide = True
                style: dict[str, Any] = {
                    "color": picture.colours[variant],
                    "marker": marker,
                    "linestyle": "none",
                }
                axes.plot(index + shift, slowdown.median, label=f"{variant} on {device}", **style)
                between = f"{units.number(slowdown.low)} to {units.number(slowdown.high)}"
                said = (
                    f"{clean(variant)} on device {device}, {size}: slowdown {units.number(slowdown.median)}"
                )
                pane.mark(axes, index + shift, slowdown.median, f"{said} ({between})")
    axes.axhline(1.0, color=pane.BLACK, linewidth=0.8, label="no change")
    shares = together_table.shared(picture.run.header.devices, picture.devices)
    for shared in shares:
        axes.axhline(len(shared), color=pane.GREY, linewidth=0.9, linestyle=":", label="an equal share")
    _times(axes)
    _across(axes, picture)
    axes.set_ylabel("slowdown")
    markers = ", ".join(
        f"{device} {_SHAPES[_MARKERS[rank % len(_MARKERS)]]}" for rank, device in enumerate(picture.devices)
    )
    below = f"{picture.what}: time at once over time alone, 95 % interval; devices: {markers}"
    pane.titles(
        axes, picture.title, below, [(clean(name), colour) for name, colour in picture.colours.items()]
    )
    notes = ["Dotted: an equal share of hardware that the devices divide."] if shares else []
    pane.footnote(axes, [*notes, *(["Intervals too wide to tell anything are not drawn."] if wide else [])])


def _part(joint: Joint | None, device: int) -> Part | None:
    return next((part for part in joint.parts if part.device == device), None) if joint else None


def _widened(axes: Axes) -> None:
    """Widen the axis to a factor of four at least: there are ticks, and noise does not fill the pane."""
    low, high = axes.get_ylim()
    middle = (low * high) ** 0.5
    axes.set_ylim(min(low, middle / 2), max(high, middle * 2))


def _times(axes: Axes) -> None:
    """The axis of slowdowns: no change always in sight; logarithmic where they differ much."""
    low, high = axes.get_ylim()
    if low > 0 and high / low < _LINEAR:
        axes.set_ylim(min(low, 0.9), max(high, 1.2))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"x {value:.2f}"))
        return
    axes.set_yscale("log")
    pane.log_ticks(axes.yaxis, lambda value: f"x {units.number(value)}")


def _across(axes: Axes, picture: _Picture) -> None:
    """A tick for each size, in the order of the rows."""
    axes.set_xlim(-0.5, len(picture.sizes) - 0.5)
    slanted = max(map(len, picture.sizes)) * len(picture.sizes) > 7 * _ROOM
    turn: dict[str, Any] = {"rotation": 30, "ha": "right"} if slanted else {"rotation": 0, "ha": "center"}
    axes.set_xticks(range(len(picture.sizes)), picture.sizes, fontsize=8, **turn)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(length=3, color=pane.DARK)
