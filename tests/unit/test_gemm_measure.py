"""One GEMM conducted on an instrument that is a script: the order of requests, and the row."""

from __future__ import annotations

import itertools
import math
import statistics
import time
from collections import deque
from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gemmbench.gemm import measure
from gemmbench.gemm.measure import measure_gemm
from gemmbench.gemm.opencl_bench import GemmBench, QueuedBatch
from gemmbench.gemm.operands import SPLIT
from gemmbench.ladder import BY_NAME
from gemmbench.measure import sampling
from gemmbench.measure.child import Worker
from gemmbench.model.case import Case, Finished, Operands, Policy, Staged
from gemmbench.model.device import DeviceFacts
from gemmbench.model.instrument import Batch, Built, LostError, NotMeasuredError, Prepared, Verified, When
from gemmbench.model.problem import Gemm
from gemmbench.model.row import CYCLE, WHOLE, Check, Energy, Launch, Row
from gemmbench.model.run_file import Run
from gemmbench.stats.rates import versus
from gemmbench.suite import session
from gemmbench.suite.plan import gemm_plan
from gemmbench.views import run_sheets
from tests import fake_runs as fake
from tests.fake_instrument import LIMITED, FakeInstrument, HotDevice, HotWatch
from tests.in_process import NoControl, result_of
from tests.unit.test_plan import DEVICE

POLICY = Policy(budget_s=1.0, batch_s=0.01, min_batches=3)
SMALL, LARGE = Gemm(64, 64, 64), Gemm(1024, 1024, 1024)
WRONG = Check("wrong", {}, ("residual 3.1 times the bound",))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling knows no other clock than that of the instrument that is being tested."""
    for way in ("alone", "in_turn"):
        real = getattr(sampling, way)
        position = {"alone": 0, "in_turn": 0}[way]

        def timed(*arguments: Any, real: Any = real, position: int = position, **_: object) -> object:
            return real(*arguments, now=arguments[position].instrument.clock)

        monkeypatch.setattr(measure, way, timed)


def case(problem: Gemm = SMALL) -> Case:
    return Case("gemm", 0, "naive", "float", {}, problem, "mine")


def run(
    instrument: FakeInstrument, case: Case, policy: Policy = POLICY, stages: list[str] | None = None
) -> Row:
    return result_of(measure_gemm(instrument, case, None, policy), stages)


def asked(instrument: FakeInstrument) -> list[str]:
    """The requests, those that repeat left out."""
    words = [" ".join(map(str, entry[:1] + entry[2:3])) for entry in instrument.log]
    return [word for word, _ in itertools.groupby(words)]


def test_a_small_problem_is_prepared_once_and_verified_before_it_is_timed() -> None:
    instrument = FakeInstrument()
    stages: list[Any] = []
    row = run(instrument, case(), stages=stages)
    assert asked(instrument) == [
        *("prepare naive", "verify exact", "verify before", "batch device", "batch host", "verify after"),
        "release",
    ]
    assert stages == ["building", "verifying", "timing device", "timing host", "verifying"]
    assert (row.status, row.check.verdict, set(row.samples)) == ("ok", "ok", {"kernel", "device", "host"})
    assert row.key == case().key


def test_a_large_problem_is_predicted_from_a_trial_that_was_exact() -> None:
    instrument = FakeInstrument(seconds={"naive": itertools.repeat(0.001)})
    row = run(instrument, case(LARGE), replace(POLICY, cold=True))
    assert row.status == "ok"
    prepared = [entry[4] for entry in instrument.log if entry[0] == "prepare"]
    assert prepared == [replace(LARGE, m=256, n=256, k=256), None]
    assert asked(instrument)[:7] == [
        *("prepare naive", "verify exact", "batch device", "release"),
        *("prepare naive", "verify exact", "verify before"),
    ]


def test_what_cannot_finish_is_skipped_and_nothing_is_left_behind() -> None:
    """64 times 0.1 s."""
    instrument = FakeInstrument(seconds={"naive": itertools.repeat(0.1)})
    with pytest.raises(NotMeasuredError, match=r"takes about 6\.40 s; --budget 7 runs it") as caught:
        run(instrument, case(LARGE))
    assert caught.value.status == "skipped"
    assert [entry[0] for entry in instrument.log].count("prepare") == 1
    assert instrument.log[-1] == ("release", 0)
    assert run(instrument, case(LARGE), replace(POLICY, budget_s=7.0)).status == "ok"


@pytest.mark.parametrize(
    ("edge", "seconds", "is_skipped"),
    [
        (512, 0.2, False),  # 8 times the work: 1.6 s
        (512, 0.3, True),
        (896, 1.608, True),  # 1.5 times the work
    ],
)
def test_what_the_run_has_measured_of_a_kernel_needs_no_trial(
    edge: int, seconds: float, is_skipped: bool
) -> None:
    instrument = FakeInstrument()
    known = replace(case(LARGE), measured=(Gemm(edge, edge, edge), seconds))
    if is_skipped:
        with pytest.raises(NotMeasuredError, match=r"takes about 2\.40 s") as caught:
            run(instrument, known)
        assert caught.value.needs_s == pytest.approx(2.4, rel=1e-3)
    else:
        assert run(instrument, known).status == "ok"
    assert [entry[4] for entry in instrument.log if entry[0] == "prepare"] == [None] * (not is_skipped)


@pytest.mark.parametrize(
    ("problem", "measured", "trials"),
    [
        (Gemm(1024, 1024, 1024), (Gemm(16, 16, 16), 4e-5), [256]),  # 10.5 s by flops alone
        (Gemm(16384, 16384, 16384), None, [256, 1024]),  # 16 s by a trial that a GPU does not notice
        (Gemm(256, 256, 256, batch=40_000), None, [256]),  # no larger trial is possible: 2.4 s
    ],
)
def test_a_small_problem_alone_does_not_refuse_one_that_is_far_larger(
    problem: Gemm, measured: tuple[Gemm, float] | None, trials: list[int]
) -> None:
    instrument = FakeInstrument(seconds={"naive": itertools.repeat(6e-5)})
    known = replace(case(problem), measured=measured)
    if problem.batch > 1:
        with pytest.raises(NotMeasuredError, match=r"takes about 2\.40 s"):
            run(instrument, known)
    else:
        assert run(instrument, known).status == "ok"
    prepared: list[Any] = [entry[4] for entry in instrument.log if entry[0] == "prepare" and entry[4]]
    assert [trial.m for trial in prepared] == trials


class Stamped(FakeInstrument):
    """The verified launch takes so long."""

    running_s = 0.0

    def verify(self, handle: int, when: When) -> Verified:
        return replace(super().verify(handle, when), launches=(Launch("multiply", 0, 0, self.running_s),))


@pytest.mark.parametrize(
    ("name", "seconds"), [("naive", 0.01), ("naive", 0.3), ("image-4x8", 0.3), ("naive", 2.1)]
)
def test_the_launch_that_was_verified_decides_what_is_timed(name: str, seconds: float) -> None:
    """Host-scope batches of long problems give the device's scopes too; longer ones are over budget.

    Not those of a kernel with an image: the host's upload fills it, so that a launch is missing.
    """
    instrument = Stamped()
    instrument.running_s = seconds
    stages: list[Any] = []
    if seconds > 2:
        with pytest.raises(NotMeasuredError, match=r"takes about 2\.10 s"):
            run(instrument, case())
        assert instrument.log[-1] == ("release", 0)
    else:
        run(instrument, replace(case(), variant=name), stages=stages)
        apart = 2 * POLICY.min_batches * seconds <= POLICY.budget_s or name == "image-4x8"
        assert ("timing device" in stages, "timing host" in stages) == (apart, True)


def test_below_5_ms_every_clock_is_timed_however_small_the_budget() -> None:
    """Because the host clock reads no events there."""
    instrument = Stamped()
    instrument.running_s = 0.004
    stages: list[Any] = []
    run(instrument, case(), replace(POLICY, budget_s=0.01), stages=stages)
    assert "timing device" in stages


def test_a_slow_row_has_three_batches_of_each_scope_however_small_its_budget() -> None:
    instrument = FakeInstrument(seconds={"naive": itertools.repeat(0.4)})
    row = run(instrument, case())
    assert {name: len(scope.seconds) for name, scope in row.samples.items()} == dict.fromkeys(
        ("kernel", "device", "host"), 3
    )


@pytest.mark.parametrize("when", ["exact", "before"])
def test_a_wrong_kernel_is_not_timed(when: str) -> None:
    instrument = FakeInstrument(verdicts={when: WRONG})
    row = run(instrument, case())
    assert (row.status, row.reason, row.samples) == ("wrong", WRONG.reasons[0], {})
    assert instrument.log[-1] == ("release", 0)
    assert not any(entry[0] == "batch" for entry in instrument.log)


def test_a_kernel_that_is_wrong_after_the_last_batch_has_no_rate() -> None:
    instrument = FakeInstrument(verdicts={"after": WRONG})
    row = run(instrument, case())
    assert (row.status, row.reason, row.samples) == ("wrong", WRONG.reasons[0], {})
    assert (row.check.verdict, row.check_after) == ("ok", WRONG)
    assert instrument.log[-1] == ("release", 0)


def test_both_interleaved_kernels_are_verified_after_the_last_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: 0.1)  # the present one first
    for is_former in (False, True):
        instrument = WrongAfter(int(is_former))
        if is_former:
            with pytest.raises(NotMeasuredError, match=r"its kernel in the other folder: residual 3\.1"):
                run(instrument, OLD)
        else:
            row = run(instrument, OLD)
            assert (row.status, row.samples, row.former) == ("wrong", {}, None)


class WrongAfter(FakeInstrument):
    """One of its handles gives a wrong answer after the last batch."""

    def __init__(self, wrong: int) -> None:
        super().__init__(prepared=Prepared(("device", "host"), built=Built(source="old")))
        self._wrong = wrong

    def verify(self, handle: int, when: When) -> Verified:
        super().verify(handle, when)
        return Verified(WRONG if (handle, when) == (self._wrong, "after") else Check("ok"))


def test_an_empty_product_is_verified_and_not_timed() -> None:
    instrument = FakeInstrument()
    row = run(instrument, case(Gemm(8, 8, 0)))
    assert (row.status, row.samples) == ("ok", {})
    assert row.notes == ("nothing to time: the product has no terms",)
    assert instrument.log[-1] == ("release", 0)


def test_the_host_alone_has_the_whole_budget() -> None:
    seconds = itertools.cycle([0.01, 0.024, 0.016, 0.04, 0.013, 0.03, 0.02])
    instrument = FakeInstrument(seconds={"naive": seconds}, prepared=Prepared(("host",)))
    row = run(instrument, case())
    assert row.samples["host"].stop == "budget"
    assert instrument.clock.now == pytest.approx(1.0, abs=0.1)


class Stretched(FakeInstrument):
    """Events say so many times what the wall clock does; a launch costs so many seconds."""

    stretch = 1.0
    launch_s = 10e-6

    def finish(self) -> Batch:
        batch = super().finish()
        if "kernel" not in batch.seconds:
            return batch
        seconds = {name: value * self.stretch for name, value in batch.seconds.items()}
        return replace(batch, seconds=seconds, launch_s=self.launch_s * batch.count)


def test_a_trial_counts_by_its_events_because_a_gpu_that_wakes_up_delays_them() -> None:
    """64 times 0.1 s by the wall clock, and 64 times 0.01 s by events."""
    instrument = Stretched(seconds={"naive": itertools.repeat(0.1)})
    instrument.stretch = 0.1
    assert run(instrument, case(LARGE)).status == "ok"


@pytest.mark.parametrize(
    ("wall_s", "stretch"),
    [
        *((0.005, 0.01), (0.005, 0.52), (0.0009, 0.01), (0.0009, 0.52), (0.0001, 0.01)),
        *((0.005, 1.9), (0.0009, 1.9), (0.0001, 1.9), (0.0001, 100.0)),
        (1e-5, 6e-07),  # as Mesa's rusticl says; launches may have cost it all
    ],
)
def test_events_that_contradict_the_wall_clock_are_not_believed(wall_s: float, stretch: float) -> None:
    instrument = Stretched(seconds={"naive": itertools.repeat(wall_s)})
    instrument.stretch = stretch
    row = run(instrument, case())
    assert row.samples["kernel"].seconds[0] == pytest.approx(wall_s)
    assert row.samples["kernel"] == row.samples["device"]
    (note,) = row.notes
    assert (
        note == f"events say {stretch:.2g} times the wall clock: kernel and device scope are wall-clock times"
    )


@pytest.mark.parametrize(("wall_s", "stretch"), [(0.005, 0.99), (0.0009, 0.95), (1.2e-5, 0.2), (1e-4, 0.85)])
def test_what_launches_cost_is_no_contradiction(wall_s: float, stretch: float) -> None:
    instrument = Stretched(seconds={"naive": itertools.repeat(wall_s)})
    instrument.stretch = stretch
    row = run(instrument, case())
    assert row.samples["kernel"].seconds[0] == pytest.approx(wall_s * stretch)
    assert row.notes == ()


class Launched(FakeInstrument):
    """Launches take the host a share of a batch, events fill a share, the device's clock has another pace."""

    share = 0.49
    pace = 1.0
    filled = 1.0

    def start(self, handle: int, clock: str, count: int, work: int = 1) -> None:
        self.begins.append(self.clock.now)
        super().start(handle, clock, count, work)

    def finish(self) -> Batch:
        batch, begin = super().finish(), self.begins.popleft()
        if "kernel" not in batch.seconds:
            return batch
        wall_s = batch.end - batch.begin
        seconds = {name: value * self.pace * self.filled for name, value in batch.seconds.items()}
        span = (batch.begin * self.pace, batch.end * self.pace)
        return replace(batch, seconds=seconds, begin=begin, device=span, launch_s=self.share * wall_s)

    def __post_init__(self) -> None:
        super().__post_init__()
        self.begins: deque[float] = deque()


@pytest.mark.parametrize(
    ("share", "pace", "filled", "is_believed"),
    [(0.49, 0.5, 1.0, False), (0.49, 1.0, 0.6, True), (0.3, 1.0, 0.55, False), (0.49, 0.95, 1.0, True)],
)
def test_launches_that_were_made_while_another_batch_ran_excuse_no_slow_clock(
    share: float, pace: float, filled: float, is_believed: bool
) -> None:
    """They leave gaps between events at most, and the device's clock has those."""
    prepared = Prepared(("device", "host"), ahead=("device",))
    instrument = Launched(seconds={"naive": itertools.repeat(1e-4)}, prepared=prepared)
    instrument.share, instrument.pace, instrument.filled = share, pace, filled
    row = run(instrument, case())
    assert instrument.most_in_flight == 2
    assert bool(row.notes) != is_believed
    believed_s = 1e-4 * (pace * filled if is_believed else 1)
    assert statistics.median(row.samples["kernel"].seconds) == pytest.approx(believed_s, rel=0.01)


# --- in turn with a former kernel ---------------------------------------------------------------------------

OLD = replace(case(), partner=replace(case(), kernels="before"))


def paired(**scripts: float) -> FakeInstrument:
    seconds: dict[str, Iterable[float]]
    seconds = {name.replace("_", " "): itertools.repeat(value) for name, value in scripts.items()}
    return FakeInstrument(seconds=seconds, prepared=Prepared(("device", "host"), built=Built(source="old")))


def test_two_versions_of_gemmbench_are_two_interleaved_instruments() -> None:
    """A checkout's kernel runs in a process of its own, on operands of its own, with its own presets."""
    here = paired(naive=0.002)
    there = FakeInstrument(
        here.clock, {"naive": itertools.repeat(0.001)}, replace(here.prepared, built=Built(source="old"))
    )
    here.other = there
    row = run(here, replace(OLD, partner=replace(case(), kernels="before", parameters={"WX": 8})))
    assert row.former.source == "old"
    for name in ("device", "host"):
        assert row.samples[name].seconds == pytest.approx(len(row.samples[name].seconds) * (0.002,))
        assert set(row.former.samples[name].seconds) == {0.001}
    assert [entry[3] for entry in there.log if entry[0] == "prepare"] == [None]  # shares nobody's operands


@pytest.mark.parametrize("draw", [0.1, 0.9])
def test_the_two_share_operands_whichever_is_first(draw: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: draw)
    instrument = paired(naive=0.002, former_naive=0.001)
    row = run(instrument, OLD, replace(POLICY, budget_s=3.0))
    assert [entry[3] for entry in instrument.log if entry[0] == "prepare"] == [None, 0]
    assert row.former.source == "old"
    for name in ("kernel", "device", "host"):
        assert row.samples[name].seconds == pytest.approx(len(row.samples[name].seconds) * (0.002,))
        assert set(row.former.samples[name].seconds) == {0.001}
        assert len(row.samples[name].seconds) == len(row.former.samples[name].seconds) >= 40
    assert {entry[:2] for entry in instrument.log[-2:]} == {("release", 0), ("release", 1)}


@pytest.mark.parametrize("draw", [0.1, 0.9])
@pytest.mark.parametrize("is_former", [False, True])
def test_a_death_is_charged_to_the_kernel_that_was_called(
    draw: float, is_former: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: draw)
    instrument = paired()
    error = LostError("crashed", "killed by SIGSEGV")
    error.handle = int(is_former) if draw < 0.5 else int(not is_former)  # in the order of preparing
    instrument.faults[7] = error
    with pytest.raises(NotMeasuredError) as caught:
        run(instrument, OLD)
    if is_former:
        assert caught.value.status == "unsupported"
        assert caught.value.reason == "its kernel in the other folder: crashed: killed by SIGSEGV"
    else:
        assert (caught.value.status, caught.value.reason) == ("crashed", "killed by SIGSEGV")


# --- ceilings -----------------------------------------------------------------------------------------------

H200 = replace(DEVICE, type="gpu", compute_capability=(9, 0), compute_units=132, clock_mhz=1980)


def beside(flops_per_second: float, case: Case, device: DeviceFacts = DEVICE) -> Row:
    """The row of a kernel that is so fast."""
    seconds = LARGE.flops / flops_per_second
    instrument = FakeInstrument(seconds={case.variant: itertools.repeat(seconds)})
    return result_of(measure_gemm(instrument, replace(case, problem=LARGE), device, POLICY))


def test_a_kernel_that_does_nothing_the_second_time_is_wrong_by_its_ceiling() -> None:
    """Attack 3: 46 TFLOPS on two cores were ok, and the measured peak was dropped."""
    row = beside(46e12, case())
    assert (row.status, row.check.verdict) == ("wrong", "wrong")
    assert "46.0 TFLOPS is above the theoretical peak of 896 GFLOPS" in row.reason
    assert row.samples  # what was measured stays to be looked at
    assert beside(800e9, case()).status == "ok"


def test_a_kernel_is_compared_with_the_theoretical_peak_of_its_units() -> None:
    plain, matrix = (
        replace(case(), dtype=dtype, ran_on=cast(Any, units))
        for dtype, units in (("double", "device"), ("double", "matrix"))
    )
    assert beside(43e12, plain, H200).status == "wrong"  # 33.5 at the listed clock, 25 % more allowed
    assert beside(36e12, matrix, H200).status == "ok"  # 66.9
    assert beside(39.5e12, plain, H200).notes == ()  # 18 % above: OpenCL's clock is not the maximum


def bench_runtime(kind: str, origin_ns: int = 0) -> SimpleNamespace:
    facts = SimpleNamespace(type=kind, timer_resolution_ns=1)
    return SimpleNamespace(launch_s=1e-6, facts=facts, origin_ns=origin_ns)


def test_event_times_are_subtracted_as_integers() -> None:
    """NVIDIA's stamps are Unix time in ns: as seconds in a double they have steps of 238 ns."""
    now = 1_795_910_400_000_000_123

    def event(start: int, end: int) -> SimpleNamespace:
        return SimpleNamespace(profile=SimpleNamespace(start=now + start, end=now + end), wait=lambda: None)

    bench = SimpleNamespace(runtime=bench_runtime("gpu", now - 1000), timed=[])
    events = [("multiply", event(0, 4100)), ("multiply", event(5200, 9301))]
    batch = QueuedBatch(cast(GemmBench, bench), events, 2, 0.0).finish()
    assert batch.seconds["chain"] == pytest.approx(9301e-9 / 2, rel=1e-9)
    assert batch.device == pytest.approx((1000e-9, 10_301e-9), rel=1e-9)


def test_a_batch_on_a_gpu_also_has_the_time_from_its_first_start_to_its_last_end() -> None:
    """Kernels of 10 us, 4 us apart: a library's graph has such gaps in it, and is held against the chain."""

    def event(start: int) -> SimpleNamespace:
        profile = SimpleNamespace(start=start, end=start + 10_000)
        return SimpleNamespace(profile=profile, wait=lambda: None)

    def seconds(kind: str) -> Mapping[str, float]:
        runtime = bench_runtime(kind)
        bench = SimpleNamespace(runtime=runtime, timed=[])
        events = [("multiply", event(14_000 * number)) for number in range(100)]
        return QueuedBatch(cast(GemmBench, bench), events, 100, 0.0).finish().seconds

    assert seconds("gpu") == pytest.approx({"kernel": 1e-5, "device": 1e-5, "chain": 1.396e-5})
    assert seconds("cpu") == pytest.approx({"kernel": 1e-5, "device": 1e-5})


def test_a_silent_chain_is_the_time_of_the_device_and_launches_are_timed_by_the_last() -> None:
    """Kernels of 10 us, 14 us with stamps; the first and the last two of 100 problems have them."""

    def event(start: int) -> SimpleNamespace:
        profile = SimpleNamespace(start=start, end=start + (14_000 if start else 90_000))
        return SimpleNamespace(profile=profile, wait=lambda: None)

    runtime = bench_runtime("gpu")
    bench = SimpleNamespace(runtime=runtime, timed=[])
    events = [("multiply", event(start)) for start in (0, 972_000, 986_000)]
    wait = SimpleNamespace(profile=SimpleNamespace(start=0, end=4_000_000_000))
    began = time.perf_counter()
    batch = QueuedBatch(cast(GemmBench, bench), events, 100, began, silent=97, wait=wait).finish()
    assert batch.seconds == pytest.approx({"kernel": 1e-5, "device": 1e-5, "chain": 1e-5})
    assert bench.timed == [pytest.approx([14e-6])]
    assert batch.launch_s == pytest.approx(4, rel=0.1)  # what kept the device busy meanwhile


@pytest.mark.parametrize(
    ("kind", "count", "kernel_s"), [("cpu", 4, 1e-5), ("cpu", 2, 5e-5), ("gpu", 4, 3e-5)]
)
def test_the_first_of_several_problems_on_a_cpu_is_not_timed(kind: str, count: int, kernel_s: float) -> None:
    def event(number: int) -> SimpleNamespace:
        profile = SimpleNamespace(start=0, end=10_000 if number else 90_000)
        return SimpleNamespace(profile=profile, wait=lambda: None)

    bench = SimpleNamespace(runtime=bench_runtime(kind), timed=[])
    events = [("multiply", event(number)) for number in range(count)]
    batch = QueuedBatch(cast(GemmBench, bench), events, count, 0.0).finish()
    assert batch.seconds["kernel"] == pytest.approx(kernel_s)


def test_a_batch_is_shared_among_the_launches_of_a_problem() -> None:
    def event(ns: int) -> SimpleNamespace:
        return SimpleNamespace(profile=SimpleNamespace(start=0, end=ns), wait=lambda: None)

    runtime = bench_runtime("cpu")
    bench = SimpleNamespace(runtime=runtime, timed=[])
    problems = [("pad", event(10)), ("multiply", event(970)), ("unpad", event(20))]
    batch = QueuedBatch(cast(GemmBench, bench), [*problems, *problems], 2, 0.0).finish()
    assert batch.seconds == pytest.approx({"kernel": 970e-9, "device": 1e-6})
    assert bench.timed == [pytest.approx([10e-9, 970e-9, 20e-9])]


# --- in turn with another kernel ----------------------------------------------------------------------------


@pytest.mark.parametrize("is_beside", [False, True])
@pytest.mark.parametrize("energy", [False, True])
def test_a_map_cycle_is_the_last_before_the_second_verification(is_beside: bool, energy: bool) -> None:
    prepared = Prepared(("device", "host"), built=Built(source="old"), parts=True, cycle=True)
    instrument = Cycling(prepared=prepared)
    stages: list[Any] = []
    row = run(instrument, against() if is_beside else case(), replace(POLICY, energy=energy), stages)
    assert asked(instrument)[asked(instrument).index("batch parts") :][:3] == [
        *("batch parts", "batch cycle", "verify after")
    ]
    last = ["timing the host scope's parts", "timing the map cycle", "verifying"]
    assert stages[-4:] == ["measuring energy" if energy else stages[-4], *last]
    assert ("measuring energy" in stages) == energy
    assert (row.status, row.reason, row.samples, row.former) == ("wrong", WRONG.reasons[0], {}, None)
    assert (row.parts, row.cycle, row.energy) == ({}, {}, Energy())


@pytest.mark.parametrize(("problem_s", "counts"), [(0.001, [3]), (0.4, [1]), (1.1, [1])])
def test_three_problems_are_timed_by_part_if_they_fit_in_a_tenth_of_the_budget(
    problem_s: float, counts: list[int]
) -> None:
    seconds: dict[str, Iterable[float]] = {"naive": itertools.repeat(problem_s)}
    instrument = Cycling(seconds=seconds, prepared=Prepared(("device", "host"), parts=True))
    run(instrument, case())
    assert [entry[3] for entry in instrument.log if entry[0] == "batch" and entry[2] == "parts"] == counts


def test_parts_that_a_batch_has_are_not_timed_again() -> None:
    class Split(FakeInstrument):
        def finish(self) -> Batch:
            return replace(super().finish(), each={WHOLE: (0.04,), "kernel": (0.03,)})

    instrument = Split(prepared=Prepared(("device", "host"), parts=True))
    assert run(instrument, case()).parts == {WHOLE: (0.04,), "kernel": (0.03,)}
    assert "batch parts" not in asked(instrument)


def test_parts_fit_in_a_budget_without_an_end() -> None:
    instrument = Cycling(prepared=Prepared(("device", "host"), parts=True))
    assert run(instrument, case(), replace(POLICY, budget_s=math.inf, precision=math.inf)).parts


class Cycling(FakeInstrument):
    """Times parts; what a map cycle leaves is wrong."""

    def finish(self) -> Batch:
        clock = self._asked[0].clock
        self._is_cycle = clock == CYCLE
        batch = super().finish()
        return replace(batch, each={WHOLE: (0.001,), "kernel": (0.001,)}) if clock in SPLIT else batch

    def verify(self, handle: int, when: When) -> Verified:
        super().verify(handle, when)
        return Verified(WRONG if when == "after" and self._is_cycle else Check("ok"))


def against(variant: str = "tiled", problem: Gemm = SMALL, device: int = 0) -> Case:
    other = replace(case(problem), variant=variant, parameters={"TS": 32}, device=device)
    return replace(case(problem), partner=other)


@pytest.mark.parametrize("draw", [0.1, 0.9])
def test_a_kernels_batches_alternate_with_another_ones_on_the_same_operands(
    draw: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("random.random", lambda: draw)
    instrument = paired(naive=0.002, tiled=0.001)
    row = run(instrument, against(), replace(POLICY, budget_s=3.0))
    assert [entry[3] for entry in instrument.log if entry[0] == "prepare"] == [None, 0]
    assert (row.former.variant, row.former.parameters) == ("tiled", {"TS": 32})
    assert set(row.samples["kernel"].seconds) == {0.002}
    assert set(row.former.samples["kernel"].seconds) == {0.001}
    pairs = len(row.samples["kernel"].seconds)
    assert pairs == len(row.former.samples["kernel"].seconds) >= 40
    own, other = (0, 1) if draw < 0.5 else (1, 0)
    batches = [entry[1] for entry in instrument.log if entry[0] == "batch" and entry[2] == "device"]
    assert batches[-2 - 2 * pairs : -2] == [other, own, own, other] * (pairs // 2)
    ratio = versus(row)
    assert (ratio.median, ratio.variant, ratio.scope) == (pytest.approx(0.5), "tiled", "kernel")
    assert (ratio.low, ratio.high) == (pytest.approx(0.5), pytest.approx(0.5))


def test_a_kernel_with_an_image_has_operands_of_its_own() -> None:
    """Another kernel's host scope would have to fill B, which is in the image."""
    instrument = paired(image_4x8=0.001)
    run(instrument, against("image-4x8"), replace(POLICY, budget_s=3.0))
    assert [entry[3] for entry in instrument.log if entry[0] == "prepare"] == [None, None]


class WithHost(FakeInstrument):
    """numpy beside a kernel has the host scope alone."""

    def prepare(self, case: Case, *arguments: Any, **more: Any) -> Any:
        handle = super().prepare(case, *arguments, **more)
        return replace(handle, prepared=Prepared(("host",))) if case.variant == "numpy" else handle


def test_the_hosts_blas_takes_turns_in_the_scopes_that_it_has() -> None:
    instrument = WithHost(seconds={"naive": itertools.repeat(0.002), "numpy": itertools.repeat(0.001)})
    row = run(instrument, against("numpy", device=-1), replace(POLICY, budget_s=3.0))
    assert set(row.samples) == {"kernel", "device", "host"}
    assert set(row.former.samples) == {"host"}
    ratio = versus(row)
    assert (ratio.median, ratio.scope) == (pytest.approx(0.5), "host")
    # On a CPU both have their operands in the same memory: its device scope is the wall clock's, as numpy's.
    instrument = WithHost(seconds={"naive": itertools.repeat(0.002), "numpy": itertools.repeat(0.001)})
    cpu, policy = replace(DEVICE, type="cpu"), replace(POLICY, budget_s=3.0)
    turns = measure_gemm(instrument, against("numpy", device=-1), cpu, policy)
    row = result_of(turns, None)
    assert set(row.former.samples) > {"device", "host"}
    assert (ratio := versus(row, "device")) is not None
    assert (ratio.median, ratio.scope) == (pytest.approx(0.5), "device")
    # The time is for the pairs: a tenth of it had gone to them, and ratios had no interval.
    slow = WithHost(seconds={"naive": itertools.repeat(0.05), "numpy": itertools.repeat(0.05)})
    samples = run(slow, against("numpy", device=-1), replace(POLICY, budget_s=3.0)).samples
    assert len(samples["host"].seconds) > 2 * len(samples["device"].seconds)


def test_a_gpu_kernel_with_the_host_blas_is_in_a_steady_state() -> None:
    """Its device scope was sampled from the first batch on, on a cool device."""

    instrument = WithHost()
    hot = HotDevice(instrument)
    instrument.watch = HotWatch(hot)
    instrument.seconds = {"naive": hot.seconds(0.002), "numpy": itertools.repeat(0.001)}
    row = run(instrument, against("numpy", device=-1), replace(POLICY, budget_s=3.0))
    assert set(row.samples["kernel"].seconds) == {0.002 * LIMITED}


def test_the_result_that_is_written_is_the_cases_own() -> None:
    """The other kernel was verified last, and wrote its own over it."""
    own = Operands(out="c.npy")
    for wanted in (against(), OLD):
        assert wanted.partner is not None
        wanted = replace(wanted, partner=replace(wanted.partner, operands=own))
        instrument = paired()
        run(instrument, replace(wanted, operands=own))
        written = [case.operands.out for case, _ in instrument._cases.values()]
        assert sorted(map(str, written)) == ["None", "c.npy"]


def test_interleaved_the_c_that_is_checked_is_the_kernels() -> None:
    """They share it: who is verified after the last batch has just written it."""
    for wanted in (against(), OLD):
        instrument = paired()
        run(instrument, wanted)
        after = [number for number, entry in enumerate(instrument.log) if entry[0::2] == ("verify", "after")]
        for number in after[:2]:
            batch = ("batch", instrument.log[number][1], "device", 1, 1)
            assert instrument.log[number - 1] == batch


@pytest.mark.parametrize("what", ["wrong", "dead", "slow"])
def test_where_the_other_kernel_cannot_run_a_case_is_measured_alone_and_says_so(what: str) -> None:
    class Troubled(FakeInstrument):
        def verify(self, handle: int, when: str) -> Verified:
            is_other = self._cases[handle][0].variant == "tiled"
            if is_other and what == "dead":
                raise LostError("crashed", "killed by SIGSEGV")
            return Verified(WRONG if is_other and what == "wrong" else Check("ok"))

    other = {"tiled": itertools.repeat(0.5 if what == "slow" else 0.001)}
    instrument = Troubled(seconds={"naive": itertools.repeat(0.001), **other})
    row = run(instrument, against(problem=LARGE))
    reasons = {
        "wrong": "unsupported: residual 3.1 times the bound",
        "dead": "crashed: killed by SIGSEGV",
        "slow": "skipped: one problem takes about 32.0 s; --budget 32 runs it",
    }
    if what == "wrong":  # found in the trial, whose exact test it failed
        reasons["wrong"] = "wrong: residual 3.1 times the bound"
    assert row.notes[0] == f"not interleaved with tiled: {reasons[what]}"
    assert row.status == "ok"
    assert set(row.samples) == {"kernel", "device", "host"}
    assert row.former is None
    prepared = {entry[1] for entry in instrument.log if entry[0] == "prepare"}
    assert prepared == {entry[1] for entry in instrument.log if entry[0] == "release"}


def test_a_wrong_kernel_is_wrong_with_another_too() -> None:
    class Troubled(FakeInstrument):
        def verify(self, handle: int, when: str) -> Verified:
            return Verified(WRONG if self._cases[handle][0].variant == "naive" else Check("ok"))

    row = run(Troubled(), against())
    assert (row.status, row.samples) == ("wrong", {})


class FakeWorker(NoControl):
    """What a session asks of a child process, answered by an instrument here."""

    def __init__(self, instrument: FakeInstrument) -> None:
        self._instrument = instrument

    def run(self, case: Case, device: DeviceFacts | None, policy: Policy) -> Generator[Staged, None, Row]:
        return (yield from measure_gemm(self._instrument, case, device, policy))


def test_a_fake_instrument_runs_a_sweep_without_any_driver() -> None:
    problems = [Gemm(size, size, size) for size in (64, 128, 256)]
    plan = gemm_plan([DEVICE], [BY_NAME[name] for name in ("naive", "tiled", "numpy")], problems)
    instrument = FakeInstrument(seconds={"tiled": itertools.repeat(0.0005)})
    events = session.run_plan(plan, [DEVICE], POLICY, cast(Worker, FakeWorker(instrument)))
    rows = tuple(event.row for event in events if isinstance(event, Finished))
    assert [row.status for row in rows] == ["ok"] * 9
    (sheet,) = run_sheets(Run(fake.header(("square",)), rows))
    table = {line[0].plain: line[3] for line in sheet.rows}
    assert table["tiled"].best
    assert not table["naive"].best
