"""Kept peaks: served again for the same device, driver and kernels; a bad folder costs a note."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from gemmbench.model.case import Case, Plan, Skip
from gemmbench.model.device import Conditions, DeviceFacts
from gemmbench.model.row import Check, Problem, Row
from gemmbench.model.run_file import SCHEMA_VERSION, Run
from gemmbench.report.table import heading
from gemmbench.stats import rates
from gemmbench.suite import cached
from gemmbench.suite.cached import CachedPeaks
from tests import fake_runs as fake

SOURCE = "0123456789abcdef"
NOW = datetime(2026, 11, 21, 4, 27, tzinfo=timezone.utc)  # three minutes before the header's start
ROW = replace(fake.peak_row(4, 345.0), source=SOURCE)
CASE = Case("peak", 0, "flops", "float", {"width": 4}, source=SOURCE)


def run_of(*rows: Row) -> Run:
    return Run(fake.header(("peak",), (fake.CPU,)), rows)


def kept_in(folder: Path, *rows: Row) -> None:
    CachedPeaks(folder).keep(run_of(*rows or (ROW,)), now=NOW)


def fill(folder: Path, *steps: Case, device: DeviceFacts = fake.CPU) -> Plan:
    store = CachedPeaks(folder)
    found = store.fill(steps or (CASE,), [device])
    assert store.notes == []
    return found


def cached_row(folder: Path) -> Row:
    (step,) = fill(folder)
    assert isinstance(step, Skip)
    return step.row


def test_a_cached_row_replaces_its_case(tmp_path: Path) -> None:
    kept_in(tmp_path)
    row = cached_row(tmp_path)
    assert row == replace(ROW, measured_utc="2026-11-21T04:27:00+00:00")
    assert rates.age_when_cached(run_of(row), row) == 180


def test_it_is_the_row_of_the_device_that_asks(tmp_path: Path) -> None:
    kept_in(tmp_path)
    case = replace(CASE, device=1)
    (step,) = CachedPeaks(tmp_path).fill((case,), [fake.POCL, fake.CPU])
    assert step.row.key == case.key


@pytest.mark.parametrize(
    "other",
    [
        {"source": "another kernel"},
        {"parameters": {"width": 8}},
        {"dtype": "double"},
        {"variant": "dot8"},
        {"kind": "latency"},
    ],
)
def test_other_cases_are_measured(tmp_path: Path, other: dict[str, Any]) -> None:
    kept_in(tmp_path)
    case = replace(CASE, **other)
    assert fill(tmp_path, case) == (case,)


@pytest.mark.parametrize(
    "other", [{"driver": "2027.1"}, {"name": "another"}, {"pci": "0000:17:00.0"}, {"compute_units": 1}]
)
def test_another_device_or_driver_is_measured(tmp_path: Path, other: dict[str, Any]) -> None:
    kept_in(tmp_path)
    assert fill(tmp_path, device=replace(fake.CPU, **other)) == (CASE,)


def test_rows_of_another_schema_are_measured_again(tmp_path: Path) -> None:
    kept_in(tmp_path)
    (file,) = tmp_path.glob("*.json")
    text = file.read_text()
    assert f',"schema_version":{SCHEMA_VERSION}' in text
    file.write_text(text.replace(f',"schema_version":{SCHEMA_VERSION}', ',"schema_version":2'))
    assert fill(tmp_path) == (CASE,)


def test_another_version_of_gemmbench_measures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    kept_in(tmp_path)
    monkeypatch.setattr(cached, "__version__", "99.0")
    assert fill(tmp_path) == (CASE,)


@pytest.mark.parametrize(
    "other",
    [
        {"check": Check("suspect", {}, ("why",))},
        {"status": "failed", "samples": {}},
        {"source": ""},
        {"kind": "latency"},
        {"measured_utc": "2026-01-01T00:00:00+00:00"},  # kept before: it does not become younger
    ],
)
def test_what_is_not_believed_or_not_measured_is_not_kept(tmp_path: Path, other: dict[str, Any]) -> None:
    kept_in(tmp_path, replace(ROW, **other))
    assert list(tmp_path.iterdir()) == []


def test_a_peak_that_a_resumed_file_held_does_not_become_younger(tmp_path: Path) -> None:
    CachedPeaks(tmp_path).keep(run_of(ROW), {ROW.key}, NOW)
    assert list(tmp_path.iterdir()) == []


def test_a_peak_of_another_chip_of_the_model_is_measured_again(tmp_path: Path) -> None:
    known = replace(fake.CPU, chip="a")
    CachedPeaks(tmp_path).keep(Run(fake.header(("peak",), (known,)), (ROW,)), now=NOW)
    assert fill(tmp_path, device=replace(known, chip="b")) == (CASE,)
    for chip in ("a", ""):
        (step,) = fill(tmp_path, device=replace(known, chip=chip))
        assert isinstance(step, Skip)
    more = replace(ROW, dtype="double")  # where the chip could not be read
    CachedPeaks(tmp_path).keep(Run(fake.header(("peak",), (replace(known, chip=""),)), (more,)), now=NOW)
    assert fill(tmp_path, device=replace(known, chip="b")) == (CASE,)


def test_a_peak_measured_with_busy_programs_is_cached(tmp_path: Path) -> None:
    run = run_of(ROW)
    busy = replace(run, header=replace(run.header, host=replace(run.header.host, busy=1.1)))
    CachedPeaks(tmp_path).keep(busy, now=NOW)
    (step,) = fill(tmp_path)
    assert isinstance(step, Skip)


def test_an_uncertain_peak_is_cached_with_its_mark(tmp_path: Path) -> None:
    wide = replace(ROW, samples={"kernel": fake.scope(1e-3, spread=0.5)})
    kept_in(tmp_path, wide)
    row = cached_row(tmp_path)
    assert rates.is_uncertain(run_of(row), row)


def test_a_peak_that_other_programs_slowed_keeps_its_mark_in_later_runs(tmp_path: Path) -> None:
    slowed = replace(ROW, conditions=Conditions(control_s=(1.5, 1.5)))
    quiet = fake.gemm_row("naive", Problem(64, 64, 64), 1.0)
    quiet = replace(quiet, conditions=Conditions(control_s=(1.0, 1.0)))
    kept_in(tmp_path, slowed)
    row = cached_row(tmp_path)
    later = run_of(row, quiet)
    assert rates.is_uncertain(later, row)
    assert not rates.is_uncertain(later, quiet)
    assert "float peak ~345 GFLOPS" in heading(later, 0, "float")
    assert "float peak 345 GFLOPS" in heading(run_of(ROW), 0, "float")


def test_a_kept_peak_above_what_the_units_can_do_is_measured_again(tmp_path: Path) -> None:
    """Somebody edited the file: the theoretical peak of two such units is 896 GFLOPS."""
    kept_in(tmp_path, replace(fake.peak_row(4, 1000.0), source=SOURCE))
    assert fill(tmp_path) == (CASE,)


def test_a_peak_that_a_gemm_is_above_is_not_kept(tmp_path: Path) -> None:
    faster = fake.gemm_row("tiled", Problem(512, 512, 512), 400.0)
    kept_in(tmp_path, ROW, faster)
    assert list(tmp_path.iterdir()) == []


def test_a_cached_peak_that_a_gemm_is_above_is_measured_again_in_the_next_run(tmp_path: Path) -> None:
    double = replace(fake.peak_row(4, 170.0, dtype="double"), source=SOURCE)
    kept_in(tmp_path, ROW, double)
    row = cached_row(tmp_path)
    faster = fake.gemm_row("tiled", Problem(512, 512, 512), 400.0)
    kept_in(tmp_path, row, faster)
    others = replace(CASE, dtype="double")
    again, other = fill(tmp_path, CASE, others)
    assert again == CASE
    assert isinstance(other, Skip)


def test_a_better_peak_is_not_replaced_by_a_newer_one(tmp_path: Path) -> None:
    kept_in(tmp_path)
    store = CachedPeaks(tmp_path)
    store.keep(run_of(replace(fake.peak_row(4, 300.0), source=SOURCE)), now=NOW)
    assert store.notes == []
    row = cached_row(tmp_path)
    assert row.samples == ROW.samples
    store = CachedPeaks(tmp_path)
    store.keep(run_of(replace(fake.peak_row(4, 300.0), source="another kernel")), now=NOW)
    assert store.notes == []  # of other kernels, which measure another thing


def test_the_better_wins_and_the_others_stay(tmp_path: Path) -> None:
    kept_in(tmp_path, ROW, replace(ROW, parameters={"width": 8}))
    newer = replace(fake.peak_row(4, 360.0), source=SOURCE)
    CachedPeaks(tmp_path).keep(run_of(newer), now=datetime(2026, 11, 22, tzinfo=timezone.utc))
    first, second = fill(tmp_path, CASE, replace(CASE, parameters={"width": 8}))
    assert first.row.samples == newer.samples
    assert first.row.measured_utc.startswith("2026-11-22")
    assert second.row.measured_utc.startswith("2026-11-21")


@pytest.mark.parametrize("text", ["", "{", "[]", '{"gemmbench": 1}', "\0\xff"])
def test_a_corrupt_file_costs_a_note(tmp_path: Path, text: str) -> None:
    kept_in(tmp_path)
    (path,) = tmp_path.iterdir()
    path.write_bytes(text.encode("latin-1"))
    store = CachedPeaks(tmp_path)
    assert store.fill((CASE,), [fake.CPU]) == (CASE,)
    (note,) = store.notes
    assert note.startswith(f"cannot read cached peaks, so they are measured again: {path}: ")
    store.keep(run_of(ROW), now=NOW)  # and the next run finds a good one
    assert isinstance(fill(tmp_path)[0], Skip)


def test_a_folder_that_cannot_be_made_costs_a_note(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = CachedPeaks(tmp_path / "file" / "peaks")
    assert store.fill((CASE,), [fake.CPU]) == (CASE,)
    store.keep(run_of(ROW), now=NOW)
    assert store.notes
    assert all("not a directory" in note or "file exists" in note for note in store.notes)


@pytest.mark.skipif(os.name == "nt" or os.geteuid() == 0, reason="root may write anywhere")
def test_a_folder_that_is_read_only_costs_a_note(tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    store = CachedPeaks(tmp_path)
    store.keep(run_of(ROW), now=NOW)
    assert "permission denied" in store.notes[0]


def test_a_disk_that_is_full_leaves_no_rubbish(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(self: Path, target: Path) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full)
    store = CachedPeaks(tmp_path)
    store.keep(run_of(ROW), now=NOW)
    assert "no space left on device" in store.notes[0]
    assert list(tmp_path.iterdir()) == []
