"""Jobs in which nothing has changed, on the recordings: at most one in fifty fails, whatever the defaults."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Literal

import pytest

from gemmbench.regress import verdict
from gemmbench.regress.compare import conclusion
from tools.gate_simulation import Setting, compared, recorded, unchanged
from tools.recorded_noise import RESULT, text

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
    failed, jobs = unchanged(recorded(path), Setting(0.05), bases, "check", most=12)
    assert jobs >= 10
    assert 50 * failed <= jobs


@pytest.mark.parametrize(("own", "other"), [("cpu-intel", "cpu-pocl"), ("cpu-pocl", "cpu-intel")])
def test_the_margins_of_one_machine_do_for_another(
    own: str, other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By the median of ten runs a fourth of PoCL's unchanged jobs failed, judged as Intel's."""
    shipped = verdict.recordings()
    kinds = {**shipped.kinds, own: shipped.kinds[other], other: shipped.kinds[own]}
    monkeypatch.setattr(verdict, "recordings", lambda: replace(shipped, kinds=kinds))
    path = next(path for path in DATA if path.stem == own)
    failed, jobs = unchanged(recorded(path), Setting(0.05), 1, "check", most=24)
    assert (failed, jobs) == (0, 24)


def test_twice_slower_is_found_from_one_base_run() -> None:
    """Less often on PoCL's recording, whose runs lie twice apart: there a job says that it cannot tell."""
    jobs_of: tuple[tuple[str, Literal["compare", "check"], float], ...]
    jobs_of = (
        ("h200", "compare", 1.0),
        ("h200", "check", 1.0),
        ("cpu-intel", "check", 0.75),
        ("cpu-pocl", "check", 0.45),
    )
    for name, command, share in jobs_of:
        path = next(path for path in DATA if path.stem == name)
        found, jobs = unchanged(recorded(path), Setting(0.05), 1, command, most=20, slow=1.0)
        assert found >= share * jobs, name


@pytest.mark.parametrize("path", DATA, ids=NAMES)
def test_a_job_that_cannot_tell_its_threshold_says_so(path: Path) -> None:
    """From one base run of a CPU 5 % are hidden in the noise: nothing of that passes as told."""
    recording = recorded(path)
    made = compared(recording, Setting(0.05), {}, 0, 0, 1)
    assert made.resolution is not None
    assert made.resolution.typical <= made.resolution.worst
    assert made.resolution.is_coarse
    assert "Too coarse" in conclusion(made)
    five = compared(recording, Setting(0.05), {}, 0, 0, 5)
    assert five.resolution is not None
    assert five.resolution.is_coarse == (path.stem != "h200")


def test_the_noise_that_is_shipped_is_what_the_recordings_show() -> None:
    """`python tools/recorded_noise.py` writes it again."""
    shipped, recordings = RESULT.read_bytes(), text()
    assert shipped == recordings


def test_another_kind_of_device_has_the_worst_noise_of_its_type() -> None:
    shipped = verdict.recordings()
    intel, pocl = shipped.of("cpu-intel", "kernels"), shipped.of("cpu-pocl", "kernels")
    other = shipped.of("cpu-other", "kernels")
    assert other.name == "cpu-intel, cpu-pocl"
    for base, new in ((1, 1), (1, 10), (5, 1), (10, 10)):
        assert other.apart(0.99, base, new) == max(each.apart(0.99, base, new) for each in (intel, pocl))
    assert shipped.of("gpu-amd", "kernels").name == "gpu-nvidia"
