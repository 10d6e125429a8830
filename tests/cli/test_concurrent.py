"""Several devices at once: windows that overlap, and faults that cost their own row."""

from __future__ import annotations

import json
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmbench import api
from gemmbench.measure import child
from gemmbench.model.device import driver_name
from gemmbench.model.row import Row
from gemmbench.model.run_file import load
from tests.cli import stepping_machine
from tests.cli.conftest import Call, Start
from tests.cli.test_faults import is_alive, wait_for

WORDS = ("square", "--sizes", "8", "--kernel", "naive", "--no-peak", "--baseline", "none")
ALL = ("--device", "all", "--concurrent")


@pytest.fixture
def stepping(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "make_machine", stepping_machine.make)
    monkeypatch.setitem(child.CONDUCTORS, "gemm", "gemmbench.gemm.measure")


def rows_of(path: Path) -> dict[tuple[int, tuple[int, ...]], Row]:
    """By device and what was beside it."""
    return {(row.device, row.beside): row for row in load(path).rows}


def test_each_case_alone_then_at_once(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    words = ("square", "--sizes", "8,16", "--kernel", "naive,tiled", "--no-peak", *ALL, "--save", str(path))
    assert call(*words).exit_code == 0
    made = [(row.variant, row.problem.m, row.device, row.beside) for row in load(path).rows if row.problem]
    expected: list[tuple[str, int, int, tuple[int, ...]]] = []
    for size in (8, 16):
        for variant in ("naive", "tiled"):
            expected += [(variant, size, 0, ()), (variant, size, 1, ())]
            expected += [(variant, size, 0, (1,)), (variant, size, 1, (0,))]
        expected.append(("numpy", size, -1, ()))
    assert made == expected
    assert len({row.key for row in load(path).rows}) == len(made)


@pytest.mark.parametrize("width", [40, 80, 120])
def test_the_page(
    width: int, call: Call, golden: Callable[[str, str], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    result = call("square", "--sizes", "8,16", "--kernel", "naive", "--no-peak", *ALL)
    assert (result.exit_code, result.stderr) == (0, "")
    assert max(map(len, result.stdout.splitlines())) <= width
    golden(f"cli/concurrent-{width}.txt", result.stdout)


@pytest.mark.parametrize(
    "words",
    [
        "square --sizes 8,16 --kernel naive",
        "sweep-k --m 8 --n 8 --k-min 8 --k-max 16 --kernel naive",
        "gemm -m 8 --kernel naive,tiled",
        "workloads --set odd --kernel naive,tiled --no-peak",
        "precision --size 8 --kernel naive --dtype float,double",
        "peak --only transfer",
        "peak --only memory,latency",
    ],
)
def test_show_is_what_the_command_printed(words: str, call: Call, tmp_path: Path) -> None:
    path = str(tmp_path / "run.jsonl")
    made = call(*words.split(), *ALL, "--save", path)
    assert made.exit_code == 0
    assert "2 devices at once" in made.stdout
    shown = call("show", path)
    tail = made.stdout[made.stdout.index("2 devices at once") :]
    assert shown.stdout.endswith(tail)
    assert "**2 devices at once" in call("show", path, "--format", "markdown").stdout
    found = json.loads(call("show", path, "--format", "json").stdout)
    beside = [row for row in found if row["beside"]]
    assert beside
    assert {tuple(row["beside"]) for row in beside} == {(0,), (1,)}
    assert any(row["slowdown_low"] <= row["slowdown"] <= row["slowdown_high"] for row in beside)
    assert "beside=1" in call("show", path, "--format", "csv").stdout


def test_the_tables_of_one_device_do_not_know_of_the_others(call: Call, tmp_path: Path) -> None:
    words = ("peak", "--only", "transfer", "--device", "all")
    alone = call(*words).stdout
    assert call(*words, "--concurrent").stdout.startswith(alone)


@pytest.mark.usefixtures("stepping")
def test_every_sample_was_taken_while_both_were_busy(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_WINDOWS", str(tmp_path))
    path = tmp_path / "run.jsonl"
    assert call(*WORDS, *ALL, "--save", str(path)).exit_code == 0
    rows = rows_of(path)
    for window, scope in enumerate(("kernel", "device", "host")):
        batches = {device: batches_of(tmp_path / str(device), window) for device in (0, 1)}
        for device, other in ((0, 1), (1, 0)):
            kept = rows[device, (other,)].samples[scope].seconds
            assert len(kept) >= 3
            taken = [end - begin for begin, end in batches[device]]
            (first,) = (at for at in range(len(taken)) if taken[at : at + len(kept)] == [*kept])
            assert first >= 1  # the batches before and after do not count
            assert first + len(kept) < len(taken)
            assert batches[device][first][0] >= batches[other][0][0]
            assert batches[device][first + len(kept) - 1][1] <= batches[other][-1][1]


def batches_of(path: Path, window: int) -> list[tuple[float, float]]:
    lines = [line.split() for line in path.read_text().splitlines()]
    return [(float(begin), float(end)) for number, begin, end in lines if int(number) == window]


@pytest.mark.usefixtures("stepping", "skips")
@pytest.mark.parametrize("fault", ["sigsegv", "exit", "hang", "device-memory", "os-error", "wrong"])
@pytest.mark.parametrize("window", [0, 2])
def test_a_fault_costs_its_own_row_and_the_others_go_on(
    fault: str, window: int, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_DEVICES", "cpu pocl gpu")
    monkeypatch.setenv("GEMMBENCH_FAKE_STEPS", f"1 {window} {fault}")
    path = tmp_path / "run.jsonl"
    result = call(*WORDS, *ALL, "--save", str(path))
    rows = rows_of(path)
    status = {"sigsegv": "crashed", "exit": "crashed", "hang": "timed-out", "wrong": "wrong"}
    assert rows[1, (0, 2)].status == status.get(fault, "failed")
    assert result.exit_code == (1 if fault == "wrong" else 0)
    assert {rows[device, ()].status for device in (0, 1, 2)} == {"ok"}
    for device, other in ((0, 2), (2, 0)):  # they say beside whom they really ran
        assert rows[device, (other,)].status == "ok"
        assert all(len(scope.seconds) >= 3 for scope in rows[device, (other,)].samples.values())


@pytest.mark.usefixtures("stepping", "skips")
@pytest.mark.parametrize("fault", ["sigsegv", "hang"])
def test_with_nobody_left_there_is_no_figure_but_a_reason(
    fault: str, call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_STEPS", f"0 0 {fault}")
    path = tmp_path / "run.jsonl"
    result = call(*WORDS, *ALL, "--save", str(path))
    assert result.exit_code == 0
    left, word = rows_of(path)[1, (0,)], {"sigsegv": "crashed", "hang": "timed-out"}[fault]
    assert (left.status, left.reason) == ("skipped", f"no other device was left beside it: 0 {word}")
    assert left.reason in " ".join(result.stdout.split())


def test_what_fails_alone_is_not_tried_at_once(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "naive 8 sigsegv")
    path = tmp_path / "run.jsonl"
    call(*WORDS, *ALL, "--save", str(path))
    reasons = {row.reason for row in load(path).rows if row.beside}
    assert reasons == {"alone it is crashed"}


@pytest.mark.usefixtures("stepping")
@pytest.mark.parametrize("lines", [4, 5, 6], ids=["none", "one of two", "all"])
def test_resuming_adds_what_is_missing(lines: int, call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    words = (*WORDS, *ALL, "--save", str(path))
    assert call(*words).exit_code == 0
    whole = path.read_bytes().splitlines(keepends=True)
    assert len(whole) == 1 + 2 + 2
    path.write_bytes(b"".join(whole[: lines - 1]))
    assert call(*words, "--resume").exit_code == 0
    assert path.read_bytes().startswith(b"".join(whole[: lines - 1]))
    assert len(load(path).rows) == len({row.key for row in load(path).rows}) == 4


def test_energy_is_measured_alone_only(call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    assert call(*WORDS, *ALL, "--energy", "--save", str(path)).exit_code == 0
    why = {row.energy.why for row in load(path).rows if row.beside}
    assert why == {"not measured: with other devices busy a counter may count them too"}


def test_the_plan(call: Call) -> None:
    result = call(*WORDS, *ALL, "--dry-run")
    assert result.exit_code == 0
    assert "  run   naive float 8x8x8 on 0 and 1 at once\n" in result.stdout
    assert "3 cases" in result.stdout


def test_the_chart(call: Call, tmp_path: Path) -> None:
    run, chart = tmp_path / "run.jsonl", tmp_path / "out.svg"
    assert call(*WORDS, *ALL, "--save", str(run), "--plot", str(chart)).exit_code == 0
    assert "devices at once" in chart.read_text()
    assert "slowdown" in chart.read_text()
    other = tmp_path / "other.svg"
    assert call("plot", str(run), "--kind", "concurrent", "-o", str(other)).exit_code == 0
    assert other.read_bytes() == chart.read_bytes()


#   what is typed                                        the sentence
ERRORS = {
    "one device": ("square --device 0 --concurrent", "--concurrent needs two devices or more: --device all,"),
    "nothing": ("peak --device all --concurrent", "--concurrent finds nothing that two of the devices run"),
    "latency": ("peak --only latency --device all --concurrent", "--concurrent finds nothing that two"),
    "host": ("square --kernel numpy --device all --concurrent", "--concurrent finds nothing that two"),
    "check": ("check base.jsonl --concurrent", "No such option '--concurrent'"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_errors_are_one_sentence(case: str, call: Call) -> None:
    words, sentence = ERRORS[case]
    result = call(*words.split())
    assert result.exit_code == 2
    assert sentence in result.stderr
    assert len(result.stderr.splitlines()) == 1


@pytest.mark.usefixtures("steady")
def test_check_measures_the_rows_alone_again(call: Call, tmp_path: Path) -> None:
    base = tmp_path / "base.jsonl"
    assert call(*WORDS, *ALL, "--save", str(base)).exit_code == 0
    new = tmp_path / "new.jsonl"
    call("check", str(base), "--device", "all", "--save", str(new))
    assert {row.beside for row in load(new).rows} == {()}
    assert len(load(new).rows) == 2


@pytest.mark.usefixtures("steady")
def test_compare_pairs_rows_by_what_was_beside_them(call: Call, tmp_path: Path) -> None:
    base, new = tmp_path / "base.jsonl", tmp_path / "new.jsonl"
    for path in (base, new):
        assert call(*WORDS, *ALL, "--save", str(path)).exit_code == 0
    rows = json.loads(call("compare", str(base), str(new), "--format", "json").stdout)["rows"]
    assert [row["verdict"] for row in rows] == ["same"] * 4
    assert [row["parameters"].get("beside") for row in rows].count(None) == 2


@pytest.mark.skipif(sys.platform == "win32", reason="signals are otherwise there")
def test_ctrl_c_prints_the_table_so_far(start: Start, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    words = ("square", "--sizes", "8,16", "--kernel", "naive,tiled", "--no-peak", *ALL, "--save", "run.jsonl")
    hang = {"GEMMBENCH_FAKE_STEPS": "1 1 hang", "GEMMBENCH_FAKE_PID": str(pid)}
    process = start(*words, GEMMBENCH_FAKE_MACHINE="stepping_machine", **hang)
    wait_for(lambda: pid.exists() and pid.read_text() != "", process)
    os.killpg(process.pid, signal.SIGINT)  # as a terminal does: to the children as well
    out, err = process.communicate(timeout=120)
    assert process.returncode == 130
    assert "naive" in out
    assert err.startswith("gemmbench: interrupted; 2 rows are saved in run.jsonl; ")
    assert not is_alive(int(pid.read_text()))


# --- one device after another -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        "square --sizes 8,16 --kernel naive,tiled",
        "sweep-k --m 8 --n 8 --k-min 8 --k-max 16 --kernel naive,tiled",
        "gemm -m 8 --kernel naive,tiled",
        "workloads --set odd --kernel naive,tiled",
        "precision --size 8 --kernel naive,tiled --dtype float,double",
        "peak --types float",
        "peak --only transfer",
        "peak --only memory",
        "peak --only latency",
    ],
)
def test_every_command_takes_one_device_after_another(words: str, call: Call, tmp_path: Path) -> None:
    run, chart = tmp_path / "run.jsonl", tmp_path / "out.svg"
    result = call(*words.split(), "--device", "all", "--save", str(run), "--plot", str(chart))
    assert result.exit_code == 0
    devices = load(run).header.devices
    assert len(devices) == 2
    assert {row.device for row in load(run).rows} >= {0, 1}
    assert not any(row.beside for row in load(run).rows)
    drawn = " ".join(chart.read_text().split())
    for device in devices:
        assert driver_name(device) in result.stdout
        assert driver_name(device) in call("show", str(run), "--format", "markdown").stdout
        assert device.driver in drawn
        assert device.name in call("show", str(run), "--format", "csv").stdout
