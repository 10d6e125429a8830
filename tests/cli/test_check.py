"""``gemmbench check`` with a fake machine that has noise, and rows that become slower."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

from gemmbench import cli
from gemmbench.cli import EXIT_USAGE, EXIT_WRONG
from gemmbench.measure import child
from gemmbench.model.instrument import PROTOCOL
from gemmbench.model.run_file import load
from gemmbench.model.units import list_values
from tests.cli import recorded, slow_machine
from tests.cli.conftest import Call, Start
from tests.compare_runs import save

SWEEP = ("square", "--sizes", "8,16", "--kernel", "naive,tiled,register", "--no-peak", "-q")
CASES = 8
REPETITIONS = 8


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with once.jsonl, a sweep, and aa.jsonl, the same several times, as a base."""
    folder = tmp_path_factory.mktemp("base")
    with pytest.MonkeyPatch.context() as monkeypatch:
        prepare(folder, monkeypatch)
        for words in (
            (*SWEEP, "--save", "once.jsonl"),
            ("check", "once.jsonl", "--aa", str(REPETITIONS), "--save", "aa.jsonl", "-q"),
        ):
            assert CliRunner().invoke(cli.main, list(words)).exit_code == 0
    return folder


@pytest.fixture(autouse=True)
def base(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    prepare(tmp_path, monkeypatch)
    for path in made.iterdir():
        shutil.copy(path, tmp_path)


def prepare(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.setattr("gemmbench.measure.machine.default", slow_machine.make)
    monkeypatch.setattr(child, "CONDUCTORS", recorded.CONDUCTORS)
    monkeypatch.setenv("GEMMBENCH_FAKE_NOISE", "0.01")
    monkeypatch.setenv("GEMMBENCH_FAKE_COUNT", str(folder / "count"))
    monkeypatch.delenv("GEMMBENCH_FAKE_SLOW", raising=False)


def verdicts(text: str) -> dict[str, str]:
    return {f"{row['variant']} {row['m']}": row["verdict"] for row in json.loads(text)["rows"]}


def test_aa_repeats_every_case_and_shows_how_they_differ(call: Call) -> None:
    rows = load("aa.jsonl").rows
    assert len(rows) == REPETITIONS * CASES
    assert [row.key for row in rows[:CASES]] == [row.key for row in rows[-CASES:]]
    result = call("check", "once.jsonl", "--aa", "3", "--write", "json=aa.json")
    assert result.exit_code == 0
    assert f"95 % of {CASES} rows differ by at most " in result.stdout
    assert [row["runs"] for row in json.loads(Path("aa.json").read_text())["rows"]] == [3] * CASES


@pytest.mark.parametrize(
    ("faults", "status", "told"),
    [
        ("tiled 16 sigsegv", EXIT_WRONG, "tiled float 16x16x16: crashed: the driver's process was killed"),
        ("naive 8 wrong", EXIT_WRONG, "naive float 8x8x8: wrong: residual 3.1 times the bound"),
        ("tiled 16 skipped", 0, ""),
        (
            "; ".join(f"{name} {size} skipped" for name in SWEEP[4].split(",") for size in (8, 16)),
            EXIT_USAGE,
            "nothing was measured: naive float 8x8x8: skipped: would take about 19 s",
        ),
    ],
    ids=["crashed", "wrong", "skipped", "all skipped"],
)
def test_aa_without_results_does_not_end_well(
    faults: str, status: int, told: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = load("once.jsonl")
    save("device.jsonl", replace(run, rows=tuple(row for row in run.rows if row.device == 0)))
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", faults)
    result = call("check", "device.jsonl", "--aa", "2", "--save", "new.jsonl", "-q")
    assert result.exit_code == status
    assert result.stderr.startswith(f"gemmbench: {told}" if told else "")
    assert result.stderr.count("\n") == bool(told)
    assert load("new.jsonl").rows


def test_a_base_that_is_called_like_a_command_is_no_run_of_it(call: Call) -> None:
    shutil.copy("once.jsonl", "tune")
    assert call("check", "tune", "--save", "new.jsonl", "-q").exit_code == 0
    assert load("new.jsonl").header.view == "square"
    shown, sweep = call("show", "new.jsonl").stdout, call("show", "once.jsonl").stdout
    assert shown.splitlines()[:3] == sweep.splitlines()[:3]
    assert "configuration" not in shown


def test_a_base_of_workloads_that_is_measured_again_keeps_its_table_and_scope(call: Call) -> None:
    words = ("workloads", "--set", "odd", "--kernel", "naive,tiled", "--no-peak", "--scope", "device", "-q")
    assert call(*words, "--save", "base.jsonl").exit_code == 0
    call("check", "base.jsonl", "--save", "new.jsonl", "-q")
    header = load("new.jsonl").header
    assert (header.view, header.scope) == ("workloads", "device")
    assert "GFLOPS on the device and with transfers" in call("show", "new.jsonl").stdout


def test_a_slower_row_is_measured_again_and_found(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_SLOW", "tiled 16 1.40")
    Path("count.pids").unlink()
    words = ("--threshold", "10 %", "--save", "new.jsonl", "--format", "json")
    result = call("check", "aa.jsonl", *words)
    assert result.exit_code == EXIT_WRONG
    assert len(set(Path("count.pids").read_text().split())) == 2 * (1 + 2)  # each round in two new processes
    assert verdicts(result.stdout)["tiled 16"] == "slower"
    data = json.loads(result.stdout)
    assert data["verdicts"]["slower"] == 1
    rows = load("new.jsonl").rows  # nothing is lost: control, row, control, twice
    assert [row.variant for row in rows[CASES:]] == ["numpy", "tiled", "numpy"] * 2
    assert result.stderr == f"Saved {CASES + 6} rows in new.jsonl.\n"
    (mine,) = (row for row in data["rows"] if row["verdict"] == "slower")
    assert (mine["base_runs"], mine["new_runs"]) == (REPETITIONS, 3)


@pytest.mark.parametrize(
    ("file", "sentence"),
    [
        ("gemmbench/__init__.py", "that gemmbench is too old to interleave with"),
        ("gemmbench/measure/instrument.py", "listing the OpenCL devices failed: the driver's process ended"),
    ],
)
def test_a_checkout_that_cannot_answer_is_one_sentence(file: str, sentence: str, call: Call) -> None:
    (Path("before") / file).parent.mkdir(parents=True)
    if file != "gemmbench/__init__.py":
        (Path("before") / "gemmbench/model").mkdir()
        (Path("before") / "gemmbench/model/instrument.py").write_text(f"PROTOCOL = {PROTOCOL}\n")
    for name in ("gemmbench/__init__.py", file):
        (Path("before") / name).write_text("raise SystemExit(3)\n")
    result = call("check", "once.jsonl", "--against", "before")
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert result.stderr.startswith(f"gemmbench: --against before: {sentence}")
    assert result.stderr.count("\n") == 1


def test_a_driver_that_is_not_there_is_one_sentence(call: Call) -> None:
    result = call("check", "once.jsonl", "--against", "driver:/nowhere/libcl.so")
    assert (result.exit_code, result.stdout) == (EXIT_USAGE, "")
    assert result.stderr == (
        "gemmbench: --against driver:/nowhere/libcl.so: there is no driver /nowhere/libcl.so\n"
    )


def test_a_kernel_that_this_version_lacks_is_missing_with_its_reason(call: Call) -> None:
    run = load("aa.jsonl")
    rows = [replace(row, variant="gone") if row.variant == "tiled" else row for row in run.rows]
    rows = [replace(row, parameters={"ODD": 1}) if row.variant == "register" else row for row in rows]
    save("old.jsonl", replace(run, rows=tuple(rows)))
    result = call("check", "old.jsonl", "--format", "json")
    assert result.exit_code == 0
    found = {row["variant"]: (row["verdict"], row["reason"]) for row in json.loads(result.stdout)["rows"]}
    assert found["gone"] == ("missing", "unsupported: this version has no kernel gone")
    assert found["register"][1].startswith("unsupported: this version has no such case: no chosen kernel has")
    assert found["naive"][0] == "unchanged"
    assert call("check", "old.jsonl", "--missing", "fail", "-q").exit_code == EXIT_WRONG


def test_a_device_is_found_by_what_it_is(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "pocl gpu cpu")
    assert call("check", "aa.jsonl", "--save", "new.jsonl", "-q").exit_code == 0
    assert [device.platform for device in load("new.jsonl").header.devices] == ["Intel(R) OpenCL"]


@pytest.mark.parametrize("selector", ["intel,pocl", "pocl,intel"])
@pytest.mark.parametrize("across", ["source", "device,driver"])
def test_named_devices_are_paired_by_what_they_are(
    selector: str, across: str, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "pocl cpu")
    assert call(*SWEEP, "--device", "all", "--save", "two.jsonl").exit_code == 0
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "cpu gpu pocl")
    words = ("--device", selector, "--across", across, "--threshold", "50 %")
    result = call("check", "two.jsonl", *words, "--save", "new.jsonl", "--format", "json", "-q")
    assert (result.exit_code, result.stderr) == (0, "")
    assert {row["verdict"] for row in json.loads(result.stdout)["rows"]} == {"within"}
    assert presets("new.jsonl") == presets("two.jsonl")


def presets(path: str) -> set[tuple[str, str, str]]:
    """What each device has run."""
    run = load(path)
    return {
        (device.title, row.variant, list_values(row.parameters))
        for row in run.rows
        if (device := run.device(row))
    }


def test_what_is_left_of_named_devices_is_paired_in_order(
    call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "pocl cpu")
    assert call(*SWEEP, "--device", "all", "--save", "two.jsonl").exit_code == 0
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "gpu pocl")
    words = ("check", "two.jsonl", "--device", "all", "--across", "device,driver", "-q", "--dry-run")
    assert call(*words[:4], "-q").stderr.startswith("gemmbench: other device: NVIDIA H200, not Intel(R)")
    titles = [each for each in call(*words).stdout.splitlines() if " | " in each]
    assert [each.split(" | ")[1] for each in titles] == ["PoCL 3.0-rc2", "NVIDIA CUDA 580.95.05"]


def test_the_bases_sampling_is_taken_unless_given(call: Call) -> None:
    run = load("aa.jsonl")
    policy = replace(run.header.policy, budget_s=7.0, cold=True)
    save("cold.jsonl", replace(run, header=replace(run.header, policy=policy)))
    assert call("check", "cold.jsonl", "--save", "a.jsonl", "-q").exit_code == 0
    assert load("a.jsonl").header.policy == policy
    assert call("check", "cold.jsonl", "--save", "b.jsonl", "--budget", "1", "-q").exit_code == 0
    assert load("b.jsonl").header.policy.budget_s == 1.0


def test_microbenchmarks_are_measured_again_too(call: Call) -> None:
    assert call("peak", "--types", "float", "--all", "--save", "peak.jsonl", "-q").exit_code in (
        0,
        EXIT_USAGE,
    )
    if not Path("peak.jsonl").exists():
        assert call("peak", "--all", "--save", "peak.jsonl", "-q").exit_code == 0
    ok = sum(row.status == "ok" for row in load("peak.jsonl").rows)
    result = call("check", "peak.jsonl", "--dry-run")
    assert result.stdout.count("\n  ") == ok > 50


def test_a_base_without_a_row_that_worked(call: Call) -> None:
    run = load("once.jsonl")
    rows = tuple(replace(row, status="crashed", samples={}) for row in run.rows)
    save("dead.jsonl", replace(run, rows=rows))
    result = call("check", "dead.jsonl")
    assert result.exit_code == EXIT_USAGE
    assert result.stderr == "gemmbench: dead.jsonl has no rows that can be measured again\n"


_DRIVER = """
from gemmbench import cli
from gemmbench.measure import machine
from tests.cli import recorded, slow_machine
machine.default = slow_machine.make
recorded.install()
cli.main()
"""


@pytest.mark.skipif(sys.platform == "win32", reason="signals are otherwise there")
def test_ctrl_c_shows_what_was_compared(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pid = tmp_path / "pid"
    monkeypatch.setattr("tests.cli.conftest._DRIVER", _DRIVER)
    faults = {"GEMMBENCH_FAKE_FAULTS": "register 16 hang", "GEMMBENCH_FAKE_PID": str(pid)}
    process = start("check", "aa.jsonl", "--save", "new.jsonl", **faults)
    end = time.monotonic() + 120
    while not (pid.exists() and pid.read_text()) and time.monotonic() < end:
        time.sleep(0.02)
    os.killpg(process.pid, signal.SIGINT)
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "naive" in out
    assert err.splitlines() == [
        "Saved 6 rows in new.jsonl.",
        "gemmbench: interrupted; the result covers the rows measured so far",
    ]
    assert len(load(tmp_path / "new.jsonl").rows) == 6
