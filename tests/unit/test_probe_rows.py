"""Rows of probes on a scripted instrument: the winner, its work, its evidence and the verdict."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest

from gemmbench.model.case import Case, Policy
from gemmbench.model.device import Conditions
from gemmbench.model.instrument import Batch, NotMeasuredError, Watch
from gemmbench.model.row import Energy, Parameters, Row, Work
from gemmbench.probes import measure as probe_measure
from gemmbench.probes.arithmetic import MMA
from gemmbench.probes.measure import Known, confirmed_chains, measure_probe
from gemmbench.stats import rates
from tests import in_process
from tests.fake_instrument import FakeProbes, refusal
from tests.unit.test_plan import DEVICE

POLICY = Policy(budget_s=600.0, batch_s=0.001, min_batches=3)
FLOAT = Case("peak", 0, "flops", "float", {"width": 4})
READ = Case("bandwidth", 0, "global-read", "float", {"width": 16})
UPLOAD = Case("transfer", 0, "upload-pageable", "float", {"bytes": 4096})


def run(fake: FakeProbes, case: Case, policy: Policy = POLICY, known: Known | None = None) -> Row:
    return in_process.result_of(
        measure_probe(fake, case, DEVICE, policy, Known() if known is None else known)
    )


def arithmetic(**changes: object) -> FakeProbes:
    """The best has eight chains of the second form, unrolled to 16."""
    fake = FakeProbes(
        trip_s=lambda candidate: (
            1e-6
            * int(candidate["unroll"])
            * int(candidate["chains"])
            * (1.0 if candidate["chains"] == 8 else 1.5)
            * {"a*b+c": 1.2, "fma(a,b,c)": 1.0}.get(str(candidate["form"]), 2.0)
            * (0.9 if candidate["unroll"] == 16 else 1.0)
        ),
        unit=lambda candidate: Work(flops=1000 * int(candidate["unroll"]) * int(candidate["chains"])),
    )
    for name, value in changes.items():
        setattr(fake, name, value)
    return fake


def test_the_winner_is_sampled_and_has_the_rows_work() -> None:
    fake, known = arithmetic(), Known()
    row = run(fake, FLOAT, known=known)
    assert (row.status, row.check.verdict) == ("ok", "ok")
    best = {"form": "fma(a,b,c)", "chains": 8, "unroll": 16}
    assert {name: row.choice[name] for name in best} == best
    assert row.work.flops == 1000 * 16 * 8 * int(row.choice["trips"])
    assert row.work.flops / min(row.samples["kernel"].seconds) == pytest.approx(1e9 / 0.9)
    assert 0.009 < row.samples["kernel"].seconds[0] < 0.011
    assert row.check.figures == pytest.approx({"doubling": 2.0, "event_over_wall": 1.0, "unrolling": 1 / 0.9})
    assert row.race[0] == "tried variants (G/s): a*b+c 0.833, fma(a,b,c) 1.11, mad(a,b,c) 0.500"
    assert row.race[1].startswith("tried chains (G/s): 1: 0.667, 2: 0.556, 4: 0.556, 8: 1.11, ")
    assert row.build_s == pytest.approx(0.1 * 4)  # two depths of the winning form, one of the others
    rate = pytest.approx(1e9 / 0.9)
    assert known == {("flops", "float"): {"width": 4, "chains": 8, "form": "fma(a,b,c)", "rate": rate}}
    assert len(fake.released) == len([entry for entry in fake.log if entry[0] == "prepare"])


@pytest.mark.parametrize("asked", [True, False])
def test_the_winners_joules_are_measured_if_asked_for(asked: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    fake, metered = arithmetic(), []

    def fake_measure(run: Any, device: object) -> Energy:
        metered.append(device)
        run(2)
        return Energy(0.25, "", "board", "NVML")

    monkeypatch.setattr(probe_measure, "measure_energy", fake_measure)
    row = run(fake, FLOAT, replace(POLICY, energy=asked))
    assert (row.energy.joules, metered) == ((0.25, [DEVICE]) if asked else (None, []))
    if asked:
        assert rates.gflop_per_joule(row) == pytest.approx(row.work.flops / 0.25 / 1e9)


def test_forms_go_on_with_the_best_numbers_of_chains() -> None:
    fake, known = arithmetic(), Known()
    run(fake, FLOAT, known=known)
    tried = [(entry["form"], entry["unroll"], entry["chains"]) for entry in fake.candidates]
    first, second = tried[:6], tried[6:8]
    assert first == [("a*b+c", 4, count) for count in (1, 2, 4, 8, 12, 16)]
    assert second == [("fma(a,b,c)", 4, 8), ("fma(a,b,c)", 4, 1)]
    assert [entry for entry in tried if entry[1] == 16] == [("fma(a,b,c)", 16, 8)]
    programs = {(entry["form"], entry["unroll"], entry["kernels"]) for entry in fake.candidates}
    assert ("a*b+c", 4, "1,2,4,8,12,16") in programs
    fake.candidates.clear()
    run(fake, replace(FLOAT, parameters={"width": 16}), known=known)
    tried = [(entry["form"], entry["unroll"], entry["chains"]) for entry in fake.candidates]
    confirming = [*((form, 4, n) for form in ("a*b+c", "fma(a,b,c)") for n in (2, 8)), ("fma(a,b,c)", 16, 8)]
    assert sorted(tried) == sorted(confirming)

    fake.candidates.clear()
    known["flops", "float"] = {"width": 4, "chains": 8, "form": "mad(a,b,c)", "rate": 2e9}  # a faster width
    row = run(fake, replace(FLOAT, parameters={"width": 16}), known=known)
    tried = [(entry["form"], entry["unroll"], entry["chains"]) for entry in fake.candidates]
    further = {(form, 4, n) for form in ("a*b+c", "fma(a,b,c)") for n in (1, 4, 12, 16)}
    assert {*further, ("fma(a,b,c)", 4, 8), ("fma(a,b,c)", 16, 8)} <= set(tried)
    assert len(set(tried)) == len(tried)
    assert row.choice["form"] == "fma(a,b,c)"  # found although another won at the first width


@pytest.mark.parametrize(
    ("width", "chains"), [(1, {12}), (2, {12, 8}), (4, {12, 4}), (8, {12, 2}), (16, {12, 1})]
)
def test_a_width_is_tried_with_the_chains_and_the_elements_that_won(width: int, chains: set[int]) -> None:
    assert set(confirmed_chains({"width": 1, "chains": 12}, width)) == chains


def test_matrix_units_with_zeros_confirm_what_won_with_random_operands() -> None:
    fake, known = FakeProbes(unit=lambda entry: Work(flops=1000 * int(entry["unroll"]))), Known()
    for operands, raced in (("random", len(MMA.chains) * len(MMA.groups) + 1), ("zeros", 2)):
        fake.candidates.clear()
        shape: Parameters = {"shape": "m16n8k16", "accumulator": "float", "operands": operands}
        case = Case("peak", 0, "mma", "half", shape, ran_on="matrix")
        run(fake, case, known=known)
        assert len(fake.candidates) == raced


def test_a_form_that_does_not_compile_is_left_out() -> None:
    fake = arithmetic()
    honest = fake.trip_s
    fake.trip_s = lambda entry: refusal("no fma") if entry["form"] == "fma(a,b,c)" else honest(entry)
    assert run(fake, FLOAT).choice["form"] == "a*b+c"
    fake.trip_s = lambda entry: refusal("broken")
    with pytest.raises(NotMeasuredError, match="no variant of the probe compiles: broken"):
        run(fake, FLOAT)


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"ignored_past": 20}, "doubling the loop count multiplies the time by 1.00, not by 2"),
        ({"event_share": 1 / 70}, "event clock says 0.014 times the wall clock, which is used instead"),
        (
            {"trip_s": lambda entry: 1e-6 * 0.8 ** (entry["unroll"] == 16) * unfolded(entry)},
            "unrolling makes steps 1.25 times as fast, where 1.15 is the most",
        ),
    ],
)
def test_a_fault_is_suspect(changes: dict[str, object], reason: str) -> None:
    known = Known()
    row = run(arithmetic(**changes), FLOAT, known=known)
    assert row.check.verdict == ("wrong" if "ignored_past" in changes else "suspect")
    assert reason in "; ".join(row.check.reasons)


def unfolded(candidate: Parameters) -> int:
    """The steps of a trip."""
    return int(candidate["unroll"]) * int(candidate["chains"])


def test_a_rate_that_no_hardware_has_is_wrong() -> None:
    known = Known()
    row = run(arithmetic(unit=lambda entry: Work(flops=10**9 * int(entry["unroll"]))), FLOAT, known=known)
    assert (row.status, row.check.verdict) == ("wrong", "wrong")
    assert "is above the theoretical peak of 896 GFLOPS: 2 units" in row.reason


class Clocked(Watch):
    """Reports the maximum clock, as NVML does."""

    def __init__(self, max_mhz: float | None) -> None:
        self._max_mhz = max_mhz

    def end(self, clock: str, batches: Sequence[Batch]) -> Conditions:
        return Conditions(max_mhz=self._max_mhz)


@pytest.mark.parametrize(
    ("max_mhz", "share", "verdict"),
    [(1000.0, 1.011, "ok"), (1000.0, 1.03, "wrong"), (None, 1.18, "ok"), (None, 1.27, "wrong")],
)
def test_a_rate_may_exceed_the_peak_by_what_the_clock_may_be_higher(
    max_mhz: float | None, share: float, verdict: str
) -> None:
    """2 % above the maximum that NVML reports; 25 % where only OpenCL's clock is known."""
    gpu = replace(DEVICE, type="gpu", compute_capability=(9, 0), compute_units=1, clock_mhz=1000)
    flops = int(2 * 128 * 1e9 * share * 1e-6)
    fake = FakeProbes(trip_s=lambda _: 1e-6, unit=lambda _: Work(flops=flops), watch=Clocked(max_mhz))
    row = in_process.result_of(measure_probe(fake, FLOAT, gpu, POLICY, Known()))
    assert (row.check.verdict, row.notes) == (verdict, ())


def test_two_depths_with_drifting_rates_are_interleaved() -> None:
    """The race sees one depth while the machine is slow; batch by batch they are alike."""
    fake = arithmetic(trip_s=lambda entry: 1e-6 * unfolded(entry))
    slow = {"is": True}
    honest = fake.finish

    def finish() -> Batch:
        batch = honest()
        slow["is"] = slow["is"] and not any(entry["unroll"] == 16 for entry in fake.candidates)
        factor = 1.5 if slow["is"] else 1.0
        return replace(batch, seconds={"kernel": batch.seconds["kernel"] * factor})

    fake.finish = finish  # type: ignore[method-assign]  # of this fake alone
    row = run(fake, FLOAT)
    assert row.check.figures["unrolling"] == pytest.approx(1.0, rel=0.01)


def test_samples_are_the_wall_clocks_where_events_cannot_be_believed() -> None:
    row = run(arithmetic(event_share=1 / 70), FLOAT)
    assert 0.009 < row.samples["kernel"].seconds[0] < 0.011


# --- memory -------------------------------------------------------------------------------------------------


def memory(**changes: object) -> FakeProbes:
    """A quarter of the set is 10 MB; the best way is by item."""
    fake = FakeProbes(
        trip_s=lambda entry: 0.01 * (1.0 if entry["pattern"] == "item" and entry["groups"] == 8 else 2.0),
        unit=lambda _: Work(bytes=10_000_000),
        trips=(4, 4),
    )
    for name, value in changes.items():
        setattr(fake, name, value)
    return fake


def test_a_pass_is_sampled_whole_and_doubled_from_its_halves() -> None:
    fake, known = memory(), Known()
    row = run(fake, READ, known=known)
    assert row.check.verdict == "ok"
    assert row.choice["pattern"] == "item"
    assert row.work == Work(bytes=40_000_000)
    assert set(row.samples["kernel"].seconds) == {0.04}
    assert row.race[-1].startswith("tried (GB/s): ")
    assert "pattern item: 1.00, group: 0.500, streams: 0.500" in row.race[-1]
    work = [entry[3:] for entry in fake.log if entry[0] == "batch"]
    assert {(1, 1), (2, 2), (1, 4)} == set(work)
    assert len(fake.released) == len([entry for entry in fake.log if entry[0] == "prepare"])


def test_a_loop_that_ignores_its_trips_is_suspect() -> None:
    fake = memory(trips=(2, 1 << 29), trip_s=lambda _: 1e-6, ignored_past=1000)
    row = run(fake, replace(READ, variant="working-set", parameters={"bytes": 4096}))
    assert row.check.reasons[-1] == "doubling the work multiplies the time by 1.00, not by 2"


def test_no_way_that_compiles_is_failed_with_the_reason() -> None:
    with pytest.raises(NotMeasuredError, match="the probe cannot be run: no float16"):
        run(memory(trip_s=lambda _: refusal("no float16")), READ)
    small = replace(DEVICE, local_mem_bytes=16)
    with pytest.raises(NotMeasuredError, match="16 bytes of local memory hold no array to read"):
        in_process.result_of(
            measure_probe(memory(), replace(READ, variant="local-read"), small, POLICY, Known())
        )


def transfers(**changes: object) -> FakeProbes:
    fake = FakeProbes(
        trip_s=lambda entry: {"blocking": 2e-6, "map": 3e-6}.get(str(entry["way"]), 1e-6),
        unit=lambda entry: Work(bytes=int(entry["bytes"])),
        trips=(1, 1),
        clocks=("host",),
    )
    for name, value in changes.items():
        setattr(fake, name, value)
    return fake


def test_the_fastest_way_to_transfer_is_sampled() -> None:
    row = run(transfers(), UPLOAD)
    assert row.choice == {"way": "enqueued"}
    assert row.samples.keys() == {"host"}
    assert row.work == Work(bytes=4096)
    assert row.memory == "pageable"
    assert row.build_s is None


@pytest.mark.parametrize(("growth", "way"), [(4.0, "map"), (1.1, "zero-copy")])
def test_a_map_that_takes_the_same_time_for_more_moves_nothing(growth: float, way: str) -> None:
    fake = transfers(trip_s=lambda entry: 1e-3 * (growth if int(entry["bytes"]) == 32 << 20 else 1.0))
    gpu, known = replace(DEVICE, unified_memory=False), Known()
    row = in_process.result_of(
        measure_probe(fake, replace(UPLOAD, variant="upload-mapped"), gpu, POLICY, known)
    )
    assert row.choice == {"way": way}
    assert row.work == Work(bytes=4096 if way == "map" else 0)
    assert known["mapping moves data", "up"] == (way == "map")


@pytest.mark.parametrize(("growth", "way"), [(4.0, "map"), (1.1, "zero-copy")])
def test_a_map_is_tried_within_the_largest_buffer(growth: float, way: str) -> None:
    def trip_s(entry: Parameters) -> float | Exception:
        nbytes = int(entry["bytes"])
        if nbytes > 16 << 20:
            return NotMeasuredError("failed", "CL_INVALID_BUFFER_SIZE")
        return 1e-3 * (growth if nbytes == 16 << 20 else 1.0)

    gpu = replace(DEVICE, unified_memory=False, max_alloc_bytes=16 << 20)
    case = replace(UPLOAD, variant="upload-mapped")
    row = in_process.result_of(measure_probe(transfers(trip_s=trip_s), case, gpu, POLICY, Known()))
    assert row.choice == {"way": way}


def test_a_map_that_cannot_be_tried_fails_with_the_reason() -> None:
    refused = NotMeasuredError("failed", "CL_MEM_OBJECT_ALLOCATION_FAILURE")
    fake = transfers(trip_s=lambda entry: refused if int(entry["bytes"]) > 1 << 20 else 1e-3)
    gpu = replace(DEVICE, unified_memory=False)
    case = replace(UPLOAD, variant="upload-mapped")
    with pytest.raises(NotMeasuredError, match="CL_MEM_OBJECT_ALLOCATION_FAILURE"):
        in_process.result_of(measure_probe(fake, case, gpu, POLICY, Known()))


def test_launches_are_a_distribution_and_a_chain_is_a_sample() -> None:
    fake = FakeProbes(clocks=("host",))
    row = run(fake, Case("latency", 0, "launch-round-trip", "int", {}))
    assert len(row.samples["host"].seconds) == 1000
    assert row.samples["host"].batch == 1
    fake = FakeProbes(clocks=("host",))
    row = run(fake, Case("latency", 0, "launch-chain", "int", {}))
    assert row.samples["host"].seconds[0] == pytest.approx(1e-6)
    assert row.samples["host"].batch == 500


def test_a_peak_is_no_surer_than_the_timer(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = arithmetic()
    monkeypatch.setattr(type(fake.watch), "tick_s", 1e-3)
    scope = run(fake, FLOAT).samples["kernel"]
    assert scope.tick_s == pytest.approx(1e-3 / scope.batch)


def test_a_chase_is_checked_by_its_hops(monkeypatch: pytest.MonkeyPatch) -> None:
    fake = FakeProbes(trip_s=lambda _: 1e-7, unit=lambda _: Work(), trips=(2, 1 << 29))
    monkeypatch.setattr(type(fake.watch), "tick_s", 1e-6)
    row = run(fake, Case("latency", 0, "pointer-chase", "int", {"bytes": 4096}))
    assert row.choice["hops"] == pytest.approx(100_000, abs=1)
    assert row.samples["kernel"].seconds[0] == pytest.approx(1e-7)
    scope = row.samples["kernel"]
    assert scope.tick_s == pytest.approx(1e-6 / scope.batch)  # a batch counts hops
    assert row.check.verdict == "ok"
    assert fake.released == {0}
