"""What a tuner's rows say."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from gemmbench.model.row import Row, Scope, Status
from gemmbench.model.run_file import Run
from gemmbench.tune import result
from gemmbench.tune.result import FINALIST, TRIAL
from tests import fake_runs as fake
from tests import fake_tuner as tuner


def of_rounds(*gains: float, spread: float = 0.01, moods: tuple[float, ...] = (1.0, 1.0, 1.0)) -> Run:
    """A finished run whose rounds at 512 have these gains, with noise in every batch."""
    run, noise = tuner.fake_tune(), random.Random(1)

    def times(seconds: float) -> dict[str, Scope]:
        samples = tuple(seconds * (1 + spread * noise.random()) for _ in range(36))
        return {"device": Scope(samples, 1, "stable")}

    def timed(row: Row) -> Row:
        if not row.phase.startswith("round") or row.problem is None or row.problem.m != 512:
            return row
        number = int(row.phase.split()[1]) - 1
        assert row.former
        former = replace(row.former, samples=times(moods[number]))
        return replace(row, samples=times(moods[number] / gains[number]), former=former)

    return replace(run, rows=tuple(map(timed, run.rows)))


def test_a_clear_gain_is_faster() -> None:
    found = result.result(of_rounds(2.0, 2.0, 2.0)).overall
    assert found.low < found.median < found.high
    assert found.median == pytest.approx(2, rel=0.01)
    assert found.is_above(1)
    assert not found.is_below(1)


def test_a_drift_that_both_sides_feel_does_not_matter() -> None:
    found = result.result(of_rounds(1.05, 1.05, 1.05, moods=(1.0, 1.5, 3.0))).overall
    assert found.is_above(1)
    assert found.median == pytest.approx(1.05, rel=0.01)


def test_rounds_that_disagree_are_a_wide_interval() -> None:
    """Twelve good samples in each of three rounds do not make up for rounds that say different things."""
    found = result.result(of_rounds(1.3, 1.2, 0.9)).overall
    assert found.median > 1
    assert not found.is_above(1)


def test_attempts_are_in_the_order_of_trying() -> None:
    found = result.result(tuner.fake_tune())
    assert len(found.attempts) == 41
    assert found.default is found.attempts[0]
    assert [one.trouble.status for one in found.failed if one.trouble] == ["crashed", "wrong", "timed-out"]
    rates = [one.rate or 0 for one in found.ranked]
    assert rates == sorted(rates, reverse=True)
    assert len(rates) == 41 - 3


def test_interrupted_finals_keep_nothing() -> None:
    run = tuner.fake_tune()
    assert result.result(run).is_kept
    heat = tuple(row for row in run.rows if row.phase in (TRIAL, FINALIST))
    assert not result.result(replace(run, rows=heat)).is_kept
    assert not result.result(replace(run, rows=run.rows[:-1])).is_kept  # within the last round
    run = tuner.without_a_preset("wrong")
    assert result.result(run).is_kept
    assert not result.result(replace(run, rows=run.rows[:-1])).is_kept


def test_a_configuration_without_a_time_at_every_size_is_not_ranked() -> None:
    """It was interrupted after the size at which all are faster."""
    shipped, other = (
        {name: int(str(v)) for name, v in row.parameters.items()} for row in tuner.fake_search()[:2]
    )
    rows = tuner.row(shipped, 20.0, 512), tuner.row(shipped, 2.0, 128), tuner.row(other, 30.0, 512)
    found = result.result(Run(tuner.fake_tune().header, rows))
    assert [attempt.parameters for attempt in found.ranked] == [shipped]


def test_only_the_last_finals_count() -> None:
    """An earlier call's were held on another day, with another winner perhaps."""
    first, second = tuner.fake_tune(gain=1.3), tuner.fake_tune(gain=1.0)
    finals = tuple(row for row in second.rows if row.phase != TRIAL)
    more = tuple(row for row in first.rows if row.phase == TRIAL)[:1]
    assert not result.result(replace(first, rows=first.rows + more + finals)).is_kept
    assert not result.result(replace(first, rows=first.rows + finals)).is_kept
    heat = tuple(row for row in first.rows if row.phase == FINALIST)
    assert not result.result(replace(first, rows=first.rows + heat)).is_kept  # interrupted after its heat


def test_a_round_that_one_side_did_not_finish_does_not_count() -> None:
    run = tuner.fake_tune()
    rows = [
        replace(row, status="crashed", reason="killed", samples={})
        if row.phase == "round 2" and row.problem and row.problem.m == 128
        else row
        for row in run.rows
    ]
    found = result.result(replace(run, rows=tuple(rows)))
    (small,) = [one for one in found.comparisons if one.problem.m == 128]
    assert small.speedup is not None
    assert small.reason == "crashed: killed"


@pytest.mark.parametrize("status", ["wrong", "crashed", "failed", "timed-out"])
@pytest.mark.parametrize("size", [512, 128])
def test_a_winner_with_a_fault_in_the_rounds_is_not_kept(status: Status, size: int) -> None:
    run = tuner.fake_tune()
    winner = result.result(run).winner

    def spoilt(row: Row) -> Row:
        place = row.phase == "round 2" and row.problem is not None and row.problem.m == size
        return replace(row, status=status, reason="why", samples={}) if place else row

    rows = tuple(map(spoilt, run.rows))
    found = result.result(replace(run, rows=rows))
    assert found.winner == winner
    assert (found.fault.status, found.fault.reason) == (status, "why")
    assert found.overall.is_above(1)
    assert not found.is_kept
    # A fault of the shipped preset is no reason: its row has a time of the winner alone.
    rows = tuple(
        replace(row, former=None) if row.phase == "round 2" and row.problem and row.problem.m == size else row
        for row in run.rows
    )
    assert result.result(replace(run, rows=rows)).is_kept


def test_a_winner_that_there_was_no_time_for_at_a_size_may_be_kept() -> None:
    run = tuner.fake_tune()
    rows = tuple(
        replace(row, status="skipped", samples={}) if row.problem and row.problem.m == 128 else row
        for row in run.rows
    )
    assert result.result(replace(run, rows=rows)).is_kept


def test_several_sizes_count_alike() -> None:
    one, two = tuner.row({"BM": 64}, 10.0), tuner.row({"BM": 64}, 40.0, size=1024)
    assert result.Attempt({}, (one, two)).rate == pytest.approx(20e9 / 1.01, rel=0.01)
    assert result.Attempt({}, (one, replace(two, status="wrong"))).rate is None
    assert result.Attempt({}, ()).rate is None


def test_an_empty_file_has_no_result() -> None:
    found = result.result(Run(fake.header(tuner.WORDS), ()))
    assert (found.attempts, found.winner, found.finished, found.is_kept) == ((), None, False, False)
