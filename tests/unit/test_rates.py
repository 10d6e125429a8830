from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from gemmbench.exports.records import to_records
from gemmbench.ladder import BY_NAME
from gemmbench.model.row import Check, Energy, Launch, Parameters, Problem, Row, Scope, Status, Verdict, Work
from gemmbench.model.run_file import Run
from gemmbench.report.table import heading
from gemmbench.stats import rates
from tests.unit.test_run_file import HEADER


def gemm(variant: str, size: int, seconds: float, scope: str = "host", device: int = 0) -> Row:
    times = tuple(seconds * (1 + 0.001 * (7 * n % 11 - 5)) for n in range(44))
    return Row(
        "gemm",
        device,
        variant,
        "float",
        {},
        "ok",
        problem=Problem(size, size, size),
        samples={scope: Scope(times, 1, "stable")},
    )


def peak(rate: float, verdict: Verdict = "ok", dtype: str = "float") -> Row:
    samples = {"kernel": Scope((1.0, 1.1, 1.2), 1, "stable")}
    check = Check(verdict)
    work = Work(flops=int(rate))
    return Row("peak", 0, "flops", dtype, {"width": 1}, "ok", work=work, samples=samples, check=check)


def rate_of(found: rates.Peak | None) -> float | None:
    return found.rate if found else None


def test_a_gemm_rate_is_two_mnk_over_the_median() -> None:
    row = gemm("naive", 100, 0.001, "kernel")
    found = rates.rate(row, "kernel")
    assert found.median == pytest.approx(2e6 / 0.001)
    assert found.low < found.median < found.high
    assert rates.rate(row, "host") is None


@pytest.mark.parametrize("status", ["wrong", "skipped", "failed"])
def test_a_row_that_is_not_ok_has_no_rate(status: Status) -> None:
    row = replace(gemm("naive", 100, 0.001, "kernel"), status=status)
    assert rates.rate(row, "kernel") is None
    assert to_records(Run(HEADER, (row,)))[0]["kernel_gflops"] is None


def test_the_fraction_is_of_the_best_believed_peak_of_the_same_type() -> None:
    row = gemm("naive", 1000, 0.02, "kernel")  # 1e11 flop/s
    run = Run(HEADER, (peak(4e11), peak(2e11), peak(9e11, "suspect"), peak(8e11, dtype="double"), row))
    assert rate_of(rates.peak(run, 0, "float")) == 4e11
    assert rates.peak_fraction(run, row) == pytest.approx(0.25)
    assert rates.peak_fraction(Run(HEADER, (row,)), row) is None


def test_every_fp8_is_compared_with_the_fp8_instructions() -> None:
    unit = replace(peak(4e12), dtype="fp8", ran_on="matrix", parameters={"accumulator": "float"})
    row = replace(gemm("nv-wgmma", 1000, 0.001, "kernel"), dtype="e5m2-half", ran_on="matrix", sums="fp22")
    run = Run(HEADER, (unit, row))
    assert rates.peak_fraction(run, row) == pytest.approx(0.5)
    assert rates.peak_fraction(run, replace(row, ran_on="device", sums="float")) is None


def test_a_kernel_on_matrix_units_is_compared_with_their_random_peak() -> None:
    def unit(name: str, rate: float, operands: str) -> Row:
        parameters: Parameters = {"shape": "m16n8k8", "operands": operands}
        return replace(peak(rate), variant=name, parameters=parameters, ran_on="matrix")

    plain, tensor = gemm("naive", 1000, 0.02, "kernel"), gemm("nv-mma", 1000, 0.002, "kernel")
    tensor = replace(tensor, ran_on="matrix")
    peaks = (
        peak(4e11),
        unit("mma", 1.5e12, "random"),
        unit("wgmma", 2e12, "random"),
        unit("mma", 9e12, "zeros"),
    )
    run = Run(HEADER, (*peaks, plain, tensor))
    assert rates.units_used(run, 0, "float") == (False, True)
    assert rate_of(rates.peak(run, 0, "float", matrix=False)) == 4e11
    assert rate_of(rates.peak(run, 0, "float")) == 2e12
    assert rates.peak_fraction(run, plain) == pytest.approx(0.25)
    assert rates.peak_fraction(run, tensor) == pytest.approx(0.5)
    assert heading(run, 0, "float")[-2:] == ("float peak ~400 GFLOPS", "float matrix unit peak ~2,000 GFLOPS")
    assert rates.peak_fraction(Run(HEADER, (peak(4e11), tensor)), tensor) is None
    assert rates.units_used(Run(HEADER, peaks), 0, "float") == (False,)
    above = Run(HEADER, (peak(4e11), unit("mma", 0.5e12, "random"), plain, tensor))
    assert rates.peak_fraction(above, plain) == pytest.approx(0.25)
    assert rates.peak_fraction(above, tensor) == pytest.approx(2.0)


def test_operations_on_integers_are_no_flops() -> None:
    assert [rates.unit(name) for name in ("half", "tf32", "char")] == ["GFLOPS", "GFLOPS", "GIOPS"]


def test_cublas_multiplies_floats_with_the_ordinary_units_alone() -> None:
    ran_on = [BY_NAME["cublas"].ran_on(name) for name in ("float", "double", "half")]
    assert ran_on == ["device", "matrix", "matrix"]


def test_cublas_by_dp4a_is_not_compared_with_the_tensor_core_peak() -> None:
    def of_char(row: Row) -> Row:
        return replace(row, dtype="char")

    row = of_char(gemm("cublas", 1000, 2e9 / 1.2e14, "device"))
    tensor = replace(peak(1.9e15, dtype="char"), variant="wgmma", ran_on="matrix")
    assert rates.peak_fraction(Run(HEADER, (tensor, row)), row) is None
    dp4a = replace(peak(1.34e14, dtype="char"), variant="dot8")
    run = Run(HEADER, (tensor, dp4a, row))
    assert rates.peak_fraction(run, row) == pytest.approx(1.2 / 1.34, rel=0.01)
    assert rates.units_used(run, 0, "char") == (False,)
    ours = replace(of_char(gemm("nv-wgmma", 1000, 2e9 / 1.4e15, "kernel")), ran_on="matrix")
    assert rates.peak_fraction(run, ours, "kernel") == pytest.approx(1.4 / 1.9, rel=0.01)


def test_a_gemm_above_the_measured_peak_is_above_100_percent() -> None:
    slow, fast = (
        gemm("naive", 1000, 0.02, "kernel"),
        gemm("tiled", 1000, 0.002, "kernel"),
    )  # 1e11, 1e12 flop/s
    run = Run(HEADER, (peak(9e11), slow, fast))
    assert rate_of(rates.peak(run, 0, "float")) == 9e11
    assert rates.peak_fraction(run, slow) == pytest.approx(1 / 9)
    assert rates.peak_fraction(run, fast) == pytest.approx(10 / 9)
    assert heading(run, 0, "float")[-1] == "float peak ~900 GFLOPS"


def test_half_is_compared_with_the_peak_of_the_type_of_its_sums() -> None:
    """Attack 16: 907 TFLOPS are the most with sums in float; 933 was what their rows were held against."""

    def of_half(row: Row, sums: str) -> Row:
        return replace(row, dtype="half", ran_on="matrix", sums=sums)

    def unit(rate: float, accumulator: str) -> Row:
        parameters: Parameters = {"shape": "m64n256k16", "accumulator": accumulator, "operands": "random"}
        return replace(of_half(peak(rate), ""), variant="wgmma", parameters=parameters)

    wide, narrow, unknown = (
        of_half(gemm("nv-wgmma", 1000, 2e9 / 7e14, "kernel"), sums) for sums in ("float", "half", "")
    )
    peaks = (unit(9.07e14, "float"), unit(9.33e14, "half"))
    run = Run(HEADER, (*peaks, wide))
    assert rates.peak_fraction(run, wide) == pytest.approx(700 / 907, rel=0.001)
    assert rate_of(rates.peak(run, 0, "half")) == 9.07e14  # what the heading says
    assert rates.peak_fraction(run, narrow) == pytest.approx(700 / 933, rel=0.001)
    assert rates.peak_fraction(run, unknown) == pytest.approx(700 / 933, rel=0.001)
    assert {BY_NAME[name].needs.sums.get("half") for name in ("nv-mma", "nv-wgmma", "cublas")} == {"float"}


def test_the_fields_of_the_contract() -> None:
    row = gemm("naive", 1000, 0.02, "kernel")
    (fields,) = to_records(Run(HEADER, (row,)))
    names = list(fields)
    assert " ".join(names[names.index("m") : names.index("conversion")]) == (
        "m n k lda ldb ldc trans_a trans_b batch scope "
        "gflops gflops_median gflops_low gflops_high "
        "kernel_gflops kernel_gflops_low kernel_gflops_high "
        "device_gflops device_gflops_low device_gflops_high "
        "host_gflops host_gflops_low host_gflops_high "
        "helpers_share peak_fraction gbps gbps_median gbps_low gbps_high "
        "kernel_s kernel_s_low kernel_s_high device_s device_s_low device_s_high "
        "host_s host_s_low host_s_high latency_s residual residual_ulp versus versus_ratio versus_low "
        "versus_high versus_scope energy_j gflop_per_j width noise uncertain"
    )
    assert fields["kernel_gflops"] == pytest.approx(100)
    best = to_records(Run(HEADER, (peak(4e11),)))[0]
    assert best["gflops"] == pytest.approx(400)
    assert best["kernel_gflops"] is None


def test_efficiency_is_flops_over_joules() -> None:
    row = replace(gemm("naive", 1000, 0.02), energy=Energy(0.5, "", "board", "NVML", 60.0, 1.2, 600))
    assert rates.gflop_per_joule(row) == pytest.approx(2 / 0.5)
    assert rates.mean_watts(row) == pytest.approx(0.5 * 600 / 1.2)
    fields = to_records(Run(HEADER, (row,)))[0]
    assert (fields["energy_j"], fields["gflop_per_j"]) == (0.5, pytest.approx(4))
    launch = replace(peak(4e11), energy=Energy(8.0))
    assert rates.gflop_per_joule(launch) == pytest.approx(50)


@pytest.mark.parametrize(
    "row",
    [
        gemm("naive", 1000, 0.02),
        replace(gemm("naive", 1000, 0.02), energy=Energy(why="not measured: no counter")),
        replace(gemm("naive", 1000, 0.02), energy=Energy(0.5), status="wrong"),
        replace(gemm("naive", 0, 0.02), energy=Energy(0.5)),
    ],
)
def test_what_has_no_joules_or_no_answer_has_no_efficiency(row: Row) -> None:
    assert rates.gflop_per_joule(row) is None
    assert rates.mean_watts(row) is None


def test_noise_is_of_the_finest_scope() -> None:
    row = gemm("naive", 8, 1.0, "kernel")
    assert rates.noise(row) == pytest.approx(0.003, abs=0.002)
    two = replace(row, samples={"kernel": Scope((1.0, 1.0), 1, "budget")})
    assert rates.noise(two) is None


def memory(probe: str, rate: float, verdict: Verdict = "ok", **changes: Any) -> Row:
    row = peak(1.0, verdict)
    samples = {"kernel": Scope((1.0, 1.1, 1.2), 1, "stable")}
    row = replace(row, kind="bandwidth", variant=probe, work=Work(bytes=int(rate)), samples=samples)
    return replace(row, **changes)


def test_bandwidth_is_the_best_sound_batch_of_global_memory() -> None:
    rows = (
        memory("global-read", 4e12),
        memory("global-copy", 5e12),
        memory("global-write", 7e12, "suspect"),
        memory("local-read", 9e13),
        memory("global-triad", 8e12, device=1),
        replace(memory("global-read", 9e12), status="failed"),
    )
    best = rates.best_bandwidth(Run(HEADER, rows), 0)
    assert best is not None
    assert best[0] == pytest.approx(5e12)
    assert rates.best_bandwidth(Run(HEADER, rows[2:4]), 0) is None


def test_intensity_is_flops_over_the_bytes_of_all_operands() -> None:
    assert rates.intensity(gemm("naive", 96, 1.0)) == pytest.approx(2 * 96 / (3 * 4))
    assert rates.intensity(replace(gemm("naive", 1, 1.0), problem=Problem(0, 5, 0))) == 0
    double = replace(gemm("naive", 96, 1.0), dtype="double")
    assert rates.intensity(double) == pytest.approx(2 * 96 / (3 * 8))


def helped(kernel_s: float, device_s: float, launches: int = 2) -> Row:
    """A row whose batches take so long in either scope, in ever slower batches."""
    row = gemm("padded", 100, 0.002, "host")
    slower = tuple(1 + 0.1 * n for n in range(9))
    scopes = {
        name: Scope(tuple(seconds * each for each in slower), 1, "stable")
        for name, seconds in (("kernel", kernel_s), ("device", device_s))
    }
    stamps = (Launch("pad", 0, 0, 1e-4), Launch("multiply", 0, 0, 1e-3))[:launches]
    return replace(row, samples={**scopes, **row.samples}, launches=stamps)


def test_helpers_take_what_the_multiplication_leaves_of_the_device_scope() -> None:
    assert rates.helpers_share(helped(0.00097, 0.001)) == pytest.approx(0.03)
    assert rates.helpers_share(helped(0.001, 0.001, launches=1)) == 0
    assert rates.helpers_share(helped(0.001, 0.001)) is None  # both by the wall clock
    assert rates.helpers_share(replace(helped(0.97, 1), status="wrong")) is None
    assert rates.helpers_share(gemm("numpy", 100, 0.001, "host", -1)) is None
    row = helped(0.00097, 0.001)
    assert to_records(Run(HEADER, (row,)))[0]["helpers_share"] == pytest.approx(0.03)
