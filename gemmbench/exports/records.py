"""Saved runs as JSON, flat records and CSV, as named series, and the JSON Schemas of saved runs.

The text never depends on the locale. Unknown values are null or empty, never NaN. The schemas are generated
from the types that read and write files. They allow additional fields, which a later version may add.
"""

from __future__ import annotations

import csv
import io
import json
import math
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from statistics import median
from typing import Any

import msgspec

from gemmbench import __version__
from gemmbench.gemm import workloads
from gemmbench.ladder import conversion
from gemmbench.model.row import SCOPES, Row, exported
from gemmbench.model.run_file import SCHEMA_VERSION, Header, Run, without_collection
from gemmbench.model.units import clean
from gemmbench.report.table import finite
from gemmbench.stats import rates
from gemmbench.stats.intervals import Summary
from gemmbench.stats.rates import Rate

Value = str | int | float | bool | None
Kind = type[str] | type[int] | type[float] | type[bool]


@dataclass(frozen=True)
class Column:
    """One field of every flat record: a value of its type, or None."""

    name: str
    type: Kind
    holds: str


def _interval(name: str, holds: str) -> tuple[Column, Column]:
    return (
        Column(f"{name}_low", float, f"lower end of the 95 % interval of {holds}"),
        Column(f"{name}_high", float, f"upper end of the 95 % interval of {holds}"),
    )


def _by_scope(name: str, holds: str) -> tuple[Column, ...]:
    """The columns for a figure in each scope (clock): its median and both ends of its interval."""
    return tuple(
        column
        for scope in SCOPES
        for column in (
            Column(f"{scope}_{name}", float, f"{holds} in the {scope} scope: the median"),
            *_interval(f"{scope}_{name}", f"{scope}_{name}"),
        )
    )


COLUMNS: tuple[Column, ...] = (
    Column("kind", str, "gemm, peak, bandwidth, transfer or latency"),
    Column("variant", str, "kernel or library; of other kinds the probe"),
    Column("device", int, "position in the header's devices; -1 for the host"),
    Column("device_name", str, "its name; of the host the processor's"),
    Column("driver", str, "platform and driver; of the host its BLAS"),
    Column("dtype", str, "data type of A and B, or of the probe"),
    Column("label", str, "name of the problem in a set of workloads, or phase of a tuner's row"),
    Column("m", int, "rows of op(A) and C"),
    Column("n", int, "columns of op(B) and C"),
    Column("k", int, "columns of op(A), rows of op(B)"),
    Column("lda", int, "elements from row to row of A as stored"),
    Column("ldb", int, "elements from row to row of B as stored"),
    Column("ldc", int, "elements from row to row of C"),
    Column("trans_a", bool, "whether A is stored k x m, and op(A) is its transpose"),
    Column("trans_b", bool, "whether B is stored n x k, and op(B) is its transpose"),
    Column("batch", int, "problems of this shape in one launch"),
    Column("calls", int, "calls that a program makes of this shape; 1 if they were not counted"),
    Column("alpha", float, "factor of op(A) op(B)"),
    Column("beta", float, "factor of the old C"),
    Column("status", str, "ok, wrong, unsupported, skipped, failed, crashed or timed-out"),
    Column("reason", str, "why it is not ok"),
    Column("parameters", str, "what was asked for, as a JSON object"),
    Column("choice", str, "what a probe or a heuristic chose, as a JSON object"),
    Column("scope", str, "clock of gflops and gbps: kernel, device, chain, host"),
    Column("gflops", float, "1e9 operations per second, as in tables: a GEMM's median, a peak's best batch"),
    Column("gflops_median", float, "1e9 operations per second: the median"),
    *_interval("gflops", "gflops_median"),
    *_by_scope("gflops", "1e9 operations per second of a GEMM"),
    Column("helpers_share", float, "fraction of the device scope spent in pre- and post-processing kernels"),
    Column("peak_fraction", float, "rate in `scope` over the measured peak"),
    Column("gbps", float, "1e9 bytes per second: the best batch"),
    Column("gbps_median", float, "1e9 bytes per second: the median"),
    *_interval("gbps", "gbps_median"),
    Column("latency_s", float, "seconds for one launch or load: the median"),
    Column("energy_j", float, "joules for one problem"),
    Column("gflop_per_j", float, "1e9 operations for a joule"),
    Column("width", int, "elements of the vectors of a probe"),
    Column("noise", float, "half the interval's width over the median, in the innermost scope"),
    Column("residual", float, "worst residual of an element of C over its bound"),
    Column("residual_ulp", float, "the same in units of the last place of C's largest element"),
    Column("conversion", str, "how operands became tf32: rounded or cut; empty for other types"),
    Column("versus", str, "kernel it was interleaved with"),
    Column("versus_ratio", float, "how many times as fast as the kernel in versus"),
    *_interval("versus", "versus_ratio"),
    Column("versus_scope", str, "clock of versus_ratio"),
    Column("clock_mhz", float, "median clock of the device"),
    Column("limits", str, "what limited the clock"),
    Column("other_cores", float, "cores that other processes used"),
    Column("steal_cores", float, "cores that the hypervisor gave to others"),
    Column("uncertain", bool, "marked ~ in tables: uncertain by more than 5 %"),
    *_by_scope("s", "seconds for one problem or launch"),
    Column("build_s", float, "seconds to build the kernel"),
    Column("memory", str, "how operands reached the device"),
    Column("verdict", str, "of the verification, or of a probe's integrity"),
    Column("source", str, "hash of the kernel's source and its parameters"),
    Column("notes", str, "remarks"),
    Column("net_s", float, "seconds that the row adds to its neural network"),
    Column("net_share", float, "its share of the network's time"),
    Column("measured_utc", str, "when an earlier run measured it, ISO 8601; empty if this one did"),
    Column("benchmark", str, "name of the case, the same in every run and in every export"),
)
"""The columns of CSV, of flat records, in their order."""

TYPES: Mapping[str, str] = {
    column.name: {str: "string", int: "int64", float: "float64", bool: "bool"}[column.type]
    for column in COLUMNS
}
"""The type of every column, in the words of Arrow."""


@without_collection()
def to_records(run: Run) -> list[dict[str, Any]]:
    """A dictionary for each row with stored and derived fields, without matrices; None if unknown."""
    records = []
    for row, name in zip(run.rows, labels(run), strict=True):
        # `replace` adds the defaults of fields that its file does not have.
        merged = msgspec.to_builtins(replace(row)) | _derived(run, row)
        merged |= {"parameters": exported(row.parameters), "choice": exported(row.choice), "benchmark": name}
        if row.former:
            merged["former"]["parameters"] = exported(row.former.parameters)
        records.append({name: finite(value) for name, value in merged.items() if name != "matrices"})
    return records


def to_json(run: Run) -> str:
    """`to_records` as a JSON array, with a row on each line."""
    lines = [json.dumps(record, allow_nan=False, ensure_ascii=True) for record in to_records(run)]
    return "[\n" + ",\n".join(lines) + "\n]\n" if lines else "[]\n"


def to_flat(run: Run) -> list[dict[str, Value]]:
    """A dictionary for each row with all of `COLUMNS`. Values have the column's type, or are None."""
    return [_flat(run, row, name) for row, name in zip(run.rows, labels(run), strict=True)]


@without_collection()
def to_csv(run: Run) -> str:
    """`to_flat` as comma-separated values with a heading. Unknown values are empty."""
    text = io.StringIO()
    writer = csv.DictWriter(text, TYPES, lineterminator="\n")
    writer.writeheader()
    writer.writerows(to_flat(run))
    return text.getvalue()


def device_names(run: Run, row: Row) -> dict[str, str]:
    """The columns that name where a row ran: the device and its driver, or the host and its BLAS."""
    device = run.device(row)
    if device is None:
        return {"device_name": run.header.host.cpu, "driver": run.header.host.blas}
    return {"device_name": device.label, "driver": f"{device.platform} {device.driver}"}


def _derived(run: Run, row: Row) -> dict[str, object]:
    how = {"conversion": conversion(row.variant, row.dtype) if row.kind == "gemm" else None}
    return {**rates.derived(run, row), **how, **device_names(run, row), **workloads.derived(run, row)}


def _flat(run: Run, row: Row, name: str) -> dict[str, Value]:
    """A row as `COLUMNS`, converted to their types; None if unknown or not finite. `name` is of `labels`."""
    known: dict[str, object] = {
        **_derived(run, row),
        "device": row.device,
        "label": row.label or row.phase,
        "calls": (row.calls or 1) if row.problem else None,
        "alpha": row.problem.alpha if row.problem else None,
        "beta": row.problem.beta if row.problem else None,
        **_conditions(row),
        "parameters": json.dumps(row.parameters, allow_nan=False, sort_keys=True),
        "choice": json.dumps(row.choice, allow_nan=False, sort_keys=True),
        "build_s": row.build_s,
        "memory": row.memory,
        "verdict": row.check.verdict,
        "source": row.source,
        "notes": "; ".join(row.remarks),
        "measured_utc": row.measured_utc,
        "benchmark": name,
    }
    return {
        column.name: None if (value := known.get(column.name)) is None else _CONVERTERS[column.type](value)
        for column in COLUMNS
    }


_CONVERTERS: Mapping[Kind, Callable[[Any], Value]] = {
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
        """Whether the work is the same in every run. Probes of peak and bandwidth choose theirs."""
        return self.row.kind not in ("peak", "bandwidth")

    @property
    def seconds(self) -> Sequence[float]:
        return self.row.samples[self.scope].counted

    def rates(self, of: Rate, batches: Sequence[float]) -> list[float]:
        """The rate of each batch, given in seconds, for a rate of this series."""
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
                wide = (rates.widened(run, row, each, scope) if each else None for each in figures)
                times = rates.widened(run, row, times, scope)
                yield ExportSeries(f"{benchmark}/{scope}", benchmark, row, scope, times, *wide)


@lru_cache(maxsize=16)
def labels(run: Run) -> tuple[str, ...]:
    """A name for each row, equal in all runs of the same case, such as ``gemm/tiled/float/512``; cached.

    If a run has a case several times, as an A/A measurement has, later rows get a number: ``...#2``.
    """
    seen: Counter[str] = Counter()
    made = []
    for row in run.rows:
        name = _label(row, len(run.header.devices) > 1)
        seen[name] += 1
        made.append(name if seen[name] == 1 else f"{name}#{seen[name]}")
    return tuple(made)


def _label(row: Row, several: bool) -> str:
    """The name of a row, with slashes between kind, variant, type, problem, parameters, label and phase.

    Alpha and beta appear unless they are 1 and 0, and a GEMM's parameters unless a preset has them. It ends
    with the device's position if the run has `several` devices.
    """
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

_OPTIONAL = ("net_s", "net_share", "own", "operands", "calls")  # only where they are known
_FLAT_ONLY = ("alpha", "beta", "clock_mhz", "limits", "other_cores", "steal_cores", "verdict")


def schema(name: str) -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of ``header``, ``row`` or ``records``. Its version is saved runs'."""
    made = _records() if name == "records" else msgspec.json.schema(Header if name == "header" else Row)
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


def _records() -> dict[str, Any]:
    """The JSON Schema of `to_records`: rows with derived fields, and without matrices."""
    definitions = msgspec.json.schema(Row)["$defs"]
    stored = definitions.pop("Row")["properties"]
    stored.pop("matrices")
    words = {str: "string", int: "integer", float: "number", bool: "boolean"}
    derived = {
        each.name: {"description": each.holds, "type": [words[each.type], "null"]}
        for each in COLUMNS
        if each.name not in (*stored, *_FLAT_ONLY)
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


def _conditions(row: Row) -> dict[str, float | int | str | None]:
    """The state of the machine during a row: median clock in MHz, its limits, and cores that others used.

    Other processes and the hypervisor have separate numbers, each the largest of any window. Unknown numbers
    are None. Limits are words in one text, "" for none.
    """
    windows = tuple(row.conditions.windows.values()) if row.conditions else ()
    clocks = [clock for window in windows for clock in _known(window.clock_mhz)]
    limits = dict.fromkeys(name for window in windows for text in window.limits for name in text.split())
    return {
        "clock_mhz": median(clocks) if clocks else None,
        "limits": " ".join(limits),
        "other_cores": max(_known([window.other_cores for window in windows]), default=None),
        "steal_cores": max(_known([window.steal_cores for window in windows]), default=None),
    }


def _known(values: Sequence[float | None]) -> list[float]:
    return [value for value in values if value is not None]
