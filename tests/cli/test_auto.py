"""auto on the command line, with a machine whose figures never change."""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np
import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import load
from gemmbench.suite.cached import KeptPresets, Preset, source
from tests import fake_runs
from tests.cli.conftest import Call

# In half: there the host's BLAS, which the fake machine has ahead of every kernel, is out of the race.
SWEEP = ("square", "--sizes", "8,16", "--no-peak", "--baseline", "none", "--dtype", "half")
FLOAT = (*SWEEP[:-1], "float")


def rows_of(call: Call, path: Path, *words: str) -> list[Row]:
    result = call(*words, "--save", str(path), "--force")
    assert result.exit_code == 0, result.stderr
    return [row for row in load(path).rows if row.variant == "auto"]


def reasons(rows: list[Row]) -> list[str]:
    return [str(row.choice["why"]) for row in rows]


def test_auto_takes_the_best_of_the_rows_before_it(call: Call, tmp_path: Path) -> None:
    """The fake machine's register is ahead of its cpu-packed, which is tried beside the rows."""
    rows = rows_of(call, tmp_path / "run.jsonl", *SWEEP, "--kernel", "naive,register,auto")
    assert [(row.device, row.status, row.choice["kernel"]) for row in rows] == [(0, "ok", "register")] * 2
    assert [row.parameters for row in rows] == [{}, {}]
    assert all("the fastest measured at" in why for why in reasons(rows))


def test_the_table_says_what_it_took(call: Call) -> None:
    shown = call(*SWEEP, "--kernel", "naive,register,auto").stdout
    assert "auto took: register at every size" in shown
    every = call(*SWEEP, "--kernel", "naive,register,auto", "--scope", "all").stdout
    words = " ".join(every.split())
    assert "auto at 16: took register: the fastest measured at 16x16x16" in words
    page = " ".join(call("gemm", "-m", "8", "--kernel", "register,auto", "--dtype", "half").stdout.split())
    assert "auto at 8: took register: the fastest measured at 8x8x8" in page
    assert "kernel=register" not in page


def test_alone_it_tries_and_the_next_run_remembers(call: Call, tmp_path: Path) -> None:
    words = (*SWEEP, "--kernel", "auto")
    first = reasons(rows_of(call, tmp_path / "run.jsonl", *words))
    assert all("the fastest of a trial on this problem (cpu-packed)" in why for why in first)
    again = reasons(rows_of(call, tmp_path / "run.jsonl", *words))
    assert "the fastest measured at 8x8x8" in again[0]
    (between,) = reasons(rows_of(call, tmp_path / "run.jsonl", *words, "--sizes", "12"))
    assert "the fastest at the nearest measured shapes" in between
    assert list(Path(os.environ["XDG_CACHE_HOME"]).glob("gemmbench/measured/*.json"))


def test_every_run_of_the_ladder_teaches_it(call: Call, tmp_path: Path) -> None:
    assert call(*SWEEP, "--kernel", "register").exit_code == 0
    (first, _) = rows_of(call, tmp_path / "run.jsonl", *SWEEP, "--kernel", "auto")
    assert first.choice["kernel"] == "register"
    assert first.choice["BM"] > 0  # type: ignore[operator]


def test_a_resumed_run_keeps_its_rows_and_learns_from_them(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    words = (*SWEEP, "--kernel", "register,auto", "--save", str(path))
    shown = call(*words).stdout
    lines = path.read_bytes().splitlines(keepends=True)
    path.write_bytes(b"".join(lines[:-1]))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "empty"))
    resumed = call(*words, "--resume")
    assert resumed.exit_code == 0
    assert resumed.stdout == shown
    assert len(load(path).rows) == len(lines) - 1


def kept() -> list[Path]:
    return list(Path(os.environ["XDG_CACHE_HOME"]).glob("gemmbench/measured/*.json"))


def test_what_a_resumed_file_held_is_not_kept_as_measured_today(call: Call, tmp_path: Path) -> None:
    words = (*SWEEP, "--kernel", "register", "--save", str(tmp_path / "run.jsonl"))
    assert call(*words).exit_code == 0
    (path,) = kept()
    path.unlink()
    assert call(*words, "--resume").exit_code == 0
    assert kept() == []


def test_the_users_own_matrices_teach_it_nothing(call: Call, tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((8, 8), np.float32))
    own = ("gemm", "-n", "8", "--a", str(tmp_path / "a.npy"), "--no-peak", "--baseline", "none")
    assert call(*own, "--kernel", "register").exit_code == 0
    assert kept() == []
    assert call(*own, "--kernel", "register,auto").exit_code == 0
    (path,) = kept()  # what auto has tried was generated
    points = json.loads(path.read_text())["rows"]
    assert {point["point"]["variant"] for point in points} == {"cpu-packed", "numpy"}


def test_tuned_parameters_are_told_and_left_out_where_they_are_not_wanted(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    register = BY_NAME["register"]
    shipped = register.preset("cpu-intel", dtype="half", device=fake_runs.CPU)
    mine = {**shipped, "BK": 8}
    monkeypatch.setenv("GEMMBENCH_FAKE_GAINS", "BK=8 1.5")
    preset = Preset(
        "register", "half", source(register), mine, (Problem(8, 8, 8),), 1.5, "2026-11-21T04:30:00Z"
    )
    KeptPresets().keep(fake_runs.CPU, preset)
    assert call(*SWEEP, "--kernel", "register").exit_code == 0
    assert call(*SWEEP, "--kernel", "register", "--no-tuned").exit_code == 0
    alone = (*SWEEP, "--kernel", "auto")
    with_it = rows_of(call, tmp_path / "run.jsonl", *alone)
    assert {row.choice["BK"] for row in with_it} == {8}
    assert all(row.notes[0].startswith("preset: tuned") for row in with_it)
    without = rows_of(call, tmp_path / "run.jsonl", *alone, "--no-tuned")
    assert {(row.choice["BK"], row.notes) for row in without} == {(shipped["BK"], ())}
    assert call("tune", "--forget").exit_code == 0
    after = rows_of(call, tmp_path / "run.jsonl", *alone)
    assert {(row.choice["BK"], row.notes) for row in after} == {(shipped["BK"], ())}


def test_a_variant_that_crashes_in_a_trial_is_not_taken(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "cpu-packed 8 sigsegv")
    first, _ = rows_of(call, tmp_path / "run.jsonl", *FLOAT, "--kernel", "auto")
    assert (first.status, first.device, first.choice["kernel"]) == ("ok", 0, "numpy")


def test_where_all_fail_the_row_says_of_what(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "cpu-packed 8 sigsegv; numpy 8 exit")
    path = tmp_path / "run.jsonl"
    result = call(*FLOAT, "--kernel", "auto", "--save", str(path))
    assert result.exit_code == 0
    first, second = load(path).rows
    assert (first.status, second.status) == ("unsupported", "ok")
    assert first.reason == "no variant that could be chosen runs here"


def test_a_cache_that_is_no_use_costs_a_note(call: Call, tmp_path: Path) -> None:
    words = (*SWEEP, "--kernel", "auto")
    assert call(*words).stderr == ""
    for path in Path(os.environ["XDG_CACHE_HOME"]).glob("gemmbench/measured/*.json"):
        path.write_text("{")
    result = call(*words)
    assert result.exit_code == 0
    assert "kept measurements cannot be read, so that auto goes without" in result.stderr
    assert "auto took" in result.stdout
    assert call(*words).stderr == ""


def test_a_cache_that_cannot_be_written_costs_a_note(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    result = call(*SWEEP, "--kernel", "auto")
    assert result.exit_code == 0
    assert "measurements are not kept for auto" in result.stderr


def test_it_is_one_of_the_best_but_no_step_of_the_ladder(call: Call) -> None:
    assert "run   auto" not in call(*SWEEP, "--kernel", "ladder", "--dry-run").stdout
    assert "run   auto" not in call(*SWEEP, "--dry-run").stdout
    assert "run   auto half 8x8x8" in call(*SWEEP, "--kernel", "best", "--dry-run").stdout


def test_the_workloads_name_kernels_not_auto(call: Call) -> None:
    shown = call(
        "workloads", "--set", "odd", "--kernel", "register,auto", "--no-peak", "--dtype", "half"
    ).stdout
    assert "auto took: register at every shape" in shown
    assert "auto" not in shown.replace("auto took", "")


def test_it_is_described(call: Call) -> None:
    shown = call("kernels", "--describe", "auto").stdout
    assert "what a library would do" in shown
