"""The tables of memory, transfers, latencies and matrix units."""

from __future__ import annotations

from dataclasses import replace

from gemmbench.model.row import Check
from gemmbench.model.run_file import Run
from gemmbench.views import show
from tests import fake_memory
from tests import fake_runs as fake
from tests.unit.test_tables import cells, peak, text


def test_show_has_the_same_tables() -> None:
    run = fake_memory.fake_memory()
    assert text(show(run)) == text(peak(run))


def test_local_memory_of_a_cpu_is_called_emulated() -> None:
    assert "local-read (emulated)" in text(peak(fake_memory.fake_cpu()), 120)
    assert "emulated" not in text(peak(fake_memory.fake_memory()), 120)


def test_a_suspect_figure_is_marked_and_never_the_best() -> None:
    table = text(peak(fake_memory.fake_memory()), 120)
    assert "4.03" not in table
    assert "?: not verified, so it does not count: global-triad, width 1: close other programs" in table


def test_the_theoretical_peak_says_what_it_is_derived_from() -> None:
    table = text(peak(fake_memory.fake_matrix(), verbose=True), 120)
    assert "97.9 %" in table
    source = "132 units at 1980 MHz, each with the multiply-adds of compute capability 9.0"
    assert f"theoretical: {source}" in table
    assert "theoretical" not in text(peak(fake.fake_peak(), verbose=True), 120)


def test_kept_rows_say_how_old_they_are() -> None:
    row = replace(fake.peak_row(1, 100.0), measured_utc="2026-11-21T01:30:00+00:00")
    run = Run(fake.header(("square",)), (row,))
    assert " 3 h earlier " in text(peak(run, verbose=True))


def test_a_bandwidth_without_evidence_is_not_shown() -> None:
    rows = tuple(
        replace(row, check=Check()) for row in fake_memory.fake_memory().rows if row.variant == "global-read"
    )
    table = text(peak(Run(fake.header(("peak",)), rows)), 120)
    assert cells(table, "global-read") == [*["?"] * 5, "-"]
    assert "?: not verified, so it does not count: global-read, width 1, 2, 4, 8, 16: " in table
