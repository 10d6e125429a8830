"""Jobs in which nothing has changed, on the recordings: at most one in fifty fails, whatever the defaults."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.gate_simulation import Setting, recorded, unchanged

DATA = sorted((Path(__file__).parents[1] / "data" / "aa").glob("*.jsonl"))
NAMES = [path.stem for path in DATA]


@pytest.mark.parametrize("bases", [1, 5])
@pytest.mark.parametrize("path", DATA, ids=NAMES)
def test_compare_fails_at_most_one_unchanged_job_in_fifty(path: Path, bases: int) -> None:
    failed, jobs = unchanged(recorded(path), Setting(0.05), bases, "compare")
    assert jobs >= 50
    assert 50 * failed <= jobs


@pytest.mark.parametrize("bases", [1, 5])
@pytest.mark.parametrize("path", DATA, ids=NAMES)
def test_check_fails_at_most_one_unchanged_job_in_fifty(path: Path, bases: int) -> None:
    failed, jobs = unchanged(recorded(path), Setting(0.05), bases, "check", most=24)
    assert jobs >= 10
    assert 50 * failed <= jobs
