"""``gemmbench plot``: kinds, files, and what it says of those that it cannot draw."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from gemmbench import chart_views
from gemmbench.model.run_file import Run, encode
from tests import fake_runs
from tests.cli.conftest import ROOT, Call


@pytest.fixture(autouse=True)
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    save("square.jsonl", fake_runs.fake_square())
    save("peak.jsonl", fake_runs.fake_peak())
    save("empty.jsonl", Run(fake_runs.fake_square().header, ()))


def save(name: str, run: Run) -> None:
    Path(name).write_bytes(encode(run.header) + b"".join(map(encode, run.rows)))


def drawn() -> set[str]:
    return {path.name for path in Path().iterdir() if path.suffix != ".jsonl"}


def test_list_needs_no_file(call: Call) -> None:
    result = call("plot", "--kind", "list")
    assert result.exit_code == 0
    assert re.findall(r"^  (\S+)", result.stdout, re.MULTILINE) == list(chart_views.KINDS)


def test_all_draws_every_kind_that_suits_and_says_nothing_of_the_others(call: Call) -> None:
    result = call("plot", "square.jsonl", "--kind", "all", "--out", "out.svg")
    assert result.exit_code == 0
    kinds = ("throughput", "host-device", "time", "ladder", "roofline")
    assert drawn() == {f"out-{kind}.svg" for kind in kinds}
    assert result.stdout == ""
    assert result.stderr.splitlines() == [f"Drew out-{kind}.svg." for kind in kinds]


def test_all_names_its_files_after_the_first_run(call: Call) -> None:
    assert call("plot", "peak.jsonl", "--kind", "all").exit_code == 0
    assert drawn() == {"peak.png"}  # it ends in its kind already


def test_nothing_to_draw_at_all(call: Call) -> None:
    result = call("plot", "empty.jsonl", "--kind", "all")
    assert result.exit_code == 2
    assert result.stderr.splitlines()[-1] == (
        "gemmbench: nothing to draw: no kind of chart suits empty.jsonl"
    )
    assert drawn() == set()


def test_the_same_file_twice_is_one(call: Call) -> None:
    assert call("plot", "square.jsonl", "square.jsonl", "--out", "two.svg").exit_code == 0
    assert "(square)" not in Path("two.svg").read_text(encoding="utf-8")


def test_a_chart_in_the_way_is_found_before_any_is_drawn(call: Call) -> None:
    Path("out-time.svg").mkdir()
    result = call("plot", "square.jsonl", "--kind", "all", "--out", "out.svg")
    assert result.exit_code == 2
    assert "out-time.svg: it is a folder" in result.stderr
    assert drawn() == {"out-time.svg"}


def test_two_runs_are_compared(call: Call) -> None:
    save("later.jsonl", fake_runs.fake_square())
    assert call("plot", "square.jsonl", "later.jsonl", "--kind", "compare", "--out", "x.svg").exit_code == 0
    assert "change of the time" in Path("x.svg").read_text(encoding="utf-8")


def run(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """A command in a process of its own, which imports matplotlib for the first time."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **variables}
    command = [sys.executable, *words]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_the_users_backend_is_kept_for_other_programs() -> None:
    code = "from gemmbench.charts import load_matplotlib as load; load(); import matplotlib as m, os; "
    done = run("-c", f"{code} print(m.get_backend(), os.environ['MPLBACKEND'])", MPLBACKEND="svg")
    assert done.stdout == "svg svg\n", done.stderr


def test_settings_that_matplotlib_cannot_read_are_one_sentence_before_anything_else() -> None:
    Path("matplotlibrc").write_bytes(b"font.family: \xff\xfe\n")
    done = run("-m", "gemmbench", "square", "--sizes", "32", "--plot", "out.svg")
    assert (done.returncode, done.stdout) == (2, "")
    start = "gemmbench: no chart can be drawn, because matplotlib does not start: "
    assert done.stderr == f"{start}Cannot decode configuration file 'matplotlibrc' as utf-8.\n"


def test_settings_and_a_backend_that_matplotlib_does_not_know_change_nothing() -> None:
    Path("matplotlibrc").write_text("backend: nosuch\nlines.linewidth: wide\nno.such.key: 1\nno colon\n")
    inline = "module://matplotlib_inline.backend_inline"
    done = run("-m", "gemmbench", "plot", "square.jsonl", "--out", "out.svg", MPLBACKEND=inline)
    assert (done.returncode, done.stderr) == (0, "Drew out.svg.\n")
