"""The simulated gate finds what is planted, and nothing else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from gemmbench.model import kernel_files
from gemmbench.stats.rates import measure
from tests.compare_runs import again, repeated, save
from tools import gate_simulation, planted_machine
from tools.gate_simulation import Recording, Replay, Setting, plantable, recorded, simulate

ROOT = Path(__file__).parents[2]
DATA = sorted((ROOT / "tests" / "data" / "aa").glob("*.jsonl"))


@pytest.fixture(scope="module")
def quiet(tmp_path_factory: pytest.TempPathFactory) -> Recording:
    """Ten runs of a made-up machine that differ by 0.8 %."""
    path = tmp_path_factory.mktemp("aa") / "quiet.jsonl"
    save(path, repeated([again(seed) for seed in range(10)]))
    return recorded(path)


def test_a_planted_half_is_found_in_its_row_alone_and_nothing_where_nothing_is(quiet: Recording) -> None:
    planted = simulate(quiet, Setting(0.05), 0.5, 4, 1)
    assert planted.planted == {"slower": 4}
    assert planted.others["slower"] == 0
    assert planted.others["same"] > 0
    nothing = simulate(quiet, Setting(0.05), 0.0, 4, 1)
    assert not nothing.planted
    assert nothing.others["slower"] == 0
    assert nothing.others["same"] > 0


def test_the_same_seed_counts_the_same_and_another_draws_anew(quiet: Recording) -> None:
    first, same, other = (simulate(quiet, Setting(0.01), 0.02, 3, seed) for seed in (1, 1, 2))
    assert first == same
    assert first != other


def test_libraries_are_never_planted(quiet: Recording) -> None:
    assert {key[2] for key in plantable(quiet)} == {"tiled", "register"}


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


@pytest.mark.parametrize("path", DATA, ids=lambda path: path.stem)
def test_a_recording_can_be_replayed(path: Path) -> None:
    assert b"/home/" not in path.read_bytes()
    tally = simulate(recorded(path), Setting(0.05), 0.5, 1, 1)
    assert tally.planted.total() == 1


def test_more_work_is_planted_in_a_copy_of_the_kernel(tmp_path: Path) -> None:
    before = kernel_files.raw(planted_machine.FILE)
    planted_machine.plant(tmp_path / "kernels", 0.1)
    planted = (tmp_path / "kernels" / planted_machine.FILE).read_text()
    assert "(float)0.100000000" in planted
    assert planted.count("more_turns(") == 2
    assert kernel_files.raw(planted_machine.FILE) == before


def test_a_kernel_whose_loop_has_changed_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(planted_machine, "LOOP", "while (p < k)")
    with pytest.raises(ValueError, match="another k-loop"):
        planted_machine.plant(tmp_path / "kernels", 0.1)
