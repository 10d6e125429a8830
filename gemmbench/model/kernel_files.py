"""Where the OpenCL C files are, and their text with the one header put in."""

from __future__ import annotations

import hashlib
import re
from functools import cache
from pathlib import Path

MARK = "common.clh"  # that every folder of kernels has
_INCLUDE = re.compile(r'^#include "([\w./-]+)"[^\S\n]*$', re.MULTILINE)


@cache
def folder() -> Path:
    """The ``kernels`` folder: inside the package in a wheel, beside it in a checkout or editable install.

    Raises:
        FileNotFoundError: neither is there, so the installation is broken.
    """
    package = Path(__file__).resolve().parent.parent
    for candidate in (package / "_kernels", package.parent / "kernels"):
        if (candidate / MARK).is_file():
            return candidate
    raise FileNotFoundError(f"gemmbench's kernels folder is not in {package} nor beside it")


def raw(file: str, root: str = "") -> str:
    """The text of one file as it stands.

    Args:
        file: named relative to the kernels folder.
        root: another kernels folder than gemmbench's own.
    """
    return ((Path(root) if root else folder()) / file).read_text(encoding="utf-8")


def opening(file: str) -> str:
    """The comment that a file opens with, without its frame; "" if it opens with none."""
    comment = re.match(r"/\*(.*?)\*/", raw(file), re.DOTALL)
    return re.sub(r"^ \* ?", "", comment[1], flags=re.MULTILINE).strip() if comment else ""


@cache
def text(file: str, root: str = "") -> str:
    """The source of one ``.cl`` file with every ``#include`` replaced; arguments as of `raw`.

    Drivers differ in how they take include paths (spaces, caches), so none is handed to them.
    """
    return _INCLUDE.sub(lambda match: text(match[1], root), raw(file, root))


def fingerprint(files: tuple[str, ...], options: tuple[str, ...], root: str = "") -> str:
    """Sixteen hex digits that change when the kernels or their -D list do: kept in every row.

    Args:
        files: named relative to the kernels folder.
        options: that they are compiled with.
        root: another kernels folder than gemmbench's own.
    """
    digest = hashlib.sha256()
    for part in (*(text(file, root) for file in files), *options):
        digest.update(part.encode() + b"\0")
    return digest.hexdigest()[:16]
