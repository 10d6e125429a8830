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
from gemmbench.report.table import Cell

_WORDY = 28  # letters, from which on a cell may be broken over lines


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
    )


def _file(name: str) -> str:
    return Path(__file__).with_name(name).read_text(encoding="utf-8")


def _looks(cell: Cell, is_number: bool = False) -> Markup:
    """The class of a cell as an attribute, if it has any."""
    names = ["n"] if is_number else []
    names += ["best"] if cell.best else cell.style.split()
    names += ["w"] if len(cell.text) > _WORDY else []
    return Markup(' class="{}"').format(" ".join(names)) if names else Markup("")
