"""Alone and in turn, on instruments that are scripts."""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from gemmbench.measure import instrument as child
from gemmbench.measure import sampling
from gemmbench.measure.child import for_threads
from gemmbench.measure.sampling import Metered, Sampled, alone, in_turn
from gemmbench.model.case import Case, Policy
from gemmbench.model.instrument import AskBatch, Batch, Prepare, Prepared
from gemmbench.stats.intervals import Summary, interleaved_ratio
from tests import fake_runs
from tests.fake_instrument import FakeClock, FakeInstrument, HotDevice, HotWatch

POLICY = Policy(budget_s=10, batch_s=0.01)
AHEAD = Prepared(("device", "host"), ahead=("device",))


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
    result = alone(instrument.ready(), "device", POLICY, 10, now=instrument.clock)
    assert (result.size, result.stop, len(result.batches)) == (5, "stable", 10)
    assert result.scopes["kernel"].seconds == (0.002,) * 10
    assert instrument.most_in_flight == 1


def test_alone_the_next_batch_is_asked_for_before_the_last_is_read_and_is_kept() -> None:
    instrument = fake(prepared=AHEAD, naive=0.002)
    result = alone(instrument.ready(), "device", POLICY, 10, now=instrument.clock)
    assert instrument.most_in_flight == 2
    assert len(result.batches) == 11
    stamps = [(batch.begin, batch.end) for batch in result.batches]
    assert all(end == begin for (_, end), (begin, _) in itertools.pairwise(stamps))  # it never waited


@pytest.mark.parametrize(("clock", "seconds"), [("host", 0.002), ("device", 0.15)])
def test_what_is_no_queue_or_lasts_long_is_not_asked_ahead(clock: str, seconds: float) -> None:
    instrument = fake(prepared=AHEAD, naive=seconds)
    alone(instrument.ready(), clock, POLICY, 10, now=instrument.clock)
    assert instrument.most_in_flight == 1


class Launching(FakeInstrument):
    """The host puts a batch into the queue in so many seconds, and stamps its begin before."""

    launch_s = 0.01

    def start(self, handle: int, clock: str, count: int, work: int = 1) -> None:
        self.begins.append(self.clock.now)
        super().start(handle, clock, count, work)
        self.clock.now += self.launch_s

    def finish(self) -> Batch:
        return replace(
            super().finish(), begin=self.begins.popleft(), end=self.clock.now, launch_s=self.launch_s
        )

    def __post_init__(self) -> None:
        super().__post_init__()
        self.begins: deque[float] = deque()


def launching(launch_s: float, seconds: float) -> tuple[Launching, Sampled]:
    """What was sampled of batches of 10 ms."""
    instrument = Launching(seconds={"naive": itertools.repeat(seconds)}, prepared=AHEAD)
    instrument.launch_s = launch_s
    return instrument, alone(instrument.ready(), "device", POLICY, 1, now=instrument.clock)


def test_no_batch_is_asked_ahead_of_one_that_its_launches_fill() -> None:
    """An H200, 64 cubed: wall times of 5, 25, 5 and 12 us a problem, each with launches of the next in it."""
    instrument, sampled = launching(0.01, 0.002)
    assert instrument.most_in_flight == 1
    assert {round((batch.end - batch.begin) * 1e3, 6) for batch in sampled.batches} == {10.0}


def test_a_batch_asked_ahead_began_when_the_one_before_had_ended() -> None:
    """Its wall time was twice its own: it was put into the queue while the other one ran."""
    instrument, sampled = launching(0.001, 0.002)
    assert instrument.most_in_flight == 2
    assert {round(batch.wall_s * 1e3, 6) for batch in sampled.batches[1:]} == {2.0}


def test_batches_that_count_as_one_have_its_span() -> None:
    first = Batch({"kernel": 1.0}, 0, 1, device=(5, 6), launch_s=0.4)
    merged = sampling._mean([first, replace(first, device=(6, 7.5), ahead_s=0.3)])
    assert (merged.device, merged.ahead_s, merged.launch_s) == ((5, 7.5), 0.3, 0.8)


@pytest.mark.parametrize("seconds", [0.002, 0.03])
def test_metered_batches_are_asked_ahead_whatever_came_before(seconds: float) -> None:
    """Of a problem of 30 ms there is a batch of one from the start: the device waited after each."""
    instrument = fake(prepared=AHEAD, naive=seconds)
    with Metered(instrument.ready(), "device") as run:
        for count in (1, 1, 1):
            run(count)
    assert instrument.most_in_flight == 2
    assert not instrument._asked


# --- in turn ------------------------------------------------------------------------------------------------


def ratios(pairs: tuple[Sampled, Sampled]) -> list[float]:
    sides = zip(*(side.batches for side in pairs), strict=True)
    return [first.seconds["kernel"] / second.seconds["kernel"] for first, second in sides]


def ratio(pairs: tuple[Sampled, Sampled]) -> Summary:
    return interleaved_ratio(*(side.scopes["kernel"].seconds for side in pairs))


def order_of(instrument: FakeInstrument) -> list[object]:
    return [entry[1] for entry in instrument.log if entry[0] == "batch"]


def test_pairs_are_taken_in_alternating_order() -> None:
    instrument = fake(naive=0.002, tiled=0.001)
    first, second = instrument.ready(), instrument.ready("tiled")
    result = in_turn(first, second, "device", POLICY, 10, instrument.clock)
    assert order_of(instrument)[-20:] == [1, 0, 0, 1] * 5
    assert ratios(result) == pytest.approx([2.0] * len(ratios(result)))
    assert len(result[0].batches) == len(result[1].batches) == 10
    assert result[0].stop == result[1].stop == "stable"
    assert result[0].size == result[1].size == 4  # 10 ms of a pair of 3 ms


def test_pairs_on_a_device_that_wakes_up_are_no_shorter_than_a_batch() -> None:
    """A first problem took 40 times its time: batches of one launch were timed by the wall clock."""
    woken = itertools.chain([0.04], itertools.repeat(0.001))
    instrument = fake(naive=woken, tiled=0.001)
    result = in_turn(instrument.ready(), instrument.ready("tiled"), "device", POLICY, 10, instrument.clock)
    assert result[0].size == result[1].size == 5


def test_both_are_warmed_up_before_the_pairs() -> None:
    instrument = fake()
    result = in_turn(instrument.ready(), instrument.ready(), "device", POLICY, 10, instrument.clock)
    assert order_of(instrument)[:-20] == [0] * 6 + [1] * 6
    assert result[0].batches[0].begin >= 2 * instrument.watch.warm_s


def test_there_are_six_pairs_whatever_the_budget() -> None:
    instrument = fake(naive=0.5, tiled=1.0)
    result = in_turn(instrument.ready(), instrument.ready("tiled"), "device", POLICY, 0.1, instrument.clock)
    assert (result[0].stop, len(result[0].batches), len(result[1].batches)) == ("budget", 6, 6)


def test_pairs_that_differ_use_the_budget_and_end_in_both_orders() -> None:
    ups = np.random.default_rng(1).uniform(1, 3, 10_000)
    instrument = fake(naive=iter((0.005 * ups).tolist()), tiled=0.005)
    first, second = instrument.ready(), instrument.ready("tiled")
    begin = 2 * instrument.watch.warm_s
    result = in_turn(first, second, "device", POLICY, 1.0, instrument.clock)
    assert result[0].stop == "budget"
    assert len(result[0].batches) % 2 == 0
    assert instrument.clock.now - begin == pytest.approx(1.0, abs=0.1)


def test_the_ratio_does_not_know_who_came_first() -> None:
    """Whoever is second in a pair takes a tenth longer."""
    instrument = fake()
    asked = itertools.count()

    def script(problem_s: float) -> Iterator[float]:
        while True:
            yield problem_s * (1.1 if next(asked) % 2 else 1.0)

    instrument.seconds = {"naive": script(0.003), "tiled": script(0.002)}
    result = in_turn(instrument.ready(), instrument.ready("tiled"), "device", POLICY, 0.5, instrument.clock)
    assert len(set(np.round(ratios(result), 6))) == 2
    assert ratio(result).median == pytest.approx(1.5)
    assert ratio(result).noise < POLICY.precision


def test_under_a_power_limit_each_has_turns_long_enough_for_its_own_clock() -> None:
    """After the other kernel it runs at the other's clock for 0.15 s."""
    instrument = fake()
    instrument.watch = HotWatch(HotDevice(instrument))
    last: list[float] = [0, 0.0]  # who ran last, and since when

    def script(number: int, problem_s: float) -> Iterator[float]:
        while True:
            if last[0] != number:
                last[:] = number, instrument._free
            yield problem_s * (1.2 if instrument._free < last[1] + 0.15 else 1.0)

    instrument.seconds = {"naive": script(0, 0.002), "tiled": script(1, 0.001)}
    result = in_turn(instrument.ready(), instrument.ready("tiled"), "device", POLICY, 0.3, instrument.clock)
    assert result[0].conditions.power_limited
    assert (result[0].stop, len(result[0].batches)) == ("stable", 10)
    for side, seconds in ((result[0], 0.002), (result[1], 0.001)):
        assert side.scopes["kernel"].seconds == pytest.approx([seconds] * 10)
        assert all(batch.end - batch.begin > 0.2 for batch in side.batches)
    assert ratio(result).median == pytest.approx(2)


def test_the_host_clock_has_no_turns() -> None:
    instrument = fake()
    instrument.watch = HotWatch(HotDevice(instrument))
    result = in_turn(instrument.ready(), instrument.ready(), "host", POLICY, 0.3, instrument.clock)
    assert not result[0].conditions.power_limited
    assert all(batch.end - batch.begin < 0.02 for batch in result[0].batches)


def test_two_of_one_process_are_queued_and_two_processes_never_overlap() -> None:
    instrument = fake(prepared=AHEAD)
    in_turn(instrument.ready(), instrument.ready(), "device", POLICY, 10, instrument.clock)
    assert instrument.most_in_flight == 2
    assert not instrument._asked  # what was in flight at the end is not left for the next to read
    clock = FakeClock()
    first, other = fake(clock, AHEAD), fake(clock, AHEAD)
    result = in_turn(first.ready(), other.ready(), "device", POLICY, 10, clock)
    assert first.most_in_flight == other.most_in_flight == 1
    spans = sorted((b.begin, b.end) for b in (*result[0].batches, *result[1].batches))
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(spans))


# --- the child ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("other", [0, 1, 2])
def test_a_batch_is_put_behind_another_in_the_same_queue_alone(other: int) -> None:
    """A library's batch began while the kernel's ran in another queue: both times had some of the other's."""
    order: list[str] = []

    class Device:
        """An executor and its benches; the third's batches are waited for."""

        def __init__(self, number: int) -> None:
            self.number = number
            self.prepared = Prepared(("device",), ahead=() if number == 2 else ("device",))

        def prepare(self, *_: object) -> Device:
            return self

        def start(self, *_: object) -> object:
            order.append(f"start {self.number}")
            return self if self.prepared.ahead else self.finish()

        def done(self) -> bool:
            return not requests

        def finish(self) -> Batch:
            order.append(f"finish {self.number}")
            return Batch({"device": 1.0}, 0.0, 1.0)

    devices = [Device(number) for number in range(3)]
    machine = SimpleNamespace(executor=lambda case, _: devices[int(case.variant)])
    gpu = replace(fake_runs.CPU, type="gpu")
    requests: list[object] = [
        Prepare(number, Case("gemm", 0, str(number), "float", {}), gpu, POLICY) for number in range(3)
    ]
    requests += [AskBatch(number, "device", 1) for number in (0, other)]

    class Script:
        """All requests are there from the start."""

        def wait(self, _: float = 0.0) -> bool:
            return bool(requests)

        def receive(self) -> object:
            if not requests:
                raise EOFError
            return requests.pop(0)

        def send(self, _: object) -> None:
            """Nobody reads it."""

    child.serve(Script(), lambda: machine)  # type: ignore[arg-type]  # all that it asks for
    behind = ["start 0", "start 0", "finish 0", "finish 0"]
    assert order == (["start 0", "finish 0", f"start {other}", f"finish {other}"] if other else behind)


@pytest.mark.parametrize("failure", [None, ValueError("not of protocol 2")])
def test_a_driver_that_hangs_while_it_unloads_keeps_nobody(
    failure: Exception | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """One that failed closed the pipe, and then its driver unloaded: the parent waited for its end."""
    ends: list[int] = []

    def serve(*_: object) -> None:
        if failure:
            raise failure

    for name, instead in (("serve", serve), ("connect", lambda _: None), ("_die_with_parent", lambda: None)):
        monkeypatch.setattr(child, name, instead)
    monkeypatch.setattr("signal.signal", lambda *_: None)
    monkeypatch.setattr("os._exit", ends.append)
    child.serve_parent("3", "nobody:makes")
    assert ends[0] == bool(failure)
    assert ("not of protocol 2" in capsys.readouterr().err) == bool(failure)


@pytest.mark.parametrize("cores", [2, 1])
def test_drivers_pin_their_threads_where_all_cores_are_ours(
    cores: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Both of a driver's threads woke up on one of two cores, and stayed: half the rate for whole rows."""
    monkeypatch.setattr("os.cpu_count", lambda: 2)
    monkeypatch.setattr("os.sched_getaffinity", lambda _: set(range(cores)), raising=False)
    pinned = {"POCL_AFFINITY", "DPCPP_CPU_CU_AFFINITY"} if cores == 2 else set()
    assert for_threads().keys() == {"OPENBLAS_THREAD_TIMEOUT", "KMP_BLOCKTIME"} | pinned
