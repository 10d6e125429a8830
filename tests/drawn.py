"""Charts as text: labels and data of a figure, without pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.offsetbox import TextArea
from matplotlib.patches import Rectangle

_POINTS = 4  # at most so many points are written in full


@contextmanager
def captured() -> Iterator[list[list[str]]]:
    """Write no chart files; append the description of each figure to the list instead."""
    figures: list[list[str]] = []

    def savefig(self: Figure, file: Any, **_: Any) -> None:
        figures.append(list(described(self)))
        file.write(b"")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        yield figures


def described(figure: Figure, is_styled: bool = False) -> Iterator[str]:
    """The lines that describe a figure; styled ones have colours, dashes, limits and bold words."""
    for text in figure.texts:
        yield f"text {text.get_text()!r}"
    for axes in figure.get_axes():
        yield from _axes(axes)
        if is_styled:
            yield from _styles(axes)


def _axes(axes: Axes) -> Iterator[str]:
    yield f"axes {axes.get_title(loc='left') or axes.get_title()!r}"
    for name, axis in (("x", axes.xaxis), ("y", axes.yaxis)):
        ticks = [label.get_text() for label in axis.get_ticklabels() if label.get_text()]
        yield f"  {name}: {axis.get_label_text()!r} {axis.get_scale()} {ticks}"
    for line in axes.get_lines():
        points = np.column_stack([np.asarray(values, float) for values in line.get_data(orig=False)])
        yield f"  line {_label(line)} {line.get_marker()!r}: {_points(points)}"
    for patch in axes.patches:
        box: Any = patch if isinstance(patch, Rectangle) else None
        corners = [*box.get_xy(), box.get_width(), box.get_height()] if box else []
        yield f"  {type(patch).__name__} {_label(patch)}: {_points(corners)}"
    for collection in axes.collections:
        yield f"  {type(collection).__name__} {_label(collection)}: {_points(_offsets(collection))}"
    texts = [text.get_text() for text in axes.texts]
    texts += [area.get_text() for artist in axes.artists for area in artist.findobj(TextArea)]
    yield from (f"  text {text!r}" for text in texts)
    if legend := axes.get_legend():
        yield f"  legend {[text.get_text() for text in legend.get_texts()]}"


def _styles(axes: Axes) -> Iterator[str]:
    """How lines and bars are drawn, and what is bold; where the axes end."""
    yield "  limits " + " ".join(f"{limit:.4g}" for limit in (*axes.get_xlim(), *axes.get_ylim()))
    for line in axes.get_lines():
        width, dashes = line.get_linewidth(), "dashed" if line.is_dashed() else line.get_linestyle()
        fill = to_hex(line.get_markerfacecolor())
        yield f"  style {_label(line)} {to_hex(line.get_color())} {fill} {dashes} {width:g}"
    for patch in axes.patches:
        yield f"  style {type(patch).__name__} {to_hex(patch.get_facecolor())}"
    if bold := [text.get_text() for text in axes.texts if text.get_fontweight() == "bold"]:
        yield f"  bold {bold}"


def _label(artist: Any) -> str:
    label = str(artist.get_label())
    return repr("" if label.startswith("_child") else label)  # matplotlib's own running number


def _offsets(collection: Collection) -> Any:
    offsets: Any = np.ma.filled(np.ma.asarray(collection.get_offsets(), float), np.nan)
    if offsets.any():
        return offsets
    return np.concatenate([path.vertices for path in collection.get_paths()] or [np.empty((0, 2))])


def _points(points: Iterable[Any]) -> str:
    """The points with six digits; many as the first, the last and a digest."""
    texts = [
        "(" + ", ".join(f"{value + 0.0:.6g}" for value in point) + ")"
        for point in np.asarray(points, float).reshape(-1, 2)
    ]
    if len(texts) <= _POINTS:
        return " ".join(texts)
    digest = hashlib.sha256(" ".join(texts).encode()).hexdigest()[:12]
    return f"{texts[0]} ... {texts[-1]} ({len(texts)} points, {digest})"
