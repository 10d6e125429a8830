from __future__ import annotations

import io
import re
from dataclasses import replace

import pytest
from rich.console import Console

from gemmbench.model.case import Event, Finished, Planned, Staged, Started
from gemmbench.model.row import Check, Problem, Row
from gemmbench.report.progress import Progress, brief_line, line
from tests import fake_runs as fake

ROW = replace(
    fake.gemm_row("register", Problem(512, 512, 512), 38.2),
    samples={"kernel": fake.scope(2 * 512**3 / 38.2e9, times=5)},
)
SKIP = fake.bad("naive", Problem(8, 8, 8), "skipped", "would take [bold]19 s[/]")
EVENTS: tuple[Event, ...] = (
    Planned(2),
    Finished(SKIP, resumed=True),
    Finished(SKIP, is_planned=False),
    Started(1, "register float 512x512x512 [red]"),
    Staged("timing"),
    Finished(ROW),
)


def shown(terminal: bool, quiet: bool = False, verbose: int = 0) -> str:
    stream = io.StringIO()
    console = Console(file=stream, force_terminal=terminal, width=100, color_system=None)
    with Progress(console, quiet, verbose) as progress:
        for event in EVENTS:
            progress.handle(event)
            if progress._bar:
                progress._bar.refresh()
    return stream.getvalue()


def test_a_terminal_sees_label_stage_count_and_time() -> None:
    text = shown(terminal=True)
    assert "register float 512x512x512 [red]: timing" in text
    assert "0/2" in text
    assert "1/2" in text
    assert "--:--" in text  # the first case tells how long the others take
    assert "2/2" not in text  # neither the resumed row nor the other was among the planned ones


def test_a_terminal_sees_each_new_figure_as_it_comes() -> None:
    text = re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown(terminal=True))
    lines = [line.rstrip() for line in text.splitlines()]
    assert lines.count("register 512: 38.2 GFLOPS") == 1
    assert not any("skipped" in line or "noise" in line for line in lines)
    assert "register 512: 38.2 GFLOPS" not in shown(terminal=True, verbose=1)


@pytest.mark.parametrize(
    ("row", "words"),
    [
        (fake.gemm_row("naive", Problem(64, 64, 64), 9.97), "naive 64: 9.96 GFLOPS"),
        (fake.gemm_row("naive", Problem(8, 8, 4), 9.97, dtype="half"), "naive half 8x8x4: 9.96 GFLOPS"),
        (replace(ROW, label="fc6"), "register fc6 512: 38.2 GFLOPS"),
        (replace(ROW, samples={"kernel": fake.scope(1e-3, spread=0.5)}), "register 512: ~199 GFLOPS"),
        (fake.peak_row(4, 88.0, dtype="int"), "flops int width 4: 88.0 GIOPS"),
        (
            replace(fake.peak_row(4, 88.0), check=Check("suspect")),
            "flops float width 4: 88.0 GFLOPS, suspect",
        ),
    ],
)
def test_brief_lines(row: Row, words: str) -> None:
    assert brief_line(row) == words


def test_a_search_prints_no_figures_on_a_terminal() -> None:
    stream = io.StringIO()
    with Progress(Console(file=stream, force_terminal=True, width=100), False, 0) as progress:
        progress.handle(Planned(1))
        progress.handle(Finished(replace(ROW, phase="trial")))
    assert "38.2" not in stream.getvalue()


@pytest.mark.parametrize("width", [20, 36, 40, 57, 60, 72, 80, 100, 140])
@pytest.mark.parametrize("count", [2, 1000])
def test_nothing_is_cut_in_the_middle(width: int, count: int) -> None:
    """The bar was narrowed to a dash, and the last word of the line was cut."""
    stream = io.StringIO()
    label = "global-read float width 16 again: it is uncertain"
    with Progress(
        Console(file=stream, force_terminal=True, width=width, color_system=None), False, 0
    ) as shown:
        for event in (Planned(count), Started(1, label), Staged("checking the kernel")):
            shown.handle(event)
        shown._bar.refresh()
        detail = str(shown._bar.tasks[0].description)
    frame = re.split(r"[\r\n]", re.sub(r"\x1b\[[^a-zA-Z]*[a-zA-Z]", "", stream.getvalue()).rstrip())[-1]
    assert re.match(rf"{re.escape(detail)}(?:[: ]|$)" if detail else "", f"{label}: checking the kernel")
    assert frame.rstrip().endswith(detail)
    assert f"0/{count}" in "".join(frame.split())
    assert "--:--" in frame
    assert "\N{HORIZONTAL ELLIPSIS}" not in frame
    if width >= 60:
        assert 16 * " " in frame  # the bar, without colours
    if width == 80:
        assert detail.startswith("global-read float width 16")
    if width == 140:
        assert detail == f"{label}: checking the kernel"


def test_no_terminal_no_word() -> None:
    assert shown(terminal=False) == ""


def test_quiet_is_quiet() -> None:
    assert shown(terminal=True, quiet=True, verbose=1) == ""


def test_verbose_prints_rows_without_a_terminal() -> None:
    assert shown(terminal=False, verbose=1).splitlines() == [
        "naive float 8x8x8: skipped: would take [bold]19 s[/]",
        "naive float 8x8x8: skipped: would take [bold]19 s[/]",
        "register float 512x512x512: 38.2 GFLOPS, noise 0.1 %",
    ]


def test_nothing_goes_to_stdout(capsys: pytest.CaptureFixture[str]) -> None:
    shown(terminal=True, verbose=1)
    assert capsys.readouterr().out == ""


def test_the_bar_stops_when_the_run_breaks() -> None:
    progress = Progress(Console(file=io.StringIO(), force_terminal=True), False, 0)
    with pytest.raises(RuntimeError), progress:
        raise RuntimeError
    assert not progress._bar.live.is_started


def test_lines_of_rows() -> None:
    assert line(fake.peak_row(4, 88.0, dtype="int")) == "flops int width 4: 88.0 GIOPS, noise 0.1 %"
    assert line(fake.gemm_row("numpy", Problem(64, 64, 64), 60.2, -1)).startswith("numpy float 64x64x64: 60.")


def test_a_tuners_row_says_its_parameters() -> None:
    row = replace(SKIP, phase="trial", parameters={"BM": 64, "BN": 32})
    assert line(row) == "naive float 8x8x8 trial (BM=64, BN=32): skipped: would take [bold]19 s[/]"
