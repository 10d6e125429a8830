"""Charts of panes with titles, written to a file or a page. Equal rows give equal files.

Colours are Okabe and Ito's, safe for colour-blind readers. Names from drivers are never read as markup.
"""

from __future__ import annotations

import re
import textwrap
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

import matplotlib
from matplotlib.axes import Axes
from matplotlib.axis import Axis
from matplotlib.figure import Figure
from matplotlib.layout_engine import ConstrainedLayoutEngine
from matplotlib.offsetbox import AnnotationBbox, HPacker, TextArea
from matplotlib.text import Text
from matplotlib.ticker import AutoLocator, LogLocator, NullFormatter, NullLocator

from gemmbench import UsageError
from gemmbench.charts import SUFFIXES
from gemmbench.model.device import HOST
from gemmbench.model.row import Row
from gemmbench.model.run_file import Run, device_name, replace_file
from gemmbench.model.units import clean, reason_of

Families = Mapping[str, str]  # family by variant, in the order of the ladder
Place = tuple[float, float]
Coordinates = str | tuple[str, str]
Dashes = str | tuple[int, tuple[float, ...]]

COLOURS = (
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#332288", "#999933"),  # Paul Tol's indigo and olive
)
BLACK, DARK, GREY, PALE = "#000000", "#444444", "#6E6E6E", "#C8C8C8"  # libraries, roofs and words
OWN_COLOUR = "#882255"  # of the user's own kernel; Paul Tol's wine
OPAQUE: Mapping[str, Any] = {"facecolor": "white", "edgecolor": "none", "alpha": 0.85, "pad": 0.8}
"""The background of text on lines."""
BELOW = ("data", "axes fraction")
NEAR_PEAK = 0.25  # of the measured peak: the peak is drawn if the fastest kernel comes that near

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
    "savefig.dpi": 150,
}
_WIDTH = 7.2  # of a pane, inches
_METADATA: dict[str, dict[str, None]] = {
    ".svg": {"Date": None, "Creator": None},
    ".pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


class ChartError(UsageError):
    """A chart cannot be drawn. The message is one sentence for the user."""


@dataclass(frozen=True)
class Pane:
    """One panel of a chart: its height in inches, and the function that draws it."""

    height: float
    paint: Callable[[Axes], None]


def draw_panes(panes: Callable[[], Iterable[Pane]], path: Path, needs: str) -> None:
    """Draw panes that belong to no kind into one file."""
    write(lambda: figure_of(panes, f"there are no {needs}", 1), path)


def figure_of(panes: Callable[[], Iterable[Pane]], lacks: str, across: int) -> Figure:
    """Draw panes as a figure, `across` side by side. `ChartError` with `lacks` if there are no panes.

    Call it inside ``rc_context``: it sets matplotlib's style before it calls `panes`.
    """
    set_style()
    content = list(panes())
    if not content:
        raise ChartError(f"nothing to draw: {lacks}")
    return _composed(content, across)


def write(paint: Callable[[], Figure], path: Path) -> None:
    """Replace a file with the figure that `paint` returns, by its suffix. `ChartError` if that fails."""
    suffix = path.suffix.lower()
    if suffix not in SUFFIXES:
        raise ChartError(f"{path}: a chart's name must end in {', '.join(SUFFIXES[:-1])} or {SUFFIXES[-1]}")
    drawn = drawn_as(suffix, paint)
    try:
        replace_file(path, drawn)
    except OSError as error:
        raise ChartError(f"cannot write {path}: {reason_of(error)}") from None


def drawn_as(suffix: str, paint: Callable[[], Figure]) -> bytes:
    """The figure that `paint` returns, in the format of a suffix such as ``.png``."""
    with warnings.catch_warnings(), matplotlib.rc_context():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")  # a driver's name in any script
        picture = paint()
        drawn = BytesIO()
        picture.savefig(drawn, format=suffix[1:], metadata=_METADATA.get(suffix))
    return drawn.getvalue()


def separate_figures(panes: Callable[[], Iterable[Pane]]) -> list[Figure]:
    """Draw each pane as a figure of its own, for a page. Call it inside ``rc_context``."""
    set_style()
    return [_composed([pane], 1) for pane in panes()]


def set_style() -> None:
    """Set the style of all charts, starting from matplotlib's defaults. Call it inside ``rc_context``."""
    matplotlib.rcdefaults()
    matplotlib.rcParams.update(_STYLE)


def _composed(panes: Sequence[Pane], across: int) -> Figure:
    """A figure with panes in rows of `across`."""
    across = min(len(panes), across)
    rows = [panes[first : first + across] for first in range(0, len(panes), across)]
    heights = [max(pane.height for pane in row) for row in rows]
    width = _WIDTH * (1 if across == 1 else 1.75)
    layout = ConstrainedLayoutEngine(w_pad=0.08, h_pad=0.08, hspace=0.04, wspace=0.04)
    picture = Figure(figsize=(width, sum(heights)), layout=layout)
    # One subfigure for each pane, so that long names in one take no room from the others.
    grid = picture.subfigures(len(rows), across, squeeze=False, height_ratios=heights)
    for figure_, pane in zip(grid.flat, panes, strict=False):
        pane.paint(figure_.subplots())
    return picture


def mark(axes: Axes, x: float, y: float, text: str) -> None:
    """Attach a tooltip to a point in data coordinates: an empty text, whose group id is the tooltip."""
    figure = axes.get_figure()
    assert figure is not None  # every pane is in one
    # The figure owns it, so that the texts of the pane are only those that are drawn.
    figure.text(x, y, "", transform=axes.transData, gid=text).set_in_layout(False)


def annotate(
    axes: Axes, text: str, at: Place, offset: Place = (0, 0), where: Coordinates = "data", **style: Any
) -> None:
    """Write text next to a point, `offset` points away. `where` names the coordinates of `at`."""
    axes.annotate(text, at, offset, where, textcoords="offset points", annotation_clip=False, **style)


def tick_texts(axis: Axis, text: Callable[[float], str]) -> None:
    """Label the ticks of an axis with `text`, without needless zeros."""
    axis.set_major_formatter(lambda value, _: short(text(value)))


class _LogLocator(LogLocator):
    """Ticks of a logarithmic axis, or those of a linear one if fewer than two would be visible."""

    def tick_values(self, vmin: float, vmax: float) -> Sequence[float]:
        ticks = super().tick_values(vmin, vmax)
        seen = [tick for tick in ticks if vmin <= tick <= vmax]
        return ticks if len(seen) > 1 else AutoLocator().tick_values(vmin, vmax)


def log_ticks(axis: Axis, text: Callable[[float], str], span: float = 1000.0) -> None:
    """Set ticks and labels of a log axis: 1, 2, 5 if it spans less than a factor of `span`, else decades."""
    low, high = axis.get_view_interval()
    steps = (1.0, 2.0, 5.0) if high / low < span else (1.0,)
    axis.set_major_locator(_LogLocator(10, subs=steps, numticks=99))
    tick_texts(axis, text)
    axis.set_minor_locator(NullLocator())
    axis.set_minor_formatter(NullFormatter())


def stem(run: Run) -> str:
    """The name of a run in titles: its file's name without the suffix."""
    return clean(Path(run.path).stem) or "run"


@dataclass(frozen=True, eq=False)
class PaneSubject:
    """The rows that a pane shows: of one run and device, and of one data type or all."""

    run: Run
    device: int
    dtype: str  # "" if the pane is of every type
    where: str  # the device, and the run if there are several
    rows: list[Row]  # including those of the host


def subjects(
    runs: Sequence[Run], wanted: Callable[[Row], bool] = lambda row: row.kind == "gemm", typed: bool = True
) -> list[PaneSubject]:
    """Divide wanted rows among panes: by run, device and type if `typed`, each with the host's rows."""
    shown = [run for run in runs if any(map(wanted, run.rows))]
    result = []
    for run in shown:
        rows = [row for row in run.rows if wanted(row)]
        keys = dict.fromkeys((row.device, row.dtype if typed else "") for row in rows if row.device != HOST)
        for device, dtype in sorted(keys, key=lambda key: key[0]):
            selected = [row for row in rows if row.device in (device, HOST) and dtype in ("", row.dtype)]
            where = device_name(run, device) + (f" ({stem(run)})" if len(shown) > 1 else "")
            result.append(PaneSubject(run, device, dtype, where, selected))
    return result


def _room(axes: Axes) -> float:
    """The width for text above a pane in inches."""
    figure = axes.get_figure()
    assert figure is not None  # every pane is in one
    return figure.bbox.width / figure.dpi - 1.1


def titles(axes: Axes, title: str, below: str = "", keys: Sequence[tuple[str, str]] = ()) -> None:
    """Write a title, a remark below, and keys: words in the colours they explain. Long texts are wrapped."""
    lines, height = textwrap.wrap(below, round(15.5 * _room(axes))), 7.0
    if keys:
        bold = {"fontsize": 8.5, "fontweight": "bold"}
        words = [TextArea(word, textprops={"color": colour, **bold}) for word, colour in keys]
        packed = HPacker(children=list(words), pad=0, sep=10)
        box = AnnotationBbox(
            packed, (0, 1), (0, height - 1), xycoords="axes fraction", boxcoords="offset points",
            box_alignment=(0, 0), pad=0, frameon=False, annotation_clip=False,
        )  # fmt: skip
        axes.add_artist(box)
        height += 13
    if lines:
        annotate(axes, "\n".join(lines), (0, 1), (0, height), "axes fraction", fontsize=8.5, color=DARK)
    width = round(11.5 * _room(axes))
    heading = textwrap.wrap(title, width, max_lines=2, placeholder=" ...")
    axes.set_title("\n".join(heading), fontweight="bold", pad=height + 13 * len(lines))


def short(text: str) -> str:
    """A number with a unit, without needless zeros: ``10`` for ``10.0``, ``1 ms`` for ``1.00 ms``."""
    figure_, _, unit = text.partition(" ")
    if "." in figure_:
        figure_ = figure_.rstrip("0").rstrip(".")
    return f"{figure_} {unit}".strip()


_NEEDLESS = re.compile(
    r"(?<=\d\d\.\d)\d+|(?<=\d\.\d\d)\d+|\n\s*|font-family: 'DejaVu Sans'; | transform=\"rotate\(-0 [^)]*\)\""
    r'| id="[A-Za-z.]+(2d)?_\d+"|; stroke-line(cap: square|join: miter)'
)
"""A third of matplotlib's SVG: digits, indentation, the font (a page sets it), no rotation, ids of groups,
the ends and corners of lines."""


def to_svg(figure: Figure, label: str, number: int) -> str:
    """Convert a figure to an ``svg`` element. Each `mark` becomes an invisible circle with a tooltip.

    `label` is for screen readers. `number` makes ids unique.
    """
    drawn = BytesIO()
    with warnings.catch_warnings(), matplotlib.rc_context({"svg.hashsalt": f"gemmbench {number}"}):
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")
        warnings.filterwarnings("ignore", message=r"constrained_layout not applied")  # very long names
        figure.savefig(drawn, format="svg", metadata={**_METADATA[".svg"], "Format": None, "Type": None})
    _, start, text = _NEEDLESS.sub("", drawn.getvalue().decode()).partition("<svg")
    opening = f'{start} role="img" aria-label={quoteattr(label)}'
    return opening + text.replace("</svg>", "".join(_tooltips(figure)) + "</svg>")


def _tooltips(figure: Figure) -> Iterator[str]:
    """An SVG circle with a title for each text of the figure that has one."""
    to_points = 72 / figure.dpi  # SVG counts in points
    for each in figure.findobj(Text):
        assert isinstance(each, Text)
        x, y = each.get_transform().transform(each.get_position())
        if each.get_gid() and abs(x) < 1e6 and abs(y) < 1e6:  # no NaN, and no zero on a logarithmic axis
            at = f'cx="{x * to_points:.1f}" cy="{(figure.bbox.height - y) * to_points:.1f}"'
            yield f"<circle {at}><title>{escape(str(each.get_gid()))}</title></circle>"
