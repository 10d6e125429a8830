"""Variants down, in the order of the ladder: what the charts of one problem have in common."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.axes import Axes
from matplotlib.ticker import FuncFormatter, LogLocator, NullLocator

from gemmbench.charts.pane import BLACK, DARK, GREY, Families
from gemmbench.facts.records import Problem, Row, Run
from gemmbench.facts.series import HOST, panels
from gemmbench.facts.text import clean

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
    found: dict[tuple[bool, str], Rung] = {}
    for panel in panels(here, "m", tuple(families)):
        if panel.device not in (device, HOST) or panel.dtype not in dtypes:
            continue
        for one in panel.series:
            key = (one.is_host, one.label)
            family = families.get(one.variant, "others")
            rung = found.setdefault(key, Rung(clean(one.label), one.variant, family, {}))
            rung.rows[panel.dtype] = next(iter(one.rows.values()))
    rank = {name: place for place, name in enumerate(families)}
    return sorted(found.values(), key=lambda rung: (rung.is_host, rank.get(rung.variant, len(rank))))


def places(ladder: Sequence[Rung], first: float = 0.0) -> tuple[list[Place], dict[str, float]]:
    """A line for each rung, and for each family's name above its own if there are several families.

    Returns:
        The rungs' places from the top down, and the families' by name.
    """
    names = list(dict.fromkeys(rung.family for rung in ladder))
    found, heads, y = [], {}, first
    for name in names:
        if len(names) > 1:
            heads[name] = y
            y += 1
        for rung in ladder:
            if rung.family == name:
                found.append(Place(y, rung))
                y += 1
    return found, heads


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
