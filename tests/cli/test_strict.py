"""``--strict``: green never means that a job could not tell."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench.cli import EXIT_INCONCLUSIVE, EXIT_WRONG
from gemmbench.model.row import Resources, Row
from gemmbench.model.run_file import Run
from tests.cli.conftest import Call
from tests.compare_runs import save
from tools.gate_simulation import Recording, recorded

H200 = Path(__file__).parents[1] / "data" / "aa" / "h200.jsonl"
TOLD = Resources("register", "multiply", 256, 1024, 32, 0, 2048, registers=64, spill_bytes=0)


def taken(recording: Recording, index: int, registers: int = 64) -> Run:
    """One of the recorded runs, whose kernels take so many registers."""
    told = replace(TOLD, registers=registers)

    def row(of: Row) -> Row:
        return replace(of, resources=(told,)) if of.variant == "register" else of

    return replace(recording.run, rows=tuple(row(rows[index]) for rows in recording.rows.values()))


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    recording = recorded(H200)
    for index in range(9):
        save(f"base{index}.jsonl", taken(recording, index))
    save("new.jsonl", taken(recording, 8))
    save("spilled.jsonl", taken(recording, 8, registers=128))


FIVE = [f"base{index}.jsonl" for index in range(3, 8)]


def test_a_gate_that_is_too_coarse_for_its_threshold_is_not_green(call: Call) -> None:
    """From one base run of a GPU every row may be the same, and 10 % slower would not have been found."""
    lax = call("compare", "base5.jsonl", "new.jsonl")
    assert lax.exit_code == 0
    last = " ".join(lax.stdout.split("resolution: ")[1].split())
    assert "in a typical row" in last
    assert "in the worst (cublas 2048) would have been found 95 times in 100" in last
    assert "Too coarse for it: in a typical row +" in last
    strict = call("compare", "base5.jsonl", "new.jsonl", "--strict", "--format", "github")
    assert strict.exit_code == EXIT_INCONCLUSIVE
    assert "::error title=gemmbench::" in strict.stdout
    assert "Too coarse" in strict.stdout


def test_five_base_runs_know_better(call: Call) -> None:
    made = call("compare", *FIVE, "new.jsonl", "--format", "json")
    resolution = json.loads(made.stdout)["resolution"]
    assert resolution["typical"] < 0.1
    assert not resolution["is_coarse"]
    assert "Too coarse" not in call("compare", *FIVE, "new.jsonl").stdout


def test_resources_fail_where_that_is_asked_for(call: Call) -> None:
    told = call("compare", *FIVE, "spilled.jsonl")
    assert told.exit_code == 0
    assert "register: 128 registers, not 64" in " ".join(told.stdout.split())
    words = (*FIVE, "spilled.jsonl", "--fail-on", "resources")
    failed = call("compare", *words)
    assert failed.exit_code == EXIT_WRONG
    assert "changed" in failed.stdout
    rows = json.loads(call("compare", *words, "--format", "json").stdout)["rows"]
    assert {row["variant"] for row in rows if row["verdict"] == "changed"} == {"register"}
    assert call("compare", *FIVE, "new.jsonl", "--fail-on", "resources").exit_code == 0
