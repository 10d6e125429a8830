"""Shared libraries that are not Python's: opened, and named by the file that they came from."""

from __future__ import annotations

import ctypes
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from gemmbench.rules.executor import NotMeasuredError


class _SymbolFile(ctypes.Structure):
    """What ``dladdr`` tells of an address."""

    _fields_ = (
        ("file", ctypes.c_char_p),
        ("base", ctypes.c_void_p),
        ("symbol", ctypes.c_char_p),
        ("address", ctypes.c_void_p),
    )


def opened(what: str, candidates: Iterable[str], advice: str) -> ctypes.CDLL:
    """The first library that loads.

    Args:
        what: its name for people.
        candidates: paths, or names that the system's loader looks for.
        advice: what to install where there is none.

    Raises:
        NotMeasuredError: unsupported: none is there, or one is and does not load.
    """
    broken = ""
    for candidate in candidates:
        try:
            return ctypes.CDLL(candidate)
        except OSError as error:
            if Path(candidate).is_file():  # it is there, and lacks something
                broken = f" ({error})"
    raise NotMeasuredError("unsupported", f"{what} is not there{broken}: {advice}")


def file_of(function: Any) -> Path | None:
    """The file that a library's function is in, links followed; None if the system does not tell."""
    found = _SymbolFile()
    try:
        known = ctypes.CDLL(None).dladdr(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(found))
    except (OSError, AttributeError, TypeError):  # Windows has no dladdr, and no library without a name
        return None
    return Path(found.file.decode(errors="replace")).resolve() if known and found.file else None
