"""A run for other programs: every format beside the tables, with what it leaves out."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from gemmbench import views
from gemmbench.exports import dashboards, records
from gemmbench.exports.records import standing
from gemmbench.model.run_file import Run
from gemmbench.model.units import counted


@dataclass(frozen=True)
class Format:
    """One way to write a run as text."""

    text: Callable[[Run, Sequence[str]], str]  # of a run, with variants in the order of the ladder
    only_ok: bool = False  # it has no word for a row without a result, or with a suspect one


FORMATS: Mapping[str, Format] = {
    "json": Format(lambda run, _: records.to_json(run)),
    "csv": Format(lambda run, _: records.to_csv(run)),
    "markdown": Format(views.to_markdown),
    "google-benchmark": Format(lambda run, _: dashboards.google_benchmark(run), only_ok=True),
    "openmetrics": Format(lambda run, _: dashboards.openmetrics(run)),
}
"""What ``--format`` takes beside ``table``."""


def left_out(run: Run, name: str) -> str:
    """The rows that a format leaves out, as a sentence; "" if it has them all."""
    counts = Counter(outcome for row in run.rows if (outcome := standing(row)) != "ok")
    if name not in FORMATS or not FORMATS[name].only_ok or not counts:
        return ""
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    rows = counted(counts.total(), "row")
    return f"{name} has no word for rows that are not ok: {rows} left out ({listed})."
