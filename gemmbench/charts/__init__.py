"""How chart files are named: the format by suffix, the kind at the end where several are drawn."""

from __future__ import annotations

from pathlib import Path

SUFFIXES: tuple[str, ...] = (".png", ".svg", ".pdf")


def named(path: Path, kind: str) -> Path:
    """The file of one kind beside others: ``out.png`` becomes ``out-ladder.png``; ``h200-peak.png`` stays."""
    ends = path.stem == kind or path.stem.endswith(f"-{kind}")
    return path if ends else path.with_name(f"{path.stem}-{kind}{path.suffix}")
