"""What every chart shares: a pane with its titles, the colours, the words around it."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from matplotlib.axes import Axes
from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gemmbench.model import units
from gemmbench.model.device import HOST
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import rates
from gemmbench.stats.panels import panels
from gemmbench.stats.rates import Peak

Families = Mapping[str, str]  # family by variant, in the order of the ladder

# Okabe and Ito's, safe for colour-blind readers; black and greys are for libraries, roofs and words.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9")
BLACK, DARK, GREY, PALE = "#000000", "#444444", "#6E6E6E", "#C8C8C8"
UP, DOWN = COLOURS[0], COLOURS[1]

WIDTH = 7.2  # of a pane, inches


@dataclass(frozen=True)
class Pane:
    """One panel of a chart: how tall it wants to be, in inches, and what paints it."""

    height: float
    paint: Callable[[Axes], None]


def device_title(run: Run, device: int) -> str:
    """Device and driver; processor and BLAS for the host."""
    if device == HOST:
        return f"{clean(run.header.host.cpu)} | {clean(run.header.host.blas)}"
    return clean(run.header.devices[device].title)


def stem(run: Run) -> str:
    """What a run is called beside others: its file's name without the suffix."""
    return clean(Path(run.path).stem) or "run"


def with_gemms(runs: Sequence[Run]) -> list[Run]:
    """The runs that have GEMM rows; others may be there for their peak and bandwidth."""
    return [run for run in runs if any(row.kind == "gemm" for row in run.rows)]


def own_title(run: Run, device: int, beside: Sequence[Run]) -> str:
    """A device's title in a chart where each of several runs has panes of its own."""
    return device_title(run, device) + (f" | {stem(run)}" if len(beside) > 1 else "")


def about_peaks(run: Run, peaks: Iterable[Peak]) -> list[str]:
    """What a footnote says of the peaks that a run is held against: how old they are, and of which runs."""
    notes, borrowed = [], dict[str, list[str]]()
    for peak in peaks:
        dtype = peak.row.dtype
        if (elapsed_s := rates.kept_for(peak.run, peak.row)) is not None:
            notes.append(f"The {dtype} peak was measured {units.age(elapsed_s)} earlier.")
        if peak.run is not run:
            borrowed.setdefault(stem(peak.run), []).append(dtype)
    for name, dtypes in borrowed.items():
        are = "peak is that" if len(dtypes) == 1 else "peaks are those"
        notes.append(f"The {', '.join(dtypes)} {are} of {name}.")
    return notes


def places_of(run: Run, title: str) -> list[int]:
    """Where a device stands in a run's header; nowhere, if the run is another machine's."""
    return [index for index in range(len(run.header.devices)) if device_title(run, index) == title]


def _room(axes: Axes) -> float:
    """Inches that words above and below a pane have, from its left edge on."""
    figure = axes.get_figure()
    assert figure is not None  # every pane is in one
    return figure.bbox.width / figure.dpi - 1.1


def titles(axes: Axes, title: str, below: str, keys: Sequence[tuple[str, str]] = (), lift: float = 0) -> None:
    """The device above, what is drawn below it, and what the colours mean as words in them.

    Args:
        axes: the pane.
        title: on two lines, broken at its first bar, if one is not enough.
        below: wrapped to as many lines as it needs.
        keys: words and their colours.
        lift: points that stay free below them.
    """
    lines = textwrap.wrap(below, round(15.5 * _room(axes)))
    height = 7.0 + lift
    if keys:
        words: list[TextArea] = [
            TextArea(word, textprops={"color": colour, "fontsize": 8.5, "fontweight": "bold"})
            for word, colour in keys
        ]
        packed = HPacker(children=list(words), pad=0, sep=10)
        box = AnnotationBbox(
            packed, (0, 1), (0, height - 1), xycoords="axes fraction", boxcoords="offset points",
            box_alignment=(0, 0), pad=0, frameon=False, annotation_clip=False,
        )  # fmt: skip
        axes.add_artist(box)
        height += 13
    axes.annotate(
        "\n".join(lines),
        (0, 1),
        xycoords="axes fraction",
        xytext=(0, height),
        textcoords="offset points",
        fontsize=8.5,
        color=DARK,
        annotation_clip=False,
    )
    axes.set_title(
        "\n".join(_heading(title, round(12 * _room(axes)))),
        fontweight="bold",
        pad=height + 13 + 11.5 * (len(lines) - 1),
    )


def _heading(title: str, width: int) -> list[str]:
    if len(title) <= width:
        return [title]
    first, _, second = title.partition(" | ")
    return [textwrap.shorten(part, width, placeholder=" ...") for part in (first, second) if part]


def footnote(axes: Axes, texts: Sequence[str], drop: float = 38, most: int = 4) -> None:
    """Say below the pane what is not in it; each text starts a line.

    Args:
        axes: the pane.
        texts: wrapped; what is beyond `most` lines is cut.
        drop: from the axis down, points: past tick labels and the axis's name.
        most: lines.
    """
    lines = [line for text in texts for line in textwrap.wrap(text, round(17 * _room(axes)))]
    if not lines:
        return
    if len(lines) > most:
        lines = [*lines[: most - 1], lines[most - 1][:98] + " ..."]
    axes.annotate(
        "\n".join(lines),
        (0, 0),
        xycoords="axes fraction",
        xytext=(0, -drop),
        textcoords="offset points",
        va="top",
        fontsize=7.5,
        color=GREY,
        annotation_clip=False,
    )


def short(text: str) -> str:
    """Tick labels without needless zeros: ``10`` for ``10.0``, ``1 ms`` for ``1.00 ms``."""
    figure_, _, unit = text.partition(" ")
    if "." in figure_:
        figure_ = figure_.rstrip("0").rstrip(".")
    return f"{figure_} {unit}".strip()


# --- Variants down, in the order of the ladder: what the charts of one problem have in common ---------------


ROW = 0.2  # inches down the page
_COLUMN = 50.0  # points across it


@dataclass(frozen=True, eq=False)
class Rung:
    """One variant with one set of parameters, at one problem."""

    label: str
    variant: str
    family: str
    rows: dict[str, Row]  # by data type

    @property
    def is_host(self) -> bool:
        """Whether it ran on the host, not on an OpenCL device."""
        return all(row.device == HOST for row in self.rows.values())


@dataclass(frozen=True, eq=False)
class Place:
    """Where a rung stands."""

    y: float
    rung: Rung


def rungs(run: Run, device: int, dtypes: Sequence[str], problem: Problem, families: Families) -> list[Rung]:
    """Every variant of a device, and the host's, at one problem, in the order of the ladder."""
    here = replace(run, rows=tuple(row for row in run.rows if row.kind == "gemm" and row.problem == problem))
    by_label: dict[tuple[bool, str], Rung] = {}
    for panel in panels(here, "m", tuple(families)):
        if panel.device not in (device, HOST) or panel.dtype not in dtypes:
            continue
        for series in panel.series:
            key = (series.is_host, series.label)
            family = families.get(series.variant, "others")
            rung = by_label.setdefault(key, Rung(clean(series.label), series.variant, family, {}))
            rung.rows[panel.dtype] = next(iter(series.rows.values()))
    rank = {name: position for position, name in enumerate(families)}
    return sorted(by_label.values(), key=lambda rung: (rung.is_host, rank.get(rung.variant, len(rank))))


def places(ladder: Sequence[Rung], first: float = 0.0) -> tuple[list[Place], dict[str, float]]:
    """A line for each rung, and for each family's name above its own if there are several families.

    Returns:
        The rungs' places from the top down, and the families' by name.
    """
    names = list(dict.fromkeys(rung.family for rung in ladder))
    stands, heads, y = [], {}, first
    for name in names:
        if len(names) > 1:
            heads[name] = y
            y += 1
        for rung in ladder:
            if rung.family == name:
                stands.append(Place(y, rung))
                y += 1
    return stands, heads


def name_rows(axes: Axes, names: Mapping[float, str], heads: Mapping[str, float]) -> None:
    """Names at the left.

    Args:
        axes: the pane.
        names: by their place.
        heads: families, each with the place above its own lines.
    """
    axes.set_yticks(list(names), list(names.values()), fontsize=8.5)
    axes.tick_params(axis="y", length=0)
    for name, y in heads.items():
        axes.annotate(
            clean(name),
            (0, y),
            xycoords=("axes fraction", "data"),
            xytext=(-4, -1),
            textcoords="offset points",
            ha="right",
            va="center",
            fontsize=8,
            fontstyle="italic",
            color=GREY,
            annotation_clip=False,
        )


def cell(
    axes: Axes, column: int, y: float, text: str, colour: str = BLACK, bold: bool = False, small: bool = False
) -> None:
    """A figure in one of the columns at the right, which line up at their right ends."""
    axes.annotate(
        text,
        (1, y),
        xycoords=("axes fraction", "data"),
        xytext=(_COLUMN * (column + 1), 0),
        textcoords="offset points",
        ha="right",
        va="center_baseline",
        fontsize=7 if small else 8,
        fontweight="bold" if bold else "normal",
        color=colour,
        annotation_clip=False,
    )


def heading(axes: Axes, column: int, text: str, colour: str = DARK) -> None:
    """What a column holds, above it."""
    axes.annotate(
        text,
        (1, 1),
        xycoords="axes fraction",
        xytext=(_COLUMN * (column + 1), 3),
        textcoords="offset points",
        ha="right",
        va="bottom",
        fontsize=8,
        fontweight="bold",
        color=colour,
        annotation_clip=False,
    )


def log_across(axes: Axes, low: float, high: float, name: str, text: Callable[[float], str]) -> None:
    """A logarithmic axis across, and no lines but its own.

    Args:
        axes: the pane.
        low: the smallest value.
        high: the largest.
        name: of the axis.
        text: a tick's.
    """
    axes.set_xscale("log")
    axes.set_xlim(low / 1.3, high * 1.2)
    steps = (1.0, 2.0, 5.0) if high / low < 300 else (1.0,)
    axes.xaxis.set_major_locator(LogLocator(10, subs=steps, numticks=99))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: text(value)))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.grid(False, axis="y")
    axes.spines["left"].set_visible(False)
    axes.set_xlabel(name)
