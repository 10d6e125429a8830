"""Rows paired, refused, pooled, and what each verdict stands for."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from gemmbench.ladder import BY_NAME
from gemmbench.model.device import Conditions
from gemmbench.model.row import Check, Launch, Resources, Row, Scope, Status, Work
from gemmbench.model.run_file import Run
from gemmbench.regress.compare import (
    ComparedRow,
    Comparison,
    compare,
    device_map,
    exact_positions,
    only_preset_differs,
)
from gemmbench.stats import rates
from gemmbench.suite.options.comparing import DIFFERENCES, Rules
from tests import fake_runs as fake
from tests.compare_runs import again, repeated, slowed, small

SLOW = {("tiled", 512): 1.2}


def line(found: Comparison, variant: str, size: int) -> ComparedRow:
    return next(each for each in found.lines if (each.row.variant, m(each.row)) == (variant, size))


def m(row: Row) -> int:
    return row.problem.m if row.problem else 0


def changed(run: Run, variant: str, size: int, change: Callable[[Row], Row | None]) -> Run:
    """A run with one row replaced, or without it."""
    rows = [change(row) if (row.variant, m(row)) == (variant, size) else row for row in run.rows]
    return replace(run, rows=tuple(row for row in rows if row is not None))


def status(status: Status, reason: str = "") -> Callable[[Row], Row]:
    return lambda row: replace(row, status=status, reason=reason, samples={})


FIVE = Rules(0.05)


def test_a_row_above_a_given_threshold_fails_and_the_others_do_not() -> None:
    found = compare([again(1)], [again(2, SLOW)], FIVE)
    assert line(found, "tiled", 512).verdict == "slower"
    assert line(found, "tiled", 512).fails
    assert found.counts["slower"] == 1
    assert found.compared == len(small().rows)


@pytest.mark.parametrize(("bases", "verdict"), [(1, "differs"), (5, "possibly slower")])
def test_without_a_given_threshold_the_same_row_may_be_slower(bases: int, verdict: str) -> None:
    found = compare([again(seed) for seed in range(20, 20 + bases)], [again(2, SLOW)])
    assert [each.row.variant for each in found.lines if each.is_possibly_slower] == ["tiled"]
    assert line(found, "tiled", 512).verdict == verdict
    assert found.ok
    assert found.is_inconclusive


def test_with_one_baseline_rows_only_differ_or_do_not() -> None:
    """Some are 30 % faster, some 30 % slower, and nobody knows how much runs vary."""
    slow = {("tiled", 512): 1.3, ("register", 512): 0.7}
    found = compare([on_gpu(again(1))], [on_gpu(again(2, slow))])
    assert {each.verdict for each in found.lines} == {"within", "differs"}
    assert line(found, "register", 512).verdict == "differs"
    assert all(each.ratio and math.isnan(each.ratio.low) for each in found.lines)


@pytest.mark.parametrize(
    ("on_cpu", "factor", "verdict"),
    [(True, 0.53, "differs"), (True, 0.47, "faster"), (False, 0.7, "differs"), (False, 0.63, "faster")],
)
def test_with_one_baseline_a_row_is_faster_where_it_would_fail_the_other_way(
    on_cpu: bool, factor: float, verdict: str
) -> None:
    """More than 2 times as fast on a CPU, 1.5 times on a GPU."""
    runs = [bursts(each, 0.005) for each in (again(1), again(2, {("tiled", 512): factor}))]
    before, now = runs if on_cpu else map(on_gpu, runs)
    assert line(compare([before], [now]), "tiled", 512).verdict == verdict


def test_several_baselines_widen_the_interval() -> None:
    bases = [again(seed, {("tiled", 512): factor}) for seed, factor in ((1, 1.0), (2, 1.3), (3, 1.1))]
    found = compare(bases, [again(4)])
    tiled, register = line(found, "tiled", 512), line(found, "register", 512)
    assert tiled.spread == pytest.approx(0.3, abs=0.05)
    assert tiled.ratio.high / tiled.ratio.low == pytest.approx((1 + tiled.spread) ** 2, rel=0.01)
    assert (tiled.verdict, register.verdict) == ("cannot tell", "unchanged")
    assert (tiled.smallest_slowdown is None, register.smallest_slowdown) == (False, None)
    for share, verdict in ((1.01, "possibly slower"), (0.99, "cannot tell")):
        factor = (1 + share * (tiled.smallest_slowdown or 0.0)) / tiled.ratio.median
        assert line(compare(bases, [slowed(again(4), factor)]), "tiled", 512).verdict == verdict


def test_rows_whose_samples_spread_too_much_cannot_be_compared() -> None:
    """Two noisy runs of a kernel: the medians say that it has become twice as fast."""

    def noisy(run: Run, factor: float) -> Run:
        seconds = tuple(factor * (1 + number / 4) for number in range(12))
        return every(samples={"kernel": Scope(seconds, 1, "budget")})(run)

    found = compare([noisy(again(1), 2.0)], [noisy(again(2), 1.0)])
    assert {each.verdict for each in found.lines} == {"cannot tell"}
    assert {each.uncertain for each in found.lines} == {(True, True)}
    assert {each.reason for each in found.lines} == {"its samples spread too much"}


def test_both_ratios_must_exceed_the_threshold() -> None:
    """Another program slows most samples, but not the fastest."""

    def disturbed(row: Row) -> Row:
        samples = {
            name: replace(scope, seconds=(scope.seconds[0], *(3 * second for second in scope.seconds[1:])))
            for name, scope in row.samples.items()
        }
        return replace(row, samples=samples)

    found = line(compare([again(1)], [changed(again(2), "tiled", 512, disturbed)], FIVE), "tiled", 512)
    assert (found.verdict, found.is_possibly_slower) == ("differs", False)
    assert found.ratio.minima < 1.05 < 2.5 < found.ratio.median


@pytest.mark.parametrize("factor", [1.0, 1.4, 1.6, 2.5])
def test_a_run_fails_if_half_of_its_rows_take_over_one_and_a_half_times_as_long(factor: float) -> None:
    found = compare([again(1)], [slowed(again(2), factor)])
    assert found.ok == (factor < 1.5)
    said = any(remark.endswith("the run is slower.") for remark in found.remarks)
    assert said == (factor > 1.5)
    lax = compare([again(1)], [slowed(again(2), factor)], Rules(3.0))
    assert lax.ok


def test_changed_resources_do_not_lower_the_slowdown_of_the_run() -> None:
    built = Resources("tiled", "multiply", 256, 1024, 32, 0, 2048, registers=32, spill_bytes=0)
    before = every(resources=(built,))(again(1))
    now = every(resources=(replace(built, registers=48),))(slowed(again(2), 1.7))
    found = compare([before], [now], Rules(fail_on=frozenset({"resources"})))
    assert any(remark.endswith("the run is slower.") for remark in found.remarks)
    assert {each.verdict for each in found.lines} == {"slower"}


def bursts(run: Run, *seconds: float) -> Run:
    return every(conditions=Conditions(control_s=seconds))(run)


@pytest.mark.parametrize(
    ("before", "after", "verdict"),
    [
        ((0.005, 0.005), (0.0051, 0.005), "slower"),
        ((0.005, 0.005), (0.005, 0.0054), "cannot tell"),
        ((0.005, 0.005), (), "differs"),
        ((), (), "differs"),
    ],
)
def test_a_row_of_a_cpu_fails_alone_only_if_the_control_bursts_agree(
    before: tuple[float, ...], after: tuple[float, ...], verdict: str
) -> None:
    new = again(2, {("tiled", 512): 2.2})
    found = line(compare([bursts(again(1), *before)], [bursts(new, *after)]), "tiled", 512)
    assert found.verdict == verdict
    assert ("measure again with gemmbench check BASE" in found.reason) == (verdict != "slower")


def quiet_batches(run: Run, share: float = 1.0, reference_s: float = 1.0) -> Run:
    """The run with control bursts between its batches, a share of them undisturbed."""
    quiet_s = 0.95 * reference_s, 1.05 * reference_s

    def with_bursts(scope: Scope) -> Scope:
        count = len(scope.seconds)
        calm = round(share * count)
        bursts_s = (reference_s,) * 2 * calm + (2 * reference_s,) * 2 * (count - calm)
        return replace(scope, bursts_s=bursts_s, quiet_s=quiet_s)

    rows = (
        replace(row, samples={name: with_bursts(each) for name, each in row.samples.items()})
        for row in run.rows
    )
    return replace(run, rows=tuple(rows))


@pytest.mark.parametrize(
    ("factor", "share", "verdict"),
    [(1.02, 1.0, "within"), (1.35, 1.0, "differs"), (1.45, 1.0, "slower"), (1.45, 0.0, "differs")],
)
def test_a_row_of_quiet_batches_fails_alone_at_a_smaller_ratio(
    factor: float, share: float, verdict: str
) -> None:
    """If it lacks them it is uncertain, and excused."""
    new = quiet_batches(again(2, {("tiled", 512): factor}), share)
    found = line(compare([quiet_batches(again(1))], [new]), "tiled", 512)
    assert found.verdict == verdict
    assert ("an uncertain figure" in found.reason) == (share < 1)


@pytest.mark.parametrize(("share", "is_slower"), [(1.0, True), (0.0, False)])
def test_a_run_without_quiet_batches_is_not_slower(share: float, is_slower: bool) -> None:
    found = compare([quiet_batches(again(1))], [quiet_batches(again(2, machine=1.8), share)])
    assert found.ok != is_slower
    assert any("the run is slower" in remark for remark in found.remarks) == is_slower


@pytest.mark.parametrize(("reference_s", "is_slower"), [(1.04, True), (1.06, False), (0.94, False)])
def test_a_row_of_quiet_batches_fails_only_if_the_machine_was_as_fast_as_before(
    reference_s: float, is_slower: bool
) -> None:
    """Neither run is uncertain: in each of them the bursts agree."""
    new = quiet_batches(again(2, {("tiled", 512): 1.45}), reference_s=reference_s)
    found = line(compare([quiet_batches(again(1))], [new]), "tiled", 512)
    assert found.uncertain == (False, False)
    assert (found.verdict == "slower") == is_slower
    assert ("control bursts differ" in found.reason) != is_slower


@pytest.mark.parametrize(
    ("bursts_s", "verdict"), [((0.005, 0.0051), "slower"), ((0.005, 0.0054), "cannot tell")]
)
def test_other_programs_excuse_a_row_of_a_cpu_from_a_given_threshold_too(
    bursts_s: tuple[float, ...], verdict: str
) -> None:
    found = compare([bursts(again(1), *bursts_s)], [bursts(again(2, SLOW), *bursts_s)], FIVE)
    assert line(found, "tiled", 512).verdict == verdict


def test_a_row_is_not_faster_if_other_programs_slowed_the_baselines() -> None:
    bases = [bursts(again(seed), 0.005, 0.006) for seed in range(3)]
    found = compare(bases, [bursts(again(4, machine=0.6), 0.005)], FIVE)
    assert {(each.verdict, each.reason.split(":")[0]) for each in found.lines} == {
        ("cannot tell", "control bursts differ by more than 5.0 %")
    }


def on_gpu(run: Run) -> Run:
    return replace(run, header=replace(run.header, devices=(fake.GPU,)))


def test_a_row_of_a_gpu_fails_alone_above_one_and_a_half() -> None:
    for factor, verdict in ((1.6, "slower"), (1.4, "differs")):
        new = on_gpu(again(2, {("tiled", 512): factor}))
        assert line(compare([on_gpu(again(1))], [new]), "tiled", 512).verdict == verdict


def test_the_differences_between_baselines_add_to_the_threshold() -> None:
    bases = [again(1), again(2, {("tiled", 512): 1.3})]
    found = compare(bases, [again(3, {("tiled", 512): 1.5, ("register", 512): 1.5})], FIVE)
    assert line(found, "tiled", 512).verdict == "cannot tell"
    assert line(found, "tiled", 512).threshold == 0.05
    assert line(found, "tiled", 512).spread == pytest.approx(0.3, abs=0.05)
    assert line(found, "register", 512).verdict == "slower"


@pytest.mark.parametrize(("factor", "is_unfit"), [(1.3, False), (2.4, True)])
def test_a_machine_whose_baselines_differ_too_much_is_unfit_for_stored_times(
    factor: float, is_unfit: bool
) -> None:
    found = compare([again(1), again(2, machine=factor)], [again(3)])
    assert any("unfit for stored times. Use check --against." in each for each in found.remarks) == is_unfit


def test_one_baseline_run_does_not_show_variation() -> None:
    said = "Only one baseline run: run-to-run variation is unknown. Add more, or use check --against."
    assert said in compare([again(1)], [again(3)]).remarks
    assert said not in compare([again(1), again(2)], [again(3)]).remarks


def test_a_faster_row_never_fails() -> None:
    bases = [bursts(again(seed), 0.005) for seed in (1, 3, 4)]
    found = compare(bases, [bursts(again(2, {("tiled", 512): 0.5}), 0.005)])
    assert line(found, "tiled", 512).verdict == "faster"
    assert not any(each.fails for each in found.lines)


def test_a_run_with_repeated_cases_is_as_good_as_several() -> None:
    bases = [again(seed) for seed in range(4)]
    apart, together = compare(bases, [again(9)]), compare([repeated(bases)], [again(9)])
    assert [each.ratio for each in apart.lines] == [each.ratio for each in together.lines]


@pytest.mark.parametrize("bad", ["wrong", "crashed", "failed", "timed-out"])
def test_a_row_that_was_ok_and_is_lost_is_a_regression(bad: Status) -> None:
    found = compare([again(1)], [changed(again(2), "tiled", 512, status(bad, "so it is"))])
    mine = line(found, "tiled", 512)
    assert (mine.verdict, mine.reason, mine.fails) == ("broken", f"{bad}: so it is", True)


@pytest.mark.parametrize("bad", ["skipped", "unsupported"])
def test_a_row_that_was_not_run_is_missing(bad: Status) -> None:
    found = compare([again(1)], [changed(again(2), "tiled", 512, status(bad, "so it is"))])
    mine = line(found, "tiled", 512)
    assert (mine.verdict, mine.reason, mine.fails) == ("missing", f"{bad}: so it is", False)


def test_missing_and_new_rows() -> None:
    less = changed(again(2), "tiled", 512, lambda _: None)
    missing = line(compare([again(1)], [less]), "tiled", 512)
    assert (missing.verdict, missing.runs, missing.new_s) == ("missing", (1, 0), None)
    new = line(compare([less], [again(1)]), "tiled", 512)
    assert (new.verdict, new.runs, new.new_s) == ("new", (0, 1), missing.base_s)
    found = line(compare([less], [again(1)]), "tiled", 512)
    assert (found.verdict, found.reason) == ("new", "")
    crashed = changed(again(2), "tiled", 512, status("crashed", "SIGSEGV"))
    found = line(compare([crashed], [again(1)]), "tiled", 512)
    assert (found.verdict, found.reason) == ("new", "in the baseline it was crashed: SIGSEGV")


def test_a_wrong_result_fails_also_where_the_base_had_none() -> None:
    wrong = changed(again(2), "tiled", 512, status("wrong", "residual"))
    less = changed(again(1), "tiled", 512, lambda _: None)
    assert line(compare([less], [wrong]), "tiled", 512).verdict == "broken"
    both = compare([wrong], [wrong])  # known, and told when it was measured
    assert both.left_out == {"without a time on either side": 1}


def other(**fields: Any) -> Callable[[Run], Run]:
    return lambda run: replace(
        run, header=replace(run.header, devices=(replace(run.header.devices[0], **fields),))
    )


def every(**fields: Any) -> Callable[[Run], Run]:
    return lambda run: replace(run, rows=tuple(replace(row, **fields) for row in run.rows))


def cold(run: Run) -> Run:
    return replace(run, header=replace(run.header, policy=replace(run.header.policy, cold=True)))


def hosted(**fields: Any) -> Callable[[Run], Run]:
    return lambda run: replace(run, header=replace(run.header, host=replace(run.header.host, **fields)))


FOREIGN: dict[str, tuple[str, Callable[[Run], Run], str, str]] = {
    # the row, what differs, how it is said, and the remedy
    "device": (
        "tiled",
        other(name="NVIDIA H200"),
        "other device: NVIDIA H200, not Intel(R) Xeon(R) Processor @ 2.10GHz",
        "measure the baseline on this device",
    ),
    "device, one core of two": (
        "tiled",
        other(compute_units=1),
        "other device: 1 compute unit, not 2 compute units",
        "measure the baseline on this device",
    ),
    "driver": (
        "tiled",
        other(driver="2027.1"),
        "other driver: Intel(R) OpenCL 2027.1, not Intel(R) OpenCL 2026.22.8.0",
        "measure the baseline with this driver",
    ),
    "device, other processor": (
        "numpy",
        hosted(cpu="another"),
        "other device: another, not Intel(R) Xeon(R) Processor @ 2.10GHz",
        "measure the baseline on this device",
    ),
    "driver, BLAS threads": (
        "numpy",
        hosted(blas="OpenBLAS 0.3.30, 1 thread"),
        "other BLAS or BLAS threads: OpenBLAS 0.3.30, 1 thread, not OpenBLAS 0.3.30, 2 threads",
        "OPENBLAS_NUM_THREADS",
    ),
    "source": (
        "tiled",
        every(source="abc"),
        f"other kernel source: abc, not {fake.SOURCE}",
        "check --against",
    ),
    "sampling": ("tiled", cold, "other sampling: --cold, not warm caches", "--cold"),
    "memory": (
        "tiled",
        every(memory="staged"),
        "other way of passing operands: staged, not mapped",
        "--memory",
    ),
}


def test_every_difference_is_tested() -> None:
    assert {name.split(",")[0] for name in FOREIGN} == DIFFERENCES.keys()


@pytest.mark.parametrize("name", FOREIGN)
def test_incomparable_rows_are_refused_by_name(name: str) -> None:
    variant, change, reason, remedy = FOREIGN[name]
    kind = name.split(",")[0]
    mine = line(compare([again(1)], [change(again(2, SLOW))]), variant, 512)
    assert (mine.verdict, mine.ratio) == ("not comparable", None)
    said, _, rest = mine.reason.partition("; ")
    assert said == reason
    assert remedy in rest
    assert rest.endswith(f"or compare anyway with --across {kind}")
    across = Rules(across=frozenset({kind}))
    assert line(compare([again(1)], [change(again(2, SLOW))], across), variant, 512).ratio is not None


def test_a_base_that_is_foreign_does_not_spoil_the_others() -> None:
    found = compare([again(1), FOREIGN["driver"][1](again(2))], [again(3)])
    assert line(found, "tiled", 512).runs == (1, 1)
    assert line(found, "numpy", 512).runs == (2, 1)  # the host has no driver


def test_another_blas_or_processor_is_another_host() -> None:
    new = again(2)
    new = replace(new, header=replace(new.header, host=replace(new.header.host, blas="MKL")))
    assert line(compare([again(1)], [new]), "numpy", 512).reason.startswith(
        "other BLAS or BLAS threads: MKL, not OpenBLAS"
    )
    assert line(compare([again(1)], [new]), "tiled", 512).ratio is not None


@pytest.mark.parametrize(
    ("old", "new", "reason"),
    [
        ("unknown BLAS", "unknown BLAS", "BLAS that may differ: unknown BLAS, not a known BLAS"),
        ("unknown BLAS libx.so", "unknown BLAS libx.so", "BLAS that may differ: unknown BLAS libx.so"),
        ("unknown BLAS", "BLIS", "other BLAS or BLAS threads: BLIS, not unknown BLAS"),
        ("reference BLAS 3.11.0", "BLIS", "other BLAS or BLAS threads: BLIS, not reference BLAS 3.11.0"),
        ("BLIS", "BLIS", ""),
    ],
)
def test_two_blas_libraries_are_the_same_only_if_both_have_a_name(old: str, new: str, reason: str) -> None:
    """The reference BLAS and BLIS were both "unknown BLAS": 20 times slower, and a failure."""
    runs = [
        replace(run, header=replace(run.header, host=replace(run.header.host, blas=blas)))
        for run, blas in ((again(1), old), (again(2), new))
    ]
    made = line(compare(runs[:1], runs[1:]), "numpy", 512)
    assert made.reason.startswith(reason)
    assert (made.verdict == "not comparable") == bool(reason)
    assert (
        line(compare(runs[:1], runs[1:], Rules(across=frozenset({"driver"}))), "numpy", 512).ratio is not None
    )


def test_another_blas_of_scipy_is_another_driver() -> None:
    def by_scipy(run: Run, title: str) -> Run:
        rows = (replace(row, choice={"blas": title}) if row.variant == "numpy" else row for row in run.rows)
        return replace(run, rows=tuple(rows))

    old, new = by_scipy(again(1), "scipy (OpenBLAS 0.3.30)"), by_scipy(again(2), "scipy (MKL 2025)")
    made = line(compare([old], [new]), "numpy", 512)
    assert made.reason.startswith("other BLAS or BLAS threads: scipy (MKL 2025), not scipy (OpenBLAS 0.3.30)")


def test_devices_pair_by_what_they_are_and_not_by_their_place() -> None:
    both, swapped = fake.header((), (fake.CPU, fake.GPU)), fake.header((), (fake.GPU, fake.CPU))
    assert device_map(both, swapped) == (1, 0)
    assert device_map(both, fake.header((), (fake.POCL,))) == (
        0,
    )  # refused as another device, not as missing rows
    assert device_map(fake.header((), (fake.GPU,)), both) == (1, 0)
    twins = fake.header((), (fake.GPU, fake.GPU))
    assert device_map(twins, twins) == (0, 1)
    assert exact_positions([fake.GPU, fake.CPU, fake.GPU], [fake.CPU, fake.GPU]) == [1, 0, None]
    chips = [replace(fake.GPU, chip=chip) for chip in ("a", "b")]
    assert exact_positions(chips, chips[::-1]) == [1, 0]
    third, unknown = replace(fake.GPU, chip="c"), fake.GPU
    assert exact_positions([third, chips[0]], chips) == [1, 0]
    assert exact_positions([unknown, chips[0]], chips) == [1, 0]


def test_thresholds_of_single_rows() -> None:
    rules = Rules(0.05, {"tiled": 0.3, "nobody": 0.1})
    found = compare([again(1)], [again(2, {**SLOW, ("register", 512): 1.2})], rules)
    assert line(found, "tiled", 512).verdict == "within"
    assert line(found, "register", 512).verdict == "slower"
    assert found.remarks[:1] == ("--threshold names nobody, but no row is of that kernel.",)


def test_peaks_are_compared_by_flops() -> None:
    """A race may settle on another length of loop each time: its time alone says nothing."""

    def peak(flops: int, rate: float) -> Run:
        row = replace(fake.peak_row(1, 100.0), work=Work(flops=flops))
        row = replace(row, samples={"kernel": fake.scope(flops / rate)})
        return Run(fake.header(("gemmbench", "peak")), (row,))

    (same,) = compare([peak(10**9, 1e11)], [peak(10**10, 1e11)]).lines
    assert same.ratio.median == pytest.approx(1, abs=0.01)
    (slower,) = compare([peak(10**9, 1e11)], [peak(10**9, 0.8e11)], FIVE).lines
    assert slower.verdict == "slower"


def test_a_suspect_peak_shows_nothing() -> None:
    """It is no missing result either: a check that must not miss any does not fail for it."""
    suspect = fake.peak_row(1, 50.0, check=Check("suspect", {}, ("4.1 times the rate of float",)))
    new = Run(fake.header(("gemmbench", "peak")), (suspect,))
    (mine,) = compare([replace(new, rows=(fake.peak_row(1, 100.0),))], [new]).lines
    assert (mine.verdict, mine.lost) == ("cannot tell", False)
    assert mine.reason == "its integrity is suspect: 4.1 times the rate of float"


def test_cached_rows_are_no_measurement() -> None:
    row = replace(fake.peak_row(1, 100.0), measured_utc="2026-11-20T00:00:00Z")
    old = replace(again(1), rows=(*again(1).rows, row))
    found = compare([old], [replace(again(2), rows=(*again(2).rows, row))])
    assert found.left_out == {"cached from an earlier run, not measured in the new one": 1}
    fresh = replace(again(2), rows=(*again(2).rows, fake.peak_row(1, 100.0)))
    found = compare([old, replace(old, path="again")], [fresh])
    assert next(each for each in found.lines if each.row.kind == "peak").runs == (1, 1)


def test_a_cached_row_is_not_averaged_with_a_measured_one() -> None:
    peaks = [fake.peak_row(1, rate) for rate in (100.0, 99.0, 50.0)]
    peaks[1] = replace(peaks[1], measured_utc="2026-11-20T00:00:00Z")
    old, *news = [replace(again(n), rows=(row,), path=str(n)) for n, row in enumerate(peaks)]
    (mine,) = compare([old], news).lines
    assert mine.ratio.median == pytest.approx(2.0, rel=0.01)


def test_a_transfer_that_moves_nothing_is_compared_by_its_time() -> None:
    row = replace(fake.peak_row(1, 1.0), kind="transfer", parameters={"bytes": 4096}, work=Work(bytes=4096))
    assert rates.work(replace(row, work=Work(bytes=0))) == rates.work(row) == 4096


def test_baselines_of_another_driver_are_left_out() -> None:
    other = FOREIGN["driver"][1](again(2, machine=1.4))
    found = compare([again(1), other, again(3)], [again(4)])
    assert line(found, "tiled", 512).runs == (2, 1)
    assert line(found, "tiled", 512).spread < 0.05


def test_new_runs_that_differ_among_themselves_are_not_pooled() -> None:
    found = compare([again(1)], [again(2), FOREIGN["driver"][1](again(3, SLOW))])
    assert line(found, "tiled", 512).runs == (1, 1)
    assert line(found, "tiled", 512).verdict == "within"


def too_slow(needs_s: float) -> Callable[[Row], Row]:
    return lambda row: replace(status("skipped", "one problem takes long")(row), needs_s=needs_s)


@pytest.mark.parametrize(
    ("needs_s", "given", "verdict"),
    [(99.0, None, "possibly slower"), (99.0, 0.1, "slower"), (110e-6, 0.1, "cannot tell")],
)
def test_a_row_over_its_budget_is_compared_by_the_time_that_it_needs(
    needs_s: float, given: float | None, verdict: str
) -> None:
    """In the baseline one problem took 58 us."""
    new = changed(again(2), "tiled", 512, too_slow(needs_s))
    base = changed(again(1), "tiled", 512, lambda row: replace(row, samples={"kernel": fake.scope(58e-6)}))
    found = line(compare([base], [new], Rules(given)), "tiled", 512)
    assert found.verdict == verdict
    assert found.reason == "over its budget; raise --budget"
    assert found.lost == (verdict == "possibly slower")  # a prediction is no time


def test_a_predicted_time_has_transfers_as_the_time_that_it_is_compared_with() -> None:
    samples = {"kernel": fake.scope(58e-6), "host": fake.scope(100e-6)}
    base = changed(again(1), "tiled", 512, lambda row: replace(row, samples=samples))
    for needs_s, verdict in ((190e-6, "cannot tell"), (210e-6, "slower")):
        new = changed(again(2), "tiled", 512, too_slow(needs_s))
        assert line(compare([base], [new], Rules(0.1)), "tiled", 512).verdict == verdict


def test_scopes() -> None:
    """Twice the transfers are slower in the host scope alone."""
    new = again(2)
    tiled = (row for row in new.rows if row.variant == "tiled")
    slow = (
        replace(row, samples={**row.samples, "host": fake.slower(row, 2).samples["host"]}) for row in tiled
    )
    new = replace(new, rows=tuple(slow))
    assert {each.verdict for each in compare([again(1)], [new]).lines if each.row.variant == "tiled"} <= {
        "within",
        "differs",
    }
    host = compare([again(1)], [new], Rules(scope="host"))
    assert {each.verdict for each in host.lines if each.row.variant == "tiled"} == {"slower"}


def test_an_empty_run_compares_nothing() -> None:
    empty = replace(small(), rows=())
    assert compare([empty], [again(1)]).compared == 0
    assert compare([again(1)], [empty]).counts["missing"] == len(small().rows)
    assert compare([empty], [empty]).lines == ()


def test_figures_of_repeated_new_runs_are_pooled() -> None:
    found = compare([again(1)], [again(2), again(3), again(4)])
    assert line(found, "tiled", 512).runs == (1, 3)
    broken = compare([again(1)], [again(2), changed(again(3), "tiled", 512, status("wrong", "r"))])
    assert line(broken, "tiled", 512).verdict == "broken"


def test_a_host_that_is_as_fast_as_ever_says_nothing_of_kernels() -> None:
    """All of a device's rows are of other kernels, and numpy's are not."""
    device = [replace(row, source="other") if row.device >= 0 else row for row in again(2).rows]
    other = replace(again(2), rows=tuple(device))
    found = compare([again(1)], [other])
    assert (found.compared, found.lost) == (0, len(small(("tiled", "register")).rows))
    one = changed(
        replace(again(2), rows=tuple(device)), "tiled", 512, lambda row: replace(row, source=fake.SOURCE)
    )
    assert compare([again(1)], [one]).compared > 1


TOLD = Resources("tiled", "multiply", 256, 1024, 32, 0, 2048, registers=32, spill_bytes=0)
LAUNCH = Launch("tiled", 1e-6, 1e-6, 1e-3)


def told(**fields: Any) -> Callable[[Run], Run]:
    return every(resources=(replace(TOLD, **fields),), launches=(LAUNCH,))


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (told(registers=48), "tiled: 48 registers, not 32"),
        (told(spill_bytes=16), "tiled: 16 bytes spilled, not 0"),
        (told(local_bytes=4096), "tiled: 4096 bytes of local memory, not 2048"),
        (every(resources=(TOLD,), launches=(LAUNCH, LAUNCH)), ""),
        (told(registers=None), ""),  # what a driver does not tell is no change
        (every(resources=(), launches=()), ""),
        (told(), ""),
    ],
)
def test_what_has_no_noise_is_compared_without_any(change: Callable[[Run], Run], said: str) -> None:
    base, new = told()(again(1)), change(again(2))
    plain = line(compare([base], [new]), "tiled", 512)
    assert (plain.resources, plain.verdict) == (said, "within")
    failing = line(compare([base], [new], Rules(fail_on=frozenset({"resources"}))), "tiled", 512)
    assert (failing.verdict, failing.fails) == (("resources changed", True) if said else ("within", False))


def test_resources_are_paired_by_kernel() -> None:
    """Registers of different kernels were reported as a change where a launch had moved."""
    pack = replace(TOLD, kernel="pack", registers=16)
    base = every(resources=(pack, TOLD), launches=(LAUNCH, LAUNCH))(again(1))
    new = every(resources=(TOLD, pack), launches=(LAUNCH, LAUNCH))(again(2))
    assert line(compare([base], [new]), "tiled", 512).resources == ""
    fewer = every(resources=(replace(TOLD, registers=48),), launches=(LAUNCH, LAUNCH))(again(2))
    assert line(compare([base], [fewer]), "tiled", 512).resources == "tiled: 48 registers, not 32"


def test_resources_are_compared_across_kernel_sources_and_not_across_drivers() -> None:
    base, new = told()(again(1)), told(registers=48)(again(2))
    rewritten = line(compare([base], [every(source="abc")(new)]), "tiled", 512)
    assert (rewritten.verdict, rewritten.resources) == ("not comparable", "tiled: 48 registers, not 32")
    elsewhere = line(compare([base], [other(driver="2027.1")(new)]), "tiled", 512)
    assert (elsewhere.verdict, elsewhere.resources) == ("not comparable", "")


def preset(size: int, seed: int, slow: float = 1.0) -> Run:
    """A run of `tiled` with a preset, whose fingerprint is that of the shipped kernel."""
    source = BY_NAME["tiled"].fingerprint("float", {"TS": size})
    run = again(seed, {("tiled", 512): slow})
    rows = [
        replace(row, parameters={"TS": size}, source=source, given=()) if row.variant == "tiled" else row
        for row in run.rows
    ]
    return replace(run, rows=tuple(rows))


def test_a_preset_that_became_slower_is_slower() -> None:
    """Its -D list and so its hash are others: that is what has changed, and no reason to refuse it."""
    made = compare([preset(32, 1)], [preset(8, 2, 12.0)], FIVE)
    assert line(made, "tiled", 512).verdict == "slower"
    assert made.counts["missing"] == made.counts["new"] == made.counts["not comparable"] == 0
    assert any(remark == "The preset of tiled is TS=8, not TS=32." for remark in made.remarks)


@pytest.mark.parametrize("math", ["strict", "fast"])
def test_a_preset_with_a_math_is_the_same_kernel_source(math: str) -> None:
    kernel = BY_NAME["tiled"].with_math(math)
    before, after = (
        replace(preset(size, 1).rows[0], parameters={"TS": size, "math": math}, source=source)
        for size, source in ((size, kernel.fingerprint("float", {"TS": size})) for size in (32, 8))
    )
    assert only_preset_differs(before, after)
    assert not only_preset_differs(
        before, replace(after, source=BY_NAME["tiled"].fingerprint("float", {"TS": 9}))
    )


def test_a_preset_and_another_kernel_source_are_refused() -> None:
    new = preset(8, 2)
    rows = [replace(row, source="abc") if row.variant == "tiled" else row for row in new.rows]
    found = line(compare([preset(32, 1)], [replace(new, rows=tuple(rows))]), "tiled", 512)
    assert found.verdict == "not comparable"
    assert found.reason.startswith("other kernel source: abc, not ")
