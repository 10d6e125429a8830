from __future__ import annotations

import csv
import io
import json
from dataclasses import replace

import pytest

from gemmbench.exports.records import format_json, to_csv
from gemmbench.model.row import Check
from gemmbench.model.run_file import Run
from gemmbench.views import format_markdown
from tests import fake_runs as fake


def no_constant(name: str) -> None:
    raise AssertionError(f"{name} in the JSON")


def test_json_rates_and_widths() -> None:
    square = {(r["variant"], r["m"]): r for r in json.loads(format_json(fake.fake_square()))}
    row = square["register", 1024]
    assert row["kernel_gflops"] == pytest.approx(241.7, rel=0.01)
    assert row["peak_fraction"] == pytest.approx(row["device_gflops"] / 345, rel=0.01)
    assert row["host_gflops"] < row["device_gflops"] < row["kernel_gflops"]
    assert row["device_name"] == fake.CPU.name
    assert square["numpy", 64]["kernel_gflops"] is None
    peak = json.loads(format_json(fake.fake_peak()))
    assert (peak[0]["width"], peak[0]["gflops"]) == (1, pytest.approx(345, rel=0.01))


def test_json_has_null_for_what_is_not_a_number() -> None:
    run = fake.fake_gemm()
    figures = {"residual": float("nan"), "most": float("inf")}
    bad = replace(run, rows=tuple(replace(row, check=Check("wrong", figures)) for row in run.rows))
    found = json.loads(format_json(bad), parse_constant=no_constant)
    assert found[0]["check"]["figures"] == {"residual": None, "most": None}


def test_energy_is_in_json_and_csv_or_says_why_not() -> None:
    run = fake.fake_sweep_k()
    rows = tuple(replace(row, energy=fake.energy(row, run.device(row))) for row in run.rows)
    found = json.loads(format_json(replace(run, rows=rows)))
    flat = list(csv.DictReader(io.StringIO(to_csv(replace(run, rows=rows)))))
    for fields, line in zip(found, flat, strict=True):
        if fields["device"] < 0:
            assert (fields["energy_j"], fields["gflop_per_j"]) == (None, None)
            assert "energy_uj is for root only" in fields["energy"]["why"]
            assert (line["energy_j"], line["gflop_per_j"]) == ("", "")
            continue
        assert float(line["gflop_per_j"]) == fields["gflop_per_j"]
        assert float(line["energy_j"]) == fields["energy_j"] == fields["energy"]["joules"]
        if fields["kind"] == "gemm":
            flops = 2e-9 * fields["m"] * fields["n"] * fields["k"]
            assert fields["gflop_per_j"] == pytest.approx(flops / fields["energy_j"])


def test_json_of_no_rows() -> None:
    assert json.loads(format_json(Run(fake.header(("square",)), ()))) == []


@pytest.mark.parametrize("name", fake.ALL)
def test_markdown_tables_have_as_many_cells_in_each_line(name: str) -> None:
    lines = format_markdown(fake.ALL[name](), fake.ORDER).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert tables
    columns = 0
    for before, line in zip(["", *lines], lines, strict=False):
        if line.startswith("|"):
            count = line.replace("\\|", "").count("|")
            assert not before.startswith("|") or count == columns
            columns = count


def test_markdown_escapes_what_drivers_say() -> None:
    text = format_markdown(fake.fake_troubled())
    assert '\\[bold\\]x\\[/\\] \\| &lt;b&gt;&amp;"\\$x^2\\$\\`' in text
    assert "<b>" not in text
    assert "\x1b" not in text
