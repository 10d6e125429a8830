"""A library's row has no kernel scope: what tables, charts and the ladder show in its place."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from gemmbench import chart_views
from gemmbench.exports.records import to_records
from gemmbench.gemm.sweep_table import row_sheets, sweep_sheets
from gemmbench.ladder import BASELINES, BEST, BY_NAME, DEFAULT
from gemmbench.model.case import Case, Skip
from gemmbench.model.device import DeviceFacts
from gemmbench.model.problem import Gemm
from gemmbench.model.row import CHAIN, Partner, Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.stats import panels, rates
from gemmbench.suite.options import names
from gemmbench.suite.plan import fitting, gemm_plan
from tests import fake_runs as fake

SIZE = Problem(512, 512, 512)


def library_row(gflops: float, size: Problem = SIZE) -> Row:
    row = fake.gemm_row("clblast", size, gflops)
    samples = {scope: row.samples[scope] for scope in ("device", "host")}
    return replace(row, samples=samples, launches=(), build_s=None)


def run_with(*rows: Row) -> Run:
    run = fake.fake_square()
    return replace(run, rows=(*run.rows, *rows))


def test_the_device_scope_stands_for_the_kernels() -> None:
    row = library_row(200.0)
    shown, device = rates.shown_rate(row, "kernel"), rates.rate(row, "device")
    assert shown == device is not None
    assert rates.shown_rate(row, "host") == rates.rate(row, "host")
    assert rates.rate(row, "kernel") is None
    assert to_records(run_with(row))[-1]["kernel_gflops"] is None
    assert to_records(run_with(row))[-1]["device_gflops"] == pytest.approx(200 / 1.01, rel=0.01)


def test_a_kernel_shows_no_wider_scope_in_place_of_one_that_it_has() -> None:
    row = fake.gemm_row("naive", SIZE, 3.0)
    for scope in ("kernel", "device", "host"):
        shown, own = rates.shown_rate(row, scope), rates.rate(row, scope)
        assert shown.median == own.median


def test_tables_show_it_and_rank_it() -> None:
    run = run_with(library_row(300.0))
    (sheet,) = sweep_sheets(run, "m", "kernel", ("naive", "clblast"))
    line = next(row for row in sheet.rows if row[0].text == "clblast")
    assert [cell.text for cell in line if cell.text != "-"] == ["clblast", "297", "86 %"]
    places = panels.standings(run, panels.Setting(0, "float"), SIZE)
    assert (places["clblast"].rank, places["numpy"].rank, places["register"].rank) == (1, 2, 3)


def test_charts_of_time_show_it() -> None:
    rows = [library_row(300.0, Problem(size, size, size)) for size in (256, 512)]
    (axes,) = chart_views.figure([run_with(*rows)], "time", fake.FAMILIES).axes
    line = next(line for line in axes.lines if line.get_label() == "clblast")
    times = dict(zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True))
    assert times[512] == pytest.approx(2 * 512**3 / 297e9, rel=0.01)


def statuses(
    kernels: str,
    named: str = "",
    dtype: str = "float",
    baseline: str = "none",
    device: DeviceFacts = fake.CPU,
) -> dict[str, str]:
    """What is planned on a device for groups of kernels and for named ones."""
    chosen = names.choose_kernels(",".join([kernels, *named.split()]), baseline)
    plan = gemm_plan([device], chosen, [Gemm(64, 64, 64, dtype)])
    kept = fitting(plan, [names.of_groups(kernels, baseline, (), device)], named.split())
    return {
        (step.row.variant if isinstance(step, Skip) else step.variant): (
            step.row.status if isinstance(step, Skip) else "runs"
        )
        for step in kept
    }


def test_kernels_of_a_group_that_cannot_run_have_no_row() -> None:
    planned = statuses("all", "nv-async", baseline="all")
    assert planned.pop("nv-async") == "unsupported", "it was asked for by name"
    assert {*planned.values()} == {"runs"}
    assert {"naive", "gpu-tile", "clblast"} <= {*planned}
    assert not {"nv-mma", "cublas"} & {*planned}


def test_the_default_kernels_of_a_cpu() -> None:
    planned = statuses("default")
    assert {*planned} <= {*DEFAULT["cpu"]}
    assert {"naive", "image-4x8", "cpu-packed"} <= {*planned}
    assert not {"gpu-tile", "dot-v4", "small"} & {*planned}
    assert statuses("default", "dot-v4") == {**planned, "dot-v4": "runs"}


def test_a_kernel_for_intels_gpus_is_a_default_of_gpus_only() -> None:
    """Intel's CPU driver can run it, too, where it says nothing about a CPU."""
    for device, is_default in ((fake.CPU, False), (fake.GPU, True)):
        assert ("intel-block" in names.of_groups("default", "none", (), device)) == is_default


@pytest.mark.parametrize(
    ("libraries", "library"), [((), []), (("clblast",), ["clblast"]), (("cublas", "clblast"), ["cublas"])]
)
def test_the_default_kernels_of_a_gpu(libraries: tuple[str, ...], library: list[str]) -> None:
    gpu = replace(fake.GPU, libraries=libraries)
    planned = statuses("default", baseline="default", device=gpu)
    assert [name for name in planned if name in BASELINES] == ["numpy", *library]
    assert {"naive", "image-4x8", "gpu-tile", "small"} <= {*planned}
    assert not {"cpu-packed", "intel-block", "dot-v4"} & {*planned}
    assert {*planned.values()} == {"runs"}


def test_mkl_is_a_baseline_by_default_only_where_numpy_has_no_blas() -> None:
    for device in (replace(each, libraries=("mkl",)) for each in (fake.CPU, fake.GPU)):
        for dtype, library in (("float", "numpy"), ("bfloat16", "mkl"), ("char", "mkl")):
            planned = statuses("cpu-packed", baseline="default", dtype=dtype, device=device)
            assert [name for name in planned if name in ("numpy", "mkl")] == [library]
        assert statuses("naive", "mkl", baseline="numpy,mkl", device=device)["mkl"] == "runs"
    assert "mkl" not in statuses("cpu-packed", baseline="default", dtype="bfloat16")


def test_a_kernel_of_a_group_has_no_row_where_a_faster_one_runs() -> None:
    hopper = partial(statuses, "best", device=replace(fake.GPU, compute_capability=(9, 0)))
    assert "nv-wgmma" in hopper(dtype="bfloat16")
    assert "nv-mma" not in hopper(dtype="bfloat16")
    assert "nv-mma" in hopper("nv-mma", dtype="bfloat16")
    assert "nv-mma" in hopper(dtype="double")
    gpu = replace(fake.GPU, compute_capability=(9, 0))
    problems = [Gemm(64, 64, 64, dtype) for dtype in ("half", "double")]
    kept = fitting(gemm_plan([gpu], [BY_NAME["nv-mma"], BY_NAME["nv-wgmma"]], problems), [BEST], ())
    cases = [(step.variant, step.dtype) for step in kept if isinstance(step, Case)]
    assert cases == [("nv-wgmma", "half"), ("nv-mma", "double")]


def test_where_no_kernel_can_run_all_rows_stay() -> None:
    assert {*statuses("default", dtype="tf32").values()} == {"unsupported"}


def test_a_kernel_of_a_group_that_is_skipped_keeps_its_row() -> None:
    """Past the cap of images, where another kernel runs."""
    plan = gemm_plan([fake.CPU], [BY_NAME["naive"], BY_NAME["image-4x8"]], [Gemm(8, 8, 20000)])
    naive, image = fitting(plan, [DEFAULT["cpu"]], ())
    assert isinstance(naive, Case)
    assert image.row.status == "skipped"


def with_gaps(row: Row, times: float) -> Row:
    """A row of a GPU: its launches are so many times as long as the kernels, from the first to the last."""
    chain = tuple(seconds * times for seconds in row.samples["device"].seconds)
    return replace(row, samples={**row.samples, CHAIN: replace(row.samples["device"], seconds=chain)})


def test_the_peak_of_a_device_with_other_units_is_not_borrowed() -> None:
    """Clouds give processors of all sizes one name."""
    lender, run = fake.fake_peak(), replace(fake.fake_square(), rows=fake.fake_square().rows[-1:])
    (device, *others) = lender.header.devices
    larger = replace(device, compute_units=2 * device.compute_units)
    other = replace(lender, header=replace(lender.header, devices=(larger, *others)))
    assert rates.peak(run, 0, "float", others=[lender]) is not None
    assert rates.peak(run, 0, "float", others=[other]) is None


def test_a_run_without_gemms_has_no_say_in_the_scope() -> None:
    run = fake.fake_square()
    run = replace(run, header=replace(run.header, scope="host"))
    assert rates.view_scope(run, fake.fake_peak()) == "host"


def test_a_kernel_with_a_library_includes_the_gaps_between_its_launches() -> None:
    kernel, library = with_gaps(fake.gemm_row("register", SIZE, 330.0), 1.25), library_row(300.0)
    run = fake.fake_square()
    run = replace(run, rows=(kernel, library))
    assert rates.view_scope(run) == "device"
    events, own = rates.rate(kernel, "device"), rates.compared_rate(run, 0, library, "device")
    assert own is not None
    assert events.median > own, "the sum of events would win"
    reached = rates.compared_rate(run, 0, kernel, "device")
    assert reached is not None
    assert reached == pytest.approx(events.median / 1.25)
    (sheet,) = sweep_sheets(run, "m", "device")
    cells = {line[0].text: line[1] for line in sheet.rows}
    assert cells["clblast"].best
    assert not cells["register"].best
    assert float(str(cells["register"].text)) == pytest.approx(reached / 1e9, rel=0.01)
    assert "on the device" in sheet.caption
    standings = panels.standings(run, panels.Setting(0, "float"), SIZE)
    assert (standings["clblast"].rank, standings["register"].rank) == (1, 2)
    (verbose,) = row_sheets(run)
    assert [note.text for note in verbose.notes if "a chain of launches, from the first start" in note.text]
    assert [[cell.best for cell in line[3:4]] for line in verbose.rows] == [[False], [True]]


def test_the_ratio_to_a_library_has_the_gaps_in_it() -> None:
    kernel = with_gaps(fake.gemm_row("register", SIZE, 330.0), 1.25)
    library = {name: kernel.samples[name] for name in ("device", "host")}
    kernel = replace(kernel, former=Partner("", library, variant="cublas"))
    for scope in ("kernel", "device"):
        ratio = rates.versus(kernel, scope)
        assert (ratio.median, ratio.scope) == (pytest.approx(0.8), "device")


def test_times_are_of_the_same_samples() -> None:
    kernel = with_gaps(fake.gemm_row("register", SIZE, 330.0), 1.25)
    small = with_gaps(fake.gemm_row("register", Problem(256, 256, 256), 330.0), 1.25)
    run = replace(fake.fake_square(), rows=(kernel, small, library_row(300.0)))
    (axes,) = chart_views.figure([run], "time", fake.FAMILIES).axes
    line = next(line for line in axes.lines if line.get_label() == "register")
    times = dict(zip(np.asarray(line.get_xdata()), np.asarray(line.get_ydata()), strict=True))
    chain = rates.summary(kernel, CHAIN)
    assert times[512] == pytest.approx(chain.median)
