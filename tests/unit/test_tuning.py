"""The tuner with a machine whose clock is a number: nothing here takes time or a device."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model import run_file
from gemmbench.model.case import Case, Event, Finished, Planned, Started
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Status
from gemmbench.model.run_file import Header, RunFileError, load
from gemmbench.tune import result as facts
from gemmbench.tune import space as rules
from gemmbench.tune.result import FINALIST, TRIAL
from gemmbench.tune.session import Cache, Task, Tuner
from gemmbench.tune.space import Hooks, Space, search
from tests import fake_runs as fake
from tests import fake_tuner as tuner
from tests.fake_tuner import PROBLEM, REGISTER, Machine

HEADER = fake.header(tuner.WORDS)
Key = tuple[tuple[str, object], ...]


class StoppedError(Exception):
    """SIGKILL, for a test: nothing after it runs."""


def task(budget_s: float = 60.0, device: DeviceFacts = fake.CPU, **changed: Any) -> Task:
    problems: tuple[Gemm, ...] = changed.pop("problems", (PROBLEM,))
    space = rules.space(changed.get("variant", REGISTER), device, problems)
    whole = Task(device, REGISTER, problems, space, 1, budget_s, 30.0)
    return replace(whole, **changed)


def run(
    path: Path,
    machine: Machine,
    header: Header = HEADER,
    tell: Callable[[Event], None] = lambda _: None,
    **changed: Any,
) -> facts.Result:
    with closing(Cache(path, header)) as cache:
        Tuner(task(**changed), machine.measure, cache, tell, clock=machine.clock).run()
        return facts.result(cache.run())


def keys(cases: Sequence[Case]) -> list[Key]:
    return [(*sorted(case.parameters.items()), ("at", case.problem)) for case in cases]


def of_search(machine: Machine) -> list[Case]:
    return [case for case in machine.measured if case.phase == TRIAL]


def test_it_finds_the_best_and_holds_it_against_the_shipped_preset(tmp_path: Path) -> None:
    machine = Machine()
    found = run(tmp_path / "t.jsonl", machine, budget_s=120.0)
    assert found.winner == {"BM": 64, "BN": 128, "BK": 32, "TM": 8, "TN": 8}
    assert found.is_kept
    assert of_search(machine)[0].parameters == REGISTER.preset("cpu-intel")
    assert [one.searched for one in found.comparisons] == [True, False, False, False]
    assert machine.now <= 120 * 1.1


def test_a_choice_of_parameters_is_compared_with_fixed_parameters(tmp_path: Path) -> None:
    """The shipped side is the kernel's own choice at every size, also where the finals go to others."""
    image = BY_NAME["image-4x8"]
    machine = Machine(gflops=lambda case: 40.0 if case.parameters == {"WX": 4, "WY": 2} else 20.0)
    found = run(tmp_path / "t.jsonl", machine, variant=image, budget_s=120.0)
    assert found.winner == {"WX": 4, "WY": 2}
    assert found.is_kept
    assert of_search(machine)[0].parameters == {}
    assert len(of_search(machine)) == 20
    rounds = [case for case in machine.measured if case.phase.startswith("round")]
    assert all(case.parameters == {"WX": 4, "WY": 2} for case in rounds)
    assert [dict(case.versus.parameters) for case in rounds if case.versus] == [{}] * len(rounds)


def test_the_finals_take_turns(tmp_path: Path) -> None:
    machine = Machine()
    run(tmp_path / "t.jsonl", machine)
    rounds = [case for case in machine.measured if case.phase.startswith("round")]
    at = [case.problem.m for case in rounds if case.problem]
    assert at[:2] == [512, 128]
    assert len(at) == rules.ROUNDS * len(set(at))
    shipped = REGISTER.preset("cpu-intel")
    assert all(case.parameters != shipped for case in rounds)
    assert [case.versus.parameters for case in rounds if case.versus] == [shipped] * len(rounds)


def test_a_shipped_preset_that_fails_interleaved_is_reported(tmp_path: Path) -> None:
    shipped, machine = REGISTER.preset("cpu-intel"), Machine()
    fails = {"on": False}
    machine.trouble = lambda case: ("wrong", "why") if fails["on"] and case.parameters == shipped else None

    def tell(event: Event) -> None:
        fails["on"] |= isinstance(event, Finished) and event.row.phase == FINALIST

    found = run(tmp_path / "t.jsonl", machine, tell=tell, budget_s=200.0)
    assert not found.is_kept
    assert found.winner
    reasons = {each.reason for each in found.comparisons}
    assert reasons == {"not interleaved with register: wrong: why"}


def test_sizes_over_the_time_limit_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    found = run(path, Machine(), budget_s=20.0)
    left_out = [one for one in found.comparisons if one.speedup is None]
    assert [one.problem.m for one in found.comparisons if one.searched] == [512]
    assert left_out
    assert {one.reason for one in left_out} == {"skipped: --budget left no time for it"}
    assert len(found.comparisons) == 4


def test_time_that_the_search_leaves_is_for_the_finals(tmp_path: Path) -> None:
    """All of a small space is measured long before the budget ends."""
    whole = rules.space(REGISTER, fake.CPU, (PROBLEM,))
    few = replace(whole, configurations=tuple(sorted(whole.configurations, key=tuner.speed)[-8:]))
    machine = Machine()
    found = run(tmp_path / "t.jsonl", machine, budget_s=40.0, space=few)
    assert len(of_search(machine)) <= 9
    assert [one.reason for one in found.comparisons] == ["", "", "", ""]
    assert machine.now <= 40.0 * 1.1


def test_the_shipped_preset_stays_where_the_winner_was_luck(tmp_path: Path) -> None:
    """Faster in every short look and in the heat, and no faster when both take turns."""
    lucky = {"BM": 64, "BN": 128, "BK": 32, "TM": 8, "TN": 8}

    def gflops(case: Case) -> float:
        assert case.problem
        return 24.0 if case.parameters == lucky and "round" not in case.phase else 20.0

    found = run(tmp_path / "t.jsonl", Machine(gflops=gflops), budget_s=200.0)
    assert found.winner == lucky
    assert found.overall is not None
    assert not found.is_kept


@pytest.mark.parametrize("status", ["crashed", "timed-out", "wrong", "failed"])
def test_a_fault_costs_its_configuration_only(tmp_path: Path, status: Status) -> None:
    machine = Machine()
    machine.trouble = lambda case: (status, "why") if case.parameters["BM"] == 32 else None
    found = run(tmp_path / "t.jsonl", machine, budget_s=120.0)
    assert found.winner
    assert found.failed
    for one in found.failed:
        assert (one.parameters["BM"], one.trouble.status, one.trouble.reason) == (32, status, "why")


@pytest.mark.parametrize(("status", "kept"), [("failed", True), ("wrong", True), ("crashed", False)])
def test_a_shipped_preset_that_fails_is_beaten_by_whatever_runs(
    tmp_path: Path, status: Status, kept: bool
) -> None:
    shipped = REGISTER.preset("cpu-intel")
    machine = Machine()
    machine.trouble = lambda case: (status, "why") if case.parameters == shipped else None
    found = run(tmp_path / "t.jsonl", machine)
    assert found.winner is not None
    assert found.is_kept == kept
    assert not [case for case in machine.measured if "round" in case.phase]


def test_where_everything_fails_there_is_no_winner(tmp_path: Path) -> None:
    machine = Machine()
    machine.trouble = lambda _: ("crashed", "why")
    found = run(tmp_path / "t.jsonl", machine, budget_s=20.0)
    assert (found.winner, found.ranked, found.is_kept) == (None, (), False)
    assert len(found.failed) > 5


def test_what_must_be_far_slower_is_dropped_with_words_that_fit(tmp_path: Path) -> None:
    machine = Machine()
    advice = "would take about 9.00 s, more than the budget of 300 ms; --budget 10 runs it"
    machine.trouble = lambda case: ("skipped", advice) if case.parameters["TM"] == 8 else None
    found = run(tmp_path / "t.jsonl", machine)
    reasons = {one.trouble.reason for one in found.failed if one.trouble}
    assert reasons == {"would take about 9.00 s: far slower than the shipped preset, so not timed"}


ADVICE = "would take about 9.00 s, more than the budget of 6.00 s; --budget 10 runs it"


def test_a_shipped_preset_that_a_look_is_too_short_for_is_timed_all_the_same(tmp_path: Path) -> None:
    shipped = REGISTER.preset("cpu-intel")
    machine = Machine(gflops=lambda case: 50.0 if case.parameters == shipped else 20.0)
    machine.trouble = lambda case: (
        ("skipped", ADVICE) if case.parameters == shipped and machine.policies[-1].budget_s < 9 else None
    )
    found = run(tmp_path / "t.jsonl", machine)
    assert found.default.rate
    assert (found.winner, found.is_kept) == (None, False)
    assert found.comparisons == ()
    assert machine.policies[1] == rules.patient_policy(60.0, 30.0)
    assert machine.policies[1].time_limit_s == 90.0


def test_what_was_skipped_for_want_of_time_is_measure_with_a_longer_call(tmp_path: Path) -> None:
    """Where the shipped preset has no time, the budget alone says what is too slow."""
    shipped = REGISTER.preset("cpu-intel")
    path = tmp_path / "t.jsonl"
    short, long = Machine(), Machine()
    short.trouble = lambda case: ("timed-out", "why") if case.parameters == shipped else ("skipped", ADVICE)
    found = run(path, short, budget_s=20.0)
    assert {one.trouble.reason for one in found.failed if one.trouble} == {
        "why",
        "would take about 9.00 s: longer than a look at this --budget, so not timed",
    }
    skipped = keys(of_search(short))
    found = run(path, long)
    again = keys(of_search(long))
    assert again[0] == skipped[0]
    assert len(set(again) & set(skipped)) == len(skipped)
    assert found.default.rate
    assert not found.failed


def test_what_is_far_slower_than_the_shipped_preset_is_so_in_every_call(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    first, second = Machine(), Machine()
    for machine in (first, second):
        machine.trouble = lambda case: ("skipped", ADVICE) if case.parameters["TM"] == 8 else None
    run(path, first)
    run(path, second)
    assert not set(keys(of_search(first))) & set(keys(of_search(second)))


def test_looks_are_short_and_finals_are_not(tmp_path: Path) -> None:
    machine = Machine()
    run(tmp_path / "t.jsonl", machine, budget_s=300.0)
    looks = [
        policy.budget_s
        for case, policy in zip(machine.measured, machine.policies, strict=True)
        if case.phase == TRIAL
    ]
    assert looks[0] == 30  # whatever the shipped preset takes
    assert max(looks[1:]) < 1
    assert machine.policies[-1].budget_s > 1


def test_several_sizes_are_ranked_together_and_a_failure_spares_the_rest(tmp_path: Path) -> None:
    machine = Machine()
    machine.trouble = lambda case: ("crashed", "") if case.parameters["BM"] == 32 else None
    both = (PROBLEM, Gemm(1024, 1024, 1024))
    found = run(tmp_path / "t.jsonl", machine, problems=both, budget_s=120.0)
    assert {len(one.rows) for one in found.ranked} == {2}
    assert {len(one.rows) for one in found.failed} == {1}
    assert [one.problem.m for one in found.comparisons if one.searched] == [512, 1024]


def test_the_same_seed_tries_the_same(tmp_path: Path) -> None:
    first, second, third = Machine(), Machine(), Machine()
    run(tmp_path / "1.jsonl", first)
    run(tmp_path / "2.jsonl", second)
    run(tmp_path / "3.jsonl", third, seed=2)
    assert keys(of_search(first)) == keys(of_search(second)) != keys(of_search(third))


def test_events_tell_how_it_goes(tmp_path: Path) -> None:
    events: list[Event] = []
    machine = Machine()
    run(tmp_path / "t.jsonl", machine, tell=events.append)
    search, heat, duel = (event for event in events if isinstance(event, Planned))
    assert search.cases == 1
    finished = [event for event in events if isinstance(event, Finished)]
    assert [event.row.phase == TRIAL for event in finished] == [not event.is_planned for event in finished]
    assert heat.cases + duel.cases == sum(event.is_planned for event in finished)
    labels = [event.label for event in events if isinstance(event, Started)]
    assert labels[0].startswith("0 tried, 42 s left | BM=128, BN=128, ")
    assert re.match(r"\d+ tried, best [\d.]+ GFLOPS, [\d.]+ x shipped \| BM=\d+, ", labels[-1])


# --- the file ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("torn", [False, True], ids=["between rows", "within a row"])
def test_killed_half_way_and_resumed_nothing_is_lost_or_measured_twice(tmp_path: Path, torn: bool) -> None:
    path = tmp_path / "t.jsonl"
    killed = Machine()

    def until_killed(case: Case) -> tuple[Status, str] | None:
        if len(killed.measured) > 15:
            raise StoppedError
        return None

    killed.trouble = until_killed
    with pytest.raises(StoppedError):
        run(path, killed)
    before = path.read_bytes()
    if torn:
        path.write_bytes(before + before.splitlines()[-1][:100])
    done = of_search(killed)[:15]

    again, whole = Machine(), Machine()
    found = run(path, again)
    run(tmp_path / "whole.jsonl", whole)
    assert path.read_bytes().startswith(before)
    assert not set(keys(done)) & set(keys(of_search(again)))
    assert keys(done) == keys(of_search(whole))[:15]
    assert len(found.attempts) == 15 + len(of_search(again))


def test_a_file_is_a_saved_run(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    found = run(path, Machine())
    saved = load(path)
    assert run_file.is_tuning(saved)
    assert facts.result(saved).winner == found.winner
    assert len({row.key for row in saved.rows if row.phase == TRIAL}) == len(found.attempts)


def test_two_tuners_on_one_file_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    with (
        closing(Cache(path, HEADER)),
        pytest.raises(RunFileError, match=r"another tuner is at work on .*t\.jsonl"),
    ):
        Cache(path, HEADER)
    Cache(path, HEADER).close()


def test_a_refused_file_is_not_locked_for_ever(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    Cache(path, HEADER).close()
    with pytest.raises(RunFileError, match="made by another command"):
        Cache(path, replace(HEADER, command=("tune", "--kernel", "tiled")))
    Cache(path, HEADER).close()


def test_fresh_drops_what_was_there(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    run(path, Machine())
    with closing(Cache(path, HEADER, fresh=True)) as cache:
        assert cache.rows == []
    assert len(path.read_bytes().splitlines()) == 1


def test_rows_of_other_kernels_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    run(path, Machine())
    header, *rows = path.read_text().splitlines()
    old = [json.dumps({**json.loads(row), "source": "0123456789abcdef"}) for row in rows]
    path.write_text("\n".join([header, *old]) + "\n")
    before = path.read_bytes()
    with pytest.raises(
        RunFileError, match="its rows are of other kernel sources than today's; --force drops"
    ):
        run(path, Machine())
    assert path.read_bytes() == before


def test_a_folder_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(RunFileError, match="cannot write"):
        Cache(tmp_path / "file" / "t.jsonl", HEADER)


# --- the search -------------------------------------------------------------------------------------------

VALUES = {"A": (1, 2, 4, 8, 16), "B": (1, 2, 4, 8, 16), "C": (1, 2, 3, 4, 5, 6)}
CONFIGURATIONS = tuple(
    {"A": a, "B": b, "C": c}
    for a in VALUES["A"] for b in VALUES["B"] for c in VALUES["C"] if a * b <= 64
)  # fmt: skip
SPACE = Space({"A": 1, "B": 1, "C": 1}, VALUES, CONFIGURATIONS, 150, len(CONFIGURATIONS))


def cost(one: dict[str, int]) -> float | None:
    return None if one["C"] == 5 else 1.0 + abs(one["A"] - 8) + abs(one["B"] - 4) + abs(one["C"] - 3)


@pytest.mark.parametrize("most", [40, 10_000])
def test_it_asks_once_for_what_is_in_the_space(most: int) -> None:
    """With no limit the whole space is tried."""
    asked: list[dict[str, int]] = []

    def measured(one: dict[str, int]) -> float | None:
        asked.append(one)
        return cost(one)

    hooks = Hooks(measured, lambda: len(asked) >= 10, lambda: len(asked) >= most, lambda _: None)
    search(SPACE, 1, hooks)
    assert asked[0] == SPACE.default
    assert all(one in CONFIGURATIONS for one in asked)
    assert len({tuple(one.values()) for one in asked}) == len(asked) == min(most, len(CONFIGURATIONS))


@pytest.mark.parametrize("seed", range(5))
def test_the_climb_finds_the_bottom_long_before_chance_does(seed: int) -> None:
    asked: list[float] = []

    def measured(one: dict[str, int]) -> float | None:
        asked.append(cost(one) or 99.0)
        return cost(one)

    hooks = Hooks(measured, lambda: len(asked) >= 8, lambda: len(asked) >= 60, lambda _: None)
    search(SPACE, seed, hooks)
    assert min(asked) == 1.0


def test_what_comes_next_is_announced_before_it_is_asked_for() -> None:
    announced: set[tuple[int, ...]] = set()
    asked: list[tuple[int, ...]] = []

    def measured(one: dict[str, int]) -> float | None:
        asked.append(tuple(one.values()))
        return cost(one)

    def ahead(those: Sequence[dict[str, int]]) -> None:
        assert len(those) < 20  # a case is made for each, of a space that may have a million
        assert not {tuple(one.values()) for one in those} & set(asked)
        announced.update(tuple(one.values()) for one in those)

    search(SPACE, 1, Hooks(measured, lambda: len(asked) >= 8, lambda: len(asked) >= 60, ahead))
    kicked = [one for one in asked[1:] if one not in announced]
    assert len(kicked) < len(asked) / 10


def test_a_space_where_nothing_works_ends() -> None:
    asked: list[object] = []

    def measured(one: dict[str, int]) -> None:
        asked.append(one)

    search(SPACE, 1, Hooks(measured, lambda: False, lambda: False, lambda _: None))
    assert len(asked) == len(CONFIGURATIONS)
