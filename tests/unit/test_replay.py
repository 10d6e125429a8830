"""The comparison replayed on recorded runs: 31 unchanged jobs, and two kernels beside other programs."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from gemmbench.model.device import Conditions, Readings
from gemmbench.model.run_file import load
from gemmbench.regress.compare import QUIET_LIMIT, compare
from gemmbench.suite.options.comparing import RowVerdict, Rules
from tests.compare_runs import slowed
from tools.gate_simulation import DATA, check_jobs, compare_jobs, interleaved, recorded

RECORDINGS = [recorded(path) for path in sorted(DATA.glob("*.jsonl"))]
NOISY = DATA.with_name("noisy")
SAVED = sorted((Path(__file__).parents[2] / "plots").glob("*square*.jsonl"))


def failing(factor: float) -> int:
    return sum(not made.ok for recording in RECORDINGS for made in compare_jobs(recording, factor))


def test_none_of_the_unchanged_jobs_fails_and_slower_ones_are_found() -> None:
    assert sum(len(recording.runs) - 1 for recording in RECORDINGS) == 31
    assert failing(1.0) == 0
    assert failing(2.5) >= 30


@pytest.mark.parametrize("threshold", [None, 0.05])
@pytest.mark.parametrize("bases", [1, 5])
def test_no_row_of_an_unchanged_job_is_faster(bases: int, threshold: float | None) -> None:
    counts = sum(
        (
            compare(runs[start : start + bases], [runs[start + bases]], Rules(threshold)).counts
            for runs in (recording.runs for recording in RECORDINGS)
            for start in range(len(runs) - bases)
        ),
        Counter[RowVerdict](),
    )
    assert counts.total() > 300
    assert counts["faster"] == 0
    assert (counts["unchanged"] > 0) == (bases > 1)


@pytest.mark.parametrize("bases", [1, 5])
def test_no_unchanged_check_fails_and_no_row_is_faster(bases: int) -> None:
    checks = [made for recording in RECORDINGS for made in check_jobs(recording, bases)]
    assert len(checks) == 34
    assert all(made.ok for made in checks)
    assert not any(made.counts["faster"] for made in checks)


def test_a_kernel_that_is_42_per_cent_slower_is_never_faster_between_noisy_runs() -> None:
    """By the medians of its runs it takes between a quarter and 1.8 times as long."""
    old, new = (recorded(NOISY / name).runs for name in ("mine.jsonl", "mine-42-percent-slower.jsonl"))
    for threshold in (None, 0.05):
        rules = Rules(threshold, across=frozenset({"source"}))
        pairs = [compare([before], [now], rules) for before in old for now in new]
        ratios = [line.ratio.median for made in pairs for line in made.lines if line.ratio]
        assert len(ratios) == 72
        assert min(ratios) < 0.5 < 1.42 < max(ratios)
        several = [compare(old, [now], rules) for now in new]
        found = {line.verdict for made in (*pairs, *several) for line in made.lines}
        assert found == {"cannot tell"}
        same = [compare([before], [now], rules) for before in old for now in old if before is not now]
        assert not {line.verdict for made in same for line in made.lines} & {"faster", "slower", "unchanged"}


def test_kernels_of_quiet_batches_fail_alone_above_a_ratio_that_unchanged_ones_never_reach() -> None:
    """The limit was chosen from every second run, and holds for the others."""
    runs = recorded(DATA.with_name("quiet") / "cpu-intel.jsonl").runs
    assert len(runs) >= 20
    for half in (runs[::2], runs[1::2]):
        pairs = [(old, new, compare([old], [new])) for old in half for new in half if old is not new]
        assert all(made.ok for *_, made in pairs)
        sure = [
            (old, new, line) for old, new, made in pairs for line in made.lines if not any(line.uncertain)
        ]
        assert len(sure) >= 30
        assert max(line.ratio.smaller for *_, line in sure if line.ratio) < QUIET_LIMIT
        for old, new, line in sure[:8]:
            slow = compare([old], [slowed(new, 1.7, line.key)])
            assert [each.key for each in slow.lines if each.verdict == "slower"] == [line.key]


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


@pytest.mark.parametrize("spread", [0.1, 0.3])
def test_interleaved_rows_on_a_busy_machine_are_neither_slower_nor_faster(spread: float) -> None:
    """Batches of an unchanged kernel scatter by as much as those on a busy machine do."""
    (recording,) = (each for each in RECORDINGS if each.name == "h200")
    found = interleaved(recording, 1.0, spread, 0.05, 20)
    assert found.keys() <= {"cannot tell", "unchanged"}
    assert found["cannot tell"] > 100
    slower = interleaved(recording, 1.42, spread, 0.05, 20)
    assert slower.keys() <= {"cannot tell", "slower"}


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
@pytest.mark.parametrize("busy", [False, True])
def test_a_saved_run_that_is_slowed_down_fails(path: Path, busy: bool) -> None:
    run = load(path)
    others = Conditions(cores=2, windows={"device": Readings(window_s=1.0, other_cores=1.5)})
    rows = (replace(row, conditions=others) for row in run.rows)
    run = replace(run, rows=tuple(rows)) if busy else run
    assert compare([run], [run]).counts["slower"] == 0
    assert not compare([run], [slowed(run, 2.5)]).ok
