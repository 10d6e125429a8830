"""One GEMM conducted on an instrument that is a script: the order of requests, and the row."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from gemmbench.gemm import measure
from gemmbench.gemm.measure import measured
from gemmbench.gemm.opencl_bench import Bench, Queued
from gemmbench.measure import sampling
from gemmbench.model.case import Case, Policy
from gemmbench.model.instrument import Built, LostError, NotMeasuredError, Prepared
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Check, Row
from tests.fake_instrument import FakeInstrument
from tests.in_process import result_of

POLICY = Policy(budget_s=1.0, settle_s=0.0, batch_s=0.01, min_batches=3)
SMALL, LARGE = Gemm(64, 64, 64), Gemm(1024, 1024, 1024)
WRONG = Check("wrong", {}, ("residual 3.1 times the bound",))


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sampling knows no other clock than that of the instrument that is being tested."""
    for way in ("alone", "in_turn"):
        real = getattr(sampling, way)
        position = {"alone": 0, "in_turn": 0}[way]

        def timed(*arguments: object, real: object = real, position: int = position) -> object:
            return real(*arguments, now=arguments[position].instrument.clock)  # type: ignore[attr-defined, operator]

        monkeypatch.setattr(measure, way, timed)


def case(problem: Gemm = SMALL, former: str = "") -> Case:
    return Case("gemm", 0, "naive", "float", {}, problem, "mine", former=former)


def run(
    instrument: FakeInstrument, case: Case, policy: Policy = POLICY, stages: list[str] | None = None
) -> Row:
    return result_of(measured(instrument, case, None, policy), stages)


def asked(instrument: FakeInstrument) -> list[str]:
    """The requests, those that repeat left out."""
    words = [" ".join(map(str, entry[:1] + entry[2:3])) for entry in instrument.log]
    return [word for word, _ in itertools.groupby(words)]


def test_a_small_problem_is_prepared_once_and_verified_before_it_is_timed() -> None:
    instrument, stages = FakeInstrument(), []
    row = run(instrument, case(), stages=stages)
    assert asked(instrument) == [
        *("prepare naive", "verify exact", "verify before", "batch device", "batch host", "release")
    ]
    assert stages == ["building", "verifying", "timing device", "timing host"]
    assert (row.status, row.check.verdict, set(row.samples)) == ("ok", "ok", {"kernel", "device", "host"})
    assert row.key == case().key


def test_a_large_problem_is_predicted_from_a_trial_that_was_exact() -> None:
    instrument = FakeInstrument(seconds={"naive": itertools.repeat(0.001)})
    row = run(instrument, case(LARGE), replace(POLICY, cold=True))
    assert row.status == "ok"
    prepared = [entry[4] for entry in instrument.log if entry[0] == "prepare"]
    assert prepared == [replace(LARGE, m=256, n=256, k=256), None]
    assert asked(instrument)[:6] == [
        *("prepare naive", "verify exact", "batch device", "release", "prepare naive", "verify before")
    ]


def test_what_cannot_finish_is_skipped_and_nothing_is_left_behind() -> None:
    instrument = FakeInstrument(seconds={"naive": itertools.repeat(0.1)})
    with pytest.raises(NotMeasuredError, match="would take about") as caught:
        run(instrument, case(LARGE))
    assert caught.value.status == "skipped"
    assert len([entry for entry in instrument.log if entry[0] == "prepare"]) == 1
    assert instrument.log[-1] == ("release", 0)


@pytest.mark.parametrize("when", ["exact", "before"])
def test_a_wrong_kernel_is_not_timed(when: str) -> None:
    instrument = FakeInstrument(verdicts={when: WRONG})
    row = run(instrument, case())
    assert (row.status, row.reason, row.samples) == ("wrong", WRONG.reasons[0], {})
    assert instrument.log[-1] == ("release", 0)
    assert not any(entry[0] == "batch" for entry in instrument.log)


def test_an_empty_product_is_verified_and_not_timed() -> None:
    instrument = FakeInstrument()
    row = run(instrument, case(Gemm(8, 8, 0)))
    assert (row.status, row.samples) == ("ok", {})
    assert row.notes == ("nothing to time: the product has no terms",)
    assert instrument.log[-1] == ("release", 0)


def test_the_host_alone_has_the_whole_budget() -> None:
    seconds = itertools.cycle([0.01, 0.02, 0.04])
    instrument = FakeInstrument(seconds={"naive": seconds}, prepared=Prepared(("host",)))
    row = run(instrument, case())
    assert row.samples["host"].stop == "budget"
    assert instrument.clock.now == pytest.approx(1.0, abs=0.05)


def test_events_that_contradict_the_wall_clock_are_not_believed() -> None:
    class Lying(FakeInstrument):
        def finish(self) -> object:  # type: ignore[override]
            batch = super().finish()
            return replace(batch, seconds={name: value / 100 for name, value in batch.seconds.items()})

    instrument = Lying(seconds={"naive": itertools.repeat(0.005)})
    row = run(instrument, case())
    assert row.samples["kernel"].seconds[0] == pytest.approx(0.005)
    (note,) = row.notes
    assert note == "events say 0.01 times the wall clock: kernel and device scope are wall-clock times"


# --- in turn with a former kernel ---------------------------------------------------------------------------

OLD = case(former="before")


def paired(**scripts: float) -> FakeInstrument:
    seconds = {name.replace("_", " "): itertools.repeat(value) for name, value in scripts.items()}
    return FakeInstrument(seconds=seconds, prepared=Prepared(("device", "host"), built=Built(source="old")))


@pytest.mark.parametrize("draw", [0.1, 0.9])
def test_the_two_share_operands_whichever_is_first(draw: float, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("random.random", lambda: draw)
    instrument = paired(naive=0.002, former_naive=0.001)
    row = run(instrument, OLD, replace(POLICY, budget_s=3.0))
    assert [entry[3] for entry in instrument.log if entry[0] == "prepare"] == [None, 0]
    assert row.former is not None
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


def test_a_batch_on_a_gpu_also_has_the_time_from_its_first_start_to_its_last_end() -> None:
    """Kernels of 10 us, 4 us apart: a library's graph has such gaps in it, and is held against the chain."""

    def event(start: int) -> SimpleNamespace:
        profile = SimpleNamespace(start=start, end=start + 10_000)
        return SimpleNamespace(profile=profile, wait=lambda: None)

    def seconds(kind: str) -> Mapping[str, float]:
        bench = SimpleNamespace(
            runtime=SimpleNamespace(facts=SimpleNamespace(type=kind, timer_resolution_ns=1))
        )
        events = [("multiply", event(14_000 * number)) for number in range(100)]
        return Queued(cast(Bench, bench), events, 100, 0.0).finish().seconds

    assert seconds("gpu") == pytest.approx({"kernel": 1e-5, "device": 1e-5, "chain": 1.396e-5})
    assert seconds("cpu") == pytest.approx({"kernel": 1e-5, "device": 1e-5})
