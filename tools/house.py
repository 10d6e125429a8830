"""The size of the package: lines, files, import lines, and names that a stranger cannot search for.

``python tools/house.py`` prints them by room; ``--check`` ends with status 1 where a limit is passed.
"""

from __future__ import annotations

import argparse
import ast
import io
import sys
import tokenize
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1] / "gemmbench"

MOST_LINES = 45_970
MOST_FILES = 122
MOST_IMPORTS = 0.05  # of all lines
VAGUE = ("found", "one", "mine", "theirs", "place", "told", "taken", "lent")
MOST_VAGUE = 5


@dataclass
class Room:
    """What the files of one folder add up to."""

    lines: int = 0
    files: int = 0
    imports: int = 0
    vague: int = 0

    def __add__(self, other: Room) -> Room:
        return Room(
            self.lines + other.lines,
            self.files + other.files,
            self.imports + other.imports,
            self.vague + other.vague,
        )


def measured(source: str) -> Room:
    """One file's figures."""
    imports = sum(
        (node.end_lineno or node.lineno) - node.lineno + 1
        for node in ast.walk(ast.parse(source))
        if isinstance(node, ast.Import | ast.ImportFrom)
    )
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    words = Counter(token.string for token in tokens if token.type == tokenize.NAME)
    return Room(source.count("\n"), 1, imports, sum(words[word] for word in VAGUE))


def rooms(package: Path = PACKAGE) -> dict[str, Room]:
    """The figures of each folder of the package, the files outside of any under ``.``."""
    sums: dict[str, Room] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        name = parts[0] if len(parts) > 1 else "."
        sums[name] = sums.get(name, Room()) + measured(path.read_text(encoding="utf-8"))
    return sums


def too_much(total: Room) -> list[str]:
    """A sentence for each limit that is passed."""
    limits = (
        ("lines", total.lines, MOST_LINES),
        ("files", total.files, MOST_FILES),
        ("import lines", total.imports, int(MOST_IMPORTS * total.lines)),
        (f"vague names ({', '.join(VAGUE)})", total.vague, MOST_VAGUE),
    )
    return [f"{count:,} {what}, more than {most:,}" for what, count, most in limits if count > most]


def main() -> int:
    """Print the figures; 1 if ``--check`` is given and a limit is passed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="end with status 1 where a limit is passed")
    check = parser.parse_args().check
    by_room = rooms()
    total = sum(by_room.values(), Room())
    if not check:
        print(f"{'':12}{'lines':>8}{'files':>7}{'imports':>9}{'vague names':>13}")
        for name, room in [*by_room.items(), ("total", total)]:
            print(f"{name:12}{room.lines:8,}{room.files:7}{room.imports:9,}{room.vague:13,}")
    failures = too_much(total)
    for sentence in failures:
        print(f"gemmbench/ has {sentence}", file=sys.stderr)
    return 1 if check and failures else 0


if __name__ == "__main__":
    sys.exit(main())
