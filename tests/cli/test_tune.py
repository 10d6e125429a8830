"""``gemmbench tune`` with the fake machine: searched, killed, resumed, kept, used, forgotten."""

from __future__ import annotations

import os
import random
import re
import signal
import sys
from pathlib import Path

import msgspec
import numpy as np
import pytest

import gemmbench as gb
from gemmbench.model.run_file import load
from gemmbench.model.units import count_noun
from gemmbench.suite.cached import NoHomeError
from gemmbench.tune.result import result
from tests.cli.conftest import Call, Start
from tests.cli.test_faults import is_alive, wait_for

GAINS = "BM=64 1.2; BK=8 1.1; BM=32 0.7"
TUNE = ("tune", "--kernel", "register", "--sizes", "64", "--budget", "3")


@pytest.fixture(autouse=True)
def gains(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_GAINS", GAINS)


def flat(text: str) -> str:
    return " ".join(text.split())


def test_without_a_home_folder_a_note_says_that_the_winner_is_not_kept(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def homeless(_: str) -> Path:
        raise NoHomeError("there is no home folder")

    monkeypatch.setattr("gemmbench.suite.cached.subfolder", homeless)
    done = call(*TUNE, "--cache", str(tmp_path / "t.jsonl"))
    assert done.exit_code == 0
    assert "cannot save the tuned preset: there is no home folder" in flat(done.stderr)
    assert "every command uses it" not in done.stderr


def test_the_winner_is_kept_and_used_until_it_is_forgotten(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    done = call(*TUNE, "--cache", str(path))
    assert done.exit_code == 0
    assert "The winner is saved: 1.3" in flat(done.stdout)
    (preset,) = re.findall(r'as a preset: ("cpu-intel" = \{.*?\})', flat(done.stdout))
    assert msgspec.toml.decode(preset)["cpu-intel"].items() >= {"BM": 64, "BK": 8}.items()
    assert re.search(r"Saved in .*/tuned/[0-9a-f]{16}\.json; every command uses it", done.stderr)
    assert f"rows in {path}; the same command continues" in done.stderr

    square = ("square", "--sizes", "64", "--kernel", "register,tiled", "--no-peak", "--baseline=none", "-v")
    saved = tmp_path / "s.jsonl"
    tuned = call(*square, "--save", str(saved))
    (row,) = [row for row in load(saved).rows if row.variant == "register"]
    assert row.parameters == result(load(path)).winner
    assert "register at 64: preset: tuned 20" in flat(tuned.stdout)
    assert "--no-tuned uses the shipped one" in flat(tuned.stdout)
    assert "tuned" not in call(*square, "--no-tuned").stdout
    assert "tuned" not in call(*square, "--param", "BK=32").stdout  # the user's own start from the shipped
    gemm = call("gemm", "-m", "64", "--kernel", "register", "--no-peak", "--baseline", "none", "-v")
    assert "preset: tuned 20" in flat(gemm.stdout)
    assert "tuned" not in call(*square, "--device", "pocl").stdout  # it is another device

    gone = call("tune", "--forget")
    assert (gone.exit_code, gone.stdout[:24]) == (0, "Forgot register float: B")
    assert "tuned" not in call(*square).stdout
    assert call("tune", "--forget", "--kernel", "register").stdout.startswith("Nothing is saved for this in ")


def test_a_layout_and_batches_have_presets_of_their_own(call: Call) -> None:
    """What wins on transposed operands, or in batches, serves such problems and no others."""
    layout, batch = ("--trans-b",), ("--batch", "3")
    assert "The winner is saved" in flat(call(*TUNE[:-1], "1", *layout, *batch).stdout)
    square = ("square", "--sizes", "64", "--kernel", "register", "--no-peak", "--baseline", "none", "-v")
    kinds = ((), layout, (*layout, *batch))
    assert ["tuned" in call(*square, *words).stdout for words in kinds] == [False, False, True]


def test_a_file_of_presets_that_cannot_be_read_is_replaced(call: Call) -> None:
    assert call(*TUNE).exit_code == 0
    (path,) = Path(os.environ["XDG_CACHE_HOME"]).glob("gemmbench/tuned/*.json")
    path.write_text("{")
    refused = call("tune", "--forget")
    assert refused.exit_code == 2
    assert refused.stderr.startswith("gemmbench: cannot read tuned presets, so the shipped ones are used: ")
    assert path.read_text() == "{"
    done = call(*TUNE)
    assert f"Saved in {path}; every command" in done.stderr
    assert path.read_text() != "{"


def test_forgetting_one_type_or_kernel_leaves_the_others(call: Call) -> None:
    assert call(*TUNE).exit_code == 0
    assert call("tune", "--forget", "--kernel", "tiled").stdout.startswith("Nothing is saved")
    assert call("tune", "--forget", "--dtype", "double").stdout.startswith("Nothing is saved")
    assert call("tune", "--forget", "--dtype", "float").stdout.startswith("Forgot register float")


@pytest.mark.usefixtures("skips")
def test_a_hang_or_a_crash_costs_its_configurations_only(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other faults: tests/unit/test_tuning.py."""
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "register BK=32 hang; register BN=32 sigsegv")
    path = tmp_path / "t.jsonl"
    done = call(*TUNE, "--cache", str(path))
    assert done.exit_code == 0
    found = result(load(path))
    assert f"{len(found.failed)} of " in flat(done.stdout)
    reasons = {one.trouble.reason.split(":")[0] for one in found.failed if one.trouble}
    assert reasons == {
        "stopped after 30 s (--time-limit 30)", "the driver's process was killed by SIGSEGV"
    }  # fmt: skip


def test_nothing_runs(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "register 64 os-error")
    done = call(*TUNE, "--budget", "0.5")
    assert done.exit_code == 2
    assert "No configuration could be measured." in done.stdout
    assert done.stderr.splitlines()[-1] == (
        "gemmbench: no configuration could be measured: failed: OSError: [Errno 5] input/output error"
    )


@pytest.mark.skipif(sys.platform == "win32", reason="there is no SIGKILL")
def test_killed_and_resumed_measures_nothing_twice(start: Start, tmp_path: Path) -> None:
    pid, log = tmp_path / "pid", tmp_path / "log"
    hang = {
        "GEMMBENCH_FAKE_FAULTS": "register TN=8 hang",
        "GEMMBENCH_FAKE_PID": str(pid),
        "GEMMBENCH_FAKE_LOG": str(log),
    }
    words = (*TUNE, "--cache", "t.jsonl")
    process = start(*words, "--time-limit", "60", **hang)
    wait_for(lambda: pid.exists() and pid.read_text() != "", process)
    refused = start(*words)
    assert refused.communicate(timeout=120)[1] == (
        "gemmbench: another tuner is at work on t.jsonl; wait for it, or give --cache another file\n"
    )
    assert refused.returncode == 2
    os.kill(process.pid, signal.SIGKILL)
    process.communicate(timeout=120)
    before = (tmp_path / "t.jsonl").read_bytes()

    process = start(*words, GEMMBENCH_FAKE_LOG=str(log))
    out, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert (tmp_path / "t.jsonl").read_bytes().startswith(before)
    searched = [
        line for line in log.read_text().splitlines() if line.startswith("register float trial 64x64x64")
    ]
    assert len(set(searched)) == len(searched)
    assert len(searched) == len(result(load(tmp_path / "t.jsonl")).attempts)
    assert "The winner is saved" in out


@pytest.mark.skipif(sys.platform == "win32", reason="signals are otherwise there")
def test_ctrl_c_prints_the_table_so_far(start: Start, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    hang = {"GEMMBENCH_FAKE_FAULTS": "register BM=64 hang", "GEMMBENCH_FAKE_PID": str(pid)}
    process = start(*TUNE, "--cache", "t.jsonl", "--time-limit", "60", **hang)
    wait_for(lambda: pid.exists() and pid.read_text() != "", process)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "shipped" in out
    assert "Nothing is saved" in flat(out)
    rows = count_noun(len(load(tmp_path / "t.jsonl").rows), "row")
    assert err == f"gemmbench: interrupted; {rows} saved in t.jsonl; the same command continues\n"
    assert not is_alive(int(pid.read_text()))


def test_the_default_file_is_resumed(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("GEMMBENCH_FAKE_LOG", str(log))
    first = call(*TUNE)
    path = Path(first.stderr.split("rows in ")[1].split(";")[0])
    assert path.parent.name == "tuning"
    tried = len(result(load(path)).attempts)
    call(*TUNE, "--budget", "2", "--seed", "2")

    def searched() -> list[str]:
        words = "register float trial 64x64x64"
        return [line for line in log.read_text().splitlines() if line.startswith(words)]

    seen = searched()
    assert len(set(seen)) == len(seen) == len(result(load(path)).attempts) > tried - 1
    call(*TUNE, "--budget", "0.2", "--force")
    again = searched()[len(seen) :]
    assert again[0] == seen[0]
    assert len(again) == len(result(load(path)).attempts)


def test_the_callers_random_numbers_stay_the_callers() -> None:
    random.seed(7)
    np.random.seed(7)
    before = random.random(), np.random.random()
    random.seed(7)
    np.random.seed(7)
    gb.tune(kernel="tiled", sizes=64, budget=0.5, quiet=True)
    assert (random.random(), np.random.random()) == before


def test_on_a_gpu_others_compile_ahead(call: Call, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    log = tmp_path / "log"
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "gpu")
    monkeypatch.setenv("GEMMBENCH_FAKE_LOG", str(log))
    done = call(*TUNE, "--builders", "2", "--budget", "5", "--cache", str(tmp_path / "t.jsonl"))
    assert done.exit_code == 0, done.stderr
    assert "built" in log.read_text()
    assert "Traceback" not in done.stderr


def test_show_reads_the_file(call: Call, tmp_path: Path) -> None:
    path, page = tmp_path / "t.jsonl", tmp_path / "t.html"
    done = call(*TUNE, "--cache", str(path), "--report", str(page))
    assert "The winner is saved" in page.read_text()
    assert f"Wrote {page}." in done.stderr
    assert call("show", str(path)).stdout == done.stdout
    assert call("show", str(path), "--format", "csv").stdout.count("\n") == len(load(path).rows) + 1


def test_other_shapes_and_several_sizes(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    call("tune", "--kernel", "tiled", "-m", "8", "-k", "24", "--budget", "1", "--cache", str(path))
    first = load(path).rows[0].problem
    assert (first.m, first.n, first.k) == (8, 8, 24)
    path = tmp_path / "u.jsonl"
    call("tune", "--kernel", "tiled", "--sizes", "8,16", "--budget", "1", "--cache", str(path))
    assert {len(one.rows) for one in result(load(path)).attempts} == {2}


def test_a_file_of_another_kernel_is_refused_and_left_as_it_was(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "t.jsonl"
    call("tune", "--kernel", "tiled", "--sizes", "64", "--budget", "0.2", "--cache", str(path))
    before = path.read_bytes()
    done = call(*TUNE, "--cache", str(path))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"gemmbench: cannot resume {path}: it was made by another command: ")
    assert path.read_bytes() == before
