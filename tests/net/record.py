"""What the command line prints, written down: short outputs as text, long ones as digests.

A digest keeps the number of lines, the first three, and three hexadecimal digits for each line, so that a
difference can be named line by line. `GEMMBENCH_NET_TEXT=FOLDER` writes every output in full into a folder:
do it in two checkouts, and `diff -r` shows what changed.
"""

from __future__ import annotations

import difflib
import hashlib
import os
import re
import textwrap
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from click.testing import CliRunner

from gemmbench import cli

GOLDEN = Path(__file__).parent / "golden"

_SHORT = 5000  # characters that are kept as text
_CUT = 120  # characters of a line beside a digest
_SHOWN = 12  # differences in a message


_LONG = re.compile(r"-?\d+\.\d{11,}(?:e[-+]?\d+)?")  # a float in all its digits


def normal(text: str) -> list[str]:
    """Lines without spaces at their ends; a line for each tag of XML; no version, no working folder."""
    text = text.replace(f"{Path.cwd()}{os.sep}", "")
    text = re.sub(r"^(gemmbench, version ).*", r"\1VERSION", text)
    if text.startswith(("<?xml", "<testsuites")):
        text = text.replace("><", ">\n<")
    return [line.rstrip() for line in text.splitlines()]


def _mark(line: str) -> str:
    return hashlib.sha256(line.encode()).hexdigest()[:3]


@dataclass
class Book:
    """One golden file: sections, each with a title and what was printed under it."""

    name: str
    sections: dict[str, list[str]] = field(default_factory=dict)  # the lines of each

    def call(self, *words: str, stdout: bool = True) -> int:
        """Run ``gemmbench WORDS`` here, write down what it says, and return its exit status."""
        columns = os.environ["COLUMNS"]
        result = CliRunner().invoke(cli.main, list(words), prog_name="gemmbench")
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        title = ("" if columns == "80" else f"COLUMNS={columns} ") + " ".join(["gemmbench", *words])
        lines = [f"exit {result.exit_code}", *(f"! {line}" for line in normal(result.stderr))]
        self.write(f"$ {title}", [*lines, *(normal(result.stdout) if stdout else ())])
        return result.exit_code

    def write(self, title: str, lines: Sequence[str]) -> None:
        """Write a section down; of two with the same title the second gets a number.

        The last digits of a float are the processor's: numpy adds up in other orders with wider vectors.
        """
        number, name = 1, title
        while name in self.sections:
            number += 1
            name = f"{title} ({number})"
        self.sections[name] = [_LONG.sub(lambda match: f"{float(match[0]):.10g}", line) for line in lines]

    def check(self, update: bool) -> None:
        """Hold everything against the golden file.

        Raises:
            AssertionError: something differs; the message says what.
        """
        self._dump()
        path = GOLDEN / f"{self.name}.txt"
        text = "\n".join(
            f"{title}\n" + "\n".join(_kept(lines)) + "\n" for title, lines in self.sections.items()
        )
        if update:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert path.exists(), f"no {path}; pytest --update-golden writes it"
        golden = path.read_text(encoding="utf-8")
        assert text == golden, f"{path}: look, then --update-golden\n" + "\n".join(self._differences(golden))

    def _differences(self, golden: str) -> list[str]:
        before = _parsed(golden)
        told = [f"- gone: {title}" for title in before if title not in self.sections]
        for title, lines in self.sections.items():
            if title not in before:
                told.append(f"+ new: {title}")
            elif before[title] != _kept(lines):
                told += [title, *(f"    {line}" for line in _changed(before[title], lines))]
        return told or ["the order of sections differs"]

    def _dump(self) -> None:
        if folder := os.environ.get("GEMMBENCH_NET_TEXT"):
            Path(folder).mkdir(parents=True, exist_ok=True)
            text = "".join(f"{title}\n" + "\n".join(lines) + "\n\n" for title, lines in self.sections.items())
            Path(folder, f"{self.name}.txt").write_text(text, encoding="utf-8")


def _indented(line: str) -> str:
    return f"  {line}".rstrip()


def _kept(lines: Sequence[str]) -> list[str]:
    """What the golden file keeps of a section."""
    text = "\n".join(lines)
    if len(text) <= _SHORT:
        return [_indented(line) for line in lines]
    first = [line[:_CUT] + (" ..." if len(line) > _CUT else "") for line in lines[:3]]
    marks = textwrap.wrap(" ".join(map(_mark, lines)), 104)
    digest = hashlib.sha256(text.encode()).hexdigest()
    kept = [*first, f"... {len(lines)} lines, {len(text)} characters, sha256 {digest}", *marks]
    return [_indented(line) for line in kept]


def _parsed(golden: str) -> dict[str, list[str]]:
    sections: dict[str, list[str]] = {}
    title = ""
    for line in golden.splitlines():
        if line and not line.startswith(" "):
            title = line
            sections[title] = []
        elif title:
            sections[title].append(_indented(line.removeprefix("  ")))
    return {title: lines[: len(lines) - (not lines[-1].strip())] for title, lines in sections.items()}


def _changed(before: Sequence[str], lines: Sequence[str]) -> list[str]:
    """The lines that differ: with the old text, where the golden file has it."""
    end = next((i for i, line in enumerate(before) if re.match(r"  \.\.\. \d+ lines, ", line)), None)
    if end is None:
        now = [_indented(line) for line in lines]
        return [
            line
            for line in difflib.unified_diff(before, now, n=0, lineterm="")
            if line[:3] not in ("---", "+++")
        ]
    marks = " ".join(before[end + 1 :]).split()
    told = []
    matcher = difflib.SequenceMatcher(None, marks, [_mark(line) for line in lines], autojunk=False)
    for what, i, j, first, last in matcher.get_opcodes():
        if what != "equal":
            told.append(f"{what}: lines {i + 1} to {j} of the golden output")
            told += [f"+ {line[:400]}" for line in lines[first:last]]
    return [*told[:_SHOWN], "..."] if len(told) > _SHOWN else told
