"""Check the language of docs, help, messages and test names: phrases to avoid, and sentences over 30 words.

``python -m tools.plain_english`` prints each finding with its file, and ends with status 1 if there is one.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

from tools import man_page

ROOT = Path(__file__).resolve().parents[1]
LONGEST = 30  # words of a sentence
PHRASES = (
    "of which", "of whom", "anew", "likewise", "nevertheless", "no longer", "any more", "is told", "are told",
    "tells apart", "stands in", "stand in", "lends", "held against", "hold against", "in the place of",
    "in the way of", "by turns", "former self", "once and for all", "in its stead", "none of its own",
    "in turn", "beside", "tells", "told", "takes the place", "goes on with", "stands alone", "as compiled",
)  # fmt: skip


def pages() -> Iterator[tuple[str, str]]:
    """The name and text of every written page, and of every command's help."""
    for path in (ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))):
        yield path.relative_to(ROOT).as_posix(), prose(path.read_text(encoding="utf-8"))
    for name, text in man_page.helps(columns=10_000):
        yield f"gemmbench {name} --help".replace("  ", " "), "\n\n".join(text.splitlines())


def texts() -> Iterator[tuple[str, str]]:
    """The place and words of every message literal of the package, and of every test's name."""
    for path in sorted((ROOT / "gemmbench").rglob("*.py")):
        for line, text in literals(path.read_text(encoding="utf-8")):
            yield f"{path.relative_to(ROOT).as_posix()}:{line}", text
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for name in re.findall(r"^ *def (test_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE):
            yield path.relative_to(ROOT).as_posix(), name.replace("_", " ")


def literals(source: str) -> Iterator[tuple[int, str]]:
    """The line and text of each string of several words, without docstrings. Fields of f-strings are x."""
    tree = ast.parse(source)
    skipped = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}  # docstrings
    for node in (each for each in ast.walk(tree) if isinstance(each, ast.expr)):
        text = ""
        if isinstance(node, ast.JoinedStr):
            text = "".join(str(part.value) if isinstance(part, ast.Constant) else "x" for part in node.values)
            skipped |= set(map(id, node.values))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in skipped:
            text = node.value
        if " " in text.strip():
            yield node.lineno, text


def prose(page: str) -> str:
    """The running text of a page, without code, tables, headings and generated parts."""
    text = re.sub(r"<!-- The .*?<!-- End of the [^\n]*-->", "", page, flags=re.DOTALL)
    text = re.sub(r"^ *```.*?^ *```$", "", text, flags=re.MULTILINE | re.DOTALL)
    lines = (line for line in text.splitlines() if not re.match(r"\s*\||#|!\[| {4}", line))
    return re.sub(r"^[-*] |^\d+\. ", "\n", "\n".join(lines), flags=re.MULTILINE)


def findings(text: str) -> Iterator[str]:
    """What is wrong with a text, a sentence for each."""
    for paragraph in re.split(r"\n\s*\n", text):
        words = re.sub(r"`[^`]*`", "x", " ".join(paragraph.split()))
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", words)
        for phrase in PHRASES:
            if re.search(rf"\b{phrase}\b", words, re.IGNORECASE):
                yield f"avoid {phrase!r}: {words[:80]}"
        for sentence in re.split(r"(?<=[.!?:])\s+", words):
            if (count := len(sentence.split())) > LONGEST:
                yield f"{count} words in a sentence: {sentence[:80]}"


def main() -> int:
    """Print every finding; 1 if there is one."""
    problems = [f"{page}: {finding}" for page, text in (*pages(), *texts()) for finding in findings(text)]
    print("\n".join(problems), file=sys.stderr)
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
