"""Exports, read by their consumers: their own parsers where PyPI has one, else their published formats."""

from __future__ import annotations

import csv
import io
import json
import math
import statistics
import subprocess
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import jsonschema_rs
import pytest
from prometheus_client import parser as text_format
from prometheus_client.openmetrics import parser as openmetrics_format

import gemmbench as gb
from gemmbench import exports
from gemmbench.exports import records
from gemmbench.exports.records import export_status, labels, series
from gemmbench.ladder import BY_NAME
from gemmbench.model.row import Check, Partner, Problem
from gemmbench.model.run_file import Run, load
from gemmbench.regress.compare import compare
from gemmbench.regress.results import comparison_json
from gemmbench.stats import rates
from tests import fake_runs as fake
from tests.compare_runs import slowed
from tools.gate_simulation import DATA, recorded

ROOT = Path(__file__).parents[2]
SAVED = sorted([*(ROOT / "plots").rglob("*.jsonl"), *(ROOT / "tests/data").rglob("*.jsonl")])
QUOTED = 'a "b" \\ c'
ENERGY = 2.5


def text(run: Run, form: str) -> str:
    return exports.FORMATS[form](run, ())


def runs() -> Iterator[Run]:
    """Every status, several devices, a hostile name, few samples, one sample, joules, a case twice, a NaN."""
    yield from (fake.ALL[name]() for name in ("square", "troubled", "many", "peak", "gemm"))
    row = fake.gemm_row("naive", Problem(96, 32, 8, 2.0, 0.5), 10.0)
    few = replace(row, variant="tiled", label=QUOTED, samples={"kernel": fake.scope(1e-5, count=1, times=1)})
    joules = replace(row, energy=replace(row.energy, joules=ENERGY, why=""))
    wrong = replace(row, status="wrong", check=Check("wrong", {"residual": math.nan}))
    yield Run(fake.header(("square", QUOTED)), (joules, few, row, row, wrong))


RUNS = list(runs())
by_run = pytest.mark.parametrize("run", RUNS, ids=range(len(RUNS)))


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} in the JSON")


# --- names ----------------------------------------------------------------------------------------------


def test_a_case_has_one_name_in_every_run() -> None:
    row = fake.gemm_row("naive", Problem(96, 32, 8, 2.0, 0.5), 10.0, parameters={"TS": 16, "math": "fast"})
    rows = (
        row,
        replace(row, problem=Problem(64, 64, 64), given=("TS",)),
        replace(row, problem=Problem(64, 64, 64), label="alexnet conv1", device=1),
        replace(row, phase="trial", parameters={"TS": 8}),
        row,
        fake.peak_row(4, 10.0),
    )
    names = labels(Run(fake.header(("square",), (fake.CPU, fake.POCL)), rows))
    assert names == (
        "gemm/naive/fast/float/96x32x8/alpha=2/beta=0.5/device=0",
        "gemm/naive/fast/float/64/TS=16/device=0",
        "gemm/naive/fast/float/64/alexnet_conv1/device=1",
        "gemm/naive/float/96x32x8/alpha=2/beta=0.5/TS=8/trial/device=0",
        "gemm/naive/fast/float/96x32x8/alpha=2/beta=0.5/device=0#2",
        "peak/flops/float/width=4/device=0",
    )
    alone = labels(Run(fake.header(("square",)), rows[:1]))
    assert alone == ("gemm/naive/fast/float/96x32x8/alpha=2/beta=0.5",)


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_names_tell_rows_apart(path: Path) -> None:
    run = load(path)
    cases = {(row.key, row.phase, row.label) for row in run.rows}
    assert len({name.partition("#")[0] for name in labels(run)}) == len(cases)
    assert len(set(labels(run))) == len(run.rows)


# --- Google Benchmark -----------------------------------------------------------------------------------


def google(run: Run, repetitions: bool = False) -> dict[str, Any]:
    shown = exports.google_benchmark(run, repetitions) if repetitions else text(run, "google-benchmark")
    return json.loads(shown, parse_constant=no_constant)


@by_run
@pytest.mark.parametrize("repetitions", [False, True])
def test_google_benchmark_has_what_its_tools_read(run: Run, repetitions: bool) -> None:
    """The fields of JSONReporter::PrintRunData, with the types that tools/gbench reckons with."""
    found = google(run, repetitions)
    assert found["context"]["json_schema_version"] == 1
    assert all(isinstance(found["context"][name], list) for name in ("caches", "load_avg"))
    for entry in found["benchmarks"]:
        assert all(isinstance(entry[name], float) for name in ("real_time", "cpu_time"))
        assert entry["time_unit"] == "ns"
        assert entry["threads"] == 1
        assert entry["iterations"] >= 1
        if entry["run_type"] == "iteration":
            assert entry["name"] == entry["run_name"]
            assert 0 <= entry["repetition_index"] < entry["repetitions"]
        else:
            assert entry["name"] == f"{entry['run_name']}_{entry['aggregate_name']}"
            assert entry["aggregate_unit"] == ("percentage" if entry["aggregate_name"] == "cv" else "time")
    names = {entry["run_name"] for entry in found["benchmarks"]}
    assert names == {each.name for each in series(run)}
    assert len({entry["family_index"] for entry in found["benchmarks"]}) == len(names)


def test_google_benchmark_aggregates_repetitions_as_its_library_does() -> None:
    run = fake.fake_square()
    row = next(row for row in run.rows if row.variant == "register" and row.status == "ok")
    entries = [
        e
        for e in google(run, repetitions=True)["benchmarks"]
        if e["run_name"] == f"gemm/register/float/{row.problem.m}/host"
    ]
    times = [entry["real_time"] for entry in entries if entry["run_type"] == "iteration"]
    assert times == pytest.approx([1e9 * seconds for seconds in row.samples["host"].seconds])
    assert entries[0]["iterations"] == row.samples["host"].batch
    found = {e["aggregate_name"]: e["real_time"] for e in entries if e["run_type"] == "aggregate"}
    assert list(found) == ["mean", "median", "stddev", "cv"]
    assert found == pytest.approx(
        {
            "mean": statistics.mean(times),
            "median": 1e9 * rates.summary(row, "host").median,
            "stddev": statistics.stdev(times),
            "cv": statistics.stdev(times) / statistics.mean(times),
        }
    )
    speed = {e["aggregate_name"]: e["items_per_second"] for e in entries if e["run_type"] == "aggregate"}
    assert speed["median"] == rates.rate(row, "host").median
    assert entries[0]["items_per_second"] == pytest.approx(row.problem.flops / row.samples["host"].seconds[0])


def test_google_benchmark_has_no_aggregates_of_one_repetition() -> None:
    entries = [e for e in google(RUNS[-1], repetitions=True)["benchmarks"] if "/tiled/" in e["name"]]
    assert [entry["run_type"] for entry in entries] == ["iteration"]


@by_run
def test_google_benchmark_has_one_entry_for_each_case_and_scope(run: Run) -> None:
    entries, every = google(run)["benchmarks"], list(series(run))
    assert [entry["name"] for entry in entries] == [each.name for each in every]
    assert {entry["run_type"] for entry in entries} <= {"iteration"}  # compare.py's mean excludes aggregates
    for entry, each in zip(entries, every, strict=True):
        assert (entry["repetitions"], entry["repetition_index"]) == (1, 0)
        assert entry.get("items_per_second") == (each.operations and each.operations.median)
        assert entry.get("bytes_per_second") == (each.bytes and each.bytes.median)
        if each.is_fixed:
            assert entry["real_time"] == pytest.approx(1e9 * each.times.median)


def times(run: Run) -> dict[str, float]:
    """Names and times as readers of this format use them: the first entry of a name."""
    entries = google(run)["benchmarks"]
    return {entry["name"]: entry["real_time"] for entry in reversed(entries)}


def repeated() -> tuple[Run, ...]:
    """The recorded rounds of unchanged kernels on an H200, each as a run."""
    return recorded(DATA / "h200.jsonl").runs


def alerts(old: Run, new: Run, limit: float = 2.0) -> list[str]:
    """What github-action-benchmark reports: entries over the limit times the first of that name before."""
    previous = times(old)
    return [
        entry["name"]
        for entry in google(new)["benchmarks"]
        if entry["name"] in previous and entry["real_time"] / previous[entry["name"]] > limit
    ]


def test_unchanged_rounds_raise_no_alert_in_github_action_benchmark() -> None:
    rounds = repeated()
    accepted = [(old, new) for old, new in pairwise(rounds) if compare([old], [new]).ok]
    assert len(accepted) >= len(rounds) - 2
    assert [alerts(*pair) for pair in accepted] == [[]] * len(accepted)
    slow = slowed(rounds[1], 2.5)
    assert set(alerts(rounds[0], slow)) == times(slow).keys()


def geometric_mean(run: Run) -> float:
    """OVERALL_GEOMEAN of compare.py, for one file: over every entry that is no aggregate."""
    entries = google(run)["benchmarks"]
    return statistics.geometric_mean(e["real_time"] for e in entries if e["run_type"] != "aggregate")


def test_the_geometric_mean_of_compare_py_is_that_of_the_medians() -> None:
    rounds = repeated()
    for old, new in pairwise(rounds):
        before, after = times(old), times(new)
        assert before.keys() == after.keys()
        expected = statistics.geometric_mean(after[name] / before[name] for name in before)
        assert geometric_mean(new) / geometric_mean(old) == pytest.approx(expected)
        assert 0.8 < expected < 1.25


def test_times_of_probes_do_not_hang_on_how_much_their_races_chose_to_do() -> None:
    row = fake.peak_row(1, 100.0)
    longer = replace(fake.slower(row, 2), work=row.work and replace(row.work, flops=2 * row.work.flops))
    one, two = (Run(fake.header(("peak",)), (each,)) for each in (row, longer))
    times = [[entry["real_time"] for entry in google(run)["benchmarks"]] for run in (one, two)]
    assert times[0] == pytest.approx(times[1])
    assert times[0][0] == pytest.approx(1e9 / 100, rel=0.01)  # ns for 1e9 operations
    for run in (one, two):
        assert "gemmbench_time" not in text(run, "openmetrics")


# --- OpenMetrics ----------------------------------------------------------------------------------------


@by_run
def test_openmetrics_is_read_by_both_of_prometheus_parsers(run: Run) -> None:
    """node exporter's textfile collector reads the older text format, without timestamps."""
    shown = text(run, "openmetrics")
    families = list(openmetrics_format.text_string_to_metric_families(shown))
    older = list(text_format.text_string_to_metric_families(shown))
    assert {family.type for family in families + older} == {"gauge"}
    assert all(family.documentation.endswith(".") for family in families)
    assert all(family.name.endswith(f"_{family.unit}") for family in families if family.unit)
    samples = [sample for family in families for sample in family.samples]
    assert [sample[:3] for sample in samples] == [tuple(s)[:3] for f in older for s in f.samples]
    assert all(math.isfinite(sample.value) and sample.timestamp is None for sample in samples)
    assert len({(s.name, tuple(sorted(s.labels.items()))) for s in samples}) == len(samples)


def test_openmetrics_says_of_every_row_whether_it_has_a_result() -> None:
    run = fake.fake_troubled()
    suspect = replace(run.rows[0], check=Check("suspect"))
    run = replace(run, rows=(suspect, *run.rows[1:]))
    families = openmetrics_format.text_string_to_metric_families(text(run, "openmetrics"))
    by_name = {family.name: family.samples for family in families}
    found = [(sample.labels["status"], sample.value) for sample in by_name["gemmbench_ok"]]
    assert found == [("suspect", 0), *((row.status, row.status == "ok") for row in run.rows[1:])]
    times = {sample.labels["benchmark"] for sample in by_name["gemmbench_time_seconds"]}
    assert times == {name for name, (status, _) in zip(labels(run), found, strict=True) if status == "ok"}
    assert all("[bold]x[/]" in sample.labels["device"] for sample in by_name["gemmbench_ok"][:1])


@by_run
def test_openmetrics_has_the_mark_of_uncertain_rows(run: Run) -> None:
    families = openmetrics_format.text_string_to_metric_families(text(run, "openmetrics"))
    marks = {
        s.labels["benchmark"]: s.value for f in families if f.name == "gemmbench_uncertain" for s in f.samples
    }
    rows = zip(records.to_flat(run), run.rows, strict=True)
    assert marks == {flat["benchmark"]: flat["uncertain"] for flat, row in rows if export_status(row) == "ok"}
    assert run is not RUNS[-1] or set(marks.values()) == {0.0, 1.0}


def test_the_commands_of_the_docs_add_the_time_that_a_backfill_needs(tmp_path: Path) -> None:
    page = (ROOT / "docs/report-and-export.md").read_text(encoding="utf-8")
    commands = [line for line in page.splitlines() if line.startswith(("started=", "sed "))]
    (tmp_path / "gemmbench.prom").write_text(text(RUNS[0], "openmetrics"), encoding="utf-8")
    subprocess.run(["bash", "-ec", "\n".join(commands)], cwd=tmp_path, check=True)
    shown = (tmp_path / "backfill.prom").read_text(encoding="utf-8")
    timed, plain = (
        [
            sample
            for family in openmetrics_format.text_string_to_metric_families(each)
            for sample in family.samples
        ]
        for each in (shown, text(RUNS[0], "openmetrics"))
    )
    assert [sample[:3] for sample in timed] == [sample[:3] for sample in plain]
    (started,) = (sample.value for sample in plain if sample.name == "gemmbench_run_started_seconds")
    assert {float(sample.timestamp) for sample in timed} == {started}


def test_openmetrics_of_several_runs_can_be_collected_together() -> None:
    """As node exporter does with the files of a folder: the same gauge twice is an error to it."""
    run = fake.fake_square()
    two = [text(replace(run, path=path), "openmetrics") for path in ("runs/one.jsonl", "runs/two.jsonl")]
    gauges = [{line for line in shown.splitlines() if not line.startswith("#")} for shown in two]
    assert not {line.rpartition(" ")[0] for line in gauges[0]} & {
        line.rpartition(" ")[0] for line in gauges[1]
    }
    assert all('{run="one",' in line or '{run="one"}' in line for line in gauges[0])
    assert 'run="square"' in text(replace(run, path=""), "openmetrics")


def test_openmetrics_escapes_labels() -> None:
    families = openmetrics_format.text_string_to_metric_families(text(RUNS[-1], "openmetrics"))
    assert [f.samples[0].labels["command"] for f in families if f.name == "gemmbench_run"] == [
        f"square {QUOTED}"
    ]


def test_a_start_that_is_no_time_is_left_out() -> None:
    run = Run(replace(fake.header(("square",)), started_utc="yesterday"), ())
    assert "started" not in text(run, "openmetrics")


# --- what is left out -----------------------------------------------------------------------------------


def test_what_a_format_leaves_out_is_counted() -> None:
    run = fake.fake_peak()  # five unsupported, one failed, one suspect
    assert exports.left_out(run, "google-benchmark") == (
        "google-benchmark cannot represent rows that are not ok: 7 rows excluded (1 suspect, 1 failed, "
        "5 unsupported)."
    )
    assert "1 row excluded (1 failed)" in exports.left_out(
        replace(run, rows=(run.rows[0], run.rows[13])), "google-benchmark"
    )
    assert exports.left_out(replace(run, rows=run.rows[:1]), "google-benchmark") == ""
    for form in ("json", "csv", "markdown", "openmetrics", "table"):
        assert exports.left_out(run, form) == ""


# --- flat records and CSV -------------------------------------------------------------------------------


@by_run
def test_flat_records_have_the_same_columns_and_types_in_every_run(run: Run) -> None:
    kinds = {"string": str, "int64": int, "float64": float, "bool": bool}
    for record in records.to_flat(run):
        assert list(record) == list(gb.Run.columns)
        for name, value in record.items():
            assert value is None or type(value) is kinds[gb.Run.columns[name]], name
            assert not (isinstance(value, float) and not math.isfinite(value))


@by_run
def test_csv_has_the_flat_records(run: Run) -> None:
    lines = list(csv.DictReader(io.StringIO(text(run, "csv"))))
    flat = records.to_flat(run)
    assert lines == [{n: "" if v is None else str(v) for n, v in record.items()} for record in flat]
    for row, record in zip(run.rows, flat, strict=True):
        assert json.loads(str(record["parameters"])) == row.parameters


def test_a_gemm_has_its_rate_and_interval_as_tables_show_them() -> None:
    run = fake.fake_square()
    scope = rates.view_scope(run)
    for row, record in zip(run.rows, records.to_flat(run), strict=True):
        shown = rates.shown_rate(row, scope)
        if row.kind != "gemm" or shown is None:
            continue
        ends = (shown.median, shown.low, shown.high)
        assert [record[f"gflops_{name}"] for name in ("median", "low", "high")] == [
            None if math.isnan(value) else value / 1e9 for value in ends
        ]
        assert record["gflops"] == shown.median / 1e9
        assert record["scope"] == rates.shown_samples(row, scope)
        times = rates.summary(row, "host")
        assert (record["host_s"], record["host_s_low"]) == (
            times.median,
            None if math.isnan(times.low) else times.low,
        )


# --- JSON -----------------------------------------------------------------------------------------------


def keys(value: Any, at: str = "") -> set[tuple[str, str]]:
    """Every key in a JSON value with the object that holds it. Items of a list are one object."""
    if isinstance(value, list):
        return {key for each in value for key in keys(each, at)}
    fields = value.items() if isinstance(value, dict) else ()
    return {(at, name) for name, _ in fields} | {
        key for name, each in fields for key in keys(each, f"{at}.{name}")
    }


def test_no_two_keys_of_json_differ_in_case_only() -> None:
    """In any row: DuckDB reads the same object of all rows as one struct, whose names ignore case."""
    runs = [load(ROOT / f"plots/{name}.jsonl") for name in ("h200-peak", "h200-square", "cpu-intel-square")]
    found = keys([json.loads(text(run, "json")) for run in runs])
    found |= keys([json.loads(comparison_json(compare([run], [run]))) for run in runs[:1]])
    found |= {(".parameters", name) for variant in BY_NAME.values() for name in variant.parameters}
    assert Counter((at, name.casefold()) for at, name in found).most_common(1)[0][1] == 1
    renamed = {(".parameters", "vector_width"), (".choice", "vector_width"), (".choice", "work_groups")}
    square = fake.fake_square()
    former = Partner("0", {}, "mine", {"width": 2, "WIDTH": 4})
    run = replace(square, rows=tuple(replace(row, former=former) for row in square.rows))
    assert records.to_records(run)[0]["former"]["parameters"] == {"vector_width": 2, "WIDTH": 4}
    assert renamed | {(".rows.parameters", "vector_width"), (".parameters", "WIDTH")} <= found


@by_run
def test_a_case_has_its_name_in_every_format(run: Run) -> None:
    names = [record["benchmark"] for record in json.loads(text(run, "json"))]
    assert names == list(labels(run)) == [record["benchmark"] for record in records.to_flat(run)]
    gauges = list(openmetrics_format.text_string_to_metric_families(text(run, "openmetrics")))
    assert [s.labels["benchmark"] for f in gauges if f.name == "gemmbench_ok" for s in f.samples] == names
    assert {entry["name"].rpartition("/")[0] for entry in google(run)["benchmarks"]} <= {*names}


# --- JSON Schemas ---------------------------------------------------------------------------------------

VALIDATORS = {name: jsonschema_rs.Draft202012Validator(records.build_schema(name)) for name in records.NAMES}
OLDER = {name: jsonschema_rs.Draft7Validator(records.build_schema(name)) for name in records.NAMES}


@pytest.mark.parametrize("path", SAVED, ids=lambda path: f"{path.parent.name}-{path.stem}")
def test_schemas_hold_for_every_saved_run(path: Path) -> None:
    header, *rows = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    VALIDATORS["header"].validate(header)
    for row in rows:
        VALIDATORS["row"].validate(row)
    if path.parent != ROOT / "plots":  # those: tests/cli/test_api.py
        VALIDATORS["records"].validate(records.to_records(load(path)))


@by_run
def test_the_schema_of_records_holds(run: Run) -> None:
    VALIDATORS["records"].validate(json.loads(text(run, "json")))


@pytest.mark.parametrize(
    ("name", "change"),
    [
        ("header", {"schema_version": 2}),
        ("header", {"devices": "all"}),
        ("row", {"status": "fine"}),
        ("row", {"samples": {"kernel": {"seconds": [0], "batch": 1, "stop": ""}}}),
        ("row", {"problem": {"m": -1, "n": 1, "k": 1}}),
        ("records", {"gflops": "fast"}),
        ("records", {"few": None, "status": None}),
    ],
)
def test_schemas_refuse_what_does_not_fit(name: str, change: dict[str, Any]) -> None:
    path = ROOT / "plots/h200-precision.jsonl"
    first, second, *_ = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    good = {"header": first, "row": second, "records": records.to_records(load(path))[0]}[name]
    wrap = (lambda each: [each]) if name == "records" else (lambda each: each)
    VALIDATORS[name].validate(wrap(good))
    assert not VALIDATORS[name].is_valid(wrap({**good, **change}))


def test_schemas_mean_the_same_in_draft_7() -> None:
    """Validators that know no newer draft ignore ``prefixItems``, and then refuse every pair."""
    header, row, *_ = map(json.loads, (ROOT / "plots/h200-precision.jsonl").read_text("utf-8").splitlines())
    for validators in (VALIDATORS, OLDER):
        assert validators["row"].is_valid(row)
        assert validators["header"].is_valid(header)
        for pair in ([1], [1, 2, 3], [1, "2"]):
            devices = [{**header["devices"][0], "image2d_max": pair}]
            assert not validators["header"].is_valid({**header, "devices": devices})
    assert "prefixItems" not in json.dumps([records.build_schema(name) for name in records.NAMES])


def test_schemas_have_a_version_and_say_what_fields_hold() -> None:
    assert [records.build_schema(name)["$id"] for name in records.NAMES] == [
        f"urn:gemmbench:schema:{name}:3" for name in records.NAMES
    ]
    fields = records.build_schema("records")["$defs"]["Record"]["properties"]
    assert fields["gflops"]["description"].startswith("1e9 operations per second")
    assert gb.schema("row") == records.build_schema("row")
    with pytest.raises(gb.UsageError, match="unknown schema 'rows'; there are header, row, records"):
        gb.schema("rows")
