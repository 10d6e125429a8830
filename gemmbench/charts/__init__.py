"""The names of chart files: the suffix selects the format."""

from __future__ import annotations

from pathlib import Path

SUFFIXES: tuple[str, ...] = (".png", ".svg", ".pdf")


def named(path: Path, kind: str) -> Path:
    """The file of one kind among several: ``out.png`` becomes ``out-ladder.png``; ``h200-peak.png`` stays."""
    ends = path.stem == kind or path.stem.endswith(f"-{kind}")
    return path if ends else path.with_name(f"{path.stem}-{kind}{path.suffix}")
