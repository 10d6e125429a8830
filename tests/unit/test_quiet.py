"""Quiet windows: which batches count, and how long a row is sampled between control bursts."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest

from gemmbench.measure import instrument as child
from gemmbench.measure.sampling import Sampled, alone
from gemmbench.model import quiet
from gemmbench.model.case import Case, Policy
from gemmbench.model.instrument import AskSeries, Batch, Bursts, ControlBurst, Prepare, Prepared, Series
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Problem, Row, Scope, current
from gemmbench.model.run_file import Run
from gemmbench.stats import rates
from gemmbench.suite import cached
from gemmbench.suite.cached import CachedBursts
from tests import fake_runs as fake
from tests.fake_instrument import FakeInstrument

CONTROL = ControlBurst(99, "device", 100, 10**9)


def scope(bursts: list[float], seconds: float = 0.001, waited: float = 0.0, size: int = 4) -> Scope:
    """Batches with a burst between each two of them."""
    pairs = [each for pair in itertools.pairwise(bursts) for each in pair]
    count = len(bursts) - 1
    return Scope((seconds,) * count, size, "stable", bursts_s=tuple(pairs), waited_s=(waited,) * count)


def test_a_batch_counts_between_two_undisturbed_bursts() -> None:
    settled = quiet.settle(scope([1.0, 1.04, 1.06, 1.0, 1.0]), 1.0)
    assert quiet.flags(settled) == (True, False, False, True)


def test_a_batch_at_a_higher_clock_does_not_count() -> None:
    """A turbo clock that comes and goes would decide the figure."""
    settled = quiet.settle(scope([1.0, 0.96, 0.94, 1.0, 1.0]), 1.0)
    assert quiet.flags(settled) == (True, False, False, True)


@pytest.mark.parametrize(("waited", "is_quiet"), [(0.079e-3, True), (0.081e-3, False)])
def test_a_batch_whose_threads_waited_long_for_a_core_does_not_count(waited: float, is_quiet: bool) -> None:
    """Two per cent of 4 problems of 1 ms."""
    each = replace(scope([1.0] * 5), waited_s=(waited, 0.0, 0.0, 0.0))
    assert quiet.flags(quiet.settle(each, 1.0)) == (is_quiet, True, True, True)


def test_ordinary_waits_of_a_row_do_not_disturb_it() -> None:
    """PoCL's threads hand each launch over, and wait for a sixth of the time on a free machine."""
    usual = replace(scope([1.0] * 9), waited_s=(0.16 * 0.004,) * 6 + (0.24 * 0.004, 0.6 * 0.004))
    assert quiet.flags(quiet.settle(usual, 1.0)) == (*[True] * 7, False)
    always = replace(scope([1.0] * 9), waited_s=(0.6 * 0.004,) * 8)
    assert not any(quiet.flags(quiet.settle(always, 1.0)))


def test_a_row_that_was_slow_all_the_time_is_not_quiet() -> None:
    """Its own bursts agree with each other, as where the machine has several speeds."""
    slow = quiet.settle(scope([1.08] * 12), 1.0)
    assert slow.quiet_s == pytest.approx((0.95, 1.05))
    assert not any(quiet.flags(slow))


def test_the_reference_of_a_run_is_the_known_one_or_a_clock_that_is_not_rare() -> None:
    assert quiet.choose_reference([*[0.5] * 9, *[1.0] * 91]) == 1.0
    assert quiet.choose_reference([*[0.5] * 11, *[1.0] * 89]) == 0.5
    assert quiet.choose_reference([1.0] * 10, known_s=0.9) == 0.9
    assert quiet.choose_reference([], known_s=0.0) == 0.0


def test_neither_a_run_at_a_higher_clock_nor_disturbed_ones_are_the_known_reference() -> None:
    assert quiet.known([*[0.5] * 5, *[1.0] * 2, *[2.0] * 13]) == 1.0
    assert quiet.known([*[0.5] * 6, *[1.0] * 15]) == 1.0  # of the last 20
    assert quiet.known([*[0.5] * 6, *[1.0] * 14]) == 0.5
    assert quiet.known([]) == 0.0


def row_of(each: Scope, device: int = 0) -> Row:
    row = fake.gemm_row("naive", Problem(64, 64, 64), 1.0)
    return replace(row, device=device, samples={"kernel": each})


def test_each_device_and_the_host_have_references_of_their_own() -> None:
    rows = current((row_of(scope([1.0] * 12)), row_of(scope([5.0] * 12), -1)))
    assert [row.samples["kernel"].is_complete for row in rows] == [True, True]
    assert quiet.references(rows, {}) == {"0": 1.0, "-1": 5.0}


def test_a_cached_row_keeps_its_reference() -> None:
    cached = replace(
        row_of(replace(scope([1.0] * 12), quiet_s=(0.95, 1.05))), measured_utc="2026-01-01T00:00:00Z"
    )
    slow = row_of(scope([1.3] * 12))
    rows = current((cached, slow))
    assert [row.samples["kernel"].is_complete for row in rows] == [True, True]
    assert [row.samples["kernel"].is_complete for row in current(rows, {"0": 1.0})] == [True, False]


@pytest.mark.parametrize(
    ("quiet_batches", "seconds", "is_complete"),
    [(10, 0.001, True), (9, 0.001, False), (3, 0.04, True), (2, 0.04, False)],
)
def test_a_row_is_complete_with_ten_quiet_batches_or_three_long_ones(
    quiet_batches: int, seconds: float, is_complete: bool
) -> None:
    each = scope([*[1.0] * (quiet_batches + 1), *[1.5] * 20], seconds)
    assert quiet.settle(each, 1.0).is_complete is is_complete


def test_a_row_whose_few_batches_are_all_quiet_is_complete() -> None:
    """As with a small --budget."""
    assert quiet.settle(scope([1.0] * 5), 1.0).is_complete


def test_figures_are_of_quiet_batches_and_a_row_that_lacks_them_is_marked() -> None:
    calm = scope([1.0] * 12)
    noisy = replace(scope([1.5] * 12, seconds=0.002), stop="disturbed")
    both = quiet.join_visits(calm, noisy)
    whole = Run(fake.header(["square"]), current((row_of(both), row_of(noisy))))
    first, second = whole.rows
    assert rates.summary(first, "kernel").median == 0.001
    assert [rates.is_uncertain(whole, row) for row in (first, second)] == [False, True]
    assert rates.estimate_slowing(whole, second) == pytest.approx(0.5)
    assert rates.quiet_share(whole.rows) == pytest.approx(11 / 33)


def test_visits_with_batches_of_another_size_are_not_joined() -> None:
    """The visit with more quiet batches counts."""
    few, many = scope([1.0] * 3), scope([1.0] * 4, size=8)
    assert quiet.join_visits(few, many) == quiet.join_visits(many, few) == many
    assert len(quiet.join_visits(few, few).seconds) == 4


# --- sampling -----------------------------------------------------------------------------------------------


class Neighbour:
    """Slows batches and bursts by a factor in periods of the instrument's clock."""

    def __init__(self, instrument: FakeInstrument, seed: int, share: float, factor: float = 1.6) -> None:
        self._instrument, self._random, self._factor = instrument, random.Random(seed), factor
        self._share, self._until, self._is_on = share, 0.0, False

    @property
    def slower(self) -> float:
        while self._instrument.clock.now >= self._until:
            self._is_on = self._random.random() < self._share
            self._until += self._random.uniform(0.02, 0.3)
        return self._factor if self._is_on else 1.0

    def seconds(self, problem_s: float) -> Iterator[float]:
        while True:
            yield problem_s * self.slower * self._random.uniform(0.995, 1.005)


def sampled(
    share: float, problem_s: float = 0.001, seed: int = 1, budget_s: float = 0.15
) -> tuple[Sampled, Bursts]:
    """Samples of a problem while a neighbour is active for a share of the time."""
    instrument = FakeInstrument(prepared=Prepared(("device", "host")))
    neighbour = Neighbour(instrument, seed, share)
    instrument.seconds["naive"] = neighbour.seconds(problem_s)
    instrument.burst_s = neighbour.seconds(1.0)
    bursts = Bursts(CONTROL, known_s=1.0)
    handle = replace(instrument.ready(), bursts=bursts)
    return alone(handle, "device", Policy(), budget_s, now=instrument.clock), bursts


def figure(of: Sampled, bursts: Bursts) -> float:
    return median(bursts.settled(of.scopes["kernel"]).counted)


def test_without_a_neighbour_a_row_is_stable_after_a_series_or_two() -> None:
    result, bursts = sampled(0.0)
    assert (result.stop, result.size) == ("stable", 4)
    assert 10 <= len(result.batches) <= 30
    assert figure(result, bursts) == pytest.approx(0.001, rel=0.005)


def test_quiet_batches_have_the_rate_of_a_machine_without_a_neighbour() -> None:
    """The median of all batches is up to 60 % off."""
    errors, all_errors = [], []
    for seed in range(20):
        result, bursts = sampled(0.6, seed=seed, budget_s=0.3)
        scope = bursts.settled(result.scopes["kernel"])
        if scope.is_complete:
            errors.append(abs(figure(result, bursts) / 0.001 - 1))
        else:
            assert result.stop == "disturbed"
        all_errors.append(abs(median(scope.seconds) / 0.001 - 1))
    assert len(errors) > 10
    assert max(errors) < 0.01
    assert max(all_errors) > 0.5


def test_a_row_that_is_never_quiet_ends_with_its_budget_and_says_so() -> None:
    result, _ = sampled(1.0)
    assert result.stop == "disturbed"
    assert sum(batch.end - batch.begin for batch in result.batches) < 0.15 + 0.1  # and a series
    assert not result.scopes["kernel"].is_complete


def test_with_patience_sampling_goes_on_until_enough_batches_are_quiet() -> None:
    instrument = FakeInstrument(prepared=Prepared(("device", "host")))
    instrument.burst_s = itertools.chain(itertools.repeat(2.0, 90), itertools.repeat(1.0))
    handle = replace(instrument.ready(), bursts=Bursts(CONTROL, known_s=1.0))
    results = [
        alone(handle, "device", Policy(patience_s=seconds), 0.1, now=instrument.clock)
        for seconds in (0.0, 5.0)
    ]
    assert [result.stop for result in results] == ["disturbed", "stable"]
    assert [result.scopes["kernel"].is_complete for result in results] == [False, True]
    assert len(results[1].batches) < 200


def test_long_problems_are_batches_of_one_and_three_are_enough() -> None:
    result, bursts = sampled(0.0, problem_s=0.2)
    assert (result.size, len(result.batches), result.stop) == (1, 3, "budget")
    assert bursts.settled(result.scopes["kernel"]).is_complete


@pytest.mark.parametrize(("problem_s", "size"), [(1e-6, 1024), (0.0004, 8), (0.0011, 2), (0.01, 1)])
def test_batches_of_about_three_milliseconds_have_a_power_of_two_of_problems(
    problem_s: float, size: int
) -> None:
    assert sampled(0.0, problem_s)[0].size == size


# --- the child's side ---------------------------------------------------------------------------------------


class Script:
    """A bench that records what it runs."""

    prepared = Prepared(("device",))

    def __init__(self, name: str, log: list[tuple[str, int, int]], problem_s: float) -> None:
        self._name, self._log, self._problem_s = name, log, problem_s

    def start(self, clock: str, count: int, work: int) -> Batch:
        self._log.append((self._name, count, work))
        return Batch({"kernel": self._problem_s * work}, 0.0, self._problem_s * work * count, count)


class Executor:
    def __init__(self, log: list[tuple[str, int, int]]) -> None:
        self._log = log

    def prepare(self, case: Case, *_: object) -> Script:
        return Script(case.variant, self._log, 1e-6)


class OneExecutor:
    def __init__(self) -> None:
        self.log: list[tuple[str, int, int]] = []

    def executor(self, *_: object) -> Executor:
        return Executor(self.log)


def served() -> tuple[Series, list[tuple[str, int, int]]]:
    machine: Any = OneExecutor()
    server = child.Server(lambda: machine)
    for number, variant in ((0, "tiled"), (99, "naive")):
        server.answer(Prepare(number, Case("gemm", 0, variant, "float", {}, Gemm(8, 8, 8)), None, Policy()))
    series = server.answer(AskSeries(0, "device", 4, 1, CONTROL, 0.0))
    assert isinstance(series, Series)
    return series, machine.log


def test_a_burst_runs_before_and_after_and_a_part_of_each_is_thrown_away() -> None:
    series, log = served()
    assert log == [("naive", 25, 1), ("naive", 100, 1), ("tiled", 4, 1), *log[:2]]
    (batch,) = series.batches
    assert batch.bursts_s == (1e-4, 1e-4)  # 100 us for 10^9 operations
    assert batch.count == 4


def test_waits_are_those_of_the_thread_that_waited_longest() -> None:
    before, after = {"1": 100, "2": 0}, {"1": 2_000_100, "2": 3_000_000, "3": 9_000_000}
    assert child._longest(before, after) == pytest.approx(0.003)
    assert child._longest({}, after) == 0.0
    assert child._waits("/nowhere") == {}


# --- what earlier runs have seen ----------------------------------------------------------------------------


def run_of(*rows: Row, known: dict[str, float] | None = None) -> Run:
    header = replace(fake.header(["square"], (fake.CPU,)), quiet_s=known or {})
    return Run(header, current(rows, header.quiet_s))


def test_the_references_of_runs_are_kept_for_the_next(tmp_path: Path) -> None:
    bursts = CachedBursts(tmp_path)
    bursts.keep(run_of(row_of(scope([2.0] * 12)), row_of(scope([5.0] * 12), -1)))
    known = bursts.find([fake.CPU])
    assert known == {"0": 2.0, "-1": 5.0}
    for seconds in (3.0, 3.0):  # two disturbed runs
        bursts.keep(run_of(row_of(scope([seconds] * 12)), known=known))
    assert bursts.find([fake.CPU]) == known
    assert bursts.find([fake.GPU]) == {}
    assert bursts.notes == []


def test_bursts_of_another_start_of_the_system_are_no_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    CachedBursts(tmp_path).keep(run_of(row_of(scope([2.0] * 12))))
    for boot in ("another", ""):
        monkeypatch.setattr(cached, "_boot", lambda boot=boot: boot)
        assert CachedBursts(tmp_path).find([fake.CPU]) == {}
