"""Files of schema 1: what stood in their commands, parameters, labels and sentences is in fields."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model import schema1
from gemmbench.model.instrument import is_too_slow, too_slow_reason
from gemmbench.model.row import Energy, Problem, Row
from gemmbench.model.run_file import Header, RunFile, RunFileError, encode, is_tuning, load
from gemmbench.probes import PROBES
from gemmbench.regress.compare import compare
from gemmbench.tune.result import result
from tests import fake_runs as fake
from tests import fake_tuner as tuner

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path
    for folder in ("plots", "tests/data")
    for path in (ROOT / folder).rglob("*.jsonl")
    if b'"schema_version":1,' in path.read_bytes()[:40]
)
SIZE = Problem(64, 64, 64)


def written(path: Path, command: Sequence[str], *rows: Row, schema: int = 1) -> Path:
    header = replace(fake.header((), (fake.CPU, fake.POCL)), command=tuple(command), schema_version=schema)
    path.write_bytes(b"".join([encode(header), *map(encode, rows)]))
    return path


def of_schema_1(row: Row) -> Row:
    """A row of a tuner as schema 1 had it."""
    return replace(row, phase="", label="" if row.phase == "trial" else row.phase)


def test_there_are_such_files() -> None:
    """The recordings of unchanged rows stay as they are; others are measured anew, one by one."""
    assert {path.name for path in FILES if path.parent.name == "aa"} == {
        "cpu-intel.jsonl",
        "cpu-pocl.jsonl",
        "h200.jsonl",
    }


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_real_files_have_their_state_in_fields(path: Path) -> None:
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    run = load(path)
    command = lines[0]["command"][0]
    assert run.header.view == ("" if command == "check" else command)
    assert run.header.scope == ""
    assert len(run.rows) == len(lines) - 1
    for row, old in zip(run.rows, lines[1:], strict=True):
        assert row.parameters == old["parameters"]
        assert list(row.remarks) == old["notes"]
        assert not any(note.startswith("raced") for note in row.notes)
        assert is_too_slow(row) == old["reason"].startswith("would take about")
        name = row.variant
        if row.status != "ok":
            continue
        if name in BY_NAME:
            assert row.ran_on == BY_NAME[name].ran_on(row.dtype)
        elif name in PROBES:
            assert row.ran_on == PROBES[name].ran_on
    measured = [row for row in run.rows if not row.measured_utc]
    twins = replace(run, header=replace(run.header, schema_version=2))
    assert not measured or compare([run], [twins]).compared


@pytest.mark.parametrize(
    ("command", "view", "scope"),
    [
        (["square", "--scope", "host"], "square", "host"),
        (["gemmbench", "sweep-k", "--scope=all"], "sweep-k", "all"),
        (["precision", "--scope", "kernel", "--scope", "device"], "precision", "device"),
        (["workloads", "--file", "tune"], "workloads", ""),
        (["peak", "--all"], "peak", ""),
        (["gemm", "-m", "8"], "gemm", ""),
        (["tune", "--kernel", "register"], "tune", ""),
        (["check", "tune"], "", ""),
        (["check", "workloads", "--scope", "host"], "", "host"),
        (["square", "--scope"], "square", ""),
        (["square", "--scope", "moon"], "square", ""),
        ([], "", ""),
    ],
)
def test_views_and_scopes_are_those_of_the_command(
    command: list[str], view: str, scope: str, tmp_path: Path
) -> None:
    header = load(written(tmp_path / "run.jsonl", command)).header
    assert (header.view, header.scope) == (view, scope)
    newer = load(written(tmp_path / "run.jsonl", command, schema=2)).header
    assert (newer.view, newer.scope) == ("", "")


@pytest.mark.parametrize("needs_s", [3e-5, 0.0123, 0.3, 9.0, 99.0, 12345.0])
def test_what_a_skipped_case_needs_is_read_as_it_was_written(needs_s: float, tmp_path: Path) -> None:
    reason = too_slow_reason(needs_s, 1e-6)
    rows = (
        fake.bad("naive", SIZE, "skipped", reason),
        fake.bad("block4x4-v4", SIZE, "skipped", f"naive: {reason}"),
        fake.bad("tiled", SIZE, "skipped", "alone it would take about 9 s"),
        fake.bad("rect", SIZE, "failed", reason),
    )
    read = load(written(tmp_path / "run.jsonl", ["square"], *rows)).rows
    assert [row.needs_s for row in read[:2]] == [pytest.approx(needs_s, rel=0.01)] * 2
    assert [row.needs_s for row in read[2:]] == [None, None]


def test_a_tuners_file_has_phases(tmp_path: Path) -> None:
    run = tuner.fake_tune()
    old = written(tmp_path / "run.jsonl", tuner.WORDS, *map(of_schema_1, run.rows))
    read = load(old)
    assert is_tuning(read)
    assert [(row.phase, row.label) for row in read.rows] == [(row.phase, "") for row in run.rows]
    assert result(read).overall == result(run).overall
    elsewhere = load(written(tmp_path / "run.jsonl", ["check", "tune"], *map(of_schema_1, run.rows)))
    assert not is_tuning(elsewhere)
    assert {row.phase for row in elsewhere.rows} == {""}


def test_a_file_that_is_resumed_later_holds_rows_of_both(tmp_path: Path) -> None:
    old = fake.gemm_row("tiled", SIZE, 4.0, parameters={"TS": 16})
    new = replace(
        fake.gemm_row("tiled", SIZE, 4.0, parameters={"TS": 16}, device=1),
        race=("raced a", "raced b"),
        needs_s=3.0,
        notes=("a note",),
    )
    path = written(tmp_path / "run.jsonl", ["square"], old)
    with RunFile.resume(path, load(path).header) as file:
        file.append(new)
    assert load(path).rows[1] == new


def test_a_resumed_file_is_one_of_the_same_command(tmp_path: Path) -> None:
    path = written(tmp_path / "run.jsonl", ["square", "--max", "64"])
    today: Header = replace(load(path).header, schema_version=2)
    RunFile.resume(path, today).close()
    with pytest.raises(RunFileError, match="another command"):
        RunFile.resume(path, replace(today, command=("square", "--max", "128")))


def test_other_fields_stay_as_they_are() -> None:
    row = fake.gemm_row("tiled", SIZE, 4.0)
    assert schema1.row(row, fake.header(("gemmbench", "gemm"))) == row
    row = replace(row, energy=Energy(0.5, "", "board", "NVML", 61.0, 1.2, 600), notes=("raced on", "x"))
    assert schema1.row(row, fake.header(("gemmbench", "gemm"))) == replace(
        row, notes=("x",), race=("raced on",)
    )


def test_a_peak_of_instructions_that_did_not_run_is_none_whatever_its_file_says(tmp_path: Path) -> None:
    """1,700 TFLOPS of mma fp8 on an H200, saved before it was known that none of them ran."""
    devices = tuple(replace(fake.GPU, compute_capability=(9, minor)) for minor in (0, 9))
    row = replace(fake.peak_row(1, 1.7e6), variant="mma", dtype="fp8")
    rows = [replace(row, device=0), replace(row, device=1), replace(row, variant="wgmma", device=0)]
    path = tmp_path / "peak.jsonl"
    header = replace(fake.header((), devices), command=("peak",), schema_version=1)
    path.write_bytes(b"".join([encode(header), *map(encode, rows)]))
    first, *others = load(path).rows
    assert (first.status, first.samples) == ("unsupported", {})
    assert first.reason == "the assembler makes mma fp8 of other instructions there than were counted"
    assert [each.status for each in others] == ["ok", "ok"]
