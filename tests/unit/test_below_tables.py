"""What stands below and beside the tables of every saved run: a few lines, none wider than the terminal."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.cells import cell_len

from gemmbench.cli import main
from gemmbench.ladder import order_of
from gemmbench.model.row import ADDS_IN_HALF, NO_CLOCK
from gemmbench.model.run_file import load
from gemmbench.report import table
from gemmbench.report.progress import Progress
from gemmbench.report.table import Note, Sheet
from gemmbench.suite import job
from gemmbench.views import run_sheets, show
from tests.unit.test_tables import text

ROOT = Path(__file__).parents[2]
SAVED = sorted(ROOT.glob("plots/*.jsonl"))
RUNS = [*SAVED, *sorted(ROOT.glob("tests/data/*.jsonl"))]
LINES, REMARKS = 6, 3


def below(sheet: Sheet) -> list[str]:
    """The lines below a table at 80 columns."""
    return text(Sheet(notes=sheet.notes)).splitlines()


@pytest.mark.parametrize("path", SAVED, ids=lambda path: path.stem)
def test_a_saved_run_has_few_lines_below_its_tables(path: Path) -> None:
    run = load(path)
    for sheet in run_sheets(run, order_of(run)):
        assert len(below(sheet)) <= LINES
        assert sum(not note.style.startswith("bold") for note in sheet.notes) <= REMARKS


@settings(max_examples=25, deadline=None)
@given(st.sampled_from(RUNS), st.integers(40, 200), st.booleans())
def test_no_line_is_wider_than_the_terminal(path: Path, width: int, verbose: bool) -> None:
    run = load(path)
    lines = text(show(run, order_of(run), verbose), width).splitlines()
    assert [
        line for line in lines if cell_len(line) > width and len(line.split()) > 1
    ] == []  # words stay whole


class Terminal(io.StringIO):
    def __init__(self, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


@pytest.mark.parametrize("is_terminal", [False, True])
def test_only_a_terminal_gets_colours_whatever_force_color_says(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setattr("sys.stdout", Terminal(is_terminal))
    run = load(ROOT / "plots" / "cpu-intel-square.jsonl")
    shown = show(run, order_of(run))
    console = table.stdout()
    console.print(shown)
    assert ("\x1b[" in console.file.getvalue()) == is_terminal  # type: ignore[attr-defined]  # StringIO
    job.write_output(tmp_path / "t.txt", shown)
    assert "\x1b[" not in (tmp_path / "t.txt").read_text()


@pytest.mark.parametrize(
    ("is_terminal", "environment", "is_live"),
    [
        (True, {}, True),
        (True, {"TTY_INTERACTIVE": "0"}, False),
        (True, {"TERM": "dumb"}, False),
        (False, {"FORCE_COLOR": "1"}, False),
        (False, {"TTY_INTERACTIVE": "1"}, False),
    ],
)
def test_progress_is_live_on_interactive_terminals_alone(
    is_terminal: bool, environment: dict[str, str], is_live: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("FORCE_COLOR", "TTY_INTERACTIVE", "TTY_COMPATIBLE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr("sys.stderr", Terminal(is_terminal))
    assert (Progress(job.stderr(), quiet=False, verbose=0)._bar is not None) == is_live


def test_rows_that_the_host_timed_are_one_remark() -> None:
    run = load(ROOT / "plots" / "cpu-intel-square.jsonl")
    timed = tuple(replace(row, notes=(NO_CLOCK,)) if row.variant == "naive" else row for row in run.rows)
    shown = text(show(replace(run, rows=timed), order_of(run)), 80)
    assert shown.count("driver has no event times") == 1
    assert "driver has no event times" not in text(show(run, order_of(run)), 80)


LONG_PATH = "/home/user/a-folder-with-a-long-name/and-another-one/tuned/a02149efa71dbb94.json"
SENTENCE = (
    f"Saved in {LONG_PATH}; every command of gemmbench uses it. The same command with --resume continues."
)


@pytest.mark.parametrize("width", [12, 40, 80])
def test_lines_break_between_words_only(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    terminal = Terminal(True)
    monkeypatch.setattr("sys.stderr", terminal)
    job.print_message(SENTENCE)
    said = terminal.getvalue()
    with pytest.raises(SystemExit):
        main(["show", LONG_PATH])
    error = terminal.getvalue().removeprefix(said)
    below = text(Sheet(notes=(Note("", SENTENCE),)), width)
    for printed, words in ((said, SENTENCE), (below, SENTENCE), (error, f"gemmbench: {LONG_PATH}: no such")):
        assert " ".join(printed.split()).startswith(words), "each word is whole"
        assert all(len(line) <= width or line.split() == [line.strip()] for line in printed.splitlines())


def test_a_message_in_a_file_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    job.print_message(SENTENCE)
    assert capsys.readouterr().err == f"{SENTENCE}\n"


def test_a_saved_result_that_sums_of_half_have_changed_is_one_remark() -> None:
    run = load(ROOT / "plots" / "cpu-intel-square.jsonl")
    note = f"{ADDS_IN_HALF}: C is up to 50 % off"
    noted = tuple(replace(row, notes=(note,)) if row.variant == "naive" else row for row in run.rows)
    assert text(show(replace(run, rows=noted), order_of(run)), 80).count(f"naive {note}.\n") == 1
