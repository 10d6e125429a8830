"""A library's row has no kernel scope: what tables, charts and the ladder show in its place."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmbench import chart_views
from gemmbench.gemm.sweep_table import sheets
from gemmbench.ladder import BY_NAME, FIRST_RUNG
from gemmbench.model.case import Case, Skip
from gemmbench.model.problem import Gemm
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.stats import panels, rates
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
    assert rates.derived(run_with(row), row)["kernel_gflops"] is None
    assert rates.derived(run_with(row), row)["device_gflops"] == pytest.approx(200 / 1.01, rel=0.01)


def test_a_kernel_shows_no_wider_scope_in_place_of_one_that_it_has() -> None:
    row = fake.gemm_row("naive", SIZE, 3.0)
    assert [rates.shown_rate(row, scope) for scope in ("kernel", "device", "host")] == [
        rates.rate(row, scope) for scope in ("kernel", "device", "host")
    ]


def test_tables_show_it_and_rank_it() -> None:
    run = run_with(library_row(300.0))
    (sheet,) = sheets(run, "m", "kernel", ("naive", "clblast"))
    line = next(row for row in sheet.rows if row[0].text == "clblast")
    assert [cell.text for cell in line if cell.text] == ["clblast", "297", "86.0 %", "0.922"]
    places = panels.standings(run, panels.Setting(0, "float"), SIZE, FIRST_RUNG)
    assert (places["clblast"].rank, places["numpy"].rank, places["register"].rank) == (1, 2, 3)
    assert places["clblast"].speedup == pytest.approx(297 / 1.1, rel=0.05)


def test_charts_of_time_show_it() -> None:
    rows = [library_row(300.0, Problem(size, size, size)) for size in (256, 512)]
    (axes,) = chart_views.figure([run_with(*rows)], "time", fake.FAMILIES).axes
    line = next(line for line in axes.lines if line.get_label() == "clblast")
    times = dict(zip(line.get_xdata(), line.get_ydata(), strict=True))
    assert times[512] == pytest.approx(2 * 512**3 / 297e9, rel=0.01)


def statuses(names: str, optional: set[str], dtype: str = "float") -> dict[str, str]:
    plan = gemm_plan([fake.CPU], [BY_NAME[name] for name in names.split()], [Gemm(8, 8, 8, dtype)])
    kept = fitting(plan, optional)
    return {
        (step.row.variant if isinstance(step, Skip) else step.variant): (
            step.row.status if isinstance(step, Skip) else "runs"
        )
        for step in kept
    }


def test_optional_variants_that_do_not_fit_leave_no_row() -> None:
    names = "naive gpu-tile nv-async cublas"
    assert statuses(names, {"gpu-tile", "nv-async"}) == {
        "naive": "runs",
        "gpu-tile": "runs",
        "cublas": "unsupported",
    }
    assert statuses(names, set())["nv-async"] == "unsupported"


def test_where_none_fits_all_rows_stay() -> None:
    assert statuses("naive nv-async", {"nv-async"}) == {"naive": "runs", "nv-async": "unsupported"}


def test_optional_variants_that_are_skipped_keep_their_row() -> None:
    """Past the cap of images, where another optional variant runs."""
    plan = gemm_plan([fake.CPU], [BY_NAME["naive"], BY_NAME["image-4x8"]], [Gemm(8, 8, 20000)])
    naive, image = fitting(plan, {"naive", "image-4x8"})
    assert isinstance(naive, Case)
    assert isinstance(image, Skip)
    assert image.row.status == "skipped"
