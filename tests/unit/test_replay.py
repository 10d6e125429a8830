"""The comparison replayed on recorded runs (tests/data/aa): 31 unchanged jobs on three machines."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench.model.device import Conditions, Readings
from gemmbench.model.run_file import load
from gemmbench.regress.compare import compare
from tools.gate_simulation import DATA, check_jobs, compare_jobs, interleaved, recorded, slowed

RECORDINGS = [recorded(path) for path in sorted(DATA.glob("*.jsonl"))]
SAVED = sorted((Path(__file__).parents[2] / "plots").glob("*square*.jsonl"))


def failing(factor: float) -> int:
    return sum(not made.ok for recording in RECORDINGS for made in compare_jobs(recording, factor))


def test_at_most_one_of_the_unchanged_jobs_fails_and_slower_ones_are_found() -> None:
    assert sum(len(recording.runs) - 1 for recording in RECORDINGS) == 31
    assert failing(1.0) <= 1
    assert failing(2.5) >= 29


@pytest.mark.parametrize("bases", [1, 5])
def test_no_unchanged_check_fails(bases: int) -> None:
    failed = [not made.ok for recording in RECORDINGS for made in check_jobs(recording, bases)]
    assert len(failed) == 34
    assert sum(failed) <= 1


def test_a_check_finds_a_kernel_that_takes_two_and_a_half_times_as_long() -> None:
    found = {
        recording.name: [not made.ok for made in check_jobs(recording, 1, factor=2.5)]
        for recording in RECORDINGS
    }
    assert all(found["h200"])
    assert sum(found["cpu-intel"]) >= 9


@pytest.mark.parametrize(("spread", "pairs"), [(0.01, 40), (0.02, 40), (0.03, 100)])
def test_interleaved_rows_find_five_per_cent_and_no_unchanged_row_is_slower(
    spread: float, pairs: int
) -> None:
    (recording,) = (each for each in RECORDINGS if each.name == "h200")
    rows = len(recording.keys)
    slower = interleaved(recording, 1.05, spread, 0.025, 10, pairs)
    assert slower["slower"] >= 0.95 * slower.total()
    unchanged = interleaved(recording, 1.0, spread, 0.025, 30, pairs)
    assert unchanged["slower"] == 0
    assert unchanged.total() == 30 * rows > 330


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
@pytest.mark.parametrize("busy", [False, True])
def test_a_saved_run_that_is_slowed_down_fails(path: Path, busy: bool) -> None:
    run = load(path)
    others = Conditions(cores=2, windows={"device": Readings(window_s=1.0, other_cores=1.5)})
    rows = (replace(row, conditions=others) for row in run.rows)
    run = replace(run, rows=tuple(rows)) if busy else run
    assert compare([run], [run]).counts["slower"] == 0
    assert not compare([run], [slowed(run, 2.5)]).ok
