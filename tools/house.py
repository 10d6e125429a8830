"""The size of the repository, against limits: lines, names, docstrings, imports, megabytes of plots/.

``python tools/house.py`` prints the package by folder; ``--check`` ends with status 1 if a limit is exceeded.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from itertools import chain
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
VAGUE = ("found", "one", "mine", "theirs", "place", "told", "taken", "lent")

LIMITS = {
    "lines of gemmbench/": 30_000,
    "files of gemmbench/": 103,
    "import lines of gemmbench/": 1_650,  # 6 % of its lines
    f"vague names in gemmbench/ ({', '.join(VAGUE)})": 5,
    "words in docstrings of gemmbench/": 25_500,
    "public functions and classes defined in several modules of gemmbench/": 4,
    "folders in the longest chain of imports of gemmbench/": 12,
    "lines of tests/ and tools/": 36_400,
    "MB of plots/": 10,
}


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


def rooms(package: Path) -> dict[str, Room]:
    """The figures of each folder of the package, the files outside of any under ``.``."""
    sums: dict[str, Room] = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).parts
        name = parts[0] if len(parts) > 1 else "."
        sums[name] = sums.get(name, Room()) + measured(path.read_text(encoding="utf-8"))
    return sums


def trees(package: Path) -> dict[str, list[ast.Module]]:
    """The modules of each folder of the package, a file outside of any as one of its own."""
    parsed: dict[str, list[ast.Module]] = {}
    for path in package.rglob("*.py"):
        name = path.relative_to(package).parts[0].removesuffix(".py")
        parsed.setdefault(name, []).append(ast.parse(path.read_text(encoding="utf-8")))
    return parsed


def docstring_words(modules: Iterable[ast.Module]) -> int:
    """Words in the docstrings of modules, classes and functions."""
    kinds = ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
    nodes = (node for module in modules for node in ast.walk(module))
    return sum(len((ast.get_docstring(node) or "").split()) for node in nodes if isinstance(node, kinds))


def repeated_names(modules: Iterable[ast.Module]) -> list[str]:
    """Public functions and classes that several modules define."""
    names = (
        {node.name for node in module.body if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        for module in modules
    )
    counts = Counter(name for each in names for name in each if not name.startswith("_"))
    return sorted(name for name, count in counts.items() if count > 1)


def longest_chain(folders: dict[str, list[ast.Module]]) -> list[str]:
    """The longest chain of folders: each imports the next."""
    nodes = {name: [node for each in modules for node in ast.walk(each)] for name, modules in folders.items()}
    imports: dict[str, set[str]] = {}
    for name, each in nodes.items():
        froms = [node for node in each if isinstance(node, ast.ImportFrom) and node.module]
        words = {f"{node.module}.{alias.name}" for node in froms for alias in node.names}
        words |= {alias.name for node in each if isinstance(node, ast.Import) for alias in node.names}
        others = {word.split(".")[1] for word in words if word.startswith("gemmbench.")}
        imports[name] = others & folders.keys() - {name}

    @cache
    def below(name: str) -> list[str]:
        return [name, *max(map(below, sorted(imports[name])), key=len, default=[])]

    return max(map(below, sorted(folders)), key=len, default=[])


def figures(total: Room, root: Path = ROOT) -> dict[str, int]:
    """What the limits are for, under the same names."""
    folders = trees(root / "gemmbench")
    modules = list(chain(*folders.values()))
    others = [path for folder in ("tests", "tools") for path in (root / folder).rglob("*.py")]
    plots = sum(path.stat().st_size for path in (root / "plots").rglob("*") if path.is_file())
    values = (
        *(total.lines, total.files, total.imports, total.vague),
        docstring_words(modules),
        len(repeated_names(modules)),
        len(longest_chain(folders)),
        sum(path.read_bytes().count(b"\n") for path in others),
        round(plots / 1e6),
    )
    return dict(zip(LIMITS, values, strict=True))


def exceeded(values: dict[str, int]) -> list[str]:
    """A sentence for each limit that is exceeded."""
    return [
        f"{value:,} {what}, more than {LIMITS[what]:,}"
        for what, value in values.items()
        if value > LIMITS[what]
    ]


def main() -> int:
    """Print the figures; 1 with ``--check`` if a limit is exceeded."""
    by_room = rooms(ROOT / "gemmbench")
    total = sum(by_room.values(), Room())
    values = figures(total)
    if "--check" in sys.argv:
        for sentence in (sentences := exceeded(values)):
            print(sentence, file=sys.stderr)
        return int(bool(sentences))
    print(f"{'':12}{'lines':>8}{'files':>7}{'imports':>9}{'vague names':>13}")
    for name, room in [*by_room.items(), ("total", total)]:
        print(f"{name:12}{room.lines:8,}{room.files:7}{room.imports:9,}{room.vague:13,}")
    for what, value in values.items():
        print(f"{value:8,} of {LIMITS[what]:,} {what}")
    folders = trees(ROOT / "gemmbench")
    print("names in several modules:", *repeated_names(chain(*folders.values())))
    print("longest chain:", " -> ".join(longest_chain(folders)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
