"""Settled and burst on a device that power slows down as it does an H200: 762 TFLOPS, from 0.15 s on 656."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator
from dataclasses import replace

import pytest

from gemmbench.measure.sampling import Sampled, alone, in_turn
from gemmbench.model.case import Case, Policy
from gemmbench.model.device import Reading, State
from gemmbench.model.instrument import Batch, Prepared, Watch
from gemmbench.model.problem import Gemm
from gemmbench.stats.intervals import summarize
from tests.fake_instrument import LIMITED, FakeClock, FakeInstrument, HotDevice, HotWatch

PROBLEM_S = 0.001
BUDGETS = (1.0, 3.0, 6.0)


class Bench:
    """Two kernels of one device, each as fast as the other."""

    def __init__(
        self, full_s: float = 0.05, limited_s: float = 0.15, reports: bool = False, **faster: float
    ) -> None:
        self.clock = FakeClock()
        self.instrument = FakeInstrument(self.clock, prepared=Prepared(("device",), ahead=("device",)))
        self.device = HotDevice(self.instrument, full_s, limited_s)
        self.instrument.watch = HotWatch(self.device if reports else None)
        for name in ("naive", "tiled"):
            self.instrument.seconds[name] = self.device.seconds(PROBLEM_S / faster.get(name, 1.0))

    def row(self, name: str, budget_s: float = 3.0, state: State = "settled") -> Sampled:
        handle = self.instrument.prepare(Case("gemm", 0, name, "half", {}, Gemm(8, 8, 8)), None, Policy())
        policy = Policy(budget_s=budget_s, state=state)
        return alone(handle, "device", policy, budget_s, now=self.clock, sleep=self.rest)

    def rest(self, seconds: float) -> None:
        self.clock.now += seconds


def median(row: Sampled) -> float:
    seconds = sorted(row.scopes["kernel"].seconds)
    return seconds[len(seconds) // 2]


def thirds(row: Sampled) -> float:
    """The last third's median over the first's."""
    seconds = row.scopes["kernel"].seconds
    count = len(seconds) // 3
    first, last = sorted(seconds[:count]), sorted(seconds[-count:])
    return last[count // 2] / first[count // 2]


@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("budget_s", BUDGETS)
def test_no_row_straddles_the_fall_of_the_clock(budget_s: float, reports: bool) -> None:
    row = Bench(reports=reports).row("naive", budget_s)
    assert thirds(row) == pytest.approx(1.0, abs=0.01)
    assert median(row) == pytest.approx(PROBLEM_S * LIMITED, rel=0.005)


@pytest.mark.parametrize("rests", list(itertools.product([0.0, 0.2, 5.0], repeat=2)))
@pytest.mark.parametrize("reports", [True, False])
@pytest.mark.parametrize("order", [("naive", "tiled"), ("tiled", "naive")])
def test_which_of_two_kernels_wins_does_not_depend_on_order_or_rest(
    order: tuple[str, str], rests: tuple[float, float], reports: bool
) -> None:
    bench = Bench(0.2, 0.5, reports, tiled=1.02)
    medians = {}
    for name, rest in zip(order, rests, strict=True):
        bench.rest(rest)
        medians[name] = median(bench.row(name))
    assert medians["naive"] / medians["tiled"] == pytest.approx(1.02, rel=0.005)


def test_the_same_kernel_twice_in_a_run_has_one_rate() -> None:
    """677 and 752 TFLOPS were shown of one kernel that was measured twice."""
    bench = Bench(0.2, 0.5)
    first = median(bench.row("naive", 6.0))
    bench.rest(0.05)
    assert median(bench.row("naive", 6.0)) == pytest.approx(first, rel=0.005)


def test_a_limited_row_is_warmed_for_three_seconds_and_says_so() -> None:
    bench = Bench(reports=True)
    row = bench.row("naive", 1.0)
    assert row.is_limited
    assert row.batches[0].begin == pytest.approx(3.0, abs=0.05)
    assert row.batches[-1].end - row.batches[0].begin == pytest.approx(3.0, abs=0.1)
    assert row.note == (
        "power limits the device: warmed for 3.00 s and sampled for 3.00 s, beyond the budget"
    )
    assert row.conditions is not None
    assert row.conditions.state == "settled"
    assert row.conditions.warm_s == pytest.approx(3.0, abs=0.05)


@pytest.mark.parametrize("phase", [0.0, 0.3, 0.6, 0.9])
def test_a_clock_that_goes_up_and_down_once_a_second_is_no_trend_and_does_not_move_the_median(
    phase: float,
) -> None:
    """As an H200's does under its limit, by 3 %: thirds of two seconds lay 2 % apart, medians 0.7 %."""
    bench = Bench(reports=True)
    heat = bench.device.seconds(PROBLEM_S)
    bench.instrument.seconds["naive"] = (
        next(heat) * (1 + 0.03 * math.sin(2 * math.pi * (bench.clock.now + phase))) for _ in itertools.count()
    )
    row = bench.row("naive")
    assert thirds(row) == pytest.approx(1.0, abs=0.002)
    assert median(row) == pytest.approx(PROBLEM_S * LIMITED, rel=0.002)
    assert row.batches[-1].end - row.batches[0].begin == pytest.approx(3.0, abs=0.1)


@pytest.mark.parametrize("phase", [0.0, 0.35])
def test_a_limited_rows_figure_does_not_hang_on_the_step_of_the_clock_at_its_median(phase: float) -> None:
    """Steps of 1 %: one process had the upper one for 49 % of a second, another for 51 %: 1 % apart."""
    figures = []
    for share in (0.49, 0.51):
        bench = Bench(reports=True)
        heat = bench.device.seconds(PROBLEM_S)
        bench.instrument.seconds["naive"] = (
            next(heat) * (1.01 if (bench.clock.now + phase) % 1 < share else 1.0) for _ in itertools.count()
        )
        scope = bench.row("naive").scopes["kernel"]
        figures.append(summarize(scope.seconds, scope.middle == "mean").median)
    assert figures[1] / figures[0] == pytest.approx(1.0, abs=1e-3)


class RestedDevice(HotDevice):
    """As an H200 after a rest: its limit is one of the average power of a second, which takes that long."""

    @property
    def reading(self) -> Reading:
        now = super().reading
        return replace(now, power_w=100 + 600 * min(1.0, self.heat_s), limit_w=700.0)


@pytest.mark.parametrize("rest_s", [0.0, 1.0, 5.0])
def test_a_limit_that_shows_only_after_a_second_is_waited_for(rest_s: float) -> None:
    """Rows of 738 TFLOPS stood beside others of 637, of the same kernel, after a rest."""
    bench = Bench(1.3, 1.4, reports=True)
    bench.device.__class__ = RestedDevice
    bench.rest(rest_s)
    row = bench.row("naive", 1.0)
    assert row.is_limited
    assert thirds(row) == pytest.approx(1.0, abs=0.002)
    assert median(row) == pytest.approx(PROBLEM_S * LIMITED, rel=0.002)
    bench.rest(rest_s)
    assert median(bench.row("naive", 1.0)) == pytest.approx(median(row), rel=0.002)


class BusyDevice(HotDevice):
    """As an H200 whose second before held another kernel: read every 0.1 s, the average falls at first."""

    @property
    def reading(self) -> Reading:
        powers = (263, 244, 269, *range(316, 700, 48), 700)
        now_w = powers[min(int(self.heat_s / 0.105), len(powers) - 1)]
        return replace(super().reading, power_w=now_w, limit_w=700.0)


def test_a_limit_is_waited_for_though_the_average_power_falls_at_first() -> None:
    """nv-async in float at 4096 was sampled for 0.3 s at 316 W: 52.9 TFLOPS, and 50.9 under the limit."""
    bench = Bench(1.3, 1.4, reports=True)
    bench.device.__class__ = BusyDevice
    row = bench.row("naive", 1.0)
    assert row.is_limited
    assert median(row) == pytest.approx(PROBLEM_S * LIMITED, rel=0.002)


def test_a_row_that_meets_the_limit_while_it_is_sampled_begins_anew() -> None:
    bench = Bench(1.0, 1.1, reports=True)  # nobody says how much power there may be
    sliding(bench, 1.0, 0.0)
    row = bench.row("naive", 3.0)
    assert row.is_limited
    assert thirds(row) == pytest.approx(1.0, abs=0.01)
    assert median(row) == pytest.approx(PROBLEM_S * LIMITED, rel=0.03)


def test_settling_costs_nothing_where_nothing_moves() -> None:
    bench = Bench(full_s=100, limited_s=101, reports=True)
    row = bench.row("naive")
    assert not row.is_limited
    assert not row.note
    assert bench.clock.now < 0.35  # what it takes to see that power does not limit
    assert len(row.batches) > 20
    bench.instrument.watch = Watch()  # a processor: nothing to wait for
    begin = bench.clock.now
    bench.row("naive")
    assert bench.clock.now - begin < 0.16


@pytest.mark.parametrize(("trend", "is_kept"), [(0.0, True), (0.04, False)])
def test_batches_that_scatter_are_samples_where_their_middle_holds_still(trend: float, is_kept: bool) -> None:
    """An H200, 64 to 512: settling took what the budget had, and rows of 3 batches of 10 ms were `few`."""
    bench = Bench(full_s=100, limited_s=101, reports=True)
    scatter = itertools.cycle([1.0, 1.02, 0.99, 1.03])
    bench.instrument.seconds["naive"] = (
        PROBLEM_S * each * (1 + trend * min(1.0, bench.clock.now / 0.3)) for each in scatter
    )
    row = bench.row("naive", 0.3)
    assert (row.batches[0].begin < 0.1) == is_kept
    assert len(row.batches) > 20 or not is_kept


@pytest.mark.parametrize("reports", [True, False])
def test_a_burst_is_the_first_tenth_of_a_second_after_a_rest(reports: bool) -> None:
    bench = Bench(0.12, 0.2, reports)
    bench.row("naive")  # the device is hot
    row = bench.row("tiled", state="burst")
    assert median(row) == pytest.approx(PROBLEM_S, rel=0.005)
    assert thirds(row) == pytest.approx(1.0, abs=0.01)
    assert all(batch.seconds["kernel"] == pytest.approx(PROBLEM_S) for batch in row.batches)


def test_a_burst_waits_for_the_clock_two_seconds_at_most(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(reports=True)
    monkeypatch.setattr(HotDevice, "reading", Reading(0.0, 1440.0, 1980.0, limits=("power",)))
    begin = bench.clock.now
    row = bench.row("naive", state="burst")
    assert row.batches[0].begin - begin == pytest.approx(2.0, abs=0.05)


@pytest.mark.parametrize("reports", [True, False])
def test_two_in_turn_are_warmed_first(reports: bool) -> None:
    bench = Bench(reports=reports, tiled=1.02)
    first, second = (
        bench.instrument.prepare(Case("gemm", 0, name, "half", {}, Gemm(8, 8, 8)), None, Policy())
        for name in ("naive", "tiled")
    )
    pairs = in_turn(first, second, "device", Policy(), 3.0, bench.clock)
    assert thirds(pairs.first) == thirds(pairs.second) == pytest.approx(1.0, abs=0.01)
    assert median(pairs.first) == pytest.approx(PROBLEM_S * LIMITED, rel=0.005)
    assert pairs.ratio == pytest.approx(1.02, rel=0.005)


def test_two_in_turn_that_meet_the_limit_while_they_are_sampled_begin_anew() -> None:
    """int8 at 8192 after half a second: in the 0.3 s that were sampled the clock fell by 13 %."""
    bench = Bench(0.35, 0.4, reports=True)
    first, second = (
        bench.instrument.prepare(Case("gemm", 0, name, "half", {}, Gemm(8, 8, 8)), None, Policy())
        for name in ("naive", "tiled")
    )
    pairs = in_turn(first, second, "device", Policy(), 1.0, bench.clock)
    assert pairs.first.is_limited
    assert {round(batch.seconds["kernel"], 9) for batch in pairs.first.batches} == {
        round(PROBLEM_S * LIMITED, 9)
    }


@pytest.mark.parametrize("reports", [True, False])
def test_two_in_turn_in_bursts_are_as_fast_as_the_rested_device(reports: bool) -> None:
    """They were warmed, and the row called a burst."""
    bench = Bench(0.12, 0.2, reports, tiled=1.02)
    first, second = (
        bench.instrument.prepare(Case("gemm", 0, name, "half", {}, Gemm(8, 8, 8)), None, Policy())
        for name in ("naive", "tiled")
    )
    bench.row("naive")  # the device is hot
    pairs = in_turn(first, second, "device", Policy(state="burst"), 3.0, bench.clock, bench.rest)
    assert len(pairs.first.batches) >= 8  # so that the ratio has an interval
    assert all(batch.seconds["kernel"] == pytest.approx(PROBLEM_S) for batch in pairs.first.batches)
    assert pairs.ratio == pytest.approx(1.02, rel=0.002)


def test_in_turn_each_has_the_clock_of_its_own_power() -> None:
    """The clock follows what runs within a tenth of a second: in short turns both had that of the two."""
    bench = Bench(reports=True)
    draws, state = {"naive": 1.2, "tiled": 1.0}, {"factor": 1.1, "end": 0.0}

    def seconds(name: str) -> Iterator[float]:
        while True:
            passed = bench.instrument._free - state["end"]
            share = 1 - math.exp(-passed / 0.03)
            state["factor"] += (state["running"] - state["factor"]) * share if "running" in state else 0.0
            state["end"], state["running"] = bench.instrument._free, draws[name]
            bench.device._pass()
            yield PROBLEM_S * state["factor"]

    for name in draws:
        bench.instrument.seconds[name] = seconds(name)
    first, second = (
        bench.instrument.prepare(Case("gemm", 0, name, "half", {}, Gemm(8, 8, 8)), None, Policy())
        for name in draws
    )
    pairs = in_turn(first, second, "device", Policy(), 3.0, bench.clock)
    assert pairs.ratio == pytest.approx(1.2, rel=0.002)
    assert pairs.first.is_limited
    assert len(pairs.first.batches) == len(pairs.second.batches) >= 10


def test_a_row_that_is_only_noisy_is_not_taken_for_limited() -> None:
    """Launches of small kernels lie several per cent apart."""
    bench = Bench()
    jitter = itertools.cycle([1.0, 1.06, 1.01, 1.03, 1.08, 1.0, 1.04])
    bench.instrument.seconds["naive"] = (PROBLEM_S * next(jitter) for _ in itertools.count())
    row = bench.row("naive")
    assert not row.is_limited
    assert not row.note
    assert bench.clock.now < 3.1  # its budget


def test_a_burst_ends_where_a_limit_is_reported_without_the_batch_that_met_it() -> None:
    row = Bench(0.04, 0.06, reports=True).row("naive", state="burst")
    assert len(row.batches) >= 10
    assert all(batch.seconds["kernel"] == pytest.approx(PROBLEM_S) for batch in row.batches)


def test_a_burst_ends_where_the_clock_falls_though_the_limit_is_reported_a_second_later(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """bfloat16 at 12288 on an H200: 808 to 813 TFLOPS for 70 ms, then 715, and a median of 724 for both."""
    bench = Bench(0.04, 0.06)
    finish = bench.instrument.finish

    def counted() -> Batch:
        batch = finish()
        return replace(batch, mhz=1980.0 * PROBLEM_S / batch.finest_s)

    monkeypatch.setattr(bench.instrument, "finish", counted)
    row = bench.row("naive", state="burst")
    assert len(row.batches) >= 10
    assert all(batch.seconds["kernel"] < 1.02 * PROBLEM_S for batch in row.batches)


def test_a_processors_clock_which_is_of_moments_ends_no_burst(monkeypatch: pytest.MonkeyPatch) -> None:
    """It would have left a kernel its fast batches, and numpy, which has no such clock, all of its own."""
    bench = Bench(9.0, 9.1)
    bench.instrument.watch.load_s = 0.0
    finish, clocks = bench.instrument.finish, itertools.cycle([3900.0, 3600.0])
    monkeypatch.setattr(bench.instrument, "finish", lambda: replace(finish(), mhz=next(clocks)))
    row = bench.row("naive", state="burst")
    assert {batch.mhz for batch in row.batches} == {3900.0, 3600.0}


def test_a_device_that_never_cools_has_a_row_nevertheless(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(reports=True)
    monkeypatch.setattr(HotDevice, "reading", Reading(0.0, 1440.0, 1980.0, limits=("power",)))
    row = bench.row("naive", budget_s=8.0, state="burst")
    assert len(row.batches) >= 3


def sliding(bench: Bench, until_s: float, by: float) -> None:
    """The kernel slows down until then, under batches that lie 5 % apart, as they do where power limits."""
    jitter = itertools.cycle([1.0, 1.05, 0.98, 1.02, 0.96, 1.04, 0.97])
    heat = bench.device.seconds(PROBLEM_S)
    bench.instrument.seconds["naive"] = (
        next(heat) * next(jitter) * (1 + by * min(bench.clock.now, until_s) / until_s)
        for _ in itertools.count()
    )


def test_a_limited_row_is_sampled_on_while_its_last_third_lies_off_the_first() -> None:
    bench = Bench(reports=True)
    sliding(bench, 4.5, 0.2)
    row = bench.row("naive")
    assert row.is_limited
    assert thirds(row) == pytest.approx(1.0, abs=0.01)
    assert "last third" not in row.note


def test_a_limited_row_that_does_not_settle_says_so() -> None:
    bench = Bench(reports=True)
    sliding(bench, 60.0, 2.0)
    row = bench.row("naive")
    assert thirds(row) > 1.01
    assert row.note.endswith("slower than the first")
    assert bench.clock.now < 10  # warmed for three seconds, sampled for three, and for three more at most
