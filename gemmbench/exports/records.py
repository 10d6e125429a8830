"""Saved runs as JSON, flat records and CSV, as named series, and the JSON Schemas of saved runs.

The text never depends on the locale. Unknown values are null or empty, never NaN. The schemas come from the
types that read and write files, and allow additional fields.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import lru_cache
from typing import Any

import msgspec

from gemmbench import __version__
from gemmbench.gemm import workloads
from gemmbench.ladder import conversion
from gemmbench.model.row import SCOPES, Row, export_parameters
from gemmbench.model.run_file import SCHEMA_VERSION, Header, Run, without_collection
from gemmbench.model.units import clean
from gemmbench.report.figures import FIGURES, ValueType, view
from gemmbench.report.table import finite
from gemmbench.stats import rates
from gemmbench.stats.intervals import Summary
from gemmbench.stats.rates import Rate

FlatValue = str | int | float | bool | None


TYPES: Mapping[str, str] = {
    column.name: {str: "string", int: "int64", float: "float64", bool: "bool"}[column.type]
    for column in FIGURES
}
"""The type of every column, in the words of Arrow."""


_NETS = ("net_s", "net_share")
_FLAT_ONLY = ("alpha", "beta", "clock_mhz", "limits", "other_cores", "steal_cores", "verdict")
_STORED = {field.name for field in fields(Row)}
_LAST = (  # of JSON, in this order
    *(f"{scope}_s{end}" for scope in SCOPES for end in ("", "_low", "_high")),
    *("latency_s", "residual", "residual_ulp", "versus", "versus_ratio", "versus_low", "versus_high"),
    *("versus_scope", "energy_j", "gflop_per_j", "width", "noise", "uncertain", "conversion"),
    *("device_name", "driver", *_NETS, "benchmark"),
)
_DERIVED = sorted(
    (each for each in FIGURES if each.name not in _STORED and each.name not in _FLAT_ONLY),
    key=lambda each: _LAST.index(each.name) if each.name in _LAST else -1,
)


def _views(run: Run) -> Iterator[dict[str, Any]]:
    for row, name in zip(run.rows, labels(run), strict=True):
        converted = conversion(row.variant, row.dtype) if row.kind == "gemm" else None
        more = {"conversion": converted, "net": workloads.net_figures(run, row), "benchmark": name}
        yield {**view(run, row), **more}


@without_collection()
def to_records(run: Run) -> list[dict[str, Any]]:
    """A dictionary for each row with stored and derived fields, without matrices; None if unknown."""
    records = []
    for known in _views(run):
        row = known["row"]
        # `replace` adds the defaults of fields that its file does not have.
        merged = msgspec.to_builtins(replace(row)) | {each.name: each.of(known) for each in _DERIVED}
        merged |= {"parameters": export_parameters(row.parameters), "choice": export_parameters(row.choice)}
        if row.former:
            merged["former"]["parameters"] = export_parameters(row.former.parameters)
        unknown = [name for name in _NETS if merged[name] is None]
        records.append(
            {name: finite(value) for name, value in merged.items() if name not in ("matrices", *unknown)}
        )
    return records


def format_json(run: Run) -> str:
    """`to_records` as a JSON array, with a row on each line."""
    lines = [json.dumps(record, allow_nan=False, ensure_ascii=True) for record in to_records(run)]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def to_flat(run: Run) -> list[dict[str, FlatValue]]:
    """A dictionary for each row with all of `FIGURES`. Values have the column's type, or are None."""
    return [{each.name: _converted(each.type, each.of(known)) for each in FIGURES} for known in _views(run)]


@without_collection()
def to_csv(run: Run) -> str:
    """`to_flat` as comma-separated values with a heading. Unknown values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, TYPES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(to_flat(run))
    return text.getvalue()


def _converted(kind: ValueType, value: object) -> FlatValue:
    return None if value is None else _CONVERTERS[kind](value)


_CONVERTERS: Mapping[ValueType, Callable[[Any], FlatValue]] = {
    str: lru_cache(maxsize=1024)(lambda value: clean(str(value))),
    int: int,
    float: lambda value: float(value) if math.isfinite(value) else None,
    bool: bool,
}
"""Functions that convert a known value to the type of its column."""


@dataclass(frozen=True)
class ExportSeries:
    """The figures of an ok row in one scope, with the intervals that tables show."""

    name: str  # of the row and the scope: gemm/tiled/float/512/kernel
    benchmark: str  # of the row alone
    row: Row
    scope: str
    times: Summary  # seconds for one problem or launch
    operations: Rate | None  # per second
    bytes: Rate | None  # per second

    @property
    def is_fixed(self) -> bool:
        """Whether the work is the same in every run: probes of peak and bandwidth choose theirs."""
        return self.row.kind not in ("peak", "bandwidth")

    @property
    def seconds(self) -> Sequence[float]:
        return self.row.samples[self.scope].counted

    def rates(self, of: Rate, batches: Sequence[float]) -> list[float]:
        """The rate of each batch, given in seconds."""
        return [of.median * (self.times.median / seconds) for seconds in batches]


def export_status(row: Row) -> str:
    """The status of a row, or ``suspect`` if it is ok but its check is suspect."""
    return row.check.verdict if row.status == "ok" and row.check.verdict == "suspect" else row.status


def series(run: Run) -> Iterator[ExportSeries]:
    """Yield each row that is ok and not suspect, in each scope (clock) that timed it, innermost first."""
    for row, benchmark in zip(run.rows, labels(run), strict=True):
        for scope in row.samples if export_status(row) == "ok" else ():
            if times := rates.summary(row, scope):
                moved = rates.byte_rate(row) if scope == rates.finest_scope(row) else None
                figures = (rates.rate(row, scope), moved)
                wide = (rates.widen_interval(run, row, each, scope) if each else None for each in figures)
                times = rates.widen_interval(run, row, times, scope)
                yield ExportSeries(f"{benchmark}/{scope}", benchmark, row, scope, times, *wide)


@lru_cache(maxsize=16)
def labels(run: Run) -> tuple[str, ...]:
    """A name for each row, the same in all runs: ``gemm/tiled/float/512``. Repeated cases get ``#2``."""
    seen: Counter[str] = Counter()
    made = []
    for row in run.rows:
        name = _label(row, len(run.header.devices) > 1)
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(made)


def _label(row: Row, several: bool) -> str:
    """Kind, variant, type, problem, parameters that no preset has, label and phase."""
    words = [row.kind, *row.name.split(), row.dtype]
    if row.problem:
        words += row.problem.size.split()
        words += [f"alpha={row.problem.alpha:g}"] if row.problem.alpha != 1 else []
        words += [f"beta={row.problem.beta:g}"] if row.problem.beta != 0 else []
    names = row.parameters if row.kind != "gemm" or row.phase else dict.fromkeys(row.given or ())
    words += [f"{name}={row.parameters[name]}" for name in sorted(names) if name in row.kernel_parameters]
    words += [row.label, row.phase]
    words += [f"device={row.device}"] if several and row.device >= 0 else []
    return "/".join("_".join(clean(word).replace("/", "_").split()) for word in words if word)


NAMES = ("header", "row", "records")
"""The first line of a saved run, its other lines, and the text of ``show --format json``."""

_OPTIONAL = (*_NETS, "own", "operands", "calls")  # only where they are known


def build_schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``header``, ``row`` or ``records``. Its version is saved runs'."""
    made = (
        _records_schema() if name == "records" else msgspec.json.schema(Header if name == "header" else Row)
    )
    _replace_tuples(made)
    if name == "header":
        made["$defs"]["Header"]["properties"]["schema_version"] = {"const": SCHEMA_VERSION}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "$id": f"urn:gemmbench:schema:{name}:{SCHEMA_VERSION}",
        "$comment": f"of gemmbench {__version__}",
        **made,
    }


def _replace_tuples(schema: Any) -> None:
    """Write tuples as arrays of one type and length, in place: draft 7 has no ``prefixItems``."""
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _replace_tuples(each)
    if isinstance(schema, dict) and (items := schema.pop("prefixItems", None)):
        assert all(item == items[0] for item in items)
        schema["items"] = items[0]


def _records_schema() -> dict[str, Any]:
    definitions = msgspec.json.schema(Row)["$defs"]
    stored = definitions.pop("Row")["properties"]
    stored.pop("matrices")
    words = {str: "string", int: "integer", float: "number", bool: "boolean"}
    derived = {
        each.name: {"description": each.holds, "type": [words[each.type], "null"]}
        for each in FIGURES
        if each in _DERIVED
    }
    figures = definitions["Check"]["properties"]["figures"]
    figures["additionalProperties"] = {"anyOf": [figures["additionalProperties"], {"type": "null"}]}
    definitions["Record"] = {
        "title": "Record",
        "description": "One result with its rates and intervals, or why there is none.",
        "type": "object",
        "properties": {**stored, **derived},
        "required": [name for name in (*stored, *derived) if name not in _OPTIONAL],
    }
    return {"type": "array", "items": {"$ref": "#/$defs/Record"}, "$defs": definitions}
