"""The tables of memory, transfers, latencies and matrix units."""

from __future__ import annotations

from dataclasses import replace

from gemmbench.model.row import Check
from gemmbench.model.run_file import Run
from gemmbench.views import show
from tests import fake_memory
from tests import fake_runs as fake
from tests.unit.test_tables import peak, text


def test_show_has_the_same_tables() -> None:
    run = fake_memory.fake_memory()
    assert text(show(run)) == text(peak(run))


def test_local_memory_of_a_cpu_is_called_emulated() -> None:
    assert "local-read (emulated)" in text(peak(fake_memory.fake_cpu()), 120)
    assert "emulated" not in text(peak(fake_memory.fake_memory()), 120)


def test_a_suspect_figure_is_marked_and_never_the_best() -> None:
    table = text(peak(fake_memory.fake_memory()), 120)
    assert "?4.03" in table
    assert "suspect: global-triad, width 1: doubling the work multiplies the time by 1.17, not by 2" in table


def test_races_are_named_only_if_verbose() -> None:
    run = fake_memory.fake_memory()
    brief, verbose = text(peak(run), 120), text(peak(run, verbose=True), 120)
    assert "raced (GB/s)" not in brief
    assert "raced (GB/s)" in verbose


def test_ceilings_are_derived_and_say_from_what() -> None:
    table = text(peak(fake_memory.fake_matrix()), 120)
    assert "66.9   97.9 %" in table
    source = "132 units at 1980 MHz, each with the multiply-adds of compute capability 9.0"
    assert f"ceiling: derived, not measured: {source}" in table
    run = fake.fake_peak()
    assert "ceiling" not in text(peak(run), 120)


def test_kept_rows_say_how_old_they_are() -> None:
    row = replace(fake.peak_row(1, 100.0), measured_utc="2026-11-21T01:30:00+00:00")
    run = Run(fake.header(("square",)), (row,))
    assert "kept: float, width 1: measured 3 h earlier; --remeasure measures anew" in text(peak(run))


def test_a_bandwidth_whose_integrity_was_not_checked_is_no_best() -> None:
    rows = tuple(
        replace(row, check=Check()) for row in fake_memory.fake_memory().rows if row.variant == "global-read"
    )
    table = text(peak(Run(fake.header(("peak",)), rows)))
    assert "*4." not in table
    assert "suspect: global-read, width 1: its integrity was not checked" in table
