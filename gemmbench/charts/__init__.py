"""Saved runs as charts: PNG, SVG, PDF. The same rows always give the same file.

Colours are Okabe and Ito's, safe for colour-blind readers; every line also has its own marker, so that the
charts read in grey. Names come from drivers, so no text is taken for markup.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from types import MappingProxyType
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image

from gemmbench.charts import concurrent, ladder, memory, peak, precision, roofline, sweep, tune, workloads
from gemmbench.charts.pane import WIDTH, Families, Pane
from gemmbench.facts.chart_files import SUFFIXES
from gemmbench.facts.concurrent import alone
from gemmbench.facts.records import Run
from gemmbench.facts.text import clean, reason_of
from gemmbench.facts.tuning import is_tuning


@dataclass(frozen=True)
class Kind:
    """One kind of chart."""

    idea: str  # in a line
    needs: str  # what runs must have for it, to follow "no"
    panes: Callable[[Sequence[Run], Families], list[Pane]]  # none if the runs lack what it needs
    of_device: bool = False  # what the device can do, not what kernels reach
    across: int = 2  # panes beside each other, if there are several


_SIZES = "over several sizes, square or with only k varying"
# Where several suit a run the first is its default.
KINDS: dict[str, Kind] = {
    "throughput": Kind(
        "GFLOPS over size in the kernel scope, with the host's BLAS and the measured peak",
        f"measured GEMM rows {_SIZES}",
        sweep.throughput,
    ),
    "host-device": Kind(
        "GFLOPS over size with and without transfers, and the break-even size",
        f"GEMM rows measured in the host scope {_SIZES}",
        sweep.host_device,
    ),
    "time": Kind("time over size in the kernel scope", f"measured GEMM rows {_SIZES}", sweep.time),
    "energy": Kind("joules for one problem over size", f"measured energy {_SIZES}", sweep.energy),
    "efficiency": Kind("GFLOP for each joule over size", f"measured energy {_SIZES}", sweep.efficiency),
    "workloads": Kind(
        "GFLOPS of the fastest kernels at every shape",
        "measured GEMM rows of several shapes that are no sweep",
        workloads.workloads,
    ),
    "precision": Kind(
        "GFLOPS of every kernel in each data type, beside each type's measured peak",
        "GEMM rows measured in two data types at the same problem",
        precision.precision,
    ),
    "ladder": Kind(
        "every kernel's speed-up over the first, step by step, up to the measured peak",
        "two kernels measured at the same problem",
        ladder.ladder,
    ),
    "roofline": Kind(
        "GFLOPS over arithmetic intensity, under the measured bandwidth and peak",
        "measured GEMM rows with a measured peak of their type",
        roofline.roofline,
    ),
    "peak": Kind(
        "the device's measured peak by data type and vector width",
        "measured peak row",
        peak.peak,
        of_device=True,
        across=1,
    ),
    "staircase": Kind(
        "GB/s over the size of the working set: a step for each cache",
        "measured working-set row",
        memory.staircase,
        of_device=True,
    ),
    "transfer": Kind(
        "GB/s between host and device over the size of a transfer",
        "measured transfer row",
        memory.transfer,
        of_device=True,
    ),
    "latency": Kind(
        "nanoseconds of a load over the size of its set, and the distribution of launches",
        "measured latency row",
        memory.latency,
        of_device=True,
    ),
    "tune": Kind(
        "a tuner's search: every configuration in the order of trying, and the best so far",
        "measured configuration of a tuner",
        tune.tune,
    ),
    "concurrent": Kind(
        "several devices at once beside each alone: the rate of all together, and each one's slowdown",
        "rows of several devices at once (--concurrent)",
        concurrent.panes,
    ),
}

_STYLE: dict[Any, Any] = {
    "svg.fonttype": "none",  # text stays text
    "svg.hashsalt": "gemmbench",  # the same ids each time
    "pdf.fonttype": 42,
    "text.usetex": False,
    "text.parse_math": False,
    "axes.formatter.use_locale": False,
    "font.family": ["DejaVu Sans"],
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.edgecolor": "#444444",
    "axes.grid": True,
    "axes.axisbelow": True,
    "grid.color": "#E4E4E4",
    "grid.linewidth": 0.7,
    "lines.linewidth": 1.6,
    "lines.markersize": 4.5,
    "figure.dpi": 100,
    "savefig.dpi": 200,
}
_METADATA: dict[str, dict[str, None]] = {
    ".png": {"Software": None},
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


_PALETTE = 128  # colours of a PNG
_NONE: Families = MappingProxyType({})


class ChartError(Exception):
    """A chart that cannot be drawn; the message is one sentence for the user."""


def suited(runs: Sequence[Run], families: Families = _NONE) -> dict[str, str]:
    """Every kind, in the order of `KINDS`: why it does not suit the runs, or "" where it does.

    Rows of microbenchmarks beside GEMM rows are marks in the other charts and ask for none of their own.
    """
    return {name: _unsuited(runs, name, families) for name in KINDS}


def default_kind(run: Run) -> str:
    """The chart that suits the rows of a run."""
    return next((name for name in KINDS if not _unsuited([run], name)), "peak")


def _panes(runs: Sequence[Run], kind: str, families: Families) -> list[Pane]:
    """The panes of a kind: but for one, each is of devices alone."""
    return KINDS[kind].panes(runs if kind == "concurrent" else [*map(alone, runs)], families)


def _unsuited(runs: Sequence[Run], kind: str, families: Families = _NONE) -> str:
    if not _panes(runs, kind, families):
        return _lacks(runs, kind)
    if kind != "tune" and any(map(is_tuning, runs)):
        return f"of a tuner's rows only --kind {kind} draws it"
    beside = KINDS[kind].of_device and any(row.kind == "gemm" for run in runs for row in run.rows)
    return f"beside GEMM rows only --kind {kind} draws it" if beside else ""


def draw(runs: Sequence[Run], kind: str, path: Path, families: Families = _NONE) -> None:
    """Draw saved runs into one file.

    Args:
        runs: sweeps of several lie over each other, their file names at the lines; other kinds have panes of
            their own for each run.
        kind: one of `KINDS`.
        path: its suffix decides the format.
        families: the family of each variant, in the order of the ladder.

    Raises:
        ChartError: unknown kind or suffix, no rows to draw, a file that cannot be written.
    """
    _write(lambda: figure(runs, kind, families), path)


def draw_panes(panes: Callable[[], Sequence[Pane]], path: Path, needs: str, across: int = 1) -> None:
    """Draw panes that are not of a kind into one file.

    Args:
        panes: makes them, in matplotlib's own style.
        path: its suffix decides the format.
        needs: what is lacking where there are none, to follow "no".
        across: panes beside each other.

    Raises:
        ChartError: no panes, or a file that cannot be written.
    """

    def picture() -> Figure:
        _set_style()
        found = panes()
        if not found:
            raise ChartError(f"nothing to draw: there are no {needs}")
        return _composed(found, across)

    _write(picture, path)


def _write(paint: Callable[[], Figure], path: Path) -> None:
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ChartError(f"{path}: a chart's name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")  # a driver's name in any script
        picture = paint()
        drawn = BytesIO()
        picture.savefig(drawn, format=suffix[1:], metadata=_METADATA[suffix])
    try:
        path.write_bytes(_few_colours(drawn) if suffix == ".png" else drawn.getvalue())
    except OSError as error:
        raise ChartError(f"cannot write {path}: {reason_of(error)}") from None


def _few_colours(png: BytesIO) -> bytes:
    """A PNG with a palette: nobody sees the difference, and a third of the bytes stands in the repository."""
    small = BytesIO()
    with Image.open(png) as picture:
        picture.convert("RGB").quantize(_PALETTE).save(small, format="png", optimize=True)
    return small.getvalue()


def figure(runs: Sequence[Run], kind: str, families: Families = _NONE) -> Figure:
    """The chart as a matplotlib figure; sets matplotlib's style, so call it inside ``rc_context``.

    Raises:
        ChartError: unknown kind, or no rows to draw.
    """
    if kind not in KINDS:
        raise ChartError(f"unknown chart {clean(kind)!r}; there are {', '.join(KINDS)}")
    _set_style()
    panes = _panes(runs, kind, families)
    if not panes:
        raise ChartError(f"nothing to draw: {_lacks(runs, kind)}")
    return _composed(panes, KINDS[kind].across)


def _set_style() -> None:
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_STYLE)


def _composed(panes: Sequence[Pane], across: int) -> Figure:
    """Panes in rows, each in a figure of its own."""
    across = min(len(panes), across)
    rows = [panes[first : first + across] for first in range(0, len(panes), across)]
    heights = [max(pane.height for pane in row) for row in rows]
    width = WIDTH * (1 if across == 1 else 1.75)
    picture = Figure(figsize=(width, sum(heights)), layout=_layout())
    # A figure of its own for each pane, so that long names in one cost the others no room.
    grid = picture.subfigures(len(rows), across, squeeze=False, height_ratios=heights)
    for figure_, pane in zip(grid.flat, panes, strict=False):
        pane.paint(figure_.subplots())
    return picture


def _layout() -> ConstrainedLayoutEngine:
    return ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, hspace=0.04, wspace=0.04)


def _lacks(runs: Sequence[Run], kind: str) -> str:
    """Which rows the runs would need."""
    names = ", ".join(clean(run.path) or "this run" for run in runs) or "no run"
    return f"{names} {'have' if len(runs) > 1 else 'has'} no {KINDS[kind].needs}"
