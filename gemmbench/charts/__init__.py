"""The names of chart files, where the suffix selects the format, and the first import of matplotlib."""

from __future__ import annotations

import logging
import os
import sys
from contextlib import suppress
from logging.handlers import BufferingHandler
from pathlib import Path

from gemmbench import UsageError

SUFFIXES: tuple[str, ...] = (".png", ".svg", ".pdf")
_BACKEND = "MPLBACKEND"


def add_kind(path: Path, kind: str) -> Path:
    """The file of one kind among several: ``out.png`` becomes ``out-ladder.png``; ``h200-peak.png`` stays."""
    ends = path.stem == kind or path.stem.endswith(f"-{kind}")
    return path if ends else path.with_name(f"{path.stem}-{kind}{path.suffix}")


def load_matplotlib() -> None:
    """Import matplotlib before a module that does. `UsageError` if that fails.

    An unknown backend in MPLBACKEND, such as a notebook's, is ignored.
    """
    if "matplotlib" in sys.modules:
        return
    backend = os.environ.pop(_BACKEND, None)
    log, handler = logging.getLogger("matplotlib"), BufferingHandler(sys.maxsize)
    log.addHandler(handler)
    try:
        import matplotlib
    except Exception as error:
        is_logged = isinstance(error, UnicodeError) and handler.buffer  # the error itself names no file
        reason = handler.buffer[-1].getMessage() if is_logged else f"{type(error).__name__}: {error}"
        raise UsageError(f"no chart can be drawn, because matplotlib does not start: {reason}") from None
    finally:
        log.removeHandler(handler)
        if backend is not None:
            os.environ[_BACKEND] = backend
    if backend:
        with suppress(ValueError):
            matplotlib.rcParams["backend"] = backend
