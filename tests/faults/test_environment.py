"""Closed pipes, streams without Unicode, folders that cannot be written, and processes that are stopped."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from gemmbench.measure.child import Pipe
from gemmbench.model.run_file import load
from tests.cli.conftest import ROOT

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="pipes and signals are different there")

RUN = ROOT / "plots" / "cpu-intel-square.jsonl"
QUICK = ("square", "--sizes", "64", "--kernel", "naive", "--baseline", "none", "--no-peak", "--budget", "0.1")
NO_FOLDER = """
import sys, tempfile
def refuse(*_, **__):
    raise FileNotFoundError(2, "No usable temporary directory found")
tempfile._get_default_tempdir, tempfile.tempdir = refuse, None
from gemmbench.cli import main
main(sys.argv[1:])
"""


def gemmbench(*words: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-m", "gemmbench", *words], text=True, check=False, **options)


@pytest.mark.fault
@pytest.mark.parametrize("closed", ["stdout", "stderr"])
def test_files_are_written_although_nobody_reads_the_output(closed: str, tmp_path: Path) -> None:
    source, sink = os.pipe()
    os.close(source)  # a reader that has gone, as `head` and `true` do
    streams: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, closed: sink}
    words = (*QUICK, "--plot", "p.png", "--save", "r.jsonl", "--report", "r.html")
    assert gemmbench(*words, cwd=tmp_path, **streams).returncode == 0
    os.close(sink)
    assert {path.name for path in tmp_path.iterdir()} == {"p.png", "r.jsonl", "r.html"}


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_letters_that_the_output_lacks_are_replaced(encoding: str, tmp_path: Path) -> None:
    text = RUN.read_text(encoding="utf-8").replace('"name":"AMD EPYC', '"name":"AMD Radeon™ größe', 1)
    (tmp_path / "run.jsonl").write_text(text, encoding="utf-8")
    environment = {**os.environ, "PYTHONIOENCODING": encoding, "PYTHONUTF8": "0"}
    words = ("show", "run.jsonl", "--out", "t.txt", "-v")
    options: dict[str, Any] = {"cwd": tmp_path, "env": environment, "encoding": encoding, "stderr": -1}
    done = gemmbench("show", "run.jsonl", stdout=-1, **options)
    assert (done.returncode, done.stderr) == (0, "")
    assert "AMD Radeon" in done.stdout
    assert gemmbench(*words, **options).returncode == 0
    assert "AMD Radeon" in (tmp_path / "t.txt").read_text(encoding="utf-8")


@pytest.mark.parametrize("change", ["mark", "crlf", "blank", "blanks"])
def test_a_saved_run_that_an_editor_touched_is_read(change: str, tmp_path: Path) -> None:
    data = RUN.read_bytes()
    changed = {
        "mark": b"\xef\xbb\xbf" + data,
        "crlf": data.replace(b"\n", b"\r\n"),
        "blank": data + b"\n",
        "blanks": data.replace(b"\n", b"\n\n") + b" \n  ",
    }[change]
    (tmp_path / "run.jsonl").write_bytes(changed)
    assert load(tmp_path / "run.jsonl").rows == load(RUN).rows


@pytest.mark.fault
def test_without_a_temporary_folder_everything_but_charts_works(tmp_path: Path) -> None:
    environment = {**os.environ, "MPLCONFIGDIR": "/proc/none"}
    for words, status in (((*QUICK, "--save", "run.jsonl"), 0), ((*QUICK, "--plot", "p.png"), 2)):
        command = [sys.executable, "-c", NO_FOLDER, *words]
        done = subprocess.run(
            command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == status, done.stderr
        assert ("naive" in done.stdout) == (status == 0)  # where no chart can be drawn, nothing is measured
    assert "gemmbench: no chart can be drawn" in done.stderr
    assert "Matplotlib requires access" in done.stderr
    assert load(tmp_path / "run.jsonl").rows[0].status == "ok"


class Slow:
    """A connection whose waits take as long as scripted."""

    def __init__(self, clock: list[float], waits: list[tuple[float, bool]]) -> None:
        self.clock, self.waits = clock, waits

    def poll(self, _: float) -> bool:
        seconds, answer = self.waits.pop(0)
        self.clock[0] += seconds
        return answer


@pytest.mark.parametrize(
    ("waits", "answer", "stopped_s"),
    [
        ([(1.0, False), (3600.0, False), (0.5, True)], True, 3599.0),  # a lid was closed for an hour
        ([(1.0, False)] * 5, False, 0.0),
    ],
)
def test_time_in_which_the_process_was_stopped_does_not_count(
    waits: list[tuple[float, bool]], answer: bool, stopped_s: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: clock[0])
    pipe = Pipe(Slow(clock, list(waits)))  # type: ignore[arg-type]  # all that it asks for
    assert (pipe.wait(5.0), pipe.stopped_s) == (answer, stopped_s)
