"""A run as OpenMetrics text: gauges, which Prometheus's older text format has, too.

https://prometheus.io/docs/specs/om/open_metrics_spec. There are no timestamps: node exporter's textfile
collector refuses files that have them.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from gemmbench.exports.series import Series, labels, series, standing
from gemmbench.model.row import Row, moment
from gemmbench.model.run_file import Run
from gemmbench.model.units import clean
from gemmbench.stats import rates
from gemmbench.stats.intervals import Interval


@dataclass(frozen=True)
class Family:
    """A gauge: its name ends with its unit."""

    name: str
    unit: str
    help: str


_MEDIAN, _LOW, _HIGH = "median", "lower end of the 95 % interval", "upper end of the 95 % interval"
_TIMES = {
    "median": Family("gemmbench_time_seconds", "seconds", f"Time for one problem or launch, {_MEDIAN}"),
    "low": Family("gemmbench_time_low_seconds", "seconds", f"Time for one problem or launch, {_LOW}"),
    "high": Family("gemmbench_time_high_seconds", "seconds", f"Time for one problem or launch, {_HIGH}"),
}
_OPERATIONS = {
    "median": Family("gemmbench_operations_per_second", "operations_per_second", f"Rate, {_MEDIAN}"),
    "low": Family("gemmbench_low_operations_per_second", "operations_per_second", f"Rate, {_LOW}"),
    "high": Family("gemmbench_high_operations_per_second", "operations_per_second", f"Rate, {_HIGH}"),
    "best": Family("gemmbench_best_operations_per_second", "operations_per_second", "Rate, best batch"),
}
_BYTES = {
    "median": Family("gemmbench_bytes_per_second", "bytes_per_second", f"Bandwidth, {_MEDIAN}"),
    "low": Family("gemmbench_low_bytes_per_second", "bytes_per_second", f"Bandwidth, {_LOW}"),
    "high": Family("gemmbench_high_bytes_per_second", "bytes_per_second", f"Bandwidth, {_HIGH}"),
    "best": Family("gemmbench_best_bytes_per_second", "bytes_per_second", "Bandwidth, best batch"),
}
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
    families: dict[Family, list[str]] = {}
    for family, names, value in _samples(run):
        if math.isfinite(value):
            families.setdefault(family, []).append(f"{family.name}{_labelled(names)} {value!r}")
    lines = []
    for family, values in families.items():
        unit = [f"# UNIT {family.name} {family.unit}"] if family.unit else []
        lines += [f"# HELP {family.name} {family.help}.", f"# TYPE {family.name} gauge", *unit, *values]
    return "\n".join([*lines, "# EOF"]) + "\n"


def _samples(run: Run) -> Iterator[Sample]:
    header = run.header
    own = {"run": Path(run.path).stem or header.view}
    about = {
        **own,
        "command": " ".join(header.command),
        "version": header.gemmbench,
        "host_cpu": header.host.cpu,
    }
    yield _RUN, about, 1.0
    with suppress(ValueError):  # a time that somebody edited
        yield _STARTED, own, moment(header.started_utc).timestamp()
    run = replace(run, rows=tuple(row for row in run.rows if row.kind != "look"))  # C was not verified
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
        yield from _of_series(each, {**of_row[each.benchmark], "scope": each.scope})


def _of_series(each: Series, names: Labels) -> Iterator[Sample]:
    figures: tuple[tuple[Interval | None, Mapping[str, Family]], ...] = (
        (each.times if each.is_fixed else None, _TIMES),
        (each.operations, _OPERATIONS),
        (each.bytes, _BYTES),
    )
    for figure, families in figures:
        for field, family in families.items() if figure else ():
            yield family, names, float(getattr(figure, field))


def _case(run: Run, row: Row, name: str) -> dict[str, str]:
    device = run.device(row)
    names = {
        "benchmark": name,
        "kind": row.kind,
        "variant": row.title,
        "dtype": row.dtype,
        "device": device.name if device else run.header.host.cpu,
        "driver": f"{device.platform} {device.driver}" if device else run.header.host.blas,
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
