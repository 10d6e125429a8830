"""Processes that are killed, interrupted, or in each other's way."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gemmbench.measure.child import Pipe, Worker, WorkerError
from gemmbench.model.case import Policy
from gemmbench.model.problem import Gemm
from gemmbench.model.run_file import load
from gemmbench.model.units import count_noun
from gemmbench.tune.session import measure_with
from tests import fake_runs
from tests.cli.conftest import Call
from tests.faults import machine
from tests.faults.conftest import Start
from tests.faults.ledger import Entry
from tests.faults.process import assert_no_orphans, assert_sentence, driver_child, finish, keys, wait_for
from tests.in_process import plan_case

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="finds children and orphans in /proc")

SWEEP = ("square", "--sizes", "8,16", "--kernel", "naive,tiled,register", "--no-peak")
START_S = 0.6  # in which a child starts, and runs some cases where the machine is quick
ROWS_S = 0.1  # of the rows that follow


def kill_children(process: subprocess.Popen[str], path: Path, times: int, seed: int) -> None:
    """Kill the driver's process so often, by turns while it starts and while rows arrive in the file."""
    wait_for(lambda: path.exists() and path.stat().st_size, process)
    draw, last = random.Random(seed), 0
    for turn in range(times):
        before, size = last, path.stat().st_size
        last = wait_for(lambda: (pid := driver_child(process.pid)) != before and pid, process)  # noqa: B023
        if turn % 2:
            wait_for(lambda: path.stat().st_size > size, process)  # noqa: B023
        time.sleep(draw.uniform(0, ROWS_S if turn % 2 else START_S))
        os.kill(last, signal.SIGKILL)


@pytest.mark.fault("child-killed")
def test_the_drivers_process_is_killed_at_random(
    start: Start, call: Call, tmp_path: Path, entry: Entry
) -> None:
    path, pause = tmp_path / "run.jsonl", tmp_path / "pause"
    pause.touch()
    # So many that there are some left for the last child: one lives for 30 at most, every other for 6.
    sizes = ",".join(map(str, range(1, 9 + entry.wanted * 4)))
    words = ("square", "--sizes", sizes, "--kernel", "naive,tiled,register,padded", "--no-peak", "-q")
    process = start(*words, "--save", "run.jsonl", GEMMBENCH_FAKE_PAUSE=str(pause))
    kill_children(process, path, entry.wanted, seed=7)
    pause.unlink()
    status, _, err = finish(process)
    assert (status, err) == (0, "")
    rows = load(path).rows
    assert {row.status for row in rows} <= {"ok", "crashed"}
    crashed = [row.reason for row in rows if row.status == "crashed"]
    assert 0 < len(crashed) <= entry.wanted
    assert all("was killed by SIGKILL" in reason for reason in crashed)
    assert call(*words, "--save", "whole.jsonl").exit_code == 0
    entry.hold(keys(tmp_path / "whole.jsonl"), keys(path), times=entry.wanted)
    assert keys(tmp_path / "whole.jsonl") == keys(path)


@pytest.mark.installed
@pytest.mark.fault("child-killed-cl")
def test_a_real_drivers_process_is_killed_at_random(start: Start, tmp_path: Path, entry: Entry) -> None:
    path = tmp_path / "run.jsonl"
    sizes = [str(size) for size in range(1, 5 + 8 * entry.wanted)]
    sweep = ("square", "--sizes", ",".join(sizes), "--kernel", "tiled", "--baseline", "none")
    words = (*sweep, "--no-peak", "-q", "--budget", "0.05", "--device", real_device(start))
    process = start(*words, "--save", "run.jsonl", real=True)
    kill_children(process, path, entry.wanted, seed=11)
    status, _, err = finish(process)
    assert (status, err) == (0, "")
    rows = load(path).rows
    assert {row.status for row in rows} <= {"ok", "crashed"}
    assert sum(row.status == "crashed" for row in rows) <= entry.wanted
    entry.hold(map(int, sizes), [row.problem.m for row in rows if row.problem], times=entry.wanted)


def real_device(start: Start) -> str:
    """PoCL if it is there, which compiles in the process that is killed, or else the first device."""
    status, out, err = finish(start("devices", real=True))
    assert status == 0, err
    return "pocl" if "PoCL" in out else "0"


@pytest.mark.fault("ctrl-c")
def test_ctrl_c_at_random_moments(start: Start, call: Call, tmp_path: Path, entry: Entry) -> None:
    interrupt_at_random(signal.SIGINT, start, call, tmp_path, entry)


@pytest.mark.fault("sigterm")
def test_sigterm_at_random_moments(start: Start, call: Call, tmp_path: Path, entry: Entry) -> None:
    interrupt_at_random(signal.SIGTERM, start, call, tmp_path, entry)


def interrupt_at_random(number: int, start: Start, call: Call, tmp_path: Path, entry: Entry) -> None:
    pause = tmp_path / "pause"
    pause.touch()
    more = {"GEMMBENCH_FAKE_PAUSE": str(pause)}
    begin = time.monotonic()
    assert finish(start(*SWEEP, "--save", "whole.jsonl", **more))[0] == 0
    whole_s = time.monotonic() - begin
    moments = random.Random(number)
    for turn in range(entry.wanted):
        path = tmp_path / f"{turn}.jsonl"
        process = start(*SWEEP, "--save", path.name, **more)
        time.sleep(moments.uniform(0.05, 1.05) * whole_s)
        # Ctrl-C reaches all of a terminal's processes; whoever cancels a job may tell the parent alone.
        (os.kill if number == signal.SIGTERM and turn % 2 else os.killpg)(process.pid, number)
        status, _, err = finish(process)
        assert_no_orphans(process.pid)
        done = rows_so_far(path)
        assert status in (0, 130, -number) or "Fatal Python error: init_import_site" in err, err
        if status == 130:
            # click leaves the line that the terminal has put ^C on.
            assert_sentence(err.lstrip("\n"), "interrupted")
        elif status == -number:  # while Python itself starts, or ends
            assert not path.exists() or done == keys(tmp_path / "whole.jsonl")
        if path.exists():
            assert "Traceback" not in err
        if " saved in " in err:
            assert f"; {count_noun(len(done), 'row')} saved in {path.name};" in err
        assert call(*SWEEP, "--save", str(path), "--resume", "-q").exit_code == 0
        assert keys(path)[: len(done)] == done
        entry.hold(keys(tmp_path / "whole.jsonl"), keys(path))


def rows_so_far(path: Path) -> list[object]:
    """Of a file that ends after a whole line; none if it was not begun."""
    if not path.exists() or not path.stat().st_size:
        return []
    return list(keys(path))


@pytest.mark.fault("two-writers")
def test_two_on_one_file(start: Start, call: Call, tmp_path: Path, entry: Entry) -> None:
    path, pid = tmp_path / "run.jsonl", tmp_path / "pid"
    assert call(*SWEEP, "--save", "whole.jsonl", "-q").exit_code == 0
    for _ in range(entry.wanted):
        pid.write_text("")
        hang = {"GEMMBENCH_FAKE_FAULTS": "register 8 hang", "GEMMBENCH_FAKE_PID": str(pid)}
        first = start(*SWEEP, "--save", "run.jsonl", "--time-limit", "100", **hang)
        wait_for(lambda: pid.read_text(), first)
        before = path.read_bytes()
        for option in ("--resume", "--force"):
            refused = call(*SWEEP, "--save", "run.jsonl", "--time-limit", "100", option)
            assert refused.exit_code == 2
            assert_sentence(refused.stderr, "another gemmbench is writing run.jsonl; wait for it")
        assert_sentence(call(*SWEEP, "--save", "run.jsonl").stderr, "run.jsonl exists already")
        assert path.read_bytes() == before
        os.kill(first.pid, signal.SIGKILL)  # its lock goes with it
        finish(first)
        assert_no_orphans(first.pid)
        both = [
            start(*SWEEP, "--save", "run.jsonl", "--time-limit", "100", "--resume", "-q") for _ in range(2)
        ]
        found = [finish(process) for process in both]
        # One may have ended before the other looked: then that one found nothing left to do.
        assert {status for status, _, _ in found} <= {0, 2}
        assert any(status == 0 for status, _, _ in found)
        for status, _, err in found:
            if status:
                assert_sentence(err, "another gemmbench is writing run.jsonl")
        entry.hold(keys(tmp_path / "whole.jsonl"), keys(path))
        path.unlink()


def test_a_lock_is_gone_with_its_file(call: Call) -> None:
    """A run that was refused, or has ended, does not lock out the next."""
    assert call(*SWEEP, "--save", "run.jsonl", "-q").exit_code == 0
    assert call(*SWEEP, "--budget", "1", "--save", "run.jsonl", "--resume").exit_code == 2
    assert call(*SWEEP, "--save", "run.jsonl", "--resume", "-q").exit_code == 0


class Stillborn(Worker):
    """Every child is dead before it is asked anything."""

    def _start(self) -> Pipe:
        pipe = super()._start()
        self._process.kill()
        self._process.wait()
        return pipe


def test_a_child_that_dies_again_and_again_is_a_row() -> None:
    case = plan_case(fake_runs.CPU, "naive", Gemm(8, 8, 8))
    with Stillborn(machine.make) as worker:
        row = measure_with(worker, fake_runs.CPU)(case, Policy())
        assert row.status == "crashed"
        assert "killed by SIGKILL" in row.reason
        with pytest.raises(WorkerError, match="killed by SIGKILL"):
            worker.devices()
