"""Saved runs for other programs: JSON, CSV, GitHub's markdown. Independent of locale; never a NaN."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gemmbench.facts import concurrent, derive
from gemmbench.facts.records import SCOPES, Row, Run
from gemmbench.facts.text import clean, listed
from gemmbench.render.sheet import Cell, Sheet
from gemmbench.render.show import sheets

# fmt: off
CSV_FIELDS: tuple[str, ...] = (
    "kind", "variant", "device", "device_name", "driver", "dtype", "label", "m", "n", "k",
    "alpha", "beta", "status", "reason", "parameters", "choice",
    "kernel_gflops", "device_gflops", "host_gflops", "peak_fraction",
    "gflops", "gbps", "latency_s", "energy_j", "gflop_per_j", "width", "noise",
    "kernel_s", "device_s", "host_s", "build_s", "memory", "verdict", "source", "notes",
)
# fmt: on


def to_json(run: Run) -> str:
    """A JSON array, a row on each line: the derived fields beside the stored ones, samples included."""
    lines = [json.dumps(record, allow_nan=False, ensure_ascii=True) for record in to_records(run)]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def to_records(run: Run) -> list[dict[str, Any]]:
    """A plain dictionary for each row: the derived fields beside the stored ones; None where unknown."""
    return [_record(run, row) for row in run.rows]


def to_csv(run: Run) -> str:
    """Comma-separated values with a heading: derived fields and the main stored ones, no samples.

    Times are medians in seconds, rates 1e9 per second, empty where unknown.
    """
    text = io.StringIO()
    writer = csv.DictWriter(text, CSV_FIELDS, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in run.rows:
        writer.writerow(_flat(run, row))
    return text.getvalue()


def to_markdown(run: Run, order: Sequence[str] = ()) -> str:
    """GitHub tables: the same as in the terminal, the best in bold."""
    return "\n".join(map(sheet_markdown, sheets(run, order))) or "No rows.\n"


FORMATS: dict[str, Callable[[Run, Sequence[str]], str]] = {
    "json": lambda run, _: to_json(run),
    "csv": lambda run, _: to_csv(run),
    "markdown": to_markdown,
}
"""What ``--format`` takes beside ``table``: text of a run, with variants in the order of the ladder."""


def _device(run: Run, row: Row) -> dict[str, str]:
    device = run.device(row)
    if device is None:
        return {"device_name": run.header.host.cpu, "driver": run.header.host.blas}
    return {"device_name": device.name, "driver": f"{device.platform} {device.driver}"}


def _record(run: Run, row: Row) -> dict[str, Any]:
    merged = msgspec.to_builtins(row) | derive.derived(run, row) | _device(run, row)
    merged |= concurrent.derived(run, row)
    return {name: finite(value) for name, value in merged.items()}


def finite(value: object) -> object:
    """The same with null for what JSON has no word for."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [finite(item) for item in value]
    return value


def _flat(run: Run, row: Row) -> dict[str, object]:
    medians = {
        f"{scope}_s": times.median if (times := derive.summary(row, scope)) and row.status == "ok" else None
        for scope in SCOPES
    }
    known: dict[str, object] = {
        **derive.derived(run, row),
        **_device(run, row),
        **medians,
        "device": row.device,
        "label": row.label or row.phase,
        "alpha": row.problem.alpha if row.problem else None,
        "beta": row.problem.beta if row.problem else None,
        "parameters": listed(row.case_parameters),
        "choice": listed(row.choice),
        "build_s": row.build_s,
        "memory": row.memory,
        "verdict": row.check.verdict,
        "source": row.source,
        "notes": "; ".join(row.remarks),
    }
    return {name: clean(value) if isinstance(value, str) else finite(value) for name, value in known.items()}


def sheet_markdown(sheet: Sheet) -> str:
    """One table as GitHub's markdown."""
    lines = []
    if sheet.heading:
        lines += [f"**{_escaped(' | '.join(sheet.heading))}**", ""]
    if sheet.caption:
        lines += [_escaped(sheet.caption.replace("; * ", "; bold: ")), ""]
    if sheet.rows:
        marks = [
            ":--" if not place or name in sheet.left else "--:" for place, name in enumerate(sheet.columns)
        ]
        lines += [_line([_escaped(name) for name in sheet.columns]), _line(marks)]
        lines += [_line([_cell(cell) for cell in row]) for row in sheet.rows]
        lines.append("")
    if sheet.notes:
        lines += [
            "- " + _escaped(f"{note.label}: {note.text}" if note.label else note.text) for note in sheet.notes
        ]
        lines.append("")
    return "\n".join(lines)


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _cell(cell: Cell) -> str:
    text = _escaped(cell.text)
    return f"**{text}**" if cell.best else text


def _escaped(text: str) -> str:
    """Text that GitHub shows as it is: no table cells, emphasis, code, links or HTML of its own."""
    text = " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return "".join(f"\\{letter}" if letter in "\\|`*_[]~$#" else letter for letter in text)
