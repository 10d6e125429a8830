"""Runs in the formats of other programs.

Google Benchmark's format holds only rows that are ok. The OpenMetrics text
(https://prometheus.io/docs/specs/om/open_metrics_spec) is also valid in Prometheus's older format. It has no
timestamps, because node exporter's textfile collector refuses them.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from gemmbench import views
from gemmbench.exports import records
from gemmbench.exports.records import ExportSeries, export_status, labels, series
from gemmbench.model.row import Row, moment
from gemmbench.model.run_file import Run
from gemmbench.model.units import GIGA, by_key, clean, count_noun
from gemmbench.report.figures import view
from gemmbench.stats import rates
from gemmbench.stats.rates import work as work_of

NANO = 1e-9
_Entry = dict[str, Any]

# --- Google Benchmark: https://github.com/google/benchmark, src/json_reporter.cc and src/statistics.cc


def google_benchmark(run: Run, repetitions: bool = False) -> str:
    """A run as the JSON text of ``--benchmark_format=json``, with its ok rows only.

    Each case and scope has its median as an entry, or with `repetitions` each batch, then aggregates.
    ``cpu_time`` repeats ``real_time``, because ``compare.py`` needs it. Times of probes that choose their
    work are for 1e9 operations or bytes.
    """
    header = run.header
    context = {
        "date": header.started_utc,
        "executable": " ".join(("gemmbench", *header.command)),
        "num_cpus": header.host.cores,
        "caches": [],
        "load_avg": [],
        "library_version": f"gemmbench {header.gemmbench}",
        "library_build_type": "release",
        "json_schema_version": 1,
        "host_cpu": header.host.cpu,
        "devices": "; ".join(device.title for device in header.devices),
        "cpu_time": "repeats real_time: processor time is not measured",
    }
    entries = [
        entry for index, each in enumerate(series(run)) for entry in _entries(index, each, repetitions)
    ]
    return json.dumps({"context": context, "benchmarks": entries}, allow_nan=False, indent=1) + "\n"


def _entries(index: int, each: ExportSeries, repetitions: bool) -> list[_Entry]:
    """The median of a series as one entry, or each batch and aggregates."""
    batches = each.seconds if repetitions else (each.times.median,)
    count = len(batches)
    common: _Entry = {"family_index": index, "per_family_instance_index": 0}
    common |= {"run_name": each.name, "repetitions": count, "threads": 1}
    of_giga = "" if each.is_fixed else "(time of 1e9 operations or bytes)"
    label = {"label": " ".join(clean(text) for text in (each.row.title, each.row.label, of_giga) if text)}
    unit = NANO if each.is_fixed else NANO * work_of(each.row) / GIGA
    counters = [("items_per_second", each.operations), ("bytes_per_second", each.bytes)]
    rates = [(name, rate, each.rates(rate, batches)) for name, rate in counters if rate]

    def entry(name: str, time: float, figures: dict[str, float], **fields: object) -> _Entry:
        times = {"real_time": time, "cpu_time": time, "time_unit": "ns"}
        return {"name": name, **common, **fields, **times, **figures, **label}

    entries = [
        entry(
            each.name,
            seconds / unit,
            {name: values[position] for name, _, values in rates},
            run_type="iteration",
            repetition_index=position,
            iterations=each.row.samples[each.scope].batch,
        )
        for position, seconds in enumerate(batches)
    ]
    for name, of in _AGGREGATES.items() if count > 1 else ():
        is_median, is_time = name == "median", name != "cv"
        figures = {key: rate.median if is_median else of(values) for key, rate, values in rates}
        time = (each.times.median if is_median else of(batches)) / (unit if is_time else 1.0)
        about = {"aggregate_name": name, "aggregate_unit": "time" if is_time else "percentage"}
        full_name = f"{each.name}_{name}"
        entries.append(entry(full_name, time, figures, run_type="aggregate", **about, iterations=count))
    return entries


_AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "stddev": statistics.stdev,
    "cv": lambda values: statistics.stdev(values) / statistics.fmean(values),
}
"""The aggregates that the library computes from repetitions, in its order."""


class Family(NamedTuple):
    """A gauge. Its name ends with its unit."""

    name: str
    unit: str
    help: str


_FIGURES = {
    "median": ("", "median"),
    "low": ("low_", "lower end of the 95 % interval"),
    "high": ("high_", "upper end of the 95 % interval"),
    "best": ("best_", "best batch"),
}


def _families(quantity: str, unit: str, what: str) -> dict[str, Family]:
    """The gauges of a quantity by figure."""
    return {
        name: Family(f"gemmbench_{quantity}{prefix}{unit}", unit, f"{what}, {words}")
        for name, (prefix, words) in _FIGURES.items()
        if name != "best" or not quantity
    }


_TIMES = _families("time_", "seconds", "Time for one problem or launch")
_OPERATIONS = _families("", "operations_per_second", "Rate")
_BYTES = _families("", "bytes_per_second", "Bandwidth")
_OK = Family("gemmbench_ok", "", "Whether a case has a result: 1, or 0 and why not in its status")
_UNCERTAIN = Family("gemmbench_uncertain", "", "Whether tables mark a result as uncertain (~): 1 or 0")
_PEAK = Family("gemmbench_peak_ratio", "ratio", "Rate over the measured peak of the units it runs on")
_ENERGY = Family("gemmbench_energy_joules", "joules", "Energy for one problem")
_STARTED = Family("gemmbench_run_started_seconds", "seconds", "When the run began, seconds since 1970")
_RUN = Family("gemmbench_run", "", "The run that the other gauges are of")

Labels = Mapping[str, str]
Sample = tuple[Family, Labels, float]


def openmetrics(run: Run) -> str:
    """Gauges in base units for each case and scope. Without a result, ``gemmbench_ok`` is 0."""
    families = by_key(
        (family, f"{family.name}{_labelled(names)} {value!r}")
        for family, names, value in _samples(run)
        if math.isfinite(value)
    )
    lines = []
    for family, values in families.items():
        unit = [f"# UNIT {family.name} {family.unit}"] if family.unit else []
        lines += [f"# HELP {family.name} {family.help}.", f"# TYPE {family.name} gauge", *unit, *values]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _samples(run: Run) -> Iterator[Sample]:
    """Yield each gauge with labels and value."""
    header = run.header
    run_label = {"run": Path(run.path).stem or header.view}
    about = {"command": " ".join(header.command), "version": header.gemmbench, "host_cpu": header.host.cpu}
    yield _RUN, run_label | about, 1.0
    with suppress(ValueError):  # an invalid start time
        yield _STARTED, run_label, moment(header.started_utc).timestamp()
    cases = {
        name: run_label | _case_labels(run, row, name)
        for row, name in zip(run.rows, labels(run), strict=True)
    }
    for row, case in zip(run.rows, cases.values(), strict=True):
        yield _OK, {**case, "status": export_status(row)}, float(export_status(row) == "ok")
        if export_status(row) != "ok":
            continue
        yield _UNCERTAIN, case, float(rates.is_uncertain(run, row))
        if (fraction := rates.peak_fraction(run, row)) is not None:
            yield _PEAK, case, fraction
        if row.energy.joules:
            yield _ENERGY, case, row.energy.joules
    for each in series(run):
        names = {**cases[each.benchmark], "scope": each.scope}
        times = each.times if each.is_fixed else None
        for figure, families in ((times, _TIMES), (each.operations, _OPERATIONS), (each.bytes, _BYTES)):
            for field, family in families.items() if figure else ():
                yield family, names, float(getattr(figure, field))


def _case_labels(run: Run, row: Row, name: str) -> dict[str, str]:
    known = view(run, row)
    names = {
        "benchmark": name,
        "kind": row.kind,
        "variant": row.name,
        "dtype": row.dtype,
        "device": known["device"],
        "driver": known["driver"],
    }
    if row.problem:
        names |= {"m": str(row.problem.m), "n": str(row.problem.n), "k": str(row.problem.k)}
        names |= {"ops": row.problem.ops} if row.problem.ops != "NN" else {}
        names |= {"batch": str(row.problem.count)} if row.problem.count > 1 else {}
    return names


def _labelled(names: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in names.items()) + "}"


def _escaped(text: str) -> str:
    return clean(text).replace("\\", "\\\\").replace('"', '\\"')


FORMATS: Mapping[str, Callable[[Run, Sequence[str]], str]] = {
    "json": lambda run, _: records.format_json(run),
    "csv": lambda run, _: records.to_csv(run),
    "markdown": views.format_markdown,
    "google-benchmark": lambda run, _: google_benchmark(run),
    "openmetrics": lambda run, _: openmetrics(run),
}
"""Functions that write a run as text, by format. Their second argument is the order of variants in tables."""


def left_out(run: Run, name: str) -> str:
    """A sentence that counts the rows that are not ok, which Google Benchmark's format omits; or ""."""
    counts = Counter(outcome for row in run.rows if (outcome := export_status(row)) != "ok")
    if name != "google-benchmark" or not counts:
        return ""
    listed = ", ".join(f"{count} {status}" for status, count in counts.items())
    rows = count_noun(counts.total(), "row")
    return f"{name} cannot represent rows that are not ok: {rows} excluded ({listed})."
