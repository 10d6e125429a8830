"""Rows over many runs: order, change points, the last verdict."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from gemmbench.model.run_file import Run, RunFileError
from gemmbench.regress import history as pages
from gemmbench.regress.baseline import Rules
from gemmbench.regress.history import History, Track, find_shifts, history
from gemmbench.regress.verdict import Thresholds
from gemmbench.report.table import markdown, stack
from tests import fake_runs as fake
from tests.compare_runs import again, on, repeated, small
from tests.unit.test_tables import text

pytestmark = pytest.mark.usefixtures("steady")

Golden = Callable[[str, str], None]


def year(runs: int = 14) -> list[Run]:
    """`tiled` at 512 slows down on day 8, `register` at 2048 is faster from day 4 on; one run is odd."""
    found = []
    for day in range(1, runs + 1):
        slow = {("tiled", 512): 1.12 if day >= 8 else 1.0, ("register", 2048): 0.8 if day >= 4 else 1.0}
        if day == 6:
            slow["tiled", 64] = 1.5
        found.append(on(again(day, slow), day))
    return found


def track(found: History, variant: str, size: int) -> Track:
    return next(
        each
        for each in found.tracks
        if each.row.problem and (each.row.variant, each.row.problem.m) == (variant, size)
    )


def test_changes_are_found_where_they_are() -> None:
    found = history(year())
    (shift,) = track(found, "tiled", 512).shifts
    assert shift.index == 7  # the first run of day 8
    assert shift.ratio == pytest.approx(1.12, abs=0.02)
    (shift,) = track(found, "register", 2048).shifts
    assert (shift.index, shift.ratio) == (3, pytest.approx(0.8, abs=0.02))
    assert sum(bool(each.shifts) for each in found.tracks) == 2


def test_the_last_verdict_is_of_what_followed_the_last_change() -> None:
    found = history(year())
    last = {name: track(found, name, 512).last for name in ("tiled", "register")}
    assert last["tiled"] is not None
    assert last["tiled"].verdict == "slower"
    assert last["register"] is not None
    assert last["register"].verdict == "same"
    assert found.noise.typical == pytest.approx(0.008, rel=0.5)


def test_a_last_run_that_differs_is_told_though_it_is_no_change_yet() -> None:
    runs = [*year(9), on(again(30, {("register", 256): 1.3, ("tiled", 512): 1.12}), 30)]
    found = track(history(runs), "register", 256)
    assert found.shifts == ()
    assert found.last is not None
    assert found.last.verdict == "slower"


def test_runs_go_in_the_order_of_their_starts() -> None:
    runs = year()
    shuffled = list(runs)
    random.Random(1).shuffle(shuffled)
    assert [run.path for run in history(shuffled).runs] == [run.path for run in runs]


def test_a_run_of_repeated_cases_is_one_point() -> None:
    found = history([on(repeated([again(1), again(2)]), 1), on(again(3), 2)])
    assert {len(each.points) for each in found.tracks} == {2}


def test_one_run_and_gaps() -> None:
    (only,) = {each.last for each in history([again(1)]).tracks}
    assert only is None
    runs = year()
    runs[4] = replace(runs[4], rows=tuple(replace(row, status="crashed", samples={}) for row in runs[4].rows))
    assert [point.run for point in track(history(runs), "tiled", 512).points] == [
        *range(4),
        *range(5, 14),
    ]


def test_another_device_is_another_row() -> None:
    other = again(5)
    device = replace(other.header.devices[0], name="NVIDIA H200")
    other = on(replace(other, header=replace(other.header, devices=(device,))), 20)
    found = history([*year(3), other])
    assert (
        sorted(len(each.points) for each in found.tracks if each.row.variant == "tiled") == [1] * 6 + [3] * 6
    )


def test_another_chip_of_the_model_is_the_same_row_and_is_said() -> None:
    runs = [
        replace(run, header=replace(run.header, devices=(replace(run.header.devices[0], chip=chip),)))
        for run, chip in zip(year(), 7 * "a" + 7 * "b", strict=True)
    ]
    shown = " ".join(text(stack(pages.sheets(history(runs)))).split())
    assert "10-08 +12.8 %, another chip" in shown
    assert shown.count("another chip") == 1  # the other change was on one chip
    assert shown.count("these runs are of 2 chips of this model (a, b), which may") == 1
    assert "chip" not in text(stack(pages.sheets(history(year()))))


def test_another_source_is_the_same_row() -> None:
    runs = year()
    runs[8:] = [replace(run, rows=tuple(replace(row, source="b") for row in run.rows)) for run in runs[8:]]
    assert len(track(history(runs), "tiled", 512).points) == 14


def test_ratio_mode_follows_ratios() -> None:
    runs = [on(again(day, machine=1.0 + 0.05 * (day % 5)), day) for day in range(1, 15)]
    runs[7:] = [
        on(again(day, {("tiled", 512): 1.15}, machine=1.0 + 0.05 * (day % 5)), day) for day in range(8, 15)
    ]
    found = history(runs, Rules(ratio=("numpy",)))
    assert [each.row.variant for each in found.tracks if each.shifts] == ["tiled"]
    mine = track(found, "tiled", 512)
    assert mine.cost(mine.points[0]) == pytest.approx(207.2 / 4.6, rel=0.05)


@pytest.mark.parametrize("count", [0, 1, 5, 6, 7])
def test_too_few_runs_for_a_change(count: int) -> None:
    assert find_shifts([0.0] * (count // 2) + [1.0] * (count - count // 2), 0.05) == ()


def test_borders_of_a_change() -> None:
    series = [0.0, 0.001] * 5 + [0.1, 0.101] * 5
    assert [shift.index for shift in find_shifts(series, 0.05)] == [10]
    assert find_shifts(series, 0.11) == ()  # smaller than what counts
    assert find_shifts([0.0] * 20, 0.05) == ()
    back = [*series, *[0.0, 0.001] * 5]
    assert [shift.index for shift in find_shifts(back, 0.05)] == [10, 20]
    spike = [0.0, 0.001] * 5 + [3.0] + [0.0, 0.001] * 5
    assert find_shifts(spike, 0.05) == ()


def test_noise_is_no_change() -> None:
    draw = random.Random(5)
    series = [[draw.gauss(0, 0.05) for _ in range(20)] for _ in range(40)]
    assert sum(bool(find_shifts(values, 0.0)) for values in series) <= 5


def test_a_start_that_is_no_time() -> None:
    run = again(1)
    with pytest.raises(RunFileError, match=r"run1\.jsonl: line 1: started_utc: 'soon' is no time"):
        history([replace(run, header=replace(run.header, started_utc="soon"))])


# --- what is shown -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("width", [40, 80, 120])
def test_table(width: int, golden: Golden) -> None:
    shown = text(stack(pages.sheets(history(year()))), width)
    assert max(map(len, shown.splitlines())) <= width
    golden(f"history-{width}.txt", shown)


def test_markdown(golden: Golden) -> None:
    golden("history.md", markdown(pages.sheets(history(year(), Rules(ratio=("numpy",))))))


def test_steady_rows_of_many_are_counted() -> None:
    runs = [on(again(day, run=fake.fake_square()), day) for day in range(1, 4)]
    shown = text(stack(pages.sheets(history(runs, Rules(Thresholds(0.2))))))
    assert "43 steady rows are not shown; -v shows them" in shown
    assert text(stack(pages.sheets(history(runs), every=True))).count("same") > 30


def test_csv_and_json_say_the_same() -> None:
    found = history(year())
    lines = list(csv.DictReader(io.StringIO(pages.to_csv(found))))
    data = json.loads(pages.to_json(found))
    assert len(lines) == sum(len(row["points"]) for row in data["rows"]) == 14 * len(small().rows)
    mine = next(row for row in data["rows"] if (row["variant"], row["m"]) == ("tiled", 512))
    assert mine["changes"][0]["started_utc"] == "2026-10-08T04:30:00+00:00"
    assert mine["last"]["verdict"] == "slower"
    segments = [line["segment"] for line in lines if (line["variant"], line["m"]) == ("tiled", "512")]
    assert segments == ["0"] * 7 + ["1"] * 7


def test_names_from_files_are_data() -> None:
    device = replace(fake.CPU, name=fake.HOSTILE)
    run = again(1)
    run = replace(run, header=replace(run.header, devices=(device,)))
    found = history([run, on(run, 30)])
    assert "[bold]x[/]" in text(stack(pages.sheets(found)), 120)
    assert "<b>" not in markdown(pages.sheets(found))
    assert "\x1b" not in pages.to_csv(found) + markdown(pages.sheets(found)) + text(
        stack(pages.sheets(found))
    )
