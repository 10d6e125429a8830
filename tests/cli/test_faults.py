"""Crashes, hangs, hunger, SIGKILL and Ctrl-C: each costs its own row and nothing else."""

from __future__ import annotations

import importlib
import json
import os
import runpy
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gemmbench import cli
from gemmbench.model.run_file import load
from tests.cli import fake_machine
from tests.cli.conftest import Call, Start

SWEEP = ("square", "--sizes", "8,16", "--kernel", "naive,tiled,register")
ROOFS = 2  # rows of the peak, after its problems
ROWS = ROOFS + 2 * 4
WORDS = f": {fake_machine.LAST_WORDS}"

#  fault            the row's status   its reason
FAULTS = {
    "sigsegv": ("crashed", f"the driver's process was killed by SIGSEGV{WORDS}"),
    "exit": ("crashed", f"the driver's process ended with status 3{WORDS}"),
    "hang": ("timed-out", "stopped after 66 s (--time-limit 66)"),
    "device-memory": ("failed", "clCreateBuffer failed: out of resources"),
    "host-memory": ("failed", "the host ran out of memory"),
    "os-error": ("failed", "OSError: [Errno 5] input/output error"),
}


@pytest.mark.usefixtures("skips")
@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_costs_one_row(
    fault: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", f"tiled 8 {fault}")
    path = tmp_path / "run.jsonl"
    result = call(*SWEEP, "--save", str(path))
    assert result.exit_code == 0
    rows = {(row.variant, row.problem.m if row.problem else 0): row for row in load(path).rows}
    bad = rows.pop(("tiled", 8))
    assert (bad.status, bad.reason) == FAULTS[fault]
    assert {row.status for row in rows.values()} == {"ok"}
    assert len(rows) == ROWS - 2  # the bad one is out, and two peaks fall together under one key
    assert fake_machine.LAST_WORDS not in result.stdout.splitlines()
    assert bad.reason.split(":")[0] in " ".join(result.stdout.split())
    assert result.stderr == f"Saved {ROWS} rows in {path}.\n"


def test_the_first_and_the_last_row_may_crash_too(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "naive 8 sigsegv; tiled 8 exit; numpy 16 sigsegv")
    path = tmp_path / "run.jsonl"
    assert call(*SWEEP, "--no-peak", "--save", str(path)).exit_code == 0
    ok = "ok"
    assert [row.status for row in load(path).rows] == ["crashed", "crashed", ok, ok, ok, ok, ok, "crashed"]


def test_a_wrong_result_is_exit_status_1(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "tiled 8 wrong")
    result = call(*SWEEP)
    assert result.exit_code == 1
    assert "residual 3.1 times the bound" in result.stdout
    assert "wrong" in result.stdout


def test_nothing_measured_is_exit_status_2(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "tiled 8 sigsegv")
    result = call("square", "--sizes", "8", "--kernel", "tiled")
    assert result.exit_code == 2
    assert "crash" in result.stdout
    assert result.stderr.startswith("gemmbench: nothing was measured on the device: tiled float: crashed: ")
    assert result.stderr.count("\n") == 1


def wait_for(condition: Callable[[], bool], process: subprocess.Popen[str]) -> None:
    end = time.monotonic() + 120
    while not condition():
        if process.poll() is not None or time.monotonic() > end:
            process.kill()
            pytest.fail(f"it did not get there: {process.communicate()}")
        time.sleep(0.02)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    if sys.platform == "linux":
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    return True


def keys(path: Path) -> list[str]:
    return [str(row.key) for row in load(path).rows]


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
@pytest.mark.parametrize("torn", [False, True], ids=["between rows", "within a row"])
def test_killed_and_resumed_has_every_row_once(torn: bool, start: Start, tmp_path: Path) -> None:
    path, pid = tmp_path / "run.jsonl", tmp_path / "pid"
    hang = {"GEMMBENCH_FAKE_FAULTS": "register 8 hang", "GEMMBENCH_FAKE_PID": str(pid)}
    process = start(*SWEEP, "--save", "run.jsonl", **hang)
    wait_for(lambda: pid.exists() and pid.read_text() != "", process)
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    assert process.returncode == -signal.SIGKILL
    before = path.read_bytes()
    assert len(before.splitlines()) == 1 + 2  # the header, naive and tiled
    if torn:
        path.write_bytes(before + before.splitlines()[-1][:100])
    if sys.platform == "linux":  # the child that hung went with its parent
        end = time.monotonic() + 120
        while is_alive(int(pid.read_text())) and time.monotonic() < end:
            time.sleep(0.02)
        assert not is_alive(int(pid.read_text()))

    process = start(*SWEEP, "--save", "run.jsonl", "--resume")
    out, err = process.communicate(timeout=120)
    assert (process.returncode, err) == (0, f"Saved {ROWS} rows in run.jsonl.\n")
    assert path.read_bytes().startswith(before)
    whole = start(*SWEEP, "--save", "whole.jsonl")
    assert whole.communicate(timeout=120)[0] == out
    assert keys(path) == keys(tmp_path / "whole.jsonl")
    assert len(set(keys(path))) == ROWS


def test_resuming_a_finished_run_measures_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.jsonl"
    first = call(*SWEEP, "--save", str(path))
    before = path.read_bytes()
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "naive 8 sigsegv; tiled 16 sigsegv; flops 1 sigsegv")
    again = call(*SWEEP, "--save", str(path), "--resume", "--quiet")
    assert again.exit_code == 0
    assert again.stdout == first.stdout
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    ("field", "value", "what"),
    [("source", "0123456789abcdef", "kernel sources"), ("parameters", {"TS": 8}, "parameters")],
)
def test_rows_of_other_kernels_are_not_resumed(
    call: Call, tmp_path: Path, field: str, value: object, what: str
) -> None:
    path = tmp_path / "run.jsonl"
    words = (*SWEEP, "--save", str(path))
    assert call(*words).exit_code == 0
    header, *lines = path.read_text().splitlines()
    rows = [json.loads(line) for line in lines[:-1]]
    old = next(row for row in rows if row["variant"] == "tiled")
    old[field] = value
    path.write_text("\n".join([header, *map(json.dumps, rows)]) + "\n")
    before = path.read_bytes()
    done = call(*words, "--resume")
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        f"gemmbench: cannot resume {path}: its rows of tiled are of other {what} than today's; "
        "--force drops them, or give --save another file\n"
    )
    assert path.read_bytes() == before


def test_resuming_an_empty_file_starts_it(call: Call, tmp_path: Path) -> None:
    """A run that was killed before its header was on the disk."""
    path = tmp_path / "run.jsonl"
    path.touch()
    assert call(*SWEEP, "--save", str(path), "--resume").exit_code == 0
    assert len(keys(path)) == ROWS


@pytest.mark.skipif(sys.platform == "win32", reason="signals are otherwise there")
@pytest.mark.parametrize("save", [True, False])
def test_ctrl_c_prints_the_table_so_far(save: bool, start: Start, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hang = {"GEMMBENCH_FAKE_FAULTS": "register 8 hang", "GEMMBENCH_FAKE_PID": str(pid)}
    process = start(*SWEEP, *(("--save", "run.jsonl") if save else ()), **hang)
    wait_for(lambda: pid.exists() and pid.read_text() != "", process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the child as well
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    lines = [line.split()[0] for line in out.splitlines() if line]
    assert "naive" in lines
    assert "tiled" in lines
    assert "register" not in lines
    if save:
        where = "2 rows saved in run.jsonl; the same command with --resume continues"
        assert len(keys(tmp_path / "run.jsonl")) == 2
    else:
        where = "nothing was saved (--save FILE keeps rows as they come)"
    assert err == f"gemmbench: interrupted; {where}\n"
    assert not is_alive(int(pid.read_text()))


@pytest.mark.skipif(sys.platform == "win32", reason="signals are otherwise there")
@pytest.mark.parametrize("after_s", [0.3, 0.7])
def test_ctrl_c_is_never_a_traceback(after_s: float, start: Start) -> None:
    """At whatever moment it comes: while Python starts, devices are listed, or the table is printed."""
    process = start(*SWEEP, "--time-limit", "60", GEMMBENCH_FAKE_FAULTS="numpy 16 hang")
    time.sleep(after_s)
    os.killpg(process.pid, signal.SIGINT)
    _, err = process.communicate(timeout=120)
    # The others while Python itself starts.
    assert process.returncode in (130, -signal.SIGINT) or "Fatal Python error: init_import_site" in err
    assert "measure/instrument" not in err  # the child leaves it to its parent
    if process.returncode == 130:
        assert err.strip().startswith("gemmbench: interrupted")
        assert len(err.strip().splitlines()) == 1


@pytest.fixture
def _handlers() -> Iterator[None]:
    kept = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    yield
    for number, handler in kept.items():
        signal.signal(number, handler)


@pytest.mark.usefixtures("_handlers")
def test_until_its_command_is_imported_ctrl_c_ends_the_program() -> None:
    """A KeyboardInterrupt within an import may be lost."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    runpy.run_module("gemmbench.__main__", run_name="program")
    assert signal.getsignal(signal.SIGINT) == signal.SIG_DFL
    cli.load_command("show")
    with pytest.raises(KeyboardInterrupt):
        signal.raise_signal(signal.SIGINT)


@pytest.mark.usefixtures("_handlers")
def test_ctrl_c_within_an_import_is_not_lost(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An extension module may lose it, and Python 3.11 makes a RuntimeError of it in an Enum's members."""
    text = "import signal, time\ntry: signal.raise_signal(2); time.sleep(0.1)\nexcept BaseException: pass"
    (tmp_path / "that_loses_it.py").write_text(text)

    def slow(*_: object) -> None:
        importlib.import_module("that_loses_it")
        end = time.monotonic() + 60
        while time.monotonic() < end:
            time.sleep(0.01)
        pytest.fail("it was lost")

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr("gemmbench.api.load", slow)
    result = call("show", __file__)
    assert (result.exit_code, result.stderr.strip()) == (130, "gemmbench: interrupted")


@pytest.mark.skipif(sys.platform == "win32", reason="pipes are otherwise there")
@pytest.mark.parametrize("words", [("peak", "--format", "json"), SWEEP], ids=["text", "table"])
def test_a_reader_that_went_away_is_no_error(words: tuple[str, ...], start: Start) -> None:
    process = start(*words)
    process.stdout.close()
    assert process.stderr.read() == ""
    assert process.wait(120) == 0


def test_what_drivers_print_stays_off_stdout(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "flops 1 device-memory")
    result = call("peak", "--types", "float", "--format", "json")
    assert [row["status"] for row in json.loads(result.stdout)] == ["failed", "ok", "ok", "ok", "ok"]
