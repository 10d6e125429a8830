"""Charts of several devices at once, and resources."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from gemmbench.model.row import Resources, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import by_key, clean
from gemmbench.stats.rates import view_scope
from gemmbench.suite import together
from gemmbench.suite.together import Joint

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
        return dict(zip(self.joints, pane.COLOURS, strict=False))

    @property
    def keys(self) -> list[tuple[str, str]]:
        return [(clean(name), colour) for name, colour in self.colours.items()]

    @property
    def devices(self) -> tuple[int, ...]:
        return together.devices_of([joint for by_size in self.joints.values() for joint in by_size.values()])


def together_panes(runs: Sequence[Run], families: pane.Families) -> list[pane.Pane]:
    """Two panes for each run, kind, data type and scope: the aggregate rate, and the slowdowns."""
    drawn = []
    for run in runs:
        groups = by_key(((joint.row.kind, joint.row.dtype), joint) for joint in together.joints_of(run))
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
    shown = {
        variant: {_size(joint.row): joint for joint in joints if joint.row.variant == variant}
        for variant in every
        if variant in chosen
    }
    gaps = []  # ``tiled 512 (1 crashed)``
    for joint in every_joint:
        parts = [part for part in joint.parts if part.together.status != "ok"]
        bad = ", ".join(f"{part.device} {part.together.status}" for part in parts)
        gaps += [f"{clean(joint.row.variant)} {_size(joint.row)} ({bad})"] if bad else []
    title = _title(run, together.devices_of(joints))
    return _Picture(
        run=run,
        title=title + (f" | {pane.stem(run)}" if beside else ""),
        what=f"{row.dtype}, {scope} scope" if row.kind == "gemm" else row.kind,
        unit="GFLOPS" if row.kind == "gemm" else "GB/s",
        scope=scope,
        sizes=tuple(dict.fromkeys(_size(joint.row) for joint in joints if joint.row.variant in shown)),
        joints=shown,
        left_out=len(every) - len(shown),
        gaps=tuple(gaps),
    )


def _title(run: Run, positions: Sequence[int]) -> str:
    """``2 devices at once | 0, 1: NVIDIA H200``; drivers where they are all that differs."""
    devices = run.header.devices
    divided = {position for group in together.shared(devices, positions) for position in group}
    named = by_key(
        (clean(driver_name(devices[each]) if each in divided else devices[each].name), each)
        for each in positions
    )
    listing = "; ".join(f"{', '.join(map(str, numbers))}: {name}" for name, numbers in named.items())
    return f"{len(positions)} devices at once | {listing}"


def _size(row: Row) -> str:
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
            drawn: dict[str, Any] = {"linestyle": style, "marker": marker}
            face = colour if filled else "white"
            axes.plot(range(len(values)), values, color=colour, label=label, markerfacecolor=face, **drawn)
    axes.set_yscale("log")
    # A factor of four at least: there are ticks, and noise does not fill the pane.
    low, high = axes.get_ylim()
    middle = (low * high) ** 0.5
    axes.set_ylim(min(low, middle / 2), max(high, middle * 2))
    pane.log_ticks(axes.yaxis, units.number)
    _across(axes, picture)
    axes.set_ylabel(picture.unit)
    below = f"{picture.what}: all devices at once (solid), the sum of each alone (dashed, hollow); medians"
    pane.titles(axes, picture.title, below, picture.keys)
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
                joint = by_size.get(size)
                part = joint.part(device) if joint else None
                slowdown = part.slowdown(picture.scope) if part else None
                if slowdown is None:
                    continue
                if slowdown.high / slowdown.low < _WIDEST**2:
                    axes.vlines(index + shift, slowdown.low, slowdown.high, color=picture.colours[variant])
                else:
                    wide = True
                style: dict[str, Any] = {"color": picture.colours[variant], "linestyle": "none"}
                label = f"{variant} on {device}"
                axes.plot(index + shift, slowdown.median, marker=marker, label=label, **style)
                median, low, high = map(units.number, (slowdown.median, slowdown.low, slowdown.high))
                said = f"{clean(variant)} on device {device}, {size}: slowdown {median} ({low} to {high})"
                pane.mark(axes, index + shift, slowdown.median, said)
    axes.axhline(1.0, color=pane.BLACK, linewidth=0.8, label="no change")
    shares = together.shared(picture.run.header.devices, picture.devices)
    for shared in shares:
        axes.axhline(len(shared), color=pane.GREY, linewidth=0.9, linestyle=":", label="an equal share")
    _times(axes)
    _across(axes, picture)
    axes.set_ylabel("slowdown")
    markers = ", ".join(
        f"{device} {_SHAPES[_MARKERS[rank % len(_MARKERS)]]}" for rank, device in enumerate(picture.devices)
    )
    below = f"{picture.what}: time at once over time alone, 95 % interval; devices: {markers}"
    pane.titles(axes, picture.title, below, picture.keys)
    notes = ["Dotted: an equal share of hardware that the devices divide."] if shares else []
    pane.footnote(axes, [*notes, *(["Intervals too wide to tell anything are not drawn."] if wide else [])])


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
    axes.set_xlim(-0.5, len(picture.sizes) - 0.5)
    slanted = max(map(len, picture.sizes)) * len(picture.sizes) > 7 * _ROOM
    turn: dict[str, Any] = {"rotation": 30, "ha": "right"} if slanted else {"rotation": 0, "ha": "center"}
    axes.set_xticks(range(len(picture.sizes)), picture.sizes, fontsize=8, **turn)
    axes.xaxis.set_minor_locator(NullLocator())
    axes.tick_params(length=3, color=pane.DARK)


_FITS, _TIGHT = pane.COLOURS[0], pane.COLOURS[1]


def resource_panes(runs: Sequence[Run], _: pane.Families) -> list[pane.Pane]:
    """A pane for each device and data type whose rows have the resources of their kernels."""
    result = []
    for run in runs:
        rows = [row for row in run.rows if row.kind == "gemm" and row.device >= 0 and row.resources]
        for device, dtype in dict.fromkeys((row.device, row.dtype) for row in rows):
            alike = [row for row in rows if (row.device, row.dtype) == (device, dtype)]
            alike.sort(key=lambda row: row.problem.flops if row.problem else 0)  # the largest counts
            order = dict.fromkeys(row.title for row in rows)
            kernels = {}
            for row in alike:
                multiply = (each for each in row.resources if each.role == "multiply")
                kernels[row.title] = next(multiply, row.resources[-1])
            paint = partial(
                _paint_groups,
                title=pane.own_title(run, device, runs),
                dtype=dtype,
                kernels={name: kernels[name] for name in order if name in kernels},
            )
            result.append(pane.Pane(1.5 + pane.ROW * len(kernels), paint))
    return result


def _paint_groups(axes: Axes, title: str, dtype: str, kernels: Mapping[str, Resources]) -> None:
    """A line for each kernel: its work-group, and the largest that the built kernel can have."""
    names: dict[float, str] = {}
    for y, (name, kernel) in enumerate(kernels.items()):
        tight = kernel.most < kernel.group
        axes.plot([kernel.group, kernel.most], [y, y], color=pane.PALE, linewidth=3, zorder=1)
        axes.plot(kernel.most, y, "|", color=pane.DARK, markersize=9, markeredgewidth=2)
        axes.plot(kernel.group, y, "o", color=_TIGHT if tight else _FITS)
        names[y] = clean(name) + (f" ({kernel.registers})" if kernel.registers else "")
        said = f"{clean(name)}: work-groups of {kernel.group}, of {kernel.most} at most"
        pane.mark(axes, kernel.group, y, said)
    axes.set_ylim(len(kernels) - 0.4, -0.6)
    pane.name_rows(axes, names, {})
    low, high = min(each.group for each in kernels.values()), max(each.most for each in kernels.values())
    pane.log_across(axes, low, high, "work-items of a group", lambda value: f"{value:.0f}")
    below = f"{dtype}: the largest work-group of a kernel as built"
    below += "; in brackets its registers" if any(each.registers for each in kernels.values()) else ""
    pane.titles(axes, title, below, [("o as launched", _FITS), ("| the largest", pane.DARK)])
