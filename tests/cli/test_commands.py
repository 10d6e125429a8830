"""What every command prints, with a machine whose figures never change."""

from __future__ import annotations

import importlib
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gemmbench import cli
from gemmbench.ladder import VARIANTS
from gemmbench.model.device import driver_name
from gemmbench.model.run_file import load
from tests.cli.conftest import Call

Golden = Callable[[str, str], None]

# The golden file, and what to type for it.
PAGES = {
    "devices": "devices",
    "devices-json": "devices --json",
    "describe-naive": "kernels --describe naive",
    "peak": "peak",
    "peak-markdown": "peak --types float,int --format markdown",
    "peak-csv": "peak --types float --format csv",
    "square": "square --sizes 8,16 --kernel naive,tiled,register",
    "square-host": "square --sizes 8,16 --kernel naive,tiled --scope host",
    "square-all": "square --sizes 8,16 --kernel naive,tiled --scope all",
    "square-two": "square --sizes 8,16 --kernel naive --device all --dtype float,half",
    "square-plan": "square --sizes 8,16 --kernel naive,tiled --dtype float,half --device pocl --dry-run",
    "square-math": "square --sizes 8,16 --kernel naive,image-4x8 --math strict,fast",
    "sweep-k": "sweep-k --m 8 --n 16 --k-max 100 --kernel naive,tiled",
    "workloads": "workloads --kernel naive,tiled,register",
    "workloads-host": "workloads --set odd --kernel naive,register --scope host",
    "workloads-plan": "workloads --set transformer --prompt 7 --kernel naive --no-peak --dry-run",
    "gemm": "gemm -m 8 -n 16 -k 100 --kernel naive,tiled --alpha 2 --beta 0.5",
    "peak-plan": "peak --types float,half --device pocl --dry-run",
}


@pytest.mark.parametrize("name", PAGES)
def test_pages(name: str, call: Call, golden: Golden) -> None:
    result = call(*PAGES[name].split())
    assert result.exit_code == 0
    assert result.stderr == ""
    golden(f"command-{name}.txt", result.stdout)


def test_a_width_of_0_is_none(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "0")
    assert "naive" in call(*PAGES["square"].split()).stdout


@pytest.mark.parametrize("command", ["square-two", "workloads", "workloads-host", "square-host"])
def test_show_is_what_the_command_printed(command: str, call: Call, tmp_path: Path) -> None:
    path = str(tmp_path / "run.jsonl")
    made = call(*PAGES[command].split(), "--save", path)
    assert call("show", path).stdout.startswith(made.stdout)


def test_workloads_of_a_file(
    call: Call, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shapes.csv").write_text("name,m,n,k\r\nmine,8,16,100\r\n,5,6,7\r\nagain,8,16,100\r\n", "utf-8-sig")
    words = "workloads --file shapes.csv --kernel naive,tiled --no-peak --save run.jsonl"
    result = call(*words.split())
    assert (result.exit_code, result.stderr) == (0, "Saved 6 rows in run.jsonl.\n")
    golden("command-workloads-file.txt", result.stdout)
    rows = load("run.jsonl").rows
    assert [row.label for row in rows[::3]] == ["mine = again", "shapes.csv:3"]
    assert json.loads(call("show", "run.jsonl", "--format", "json").stdout)[0]["label"] == "mine = again"
    assert call(*words.split(), "--resume").stdout == result.stdout
    assert len(load("run.jsonl").rows) == 6


def test_a_crash_names_its_shape(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "tiled 96 sigsegv; naive 384 wrong")
    path = tmp_path / "run.jsonl"
    words = ("workloads", "--set", "alexnet", "--kernel", "naive,tiled", "--save", str(path))
    result = call(*words)
    assert result.exit_code == 1
    assert "crashed: tiled at alexnet conv1: the driver's process was killed by SIGSEGV" in result.stdout
    assert "wrong: naive at alexnet conv3" in result.stdout
    assert [row.label for row in load(path).rows if row.status == "crashed"] == ["alexnet conv1"]


@pytest.mark.parametrize(
    ("words", "labels"),
    [
        ("--set odd,alexnet", {"alexnet conv1", "2^9"}),
        ("--set alexnet,transformer,odd", {"alexnet conv1", "2^9", "token down"}),
        ("--set llm", {"8B qkv 1"}),
        ("--file shapes.csv", {"mine"}),
        ("--file shapes.csv --set odd", {"mine", "2^9"}),
    ],
)
def test_which_shapes(
    words: str, labels: set[str], call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("shapes.csv").write_text("name,m,n,k\nmine,8,16,100\n")
    call("workloads", "--kernel", "naive", "--no-peak", "--save", "run.jsonl", *words.split())
    found = {row.label for row in load("run.jsonl").rows}
    assert found & {"alexnet conv1", "2^9", "token down", "8B qkv 1", "mine"} == labels


def test_types_side_by_side_are_a_chart_of_square(call: Call, tmp_path: Path) -> None:
    run, chart = tmp_path / "run.jsonl", tmp_path / "types.svg"
    words = ("square", "--sizes", "8", "--kernel", "naive,tiled", "--dtype", "half,float,double")
    assert call(*words, "--save", str(run)).exit_code == 0
    assert call("plot", str(run), "--kind", "precision", "--out", str(chart)).exit_code == 0
    drawn = chart.read_text()
    assert all(dtype in drawn for dtype in ("half", "float", "double"))


def test_no_page_of_the_ladder_is_cut_off(call: Call) -> None:
    """At 80 columns: every idea of the list, every drawing and its words."""
    listed = " ".join(call("kernels").stdout.split())
    for variant in VARIANTS:
        assert " ".join(variant.idea.split()) in listed, variant.name
        assert max(map(len, call("kernels", "--describe", variant.name).stdout.splitlines())) <= 80


@pytest.mark.parametrize("form", ["table", "json", "csv", "markdown"])
def test_show(form: str, call: Call, golden: Golden, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved = call("square", "--sizes", "8,16", "--kernel", "naive,tiled", "--save", "run.jsonl")
    assert saved.stderr == f"Saved {len(load('run.jsonl').rows)} rows in run.jsonl.\n"
    shown = call("show", "run.jsonl", "--format", form)
    assert (shown.exit_code, shown.stderr) == (0, "")
    if form == "table":
        assert shown.stdout.startswith(saved.stdout)  # the peak's table follows
    text = shown.stdout
    for row in load("run.jsonl").rows:
        text = text.replace(row.source, "")  # which changes with every kernel
    if form == "json":
        rounded = json.loads(text, parse_float=lambda figure: float(f"{float(figure):.12g}"))
        text = json.dumps(rounded[4:6], indent=1)  # before the peaks
    golden(f"command-show-{form}.txt", text)


def test_peak_json_is_nothing_but_json(call: Call) -> None:
    result = call("peak", "-q", "--format", "json")
    rows = json.loads(result.stdout)
    assert [row["dtype"] for row in rows] == [t for t in ("float", "double", "half", "int") for _ in range(5)]
    assert all(row["gflops"] > 0 for row in rows)
    assert result.stderr == ""


def test_verbose_lines_go_to_stderr(call: Call) -> None:
    result = call("peak", "-v", "--types", "float", "--format", "json")
    assert len(json.loads(result.stdout)) == 5
    assert len(result.stderr.splitlines()) == 5


def test_the_saved_header_holds_the_command_but_not_where_it_was_saved(call: Call, tmp_path: Path) -> None:
    words = ("square", "--sizes", "8", "--no-peak", "--save", str(tmp_path / "run.jsonl"))
    call(*words)
    assert load(tmp_path / "run.jsonl").header.command == words[:-2]


def test_a_run_is_resumed_by_options_that_mean_the_same(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GEMMBENCH_DEVICE", raising=False)
    path = str(tmp_path / "run.jsonl")
    words = ("--sizes", "8", "--budget=0.10", "--time-limit", "100", "--no-peak", "--kernel", "naive")
    assert call("square", *words, "--device=0", "--save", path, "-vvv").exit_code == 0
    monkeypatch.setenv("GEMMBENCH_DEVICE", "0")
    alike = ("--kernel=naive", "--budget", ".1", "--no-peak", "--sizes=8", "--time-limit=1e2", "--beta=0")
    again = call("square", "-qv", f"--save={path}", *alike, "--resume")
    assert (again.exit_code, again.stderr) == (0, "")
    assert len(load(path).rows) == 2
    other = call("square", f"--save={path}", *alike, "--resume", "--seed", "2")
    assert other.exit_code == 2
    assert "made by another command" in other.stderr


@pytest.mark.parametrize(
    ("words", "sizes"),
    [
        ("--max 8", {8}),
        ("--max 130", {64, 128, 130}),
        ("--min 3 --max 8", {3, 4, 8}),
        ("--min 64 --max 64", {64}),
        ("--sizes 9,7,9", {7, 9}),
    ],
)
def test_sizes(words: str, sizes: set[int], call: Call, tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    call("square", "--kernel", "naive", "--no-peak", "--save", str(path), *words.split())
    assert {row.problem.m for row in load(path).rows if row.problem} == sizes


def test_a_dry_run_counts_results_that_are_probably_over_budget(call: Call) -> None:
    words = ("square", "--sizes", "64,16384", "--kernel", "naive,tiled", "--device", "0", "--dry-run")
    assert re.search(r"\d+ results, about \d+ (s|min), 3 probably over budget$", call(*words).stdout.rstrip())
    assert "budget" not in call(*words, "--budget", "1000").stdout.splitlines()[-1]


def test_a_dry_run_measures_and_writes_nothing(
    call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GEMMBENCH_FAKE_FAULTS", "naive 8 sigsegv; numpy 8 sigsegv")
    path, chart = tmp_path / "run.jsonl", tmp_path / "out.png"
    words = ("--sizes", "8", "--kernel", "naive", "--save", str(path), "--plot", str(chart))
    result = call("square", *words, "--dry-run")
    assert result.exit_code == 0
    assert "  naive float 8x8x8" in result.stdout
    assert list(tmp_path.iterdir()) == []


def test_charts(call: Call, tmp_path: Path) -> None:
    run, first, second = (tmp_path / name for name in ("run.jsonl", "a.svg", "b.svg"))
    measured = call("square", "--sizes", "8,16", "--save", str(run), "--plot", str(first))
    ladder = f"gemmbench plot {run} --kind ladder shows what each kernel gains.\n"
    assert measured.stderr == f"Saved {len(load(run).rows)} rows in {run}.\nDrew {first}.\n{ladder}"
    assert call("plot", str(run), "--plot", str(second)).exit_code == 0
    assert second.read_bytes() == first.read_bytes()


def test_the_host_alone_may_be_asked_for(call: Call) -> None:
    result = call("square", "--kernel", "numpy", "--sizes", "8", "--no-peak")
    assert (result.exit_code, result.stderr) == (0, "")


@pytest.mark.parametrize("words", [("--dtype", "bogus"), ("--kernel", "nonsense")])
def test_kernels_refuses_names_that_do_not_exist(words: tuple[str, str], call: Call) -> None:
    result = call("kernels", *words)
    assert (result.exit_code, result.stdout) == (2, "")
    assert words[1] in result.stderr


def test_sweep_k_takes_m_and_n_by_their_short_names(call: Call) -> None:
    words = ("--k-max", "64", "--kernel", "naive", "--baseline", "none", "--no-peak", "--dry-run")
    plan = call("sweep-k", "-m", "8", "-n", "16", *words)
    assert plan.exit_code == 0
    assert "8x16x64" in plan.stdout


def test_the_device_comes_from_the_environment(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GEMMBENCH_DEVICE", "pocl")
    assert "PoCL" in call("square", "--sizes", "8", "--dry-run").stdout


@pytest.mark.parametrize(
    ("dtype", "kernels"),
    [
        ("float", {"cpu-packed", "gpu-tile", "small", "thin", "numpy"}),
        ("half", {"cpu-packed", "gpu-tile", "small", "thin"}),
        ("e4m3", {"naive-fp8"}),
    ],
)
def test_workloads_runs_the_best_kernels(dtype: str, kernels: set[str], call: Call) -> None:
    plan = call(
        "workloads", "--set", "odd", "--dtype", dtype, "--no-peak", "--device", "intel", "--dry-run"
    ).stdout
    assert {line.split()[0] for line in plan.splitlines() if line.startswith("  ")} == kernels


def test_short_helps_are_the_first_lines_of_the_help() -> None:
    """They are written twice so that ``gemmbench --help`` imports no command."""
    for name, (module, line) in cli.COMMANDS.items():
        made = importlib.import_module(f"gemmbench.cli.{module}")
        command = getattr(made, f"{name.replace('-', '_')}_command")
        assert command.name == name
        assert (command.help or "").splitlines()[0] == line


_ALL_HELP = """
import click
from gemmbench import cli
for name in ("", *cli.COMMANDS):
    command = cli.load_command(name) if name else cli.main
    print(command.get_help(click.Context(command, info_name=name)))
"""


def test_help_is_the_same_where_python_drops_docstrings() -> None:
    texts = [
        subprocess.run([sys.executable, *flags, "-c", _ALL_HELP], capture_output=True, text=True, check=True)
        for flags in ([], ["-OO"])
    ]
    assert texts[0].stdout == texts[1].stdout
    assert all(line in texts[1].stdout for _, line in cli.COMMANDS.values())


def test_help_imports_no_command(call: Call) -> None:
    code = "import sys; from gemmbench.cli import main\ntry: main(['--help'])\nfinally: print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    loaded = set(done.stdout.split())
    assert not loaded & {"numpy", "rich", "msgspec", "matplotlib", "scipy", "pyopencl", "gemmbench.measure"}
    assert "click" in loaded


@pytest.mark.parametrize(
    "words",
    [
        "square --sizes 8,16 --kernel naive,tiled",
        "sweep-k --m 8 --n 8 --k-min 8 --k-max 16 --kernel naive,tiled",
        "gemm -m 8 --kernel naive,tiled",
        "workloads --set odd --kernel naive,tiled",
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
    drawn = " ".join(chart.read_text().split())
    for device in devices:
        driver = driver_name(device).partition(".")[0]
        assert driver in result.stdout
        assert driver in call("show", str(run), "--format", "markdown").stdout
        assert device.name in drawn
        assert device.name in call("show", str(run), "--format", "csv").stdout
