"""A run for other programs: every format except the tables, with what it leaves out.

Google Benchmark has no word for a row without a result: only ok rows are in it. OpenMetrics' gauges are read
as Prometheus's older text format, too (https://prometheus.io/docs/specs/om/open_metrics_spec); they have no
timestamps, since node exporter's textfile collector refuses files that have them.
"""

from __future__ import annotations

import json
import math
import statistics
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from gemmbench import views
from gemmbench.exports import records
from gemmbench.exports.records import ExportSeries, device_names, labels, series, standing
from gemmbench.model.row import Row, moment
from gemmbench.model.run_file import Run
from gemmbench.model.units import GIGA, by_key, clean, counted
from gemmbench.stats import rates
from gemmbench.stats.rates import work as work_of

NANO = 1e-9
Entry = dict[str, Any]

# --- Google Benchmark: https://github.com/google/benchmark, src/json_reporter.cc and src/statistics.cc


def google_benchmark(run: Run) -> str:
    """What ``--benchmark_format=json`` writes: every batch is a repetition, aggregates follow.

    ``compare.py`` asks for ``cpu_time``, which is not measured: it repeats ``real_time``, and the context
    says so. Times are for one problem or launch; of probes whose races choose how much they do (peak,
    bandwidth) for 1e9 operations or bytes, so that they can be compared.
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
    entries = [entry for index, each in enumerate(series(run)) for entry in _repetitions(index, each)]
    return f'{{\n  "context": {_line(context)},\n  "benchmarks": {_array(entries)}\n}}\n'


def _repetitions(index: int, each: ExportSeries) -> list[Entry]:
    count = len(each.seconds)
    common: Entry = {"family_index": index, "per_family_instance_index": 0}
    common |= {"run_name": each.name, "repetitions": count, "threads": 1}
    of_giga = "" if each.is_fixed else "(time of 1e9 operations or bytes)"
    label = {"label": " ".join(clean(text) for text in (each.row.title, each.row.label, of_giga) if text)}
    unit = NANO if each.is_fixed else NANO * work_of(each.row) / GIGA
    counters = [("items_per_second", each.operations), ("bytes_per_second", each.bytes)]
    rates = [(name, rate, each.rates(rate)) for name, rate in counters if rate]
    entries: list[Entry] = [
        {
            "name": each.name,
            **common,
            "run_type": "iteration",
            "repetition_index": position,
            "iterations": each.row.samples[each.scope].batch,
            **_times(seconds / unit),
            **{name: values[position] for name, _, values in rates},
            **label,
        }
        for position, seconds in enumerate(each.seconds)
    ]
    for name, of in _AGGREGATES.items() if count > 1 else ():
        scale = 1.0 if name == "cv" else unit
        median = name == "median"
        entries.append(
            {
                "name": f"{each.name}_{name}",
                **common,
                "run_type": "aggregate",
                "aggregate_name": name,
                "aggregate_unit": "percentage" if name == "cv" else "time",
                "iterations": count,
                **_times((each.times.median if median else of(each.seconds)) / scale),
                **{key: rate.median if median else of(values) for key, rate, values in rates},
                **label,
            }
        )
    return entries


def _times(value: float) -> Entry:
    return {"real_time": value, "cpu_time": value, "time_unit": "ns"}


_AGGREGATES: dict[str, Callable[[Sequence[float]], float]] = {
    "mean": statistics.fmean,
    "median": statistics.median,
    "stddev": statistics.stdev,
    "cv": lambda values: statistics.stdev(values) / statistics.fmean(values),
}
"""Those that the library computes of repetitions, in its order."""


def _line(entry: object) -> str:
    return json.dumps(entry, allow_nan=False)


def _array(entries: Iterable[Entry]) -> str:
    lines = ["    " + _line(entry) for entry in entries]
    return "[\n" + ",\n".join(lines) + "\n  ]" if lines else "[]"


class Family(NamedTuple):
    """A gauge: its name ends with its unit."""

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
    """A gauge for each figure; of times nobody asks for the best batch."""
    return {
        name: Family(f"gemmbench_{quantity}{prefix}{unit}", unit, f"{what}, {words}")
        for name, (prefix, words) in _FIGURES.items()
        if name != "best" or not quantity
    }


_TIMES = _families("time_", "seconds", "Time for one problem or launch")
_OPERATIONS = _families("", "operations_per_second", "Rate")
_BYTES = _families("", "bytes_per_second", "Bandwidth")
_OK = Family("gemmbench_ok", "", "Whether a case has a result: 1, or 0 and why not in its status")
_PEAK = Family("gemmbench_peak_ratio", "ratio", "Rate over the measured peak of the units it runs on")
_ENERGY = Family("gemmbench_energy_joules", "joules", "Energy for one problem")
_STARTED = Family("gemmbench_run_started_seconds", "seconds", "When the run began, seconds since 1970")
_RUN = Family("gemmbench_run", "", "The run that the other gauges are of")

Labels = Mapping[str, str]
Sample = tuple[Family, Labels, float]


def openmetrics(run: Run) -> str:
    """Gauges in base units, a line for each case and scope; without a result ``gemmbench_ok`` is 0.

    The label ``run`` is the name of the saved file, so that several runs can be collected together.
    """
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
    header = run.header
    own = {"run": Path(run.path).stem or header.view}
    about = {"command": " ".join(header.command), "version": header.gemmbench, "host_cpu": header.host.cpu}
    yield _RUN, own | about, 1.0
    with suppress(ValueError):  # a time that somebody edited
        yield _STARTED, own, moment(header.started_utc).timestamp()
    cases = [own | _case(run, row, name) for row, name in zip(run.rows, labels(run), strict=True)]
    for row, case in zip(run.rows, cases, strict=True):
        yield _OK, {**case, "status": standing(row)}, float(standing(row) == "ok")
        if standing(row) != "ok":
            continue
        if (fraction := rates.peak_fraction(run, row)) is not None:
            yield _PEAK, case, fraction
        if row.energy.joules:
            yield _ENERGY, case, row.energy.joules
    of_row = dict(zip(labels(run), cases, strict=True))
    for each in series(run):
        names = {**of_row[each.benchmark], "scope": each.scope}
        times = each.times if each.is_fixed else None
        for figure, families in ((times, _TIMES), (each.operations, _OPERATIONS), (each.bytes, _BYTES)):
            for field, family in families.items() if figure else ():
                yield family, names, float(getattr(figure, field))


def _case(run: Run, row: Row, name: str) -> dict[str, str]:
    where = device_names(run, row)
    names = {
        "benchmark": name,
        "kind": row.kind,
        "variant": row.name,
        "dtype": row.dtype,
        "device": where["device_name"],
        "driver": where["driver"],
    }
    if row.problem:
        names |= {"m": str(row.problem.m), "n": str(row.problem.n), "k": str(row.problem.k)}
        names |= {"ops": row.problem.ops} if row.problem.ops != "NN" else {}
        names |= {"batch": str(row.problem.count)} if row.problem.count > 1 else {}
    return names


def _labelled(names: Labels) -> str:
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in names.items()) + "}" if names else ""


def _escaped(text: str) -> str:
    return clean(text).replace("\\", "\\\\").replace('"', '\\"')


# --- Every format -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Format:
    """One way to write a run as text."""

    text: Callable[[Run, Sequence[str]], str]  # of a run, with variants in the order of the ladder
    only_ok: bool = False  # it has no word for a row without a result, or with a suspect one


FORMATS: Mapping[str, Format] = {
    "json": Format(lambda run, _: records.to_json(run)),
    "csv": Format(lambda run, _: records.to_csv(run)),
    "markdown": Format(views.to_markdown),
    "google-benchmark": Format(lambda run, _: google_benchmark(run), only_ok=True),
    "openmetrics": Format(lambda run, _: openmetrics(run)),
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
