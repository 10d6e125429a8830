"""The harness that puts the gate to the proof: what is planted is found, and nothing else."""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from gemmbench.model import kernel_files
from gemmbench.model.case import Case, Policy
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Row
from gemmbench.model.run_file import load
from gemmbench.stats.rates import measure
from tests import fake_runs
from tests.compare_runs import again, repeated, save
from tools import gate_simulation, planted_machine
from tools.gate_live import Judged, Recorder
from tools.gate_replay import Recorded
from tools.gate_report import Results, document, turned, with_counts
from tools.gate_simulation import Recording, Replay, Setting, condensed, plantable, recorded, simulate

ROOT = Path(__file__).parents[2]
DATA = sorted((ROOT / "tests" / "data" / "aa").glob("*.jsonl"))
REFERENCE = "numpy"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Ten runs of a made-up machine that differ by 0.8 %."""
    path = tmp_path_factory.mktemp("aa") / "quiet.jsonl"
    save(path, repeated([again(seed) for seed in range(10)]))
    return recorded(path)


@pytest.mark.parametrize("ratio", [(), (REFERENCE,)])
def test_a_planted_half_is_found_in_its_row_alone_and_nothing_where_nothing_is(
    quiet: Recording, ratio: tuple[str, ...]
) -> None:
    planted = simulate(quiet, Setting(0.05, ratio), 0.5, 4, 1, (REFERENCE,))
    assert planted.planted == {"slower": 4}
    assert planted.others["slower"] == 0
    assert planted.others["same"] > 0
    nothing = simulate(quiet, Setting(0.05, ratio), 0.0, 4, 1, (REFERENCE,))
    assert not nothing.planted
    assert nothing.others["slower"] == 0
    assert nothing.others["same"] > 0


def test_the_same_seed_counts_the_same_and_another_draws_anew(quiet: Recording) -> None:
    first, same, other = (simulate(quiet, Setting(0.01), 0.02, 3, seed) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_rows_that_ratios_refer_to_and_the_hosts_are_never_planted(quiet: Recording) -> None:
    assert {key[2] for key in plantable(quiet, ["tiled"])} == {"register"}


def test_a_new_process_is_the_next_recorded_run(quiet: Recording) -> None:
    key = next(iter(quiet.rows))
    replay = Replay(quiet, [3, 5], np.random.default_rng(1))
    for place in (3, 5, 3):
        recorded_s = set(quiet.rows[key][place].samples["kernel"].seconds)
        assert set(replay.measured(key).samples["kernel"].seconds) <= recorded_s
        replay.stop()


def test_a_base_and_what_is_held_against_it_share_no_run(
    quiet: Recording, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[set[int]] = []

    class Watched(Replay):
        def __init__(self, *given: Any) -> None:
            super().__init__(*given)
            made.append(set(self.places))

    monkeypatch.setattr(gate_simulation, "Replay", Watched)
    simulate(quiet, Setting(0.05), 0.0, 3, 1)
    assert len(made) == 6
    for base, new in zip(made[::2], made[1::2], strict=True):
        assert len(base) == 5
        assert base | new == set(range(10))
        assert not base & new


def test_a_slowdown_moves_a_rows_figure_by_just_so_much(quiet: Recording) -> None:
    key = next(iter(quiet.rows))
    plain, slow = (
        measure(Replay(quiet, [0], np.random.default_rng(1), factors).measured(key))
        for factors in ({}, {key: 1.05})
    )
    assert plain is not None
    assert slow is not None
    assert slow.value - plain.value == pytest.approx(np.log(1.05))


def test_batches_are_drawn_in_blocks_of_neighbours() -> None:
    places = gate_simulation._blocks(16, np.random.default_rng(1))
    assert len(places) == 16
    assert set(np.diff(places.reshape(4, 4)).ravel()) == {1}
    assert len(set(places[::4])) > 1


def test_a_recording_is_of_what_every_run_has_and_says_nothing_of_places(tmp_path: Path) -> None:
    whole = replace(fake_runs.fake_square(), path="whole")
    device = replace(whole.header.devices[0], library="/home/somebody/lib.so", origin="/home/somebody")
    whole = replace(whole, header=replace(whole.header, devices=(device, *whole.header.devices[1:])))
    ok = [row for row in whole.rows if row.kind == "gemm" and row.status == "ok"]
    short = replace(whole, rows=tuple(row for row in whole.rows if row is not ok[0]))
    path = tmp_path / "aa.jsonl"
    path.write_bytes(condensed([whole, short]))
    assert b"somebody" not in path.read_bytes()
    assert {row.key for row in load(path).rows} == {row.key for row in ok[1:]}
    assert {len(row.samples) for row in load(path).rows} == {1}
    assert recorded(path).runs == 2


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_a_recording_can_be_replayed(path: Path) -> None:
    assert b"/home/" not in path.read_bytes()
    tally = simulate(recorded(path), Setting(0.05), 0.5, 1, 1)
    assert tally.planted.total() == 1


def test_more_work_is_planted_in_a_copy_of_the_kernels(tmp_path: Path) -> None:
    """On both sides: the same text, so that the compiler makes nothing else of it, with other shares."""
    files = {name: file for name, (file, *_) in planted_machine.PLANTS.items()}
    before = {file: kernel_files.raw(file) for file in files.values()}
    planted_machine.plant(tmp_path / "more", dict.fromkeys(files, 0.1))
    planted_machine.plant(tmp_path / "none", dict.fromkeys(files, planted_machine.NOTHING))
    for file in files.values():
        more, none = ((tmp_path / side / file).read_text() for side in ("more", "none"))
        assert "(float)0.100000000" in more
        assert more.replace("(float)0.100000000", "(float)0.000000001") == none
        assert more.count("more_turns(") == 2
    assert {file: kernel_files.raw(file) for file in files.values()} == before


def test_a_kernel_whose_loop_has_changed_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(planted_machine.PLANTS, "naive", (planted_machine.FILE, "while (p < k)", ""))
    with pytest.raises(ValueError, match="another k-loop"):
        planted_machine.plant(tmp_path / "kernels", {"naive": 0.1})


class _Worker:
    """Counts what is measured, and the processes that it took."""

    def __init__(self) -> None:
        self.measured, self.stops = 0, 0

    def stop(self) -> None:
        self.stops += 1

    def run(self, case: Case, *_: Any) -> Generator[Any, None, Row]:
        yield from ()
        self.measured += 1
        return case.row("ok", str(self.measured))


def test_a_recorder_measures_only_what_a_stricter_verdict_wants_more_of() -> None:
    case = Case("gemm", 0, "naive", "float", {}, Gemm(64, 64, 64))
    worker = _Worker()
    recorder = Recorder(worker)  # type: ignore[arg-type]  # all that it asks for

    def look(of: Recorder) -> str:
        return gate_simulation.result_of(of.run(case, None, Policy())).reason

    assert [look(recorder), look(recorder)] == ["1", "2"]
    recorder.again().stop()
    assert [look(recorder), look(recorder)] == ["1", "2"]
    assert worker.stops == 0  # nothing was measured since
    assert look(recorder) == "3"
    assert (worker.measured, worker.stops) == (3, 1)
    other = Recorder(worker, only=frozenset({("tiled", 64)}))  # type: ignore[arg-type]  # all that it asks for
    assert look(other) == "not recorded so often"


def _live(apart: float) -> list[Judged]:
    """Unchanged rows of four jobs whose figures lie so far apart."""
    draw = np.random.default_rng(1)
    return [
        Judged(
            "cpu",
            f"job {job}",
            0.05,
            variant,
            size,
            0.0,
            "same",
            False,
            "",
            1,
            ((draw.normal(0, apart), 0.002, 60.0),),
        )
        for job in range(4)
        for variant in ("naive", "tiled", "coarse", "dot-v8")
        for size in (64, 128, 256)
    ]


def test_live_rows_are_judged_again_by_the_shipped_code() -> None:
    quiet = Recorded.of(_live(0.003))
    (cell,) = turned("cpu", quiet.judged(0.025, 0.05, planted=["naive"]), True)
    assert (cell.rows, cell.slower, cell.planted, cell.is_replayed) == (12, 12, 0.05, True)
    assert cell.took == pytest.approx(0.05, abs=0.005)
    assert set(cell.kinds) == {"naive 64", "naive 128", "naive 256"}
    (still,) = turned("cpu", quiet.judged(0.025, 0.0), True)
    assert (still.rows, still.slower, still.jobs) == (48, 0, 4)
    (noisy,) = turned("cpu", Recorded.of(_live(0.2)).judged(0.01, 0.02, planted=["naive"]), True)
    assert noisy.slower < 6  # what the figures do not show is not found


def test_the_document_is_written_from_the_results_that_are_kept() -> None:
    results = msgspec.json.decode((ROOT / "docs" / "gate-proof.json").read_bytes(), type=Results)
    assert document(results, list(map(recorded, DATA))) == (ROOT / "docs" / "gate-proof.md").read_text()


def test_the_gates_own_page_has_the_figures_of_the_proof() -> None:
    results = msgspec.json.decode((ROOT / "docs" / "gate-proof.json").read_bytes(), type=Results)
    page = " ".join((ROOT / "docs" / "gate.md").read_text(encoding="utf-8").split())

    def simulated(slow: float, threshold: float) -> int:
        cells = [
            each
            for each in results.simulated
            if (each.where, each.mode, each.slow, each.threshold) == ("h200", "plain", slow, threshold)
        ]
        return round(cells[0].found_of_hundred)

    fine, coarse = simulated(0.05, 0.025), simulated(0.1, 0.05)
    assert f"| 5 % in {fine} of 100 jobs at a threshold of 2.5 %, 10 % in {coarse} at 5 % |" in page
    single = [each for each in results.unchanged if each.bases == 1 and " by " not in each.where]
    five = [each for each in results.unchanged if each.bases == 5]
    gpu = [each for each in single if each.where == "h200"]
    assert all(each.found == each.jobs for each in gpu)
    assert f"| twice slower in all of {gpu[0].jobs} jobs;" in page
    for jobs, said in (
        (single, "twice slower in {} to {} of 100 jobs"),
        (five, "find it in {} to {} of 100 jobs"),
    ):
        percents = [
            round(100 * each.found / each.jobs)
            for each in jobs
            if each.where != "h200" and (each.command, each.threshold) == ("check", 0.05)
        ]
        assert said.format(min(percents), max(percents)) in page


def test_what_was_counted_live_stands_on_the_gates_own_page() -> None:
    results = msgspec.json.decode((ROOT / "docs" / "gate-proof.json").read_bytes(), type=Results)
    page = (ROOT / "docs" / "gate.md").read_text(encoding="utf-8")
    assert with_counts(page, results.turned) == page
    alarm = replace(results.turned[0], planted=0.0, is_replayed=False, slower=1)
    assert with_counts(page, [alarm]) != page
    assert f"1 of {alarm.rows:,} (allows " in with_counts(page, [alarm])
