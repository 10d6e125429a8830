"""Charts as data: what a figure says and shows, without pixels."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from matplotlib.axes import Axes
from matplotlib.collections import Collection, LineCollection, PolyCollection
from matplotlib.colors import to_hex
from matplotlib.figure import Figure
from matplotlib.offsetbox import AnnotationBbox, TextArea
from matplotlib.patches import Patch, Rectangle
from matplotlib.text import Annotation, Text

_POINTS = 6  # of a line that are written in full


@contextmanager
def captured() -> Iterator[list[list[str]]]:
    """While it lasts charts are not drawn: instead the list gets each figure's lines."""
    figures: list[list[str]] = []

    def savefig(self: Figure, file: Any, **_: Any) -> None:
        figures.append(list(described(self)))
        file.write(b"")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", savefig)
        yield figures


def described(figure: Figure) -> Iterator[str]:
    """A figure's lines: size, then every pane."""
    width, height = figure.get_size_inches()
    axes = figure.get_axes()
    yield f"figure {number(width)} x {number(height)} inches, {len(axes)} axes"
    for text in figure.texts:
        yield f"text {text.get_text()!r}"
    for each in axes:
        yield from _pane(each)


def number(value: Any) -> str:
    """Six significant digits, and no negative zero."""
    return f"{float(value) + 0.0:.6g}".replace("-0", "0") if float(value) == 0 else f"{float(value):.6g}"


def _numbers(values: Iterable[Any]) -> str:
    return "(" + ", ".join(map(number, values)) + ")"


def _points(points: Any) -> str:
    """Few points in full; many by the first, the last and a digest."""
    texts = [_numbers(point) for point in np.asarray(points, float).reshape(-1, 2)]
    if len(texts) <= _POINTS:
        return " ".join(texts)
    digest = hashlib.sha256(" ".join(texts).encode()).hexdigest()[:12]
    return f"{texts[0]} ... {texts[-1]} ({len(texts)} points, {digest})"


def _pane(axes: Axes) -> Iterator[str]:
    yield f"axes {axes.get_title(loc='left') or axes.get_title()!r}" + (
        "" if axes.axison else " without frame"
    )
    for name, axis, limits in (("x", axes.xaxis, axes.get_xlim()), ("y", axes.yaxis, axes.get_ylim())):
        yield f"  {name}: {axis.get_label_text()!r} {axis.get_scale()} {_numbers(limits)}"
        for which, minor in (("ticks", False), ("minor ticks", True)):
            texts = [label.get_text() for label in axis.get_ticklabels(minor=minor)]
            places = [number(place) for place in axis.get_ticklocs(minor=minor)]
            if any(texts):
                yield f"  {name} {which}: {' '.join(places)}: {texts}"
    # Of data only: frame, axes and background are matplotlib's own.
    for line in axes.get_lines():
        look = f"{_colour(line.get_color())} {line.get_linestyle()!r} {line.get_marker()!r}"
        yield f"  line {line.get_label()!r} {look}: {_points(np.column_stack(_data(line)))}"
    for patch in axes.patches:
        yield f"  {_patch(patch)}"
    for collection in axes.collections:
        yield f"  {_collection(collection)}"
    for text in axes.texts:
        yield f"  {_text(text)}"
    for artist in axes.artists:
        if isinstance(artist, AnnotationBbox):
            areas: list[Any] = artist.findobj(TextArea)
            words = [_words(area._text) for area in areas]
            yield f"  box {', '.join(words)}"
    legend = axes.get_legend()
    if legend:
        yield f"  legend {[text.get_text() for text in legend.get_texts()]}"


def _data(line: Any) -> tuple[Any, Any]:
    x, y = line.get_data(orig=False)
    return np.asarray(x, float), np.asarray(y, float)


def _colour(colour: Any) -> str:
    return to_hex(colour, keep_alpha=True)


def _patch(patch: Patch) -> str:
    colour = _colour(patch.get_facecolor())
    if isinstance(patch, Rectangle):
        corner = _numbers((*patch.get_xy(), patch.get_width(), patch.get_height()))
        return f"rectangle {patch.get_label()!r} {colour} {patch.get_hatch() or ''!r}: {corner}"
    return f"{type(patch).__name__} {patch.get_label()!r} {colour}: {_points(patch.get_path().vertices)}"


def _collection(collection: Collection) -> str:
    colours = (
        collection.get_edgecolor() if isinstance(collection, LineCollection) else collection.get_facecolor()
    )
    looks = sorted({_colour(colour) for colour in np.atleast_2d(np.asarray(colours)) if len(colour)})
    offsets: Any = np.ma.filled(np.ma.asarray(collection.get_offsets(), float), np.nan)
    data = [offsets.reshape(-1, 2)] if isinstance(offsets, np.ndarray) and offsets.any() else []
    data += [np.asarray(path.vertices) for path in collection.get_paths()] if not data else []
    points = np.concatenate(data) if data else np.empty((0, 2))
    name = str(collection.get_label())
    name = "" if name.startswith("_child") else f" {name!r}"  # matplotlib's own: a running number
    kind = "band" if isinstance(collection, PolyCollection) else type(collection).__name__
    return f"{kind}{name} {' '.join(looks)}: {_points(points)}"


def _words(text: Text) -> str:
    return f"{text.get_text()!r} {_colour(text.get_color())}"


def _text(text: Text) -> str:
    if isinstance(text, Annotation):
        arrow = " with arrow" if text.arrow_patch else ""
        return (
            f"note {_words(text)} at {text.xycoords} {_numbers(text.xy)}, off {_numbers(text.xyann)}{arrow}"
        )
    return f"text {_words(text)} at {_numbers(text.get_position())}"
