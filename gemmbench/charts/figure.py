"""Saved runs as charts: PNG, SVG, PDF. The same rows always give the same file.

Colours are Okabe and Ito's, safe for colour-blind readers; every line also has its own marker, so that the
charts read in grey. Names come from drivers, so no text is taken for markup.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from io import BytesIO
from pathlib import Path
from typing import Any

import matplotlib
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from PIL import Image

from gemmbench.charts import SUFFIXES
from gemmbench.charts.pane import WIDTH, Pane
from gemmbench.model.units import reason_of

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


class ChartError(Exception):
    """A chart that cannot be drawn; the message is one sentence for the user."""


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
        content = panes()
        if not content:
            raise ChartError(f"nothing to draw: there are no {needs}")
        return _composed(content, across)

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
