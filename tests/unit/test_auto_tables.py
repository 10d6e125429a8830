"""auto's rows in tables and among the others: shown as what they are, and never counted twice."""

from __future__ import annotations

from dataclasses import replace

import pytest

from gemmbench.gemm.sweep_table import gemm
from gemmbench.ladder import ORDER
from gemmbench.model.row import Problem, Row
from gemmbench.model.run_file import Run
from gemmbench.stats import panels, rates
from gemmbench.stats.panels import Setting
from tests import fake_runs as fake
from tests.unit.test_tables import detail, sweep, text, workloads

WHY = "below the break-even size, about m = n = k = 96"
SMALL, LARGE = Problem(64, 64, 64), Problem(512, 512, 512)


def taken(row: Row, why: str) -> Row:
    """auto's row where it took what another row is of."""
    choice = {"kernel": row.variant, "why": why, **row.parameters}
    return replace(row, device=0, variant="auto", parameters={}, choice=choice)


def rows() -> tuple[Row, ...]:
    found = []
    for problem, host in ((SMALL, 60.0), (LARGE, 200.0)):
        tiled = fake.gemm_row("tiled", problem, 4.0 if problem is SMALL else 300.0, parameters={"TS": 16})
        numpy = fake.gemm_row("numpy", problem, host, device=-1)
        pick, why = (numpy, WHY) if problem is SMALL else (tiled, "the fastest measured at 512x512x512")
        found += [tiled, taken(pick, why), numpy]
    return tuple(found)


def run_of(*more: Row) -> Run:
    return Run(fake.header(("square",), (fake.CPU,)), (*more, *rows()))


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_sweep_says_in_a_line_what_it_took(width: int) -> None:
    shown = text(sweep(run_of(), "m", order=ORDER), width)
    words = " ".join(shown.split())
    assert "auto took: numpy at 64; tiled at 512" in words
    assert "about m = n = k = 96" not in words
    assert max(map(len, shown.splitlines())) <= width


def test_its_row_shows_the_figures_of_what_it_took() -> None:
    shown = text(sweep(run_of(), "m", order=ORDER))
    (line,) = (line for line in shown.splitlines() if line.startswith("auto  "))
    assert [word.strip("*") for word in line.split()[1:3]] == ["59.9", "300"]


def test_what_beats_the_hosts_blas_is_a_kernel_not_auto() -> None:
    shown = " ".join(text(sweep(run_of(), "m", order=ORDER)).split())
    assert "tiled beats numpy" in shown
    assert "auto beats" not in shown


def test_the_details_give_its_reasons() -> None:
    words = " ".join(text(detail(run_of(), ORDER)).split())
    assert f"auto at 64: took numpy: {WHY}" in words
    assert "auto at 512: took tiled: the fastest measured at 512x512x512" in words
    assert "why=" not in words
    page = " ".join(text(gemm(run_of(), verbose=True)).split())
    assert f"took: numpy: {WHY}" in page
    assert "kernel=" not in page


def test_the_best_kernel_of_a_shape_is_named_not_auto() -> None:
    """auto's row measures the same a second time, and may come out ahead."""
    tiled = fake.gemm_row("tiled", LARGE, 300.0)
    ahead = taken(fake.gemm_row("tiled", LARGE, 310.0), WHY)
    run = Run(fake.header(("workloads",), (fake.CPU,)), (tiled, ahead))
    shown = text(workloads(run, "kernel", ORDER))
    assert "auto" not in shown.replace("auto took: tiled", "")
    alone = text(workloads(Run(run.header, (ahead,)), "kernel", ORDER))
    assert "309" in alone


def test_its_rank_is_that_of_what_it_took() -> None:
    places = panels.standings(run_of(), Setting(0, "float"), LARGE)
    assert (places["tiled"].rank, places["auto"].rank) == (1, None)


def test_it_is_held_against_the_peak_of_the_units_that_it_ran_on() -> None:
    """On a GPU a peak of matrix units would be no peak for others, and the host's BLAS has none there."""
    run = run_of(fake.peak_row(4, 345.0))
    small, large = (row for row in run.rows if row.variant == "auto")
    assert rates.what_ran(small) == "numpy"
    assert rates.peak_fraction(run, small) == pytest.approx(60 / 345, rel=0.02)
    assert rates.peak_fraction(run, large) == pytest.approx(300 / 345, rel=0.02)
    gpu = Run(fake.header(("square",), (fake.GPU,)), run.rows)
    assert rates.peak_fraction(gpu, small) is None
    tensor = replace(large, choice={"kernel": "nv-mma", "why": ""}, ran_on="matrix")
    tensor = replace(tensor, samples={"kernel": fake.scope(1e-7)})
    outdone = Run(fake.header(("square",), (fake.GPU,)), (fake.peak_row(4, 345.0), tensor))
    assert rates.above_peak(outdone, 0, "float") is None
    assert rates.what_ran(replace(tensor, choice={"TS": 16}, variant="tiled")) == "tiled"
