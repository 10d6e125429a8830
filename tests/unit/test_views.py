"""Which tables and charts a run gets: what its header says, whatever its command was."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gemmbench import chart_views
from gemmbench.gemm import shape_tables, sweep_table
from gemmbench.model.run_file import Run
from gemmbench.report import table as table_table
from gemmbench.tune import result as table
from gemmbench.views import VIEWS, sheets, show, to_markdown
from tests import fake_runs as fake
from tests import fake_tuner as tuner
from tests.unit.test_tables import text

MISLEADING = ("tune", "workloads", "precision", "gemm", "--scope", "host")


def seen_as(view: str, run: Run, scope: str = "") -> Run:
    return replace(run, header=replace(run.header, view=view, scope=scope, command=MISLEADING))


def body(sheet: table_table.Sheet) -> tuple[object, ...]:
    """All but the notes, of which the last table has one more."""
    return sheet.heading, sheet.caption, sheet.rows


@pytest.mark.parametrize(
    ("view", "run", "tables"),
    [
        ("square", fake.fake_square(), lambda run: sweep_table.sheets(run, "m", "device", fake.ORDER)),
        ("sweep-k", fake.fake_sweep_k(), lambda run: sweep_table.sheets(run, "k", "kernel", fake.ORDER)),
        (
            "workloads",
            fake.fake_workloads(),
            lambda run: shape_tables.workloads_sheets(run, "device", fake.ORDER),
        ),
        (
            "workloads",
            fake.fake_square(),
            lambda run: shape_tables.workloads_sheets(run, "device", fake.ORDER),
        ),
        ("tune", tuner.fake_tune(), table.sheets),
        ("gemm", fake.fake_workloads(), lambda run: sweep_table.problem_sheets(run, "device", fake.ORDER)),
        ("", fake.fake_workloads(), lambda run: sweep_table.row_sheets(run, fake.ORDER)),
        ("", fake.fake_square(), lambda run: sweep_table.sheets(run, "m", "device", fake.ORDER)),
        (
            "of a later version",
            fake.fake_sweep_k(),
            lambda run: sweep_table.sheets(run, "k", "kernel", fake.ORDER),
        ),
    ],
)
def test_the_view_decides_and_the_command_does_not(
    view: str, run: Run, tables: Callable[[Run], list[table_table.Sheet]]
) -> None:
    run = seen_as(view, run)
    expected = tables(run)
    assert expected
    assert [body(sheet) for sheet in sheets(run, fake.ORDER)] == [body(sheet) for sheet in expected]


def test_every_view_of_a_table_is_tested() -> None:
    assert {*VIEWS} == {"square", "sweep-k", "workloads", "gemm", "tune"}


@pytest.mark.parametrize("scope", ["kernel", "device", "host"])
def test_the_scope_is_the_headers(scope: str) -> None:
    run = seen_as("square", fake.fake_square(), scope)
    assert f"GFLOPS {sweep_table.SCOPE_WORDS[scope]}" in to_markdown(run, fake.ORDER)


@pytest.mark.parametrize("view", ["square", "tune"])
def test_all_scopes_and_verbose_are_a_line_for_each_row(view: str) -> None:
    run = seen_as(view, fake.fake_square(), "all")
    expected = sweep_table.row_sheets(run, fake.ORDER)
    assert sheets(run, fake.ORDER)[: len(expected)] == expected
    verbose = sheets(seen_as(view, run), fake.ORDER, verbose=True)
    assert [sheet for sheet in verbose if sheet in expected] == expected


def test_verbose_shows_no_table_twice() -> None:
    run = seen_as("", fake.fake_workloads())
    run = replace(run, header=replace(run.header, more_kernels=2))
    shown = [sheet for sheet in sheets(run, fake.ORDER, verbose=True) if sheet.rows]
    captions = [(sheet.heading, sheet.caption) for sheet in shown]
    assert len({*captions}) == len(captions)


def test_peaks_of_a_run_with_gemms_are_shown_with_verbose() -> None:
    run = seen_as("square", fake.fake_square())
    assert "Arithmetic" not in text(show(run, fake.ORDER))
    assert "Arithmetic" in text(show(run, fake.ORDER, verbose=True))


def test_a_sweep_of_one_size_stays_a_sweep_of_its_own_dimension() -> None:
    rows = tuple(row for row in fake.fake_sweep_k().rows if not row.problem or row.problem.k == 1024)
    run = seen_as("sweep-k", replace(fake.fake_sweep_k(), rows=rows))
    assert "float GEMM, m = n = 1024, " in to_markdown(run, fake.ORDER)


def test_a_tuners_run_has_no_chart() -> None:
    run = seen_as("square", fake.fake_square())
    assert "throughput" in chart_views.suited([run])
    assert chart_views.suited([seen_as("tune", fake.fake_square())]) == []
    assert chart_views.suited([seen_as("tune", tuner.fake_tune())]) == []
