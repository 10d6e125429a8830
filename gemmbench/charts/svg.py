"""A figure as the SVG of a page: small, with the points that answer to the pointer."""

from __future__ import annotations

import itertools
import re
import warnings
import xml.etree.ElementTree as ET
from collections.abc import Iterator
from dataclasses import dataclass, field
from io import BytesIO

from matplotlib.figure import Figure

from gemmbench.charts.pane import Mark

_SVG = "http://www.w3.org/2000/svg"
_HREF = "{http://www.w3.org/1999/xlink}href"
_POINTS = 72  # to the inch, which an SVG counts in
_REACH = 5  # points around a mark that answer to the pointer
_NUMBER = re.compile(r"-?\d+\.\d+")
_LOCAL = re.compile(r"url\(#([^)]*)\)")


@dataclass
class Shared:
    """What the charts of one page have in common, so that each stands there once."""

    styles: dict[str, str] = field(default_factory=dict)  # name of the class by declarations
    texts: dict[str, int] = field(default_factory=dict)  # position by text
    _charts: Iterator[int] = field(default_factory=itertools.count)

    @property
    def css(self) -> str:
        """The classes."""
        return "".join(f".{name}{{{style}}}" for style, name in self.styles.items())

    def chart(self) -> str:
        """What the names in one chart begin with."""
        return f"c{next(self._charts)}-"

    def style(self, declarations: str) -> str:
        """The class of a style."""
        short = re.sub(r"\s*([:;,])\s*", r"\1", _rounded(declarations).replace("'DejaVu Sans'", "inherit"))
        return self.styles.setdefault(short, f"s{len(self.styles)}")

    def text(self, text: str) -> int:
        """The position of what is said of a point."""
        return self.texts.setdefault(text, len(self.texts))


def to_svg(figure: Figure, shared: Shared, label: str) -> str:
    """A figure as an ``svg`` element with a label for screen readers; `shared` collects styles and texts.

    Every `Mark` becomes a circle that nobody sees; its ``data-s`` is the position of its text in `shared`.
    """
    drawn = BytesIO()
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=r"Glyph .* missing")
        warnings.filterwarnings("ignore", message=r"constrained_layout not applied")  # names without end
        figure.savefig(drawn, format="svg", metadata={"Date": None, "Creator": None})
    root = ET.fromstring(drawn.getvalue())
    for child in [
        each
        for each in root
        if each.tag == f"{{{_SVG}}}metadata" or each.find(f"{{{_SVG}}}style") is not None
    ]:
        root.remove(child)  # who made it, and the style that all charts have
    _name_anew(root, shared.chart())
    for element in root.iter():
        _shorten(element, shared)
    root.extend(_circles(figure, shared))
    for name in ("width", "height", "version"):
        root.attrib.pop(name, None)
    root.attrib |= {"role": "img", "aria-label": label}
    return _written(root)


def _name_anew(root: ET.Element, prefix: str) -> None:
    """Short names that no other chart of a page has; none where nothing refers to them."""
    used: dict[str, str] = {}

    def name(old: str) -> str:
        return used.setdefault(old, f"{prefix}{len(used)}")

    for element in root.iter():
        if (target := element.get(_HREF)) is not None:
            del element.attrib[_HREF]
            element.set("href", f"#{name(target[1:])}")
        for key, value in element.attrib.items():
            if "url(#" in value:
                element.set(key, _LOCAL.sub(lambda match: f"url(#{name(match[1])})", value))
    for element in root.iter():
        if (own := element.attrib.pop("id", None)) in used:
            element.set("id", used[own])


def _shorten(element: ET.Element, shared: Shared) -> None:
    """No white space between elements, no turn by nothing, one decimal, a class instead of a style."""
    if element.tag != f"{{{_SVG}}}text":
        element.text = None
    element.tail = None
    if element.get("transform", "").startswith("rotate(-0 "):
        del element.attrib["transform"]
    for name in ("d", "x", "y", "transform", "width", "height", "viewBox"):
        if value := element.get(name):
            element.set(name, " ".join(_rounded(value).split()))
    if style := element.attrib.pop("style", None):
        element.set("class", shared.style(style))


def _rounded(text: str) -> str:
    return _NUMBER.sub(lambda match: f"{float(match[0]):.1f}".removesuffix(".0"), text)


def _circles(figure: Figure, shared: Shared) -> Iterator[ET.Element]:
    """A circle for each mark that is within its pane, in the figure's order."""
    height, scale = figure.bbox.height, _POINTS / figure.dpi
    for each in figure.findobj(Mark):
        assert isinstance(each, Mark)
        x, y = each.pane.transData.transform(each.at)
        if not (abs(x) < 1e6 and abs(y) < 1e6):  # NaN, and what a logarithm has no place for
            continue
        at = {"cx": _rounded(f"{x * scale:.2f}"), "cy": _rounded(f"{(height - y) * scale:.2f}")}
        said = str(shared.text(each.text))
        yield ET.Element(f"{{{_SVG}}}circle", {**at, "r": str(_REACH), "data-s": said})


def _written(root: ET.Element) -> str:
    """As HTML takes it: no prefix, and groups that say nothing are gone."""
    _flatten(root)
    for element in root.iter():
        element.tag = element.tag.removeprefix(f"{{{_SVG}}}")
    return ET.tostring(root, encoding="unicode")


def _flatten(element: ET.Element) -> None:
    children: list[ET.Element] = []
    for child in element:
        _flatten(child)
        plain = child.tag == f"{{{_SVG}}}g" and not child.attrib
        children += list(child) if plain else [child]
    element[:] = children
