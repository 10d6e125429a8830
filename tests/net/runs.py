"""Runs made of the saved ones, as JSON: an A/A recording cut into its repetitions, slower rows."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Line = dict[str, Any]


def read(path: str | Path) -> tuple[Line, list[Line]]:
    """A saved run's header and rows."""
    header, *rows = [json.loads(line) for line in Path(path).read_text(encoding="utf-8").splitlines()]
    return header, rows


def write(path: str | Path, header: Line, rows: Sequence[Line]) -> str:
    """Save a run; its name."""
    lines = [json.dumps(line, separators=(",", ":")) for line in (header, *rows)]
    Path(path).write_text("\n".join(lines) + "\n", encoding="utf-8")
    return str(path)


def repetitions(path: str) -> list[tuple[Line, list[Line]]]:
    """An A/A recording's repetitions, each as a run of its own, a day after the one before."""
    header, rows = read(path)
    count: Counter[str] = Counter()
    runs: dict[int, list[Line]] = {}
    for row in rows:
        key = json.dumps(
            [row.get(name) for name in ("kind", "device", "variant", "dtype", "problem", "parameters")]
        )
        runs.setdefault(count[key], []).append(row)
        count[key] += 1
    return [
        ({**header, "started_utc": f"2026-11-{1 + number:02d}T12:00:00+00:00"}, runs[number])
        for number in sorted(runs)
    ]


def scaled(rows: Sequence[Line], factors: Mapping[tuple[str, int], float], others: float = 1.0) -> list[Line]:
    """Rows of a variant and an m whose times are so many times as long, and the other rows."""
    return [
        _scaled(row, factors.get((row["variant"], (row.get("problem") or {}).get("m", 0)), others))
        for row in rows
    ]


def _scaled(row: Line, factor: float) -> Line:
    samples = {
        name: {**scope, "seconds": [second * factor for second in scope["seconds"]]}
        for name, scope in row.get("samples", {}).items()
    }
    return {**row, "samples": samples} if factor != 1 else row
