"""The figures of a row, an entry for each. Tables, CSV, JSON and the schemas read them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from gemmbench.model import units
from gemmbench.model.device import Readings
from gemmbench.model.row import SCOPES, Parameters, Row
from gemmbench.model.run_file import Run
from gemmbench.model.units import GIGA
from gemmbench.report.table import Columns
from gemmbench.stats import rates

ValueType = type[str] | type[int] | type[float] | type[bool]


def view(run: Run, row: Row) -> dict[str, Any]:
    """What the figures of a row are fields of. Intervals are as wide as in tables."""
    is_gemm, device, host = row.kind == "gemm", run.device(row), run.header.host
    summaries = ((scope, rates.summary(row, scope)) for scope in SCOPES if row.status == "ok")
    times = {scope: rates.widen_interval(run, row, each, scope) for scope, each in summaries if each}
    flops = rates.flops_of(row) if is_gemm else 0
    by_scope = {scope: rates.rate_from(row, each, flops) for scope, each in times.items()}
    scope = rates.shown_samples(row, rates.view_scope(run)) if is_gemm else rates.finest_scope(row)
    if is_gemm and scope in SCOPES:
        rate = by_scope.get(scope)
    else:
        rate = rates.rate(row, scope or "") if row.kind in ("gemm", "peak") else None
        rate = rates.widen_interval(run, row, rate) if rate else None
    moved = rates.byte_rate(row)
    return {
        "row": row,
        "device": device.label if device else host.cpu,
        "driver": f"{device.platform} {device.driver}" if device else host.blas,
        "problem": row.problem if is_gemm else None,
        "scope": scope if times else None,
        "rate": rate,
        "gflops": rate and (rate.best if row.kind == "peak" else rate.median),
        "by_scope": by_scope,
        "times": times,
        "peak_fraction": rates.peak_fraction(run, row),
        "bandwidth": rates.widen_interval(run, row, moved) if moved else None,
        "latency": times.get(scope or "") if row.kind == "latency" else None,
        "versus": rates.versus(row),
        "is_uncertain": rates.is_uncertain(run, row),
    }


@dataclass(frozen=True)
class Figure:
    """A column of CSV, a field of JSON, and where `figure_columns` names it a column of a table."""

    name: str
    type: ValueType
    value: str | Callable[[Row], object]  # fields of a `view`, such as ``rate.median``
    holds: str
    unit: float = 1.0
    heading: str = ""
    text: Callable[[Any], str | None] = units.number

    def of(self, view: Mapping[str, Any]) -> Any:
        """Its value in its unit, or None if it is unknown."""
        value: Any = view
        if callable(self.value):
            return self.value(view["row"])
        for name in self.value.split("."):
            value = value.get(name) if isinstance(value, dict) else getattr(value, name)
            if value is None:
                return None
        return bool(value) if self.type is bool else value if self.unit == 1.0 else value / self.unit


def _ends(name: str, value: str, unit: float = 1.0, of: str = "") -> Iterator[Figure]:
    for end, word in (("low", "lower"), ("high", "upper")):
        holds = f"{word} end of the 95 % interval of {of or name}"
        yield Figure(f"{name}_{end}", float, f"{value}.{end}", holds, unit)


def _by_scope(name: str, value: str, holds: str, unit: float = 1.0) -> Iterator[Figure]:
    for scope in SCOPES:
        median = f"{holds} in the {scope} scope: the median"
        yield Figure(f"{scope}_{name}", float, f"{value}.{scope}.median", median, unit)
        yield from _ends(f"{scope}_{name}", f"{value}.{scope}", unit)


def _windows(row: Row) -> tuple[Readings, ...]:
    return tuple(row.conditions.windows.values()) if row.conditions else ()


def _clock(row: Row) -> float | None:
    clocks = [clock for window in _windows(row) for clock in window.clock_mhz if clock is not None]
    return median(clocks) if clocks else None


def _limits(row: Row) -> str:
    names = (name for window in _windows(row) for text in window.limits for name in text.split())
    return " ".join(dict.fromkeys(names))


def _leading(row: Row, at: int) -> int | None:
    return (row.problem.ld or row.problem.tight)[at] if row.problem else None


def _json(parameters: Parameters) -> str:
    return json.dumps(parameters, allow_nan=False, sort_keys=True)


# fmt: off
FIGURES: tuple[Figure, ...] = (
    Figure("kind", str, "row.kind", "gemm, peak, bandwidth, transfer or latency"),
    Figure("variant", str, "row.variant", "kernel or library; of other kinds the probe"),
    Figure("device", int, "row.device", "position in the header's devices; -1 for the host"),
    Figure("device_name", str, "device", "its name; of the host the processor's"),
    Figure("driver", str, "driver", "platform and driver; of the host its BLAS"),
    Figure("dtype", str, "row.dtype", "data type of A and B, or of the probe"),
    Figure("label", str, lambda row: row.label or row.phase,
           "name of the problem in a set of workloads, or phase of a tuner's row"),
    Figure("m", int, "problem.m", "rows of op(A) and C"),
    Figure("n", int, "problem.n", "columns of op(B) and C"),
    Figure("k", int, "problem.k", "columns of op(A), rows of op(B)"),
    Figure("lda", int, partial(_leading, at=0), "elements from row to row of A as stored"),
    Figure("ldb", int, partial(_leading, at=1), "elements from row to row of B as stored"),
    Figure("ldc", int, partial(_leading, at=2), "elements from row to row of C"),
    Figure("trans_a", bool, "problem.trans_a", "whether A is stored k x m, and op(A) is its transpose"),
    Figure("trans_b", bool, "problem.trans_b", "whether B is stored n x k, and op(B) is its transpose"),
    Figure("batch", int, "problem.count", "problems of this shape in one launch"),
    Figure("calls", int, lambda row: (row.calls or 1) if row.problem else None,
           "calls that a program makes of this shape; 1 if they were not counted"),
    Figure("alpha", float, "problem.alpha", "factor of op(A) op(B)"),
    Figure("beta", float, "problem.beta", "factor of the old C"),
    Figure("status", str, "row.status", "ok, wrong, unsupported, skipped, failed, crashed or timed-out"),
    Figure("reason", str, "row.reason", "why it is not ok"),
    Figure("parameters", str, lambda row: _json(row.parameters), "what was asked for, as a JSON object"),
    Figure("choice", str, lambda row: _json(row.choice),
           "what a probe or a heuristic chose, as a JSON object"),
    Figure("scope", str, "scope", "clock of gflops and gbps: kernel, device, chain, host"),
    Figure("gflops", float, "gflops",
           "1e9 operations per second, as in tables: a GEMM's median, a peak's best batch", GIGA),
    Figure("gflops_median", float, "rate.median", "1e9 operations per second: the median", GIGA),
    *_ends("gflops", "rate", GIGA, "gflops_median"),
    *_by_scope("gflops", "by_scope", "1e9 operations per second of a GEMM", GIGA),
    Figure("helpers_share", float, rates.helpers_share,
           "fraction of the device scope spent in pre- and post-processing kernels",
           heading="overhead", text=lambda share: units.percent(share) if share else None),
    Figure("peak_fraction", float, "peak_fraction", "rate in `scope` over the measured peak"),
    Figure("gbps", float, "bandwidth.best", "1e9 bytes per second: the best batch", GIGA),
    Figure("gbps_median", float, "bandwidth.median", "1e9 bytes per second: the median", GIGA),
    *_ends("gbps", "bandwidth", GIGA, "gbps_median"),
    Figure("latency_s", float, "latency.median", "seconds for one launch or load: the median"),
    Figure("energy_j", float, "row.energy.joules", "joules for one problem"),
    Figure("gflop_per_j", float, rates.gflop_per_joule, "1e9 operations for a joule"),
    Figure("width", int, lambda row: row.parameters.get("width"), "elements of the vectors of a probe"),
    Figure("noise", float, rates.noise,
           "half the interval's width over the median, in the innermost scope",
           heading="noise", text=units.percent),
    Figure("residual", float, rates.residual,
           "worst residual of an element of C over its bound", heading="residual"),
    Figure("residual_ulp", float, partial(rates.residual, figure="ulp"),
           "the same in units of the last place of C's largest element", heading="ulp"),
    Figure("conversion", str, "conversion",
           "how operands became tf32: rounded or cut; empty for other types"),
    Figure("versus", str, "versus.variant", "kernel it was interleaved with"),
    Figure("versus_ratio", float, "versus.median", "how many times as fast as the kernel in versus"),
    *_ends("versus", "versus", of="versus_ratio"),
    Figure("versus_scope", str, "versus.scope", "clock of versus_ratio"),
    Figure("clock_mhz", float, _clock, "median clock of the device"),
    Figure("limits", str, _limits, "what limited the clock"),
    Figure("other_cores", float, lambda row: rates.best_of(window.other_cores for window in _windows(row)),
           "cores that other processes used"),
    Figure("steal_cores", float, lambda row: rates.best_of(window.steal_cores for window in _windows(row)),
           "cores that the hypervisor gave to others"),
    Figure("uncertain", bool, "is_uncertain", "marked ~ in tables: uncertain by more than 5 %"),
    *_by_scope("s", "times", "seconds for one problem or launch"),
    Figure("build_s", float, "row.build_s", "seconds to build the kernel"),
    Figure("memory", str, "row.memory", "how operands reached the device"),
    Figure("verdict", str, "row.check.verdict", "of the verification, or of a probe's integrity"),
    Figure("source", str, "row.source", "hash of the kernel's source and its parameters"),
    Figure("notes", str, lambda row: "; ".join(row.remarks), "remarks"),
    Figure("net_s", float, "net.net_s", "seconds that the row adds to its neural network"),
    Figure("net_share", float, "net.net_share", "its share of the network's time"),
    Figure("measured_utc", str, "row.measured_utc",
           "when an earlier run measured it, ISO 8601; empty if this one did"),
    Figure("benchmark", str, "benchmark", "name of the case, the same in every run and in every export"),
)
# fmt: on


def figure_columns(*names: str) -> Columns[Row]:
    """The columns of these figures in a table of rows."""

    def cell(row: Row, figure: Figure) -> str | None:
        value = figure.of({"row": row})
        return None if value is None else figure.text(value)

    return {each.heading: partial(cell, figure=each) for each in FIGURES if each.name in names}
