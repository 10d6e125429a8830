"""A report's content as HTML, with all that it needs inside."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from pathlib import Path

from jinja2 import Environment
from markupsafe import Markup

from gemmbench import __version__
from gemmbench.model.run_file import Run
from gemmbench.pages import content
from gemmbench.pages.content import Wanted
from gemmbench.report.table import Cell, Sheet

_WORDY = 28  # letters, from which on a cell may be broken over lines
_MOST = 300  # rows of a table that are HTML: a browser takes seconds to read thousands


def html(runs: Sequence[Run], wanted: Wanted | None = None) -> str:
    """A report of runs; equal runs give an equal page.

    The page fetches nothing, and its own policy forbids it: no script but the one with this hash is run.

    Args:
        runs: one or more, with rows.
        wanted: title, charts, threshold.

    Raises:
        RunFileError: a run of a series does not say when it started.
    """
    script = _file("report.js")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    return environment.from_string(_file("report.html")).render(
        page=content.page(runs, wanted),
        css=_file("report.css"),
        script=script,
        digest=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        version=__version__,
        looks=_looks,
        rest=_rest,
        most=_MOST,
    )


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _looks(cell: Cell, is_left: bool = False) -> Markup:
    """The class of a cell as an attribute, if it has any."""
    names = " ".join(["l", *_classes(cell)] if is_left else _classes(cell))
    return Markup(' class="{}"').format(names) if names else Markup("")


def _classes(cell: Cell) -> list[str]:
    names = ["best"] if cell.best else cell.style.split()
    return [*names, "w"] if len(cell.text) > _WORDY else names


def _rest(sheet: Sheet) -> list[list[str | list[str]]]:
    """The rows of a table that are no HTML: a text for each cell, or text and classes."""
    return [
        [[cell.plain, " ".join(names)] if (names := _classes(cell)) else cell.plain for cell in row]
        for row in sheet.rows[_MOST:]
    ]
