"""What every panel of a chart shares: looks, logarithmic axes, words at the line ends."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from matplotlib.axes import Axes
from matplotlib.ticker import FixedLocator, FuncFormatter, LogLocator, NullFormatter, NullLocator

from gemmbench.facts.records import Run
from gemmbench.facts.series import HOST, Panel, Series
from gemmbench.facts.text import clean

_COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
HEIGHT = 4.5  # of a panel, inches; more if its labels need it
BLACK, GREY = "#000000", "#6E6E6E"


@dataclass(frozen=True, eq=False)
class Box:
    """One panel of a chart: the same device and type from one or more runs."""

    title: str
    dtype: str
    parts: tuple[tuple[Run, Panel], ...] = ()
    peaks: tuple[tuple[Run, int], ...] = ()  # run and device

    @property
    def panel(self) -> Panel:
        """The first run's."""
        return self.parts[0][1]

    @property
    def sizes(self) -> list[int]:
        """Sizes that fit a logarithmic axis."""
        return sorted({size for _, panel in self.parts for size in panel.sizes if size > 0})

    @property
    def height(self) -> float:
        """Inches: more where many lines want a label."""
        lines = sum(1 + len(panel.series) for _, panel in self.parts)
        return max(HEIGHT, 1.2 + 0.22 * lines)

    def name(self, run: Run) -> str:
        """What tells a run's lines from the others', or nothing if there is one run."""
        return "" if len(self.parts) == 1 else f" ({clean(Path(run.path).stem) or 'run'})"


def device_title(run: Run, device: int) -> str:
    """Device and driver; processor and BLAS for the host."""
    if device == HOST:
        return f"{clean(run.header.host.cpu)} | {clean(run.header.host.blas)}"
    return clean(run.header.devices[device].title)


@dataclass(frozen=True)
class Label:
    """Words for the right margin, at the height of a line's end."""

    text: str
    x: float  # where the line ends, data coordinates
    y: float
    colour: str


@dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: str
    marker: str
    line: str | tuple[int, tuple[float, ...]]
    open: bool = False


def looks(box: Box) -> dict[tuple[int, str], Look]:
    """The look of each series by run and label: colour and marker by variant, openness by run."""
    labels = list(dict.fromkeys(s.label for _, panel in box.parts for s in panel.series if not s.is_host))
    lines: tuple[str | tuple[int, tuple[float, ...]], ...] = ("-", (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
    found = {}
    for number, (_, panel) in enumerate(box.parts):
        for one in panel.series:
            if one.is_host:
                found[number, one.label] = Look(BLACK, "", (0, (5, 2.5)))
                continue
            place = labels.index(one.label)
            turn = place // len(_COLOURS) + number
            found[number, one.label] = Look(
                _COLOURS[place % len(_COLOURS)],
                _MARKERS[place % len(_MARKERS)],
                lines[turn % len(lines)],
                open=number > 0,
            )
    return found


def frame(axes: Axes, box: Box, unit: str, scope: str, text: Callable[[float], str]) -> None:
    """Titles, logarithmic axes, the measured sizes as ticks."""
    sizes = box.sizes
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    if len(sizes) > 1:
        axes.set_xlim(sizes[0] / 1.08, sizes[-1] * 1.08)
    axes.xaxis.set_major_locator(FixedLocator(thinned(sizes)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: str(round(value))))
    axes.xaxis.set_minor_locator(NullLocator())
    low, high = axes.get_ylim()
    decades = np.log10(high / low)
    steps = (1.0, 2.0, 5.0) if decades < 3 else (1.0,)
    axes.yaxis.set_major_locator(LogLocator(10, subs=steps, numticks=99))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: short(text(value))))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_minor_formatter(NullFormatter())
    axes.tick_params(length=3, color="#444444")
    axes.set_xlabel(box.panel.shape)
    axes.set_ylabel(unit)
    titles(axes, box.title, f"{box.dtype}, {scope}; band: 95 % confidence")


def titles(axes: Axes, title: str, below: str) -> None:
    """The device above, and what is drawn below it."""
    lines = textwrap.wrap(title, 74)[:2]
    axes.set_title("\n".join(lines), fontweight="bold", pad=20)
    axes.annotate(
        below,
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, 7),
        textcoords="offset points",
        fontsize=8.5,
        color="#444444",
    )


def short(text: str) -> str:
    """Tick labels without needless zeros: ``10`` for ``10.0``, ``1 ms`` for ``1.00 ms``."""
    figure_, _, unit = text.partition(" ")
    if "." in figure_:
        figure_ = figure_.rstrip("0").rstrip(".")
    return f"{figure_} {unit}".strip()


def thinned(sizes: Sequence[int], room: float = 0.055) -> list[int]:
    """The sizes whose labels do not touch on a logarithmic axis: the last always, and powers of two first."""
    span = max(np.log(sizes[-1] / sizes[0]), 1e-9)
    kept: list[int] = []
    for size in sorted(sizes, key=lambda n: (n != sizes[-1], n != sizes[0], n & (n - 1) != 0, n)):
        if all(abs(np.log(size / other)) / span >= room for other in kept):
            kept.append(size)
    return sorted(kept)


def at_ends(axes: Axes, labels: Sequence[Label], box: Box) -> None:
    """Name the lines in the right margin, pushed apart where they would overlap, a thin line to each end."""
    if not labels:
        return
    low, high = (np.log10(limit) for limit in axes.get_ylim())
    heights = [(np.log10(label.y) - low) / (high - low) for label in labels]
    places = spread(heights, 0.052 * HEIGHT / box.height, -0.02, 0.985)
    for label, height, place in zip(labels, heights, places, strict=True):
        ended = label.x < box.sizes[-1]
        axes.annotate(
            label.text,
            (label.x, label.y),
            xytext=(1.03, place),
            textcoords="axes fraction",
            color=label.colour,
            fontsize=8.5,
            va="center",
            ha="left",
            annotation_clip=False,
            arrowprops={
                "arrowstyle": "-",
                "color": label.colour,
                "linewidth": 0.6,
                "linestyle": ":" if ended else "-",
                "alpha": 0.7 if ended or abs(height - place) > 0.01 else 0.35,
                "shrinkA": 1,
                "shrinkB": 3,
                "relpos": (0, 0.5),
            },
        )


def spread(heights: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Heights moved as little as possible so that neighbours are `apart`, within low and high if they fit.

    Neighbours that collide become a block that sits at the mean of what its members want.
    """
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    blocks: list[list[int]] = []

    def bottom(block: list[int]) -> float:
        wanted = float(np.mean([heights[n] - place * apart for place, n in enumerate(block)]))
        return max(low, min(wanted, high - (len(block) - 1) * apart))

    for index in order:
        blocks.append([index])
        while len(blocks) > 1 and bottom(blocks[-2]) + len(blocks[-2]) * apart > bottom(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    found = [0.0] * len(heights)
    for block in blocks:
        for place, index in enumerate(block):
            found[index] = bottom(block) + place * apart
    return found


def missing(axes: Axes, box: Box, shown: Sequence[Series]) -> None:
    """Say below what the gaps are."""
    where: dict[tuple[str, str], dict[str, None]] = {}  # sizes by status and series
    for one in shown:
        for size, row in one.rows.items():
            if row.status != "ok":
                where.setdefault((row.status, clean(one.label)), {})[str(size)] = None
    if not where:
        return
    groups: dict[tuple[str, str], list[str]] = {}  # series by status and sizes
    for (status, label), sizes in where.items():
        at = "" if len(sizes) == len(box.sizes) else f" at {', '.join(sizes)}"
        groups.setdefault((status, at), []).append(label)
    texts = [f"{', '.join(labels)}{at} ({status})" for (status, at), labels in groups.items()]
    lines = textwrap.wrap("No point: " + "; ".join(texts), 96)
    if len(lines) > 3:
        lines = [*lines[:2], lines[2][:90] + " ..."]
    axes.annotate(
        "\n".join(lines),
        (0, 0),
        xycoords="axes fraction",
        xytext=(0, -38),
        textcoords="offset points",
        va="top",
        fontsize=7.5,
        color=GREY,
        annotation_clip=False,
    )
