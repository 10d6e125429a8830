"""Which table a run gets, and a run as JSON, CSV and markdown."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
from rich.console import Group, RenderableType
from rich.text import Text

from gemmbench.gemm import lowering, protocols_table, shape_tables, sweep_table
from gemmbench.gemm.sweep_table import gemm
from gemmbench.model.row import SCOPES, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean, listed
from gemmbench.probes import peak_table
from gemmbench.report import conditions, sustained
from gemmbench.report.table import Sheet, finite, sheet_markdown, stack
from gemmbench.stats import rates
from gemmbench.stats.conditions import disturbed, in_short
from gemmbench.stats.panels import sweep_axis
from gemmbench.suite import together_table
from gemmbench.suite.together_table import alone
from gemmbench.tune import result as tuning

View = Callable[[Run, str, Sequence[str]], list[Sheet]]  # from a run, a scope and the ladder's order

AXES: Mapping[str, str] = {"square": "m", "sweep-k": "k"}
"""The dimension that varies, by the view of a sweep."""


def _swept(run: Run, scope: str, order: Sequence[str]) -> list[Sheet]:
    return sweep_table.sheets(run, AXES[run.header.view], scope, order)


def _by_rows(run: Run, scope: str, order: Sequence[str]) -> list[Sheet]:
    """The tables of rows whose view is unknown: a sweep if they are one, otherwise a line for each."""
    axis = sweep_axis(run.rows)
    return sweep_table.sheets(run, axis, scope, order) if axis else sweep_table.row_sheets(run, order)


VIEWS: Mapping[str, View] = {
    **dict.fromkeys(AXES, _swept),
    "precision": shape_tables.sheets,
    "workloads": shape_tables.workloads_sheets,
    "tune": lambda run, scope, order: tuning.sheets(run),
}
"""The tables of GEMM rows by the header's view; other views have those that suit the rows."""


def show(run: Run, order: Sequence[str] = (), verbose: bool = False, own: bool = False) -> RenderableType:
    """The tables that suit a run's rows; one problem gets its pages.

    Args:
        run: the run.
        order: variants in the order of the ladder.
        verbose: a line for each GEMM row, with every scope, and how every race went.
        own: only what the command was for: no tables of peaks that were measured beside GEMMs.
    """
    single = alone(run)
    problems = {row.problem for row in single.rows if row.kind == "gemm"}
    if run.header.view == "gemm" and (own or len(problems) == 1):
        rest = [*([] if own else _peaks(single, verbose)), *_below(run, order, verbose)]
        return Group(gemm(single), *([Text(""), stack(rest)] if rest else []))
    tables = sheets(run, order, verbose, own)
    return stack(tables) if tables else Text("No rows: the run ended before its first result.")


def sheets(run: Run, order: Sequence[str] = (), verbose: bool = False, own: bool = False) -> list[Sheet]:
    """Each command's own table (every row with every scope, if verbose), then the microbenchmarks.

    Last come the tables of several devices at once and, if verbose, the conditions. Arguments as of `show`.
    """
    single, scope = alone(run), _scope(run)
    if run.header.view == "protocols":
        return protocols_table.sheets(run)
    view = VIEWS.get(run.header.view, _by_rows)
    every = verbose or scope == "all"
    tables = sweep_table.row_sheets(single, order) if every else view(single, scope, order)
    tables += shape_tables.net_sheets(single)
    if not (own and run.header.view in VIEWS):
        tables += _peaks(single, verbose)
    return [*tables, *_below(run, order, verbose)]


def _peaks(run: Run, verbose: bool) -> list[Sheet]:
    return [*peak_table.sheets(run, verbose), *peak_table.memory_sheets(run)]


def _below(run: Run, order: Sequence[str], verbose: bool) -> list[Sheet]:
    """The tables of several devices at once and, if verbose, under which conditions rows were measured."""
    at_once = together_table.sheets(run, _scope(run), order, verbose)
    maths = sweep_table.math_sheets(alone(run), _scope(run))
    return [*maths, *at_once, *sustained.sheets(run), *(conditions.sheets(alone(run)) if verbose else [])]


def _scope(run: Run) -> str:
    """The scope that the run's tables show, or ``all``."""
    return "all" if run.header.scope == "all" else rates.view_scope(run)


# --- Saved runs for other programs: JSON, CSV, GitHub's markdown. Independent of locale; never a NaN --------


# fmt: off
CSV_FIELDS: tuple[str, ...] = (
    "kind", "variant", "device", "device_name", "driver", "dtype", "label", "m", "n", "k",
    "lda", "ldb", "ldc", "alpha", "beta", "status", "reason", "parameters", "choice",
    "kernel_gflops", "device_gflops", "host_gflops", "helpers_share", "peak_fraction",
    "gflops", "gbps", "latency_s", "energy_j", "gflop_per_j", "width", "noise", "few", "residual",
    "versus", "versus_ratio", "versus_low", "versus_high", "versus_scope",
    "state", "clock_mhz", "limits", "other_cores", "steal_cores", "switches", "disturbed",
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
    by_protocol = run.header.view == "protocols"  # a line for each of them
    fields = protocols_table.CSV_FIELDS if by_protocol else CSV_FIELDS
    writer = csv.DictWriter(text, fields, extrasaction="ignore", lineterminator="\n")
    writer.writeheader()
    for row in run.rows:
        writer.writerows(protocols_table.records(row) if by_protocol else [_flat(run, row)])
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
    merged = msgspec.to_builtins(row) | rates.derived(run, row) | _device(run, row)
    merged.pop("matrices", None)  # `show` prints them
    merged |= {"disturbed": list(disturbed(run, row))}
    if row.protocols:
        merged["by_protocol"] = protocols_table.records(row)
    merged |= together_table.derived(run, row) | lowering.derived(run, row)
    return {name: finite(value) for name, value in merged.items()}


def _flat(run: Run, row: Row) -> dict[str, object]:
    medians = {
        f"{scope}_s": times.median if (times := rates.summary(row, scope)) and row.status == "ok" else None
        for scope in SCOPES
    }
    known: dict[str, object] = {
        **rates.derived(run, row),
        **_device(run, row),
        **medians,
        "device": row.device,
        "label": row.label or row.phase,
        "alpha": row.problem.alpha if row.problem else None,
        "beta": row.problem.beta if row.problem else None,
        **in_short(row),
        "disturbed": "; ".join(disturbed(run, row)),
        "parameters": listed(row.case_parameters),
        "choice": listed(row.choice),
        "build_s": row.build_s,
        "memory": row.memory,
        "verdict": row.check.verdict,
        "source": row.source,
        "notes": "; ".join(row.remarks),
    }
    return {name: clean(value) if isinstance(value, str) else finite(value) for name, value in known.items()}
