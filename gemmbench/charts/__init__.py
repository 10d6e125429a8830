"""Saved runs as charts: PNG, SVG, PDF. The same rows always give the same file.

Colours are Okabe and Ito's, safe for colour-blind readers; every line also has its own marker, so that the
charts read in grey. Names come from drivers, so no text is taken for markup.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine

from gemmbench.charts import peak, sweep
from gemmbench.charts.panel import Box
from gemmbench.facts.records import Run
from gemmbench.facts.text import clean

KINDS: dict[str, str] = {
    "throughput": "GFLOPS over size in the kernel scope, with the host's BLAS and the measured peak",
    "host-device": "GFLOPS over size with and without transfers, and the break-even size",
    "time": "time over size in the kernel scope",
    "peak": "the device's measured peak by data type and vector width",
}
SUFFIXES: tuple[str, ...] = (".png", ".svg", ".pdf")

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


class ChartError(Exception):
    """A chart that cannot be drawn; the message is one sentence for the user."""


def check_path(path: Path) -> None:
    """Whether a chart can go there; to be called before anything is measured.

    Raises:
        ChartError: an unknown suffix, or a folder that does not exist.
    """
    if path.suffix.lower() not in SUFFIXES:
        raise ChartError(f"{path}: a chart's name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    if not path.parent.is_dir():
        raise ChartError(f"{path}: the folder {path.parent} does not exist")
    if path.is_dir():
        raise ChartError(f"{path} is a folder")


def default_kind(run: Run) -> str:
    """The chart that suits the rows of a run."""
    return "throughput" if any(row.kind == "gemm" for row in run.rows) else "peak"


def draw(runs: Sequence[Run], kind: str, path: Path) -> None:
    """Draw saved runs into one file, a panel for each device and data type.

    Args:
        runs: several lie over each other, their file names at the lines.
        kind: one of `KINDS`.
        path: its suffix decides the format.

    Raises:
        ChartError: unknown kind or suffix, no such folder, no rows to draw, a file that cannot be written.
    """
    check_path(path)
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")  # a driver's name in any script
        picture = figure(runs, kind)
        suffix = path.suffix.lower()
        try:
            picture.savefig(path, format=suffix[1:], metadata=_METADATA[suffix])
        except OSError as error:
            raise ChartError(f"cannot write {path}: {(error.strerror or str(error)).lower()}") from None


def figure(runs: Sequence[Run], kind: str) -> Figure:
    """The chart as a matplotlib figure; sets matplotlib's style, so call it inside ``rc_context``.

    Raises:
        ChartError: unknown kind, or no rows to draw.
    """
    if kind not in KINDS:
        raise ChartError(f"unknown chart {clean(kind)!r}; there are {', '.join(KINDS)}")
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_STYLE)
    boxes = peak.boxes(runs) if kind == "peak" else sweep.boxes(runs)
    if not boxes:
        raise ChartError(_nothing(runs, kind))
    across = 1 if len(boxes) == 1 else 2
    down = -(-len(boxes) // across)
    height = max(box.height for box in boxes)
    picture = Figure(figsize=(7.2 * (1 if across == 1 else 1.75), height * down), layout=_layout())
    grid = picture.subplots(down, across, squeeze=False)
    painters: dict[str, Callable[[Axes, Box], None]] = {
        "throughput": sweep.throughput,
        "host-device": sweep.host_device,
        "time": sweep.time,
        "peak": peak.peak,
    }
    for axes, box in zip(grid.flat, boxes, strict=False):
        painters[kind](axes, box)
    for axes in list(grid.flat)[len(boxes) :]:
        axes.set_axis_off()
    return picture


def _layout() -> ConstrainedLayoutEngine:
    return ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, hspace=0.04, wspace=0.04)


def _nothing(runs: Sequence[Run], kind: str) -> str:
    """Why there is nothing to draw, for the user."""
    names = ", ".join(clean(run.path) or "this run" for run in runs) or "no run"
    if kind == "peak":
        return f"nothing to draw: {names} has no measured peak row"
    gemms = [row for run in runs for row in run.rows if row.kind == "gemm"]
    if not any(row.status == "ok" for row in gemms):
        return f"nothing to draw: {names} has no measured GEMM row"
    return (
        f"nothing to draw: {kind} needs several sizes, square or with only k varying, and {names} has others"
    )
