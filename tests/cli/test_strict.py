"""``--strict``: green never means that a job could not tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench.cli import EXIT_INCONCLUSIVE, EXIT_WRONG
from gemmbench.model.row import Resources
from gemmbench.model.run_file import Run, load
from tests.cli.conftest import Call
from tests.compare_runs import again, repetitions, save

H200 = Path(__file__).parents[1] / "data" / "aa" / "h200.jsonl"
TOLD = Resources("register", "multiply", 256, 1024, 32, 0, 2048, registers=64, spill_bytes=0)


def with_registers(run: Run, registers: int) -> Run:
    """A run whose kernels use so many registers."""
    told = replace(TOLD, registers=registers)
    rows = (replace(row, resources=(told,)) if row.variant == "register" else row for row in run.rows)
    return replace(run, rows=tuple(rows))


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    runs = repetitions(load(H200))
    save("base.jsonl", with_registers(runs[0], 64))
    save("new.jsonl", with_registers(runs[6], 64))
    save("spilled.jsonl", with_registers(runs[5], 128))
    save("slow.jsonl", again(0, {("register", 2048): 1.3}, noise=0, run=runs[6]))
    save("uncertain.jsonl", runs[5])


def test_a_row_that_is_possibly_slower_is_not_green(call: Call) -> None:
    assert call("compare", "base.jsonl", "new.jsonl", "--strict").exit_code == 0
    assert call("compare", "base.jsonl", "slow.jsonl").exit_code == 0
    strict = call("compare", "base.jsonl", "slow.jsonl", "--strict", "--format", "github")
    assert strict.exit_code == EXIT_INCONCLUSIVE
    assert "::error title=gemmbench%3A register float 2048::differs: +30" in strict.stdout


def test_what_nobody_can_tell_is_a_warning_and_not_green(call: Call) -> None:
    assert call("compare", "base.jsonl", "uncertain.jsonl").exit_code == 0
    strict = call("compare", "base.jsonl", "uncertain.jsonl", "--strict", "--format", "github")
    assert strict.exit_code == EXIT_INCONCLUSIVE
    assert "::warning title=gemmbench%3A nv-async float 256::cannot tell: +7.1 %25" in strict.stdout
    assert "::error" not in strict.stdout


def test_resources_fail_where_that_is_asked_for(call: Call) -> None:
    told = call("compare", "base.jsonl", "spilled.jsonl")
    assert told.exit_code == 0
    assert "register: 128 registers, not 64" in " ".join(told.stdout.split())
    words = ("base.jsonl", "spilled.jsonl", "--fail-on", "resources")
    failed = call("compare", *words)
    assert failed.exit_code == EXIT_WRONG
    assert "resources changed" in failed.stdout
    rows = json.loads(call("compare", *words, "--format", "json").stdout)["rows"]
    assert {row["variant"] for row in rows if row["verdict"] == "resources changed"} == {"register"}
    assert call("compare", "base.jsonl", "new.jsonl", "--fail-on", "resources").exit_code == 0
