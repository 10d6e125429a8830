"""The planted neighbour: its schedule on a scripted clock, and how runs with it are judged."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice

import pytest

from gemmbench.model.row import Problem, Row, Scope
from gemmbench.model.run_file import Run
from tests import fake_runs as fake
from tools.neighbour import KINDS, LONGEST_S, SHORTEST_S, play, schedule
from tools.neighbour_check import NONE, RULES, Count, count, judge, references

PROBLEM = Problem(256, 256, 256)
BURST_S = 1e-3


def test_periods_last_20_to_300_ms_and_are_on_for_60_per_cent_of_the_time() -> None:
    periods = list(islice(schedule(1), 4000))
    assert all(SHORTEST_S <= each <= LONGEST_S for period in periods for each in period)
    on_s, off_s = map(sum, zip(*periods, strict=True))
    assert on_s / (on_s + off_s) == pytest.approx(0.6, abs=0.01)
    assert periods == list(islice(schedule(1), 4000)) != list(islice(schedule(2), 4000))


@pytest.mark.parametrize(("seconds", "asked", "end_s"), [(30.0, 1000, 30.0), (30.0, 5, 1.0)])
def test_a_neighbour_works_while_it_is_on_and_ends(seconds: float, asked: int, end_s: float) -> None:
    clock, worked, wanted = [7.0], [0.0], iter(range(asked))

    def sleep(time_s: float) -> None:
        clock[0] += time_s

    def work() -> None:
        sleep(1e-3)
        worked[0] += 1e-3

    play(
        [(0.12, 0.08)] * 1000, work, seconds, lambda: next(wanted, None) is not None, lambda: clock[0], sleep
    )
    assert clock[0] - 7.0 == pytest.approx(end_s, abs=0.01)
    assert worked[0] / end_s == pytest.approx(0.6, abs=0.01)


def row(variant: str, gflops: float, disturbed: int = 0, waited: int = 0) -> Row:
    """A row of 18 batches, some with slow bursts, and some that waited. Those took twice as long."""
    seconds_s, on_host = PROBLEM.flops / gflops / 1e9, variant == "numpy"
    quiet, slow = 18 - disturbed - waited, disturbed + waited
    scope = Scope(
        (seconds_s,) * quiet + (2 * seconds_s,) * slow, 1, "budget",
        bursts_s=(BURST_S,) * 2 * (quiet + waited) + (2 * BURST_S,) * 2 * disturbed,
        waited_s=(0.0,) * quiet + (seconds_s,) * waited + (0.0,) * disturbed,
        quiet_s=(0.95 * BURST_S, 1.05 * BURST_S),
    )  # fmt: skip
    plain = fake.gemm_row(variant, PROBLEM, gflops, -1 if on_host else 0)
    return replace(plain, samples={"host" if on_host else "device": scope})


def run(*rows: Row) -> Run:
    return Run(fake.header(("gemmbench", "square")), rows)


def counts(*rows: Row, limit: float = 0.05) -> list[tuple[int, int, int]]:
    """By each rule: how many figures are unmarked, how many of these are off, and how many of all."""
    known = references([run(row("tiled", 100.0), row("numpy", 50.0))])
    made = [count([run(*rows)], known, rule, limit) for rule, _ in RULES.values()]
    assert {each.figures for each in made} == {len(rows)}
    return [(each.unmarked, each.off, each.all_off) for each in made]


def test_a_reference_is_the_median_of_unmarked_figures_or_of_all() -> None:
    runs = [run(row("tiled", rate), row("numpy", rate, disturbed=11)) for rate in (10.0, 11.0, 15.0)]
    runs.append(run(row("tiled", 90.0, disturbed=11)))
    assert sorted(references(runs).values()) == pytest.approx([11e9, 11e9])


def test_figures_are_counted_by_their_marks_and_errors() -> None:
    assert counts(row("tiled", 104.0), row("numpy", 47.0)) == [(2, 1, 1)] * 3
    assert counts(row("tiled", 104.0), row("numpy", 47.0), limit=0.07) == [(2, 0, 0)] * 3
    assert counts(fake.bad("tiled", PROBLEM, "failed", "")) == [(0, 0, 1)] * 3
    assert counts(row("register", 100.0)) == [(1, 1, 1)] * 3  # it has no reference


def test_each_rule_counts_other_batches() -> None:
    assert counts(row("tiled", 100.0, waited=15)) == [(0, 0, 0), (1, 1, 1), (1, 1, 1)]
    assert counts(row("tiled", 100.0, disturbed=15)) == [(0, 0, 0), (0, 0, 0), (1, 1, 1)]


@pytest.mark.parametrize(
    ("off", "unmarked", "is_right"), [(1, 20, True), (2, 20, False), (0, 13, True), (0, 12, False)]
)
def test_shares_decide(off: int, unmarked: int, is_right: bool) -> None:
    assert Count(20, unmarked, off, 0.1, off).holds(1 / 20, 0.65) is is_right
    assert not Count(0, 0, 0, 0.0, 0).holds(1 / 20, 0.65)


def test_runs_are_judged_for_each_kind(capsys: pytest.CaptureFixture[str]) -> None:
    good, bad = [run(row("tiled", 100.0), row("numpy", 50.0))], [run(row("tiled", 94.0), row("numpy", 50.0))]
    marked = [run(row("tiled", 100.0, disturbed=11), row("numpy", 50.0))]
    assert judge({NONE: good, KINDS[0]: good, KINDS[1]: bad})  # by 6 %
    assert not judge({NONE: good, KINDS[0]: bad, KINDS[1]: good})
    assert capsys.readouterr().out.count("too many") == 2  # also without the waiting rule
    assert not judge({NONE: good, KINDS[0]: marked, KINDS[1]: good})
