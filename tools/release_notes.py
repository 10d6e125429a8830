"""What CHANGELOG.md says of the version that a tag names.

    python tools/release_notes.py v0.1.0

Ends with status 2 where the tag, `gemmbench.__version__` and the changelog do not agree, or the changelog has
no date for the version.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class ReleaseError(Exception):
    """What is not ready; the message is for whoever releases."""


def notes(tag: str, version: str, changelog: str) -> str:
    """The section of a version, without its heading.

    Raises:
        ReleaseError: it is not ready to be released.
    """
    if tag != f"v{version}":
        raise ReleaseError(f"the tag is {tag}, and gemmbench/__init__.py has version {version}")
    sections = re.split(r"^## ", changelog, flags=re.MULTILINE)[1:]
    for section in sections:
        heading, _, text = section.partition("\n")
        if heading.startswith(f"[{version}]"):
            if not re.fullmatch(r"\[[^]]+\] - \d{4}-\d{2}-\d{2}", heading):
                raise ReleaseError(f"CHANGELOG.md: '## {heading}' is not '## [{version}] - YYYY-MM-DD'")
            if not text.strip():
                raise ReleaseError(f"CHANGELOG.md has nothing under '## {heading}'")
            return text.strip() + "\n"
    raise ReleaseError(f"CHANGELOG.md has no section '## [{version}] - YYYY-MM-DD'")


def version() -> str:
    """The package's, without importing it: nothing need be installed."""
    text = (ROOT / "gemmbench" / "__init__.py").read_text(encoding="utf-8")
    match = re.search(r'^__version__ = "(.+)"$', text, re.MULTILINE)
    assert match is not None
    return match[1]


def main(arguments: list[str]) -> int:
    if len(arguments) != 1:
        print("usage: python tools/release_notes.py TAG", file=sys.stderr)
        return 2
    try:
        text = notes(arguments[0], version(), (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"))
    except ReleaseError as error:
        print(f"release_notes.py: {error}", file=sys.stderr)
        return 2
    sys.stdout.write(text)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
