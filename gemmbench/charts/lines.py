"""Lines over size: their looks, logarithmic axes, words at the line ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.colors import to_hex, to_rgb
from matplotlib.ticker import FixedLocator, NullLocator

from gemmbench.charts import pane
from gemmbench.ladder import BASELINE
from gemmbench.ladder.variant import OWN
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import rates as derive
from gemmbench.stats.panels import Panel, Series, panels, sweep_axis

_MARKERS = ("o", "s", "^", "D", "v", "P", "X", "<", ">", "p")
Dashes = str | tuple[int, tuple[float, ...]]
_LINES: tuple[Dashes, ...] = ("-", (0, (1, 1.2)), (0, (5, 1.5, 1, 1.5)))
_LIBRARY_LINES: tuple[Dashes, ...] = (
    *((0, (5, 2.5)), (0, (5, 1.5, 1, 1.5)), (0, (1, 1.2))),
    *((0, (9, 2)), (0, (3, 1, 1, 1, 1, 1)), (0, (1, 3))),
)
_CROWD = len(pane.COLOURS) + 2  # with more variants than this a colour is a family
HEIGHT = 4.5  # of a pane, inches; more if its labels need it


@dataclass(frozen=True, eq=False)
class Box:
    """What one pane shows: the same device and type from one or more runs."""

    title: str
    dtype: str
    parts: tuple[tuple[Run, Panel], ...]
    families: pane.Families = field(default_factory=dict)

    @property
    def panel(self) -> Panel:
        """The first run's."""
        return self.parts[0][1]

    @cached_property
    def sizes(self) -> list[int]:
        """Sizes that fit a logarithmic axis."""
        return sorted({size for _, panel in self.parts for size in panel.sizes if size > 0})

    @property
    def series(self) -> list[Series]:
        return [series for _, panel in self.parts for series in panel.series]

    @property
    def rows(self) -> list[Row]:
        return [row for _, panel in self.parts for row in panel.rows]

    @cached_property
    def crowded(self) -> bool:
        """Whether there are too many variants for a colour each."""
        return len({series.label for series in self.series if not self.is_library(series.variant)}) > _CROWD

    @cached_property
    def scope(self) -> str:
        """What the lines are compared in."""
        return derive.view_scope(*(run for run, _ in self.parts))

    def series_name(self, series: Series) -> str:
        """A series' label, and the scope of its figures where that is not the pane's."""
        shown = {derive.shown_scope(row, self.scope) for row in series.rows.values() if row.samples}
        partly = "partly " if self.scope in shown else ""
        return clean(series.label) + "".join(f", {partly}{scope}" for scope in sorted(shown - {self.scope}))

    @property
    def bold(self) -> str:
        """What strong lines mean, to follow the other words of a title."""
        own = f" and {OWN}" if OWN in self.hues else ""
        return f"; bold: fastest of its family{own}" if self.crowded else ""

    @property
    def gap(self) -> float:
        """Inches between neighbouring words at the line ends."""
        return 0.165 if self.crowded else 0.234

    @property
    def height(self) -> float:
        """Inches: more where many lines want a label."""
        return max(HEIGHT, 1.3 + self.gap * sum(1 + len(panel.series) for _, panel in self.parts))

    def name(self, run: Run) -> str:
        """What tells a run's lines from the others', or nothing if there is one run."""
        return "" if len(self.parts) == 1 else f" ({pane.stem(run)})"

    def family(self, variant: str) -> str:
        """The family of a variant; one that the ladder does not know is a family of its own kind."""
        return self.families.get(variant, "others")

    def is_library(self, variant: str) -> bool:
        """Whether a variant is the host's BLAS or a library of its family."""
        return variant == BASELINE or (
            variant in self.families and self.families[variant] == self.families.get(BASELINE)
        )

    @cached_property
    def hues(self) -> dict[str, str]:
        """The colour of each family that has a line, libraries aside, in the ladder's order."""
        used = {self.family(series.variant) for series in self.series if not self.is_library(series.variant)}
        ordered = [family for family in dict.fromkeys(self.families.values()) if family in used]
        ordered += sorted(used - set(ordered))
        hues = {family: pane.COLOURS[index % len(pane.COLOURS)] for index, family in enumerate(ordered)}
        return hues | ({OWN: pane.OWN_COLOUR} if OWN in hues else {})

    @cached_property
    def keys(self) -> tuple[tuple[str, str], ...]:
        """The families and their colours, where a colour is a family."""
        if not self.crowded:
            return ()
        keys = [(clean(family), hue) for family, hue in self.hues.items()]
        libraries = any(self.is_library(series.variant) for series in self.series)
        return (*keys, *([("libraries", pane.BLACK)] if libraries else []))


def boxes(runs: Sequence[Run], families: pane.Families) -> list[Box]:
    """What the panes of runs that are sweeps show."""
    groups: dict[tuple[str, str, str], list[tuple[Run, Panel]]] = {}
    for run in runs:
        axis = sweep_axis(run.rows)
        for panel in panels(run, axis, tuple(families)) if axis else []:
            if any(row.status == "ok" and row.samples for row in panel.rows):
                key = (pane.device_title(run, panel.device), panel.dtype, panel.shape)
                groups.setdefault(key, []).append((run, panel))
    return [Box(title, dtype, tuple(parts), families) for (title, dtype, _), parts in groups.items()]


@dataclass(frozen=True)
class End:
    """The last point of a line, in data coordinates."""

    x: float
    y: float
    aim: float  # where it would be at the largest size, had it gone on as it went: its words' height


_APART = 1.25  # 4096 and 4097 tell nothing of where a line goes


def end_of(sizes: Sequence[float], values: Sequence[float], goes_on: bool = True) -> End | None:
    """The end of a line on logarithmic axes, or the last of points alone; None if all values are NaN."""
    known = [(size, value) for size, value in zip(sizes, values, strict=True) if np.isfinite(value)]
    if not known:
        return None
    x, y = known[-1]
    aim = y
    before = next(((size, value) for size, value in reversed(known) if size * _APART <= x), None)
    if goes_on and before and x < sizes[-1]:
        aim = y * (y / before[1]) ** (np.log(sizes[-1] / x) / np.log(x / before[0]))
    return End(float(x), float(y), float(aim))


@dataclass(frozen=True)
class Label:
    """Words for the right margin, at the height of a line's end."""

    text: str
    end: End
    colour: str
    bold: bool = False


@dataclass(frozen=True)
class Look:
    """How a line is drawn."""

    colour: str  # of its words too
    marker: str
    line: Dashes
    open: bool = False
    strength: int = 1  # 0: in the background, 2: in front

    @property
    def stroke(self) -> str:
        return self.colour if self.strength else paled(self.colour)

    @property
    def style(self) -> dict[str, Any]:
        return {
            "color": self.stroke,
            "linestyle": self.line,
            "linewidth": (0.8, 1.6, 2.2)[self.strength],
            "marker": self.marker or None,
            "markersize": self.size,
            "markerfacecolor": "white" if self.open else self.stroke,
            "markeredgewidth": 1.0,
            "zorder": 2 + 0.2 * self.strength,
        }

    @property
    def bar(self) -> dict[str, Any]:
        """Its confidence intervals, as matplotlib takes them."""
        width, alpha = ((3.0, 0.4), (5.0, 0.35), (6.0, 0.35))[self.strength]
        return {"color": self.stroke, "linewidth": width, "alpha": alpha, "zorder": 1 + 0.2 * self.strength}

    @property
    def size(self) -> float:
        """Of the markers, points."""
        return (2.6, 4.5, 4.5)[self.strength]


def looks(box: Box) -> dict[tuple[int, str], Look]:
    """The look of each series by run and label.

    A few variants have a colour and a marker each. In a crowd a colour is a family, whose fastest member is
    drawn strong and the others thin and pale. Libraries are black, the user's own kernels have one colour;
    openness tells the runs apart.
    """
    variants = {series.label: series.variant for series in box.series}
    labels = [label for label, variant in variants.items() if not box.is_library(variant)]
    labels.sort(key=lambda label: box.family(variants[label]) == OWN)  # others keep their colours beside them
    libraries = sorted(variants.keys() - labels, key=lambda label: (variants[label] != BASELINE, label))
    strong = _fastest_of_families(box)
    styles = {}
    for number, (_, panel) in enumerate(box.parts):
        for series in panel.series:
            key, again = (number, series.label), number > 0
            if series.label in libraries:
                line = _LIBRARY_LINES[libraries.index(series.label) % len(_LIBRARY_LINES)]
                styles[key] = Look(pane.BLACK, "", line)
                continue
            family = box.family(series.variant)
            of_family = box.crowded or family == OWN
            kin = [label for label in labels if not of_family or box.family(variants[label]) == family]
            index, cycle = kin.index(series.label), len(_MARKERS if of_family else pane.COLOURS)
            marker, line = _MARKERS[index % len(_MARKERS)], _LINES[(index // cycle + number) % len(_LINES)]
            if family == OWN:
                styles[key] = Look(pane.OWN_COLOUR, marker, line, again, 2)
            elif box.crowded:
                styles[key] = Look(box.hues[family], marker, line, again, 2 if series.label in strong else 0)
            else:
                styles[key] = Look(pane.COLOURS[index % len(pane.COLOURS)], marker, line, again)
    return styles


def _fastest_of_families(box: Box) -> frozenset[str]:
    best: dict[str, tuple[float, str]] = {}
    for series in box.series:
        rates = [rate for row in series.rows.values() if (rate := derive.median_rate(row, box.scope))]
        if rates and not box.is_library(series.variant):
            family = box.family(series.variant)
            best[family] = max(best.get(family, (0.0, "")), (max(rates), series.label))
    return frozenset(label for _, label in best.values())


def paled(colour: str, share: float = 0.42) -> str:
    """A colour mixed with white."""
    red, green, blue = (channel + (1 - channel) * share for channel in to_rgb(colour))
    return to_hex((red, green, blue))


def frame(axes: Axes, box: Box, unit: str, text: Callable[[float], str], below: str) -> None:
    """Titles, logarithmic axes, the measured sizes as ticks."""
    sizes = box.sizes
    axes.set_xscale("log", base=2)
    axes.set_yscale("log")
    if len(sizes) > 1:
        axes.set_xlim(sizes[0] / 1.08, sizes[-1] * 1.08)
    size_axis(axes, thinned(sizes), lambda size: str(round(size)))
    pane.log_ticks(axes.yaxis, text)
    axes.set_xlabel(box.panel.shape)
    axes.set_ylabel(unit)
    pane.titles(axes, box.title, below + box.bold, box.keys)


def size_axis(axes: Axes, ticks: Sequence[int], text: Callable[[float], str]) -> None:
    """Sizes along the axis across."""
    axes.xaxis.set_major_locator(FixedLocator(ticks))
    axes.xaxis.set_minor_locator(NullLocator())
    pane.tick_texts(axes.xaxis, text)
    axes.tick_params(length=3, color=pane.DARK)


def thinned(sizes: Sequence[int], room: float = 0.065) -> list[int]:
    """The sizes whose labels do not touch on a logarithmic axis: the last always, and powers of two first."""
    span = max(np.log(sizes[-1] / sizes[0]), 1e-9)
    kept: list[int] = []
    for size in sorted(sizes, key=lambda n: (n != sizes[-1], n != sizes[0], n & (n - 1) != 0, n)):
        if all(abs(np.log(size / other)) / span >= room for other in kept):
            kept.append(size)
    return sorted(kept)


def at_ends(axes: Axes, labels: Sequence[Label], box: Box, last: float | None = None) -> None:
    """Name the lines in the right margin, pushed apart where they would overlap, a thin line to each end.

    The pane's limits are set. `last` is where a line that goes all the way ends, by default the largest size.
    """
    last = float(box.sizes[-1]) if last is None else last
    low, high = (np.log10(limit) for limit in axes.get_ylim())

    def height(value: float) -> float:
        return float((np.log10(value) - low) / (high - low))

    aims = [height(label.end.aim) for label in labels]
    stands = spread(aims, box.gap / box.height, -0.02, 0.985)
    for label, text_y in zip(labels, stands, strict=True):
        at = (1.045 if box.crowded else 1.03, text_y)
        size, weight = 7.5 if box.crowded else 8.5, "bold" if label.bold else "normal"
        style: dict[str, Any] = {"color": label.colour, "fontsize": size, "fontweight": weight}
        ended = label.end.x < last
        arrow: dict[str, Any] = {
            "arrowstyle": "-",
            "color": label.colour,
            "linewidth": 0.6,
            "linestyle": ":" if ended else "-",
            "alpha": 0.7 if ended or abs(height(label.end.y) - text_y) > 0.01 else 0.35,
            "shrinkA": 1,
            "shrinkB": 3,
            "relpos": (0, 0.5),
            "patchA": None,  # not clipped at the words: the search for where takes half the drawing
        }
        name_end(axes, label.text, (label.end.x, label.end.y), at, arrowprops=arrow, **style)


def name_end(
    axes: Axes, text: str, point: tuple[float, float], at: tuple[float, float], **style: Any
) -> None:
    """Words in the right margin, at a fraction of the pane, for the point where a line ends."""
    axes.annotate(text, point, at, textcoords="axes fraction", va="center", annotation_clip=False, **style)


def spread(heights: Sequence[float], apart: float, low: float, high: float) -> list[float]:
    """Heights moved as little as possible so that neighbours are `apart`, within low and high if they fit.

    Neighbours that collide become a block that sits at the mean of what its members want.
    """
    order = sorted(range(len(heights)), key=lambda n: heights[n])
    blocks: list[list[int]] = []

    def bottom(block: list[int]) -> float:
        wanted = float(np.mean([heights[n] - rank * apart for rank, n in enumerate(block)]))
        return max(low, min(wanted, high - (len(block) - 1) * apart))

    for index in order:
        blocks.append([index])
        while len(blocks) > 1 and bottom(blocks[-2]) + len(blocks[-2]) * apart > bottom(blocks[-1]):
            last = blocks.pop()
            blocks[-1] += last
    moved = [0.0] * len(heights)
    for block in blocks:
        for rank, index in enumerate(block):
            moved[index] = bottom(block) + rank * apart
    return moved


def missing(
    axes: Axes,
    box: Box,
    shown: Sequence[Series],
    why: Callable[[Row], str],
    name: Callable[[int], str] = str,
    notes: Sequence[str] = (),
) -> None:
    """Say below what the gaps are.

    `why` says in a word or a few why a row has no point, and "" if it has one; `name` is a size's.
    """
    where: dict[tuple[str, str], dict[str, None]] = {}  # sizes by reason and series
    for series in shown:
        for size, row in series.rows.items():
            if reason := why(row):
                where.setdefault((reason, clean(series.label)), {})[name(size)] = None
    groups: dict[tuple[str, str], list[str]] = {}  # series by reason and sizes
    for (reason, label), sizes in where.items():
        at = "" if len(sizes) == len(box.sizes) else f" at {', '.join(sizes)}"
        groups.setdefault((reason, at), []).append(label)
    texts = [f"{', '.join(labels)}{at} ({reason})" for (reason, at), labels in groups.items()]
    gaps = ["No point: " + "; ".join(texts)] if texts else []
    pane.footnote(axes, [*notes, *gaps])


def status(row: Row) -> str:
    """Why a row has no time: its status, or nothing."""
    return "" if row.status == "ok" else row.status
