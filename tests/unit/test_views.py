"""Which tables and charts a run gets: what its header says, whatever its command was."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gemmbench import UsageError, api, chart_views
from gemmbench.gemm import shape_tables, sweep_table
from gemmbench.model.device import Conditions
from gemmbench.model.row import Problem
from gemmbench.model.run_file import Run
from gemmbench.report import table as table_table
from gemmbench.stats import rates
from gemmbench.tune import result as table
from gemmbench.views import VIEWS, format_markdown, run_sheets, show
from tests import fake_runs as fake
from tests import fake_tuner as tuner
from tests.unit.test_tables import text

ROOT = Path(__file__).parents[2]
MISLEADING = ("tune", "workloads", "precision", "gemm", "--scope", "host")


def seen_as(view: str, run: Run, scope: str = "") -> Run:
    return replace(run, header=replace(run.header, view=view, scope=scope, command=MISLEADING))


def body(sheet: table_table.Sheet) -> tuple[object, ...]:
    """All but the notes, of which the last table has one more."""
    return sheet.heading, sheet.caption, sheet.rows


@pytest.mark.parametrize(
    ("view", "run", "tables"),
    [
        ("square", fake.fake_square(), lambda run: sweep_table.sweep_sheets(run, "m", "device", fake.ORDER)),
        (
            "sweep-k",
            fake.fake_sweep_k(),
            lambda run: sweep_table.sweep_sheets(run, "k", "kernel", fake.ORDER),
        ),
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
        ("tune", tuner.fake_tune(), table.tuning_sheets),
        ("gemm", fake.fake_workloads(), lambda run: sweep_table.problem_sheets(run, "device", fake.ORDER)),
        ("", fake.fake_workloads(), lambda run: sweep_table.row_sheets(run, fake.ORDER)),
        ("", fake.fake_square(), lambda run: sweep_table.sweep_sheets(run, "m", "device", fake.ORDER)),
        (
            "of a later version",
            fake.fake_sweep_k(),
            lambda run: sweep_table.sweep_sheets(run, "k", "kernel", fake.ORDER),
        ),
    ],
)
def test_the_view_decides_and_the_command_does_not(
    view: str, run: Run, tables: Callable[[Run], list[table_table.Sheet]]
) -> None:
    run = seen_as(view, run)
    expected = tables(run)
    assert expected
    assert [body(sheet) for sheet in run_sheets(run, fake.ORDER)] == [body(sheet) for sheet in expected]


def test_every_view_of_a_table_is_tested() -> None:
    assert {*VIEWS} == {"square", "sweep-k", "workloads", "gemm", "tune"}


@pytest.mark.parametrize("scope", ["kernel", "device", "host"])
def test_the_scope_is_the_headers(scope: str) -> None:
    run = seen_as("square", fake.fake_square(), scope)
    assert f"GFLOPS {sweep_table.SCOPE_WORDS[scope]}" in format_markdown(run, fake.ORDER)


@pytest.mark.parametrize("view", ["square", "tune"])
def test_all_scopes_and_verbose_are_a_line_for_each_row(view: str) -> None:
    run = seen_as(view, fake.fake_square(), "all")
    expected = sweep_table.row_sheets(run, fake.ORDER)
    assert run_sheets(run, fake.ORDER)[: len(expected)] == expected
    verbose = run_sheets(seen_as(view, run), fake.ORDER, verbose=True)
    assert [sheet for sheet in verbose if sheet in expected] == expected


def test_verbose_shows_no_table_twice() -> None:
    run = seen_as("", fake.fake_workloads())
    run = replace(run, header=replace(run.header, more_kernels=2))
    shown = [sheet for sheet in run_sheets(run, fake.ORDER, verbose=True) if sheet.rows]
    captions = [(sheet.heading, sheet.caption) for sheet in shown]
    assert len({*captions}) == len(captions)


def test_peaks_of_a_run_with_gemms_are_shown_with_verbose() -> None:
    run = seen_as("square", fake.fake_square())
    assert "Arithmetic" not in text(show(run, fake.ORDER))
    assert "Arithmetic" in text(show(run, fake.ORDER, verbose=True))


def test_a_sweep_of_one_size_is_a_table_of_a_problem_with_intervals() -> None:
    rows = tuple(row for row in fake.fake_sweep_k().rows if not row.problem or row.problem.k == 1024)
    run = seen_as("sweep-k", replace(fake.fake_sweep_k(), rows=rows))
    table = format_markdown(run, fake.ORDER)
    assert "float GEMM, m = n = k = 1024, " in table
    assert " | with transfers | of peak |" in table
    assert "| tiled | 7.57 \\[7.56, 7.57\\] | " in table
    again = replace(run, rows=(*rows, *rows))
    assert "by scope" in format_markdown(again, fake.ORDER), "several rows of a kernel are no ranking"


def selected(**selection: Any) -> str:
    whole = api.load(ROOT / "plots" / "cpu-intel-square.jsonl")
    return text(whole.select(**selection).table())


def test_a_size_with_transfers_is_one_short_table_with_intervals() -> None:
    shown = selected(sizes=256, scope="host", kernels="default,numpy")
    assert re.search(r"^cpu-packed +\*199 \[197, 201\] +85 %$", shown, re.MULTILINE)
    assert re.search(r"^numpy \(host\) +181 \[180, 181\] +77 %$", shown, re.MULTILINE)
    assert "float GEMM, m = n = k = 256, GFLOPS\n" in shown
    assert "in the kernel" not in shown
    assert "on the device" not in shown
    assert len(shown.splitlines()) <= 30


def test_selected_rows_keep_the_scope_and_the_marks_of_their_run() -> None:
    """What slowed a row is known from the bursts of the other rows, and a library sets the scope."""
    run = api.load(ROOT / "plots" / "cpu-intel-square.jsonl")
    of_all = {id(row): rates.is_uncertain(run, row) for row in run.rows}
    slow = replace(run.rows[-1], conditions=Conditions(control_s=(1.0, 1.0)))
    gemms = (row for row in run.rows[:-1] if row.kind == "gemm")
    quick = (replace(row, conditions=Conditions(control_s=(0.1, 0.1))) for row in gemms)
    whole = api.Run(run.header, (*quick, slow))
    assert rates.estimate_slowing(whole, slow) > 1
    assert rates.estimate_slowing(whole.select(kernels=slow.variant), slow) == rates.estimate_slowing(
        whole, slow
    )
    alone = whole.select(kernels=slow.variant, sizes=slow.problem.m)
    assert rates.estimate_slowing(alone.select(kernels=slow.variant), slow) == rates.estimate_slowing(
        whole, slow
    )
    few = run.select(kernels=["wide", "naive"], sizes="256,512")
    assert {row.variant for row in few.rows if row.kind == "gemm"} == {"wide", "naive"}
    assert {row.problem.m for row in few.rows if row.problem} == {256, 512}
    assert all(rates.is_uncertain(few, row) == of_all[id(row)] for row in few.rows)
    assert "GFLOPS on the device" in text(few.table())


def test_only_a_sweep_has_sizes_to_select() -> None:
    run = fake.fake_workloads()
    with pytest.raises(UsageError, match=r"^--sizes needs a sweep, and r.jsonl is not a sweep$"):
        api.Run(run.header, run.rows, "r.jsonl").select(sizes=8)


def test_the_interval_of_a_slowed_row_is_that_of_the_line_below() -> None:
    bursts = ((1.0, 1.0), (1.0, 1.5))
    rows = tuple(
        replace(fake.gemm_row(name, Problem(64, 64, 64), 2.0), conditions=Conditions(control_s=control_s))
        for name, control_s in zip(("tiled", "naive"), bursts, strict=True)
    )
    shown = text(show(seen_as("square", Run(fake.header(("square",)), rows))))
    assert re.search(r"^naive +~2.00 \[2.00, 3.00\]", shown, re.MULTILINE)
    assert "widest: naive at 64, 1.79 to 2.69 GFLOPS" in shown


def test_a_host_scope_that_is_known_to_be_faster_is_explained() -> None:
    row = fake.gemm_row("tiled", Problem(64, 64, 64), 2.0)
    faster = tuple(s / 2 for s in row.samples["kernel"].seconds)
    odd = replace(row, samples={**row.samples, "host": replace(row.samples["host"], seconds=faster)})
    for rows, is_odd in (((row,), False), ((odd,), True)):
        run = seen_as("square", Run(fake.header(("square",)), rows))
        assert ("host scope faster: tiled at 64: timed at a faster moment" in text(show(run))) == is_odd


def test_a_tuners_run_has_no_chart() -> None:
    run = seen_as("square", fake.fake_square())
    assert "throughput" in chart_views.list_suitable([run])
    assert chart_views.list_suitable([seen_as("tune", fake.fake_square())]) == []
    assert chart_views.list_suitable([seen_as("tune", tuner.fake_tune())]) == []
