"""The host scope by part: where a problem's time goes, and that the parts add up to it."""

from __future__ import annotations

from pathlib import Path

import pytest

from gemmbench.gemm.operands import Laps, host_batch
from gemmbench.model.row import CYCLE, PARTS, WHOLE, Row
from gemmbench.model.run_file import RunFileError, load
from gemmbench.stats import rates
from tests import fake_runs as fake

ADDS_UP = 0.03  # of the whole: parts that differ from it by more do not add up to it
SAVED = sorted((Path(__file__).parents[1] / "data" / "host-parts").glob("*.jsonl"))


def saved_rows() -> list[Row]:
    return [row for path in SAVED for row in load(path).rows if row.status == "ok" and row.device >= 0]


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_in_saved_runs_the_parts_of_every_problem_add_up_to_its_wall_clock_time(path: Path) -> None:
    rows = [row for row in load(path).rows if row.device >= 0]
    assert {row.variant for row in rows} == {"padded", "cpu-packed", "image-4x8"}
    for row in rows:
        assert (row.status, row.memory) == ("ok", "mapped")
        for parts, names in ((row.parts, PARTS[2:]), (row.cycle, PARTS)):
            assert set(parts) == {WHOLE, *names}
            for index, whole in enumerate(parts[WHOLE]):
                added = sum(parts[name][index] for name in names)
                assert abs(added / whole - 1) <= ADDS_UP, (row.variant, added, whole)


@pytest.mark.parametrize("row", saved_rows(), ids=lambda row: row.variant)
def test_what_is_shown_is_one_problem_that_took_the_median_time(row: Row) -> None:
    split = rates.split_parts(row.parts)
    assert split is not None
    assert sum(map(split.share, split.seconds)) == pytest.approx(1.0, abs=ADDS_UP)
    index = row.parts[WHOLE].index(split.whole_s or 0.0)
    assert all(row.parts[name][index] == seconds for name, seconds in split.seconds.items())
    shorter = sum(whole < (split.whole_s or 0.0) for whole in row.parts[WHOLE])
    assert shorter == (len(row.parts[WHOLE]) - 1) // 2


def test_of_two_problems_the_faster_is_shown() -> None:
    split = rates.split_parts({"kernel": (3.0, 1.0), "download": (0.5, 0.25), WHOLE: (3.5, 1.25)})
    assert (split.whole_s, dict(split.seconds)) == (1.25, {"kernel": 1.0, "download": 0.25})


def test_parts_without_a_whole_are_shares_of_their_sum() -> None:
    split = rates.split_parts({"upload": (1.0,), "enqueue": (0.0,), "passes": (2.0,), "download": (1.0,)})
    assert [split.share(name) for name in split.seconds] == [0.25, 0.0, 0.5, 0.25]
    assert split.whole_s is None
    assert rates.split_parts({}) is None


class Scripted:
    """A clock that goes on by what it is told, and a device that is waited for."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 0.0
        monkeypatch.setattr("time.perf_counter", lambda: self.now)

    def spend(self, seconds: float) -> None:
        self.now += seconds


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Scripted:
    return Scripted(monkeypatch)


def problem(clock: Scripted, wait_s: float, busy: dict[str, float] | None) -> dict[str, float]:
    laps = Laps(lambda: clock.spend(wait_s))
    clock.spend(1.0)
    laps.lap("upload")
    clock.spend(2.0)
    laps.launched((lambda: dict(busy)) if busy is not None else None)
    clock.spend(4.0)
    return laps.end()


@pytest.mark.parametrize(
    ("wait_s", "kernel_s", "waiting_s", "enqueue_s", "upload_s"),
    [
        (30.0, 20.0, 8.5, 2.0, 1.5),  # the device began when everything was enqueued
        (20.0, 20.0, 0.0, 1.0, 1.0),  # it was busy while the host still uploaded, and while it enqueued
        (19.0, 20.0, 0.0, 0.0, 1.0),
        (18.5, 20.0, 0.0, 0.0, 0.5),  # the kernel, too, began while the host still uploaded
    ],
)
def test_each_moment_counts_once(
    clock: Scripted, wait_s: float, kernel_s: float, waiting_s: float, enqueue_s: float, upload_s: float
) -> None:
    parts = problem(clock, wait_s, {"upload": 0.5, "passes": 1.0, "kernel": kernel_s})
    whole = parts.pop(WHOLE)
    assert parts == pytest.approx(
        {
            "upload": upload_s, "enqueue": enqueue_s, "passes": 1.0, "kernel": kernel_s,
            "waiting": waiting_s, "download": 4.0,
        }
    )  # fmt: skip
    assert sum(parts.values()) == pytest.approx(whole) == pytest.approx(7.0 + wait_s)


def test_an_upload_whose_call_blocks_counts_once_and_leaves_enqueueing_its_time(clock: Scripted) -> None:
    parts = problem(clock, 30.0, {"upload": 0.9, "passes": 0.0, "kernel": 30.0})
    assert parts.pop(WHOLE) == pytest.approx(37.0)
    expected = {"upload": 1.0, "enqueue": 2.0, "passes": 0.0, "kernel": 30.0, "waiting": 0.0, "download": 4.0}
    assert parts == pytest.approx(expected)


def test_a_library_without_stamps_has_all_launches_in_its_passes(clock: Scripted) -> None:
    parts = problem(clock, 30.0, None)
    assert parts == {WHOLE: 37.0, "upload": 1.0, "enqueue": 2.0, "passes": 30.0, "download": 4.0}


@pytest.mark.parametrize("name", ["host", "parts", CYCLE])
def test_a_batch_keeps_every_problem_that_was_split(name: str) -> None:
    seconds = iter([{WHOLE: 1.0, "upload": 1.0}, {WHOLE: 3.0, "upload": 2.0}])
    batch = host_batch(lambda: next(seconds), name, 2)
    assert dict(batch.seconds) == {name: 2.0}
    assert dict(batch.each) == {WHOLE: (1.0, 3.0), "upload": (1.0, 2.0)}
    assert host_batch(lambda: {WHOLE: 1.0}, "host", 2).each == {}


def test_a_long_problem_from_host_to_host_has_the_finer_scopes_too() -> None:
    parts = {"upload": 1.0, "enqueue": 0.5, "passes": 2.0, "kernel": 4.0, "waiting": 0.5, "download": 2.0}
    batch = host_batch(lambda: {WHOLE: 10.0} | parts, "host", 2)
    assert list(batch.seconds.items()) == [("kernel", 4.0), ("device", 6.0), ("host", 10.0)]
    assert batch.launch_s == pytest.approx(batch.end - batch.begin - 2 * 6.5)
    library = host_batch(lambda: {WHOLE: 10.0, "enqueue": 0.5, "passes": 6.0}, "host", 1)
    assert list(library.seconds.items()) == [("device", 6.5), ("host", 10.0)]
    assert library.launch_s is None


@pytest.mark.parametrize("field", ["parts", "cycle"])
def test_a_part_that_is_none_is_refused(field: str, tmp_path: Path) -> None:
    text = SAVED[0].read_text(encoding="utf-8").replace(f'"{field}":{{', f'"{field}":{{"lunch":[1.0],', 1)
    path = tmp_path / "run.jsonl"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(RunFileError, match=f"{field}.*'lunch' is not one of map, fill, upload"):
        load(path)


def test_the_fake_run_has_both() -> None:
    (row,) = [row for row in fake.fake_gemm().rows if row.parts]
    assert rates.split_parts(row.cycle) is not None
