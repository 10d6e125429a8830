"""Alone, in turn and together, on instruments that are scripts."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable
from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gemmbench.measure import instrument as child
from gemmbench.measure.instrument import until_idle
from gemmbench.measure.sampling import AloneError, Pairs, Sampled, alone, in_turn, together
from gemmbench.model.case import Case, Policy
from gemmbench.model.instrument import AskBatch, Batch, Handle, LostError, Prepare, Prepared, Verify
from gemmbench.model.problem import Gemm
from tests import fake_runs
from tests.fake_instrument import FakeClock, FakeInstrument, pass_time

POLICY = Policy(budget_s=10, settle_s=0.0, batch_s=0.01, max_batch_s=0.2, min_batches=10, precision=0.01)
AHEAD = Prepared(("device", "host"), ahead=("device",))


def handle(instrument: FakeInstrument, variant: str = "naive") -> Handle:
    return instrument.prepare(Case("gemm", 0, variant, "float", {}, Gemm(8, 8, 8)), None, POLICY)


def fake(
    clock: FakeClock | None = None, prepared: Prepared | None = None, **seconds: object
) -> FakeInstrument:
    scripts: dict[str, Iterable[float]] = {
        name: value if isinstance(value, Iterable) else itertools.repeat(float(str(value)))
        for name, value in seconds.items()
    }
    return FakeInstrument(clock or FakeClock(), scripts, prepared or Prepared(("device", "host")))


# --- alone --------------------------------------------------------------------------------------------------


def test_alone_sizes_its_batches_by_the_instruments_own_stamps() -> None:
    instrument = fake(naive=0.002)
    result = alone(handle(instrument), "device", POLICY, 10, now=instrument.clock)
    assert (result.size, result.stop, len(result.batches)) == (5, "stable", 10)
    assert result.scopes["kernel"].seconds == (0.002,) * 10
    assert instrument.most_in_flight == 1


def test_alone_the_next_batch_is_asked_for_before_the_last_is_read_and_is_kept() -> None:
    instrument = fake(prepared=AHEAD, naive=0.002)
    result = alone(handle(instrument), "device", POLICY, 10, now=instrument.clock)
    assert instrument.most_in_flight == 2
    assert len(result.batches) == 11
    stamps = [(batch.begin, batch.end) for batch in result.batches]
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(stamps))  # it never waited


@pytest.mark.parametrize(("clock", "seconds"), [("host", 0.002), ("device", 0.15)])
def test_what_is_no_queue_or_lasts_long_is_not_asked_ahead(clock: str, seconds: float) -> None:
    instrument = fake(prepared=AHEAD, naive=seconds)
    alone(handle(instrument), clock, POLICY, 10, now=instrument.clock)
    assert instrument.most_in_flight == 1


def test_alone_settles_first() -> None:
    instrument = fake(naive=itertools.chain([0.002, 0.005, 0.004, 0.003], itertools.repeat(0.002)))
    policy = Policy(settle_s=3, batch_s=0.01, min_batches=10)
    result = alone(handle(instrument), "device", policy, 10, now=instrument.clock)
    assert result.scopes["kernel"].seconds == (0.002,) * 10
    assert sum(entry[0] == "batch" for entry in instrument.log) == 1 + 3 + 3 + 10


def test_alone_a_problem_that_fills_a_batch_is_its_first_sample() -> None:
    """A slow row has three batches, and none beside them to find out how long one takes."""
    instrument = fake(naive=1.0)
    result = alone(handle(instrument), "device", POLICY, 0.1, now=instrument.clock)
    assert (result.size, result.stop, len(result.batches)) == (1, "budget", 3)
    assert sum(entry[0] == "batch" for entry in instrument.log) == 3


# --- in turn ------------------------------------------------------------------------------------------------


def ratios(pairs: Pairs) -> list[float]:
    sides = zip(pairs.first.batches, pairs.second.batches, strict=True)
    return [first.seconds["kernel"] / second.seconds["kernel"] for first, second in sides]


def order_of(instrument: FakeInstrument) -> list[object]:
    return [entry[1] for entry in instrument.log if entry[0] == "batch"]


def test_pairs_are_taken_in_alternating_order() -> None:
    instrument = fake(naive=0.002, tiled=0.001)
    first, second = handle(instrument), handle(instrument, "tiled")
    result = in_turn(first, second, "device", POLICY, 10, instrument.clock)
    assert order_of(instrument)[:14] == [0, 0, 0, 1, 1, 1, 1, 0, 0, 1, 1, 0, 0, 1]  # each looked at first
    assert ratios(result) == pytest.approx([2.0] * len(ratios(result)))
    assert len(result.first.batches) == len(result.second.batches) == 10
    assert result.first.size == result.second.size == 4  # 10 ms of a pair of 3 ms


def test_pairs_on_a_device_that_wakes_up_are_no_shorter_than_a_batch() -> None:
    """A first problem took 40 times its time: batches of one launch were timed by the wall clock."""
    woken = itertools.chain([0.04], itertools.repeat(0.001))
    instrument = fake(naive=woken, tiled=0.001)
    result = in_turn(handle(instrument), handle(instrument, "tiled"), "device", POLICY, 10, instrument.clock)
    assert result.first.size == result.second.size == 5


def test_a_cpus_kernel_and_the_hosts_blas_wait_for_each_others_threads(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """OpenBLAS's threads spun on after a call: the kernel in turn with it had half its rate."""
    order: list[object] = []
    monkeypatch.setattr(child, "until_idle", lambda: order.append("waits"))

    class Anything:
        """A machine, its executors and their benches."""

        prepared = Prepared(("host",))

        def executor(self, *_: object) -> Anything:
            return self

        prepare = executor

        def start(self, _clock: str, count: int, _work: int) -> Batch:
            order.append(count)
            return Batch({"host": 1.0}, 0.0, 1.0, count)

        def verify(self, _when: str) -> None:
            """Nothing to say."""

    server = child.Server(Anything)  # type: ignore[arg-type]  # all that it asks for
    for number, device in enumerate((None, fake_runs.CPU, replace(fake_runs.CPU, type="gpu"))):
        server.answer(Prepare(number, Case("gemm", 0, "naive", "float", {}), device, POLICY))
    for number in (0, 0, 1, 1, 2, 1, 0):
        server.answer(AskBatch(number, "host", number + 1))
    assert len(order) == 11
    for number in (1, 1, 0, 2):  # the reference of a verification is the BLAS's
        server.answer(Verify(number, "after"))
        server.answer(AskBatch(number, "host", number + 1))
    assert order[11:] == ["waits", 2, "waits", 2, 1, 3]
    del order[11:]
    # A batch that is not timed follows the wait; a GPU between them changes nothing.
    assert order == [1, 1, "waits", 1, 2, 2, 3, 2, "waits", 1, 1]


def test_idle_is_when_no_thread_takes_processor_time_any_more() -> None:
    """A library's thread spins for 12 ms; one that never stops costs the limit."""

    def spun(slept: list[float], spins_s: float) -> float:
        return min(sum(slept), spins_s)

    for spins_s, expected_s in ((0.012, 0.013), (math.inf, 0.2)):
        slept: list[float] = []
        until_idle(partial(spun, slept, spins_s), slept.append)
        assert sum(slept) == pytest.approx(expected_s)


def test_the_ratio_does_not_know_who_came_first() -> None:
    """Whoever is second in a pair takes a tenth longer."""
    lags = itertools.cycle([1.1, 1.0])
    first = itertools.chain([0.001], (0.001 * next(lags) for _ in itertools.count()))
    others = itertools.cycle([1.0, 1.1])
    second = itertools.chain([0.001], (0.001 * next(others) for _ in itertools.count()))
    instrument = fake(naive=first, tiled=second)
    result = in_turn(handle(instrument), handle(instrument, "tiled"), "device", POLICY, 0.5, instrument.clock)
    halves = [float(np.median(half)) for half in (ratios(result)[::2], ratios(result)[1::2])]
    assert halves[0] * halves[1] == pytest.approx(1.0)
    assert result.first.stop == "budget"


def test_two_of_one_process_are_queued_and_two_processes_never_overlap() -> None:
    instrument = fake(prepared=AHEAD)
    in_turn(handle(instrument), handle(instrument), "device", POLICY, 10, instrument.clock)
    assert instrument.most_in_flight == 2
    assert not instrument._asked  # what was in flight at the end is not left for the next to read
    clock = FakeClock()
    first, other = fake(clock, AHEAD), fake(clock, AHEAD)
    result = in_turn(handle(first), handle(other), "device", POLICY, 10, clock)
    assert first.most_in_flight == other.most_in_flight == 1
    spans = sorted((b.begin, b.end) for b in (*result.first.batches, *result.second.batches))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


# --- together -----------------------------------------------------------------------------------------------


def at_once(*instruments: FakeInstrument, budget_s: float = 10.0) -> list[Sampled | Exception]:
    clock = instruments[0].clock
    handles = [handle(instrument) for instrument in instruments]
    return together(handles, "device", POLICY, budget_s, settle=False, now=clock, wait=pass_time)  # type: ignore[arg-type]


def test_batches_count_while_all_are_busy() -> None:
    clock = FakeClock()
    result = at_once(fake(clock, naive=0.002), fake(clock, naive=0.03))
    quick, slow = result
    assert isinstance(quick, Sampled)
    assert isinstance(slow, Sampled)
    assert len(slow.batches) == 10
    assert len(quick.batches) > 20  # it keeps the slow one company
    assert quick.batches[0].begin >= slow.batches[0].begin  # which begins when its first, uncounted, ended
    assert quick.batches[-1].end <= slow.batches[-1].end


def test_a_fault_costs_its_own_and_the_others_begin_anew() -> None:
    clock = FakeClock()
    bad = fake(clock)
    bad.faults[5] = LostError("crashed", "gone")
    result = at_once(fake(clock, naive=0.002), bad, fake(clock, naive=0.003))
    assert isinstance(result[1], LostError)
    for index in (0, 2):
        sampled = result[index]
        assert isinstance(sampled, Sampled)
        assert len(sampled.batches) >= 10


@pytest.mark.parametrize("number", [0, 5])
def test_nobody_is_sampled_together_with_nobody(number: int) -> None:
    clock = FakeClock()
    bad = fake(clock)
    bad.faults[number] = LostError("crashed", "gone")
    result = at_once(fake(clock), bad)
    assert isinstance(result[0], AloneError)
    assert isinstance(result[1], LostError)


def test_together_each_has_its_own_budget() -> None:
    clock = FakeClock()
    noisy = fake(clock, naive=itertools.cycle([0.001, 0.002, 0.004]))
    result = at_once(fake(clock), noisy, budget_s=1.0)
    assert isinstance(result[1], Sampled)
    assert result[1].stop == "budget"
    assert clock.now == pytest.approx(1.0, abs=0.1)
